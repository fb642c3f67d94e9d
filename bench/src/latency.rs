//! `bench latency`: time from the last packet of a burst to the lines of its candidate, in `sidereal live search`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::FilterbankSource;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::loopback::{Sending, await_port, failed, free_port};
use crate::runner::{Report, Session, quantile};

/// Measure the latency of a live search: from the last packet of a burst to its provisional and its final line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Bursts of each DM.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    bursts: u32,
    /// DMs of the bursts, pc cm^-3.
    #[arg(long, value_name = "DMS", value_delimiter = ',', default_value = "300,1500")]
    dms: Vec<f64>,
    /// Highest DM of the plan.
    #[arg(long, value_name = "DM", default_value_t = 2000.0)]
    dm_max: f64,
    /// Mitigation of interference, as in `live search`.
    #[arg(long, value_name = "STEPS", default_value = "auto")]
    rfi: String,
    /// Length of the mitigation's blocks in seconds, as in `live search`.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    rfi_block: f64,
    /// Channels from 1200 to 1500 MHz.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    channels: u32,
    /// Sampling time in microseconds.
    #[arg(long, value_name = "US", default_value_t = 256.0)]
    tsamp_us: f64,
    /// Folder for the recording and the products, which are deleted at the end [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Also write the table to this Markdown file.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Edges of the band in MHz.
const BAND_MHZ: [f64; 2] = [1200.0, 1500.0];

/// Time between bursts of any DM, their width and their S/N.
const SPACING_S: f64 = 0.77;
const WIDTH_S: f64 = 2e-3;
const SNR: f64 = 25.0;

/// Time before the first burst, in which the search learns mask and noise, and after the last one.
const BEFORE_S: f64 = 20.0;
const AFTER_S: f64 = 6.0;

/// Length of the recording, which is repeated.
const RECORDING_S: f64 = 60.0;

/// Rows simulated at once.
const ROWS: usize = 4096;

/// Differences within which a candidate is that of a burst.
const NEAR_S: f64 = 0.05;
const NEAR_DM: f64 = 0.1;

/// Burst that was sent, with the times in seconds from its last packet to its lines.
#[derive(Clone, Copy, Debug)]
struct Sent {
    dm: f64,
    time_s: f64,
    provisional_s: Option<f64>,
    final_s: Option<f64>,
}

/// Line of a candidate.
struct Line {
    at: Instant,
    state: String,
    dm: f64,
    time_s: f64,
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    arguments.check()?;
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.map_err(|error| Error::io("folder of the benchmark", error))?;
    let path = folder.path().join("bursts.fil");
    let recorded = arguments.record(&path, &session.backend)?;
    let duration_s = recorded.rows as f64 * arguments.tsamp_s();
    let wanted = f64::from(arguments.bursts) * arguments.dms.len() as f64 * SPACING_S;
    let repeats = ((BEFORE_S + wanted + AFTER_S) / duration_s).ceil() as u64;
    let port = free_port()?;
    let (mut search, output) = arguments.search(port, &folder.path().join("found"), session)?;
    let reading = thread::spawn(move || lines(output));
    let sending = Sending { path: &path, repeats, rate: 1.0, port, session };
    let sent = await_port(port, &mut search).and_then(|()| sending.run());
    if sent.is_err() {
        let _ = search.kill();
    }
    let ended = search.wait().map_err(|error| Error::io("sidereal live search", error))?;
    let lines = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let sent = sent?;
    if !ended.success() {
        return Err(failed(format!("it ended with {ended}")));
    }
    let bursts = arguments.measured(&recorded, repeats, &sent, &lines);
    report(arguments, &bursts).show(session, arguments.markdown.as_deref())
}

/// Recording of bursts.
struct Recorded {
    rows: u64,
    bursts: Vec<Burst>,
}

impl Arguments {
    fn check(&self) -> Result<()> {
        let range = 1.0..=100_000.0;
        if !range.contains(&self.tsamp_us) {
            return Err(Error::parameter("--tsamp-us", self.tsamp_us, "it must be 1 to 100000 us"));
        }
        match self.dms.iter().find(|dm| !(1.0..self.dm_max).contains(*dm)) {
            Some(dm) => {
                let rule = format!("it must be 1 to less than --dm-max, {}", self.dm_max);
                Err(Error::parameter("--dms", dm, rule))
            }
            None => Ok(()),
        }
    }

    fn tsamp_s(&self) -> f64 {
        self.tsamp_us * 1e-6
    }

    fn band(&self) -> Result<Band> {
        let width = (BAND_MHZ[1] - BAND_MHZ[0]) / f64::from(self.channels);
        Band::uniform(BAND_MHZ[1] - width / 2.0, -width, self.channels as usize)
    }

    /// Writes a recording of bursts of all DMs in turn, none of which its end cuts off.
    fn record(&self, path: &Path, backend: &Backend) -> Result<Recorded> {
        let band = self.band()?;
        let most_s = self.dms.iter().map(|dm| delay_s(*dm, &band)).fold(0.0, f64::max);
        let rows = ((RECORDING_S + most_s) / self.tsamp_s()) as u64;
        let mut options = Options::new(band, self.tsamp_s(), rows);
        let count = (RECORDING_S / SPACING_S) as usize;
        options.bursts = (0..count)
            .map(|i| {
                let dm = self.dms[i % self.dms.len()];
                Burst::new(dm, 0.4 + i as f64 * SPACING_S, WIDTH_S, SNR)
            })
            .collect();
        let bursts = options.bursts.clone();
        let mut simulator = Simulator::new(options)?.with_threads(Threads::new(backend.threads()));
        let mut writer = FilterbankWriter::create(path, simulator.header())?;
        let mut buffer = vec![0; ROWS * simulator.header().row_bytes()];
        loop {
            let read = simulator.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            writer.write(&buffer[..read * simulator.header().row_bytes()])?;
        }
        writer.finish()?;
        Ok(Recorded { rows, bursts })
    }

    /// Starts the search; returns it and its lines.
    fn search(
        &self,
        port: u16,
        folder: &Path,
        session: &Session<'_>,
    ) -> Result<(Child, ChildStdout)> {
        let program = std::env::current_exe().map_err(|error| Error::io("sidereal", error))?;
        let mut command = Command::new(&program);
        command.args(["live", "search", &format!("spead://127.0.0.1:{port}"), "-o"]).arg(folder);
        command.args(["--observations", "1", "--rfi", &self.rfi, "--no-progress"]);
        command.args(["--rfi-block", &self.rfi_block.to_string()]);
        command.args(["--dm-max", &self.dm_max.to_string()]);
        command.args(["--threads", &session.threads.to_string()]);
        command.args(["--device", &session.device()]);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::io(&program, error))?;
        match child.stdout.take() {
            Some(output) => Ok((child, output)),
            None => Err(failed("its output was not opened".into())),
        }
    }

    /// Finds the lines of each burst sent.
    fn measured(
        &self,
        recorded: &Recorded,
        repeats: u64,
        sent: &[Instant],
        lines: &[Line],
    ) -> Vec<Sent> {
        let (tsamp_s, rows) = (self.tsamp_s(), recorded.rows);
        let all_s = (rows * repeats) as f64 * tsamp_s;
        let Ok(band) = self.band() else { return Vec::new() };
        let rows_per_packet = (rows * repeats).div_ceil(sent.len().max(1) as u64).max(1);
        let bursts = (0..repeats).flat_map(|repeat| {
            let start_s = (repeat * rows) as f64 * tsamp_s;
            recorded.bursts.iter().map(move |burst| (start_s + burst.time_s, burst.dm))
        });
        let counts = |time_s: &f64| *time_s > BEFORE_S && *time_s < all_s - AFTER_S;
        bursts
            .filter(|(time_s, _)| counts(time_s))
            .map(|(time_s, dm)| {
                let end_s = time_s + delay_s(dm, &band) + WIDTH_S;
                let last = (end_s / tsamp_s) as u64 / rows_per_packet;
                let last = sent.get(last as usize).or_else(|| sent.last()).copied();
                let is_near = |line: &&Line| {
                    (line.time_s - time_s).abs() < NEAR_S && (line.dm / dm - 1.0).abs() < NEAR_DM
                };
                let after = |line: &Line| {
                    let last = last.unwrap_or(line.at);
                    match line.at.checked_duration_since(last) {
                        Some(after) => after.as_secs_f64(),
                        None => -(last - line.at).as_secs_f64(),
                    }
                };
                let is_final = |line: &&Line| line.state == "final";
                let is_alive = |line: &&Line| line.state != "retracted";
                let mut near = lines.iter().filter(is_near).filter(is_alive);
                let provisional_s = near.next().map(after);
                let final_s = lines.iter().filter(is_near).find(is_final).map(after);
                Sent { dm, time_s, provisional_s, final_s }
            })
            .collect()
    }
}

/// Returns the delay of a DM between the highest and the lowest channel.
fn delay_s(dm: f64, band: &Band) -> f64 {
    dispersion_delay_s(dm, band.lowest_hz(), band.highest_hz(), DM_CONSTANT)
}

/// Reads the lines of candidates until the search ends.
fn lines(output: ChildStdout) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    for text in BufReader::new(output).lines() {
        let text = text.map_err(|error| Error::io("lines of the search", error))?;
        let at = Instant::now();
        let Ok(line) = serde_json::from_str::<Value>(&text) else { continue };
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        if let (Some(state), Some(dm), Some(time_s)) =
            (line.get("state").and_then(Value::as_str), number("dm"), number("time_s"))
        {
            found.push(Line { at, state: state.to_owned(), dm, time_s });
        }
    }
    Ok(found)
}

fn report(arguments: &Arguments, bursts: &[Sent]) -> Report {
    let heads =
        vec!["DM", "bursts", "announced", "median s", "99 % s", "final", "median s", "99 % s"];
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for dm in &arguments.dms {
        let of = |pick: fn(&Sent) -> Option<f64>| {
            let own = bursts.iter().filter(|burst| burst.dm == *dm);
            let mut times: Vec<f64> =
                own.map(|burst| pick(burst).unwrap_or(f64::INFINITY)).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let (provisional, last) = (of(|burst| burst.provisional_s), of(|burst| burst.final_s));
        let count = |times: &[f64]| times.iter().filter(|time| time.is_finite()).count();
        let number = |value: f64| format!("{value:.3}");
        rows.push(vec![
            dm.to_string(),
            provisional.len().to_string(),
            count(&provisional).to_string(),
            number(quantile(&provisional, 0.5)),
            number(quantile(&provisional, 0.99)),
            count(&last).to_string(),
            number(quantile(&last, 0.5)),
            number(quantile(&last, 0.99)),
        ]);
        let missed: Vec<f64> = bursts
            .iter()
            .filter(|burst| burst.dm == *dm && burst.provisional_s.is_none())
            .map(|burst| burst.time_s)
            .collect();
        lines.push(json!({
            "dm": dm,
            "rfi": arguments.rfi,
            "rfi_block_s": arguments.rfi_block,
            "bursts": provisional.len(),
            "missed_time_s": missed,
            "provisional_s": provisional,
            "final_s": last,
        }));
    }
    let mut text = format!(
        "{} channels, {} us, plan to DM {}, --rfi {} in blocks of {} s: seconds from the last packet of a burst\n",
        arguments.channels,
        arguments.tsamp_us,
        arguments.dm_max,
        arguments.rfi,
        arguments.rfi_block
    );
    text += &heads.iter().map(|head| format!("{head:>11}")).collect::<String>();
    for row in &rows {
        text.push('\n');
        text += &row.iter().map(|cell| format!("{cell:>11}")).collect::<String>();
    }
    Report { lines, text, heads, rows }
}
