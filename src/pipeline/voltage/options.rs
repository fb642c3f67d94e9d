//! What is made of recorded voltages.
//!
//! Invariant: options say nothing of a recording; what does not fit one is found when they are bound.

use crate::channelize::{Feed, Products};
use crate::math::window::Window;
use crate::units::DM_CONSTANT;

/// What a filterbank made from voltages is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelizeOptions {
    /// Channels out of each recorded channel.
    pub channels: usize,
    /// Taps: rows of samples under the window.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Oversampling P / Q, at least 1.
    pub oversampling: (usize, usize),
    /// What is detected.
    pub products: Products,
    /// How the feeds are made; `None`: as the recording says, else linear.
    pub feed: Option<Feed>,
    /// Spectra summed into a row.
    pub integrate: usize,
    /// Neighbouring channels summed into one; divides `channels`.
    pub average_channels: usize,
    /// Replace the channel at each recorded channel's zero frequency by the mean of its neighbours.
    pub interpolate_dc: bool,
    /// A dispersion measure whose smearing within channels is removed before detection. The delays
    /// between channels stay, so that the rows are searched at this measure as any others.
    pub coherent_dm: Option<f64>,
    /// Dispersion constant of `coherent_dm`, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Rows run from the lowest sky frequency up, instead of from the highest down.
    pub ascending: bool,
    /// One antenna, counted from 0; `None`: the powers of all are summed.
    pub antenna: Option<usize>,
    /// The part to take, in seconds from the first sample's start: its samples are treated as if they
    /// were the recording.
    pub time_range: Option<(f64, f64)>,
    /// The most bytes that blocks in the host's memory may take; `None` sets no limit. The rows do not depend on it.
    pub memory: Option<u64>,
    /// Samples of each stream that are read at once; 0 chooses. The rows do not depend on it.
    pub gulp: usize,
}

impl ChannelizeOptions {
    /// So many channels out of each recorded one: 8 taps, sinc x Hann, critical sampling, Stokes I,
    /// nothing summed.
    pub fn new(channels: usize) -> Self {
        Self {
            channels,
            taps: 8,
            window: Window::default(),
            oversampling: (1, 1),
            products: Products::I,
            feed: None,
            integrate: 1,
            average_channels: 1,
            interpolate_dc: false,
            coherent_dm: None,
            dm_constant: DM_CONSTANT,
            ascending: false,
            antenna: None,
            time_range: None,
            memory: None,
            gulp: 0,
        }
    }
}
