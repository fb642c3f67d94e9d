//! Arrays in a GPU's memory that callers give: by their array interface, or by DLPack.
#![allow(unsafe_code)]

use bytemuck::Pod;
use numpy::PyUntypedArray;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sidereal::backend::cuda::{self, Buffer};

use crate::arguments::kind;
use crate::arrays::host;
use crate::dlpack::{self, DlType, Imported};
use crate::errors::{detached, raised, refused};

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    /// NumPy's name.
    pub(crate) name: &'static str,
    /// Type in an array interface, of the machine's byte order.
    pub(crate) typestr: &'static str,
    /// Code and bits in DLPack.
    code: u8,
    bits: u8,
}

impl Elements {
    /// Returns the bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Returns the type with this name in NumPy.
    pub(crate) fn named(name: &str) -> Option<Self> {
        TYPES.into_iter().find(|known| known.name == name)
    }

    /// Returns the type in DLPack.
    pub(crate) fn dlpack(self) -> DlType {
        DlType { code: self.code, bits: self.bits, lanes: 1 }
    }
}

const fn elements(name: &'static str, typestr: &'static str, code: u8, bits: u8) -> Elements {
    Elements { name, typestr, code, bits }
}

/// Types that functions take on a GPU.
const TYPES: [Elements; 7] = [
    elements("uint8", "|u1", 1, 8),
    elements("int8", "|i1", 0, 8),
    elements("uint16", "<u2", 1, 16),
    elements("int16", "<i2", 0, 16),
    elements("int32", "<i4", 0, 32),
    elements("float32", "<f4", 2, 32),
    elements("complex64", "<c8", 5, 64),
];

/// Array in a GPU's memory that a caller gives. Its memory belongs to another library, or to this package.
pub(crate) struct Given<'py> {
    name: &'static str,
    address: u64,
    pub(crate) shape: Vec<usize>,
    /// Bytes from element to element of each axis.
    pub(crate) strides: Vec<usize>,
    pub(crate) elements: Elements,
    pub(crate) is_read_only: bool,
    /// Whether work of another stream may still use the memory.
    is_pending: bool,
    /// Device that holds it; none without elements.
    ordinal: Option<usize>,
    /// Keeps the memory.
    _owner: Bound<'py, PyAny>,
}

impl<'py> Given<'py> {
    /// Returns an array in a GPU's memory, by its array interface or DLPack; none for other objects.
    ///
    /// # Errors
    /// `ParameterError` for an interface that violates its rules, types that are not in [`TYPES`], negative strides,
    /// and addresses that are not the device's.
    pub(crate) fn of(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        if value.cast::<PyUntypedArray>().is_ok() {
            return Ok(None);
        }
        match value.getattr("__cuda_array_interface__") {
            Ok(interface) => return Self::by_interface(name, value, &interface).map(Some),
            Err(error) if error.is_instance_of::<PyAttributeError>(value.py()) => {}
            Err(error) => {
                let found = format!("`__cuda_array_interface__`: {error}");
                return Err(refused(name, found, "it must be an array on a GPU"));
            }
        }
        match dlpack::device_of(name, value)? {
            None | Some((dlpack::CPU | dlpack::CUDA_HOST, _)) => Ok(None),
            Some((dlpack::CUDA | dlpack::CUDA_MANAGED, _)) => {
                Self::by_dlpack(name, dlpack::import(name, value)?).map(Some)
            }
            Some((other, _)) => {
                let rule = "arrays are in the memory of the host (1) or of a CUDA device (2)";
                Err(refused(name, format!("on a device of DLPack's kind {other}"), rule))
            }
        }
    }

    fn by_interface(
        name: &'static str,
        value: &Bound<'py, PyAny>,
        interface: &Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let wrong = |found: String, rule: &str| {
            refused(name, format!("`__cuda_array_interface__`: {found}"), rule)
        };
        let Ok(interface) = interface.cast::<PyDict>() else {
            return Err(wrong(kind(interface), "it must be a dict"));
        };
        let field = |key: &str| {
            let value = interface.get_item(key)?;
            Ok::<_, PyErr>(value.filter(|value| !value.is_none()))
        };
        let described = |key: &str, rule: &str| {
            let value = field(key)?;
            let found = match value {
                Some(value) => format!("{key} = {}", value.repr()?),
                None => format!("no {key}"),
            };
            Ok::<_, PyErr>(wrong(found, rule))
        };
        macro_rules! must {
            ($key:literal, $type:ty, $rule:literal) => {
                match field($key)?.map(|value| value.extract::<$type>()) {
                    Some(Ok(value)) => value,
                    _ => return Err(described($key, $rule)?),
                }
            };
        }
        let version = must!("version", i64, "it must be 1 or more");
        if version < 1 {
            return Err(described("version", "it must be 1 or more")?);
        }
        let shape = must!("shape", Vec<i64>, "it must be a tuple of int");
        let typestr = must!("typestr", String, "it must be a str");
        let (address, is_read_only) =
            must!("data", (u64, bool), "it must be an address and whether it is read-only");
        if field("mask")?.is_some() {
            return Err(wrong("a mask".to_owned(), "masked arrays are not accepted"));
        }
        let alike = typestr.replacen('=', "<", 1).replacen("|", "<", 1);
        let known = |known: &Elements| known.typestr.replacen('|', "<", 1) == alike;
        let elements = TYPES.into_iter().find(known);
        let elements = elements.ok_or_else(|| wrong(format!("typestr = {typestr}"), &types()))?;
        let strides = match field("strides")? {
            None => None,
            Some(value) => match value.extract::<Vec<i64>>() {
                Ok(strides) => Some(strides),
                Err(_) => return Err(described("strides", "it must be a tuple of int")?),
            },
        };
        // Before version 3 there is no word of a stream. The number of a stream is not used: all work is waited for.
        let is_pending = match field("stream")? {
            None => version < 3,
            Some(stream) => match stream.extract::<i64>() {
                Ok(0) | Err(_) => {
                    return Err(described("stream", "it must be an int other than 0, or None")?);
                }
                Ok(_) => true,
            },
        };
        let own = Self::new(name, address, elements, shape, strides, value.clone())?;
        Ok(Self { is_read_only, is_pending, ..own })
    }

    fn by_dlpack(name: &'static str, tensor: Imported<'py>) -> PyResult<Self> {
        let found = TYPES.into_iter().find(|known| known.dlpack() == tensor.kind);
        let elements = found.ok_or_else(|| {
            let DlType { code, bits, lanes } = tensor.kind;
            let found = format!("a tensor of code {code}, {bits} bits and {lanes} lanes");
            refused(name, found, types())
        })?;
        let size = elements.bytes() as i64;
        let strides = tensor.strides;
        let strides = strides.map(|all| all.iter().map(|each| each.saturating_mul(size)).collect());
        let owner = tensor.capsule.into_any();
        let own = Self::new(name, tensor.address, elements, tensor.shape, strides, owner)?;
        if own.ordinal.is_some_and(|ordinal| i32::try_from(ordinal) != Ok(tensor.device.1)) {
            let found = format!("a tensor on device {}", tensor.device.1);
            return Err(refused(name, found, "its memory must be that device's"));
        }
        Ok(Self { is_read_only: tensor.is_read_only, is_pending: true, ..own })
    }

    /// Checks shape, strides and address.
    fn new(
        name: &'static str,
        address: u64,
        elements: Elements,
        shape: Vec<i64>,
        strides: Option<Vec<i64>>,
        owner: Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let lengths = shape.iter().map(|length| usize::try_from(*length).ok());
        let lengths: Option<Vec<usize>> = lengths.collect();
        let bytes = lengths.as_ref().and_then(|lengths| {
            let mut all = lengths.iter().filter(|length| **length > 0);
            all.try_fold(elements.bytes(), |bytes, length| bytes.checked_mul(*length))
        });
        let (Some(shape), Some(bytes)) = (lengths, bytes.filter(|all| i64::try_from(*all).is_ok()))
        else {
            let rule = "lengths must not be negative, and their product must fit a memory";
            return Err(refused(name, format!("an array of shape {shape:?}"), rule));
        };
        let mut usual = vec![elements.bytes(); shape.len()];
        for axis in (1..shape.len()).rev() {
            usual[axis - 1] = usual[axis] * shape[axis].max(1);
        }
        let is_empty = shape.contains(&0);
        let strides = match strides {
            None => usual,
            Some(strides) => {
                let refused_strides =
                    |rule: &str| refused(name, format!("an array of strides {strides:?}"), rule);
                if strides.len() != shape.len() {
                    return Err(refused_strides(&format!("there are {} axes", shape.len())));
                }
                let usable = |axis: usize| match usize::try_from(strides[axis]) {
                    // Strides of axes without a second element are not used.
                    _ if is_empty || shape[axis] == 1 => Some(usual[axis]),
                    Ok(0) | Err(_) => None,
                    Ok(stride) => Some(stride),
                };
                let usable: Option<Vec<usize>> = (0..shape.len()).map(usable).collect();
                usable.ok_or_else(|| refused_strides("they must be above 0"))?
            }
        };
        let reach =
            shape.iter().zip(&strides).try_fold(elements.bytes(), |reach, (length, stride)| {
                reach.checked_add(stride.checked_mul(length.saturating_sub(1))?)
            });
        let reach = reach.filter(|reach| i64::try_from(*reach).is_ok()).ok_or_else(|| {
            let found = format!("an array of strides {strides:?}");
            refused(name, found, "its end must be within a memory")
        })?;
        debug_assert!(is_empty || reach >= elements.bytes(), "{bytes}");
        let ordinal = match is_empty {
            true => None,
            false if address == 0 => {
                return Err(refused(name, "an array at address 0", "it has elements"));
            }
            false if !address.is_multiple_of(elements.bytes() as u64) => {
                let rule = format!("elements must be at multiples of {} bytes", elements.bytes());
                return Err(refused(name, format!("an array at address {address:#x}"), rule));
            }
            false => Some(cuda::owner(address, reach).map_err(|error| of_argument(name, error))?),
        };
        let (is_read_only, is_pending) = (false, true);
        Ok(Self {
            name,
            address,
            shape,
            strides,
            elements,
            is_read_only,
            is_pending,
            ordinal,
            _owner: owner,
        })
    }

    /// Returns the name of the array's device for the argument `device`.
    pub(crate) fn device(&self) -> String {
        format!("cuda:{}", self.ordinal.unwrap_or(0))
    }

    /// Returns whether elements follow each other in C order.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = self.elements.bytes();
        self.shape.iter().zip(&self.strides).rev().all(|(length, stride)| {
            let is_next = *stride == expected;
            expected *= (*length).max(1);
            is_next
        })
    }

    /// Checks that elements follow each other in C order.
    ///
    /// # Errors
    /// `ParameterError` otherwise.
    pub(crate) fn check_contiguous(&self) -> PyResult<()> {
        match self.is_contiguous() {
            true => Ok(()),
            false => Err(refused(
                self.name,
                format!("an array of strides {:?}", self.strides),
                "it must be contiguous in C order",
            )),
        }
    }

    /// Returns the array's bytes as a buffer, all from its first to its last element. It is borrowed from the array,
    /// and must be dropped before it.
    ///
    /// # Errors
    /// `ParameterError` for another device than `device`, whose word for the argument is the message's.
    pub(crate) fn buffer<T: Pod>(&self, device: &cuda::Device) -> PyResult<Buffer<T>> {
        let is_empty = self.shape.contains(&0);
        let last = self.shape.iter().zip(&self.strides);
        let reach: usize = last.map(|(length, stride)| stride * length.saturating_sub(1)).sum();
        let bytes = if is_empty { 0 } else { reach + self.elements.bytes() };
        // SAFETY: callers wait for the buffer's work before they drop the array, and refuse an output that overlaps
        // an input. Other libraries must not write an input meanwhile, as with every array.
        let made = unsafe { device.borrow(self.address, bytes / size_of::<T>()) };
        made.map_err(|error| of_argument(self.name, error))
    }

    /// Waits for work of other streams that may still use the array.
    ///
    /// # Errors
    /// `DeviceError` if that work failed.
    pub(crate) fn wait(&self, py: Python<'_>, device: &cuda::Device) -> PyResult<()> {
        if self.is_pending { detached(py, || device.synchronize()) } else { Ok(()) }
    }

    /// Returns whether both arrays have an address in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let end = |one: &Self| {
            let steps = one.shape.iter().zip(&one.strides);
            let reach: usize =
                steps.map(|(length, stride)| stride * length.saturating_sub(1)).sum();
            one.address + (reach + one.elements.bytes()) as u64
        };
        let is_empty = self.shape.contains(&0) || other.shape.contains(&0);
        !is_empty && self.address < end(other) && other.address < end(self)
    }
}

/// Lists the types for a message.
pub(crate) fn types() -> String {
    let names = TYPES.map(|known| known.name).join(", ");
    format!("the types on a GPU are {names} in the machine's byte order")
}

/// Returns the exception for an error of the library about an argument's memory.
fn of_argument(name: &'static str, error: sidereal::Error) -> PyErr {
    match error {
        sidereal::Error::Parameter { name: _, value, rule } => {
            refused(name, format!("an array at address {value}"), rule)
        }
        other => raised(other),
    }
}

/// Returns the GPU of a stage for an array on a GPU.
///
/// # Errors
/// `ParameterError` if the stage is bound to the host.
pub(crate) fn bound_to<'a>(
    x: &Given<'_>,
    device: Option<&'a cuda::Device>,
) -> PyResult<&'a cuda::Device> {
    device.ok_or_else(|| {
        let rule = "the work is bound to the host; `device` names a GPU";
        refused(x.name, format!("an array on {}", x.device()), rule)
    })
}

/// Returns the GPU of a stage for an array on a GPU, or for the end of its stream.
///
/// # Errors
/// `ParameterError` if the stage is bound to the host.
pub(crate) fn gpu_of(
    x: Option<&Given<'_>>,
    device: Option<&cuda::Device>,
) -> PyResult<cuda::Device> {
    match (x, device) {
        (Some(x), device) => bound_to(x, device).cloned(),
        (None, Some(device)) => Ok(device.clone()),
        (None, None) => Err(refused("the stream", "on the host", "a GPU is needed")),
    }
}

/// Returns an argument as a NumPy array if it can be one; an array on a GPU stays as it is.
///
/// # Errors
/// As [`host`].
pub(crate) fn host_of<'py>(
    x: &Bound<'py, PyAny>,
    given: Option<&Given<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    if given.is_some() { Ok(x.clone()) } else { host("x", x) }
}

/// Returns the word for the device of a function: the given one, or that of an array.
pub(crate) fn device_word(device: Option<&str>, x: Option<&Given<'_>>) -> String {
    match (device, x) {
        (Some(word), _) => word.to_owned(),
        (None, Some(given)) => given.device(),
        (None, None) => "cpu".to_owned(),
    }
}
