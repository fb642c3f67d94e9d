//! Looks up NVRTC, the run-time compiler, once per process.

use std::sync::OnceLock;

use cudarc::nvrtc::sys;

use super::target::Compiler;
use crate::error::{Error, Result};

/// Returns NVRTC's version, major and minor.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC, with what to install.
pub fn nvrtc() -> Result<(u32, u32)> {
    found_compiler().map(|compiler| compiler.version)
}

/// Like [`nvrtc`], with the supported architectures.
pub(super) fn found_compiler() -> Result<&'static Compiler> {
    let unavailable = |why: &String| Error::Unavailable {
        what: "compiling CUDA kernels".to_owned(),
        why: why.clone(),
    };
    installed().as_ref().map_err(unavailable)
}

/// Returns NVRTC's version, or what to do to install it.
pub(super) fn version() -> std::result::Result<(u32, u32), String> {
    installed().as_ref().map(|compiler| compiler.version).map_err(String::clone)
}

/// Returns NVRTC, or what to do to install it; looks it up only once.
pub(super) fn installed() -> &'static std::result::Result<Compiler, String> {
    static FOUND: OnceLock<std::result::Result<Compiler, String>> = OnceLock::new();
    FOUND.get_or_init(find)
}

fn find() -> std::result::Result<Compiler, String> {
    // SAFETY: only checks whether the library can be loaded.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "NVRTC (libnvrtc.so.13 or .12) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cuda-nvrtc` (put its lib folder on \
                    LD_LIBRARY_PATH)"
                .to_owned(),
        );
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present; writes two integers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
    Ok(Compiler { version, known: known_capabilities() })
}

/// Returns the compute capabilities that NVRTC supports; empty if it does not report them. NVRTC must be present.
fn known_capabilities() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut known = vec![0_i32; usize::try_from(count).unwrap_or(0)];
    if !known.is_empty() {
        // SAFETY: writes the reported number of integers.
        let _ = unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    }
    known
        .into_iter()
        .filter_map(|known| u32::try_from(known).ok())
        .filter(|known| *known > 0)
        .collect()
}
