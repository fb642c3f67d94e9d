//! `sidereal bench recovery`: injects bursts of known DM, width and S/N into noise, searches for them and compares
//! the candidates with the truth.

mod cell;
mod interference;
mod neighbours;
mod report;

use std::path::PathBuf;

use cell::Cell;
use clap::Args;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::clean::Rfi;
use sidereal::pipeline::burst::SearchOptions;

use crate::session::Figure;
use crate::session::Session;
pub use cell::{BANDS, Band, Outcome, SNRS, WIDTHS_S};
pub use interference::Outcome as Scored;

/// Most candidates per minute, the default of `search`.
const MAX_PER_MINUTE: usize = 1000;

/// Inject bursts into noise, search for them and compare the candidates with the truth.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of bursts in each cell of band, DM, width and S/N.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    injections: usize,
    /// Seed of the noise.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Tolerance of the DM plan: largest factor by which the DM step and the time binning may widen a pulse.
    #[arg(long, default_value_t = 1.02, value_name = "FACTOR")]
    dm_tol: f64,
    /// Search the recordings of this folder instead. `tests/oracles/interference.py FOLDER` makes them. Scores the
    /// results among their interference: bursts found, and false candidates per hour with S/N of at least 6.5.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["injections", "seed", "dm_tol", "plot"])]
    interference: Option<PathBuf>,
    /// With --interference, subtract the mean of each spectrum.
    #[arg(long, requires = "interference")]
    zero_dm: bool,
    /// Search instead for bursts near brighter ones, for bursts among a radar's pulses, and for short bursts.
    #[arg(long, conflicts_with_all = ["injections", "seed", "dm_tol", "plot", "interference", "markdown"])]
    neighbours: bool,
    /// With --interference, steps of mitigation, as in search.
    #[arg(long, requires = "interference", default_value = "auto", value_name = "STEPS", value_parser = Rfi::parse)]
    rfi: Rfi,
    /// Also write the table as Markdown.
    #[arg(long, value_name = "FILE.md")]
    pub(super) markdown: Option<PathBuf>,
    /// Also plot recovered against injected values.
    #[arg(long, value_name = "FILE.png")]
    pub(super) plot: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    if arguments.injections == 0 || arguments.injections > 100_000 {
        let rule = "it must be 1 to 100000";
        return Err(sidereal::Error::parameter("--injections", arguments.injections, rule));
    }
    if arguments.neighbours {
        return neighbours::run(session);
    }
    if let Some(folder) = &arguments.interference {
        let rfi = arguments.rfi;
        let options = |plan| SearchOptions {
            zero_dm: arguments.zero_dm,
            auto_mask: rfi.has_mask(),
            mitigation: rfi.steps(),
            max_per_minute: Some(MAX_PER_MINUTE),
            ..SearchOptions::new(plan)
        };
        return interference::run(folder, arguments.markdown.as_deref(), &options, session);
    }
    let outcomes = campaign(&cells(arguments), arguments.injections, session)?;
    if session.json {
        report::print_json(&outcomes, session)?;
    } else if !session.quiet {
        report::print(&outcomes);
    }
    if let Some(path) = &arguments.markdown {
        report::write_markdown(path, &outcomes)?;
    }
    if let Some(path) = &arguments.plot {
        session.caller.draw(path, &Figure::Recovery(&outcomes))?;
    }
    Ok(())
}

/// Returns every combination of band, DM, width and S/N.
fn cells(arguments: &Arguments) -> Vec<Cell> {
    let mut cells = Vec::new();
    for band in &BANDS {
        for dm in band.dm {
            for width_s in WIDTHS_S {
                for snr in SNRS {
                    let seed = arguments.seed.wrapping_mul(1 << 20) + cells.len() as u64;
                    let tolerance = arguments.dm_tol;
                    cells.push(Cell { band, dm, width_s, snr, tolerance, seed });
                }
            }
        }
    }
    cells
}

/// Runs the cells in parallel, each on its own thread.
fn campaign(cells: &[Cell], injections: usize, session: &Session<'_>) -> Result<Vec<Outcome>> {
    let threads = Threads::new(session.backend.clone().threads());
    let mut outcomes: Vec<Option<Result<Outcome>>> = cells.iter().map(|_| None).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut outcomes, 1, |(), index, outcome| {
        outcome[0] = Some(cells[index].run(injections, &Backend::best(1)));
    });
    outcomes.into_iter().flatten().collect()
}
