//! Dumps samples of VDIF and Mark 5B.
use sidereal::io::voltages::{VoltageOptions, mark5b, vdif};
use sidereal::voltage::voltage;
use std::io::Write;
use std::path::PathBuf;
fn main() {
    let mut args = std::env::args().skip(1);
    let mut files: Vec<PathBuf> = Vec::new();
    let mut options = VoltageOptions::default();
    let mut samples = None;
    while let Some(word) = args.next() {
        let mut next = || args.next().unwrap();
        match word.as_str() {
            "--samples" => samples = Some(next().parse::<usize>().unwrap()),
            "--sample-rate" => options.sample_rate_hz = Some(next().parse().unwrap()),
            "--freq" => options.centre_hz = Some(next().parse().unwrap()),
            "--mark5b-channels" => options.mark5b_channels = Some(next().parse().unwrap()),
            "--mark5b-bits" => options.mark5b_bits = Some(next().parse().unwrap()),
            "--mark5b-near-mjd" => options.mark5b_near_mjd = Some(next().parse().unwrap()),
            _ => files.push(word.into()),
        }
    }
    let m5b = std::fs::read(&files[0]).unwrap().starts_with(&[0xed, 0xde, 0xad, 0xab]);
    let opened = if m5b { mark5b::open(&files, &options) } else { vdif::open(&files, &options) };
    let mut source = match opened {
        Ok(source) => source,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1)
        }
    };
    let h = source.header().clone();
    eprintln!("{h:#?} {:?}", source.flags());
    let Some(samples) = samples else { return };
    let mut block = h.block(samples);
    let read = source.read(&mut block).unwrap();
    let mut out = std::io::stdout().lock();
    for stream in 0..h.streams() {
        for time in 0..read.min(samples) {
            let value = voltage(block.voltages().row(stream), h.encoding, time);
            out.write_all(&((value.re * h.scale) as f32).to_le_bytes()).unwrap();
            if h.encoding.is_complex() {
                out.write_all(&((value.im * h.scale) as f32).to_le_bytes()).unwrap();
            }
        }
    }
}
