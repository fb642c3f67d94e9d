//! `bench recovery --neighbours`: bursts near brighter pulses, and short pulses at the default plan.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::pipeline::burst::{SearchOptions, search};
use sidereal::simulate::burst::{Burst, Options, Pulsar, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};

use crate::session::{Session, say};

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
pub(super) fn run(session: &Session<'_>) -> Result<()> {
    let backend = session.backend.clone();
    let mut text = "| case | bursts | found | candidates | S/N found / injected |\n|---|---:|---:|---:|---:|\n".to_owned();
    let mut row = |case: &str, bursts: &[Burst], options: Options| -> Result<()> {
        let (band, candidates) = candidates(options, &backend)?;
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
    Ok((band, search(&mut source, &options, backend, &mut |_| true)?.candidates))
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
