//! Signal-to-noise ratios of a template in strain, as raw little-endian numbers (real, imaginary) of 64 bits.
//!
//!     cargo run --release --example matched -- STRAIN.npy TEMPLATE.npy PSD.npy OUTPUT rate=4096 f_low=20
//!
//! TEMPLATE has a row for each polarization, plus and cross; PSD is one-sided, from 0 Hz to Nyquist's frequency.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use num_complex::Complex64;
use sidereal::io::npy;
use sidereal::math::PowerSpectrum;
use sidereal::spiir::{Band, matched_filter};
use sidereal::strain::Waveform;

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [strain, template, psd, output, words @ ..] = arguments else {
        return Err("expected STRAIN.npy TEMPLATE.npy PSD.npy OUTPUT [rate=HZ] [f_low=HZ]".into());
    };
    let number = |key: &str, default: f64| {
        let mut found = words.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        found.next().map_or(Ok(default), str::parse)
    };
    let (rate_hz, low_hz) = (number("rate", 4096.0)?, number("f_low", 20.0)?);
    let strain = npy::read(Path::new(strain))?.values;
    let template = npy::read(Path::new(template))?;
    let (plus, cross) = template.values.split_at(template.values.len() / 2);
    let samples = plus.iter().zip(cross).map(|(plus, cross)| Complex64::new(*plus, -cross));
    let template = Waveform::new("template", None, rate_hz as u32, samples.collect(), 1.0)?;
    let densities = npy::read(Path::new(psd))?.values;
    let spacing_hz = rate_hz / 2.0 / (densities.len() - 1) as f64;
    let psd = PowerSpectrum::new(spacing_hz, densities)?;
    let z = matched_filter(&strain, &template, &psd, Band::above(low_hz))?;
    let bytes = z.iter().flat_map(|z| [z.re, z.im]).flat_map(f64::to_le_bytes);
    std::fs::write(output, bytes.collect::<Vec<u8>>())?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("matched: {error}");
            ExitCode::FAILURE
        }
    }
}
