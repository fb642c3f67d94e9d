//! Data that arrive: formats of packets, a moving window that puts their samples in order of time, and rings in memory that
//! is shared with other programs.
//!
//! Invariant: each packet received is counted once, by its source and by what became of it, and each lost block is
//! listed and filled with zeros; receiving allocates nothing, nothing waits without a limit, and no packet and no ring makes
//! it panic.
//!
//! | module | content |
//! |---|---|
//! | [`packet`] | the result of all formats: source, counter, offset and payload, or the reason for a rejection |
//! | [`declared`] | packets with a fixed header that is declared in numbers; presets for SNAP, SNAP2, CHIPS and GReX |
//! | [`vdif`] | VDIF frames over UDP, with and without a sequence number |
//! | [`spead`] | SPEAD packets, read and written |
//! | [`descriptor`] | descriptions of items in SPEAD heaps |
//! | [`heaps`] | voltages in SPEAD heaps of one or more packets |
//! | `socket` | UDP sockets of Linux: unicast and multicast, many packets per system call, packets dropped by the kernel |
//! | [`header`] | the text that says what a stream carries: spectra or voltages |
//! | [`clock`] | time of a counter: synchronization, rate, wraps, leap seconds |
//! | `system_clock` | whether NTP or PTP keeps this machine's clock on time (Linux) |
//! | [`description`] | streams whose packets carry no header: contents, format and clock known beforehand |
//! | `discovery` | what the first frames of a VDIF stream say |
//! | `frames` | strain that arrives as frame files in folders, and the reasons of its gaps (Linux) |
//! | [`stream`] | streams of `sidereal send`: SPEAD heaps of spectra or voltages, with their header |
//! | `capture` | the thread that receives packets of a socket and puts them in order (Linux) |
//! | `cores` | cores on which threads receive packets (Linux) |
//! | `feed`, `sorting`, `voltages` | samples of an observation in order, and voltages sorted into rows by several threads (Linux) |
//! | `source` | spectra and voltages of a stream as they arrive, with what was lost filled in (Linux) |
//! | `joined` | voltages of several streams, bands or polarizations, as one source (Linux) |
//! | `target` | address of a stream in text: a UDP port or a ring (Linux) |
//! | `send` | recordings sent as streams, paced and impaired (Linux) |
//! | [`impair`] | loss, delay and duplication of packets, as decided by a seed |
//! | [`trigger`] | triggers that other programs send: forms of datagrams, limits of range and rate |
//! | [`window`] | the window: chunks of blocks and sources, their presence, counters |
//! | `ring` | PSRDADA rings in shared memory (Linux) |

#[cfg(target_os = "linux")]
pub mod capture;
pub mod clock;
#[cfg(target_os = "linux")]
pub mod cores;
pub mod declared;
pub mod description;
pub mod descriptor;
// For fuzzing.
#[doc(hidden)]
pub mod discovery;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod feed;
#[cfg(target_os = "linux")]
pub mod frames;
pub mod header;
pub mod heaps;
pub mod impair;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod joined;
pub mod packet;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod ring;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod send;
#[cfg(target_os = "linux")]
pub mod socket;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sorting;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod source;
pub mod spead;
pub mod stream;
#[cfg(target_os = "linux")]
pub mod system_clock;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod target;
pub mod trigger;
pub mod vdif;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod voltages;
pub mod window;
