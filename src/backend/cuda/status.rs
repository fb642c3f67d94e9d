//! What of CUDA this machine has, and what is missing.

use std::sync::OnceLock;

use cudarc::{cufft, nvrtc};

use super::target::Compiler;
use super::{Device, cache};
use crate::error::Error;

/// What of CUDA this machine has; each missing part says what to install.
#[derive(Debug)]
pub struct Status {
    /// The driver's version of CUDA, 1000 x major + 10 x minor, or why there is none.
    pub driver: Result<u32, String>,
    /// NVRTC's version, major and minor, or why there is none.
    pub nvrtc: Result<(u32, u32), String>,
    /// cuFFT's version, or why there is none.
    pub cufft: Result<u32, String>,
    /// The devices that can be opened.
    pub devices: Vec<Device>,
}

/// Looks for the driver, the compiler, the transforms and the devices.
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

/// NVRTC's version, major and minor.
///
/// # Errors
/// [`Error::Unavailable`] without it, with what to install.
pub fn nvrtc() -> crate::error::Result<(u32, u32)> {
    found_compiler().map(|compiler| compiler.version)
}

/// Looks whether kernels can be had: from NVRTC or, where it is gone, from those that it made before.
///
/// # Errors
/// [`Error::Unavailable`] without either, with what to install.
pub fn kernels_at_hand() -> crate::error::Result<()> {
    match nvrtc() {
        Err(missing) if cache::kept_compiler().is_none() => Err(missing),
        _ => Ok(()),
    }
}

/// As [`nvrtc`], with all that is known of it.
pub(super) fn found_compiler() -> crate::error::Result<&'static Compiler> {
    let unavailable = |why: &String| Error::Unavailable {
        what: "compiling CUDA kernels".to_owned(),
        why: why.clone(),
    };
    looked_for().as_ref().map_err(unavailable)
}

/// The compiler that is there, else the one whose kernels were kept.
pub(super) fn compiler() -> Option<Compiler> {
    looked_for().as_ref().ok().cloned().or_else(cache::kept_compiler)
}

/// NVRTC's version, or what is to be done to have one.
fn nvrtc_version() -> Result<(u32, u32), String> {
    looked_for().as_ref().map(|compiler| compiler.version).map_err(String::clone)
}

/// NVRTC, or what is to be done to have one; looked for once.
fn looked_for() -> &'static Result<Compiler, String> {
    static FOUND: OnceLock<Result<Compiler, String>> = OnceLock::new();
    FOUND.get_or_init(find_nvrtc)
}

fn find_nvrtc() -> Result<Compiler, String> {
    // SAFETY: only looks whether the library can be loaded.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(
            "NVRTC (libnvrtc.so.13 or .12) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cuda-nvrtc` (put its lib folder on \
                    LD_LIBRARY_PATH)"
                .to_owned(),
        );
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; writes two integers.
    let _ = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
    Ok(Compiler { version, known: known_capabilities() })
}

/// The compute capabilities that NVRTC, which is there, compiles for; none if it does not say.
fn known_capabilities() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { nvrtc::sys::nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut known = vec![0_i32; usize::try_from(count).unwrap_or(0)];
    if !known.is_empty() {
        // SAFETY: writes as many integers as it said.
        let _ = unsafe { nvrtc::sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    }
    known
        .into_iter()
        .filter_map(|known| u32::try_from(known).ok())
        .filter(|known| *known > 0)
        .collect()
}

/// cuFFT's version.
pub(super) fn cufft_version() -> Result<u32, String> {
    // SAFETY: only looks whether the library can be loaded.
    if !unsafe { cufft::sys::is_culib_present() } {
        return Err("cuFFT (libcufft.so.12 or .11) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cufft`; only channels that are no power of two \
                    and very many need it"
            .to_owned());
    }
    let mut version = 0;
    // SAFETY: the library is there; writes one integer.
    let _ = unsafe { cufft::sys::cufftGetVersion(&raw mut version) };
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Whether `SIDEREAL_CUDA_CHECK` asks to wait for every kernel and to look whether it failed.
pub(super) fn is_checking() -> bool {
    static CHECKING: OnceLock<bool> = OnceLock::new();
    *CHECKING
        .get_or_init(|| std::env::var_os("SIDEREAL_CUDA_CHECK").is_some_and(|word| word != "0"))
}
