//! The verbs that process data: searches, voltages, correlations and strain.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod alerts;
#[path = "../common/mod.rs"]
mod common;
mod correlate;
mod correlate_faults;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod dumps;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_engines;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_faults;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_joined;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_spiir;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_strain;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live_voltages;
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
mod page;
mod pictures;
mod report;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod ring;
mod searches;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod send;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod soak;
mod spiir;
mod spiir_resumed;
mod voltages;
mod voltages_faults;
