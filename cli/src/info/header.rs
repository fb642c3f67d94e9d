//! Header of a recording, as a document and as a table.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::FilterbankHeader;
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, SECONDS_PER_DAY, dispersion_delay_s};

use crate::plots::{duration, short};
use crate::selection::{self, BeamDocument};

/// Header with the keys of its JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Header {
    file: String,
    format: &'static str,
    source: String,
    telescope: String,
    ra_deg: Option<f64>,
    dec_deg: Option<f64>,
    /// Beam of the receiver; `None` if it is unknown or the only one.
    beam: Option<BeamDocument>,
    tstart_mjd: f64,
    tsamp_s: f64,
    times: Option<u64>,
    duration_s: Option<f64>,
    channels: usize,
    fch1_mhz: f64,
    foff_mhz: f64,
    lowest_mhz: f64,
    highest_mhz: f64,
    bits: usize,
    polarizations: usize,
    /// Delay across the band at DM 100, in seconds.
    delay_dm100_s: f64,
}

impl Header {
    pub(super) fn new(header: &FilterbankHeader) -> Self {
        let band = &header.band;
        Self {
            file: selection::shown(&header.path),
            format: header.format,
            source: header.source_name.clone(),
            // Name of SIGPROC's telescope number 0, which writers use for unknown telescopes.
            telescope: if header.telescope == "Fake" {
                String::new()
            } else {
                header.telescope.clone()
            },
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            beam: header.beam.map(BeamDocument::from),
            tstart_mjd: header.tstart_mjd,
            tsamp_s: header.tsamp_s,
            times: header.times,
            duration_s: header.duration_s(),
            channels: header.channels(),
            fch1_mhz: band.fch1_mhz(),
            foff_mhz: band.foff_mhz(),
            lowest_mhz: band.lowest_hz() / HZ_PER_MHZ,
            highest_mhz: band.highest_hz() / HZ_PER_MHZ,
            bits: header.recorded_bits,
            polarizations: header.recorded_polarizations,
            delay_dm100_s: dispersion_delay_s(
                100.0,
                band.lowest_hz(),
                band.highest_hz(),
                DM_CONSTANT,
            ),
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        let plural = if self.polarizations == 1 { "" } else { "s" };
        let ifs = format!("{} polarization{plural}", self.polarizations);
        row("Format", format!("{}, {} bit, {ifs}", self.format, self.bits));
        row("Source", or_unknown(&self.source));
        row("Telescope", or_unknown(&self.telescope));
        row("Position", position(self.ra_deg, self.dec_deg));
        if let Some(beam) = self.beam {
            row("Beam", beam.text());
        }
        row("Start", self.start());
        row("Length", self.length());
        row("Sampling", duration_exactly(self.tsamp_s));
        row("Band", self.band());
        let delay = duration(self.delay_dm100_s);
        row("Dispersion", format!("DM 100 takes {delay} across the band"));
        text
    }

    fn start(&self) -> String {
        if self.tstart_mjd <= 0.0 {
            return "not known".to_owned();
        }
        format!("MJD {:.9} ({} UTC)", self.tstart_mjd, calendar(self.tstart_mjd))
    }

    fn length(&self) -> String {
        match (self.times, self.duration_s) {
            (Some(times), Some(seconds)) => format!("{times} spectra, {}", duration(seconds)),
            _ => "not known beforehand (a pipe)".to_owned(),
        }
    }

    fn band(&self) -> String {
        let order = if self.foff_mhz < 0.0 { "highest first" } else { "lowest first" };
        format!(
            "{} to {} MHz, {} channels of {} MHz, {order}",
            short(self.lowest_mhz, 8),
            short(self.highest_mhz, 8),
            self.channels,
            short(self.foff_mhz.abs(), 6),
        )
    }
}

pub(super) fn or_unknown(name: &str) -> String {
    if name.is_empty() { "not known".to_owned() } else { name.to_owned() }
}

/// Formats a position on the sky.
pub(super) fn position(ra_deg: Option<f64>, dec_deg: Option<f64>) -> String {
    let (Some(ra), Some(dec)) = (ra_deg, dec_deg) else { return "not known".to_owned() };
    format!("RA {}  Dec {} (J2000)", sexagesimal(ra / 15.0, 2), signed_sexagesimal(dec, 1))
}

/// Formats a sampling time with all its digits.
pub(super) fn duration_exactly(seconds: f64) -> String {
    match seconds {
        s if s >= 1e-3 => format!("{} ms", short(s * 1e3, 9)),
        s if s >= 1e-6 => format!("{} µs", short(s * 1e6, 9)),
        s => format!("{} ns", short(s * 1e9, 9)),
    }
}

pub(super) fn sexagesimal(value: f64, decimals: usize) -> String {
    let scale = 10u64.pow(decimals as u32);
    let units = (value * 3600.0 * scale as f64).round() as u64;
    let (whole, part) = (units / scale, units % scale);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{part:0decimals$}")
}

fn signed_sexagesimal(value: f64, decimals: usize) -> String {
    let sign = if value < 0.0 { '-' } else { '+' };
    format!("{sign}{}", sexagesimal(value.abs(), decimals))
}

/// Formats a Modified Julian Date as date and time, to the second.
pub(crate) fn calendar(mjd: f64) -> String {
    let second = (mjd * SECONDS_PER_DAY).floor() as i64;
    let (day, second) = (second.div_euclid(86_400), second.rem_euclid(86_400));
    // Days since 0000-03-01 in eras of 400 years: leap days then end each cycle.
    let days = day + 678_881;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hours:02}:{minutes:02}:{seconds:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_known_days() {
        assert_eq!(calendar(51_544.5), "2000-01-01 12:00:00");
        assert_eq!(calendar(0.0), "1858-11-17 00:00:00");
        assert_eq!(calendar(60_369.0), "2024-02-29 00:00:00");
        assert_eq!(calendar(60_370.25), "2024-03-01 06:00:00");
    }

    #[test]
    fn angles_round_without_sixties() {
        assert_eq!(sexagesimal(11.999_999_999, 2), "12:00:00.00");
        assert_eq!(signed_sexagesimal(-0.5, 1), "-00:30:00.0");
    }
}
