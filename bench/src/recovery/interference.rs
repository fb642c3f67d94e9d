//! `bench recovery --interference` and `--neighbours`: recordings with interference and known bursts, made by
//! `tests/oracles/interference.py`; bursts near brighter pulses, and short pulses at the default plan.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::{OpenOptions, atomic, open};
use sidereal::pipeline::burst::{SearchOptions, Source, search};
use sidereal::simulate::burst::{Burst, Options, Pulsar, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::runner::{Document, Score, Session, say};

/// Lowest S/N at which a false candidate counts.
const COUNTED_SNR: f64 = 6.5;

/// Highest trial DM.
const DM_MAX: f64 = 2000.0;

/// Allowed time error of a candidate in seconds, in addition to the burst's width.
const TIME_REACH_S: f64 = 0.02;

/// Allowed DM error, in units of the DM error that smears a pulse by its own width.
const DM_REACH: f64 = 2.0;

/// Contents of the folder's campaign.json.
#[derive(Deserialize)]
struct Campaign {
    cases: Vec<String>,
}

/// Contents of CASE.truth.json.
#[derive(Deserialize)]
struct Truth {
    bursts: Vec<Injected>,
}

#[derive(Clone, Copy, Deserialize)]
struct Injected {
    time_s: f64,
    dm: f64,
    width_s: f64,
    snr: f64,
    /// Fraction of the burst that falls into dropouts.
    lost: f64,
}

/// Searches the cases of a folder, prints the table and, if asked, writes it as Markdown.
pub(super) fn run(
    folder: &Path,
    markdown: Option<&Path>,
    options: &dyn Fn(DmPlan) -> SearchOptions,
    session: &Session<'_>,
) -> Result<()> {
    let campaign: Campaign = read(&folder.join("campaign.json"))?;
    let backend = &session.backend;
    let shown = session.talks();
    if shown {
        say(&line(&HEADS.map(str::to_owned)))?;
    }
    let mut outcomes = Vec::new();
    for case in campaign.cases {
        let outcome = score(folder, case, options, backend)?;
        if shown {
            say(&line(&cells(&outcome)))?;
        }
        outcomes.push(outcome);
    }
    if session.json {
        session.caller.print(&Document::Scores(outcomes.clone()))?;
    }
    markdown.map_or(Ok(()), |path| atomic::write(path, table(&outcomes).as_bytes()))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::format(path, "JSON", error.column() as u64, error.to_string()))
}

fn score(
    folder: &Path,
    case: String,
    options: &dyn Fn(DmPlan) -> SearchOptions,
    backend: &Backend,
) -> Result<Score> {
    let truth: Truth = read(&folder.join(format!("{case}.truth.json")))?;
    let mut source = open(&[folder.join(format!("{case}.fil"))], &OpenOptions::default())?;
    let band = source.header().band.clone();
    let plan = DmPlan::tolerance(
        &band,
        source.header().tsamp_s,
        0.0,
        DM_MAX,
        &ToleranceOptions::default(),
    )?;
    let report = search(Source::Rows(source.as_mut()), &options(plan), backend, &mut |_| true)?;
    let reach = Reach::new(&band);
    let mut is_taken = vec![false; report.candidates.len()];
    let (mut ratios, mut counts) = (Vec::new(), [[0usize; 2]; 2]);
    for burst in &truth.bursts {
        // Candidates are sorted best first.
        let mut best = None;
        for (index, candidate) in report.candidates.iter().enumerate() {
            if reach.holds(burst, candidate) {
                is_taken[index] = true;
                best = best.or(Some(candidate.snr));
            }
        }
        let counted = &mut counts[usize::from(burst.lost > 0.5)];
        counted[0] += 1;
        if let Some(snr) = best {
            counted[1] += 1;
            ratios.push(snr / burst.snr);
        }
    }
    let strong = |index: &usize| report.candidates[*index].snr >= COUNTED_SNR;
    let spurious = (0..is_taken.len()).filter(|index| !is_taken[*index]).filter(strong).count();
    let found = counts[0][1] + counts[1][1];
    let taken = is_taken.iter().filter(|taken| **taken).count();
    Ok(Score {
        bench: "interference",
        case,
        injected: counts[0][0],
        found: counts[0][1],
        snr_ratio: sidereal::math::median(&mut ratios).unwrap_or(f64::NAN),
        lost: counts[1][0],
        lost_found: counts[1][1],
        repeated: taken.saturating_sub(found),
        false_per_hour: spurious as f64 * 3600.0 / report.data_s,
        realtime_factor: report.realtime_factor(),
    })
}

/// Criterion for candidates that belong to a burst.
struct Reach {
    /// Delay across the band per unit DM, in seconds.
    delay_per_dm: f64,
}

impl Reach {
    fn new(band: &Band) -> Self {
        let edges = (band.lowest_hz(), band.highest_hz());
        Self { delay_per_dm: dispersion_delay_s(1.0, edges.0, edges.1, DM_CONSTANT) }
    }

    fn holds(&self, burst: &Injected, candidate: &Candidate) -> bool {
        let dm_error = (candidate.dm - burst.dm).abs();
        let smear_s = dm_error * self.delay_per_dm;
        let time_error_s = (candidate.time_s - burst.time_s).abs();
        smear_s <= DM_REACH * burst.width_s + TIME_REACH_S
            && time_error_s <= burst.width_s + TIME_REACH_S + smear_s
    }
}

const HEADS: [&str; 8] =
    ["case", "injected", "found", "S/N ratio", "in dropouts", "repeated", "false/h", "x real time"];

fn cells(score: &Score) -> [String; 8] {
    [
        score.case.clone(),
        score.injected.to_string(),
        format!("{} ({:.1} %)", score.found, 100.0 * score.found as f64 / score.injected as f64),
        format!("{:.3}", score.snr_ratio),
        format!("{} of {}", score.lost_found, score.lost),
        score.repeated.to_string(),
        format!("{:.0}", score.false_per_hour),
        format!("{:.1}", score.realtime_factor),
    ]
}

fn line(cells: &[String; 8]) -> String {
    let [case, rest @ ..] = cells;
    format!("{case:<16}{}", rest.iter().map(|cell| format!("{cell:>14}")).collect::<String>())
}

fn table(outcomes: &[Score]) -> String {
    let mut text = format!("| {} |\n|---|{}\n", HEADS.join(" | "), "---:|".repeat(HEADS.len() - 1));
    for outcome in outcomes {
        let _ = writeln!(text, "| {} |", cells(outcome).join(" | "));
    }
    text
}

/// Sampling time of the recordings, in seconds.
const TSAMP_S: f64 = 256e-6;

/// Number of channels, from 1200 to 1500 MHz.
const CHANNELS: usize = 512;

/// Pairs of a bright and a faint burst of 5 ms: DM, time and S/N of each.
const PAIRS: [[(f64, f64, f64); 2]; 5] = [
    [(300.0, 3.0, 60.0), (500.0, 2.9, 12.0)],
    [(300.0, 3.0, 60.0), (420.0, 2.94, 14.0)],
    [(300.0, 3.0, 60.0), (360.0, 2.97, 20.0)],
    [(300.0, 3.0, 30.0), (400.0, 2.95, 10.0)],
    [(0.0, 3.0, 135.0), (800.0, 2.5, 15.0)],
];

/// Number of bursts among the radar's pulses, and their spacing in seconds.
const BURSTS: usize = 50;
const SPACING_S: f64 = 4.0;

/// Simulates and searches all cases, and prints the table.
pub(super) fn neighbours(session: &Session<'_>) -> Result<()> {
    let backend = &session.backend;
    let mut text = "| case | bursts | found | candidates | S/N found / injected |\n|---|---:|---:|---:|---:|\n".to_owned();
    let mut row = |case: &str, bursts: &[Burst], options: Options| -> Result<()> {
        let (band, candidates) = candidates(options, backend)?;
        let ratios: Vec<f64> =
            bursts.iter().filter_map(|burst| ratio(burst, &candidates, &band)).collect();
        text += &format!(
            "| {case} | {} | {} | {} | {:.3} |\n",
            bursts.len(),
            ratios.len(),
            candidates.len(),
            ratios.iter().sum::<f64>() / ratios.len().max(1) as f64,
        );
        Ok(())
    };
    for (index, pair) in PAIRS.iter().enumerate() {
        let bursts = pair.map(|(dm, time_s, snr)| Burst::new(dm, time_s, 5e-3, snr));
        let [bright, faint] = bursts;
        let late_s = faint.time_s - bright.time_s;
        let case = format!(
            "S/N {} at DM {}; S/N {} at DM {}, {late_s:+.2} s",
            bright.snr, bright.dm, faint.snr, faint.dm
        );
        row(&case, &bursts, options(8.0, 1 + index as u64, &bursts)?)?;
    }
    let bursts: Vec<Burst> = (0..BURSTS).map(among_radar).collect();
    let mut radar = options(SPACING_S * BURSTS as f64 + 3.0, 7, &bursts)?;
    let [dm, scatter_s, spectral_index] = [0.0; 3];
    let (period_s, width_s, snr, time_s) = (0.9, 0.01, 135.0, 0.3);
    radar.pulsars = vec![Pulsar { period_s, dm, width_s, snr, time_s, scatter_s, spectral_index }];
    let high: Vec<Burst> = bursts.into_iter().filter(|burst| burst.dm > 350.0).collect();
    row("a zero-DM pulse of S/N 135 each 0.9 s; bursts above DM 350", &high, radar)?;
    let short: Vec<Burst> = (0..120).map(short).collect();
    let recording = options(2.0 * 120.0 + 4.0, 8, &short)?;
    row("S/N 20, 1 to 2 ms, DM 50 to 1500", &short, recording)?;
    if session.quiet { Ok(()) } else { say(&text) }
}

fn options(seconds: f64, seed: u64, bursts: &[Burst]) -> Result<Options> {
    let step = 300.0 / CHANNELS as f64;
    let band = Band::uniform(1500.0 - 0.5 * step, -step, CHANNELS)?;
    let mut options = Options::new(band, TSAMP_S, (seconds / TSAMP_S) as u64);
    (options.seed, options.bursts) = (seed, bursts.to_vec());
    Ok(options)
}

/// Returns the `index`-th number of a sequence that fills the interval 0 to 1 evenly.
fn part(index: usize, step: f64) -> f64 {
    ((index as f64 + 0.5) * step).fract()
}

/// Returns a burst with DM 50 to 2000, width 1 to 50 ms, S/N 8 to 30.
fn among_radar(i: usize) -> Burst {
    let dm = 50.0 + 1950.0 * part(i, 0.618_034);
    let width_s = 10f64.powf(-3.0 + 1.699 * part(i, 0.754_878));
    let time_s = SPACING_S * (i as f64 + 0.5 + 0.4 * part(i, 0.569_840));
    Burst::new(dm, time_s, width_s, 8.0 + 22.0 * part(i, 0.819_173))
}

fn short(i: usize) -> Burst {
    let dm = 50.0 + 1450.0 * part(i, 0.618_034);
    let width_s = 1e-3 * (1.0 + part(i, 0.754_878));
    Burst::new(dm, 1.0 + 2.0 * i as f64 + 0.01 * part(i, 0.569_840), width_s, 20.0)
}

/// Returns the band and the candidates of a search with the default options but without channel masking.
fn candidates(options: Options, backend: &Backend) -> Result<(Band, Vec<Candidate>)> {
    let band = options.band.clone();
    let plan = DmPlan::tolerance(&band, TSAMP_S, 0.0, 2000.0, &ToleranceOptions::default())?;
    let mut source = Simulator::new(options)?;
    if let Backend::Cpu(_, threads) = backend {
        source = source.with_threads(threads.clone());
    }
    let options = SearchOptions { auto_mask: false, ..SearchOptions::new(plan) };
    Ok((band, search(Source::Rows(&mut source), &options, backend, &mut |_| true)?.candidates))
}

/// Returns found over injected S/N if a candidate matches the burst: in time within the larger of the two widths, in
/// DM within the error that smears a pulse by twice that.
fn ratio(burst: &Burst, candidates: &[Candidate], band: &Band) -> Option<f64> {
    let smear_per_dm = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    let is_it = |c: &&Candidate| {
        let width_s = c.width_s.max(burst.width_s);
        c.width_s < 4.0 * burst.width_s + 0.02
            && (c.time_s - burst.time_s).abs() < width_s
            && (c.dm - burst.dm).abs() * smear_per_dm < 2.0 * width_s
    };
    candidates.iter().find(is_it).map(|c| c.snr / burst.snr)
}
