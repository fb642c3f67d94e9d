//! Prints the headers of recorded voltages, writes their samples, or copies them.
//!
//!     cargo run --release --example voltages -- INPUT...
//!     cargo run --release --example voltages -- INPUT... --samples N > SAMPLES
//!     cargo run --release --example voltages -- INPUT... --write guppi|dada|vdif OUTPUT
//!
//! The header and the flags are printed as JSON. `--samples N` writes the first N samples of every stream to standard
//! output (0: all): axes stream, time; complex64 for complex samples, f32 for real ones, little endian. More options:
//! `--skip N` skips samples first, `--gulp N` reads N samples at a time; `--rate HZ`, `--centre HZ` and `--mark5b
//! CHANNELS BITS MJD` supply values that a recording lacks; for GUPPI raw `--block TIMES`, `--overlap TIMES`,
//! `--directio`, `--per-file BLOCKS`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sidereal::io::voltages::{self, VoltageOptions, VoltageSource, dada, guppi, vdif};
use sidereal::voltage::{Voltages, voltage};
use sidereal::{Error, Result};

/// Settings from the command line.
struct Arguments {
    inputs: Vec<PathBuf>,
    samples: Option<u64>,
    write: Option<(String, PathBuf)>,
    skip: u64,
    gulp: usize,
    options: VoltageOptions,
    writer: guppi::WriterOptions,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("usage: voltages INPUT... [--samples N | --write guppi|dada|vdif OUTPUT]");
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("voltages: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let options = VoltageOptions::default();
    let writer = guppi::WriterOptions::default();
    let (inputs, skip, gulp) = (Vec::new(), 0, 4096);
    let mut found = Arguments { inputs, samples: None, write: None, skip, gulp, options, writer };
    while let Some(word) = words.next() {
        let mut next = || words.next();
        match word.as_str() {
            "--samples" => found.samples = Some(next()?.parse().ok()?),
            "--write" => found.write = Some((next()?, next()?.into())),
            "--skip" => found.skip = next()?.parse().ok()?,
            "--gulp" => found.gulp = next()?.parse().ok()?,
            "--rate" => found.options.sample_rate_hz = Some(next()?.parse().ok()?),
            "--centre" => found.options.centre_hz = Some(next()?.parse().ok()?),
            "--mark5b" => {
                found.options.mark5b_channels = Some(next()?.parse().ok()?);
                found.options.mark5b_bits = Some(next()?.parse().ok()?);
                found.options.mark5b_near_mjd = Some(next()?.parse().ok()?);
            }
            "--block" => found.writer.block_times = Some(next()?.parse().ok()?),
            "--overlap" => found.writer.overlap = next()?.parse().ok()?,
            "--directio" => found.writer.directio = true,
            "--per-file" => found.writer.blocks_per_file = Some(next()?.parse().ok()?),
            _ if word.starts_with("--") => return None,
            _ => found.inputs.push(word.into()),
        }
    }
    (!found.inputs.is_empty()).then_some(found)
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut source = voltages::open(&arguments.inputs, &arguments.options)?;
    source.skip(arguments.skip)?;
    match (&arguments.write, arguments.samples) {
        (Some((format, output)), _) => copy(source.as_mut(), arguments, format, output),
        (None, Some(samples)) => write_samples(source.as_mut(), arguments.gulp, samples),
        (None, None) => {
            let text = describe(source.as_ref());
            writeln!(std::io::stdout(), "{text}").map_err(|error| Error::io("-", error))
        }
    }
}

/// Copies a recording into a format, with zeros in its gaps.
fn copy(
    source: &mut dyn VoltageSource,
    arguments: &Arguments,
    format: &str,
    output: &Path,
) -> Result<()> {
    let mut header = source.header().clone();
    header.start = header.start.plus_s(arguments.skip as f64 * header.tsamp_s);
    header.times = header.times.map(|times| times.saturating_sub(arguments.skip));
    match format {
        "guppi" => {
            let mut writer = guppi::Writer::create(output, &header, &arguments.writer)?;
            each_gulp(source, arguments.gulp, |voltages| writer.write(voltages).map(|()| true))?;
            writer.finish()
        }
        "dada" => {
            let mut writer = dada::Writer::create(output, &header)?;
            each_gulp(source, arguments.gulp, |voltages| writer.write(voltages).map(|()| true))?;
            writer.finish()
        }
        "vdif" => {
            let mut writer = vdif::Writer::create(output, &header)?;
            each_gulp(source, arguments.gulp, |voltages| writer.write(voltages).map(|()| true))?;
            writer.finish()
        }
        _ => Err(Error::parameter("--write", format, "it must be guppi, dada or vdif")),
    }
}

/// Calls `take` with each gulp.
fn each_gulp(
    source: &mut dyn VoltageSource,
    gulp: usize,
    mut take: impl FnMut(Voltages<'_>) -> Result<bool>,
) -> Result<()> {
    let mut block = source.header().block(gulp);
    loop {
        let times = source.read(&mut block)?;
        if !take(block.voltages())? || times < block.capacity() {
            return Ok(());
        }
    }
}

fn write_samples(source: &mut dyn VoltageSource, gulp: usize, samples: u64) -> Result<()> {
    let complex = source.header().encoding.is_complex();
    let mut rows = vec![Vec::new(); source.header().streams()];
    let mut left = if samples == 0 { u64::MAX } else { samples };
    each_gulp(source, gulp, |voltages| {
        let times = left.min(voltages.times() as u64);
        for (stream, row) in rows.iter_mut().enumerate() {
            let bytes = voltages.row(stream);
            for time in 0..times as usize {
                let value = voltage(bytes, voltages.encoding(), time);
                row.extend((value.re as f32).to_le_bytes());
                if complex {
                    row.extend((value.im as f32).to_le_bytes());
                }
            }
        }
        left -= times;
        Ok(left > 0)
    })?;
    let mut out = std::io::stdout().lock();
    let written = rows.iter().try_for_each(|row| out.write_all(row)).and_then(|()| out.flush());
    written.map_err(|error| Error::io("-", error))
}

fn describe(source: &dyn VoltageSource) -> String {
    let header = source.header();
    let or_null = |number: Option<f64>| number.map_or("null".to_string(), |n| format!("{n:?}"));
    let flags: Vec<String> = source
        .flags()
        .iter()
        .map(|f| format!("[{}, {}, {}, {}]", f.streams.start, f.streams.end, f.start, f.times))
        .collect();
    let filter = header.filter.as_ref().map_or("null".to_string(), |filter| {
        let (above, below) = filter.oversampling;
        format!(
            "{{\"channels\": {}, \"taps\": {}, \"window\": {:?}, \"oversampling\": [{above}, {below}]}}",
            filter.channels, filter.taps, filter.window
        )
    });
    let fields = [
        ("path", format!("{:?}", header.path.display().to_string())),
        ("format", format!("{:?}", header.format)),
        ("source_name", format!("{:?}", header.source_name)),
        ("telescope", format!("{:?}", header.telescope)),
        ("ra_deg", or_null(header.ra_deg)),
        ("dec_deg", or_null(header.dec_deg)),
        ("start_mjd_day", header.start.day.to_string()),
        ("start_s", format!("{:?}", header.start.seconds)),
        ("tsamp_s", format!("{:?}", header.tsamp_s)),
        ("centres_hz", format!("{:?}", header.centres_hz)),
        ("lower_sideband", header.lower_sideband.to_string()),
        ("encoding", format!("\"{:?}\"", header.encoding)),
        ("scale", format!("{:?}", header.scale)),
        ("recorded_bits", header.recorded_bits.to_string()),
        ("antennas", header.antennas.to_string()),
        ("channels", header.coarse_channels().to_string()),
        ("polarizations", header.polarizations.to_string()),
        ("circular", header.circular.map_or("null".to_string(), |c| c.to_string())),
        ("times", header.times.map_or("null".to_string(), |times| times.to_string())),
        ("filter", filter),
        ("flags", format!("[{}]", flags.join(", "))),
    ];
    let lines: Vec<String> = fields.iter().map(|(key, v)| format!("  \"{key}\": {v}")).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}
