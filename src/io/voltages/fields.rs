//! Text header: keys and values, each with its offset in the file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::voltages::layout::Counts;
use crate::io::voltages::{FilterGeometry, Sweep, VoltageHeader, VoltageOptions};
use crate::io::{Beam, sexagesimal};
use crate::units::HZ_PER_MHZ;
use crate::voltage::VoltageEncoding;

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: String,
    /// Byte offset in the file.
    pub(super) offset: u64,
}

/// Header of a file: keys and values as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    list: Vec<Field>,
}

impl Fields {
    /// Makes a header of `bytes` bytes at byte `offset` of a file.
    pub(super) fn new(path: &Path, offset: u64, bytes: u64, list: Vec<Field>) -> Self {
        Self { path: path.to_path_buf(), offset, bytes, list }
    }

    /// Returns the byte offset of the header in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the header in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Iterates over keys and values; strings have no quotes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|field| (field.key.as_str(), field.value.as_str()))
    }

    fn field(&self, key: &str) -> Option<&Field> {
        self.list.iter().find(|field| field.key == key)
    }

    /// Returns a key's text, if it is present and not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.field(key).map(|field| field.value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns a key's number. Quoted numbers are accepted, because some writers quote them.
    ///
    /// # Errors
    /// [`Error::Format`] unless the value is a finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        let why = || format!("found {text:?}, expected a number");
        number.map(Some).ok_or_else(|| self.fault(key, why()))
    }

    /// Returns a key's count.
    ///
    /// # Errors
    /// [`Error::Format`] unless the value is a non-negative integer.
    pub fn count(&self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if let Ok(count) = text.parse::<u64>() {
            return Ok(Some(count));
        }
        // Some writers format counts as 16384.0.
        let whole = |number: &f64| (0.0..2f64.powi(53)).contains(number) && number.fract() == 0.0;
        match self.number(key).ok().flatten().filter(whole) {
            Some(number) => Ok(Some(number as u64)),
            None => Err(self.fault(key, format!("found {text:?}, expected a count from 0 on"))),
        }
    }

    /// Returns a count that must be present and not 0.
    ///
    /// # Errors
    /// As [`Fields::count`].
    pub(crate) fn needed(&self, key: &str) -> Result<u64> {
        match self.count(key)? {
            Some(0) => Err(self.fault(key, "found 0, expected 1 at least")),
            Some(count) => Ok(count),
            None => Err(self.fault(key, "it is missing from the header")),
        }
    }

    /// Makes an error about a key's value or its absence.
    pub(crate) fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        let offset = self.field(key).map_or(self.offset, |field| field.offset);
        Error::format(&self.path, key, offset, why)
    }
}

/// Plausible sampling times, in seconds.
pub(super) const TSAMP_S: std::ops::RangeInclusive<f64> = 1e-15..=86_400.0;

/// Largest deviation of a channel's centre from an even grid, in channel widths.
const GRID_TOLERANCE: f64 = 1e-3;

/// Keys of a filter bank's geometry: channels, taps, window, oversampling.
const FILTER_KEYS: [&str; 4] = ["PFB_NCHN", "PFB_NTAP", "PFB_WIN", "PFB_OVER"];

/// Returns the centres of `channels` channels that fill a band; 0 if the band's middle is unknown.
fn centres(middle_hz: Option<f64>, width_hz: f64, channels: usize) -> Vec<f64> {
    let Some(middle) = middle_hz else { return vec![0.0; channels] };
    let step = width_hz / channels as f64;
    (0..channels).map(|c| middle - 0.5 * width_hz + (c as f64 + 0.5) * step).collect()
}

/// Returns the sampling time in seconds from the reader's options; `None` without a sampling rate.
///
/// # Errors
/// [`Error::Parameter`] for a rate that is not positive and finite.
pub(super) fn sampling_time(options: &VoltageOptions) -> Result<Option<f64>> {
    let Some(rate) = options.sample_rate_hz else { return Ok(None) };
    let tsamp = 1.0 / rate;
    if !(tsamp.is_finite() && tsamp > 0.0) {
        let rule = "it must be positive and finite";
        return Err(Error::parameter("sample_rate_hz", rate, rule));
    }
    Ok(Some(tsamp))
}

/// Returns the band's middle from the reader's options.
///
/// # Errors
/// [`Error::Parameter`] if it is not finite.
fn told_centre(options: &VoltageOptions) -> Result<Option<f64>> {
    match options.centre_hz {
        Some(hz) if !hz.is_finite() => {
            Err(Error::parameter("centre frequency (Hz)", hz, "it must be finite"))
        }
        told => Ok(told),
    }
}

/// Keys of the common fields in text headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// Middle of the band in MHz.
    pub(super) middle: &'static str,
    /// Width of the band in MHz, negative if channels descend and are lower sidebands.
    pub(super) width: &'static str,
    /// The source's name.
    pub(super) source: &'static str,
    /// The telescope's name.
    pub(super) telescope: &'static str,
    /// Basis of the feeds.
    pub(super) basis: &'static str,
}

/// Builds a voltage header from a text header: band, names, feeds and filter bank.
///
/// # Errors
/// [`Error::Format`] for a value that is not a number; [`Error::Parameter`] as [`told_centre`].
pub(super) fn header(
    fields: &Fields,
    keys: &Keys,
    encoding: VoltageEncoding,
    counts: Counts,
    tsamp_s: f64,
    options: &VoltageOptions,
) -> Result<VoltageHeader> {
    let middle = match told_centre(options)? {
        Some(told) => Some(told),
        None => fields.number(keys.middle)?.map(|mhz| mhz * HZ_PER_MHZ),
    };
    let rate = if encoding.is_complex() { 1.0 / tsamp_s } else { 0.5 / tsamp_s };
    let width = fields.number(keys.width)?.filter(|mhz| *mhz != 0.0);
    let width = width.map_or(rate * counts.channels as f64, |mhz| mhz * HZ_PER_MHZ);
    let text = |key| fields.text(key).unwrap_or_default().to_string();
    Ok(VoltageHeader {
        source_name: text(keys.source),
        telescope: text(keys.telescope),
        lower_sideband: options.lower_sideband.unwrap_or(width < 0.0),
        antennas: counts.antennas,
        polarizations: counts.polarizations,
        circular: fields.text(keys.basis).and_then(circular),
        beam: beam(fields),
        filter: parse_filter(FILTER_KEYS.map(|key| fields.text(key))),
        sweep: Sweep::parse(|key| fields.text(key)),
        ..VoltageHeader::new(centres(middle, width, counts.channels), tsamp_s, encoding)
    })
}

/// Parses the beam: `BEAM_ID` or `BEAM`, of `NBEAM` or `NBEAMS`.
fn beam(fields: &Fields) -> Option<Beam> {
    let text = |keys: [&str; 2]| keys.into_iter().find_map(|key| fields.text(key));
    let of = text(["NBEAM", "NBEAMS"]).and_then(|of| of.trim().parse().ok());
    Beam::named(text(["BEAM_ID", "BEAM"]), of)
}

/// Parses a right ascension in hours; returns degrees.
pub(super) fn ra_deg(text: &str) -> Option<f64> {
    let degrees = sexagesimal::parse(text)? * 15.0;
    (0.0..=360.0).contains(&degrees).then_some(degrees)
}

/// Parses a declination; returns degrees.
pub(super) fn dec_deg(text: &str) -> Option<f64> {
    sexagesimal::parse(text).filter(|degrees| degrees.abs() <= 90.0)
}

/// Returns whether a feed basis is circular (`CIRC`, `Circular`) or linear; `None` for another name.
fn circular(name: &str) -> Option<bool> {
    match name.get(..3)?.to_ascii_uppercase().as_str() {
        "CIR" => Some(true),
        "LIN" => Some(false),
        _ => None,
    }
}

/// Parses the geometry of a filter bank; `None` if a field is missing or invalid.
fn parse_filter(text: [Option<&str>; 4]) -> Option<FilterGeometry> {
    let [channels, taps, window, oversampling] = text;
    let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
    let ratio = oversampling.unwrap_or("1/1");
    let (above, below) = ratio.split_once('/').unwrap_or((ratio, "1"));
    Some(FilterGeometry {
        channels: count(channels?)?,
        taps: count(taps?)?,
        window: window.unwrap_or_default().to_string(),
        oversampling: (count(above)?, count(below)?),
    })
}

/// Formats a filter bank's geometry under its four keys.
pub(super) fn filter_fields(filter: &FilterGeometry) -> [(&'static str, String); 4] {
    let (above, below) = filter.oversampling;
    let [channels, taps, window, oversampling] = FILTER_KEYS;
    [
        (channels, filter.channels.to_string()),
        (taps, filter.taps.to_string()),
        (window, filter.window.clone()),
        (oversampling, format!("{above}/{below}")),
    ]
}

/// Returns the counts of a header to be written.
///
/// # Errors
/// [`Error::Parameter`] for no antenna, a number of polarizations other than 1 or 2, or a sampling time that is not
/// positive.
pub(super) fn counts(header: &VoltageHeader) -> Result<Counts> {
    let VoltageHeader { antennas, polarizations, .. } = *header;
    if antennas == 0 {
        return Err(Error::parameter("antennas", 0, "there must be one at least"));
    }
    if !(1..=2).contains(&polarizations) {
        return Err(Error::parameter("polarizations", polarizations, "there must be 1 or 2"));
    }
    if !(header.tsamp_s.is_finite() && header.tsamp_s > 0.0) {
        return Err(Error::parameter("sampling time (s)", header.tsamp_s, "it must be positive"));
    }
    Ok(Counts { antennas, channels: header.coarse_channels(), polarizations })
}

/// A band in the form of headers with one middle and one signed width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EvenBand {
    /// Middle in Hz, when known.
    pub(super) middle_hz: Option<f64>,
    /// Width in Hz, negative for a lower sideband, whose channels descend.
    pub(super) width_hz: f64,
    /// Whether the writer must reverse the order of the channels.
    pub(super) reversed: bool,
}

impl EvenBand {
    /// Computes the band of a header to be written.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels that are not evenly spaced.
    pub(super) fn new(header: &VoltageHeader) -> Result<Self> {
        let centres = &header.centres_hz;
        let sign = if header.lower_sideband { -1.0 } else { 1.0 };
        let channels = centres.len();
        let even = |step: f64| sign * step.abs() * channels as f64;
        let width = header.channel_width_hz();
        let (Some(first), Some(last)) = (centres.first(), centres.last()) else {
            return Err(Error::parameter("channels", 0, "there must be one at least"));
        };
        if centres.iter().all(|centre| *centre == 0.0) {
            return Ok(Self { middle_hz: None, width_hz: even(width), reversed: false });
        }
        let middle_hz = Some(0.5 * (first + last));
        if channels == 1 {
            return Ok(Self { middle_hz, width_hz: even(width), reversed: false });
        }
        let step = (last - first) / (channels - 1) as f64;
        let off = |(c, centre): (usize, &f64)| (centre - first - c as f64 * step).abs();
        let worst = centres.iter().enumerate().map(off).fold(0.0, f64::max);
        if !(step.is_finite() && step != 0.0 && worst <= GRID_TOLERANCE * step.abs()) {
            let rule = "a file of this format holds evenly spaced channels only";
            return Err(Error::parameter("channel centre off the grid (Hz)", worst, rule));
        }
        Ok(Self { middle_hz, width_hz: even(step), reversed: (step < 0.0) != (sign < 0.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are_written() {
        let texts = ["A 7", "B -100.0", "C 1.5D-3", "D x", "E 16384.0", "F -1", "G 1e400", "Z 0"];
        let list = texts.map(|text| Field {
            key: text[..1].into(),
            value: text[2..].into(),
            offset: 100 + u64::from(text.as_bytes()[0]),
        });
        let header = Fields::new(Path::new("x.raw"), 99, 0, list.to_vec());
        assert_eq!(header.count("A").unwrap(), Some(7));
        assert_eq!(header.number("B").unwrap(), Some(-100.0));
        assert_eq!(header.number("C").unwrap(), Some(1.5e-3));
        assert_eq!(header.count("E").unwrap(), Some(16384));
        assert_eq!(header.count("H").unwrap(), None);
        assert!(header.number("D").is_err() && header.count("F").is_err());
        assert!(header.number("G").is_err() && header.needed("Z").is_err());
        let place = |error: Error| match error {
            Error::Format { field, offset, .. } => (field, offset),
            other => panic!("{other}"),
        };
        assert_eq!(place(header.count("D").unwrap_err()), ("D".into(), 168));
        assert_eq!(place(header.needed("H").unwrap_err()), ("H".into(), 99));
    }

    #[test]
    fn a_filter_goes_round() {
        let filter =
            FilterGeometry { channels: 64, taps: 8, window: "hann".into(), oversampling: (4, 3) };
        let fields = filter_fields(&filter);
        let text = [0, 1, 2, 3].map(|i| Some(fields[i].1.as_str()));
        assert_eq!(parse_filter(text), Some(filter));
        assert_eq!(parse_filter([Some("64"), Some("8"), None, None]).unwrap().oversampling, (1, 1));
        for wrong in ["0/1", "4/0", "x", "4/3/2", "-1/2"] {
            assert_eq!(parse_filter([Some("64"), Some("8"), None, Some(wrong)]), None, "{wrong}");
        }
        assert_eq!(parse_filter([None, Some("8"), None, None]), None);
    }

    #[test]
    fn a_band_has_its_first_channel_half_a_width_inside() {
        assert_eq!(centres(Some(100.0), 8.0, 4), [97.0, 99.0, 101.0, 103.0]);
        assert_eq!(centres(Some(100.0), -8.0, 4), [103.0, 101.0, 99.0, 97.0]);
        assert_eq!(centres(None, 8.0, 2), [0.0, 0.0]);
    }

    #[test]
    fn what_the_reader_is_told_must_make_sense() {
        let rate = |rate| VoltageOptions { sample_rate_hz: Some(rate), ..Default::default() };
        assert_eq!(sampling_time(&rate(4.0)).unwrap(), Some(0.25));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(sampling_time(&rate(wrong)).is_err(), "{wrong}");
        }
        let centre = VoltageOptions { centre_hz: Some(f64::NAN), ..Default::default() };
        assert!(told_centre(&centre).is_err());
    }
}
