//! `bench correlate`: operations per second of the X-engine.

mod arguments;
mod cases;
mod check;
mod cherk;
mod measure;
mod turn;
mod whole;

use cherk::Cherk;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::Table;
pub(crate) use arguments::{Arguments, Name};

const ABOUT: &str = "\
10^9 operations a second of antennas with two polarizations (n inputs): 8 for a complex multiply-add, n (n + 1) / 2
sums over 1024 samples, from packed spectra to sums that stay in the X-engine: the best and the median of all
runs, over blocks of 32 MiB (8 bit) and more. Integration: as many samples in all, each integration read out.
Bandwidth: kHz of each polarization that the threads keep up with. Roof: multiply-adds of the same kind with
operands in registers. Baseline: cherk of complex floats on one thread (--scipy), or else our plain loops; two
threads: ours on one. Roof, baseline and ours take turns. Sums are compared with sums of single products first.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    if session.is_reference() {
        let rule = "the reference is too slow to be measured; leave --device out";
        return Err(Error::parameter("--device", "reference", rule));
    }
    if !arguments.seconds.is_finite() || arguments.seconds < 0.0 {
        let rule = "it must be finite and not negative";
        return Err(Error::parameter("--seconds", arguments.seconds, rule));
    }
    if arguments.turn {
        let mut table = Table::new(session, arguments.csv.as_deref(), turn::ABOUT)?;
        let (threads, only) = (Threads::new(session.threads).count(), arguments.only.as_deref());
        turn::rows(threads, arguments.seconds, only, |row| table.push(row))?;
        return table.finish();
    }
    if arguments.whole {
        if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
            return super::gpu::correlate_whole::run(&gpu, arguments.csv.as_deref(), session);
        }
        return whole::run(session, (arguments.csv.clone(), arguments.seconds));
    }
    if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
        return super::gpu::correlate::run(&gpu, arguments, session);
    }
    let threads = Threads::new(session.threads).count();
    let cases = cases::chosen(arguments.tables(), threads, arguments.only.as_deref())?;
    let mut cherk = arguments.scipy.as_deref().map(Cherk::start).transpose()?;
    let mut table = Table::new(session, arguments.csv.as_deref(), ABOUT)?;
    for case in &cases {
        table.push(measure::measure(case, cherk.as_mut(), arguments.seconds)?)?;
    }
    table.finish()
}
