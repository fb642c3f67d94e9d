//! `bench spiir`: filter samples per second of the bank of recursive filters.

pub(super) mod accuracy;
mod arguments;
pub mod bank;
mod cases;
mod fourier;
pub(super) mod measure;
mod whole;

use clap::ValueEnum as _;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::Table;
pub(crate) use arguments::{Arguments, Name};

const ABOUT: &str = "\
10^9 operations a second, 12 for each filter and sample of its own rate: the best and the median of all runs.
Templates have the filters that a chirp asks for (0.02 cycles of error each), at 4096 Hz. Roof: the direct form's,
12/16 of the multiply-adds with operands in registers, on as many threads. Baseline: a plain loop over one filter
after another on one thread, without vector instructions (two threads: ours on one; rates: 10^6 template samples a
second, beside all filters at one rate; silence: beside noise). Roof, baseline and ours take turns. Some
templates are compared with the sums in double precision first. Accuracy: the largest error in an hour, in 10^-6 of
the output's root mean square, beside what is allowed (as roof) and the root mean square error (as baseline).";

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
    if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
        return super::gpu::spiir::run(&gpu, arguments, session);
    }
    let threads = Threads::new(session.threads).count();
    let names = if arguments.all { Name::value_variants() } else { &arguments.table };
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part));
    let mut table = Table::new(session, arguments.csv.as_deref(), ABOUT)?;
    let mut found = false;
    for name in names {
        for case in cases::cases(*name, threads).iter().filter(|case| wanted(&case.name)) {
            table.push(measure::measure(case, arguments.seconds)?)?;
            found = true;
        }
        found |= match name {
            Name::Fourier => {
                fourier::run(&mut table, arguments.seconds, &wanted, arguments.plot.as_deref())?
            }
            Name::Binaries => fourier::binaries(&mut table, arguments.seconds, &wanted)?,
            Name::Whole if wanted("the whole search") => {
                whole::run(&mut table, arguments.length, session.threads)?;
                true
            }
            _ => false,
        };
        if *name == Name::Accuracy {
            for case in accuracy::CASES.iter().filter(|case| wanted(case.name)) {
                let backend = Backend::Cpu(Level::best(), Threads::new(1));
                table.push(accuracy::measure(case, &backend, false)?)?;
                found = true;
            }
        }
    }
    if !found {
        let part = arguments.only.as_deref().unwrap_or_default();
        return Err(Error::parameter("--only", part, "no case's name contains it"));
    }
    table.finish()
}
