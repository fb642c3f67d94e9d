//! Document snr.h5: signal-to-noise ratios of the templates that found the loudest events, and whitened strain.

use std::path::Path;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::io::series_h5::{DetectorSeries, SeriesFile, TemplateSeries, Writer};
use sidereal::pipeline::cbc::{DetectorReport, Report, write_bank};
use sidereal::spiir::bank::Bank;
use sidereal::spiir::{Options, Plan, Spiir};

use crate::interrupt;
use crate::output::Folder;

/// Largest number of templates with a series.
const TEMPLATES: usize = 4;
/// Samples filtered per step.
const BLOCK: usize = 1 << 14;

/// Writes the series of every detector.
pub(super) fn write(
    path: &Path,
    report: &Report,
    comment: String,
    backend: &Backend,
) -> Result<()> {
    let mut templates: Vec<usize> = Vec::new();
    for event in report.found.events.iter().take(TEMPLATES) {
        if !templates.contains(&(event.template as usize)) {
            templates.push(event.template as usize);
        }
    }
    let header = SeriesFile {
        comment,
        detectors: report.detectors.iter().map(|one| header(one, &templates)).collect(),
    };
    let mut writer = Writer::create(path, header)?;
    for (index, one) in report.detectors.iter().enumerate() {
        for first in (0..one.whitened.times()).step_by(BLOCK) {
            interrupt::check()?;
            let (samples, valid) = one.whitened.read(first..first + BLOCK as u64)?;
            writer.whitened(index, &samples, &valid)?;
        }
        if !templates.is_empty() {
            write_ratios(&mut writer, (index, one), &templates, backend)?;
        }
    }
    writer.finish_as(report.ending.is_complete())
}

/// Filters a detector's whitened strain with some of its templates, block by block.
fn write_ratios(
    writer: &mut Writer,
    (index, one): (usize, &DetectorReport),
    templates: &[usize],
    backend: &Backend,
) -> Result<()> {
    let filters = |template: &usize| one.bank.templates[*template].filters.clone();
    let plan = Plan::new(Options {
        rate_hz: one.rate_hz,
        templates: templates.iter().map(filters).collect(),
        resampler: one.bank.resampler.clone(),
    })?;
    let mut spiir = Spiir::new(plan, backend)?;
    let mut z = vec![Complex::default(); templates.len() * BLOCK];
    for first in (0..one.whitened.times()).step_by(BLOCK) {
        interrupt::check()?;
        let block = one.whitened.samples(first..first + BLOCK as u64)?;
        let produced = spiir.run(&block, &mut z, BLOCK)?.produced;
        writer.snr(index, &z, BLOCK, produced)?;
    }
    loop {
        match spiir.flush(&mut z, BLOCK)? {
            0 => return Ok(()),
            produced => writer.snr(index, &z, BLOCK, produced)?,
        }
    }
}

fn header(one: &DetectorReport, templates: &[usize]) -> DetectorSeries {
    let template = |index: &usize| {
        let template = &one.bank.templates[*index];
        TemplateSeries { name: template.name.clone(), peak_offset_s: template.peak_offset_s }
    };
    DetectorSeries {
        detector: one.name.clone(),
        start: one.start,
        rate_hz: one.rate_hz,
        samples: one.whitened.times(),
        latency_s: one.latency.whitening_s + one.latency.resampling_s,
        templates: templates.iter().map(template).collect(),
        whitened: true,
    }
}

/// Writes the banks that a search made.
pub(super) fn write_banks<'a>(
    folder: &Folder,
    banks: impl Iterator<Item = (&'a str, &'a Bank)>,
    comment: &str,
) -> Result<()> {
    for (name, bank) in banks {
        let path = folder.file(format!("bank_{name}.h5"));
        write_bank(&path, bank, name, comment)?;
    }
    Ok(())
}
