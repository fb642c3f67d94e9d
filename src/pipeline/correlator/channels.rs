//! Sky frequencies of the correlated and the output channels.
//!
//! Invariant: channels come out by rising sky frequency.

use crate::channelize::Plan;
use crate::delay::Band;
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::pipeline::voltage::layout::{Layout, offsets_hz, sideband};

/// Largest deviation of the spacing of averaged channels, relative to the spacing.
const SPACING_TOLERANCE: f64 = 1e-3;

/// Channels of a correlation.
#[derive(Clone, Debug)]
pub(super) struct Channels {
    /// Number of channels per recorded channel.
    pub(super) fine: usize,
    /// Number of recorded channels.
    pub(super) coarse: usize,
    /// Correlated channels by ascending sky frequency; each run of `average` channels forms one output channel.
    order: Vec<usize>,
    average: usize,
    /// Sky frequency of each output channel.
    centres_hz: Vec<f64>,
    /// Width of an output channel.
    width_hz: f64,
    /// 1, or -1 if sky frequency falls as the voltage's frequency rises.
    sideband: f64,
    /// Frequencies for the phase rotation that removes delays.
    band: Band,
}

impl Channels {
    /// Computes the channels of a filter bank; without one, the recorded channels.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels that overlap, or cannot be averaged.
    pub(super) fn new(header: &VoltageHeader, bank: Option<&Plan>, average: usize) -> Result<Self> {
        let sideband = sideband(header);
        let offsets = match bank {
            Some(plan) => {
                let layout = Layout::new(header, true)?;
                layout.centres_hz(header, plan, 1)?;
                offsets_hz(header, plan, 1)
            }
            None => vec![0.0],
        };
        let (fine, coarse) = (offsets.len(), header.coarse_channels());
        let centre =
            |channel: usize| header.centres_hz[channel / fine] + sideband * offsets[channel % fine];
        let mut order: Vec<usize> = (0..coarse * fine).collect();
        order.sort_by(|a, b| centre(*a).total_cmp(&centre(*b)));
        let all: Vec<f64> = order.iter().map(|channel| centre(*channel)).collect();
        check_average(&all, if bank.is_some() { fine } else { coarse }, average)?;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let width = header.channel_width_hz();
        // Real samples have their zero frequency at the band's edge.
        let half = if header.encoding.is_complex() { 0.0 } else { 0.5 * width };
        let zero = |centre: f64| sideband * (centre - sideband * half);
        Ok(Self {
            fine,
            coarse,
            order,
            average,
            centres_hz: all.chunks(average).map(mean).collect(),
            width_hz: width / fine as f64 * average as f64,
            sideband,
            band: Band {
                zeros_hz: header.centres_hz.iter().map(|centre| zero(*centre)).collect(),
                first_hz: offsets[0] + half,
                step_hz: width / fine as f64,
            },
        })
    }

    /// Returns the number of correlated channels.
    pub(super) fn correlated(&self) -> usize {
        self.order.len()
    }

    /// Returns the sky frequency of each output channel, ascending.
    pub(super) fn centres_hz(&self) -> &[f64] {
        &self.centres_hz
    }

    /// Returns the width of an output channel.
    pub(super) fn width_hz(&self) -> f64 {
        self.width_hz
    }

    /// Returns the number of correlated channels per output channel.
    pub(super) fn average(&self) -> usize {
        self.average
    }

    /// Returns the correlated channels by ascending sky frequency.
    pub(super) fn order(&self) -> &[usize] {
        &self.order
    }

    /// Returns whether the voltages are complex conjugates of the sky's.
    pub(super) fn is_conjugate(&self) -> bool {
        self.sideband < 0.0
    }

    /// Returns the frequencies for the phase rotation that removes delays.
    pub(super) fn band(&self) -> &Band {
        &self.band
    }
}

/// Checks that averaged channels belong to one recorded channel or are evenly spaced.
fn check_average(centres_hz: &[f64], together: usize, average: usize) -> Result<()> {
    if average == 0 || !together.is_multiple_of(average) {
        let rule = format!("it must divide the {together} channels");
        return Err(Error::parameter("--average-channels", average, rule));
    }
    let spacing = centres_hz.get(..2).map_or(1.0, |pair| pair[1] - pair[0]);
    let uneven = |part: &[f64]| {
        let off = |pair: &[f64]| pair[1] - pair[0] - spacing;
        part.windows(2).any(|pair| off(pair).abs() > SPACING_TOLERANCE * spacing)
    };
    if average > 1 && centres_hz.chunks(average).any(uneven) {
        let rule = "channels that are averaged must be evenly spaced, and these are not";
        return Err(Error::parameter("--average-channels", average, rule));
    }
    Ok(())
}
