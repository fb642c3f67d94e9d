//! What a file of events holds, and what it must obey.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::Binary;
use crate::units::Gps;

/// Events, and what localizing them takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventsFile {
    /// Version of the program that found them.
    pub version: String,
    /// One line on how they were found.
    pub comment: String,
    /// The program's options: `("--snr", "4")`.
    pub parameters: Vec<(String, String)>,
    /// First and last moment that were searched.
    pub span: Option<(Gps, Gps)>,
    /// The events.
    pub events: Vec<EventRow>,
    /// The power spectrum of each detector that an event has.
    pub psds: Vec<PsdRow>,
}

/// One event: triggers of several detectors that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Its time: that of the loudest detector, or whichever stands for all.
    pub gps: Gps,
    /// `sqrt(sum snr^2)`.
    pub network_snr: f64,
    /// False alarms of this rank and above in a second, when known.
    pub far_hz: Option<f64>,
    /// The template that found it.
    pub template: TemplateRow,
    /// Its detectors, at least one.
    pub detectors: Vec<DetectorRow>,
}

/// The template of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateRow {
    /// Its name, for messages.
    pub name: String,
    /// Masses and spins, where known: without them no one can localize the event.
    pub binary: Option<Binary>,
    /// Its length in seconds.
    pub duration_s: Option<f64>,
    /// The highest frequency that it has, in Hz.
    pub f_final_hz: Option<f64>,
}

/// The trigger of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// The event's time at this detector.
    pub gps: Gps,
    /// `|z|`.
    pub snr: f64,
    /// `arg z` in radians: PyCBC's sign.
    pub phase: f64,
    /// The autocorrelation veto, about 1 for a signal.
    pub xi2: Option<f64>,
    /// Distance at which a source overhead would be as loud as this, in Mpc.
    pub effective_distance_mpc: Option<f64>,
    /// Square of the signal-to-noise ratio of the template at 1 Mpc.
    pub sigmasq: Option<f64>,
    /// The complex signal-to-noise ratio around the trigger.
    pub snr_series: Option<SnrSeries>,
}

/// Complex signal-to-noise ratios around a trigger.
///
/// BAYESTAR wants an odd number of samples, the middle one within a sample of the trigger's time, and the same rate and
/// number in all detectors of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct SnrSeries {
    /// The event's time that the first sample stands for: its output sample's time and the template's
    /// `peak_offset_s`, so that the series peaks at [`DetectorRow::gps`].
    pub start: Gps,
    /// Samples in a second.
    pub rate_hz: u32,
    /// `z` in sidereal's convention, which is PyCBC's.
    pub samples: Vec<Complex<f32>>,
}

/// The power spectrum of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct PsdRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// One-sided, in 1/Hz (the strain has no unit).
    pub psd: PowerSpectrum,
}

impl EventRow {
    /// Names of its detectors, sorted, with commas between.
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
