//! `bench telescopes` on a GPU: complete search of each telescope, from rows in device memory to candidates.

mod bus;
mod memory;
mod voltages;

use std::time::Instant;

use sidereal::backend::Backend;
use sidereal::backend::cuda::measure;
use sidereal::clean::{Bandpass, Steps};
use sidereal::pipeline::burst::{Report, Resident, SearchOptions, search};
use sidereal::simulate::Telescope;
use sidereal::single_pulse::Candidate;
use sidereal::{Error, Result};

use super::Gpu;
use crate::session::{Session, say};
use crate::table::{Row, Table};
use crate::telescopes::{Arguments, Observation};
use memory::{Recording, running};

/// Least length of a recording in seconds, unless an option sets it.
const SECONDS: f64 = 20.0;

/// Least bytes of a recording: the setup of a search would dominate a short one.
const BYTES: f64 = 512e6;

/// Number of timed searches, unless they take long.
const RUNS: usize = 20;

/// Seconds after which no further search is timed.
const ENOUGH_S: f64 = 0.6;

/// Most additions of a search that the CPU repeats for comparison.
const COMPARED_ADDS: f64 = 1e11;

/// RFI mitigation of `--rfi auto`.
const MITIGATION: Steps = Steps { iqrm: true, bandpass: Bandpass::Outliers, time: true };

const FOOT: &str = "\
real time: seconds of data a second, from the first kernel on rows in the device's memory to the list of
candidates, pulse search included: the best and the median of all searches. host: the same from the host's
memory, once it runs; rfi auto: so with the default mitigation of interference. of bus: that, as a part of what the bus and the resident search allow. V100, A100: AstroAccelerate's
dedispersion alone (Novotny et al. 2023, Table 4). equal: whether the candidates are the processor's (- where
it was not asked, for length).";

/// Runs the benchmark.
pub(crate) fn run(
    gpu: &Gpu,
    chosen: &[&'static Telescope],
    arguments: &Arguments,
    session: &Session<'_>,
) -> Result<()> {
    let mut table = Table::hidden(session, arguments.csv.as_deref());
    let talk = !session.json && !session.quiet;
    let bus = measure::transfers(&gpu.device, if gpu.quick { 1 << 16 } else { 256 << 20 })?;
    let mut failed = Vec::new();
    if arguments.only.is_empty() {
        let bus = bus.to_device;
        let rows = [("few trials", bus::row(gpu, bus)), ("voltages", voltages::row(gpu, bus))];
        for (name, row) in rows {
            match row {
                Ok(row) => {
                    if talk {
                        let (case, part) = (&row.case, row.fraction_of_roof);
                        say(&format!("{case}: {:.1} GB/s, {part:.2} of the bus", row.rate))?;
                    }
                    table.push(row)?;
                }
                Err(error) => {
                    eprintln!("sidereal: {name}, from the host: {error}");
                    failed.push(name);
                }
            }
        }
    }
    if talk {
        say(&head())?;
    }
    let (mut plain_s, mut mitigated_s) = (0.0, 0.0);
    for telescope in chosen {
        match Measured::new(gpu, telescope, arguments, bus.to_device) {
            Ok(measured) => {
                if talk {
                    say(&measured.line())?;
                }
                let seconds = measured.observation.seconds;
                plain_s += seconds / fastest(&measured.host).0;
                mitigated_s += seconds / fastest(&measured.mitigated).0;
                measured.rows(gpu).into_iter().try_for_each(|row| table.push(row))?;
            }
            Err(error) => {
                eprintln!("sidereal: {}: {error}", telescope.name);
                failed.push(telescope.name);
            }
        }
    }
    if talk {
        say(FOOT)?;
        let ratio = mitigated_s / plain_s;
        say(&format!("from the host, rfi auto takes {ratio:.2} times as long in all"))?;
    }
    table.finish()?;
    if failed.is_empty() {
        return Ok(());
    }
    let what = format!("the rate of {}", failed.join(", "));
    Err(Error::Unavailable { what, why: "they failed as told above".to_owned() })
}

/// Measurements of a telescope.
struct Measured {
    observation: Observation,
    /// Seconds of each search of device-resident rows, smallest first.
    resident: Vec<f64>,
    /// Multiples of real time of searches from host memory, smallest first, without mitigation and with the default
    /// mitigation.
    host: Vec<f64>,
    mitigated: Vec<f64>,
    /// Multiple of real time that device memory allows.
    memory_roof: f64,
    /// Multiple of real time that the bus allows.
    bus_roof: f64,
    found: bool,
    /// Whether the CPU finds the same candidates, where it was compared.
    equal: Option<bool>,
}

impl Measured {
    fn new(
        gpu: &Gpu,
        telescope: &'static Telescope,
        arguments: &Arguments,
        bus: f64,
    ) -> Result<Self> {
        let bytes_per_s = telescope.channels as f64 / telescope.tsamp_s();
        let long = SECONDS.max(BYTES / bytes_per_s);
        let seconds = if gpu.quick { 1.0 } else { arguments.seconds.unwrap_or(long) };
        let observation = Observation::new(telescope, arguments, seconds)?;
        let recording = Recording::simulated(&observation)?;
        // Excludes the truncated start and end of the recording, which the search processes once more.
        let options =
            SearchOptions { min_band: 1.0, ..SearchOptions::new(observation.plan.clone()) };
        let mut resident = Resident::new(&mut recording.source(), &options, &gpu.backend)?;
        let report = resident.search()?;
        let resident_s = timed(|| resident.search().map(|_| ()))?;
        drop(resident);
        let (mut host, mut mitigated, mut same) = (Vec::new(), Vec::new(), true);
        let default = SearchOptions { mitigation: Some(MITIGATION), ..options.clone() };
        for _ in 0..2 {
            let (from_host, rows_per_s) = running(&mut recording.source(), &options, &gpu.backend)?;
            same &= self::same(&from_host.candidates, &report.candidates);
            host.push(rows_per_s * telescope.tsamp_s());
            let (report, rows_per_s) = running(&mut recording.source(), &default, &gpu.backend)?;
            same &= found(&report, &observation);
            mitigated.push(rows_per_s * telescope.tsamp_s());
        }
        host.sort_by(f64::total_cmp);
        mitigated.sort_by(f64::total_cmp);
        let adds = observation.adds_per_s * observation.seconds;
        let compared = adds < COMPARED_ADDS || gpu.quick;
        let processor = Backend::best(0);
        let truth = compared
            .then(|| search(&mut recording.source(), &options, &processor, &mut |_| true))
            .transpose()?;
        let rows_per_s = 1.0 / telescope.tsamp_s();
        let points = |range: &sidereal::dedisperse::dm_plan::DmRange| {
            range.dms().len() as f64 * rows_per_s / range.downsample as f64
        };
        let points: f64 = observation.plan.ranges.iter().map(points).sum();
        Ok(Self {
            resident: resident_s,
            host,
            mitigated,
            memory_roof: gpu.copy / (8.0 * points + bytes_per_s),
            bus_roof: bus / bytes_per_s,
            found: same && found(&report, &observation),
            equal: truth.map(|truth| self::same(&report.candidates, &truth.candidates)),
            observation,
        })
    }

    fn rate(&self, seconds: &[f64]) -> (f64, f64) {
        let best = seconds.first().copied().unwrap_or(f64::INFINITY);
        let data_s = self.observation.seconds;
        (data_s / best, data_s / measure::median(seconds))
    }

    fn rows(&self, gpu: &Gpu) -> [Row; 3] {
        let Telescope { name, published_a100, .. } = *self.observation.telescope;
        let row = |case: String, (rate, median): (f64, f64), roof: f64, roof_unit| Row {
            bench: "telescopes",
            case,
            device: gpu.backend.name(),
            rate,
            unit: "x real time",
            roof,
            roof_unit,
            fraction_of_roof: rate / roof,
            baseline: published_a100,
            ratio_to_baseline: rate / published_a100,
            checked: self.found && self.equal != Some(false),
            median,
        };
        let (resident, host) = (self.rate(&self.resident), fastest(&self.host));
        let memory = "x real time by the planes' way through memory";
        let bus = "x real time by the bus, or resident";
        [
            row(format!("{name}, resident"), resident, self.memory_roof, memory),
            row(format!("{name}, from the host"), host, self.bus_roof.min(resident.0), bus),
            row(
                format!("{name}, from the host, --rfi auto"),
                fastest(&self.mitigated),
                host.0,
                "x real time with --rfi none",
            ),
        ]
    }

    fn line(&self) -> String {
        let Telescope { name, channels, published_v100, published_a100, .. } =
            *self.observation.telescope;
        let ((best, median), (host, _)) = (self.rate(&self.resident), fastest(&self.host));
        format!(
            "{name:<16} {channels:>8} {:>7} {:>7.1} {best:>10.1} {median:>10.1} {host:>10.1} {:>10.1} {:>7.2} \
             {published_v100:>9} {published_a100:>9} {:>7.2} {:>6} {:>6}",
            self.observation.plan.trials(),
            self.observation.seconds,
            fastest(&self.mitigated).0,
            host / self.bus_roof.min(best),
            best / published_a100,
            if self.found { "yes" } else { "NO" },
            match self.equal {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "-",
            }
        )
    }
}

fn head() -> String {
    format!(
        "{:<16} {:>8} {:>7} {:>7} {:>10} {:>10} {:>10} {:>10} {:>7} {:>9} {:>9} {:>7} {:>6} {:>6}",
        "telescope",
        "channels",
        "trials",
        "data/s",
        "real time",
        "median",
        "host",
        "rfi auto",
        "of bus",
        "V100",
        "A100",
        "x A100",
        "found",
        "equal"
    )
}

/// Returns the highest of the rates and their median.
fn fastest(rates: &[f64]) -> (f64, f64) {
    (rates.last().copied().unwrap_or(0.0), measure::median(rates))
}

/// Returns whether a candidate matches the burst in DM and time.
fn found(report: &Report, observation: &Observation) -> bool {
    let burst = &observation.burst;
    let reach = 2.0 * burst.width_s.max(observation.telescope.tsamp_s());
    report.candidates.iter().any(|candidate| {
        (candidate.dm - burst.dm).abs() < 0.05 * burst.dm
            && (candidate.time_s - burst.time_s).abs() < reach
    })
}

/// Returns whether two lists of candidates are equal.
fn same(some: &[Candidate], others: &[Candidate]) -> bool {
    let alike = |(a, b): (&Candidate, &Candidate)| {
        a.dm == b.dm && a.time_s == b.time_s && (a.snr - b.snr).abs() <= 1e-4 * b.snr
    };
    some.len() == others.len() && some.iter().zip(others).all(alike)
}

/// Returns the seconds of each run, smallest first.
fn timed(mut run: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let (mut seconds, begin) = (Vec::new(), Instant::now());
    while seconds.len() < 2 || (seconds.len() < RUNS && begin.elapsed().as_secs_f64() < ENOUGH_S) {
        let began = Instant::now();
        run()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}
