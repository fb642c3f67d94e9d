//! Corner turn and alignment: rates beside a copy of the same number of bytes.

mod align;
mod measure;

use std::time::Instant;

use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::correlate::{BlockBuffer, CornerTurn, Options, Plan, Rows, Spectra};
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8, ComplexF32};
use sidereal::voltage::Voltages;

use crate::table::Row;
pub(crate) use measure::{ROUNDS, encoding_name, random, row_of};

pub(super) const ABOUT: &str = "\
Corner turn: 10^9 bytes a second, read and written, from rows of spectra (or channelized streams) of antennas
with two polarizations to packed blocks: the best and the median of all runs. Roof: a copy of as many bytes
with ordinary stores. Baseline: the same turn without vector instructions; two threads: on one. Alignment: 10^6
samples a second of 8 spectra of 2 x 1024 complex floats that stay in the caches. Roof: a copy of as many bytes
there. Baseline: the same without vector instructions. Outputs are compared with the reference first.";

/// Bytes of a block, larger than any cache.
const BYTES: usize = 128 << 20;

/// Source of the spectra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Rows,
    Streams,
}

struct Case {
    name: String,
    options: Options,
    from: From,
    threads: usize,
}

/// Measures the corner turn and the alignment; `threads` is the largest number of threads to use.
///
/// # Errors
/// Those of both, and of `push`.
pub(super) fn rows(
    threads: usize,
    seconds: f64,
    only: Option<&str>,
    mut push: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let is_wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    for case in cases(threads).iter().filter(|case| is_wanted(&case.name)) {
        push(measure(case, seconds)?)?;
    }
    for case in align::cases().iter().filter(|case| is_wanted(&case.name)) {
        push(align::measure(case, seconds)?)?;
    }
    Ok(())
}

fn cases(threads: usize) -> Vec<Case> {
    let case = |antennas, channels, encoding, from, threads| {
        let encoding_name = encoding_name(encoding);
        let what = if from == From::Rows { "rows" } else { "streams" };
        let name = format!("turn {antennas} antennas x {channels}, {encoding_name}, {what}");
        let options = Options { antennas, polarizations: 2, channels, encoding };
        Case { name, options, from, threads }
    };
    let mut cases = Vec::new();
    for from in [From::Rows, From::Streams] {
        for encoding in [Complex8, Complex4, ComplexF32] {
            cases.push(case(64, 1024, encoding, from, 1));
        }
    }
    for (antennas, channels) in [(8, 1024), (32, 4096), (256, 256)] {
        cases.push(case(antennas, channels, Complex8, From::Rows, 1));
    }
    if threads > 1 {
        cases.push(case(64, 1024, Complex8, From::Rows, threads));
        cases.push(case(64, 1024, Complex8, From::Streams, threads));
    }
    cases
}

/// Runs the corner turn on all spectra; returns the elapsed seconds.
fn turn(case: &Case, turn: &mut CornerTurn, bytes: &[u8], buffer: &mut BlockBuffer) -> Result<f64> {
    let (plan, times) = (turn.plan().clone(), buffer.times());
    let began = Instant::now();
    match case.from {
        From::Rows => turn.run(Spectra::Rows(Rows { bytes, times, first: 0 }), buffer)?,
        From::Streams => {
            let (encoding, streams) = (plan.encoding(), plan.inputs() * plan.channels());
            let stride = encoding.bytes(times);
            turn.run(
                Spectra::Streams(Voltages::new(bytes, encoding, streams, stride, times)?),
                buffer,
            )?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let times = BYTES / plan.packed_bytes(2) * 2;
    let mut next = random();
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let bytes: Vec<u8> = (0..times * row / 8).flat_map(|_| next().to_le_bytes()).collect();
    let mut buffer = BlockBuffer::new(&plan, times);
    buffer.set_times(times)?;
    let (threads, one) = (Threads::new(case.threads), Threads::new(1));
    let backend = Backend::Cpu(Level::best(), threads.clone());
    let plain = if case.threads > 1 { Level::best() } else { Level::Portable };
    let mut ours = CornerTurn::new(plan.clone(), &backend);
    let mut other = CornerTurn::new(plan.clone(), &Backend::Cpu(plain, one));

    turn(case, &mut ours, &bytes, &mut buffer)?;
    let mut copy = buffer.block().bytes().to_vec();
    let mut reference = CornerTurn::new(plan.clone(), &Backend::Reference);
    turn(case, &mut reference, &bytes, &mut buffer)?;
    let checked = copy == buffer.block().bytes();

    let moved = 2e-9 * bytes.len() as f64;
    let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while rates.len() < ROUNDS || start.elapsed().as_secs_f64() < seconds {
        roofs.push(1e-9 * roof::copy(&bytes, &mut copy[..bytes.len()], &threads));
        baselines.push(moved / turn(case, &mut other, &bytes, &mut buffer)?);
        rates.push(moved / turn(case, &mut ours, &bytes, &mut buffer)?);
    }
    Ok(row_of(&case.name, (&backend, "GB/s"), checked, [rates, roofs, baselines]))
}
