//! `sidereal bench telescopes`: multiple of real time of a complete search for each telescope of the AstroAccelerate
//! paper's Table 4, beside the paper's two GPUs.

mod child;
mod observation;

use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, Host, roof};
use sidereal::simulate::{TELESCOPES, Telescope};
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::Table;
pub(crate) use observation::{Arguments, Observation};

/// Least length of a recording in seconds, unless an option sets it.
const SECONDS: f64 = 60.0;

pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let range = 1.0..=86400.0;
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    if !range.contains(&seconds) {
        let rule = "it must be 1 to 86400 s";
        return Err(Error::parameter("--seconds", seconds, rule));
    }
    let backend = session.backend.clone();
    let chosen: Vec<&Telescope> = if arguments.only.is_empty() {
        TELESCOPES.iter().collect()
    } else {
        arguments.only.iter().map(|name| Telescope::by_name(name)).collect::<Result<_>>()?
    };
    if let Some(gpu) = super::gpu::Gpu::of(&backend, arguments.quick)? {
        return super::gpu::telescopes::run(&gpu, &chosen, arguments, session);
    }
    let roof = roof_adds_per_s(&backend);
    let mut table = Table::hidden(session, arguments.csv.as_deref());
    let talk = !session.json && !session.quiet;
    let (mut plain_s, mut mitigated_s) = (0.0, 0.0);
    if talk {
        print_head();
    }
    for telescope in chosen {
        let observation = Observation::new(telescope, arguments, seconds)?;
        let runs = observation.search(arguments, session, &backend)?;
        if talk {
            observation.print(&runs);
        }
        plain_s += runs.plain.wall_s;
        mitigated_s += runs.mitigated.wall_s;
        let name = telescope.name.to_owned();
        let mitigated = format!("{name}, --rfi auto");
        table.push(observation.row(name, &runs.plain, &backend, roof))?;
        table.push(observation.row(mitigated, &runs.mitigated, &backend, roof))?;
    }
    if talk {
        print_foot(mitigated_s / plain_s);
    }
    table.finish()
}

/// Returns the additions per second of 8-bit samples that brute force reaches at best.
fn roof_adds_per_s(backend: &Backend) -> f64 {
    match &backend.host() {
        Host::Cpu(level, threads) => roof::byte_adds(*level, threads, 0.2),
        Host::Reference => roof::byte_adds(Level::Portable, &Threads::new(1), 0.2),
    }
}

#[allow(clippy::print_stdout)]
fn print_head() {
    println!(
        "{:<16} {:>8} {:>8} {:>6} {:>7} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}  binning of the ranges",
        "telescope",
        "channels",
        "tsamp/us",
        "DM max",
        "trials",
        "delay/s",
        "data/s",
        "real time",
        "rfi auto",
        "V100",
        "A100",
        "peak/MiB",
        "found"
    );
}

#[allow(clippy::print_stdout)]
fn print_foot(ratio: f64) {
    println!(
        "real time: seconds of data a second of the whole search, from start to end of the process, with --rfi none;\n\
         rfi auto: the same with --rfi auto, which takes {ratio:.2} times as long in all.\n\
         V100, A100: the same of AstroAccelerate's dedispersion (Novotny et al. 2023, Table 4)."
    );
}
