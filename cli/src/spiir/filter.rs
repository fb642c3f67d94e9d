//! `sidereal spiir filter`: writes signal-to-noise ratios of every template, and whitened strain.

use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use num_complex::Complex;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::io::series_h5::{DetectorSeries, SeriesFile, TemplateSeries, Writer};
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{
    ChirpDetector, DetectorOptions, Latency, Need, Piece, Reader, Strain, check_length,
};
use sidereal::spiir::bank::{Bank, BankTemplate};
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use super::inputs::{self, Banks, Whiten};
use crate::common::{Common, Gpus, Work, tell_notes};
use crate::interrupt::Exit;
use crate::output::{Existing, Files, WritingFiles, is_same};
use crate::plots::{plural, short};
use crate::progress::Progress;
use crate::provenance::{self, Product, Provenance};
use crate::resume::{Identity, Resume, RunJournal};
use crate::{errors, flags, interrupt, json, space};

/// File name of the series during the run.
const SERIES: &str = "checkpoint.series";
/// Samples per step.
const BLOCK: usize = 1 << 14;

/// Filter strain with a bank: complex signal-to-noise ratio of every template, and whitened strain.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  \
    sidereal spiir filter H-H1_STRAIN.hdf5 --bank bank.h5 -o snr.h5")]
pub(crate) struct Arguments {
    #[command(flatten)]
    strain: inputs::Strain,
    /// Bank: FILE, or NAME=FILE for one detector.
    #[arg(long, value_name = "BANK", required = true)]
    bank: Vec<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Replace OUT if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    #[command(flatten)]
    resume: Resume,
    #[command(flatten)]
    whitening: Whiten,
}

/// Bytes reserved in the comment for the line of the run, which changes when a run is resumed.
const RUN: usize = 4096;

/// Description of the output.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether all strain was filtered; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    file: String,
    detectors: Vec<Part>,
}

#[derive(Serialize, JsonSchema)]
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
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let inputs = arguments.files();
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "--output", existing, inputs: &inputs, common };
    let place = &arguments.output;
    let (files, is_resumed) = arguments.resume.begin(
        &inputs,
        || Files::resume(place, SERIES, &writing),
        || Files::begin(place, &[], &writing),
        common,
    )?;
    arguments.whitening.check_bank()?;
    let asked = common.asked_backend(Gpus::One)?;
    let strain = arguments.strain.open()?;
    arguments.whitening.warn_of_learning(&strain, common);
    let banks = Banks::read(&arguments.bank)?;
    let own = strain.iter().map(|one| banks.of(&one.detector)).collect::<Result<Vec<_>>>()?;
    let ratios = strain.iter().zip(&own).map(|(one, bank)| one.times * bank.templates.len() as u64);
    let backend =
        asked.map_or_else(|| common.backend_for(Work::on_ratios(ratios.sum()), Gpus::One), Ok)?;
    let options: [(&str, &dyn Debug); 3] = [
        ("strain", &arguments.strain),
        ("--bank", &arguments.bank),
        ("whitening", &arguments.whitening),
    ];
    let run = Identity::new("spiir filter", &inputs, &options, &backend)?;
    let keeper = RunJournal::new(files.folder().to_path_buf(), run);
    if is_resumed {
        keeper.check(place)?;
    }
    let detectors = strain.into_iter().zip(own);
    let made = detectors
        .map(|(one, bank)| One::new(one, bank, &arguments.whitening, &backend, common.memory));
    let mut detectors = made.collect::<Result<Vec<_>>>()?;
    let most = Need::piece(common.memory, "the filters", detectors.iter().map(One::need))?;
    detectors.iter_mut().for_each(|one| one.limit(most, common));
    tell_notes(&backend, common);
    // A ratio has 8 bytes, a whitened sample has 4 and a flag.
    let each = |one: &One| one.strain.times.saturating_mul(8 * one.bank.templates.len() as u64 + 5);
    let need = detectors.iter().map(each).fold(0, u64::saturating_add);
    if !is_resumed {
        space::check(place, need, common)?;
    }
    let left = is_resumed.then_some(place.as_path());
    let series = files.folder().join(SERIES);
    if is_resumed && !series.exists() && files.main().exists() {
        // The earlier run was killed after it had renamed the series to their final name in the folder.
        std::fs::rename(files.main(), &series).map_err(|error| Error::io(&series, error))?;
    }
    let provenance = Provenance::new(common, &inputs)?;
    let told = provenance::Run::new(common).on(&backend);
    let comment = comment(&provenance, &told)?;
    let mut run = Run::begin(detectors, files.folder(), comment, keeper, left)?;
    let ending = run.filter(common)?;
    let document = run.finish(&files.main(), &ending)?;
    let is_done = !matches!(ending, Ending::Stopped | Ending::Failed(_));
    if is_same(place, &files.main()) {
        // A rename of one hard link onto another would leave both names.
        std::fs::remove_file(place).map_err(|error| Error::io(place, error))?;
    }
    files.finish_resumable(is_done)?;
    let document = Document { file: place.display().to_string(), ..document };
    if common.json {
        json::print(&Product::new("spiir-filter", document, provenance, told))?;
    } else if !common.quiet {
        json::say(document.text().trim_end())?;
    }
    Ok(errors::ended(&ending, place))
}

/// Returns the series' comment, of the same length in every run, so that file offsets stay valid in a resumed run.
fn comment(provenance: &Provenance, told: &provenance::Run) -> Result<String> {
    let lines = provenance::lines(provenance, told)?;
    let length = lines.find("\nrun: ").unwrap_or(0) + RUN;
    let lines = if lines.len() > length {
        let short = provenance::Run { command: None, ..told.clone() };
        provenance::lines(provenance, &short)?
    } else {
        lines
    };
    let room = " ".repeat(length.saturating_sub(lines.len()));
    Ok(format!("sidereal spiir filter\n{lines}{room}"))
}

/// Filters of several detectors that write their series to one file.
struct Run {
    detectors: Vec<One>,
    writer: Writer,
    keeper: RunJournal,
    /// Path of the series during the run.
    path: PathBuf,
}

impl Run {
    /// Begins in a folder, or resumes the run whose product at `left` is there.
    fn begin(
        mut detectors: Vec<One>,
        folder: &Path,
        comment: String,
        mut keeper: RunJournal,
        left: Option<&Path>,
    ) -> Result<Self> {
        let header = SeriesFile { comment, detectors: detectors.iter().map(One::header).collect() };
        let path = folder.join(SERIES);
        let mut written = Vec::new();
        let left = left.map(|place| keeper.resume(place)).transpose()?.flatten();
        if let Some(left) = left {
            let mut saved = left.saved()?;
            for one in &mut detectors {
                written.push(one.load(&mut saved)?);
            }
            saved.end()?;
        }
        let writer = Writer::resume(&path, header, &written)?;
        Ok(Self { detectors, writer, keeper, path })
    }

    /// Filters all strain; an error after the beginning becomes the ending.
    fn filter(&mut self, common: &Common) -> Result<Ending> {
        let total = self.detectors.iter().map(|one| one.strain.times).sum();
        let rate_hz = self.detectors.first().map_or(1, |one| one.strain.rate_hz);
        let progress = Progress::new(common, Some(total), 1, 1.0 / f64::from(rate_hz));
        progress.doing("Filtering");
        let mut ending = match self.advance(&progress) {
            Ok(ending) => ending,
            Err(error) if self.detectors.iter().all(|one| one.taken == 0) => return Err(error),
            Err(error) => Ending::after(error),
        };
        if matches!(ending, Ending::Stopped) {
            interrupt::finishing();
        }
        let is_whole =
            !matches!(&ending, Ending::Failed(error) if matches!(**error, Error::Device { .. }));
        if is_whole && !ending.is_complete() {
            self.save()?;
        }
        for (index, one) in self.detectors.iter_mut().enumerate() {
            let flushed = one.end(&mut self.writer, index);
            if let (Err(error), false) = (flushed, matches!(ending, Ending::Failed(_))) {
                ending = Ending::Failed(Arc::new(error));
            }
        }
        progress.finish();
        Ok(ending)
    }

    /// Filters block by block, all detectors alternately.
    fn advance(&mut self, progress: &Progress) -> Result<Ending> {
        while self.detectors.iter().any(|one| !one.has_ended) {
            let mut result = Ok(());
            for (index, one) in self.detectors.iter_mut().enumerate() {
                // The other detectors reach the same time before an error ends the loop.
                result = result.and(one.step(&mut self.writer, index));
            }
            result?;
            progress.at(self.detectors.iter().map(|one| one.taken).sum());
            if interrupt::requested() && self.detectors.iter().any(|one| !one.has_ended) {
                return Ok(Ending::Stopped);
            }
            if self.keeper.is_due() {
                self.save()?;
            }
        }
        let mut cuts = self.detectors.iter().filter_map(One::cut);
        Ok(cuts.next().map_or(Ending::Complete, Ending::Cut))
    }

    /// Saves the state if possible: not after a step that failed.
    fn save(&mut self) -> Result<()> {
        let mut state = Saving::default();
        let mut is_whole = true;
        for (one, written) in self.detectors.iter().zip(self.writer.written()) {
            is_whole &= one.save(written, &mut state)?;
        }
        if !is_whole {
            return Ok(());
        }
        let done = self.detectors.iter().map(|one| (&one.strain.detector, one.taken));
        let done: Vec<_> = done.map(|(detector, samples)| Done { detector, samples }).collect();
        self.keeper.append(&done)?;
        self.keeper.checkpoint(&state.finish())
    }

    /// Ends the file and gives it its final name within the folder: by a rename if the run is done, otherwise by a
    /// link or a copy, so that another run can resume from the series.
    fn finish(self, main: &Path, ending: &Ending) -> Result<Document> {
        let is_complete = ending.is_complete();
        self.writer.finish_as(is_complete)?;
        let is_done = !matches!(ending, Ending::Stopped | Ending::Failed(_));
        let io = |error| Error::io(main, error);
        // A run that was killed here may have left this file.
        let _ = std::fs::remove_file(main);
        if is_done {
            std::fs::rename(&self.path, main).map_err(io)?;
        } else if std::fs::hard_link(&self.path, main).is_err() {
            std::fs::copy(&self.path, main).map_err(io)?;
        }
        Ok(Document {
            complete: is_complete,
            reason: flags::reason(ending),
            file: String::new(),
            detectors: self.detectors.iter().map(One::part).collect(),
        })
    }
}

/// Journal line: number of a detector's filtered samples.
#[derive(Serialize)]
struct Done<'a> {
    detector: &'a str,
    samples: u64,
}

/// Filters of one detector.
struct One {
    strain: Strain,
    bank: Arc<Bank>,
    chain: ChirpDetector,
    reader: Option<Reader>,
    samples: Vec<f64>,
    valid: Vec<bool>,
    taken: u64,
    has_ended: bool,
    /// Whether a step failed part-way.
    is_broken: bool,
    sums: Sums,
}

impl One {
    fn new(
        strain: Strain,
        bank: Arc<Bank>,
        whiten: &Whiten,
        backend: &Backend,
        memory: Option<u64>,
    ) -> Result<Self> {
        check_length(&bank, &strain)?;
        let whitening = whiten.whitening(strain.rate_hz, strain.duration_s(), memory)?;
        let psd = whitening.spectrum(&strain)?;
        let options = DetectorOptions {
            whitening: whitening.options(strain.rate_hz, &psd, bank.options.f_low_hz),
            threshold: f32::MAX,
            window_s: 0.0,
            gate_pad_s: 0.0,
        };
        let chain = ChirpDetector::new(strain.start, &bank, &options, backend)?;
        Ok(Self {
            strain,
            bank,
            chain,
            reader: None,
            samples: Vec::new(),
            valid: Vec::new(),
            taken: 0,
            has_ended: false,
            is_broken: false,
            sums: Sums::default(),
        })
    }

    /// Returns the host memory that the detector needs, with strain and its flags, and the size of one write.
    fn need(&self) -> Need {
        let need = self.chain.need();
        let written = 8 * self.bank.templates.len() + 5;
        Need { sample: need.sample + 9 + written, ..need }
    }

    /// Limits the number of samples per step.
    fn limit(&mut self, samples: usize, common: &Common) {
        let block = samples.clamp(1, BLOCK);
        self.samples = vec![0.0; block];
        self.valid = vec![false; block];
        if common.memory.is_some() {
            self.chain.limit(samples);
        }
    }

    /// Filters the next block.
    fn step(&mut self, writer: &mut Writer, index: usize) -> Result<()> {
        if self.has_ended {
            return Ok(());
        }
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(self.strain.read_from(self.taken)?),
        };
        let count = reader.read(&mut self.samples, &mut self.valid)?;
        self.has_ended = count == 0;
        let (strain, valid) = (&self.samples[..count], &self.valid[..count]);
        let mut write = |piece: Piece<'_>| self.sums.take(writer, index, piece);
        self.is_broken = true;
        passed_on(&mut write, |observe| self.chain.run(strain, valid, observe))?;
        self.is_broken = false;
        self.taken += count as u64;
        Ok(())
    }

    /// Filters the samples that the chain still holds.
    fn end(&mut self, writer: &mut Writer, index: usize) -> Result<()> {
        let mut write = |piece: Piece<'_>| self.sums.take(writer, index, piece);
        passed_on(&mut write, |observe| self.chain.flush(observe))
    }

    /// Describes the missing strain if it ends early.
    fn cut(&self) -> Option<String> {
        let (path, times) = (self.strain.path.display(), self.strain.times);
        let is_short = self.taken < times;
        let short =
            is_short.then(|| format!("{path}: {} of {times} samples were there", self.taken));
        short.or_else(|| self.strain.cut().map(str::to_owned))
    }

    fn save(&self, written: &[u64; 2], to: &mut Saving) -> Result<bool> {
        if self.is_broken {
            return Ok(false);
        }
        to.part("series of a detector");
        for number in [self.taken, written[0], written[1], self.sums.count] {
            to.number(number);
        }
        to.f64s([self.sums.squares].iter());
        to.f32s([self.sums.largest].iter());
        self.chain.save(to)
    }

    /// Restores the saved state; returns the numbers of samples written by then.
    fn load(&mut self, from: &mut Saved<'_>) -> Result<[u64; 2]> {
        from.part("series of a detector")?;
        self.taken = from.number()?;
        if self.taken > self.strain.times {
            let why = format!("{} filtered of {}", self.taken, self.strain.times);
            return Err(from.fault("samples", why));
        }
        let written = [from.number()?, from.number()?];
        self.sums.count = from.number()?;
        from.fill_f64(std::slice::from_mut(&mut self.sums.squares))?;
        from.fill_f32(std::slice::from_mut(&mut self.sums.largest))?;
        self.chain.load(from, Vec::new())?;
        Ok(written)
    }

    fn header(&self) -> DetectorSeries {
        let template = |one: &BankTemplate| TemplateSeries {
            name: one.name.clone(),
            peak_offset_s: one.peak_offset_s,
        };
        DetectorSeries {
            detector: self.strain.detector.clone(),
            start: self.strain.start,
            rate_hz: self.strain.rate_hz,
            samples: self.strain.times,
            latency_s: seconds(&self.chain.latency()),
            templates: self.bank.templates.iter().map(template).collect(),
            whitened: true,
        }
    }

    fn part(&self) -> Part {
        Part {
            detector: self.strain.detector.clone(),
            start_gps: self.strain.start.s(),
            rate_hz: self.strain.rate_hz,
            samples: self.taken,
            templates: self.bank.templates.len(),
            rms: self.sums.rms(),
            largest: self.sums.largest.sqrt().into(),
            latency_s: seconds(&self.chain.latency()),
        }
    }
}

/// Runs a step and writes its pieces; the first write error becomes the step's.
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
    /// Returns every input file.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.strain.files();
        files.extend(Banks::files(&self.bank));
        files.extend(self.whitening.file());
        files
    }
}

/// Returns the latency of whitening and resampling.
fn seconds(latency: &Latency) -> f64 {
    latency.whitening_s + latency.resampling_s
}

/// Statistics of the ratios.
#[derive(Default)]
struct Sums {
    squares: f64,
    count: u64,
    /// Largest `|z|^2`.
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

    /// Returns the root mean square of each quadrature.
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
        let mut lines: String = self.detectors.iter().map(line).collect();
        if let Some(reason) = &self.reason {
            let _ = writeln!(lines, "Not complete: {reason}.");
        }
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
