//! Arrays of the host as the library's bytes, without copies: checks of type, layout and shape.

use numpy::{
    Complex32, Element, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sidereal::sample::Encoding;

use crate::arguments::kind;
use crate::dlpack;
use crate::errors::refused;

/// Array that is borrowed for reading, of a type that the library has.
#[derive(Debug)]
pub(crate) enum Readable<'py> {
    U8(PyReadonlyArrayDyn<'py, u8>),
    I8(PyReadonlyArrayDyn<'py, i8>),
    U16(PyReadonlyArrayDyn<'py, u16>),
    I16(PyReadonlyArrayDyn<'py, i16>),
    I32(PyReadonlyArrayDyn<'py, i32>),
    F32(PyReadonlyArrayDyn<'py, f32>),
    F64(PyReadonlyArrayDyn<'py, f64>),
    Complex(PyReadonlyArrayDyn<'py, Complex32>),
}

/// Evaluates an expression of the array of any type.
macro_rules! each {
    ($any:expr, $array:ident => $value:expr) => {
        match $any {
            Readable::U8($array) => $value,
            Readable::I8($array) => $value,
            Readable::U16($array) => $value,
            Readable::I16($array) => $value,
            Readable::I32($array) => $value,
            Readable::F32($array) => $value,
            Readable::F64($array) => $value,
            Readable::Complex($array) => $value,
        }
    };
}

impl<'py> Readable<'py> {
    /// Borrows an array; `name` is the argument's.
    ///
    /// # Errors
    /// `ParameterError` unless it is an array of a type of this enum in the machine's byte order, contiguous in C
    /// order and aligned, which no other call is writing.
    pub(crate) fn new(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let value = host(name, value)?;
        let array = checked(name, &value)?;
        if let Ok(array) = array.cast::<PyArrayDyn<u8>>() {
            return Ok(Self::U8(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<i8>>() {
            return Ok(Self::I8(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<u16>>() {
            return Ok(Self::U16(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<i16>>() {
            return Ok(Self::I16(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<i32>>() {
            return Ok(Self::I32(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            return Ok(Self::F32(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            return Ok(Self::F64(reading(name, array)?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<Complex32>>() {
            return Ok(Self::Complex(reading(name, array)?));
        }
        let rule = "the types are uint8, int8, uint16, int16, int32, float32, float64 and complex64 in the machine's \
                    byte order; `astype` converts";
        Err(refused(name, format!("an array of {}", array.dtype()), rule))
    }

    /// Returns the lengths of the axes.
    pub(crate) fn shape(&self) -> &[usize] {
        each!(self, array => array.shape())
    }

    /// Returns the name of the elements' type.
    pub(crate) fn kind(&self) -> String {
        each!(self, array => array.dtype().to_string())
    }

    /// Returns the bytes of all elements in C order.
    ///
    /// # Errors
    /// As [`Readable::new`] for the layout.
    pub(crate) fn bytes(&self) -> PyResult<&[u8]> {
        Ok(each!(self, array => bytemuck::cast_slice(array.as_slice()?)))
    }

    /// Returns the encoding of filterbank samples.
    ///
    /// # Errors
    /// As [`encoding_of`].
    pub(crate) fn encoding(&self, name: &'static str) -> PyResult<Encoding> {
        encoding_of(name, &self.kind())
    }

    /// Returns the lengths of two axes.
    ///
    /// # Errors
    /// As [`plane_of`].
    pub(crate) fn plane(&self, name: &'static str, axes: &str) -> PyResult<[usize; 2]> {
        plane_of(name, self.shape(), axes)
    }
}

/// Returns the encoding of filterbank samples of a type.
///
/// # Errors
/// `ParameterError` for complex numbers, 32-bit integers and double precision.
pub(crate) fn encoding_of(name: &'static str, kind: &str) -> PyResult<Encoding> {
    match kind {
        "uint8" => Ok(Encoding::U8),
        "int8" => Ok(Encoding::I8),
        "uint16" => Ok(Encoding::U16),
        "int16" => Ok(Encoding::I16),
        "float32" => Ok(Encoding::F32),
        _ => {
            let rule = "samples of filterbanks are uint8, int8, uint16, int16 or float32";
            Err(refused(name, format!("an array of {kind}"), rule))
        }
    }
}

/// Returns the lengths of two axes.
///
/// # Errors
/// `ParameterError` for another number of axes; `axes` are their names.
pub(crate) fn plane_of(name: &'static str, shape: &[usize], axes: &str) -> PyResult<[usize; 2]> {
    <[usize; 2]>::try_from(shape).map_err(|_| {
        let rule = format!("its axes must be {axes}");
        refused(name, format!("an array of {} axes", shape.len()), rule)
    })
}

/// Returns an array of another library in the host's memory as NumPy's, by DLPack without a copy; other objects stay as
/// they are.
///
/// # Errors
/// `ParameterError` for an array in a GPU's memory, and one that NumPy refuses.
pub(crate) fn host<'py>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if value.cast::<PyUntypedArray>().is_ok() {
        return Ok(value.clone());
    }
    let device = dlpack::device_of(name, value)?;
    if let Some((dlpack::CPU | dlpack::CUDA_HOST, _)) = device {
        let array = value.py().import("numpy")?.call_method1("from_dlpack", (value,));
        return array.map_err(|error| {
            refused(name, format!("{}: {error}", kind(value)), "NumPy must read it")
        });
    }
    if device.is_some() || value.hasattr("__cuda_array_interface__").unwrap_or(false) {
        let found = format!("{}, an array of a device", kind(value));
        return Err(refused(name, found, "it must be in the host's memory here"));
    }
    Ok(value.clone())
}

fn reading<'py, T: Element>(
    name: &'static str,
    array: &Bound<'py, PyArrayDyn<T>>,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    array.try_readonly().map_err(|error| refused(name, "in use", error.to_string()))
}

/// Borrows an array for writing.
///
/// # Errors
/// `ParameterError` unless it is a writable, aligned array of this type and shape, contiguous in C order, which no
/// other call is using.
pub(crate) fn writable<'py, T: Element>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    shape: &[usize],
) -> PyResult<PyReadwriteArrayDyn<'py, T>> {
    let array = checked(name, value)?;
    let typed = array.cast::<PyArrayDyn<T>>().map_err(|_| {
        let rule = format!("it must be of {}", T::get_dtype(value.py()));
        refused(name, format!("an array of {}", array.dtype()), rule)
    })?;
    if typed.shape() != shape {
        let rule = format!("it must have the shape {shape:?}");
        return Err(refused(name, format!("an array of shape {:?}", typed.shape()), rule));
    }
    if !typed.getattr("flags")?.getattr("writeable")?.extract::<bool>()? {
        return Err(refused(name, "a read-only array", "the result is written into it"));
    }
    typed.try_readwrite().map_err(|error| refused(name, "in use", error.to_string()))
}

/// Returns an object as an array after a check of its layout.
fn checked<'a, 'py>(
    name: &'static str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
    let array = value
        .cast::<PyUntypedArray>()
        .map_err(|_| refused(name, kind(value), "it must be a NumPy array"))?;
    let flags = array.getattr("flags")?;
    for (flag, rule) in [
        ("c_contiguous", "it must be contiguous in C order; `numpy.ascontiguousarray` copies"),
        ("aligned", "its elements must be aligned; `numpy.require(x, requirements='A')` copies"),
    ] {
        if !flags.getattr(flag)?.extract::<bool>()? {
            return Err(refused(name, "an array of another layout", rule));
        }
    }
    Ok(array)
}

/// Allocates an array whose elements have no particular value.
///
/// # Errors
/// `MemoryError`, or `ValueError` for a shape that no address space holds.
pub(crate) fn empty<'py, T: Element>(
    py: Python<'py>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let arguments = (PyTuple::new(py, shape)?, T::get_dtype(py));
    Ok(py.import("numpy")?.call_method1("empty", arguments)?.cast_into::<PyArrayDyn<T>>()?)
}

/// Returns `out` after a check, or a new array.
///
/// # Errors
/// As [`writable`] and [`empty`].
pub(crate) fn output<'py, T: Element>(
    py: Python<'py>,
    out: Option<&Bound<'py, PyAny>>,
    shape: &[usize],
) -> PyResult<PyReadwriteArrayDyn<'py, T>> {
    match out {
        Some(out) => writable("out", out, shape),
        None => writable("out", empty::<T>(py, shape)?.as_any(), shape),
    }
}
