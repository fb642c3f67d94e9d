//! Reads recorded strain and writes it, its spectrum or the whitened strain, for comparison with other programs.
//!
//!     cargo run --release --example strain -- read INPUT OUTPUT [BITS [CHANNEL]]
//!     cargo run --release --example strain -- welch INPUT OUTPUT
//!     cargo run --release --example strain -- whiten INPUT OUTPUT overlap|minimum
//!
//! `read` writes samples (f64) and then their flags (a byte each); BITS are names of data-quality bits, with commas;
//! CHANNEL is one of a frame file's or of gwpy's HDF5.
//! `welch` writes the densities (f64) of 4 s segments, `whiten` the whitened samples (f32). All are little endian.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use sidereal::io::strain::{OpenOptions, open};
use sidereal::spiir::whiten::{Options, Psd, WelchOptions, Whitener, welch};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["read", input, output] => read(input, output, None, None),
        ["read", input, output, bits] => read(input, output, Some(bits), None),
        ["read", input, output, bits, channel] => read(input, output, Some(bits), Some(channel)),
        ["welch", input, output] => spectrum(input, output),
        ["whiten", input, output, "overlap"] => whiten(input, output, Options::new),
        ["whiten", input, output, "minimum"] => whiten(input, output, Options::low_latency),
        _ => {
            eprintln!("usage: strain read|welch|whiten INPUT OUTPUT [BITS|overlap|minimum]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// All samples of a recording, its flags and its rate.
fn load(
    input: &str,
    bits: Option<&str>,
    channel: Option<&str>,
) -> Outcome<(Vec<f64>, Vec<bool>, u32)> {
    let names = |bits: &str| bits.split_terminator(',').map(str::to_string).collect();
    let (required_quality, channel) = (bits.map(names), channel.map(str::to_string));
    let options = OpenOptions { required_quality, channel, ..OpenOptions::default() };
    let mut source = open(Path::new(input), &options)?;
    let times = source.header().times.unwrap_or(0) as usize;
    let (mut samples, mut valid) = (vec![0.0; times], vec![false; times]);
    let mut done = 0;
    while done < times {
        done += source.read(&mut samples[done..], &mut valid[done..])?;
    }
    Ok((samples, valid, source.header().rate_hz))
}

fn read(input: &str, output: &str, bits: Option<&str>, channel: Option<&str>) -> Outcome {
    let (samples, valid, _) = load(input, bits, channel)?;
    let mut bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    bytes.extend(valid.iter().map(|valid| u8::from(*valid)));
    Ok(std::fs::write(output, bytes)?)
}

fn spectrum(input: &str, output: &str) -> Outcome {
    let (samples, valid, rate_hz) = load(input, None, None)?;
    let found = welch(&samples, &valid, rate_hz, &WelchOptions::default())?;
    let bytes: Vec<u8> =
        found.densities().iter().flat_map(|density| density.to_le_bytes()).collect();
    Ok(std::fs::write(output, bytes)?)
}

fn whiten(input: &str, output: &str, base: fn(u32, Psd) -> Options) -> Outcome {
    let (samples, valid, rate_hz) = load(input, None, None)?;
    let found = welch(&samples, &valid, rate_hz, &WelchOptions::default())?;
    let mut whitener = Whitener::new(base(rate_hz, Psd::Fixed(found)))?;
    let (mut whitened, mut flags) = (vec![0.0_f32; samples.len()], vec![false; samples.len()]);
    let first = whitener.run(&samples, &valid, &mut whitened, &mut flags)?.produced;
    whitener.flush(&mut whitened[first..], &mut flags[first..])?;
    let bytes: Vec<u8> = whitened.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Ok(std::fs::write(output, bytes)?)
}
