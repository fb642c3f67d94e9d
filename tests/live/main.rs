//! Packets of voltages, from their bytes to chunks in order of time.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "../common/memory.rs"]
mod memory;
#[path = "../common/random.rs"]
mod random;
#[cfg(target_os = "linux")]
#[path = "../common/skip.rs"]
mod skip;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod described;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod frames;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod hostile;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod joined;
mod loss;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod packets;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod send;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod source;
mod window;
