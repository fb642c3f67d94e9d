//! Device memory, planes in it, and page-locked host memory for full-speed copies.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use bytemuck::Pod;
use cudarc::driver::sys;

use super::Device;
use super::device::{OTHERS, check};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Array in device memory; dropping it frees the memory after all work enqueued before.
#[derive(Debug)]
pub struct Buffer<T> {
    device: Device,
    address: u64,
    len: usize,
    kind: PhantomData<T>,
}

impl Device {
    /// Allocates `len` elements; their contents are undefined until written.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it does not fit, with the requested and the free size; [`Error::Device`] if the
    /// driver fails for another reason.
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.bind()?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let mut address = 0;
        let held = self.0.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let result = if held > self.0.limit.load(Ordering::Relaxed) {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
        } else {
            // SAFETY: writes one address.
            unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) }
        };
        if result != sys::CUresult::CUDA_SUCCESS {
            self.0.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let free = self.free_bytes()?;
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            let limit = self.0.limit.load(Ordering::Relaxed);
            let why = if limit < self.properties().memory_bytes {
                format!("{} MiB of the {} that `memory` allows are free", mib(free), limit >> 20)
            } else {
                let all = mib(self.properties().memory_bytes);
                format!("{} MiB of {all} are free; {OTHERS}", mib(free))
            };
            let what = format!("{} MiB of memory on CUDA device {}", mib(bytes), self.ordinal());
            return Err(Error::Unavailable { what, why });
        }
        check("cuMemAlloc", result)?;
        Ok(Buffer { device: self.clone(), address, len, kind: PhantomData })
    }

    /// Allocates a copy of `values`.
    ///
    /// # Errors
    /// Same as for [`Device::buffer`].
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.buffer(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// Allocates zeroed page-locked host memory for `len` elements; it is cacheable, so reads are fast too.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system can lock no more memory; [`Error::Device`] if the driver fails for
    /// another reason.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        self.bind()?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let mut address = std::ptr::null_mut();
        // SAFETY: writes one address; flags 0 select cacheable memory.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut address, bytes, 0) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::Unavailable {
                what: format!("{} MiB of the host's memory", bytes.div_ceil(1 << 20)),
                why: "copies to and from a GPU need it page-locked, and the system has no more of it \
                      to lock"
                    .to_owned(),
            });
        }
        check("cuMemHostAlloc", result)?;
        // SAFETY: the driver allocated `bytes` bytes.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Pinned { device: self.clone(), address: address.cast(), len })
    }
}

impl<T: Pod> Buffer<T> {
    /// Returns the buffer's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Checks that the buffer is on the device to which a stage is bound.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming both devices.
    pub fn check_on(&self, device: &Device) -> Result<()> {
        if self.device == *device {
            return Ok(());
        }
        let rule = format!("the plan is bound to CUDA device {}", device.ordinal());
        Err(Error::parameter("buffer", format!("on CUDA device {}", self.device.ordinal()), rule))
    }

    /// Returns the device address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the device address of element `index`.
    ///
    /// # Panics
    /// If `index` is past the end.
    pub fn at(&self, index: usize) -> u64 {
        assert!(index <= self.len, "element {index} of {}", self.len);
        self.address + (index * size_of::<T>()) as u64
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `values` to the first elements, after waiting for all work enqueued on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] past the end; [`Error::Device`] if the driver or earlier work failed.
    pub fn upload(&mut self, values: &[T]) -> Result<()> {
        if values.len() > self.len {
            let (expected, actual) = (self.len, values.len());
            return Err(Error::Shape { what: "elements of a device's buffer", expected, actual });
        }
        self.device.synchronize()?;
        self.write(values)
    }

    /// Copies values that fit to a buffer that no work uses.
    fn write(&mut self, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer has space for the values, which the call has read when it returns.
        let result = unsafe {
            sys::cuMemcpyHtoD_v2(self.address, values.as_ptr().cast(), size_of_val(values))
        };
        check("cuMemcpyHtoD", result)?;
        // The call may return before the last bytes arrive, and non-blocking streams do not wait for them.
        self.device.synchronize()
    }

    /// Copies the elements from `start` to `values`, after waiting for all work enqueued on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] past the end; [`Error::Device`] if the driver or earlier work failed.
    pub fn download(&self, start: usize, values: &mut [T]) -> Result<()> {
        let end = start.saturating_add(values.len());
        if end > self.len {
            let (expected, actual) = (self.len, end);
            return Err(Error::Shape { what: "elements of a device's buffer", expected, actual });
        }
        self.device.synchronize()?;
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: both sides have `bytes` bytes; the call returns after the copy.
        let result = unsafe {
            let bytes = size_of_val(values);
            self.device.count_copied_out(bytes);
            sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.at(start), bytes)
        };
        check("cuMemcpyDtoH", result)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = self.len.saturating_mul(size_of::<T>()).max(1);
        self.device.0.held.fetch_sub(bytes, Ordering::Relaxed);
        if self.device.bind().is_ok() {
            // SAFETY: allocated once; the driver waits for the work that uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Page-locked host memory.
#[derive(Debug)]
pub struct Pinned<T> {
    device: Device,
    address: *mut T,
    len: usize,
}

// SAFETY: plain memory with a single owner.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// Returns the elements.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `len` elements were allocated and zeroed; any bit pattern is a valid `T`.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// Returns the elements, mutably.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }

    pub(super) fn pointer(&self) -> *mut T {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // Running copies must end before the memory is freed.
        if self.device.bind().is_ok() && self.device.synchronize().is_ok() {
            // SAFETY: allocated once, and no copy uses it any more.
            let _ = unsafe { sys::cuMemFreeHost(self.address.cast()) };
        }
    }
}

/// Type of a plane's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Signed 32-bit integers.
    I32,
    /// IEEE single precision.
    F32,
}

/// Plane of trial dispersion measures on a device; axes: DM, time; `dms` rows of `stride` words.
#[derive(Debug)]
pub struct Plane {
    /// Words, row by row.
    pub words: Buffer<u32>,
    /// Words from row to row: the capacity of a row.
    pub stride: usize,
    /// Number of rows.
    pub dms: usize,
    /// Type of a word.
    pub kind: PlaneKind,
}

impl Plane {
    /// Allocates a plane of `dms` rows of `stride` words; their contents are undefined until written.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device memory does not suffice.
    pub fn new(device: &Device, kind: PlaneKind, dms: usize, stride: usize) -> Result<Self> {
        let words = dms.checked_mul(stride).ok_or_else(|| {
            let rule = "the plane has more words than can be counted";
            Error::parameter("stride of a plane", stride, rule)
        })?;
        Ok(Self { words: device.buffer(words)?, stride, dms, kind })
    }

    /// Checks that the buffer has at least the words of all rows.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has fewer.
    pub fn check(&self) -> Result<()> {
        let words = self.dms.saturating_mul(self.stride);
        check_length("plane (dm, time)", words, self.words.len().min(words))
    }
}
