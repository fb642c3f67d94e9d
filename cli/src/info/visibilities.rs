//! `info` of visibilities: header of a UVH5 file.

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::uvh5::{self, Summary};
use sidereal::units::HZ_PER_MHZ;

use super::header::{or_unknown, position};
use super::voltages::utc;
use crate::plots::{duration, frequency, short};

/// Most antennas named in the table.
const NAMED: usize = 16;

/// Visibility file with the keys of its JSON document.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Document {
    file: String,
    format: &'static str,
    version: String,
    telescope: String,
    instrument: String,
    longitude_deg: f64,
    latitude_deg: f64,
    height_m: f64,
    antennas: Vec<String>,
    antennas_used: u64,
    source: Option<Source>,
    /// Centre of the first and of the last integration.
    first_mjd: f64,
    first_utc: String,
    last_mjd: f64,
    integrations: u64,
    integration_s: f64,
    /// Durations of the shortest and of the longest integration.
    integration_range_s: [f64; 2],
    averaged_by_baseline: bool,
    /// Whether every baseline has every integration.
    rectangular: bool,
    rows: u64,
    duration_s: f64,
    baselines: u64,
    channels: usize,
    /// Centre of the first and the last channel.
    frequency_mhz: [f64; 2],
    channel_width_mhz: f64,
    polarizations: Vec<String>,
    units: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    name: String,
    kind: String,
    ra_deg: Option<f64>,
    dec_deg: Option<f64>,
}

impl Document {
    /// Reads a file's header.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let summary = uvh5::summary(path)?;
        let mhz = |hertz: Option<&f64>| hertz.copied().unwrap_or(0.0) / HZ_PER_MHZ;
        let Summary { frequencies_hz, location, .. } = &summary;
        let source = summary.source.as_ref().map(|source| Source {
            name: source.name.clone(),
            kind: source.kind.clone(),
            ra_deg: source.place_deg.map(|place| place.0),
            dec_deg: source.place_deg.map(|place| place.1),
        });
        Ok(Self {
            file: path.display().to_string(),
            format: "UVH5",
            version: summary.version.clone(),
            telescope: summary.telescope.clone(),
            instrument: summary.instrument.clone(),
            longitude_deg: location.longitude_deg,
            latitude_deg: location.latitude_deg,
            height_m: location.height_m,
            antennas: summary.antennas.clone(),
            antennas_used: summary.antennas_used,
            source,
            first_mjd: summary.first.mjd(),
            first_utc: utc(&summary.first),
            last_mjd: summary.last.mjd(),
            integrations: summary.integrations,
            integration_s: summary.integration_s,
            integration_range_s: [summary.integration_range_s.0, summary.integration_range_s.1],
            averaged_by_baseline: summary.is_averaged_by_baseline(),
            rectangular: summary.is_rectangular(),
            rows: summary.rows,
            duration_s: summary.duration_s,
            baselines: summary.baselines,
            channels: frequencies_hz.len(),
            frequency_mhz: [mhz(frequencies_hz.first()), mhz(frequencies_hz.last())],
            channel_width_mhz: summary.channel_width_hz / HZ_PER_MHZ,
            polarizations: summary.polarizations.iter().copied().map(polarization).collect(),
            units: summary.units.clone(),
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        let version = if self.version.is_empty() { "not told" } else { &self.version };
        row("Format", format!("{} visibilities, version {version}", self.format));
        row("Source", self.source());
        row("Telescope", format!("{}, {}", or_unknown(&self.telescope), self.place()));
        row("Instrument", or_unknown(&self.instrument));
        row("Antennas", self.antennas());
        row("Baselines", format!("{}, {}", self.baselines, self.polarizations.join(" ")));
        row(
            "Start",
            format!("MJD {:.9} ({} UTC), middle of the first", self.first_mjd, self.first_utc),
        );
        row("Times", self.times());
        let (first, last) = (short(self.frequency_mhz[0], 9), short(self.frequency_mhz[1], 9));
        let width = frequency(self.channel_width_mhz * HZ_PER_MHZ);
        row("Band", format!("{} channels of {width}, {first} to {last} MHz", self.channels));
        row("Units", or_unknown(&self.units));
        text
    }

    fn source(&self) -> String {
        let Some(Source { name, kind, ra_deg, dec_deg }) = &self.source else {
            return or_unknown("");
        };
        match ra_deg {
            Some(_) => format!("{name}, {}", position(*ra_deg, *dec_deg)),
            None => format!("{name} ({kind})"),
        }
    }

    fn times(&self) -> String {
        let Self { integrations, rows, .. } = self;
        let (each, whole) = (duration(self.integration_s), duration(self.duration_s));
        if self.averaged_by_baseline {
            let [shortest, longest] = self.integration_range_s.map(duration);
            return format!(
                "{rows} rows of {shortest} to {longest}, averaged by baseline, over {whole}"
            );
        }
        let lacking = match self.rectangular {
            true => String::new(),
            false => format!(", {rows} rows: not every baseline has every integration"),
        };
        format!("{integrations} integrations of {each}, {whole}{lacking}")
    }

    fn place(&self) -> String {
        let Self { longitude_deg, latitude_deg, height_m, .. } = self;
        format!(
            "longitude {}°, latitude {}°, {} m",
            short(*longitude_deg, 7),
            short(*latitude_deg, 7),
            short(*height_m, 6)
        )
    }

    fn antennas(&self) -> String {
        let names = &self.antennas[..self.antennas.len().min(NAMED)];
        let more = if self.antennas.len() > NAMED { ", ..." } else { "" };
        let (used, all) = (self.antennas_used, self.antennas.len());
        format!("{used} with data of {all}: {}{more}", names.join(", "))
    }
}

/// Returns the name of an AIPS polarization number.
fn polarization(number: i64) -> String {
    const STOKES: [&str; 4] = ["I", "Q", "U", "V"];
    const PAIRS: [&str; 8] = ["RR", "LL", "RL", "LR", "XX", "YY", "XY", "YX"];
    let place = usize::try_from(number.unsigned_abs()).unwrap_or(0).wrapping_sub(1);
    let names: &[&str] = if number > 0 { &STOKES } else { &PAIRS };
    names.get(place).map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polarizations_have_names() {
        let names: Vec<String> = [-5, -6, -8, -1, 1, 4, 0, 9, -9].map(polarization).into();
        assert_eq!(names, ["XX", "YY", "YX", "RR", "I", "V", "0", "9", "-9"]);
    }
}
