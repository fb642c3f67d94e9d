//! `sidereal simulate burst`: makes a filterbank with noise, bursts, pulsars and interference.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use sidereal::backend::threads::Threads;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::sample::Encoding;
use sidereal::simulate::burst;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use super::specs::{self, Single};
use super::truth::Document;
use crate::band::{BandArguments, Setup};
use crate::common::Common;
use crate::direction::{Position, parse_position};
use crate::interrupt;
use crate::output::{Existing, Files, WritingFiles};
use crate::progress::Progress;
use crate::space;

/// Approximate number of bytes made at once.
const GULP_BYTES: usize = 4 << 20;

const EXAMPLES: &str = "Examples:\n  \
    sidereal simulate burst frb.fil --telescope askap --dm 500 --snr 30\n  \
    sidereal simulate burst two.fil --telescope parkes-superb-f --duration 20 --nbits 2 \\\n      \
    --burst dm=300,time=5,snr=15 --burst dm=560,time=9,width=0.004,scatter=0.01,index=-1.5\n  \
    sidereal simulate burst psr.fil --fch1 1500 --foff -1 --channels 300 --tsamp 256e-6 \\\n      \
    --pulsar period=0.089,dm=68,width=0.003,snr=8 --rfi-narrow 5 --bandpass rippled\n\n\
    A burst's time is that of its unscattered centre at the highest frequency; its tail at lower\n\
    frequencies follows by the dispersion delay. It is negative for a burst that began before the\n\
    recording. Its S/N is that of the best boxcar at the exact DM.\n\
    What was put in is written beside the file: frb.fil has frb.fil.truth.json.";

/// Make a filterbank (.fil): receiver noise with bursts, pulsars and interference.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// File to write; `-` is standard output, without a truth file.
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,
    /// Same as OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// Replace OUT and its truth file if they exist.
    #[arg(long)]
    overwrite: bool,
    /// Length in seconds.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 10.0)]
    duration: f64,
    /// Bits per sample: 1, 2, 4, 8, 16 or 32 (floats).
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, default_value_t = 8)]
    nbits: usize,
    /// Seed of the noise and everything else random; the same seed gives the same file.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Receiver gain across the band.
    ///
    /// It has no effect at 1, 2 and 4 bit, where channels are levelled.
    #[arg(long, value_enum, default_value_t = Bandpass::Flat)]
    bandpass: Bandpass,
    /// Dispersion constant, in s MHz^2 pc^-1 cm^3.
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = DM_CONSTANT)]
    dm_constant: f64,
    /// Pointing direction for the header: RA,DEC in degrees or as 05:34:31.9,22:00:52.
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true,
        default_value = "12:00:00,30:00:00"
    )]
    position: Position,
    #[command(flatten)]
    band: BandArguments,
    #[command(flatten)]
    single: Single,
    /// Add a burst: dm=,time= and optionally width=,snr=,scatter=,index=; may be repeated.
    #[arg(long, value_name = "FIELDS", help_heading = "Signals")]
    burst: Vec<String>,
    /// Add a pulsar; may be repeated.
    ///
    /// period=,dm= and optionally width=,duty=,snr= (per pulse),time=,scatter=,index=.
    #[arg(long, value_name = "FIELDS", help_heading = "Signals")]
    pulsar: Vec<String>,
    /// Add interference to this many channels: tones of varying strength.
    #[arg(
        long,
        value_name = "CHANNELS",
        allow_negative_numbers = true,
        help_heading = "Interference"
    )]
    rfi_narrow: Option<usize>,
    /// Strength of these tones, in units of the channel's noise.
    #[arg(
        long,
        value_name = "SIGMA",
        allow_negative_numbers = true,
        default_value_t = 3.0,
        help_heading = "Interference"
    )]
    rfi_narrow_strength: f64,
    /// Add undispersed broadband impulses at this mean rate per second.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, help_heading = "Interference")]
    rfi_broad: Option<f64>,
    /// S/N of each impulse.
    #[arg(
        long,
        value_name = "SNR",
        allow_negative_numbers = true,
        default_value_t = 20.0,
        help_heading = "Interference"
    )]
    rfi_broad_snr: f64,
    /// Width of each impulse, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        default_value_t = 0.005,
        help_heading = "Interference"
    )]
    rfi_broad_width: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bandpass {
    /// Constant gain.
    Flat,
    /// Falls to a tenth at the band edges, with ripples of 5 %.
    Rippled,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.out.as_ref().or(arguments.output.as_ref());
    let out = out.map_or(Path::new("-"), PathBuf::as_path);
    let piped = out == Path::new("-");
    if piped && common.json {
        let rule = "standard output can't hold both the data and a JSON document";
        return Err(Error::parameter("--json", "given with OUT -", rule));
    }
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "OUT", existing, inputs: &[], common };
    let files = (!piped).then(|| Files::begin(out, &[super::TRUTH], &writing)).transpose()?;
    let setup = arguments.band.setup()?;
    let options = arguments.options(&setup)?;
    let mut document = Document::new(out, &options, arguments.position);
    let threads = Threads::new(common.threads()?);
    let mut simulator = Simulator::new(options)?.with_threads(threads);
    document.fill(simulator.truth());
    let header = simulator.header();
    let need = header.times.unwrap_or(0).saturating_mul(header.row_bytes() as u64);
    if !piped {
        space::check(out, need, common)?;
    }
    let begun = Instant::now();
    let file = files.as_ref().map(Files::main);
    write(&mut simulator, arguments.position, file.as_deref(), common)?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let Some(files) = files else { return Ok(()) };
    let product = super::product("simulate-burst", document, &[], common)?;
    super::conclude(files, &product, common, || {
        summary(simulator.header(), out, elapsed_s, &product.document)
    })
}

fn summary(header: &FilterbankHeader, out: &Path, elapsed_s: f64, truth: &Document) -> String {
    let times = header.times.unwrap_or(0);
    let bytes = times as f64 * header.row_bytes() as f64;
    let samples = times as f64 * header.channels() as f64;
    format!(
        "{}: {:.1} s of {} channels, {} bit, {:.1} MB; {} made in {elapsed_s:.1} s ({:.0} Msamples/s)",
        out.display(),
        times as f64 * header.tsamp_s,
        header.channels(),
        header.encoding.bits(),
        bytes / 1e6,
        truth.contents(),
        samples / elapsed_s.max(1e-9) / 1e6,
    )
}

/// Writes a file, or to standard output.
fn write(
    simulator: &mut Simulator,
    Position { ra_deg, dec_deg }: Position,
    file: Option<&Path>,
    common: &Common,
) -> Result<()> {
    let (ra_deg, dec_deg) = (Some(ra_deg), Some(dec_deg));
    let header = FilterbankHeader { ra_deg, dec_deg, ..simulator.header().clone() };
    let mut writer = match file {
        None => FilterbankWriter::to_pipe(Box::new(std::io::stdout()), &header)?,
        Some(path) => FilterbankWriter::create(path, &header)?,
    };
    let progress = Progress::new(common, header.times, header.channels(), header.tsamp_s);
    let row_bytes = header.row_bytes();
    let mut rows = vec![0; (GULP_BYTES / row_bytes).max(1) * row_bytes];
    loop {
        interrupt::check()?;
        let times = simulator.read(&mut rows)?;
        if times == 0 {
            break;
        }
        writer.write(&rows[..times * row_bytes])?;
        progress.at(writer.rows());
    }
    progress.finish();
    writer.finish()
}

impl Arguments {
    fn options(&self, setup: &Setup) -> Result<Options> {
        if !(self.duration > 0.0 && self.duration.is_finite()) {
            let rule = "it must be a positive number of seconds";
            return Err(Error::parameter("--duration", self.duration, rule));
        }
        let times = (self.duration / setup.tsamp_s).round().max(1.0) as u64;
        let mut options = Options::new(setup.band.clone(), setup.tsamp_s, times);
        options.encoding = encoding(self.nbits)?;
        options.seed = self.seed;
        options.dm_constant = self.dm_constant;
        options.bandpass = match self.bandpass {
            Bandpass::Flat => burst::Bandpass::Flat,
            Bandpass::Rippled => burst::Bandpass::Rippled,
        };
        options.bursts = self.single.burst(self.duration)?.into_iter().collect();
        for spec in &self.burst {
            options.bursts.push(specs::burst(spec)?);
        }
        let (lowest, highest) = (options.band.lowest_hz(), options.band.highest_hz());
        let sweep_s =
            |burst: &Burst| dispersion_delay_s(burst.dm, lowest, highest, options.dm_constant);
        // A burst may have begun before the recording.
        let outside = |burst: &&Burst| !(-sweep_s(burst)..self.duration).contains(&burst.time_s);
        if let Some(burst) = options.bursts.iter().find(outside) {
            let rule = format!(
                "the recording lasts from 0 to {} s, and its sweep {:.3} s",
                self.duration,
                sweep_s(burst)
            );
            return Err(Error::parameter("time of a burst", burst.time_s, rule));
        }
        options.pulsars = self.pulsar.iter().map(|s| specs::pulsar(s)).collect::<Result<_>>()?;
        let strength = self.rfi_narrow_strength;
        options.narrow =
            self.rfi_narrow.map(|channels| burst::NarrowInterference { channels, strength });
        options.broad = self.rfi_broad.map(|rate_hz| burst::BroadInterference {
            rate_hz,
            snr: self.rfi_broad_snr,
            width_s: self.rfi_broad_width,
        });
        options.telescope = setup.telescope.map_or_else(String::new, |t| t.name.to_owned());
        Ok(options)
    }
}

fn encoding(bits: usize) -> Result<Encoding> {
    match bits {
        1 => Ok(Encoding::U1),
        2 => Ok(Encoding::U2),
        4 => Ok(Encoding::U4),
        8 => Ok(Encoding::U8),
        16 => Ok(Encoding::U16),
        32 => Ok(Encoding::F32),
        _ => Err(Error::parameter("--nbits", bits, "it must be 1, 2, 4, 8, 16 or 32")),
    }
}
