//! Options of the channelization of recorded voltages, the sky frequencies of a row's channels with the filter-bank
//! order that produces them, and the filter bank's parameters for a file's metadata.
//!
//! Invariant: options say nothing of a recording; what does not fit one is found when they are bound.

use crate::channelize::{Detection, Feed, Form, Input, Options, Order, Plan, Products};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::math::Window;
use crate::units::{DM_CONSTANT, HZ_PER_MHZ, MAX_CHANNELS};

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

/// Channel order of a filter bank whose output is sorted by sky frequency.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Layout {
    /// Order of channels within a recorded channel.
    pub(in crate::pipeline) order: Order,
    /// Whether the filter bank reverses the recorded channels.
    pub(in crate::pipeline) reverse_coarse: bool,
    /// Filter-bank index of each recorded channel of a row, if neither of the filter bank's orders fits.
    pub(in crate::pipeline) places: Option<Vec<usize>>,
    /// Recorded channel at each position in a row.
    coarse: Vec<usize>,
}

impl Layout {
    /// Determines the order for descending or ascending sky frequency.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the recording does not state its frequencies or its sampling time, or when its
    /// channels overlap.
    pub(in crate::pipeline) fn new(header: &VoltageHeader, ascending: bool) -> Result<Self> {
        check(header)?;
        let order = match ascending == header.lower_sideband {
            true => Order::Descending,
            false => Order::Ascending,
        };
        let mut coarse: Vec<usize> = (0..header.coarse_channels()).collect();
        let centre = |channel: &usize| header.centres_hz[*channel];
        coarse.sort_by(|a, b| {
            let (a, b) = if ascending { (a, b) } else { (b, a) };
            centre(a).total_cmp(&centre(b))
        });
        check_spacing(header, &coarse)?;
        let is_recorded = coarse.iter().enumerate().all(|(place, channel)| place == *channel);
        let last = coarse.len() - 1;
        let is_reversed =
            coarse.iter().enumerate().all(|(place, channel)| last - place == *channel);
        let reverse_coarse = is_reversed && !is_recorded;
        let places = (!is_recorded && !is_reversed).then(|| coarse.clone());
        Ok(Self { order, reverse_coarse, places, coarse })
    }

    /// Returns the recorded channel at each position in a row.
    pub(in crate::pipeline) fn coarse(&self) -> &[usize] {
        &self.coarse
    }

    /// Returns the filter bank's options.
    pub(in crate::pipeline) fn options(
        &self,
        header: &VoltageHeader,
        asked: &ChannelizeOptions,
        form: Form,
    ) -> Options {
        Options {
            channels: asked.channels,
            taps: asked.taps,
            window: asked.window.clone(),
            oversampling: asked.oversampling,
            input: Input {
                encoding: header.encoding,
                scale: header.scale,
                antennas: header.antennas,
                coarse_channels: header.coarse_channels(),
                polarizations: header.polarizations,
            },
            order: self.order,
            reverse_coarse: self.reverse_coarse,
            form,
        }
    }

    /// Returns the sky frequency of each channel of a row in Hz, with `summed` adjacent channels combined.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than [`MAX_CHANNELS`] channels.
    pub(in crate::pipeline) fn centres_hz(
        &self,
        header: &VoltageHeader,
        plan: &Plan,
        summed: usize,
    ) -> Result<Vec<f64>> {
        let recorded = self.coarse.len();
        if plan.channels() / summed > MAX_CHANNELS / recorded {
            let rule = format!(
                "of {recorded} recorded channels each, it makes more than {MAX_CHANNELS} in all"
            );
            return Err(Error::parameter("channelize.channels", plan.channels(), rule));
        }
        let offsets = offsets_hz(header, plan, summed);
        let sign = sideband(header);
        let centre = |coarse: &usize| header.centres_hz[*coarse];
        let of = |coarse| offsets.iter().map(move |offset| centre(coarse) + sign * offset);
        Ok(self.coarse.iter().flat_map(of).collect())
    }
}

/// Returns 1, or -1 if sky frequency falls as the voltage's frequency rises.
pub(in crate::pipeline) fn sideband(header: &VoltageHeader) -> f64 {
    if header.lower_sideband { -1.0 } else { 1.0 }
}

/// Returns the frequencies in Hz of a recorded channel's channels, relative to the middle of its band, with `summed`
/// adjacent channels combined.
pub(in crate::pipeline) fn offsets_hz(
    header: &VoltageHeader,
    plan: &Plan,
    summed: usize,
) -> Vec<f64> {
    let fine: Vec<f64> = (0..plan.channels()).map(|c| offset_hz(header, plan, c)).collect();
    fine.chunks(summed).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// Returns the frequency of one channel.
fn offset_hz(header: &VoltageHeader, plan: &Plan, index: usize) -> f64 {
    let (bin, channels) = (plan.bin(index), plan.channels());
    let width = header.channel_width_hz();
    let step = width / channels as f64;
    if !header.encoding.is_complex() {
        return bin as f64 * step - 0.5 * width;
    }
    let bin = if bin < channels.div_ceil(2) { bin as f64 } else { bin as f64 - channels as f64 };
    bin * step
}

/// Returns the requested detection.
pub(in crate::pipeline) fn detection(
    header: &VoltageHeader,
    asked: &ChannelizeOptions,
) -> Detection {
    let recorded = if header.circular == Some(true) { Feed::Circular } else { Feed::Linear };
    Detection {
        products: asked.products,
        feed: asked.feed.unwrap_or(recorded),
        spectra: asked.integrate,
        channels: asked.average_channels,
        interpolate_dc: asked.interpolate_dc,
    }
}

fn check(header: &VoltageHeader) -> Result<()> {
    if header.centres_hz.is_empty() {
        return Err(Error::parameter("recorded channels", 0, "there must be at least one"));
    }
    if !(header.tsamp_s.is_finite() && header.tsamp_s > 0.0) {
        let rule = "the recording does not say it; give its samples a second";
        return Err(Error::parameter("sample_rate_hz", header.tsamp_s, rule));
    }
    if header.centres_hz.iter().any(|centre| centre.is_nan() || *centre <= 0.0) {
        let rule =
            "the recording does not say its sky frequency; give the middle of its band in MHz";
        return Err(Error::parameter("centre_hz", 0, rule));
    }
    Ok(())
}

/// Largest overlap of adjacent channels, relative to their width; absorbs the rounding of frequencies.
const MAX_OVERLAP: f64 = 1e-3;

/// Checks that recorded channels do not overlap; they may have gaps. The channels of overlapping ones would not be
/// monotonic in frequency.
fn check_spacing(header: &VoltageHeader, coarse: &[usize]) -> Result<()> {
    let width = header.channel_width_hz();
    let spacings = coarse.windows(2).map(|pair| {
        let [a, b] = [pair[0], pair[1]].map(|channel| header.centres_hz[channel]);
        (a - b).abs()
    });
    let least = spacings.fold(f64::INFINITY, f64::min);
    if least >= (1.0 - MAX_OVERLAP) * width {
        return Ok(());
    }
    let rule = format!(
        "the recorded channels are {:.6} MHz wide and overlap, as those of an oversampled filter bank do; \
         channelize voltages that were recorded or written critically sampled (`oversampling` 1/1)",
        width / HZ_PER_MHZ,
    );
    Err(Error::parameter("spacing of recorded channels (MHz)", least / HZ_PER_MHZ, rule))
}

/// Filter bank that computed rows from a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Format of the recording.
    pub format: &'static str,
    /// Channels per recorded channel, before any sum over channels.
    pub channels: usize,
    /// Recorded channels.
    pub recorded_channels: usize,
    /// Taps.
    pub taps: usize,
    /// Name of the window.
    pub window: String,
    /// Oversampling P / Q.
    pub oversampling: (usize, usize),
    /// Samples between spectra.
    pub hop: usize,
    /// Spectra summed into a row.
    pub integrate: usize,
    /// Adjacent channels summed into one.
    pub average_channels: usize,
    /// Name of each product, in the order of a row; empty for voltage output.
    pub products: Vec<&'static str>,
    /// `linear` or `circular`.
    pub feed: &'static str,
    /// Whether the channel at each recorded channel's zero frequency was interpolated.
    pub interpolate_dc: bool,
    /// Dispersion measure for which dispersion within channels was removed.
    pub coherent_dm: Option<f64>,
    /// Antennas whose powers were summed.
    pub antennas: usize,
    /// Polarizations recorded.
    pub polarizations: usize,
    /// Sampling time of the recording in seconds.
    pub recorded_tsamp_s: f64,
    /// Recorded samples from the start of the first sample to the start of the first row.
    pub delay_samples: f64,
}

impl Geometry {
    pub(super) fn new(recorded: &VoltageHeader, plan: &Plan, detection: Option<Detection>) -> Self {
        let options = plan.options();
        let names =
            |detection: Detection| product_names(detection.products, recorded.polarizations);
        let circular = recorded.circular == Some(true);
        let feed = if circular { Feed::Circular } else { Feed::Linear };
        Self {
            format: recorded.format,
            channels: plan.channels(),
            recorded_channels: recorded.coarse_channels(),
            taps: plan.taps(),
            window: options.window.name(),
            oversampling: options.oversampling,
            hop: plan.hop(),
            integrate: plan.spectra_per_row(),
            average_channels: plan.channels() / plan.output_channels(),
            products: detection.map_or_else(Vec::new, names),
            feed: feed_name(detection.map_or(feed, |detection| detection.feed)),
            interpolate_dc: detection.is_some_and(|detection| detection.interpolate_dc),
            coherent_dm: None,
            antennas: recorded.antennas,
            polarizations: recorded.polarizations,
            recorded_tsamp_s: recorded.tsamp_s,
            delay_samples: plan.delay_samples(),
        }
    }
}

fn product_names(products: Products, polarizations: usize) -> Vec<&'static str> {
    let names: &[&str] = match products {
        Products::Power => &["AA", "BB"],
        Products::I => &["I"],
        Products::Iquv => &["I", "Q", "U", "V"],
        Products::Aabbcrci => &["AA", "BB", "CR", "CI"],
    };
    names[..products.count(polarizations)].to_vec()
}

fn feed_name(feed: Feed) -> &'static str {
    match feed {
        Feed::Linear => "linear",
        Feed::Circular => "circular",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    fn header(centres_mhz: &[f64], encoding: VoltageEncoding) -> VoltageHeader {
        let centres_hz = centres_mhz.iter().map(|mhz| mhz * 1e6).collect();
        VoltageHeader::new(centres_hz, 1e-6, encoding)
    }

    fn centres_mhz(header: &VoltageHeader, channels: usize, ascending: bool) -> Vec<f64> {
        let layout = Layout::new(header, ascending).unwrap();
        let asked = ChannelizeOptions::new(channels);
        let form = Form::Detected(detection(header, &asked));
        let plan = Plan::new(layout.options(header, &asked, form)).unwrap();
        layout.centres_hz(header, &plan, 1).unwrap().iter().map(|hz| hz / 1e6).collect()
    }

    #[test]
    fn rows_run_in_order_of_sky_frequency() {
        use VoltageEncoding::{Complex8, Real8};
        for lower_sideband in [false, true] {
            for centres in
                [&[1001.0, 1000.0, 999.0][..], &[999.0, 1000.0, 1001.0], &[1000.0, 1001.0, 999.0]]
            {
                let header = VoltageHeader { lower_sideband, ..header(centres, Complex8) };
                let rising = centres_mhz(&header, 4, true);
                // Bins -C/2 to C/2 - 1 of the voltages, mirrored in a lower sideband.
                let first = if lower_sideband { 998.75 } else { 998.5 };
                let expected: Vec<f64> = (0..12).map(|c| first + 0.25 * f64::from(c)).collect();
                assert_eq!(rising, expected, "{lower_sideband} {centres:?}");
                let falling: Vec<f64> = expected.into_iter().rev().collect();
                assert_eq!(centres_mhz(&header, 4, false), falling);
            }
            // Real samples at 1 MHz cover 0.5 MHz, with bin 0 at the band's edge.
            let header = VoltageHeader { lower_sideband, ..header(&[1000.0], Real8) };
            let rising = centres_mhz(&header, 4, true);
            let first = if lower_sideband { 999.875 } else { 999.75 };
            let expected: Vec<f64> = (0..4).map(|c| first + 0.125 * f64::from(c)).collect();
            assert_eq!(rising, expected);
        }
    }

    #[test]
    fn too_many_channels_are_refused_before_they_are_made() {
        let centres: Vec<f64> = (0..1 << 12).map(|c| 1000.0 + f64::from(c)).collect();
        let header = header(&centres, VoltageEncoding::Complex8);
        let layout = Layout::new(&header, false).unwrap();
        let made = |channels| {
            let asked = ChannelizeOptions { taps: 1, ..ChannelizeOptions::new(channels) };
            let plan = Plan::new(layout.options(&header, &asked, Form::Spectra)).unwrap();
            layout.centres_hz(&header, &plan, 1)
        };
        assert_eq!(made(256).unwrap().len(), MAX_CHANNELS);
        let error = made(257).unwrap_err().to_string();
        assert!(
            error.contains("channelize.channels") && error.contains("4096 recorded"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_frequency_names_the_option() {
        let error = Layout::new(&header(&[0.0], VoltageEncoding::Complex8), false).unwrap_err();
        assert!(error.to_string().contains("centre_hz"), "{error}");
    }
}
