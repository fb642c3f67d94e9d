//! What is known of a correlation before its first integration.

use super::options::PhaseCentre;
use crate::correlate::Precision;
use crate::geometry::Array;
use crate::units::Epoch;

/// What is known of a correlation before its first integration.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayHeader {
    /// The antennas, with those that have no recording.
    pub array: Array,
    /// Whether each has a recording.
    pub present: Vec<bool>,
    /// Baselines that come out: antennas' numbers in the array (i, j), i >= j.
    pub baselines: Vec<(usize, usize)>,
    /// Polarizations of each antenna.
    pub polarizations: usize,
    /// Whether the feeds are circular (R and L).
    pub circular: bool,
    /// Sky frequency of each channel's centre in Hz, rising.
    pub frequencies_hz: Vec<f64>,
    /// Width of a channel in Hz.
    pub channel_width_hz: f64,
    /// Channels averaged into one.
    pub average_channels: usize,
    /// The start of the first spectrum's window; day 0 when unknown.
    pub start: Epoch,
    /// Seconds from spectrum to spectrum.
    pub spectrum_s: f64,
    /// Seconds under a spectrum's window.
    pub window_s: f64,
    /// Spectra of all antennas.
    pub spectra: u64,
    /// Spectra of an integration.
    pub integration_spectra: u64,
    /// Integrations, the last of which may have fewer spectra.
    pub integrations: u64,
    /// Where the array looks.
    pub phase_centre: PhaseCentre,
    /// UT1 - UTC at the start in seconds; 0 when the start is unknown and nothing is tracked.
    pub dut1_s: f64,
    /// Name of the source as recorded, empty when unknown.
    pub source_name: String,
    /// How the spectra were made, and how they were multiplied.
    pub bank: BankHeader,
}

/// How spectra were made.
#[derive(Clone, Debug, PartialEq)]
pub struct BankHeader {
    /// Whether recorded channels were divided into channels.
    pub channelized_here: bool,
    /// Channels of each recorded channel.
    pub channels: usize,
    /// Taps; 0 where nothing was channelized.
    pub taps: usize,
    /// The window's name; empty where nothing was channelized.
    pub window: String,
    /// Bits of a real number of the spectra that were multiplied.
    pub nbits: usize,
    /// How a GPU rounded them to multiply them.
    pub precision: Precision,
    /// Whether recorded integers were multiplied as they are.
    pub as_recorded: bool,
    /// Recorded samples a second of each stream.
    pub sample_rate_hz: f64,
}

impl ArrayHeader {
    /// Length of an integration in seconds.
    pub fn integration_s(&self) -> f64 {
        self.integration_spectra as f64 * self.spectrum_s
    }

    /// Polarization pairs: 1 or 4.
    pub fn pairs(&self) -> usize {
        self.polarizations * self.polarizations
    }

    /// The count of an integration whose samples are all valid.
    pub fn full_count(&self) -> u64 {
        self.integration_spectra * self.average_channels as u64
    }

    /// Length of the data in seconds.
    pub fn duration_s(&self) -> f64 {
        self.spectra as f64 * self.spectrum_s
    }
}
