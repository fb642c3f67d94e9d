//! Results in a GPU's memory, arrays of this package there, and work on streams.
#![allow(unsafe_code)]

use std::sync::Arc;

use bytemuck::Pod;
use numpy::PyArrayMethods;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sidereal::backend::cuda::{self, Buffer, Stream};

use crate::arguments::{gpu, kind};
use crate::arrays::{Readable, empty};
use crate::dlpack::{self, Exported};
use crate::errors::{detached, raised, refused};
use crate::given::{Elements, Given, types};
use crate::pickle::not_pickled;

/// Result in a GPU's memory: a new array, or the caller's.
pub(crate) enum Target<'py> {
    New { memory: Buffer<u8>, shape: Vec<usize>, elements: Elements },
    Out { memory: Buffer<u8>, out: Bound<'py, PyAny> },
}

impl<'py> Target<'py> {
    /// Makes a result of this shape and type; `x` is the input.
    ///
    /// # Errors
    /// `ParameterError` unless `out` is a writable, contiguous array of this shape and type on this device, which
    /// does not overlap the input.
    pub(crate) fn new(
        x: Option<&Given<'_>>,
        out: Option<&Bound<'py, PyAny>>,
        shape: &[usize],
        name: &'static str,
        device: &cuda::Device,
    ) -> PyResult<Self> {
        let rule = "it must be a type of arrays on a GPU";
        let elements = Elements::named(name).ok_or_else(|| refused("result", name, rule))?;
        let Some(out) = out else {
            let lengths = shape.iter().try_fold(elements.bytes(), |bytes, n| bytes.checked_mul(*n));
            let memory = device.buffer(lengths.unwrap_or(usize::MAX)).map_err(raised)?;
            return Ok(Self::New { memory, shape: shape.to_vec(), elements });
        };
        let Some(given) = Given::of("out", out)? else {
            let rule = format!("the input is on cuda:{}, as the result must be", device.ordinal());
            return Err(refused("out", kind(out), rule));
        };
        if given.elements != elements {
            let found = format!("an array of {}", given.elements.name);
            return Err(refused("out", found, format!("it must be of {name}")));
        }
        if given.shape != shape {
            let found = format!("an array of shape {:?}", given.shape);
            return Err(refused("out", found, format!("it must have the shape {shape:?}")));
        }
        given.check_contiguous()?;
        if given.is_read_only {
            return Err(refused("out", "a read-only array", "the result is written into it"));
        }
        if x.is_some_and(|x| given.overlaps(x)) {
            return Err(refused("out", "in use", "it overlaps the input"));
        }
        given.wait(out.py(), device)?;
        Ok(Self::Out { memory: given.buffer(device)?, out: out.clone() })
    }

    /// Returns the memory of the result.
    pub(crate) fn memory(&mut self) -> &mut Buffer<u8> {
        match self {
            Self::New { memory, .. } | Self::Out { memory, .. } => memory,
        }
    }

    /// Returns the result for Python. All work must have ended.
    pub(crate) fn finish(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::New { memory, shape, elements } => {
                let array = DeviceArray { memory: Arc::new(memory), shape, elements };
                Ok(Bound::new(py, array)?.into_any())
            }
            Self::Out { out, .. } => Ok(out),
        }
    }
}

/// Returns a view of a buffer's memory as elements of another type. The view must be dropped before the buffer.
///
/// # Errors
/// As [`cuda::Device::borrow`].
pub(crate) fn view<T: Pod>(memory: &mut Buffer<u8>) -> sidereal::Result<Buffer<T>> {
    // SAFETY: the mutable borrow shows that no other work uses the buffer; callers wait for that of the view.
    unsafe { memory.device().borrow(memory.address(), memory.len() / size_of::<T>()) }
}

/// Array in the memory of a GPU: a result, or a copy made by `to_device`.
///
/// It has ``__cuda_array_interface__`` and ``__dlpack__``, so that CuPy, PyTorch and others use it without a copy:
/// ``cupy.asarray(x)``, ``torch.from_dlpack(x)``. It is contiguous, and all work on it has ended.
#[pyclass(frozen, module = "sidereal_dsp")]
pub(crate) struct DeviceArray {
    memory: Arc<Buffer<u8>>,
    shape: Vec<usize>,
    elements: Elements,
}

#[pymethods]
impl DeviceArray {
    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Type of the elements; a NumPy dtype.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("dtype", (self.elements.name,))
    }

    /// Name of the device, as `devices` lists it.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.memory.device().ordinal())
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len()
    }

    /// CUDA array interface, version 3.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.elements.typestr)?;
        let address = if self.memory.is_empty() { 0 } else { self.memory.address() };
        interface.set_item("data", (address, false))?;
        interface.set_item("strides", py.None())?;
        // No work is left to wait for.
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// Returns the kind (2: CUDA) and the number of the device.
    fn __dlpack_device__(&self) -> (i32, usize) {
        (dlpack::CUDA, self.memory.device().ordinal())
    }

    /// Returns a capsule of DLPack. No stream has to wait, because all work on the array has ended.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        if stream == Some(0) || stream.is_some_and(|stream| stream < -1) {
            let rule = "it must be None, -1, 1, 2 or the address of a stream";
            return Err(refused("stream", stream.unwrap_or(0), rule));
        }
        let ordinal = self.memory.device().ordinal() as i32;
        if dl_device.is_some_and(|wanted| wanted != (dlpack::CUDA, ordinal)) {
            return Err(PyBufferError::new_err("the array can't be moved; `to_host` copies it"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("the array is not copied; `to_host` copies it"));
        }
        let exported = Exported {
            address: self.memory.address(),
            shape: self.shape.iter().map(|length| *length as i64).collect(),
            kind: self.elements.dlpack(),
            device: ordinal,
            owner: Box::new(Arc::clone(&self.memory)),
        };
        exported.capsule(py, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// Copies the array to the host.
    ///
    /// Returns
    /// -------
    /// array
    ///     NumPy array of the same shape and type.
    fn to_host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = empty::<u8>(py, &[self.memory.len()])?;
        {
            let mut bytes = bytes.try_readwrite().map_err(PyErr::from)?;
            let bytes = bytes.as_slice_mut()?;
            detached(py, || self.memory.download(0, bytes))?;
        }
        let typed = bytes.call_method1("view", (self.elements.name,))?;
        typed.call_method1("reshape", (self.shape(py)?,))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "`to_host` copies it to a NumPy array, which can be"))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array without axes"))
    }

    fn __repr__(&self) -> String {
        let axes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("<DeviceArray {} ({}) on {}>", self.elements.name, axes.join(", "), self.device())
    }
}

/// Copies an array to a GPU.
///
/// Parameters
/// ----------
/// x : array
///     NumPy array of uint8, int8, uint16, int16, int32, float32 or complex64; contiguous.
/// device : str, default "cuda"
///     Name of one of `devices`.
///
/// Returns
/// -------
/// DeviceArray
///     Functions that are given it return their results on that GPU.
#[pyfunction]
#[pyo3(signature = (x, *, device="cuda"))]
pub(crate) fn to_device(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    device: &str,
) -> PyResult<DeviceArray> {
    let array = Readable::new("x", x)?;
    let name = array.kind();
    let elements = Elements::named(&name)
        .ok_or_else(|| refused("x", format!("an array of {name}"), types()))?;
    let device = gpu(py, device)?;
    let bytes = array.bytes()?;
    let memory = detached(py, || device.upload(bytes))?;
    Ok(DeviceArray { memory: Arc::new(memory), shape: array.shape().to_vec(), elements })
}

/// Runs work that is queued on a stream of a GPU, and waits for it, also after an error.
///
/// # Errors
/// The exception for the work's error.
pub(crate) fn on_stream<T: Send>(
    py: Python<'_>,
    device: &cuda::Device,
    work: impl FnOnce(&Stream) -> sidereal::Result<T> + Send,
) -> PyResult<T> {
    detached(py, || {
        let stream = device.stream()?;
        let done = work(&stream);
        let ended = stream.synchronize();
        done.and_then(|done| ended.map(|()| done))
    })
}
