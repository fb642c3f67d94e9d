//! `bench live-spiir`: latency of `live spiir` from merger to line in its parts, and the templates that the chain follows in real time.

mod latency;
mod setup;
mod throughput;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use sidereal::Result;
use sidereal::backend::threads::Threads;

use crate::runner::{Report, Session, say};
use latency::Latencies;
use setup::{Setup, Span, Templates, row};
use throughput::Throughput;

/// Measure a live search of compact binaries: time from mergers to the lines of their events, and templates in real time.
///
/// The latency is that of `sidereal live spiir`, which is given frames of simulated strain in real time. The templates in real time are
/// those of the same chain in this process, next to those of its filters alone, second by second in turn.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    setup: Setup,
    /// Measure one part only.
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
    /// Also write the table to this Markdown file.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Time from mergers to lines, in real time.
    Latency,
    /// Templates in real time.
    Throughput,
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let setup = &arguments.setup;
    setup.check()?;
    let threads = Threads::new(session.threads);
    let bank = setup.bank(&threads, session)?;
    if session.talks() {
        say(&format!("{}\n", setup.about(&bank)))?;
    }
    let latencies = match arguments.has(Part::Latency) {
        true => Some(latency::measure(setup, &bank.binaries, session)?),
        false => None,
    };
    let throughput = match arguments.has(Part::Throughput) {
        true => Some(throughput::measure(setup, &bank.binaries, session)?),
        false => None,
    };
    let report = setup.report(&bank, latencies.as_ref(), throughput.as_ref(), session);
    report.show(session, arguments.markdown.as_deref())?;
    let mut missed =
        latencies.iter().map(|own| &own.count).chain(throughput.iter().map(|own| &own.count));
    missed.try_for_each(|count| count.check())
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// Heads of the table.
const HEADS: [&str; 3] = ["quantity", "median", "99 %"];

impl Setup {
    fn about(&self, bank: &Templates) -> String {
        let Templates { binaries, placed } = bank;
        let (all, detectors) = (binaries.len(), self.detectors.join(", "));
        let how = match all > *placed {
            true => format!("{placed} placed, repeated with masses that differ by parts in 10,000"),
            false => "placed".to_owned(),
        };
        let (Span { low, high }, rate) = (self.masses, self.rate);
        format!(
            "{all} templates ({how}) of {low} to {high} solar masses from {} Hz, {detectors} at {rate} Hz, frames of {} s",
            self.f_low, self.frame
        )
    }

    fn report(
        &self,
        bank: &Templates,
        latencies: Option<&Latencies>,
        throughput: Option<&Throughput>,
        session: &Session<'_>,
    ) -> Report {
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        let base = json!({
            "bench": "live-spiir",
            "templates": bank.binaries.len(),
            "placed": bank.placed,
            "detectors": self.detectors,
            "masses_msun": [self.masses.low, self.masses.high],
            "rate_hz": self.rate,
            "frame_s": self.frame,
            "device": session.backend.name(),
        });
        let mut line = |part: &str, values: serde_json::Value| {
            let mut line = base.clone();
            if let (Some(line), serde_json::Value::Object(values)) = (line.as_object_mut(), values)
            {
                line.insert("part".into(), part.into());
                line.extend(values);
            }
            lines.push(line);
        };
        if let Some(latencies) = latencies {
            rows.extend(latencies.rows());
            line("latency", latencies.values());
        }
        if let Some(throughput) = throughput {
            rows.extend(throughput.rows());
            line("throughput", throughput.values());
        }
        let heads = HEADS.to_vec();
        let show = |cells: &[String]| {
            let (name, numbers) = cells
                .split_first()
                .map_or(("", &[][..]), |(name, numbers)| (name.as_str(), numbers));
            format!("{name:<60}")
                + &numbers.iter().map(|cell| format!("{cell:>12}")).collect::<String>()
        };
        let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        let text: Vec<String> = std::iter::once(&head).chain(&rows).map(|row| show(row)).collect();
        let search = format!("{}; {}", self.about(bank), session.backend.name());
        rows.insert(0, row("search", search, None));
        Report { lines, text: text.join("\n"), heads, rows }
    }
}
