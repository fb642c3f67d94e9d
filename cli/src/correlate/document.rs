//! JSON document of `correlate`.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::correlate::Precision;
use sidereal::pipeline::correlator::{
    ArrayHeader, CorrelateOptions, Gains, PhaseCentre, WriteReport,
};
use sidereal::units::HZ_PER_MHZ;

use crate::behind::Dropped;
use crate::flags;
use crate::plots::{duration, frequency, short};
use crate::progress::{multiple, rate};
use crate::provenance::Run;

/// Most antennas named in a warning.
const TOLD: usize = 8;
/// Fraction of an antenna's samples that may saturate without a warning: at 8 bit, and at 4 bit, where 1 % of ideal
/// noise saturates.
const MANY_LIMITED: [f64; 2] = [0.01, 0.03];

/// Source of UT1 - UTC if an option gives it.
const GIVEN: &str = "--dut1";

/// OUT.json, and the JSON document on standard output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    pub(crate) file: String,
    format: &'static str,
    bytes: u64,
    source: Option<String>,
    phase_centre: Option<Centre>,
    telescope: String,
    tstart_mjd: f64,
    duration_s: f64,
    pub(crate) integrations: u64,
    integration_s: f64,
    spectra: u64,
    spectrum_s: f64,
    channels: usize,
    /// Centre of the first and the last channel.
    pub(crate) frequency_mhz: [f64; 2],
    channel_width_mhz: f64,
    average_channels: usize,
    polarizations: Vec<&'static str>,
    pub(crate) baselines: usize,
    spectra_made: Made,
    antennas: Vec<Antenna>,
    missing: Vec<String>,
    /// Antennas whose valid samples are all 0.
    silent: Vec<String>,
    /// Number of recorded samples that are not finite.
    not_finite: u64,
    dut1_s: f64,
    dut1_from: String,
    plots: Vec<String>,
    report: Option<String>,
    /// Samples of a live observation so far that were dropped because correlating was too slow; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<Dropped>,
    /// Whether the file contains the complete recordings.
    complete: bool,
    /// Reason if it does not.
    reason: Option<String>,
    /// GPU that correlated: `cuda:0` and its name; absent if the CPU did.
    #[serde(skip)]
    device: Option<String>,
    #[serde(skip)]
    steps: Steps,
    #[serde(skip)]
    elapsed_s: f64,
    /// Recorded samples of all streams of an antenna, per second.
    #[serde(skip)]
    samples_per_s_per_antenna: f64,
    /// Requested precision, if no GPU applied it.
    #[serde(skip)]
    unused_precision: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Centre {
    ra_deg: f64,
    dec_deg: f64,
    /// Altitude at the start and at the end.
    altitude_deg: Option<[f64; 2]>,
    /// Lowest altitude during the recording.
    lowest_altitude_deg: Option<f64>,
}

/// Channelization of the spectra.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Made {
    channelized: bool,
    channels_of_each: usize,
    taps: Option<usize>,
    window: Option<String>,
    bits: usize,
    /// Rounding of floats on a GPU before multiplication; absent if nothing was rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<String>,
    gains: String,
    /// Whether recorded integers were multiplied unchanged.
    as_recorded: bool,
    /// Whether the GPU that multiplied the spectra also made them; absent if the CPU multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_device: Option<bool>,
    /// Reason if it did not although it was asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_on_device: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Antenna {
    name: String,
    file: String,
    /// Fraction of the antenna's samples that saturated in rounding.
    limited: f64,
    /// Fraction of the antenna's spectra that are not valid.
    masked: f64,
}

/// Seconds of each step.
#[derive(Clone, Debug)]
struct Steps {
    read_s: f64,
    channelize_s: f64,
    align_s: f64,
    corner_turn_s: f64,
    correlate_s: f64,
    read_out_s: f64,
    write_s: f64,
}

/// Inputs of a document.
pub(super) struct Written<'a> {
    pub(super) file: String,
    pub(super) header: &'a ArrayHeader,
    pub(super) options: &'a CorrelateOptions,
    pub(super) report: &'a WriteReport,
    /// Each antenna's name and file.
    pub(super) files: &'a [(String, String)],
    /// GPU that correlated, if any.
    pub(super) device: Option<String>,
    /// Antennas whose valid samples are all 0.
    pub(super) silent: Vec<String>,
    pub(super) plots: Vec<String>,
    /// Path of the report, if there is one.
    pub(super) page: Option<String>,
}

/// Returns the products of two polarizations, in the file's order.
pub(super) fn products(circular: bool, polarizations: usize) -> Vec<&'static str> {
    match (circular, polarizations) {
        (false, 2) => vec!["XX", "YY", "XY", "YX"],
        (true, 2) => vec!["RR", "LL", "RL", "LR"],
        (false, _) => vec!["XX"],
        (true, _) => vec!["RR"],
    }
}

impl Document {
    pub(super) fn new(written: Written<'_>) -> Self {
        let Written { file, header, options, report, files, device, silent, plots, page } = written;
        let (summary, bank) = (&report.summary, &header.bank);
        let (source, phase_centre) = match &header.phase_centre {
            PhaseCentre::Sidereal { ra_deg, dec_deg, name } => {
                let altitude_deg = summary.altitudes_deg.map(|(start, end)| [start, end]);
                let lowest_altitude_deg = summary.lowest_altitude_deg;
                let centre = Centre {
                    ra_deg: *ra_deg,
                    dec_deg: *dec_deg,
                    altitude_deg,
                    lowest_altitude_deg,
                };
                (Some(name.clone()), Some(centre))
            }
            PhaseCentre::Drift => (None, None),
        };
        let mhz = |hertz: Option<&f64>| hertz.copied().unwrap_or(0.0) / HZ_PER_MHZ;
        let frequencies = &header.frequencies_hz;
        let own_file = |name: &str| {
            let found = files.iter().find(|(antenna, _)| antenna == name);
            found.map_or_else(String::new, |(_, file)| file.clone())
        };
        let streams = header.polarizations * recorded_channels(header);
        Self {
            file,
            format: "UVH5",
            bytes: report.bytes,
            source,
            phase_centre,
            telescope: header.array.name.clone(),
            tstart_mjd: header.start.mjd(),
            duration_s: summary.data_s,
            integrations: summary.integrations,
            integration_s: header.integration_s(),
            spectra: summary.spectra,
            spectrum_s: header.spectrum_s,
            channels: frequencies.len(),
            frequency_mhz: [mhz(frequencies.first()), mhz(frequencies.last())],
            channel_width_mhz: header.channel_width_hz / HZ_PER_MHZ,
            average_channels: header.average_channels,
            polarizations: products(header.circular, header.polarizations),
            baselines: header.baselines.len(),
            spectra_made: Made {
                channelized: bank.channelized_here,
                channels_of_each: bank.channels,
                taps: bank.channelized_here.then_some(bank.taps),
                window: bank.channelized_here.then(|| bank.window.clone()),
                bits: bank.nbits,
                precision: (bank.precision != Precision::F32).then(|| bank.precision.to_string()),
                gains: gains(&options.gains),
                as_recorded: bank.as_recorded,
                on_device: device.as_ref().map(|_| summary.made_on_device),
                not_on_device: summary.not_on_device.as_deref().map(flags::named),
            },
            antennas: summary
                .antennas
                .iter()
                .map(|own| Antenna {
                    name: own.name.clone(),
                    file: own_file(&own.name),
                    limited: own.saturated,
                    masked: own.masked,
                })
                .collect(),
            missing: summary.missing.clone(),
            silent,
            not_finite: summary.not_finite,
            dut1_s: summary.dut1_s,
            dut1_from: options.dut1.about().unwrap_or(GIVEN).trim().to_owned(),
            plots,
            report: page,
            dropped: None,
            device,
            steps: Steps {
                read_s: summary.steps.read_s,
                channelize_s: summary.steps.channelize_s,
                align_s: summary.steps.align_s,
                corner_turn_s: summary.steps.turn_s,
                correlate_s: summary.steps.correlate_s,
                read_out_s: summary.steps.output_s,
                write_s: report.write_s,
            },
            elapsed_s: report.elapsed_s,
            complete: report.ending.is_complete(),
            reason: flags::reason(&report.ending),
            samples_per_s_per_antenna: summary.samples as f64 * streams as f64
                / report.elapsed_s.max(1e-9),
            unused_precision: (options.precision != bank.precision)
                .then(|| options.precision.to_string()),
        }
    }

    /// Returns the seconds of data correlated per second.
    pub(crate) fn realtime_factor(&self) -> f64 {
        self.duration_s / self.elapsed_s.max(1e-9)
    }

    /// Returns the run with the time of each step.
    pub(super) fn told(&self, run: Run) -> Run {
        let Steps {
            read_s,
            channelize_s,
            align_s,
            corner_turn_s,
            correlate_s,
            read_out_s,
            write_s,
        } = self.steps;
        run.took(self.elapsed_s, self.duration_s).steps(&[
            ("read", read_s),
            ("channelize", channelize_s),
            ("align", align_s),
            ("corner_turn", corner_turn_s),
            ("correlate", correlate_s),
            ("read_out", read_out_s),
            ("write", write_s),
        ])
    }

    /// Returns warnings, one per line.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        let lowest = self.phase_centre.as_ref().and_then(|centre| centre.lowest_altitude_deg);
        if let Some(lowest) = lowest.filter(|lowest| *lowest < 0.0) {
            all.push(format!(
                "the phase centre is below the horizon: its altitude falls to {lowest:.1}°"
            ));
        }
        if let Some(why) = &self.spectra_made.not_on_device {
            all.push(format!("the processor made the spectra that the GPU multiplied: {why}"));
        }
        if let Some(precision) = &self.unused_precision {
            all.push(format!(
                "--precision {precision} is for GPUs: the processor rounds nothing before it multiplies"
            ));
        }
        if self.not_finite > 0 {
            all.push(format!(
                "{} recorded samples are not finite numbers; the spectra that would have them are flagged",
                self.not_finite
            ));
        }
        if !self.missing.is_empty() {
            let names = names(self.missing.iter().map(String::as_str));
            all.push(format!("no recording of {names}; its visibilities are flagged"));
        }
        let many = MANY_LIMITED[usize::from(self.spectra_made.bits == 4)];
        let limited = self.antennas.iter().filter(|own| own.limited > many);
        let limited: Vec<&str> = limited.map(|own| own.name.as_str()).collect();
        if !limited.is_empty() {
            let names = names(limited.into_iter());
            all.push(format!(
                "more than {} % of the samples of {names} had to be limited (--gains)",
                percent(many)
            ));
        }
        if !self.silent.is_empty() {
            let names = names(self.silent.iter().map(String::as_str));
            all.push(format!("every sample of {names} is 0, and none is flagged"));
        }
        let silent = self.antennas.iter().filter(|own| own.masked >= 1.0);
        let silent: Vec<&str> = silent.map(|own| own.name.as_str()).collect();
        if !silent.is_empty() {
            let names = names(silent.into_iter());
            all.push(format!("{names} has no valid spectrum"));
        }
        all
    }

    /// Describes the last integration if it has less than nine tenths of the others' spectra.
    fn rest(&self) -> String {
        let each = (self.integration_s / self.spectrum_s).round() as u64;
        let rest = self.spectra.saturating_sub(self.integrations.saturating_sub(1) * each);
        if rest == 0 || 10 * rest >= 9 * each {
            return String::new();
        }
        format!(" (the last has {} % of it)", percent(rest as f64 / each as f64))
    }

    /// Formats the lines printed at the end of the verb.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "Correlated {} of {} antennas in {}: {} per antenna, {} x real time.\n",
            duration(self.duration_s),
            self.antennas.len(),
            duration(self.elapsed_s),
            rate(self.samples_per_s_per_antenna),
            multiple(self.realtime_factor()),
        );
        if let Some(device) = &self.device {
            let _ = writeln!(text, "  on: {device}");
        }
        let _ = writeln!(text, "  time: {}", self.shares());
        let _ = writeln!(
            text,
            "  spectra: {}; {} % limited, {} % masked",
            self.made(),
            percent(mean(self.antennas.iter().map(|own| own.limited))),
            percent(mean(self.antennas.iter().map(|own| own.masked))),
        );
        let _ = writeln!(text, "  sky: {}", self.sky());
        let _ = write!(
            text,
            "Wrote {}{}: {} integration{} of {}{}, {} baselines, {} channels of {}, {} to {} MHz, {}",
            self.file,
            if self.complete { "" } else { " (not complete)" },
            self.integrations,
            if self.integrations == 1 { "" } else { "s" },
            duration(self.integration_s),
            self.rest(),
            self.baselines,
            self.channels,
            frequency(self.channel_width_mhz * HZ_PER_MHZ),
            short(self.frequency_mhz[0], 8),
            short(self.frequency_mhz[1], 8),
            self.polarizations.join(" "),
        );
        if let Some(folder) = self.plots.first().and_then(|name| name.rsplit_once('/')) {
            let _ = write!(text, "\nPictures: {}/", folder.0);
        }
        if let Some(report) = &self.report {
            let _ = write!(text, "\nReport: {report}");
        }
        text
    }
}

fn gains(gains: &Gains) -> String {
    match gains {
        Gains::Auto => "auto".to_owned(),
        Gains::Fixed(gain) => gain.to_string(),
        Gains::Table(_) => "from a file".to_owned(),
    }
}

fn recorded_channels(header: &ArrayHeader) -> usize {
    header.frequencies_hz.len() * header.average_channels / header.bank.channels.max(1)
}

/// Formats `a, b and c`; shortens long lists.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = all.len();
    let shown: Vec<&str> = all.take(TOLD).collect();
    let more = if count > TOLD { format!(" and {} more", count - TOLD) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

fn percent(part: f64) -> String {
    short(100.0 * part, 2)
}

impl Document {
    /// Formats each step's share of the time.
    fn shares(&self) -> String {
        let Steps {
            read_s,
            channelize_s,
            align_s,
            corner_turn_s,
            correlate_s,
            read_out_s,
            write_s,
        } = self.steps;
        let steps = [
            ("reading", read_s),
            ("filter banks", channelize_s),
            ("alignment", align_s),
            ("corner turn", corner_turn_s),
            ("multiplication", correlate_s),
            ("reading out", read_out_s),
            ("writing", write_s),
        ];
        let all: f64 = steps.iter().map(|step| step.1).sum();
        let share = |(name, seconds): &(&str, f64)| {
            format!("{name} {} %", (100.0 * seconds / all.max(1e-12)).round())
        };
        steps.iter().map(share).collect::<Vec<_>>().join(", ")
    }

    fn made(&self) -> String {
        let Made { channelized, channels_of_each, taps, window, bits, .. } = &self.spectra_made;
        let bits = if *bits == 32 { "floats".to_owned() } else { format!("{bits} bit") };
        match (channelized, taps, window) {
            (true, Some(taps), Some(window)) => format!(
                "{channels_of_each} channels of each recorded one, {taps} taps, {window}, {bits}"
            ),
            _ => format!("recorded channels as they are, {bits}"),
        }
    }

    fn sky(&self) -> String {
        let from = match self.dut1_from.split_once(": ") {
            _ if self.dut1_from == GIVEN => GIVEN,
            Some((file, _)) if !file.starts_with("IERS") => file,
            _ => "table of the IERS",
        };
        let dut1 = format!("UT1-UTC {} s ({from})", short(self.dut1_s, 5));
        let (Some(source), Some(centre)) = (&self.source, &self.phase_centre) else {
            return format!("drift, no source is followed; {dut1}");
        };
        let altitude = centre.altitude_deg.map_or_else(String::new, |[start, end]| {
            format!(", altitude {start:.1}° to {end:.1}°")
        });
        let (ra, dec) = (short(centre.ra_deg, 8), short(centre.dec_deg, 8));
        format!("{source} at RA {ra}°, Dec {dec}°{altitude}; {dut1}")
    }
}
