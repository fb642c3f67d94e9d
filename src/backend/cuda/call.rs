//! Converts the driver's result codes to errors with call, code and text.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};

use crate::error::{Error, Result};

/// Converts the driver's result of `call`.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        // Allocations made internally for streams, modules and the like.
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::Unavailable {
            what: format!("memory on the CUDA device, which {call} asks for,"),
            why: format!("it is full; {OTHERS}"),
        }),
        _ => Err(Error::Device { call, code: result as i64, text: text(result) }),
    }
}

/// Possible users of device memory.
pub(super) const OTHERS: &str = "other programs may hold it (`nvidia-smi` shows them)";

/// Like [`check`], for calls needed to open a device; the error says what the user can do.
pub(super) fn check_open(what: &str, call: &'static str, result: CUresult) -> Result<()> {
    let why = match result {
        CUresult::CUDA_ERROR_NO_DEVICE => "the driver finds no GPU".to_owned(),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            format!("its memory is full, so that nothing can be started on it; {OTHERS}")
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "it is busy: another program has it to itself (`nvidia-smi` shows its compute mode)"
                .to_owned()
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library (libcuda.so.1) and its kernel module are of different versions: \
             restart the machine, or install the driver again"
                .to_owned()
        }
        _ => return check(call, result),
    };
    Err(Error::Unavailable { what: what.to_owned(), why })
}

/// Returns the driver's name and text of a result code.
fn text(result: CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both calls write null or a pointer to a string that lives as long as the driver.
    unsafe {
        let _ = sys::cuGetErrorName(result, &raw mut name);
        let _ = sys::cuGetErrorString(result, &raw mut text);
    }
    format!("{}: {}", string(name), string(text))
}

fn string(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, and the driver's strings are zero-terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
