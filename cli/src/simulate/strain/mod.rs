//! `sidereal simulate strain`: makes interferometers' strain with injected binaries.

mod noise;
mod specs;
mod truth;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use sidereal::geometry::Interferometer;
use sidereal::io::strain::{ALL_INJECTIONS, ALL_QUALITY};
use sidereal::io::strain::{NewStrain, StrainSource, StrainWriter};
use sidereal::simulate::strain::{Quality, Simulation, StrainOptions, StrainSimulator};
use sidereal::units::Gps;
use sidereal::{Error, Result};

pub(crate) use self::truth::Document;
use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles, beside};
use crate::progress::Progress;
use crate::{interrupt, space};
pub(crate) use noise::detector;
pub(crate) use specs::Signals;

/// Samples made at once.
const GULP: usize = 1 << 16;

/// Longest recording in seconds: one year.
const MAX_LENGTH_S: u64 = 31_557_600;

const EXAMPLES: &str = "Examples:\n  \
    sidereal simulate strain noise.hdf5 --detectors H1,L1,V1 --length 256 --seed 1\n  \
    sidereal simulate strain bbh.hdf5 --start 1400000000 --length 64 \\\n      \
    --inject m1=30,m2=30,distance=800,ra=1.2,dec=-0.4,inclination=0.3,time=1400000040.2\n  \
    sidereal simulate strain many.hdf5 --length 4096 --injections events.csv --f-low 15\n\n\
    Each detector has a file of its own, as GWOSC writes them: bbh_H1.hdf5, bbh_L1.hdf5; or frames for bbh.gwf:\n\
    H-bbh_H1-1400000000-64.gwf, with the channels H1:STRAIN, H1:DQMASK and H1:INJMASK. Angles are in\n\
    radians; right ascension is used as LAL does, against the mean sidereal time of date. An injection's\n\
    time is when its |h| peaks at the Earth's centre (GPS seconds); when it arrives at each detector, and\n\
    with which optimal SNR, stands in bbh.hdf5.truth.json. Masses are those seen here, redshifted.";

/// Make the strain of several interferometers (GWOSC HDF5 or GWF): coloured Gaussian noise with binaries.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Name of the files to write: _H1 and so on is inserted before .hdf5; .gwf for frames.
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,
    /// Same as OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// Replace the files and the truth file if they exist.
    #[arg(long)]
    overwrite: bool,
    /// Detectors: H1, L1, V1, K1, G1.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "H1,L1")]
    detectors: Vec<String>,
    /// Time of the first sample, in whole GPS seconds.
    #[arg(
        long,
        value_name = "GPS",
        default_value_t = 1_400_000_000,
        allow_negative_numbers = true
    )]
    start: i64,
    /// Length in whole seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 64, allow_negative_numbers = true)]
    length: u64,
    /// Sampling rate in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 4096)]
    rate: u32,
    /// Seed of the noise; the same seed gives the same file.
    ///
    /// The noise of a detector does not depend on the other detectors.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    noise: noise::NoiseArguments,
    #[command(flatten)]
    signals: Signals,
    #[command(flatten)]
    faults: Faults,
}

/// Options of simulated faults.
#[derive(Args, Clone, Debug)]
struct Faults {
    /// Add a glitch (sine-Gaussian); may be repeated.
    ///
    /// H1:time= (GPS s),snr= and optionally frequency= (Hz),q=.
    #[arg(long, value_name = "DETECTOR:FIELDS", help_heading = "Faults")]
    glitch: Vec<String>,
    /// Interval in seconds from the start with data that fail the quality tests; may be repeated.
    ///
    /// The prefix H1: limits it to one detector.
    #[arg(long, value_name = "[DETECTOR:]A:B", help_heading = "Faults")]
    bad_seconds: Vec<String>,
    /// Interval in seconds from the start without data: NaN in the file; may be repeated.
    ///
    /// The prefix H1: limits it to one detector.
    #[arg(long, value_name = "[DETECTOR:]A:B", help_heading = "Faults")]
    gap_seconds: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.out.as_ref().or(arguments.output.as_ref());
    let out = out.map_or(Path::new(""), PathBuf::as_path);
    let detectors = arguments.detectors()?;
    let places = places(out, &detectors, (arguments.start, arguments.length))?;
    let existing = Existing::new(arguments.overwrite);
    let inputs = arguments.inputs();
    let writing = WritingFiles { option: "OUT", existing, inputs: &inputs, common };
    let all: Vec<PathBuf> = places.iter().cloned().chain([beside(out, super::TRUTH)]).collect();
    let files = Files::begin_all(out, &all, &writing)?;
    let options = arguments.options(&detectors)?;
    // A sample has 8 bytes.
    let need = options.times.saturating_mul(8).saturating_mul(places.len() as u64);
    space::check(out, need, common)?;
    let mut simulation = Simulation::new(&options)?;
    let document = Document::new(&options, &simulation.truth, &places, &arguments.noise.psd);
    let begun = Instant::now();
    let paths: Vec<PathBuf> = places.iter().map(|place| files.file(place)).collect();
    write(&mut simulation.detectors, &paths, &options, common)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let product = super::product("simulate-strain", document, &inputs, common)?;
    super::conclude(files, &product, common, || {
        summary(&options, &places, elapsed_s, &product.document)
    })
}

fn summary(options: &StrainOptions, files: &[PathBuf], elapsed_s: f64, truth: &Document) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let length_s = options.times / u64::from(options.rate_hz);
    format!(
        "{}: {length_s} s at {} Hz from GPS {}; {} made in {elapsed_s:.1} s{}",
        names.join(", "),
        options.rate_hz,
        options.start.s(),
        truth.contents(),
        truth.warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect::<String>(),
    )
}

/// Returns each detector's file; the detector's name goes before the extension.
fn places(
    out: &Path,
    detectors: &[&Interferometer],
    (start_s, length_s): (i64, u64),
) -> Result<Vec<PathBuf>> {
    let ending = out.extension().map_or("hdf5".into(), |ending| ending.to_string_lossy());
    let (Some(stem), "hdf5" | "h5" | "gwf") = (out.file_stem(), &*ending) else {
        let rule = "strain is written as HDF5 or frames; name it .hdf5 or .gwf";
        return Err(Error::parameter("OUT", out.display(), rule));
    };
    let stem = stem.to_string_lossy();
    let name = |detector: &str| match &*ending {
        // Frame file names consist of four parts separated by hyphens.
        "gwf" => {
            let tag = stem.replace('-', "_");
            let site = detector.get(..1).unwrap_or_default();
            format!("{site}-{tag}_{detector}-{start_s}-{length_s}.gwf")
        }
        _ => format!("{stem}_{detector}.{ending}"),
    };
    Ok(detectors.iter().map(|one| out.with_file_name(name(one.name))).collect())
}

/// Writes all detectors' files; none has its final name before all are complete.
fn write(
    simulators: &mut [StrainSimulator],
    files: &[PathBuf],
    options: &StrainOptions,
    common: &Common,
) -> Result<()> {
    let total = options.times * files.len() as u64;
    let tsamp_s = 1.0 / (f64::from(options.rate_hz) * files.len() as f64);
    let progress = Progress::new(common, Some(total), 1, tsamp_s);
    let mut samples = vec![0.0; GULP];
    let mut writers = Vec::new();
    let mut done = 0;
    for (simulator, path) in simulators.iter_mut().zip(files) {
        let mut writer = StrainWriter::create(path, &header(simulator, options))?;
        loop {
            interrupt::check()?;
            let times = simulator.read_recorded(&mut samples)?;
            if times == 0 {
                break;
            }
            writer.write(&samples[..times])?;
            done += times as u64;
            progress.at(done);
        }
        writers.push(writer);
    }
    progress.finish();
    writers.into_iter().try_for_each(StrainWriter::finish)
}

fn header(simulator: &StrainSimulator, options: &StrainOptions) -> NewStrain {
    let seconds = options.times / u64::from(options.rate_hz);
    let bits = |good: u32, bad: u32| {
        let of = move |second| match simulator.quality(second) {
            Quality::Good => good,
            Quality::Bad => bad,
            Quality::Missing => 0,
        };
        (0..seconds).map(of).collect()
    };
    NewStrain {
        detector: simulator.header().detector.clone(),
        channel: None,
        start: options.start,
        rate_hz: options.rate_hz,
        samples: options.times,
        description: format!("Simulated strain, seed {}", options.seed),
        // The lowest bit means that data are present.
        bits: Some([bits(ALL_QUALITY, 1), bits(ALL_INJECTIONS, ALL_INJECTIONS)]),
        is_compressed: true,
    }
}

impl Arguments {
    /// Returns every input file.
    fn inputs(&self) -> Vec<PathBuf> {
        let signals = self.signals.injections.iter().chain(&self.signals.waveform).cloned();
        signals.chain(self.noise.files()).collect()
    }

    fn detectors(&self) -> Result<Vec<&'static Interferometer>> {
        self.detectors.iter().map(|name| detector("--detectors", name)).collect()
    }

    fn options(&self, detectors: &[&'static Interferometer]) -> Result<StrainOptions> {
        if !(1..=MAX_LENGTH_S).contains(&self.length) {
            let rule = format!("it must be 1 to {MAX_LENGTH_S}");
            return Err(Error::parameter("--length", self.length, rule));
        }
        if !(0..3_700_000_000).contains(&self.start) {
            return Err(Error::parameter(
                "--start",
                self.start,
                "it must be 0 to 3.7e9 GPS seconds",
            ));
        }
        let times = self.length * u64::from(self.rate);
        let start = Gps { ns: self.start * 1_000_000_000 };
        let mut options = self.noise.options(detectors, (start, self.rate, times))?;
        options.seed = self.seed;
        self.signals.add(&mut options)?;
        self.faults.add(&mut options)?;
        Ok(options)
    }
}

impl Faults {
    fn add(&self, options: &mut StrainOptions) -> Result<()> {
        for text in &self.glitch {
            let (name, glitch) = specs::glitch(text)?;
            specs::of_detectors("--glitch", Some(name), options)?
                .for_each(|detector| detector.glitches.push(glitch));
        }
        for (option, texts, quality) in [
            ("--bad-seconds", &self.bad_seconds, Quality::Bad),
            ("--gap-seconds", &self.gap_seconds, Quality::Missing),
        ] {
            for text in texts {
                let (name, flagged) = specs::seconds(option, text, quality)?;
                specs::of_detectors(option, name, options)?
                    .for_each(|detector| detector.flagged.push(flagged));
            }
        }
        Ok(())
    }
}
