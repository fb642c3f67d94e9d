//! Options of the channelization of recorded voltages.
//!
//! Invariant: options say nothing of a recording; what does not fit one is found when they are bound.

use crate::channelize::{Feed, Products};
use crate::math::Window;
use crate::units::DM_CONSTANT;

/// Options of a filterbank computed from voltages.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelizeOptions {
    /// Channels per recorded channel.
    pub channels: usize,
    /// Taps of the filter bank: rows of samples under its window.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Oversampling P / Q, at least 1.
    pub oversampling: (usize, usize),
    /// Detected products.
    pub products: Products,
    /// Type of the feeds; `None`: as recorded, else linear.
    pub feed: Option<Feed>,
    /// Spectra summed into a row.
    pub integrate: usize,
    /// Adjacent channels summed into one; divides `channels`.
    pub average_channels: usize,
    /// Whether to replace the channel at each recorded channel's zero frequency by the mean of the adjacent channels.
    pub interpolate_dc: bool,
    /// Dispersion measure for which dispersion within channels is removed before detection. The delays between
    /// channels remain, so rows are searched at this dispersion measure like any others.
    pub coherent_dm: Option<f64>,
    /// Dispersion constant of `coherent_dm`, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Whether rows ascend in sky frequency instead of descending.
    pub ascending: bool,
    /// Antenna to use, counted from 0; `None`: the powers of all are summed.
    pub antenna: Option<usize>,
    /// Time range in seconds from the first sample's start; its samples are treated as the whole recording.
    pub time_range: Option<(f64, f64)>,
    /// Limit in bytes on blocks in host memory; `None` sets no limit. Rows do not depend on it.
    pub memory: Option<u64>,
    /// Samples of each stream per read; 0 selects automatically. Rows do not depend on it.
    pub gulp: usize,
}

impl ChannelizeOptions {
    /// Options with `channels` channels per recorded channel: 8 taps, sinc x Hann, critical sampling, Stokes I, no
    /// sums.
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
