//! Search for compact binary coalescences: whitening of strain, matched filters, triggers, coincident events.
//!
//! Invariant: events depend on the strain and the options alone, never on blocks or threads.

mod bank;
mod bank_file;
mod detector;
#[cfg(feature = "cuda")]
mod device;
mod latency;
mod need;
mod phase;
pub mod placement;
mod ready;
mod recording;
mod report;
mod search;
mod series;
mod single;
mod spectrum;
mod strain;
mod together;
mod whitened;
mod work;

pub use bank::{Source, check_length, design, waveforms};
pub use bank_file::{read_bank, write_bank};
pub use detector::{ChirpDetector, DetectorOptions, Piece};
pub use latency::Latency;
pub use need::Need;
pub use recording::Recording;
pub use report::{DetectorReport, Report};
pub use search::{ChirpSearch, Input, Keeper, SearchOptions, Status};
pub use series::{Series, series};
pub use spectrum::{Spectrum, Whitening};
pub use strain::{Reader, Strain, common_span};
pub use whitened::Whitened;
