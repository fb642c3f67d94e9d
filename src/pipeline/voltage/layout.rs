//! Sky frequencies of a row's channels, and the filter-bank order that produces them.

use super::options::ChannelizeOptions;
use crate::channelize::{Detection, Feed, Form, Input, Options, Order, Plan};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::units::{HZ_PER_MHZ, MAX_CHANNELS};

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
const MOST_OVERLAP: f64 = 1e-3;

/// Checks that recorded channels do not overlap; they may have gaps. The channels of overlapping ones would not be
/// monotonic in frequency.
fn check_spacing(header: &VoltageHeader, coarse: &[usize]) -> Result<()> {
    let width = header.channel_width_hz();
    let spacings = coarse.windows(2).map(|pair| {
        let [a, b] = [pair[0], pair[1]].map(|channel| header.centres_hz[channel]);
        (a - b).abs()
    });
    let least = spacings.fold(f64::INFINITY, f64::min);
    if least >= (1.0 - MOST_OVERLAP) * width {
        return Ok(());
    }
    let rule = format!(
        "the recorded channels are {:.6} MHz wide and overlap, as those of an oversampled filter bank do; \
         channelize voltages that were recorded or written critically sampled (`oversampling` 1/1)",
        width / HZ_PER_MHZ,
    );
    Err(Error::parameter("spacing of recorded channels (MHz)", least / HZ_PER_MHZ, rule))
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
