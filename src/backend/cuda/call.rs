//! What a driver's answer means: our error, with call, code and text.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};

use crate::error::{Error, Result};

/// Turns the driver's answer to `call` into ours.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Device { call, code: result as i64, text: text(result) })
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
