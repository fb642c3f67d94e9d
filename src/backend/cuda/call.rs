//! What a driver's answer means: our error, with call, code and text.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};

use crate::error::{Error, Result};

/// Turns the driver's answer to `call` into ours.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        // Of streams, modules and the like, which take some for themselves.
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::Unavailable {
            what: format!("memory on the CUDA device, which {call} asks for,"),
            why: format!("it is full; {OTHERS}"),
        }),
        _ => Err(Error::Device { call, code: result as i64, text: text(result) }),
    }
}

/// Who may have a device's memory.
pub(super) const OTHERS: &str = "other programs may hold it (`nvidia-smi` shows them)";

/// As [`check`], of a call without which there is no device: what its user can do about it.
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

/// The driver's name and text of an answer.
fn text(result: CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both write a pointer to a string of the driver's that lives as long as it, or null.
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
    // SAFETY: not null, and the driver ends its strings with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
