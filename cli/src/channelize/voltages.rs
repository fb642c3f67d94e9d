//! Channelizes voltages to voltages of more channels.

use std::time::Instant;

use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFormat, write_voltages,
};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use super::document::{Made, Written};
use super::outputs::{Format, Outputs};
use crate::common::Common;
use crate::gaps::{self, Gap};
use crate::progress::Progress;
use crate::say::more;
use crate::{geometry, interrupt, space};

/// Returns the requantization that `--nbits` and `--gain` ask for.
pub(super) fn requantization(bits: Option<usize>, gain: Option<f32>) -> Result<Requantization> {
    let bits = bits.unwrap_or(8);
    if !matches!(bits, 4 | 8) {
        return Err(Error::parameter("--nbits", bits, "channelized voltages have 8 or 4"));
    }
    if let Some(bad) = gain.filter(|gain| !(*gain > 0.0 && gain.is_finite())) {
        return Err(Error::parameter("--gain", bad, "it must be above 0"));
    }
    let gains = gain.map_or(Gains::Automatic, |gain| Gains::Given(vec![gain]));
    Ok(Requantization { bits, gains })
}

/// Writes OUT.
pub(super) fn write(
    recorded: Box<dyn VoltageSource>,
    options: &ChannelizeOptions,
    requantization: &Requantization,
    outputs: &Outputs,
    common: &Common,
    backend: &Backend,
) -> Result<Written> {
    let begun = Instant::now();
    let recorded_header = recorded.header().clone();
    let mut source = ChannelizedVoltages::new(recorded, options, requantization, backend)?;
    let geometry = geometry::Document::new(source.geometry());
    if common.verbose && !common.quiet {
        more!("  {}", geometry.text());
    }
    let header = source.header().clone();
    let row_samples = source.geometry().hop * recorded_header.streams();
    if let Some(times) = header.times {
        let bits = header.encoding.sample_bits() as u64;
        let need = times.saturating_mul(bits).div_ceil(8).saturating_mul(header.streams() as u64);
        space::check(outputs.place(), need, common)?;
    }
    let place = outputs.file().unwrap_or_default();
    let format = match outputs.format() {
        Format::Dada => VoltageFormat::Dada,
        _ => VoltageFormat::Guppi,
    };
    let progress = Progress::new(common, header.times, row_samples, header.tsamp_s);
    progress.doing("Channelizing");
    source.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.at(status.times);
        outputs.keep();
        !interrupt::requested()
    };
    let report = write_voltages(&mut source, &place, format, &mut observe)?;
    progress.finish();
    if report.times == 0 {
        interrupt::check()?;
    }
    let width_mhz = header.channel_width_hz() / HZ_PER_MHZ;
    Ok(Written {
        gaps: gaps(source.flags(), report.times, &header, geometry.delay_s()),
        flagged_samples: source.not_finite(),
        recorded: recorded_header,
        geometry,
        tstart_mjd: header.start.mjd(),
        tsamp_s: header.tsamp_s,
        times: report.times,
        channels: header.coarse_channels(),
        fch1_mhz: header.centres_hz.first().map_or(0.0, |hz| hz / HZ_PER_MHZ),
        foff_mhz: step_mhz(&header).unwrap_or(width_mhz),
        bits: header.recorded_bits,
        made: Made::Voltages {
            gains: source.gains().to_vec(),
            limited: source.saturated().iter().sum(),
        },
        row_samples,
        elapsed_s: begun.elapsed().as_secs_f64(),
        ending: report.ending,
    })
}

/// Returns the spacing of adjacent channel centres.
fn step_mhz(header: &VoltageHeader) -> Option<f64> {
    let (first, second) = (header.centres_hz.first()?, header.centres_hz.get(1)?);
    Some((second - first) / HZ_PER_MHZ)
}

/// Returns the gaps within `times` in which at least one stream has no samples; `flags` are sorted by start.
fn gaps(flags: &[Flag], times: u64, header: &VoltageHeader, delay_s: f64) -> Vec<Gap> {
    let mut joined: Vec<sidereal::io::Gap> = Vec::new();
    for flag in flags.iter().filter(|flag| flag.start < times) {
        let end = flag.start.saturating_add(flag.times).min(times);
        match joined.last_mut() {
            Some(last) if flag.start <= last.start_time + last.times => {
                last.times = last.times.max(end - last.start_time);
            }
            _ => joined.push(sidereal::io::Gap { start_time: flag.start, times: end - flag.start }),
        }
    }
    gaps::listed(&joined, header.tsamp_s, delay_s)
}
