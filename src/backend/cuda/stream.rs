//! Streams of work on a device, and events.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use cudarc::driver::sys;

use super::device::check;
use super::{Buffer, Device, Pinned};
use crate::error::{Error, Result};
use crate::trace::{self, Span, Work};

/// CUDA stream: its work runs in order and concurrently with other streams.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: sys::CUstream,
}

// SAFETY: the driver allows any thread to use a stream.
unsafe impl Send for Stream {}
// SAFETY: as above; calls from two threads are enqueued in some order.
unsafe impl Sync for Stream {}

/// CUDA event: a point in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// Maximum row pitch of the driver's copies of rows, in bytes.
pub const MAX_PITCH: usize = 1 << 30;

/// The stream does not synchronize with the default stream.
const NON_BLOCKING: u32 = 1;

impl Device {
    /// Creates a stream.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn stream(&self) -> Result<Stream> {
        self.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut handle, NON_BLOCKING) })?;
        Ok(Stream { device: self.clone(), handle })
    }

    /// Creates an event with timing.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
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
    /// [`Error::Device`] if any work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: takes no arguments.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }
}

/// Rows to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedRows {
    /// Bytes per row.
    pub bytes: usize,
    /// Number of rows.
    pub rows: usize,
    /// Bytes from row to row of the source.
    pub from_stride: usize,
    /// Bytes from row to row of the destination.
    pub to_stride: usize,
}

impl CopiedRows {
    /// Checks that rows, at least one and not empty, do not overlap and lie within the memory of both sides.
    ///
    /// # Errors
    /// [`Error::Parameter`] for rows that overlap; [`Error::Shape`] past an end.
    fn check(&self, from: RowMemory, to: RowMemory) -> Result<()> {
        for (name, stride) in
            [("stride of the source", self.from_stride), ("stride of the copy", self.to_stride)]
        {
            if self.rows > 1 && stride < self.bytes {
                let rule = format!("rows have {} bytes", self.bytes);
                return Err(Error::parameter(name, stride, rule));
            }
        }
        let end = |first: usize, stride: usize| {
            first.saturating_add((self.rows - 1).saturating_mul(stride)).saturating_add(self.bytes)
        };
        fits("copy of rows from a buffer", from.bytes, end(from.first, self.from_stride))?;
        fits("copy of rows to a device's buffer", to.bytes, end(to.first, self.to_stride))
    }
}

/// Memory of rows: its bytes, and the byte that the first row begins at.
struct RowMemory {
    bytes: usize,
    first: usize,
}

impl Stream {
    /// Returns the stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// Returns the driver's handle, for libraries that enqueue their own work.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.handle.cast()
    }

    pub(super) fn bind(&self) -> Result<()> {
        self.device.bind()
    }

    /// Enqueues a copy of `range` of host memory to a buffer, starting at element `at`.
    ///
    /// # Errors
    /// [`Error::Shape`] if it does not fit; [`Error::Device`] if the driver fails.
    /// # Safety
    /// The host memory must be neither written nor dropped until the copy has run.
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
        // SAFETY: both sides have `bytes` bytes; the caller keeps the host memory.
        self.traced(Work::ToDevice, "copy", bytes, || unsafe {
            let from = from.pointer().add(range.start);
            let copied = sys::cuMemcpyHtoDAsync_v2(to.at(at), from.cast(), bytes, self.handle);
            check("cuMemcpyHtoDAsync", copied)
        })
    }

    /// Enqueues a copy of `range` of a buffer to host memory, starting at element `at`.
    ///
    /// # Errors
    /// Same as for [`Stream::copy_in`].
    /// # Safety
    /// The host memory must be neither read, written nor dropped until the copy has run.
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
        // SAFETY: both sides have `bytes` bytes; the caller keeps the host memory.
        self.traced(Work::FromDevice, "copy", bytes, || unsafe {
            let to = to.pointer().add(at);
            let from = from.at(range.start);
            let copied = sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.handle);
            check("cuMemcpyDtoHAsync", copied)
        })
    }

    /// Enqueues a copy of elements of a buffer to another, starting at element `at`.
    ///
    /// # Errors
    /// [`Error::Shape`] past an end; [`Error::Device`] if the driver fails.
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
        // SAFETY: both buffers have `bytes` bytes there; the driver frees memory only after the work that uses it.
        unsafe { self.copy_within(from.at(range.start), to.at(at), bytes) }
    }

    /// Enqueues a copy of elements of another device's buffer to the start of one on this device.
    ///
    /// The work that fills the source must be awaited by this stream; the source's own stream must wait for the copy before
    /// it writes there again.
    ///
    /// # Errors
    /// [`Error::Shape`] past an end; [`Error::Device`] if the driver fails.
    pub fn copy_from_peer<T: Pod>(
        &self,
        from: &Buffer<T>,
        range: Range<usize>,
        to: &mut Buffer<T>,
    ) -> Result<()> {
        fits("copy from another device's buffer", from.len(), range.end)?;
        fits("copy to a device's buffer", to.len(), range.len())?;
        to.check_on(&self.device)?;
        self.bind()?;
        let bytes = range.len() * size_of::<T>();
        let (theirs, own) = (from.device().context(), self.device.context());
        // SAFETY: both buffers have `bytes` bytes, and both contexts live as long as their devices.
        self.traced(Work::ToDevice, "copy between GPUs", bytes, || unsafe {
            let (from, to) = (from.at(range.start), to.address());
            let copied = sys::cuMemcpyPeerAsync(to, own, from, theirs, bytes, self.handle);
            check("cuMemcpyPeerAsync", copied)
        })
    }

    /// Enqueues a copy of rows of a buffer of any device, from byte `from_first` on, to a buffer of this device, from byte
    /// `to_first` on. Streams must wait as for [`Stream::copy_from_peer`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for rows that overlap; [`Error::Shape`] past an end; [`Error::Device`] if the driver fails.
    pub fn copy_rows_from(
        &self,
        from: &Buffer<u8>,
        from_first: usize,
        to: &mut Buffer<u8>,
        to_first: usize,
        rows: &CopiedRows,
    ) -> Result<()> {
        let source = RowMemory { bytes: from.len(), first: from_first };
        if !self.begins_rows(source, to, to_first, rows)? {
            return Ok(());
        }
        let name = match *from.device() == self.device {
            true => "copy within a GPU",
            false => "copy between GPUs",
        };
        let bytes = rows.rows * rows.bytes;
        self.traced(Work::ToDevice, name, bytes, || {
            // SAFETY: all rows lie in the buffers, which are not the same.
            unsafe { self.copy_rows_of(from.device(), from.at(from_first), to.at(to_first), rows) }
        })
    }

    /// Checks a copy of rows to a buffer of this device and binds the device; returns false if there is nothing to copy.
    ///
    /// # Errors
    /// As [`Stream::copy_rows_from`].
    fn begins_rows(
        &self,
        from: RowMemory,
        to: &Buffer<u8>,
        to_first: usize,
        rows: &CopiedRows,
    ) -> Result<bool> {
        if rows.bytes == 0 || rows.rows == 0 {
            return Ok(false);
        }
        rows.check(from, RowMemory { bytes: to.len(), first: to_first })?;
        to.check_on(&self.device)?;
        self.bind()?;
        Ok(true)
    }

    /// Enqueues a copy of rows of device `theirs` from address `from` to address `to`.
    ///
    /// # Safety
    /// Every row, on both sides, must lie in memory of its device, and the two sides must not overlap.
    unsafe fn copy_rows_of(
        &self,
        theirs: &Device,
        from: u64,
        to: u64,
        rows: &CopiedRows,
    ) -> Result<()> {
        let (own, others) = (self.device.context(), theirs.context());
        if rows.rows == 1 || rows.from_stride.max(rows.to_stride) > MAX_PITCH {
            return (0..rows.rows).try_for_each(|row| {
                let at = |first: u64, stride: usize| first + (row * stride) as u64;
                let (from, to) = (at(from, rows.from_stride), at(to, rows.to_stride));
                // SAFETY: the caller guarantees the row; both contexts live as long as their devices.
                check("cuMemcpyPeerAsync", unsafe {
                    sys::cuMemcpyPeerAsync(to, own, from, others, rows.bytes, self.handle)
                })
            });
        }
        if *theirs == self.device {
            // SAFETY: forwards the caller's guarantee.
            return unsafe { self.copy_rows(from, to, rows) };
        }
        let kind = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY3D_PEER {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: kind,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcContext: others,
            srcPitch: rows.from_stride,
            srcHeight: rows.rows,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: kind,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstContext: own,
            dstPitch: rows.to_stride,
            dstHeight: rows.rows,
            WidthInBytes: rows.bytes,
            Height: rows.rows,
            Depth: 1,
        };
        // SAFETY: the caller guarantees the rows; both contexts live as long as their devices.
        check("cuMemcpy3DPeerAsync", unsafe {
            sys::cuMemcpy3DPeerAsync(&raw const copy, self.handle)
        })
    }

    /// Enqueues a copy of `bytes` bytes between buffers, or within one buffer if the ranges do not overlap.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    /// # Safety
    /// Both addresses must have `bytes` bytes of memory on this device.
    pub unsafe fn copy_within(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller guarantees both addresses.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle)
        })
    }

    /// Enqueues a copy of the rows at address `from` to address `to`.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    /// # Safety
    /// Every row, on both sides, must lie in memory of this device.
    pub unsafe fn copy_rows(&self, from: u64, to: u64, rows: &CopiedRows) -> Result<()> {
        self.bind()?;
        let kind = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: kind,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: rows.from_stride,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: rows.to_stride,
            WidthInBytes: rows.bytes,
            Height: rows.rows,
        };
        // SAFETY: the caller guarantees the rows.
        check("cuMemcpy2DAsync", unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.handle) })
    }

    /// Enqueues the copy of rows of host memory, from byte `from_first` on, to a buffer of this device, from byte `to_first` on.
    ///
    /// # Errors
    /// As [`Stream::copy_rows_from`].
    /// # Safety
    /// The host memory must be neither written nor dropped until the copy has run.
    pub unsafe fn copy_rows_in(
        &self,
        from: &Pinned<u8>,
        from_first: usize,
        to: &mut Buffer<u8>,
        to_first: usize,
        rows: &CopiedRows,
    ) -> Result<()> {
        let source = RowMemory { bytes: from.len(), first: from_first };
        if !self.begins_rows(source, to, to_first, rows)? {
            return Ok(());
        }
        let (source, target) = (from.pointer().cast_const(), to.at(to_first));
        self.traced(Work::ToDevice, "copy", rows.rows * rows.bytes, || {
            if rows.rows == 1 || rows.from_stride.max(rows.to_stride) > MAX_PITCH {
                return (0..rows.rows).try_for_each(|row| {
                    let to = target + (row * rows.to_stride) as u64;
                    // SAFETY: the row lies in the memory of both sides, as checked above; the caller keeps it.
                    check("cuMemcpyHtoDAsync", unsafe {
                        let from = source.add(from_first + row * rows.from_stride);
                        sys::cuMemcpyHtoDAsync_v2(to, from.cast(), rows.bytes, self.handle)
                    })
                });
            }
            let copy = sys::CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
                srcHost: source.wrapping_add(from_first).cast(),
                srcDevice: 0,
                srcArray: std::ptr::null_mut(),
                srcPitch: rows.from_stride,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstHost: std::ptr::null_mut(),
                dstDevice: target,
                dstArray: std::ptr::null_mut(),
                dstPitch: rows.to_stride,
                WidthInBytes: rows.bytes,
                Height: rows.rows,
            };
            // SAFETY: as above, for all rows.
            check("cuMemcpy2DAsync", unsafe {
                sys::cuMemcpy2DAsync_v2(&raw const copy, self.handle)
            })
        })
    }

    /// Enqueues filling `range` of a buffer with one byte value.
    ///
    /// # Errors
    /// [`Error::Shape`] past the end; [`Error::Device`] if the driver fails.
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

    /// Records an event after all work enqueued so far.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles are valid.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.handle, self.handle) })
    }

    /// Makes work enqueued later wait for an event of another stream.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles are valid.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// Waits until all enqueued work has run.
    ///
    /// # Errors
    /// [`Error::Device`] if any work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the handle is valid.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            // SAFETY: created once; the driver completes the stream's work first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

impl Event {
    /// Waits until the work before the event has run.
    ///
    /// # Errors
    /// [`Error::Device`] if any work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is valid.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }

    /// Returns the device time in seconds from `earlier` to this event; both must have completed.
    ///
    /// # Errors
    /// [`Error::Device`] if either has not completed.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        self.device.bind()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: writes one number; both handles are valid.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&raw mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: created once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

/// Work on a stream between two events, for a trace.
#[derive(Debug)]
struct Traced {
    work: Work,
    name: String,
    /// Number of the stream, to tell streams apart.
    stream: usize,
    bytes: u64,
    begun: Event,
    ended: Event,
}

/// Traced work of a device, and the reference point of its times.
#[derive(Debug)]
struct Trace {
    start: Event,
    start_s: f64,
    traced: Vec<Traced>,
}

/// Traces of all devices, by ordinal.
static TRACES: Mutex<BTreeMap<usize, Trace>> = Mutex::new(BTreeMap::new());

fn traces() -> MutexGuard<'static, BTreeMap<usize, Trace>> {
    TRACES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trace {
    /// Converts all work to spans; work that failed is left out.
    fn spans(&self, ordinal: usize) -> Vec<Span> {
        let span = |one: &Traced| {
            let at = |event: &Event| Some(self.start_s + event.seconds_since(&self.start).ok()?);
            Some(Span {
                work: one.work,
                name: one.name.clone().into(),
                lane: format!("GPU {ordinal}, stream {:x}", one.stream),
                start_s: at(&one.begun)?,
                end_s: at(&one.ended)?,
                bytes: one.bytes,
            })
        };
        self.traced.iter().filter_map(span).collect()
    }
}

impl Stream {
    /// Enqueues work, between two events if a trace is recorded.
    pub(super) fn traced(
        &self,
        work: Work,
        name: &str,
        bytes: usize,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !trace::is_on() {
            return enqueue();
        }
        let (begun, ended) = (self.device.event()?, self.device.event()?);
        self.begin_trace()?;
        self.record(&begun)?;
        enqueue()?;
        self.record(&ended)?;
        if let Some(trace) = traces().get_mut(&self.device.ordinal()) {
            let (name, stream, bytes) = (name.to_owned(), self.handle as usize, bytes as u64);
            trace.traced.push(Traced { work, name, stream, bytes, begun, ended });
        }
        Ok(())
    }

    /// Sets the reference point of the device's times, once.
    fn begin_trace(&self) -> Result<()> {
        let ordinal = self.device.ordinal();
        if traces().contains_key(&ordinal) {
            return Ok(());
        }
        let start = self.device.event()?;
        self.record(&start)?;
        start.synchronize()?;
        let begun = Trace { start, start_s: trace::now_s(), traced: Vec::new() };
        traces().entry(ordinal).or_insert(begun);
        let device = self.device.clone();
        trace::add_source(Box::new(move || {
            let _ = device.synchronize();
            let trace = traces().remove(&ordinal);
            trace.map_or_else(Vec::new, |trace| trace.spans(ordinal))
        }));
        Ok(())
    }
}

fn fits(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if actual <= expected { Ok(()) } else { Err(Error::Shape { what, expected, actual }) }
}
