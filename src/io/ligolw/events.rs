//! Contents of an event file, and their constraints.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Binary;
use crate::units::Gps;

/// Events and the data needed for their sky localization.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventsFile {
    /// Version of the search program.
    pub version: String,
    /// Description of the search, one line.
    pub comment: String,
    /// The program's options: `("--snr", "4")`.
    pub parameters: Vec<(String, String)>,
    /// Start and end of the searched time.
    pub span: Option<(Gps, Gps)>,
    /// The events.
    pub events: Vec<EventRow>,
    /// Power spectrum of each detector in an event.
    pub psds: Vec<PsdRow>,
}

/// An event: coincident triggers of several detectors.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Event time: that of the loudest detector, or another representative one.
    pub gps: Gps,
    /// `sqrt(sum snr^2)`.
    pub network_snr: f64,
    /// False-alarm rate of events of this rank and above, in Hz, when known.
    pub far_hz: Option<f64>,
    /// Template of the event.
    pub template: TemplateRow,
    /// Triggers of its detectors, at least one.
    pub detectors: Vec<DetectorRow>,
}

/// Template of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateRow {
    /// Its name, for messages.
    pub name: String,
    /// Masses and spins, when known; localization requires them.
    pub binary: Option<Binary>,
    /// Length in seconds.
    pub duration_s: Option<f64>,
    /// Highest frequency in Hz.
    pub f_final_hz: Option<f64>,
}

/// Trigger of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// Event time at this detector.
    pub gps: Gps,
    /// Signal-to-noise ratio `|z|`.
    pub snr: f64,
    /// Phase `arg z` in radians, with PyCBC's sign.
    pub phase: f64,
    /// The autocorrelation veto, about 1 for a signal.
    pub xi2: Option<f64>,
    /// Effective distance: that of an optimally located and oriented source with this signal-to-noise ratio, in Mpc.
    pub effective_distance_mpc: Option<f64>,
    /// Squared signal-to-noise ratio of the template at 1 Mpc.
    pub sigmasq: Option<f64>,
    /// Complex signal-to-noise ratio time series around the trigger.
    pub snr_series: Option<SnrSeries>,
}

/// Complex signal-to-noise ratios around a trigger.
///
/// BAYESTAR requires an odd number of samples, the middle one within a sample of the trigger's time, and the same
/// rate and number of samples in all detectors of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct SnrSeries {
    /// Event time of the first sample: its output time plus the template's `peak_offset_s`, so that the series peaks
    /// at [`DetectorRow::gps`].
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// `z` in sidereal's convention, which is PyCBC's.
    pub samples: Vec<Complex<f32>>,
}

/// Power spectrum of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct PsdRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// One-sided, in 1/Hz (strain is dimensionless).
    pub psd: PowerSpectrum,
}

impl EventRow {
    /// Returns the detectors' names, sorted and separated by commas.
    pub(super) fn ifos(&self) -> String {
        let mut names: Vec<&str> = self.detectors.iter().map(|own| own.ifo.as_str()).collect();
        names.sort_unstable();
        names.join(",")
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.detectors.is_empty() {
            return Err(Error::parameter("detectors of an event", 0, "it has at least 1"));
        }
        for (index, own) in self.detectors.iter().enumerate() {
            if self.detectors[..index].iter().any(|other| other.ifo == own.ifo) {
                let rule = "an event has each detector once";
                return Err(Error::parameter("detector of an event", &own.ifo, rule));
            }
        }
        let all: Vec<&SnrSeries> =
            self.detectors.iter().filter_map(|own| own.snr_series.as_ref()).collect();
        for (own, series) in
            self.detectors.iter().filter_map(|own| own.snr_series.as_ref().map(|s| (own, s)))
        {
            let same = (all[0].rate_hz, all[0].samples.len());
            if (series.rate_hz, series.samples.len()) != same {
                let found = format!("{} samples at {} Hz", series.samples.len(), series.rate_hz);
                let rule = format!("all of an event have {} at {} Hz", same.1, same.0);
                return Err(Error::parameter("series of SNR", found, rule));
            }
            series.check(own)?;
        }
        Ok(())
    }
}

impl SnrSeries {
    fn check(&self, own: &DetectorRow) -> Result<()> {
        if self.rate_hz == 0 || self.samples.len().is_multiple_of(2) {
            let found = format!("{} samples at {} Hz", self.samples.len(), self.rate_hz);
            let rule = format!("it needs an odd number and a rate ({})", own.ifo);
            return Err(Error::parameter("series of SNR", found, rule));
        }
        let middle = self.start.plus_samples((self.samples.len() / 2) as i64, self.rate_hz);
        let shift = middle.seconds_since(own.gps);
        if shift.abs() * f64::from(self.rate_hz) > 1.0 {
            let rule = format!("it must lie within a sample of the trigger of {}", own.ifo);
            return Err(Error::parameter("middle of a series of SNR (s)", shift, rule));
        }
        Ok(())
    }
}
