//! Phase correction of waveforms for a minimum-phase whitener, so that templates match the whitened strain.

use num_complex::Complex64;
use rustfft::FftPlanner;

use crate::error::{Error, Result};
use crate::spiir::whiten::{Method, Options, Psd, Whitener};
use crate::strain::Waveform;

/// Phase response of a whitener; `None` for a zero-phase whitener.
#[derive(Debug)]
pub(super) struct Turn {
    whitener: Whitener,
    /// Length of its impulse response in samples.
    tail: usize,
}

impl Turn {
    /// Builds the correction for a whitener with these options and a fixed spectrum.
    pub(super) fn new(options: &Options, psd: Psd) -> Result<Option<Self>> {
        let Method::MinimumPhase { taps_s } = options.method else { return Ok(None) };
        let tail = (taps_s * f64::from(options.rate_hz)).ceil() as usize;
        let whitener = Whitener::new(Options { psd, ..options.clone() })?;
        Ok(Some(Self { whitener, tail }))
    }

    /// Returns the waveform with the whitener's phase response applied; its peak time stays.
    pub(super) fn apply(&self, waveform: &Waveform) -> Result<Waveform> {
        let used = waveform.samples.len() + self.tail;
        let points = used.next_power_of_two();
        let response = self.whitener.response(points)?;
        let mut samples = waveform.samples.clone();
        samples.resize(points, Complex64::default());
        let mut planner = FftPlanner::new();
        planner.plan_fft_forward(points).process(&mut samples);
        for (bin, value) in samples.iter_mut().enumerate() {
            let positive = bin.min(points - bin);
            let gain = response[positive];
            let size = gain.norm();
            let turn = if size > 0.0 { gain / size } else { Complex64::new(1.0, 0.0) };
            // The impulse response is real, so negative frequencies are conjugates.
            *value *= if bin == positive { turn } else { turn.conj() };
            *value /= points as f64;
        }
        planner.plan_fft_inverse(points).process(&mut samples);
        samples.truncate(used);
        if samples.iter().any(|h| !h.is_finite()) {
            let rule = "its whitened samples must be finite";
            return Err(Error::parameter("waveform", &waveform.name, rule));
        }
        Ok(Waveform { samples, ..waveform.clone() })
    }
}
