//! How long after a sample its triggers are known.

/// What each stage waits for, in seconds of data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The whitener: samples that must follow one before it is whitened.
    pub whitening_s: f64,
    /// The rates of the filter bank, brought into step.
    pub resampling_s: f64,
    /// The search for peaks: the window round one, its autocorrelation, gates that may follow.
    pub triggers_s: f64,
}

impl Latency {
    /// From a sample to the triggers at it.
    pub fn total_s(&self) -> f64 {
        self.whitening_s + self.resampling_s + self.triggers_s
    }
}
