//! DLPack: tensors that other libraries hand over, and arrays of this package for other libraries.
//!
//! The structures are those of DLPack 1.0, and those without a version before it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::errors::refused;

/// Kinds of devices.
pub(crate) const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;
pub(crate) const CUDA_HOST: i32 = 3;
pub(crate) const CUDA_MANAGED: i32 = 13;

/// Most axes of a tensor.
const MAX_AXES: i32 = 32;

/// Flag of a tensor that must not be written.
const READ_ONLY: u64 = 1;

/// Names of capsules.
const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy)]
struct DlVersion {
    major: u32,
    minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    id: i32,
}

/// Type of elements: a code (0 signed, 1 unsigned, 2 float, 5 complex), bits, and elements of a vector.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DlType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    kind: DlType,
    shape: *mut i64,
    /// In elements; null if contiguous.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: DlVersion,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// Tensor that another library hands over. Its capsule is not consumed, and frees the tensor when it is dropped.
pub(crate) struct Imported<'py> {
    pub(crate) address: u64,
    pub(crate) shape: Vec<i64>,
    /// In elements; none if contiguous.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) kind: DlType,
    pub(crate) device: (i32, i32),
    pub(crate) is_read_only: bool,
    pub(crate) capsule: Bound<'py, PyCapsule>,
}

/// Returns the kind and the number of the device of an object that has `__dlpack_device__`; none without it.
///
/// # Errors
/// `ParameterError` for anything but two integers.
pub(crate) fn device_of(
    name: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<(i32, i32)>> {
    if !value.hasattr("__dlpack_device__").unwrap_or(false) {
        return Ok(None);
    }
    let device = value.call_method0("__dlpack_device__");
    let device = device.and_then(|device| {
        let (kind, number): (Bound<'_, PyAny>, i32) = device.extract()?;
        // Libraries have an enumeration for the kind.
        Ok((kind.call_method0("__index__")?.extract()?, number))
    });
    let rule = "it must return the kind and the number of a device";
    device.map(Some).map_err(|error| refused(name, format!("`__dlpack_device__`: {error}"), rule))
}

/// Takes a tensor over from another library; its work on the legacy default stream comes after what makes the tensor.
///
/// # Errors
/// `ParameterError` for an exception of the library, for another object than a capsule of DLPack, and for another
/// version.
pub(crate) fn import<'py>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Imported<'py>> {
    let py = value.py();
    let wrong = |found: String, rule: &str| refused(name, format!("`__dlpack__`: {found}"), rule);
    let options = PyDict::new(py);
    options.set_item("stream", 1)?;
    options.set_item("max_version", (1, 0))?;
    let made = match value.call_method("__dlpack__", (), Some(&options)) {
        // Libraries of before DLPack 1.0 do not have the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            options.del_item("max_version")?;
            value.call_method("__dlpack__", (), Some(&options))
        }
        other => other,
    };
    let made = made.map_err(|error| wrong(error.to_string(), "it must return a capsule"))?;
    let capsule = made
        .cast_into::<PyCapsule>()
        .map_err(|error| wrong(error.to_string(), "it must return a capsule"))?;
    if let Some(managed) = pointer::<ManagedVersioned>(&capsule, VERSIONED) {
        // SAFETY: a capsule of this name points to a tensor that begins with its version, and lives as long.
        let version = unsafe { (*managed).version };
        if version.major != 1 {
            let found = format!("version {}.{}", version.major, version.minor);
            return Err(wrong(found, "version 1 is known"));
        }
        // SAFETY: as above, and the version has these fields.
        let (tensor, flags) = unsafe { (&(*managed).tensor, (*managed).flags) };
        return read(name, tensor, flags & READ_ONLY != 0, &capsule);
    }
    match pointer::<Managed>(&capsule, PLAIN) {
        // SAFETY: a capsule of this name points to a tensor, which lives as long.
        Some(managed) => read(name, unsafe { &(*managed).tensor }, false, &capsule),
        None => {
            Err(wrong("another capsule".to_owned(), "it must be one of a tensor, not used before"))
        }
    }
}

/// Returns the pointer of a capsule with this name.
fn pointer<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> Option<*mut T> {
    // SAFETY: both calls take any object; the pointer is not null if the capsule is valid.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        Some(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast::<T>())
    }
}

/// Copies the description of a tensor.
fn read<'py>(
    name: &'static str,
    tensor: &DlTensor,
    is_read_only: bool,
    capsule: &Bound<'py, PyCapsule>,
) -> PyResult<Imported<'py>> {
    let axes = tensor.ndim;
    if !(0..=MAX_AXES).contains(&axes) || (tensor.shape.is_null() && axes > 0) {
        let rule = format!("it has a shape of 0 to {MAX_AXES}");
        return Err(refused(name, format!("a tensor of {axes} axes"), rule));
    }
    // SAFETY: the tensor has these numbers, and the pointer is not null.
    let numbers = |from: *mut i64| unsafe {
        match axes {
            0 => Vec::new(),
            axes => std::slice::from_raw_parts(from, axes as usize).to_vec(),
        }
    };
    Ok(Imported {
        address: (tensor.data as u64).wrapping_add(tensor.byte_offset),
        shape: numbers(tensor.shape),
        strides: (!tensor.strides.is_null()).then(|| numbers(tensor.strides)),
        kind: tensor.kind,
        device: (tensor.device.kind, tensor.device.id),
        is_read_only,
        capsule: capsule.clone(),
    })
}

/// Contiguous array in a GPU's memory, for another library; `owner` keeps the memory.
pub(crate) struct Exported {
    pub(crate) address: u64,
    pub(crate) shape: Vec<i64>,
    pub(crate) kind: DlType,
    pub(crate) device: i32,
    pub(crate) owner: Box<dyn Send>,
}

/// Holds an exported tensor and the memory it points to; the tensor is the first field, as its consumer expects.
#[repr(C)]
struct Held<T> {
    managed: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: Box<dyn Send>,
}

impl Exported {
    /// Makes a capsule, of DLPack 1.0 if the other library takes it.
    ///
    /// # Errors
    /// `BufferError` if Python makes none.
    pub(crate) fn capsule(self, py: Python<'_>, is_versioned: bool) -> PyResult<Py<PyAny>> {
        let tensor = DlTensor {
            data: self.address as *mut c_void,
            device: DlDevice { kind: CUDA, id: self.device },
            ndim: self.shape.len() as i32,
            kind: self.kind,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let (shape, owner) = (self.shape, self.owner);
        let context = std::ptr::null_mut();
        if is_versioned {
            let (version, deleter) = (DlVersion { major: 1, minor: 0 }, Some(free_versioned as _));
            let managed = ManagedVersioned { version, context, deleter, flags: 0, tensor };
            let held = hold(managed, shape, owner, |managed| &mut managed.tensor);
            return capsule_of(py, held.cast(), VERSIONED, drop_versioned, || {
                // SAFETY: `hold` made it, and nothing else has it.
                unsafe { free_versioned(held.cast()) }
            });
        }
        let managed = Managed { tensor, context, deleter: Some(free) };
        let held = hold(managed, shape, owner, |managed| &mut managed.tensor);
        // SAFETY: `hold` made it, and nothing else has it.
        capsule_of(py, held.cast(), PLAIN, drop_plain, || unsafe { free(held.cast()) })
    }
}

/// Moves a tensor, its shape and its owner to memory of their own. The tensor is at its start.
fn hold<T>(
    managed: T,
    shape: Vec<i64>,
    owner: Box<dyn Send>,
    tensor: fn(&mut T) -> &mut DlTensor,
) -> *mut Held<T> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    let mut held = Box::new(Held { managed, shape, strides, _owner: owner });
    let (shape, strides) = (held.shape.as_mut_ptr(), held.strides.as_mut_ptr());
    let tensor = tensor(&mut held.managed);
    (tensor.shape, tensor.strides) = (shape, strides);
    Box::into_raw(held)
}

fn capsule_of(
    py: Python<'_>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
    free: impl FnOnce(),
) -> PyResult<Py<PyAny>> {
    // SAFETY: the pointer is not null, and the name is never freed.
    let made = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)) };
    if made.is_null() {
        free();
        return Err(PyBufferError::new_err("Python made no capsule"));
    }
    // SAFETY: a new reference to a valid object.
    Ok(unsafe { Bound::from_owned_ptr(py, made) }.unbind())
}

/// Frees a tensor that `hold` made.
unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: called once, by the tensor's owner; the tensor is at the start of what holds it.
    drop(unsafe { Box::from_raw(managed.cast::<Held<Managed>>()) });
}

/// As [`free`], for a tensor with a version.
unsafe extern "C" fn free_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as for `free`.
    drop(unsafe { Box::from_raw(managed.cast::<Held<ManagedVersioned>>()) });
}

/// Frees the tensor of a capsule that no library has consumed: consumers change its name.
unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: Python drops the capsule, and this module made its pointer.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            free(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

/// As [`drop_plain`], for a tensor with a version.
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as for `drop_plain`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            free_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}
