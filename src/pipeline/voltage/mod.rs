//! Channelization of recorded voltages into filterbank rows, or into voltages of more channels.
//!
//! Invariant: rows depend on the recording and the options alone, never on gulp, threads or on how
//! they are asked for.

mod channelized;
mod coherent;
mod device;
mod filled;
mod filterbank;
mod finite;
mod gaps;
mod geometry;
pub(super) mod layout;
mod options;
mod part;
mod rows;
mod scaling;
mod spectra;
mod write;
mod write_voltages;

pub(super) use channelized::deviation;
pub use channelized::{ChannelizedVoltages, Gains, Requantization};
pub(super) use device::DeviceRows;
pub(super) use filled::Level;
pub use filterbank::VoltageFilterbank;
pub(super) use finite::blank;
pub use geometry::Geometry;
pub use options::ChannelizeOptions;
pub use scaling::Scaling;
pub(super) use spectra::Unread;
pub use spectra::Watch;
pub use write::{Depth, Destination, WriteReport, write_filterbank};
pub use write_voltages::{VoltageFormat, VoltageReport, write_voltages};
