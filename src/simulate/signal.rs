//! Pulse of a given strength, and its contribution to each sample.
//!
//! Invariant: what a row gets depends on the pulse and the row's times alone.

use super::channels::Channels;
use super::pulse_shape::{FWHM, Shape};

/// Shape parameters of a pulse, independent of its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    pub(super) dm: f64,
    /// Full width at half maximum before smearing.
    pub(super) width_s: f64,
    /// Scattering time at 1 GHz.
    pub(super) scatter_s: f64,
    pub(super) spectral_index: f64,
}

impl Pulse {
    /// Returns the pulse's shape in a channel.
    pub(super) fn shape(&self, channels: &Channels, channel: usize) -> Shape {
        let (early, late) = channels.edges_s[channel];
        Shape {
            sigma_s: self.width_s / FWHM,
            scatter_s: self.scatter_s * channels.scatter[channel],
            early_s: self.dm * early,
            late_s: self.dm * late,
        }
    }

    /// Returns the brightness of a channel relative to the highest.
    pub(super) fn brightness(&self, channels: &Channels, channel: usize) -> f64 {
        if self.spectral_index == 0.0 {
            return 1.0;
        }
        (self.spectral_index * channels.ln_frequency[channel]).exp()
    }

    /// Returns the longest extent of the pulse before and after a channel's delay.
    pub(super) fn reach_s(&self, channels: &Channels) -> (f64, f64) {
        let reach = |(before, after): (f64, f64), channel| {
            let shape = self.shape(channels, channel);
            (before.max(shape.before_s()), after.max(shape.after_s()))
        };
        (0..channels.count()).fold((0.0, 0.0), reach)
    }
}

/// Pulse of a known strength.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pulse: Pulse,
    /// Fluence at the highest channel, in units of that channel's noise sigma times seconds.
    amplitude: f64,
    before_s: f64,
    after_s: f64,
    sweep_s: f64,
}

impl Signal {
    pub(super) fn new(pulse: Pulse, amplitude: f64, channels: &Channels) -> Self {
        let (before_s, after_s) = pulse.reach_s(channels);
        let sweep_s = pulse.dm * channels.largest_delay_s();
        Self { pulse, amplitude, before_s, after_s, sweep_s }
    }

    /// Returns the seconds from a pulse's time to its first and last contribution in any channel.
    pub(super) fn span_s(&self) -> (f64, f64) {
        (-self.before_s, self.sweep_s + self.after_s)
    }

    /// Adds the contribution of a pulse at `time_s` to the row `begin_s .. end_s`, in units of sigma.
    pub(super) fn add(&self, time_s: f64, row_s: (f64, f64), channels: &Channels, row: &mut [f32]) {
        let (begin, end) = (row_s.0 - time_s, row_s.1 - time_s);
        if end < -self.before_s || begin > self.sweep_s + self.after_s {
            return;
        }
        let window = if self.pulse.dm == 0.0 {
            0..channels.count()
        } else {
            let dm = self.pulse.dm;
            channels.within((begin - self.after_s) / dm, (end + self.before_s) / dm)
        };
        for channel in window {
            let delay = self.pulse.dm * channels.delays_s[channel];
            let shape = self.pulse.shape(channels, channel);
            if end - delay < -shape.before_s() || begin - delay > shape.after_s() {
                continue;
            }
            let brightness = self.amplitude * self.pulse.brightness(channels, channel);
            row[channel] += (brightness * shape.mean(begin - delay, end - delay)) as f32;
        }
    }
}
