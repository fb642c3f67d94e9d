//! Availability of the CUDA components on this machine.

use std::sync::OnceLock;

use cudarc::{cufft, nvrtc};

use super::target::Compiler;
use super::{Device, cache};
use crate::error::Error;

/// Available CUDA components; the text of each missing one says what to install.
#[derive(Debug)]
pub struct Status {
    /// CUDA version of the driver (1000 x major + 10 x minor), or why it is missing.
    pub driver: Result<u32, String>,
    /// Version of NVRTC (major, minor), or why it is missing.
    pub nvrtc: Result<(u32, u32), String>,
    /// Version of cuFFT, or why it is missing.
    pub cufft: Result<u32, String>,
    /// Devices that can be opened.
    pub devices: Vec<Device>,
}

/// Looks up the driver, NVRTC, cuFFT and the devices.
pub fn status() -> Status {
    let devices = Device::all();
    let driver = match (Device::count(), devices.first()) {
        (Err(Error::Unavailable { why, .. }), _) => Err(why),
        (Err(error), _) => Err(error.to_string()),
        (Ok(0), _) => Err("the driver is installed, but finds no GPU".to_owned()),
        (Ok(_), None) => Err("the driver finds a GPU that can't be opened".to_owned()),
        (Ok(_), Some(device)) => Ok(device.properties().driver_version),
    };
    Status { driver, nvrtc: nvrtc_version(), cufft: cufft_version(), devices }
}

/// Returns NVRTC's version, major and minor.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC, with what to install.
pub fn nvrtc() -> crate::error::Result<(u32, u32)> {
    found_compiler().map(|compiler| compiler.version)
}

/// Checks that kernels are available: from NVRTC, or from the cache of an NVRTC used earlier.
///
/// # Errors
/// [`Error::Unavailable`] without either, with what to install.
pub fn kernels_at_hand() -> crate::error::Result<()> {
    match nvrtc() {
        Err(missing) if cache::kept_compiler().is_none() => Err(missing),
        _ => Ok(()),
    }
}

/// Like [`nvrtc`], with the supported architectures.
pub(super) fn found_compiler() -> crate::error::Result<&'static Compiler> {
    let unavailable = |why: &String| Error::Unavailable {
        what: "compiling CUDA kernels".to_owned(),
        why: why.clone(),
    };
    looked_for().as_ref().map_err(unavailable)
}

/// Returns the installed compiler, or else the one recorded in the cache.
pub(super) fn compiler() -> Option<Compiler> {
    looked_for().as_ref().ok().cloned().or_else(cache::kept_compiler)
}

/// Returns NVRTC's version, or what to do to install it.
fn nvrtc_version() -> Result<(u32, u32), String> {
    looked_for().as_ref().map(|compiler| compiler.version).map_err(String::clone)
}

/// Returns NVRTC, or what to do to install it; looks it up only once.
fn looked_for() -> &'static Result<Compiler, String> {
    static FOUND: OnceLock<Result<Compiler, String>> = OnceLock::new();
    FOUND.get_or_init(find_nvrtc)
}

fn find_nvrtc() -> Result<Compiler, String> {
    // SAFETY: only checks whether the library can be loaded.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(
            "NVRTC (libnvrtc.so.13 or .12) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cuda-nvrtc` (put its lib folder on \
                    LD_LIBRARY_PATH)"
                .to_owned(),
        );
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present; writes two integers.
    let _ = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
    Ok(Compiler { version, known: known_capabilities() })
}

/// Returns the compute capabilities that NVRTC supports; empty if it does not report them. NVRTC must be present.
fn known_capabilities() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { nvrtc::sys::nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut known = vec![0_i32; usize::try_from(count).unwrap_or(0)];
    if !known.is_empty() {
        // SAFETY: writes the reported number of integers.
        let _ = unsafe { nvrtc::sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    }
    known
        .into_iter()
        .filter_map(|known| u32::try_from(known).ok())
        .filter(|known| *known > 0)
        .collect()
}

/// Returns cuFFT's version.
pub(super) fn cufft_version() -> Result<u32, String> {
    // SAFETY: only checks whether the library can be loaded.
    if !unsafe { cufft::sys::is_culib_present() } {
        return Err("cuFFT (libcufft.so.12 or .11) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cufft`; only channels that are no power of two \
                    and very many need it"
            .to_owned());
    }
    let mut version = 0;
    // SAFETY: the library is present; writes one integer.
    let _ = unsafe { cufft::sys::cufftGetVersion(&raw mut version) };
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Returns whether `SIDEREAL_CUDA_CHECK` requests waiting for every kernel and checking its result.
pub(super) fn is_checking() -> bool {
    static CHECKING: OnceLock<bool> = OnceLock::new();
    *CHECKING
        .get_or_init(|| std::env::var_os("SIDEREAL_CUDA_CHECK").is_some_and(|word| word != "0"))
}
