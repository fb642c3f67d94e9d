//! `bench telescopes` on a GPU: complete search of each telescope, from rows in device memory to candidates, and
//! bus-bound searches of few trials from host memory.

use std::time::Instant;

use sidereal::backend::Backend;
use sidereal::backend::cuda::measure;
use sidereal::backend::threads::Threads;
use sidereal::clean::{Bandpass, Steps};
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::burst::{Report, Resident, SearchOptions, Source, search};
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::simulate::Telescope;
use sidereal::single_pulse::Candidate;
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::observation::{Arguments, Observation};
use crate::gpu::Gpu;
use crate::random::{self, RepeatedVoltages};
use crate::rows::{Recording, running};
use crate::runner::{Rates, Row, Run, Session, say};

/// Name of the benchmark.
const BENCH: &str = "telescopes";

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
pub(super) fn run(
    gpu: &Gpu,
    chosen: &[&'static Telescope],
    arguments: &Arguments,
    session: &Session<'_>,
) -> Result<()> {
    let mut run = Run::hidden(session, arguments.csv.as_deref()).continuing();
    let talks = session.talks();
    let bus = measure::transfers(&gpu.device, if gpu.quick { 1 << 16 } else { 256 << 20 })?;
    let bus = bus.to_device;
    if arguments.only.is_empty() {
        for (name, row) in [("few trials", few_trials(gpu, bus)), ("voltages", voltages(gpu, bus))]
        {
            if let (Ok(row), true) = (&row, talks) {
                let (case, part) = (&row.case, row.fraction_of_roof);
                say(&format!("{case}: {:.1} GB/s, {part:.2} of the bus", row.rate))?;
            }
            run.case(&format!("{name}, from the host"), || Ok(vec![row?]))?;
        }
    }
    if talks {
        say(&head())?;
    }
    let (mut plain_s, mut mitigated_s) = (0.0, 0.0);
    for telescope in chosen {
        run.case(telescope.name, || {
            let measured = Measured::new(gpu, telescope, arguments, bus)?;
            if talks {
                say(&measured.line())?;
            }
            let seconds = measured.observation.seconds;
            plain_s += seconds / measured.host.best;
            mitigated_s += seconds / measured.mitigated.best;
            Ok(measured.rows(gpu).into())
        })?;
    }
    if talks {
        say(FOOT)?;
        let ratio = mitigated_s / plain_s;
        say(&format!("from the host, rfi auto takes {ratio:.2} times as long in all"))?;
    }
    let failed = run.take_failed();
    run.finish()?;
    if failed.is_empty() {
        return Ok(());
    }
    let names = failed.iter().map(|name| name.trim_end_matches(", from the host"));
    let what = format!("the rate of {}", names.collect::<Vec<_>>().join(", "));
    Err(Error::Unavailable { what, why: "their errors are above".to_owned() })
}

/// Measurements of a telescope.
struct Measured {
    observation: Observation,
    /// Multiples of real time with rows in device memory. Roof: device memory. Baseline, here and below: the paper's
    /// A100.
    resident: Rates,
    /// Multiples of real time with rows in host memory. Roof: the bus or the resident search.
    host: Rates,
    /// Multiples of real time with rows in host memory and `--rfi auto`. Roof: the search without mitigation.
    mitigated: Rates,
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
        let recording = Recording::simulated(observation.simulated()?)?;
        // Excludes the truncated start and end of the recording, which the search processes once more.
        let options =
            SearchOptions { min_band: 1.0, ..SearchOptions::new(observation.plan.clone()) };
        let mut resident = Resident::new(&mut recording.source(), &options, &gpu.backend)?;
        let report = resident.search()?;
        let resident_s = timed(|| resident.search().map(|_| ()))?;
        let sustained_s = gpu.sustained_calls(&mut || resident.search().map(|_| 1))?;
        drop(resident);
        let (mut host, mut mitigated, mut same) = (Vec::new(), Vec::new(), true);
        let default = SearchOptions { mitigation: Some(MITIGATION), ..options.clone() };
        for _ in 0..2 {
            let (from_host, rows_per_s) =
                running(Source::Rows(&mut recording.source()), &options, &gpu.backend)?;
            same &= self::same(&from_host.candidates, &report.candidates);
            host.push(rows_per_s * telescope.tsamp_s());
            let (report, rows_per_s) =
                running(Source::Rows(&mut recording.source()), &default, &gpu.backend)?;
            same &= found(&report, &observation);
            mitigated.push(rows_per_s * telescope.tsamp_s());
        }
        let adds = observation.adds_per_s * observation.seconds;
        let compared = adds < COMPARED_ADDS || gpu.quick;
        let processor = Backend::best(0);
        let truth = compared
            .then(|| {
                search(Source::Rows(&mut recording.source()), &options, &processor, &mut |_| true)
            })
            .transpose()?;
        let rows_per_s = 1.0 / telescope.tsamp_s();
        let points = |range: &sidereal::dedisperse::dm_plan::DmRange| {
            range.dms().len() as f64 * rows_per_s / range.downsample as f64
        };
        let points: f64 = observation.plan.ranges.iter().map(points).sum();
        let (data_s, a100) = (observation.seconds, telescope.published_a100);
        let memory_roof = gpu.copy / (8.0 * points + bytes_per_s);
        let resident =
            Rates::of_seconds(data_s, &resident_s, memory_roof, a100).lasting(data_s, sustained_s);
        let host = Rates::of(host, (bus / bytes_per_s).min(resident.best), a100);
        Ok(Self {
            resident,
            host,
            mitigated: Rates::of(mitigated, host.best, a100),
            found: same && found(&report, &observation),
            equal: truth.map(|truth| self::same(&report.candidates, &truth.candidates)),
            observation,
        })
    }

    fn rows(&self, gpu: &Gpu) -> [Row; 3] {
        let Telescope { name, .. } = *self.observation.telescope;
        let checked = self.found && self.equal != Some(false);
        let row = |rates: Rates, how: &str, roof_unit| {
            let case = format!("{name}, {how}");
            let row = rates.row(BENCH, case, &gpu.backend, "x real time", checked);
            row.beside(roof_unit)
        };
        [
            row(self.resident, "resident", "x real time by the planes' way through memory"),
            row(self.host, "from the host", "x real time by the bus, or resident"),
            row(self.mitigated, "from the host, --rfi auto", "x real time with --rfi none"),
        ]
    }

    fn line(&self) -> String {
        let Telescope { name, channels, published_v100, published_a100, .. } =
            *self.observation.telescope;
        let (Rates { best, median, .. }, host) = (self.resident, self.host.best);
        format!(
            "{name:<16} {channels:>8} {:>7} {:>7.1} {best:>10.1} {median:>10.1} {host:>10.1} {:>10.1} {:>7.2} \
             {published_v100:>9} {published_a100:>9} {:>7.2} {:>6} {:>6}",
            self.observation.plan.trials(),
            self.observation.seconds,
            self.mitigated.best,
            host / self.host.roof,
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
    let alike = |a: &Candidate, b: &Candidate| {
        a.dm == b.dm && a.time_s == b.time_s && (a.snr - b.snr).abs() <= 1e-4 * b.snr
    };
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| alike(a, b))
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

/// Channels of the bus-bound searches.
const CHANNELS: usize = 1024;

/// Number of trials: few enough for the search to be bus-bound.
const TRIALS: usize = 128;

/// Returns the options of a bus-bound search.
fn bus_bound() -> Result<SearchOptions> {
    let plan = DmPlan::fixed(&[(0.0, 0.5 * TRIALS as f64, 0.5)])?;
    // The bytes are uniformly distributed: no channel stands out, and no pulse is wanted.
    Ok(SearchOptions { auto_mask: false, snr: 8.0, min_band: 1.0, ..SearchOptions::new(plan) })
}

/// Makes the row of a bus-bound search from rates in bytes per second; `bus` is the bus's rate.
fn bus_row(gpu: &Gpu, case: String, rates: Vec<f64>, bus: f64) -> Row {
    let rates = Rates::of(rates, bus, 0.0).scaled(1e-9);
    let row = rates.row(BENCH, case, &gpu.backend, "GB/s", rates.best > 0.0);
    row.beside("GB/s over the bus")
}

/// Rows in memory, and the number of times they are read.
const ROWS: usize = 1 << 20;
const ROW_ROUNDS: u64 = 6;

/// Rows in memory of a quick run.
const QUICK_ROWS: usize = 1 << 12;

/// Number of searches of rows.
const ROW_RUNS: usize = 5;

/// Measures a search of rows; `bus` is the bus bandwidth in bytes per second.
fn few_trials(gpu: &Gpu, bus: f64) -> Result<Row> {
    let recording = Recording::random(CHANNELS, if gpu.quick { QUICK_ROWS } else { ROWS })?;
    let mut options = bus_bound()?;
    if gpu.quick {
        options.gulp = QUICK_ROWS / 4;
    }
    let rate = |_| -> Result<f64> {
        let mut repeated = recording.repeated(ROW_ROUNDS);
        Ok(running(Source::Rows(&mut repeated), &options, &gpu.backend)?.1 * CHANNELS as f64)
    };
    let runs = if gpu.quick { 1 } else { ROW_RUNS };
    let rates = (0..runs).map(rate).collect::<Result<Vec<_>>>()?;
    let case = format!("{CHANNELS} channels, {TRIALS} trials, steady, from the host");
    Ok(bus_row(gpu, case, rates, bus))
}

/// Spectra summed into a row of channelized voltages.
const SPECTRA: usize = 16;

/// Samples per second of each polarization.
const RATE_HZ: f64 = 300e6;

/// Samples of each polarization in memory, and the number of times they are read.
const TIMES: usize = 1 << 26;
const ROUNDS: u64 = 16;

/// Samples in memory of a quick run.
const QUICK_TIMES: usize = 1 << 20;

/// Number of searches.
const VOLTAGE_RUNS: usize = 3;

/// Measures a search of voltages; `bus` is the bus bandwidth in bytes per second.
fn voltages(gpu: &Gpu, bus: f64) -> Result<Row> {
    let times = if gpu.quick { QUICK_TIMES } else { TIMES };
    let encoding = VoltageEncoding::Complex8;
    let header = VoltageHeader {
        polarizations: 2,
        times: Some(times as u64 * ROUNDS),
        format: "memory",
        ..VoltageHeader::new(vec![1400e6], 1.0 / RATE_HZ, encoding)
    };
    let bytes = random::bytes(2 * encoding.bytes(times));
    let recording = RepeatedVoltages::new(header, bytes, Threads::new(0));
    let channelize = ChannelizeOptions { integrate: SPECTRA, ..ChannelizeOptions::new(CHANNELS) };
    let mut options = bus_bound()?;
    if gpu.quick {
        options.gulp = 256;
    }
    let row_bytes = (CHANNELS * SPECTRA * 2 * 2) as f64;
    let rate = |_| -> Result<f64> {
        let source = Box::new(recording.clone());
        let mut filterbank = VoltageFilterbank::new(source, &channelize, &gpu.backend)?;
        Ok(running(Source::Voltages(&mut filterbank), &options, &gpu.backend)?.1 * row_bytes)
    };
    let runs = if gpu.quick { 1 } else { VOLTAGE_RUNS };
    let rates = (0..runs).map(rate).collect::<Result<Vec<_>>>()?;
    let case = format!(
        "voltages into {CHANNELS} channels, {SPECTRA} spectra a row, {TRIALS} trials, from the host"
    );
    Ok(bus_row(gpu, case, rates, bus))
}
