//! `sidereal simulate voltages`: makes a voltage recording with noise, tones and dispersed pulses.

mod specs;
mod truth;
pub(super) mod writer;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::simulate::voltages::{Options, VoltageSimulator};
use sidereal::units::{DM_CONSTANT, Epoch, HZ_PER_MHZ, MAX_CHANNELS};
use sidereal::view::check_memory;
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

pub(crate) use self::truth::Document;
use self::writer::{Format, Writer};
use crate::common::Common;
use crate::interrupt;
use crate::output::{Existing, Files, WritingFiles};
use crate::progress::{self, Progress};
use crate::space;

/// Approximate number of bytes made at once, and the largest number of samples per stream.
const GULP_BYTES: usize = 32 << 20;
const GULP_TIMES: usize = 1 << 16;

/// Multiples to which the number of samples made at once is rounded: the first if memory allows, because noise is
/// generated in chunks of that size.
const GRAINS: [usize; 2] = [1 << 10, 8];

/// Largest number of samples of a stream that is counted exactly.
const MOST_TIMES: f64 = (1u64 << 53) as f64;

const EXAMPLES: &str = "Examples:\n  \
    sidereal simulate voltages frb.raw --freq 1400 --bandwidth 32 --coarse-channels 8 \\\n      \
    --duration 1 --pulse dm=150,time=0.3,width=0.001,snr=30\n  \
    sidereal simulate voltages low.dada --freq 150 --bandwidth 4 --coarse-channels 16 --nbits 16 \\\n      \
    --duration 4 --pulse dm=12.4,time=0.5,width=0,snr=25\n  \
    sidereal simulate voltages tone.raw --freq 800 --bandwidth 16 --nbits 4 --lower-sideband \\\n      \
    --tone freq=803.2,amp=0.1 --gap start=0.4,duration=0.05\n\n\
    A pulse is dispersed coherently, by the phase of cold plasma at each sky frequency. Its time is that\n\
    of its centre at the upper edge of the whole recorded band (reference_mhz in the truth file); at\n\
    another frequency f, in MHz, it is later by K dm (f^-2 - reference_mhz^-2). Its S/N is that of the best\n\
    boxcar in the total intensity of one antenna, coherently dedispersed, over all recorded channels.\n\
    What was put in is written beside the file: frb.raw has frb.raw.truth.json.";

/// Make a voltage recording (GUPPI raw or DADA): noise with tones and dispersed pulses.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// File to write.
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,
    /// Same as OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// Replace OUT and its truth file if they exist.
    #[arg(long)]
    overwrite: bool,
    /// Format of OUT [default: from its extension, .raw or .dada].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Length in seconds.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 1.0)]
    duration: f64,
    /// Seed of the noise and everything else random; the same seed gives the same file.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Dispersion constant, in s MHz^2 pc^-1 cm^3.
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = DM_CONSTANT)]
    dm_constant: f64,
    #[command(flatten)]
    receiver: Receiver,
    #[command(flatten)]
    signals: Signals,
}

/// Options of the receiver.
#[derive(Args, Clone, Debug)]
struct Receiver {
    /// Centre of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    freq: f64,
    /// Width of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    bandwidth: f64,
    /// Number of recorded channels in the band.
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        default_value_t = 8,
        help_heading = "Receiver"
    )]
    coarse_channels: usize,
    /// Bits per real value: 4 (complex only), 8, 16 or 32 (floats).
    ///
    /// A complex sample has two values.
    #[arg(
        long,
        value_name = "BITS",
        allow_negative_numbers = true,
        default_value_t = 8,
        help_heading = "Receiver"
    )]
    nbits: usize,
    /// Record real samples, at twice the rate of complex ones; only for .dada.
    #[arg(long, help_heading = "Receiver")]
    real: bool,
    /// Number of polarizations, 1 or 2.
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        default_value_t = 2,
        help_heading = "Receiver"
    )]
    pols: usize,
    /// Polarization basis.
    #[arg(long, value_enum, default_value_t = Feed::Linear, help_heading = "Receiver")]
    feed: Feed,
    /// Number of antennas.
    ///
    /// All receive the same tones and pulses; each has its own noise.
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        default_value_t = 1,
        help_heading = "Receiver"
    )]
    antennas: usize,
    /// Rms of the noise in one real value, in counts [default: chosen from the number of bits].
    #[arg(long, value_name = "COUNTS", allow_negative_numbers = true, help_heading = "Receiver")]
    rms: Option<f64>,
    /// Make no noise: only tones and pulses, at the strength that they would have with it.
    #[arg(long, help_heading = "Receiver")]
    no_noise: bool,
    /// Record the lower sideband.
    ///
    /// Sky frequency falls as the voltage's frequency rises, and channels begin at the highest sky frequency.
    #[arg(long, help_heading = "Receiver")]
    lower_sideband: bool,
    /// Name of the telescope, for the header.
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "Receiver")]
    telescope: String,
    /// Start of the first sample, as MJD (UTC).
    #[arg(
        long,
        value_name = "MJD",
        allow_negative_numbers = true,
        default_value_t = 60000.0,
        help_heading = "Receiver"
    )]
    tstart: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Feed {
    /// X and Y.
    Linear,
    /// R and L.
    Circular,
}

/// Options of injected signals.
#[derive(Args, Clone, Debug)]
struct Signals {
    /// Add a pulse; may be repeated.
    ///
    /// dm=,time= and optionally width= (seconds; 0 is an impulse),snr=,linear=,angle=,circular= (polarized fractions
    /// of the power, angle in degrees).
    #[arg(long, value_name = "FIELDS", help_heading = "Signals")]
    pulse: Vec<String>,
    /// Add a tone; may be repeated.
    ///
    /// freq= (MHz, on the sky) and optionally amp= (noise rms) or counts=, phase= (degrees), ratio=,delta= (amplitude
    /// and phase of the second polarization relative to the first).
    #[arg(long, value_name = "FIELDS", help_heading = "Signals")]
    tone: Vec<String>,
    /// Add a gap; may be repeated.
    ///
    /// start=,duration= (seconds). GUPPI raw omits whole blocks, DADA contains zeros.
    #[arg(long, value_name = "FIELDS", help_heading = "Signals")]
    gap: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.out.as_ref().or(arguments.output.as_ref());
    let out = out.map_or(Path::new(""), PathBuf::as_path);
    let format = Format::choose(arguments.format, out)?;
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "OUT", existing, inputs: &[], common };
    let files = Files::begin(out, &[super::TRUTH], &writing)?;
    if arguments.receiver.real && format == Format::Guppi {
        let rule = "GUPPI raw is written with complex samples only; name OUT .dada";
        return Err(Error::parameter("--real", "given", rule));
    }
    let mut options = arguments.options()?;
    let shape = recording(&options);
    let block = writer::fit_gaps(format, &mut options.gaps, &shape)?;
    space::check(out, need(options.encoding, options.times, options.streams()), common)?;
    let threads = Threads::new(common.threads()?);
    let mut simulator = VoltageSimulator::new(options.clone())?.with_threads(threads);
    let document = Document::new(out, &options, simulator.truth());
    let begun = Instant::now();
    let writer = Writer::create(format, &files.main(), simulator.header(), block)?;
    write(&mut simulator, writer, block, common)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let product = super::product("simulate-voltages", document, &[], common)?;
    super::conclude(files, &product, common, || {
        summary(&options, out, elapsed_s, &product.document)
    })
}

/// Returns the bytes of `times` samples of `streams` streams.
pub(super) fn need(encoding: VoltageEncoding, times: u64, streams: usize) -> u64 {
    let bits = u128::from(times) * encoding.sample_bits() as u128 * streams as u128;
    u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)
}

/// Returns a header with the recording's shape.
fn recording(options: &Options) -> VoltageHeader {
    VoltageHeader {
        antennas: options.antennas,
        polarizations: options.polarizations,
        times: Some(options.times),
        ..VoltageHeader::new(options.centres_hz.clone(), options.tsamp_s(), options.encoding)
    }
}

fn summary(options: &Options, out: &Path, elapsed_s: f64, truth: &Document) -> String {
    let samples = options.times as f64 * options.streams() as f64;
    let bytes = options.encoding.bytes(options.times as usize) as f64 * options.streams() as f64;
    let kind = if options.encoding.is_complex() { "complex" } else { "real" };
    format!(
        "{}: {:.3} s of {} streams ({} x {} channels x {} polarizations), {kind} {} bit, {:.1} MB; {} made \
         in {elapsed_s:.1} s ({})",
        out.display(),
        options.times as f64 * options.tsamp_s(),
        options.streams(),
        options.antennas,
        options.centres_hz.len(),
        options.polarizations,
        options.encoding.bits(),
        bytes / 1e6,
        truth.contents(),
        progress::rate(samples / elapsed_s.max(1e-9)),
    )
}

/// Writes all samples; with gaps, in pieces that are either entirely missing or entirely present.
fn write(
    simulator: &mut VoltageSimulator,
    mut writer: Writer,
    piece: Option<usize>,
    common: &Common,
) -> Result<()> {
    let header = simulator.header().clone();
    let gaps = simulator.flags().to_vec();
    let progress = Progress::new(common, header.times, header.streams(), header.tsamp_s);
    let grains =
        GRAINS.map(|grain| GULP_BYTES / (header.encoding.bytes(grain) * header.streams()) * grain);
    let usual = grains.into_iter().find(|times| *times > 0).unwrap_or(GRAINS[1]).min(GULP_TIMES);
    let times = piece.unwrap_or(usual);
    let bytes = header.encoding.bytes(times).checked_mul(header.streams());
    check_memory("a block of all streams", bytes)?;
    let mut block = header.block(times);
    let mut done = 0;
    loop {
        interrupt::check()?;
        let times = simulator.read(&mut block)? as u64;
        if times == 0 {
            break;
        }
        let missing = |gap: &Flag| gap.start <= done && done + times <= gap.start + gap.times;
        if piece.is_some() && gaps.iter().any(missing) {
            writer.leave_out(block.voltages())?;
        } else {
            writer.write(block.voltages())?;
        }
        done += times;
        progress.at(done);
    }
    progress.finish();
    writer.finish()
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        let Receiver { freq, bandwidth, coarse_channels, .. } = self.receiver;
        positive("--duration", self.duration)?;
        positive("--freq", freq)?;
        positive("--bandwidth", bandwidth)?;
        if 0.5 * bandwidth >= freq {
            let rule = format!("a band of that width around {freq} MHz would reach below 0");
            return Err(Error::parameter("--bandwidth", bandwidth, rule));
        }
        if coarse_channels == 0 || coarse_channels > MAX_CHANNELS {
            let rule = format!("it must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("--coarse-channels", coarse_channels, rule));
        }
        let band = (freq * HZ_PER_MHZ, bandwidth * HZ_PER_MHZ);
        let mut options = Options::new(band.0, band.1, coarse_channels, 1);
        options = options.encoding(encoding(self.receiver.nbits, self.receiver.real)?);
        if self.receiver.lower_sideband {
            options = options.lower_sideband();
        }
        if self.duration / options.tsamp_s() > MOST_TIMES {
            let rule = format!("so many samples of {:e} s are too many", options.tsamp_s());
            return Err(Error::parameter("--duration", format!("{:e}", self.duration), rule));
        }
        options.times = specs::whole_samples(self.duration, &options);
        options.antennas = self.receiver.antennas;
        options.polarizations = self.receiver.pols;
        options.circular = self.receiver.feed == Feed::Circular;
        options.rms = self.receiver.rms.unwrap_or(options.rms);
        options.noise = !self.receiver.no_noise;
        options.seed = self.seed;
        options.dm_constant = self.dm_constant;
        options.telescope.clone_from(&self.receiver.telescope);
        if !(1.0..1e7).contains(&self.receiver.tstart) {
            let rule = "it must be a modified Julian date, 1 to 1e7";
            return Err(Error::parameter("--tstart", self.receiver.tstart, rule));
        }
        options.start = Epoch::from_mjd(self.receiver.tstart);
        self.add_signals(&mut options)?;
        Ok(options)
    }

    fn add_signals(&self, options: &mut Options) -> Result<()> {
        for text in &self.signals.pulse {
            let pulse = specs::pulse(text)?;
            if !(0.0..self.duration).contains(&pulse.time_s) {
                let rule = format!("the recording lasts from 0 to {} s", self.duration);
                return Err(Error::parameter("time of a --pulse", pulse.time_s, rule));
            }
            options.pulses.push(pulse);
        }
        for text in &self.signals.tone {
            options.tones.push(specs::tone(text, options.rms)?);
        }
        for text in &self.signals.gap {
            options.gaps.push(specs::gap(text, options)?);
        }
        Ok(())
    }
}

pub(super) fn positive(name: &'static str, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::parameter(name, value, "it must be a positive number"))
}

pub(super) fn encoding(bits: usize, real: bool) -> Result<VoltageEncoding> {
    match (bits, real) {
        (4, false) => Ok(VoltageEncoding::Complex4),
        (8, false) => Ok(VoltageEncoding::Complex8),
        (16, false) => Ok(VoltageEncoding::Complex16),
        (32, false) => Ok(VoltageEncoding::ComplexF32),
        (8, true) => Ok(VoltageEncoding::Real8),
        (16, true) => Ok(VoltageEncoding::Real16),
        (32, true) => Ok(VoltageEncoding::RealF32),
        (_, false) => Err(Error::parameter("--nbits", bits, "it must be 4, 8, 16 or 32")),
        (_, true) => {
            Err(Error::parameter("--nbits", bits, "of real samples it must be 8, 16 or 32"))
        }
    }
}
