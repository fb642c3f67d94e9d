//! Waveforms turned as a whitener turns the strain, so that templates of a minimum-phase whitener match it.

use num_complex::Complex64;
use rustfft::FftPlanner;

use crate::error::{Error, Result};
use crate::spiir::whiten::{Method, Options, Psd, Whitener};
use crate::strain::Waveform;

/// What a whitener does to phases; `None` for one that leaves them as they are.
#[derive(Debug)]
pub(super) struct Turn {
    whitener: Whitener,
    /// Samples over which its response runs on.
    tail: usize,
}

impl Turn {
    /// Of a whitener with these options, and a fixed spectrum in the place of a running one.
    pub(super) fn new(options: &Options, psd: Psd) -> Result<Option<Self>> {
        let Method::MinimumPhase { taps_s } = options.method else { return Ok(None) };
        let tail = (taps_s * f64::from(options.rate_hz)).ceil() as usize;
        let whitener = Whitener::new(Options { psd, ..options.clone() })?;
        Ok(Some(Self { whitener, tail }))
    }

    /// The waveform with every frequency's phase turned as the whitener turns it; its peak stays what it was.
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
            // The response is real in time: its negative frequencies are conjugates.
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
