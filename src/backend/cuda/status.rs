//! What of CUDA this machine has, and what is missing.

use std::sync::OnceLock;

use cudarc::{cufft, nvrtc};

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
    let unavailable = |why| Error::Unavailable { what: "compiling CUDA kernels".to_owned(), why };
    nvrtc_version().map_err(unavailable)
}

/// Looks whether kernels can be had: from NVRTC or, where it is gone, from those that it made before.
///
/// # Errors
/// [`Error::Unavailable`] without either, with what to install.
pub fn kernels_at_hand() -> crate::error::Result<()> {
    match nvrtc() {
        Err(missing) if !cache::has_kernels() => Err(missing),
        _ => Ok(()),
    }
}

/// NVRTC's version, or what is to be done to have one; looked for once.
fn nvrtc_version() -> Result<(u32, u32), String> {
    static VERSION: OnceLock<Result<(u32, u32), String>> = OnceLock::new();
    VERSION.get_or_init(find_nvrtc).clone()
}

fn find_nvrtc() -> Result<(u32, u32), String> {
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
    Ok((u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)))
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
