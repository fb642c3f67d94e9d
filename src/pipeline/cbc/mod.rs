//! Search for compact binary coalescences: whitening of strain, matched filters, triggers, coincident events.
//!
//! Invariant: events depend on the strain and the options alone, never on blocks, threads or ranks.

mod around;
mod bank;
mod detector;
mod divided;
mod horizon;
mod online;
mod options;
mod placement;
mod ready;
mod report;
mod search;
mod strain;

pub use around::{Series, Snapshot, series};
pub use bank::{Input, Source, check_length, design, read_bank, waveforms, write_bank};
pub use detector::{ChirpDetector, DetectorOptions, Latency, Need, Piece};
pub use horizon::horizon_mpc;
pub use online::{Awaited, Loudest, OnlineDetector, OnlineSearch, WhitenedPart};
pub use options::{SearchObserver, SearchOptions, Spectrum, Status, Whitening};
pub use placement::{Coverage, PlaceOptions, Placed, Range, Space, coverage, harmonic_mean, place};
pub use report::{DetectorReport, Report, Whitened};
pub use search::ChirpSearch;
pub use strain::{Reader, Recording, Strain, common_span};
