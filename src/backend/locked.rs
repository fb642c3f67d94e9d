//! Pages that stay in memory.

#![allow(unsafe_code)]

/// Locks the pages of `bytes` in memory, so that none is written to swap space until they are freed; returns whether the system
/// agreed (RLIMIT_MEMLOCK, CAP_IPC_LOCK).
#[cfg(target_os = "linux")]
pub(crate) fn lock_memory(bytes: &[u8]) -> bool {
    let address = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the pages are those of a slice, and locking them changes no byte.
    unsafe { rustix::mm::mlock(address, bytes.len()).is_ok() }
}

/// Returns false: this system is not asked.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lock_memory(_: &[u8]) -> bool {
    false
}
