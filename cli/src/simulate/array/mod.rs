//! `sidereal simulate array`: makes recordings of an array's antennas that observe sources at given positions.

mod arguments;
mod truth;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sidereal::backend::threads::Threads;
use sidereal::geometry::{Array, Direction, Location};
use sidereal::io::antennas::{self, AntennaRow, AntennaTable, Place, PositionFrame};
use sidereal::io::atomic;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::simulate::array::{ArrayAntenna, ArrayOptions, ArraySimulator, Receiver};
use sidereal::voltage::VoltageBlock;
use sidereal::{Error, Result};
use truth::File;

use super::product;
use super::recording::{Feed, Format, Writer, fit_gaps, need, positive};
use crate::common::Common;
use crate::output::{Contents, Existing, Folder, Writing};
use crate::progress::{self, Progress};
use crate::sky::{self, Positions};
use crate::{interrupt, json, space};

pub(super) use self::arguments::Arguments;
pub(crate) use self::truth::Document;

/// Largest number of samples of a stream that is counted exactly.
const MAX_TIMES: f64 = (1u64 << 50) as f64;

/// Default location of generated arrays: the Karoo.
const KAROO: Location =
    Location { longitude_deg: 21.4439, latitude_deg: -30.713, height_m: 1053.0 };

/// Contents of a simulated array's folder.
const CONTENTS: Contents = Contents { verb: "simulate array", documents: &[TRUTH], writes };

/// File name of the document with the injected signals.
const TRUTH: &str = "truth.json";

/// Returns whether a file of this name is the positions file or a recording that the document lists.
pub(crate) fn writes(folder: &Path, name: &str) -> bool {
    let document = || {
        let text = std::fs::read(folder.join(TRUTH)).ok()?;
        serde_json::from_slice::<serde_json::Value>(&text).ok()
    };
    let is_listed = |document: serde_json::Value| {
        let antennas = document.get("antennas").and_then(serde_json::Value::as_array);
        let mut files = antennas.into_iter().flatten().filter_map(|one| one.get("file"));
        files.any(|file| file.as_str().is_some_and(|file| file == name))
    };
    matches!(name, TRUTH | "antennas.csv") || document().is_some_and(is_listed)
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let existing = Existing::new(arguments.overwrite);
    let inputs = arguments.inputs();
    let writing = Writing { contents: CONTENTS, existing, inputs: &inputs, common };
    let folder = Folder::begin(&arguments.output, &writing)?;
    let mut options = arguments.options()?;
    let length_s = options.times as f64 * options.tsamp_s();
    sky::warn_of_orientation(&options.dut1, options.start, length_s, common);
    let files = arguments.files(&options.array)?;
    let blocks = arguments.gaps(&mut options)?;
    let written = files.iter().filter(|file| file.name.is_some()).count();
    let need = need(options.encoding, options.times, options.streams() * written);
    space::check(&arguments.output, need, common)?;
    let simulator = ArraySimulator::new(options.clone())?;
    let place = arguments.output.display().to_string();
    let format = arguments.receiver.format;
    let document = Document::new(place, format.name(), &options, simulator.truth(), &files)?;
    let begun = Instant::now();
    let mut targets = Vec::new();
    for (antenna, (file, block)) in files.iter().zip(blocks).enumerate() {
        if let Some(name) = &file.name {
            targets.push(Target { antenna, path: folder.file(name), block });
        }
    }
    record(&simulator, &targets, format, common)?;
    write_positions(&folder.file("antennas.csv"), &options)?;
    let product = product::product("simulate-array", document, &inputs, common)?;
    let document = &product.document;
    atomic::write(&folder.file(TRUTH), json::text(&product)?.as_bytes())?;
    let truth_path = folder.place().join(TRUTH);
    folder.finish()?;
    if common.json {
        return json::print(&product);
    }
    if common.quiet {
        return Ok(());
    }
    let elapsed_s = begun.elapsed().as_secs_f64();
    json::say(&summary(arguments, &options, targets.len(), elapsed_s, document))?;
    for warning in &document.warnings {
        json::say(&format!("warning: {warning}"))?;
    }
    json::say(&format!("what is in it: {}", truth_path.display()))
}

fn summary(
    arguments: &Arguments,
    options: &ArrayOptions,
    files: usize,
    elapsed_s: f64,
    truth: &Document,
) -> String {
    let samples = options.times as f64 * (options.streams() * files) as f64;
    let bytes = samples * options.encoding.sample_bits() as f64 / 8.0;
    let kind = if options.encoding.is_complex() { "complex" } else { "real" };
    format!(
        "{}: {files} recordings of {:.3} s ({} channels x {} polarizations), {kind} {} bit, {:.1} MB; {} \
         made in {elapsed_s:.1} s ({})",
        arguments.output.display(),
        options.times as f64 * options.tsamp_s(),
        options.centres_hz.len(),
        options.polarizations,
        options.encoding.bits(),
        bytes / 1e6,
        truth.contents(),
        progress::rate(samples / elapsed_s.max(1e-9)),
    )
}

/// Writes the antenna positions in the format that `correlate` reads.
fn write_positions(path: &Path, options: &ArrayOptions) -> Result<()> {
    let antennas = options.array.antennas.iter().zip(&options.receivers);
    let rows = antennas.map(|(antenna, receiver)| AntennaRow {
        name: antenna.name.clone(),
        number: antenna.number,
        position_m: antenna.itrf_m,
        diameter_m: antenna.diameter_m,
        delay_s: receiver.fixed_delay_s,
    });
    let Location { longitude_deg, latitude_deg, height_m } = options.array.location()?;
    let table = AntennaTable {
        path: path.to_path_buf(),
        telescope: options.array.name.clone(),
        frame: PositionFrame::Itrf,
        place: Some(Place { longitude_deg, latitude_deg, height_m }),
        rows: rows.collect(),
    };
    antennas::write(path, &table)
}

impl Arguments {
    fn options(&self) -> Result<ArrayOptions> {
        let receiver = &self.receiver;
        positive("--seconds", self.seconds)?;
        let channels = receiver.channels;
        let [centre_hz, bandwidth_hz] = receiver.band.hz("--channels", channels)?;
        if receiver.samples.real && receiver.format == Format::Guppi {
            let rule = "GUPPI raw is written with complex samples only; say --format dada";
            return Err(Error::parameter("--real", "given", rule));
        }
        let positions = self.positions()?;
        let mut options = ArrayOptions::new(positions.array, centre_hz, bandwidth_hz, channels, 1);
        options = options.encoding(receiver.samples.encoding()?);
        options = options.sefd_jy(receiver.sefd);
        if receiver.lower_sideband {
            options = options.lower_sideband();
        }
        for (receiver, delay_s) in options.receivers.iter_mut().zip(positions.cable_delays_s) {
            receiver.fixed_delay_s = delay_s;
        }
        options.polarizations = receiver.polarizations;
        options.circular = receiver.feed == Feed::Circular;
        options.rms = receiver.rms.unwrap_or(options.rms);
        options.seed = self.seed;
        let times = self.seconds / options.tsamp_s();
        if times > MAX_TIMES {
            let rule = format!("there are too many samples of {:e} s", options.tsamp_s());
            return Err(Error::parameter("--seconds", format!("{:e}", self.seconds), rule));
        }
        let whole = options.encoding.group_samples() as f64;
        options.times = ((times / whole).round() * whole) as u64;
        self.add_sky(&mut options)?;
        for name in &self.faults.dead {
            let antenna = find(&options.array, "--dead", name)?;
            options.receivers[antenna].dead = true;
        }
        Ok(options)
    }

    fn add_sky(&self, options: &mut ArrayOptions) -> Result<()> {
        options.start = arguments::start(&self.sky.start)?;
        options.dut1 = self.sky.orientation.dut1(self.sky.dut1)?;
        for (number, text) in self.sky.source.iter().enumerate() {
            options.sources.push(arguments::source(text, number)?);
        }
        for text in &self.sky.polarized {
            arguments::polarize(text, &mut options.sources)?;
        }
        let first = options.sources.first();
        options.pointing = match self.sky.pointing {
            Some(place) => Some(Direction::new(place.ra_deg, place.dec_deg)?),
            None => first.map(|source| source.direction),
        };
        if let Some(source) = first {
            options.source_name.clone_from(&source.name);
        }
        Ok(())
    }

    fn positions(&self) -> Result<Positions> {
        if let Some(path) = &self.array.antennas {
            return Positions::read(path, self.array.location);
        }
        let text = self.array.layout.as_deref().unwrap_or_default();
        let places = arguments::layout(text, self.seed)?;
        let cable_delays_s = vec![0.0; places.len()];
        let place = self.array.location.unwrap_or(KAROO);
        let array = Array::from_enu(&self.array.telescope, &places, place)?;
        Ok(Positions { array, cable_delays_s })
    }

    /// Returns the input files, which must not be overwritten.
    fn inputs(&self) -> Vec<PathBuf> {
        self.array.antennas.iter().cloned().chain(self.sky.orientation.file()).collect()
    }

    /// Returns each antenna's file.
    fn files(&self, array: &Array) -> Result<Vec<File>> {
        let mut without = HashSet::new();
        for name in &self.faults.no_file {
            without.insert(find(array, "--no-file", name)?);
        }
        let end = if self.receiver.format == Format::Guppi { "raw" } else { "dada" };
        let (mut taken, mut files) = (HashSet::new(), Vec::new());
        for (index, antenna) in array.antennas.iter().enumerate() {
            let name = format!("{}.{end}", file_name(&antenna.name));
            if !taken.insert(name.to_lowercase()) {
                let rule = format!("its file would be {name}, as another antenna's is");
                return Err(Error::parameter("antenna's name", &antenna.name, rule));
            }
            files.push(File { name: (!without.contains(&index)).then_some(name) });
        }
        Ok(files)
    }

    /// Adds gaps rounded to what the format can represent; returns each antenna's block length, if it has gaps in
    /// blocks.
    fn gaps(&self, options: &mut ArrayOptions) -> Result<Vec<Option<usize>>> {
        let shape = VoltageHeader {
            polarizations: options.polarizations,
            times: Some(options.times),
            ..VoltageHeader::new(options.centres_hz.clone(), options.tsamp_s(), options.encoding)
        };
        let whole = options.encoding.group_samples() as f64;
        let tsamp_s = options.tsamp_s();
        let samples =
            |seconds: f64| ((seconds / tsamp_s / whole).round() * whole).min(MAX_TIMES) as u64;
        for text in &self.faults.gap {
            let (name, start_s, length_s) = arguments::gap(text)?;
            let antenna = find(&options.array, "--gap", name)?;
            let gap = (samples(start_s), samples(length_s));
            options.receivers[antenna].gaps.push(gap);
        }
        let format = self.receiver.format;
        let fit = |receiver: &mut Receiver| fit_gaps(format, &mut receiver.gaps, &shape);
        options.receivers.iter_mut().map(fit).collect()
    }
}

fn find(array: &Array, option: &'static str, name: &str) -> Result<usize> {
    let unknown = || Error::parameter(option, name, "there is no antenna of that name");
    array.find(name).ok_or_else(unknown)
}

/// Replaces the characters that file names cannot contain.
fn file_name(antenna: &str) -> String {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_+.".contains(letter) { letter } else { '_' }
    };
    let name: String = antenna.chars().map(plain).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

/// Approximate bytes of an antenna made at once, and the limits of its samples per stream.
const GULP_BYTES: usize = 8 << 20;
const GULP_TIMES: [usize; 2] = [1 << 10, 1 << 16];

/// File to write.
#[derive(Clone, Debug)]
struct Target {
    /// Index of the antenna.
    antenna: usize,
    path: PathBuf,
    /// Block length if whole blocks are missing.
    block: Option<usize>,
}

/// Writes every target, as many antennas at once as there are threads.
fn record(
    simulator: &ArraySimulator,
    targets: &[Target],
    format: Format,
    common: &Common,
) -> Result<()> {
    let threads = Threads::new(common.threads()?);
    let Some(first) = targets.first() else { return Ok(()) };
    let header = simulator.antenna(first.antenna)?.header().clone();
    let times = header.times.unwrap_or(0);
    let all = times * targets.len() as u64;
    let each = header.tsamp_s / targets.len() as f64;
    let progress = Progress::new(common, Some(all), header.streams(), each);
    let mut done = 0;
    for group in targets.chunks(threads.count()) {
        let job = |target| Job::new(simulator, target, format);
        let mut jobs = group.iter().map(job).collect::<Result<Vec<_>>>()?;
        let mut nothing = vec![(); threads.count()];
        while jobs.iter().any(|job| !job.ended) {
            interrupt::check()?;
            threads.for_each_chunk(&mut nothing, &mut jobs, 1, |(), _, jobs| {
                jobs.iter_mut().for_each(Job::step);
            });
            if let Some(fault) = jobs.iter_mut().find_map(|job| job.fault.take()) {
                return Err(fault);
            }
            progress.at(done + jobs.iter().map(|job| job.done).sum::<u64>());
        }
        done += times * group.len() as u64;
        jobs.into_iter().try_for_each(|job| job.writer.finish())?;
    }
    progress.finish();
    Ok(())
}

/// Antenna's file in progress.
struct Job {
    antenna: ArrayAntenna,
    writer: Writer,
    block: VoltageBlock<'static>,
    /// Whether the gaps are whole missing blocks.
    pieces: bool,
    /// Blocks to write before the thread continues with another antenna.
    turn: usize,
    done: u64,
    ended: bool,
    fault: Option<Error>,
}

impl Job {
    fn new(simulator: &ArraySimulator, target: &Target, format: Format) -> Result<Self> {
        let antenna = simulator.antenna(target.antenna)?;
        let header = antenna.header();
        let writer = Writer::create(format, &target.path, header, target.block)?;
        let [fewest, most] = GULP_TIMES;
        let bytes = header.encoding.bytes(fewest) * header.streams();
        let usual = (GULP_BYTES / bytes * fewest).clamp(fewest, most);
        let length = target.block.unwrap_or(usual);
        Ok(Self {
            writer,
            block: header.block(length),
            pieces: target.block.is_some(),
            turn: usual.div_ceil(length),
            done: 0,
            ended: false,
            fault: None,
            antenna,
        })
    }

    fn step(&mut self) {
        for _ in 0..self.turn {
            if self.ended {
                return;
            }
            if let Err(fault) = self.write() {
                (self.fault, self.ended) = (Some(fault), true);
            }
        }
    }

    fn write(&mut self) -> Result<()> {
        let times = self.antenna.read(&mut self.block)? as u64;
        if times == 0 {
            self.ended = true;
            return Ok(());
        }
        let (start, end) = (self.done, self.done + times);
        let flags = self.antenna.flags();
        let missing = flags.iter().any(|gap| gap.start <= start && end <= gap.start + gap.times);
        self.done = end;
        if self.pieces && missing {
            return self.writer.leave_out(self.block.voltages());
        }
        self.writer.write(self.block.voltages())
    }
}
