//! `sidereal bench injections`: injects binaries of known masses, sky positions and signal-to-noise ratios into
//! simulated noise of two detectors, searches for them and compares the events with the truth.

mod arguments;
mod case;
mod draw;
mod report;

use crate::session::Figure;
use case::Setup;
pub use case::{Outcome, Pair, Recovered};
use draw::Case;
pub use report::recovered;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::session::Session;
pub(crate) use arguments::{Arguments, Resampling, Spectrum, Whitening};

pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    if !(1..=100_000).contains(&arguments.injections) {
        let rule = "it must be 1 to 100000";
        return Err(Error::parameter("--injections", arguments.injections, rule));
    }
    if !(1024..=16_384).contains(&arguments.rate) {
        return Err(Error::parameter("--rate (Hz)", arguments.rate, "it must be 1024 to 16384"));
    }
    let setup = Setup::new(arguments)?;
    let outcomes = campaign(&setup, arguments, session)?;
    if session.json {
        report::print_json(&outcomes, session)?;
    } else if !session.quiet {
        report::print(&outcomes);
    }
    if let Some(path) = &arguments.markdown {
        report::write_markdown(path, &outcomes)?;
    }
    if let Some(path) = &arguments.plot {
        session.caller.draw(path, &Figure::Injections(&outcomes))?;
    }
    Ok(())
}

/// Runs the cases in parallel, each on its own thread.
fn campaign(setup: &Setup, arguments: &Arguments, session: &Session<'_>) -> Result<Vec<Outcome>> {
    let threads = Threads::new(session.threads);
    let mut outcomes: Vec<Option<Result<Outcome>>> =
        (0..arguments.injections).map(|_| None).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut outcomes, 1, |(), index, outcome| {
        outcome[0] = Some(setup.run(&Case::draw(arguments.seed, index as u64)));
    });
    outcomes.into_iter().flatten().collect()
}
