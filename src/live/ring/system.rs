//! System V shared memory and semaphores: the system calls, and memory that other processes change at any time.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// Rights of all segments and semaphores, as in PSRDADA: every user reads and writes.
const MODE: c_int = 0o666;

/// Attached segment of shared memory.
///
/// Words are read and written as atomics, bulk data by copies into and out of memory of this process, so that no reference to
/// bytes that another process writes exists.
#[derive(Debug)]
pub(super) struct Segment {
    id: c_int,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address stays mapped in all threads until the segment is dropped, and all accesses are atomics or copies.
unsafe impl Send for Segment {}

/// State of a segment, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentState {
    pub(super) bytes: usize,
    /// Attachments of all processes.
    pub(super) attached: u64,
    /// Process that made it.
    pub(super) creator: i32,
}

impl Segment {
    /// Makes a segment of `bytes` zeros, and attaches it.
    ///
    /// # Errors
    /// The system's error: `AlreadyExists` if the key is in use.
    pub(super) fn create(key: u32, bytes: usize) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | MODE;
        // SAFETY: the call takes numbers only.
        let id = check(unsafe { libc::shmget(key as c_int, bytes, flags) })?;
        Self::attach_id(id).inspect_err(|_| drop(remove_segment(id)))
    }

    /// Attaches the segment of a key.
    ///
    /// # Errors
    /// The system's error: `NotFound` if there is none.
    pub(super) fn attach(key: u32) -> io::Result<Self> {
        Self::attach_id(find_segment(key)?)
    }

    fn attach_id(id: c_int) -> io::Result<Self> {
        // The size is read after the attachment, because a segment that is removed and made again gets another id.
        // SAFETY: the kernel chooses the address; nothing is mapped over.
        let start = unsafe { libc::shmat(id, ptr::null(), 0) };
        if start as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        let mut segment = Self { id, start, bytes: 0 };
        segment.bytes = segment.state()?.bytes;
        Ok(segment)
    }

    /// Returns the length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the kernel's state of the segment.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn state(&self) -> io::Result<SegmentState> {
        segment_state(self.id)
    }

    /// Marks the segment for removal when the last process detaches it.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_segment(self.id)
    }

    /// Returns the address of `len` bytes at `at`.
    ///
    /// # Panics
    /// If they are not within the segment, or not aligned to `align`.
    fn address(&self, at: usize, len: usize, align: usize) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.bytes), "{at} + {len} of {} bytes", self.bytes);
        assert!(at.is_multiple_of(align), "{at} is not a multiple of {align}");
        // SAFETY: the offset is within the mapping, by the check above.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Returns the 64-bit word at byte `at`, which is a multiple of 8 within the segment.
    pub(super) fn u64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping and aligned (mappings begin at pages); the borrow keeps the mapping.
        unsafe { AtomicU64::from_ptr(self.address(at, 8, 8).cast()) }
    }

    /// Returns the signed 32-bit word at byte `at`, which is a multiple of 4 within the segment.
    pub(super) fn i32(&self, at: usize) -> &AtomicI32 {
        // SAFETY: as in `u64`.
        unsafe { AtomicI32::from_ptr(self.address(at, 4, 4).cast()) }
    }

    /// Returns the 32-bit word at byte `at`, which is a multiple of 4 within the segment.
    pub(super) fn u32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as in `u64`.
        unsafe { AtomicU32::from_ptr(self.address(at, 4, 4).cast()) }
    }

    /// Returns the byte at `at`, which is within the segment.
    pub(super) fn u8(&self, at: usize) -> &AtomicU8 {
        // SAFETY: as in `u64`.
        unsafe { AtomicU8::from_ptr(self.address(at, 1, 1)) }
    }

    /// Copies bytes from `at` on into `output`; they must be within the segment.
    pub(super) fn copy_out(&self, at: usize, output: &mut [u8]) {
        let from = self.address(at, output.len(), 1);
        // SAFETY: both ranges are valid for the length, and memory of this process is no part of the mapping.
        unsafe { ptr::copy_nonoverlapping(from, output.as_mut_ptr(), output.len()) }
    }

    /// Copies `input` to the bytes from `at` on, which must be within the segment.
    pub(super) fn copy_in(&self, at: usize, input: &[u8]) {
        let to = self.address(at, input.len(), 1);
        // SAFETY: as in `copy_out`.
        unsafe { ptr::copy_nonoverlapping(input.as_ptr(), to, input.len()) }
    }

    /// Zeroes the bytes from `at` to the end of `len` bytes, which must be within the segment.
    pub(super) fn zero(&self, at: usize, len: usize) {
        let to = self.address(at, len, 1);
        // SAFETY: as in `copy_out`.
        unsafe { ptr::write_bytes(to, 0, len) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the address is that of `shmat`, and no reference into the mapping outlives the segment.
        unsafe { libc::shmdt(self.start.as_ptr().cast::<c_void>()) };
    }
}

/// Returns the id of the segment with a key.
fn find_segment(key: u32) -> io::Result<c_int> {
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::shmget(key as c_int, 0, 0) })
}

fn segment_state(id: c_int) -> io::Result<SegmentState> {
    // SAFETY: the structure is plain numbers, for which zeros are valid.
    let mut found: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which outlives the call.
    check(unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut found) })?;
    Ok(SegmentState { bytes: found.shm_segsz, attached: found.shm_nattch, creator: found.shm_cpid })
}

fn remove_segment(id: c_int) -> io::Result<()> {
    // SAFETY: the command takes no structure.
    check(unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) }).map(drop)
}

/// Removes the segment of a key.
///
/// # Errors
/// The system's error: `NotFound` if there is none.
pub(super) fn remove_segment_of(key: u32) -> io::Result<()> {
    remove_segment(find_segment(key)?)
}

/// Set of semaphores.
#[derive(Debug)]
pub(super) struct Semaphores {
    id: c_int,
}

/// One change of a semaphore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) number: u16,
    pub(super) by: i16,
    /// Reverted by the kernel when this process ends.
    pub(super) undo: bool,
}

impl Semaphores {
    /// Makes `count` semaphores with the value 0.
    ///
    /// # Errors
    /// The system's error: `AlreadyExists` if the key is in use.
    pub(super) fn create(key: u32, count: usize) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | MODE;
        // SAFETY: the call takes numbers only.
        let id = check(unsafe { libc::semget(key as c_int, count as c_int, flags) })?;
        Ok(Self { id })
    }

    /// Finds the set of a key with `count` semaphores at least.
    ///
    /// # Errors
    /// The system's error: `NotFound` if there is none, `InvalidInput` if it has fewer.
    pub(super) fn find(key: u32, count: usize) -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let id = check(unsafe { libc::semget(key as c_int, count as c_int, 0) })?;
        Ok(Self { id })
    }

    /// Removes the set; whoever waits for it gets an error.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.control(0, libc::IPC_RMID, 0).map(drop)
    }

    /// Changes a semaphore, and waits up to `limit` until it can be lowered. Returns whether it was changed.
    ///
    /// # Errors
    /// The system's error: the set was removed, or a value would exceed 32767.
    pub(super) fn change(&self, change: Change, limit: Duration) -> io::Result<bool> {
        let flags = if change.undo { libc::SEM_UNDO as i16 } else { 0 };
        let no_wait = if limit.is_zero() { libc::IPC_NOWAIT as i16 } else { 0 };
        let mut operation =
            libc::sembuf { sem_num: change.number, sem_op: change.by, sem_flg: flags | no_wait };
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let wait = libc::timespec {
                tv_sec: left.as_secs().min(1 << 31) as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: both structures outlive the call, and the count of operations is 1.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_semtimedop,
                    self.id,
                    &raw mut operation,
                    1_usize,
                    &raw const wait,
                )
            };
            if done == 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                // A signal handler has run.
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    /// Returns a semaphore's value.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn value(&self, number: u16) -> io::Result<i32> {
        self.control(number, libc::GETVAL, 0)
    }

    /// Sets a semaphore's value.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn set(&self, number: u16, value: i32) -> io::Result<()> {
        self.control(number, libc::SETVAL, value).map(drop)
    }

    /// Returns the process that last changed a semaphore; 0 if none has.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn process(&self, number: u16) -> io::Result<i32> {
        self.control(number, libc::GETPID, 0)
    }

    /// Returns the processes and threads that wait until a semaphore is raised.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn waiting(&self, number: u16) -> io::Result<i32> {
        self.control(number, libc::GETNCNT, 0)
    }

    fn control(&self, number: u16, command: c_int, value: c_int) -> io::Result<i32> {
        // SAFETY: the commands used here take at most a number as the last argument.
        check(unsafe { libc::semctl(self.id, c_int::from(number), command, value) })
    }
}

/// Returns whether a process exists; a process of another user does, too. Process 0 stands for one of another namespace.
pub(super) fn is_alive(process: i32) -> bool {
    // SAFETY: the call takes numbers only; signal 0 is not sent.
    process <= 0
        || unsafe { libc::kill(process, 0) } == 0
        || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
