//! `sidereal spiir filter`: signal-to-noise ratios of every template, and whitened strain.

use std::path::PathBuf;

use clap::Args;
use num_complex::Complex;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::series_h5::{DetectorSeries, SeriesFile, TemplateSeries, Writer};
use sidereal::pipeline::chirp::{
    ChirpDetector, DetectorOptions, Latency, Piece, Strain, check_length,
};
use sidereal::spiir::bank::Bank;

use super::inputs;
use super::search::banks::Banks;
use super::whitening::Whiten;
use crate::common::{Common, Work, tell_notes};
use crate::output::{Existing, Files, WritingFiles};
use crate::plots::{plural, short};
use crate::progress::Progress;
use crate::{interrupt, json, space};

/// Samples taken at once.
const BLOCK: usize = 1 << 14;

/// Filters strain with a bank: writes the complex signal-to-noise ratio of every template, and whitened strain.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  \
    sidereal spiir filter H-H1_STRAIN.hdf5 --bank bank.h5 -o snr.h5")]
pub(crate) struct Arguments {
    #[command(flatten)]
    strain: inputs::Strain,
    /// A bank: FILE, or NAME=FILE for one detector's own.
    #[arg(long, value_name = "BANK", required = true)]
    bank: Vec<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Replace OUT if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    #[command(flatten)]
    whitening: Whiten,
}

/// What was written.
#[derive(Serialize)]
struct Document {
    file: String,
    detectors: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    detector: String,
    start_gps: f64,
    rate_hz: u32,
    samples: u64,
    templates: usize,
    rms: f64,
    largest: f64,
    latency_s: f64,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let existing = Existing::new(arguments.overwrite);
    let inputs = arguments.files();
    let writing = WritingFiles { option: "--output", existing, inputs: &inputs, common };
    let files = Files::begin(&arguments.output, &[], &writing)?;
    arguments.whitening.check_bank()?;
    let asked = common.asked_backend()?;
    let recordings = arguments.strain.open()?;
    let mut banks = Banks::read(&arguments.bank)?;
    let own = recordings.iter().map(|recording| banks.take(&recording.detector));
    let own: Vec<Bank> = own.collect::<Result<_>>()?;
    let ratios = recordings.iter().zip(&own);
    let ratios = ratios.map(|(one, bank)| one.times * bank.templates.len() as u64).sum();
    let backend = asked.map_or_else(|| common.backend_for(Work::on_ratios(ratios)), Ok)?;
    let mut chains = Vec::new();
    for (recording, bank) in recordings.iter().zip(own) {
        check_length(&bank, recording)?;
        let whitening = arguments.whitening.whitening(recording.rate_hz, recording.duration_s())?;
        let psd = whitening.spectrum(recording)?;
        let options = DetectorOptions {
            whitening: whitening.options(recording.rate_hz, &psd, bank.options.f_low_hz),
            threshold: f32::MAX,
            window_s: 0.0,
            gate_pad_s: 0.0,
        };
        chains.push((ChirpDetector::new(recording.start, &bank, &options, &backend)?, bank));
    }
    tell_notes(&backend, common);
    let announced = recordings.iter().zip(&chains);
    let header = SeriesFile {
        comment: "sidereal spiir filter".to_owned(),
        detectors: announced
            .map(|(recording, (chain, bank))| header(recording, chain, bank))
            .collect(),
    };
    // A ratio has 8 bytes, a whitened sample 4 and a flag.
    let each =
        |one: &DetectorSeries| one.samples.saturating_mul(8 * one.templates.len() as u64 + 5);
    let need = header.detectors.iter().map(each).fold(0, u64::saturating_add);
    space::check(&arguments.output, need, common)?;
    let mut writer = Writer::create(&files.main(), header)?;
    let total = recordings.iter().map(|recording| recording.times).sum();
    let rate_hz = recordings.first().map_or(1, |recording| recording.rate_hz);
    let progress = Progress::new(common, Some(total), 1, 1.0 / f64::from(rate_hz));
    progress.doing("Filtering");
    let (mut strain, mut valid) = (vec![0.0; BLOCK], vec![false; BLOCK]);
    let mut done = 0;
    let mut detectors = Vec::new();
    for (index, (recording, (mut chain, bank))) in recordings.iter().zip(chains).enumerate() {
        let mut sums = Sums::default();
        let mut write = |piece: Piece<'_>| sums.take(&mut writer, index, piece);
        let mut reader = recording.read_from(0)?;
        loop {
            let count = reader.read(&mut strain, &mut valid)?;
            if count == 0 {
                break;
            }
            let (strain, valid) = (&strain[..count], &valid[..count]);
            passed_on(&mut write, |observe| chain.run(strain, valid, observe))?;
            done += count as u64;
            progress.at(done);
            interrupt::check()?;
        }
        passed_on(&mut write, |observe| chain.flush(observe))?;
        detectors.push(Part {
            detector: recording.detector.clone(),
            start_gps: recording.start.s(),
            rate_hz: recording.rate_hz,
            samples: recording.times,
            templates: bank.templates.len(),
            rms: sums.rms(),
            largest: sums.largest.sqrt().into(),
            latency_s: seconds(&chain.latency()),
        });
    }
    writer.finish()?;
    files.finish()?;
    progress.finish();
    let document = Document { file: arguments.output.display().to_string(), detectors };
    if common.json {
        return json::print(&document);
    }
    if common.quiet { Ok(()) } else { json::say(document.text().trim_end()) }
}

/// Does a step whose pieces are written; the first fault of writing is the step's.
fn passed_on(
    write: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    step: impl FnOnce(&mut dyn FnMut(Piece<'_>)) -> Result<()>,
) -> Result<()> {
    let mut fault = Ok(());
    step(&mut |piece| {
        if fault.is_ok() {
            fault = write(piece);
        }
    })?;
    fault
}

impl Arguments {
    /// Every file that is read.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.strain.files();
        files.extend(Banks::files(&self.bank));
        files.extend(self.whitening.file());
        files
    }
}

/// What whitening and resampling wait for.
fn seconds(latency: &Latency) -> f64 {
    latency.whitening_s + latency.resampling_s
}

fn header(recording: &Strain, chain: &ChirpDetector, bank: &Bank) -> DetectorSeries {
    let template = |one: &sidereal::spiir::bank::BankTemplate| TemplateSeries {
        name: one.name.clone(),
        peak_offset_s: one.peak_offset_s,
    };
    DetectorSeries {
        detector: recording.detector.clone(),
        start: recording.start,
        rate_hz: recording.rate_hz,
        samples: recording.times,
        latency_s: seconds(&chain.latency()),
        templates: bank.templates.iter().map(template).collect(),
        whitened: true,
    }
}

/// What is said of the ratios.
#[derive(Default)]
struct Sums {
    squares: f64,
    count: u64,
    /// The greatest `|z|^2`.
    largest: f32,
}

impl Sums {
    fn take(&mut self, writer: &mut Writer, detector: usize, piece: Piece<'_>) -> Result<()> {
        match piece {
            Piece::Whitened { samples, valid, .. } => writer.whitened(detector, samples, valid),
            Piece::Ratios { z, stride, times, .. } => {
                for row in z.chunks_exact(stride) {
                    self.add(&row[..times]);
                }
                writer.snr(detector, z, stride, times)
            }
        }
    }

    fn add(&mut self, row: &[Complex<f32>]) {
        let squares = row.iter().map(|z| z.norm_sqr());
        self.largest = squares.clone().fold(self.largest, f32::max);
        self.squares += squares.map(f64::from).sum::<f64>();
        self.count += row.len() as u64;
    }

    /// Of each quadrature.
    fn rms(&self) -> f64 {
        (self.squares / 2.0 / self.count.max(1) as f64).sqrt()
    }
}

impl Document {
    fn text(&self) -> String {
        let line = |part: &Part| {
            format!(
                "{}: {}, {} samples from GPS {:.3}; rms of each quadrature {}, greatest SNR {}; known {} s \
                 late\n",
                part.detector,
                plural(part.templates, "template"),
                part.samples,
                part.start_gps,
                short(part.rms, 3),
                short(part.largest, 4),
                short(part.latency_s, 3),
            )
        };
        let lines: String = self.detectors.iter().map(line).collect();
        lines + &format!("written: {}", self.file)
    }
}

#[cfg(test)]
mod tests {
    use sidereal::Error;

    use super::*;

    #[test]
    fn a_fault_of_writing_ends_the_step_that_met_it() {
        let mut written = 0;
        let mut write = |_: Piece<'_>| {
            written += 1;
            if written < 3 { Ok(()) } else { Err(Error::parameter("disk", "full", "room")) }
        };
        let mut block = || {
            passed_on(&mut write, |observe| {
                let piece = || Piece::Whitened { first: 0, samples: &[], valid: &[] };
                (0..2).for_each(|_| observe(piece()));
                Ok(())
            })
        };
        assert!(block().is_ok());
        assert!(block().is_err());
        assert_eq!(written, 3, "nothing is written behind a fault");
    }
}
