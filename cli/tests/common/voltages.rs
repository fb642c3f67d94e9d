//! A simulated recording with one pulse in it.

use tempfile::TempDir;

use super::done;

/// DM and time of the pulse in [`recording`].
pub(crate) const DM: f64 = 20.0;

pub(crate) const TIME_S: f64 = 0.4;

/// A folder with 1.2 s of 1 MHz at 150 MHz in it, in four recorded channels, with one pulse of 0.5 ms:
/// as narrow as that only when the dispersion within channels is removed.
pub(crate) fn recording(name: &str, more: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let words = format!(
        "simulate voltages {name} -q --freq 150 --bandwidth 1 --coarse-channels 4 --duration 1.2 \
         --seed 3 --telescope test --pulse dm={DM},time={TIME_S},width=0.0005,snr=40 {more}"
    );
    done(home.path(), &words);
    home
}
