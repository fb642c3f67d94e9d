//! Availability of the CUDA components on this machine.

use cudarc::cufft;

use super::{Device, cache, nvrtc};
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
    Status { driver, nvrtc: nvrtc::version(), cufft: cufft_version(), devices }
}

/// Checks that kernels are available: from NVRTC, or from the cache of an NVRTC used earlier.
///
/// # Errors
/// [`Error::Unavailable`] without either, with what to install.
pub fn kernels_at_hand() -> crate::error::Result<()> {
    match nvrtc::nvrtc() {
        Err(missing) if cache::recorded_compiler().is_none() => Err(missing),
        _ => Ok(()),
    }
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
