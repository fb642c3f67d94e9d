//! Search for compact binary coalescences: whitening of strain, matched filters, triggers, coincident events.
//!
//! Invariant: events depend on the strain and the options alone, never on blocks or threads.

mod bank;
mod bank_file;
mod concurrent;
mod detector;
mod need;
mod options;
pub mod placement;
mod ready;
mod report;
mod search;
mod series;
mod spectrum;
mod strain;
mod whitened;
mod work;

pub use bank::{Source, check_length, design, waveforms};
pub use bank_file::{read_bank, write_bank};
pub use detector::{ChirpDetector, DetectorOptions, Latency, Piece};
pub use need::Need;
pub use options::{Input, SearchObserver, SearchOptions, Status};
pub use report::{DetectorReport, Report};
pub use search::ChirpSearch;
pub use series::{Series, series};
pub use spectrum::{Spectrum, Whitening};
pub use strain::{Reader, Recording, Strain, common_span};
pub use whitened::Whitened;
