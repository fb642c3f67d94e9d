//! `bench channelize --quality`: scalloping loss and leakage with and without the prototype filter, measured with tones
//! and compared with the windows' computed responses.

use num_complex::Complex;
use serde_json::{Value, json};
use sidereal::backend::Backend;
use sidereal::channelize::{Channelizer, Options, Order, Output, Plan};
use sidereal::math::{ResponseSummary, Window};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

use crate::runner::{Document, Session, say};

/// File names of the two figures.
pub const SCALLOPING: &str = "scalloping.png";
pub const LEAKAGE: &str = "leakage.png";

/// Measures every window and prints the results.
pub fn measure_all(session: &Session<'_>) -> Result<Vec<Bank>> {
    let mut banks = Vec::new();
    for (window, taps) in cases() {
        banks.push(measure(window, taps, &session.backend)?);
    }
    if session.json {
        session.caller.print(&Document::Lines(banks.iter().map(object).collect()))?;
    } else if !session.quiet {
        say(&table(&banks))?;
    }
    Ok(banks)
}

/// Compares the measurements with the computed responses.
///
/// # Errors
/// [`Error::Unavailable`] when one differs.
pub fn check(banks: &[Bank]) -> Result<()> {
    match banks.iter().find(|bank| !bank.agrees()) {
        None => Ok(()),
        Some(bank) => Err(Error::Unavailable {
            what: format!("the response of {}", bank.name()),
            why: format!(
                "measured {:.3} dB of scalloping and {:.2} dB of leakage: {}",
                bank.scalloping_db, bank.leakage_db, bank.summary
            ),
        }),
    }
}

fn object(bank: &Bank) -> Value {
    json!({
        "bench": "channelize quality", "window": bank.window.name(), "taps": bank.taps,
        "channels": CHANNELS, "scalloping_loss_db": bank.summary.scalloping_loss_db,
        "measured_scalloping_loss_db": bank.scalloping_db, "within_1_db": bank.within_1_db,
        "adjacent_db": bank.summary.adjacent_db, "leakage_db": bank.summary.leakage_db,
        "measured_leakage_db": bank.leakage_db, "leakage_offset": bank.summary.leakage_offset,
        "noise_bandwidth": bank.summary.noise_bandwidth, "checked": bank.agrees(),
    })
}

fn table(banks: &[Bank]) -> String {
    let head = ["scalloping", "measured", "< 1 dB", "next", "leakage", "measured", "at", "noise"];
    let units = ["dB", "dB", "of band", "dB", "dB", "dB", "channels", "channels"];
    let mut lines = vec![
        format!("{CHANNELS} channels; levels in dB of a tone at a channel's centre"),
        line("filter", &head.map(str::to_owned)),
        line("", &units.map(str::to_owned)),
    ];
    lines.extend(banks.iter().map(|bank| {
        let all = &bank.summary;
        let cells = [
            format!("{:.3}", all.scalloping_loss_db),
            format!("{:.3}", bank.scalloping_db),
            format!("{:.0} %", 100.0 * bank.within_1_db),
            if all.adjacent_db < -300.0 {
                "none".into()
            } else {
                format!("{:.1}", all.adjacent_db)
            },
            format!("{:.2}", all.leakage_db),
            format!("{:.2}", bank.leakage_db),
            format!("{:.2}", all.leakage_offset),
            format!("{:.3}", all.noise_bandwidth),
        ];
        line(&bank.name(), &cells)
    }));
    lines.join("\n")
}

fn line(name: &str, cells: &[String; 8]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
    format!("{name:<28}{cells}")
}

/// Channels of every measured filter bank.
pub const CHANNELS: usize = 512;

/// Channel around which the tones are placed.
pub const CENTRE: usize = 200;

/// Steps of the tone across one channel.
const STEPS: usize = 40;

/// Levels below this are rounding errors of single precision.
const FLOOR_DB: f64 = -120.0;

/// Filter bank and its measured properties.
#[derive(Debug)]
pub struct Bank {
    pub window: Window,
    pub taps: usize,
    pub plan: Plan,
    pub summary: ResponseSummary,
    /// Fraction of the band in which a tone loses less than 1 dB.
    pub within_1_db: f64,
    /// Loss of a tone half way between two channels, in dB.
    scalloping_db: f64,
    /// Highest power, over a sweep of the tone, in any channel whose centre is one channel or more away.
    leakage_db: f64,
}

/// Returns the plain transform, and every window with 4, 8 and 16 taps.
fn cases() -> Vec<(Window, usize)> {
    let windows = [Window::Hann, Window::Hamming, Window::Blackman, Window::Kaiser(80.0)];
    let all = windows.iter().flat_map(|window| [4, 8, 16].map(|taps| (window.clone(), taps)));
    std::iter::once((Window::Rectangular, 1)).chain(all).collect()
}

fn measure(window: Window, taps: usize, backend: &Backend) -> Result<Bank> {
    let mut options = Options::new(CHANNELS, taps, VoltageEncoding::ComplexF32);
    (options.window, options.order) = (window.clone(), Order::Natural);
    let plan = Plan::new(options)?;
    let mut leakage_db = f64::NEG_INFINITY;
    for step in 0..STEPS {
        let tone = CENTRE as f64 + step as f64 / STEPS as f64;
        let found = powers_db(&plan, backend, tone)?;
        let far = found.iter().enumerate().filter(|(channel, _)| distance(tone, *channel) >= 1.0);
        leakage_db = far.map(|(_, db)| *db).fold(leakage_db, f64::max);
    }
    // The sweep may miss the peak of a sidelobe; this tone is at the computed peak.
    let summary = plan.response().summary();
    let there = powers_db(&plan, backend, CENTRE as f64 + summary.leakage_offset)?[CENTRE];
    let half = powers_db(&plan, backend, CENTRE as f64 + 0.5)?;
    Ok(Bank {
        window,
        taps,
        summary,
        within_1_db: within_1_db(&plan),
        scalloping_db: -half[CENTRE].max(half[CENTRE + 1]),
        leakage_db: leakage_db.max(there),
        plan,
    })
}

/// Returns the fraction of the band within 1 dB of the nearest channel's centre.
fn within_1_db(plan: &Plan) -> f64 {
    let offsets = (0..500).map(|step| f64::from(step) / 1000.0);
    let near = offsets.filter(|offset| plan.response().db(*offset) > -1.0);
    near.count() as f64 / 500.0
}

/// Returns the distance in channels from a tone to a channel's centre, modulo the band.
fn distance(tone: f64, channel: usize) -> f64 {
    let away = (tone - channel as f64).rem_euclid(CHANNELS as f64);
    away.min(CHANNELS as f64 - away)
}

/// Returns the power in every channel of a tone at frequency `tone` (in channels), in dB relative to a tone at a
/// channel's centre.
pub fn powers_db(plan: &Plan, backend: &Backend, tone: f64) -> Result<Vec<f64>> {
    let turns = |n: usize| (tone * n as f64 / CHANNELS as f64).fract();
    let sample = |n: usize| Complex::cis(std::f64::consts::TAU * turns(n));
    let samples = (0..plan.span()).map(sample).flat_map(|z| [z.re as f32, z.im as f32]);
    let bytes: Vec<u8> = samples.flat_map(f32::to_le_bytes).collect();
    let mut spectrum = vec![Complex::<f32>::ZERO; CHANNELS];
    let mut channelizer = Channelizer::new(plan.clone(), backend)?;
    let voltages = Voltages::one(&bytes, VoltageEncoding::ComplexF32)?;
    channelizer.run(voltages, Output::Complex(&mut spectrum))?;
    let power = |z: &Complex<f32>| Complex::new(f64::from(z.re), f64::from(z.im)).norm_sqr();
    Ok(spectrum.iter().map(|z| 10.0 * power(z).log10()).collect())
}

impl Bank {
    pub fn name(&self) -> String {
        let window = match &self.window {
            Window::Rectangular => return "Plain transform".to_owned(),
            Window::Kaiser(db) => format!("Kaiser {db} dB"),
            Window::Hann => "Hann".to_owned(),
            Window::Hamming => "Hamming".to_owned(),
            Window::Blackman => "Blackman".to_owned(),
            Window::Custom(_) => "custom".to_owned(),
        };
        format!("{window}, {} taps", self.taps)
    }

    pub fn is(&self, window: &Window, taps: usize) -> bool {
        (&self.window, self.taps) == (window, taps)
    }

    /// Returns whether the measured tones agree with the computed response.
    fn agrees(&self) -> bool {
        let leakage = (self.leakage_db - self.summary.leakage_db).abs() < 0.05;
        let deep = self.leakage_db.max(self.summary.leakage_db) < FLOOR_DB;
        (self.scalloping_db - self.summary.scalloping_loss_db).abs() < 0.001 && (leakage || deep)
    }
}
