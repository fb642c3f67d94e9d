//! `info` of time series, arrays and rfifind masks.

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::voltages::is_voltages;
use sidereal::io::{npy, presto, sigproc};
use sidereal::units::SECONDS_PER_DAY;
use sidereal::{Error, Result};

use super::header::calendar;
use crate::plots::{duration, short};

/// Document of names and values, in display order.
#[derive(Serialize, JsonSchema)]
pub(super) struct Facts {
    file: String,
    format: &'static str,
    #[serde(flatten)]
    values: serde_json::Map<String, serde_json::Value>,
    #[serde(skip)]
    lines: Vec<(&'static str, String)>,
    #[serde(skip)]
    cut: Option<String>,
}

/// Reads a file whose name identifies it as one of these formats.
pub(super) fn examine(path: &Path) -> Option<Result<Facts>> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    if extension == "dat" && !path.with_extension("inf").exists() && is_voltages(path).ok()? {
        // Voltage recorders use this extension as well.
        return None;
    }
    if extension == "dat" && path.exists() && !path.with_extension("inf").exists() {
        // The caller issues these warnings when it opens the recording.
        return None;
    }
    Some(match extension.as_str() {
        "tim" => tim(path),
        "dat" | "inf" => dat(path),
        "npy" => array(path),
        "mask" => mask(path),
        _ => return None,
    })
}

impl Facts {
    fn new(path: &Path, format: &'static str) -> Self {
        let file = path.display().to_string();
        Self { file, format, values: serde_json::Map::new(), lines: Vec::new(), cut: None }
    }

    /// Returns the missing part of a truncated file.
    pub(super) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn value(&mut self, key: &str, value: impl Into<serde_json::Value>) {
        self.values.insert(key.to_owned(), value.into());
    }

    fn line(&mut self, name: &'static str, words: String) {
        self.lines.push((name, words));
    }

    /// Adds source, start, sampling time, DM, and the statistics of a series.
    fn series(&mut self, about: &Series<'_>, values: &[f32]) {
        let Series { source, telescope, tstart_mjd, tsamp_s, dm } = *about;
        self.value("source", source);
        self.value("telescope", telescope);
        self.value("tstart_mjd", tstart_mjd);
        self.value("tsamp_s", tsamp_s);
        self.value("dm", dm);
        self.value("times", values.len());
        self.value("duration_s", values.len() as f64 * tsamp_s);
        self.line("Source", source.to_owned());
        self.line("Telescope", telescope.to_owned());
        if tstart_mjd * SECONDS_PER_DAY > 1.0 {
            let date = calendar(tstart_mjd);
            self.line("Start", format!("MJD {tstart_mjd:.9} ({date} UTC)"));
        }
        let length = duration(values.len() as f64 * tsamp_s);
        self.line("Length", format!("{} samples of {}, {length}", values.len(), duration(tsamp_s)));
        self.line("DM", format!("{} pc cm⁻³", short(dm, 7)));
        self.statistics(values.iter().map(|x| f64::from(*x)));
    }

    fn statistics(&mut self, values: impl Iterator<Item = f64> + Clone) {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let sigma = (values.clone().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
        let min = values.clone().fold(f64::INFINITY, f64::min);
        let max = values.fold(f64::NEG_INFINITY, f64::max);
        let document = serde_json::json!({
            "samples": count as u64, "min": min, "max": max, "mean": mean, "sigma": sigma,
        });
        self.value("statistics", document);
        let [min, max, mean, sigma] = [min, max, mean, sigma].map(|x| short(x, 5));
        self.line("Statistics", format!("min {min}   max {max}   mean {mean}   sigma {sigma}"));
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n  {:<12}{}\n", self.file, "Format", self.format);
        for (name, words) in self.lines.iter().filter(|(_, words)| !words.is_empty()) {
            let _ = writeln!(text, "  {name:<12}{words}");
        }
        text
    }
}

/// Header fields that both series formats have.
struct Series<'a> {
    source: &'a str,
    telescope: &'a str,
    tstart_mjd: f64,
    tsamp_s: f64,
    dm: f64,
}

fn tim(path: &Path) -> Result<Facts> {
    let (header, values, cut) = sigproc::read_series(path)?;
    let mut facts = Facts::new(path, "SIGPROC time series");
    let about = Series {
        source: &header.source_name,
        telescope: &header.telescope,
        tstart_mjd: header.tstart_mjd,
        tsamp_s: header.tsamp_s,
        dm: header.dm,
    };
    facts.series(&about, &values);
    facts.cut = cut;
    Ok(facts)
}

fn dat(path: &Path) -> Result<Facts> {
    let (header, values, cut) = presto::read(&path.with_extension("dat"))?;
    let mut facts = Facts::new(path, "PRESTO time series");
    let about = Series {
        source: &header.source_name,
        telescope: &header.telescope,
        tstart_mjd: header.epoch_mjd,
        tsamp_s: header.tsamp_s,
        dm: header.dm,
    };
    facts.series(&about, &values);
    facts.cut = cut;
    Ok(facts)
}

fn array(path: &Path) -> Result<Facts> {
    let array = npy::read(path)?;
    if array.values.is_empty() {
        return Err(Error::format(path, "shape", 0, "the array has no element"));
    }
    let mut facts = Facts::new(path, "NumPy array");
    facts.value("shape", array.shape.clone());
    let axes: Vec<String> = array.shape.iter().map(ToString::to_string).collect();
    facts.line("Shape", axes.join(" x "));
    facts.statistics(array.values.iter().copied());
    Ok(facts)
}

fn mask(path: &Path) -> Result<Facts> {
    let mask = presto::Mask::read(path)?;
    let mut facts = Facts::new(path, "PRESTO rfifind mask");
    facts.value("channels", mask.channels);
    facts.value("zapped_channels", mask.zapped_channels.clone());
    facts.value("intervals", mask.intervals.len());
    facts.value("zapped_intervals", mask.zapped_intervals.clone());
    facts.value("interval_s", mask.interval_s);
    let (zapped, channels) = (mask.zapped_channels.len(), mask.channels);
    facts.line("Channels", format!("{zapped} of {channels} are zapped throughout"));
    let (zapped, intervals) = (mask.zapped_intervals.len(), mask.intervals.len());
    let length = duration(mask.interval_s);
    facts.line("Intervals", format!("{zapped} of {intervals} are zapped, {length} each"));
    Ok(facts)
}
