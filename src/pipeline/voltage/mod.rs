//! Channelization of recorded voltages into filterbank rows, or into voltages of more channels.
//!
//! Invariant: rows depend on the recording and the options alone, never on gulp, threads or on how
//! they are asked for.

mod ahead;
mod bank;
mod channelized;
mod coherent;
mod filled;
mod filterbank;
pub(super) mod layout;
mod level;
mod rows;
mod source;
mod spectra;
mod swept;
mod write;

pub(super) use channelized::deviation;
pub use channelized::{ChannelizedVoltages, Gains, Requantization};
pub(super) use filled::{Making, merged};
pub(super) use filterbank::DeviceRows;
pub use filterbank::VoltageFilterbank;
pub use layout::{ChannelizeOptions, Geometry};
pub(super) use level::Level;
pub(super) use source::blank;
pub use spectra::Watch;
pub(super) use spectra::{Pieces, Unread};
pub use write::{
    Depth, Destination, Scaling, VoltageFormat, VoltageReport, VoltageWriter, WriteReport,
    write_filterbank, write_voltages,
};
