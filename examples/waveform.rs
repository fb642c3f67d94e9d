//! Writes the wave of a binary at 1 Mpc: `h_plus` and `h_cross` of each sample, as little-endian doubles.
//!
//!     cargo run --release --example waveform -- MASS1 MASS2 SPIN1Z SPIN2Z APPROXIMANT F_LOW_HZ RATE_HZ RISE END \
//!         AMPLITUDE OUT
//!
//! APPROXIMANT is T4, T2 or IMRPhenomD, RISE a number of cycles, END one of customary, isco and energy, AMPLITUDE
//! customary or leading.

use std::process::ExitCode;

use sidereal::strain::Binary;
use sidereal::waveform::{Amplitude, Approximant, End, InspiralOptions, inspiral};
use sidereal::{Error, Result};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.len() != 11 {
        eprintln!(
            "usage: waveform MASS1 MASS2 SPIN1Z SPIN2Z T4|T2|IMRPhenomD F_LOW_HZ RATE_HZ RISE END AMPLITUDE OUT"
        );
        return ExitCode::from(2);
    }
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("waveform: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let number = |index: usize| {
        let word = &words[index];
        word.parse::<f64>().map_err(|_| Error::parameter("argument", word, "it must be a number"))
    };
    let binary = Binary {
        mass1_msun: number(0)?,
        mass2_msun: number(1)?,
        spin1z: number(2)?,
        spin2z: number(3)?,
    };
    let options = InspiralOptions {
        approximant: match words[4].as_str() {
            "T2" => Approximant::TaylorT2,
            "IMRPhenomD" => Approximant::IMRPhenomD,
            _ => Approximant::TaylorT4,
        },
        f_low_hz: number(5)?,
        rate_hz: number(6)? as u32,
        distance_mpc: 1.0,
        fade_in_cycles: number(7)?,
        end: match words[8].as_str() {
            "isco" => End::Isco,
            "energy" => End::MinimumEnergy,
            _ => End::Customary,
        },
        amplitude: match words[9].as_str() {
            "leading" => Amplitude::Leading,
            _ => Amplitude::Customary,
        },
        ..InspiralOptions::default()
    };
    let wave = inspiral(&binary, &options)?;
    let bytes: Vec<u8> =
        wave.samples.iter().flat_map(|h| [h.re, -h.im]).flat_map(f64::to_le_bytes).collect();
    std::fs::write(&words[10], bytes).map_err(|error| Error::io(&words[10], error))
}
