//! Delay between a sample and its triggers.

/// Delay of each stage, in seconds of data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Whitener: samples required after one before it is whitened.
    pub whitening_s: f64,
    /// Filter bank: alignment of its sample rates.
    pub resampling_s: f64,
    /// Peak search: the window around a peak, its autocorrelation, gates that may follow.
    pub triggers_s: f64,
}

impl Latency {
    /// Returns the total delay.
    pub fn total_s(&self) -> f64 {
        self.whitening_s + self.resampling_s + self.triggers_s
    }
}
