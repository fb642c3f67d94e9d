//! `sidereal simulate voltages`: makes a voltage recording with noise, tones and dispersed pulses.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::simulate::voltages::{
    Carrier, Options, Polarization, Pulse, PulseTruth, Tone, Truth, VoltageSimulator,
};
use sidereal::units::{DM_CONSTANT, Epoch, HZ_PER_MHZ};
use sidereal::view::check_memory;
use sidereal::{Error, Result};

use super::product::{self, Output, conclude, list};
use super::recording::{Band, Feed, Format, Samples, Writer, fit_gaps, need, positive};
use crate::common::Common;
use crate::numbers::Fields;
use crate::progress::{self, Progress};
use crate::{interrupt, space};

/// Approximate number of bytes made at once, and the largest number of samples per stream.
const GULP_BYTES: usize = 32 << 20;
const GULP_TIMES: usize = 1 << 16;

/// Multiples to which the number of samples made at once is rounded: the first if memory allows, because noise is
/// generated in chunks of that size.
const GRAINS: [usize; 2] = [1 << 10, 8];

/// Largest number of samples of a stream that is counted exactly.
const MAX_TIMES: f64 = (1u64 << 53) as f64;

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
    #[command(flatten)]
    output: Output,
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
#[command(next_help_heading = "Receiver")]
struct Receiver {
    #[command(flatten)]
    band: Band,
    /// Number of recorded channels in the band.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value_t = 8)]
    coarse_channels: usize,
    #[command(flatten)]
    samples: Samples,
    /// Number of polarizations, 1 or 2.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value_t = 2)]
    pols: usize,
    /// Polarization basis.
    #[arg(long, value_enum, default_value_t = Feed::Linear)]
    feed: Feed,
    /// Number of antennas.
    ///
    /// All receive the same tones and pulses; each has its own noise.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value_t = 1)]
    antennas: usize,
    /// Rms of the noise in one real value, in counts [default: chosen from the number of bits].
    #[arg(long, value_name = "COUNTS", allow_negative_numbers = true)]
    rms: Option<f64>,
    /// Make no noise: only tones and pulses, at the strength that they would have with it.
    #[arg(long)]
    no_noise: bool,
    /// Record the lower sideband.
    ///
    /// Sky frequency falls as the voltage's frequency rises, and channels begin at the highest sky frequency.
    #[arg(long)]
    lower_sideband: bool,
    /// Name of the telescope, for the header.
    #[arg(long, value_name = "NAME", default_value = "")]
    telescope: String,
    /// Start of the first sample, as MJD (UTC).
    #[arg(long, value_name = "MJD", allow_negative_numbers = true, default_value_t = 60000.0)]
    tstart: f64,
}

/// Options of injected signals.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Signals")]
struct Signals {
    /// Add a pulse; may be repeated.
    ///
    /// dm=,time= and optionally width= (seconds; 0 is an impulse),snr=,linear=,angle=,circular= (polarized fractions
    /// of the power, angle in degrees).
    #[arg(long, value_name = "FIELDS")]
    pulse: Vec<String>,
    /// Add a tone; may be repeated.
    ///
    /// freq= (MHz, on the sky) and optionally amp= (noise rms) or counts=, phase= (degrees), ratio=,delta= (amplitude
    /// and phase of the second polarization relative to the first).
    #[arg(long, value_name = "FIELDS")]
    tone: Vec<String>,
    /// Add a gap; may be repeated.
    ///
    /// start=,duration= (seconds). GUPPI raw omits whole blocks, DADA contains zeros.
    #[arg(long, value_name = "FIELDS")]
    gap: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.output.path();
    let format = Format::choose(arguments.format, out)?;
    let files = arguments.output.begin(common)?;
    if arguments.receiver.samples.real && format == Format::Guppi {
        let rule = "GUPPI raw is written with complex samples only; name OUT .dada";
        return Err(Error::parameter("--real", "given", rule));
    }
    let mut options = arguments.options()?;
    let shape = recording(&options);
    let block = fit_gaps(format, &mut options.gaps, &shape)?;
    space::check(out, need(options.encoding, options.times, options.streams()), common)?;
    let threads = Threads::new(common.threads()?);
    let mut simulator = VoltageSimulator::new(options.clone())?.with_threads(threads);
    let document = Document::new(out, &options, simulator.truth());
    let begun = Instant::now();
    let writer = Writer::create(format, &files.main(), simulator.header(), block)?;
    write(&mut simulator, writer, block, common)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let product = product::product("simulate-voltages", document, &[], common)?;
    conclude(files, &product, common, || summary(&options, out, elapsed_s, &product.document))
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
        positive("--duration", self.duration)?;
        let channels = self.receiver.coarse_channels;
        let [centre_hz, width_hz] = self.receiver.band.hz("--coarse-channels", channels)?;
        let mut options = Options::new(centre_hz, width_hz, channels, 1);
        options = options.encoding(self.receiver.samples.encoding()?);
        if self.receiver.lower_sideband {
            options = options.lower_sideband();
        }
        if self.duration / options.tsamp_s() > MAX_TIMES {
            let rule = format!("there are too many samples of {:e} s", options.tsamp_s());
            return Err(Error::parameter("--duration", format!("{:e}", self.duration), rule));
        }
        options.times = whole_samples(self.duration, &options);
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
            let pulse = parse_pulse(text)?;
            if !(0.0..self.duration).contains(&pulse.time_s) {
                let rule = format!("the recording lasts from 0 to {} s", self.duration);
                return Err(Error::parameter("time of a --pulse", pulse.time_s, rule));
            }
            options.pulses.push(pulse);
        }
        for text in &self.signals.tone {
            options.tones.push(parse_tone(text, options.rms)?);
        }
        for text in &self.signals.gap {
            options.gaps.push(parse_gap(text, options)?);
        }
        Ok(())
    }
}

const WIDTH_S: f64 = 0.001;
const SNR: f64 = 20.0;

/// Parses a tone from `freq=1420.4,amp=0.1,...`; `rms` is the noise's.
fn parse_tone(text: &str, rms: f64) -> Result<Tone> {
    let names = ["freq", "amp", "counts", "phase", "ratio", "delta"];
    let fields = Fields::parse("--tone", text, &names)?;
    let amplitude = match (fields.get("amp"), fields.get("counts")) {
        (Some(_), Some(_)) => {
            let rule = "its strength is either amp (noise rms) or counts, not both";
            return Err(Error::parameter("--tone", text, rule));
        }
        (None, Some(counts)) => counts / rms,
        (amplitude, None) => amplitude.unwrap_or(1.0),
    };
    Ok(Tone {
        frequency_hz: fields.need("freq")? * HZ_PER_MHZ,
        amplitude,
        phase_rad: fields.or("phase", 0.0).to_radians(),
        second_ratio: fields.or("ratio", 1.0),
        second_phase_rad: fields.or("delta", 0.0).to_radians(),
    })
}

/// Parses a pulse from `dm=50,time=0.2,...`; a width of 0 is an impulse.
fn parse_pulse(text: &str) -> Result<Pulse> {
    let names = ["dm", "time", "width", "snr", "linear", "angle", "circular"];
    let fields = Fields::parse("--pulse", text, &names)?;
    let width_s = fields.or("width", WIDTH_S);
    let carrier = if width_s == 0.0 { Carrier::Impulse } else { Carrier::Noise { width_s } };
    Ok(Pulse {
        dm: fields.need("dm")?,
        time_s: fields.need("time")?,
        snr: fields.or("snr", SNR),
        carrier,
        polarization: Polarization {
            linear: fields.or("linear", 0.0),
            angle_rad: fields.or("angle", 0.0).to_radians(),
            circular: fields.or("circular", 0.0),
        },
    })
}

/// Parses a gap from `start=0.1,duration=0.02`: its first sample and length, both filling whole bytes.
fn parse_gap(text: &str, options: &Options) -> Result<(u64, u64)> {
    let fields = Fields::parse("--gap", text, &["start", "duration"])?;
    let (start, duration) = (fields.need("start")?, fields.need("duration")?);
    let end = options.times as f64 * options.tsamp_s();
    if !(start >= 0.0 && duration > 0.0 && start + duration <= end * (1.0 + 1e-9)) {
        let rule = format!("it must have a length and lie in the recording, 0 to {end} s");
        return Err(Error::parameter("--gap", text, rule));
    }
    let start = whole_samples(start, options).min(options.times);
    let times = whole_samples(duration, options).min(options.times - start);
    if times == 0 {
        let rule = format!("a sample lasts {:e} s", options.tsamp_s());
        return Err(Error::parameter("--gap", text, rule));
    }
    Ok((start, times))
}

/// Rounds a time to the nearest number of samples that fills whole bytes.
fn whole_samples(seconds: f64, options: &Options) -> u64 {
    let whole = options.encoding.group_samples() as u64;
    (seconds / options.tsamp_s() / whole as f64).round() as u64 * whole
}

/// Contents of OUT.truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    telescope: String,
    seed: u64,
    tsamp_s: f64,
    duration_s: f64,
    dm_constant: f64,
    /// Centre of the whole recorded band.
    centre_mhz: f64,
    bandwidth_mhz: f64,
    coarse_channels: usize,
    lower_sideband: bool,
    complex: bool,
    nbits: usize,
    antennas: usize,
    polarizations: usize,
    /// Root mean square of the noise in one real value, in counts.
    rms: f64,
    /// Pulses: the candidates that a search should find.
    candidates: Vec<Candidate>,
    tones: Vec<Line>,
    gaps: Vec<Gap>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Candidate {
    dm: f64,
    /// Centre of the pulse at `reference_mhz`, from the first sample's start.
    time_s: f64,
    snr: f64,
    width_s: f64,
    /// Upper edge of the whole recorded band: at a frequency f the pulse is later by `dm_constant dm (f^-2 -
    /// reference_mhz^-2)` seconds.
    reference_mhz: f64,
    /// Width of the boxcar that has this S/N.
    boxcar_s: f64,
    linear: f64,
    angle_deg: f64,
    circular: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    frequency_mhz: f64,
    /// Amplitude in units of the noise's rms.
    amplitude: f64,
    phase_deg: f64,
    second_ratio: f64,
    second_phase_deg: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Gap {
    start_s: f64,
    duration_s: f64,
}

impl Document {
    fn new(file: &Path, options: &Options, truth: &Truth) -> Self {
        let tsamp_s = options.tsamp_s();
        let width = options.channel_width_hz;
        let lowest = options.centres_hz.iter().copied().fold(f64::MAX, f64::min) - 0.5 * width;
        let gap = |(start, times): &(u64, u64)| Gap {
            start_s: *start as f64 * tsamp_s,
            duration_s: *times as f64 * tsamp_s,
        };
        Self {
            file: file.display().to_string(),
            telescope: options.telescope.clone(),
            seed: options.seed,
            tsamp_s,
            duration_s: options.times as f64 * tsamp_s,
            dm_constant: options.dm_constant,
            centre_mhz: 0.5 * (lowest + truth.reference_hz) / HZ_PER_MHZ,
            bandwidth_mhz: width * options.centres_hz.len() as f64 / HZ_PER_MHZ,
            coarse_channels: options.centres_hz.len(),
            lower_sideband: options.lower_sideband,
            complex: options.encoding.is_complex(),
            nbits: options.encoding.bits(),
            antennas: options.antennas,
            polarizations: options.polarizations,
            rms: options.rms,
            candidates: candidates(truth),
            tones: options.tones.iter().map(line).collect(),
            gaps: options.gaps.iter().map(gap).collect(),
        }
    }

    /// Summarizes the contents in a few words.
    fn contents(&self) -> String {
        list(&[
            (self.candidates.len(), "pulse", "pulses"),
            (self.tones.len(), "tone", "tones"),
            (self.gaps.len(), "gap", "gaps"),
        ])
    }
}

fn candidates(truth: &Truth) -> Vec<Candidate> {
    let candidate = |one: &PulseTruth| Candidate {
        dm: one.pulse.dm,
        time_s: one.pulse.time_s,
        snr: one.pulse.snr,
        width_s: one.width_s,
        reference_mhz: truth.reference_hz / HZ_PER_MHZ,
        boxcar_s: one.boxcar_s,
        linear: one.pulse.polarization.linear,
        angle_deg: one.pulse.polarization.angle_rad.to_degrees(),
        circular: one.pulse.polarization.circular,
    };
    truth.pulses.iter().map(candidate).collect()
}

fn line(tone: &Tone) -> Line {
    Line {
        frequency_mhz: tone.frequency_hz / HZ_PER_MHZ,
        amplitude: tone.amplitude,
        phase_deg: tone.phase_rad.to_degrees(),
        second_ratio: tone.second_ratio,
        second_phase_deg: tone.second_phase_rad.to_degrees(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_have_defaults_and_needs() {
        let found = parse_tone("freq=1420.4,counts=4,phase=90", 8.0).unwrap();
        assert_eq!((found.frequency_hz, found.amplitude), (1420.4e6, 0.5));
        assert!((found.phase_rad - std::f64::consts::FRAC_PI_2).abs() < 1e-12);
        assert!(
            parse_tone("amp=1", 8.0).is_err() && parse_tone("freq=1,amp=1,counts=1", 8.0).is_err()
        );
        let found = parse_pulse("dm=50,time=0.2").unwrap();
        assert_eq!((found.carrier, found.snr), (Carrier::Noise { width_s: WIDTH_S }, SNR));
        assert_eq!(parse_pulse("dm=50,time=0.2,width=0").unwrap().carrier, Carrier::Impulse);
        assert!(parse_pulse("dm=50").is_err() && parse_pulse("time=1").is_err());
    }

    #[test]
    fn gaps_are_whole_samples_of_the_recording() {
        let options = Options::new(1400e6, 1e6, 1, 1000);
        assert_eq!(parse_gap("start=1e-4,duration=5e-4", &options).unwrap(), (100, 500));
        assert!(parse_gap("start=1e-4,duration=9.1e-4", &options).is_err());
        assert!(parse_gap("start=-1e-4,duration=5e-4", &options).is_err());
        assert!(parse_gap("start=0,duration=1e-9", &options).is_err());
    }
}
