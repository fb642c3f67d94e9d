//! `sidereal simulate strain`: makes interferometers' strain with injected binaries, or adds them to recorded strain.

mod play;
mod recorded;
mod signals;
mod truth;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use sidereal::geometry::Interferometer;
use sidereal::io::psd::{self, Density};
use sidereal::io::strain::{NewStrain, StrainSource, StrainWriter};
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::simulate::strain::{
    DetectorOptions, Quality, Simulation, StrainOptions, StrainSimulator,
};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use self::play::{Play, description};
use self::recorded::{RecordedArguments, Recordings};
pub(crate) use self::signals::{Signals, detector};
pub(crate) use self::truth::Document;
use super::product::{self, Output, TRUTH, conclude};
use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles, beside};
use crate::progress::Progress;
use crate::{interrupt, space};

/// Samples made at once.
const GULP: usize = 1 << 16;

/// Longest recording in seconds: one year.
const MAX_LENGTH_S: u64 = 31_557_600;

const EXAMPLES: &str = "Examples:\n  \
    sidereal simulate strain noise.hdf5 --detectors H1,L1,V1 --length 256 --seed 1\n  \
    sidereal simulate strain bbh.hdf5 --start 1400000000 --length 64 \\\n      \
    --inject m1=30,m2=30,distance=800,ra=1.2,dec=-0.4,inclination=0.3,time=1400000040.2\n  \
    sidereal simulate strain --live /dev/shm/frames --length 3600 --injections events.csv --keep 300\n  \
    sidereal simulate strain --live /dev/shm/frames --recorded H-H1.hdf5 --recorded L-L1.hdf5\n  \
    sidereal simulate strain many.hdf5 --length 4096 --injections events.csv --f-low 15\n\n\
    Each detector has a file of its own, as GWOSC writes them: bbh_H1.hdf5, bbh_L1.hdf5; or frames for bbh.gwf:\n\
    H-bbh_H1-1400000000-64.gwf, with the channels H1:STRAIN, H1:DQMASK and H1:INJMASK. Angles are in\n\
    radians; right ascension is used as LAL does, against the mean sidereal time of date. An injection's\n\
    time is when its |h| peaks at the Earth's centre (GPS seconds); when it arrives at each detector, and\n\
    with which optimal SNR, stands in bbh.hdf5.truth.json. Masses are those seen here, redshifted.";

/// Make the strain of several interferometers (GWOSC HDF5 or GWF): coloured Gaussian noise, or a recording, with binaries.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("out", |out| {
        out.required_unless_present("live").help(
            "Name of the files to write: _H1 and so on is inserted before .hdf5; .gwf for frames",
        )
    }),
    mut_arg("overwrite", |overwrite| {
        overwrite.help("Replace the files and the truth file if they exist")
    })
)]
pub(super) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// Detectors: H1, L1, V1, K1, G1.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "H1,L1")]
    detectors: Vec<String>,
    /// Time of the first sample, in whole GPS seconds [default: 1400000000, or the first second of --recorded].
    #[arg(long, value_name = "GPS", allow_negative_numbers = true)]
    start: Option<i64>,
    /// Length in whole seconds [default: 64, or all of --recorded].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    length: Option<u64>,
    /// Sampling rate in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 4096)]
    rate: u32,
    /// Seed of the noise; the same seed gives the same file.
    ///
    /// The noise of a detector does not depend on the other detectors.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    noise: NoiseArguments,
    #[command(flatten)]
    recorded: RecordedArguments,
    #[command(flatten)]
    signals: Signals,
    /// Mark injections as hardware injections: clear the bit NO_CBC_HW_INJ in each second that contains part of an injected wave.
    #[arg(long, help_heading = "Signals")]
    mark_injections: bool,
    #[command(flatten)]
    faults: Faults,
    #[command(flatten)]
    play: Play,
}

/// Options of simulated faults.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Faults")]
struct Faults {
    /// Add a glitch (sine-Gaussian); may be repeated.
    ///
    /// H1:time= (GPS s),snr= and optionally frequency= (Hz),q=.
    #[arg(long, value_name = "DETECTOR:FIELDS")]
    glitch: Vec<String>,
    /// Interval in seconds from the start with data that fail the quality tests; may be repeated.
    ///
    /// The prefix H1: limits it to one detector.
    #[arg(long, value_name = "[DETECTOR:]A:B")]
    bad_seconds: Vec<String>,
    /// Interval in seconds from the start without data: NaN in the file; may be repeated.
    ///
    /// The prefix H1: limits it to one detector.
    #[arg(long, value_name = "[DETECTOR:]A:B")]
    gap_seconds: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.output.path();
    let (options, recordings) = arguments.options()?;
    let names = options.detectors.iter().map(|one| one.interferometer.name);
    let truth = |simulation: &Simulation, places: &[PathBuf]| {
        Document::new(&options, simulation, places, &arguments.noise.psd)
    };
    if let Some(folder) = &arguments.play.live {
        let places: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
        let mut simulation = simulation(&options, recordings)?;
        let document = truth(&simulation, &places);
        let truth = product::product("simulate-strain", document, &arguments.inputs(), common)?;
        return arguments.play.run(&mut simulation.detectors, &places, &truth, common);
    }
    let places = places(out, names, &options)?;
    let existing = Existing::new(arguments.output.overwrite);
    let inputs = arguments.inputs();
    let writing = WritingFiles { option: "OUT", existing, inputs: &inputs, common };
    let all: Vec<PathBuf> = places.iter().cloned().chain([beside(out, TRUTH)]).collect();
    let files = Files::begin_all(out, &all, &writing)?;
    // A sample has 8 bytes.
    let need = options.times.saturating_mul(8).saturating_mul(places.len() as u64);
    space::check(out, need, common)?;
    let mut simulation = simulation(&options, recordings)?;
    let document = truth(&simulation, &places);
    let begun = Instant::now();
    let paths: Vec<PathBuf> = places.iter().map(|place| files.file(place)).collect();
    write(&mut simulation.detectors, &paths, &options, common)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let product = product::product("simulate-strain", document, &inputs, common)?;
    conclude(files, &product, common, || summary(&options, &places, elapsed_s, &product.document))
}

fn simulation(options: &StrainOptions, recordings: Option<Recordings>) -> Result<Simulation> {
    match recordings {
        Some(recordings) => Simulation::of_recordings(options, recordings.recorded),
        None => Simulation::new(options),
    }
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
fn places<'a>(
    out: &Path,
    detectors: impl Iterator<Item = &'a str>,
    options: &StrainOptions,
) -> Result<Vec<PathBuf>> {
    let (start_s, length_s) = (options.start.s(), options.times / u64::from(options.rate_hz));
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
    Ok(detectors.map(|one| out.with_file_name(name(one))).collect())
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
    NewStrain {
        detector: simulator.header().detector.clone(),
        channel: None,
        start: options.start,
        rate_hz: options.rate_hz,
        samples: options.times,
        description: match simulator.is_recorded() {
            true => description(simulator).to_owned(),
            false => format!("{}, seed {}", description(simulator), options.seed),
        },
        bits: Some(simulator.bits(0..seconds)),
        is_compressed: true,
    }
}

impl Arguments {
    /// Returns every input file.
    fn inputs(&self) -> Vec<PathBuf> {
        let signals = self.signals.injections.iter().chain(&self.signals.waveform).cloned();
        signals.chain(self.noise.files()).chain(self.recorded.files()).collect()
    }

    /// Returns the options of the simulation, and the recordings in the place of its noise.
    fn options(&self) -> Result<(StrainOptions, Option<Recordings>)> {
        let recordings = self.recorded.open()?;
        let own = |all: &Recordings| (all.detectors.clone(), all.rate_hz);
        let (detectors, rate_hz) = match recordings.as_ref().map(own) {
            Some(own) => own,
            None => {
                let of = |name: &String| detector("--detectors", name);
                (self.detectors.iter().map(of).collect::<Result<Vec<_>>>()?, self.rate)
            }
        };
        let first_s = recordings.as_ref().map_or(1_400_000_000, |all| all.start_s);
        let start_s = self.start.unwrap_or(first_s);
        let rest_s = |all: &Recordings| {
            let end_s = all.start_s.saturating_add_unsigned(all.length_s);
            u64::try_from(end_s.saturating_sub(start_s)).unwrap_or(0)
        };
        let length_s = self.length.unwrap_or_else(|| recordings.as_ref().map_or(64, rest_s));
        if let Some(all) = &recordings
            && (start_s < all.start_s || length_s == 0 || length_s > rest_s(all))
        {
            let (first, length) = (all.start_s, all.length_s);
            let found = format!("{length_s} s from {start_s} on");
            let rule = format!("the recordings have {length} whole seconds from {first} on");
            return Err(Error::parameter("--start and --length", found, rule));
        }
        if !(1..=MAX_LENGTH_S).contains(&length_s) {
            let rule = format!("it must be 1 to {MAX_LENGTH_S}");
            return Err(Error::parameter("--length", length_s, rule));
        }
        if !(0..3_700_000_000).contains(&start_s) {
            let rule = "it must be 0 to 3.7e9 GPS seconds";
            return Err(Error::parameter("--start", start_s, rule));
        }
        let times = length_s * u64::from(rate_hz);
        let start = Gps { ns: start_s * 1_000_000_000 };
        let mut options = self.noise.options(&detectors, start, rate_hz, times)?;
        options.seed = self.seed;
        options.marks_injections = self.mark_injections;
        self.signals.add(&mut options)?;
        self.faults.add(&mut options)?;
        Ok((options, recordings))
    }
}

impl Faults {
    fn add(&self, options: &mut StrainOptions) -> Result<()> {
        for text in &self.glitch {
            let (name, glitch) = signals::glitch(text)?;
            signals::of_detectors("--glitch", Some(name), options)?
                .for_each(|detector| detector.glitches.push(glitch));
        }
        for (option, texts, quality) in [
            ("--bad-seconds", &self.bad_seconds, Quality::Bad),
            ("--gap-seconds", &self.gap_seconds, Quality::Missing),
        ] {
            for text in texts {
                let (name, flagged) = signals::seconds(option, text, quality)?;
                signals::of_detectors(option, name, options)?
                    .for_each(|detector| detector.flagged.push(flagged));
            }
        }
        Ok(())
    }
}

/// Frequency spacing of the design curve, in Hz.
const SPACING_HZ: f64 = 0.125;

/// Default amplitude spectral density of white noise, in 1/sqrt(Hz): about the design curve's minimum.
const WHITE: f64 = 4e-24;

/// Highest sampling rate, in Hz.
const MAX_RATE_HZ: u32 = 1 << 20;

/// Options of the noise.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Noise")]
struct NoiseArguments {
    /// Power spectral density of the noise; may be repeated.
    ///
    /// aligo (Advanced LIGO's design), white, white:ASD (1/sqrt(Hz)), a file of frequencies and densities (1/Hz), or
    /// asd:FILE (1/sqrt(Hz)). The prefix V1= limits it to one detector.
    #[arg(long, value_name = "[DETECTOR=]WHICH", default_value = "aligo")]
    psd: Vec<String>,
    /// Lowest frequency at which the noise has its full density, in Hz.
    ///
    /// Below, the density falls to zero at half of this frequency.
    #[arg(long, value_name = "HZ", default_value_t = 8.0, allow_negative_numbers = true)]
    noise_low: f64,
    /// Make no noise: only signals, at the strength that they would have with it.
    #[arg(long)]
    no_noise: bool,
}

impl NoiseArguments {
    /// Returns the simulation options of these detectors, with noise only.
    fn options(
        &self,
        detectors: &[&'static Interferometer],
        start: Gps,
        rate_hz: u32,
        times: u64,
    ) -> Result<StrainOptions> {
        let mut common = None;
        let mut own = Vec::new();
        for text in &self.psd {
            match text.split_once('=') {
                Some((name, which)) => {
                    let site = detector("--psd", name)?;
                    if !detectors.contains(&site) {
                        let rule = "that detector is not among --detectors";
                        return Err(Error::parameter("--psd", text, rule));
                    }
                    own.push((site, spectrum(which, rate_hz)?));
                }
                None if common.is_some() => {
                    let rule = "only one may be for all detectors";
                    return Err(Error::parameter("--psd", text, rule));
                }
                None => common = Some(spectrum(text, rate_hz)?),
            }
        }
        let common = common.map_or_else(|| spectrum("aligo", rate_hz), Ok)?;
        let mut options = StrainOptions::new(detectors, &common, start, rate_hz, times);
        for (site, psd) in own {
            let is_same_site = |one: &&mut DetectorOptions| one.interferometer.name == site.name;
            options.detectors.iter_mut().filter(is_same_site).for_each(|one| one.psd = psd.clone());
        }
        options.lowest_hz = self.noise_low;
        options.noise = !self.no_noise;
        Ok(options)
    }

    /// Returns every file that a density may be read from; a word without such a file is a name.
    fn files(&self) -> impl Iterator<Item = PathBuf> + use<'_> {
        let which = |text: &String| {
            let own = text.split_once('=').map_or(text.as_str(), |(_, which)| which);
            PathBuf::from(own.strip_prefix("asd:").unwrap_or(own))
        };
        self.psd.iter().map(which)
    }
}

fn spectrum(which: &str, rate_hz: u32) -> Result<PowerSpectrum> {
    let nyquist_hz = f64::from(rate_hz) / 2.0;
    let white = |amplitude: f64| PowerSpectrum::new(nyquist_hz, vec![amplitude * amplitude; 2]);
    if !(16..=MAX_RATE_HZ).contains(&rate_hz) {
        return Err(Error::parameter("--rate", rate_hz, format!("it must be 16 to {MAX_RATE_HZ}")));
    }
    if let Some(path) = which.strip_prefix("asd:") {
        return psd::read(Path::new(path), Density::Amplitude);
    }
    match which {
        "aligo" => {
            let bins = (nyquist_hz / SPACING_HZ).ceil() as usize + 1;
            advanced_ligo(SPACING_HZ, bins)
        }
        "white" => white(WHITE),
        _ => match which.strip_prefix("white:").map(str::parse) {
            Some(Ok(amplitude)) => white(amplitude),
            Some(Err(_)) => {
                let rule = "after white: comes a number, the density in 1/sqrt(Hz)";
                Err(Error::parameter("--psd", which, rule))
            }
            None => psd::read(Path::new(which), Density::Power),
        },
    }
}
