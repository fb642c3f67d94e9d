//! Pages of memory: those that stay in it, and huge ones.

#![allow(unsafe_code)]

/// Bytes of a huge page of x86-64, and of 64-bit ARM with pages of 4 KiB.
#[cfg(any(target_os = "linux", test))]
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

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

/// Sets the length of a buffer; the contents of one that grows become undefined. Memory that it lacks is allocated in huge pages where the
/// system has them, so that access with long strides misses fewer translations of addresses.
pub(crate) fn resize_in_huge_pages(buffer: &mut Vec<u8>, bytes: usize) {
    if bytes > buffer.capacity() {
        *buffer = Vec::with_capacity(bytes);
        prefer_huge_pages(buffer.spare_capacity_mut());
    }
    buffer.resize(bytes, 0);
}

/// Asks for huge pages for memory that was not yet written.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(memory: &mut [std::mem::MaybeUninit<u8>]) {
    let begin = memory.as_mut_ptr();
    let skipped = begin.align_offset(HUGE_PAGE_BYTES);
    let bytes = memory.len().saturating_sub(skipped) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if bytes > 0 {
        let address = begin.wrapping_add(skipped).cast();
        // SAFETY: whole pages within a slice, and the advice changes no byte; systems without huge pages refuse, which is no fault.
        let _ = unsafe { rustix::mm::madvise(address, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// Does nothing: this system is not asked.
#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: &mut [std::mem::MaybeUninit<u8>]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_asked_for() {
        let mut buffer = Vec::new();
        for bytes in [0, 7, 5 * HUGE_PAGE_BYTES + 3, HUGE_PAGE_BYTES, 6 * HUGE_PAGE_BYTES] {
            resize_in_huge_pages(&mut buffer, bytes);
            assert_eq!(buffer.len(), bytes);
            buffer.fill(1);
        }
    }
}
