//! Device memory, planes in it, and page-locked host memory for full-speed copies.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use bytemuck::Pod;
use cudarc::driver::sys;
#[cfg(target_os = "linux")]
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::Device;
use super::device::{OTHERS, check};
#[cfg(target_os = "linux")]
use crate::backend::pages::HUGE_PAGE_BYTES;
use crate::error::{Error, Result};
use crate::view::check_length;

/// Array in device memory; dropping it frees the memory after all work enqueued before, unless it is borrowed.
#[derive(Debug)]
pub struct Buffer<T> {
    device: Device,
    address: u64,
    len: usize,
    /// Whether another owner frees the memory.
    is_borrowed: bool,
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
        let held = self.inner.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let result = if held > self.inner.limit.load(Ordering::Relaxed) {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
        } else {
            // SAFETY: writes one address.
            unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) }
        };
        if result != sys::CUresult::CUDA_SUCCESS {
            self.inner.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let free = self.free_bytes()?;
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            let limit = self.inner.limit.load(Ordering::Relaxed);
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
        Ok(Buffer { device: self.clone(), address, len, is_borrowed: false, kind: PhantomData })
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

    /// Allocates zeroed page-locked host memory for `len` elements, which every GPU copies from and to at full speed; it is cacheable,
    /// so reads are fast too.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system can lock no more memory; [`Error::Device`] if the driver fails for
    /// another reason.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        self.bind()?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        if let Some(pages) = Pages::new(bytes) {
            // SAFETY: the pages belong to this process and stay mapped until they are unregistered.
            let result = unsafe {
                sys::cuMemHostRegister_v2(pages.address(), pages.bytes(), REGISTERED_PORTABLE)
            };
            if result == sys::CUresult::CUDA_SUCCESS {
                let address = pages.address().cast();
                return Ok(Pinned { device: self.clone(), address, len, pages: Some(pages) });
            }
        }
        let mut address = std::ptr::null_mut();
        // SAFETY: writes one address; without other flags the memory is cacheable.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut address, bytes, ALLOCATED_PORTABLE) };
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
        Ok(Pinned { device: self.clone(), address: address.cast(), len, pages: None })
    }
}

/// Memory is page-locked for every GPU, not only for the one that locks it.
const REGISTERED_PORTABLE: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE;
const ALLOCATED_PORTABLE: u32 = sys::CU_MEMHOSTALLOC_PORTABLE;

/// Bytes that are worth a thread of their own when pages are touched.
#[cfg(target_os = "linux")]
const TOUCHED_BYTES: usize = 8 << 20;

/// Threads that touch pages.
#[cfg(target_os = "linux")]
const MAX_TOUCHING: usize = 8;

/// Zeroed pages of host memory, huge where the system has them: page-locking them takes a fifth of the time of
/// `cuMemHostAlloc` (5 and 24 ms for 64 MiB, measured).
#[derive(Debug)]
#[cfg(target_os = "linux")]
struct Pages {
    address: *mut c_void,
    bytes: usize,
    /// Mapping that holds the pages.
    mapped: *mut c_void,
    mapped_bytes: usize,
}

#[cfg(target_os = "linux")]
impl Pages {
    /// Maps and touches pages for `bytes` bytes; none for a small size, or if the system refuses.
    fn new(bytes: usize) -> Option<Self> {
        if bytes < 2 * HUGE_PAGE_BYTES {
            return None;
        }
        let mapped_bytes = bytes.checked_add(2 * HUGE_PAGE_BYTES)?;
        // SAFETY: a private mapping at an address of the system's choice.
        let mapped = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mm::mmap_anonymous(std::ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE)
                .ok()?
        };
        let skipped = mapped.align_offset(HUGE_PAGE_BYTES);
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let address = mapped.wrapping_byte_add(skipped);
        let pages = Self { address, bytes, mapped, mapped_bytes };
        // SAFETY: the pages belong to the mapping; systems without huge pages refuse, which is no fault.
        let _ = unsafe { mm::madvise(address, bytes, Advice::LinuxHugepage) };
        pages.touch();
        Some(pages)
    }

    fn address(&self) -> *mut c_void {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to every page, so that several cores share the page faults.
    fn touch(&self) {
        // SAFETY: the mapping has these bytes, and nothing else refers to them.
        let all = unsafe { std::slice::from_raw_parts_mut(self.address.cast::<u8>(), self.bytes) };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (self.bytes / TOUCHED_BYTES).clamp(1, cores.min(MAX_TOUCHING));
        let part = self.bytes.div_ceil(threads);
        let touch = |part: &mut [u8]| part.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        std::thread::scope(|scope| {
            let mut parts = all.chunks_mut(part);
            let own = parts.next();
            for part in parts {
                // Pages that no thread touches are faulted in when they are registered.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || touch(part));
            }
            own.into_iter().for_each(touch);
        });
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped once.
        let _ = unsafe { mm::munmap(self.mapped, self.mapped_bytes) };
    }
}

/// On other systems the driver allocates all page-locked memory.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
enum Pages {}

#[cfg(not(target_os = "linux"))]
impl Pages {
    fn new(_: usize) -> Option<Self> {
        None
    }

    fn address(&self) -> *mut c_void {
        match *self {}
    }

    fn bytes(&self) -> usize {
        match *self {}
    }
}

impl<T: Pod> Buffer<T> {
    /// Makes a buffer of memory that another owner frees.
    pub(super) fn borrowed(device: &Device, address: u64, len: usize) -> Self {
        Self { device: device.clone(), address, len, is_borrowed: true, kind: PhantomData }
    }

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
        if self.is_borrowed {
            return;
        }
        let bytes = self.len.saturating_mul(size_of::<T>()).max(1);
        self.device.inner.held.fetch_sub(bytes, Ordering::Relaxed);
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
    /// Pages of the memory; none if the driver allocated it.
    pages: Option<Pages>,
}

// SAFETY: plain memory with a single owner.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: shared references only read it.
unsafe impl<T: Sync> Sync for Pinned<T> {}

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
        // Running copies must end before the memory is freed, also those of peers.
        let has_ended = self.device.joined().all(|device| device.synchronize().is_ok());
        if has_ended && self.device.bind().is_ok() {
            let result = match &self.pages {
                // SAFETY: registered once, and no copy uses it any more.
                Some(pages) => unsafe { sys::cuMemHostUnregister(pages.address()) },
                // SAFETY: allocated once, and no copy uses it any more.
                None => unsafe { sys::cuMemFreeHost(self.address.cast()) },
            };
            if result == sys::CUresult::CUDA_SUCCESS {
                return;
            }
        }
        // The device may still use the memory.
        std::mem::forget(self.pages.take());
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
