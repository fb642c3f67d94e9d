//! Correlates a file of spectra of many antennas: sums and counts of valid samples, as raw little-endian
//! numbers.
//!
//!     cargo run --release --example correlate -- SPECTRA OUTPUT antennas=64 polarizations=2 channels=12
//!
//! OUTPUT receives the sums, axes channel, baseline, polarization pair, as (real, imaginary) of 64 bits each
//! (integers, or floats for `encoding=complexf32`), then the counts, axes channel, baseline, of 64 bits.
//!
//! Further words: `encoding=complex8` (or `complex4`, `complexf32`), `order=rows` (axes antenna, polarization, time,
//! channel; `streams`: antenna, channel, polarization, time; `packed`: consecutive packed blocks), `block=TIMES`
//! (spectra per block), `mask=FILE` (bytes, 0 for a missing sample; axes channel, antenna, time), `repeat=N` (repeats
//! the whole file), `threads=N`, `level=avx2` (or another level that `correlate levels` prints).

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::correlate::{
    Block, BlockBuffer, CornerTurn, Correlator, Options, Output, Plan, Rows, Spectra,
};
use sidereal::voltage::{VoltageEncoding, Voltages};

/// `key=value` words of the command line.
struct Words(Vec<(String, String)>);

impl Words {
    fn text(&self, key: &str, default: &'static str) -> &str {
        let mut found = self.0.iter().filter(|(name, _)| name == key);
        found.next_back().map_or(default, |(_, value)| value)
    }

    fn count(&self, key: &str, default: &'static str) -> Result<usize, String> {
        let value = self.text(key, default);
        value.parse().map_err(|_| format!("{key}={value} is not a whole number"))
    }

    fn encoding(&self) -> Result<VoltageEncoding, String> {
        let value = self.text("encoding", "complex8");
        let is = |one: &&VoltageEncoding| format!("{one:?}").eq_ignore_ascii_case(value);
        let found = VoltageEncoding::ALL.iter().find(is).copied();
        found.ok_or_else(|| format!("encoding={value}: there are {:?}", VoltageEncoding::ALL))
    }

    /// Returns the backend of a level, or the best one.
    fn backend(&self) -> Result<Backend, Box<dyn Error>> {
        let (level, threads) = (self.text("level", ""), self.count("threads", "0")?);
        if level.is_empty() {
            return Ok(Backend::best(threads));
        }
        let mut all = Backend::available(threads).into_iter();
        let found = all.find(|backend| name(backend) == level);
        found.ok_or_else(|| format!("level={level}: this machine does not have it").into())
    }
}

/// Returns the level of a backend.
fn name(backend: &Backend) -> String {
    let name = backend.name();
    name.split(' ').nth(1).unwrap_or(&name).to_owned()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["levels"] {
        let names: String = Backend::available(1).iter().map(|b| name(b) + "\n").collect();
        return match std::io::stdout().write_all(names.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let [input, output, rest @ ..] = words.as_slice() else {
        eprintln!("usage: correlate SPECTRA OUTPUT antennas=64 polarizations=2 channels=12 ...");
        return ExitCode::from(2);
    };
    let pair = |word: &String| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.to_owned(), value.to_owned())
    };
    match correlate(input, output, &Words(rest.iter().map(pair).collect())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("correlate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn correlate(input: &str, output: &str, words: &Words) -> Result<(), Box<dyn Error>> {
    let plan = Plan::new(Options {
        antennas: words.count("antennas", "")?,
        polarizations: words.count("polarizations", "1")?,
        channels: words.count("channels", "1")?,
        encoding: words.encoding()?,
    })?;
    let bytes = fs::read(input)?;
    let times = times(&plan, bytes.len(), words)?;
    let mask = match words.text("mask", "") {
        "" => None,
        path => Some(fs::read(path)?),
    };
    if mask.as_ref().is_some_and(|mask| mask.len() != plan.channels() * plan.antennas() * times) {
        return Err(format!("the mask must have a byte for each of {times} times").into());
    }
    let backend = words.backend()?;
    let mut correlator = Correlator::new(plan.clone(), &backend)?;
    let block = words.count("block", "4096")?.clamp(1, times.max(1));
    let mut filler = Filler {
        turn: CornerTurn::new(plan.clone(), &backend),
        order: words.text("order", "rows"),
        buffer: BlockBuffer::new(&plan, block),
        bytes: &bytes,
        times,
    };
    for _ in 0..words.count("repeat", "1")? {
        for first in (0..times).step_by(block) {
            filler.fill(first, block.min(times - first))?;
            if let Some(mask) = &mask {
                mark(mask, times, first, &mut filler.buffer);
            }
            correlator.run(filler.buffer.block())?;
        }
    }
    write(&mut correlator, output)
}

/// Returns the number of spectra in a file of the given number of bytes.
fn times(plan: &Plan, bytes: usize, words: &Words) -> Result<usize, Box<dyn Error>> {
    if words.text("order", "rows") != "packed" {
        let size = plan.encoding().sample_bits() / 8;
        return Ok(bytes / (plan.inputs() * plan.channels() * size));
    }
    // The last block may be shorter, and its last pair of times half empty.
    let times = words.count("times", "")?;
    let block = words.count("block", "4096")?.max(1);
    let rest = plan.packed_bytes(times % block);
    if bytes != times / block * plan.packed_bytes(block) + rest {
        return Err(format!("{bytes} bytes are not {times} packed spectra").into());
    }
    Ok(times)
}

/// Fills blocks from a file.
struct Filler<'a> {
    turn: CornerTurn,
    order: &'a str,
    buffer: BlockBuffer,
    bytes: &'a [u8],
    times: usize,
}

impl Filler<'_> {
    fn fill(&mut self, first: usize, times: usize) -> Result<(), Box<dyn Error>> {
        self.buffer.set_times(times)?;
        let plan = self.turn.plan();
        match self.order {
            "rows" => {
                let rows = Rows { bytes: self.bytes, times: self.times, first };
                self.turn.run(Spectra::Rows(rows), &mut self.buffer)?;
            }
            "streams" => {
                let (encoding, streams) = (plan.encoding(), plan.inputs() * plan.channels());
                let stride = encoding.bytes(self.times);
                let all = Voltages::new(self.bytes, encoding, streams, stride, self.times)?;
                self.turn.run(Spectra::Streams(all.slice(first, times)?), &mut self.buffer)?;
            }
            "packed" => {
                let blocks = first / self.buffer.capacity();
                let start = blocks * plan.packed_bytes(self.buffer.capacity());
                let bytes = &self.bytes[start..start + plan.packed_bytes(times)];
                // Checks the length of the bytes; the copy below does not use the borrowed block.
                Block::new(plan, bytes, times, None)?;
                self.buffer.bytes_mut().copy_from_slice(bytes);
            }
            other => return Err(format!("order={other}: there are rows, streams, packed").into()),
        }
        Ok(())
    }
}

/// Sets a block's mask.
fn mark(mask: &[u8], times: usize, first: usize, buffer: &mut BlockBuffer) {
    let count = buffer.times();
    let words = Plan::mask_words(count);
    for (row, bits) in mask.chunks_exact(times).zip(buffer.mask_mut().chunks_exact_mut(words)) {
        bits.fill(0);
        for (time, valid) in row[first..first + count].iter().enumerate() {
            bits[time / 64] |= u64::from(*valid != 0) << (time % 64);
        }
    }
}

fn write(correlator: &mut Correlator, output: &str) -> Result<(), Box<dyn Error>> {
    let plan = correlator.plan().clone();
    let mut file = BufWriter::new(File::create(output)?);
    let mut counts = vec![0u64; plan.channels() * plan.baselines()];
    let elements = plan.channels() * plan.row_elements();
    if plan.encoding() == VoltageEncoding::ComplexF32 {
        let mut sums = vec![Complex::new(0.0f64, 0.0); elements];
        correlator.read(0..plan.channels(), Output::Float(&mut sums), &mut counts)?;
        file.write_all(bytemuck::cast_slice(&sums))?;
    } else {
        let mut sums = vec![Complex::new(0i64, 0); elements];
        correlator.read(0..plan.channels(), Output::Integer(&mut sums), &mut counts)?;
        for sum in sums {
            file.write_all(bytemuck::bytes_of(&[sum.re, sum.im]))?;
        }
    }
    file.write_all(bytemuck::cast_slice(&counts))?;
    file.flush()?;
    Ok(())
}
