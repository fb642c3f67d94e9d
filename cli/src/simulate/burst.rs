//! `sidereal simulate burst`: makes a filterbank with noise, bursts, pulsars and interference.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::threads::Threads;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::{
    self, BroadInterference, Burst, NarrowInterference, Options, Pulsar, Simulator, Truth,
};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use super::product::{self, Output, conclude, list};
use crate::band::{BandArguments, Setup};
use crate::common::Common;
use crate::numbers::Fields;
use crate::output::Files;
use crate::progress::Progress;
use crate::sky::{Position, parse_position};
use crate::{interrupt, space};

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
#[command(
    after_help = EXAMPLES,
    mut_arg("out", |out| out.help("File to write; `-` is standard output, without a truth file"))
)]
pub(super) struct Arguments {
    #[command(flatten)]
    output: Output,
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
    signals: Signals,
    #[command(flatten)]
    interference: Interference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bandpass {
    /// Constant gain.
    Flat,
    /// Falls to a tenth at the band edges, with ripples of 5 %.
    Rippled,
}

/// Options of the injected signals.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Signals")]
struct Signals {
    /// DM of a burst, in pc cm^-3.
    #[arg(long, value_name = "DM", allow_negative_numbers = true)]
    dm: Option<f64>,
    /// Time of the burst, in seconds [default: a quarter of the length].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, requires = "dm")]
    time: Option<f64>,
    /// Width of the burst in seconds [default: 0.002].
    ///
    /// Full width at half maximum, before scattering and smearing.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, requires = "dm")]
    width: Option<f64>,
    /// S/N of the burst [default: 20].
    #[arg(long, value_name = "SNR", allow_negative_numbers = true, requires = "dm")]
    snr: Option<f64>,
    /// Scattering time of the burst at 1 GHz, in seconds; scales as frequency to the power -4 [default: 0].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, requires = "dm")]
    scatter: Option<f64>,
    /// Spectral index of the burst: brightness scales as frequency to this power [default: 0].
    #[arg(long, value_name = "INDEX", requires = "dm", allow_negative_numbers = true)]
    index: Option<f64>,
    /// Add a burst: dm=,time= and optionally width=,snr=,scatter=,index=; may be repeated.
    #[arg(long, value_name = "FIELDS")]
    burst: Vec<String>,
    /// Add a pulsar; may be repeated.
    ///
    /// period=,dm= and optionally width=,duty=,snr= (per pulse),time=,scatter=,index=.
    #[arg(long, value_name = "FIELDS")]
    pulsar: Vec<String>,
}

/// Options of the interference.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Interference")]
struct Interference {
    /// Add interference to this many channels: tones of varying strength.
    #[arg(long, value_name = "CHANNELS", allow_negative_numbers = true)]
    rfi_narrow: Option<usize>,
    /// Strength of these tones, in units of the channel's noise.
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, default_value_t = 3.0)]
    rfi_narrow_strength: f64,
    /// Add undispersed broadband impulses at this mean rate per second.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    rfi_broad: Option<f64>,
    /// S/N of each impulse.
    #[arg(long, value_name = "SNR", allow_negative_numbers = true, default_value_t = 20.0)]
    rfi_broad_snr: f64,
    /// Width of each impulse, in seconds.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 0.005)]
    rfi_broad_width: f64,
}

pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let out = arguments.output.path();
    let piped = out == Path::new("-");
    if piped && common.json {
        let rule = "standard output can't hold both the data and a JSON document";
        return Err(Error::parameter("--json", "given with OUT -", rule));
    }
    let files = (!piped).then(|| arguments.output.begin(common)).transpose()?;
    let setup = arguments.band.setup()?;
    let options = arguments.options(&setup)?;
    let threads = Threads::new(common.threads()?);
    let mut simulator = Simulator::new(options.clone())?.with_threads(threads);
    let document = Document::new(out, &options, arguments.position, simulator.truth());
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
    let product = product::product("simulate-burst", document, &[], common)?;
    conclude(files, &product, common, || {
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
        options.bursts = self.signals.single(self.duration)?.into_iter().collect();
        for spec in &self.signals.burst {
            options.bursts.push(parse_burst(spec)?);
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
        options.pulsars =
            self.signals.pulsar.iter().map(|s| parse_pulsar(s)).collect::<Result<_>>()?;
        let interference = &self.interference;
        let strength = interference.rfi_narrow_strength;
        options.narrow =
            interference.rfi_narrow.map(|channels| NarrowInterference { channels, strength });
        options.broad = interference.rfi_broad.map(|rate_hz| BroadInterference {
            rate_hz,
            snr: interference.rfi_broad_snr,
            width_s: interference.rfi_broad_width,
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

const WIDTH_S: f64 = 0.002;
const BURST_SNR: f64 = 20.0;
const PULSE_SNR: f64 = 5.0;
const DUTY: f64 = 0.05;

impl Signals {
    /// Returns the burst, if `--dm` was given.
    fn single(&self, duration_s: f64) -> Result<Option<Burst>> {
        let Some(dm) = self.dm else { return Ok(None) };
        let time_s = self.time.unwrap_or(0.25 * duration_s);
        if !time_s.is_finite() {
            return Err(Error::parameter("--time", time_s, "it must be finite"));
        }
        Ok(Some(Burst {
            dm,
            time_s,
            width_s: self.width.unwrap_or(WIDTH_S),
            snr: self.snr.unwrap_or(BURST_SNR),
            scatter_s: self.scatter.unwrap_or(0.0),
            spectral_index: self.index.unwrap_or(0.0),
        }))
    }
}

/// Parses a burst from `dm=500,time=3,...`.
fn parse_burst(text: &str) -> Result<Burst> {
    let names = ["dm", "time", "width", "snr", "scatter", "index"];
    let fields = Fields::parse("--burst", text, &names)?;
    Ok(Burst {
        dm: fields.need("dm")?,
        time_s: fields.need("time")?,
        width_s: fields.or("width", WIDTH_S),
        snr: fields.or("snr", BURST_SNR),
        scatter_s: fields.or("scatter", 0.0),
        spectral_index: fields.or("index", 0.0),
    })
}

/// Parses a pulsar from `period=0.089,dm=68,...`; its width is the given one, or follows from the duty cycle.
fn parse_pulsar(text: &str) -> Result<Pulsar> {
    let names = ["period", "dm", "width", "duty", "snr", "time", "scatter", "index"];
    let fields = Fields::parse("--pulsar", text, &names)?;
    let period_s = fields.need("period")?;
    Ok(Pulsar {
        period_s,
        dm: fields.need("dm")?,
        width_s: fields.or("width", fields.or("duty", DUTY) * period_s),
        snr: fields.or("snr", PULSE_SNR),
        time_s: fields.or("time", 0.5 * period_s),
        scatter_s: fields.or("scatter", 0.0),
        spectral_index: fields.or("index", 0.0),
    })
}

/// Contents of OUT.truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    telescope: String,
    ra_deg: f64,
    dec_deg: f64,
    seed: u64,
    tsamp_s: f64,
    duration_s: f64,
    dm_constant: f64,
    /// Bursts: the candidates that a search should find.
    candidates: Vec<Signal>,
    pulsars: Vec<Signal>,
    /// Channels with narrowband interference.
    narrow_channels: Vec<usize>,
    /// Interference impulses at DM 0.
    impulses: Vec<Impulse>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Signal {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
    /// Width of the boxcar that finds this S/N at the exact DM.
    boxcar_s: f64,
    scatter_s: f64,
    spectral_index: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_s: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Impulse {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
}

impl Document {
    fn new(file: &Path, options: &Options, position: Position, truth: &Truth) -> Self {
        let signal = |burst: &Burst, boxcar_s: f64, period_s: Option<f64>| Signal {
            dm: burst.dm,
            time_s: burst.time_s,
            snr: burst.snr,
            width_s: burst.width_s,
            boxcar_s,
            scatter_s: burst.scatter_s,
            spectral_index: burst.spectral_index,
            period_s,
        };
        let bursts = truth.bursts.iter().map(|one| signal(&one.burst, one.boxcar_s, None));
        let pulsars = truth
            .pulsars
            .iter()
            .map(|one| signal(&one.pulsar.burst(), one.boxcar_s, Some(one.pulsar.period_s)));
        let impulses = options.broad.iter().flat_map(|broad| {
            let times = truth.impulse_times_s.iter();
            times.map(|time_s| Impulse {
                dm: 0.0,
                time_s: *time_s,
                snr: broad.snr,
                width_s: broad.width_s,
            })
        });
        Self {
            file: file.display().to_string(),
            telescope: options.telescope.clone(),
            ra_deg: position.ra_deg,
            dec_deg: position.dec_deg,
            seed: options.seed,
            tsamp_s: options.tsamp_s,
            duration_s: options.times as f64 * options.tsamp_s,
            dm_constant: options.dm_constant,
            candidates: bursts.collect(),
            pulsars: pulsars.collect(),
            narrow_channels: truth.narrow_channels.clone(),
            impulses: impulses.collect(),
        }
    }

    /// Summarizes the contents in a few words.
    fn contents(&self) -> String {
        list(&[
            (self.candidates.len(), "burst", "bursts"),
            (self.pulsars.len(), "pulsar", "pulsars"),
            (self.narrow_channels.len(), "channel with a tone", "channels with a tone"),
            (self.impulses.len(), "impulse", "impulses"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_have_defaults_and_needs() {
        let burst = parse_burst("dm=500,time=3,index=-1.5").unwrap();
        assert_eq!((burst.dm, burst.width_s, burst.spectral_index), (500.0, WIDTH_S, -1.5));
        assert!(parse_burst("dm=500").is_err() && parse_burst("time=3").is_err());
        let pulsar = parse_pulsar("period=0.1,dm=68,duty=0.1").unwrap();
        assert!((pulsar.width_s - 0.01).abs() < 1e-12);
        assert!(parse_pulsar("dm=68").is_err());
    }
}
