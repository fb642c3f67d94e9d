//! Prints the contents of a file of templates or of a power spectrum as JSON, one object per line.
//!
//!     cargo run --release --example templates -- FILE [RATE_HZ]
//!     cargo run --release --example templates -- --psd|--asd FILE
//!     cargo run --release --example templates -- --design SPACING_HZ BINS
//!
//! A waveform has a name, a rate, its samples, the peak and the sample there; a binary its masses and spins; a spectrum
//! its spacing and all densities.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use sidereal::io::psd::{self, Density};
use sidereal::io::templates::{self, TemplateOptions, Templates};
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::{Error, Result};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--psd", path] => psd::read(Path::new(path), Density::Power).and_then(|psd| print(&psd)),
        ["--asd", path] => {
            psd::read(Path::new(path), Density::Amplitude).and_then(|psd| print(&psd))
        }
        ["--design", spacing, bins] => design(spacing, bins),
        [path] => read(path, TemplateOptions::default()),
        [path, rate] => {
            read(path, TemplateOptions { rate_hz: rate.parse().ok(), ..Default::default() })
        }
        _ => {
            eprintln!(
                "usage: templates FILE [RATE_HZ] | --psd FILE | --asd FILE | --design DF BINS"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("templates: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str, options: TemplateOptions) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let fault = |error| Error::io("-", error);
    match templates::open_with(Path::new(path), &options)? {
        Templates::Waveforms(waveforms) => {
            for wave in waveforms {
                let at = wave.samples[wave.peak];
                writeln!(
                    out,
                    r#"{{"name":{:?},"rate_hz":{},"samples":{},"peak":{},"plus":{:?},"cross":{:?},"distance_mpc":{:?}}}"#,
                    wave.name,
                    wave.rate_hz,
                    wave.samples.len(),
                    wave.peak,
                    at.re,
                    -at.im,
                    wave.distance_mpc
                )
                .map_err(fault)?;
            }
        }
        Templates::Binaries(binaries) => {
            for (name, b) in binaries {
                let numbers = [b.mass1_msun, b.mass2_msun, b.spin1z, b.spin2z];
                writeln!(out, r#"{{"name":{name:?},"binary":{numbers:?}}}"#).map_err(fault)?;
            }
        }
    }
    Ok(())
}

fn design(spacing: &str, bins: &str) -> Result<()> {
    let number = |word: &str| {
        word.parse::<f64>().map_err(|_| Error::parameter("argument", word, "it must be a number"))
    };
    print(&advanced_ligo(number(spacing)?, number(bins)? as usize)?)
}

fn print(spectrum: &PowerSpectrum) -> Result<()> {
    // JSON has no infinity.
    let text = |density: &f64| match density.is_finite() {
        true => format!("{density:e}"),
        false => "null".to_string(),
    };
    let densities: Vec<String> = spectrum.densities().iter().map(text).collect();
    let line = format!(
        r#"{{"spacing_hz":{:?},"densities":[{}]}}"#,
        spectrum.spacing_hz(),
        densities.join(",")
    );
    writeln!(std::io::stdout().lock(), "{line}").map_err(|error| Error::io("-", error))
}
