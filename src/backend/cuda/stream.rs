//! Queues of work on a device, and marks in them.

use std::ops::Range;

use bytemuck::Pod;
use cudarc::driver::sys;

use super::call::check;
use super::{Buffer, Device, Pinned};
use crate::error::{Error, Result};

/// A queue of work: what is put in runs in order, beside the work of other streams.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: sys::CUstream,
}

// SAFETY: the driver allows a stream to be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; calls from two threads queue in some order.
unsafe impl Sync for Stream {}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// Streams do not wait for the default stream.
const NON_BLOCKING: u32 = 1;

impl Device {
    /// A new queue.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn stream(&self) -> Result<Stream> {
        self.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut handle, NON_BLOCKING) })?;
        Ok(Stream { device: self.clone(), handle })
    }

    /// A mark that times, too.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn event(&self) -> Result<Event> {
        self.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, 0) })?;
        Ok(Event { device: self.clone(), handle })
    }

    /// Waits until all work on the device has ended.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: takes nothing.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }
}

impl Stream {
    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// The driver's handle, for libraries that queue work of their own.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.handle.cast()
    }

    pub(super) fn bind(&self) -> Result<()> {
        self.device.bind()
    }

    /// Queues a copy of `range` of the host's memory to element `at` of a buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] when it does not fit; [`Error::Device`] when the driver refuses.
    /// # Safety
    /// The host's memory is neither written nor dropped until the copy has run.
    pub unsafe fn copy_in<T: Pod>(
        &self,
        from: &Pinned<T>,
        range: Range<usize>,
        to: &mut Buffer<T>,
        at: usize,
    ) -> Result<()> {
        fits("copy to a device", from.len(), range.end)?;
        fits("copy to a device's buffer", to.len(), at.saturating_add(range.len()))?;
        self.bind()?;
        let bytes = range.len() * size_of::<T>();
        // SAFETY: both sides have so many bytes; the caller keeps the host's side.
        check("cuMemcpyHtoDAsync", unsafe {
            let from = from.pointer().add(range.start);
            sys::cuMemcpyHtoDAsync_v2(to.at(at), from.cast(), bytes, self.handle)
        })
    }

    /// Queues a copy of `range` of a buffer to element `at` of the host's memory.
    ///
    /// # Errors
    /// As [`Stream::copy_in`].
    /// # Safety
    /// The host's memory is neither read, written nor dropped until the copy has run.
    pub unsafe fn copy_out<T: Pod>(
        &self,
        from: &Buffer<T>,
        range: Range<usize>,
        to: &mut Pinned<T>,
        at: usize,
    ) -> Result<()> {
        fits("copy from a device's buffer", from.len(), range.end)?;
        fits("copy from a device", to.len(), at.saturating_add(range.len()))?;
        self.bind()?;
        let bytes = range.len() * size_of::<T>();
        self.device.count_copied_out(bytes);
        // SAFETY: both sides have so many bytes; the caller keeps the host's side.
        check("cuMemcpyDtoHAsync", unsafe {
            let to = to.pointer().add(at);
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from.at(range.start), bytes, self.handle)
        })
    }

    /// Queues a copy of elements of a buffer into another, from element `at` on.
    ///
    /// # Errors
    /// [`Error::Shape`] past an end; [`Error::Device`] when the driver refuses.
    pub fn copy<T: Pod>(
        &self,
        from: &Buffer<T>,
        range: Range<usize>,
        to: &mut Buffer<T>,
        at: usize,
    ) -> Result<()> {
        fits("copy from a device's buffer", from.len(), range.end)?;
        fits("copy to a device's buffer", to.len(), at.saturating_add(range.len()))?;
        let bytes = range.len() * size_of::<T>();
        // SAFETY: both buffers have so many bytes there; the driver frees none before the work that uses it has ended.
        unsafe { self.copy_within(from.at(range.start), to.at(at), bytes) }
    }

    /// Queues a copy of `len` elements between buffers, which may be the same one if they do not overlap.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    /// # Safety
    /// Both addresses have room for `bytes` bytes on this device.
    pub unsafe fn copy_within(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller says so.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle)
        })
    }

    /// Queues a copy of `rows` rows of `bytes` bytes, which begin `strides` bytes apart (from, to).
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    /// # Safety
    /// Every row lies in memory of this device, on both sides.
    pub unsafe fn copy_rows(
        &self,
        from: u64,
        to: u64,
        (bytes, rows): (usize, usize),
        strides: (usize, usize),
    ) -> Result<()> {
        self.bind()?;
        let kind = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: kind,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: strides.0,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: strides.1,
            WidthInBytes: bytes,
            Height: rows,
        };
        // SAFETY: the caller says that the rows exist.
        check("cuMemcpy2DAsync", unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.handle) })
    }

    /// Queues the filling of `range` of a buffer with one byte.
    ///
    /// # Errors
    /// [`Error::Shape`] past the end; [`Error::Device`] when the driver refuses.
    pub fn fill<T: Pod>(
        &self,
        buffer: &mut Buffer<T>,
        range: Range<usize>,
        byte: u8,
    ) -> Result<()> {
        fits("fill of a device's buffer", buffer.len(), range.end)?;
        self.bind()?;
        let bytes = range.len() * size_of::<T>();
        // SAFETY: the range lies in the buffer.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(buffer.at(range.start), byte, bytes, self.handle)
        })
    }

    /// Puts a mark behind all that is queued.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.handle, self.handle) })
    }

    /// Lets what is queued from now on wait for a mark in another stream.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles live.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// Waits until all that is queued has run.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the handle lives.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            // SAFETY: made once; the driver ends the work first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

impl Event {
    /// Waits until the work before the mark has run.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle lives.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }

    /// Seconds of the device from `earlier` to this mark; both have passed.
    ///
    /// # Errors
    /// [`Error::Device`] when one has not.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        self.device.bind()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: writes one number; both handles live.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&raw mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

fn fits(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if actual <= expected { Ok(()) } else { Err(Error::Shape { what, expected, actual }) }
}
