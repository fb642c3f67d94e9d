//! Benchmarks on a GPU: kernels with all data in device memory, timed by device events.

pub(super) mod channelize;
pub(super) mod correlate;
pub(super) mod correlate_whole;
pub(super) mod dedisperse;
pub(super) mod device;
mod peers;
pub(super) mod pulse;
mod random;
pub(super) mod spiir;
pub(super) mod telescopes;

use std::path::Path;

use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, measure};
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::{Quick, Row, Table};

/// Least number of bytes read for the roof: more than any cache.
const ROOF_BYTES: usize = 1 << 30;

/// The same for a quick run.
const QUICK_BYTES: usize = 1 << 16;

/// Device and its roofs, measured at the start of the run.
pub(super) struct Gpu {
    device: Device,
    backend: Backend,
    /// Bytes per second that a copy reads and writes.
    copy: f64,
    /// Bytes per second that a kernel can read.
    read: f64,
    /// Quick run: small data and few cases, tests function but not speed.
    quick: bool,
}

/// Measured figure of a case.
struct Figure {
    case: String,
    /// Units of work in one call.
    work: f64,
    unit: &'static str,
    /// Seconds per call in each batch, smallest first.
    seconds: Vec<f64>,
    /// Units per second that the roof allows.
    roof: f64,
    roof_unit: &'static str,
    /// Units per second of the best peer on an H200; 0 if not measured.
    peer: f64,
    checked: bool,
}

impl Gpu {
    /// Returns the GPU of a backend with its roofs, if the backend is one.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn of(backend: &Backend, Quick { quick }: Quick) -> Result<Option<Self>> {
        let Backend::Cuda(device, _) = backend else { return Ok(None) };
        let longest = 4 * device.properties().l2_bytes;
        let bytes = if quick { QUICK_BYTES } else { longest.max(ROOF_BYTES) };
        let read = measure::read_rate(device, bytes)?;
        // A quick run only needs some value.
        let copy = if quick { read } else { device.rates()?.copy };
        Ok(Some(Self { device: device.clone(), backend: backend.clone(), copy, read, quick }))
    }

    /// Measures all cases in order; reports a case that fails and continues.
    ///
    /// # Errors
    /// When a case failed or its output was wrong, after the table's end.
    fn measure<C>(
        &self,
        table: (Table<'_>, &'static str),
        cases: &[C],
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&C) -> Result<Figure>,
    ) -> Result<()> {
        self.measure_all(table, cases, name, |case| Ok(vec![measure(case)?]))
    }

    /// Like `measure`, for cases that give several figures.
    fn measure_all<C>(
        &self,
        table: (Table<'_>, &'static str),
        cases: &[C],
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&C) -> Result<Vec<Figure>>,
    ) -> Result<()> {
        let bench = table.1;
        let mut table = table.0;
        let mut failed = Vec::new();
        for case in cases {
            match measure(case) {
                Ok(figures) => figures
                    .into_iter()
                    .try_for_each(|figure| table.push(self.row(bench, figure)))?,
                Err(error) => {
                    eprintln!("sidereal: {}: {error}", name(case));
                    failed.push(name(case));
                }
            }
        }
        let ended = table.finish();
        match failed.first() {
            None => ended,
            Some(first) => Err(Error::Unavailable {
                what: format!("the rate of {} of {} cases", failed.len(), cases.len()),
                why: format!("they failed as told above; {first} first"),
            }),
        }
    }

    fn row(&self, bench: &'static str, figure: Figure) -> Row {
        let best = figure.seconds.first().copied().unwrap_or(f64::INFINITY);
        let rate = figure.work / best;
        Row {
            bench,
            case: figure.case,
            device: self.backend.name(),
            rate,
            unit: figure.unit,
            roof: figure.roof,
            roof_unit: figure.roof_unit,
            fraction_of_roof: rate / figure.roof,
            baseline: figure.peer,
            ratio_to_baseline: if figure.peer > 0.0 { rate / figure.peer } else { 0.0 },
            checked: figure.checked,
            median: figure.work / measure::median(&figure.seconds),
        }
    }
}

/// Creates the table of a GPU benchmark, paired with the benchmark's name.
fn table<'a>(
    gpu: &Gpu,
    session: &'a Session<'a>,
    csv: Option<&Path>,
    (bench, about): (&'static str, &str),
) -> Result<(Table<'a>, &'static str)> {
    let device = gpu.device.properties();
    let words = format!(
        "{about}\nOn {} (driver of CUDA {}.{}): memory copy {:.2} TB/s (read and written), read {:.2} TB/s.",
        device.name,
        device.driver_version / 1000,
        device.driver_version % 1000 / 10,
        gpu.copy * 1e-12,
        gpu.read * 1e-12,
    );
    Ok((Table::new(session, csv, &words)?, bench))
}
