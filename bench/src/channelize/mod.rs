//! `bench channelize`: input samples per second through the polyphase filter bank.

mod arguments;
mod cases;
mod check;
mod measure;

use clap::ValueEnum as _;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::Table;
pub(crate) use arguments::{Arguments, Name};

const ABOUT: &str = "\
10^6 samples a second, complex or real as they come in, of all streams together (LOFAR's tables: 10^9
floating-point operations a second): the best and the median of all runs. Every run takes
buffers that are longer than the caches. Roof: copying as many bytes as go in and come out, with ordinary
stores, on as many threads (LOFAR's tables: the roofline, from that copy and from the arithmetic peak).
Baseline: rustfft's transforms alone, out of place over complex floats in the same memory, on one thread (two
cores: ours on one; --scipy: SciPy's rate). Roof, baseline and ours take turns. Outputs are compared with
sums in double precision first.";

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
    if !(16..=1 << 16).contains(&arguments.working_set) {
        return Err(Error::parameter(
            "--working-set",
            arguments.working_set,
            "it must be 16 to 65536 MiB",
        ));
    }
    if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
        return super::gpu::channelize::run(&gpu, arguments, session);
    }
    let threads = Threads::new(session.threads).count();
    let mut cases = Vec::new();
    for name in Name::value_variants() {
        if arguments.all || arguments.table.contains(name) {
            cases.extend(cases::cases(*name, threads));
        }
    }
    if let Some(path) = &arguments.scipy {
        cases.extend(cases::scipy(path)?);
    }
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let mut table = Table::new(session, arguments.csv.as_deref(), ABOUT)?;
    let mut memory = measure::Memory::new(arguments.working_set);
    for case in &cases {
        table.push(memory.measure(case, arguments.seconds)?)?;
    }
    table.finish()
}
