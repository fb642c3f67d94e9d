//! Channelizes voltages to a filterbank file.

use sidereal::backend::Backend;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::VoltageSource;
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, Depth, Destination, VoltageFilterbank, write_filterbank,
};
use sidereal::{Error, Result};

use super::document::{Made, Scaling, Written};
use super::outputs::Outputs;
use crate::common::Common;
use crate::progress::Progress;
use crate::say::more;
use crate::{gaps, geometry, interrupt, space};

/// Writes OUT.
pub(super) fn write(
    recorded: Box<dyn VoltageSource>,
    options: &ChannelizeOptions,
    bits: Option<usize>,
    outputs: &Outputs,
    common: &Common,
    backend: &Backend,
) -> Result<Written> {
    let depth = depth(bits)?;
    let mut filterbank = VoltageFilterbank::new(recorded, options, backend)?;
    let geometry = geometry::Document::new(filterbank.geometry());
    if common.verbose && !common.quiet {
        more!("  {}", geometry.text());
    }
    let header = filterbank.header().clone();
    let samples = filterbank.plan().samples_per_row() * filterbank.recorded().streams();
    if let Some(times) = header.times.filter(|_| !outputs.piped()) {
        let bytes = if depth == Depth::U8 { 1 } else { 4 };
        let row = (filterbank.row_elements() * bytes) as u64;
        space::check(outputs.place(), times.saturating_mul(row), common)?;
    }
    let progress = Progress::new(common, header.times, samples, header.tsamp_s);
    progress.doing("Channelizing");
    filterbank.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.total(status.total);
        progress.at(status.times);
        if status.times > 0 {
            outputs.keep();
        }
        !interrupt::requested()
    };
    let file = outputs.file();
    let destination = match &file {
        None => Destination::Pipe(Box::new(std::io::stdout())),
        Some(path) => Destination::File(path),
    };
    let report = write_filterbank(&mut filterbank, destination, depth, &mut observe);
    let report = report.map_err(named)?;
    progress.finish();
    if report.rows == 0 {
        interrupt::check()?;
    }
    Ok(Written {
        ending: report.ending,
        recorded: filterbank.recorded().clone(),
        gaps: gaps::listed(&report.gaps, header.tsamp_s, geometry.delay_s()),
        flagged_samples: filterbank.not_finite(),
        geometry,
        tstart_mjd: header.tstart_mjd,
        tsamp_s: header.tsamp_s,
        times: report.rows,
        channels: header.channels(),
        fch1_mhz: header.band.fch1_mhz(),
        foff_mhz: header.band.foff_mhz(),
        bits: if report.scaling.is_some() { 8 } else { 32 },
        made: Made::Spectra { scaling: report.scaling.as_ref().map(Scaling::new) },
        row_samples: samples,
        elapsed_s: report.elapsed_s,
    })
}

/// Names standard output in an error.
fn named(error: Error) -> Error {
    match error {
        Error::Io { path, source } if path.as_os_str() == "-" => {
            Error::io("standard output", source)
        }
        other => other,
    }
}

fn depth(bits: Option<usize>) -> Result<Depth> {
    match bits {
        None | Some(32) => Ok(Depth::F32),
        Some(8) => Ok(Depth::U8),
        Some(bits) => Err(Error::parameter("--nbits", bits, "a filterbank has 32 (floats) or 8")),
    }
}
