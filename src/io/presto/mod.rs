//! PRESTO time series: `.dat` files (32-bit floats, little endian) with a text header `.inf`.
//!
//! Invariant: a `.dat` from [`SeriesWriter::create`] never has its final name without its `.inf`.
//!
//! # Source
//! PRESTO's `ioinf.c`, which reads lines in order and values from column 41 on.

mod rfifind;

use std::path::Path;
use std::{fmt, fs};

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::{FilterbankHeader, sexagesimal};
use crate::units::HZ_PER_MHZ;

pub use rfifind::{Mask, RecordedMask};

/// Reads a series: its header, its samples and, if the `.dat` is shorter than the `.inf` states, a message about it;
/// `path` is that of the `.dat`.
///
/// # Errors
/// [`Error::Format`] if the `.inf` is invalid, or if the `.dat` is longer than the `.inf` states or has no sample;
/// [`Error::Io`].
pub fn read(path: &Path) -> Result<(Inf, Vec<f32>, Option<String>)> {
    let inf_path = path.with_extension("inf");
    let inf = Inf::read(&inf_path)?;
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let (expected, found) = (inf.bins.checked_mul(4), bytes.len() as u64);
    if expected.is_none_or(|expected| found > expected || found < expected.min(4)) {
        let why = format!(
            "found {} bytes, expected 4 for each of the {} bins in {}",
            bytes.len(),
            inf.bins,
            inf_path.display()
        );
        return Err(Error::format(path, "data", 0, why));
    }
    let cut = (expected != Some(found)).then(|| {
        let (path, whole, bins) = (path.display(), found / 4, inf.bins);
        format!("{path}: it holds {whole} of the {bins} samples that its .inf promises")
    });
    let quads = bytes.chunks_exact(4);
    Ok((inf, quads.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(), cut))
}

/// Unfinished `.dat` and its `.inf`.
#[derive(Debug)]
pub struct SeriesWriter {
    file: AtomicFile,
    inf: Inf,
}

impl SeriesWriter {
    /// Creates `path`, the `.dat`. The writer sets the header's name and number of bins.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `path` ends in `.dat`; [`Error::Io`].
    pub fn create(path: &Path, inf: &Inf) -> Result<Self> {
        Self::new(path, inf, 0, AtomicFile::create)
    }

    /// Creates or continues a series in place: the `.dat` has its final name from the start, and a drop keeps it.
    /// Keeps the first `written` samples of an existing series.
    ///
    /// # Errors
    /// As [`SeriesWriter::create`]; [`Error::Format`] if the file has fewer.
    pub fn in_place(path: &Path, inf: &Inf, written: u64) -> Result<Self> {
        let bytes = written.saturating_mul(4);
        Self::new(path, inf, written, |path| AtomicFile::in_place(path, &[], bytes))
    }

    fn new(
        path: &Path,
        inf: &Inf,
        bins: u64,
        begin: impl FnOnce(&Path) -> Result<AtomicFile>,
    ) -> Result<Self> {
        if path.extension().is_none_or(|extension| extension != "dat") {
            let rule = "PRESTO finds the .inf by the .dat in the other's name";
            return Err(Error::parameter("series file", path.display(), rule));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file: begin(path)?, inf: Inf { name, bins, ..inf.clone() } })
    }

    /// Truncates the series to its first `written` samples, for example after a write that failed partway.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut(&mut self, written: u64) -> Result<()> {
        self.inf.bins = written;
        self.file.cut(4 * written)
    }

    /// Removes the series.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(self) -> Result<()> {
        self.file.discard()
    }

    /// Appends samples.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        self.inf.bins += values.len() as u64;
        let mut bytes = [0; 4096];
        for chunk in values.chunks(1024) {
            for (quad, value) in bytes.chunks_exact_mut(4).zip(chunk) {
                quad.copy_from_slice(&value.to_le_bytes());
            }
            self.file.append(&bytes[..4 * chunk.len()])?;
        }
        Ok(())
    }

    /// Returns the number of samples written so far.
    pub fn bins(&self) -> u64 {
        self.inf.bins
    }

    /// Pads a series to `bins` samples with `value`. Like prepsubband, the header marks the end of the data by two
    /// pairs of bins: one for the data, one for the last bin.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fill(&mut self, bins: u64, value: f32) -> Result<()> {
        let own = self.inf.bins;
        if own == 0 || own >= bins {
            return Ok(());
        }
        let filling = [value; 1024];
        while self.inf.bins < bins {
            let left = bins - self.inf.bins;
            self.write(&filling[..left.min(1024) as usize])?;
        }
        self.inf.on_off = vec![(0, own - 1), (bins - 1, bins - 1)];
        Ok(())
    }

    /// Closes the file handle until the next write.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&mut self) -> Result<()> {
        self.file.release()
    }

    /// Writes the `.inf` and renames both files to their final names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        let Self { mut file, inf } = self;
        let mut header = AtomicFile::create(&file.path().with_extension("inf"))?;
        header.append(inf.to_string().as_bytes())?;
        // Flush both first, so that a full disk is detected before either file is renamed.
        header.release()?;
        file.release()?;
        header.commit()?;
        file.commit()
    }
}

/// Largest prime factor of a good length.
const MAX_FACTOR: u64 = 11;

/// Returns the length to which prepsubband pads a series of `times` samples: even, and without large prime factors,
/// so that Fourier transforms are fast. `realfft` and `accelsearch` reject odd lengths.
///
/// Good factors of four digits are 1000 and the multiples of 16 without a prime factor above 11. The result is the
/// smaller of the next good factor times a power of ten and the next power of two.
///
/// # Source
/// PRESTO's documented output lengths: 531000 samples become 537600 (its tutorial), and its list of 114 factors.
pub fn good_length(times: u64) -> u64 {
    let mut scale = 1;
    while times.div_ceil(scale) > 10_000 {
        scale *= 10;
    }
    let factor = (times.div_ceil(scale).max(1000)..=10_000).find(|factor| is_good(*factor));
    let even = factor.unwrap_or(10_000).saturating_mul(scale);
    // At least 2: the power of two 1 is odd.
    even.min(times.max(2).checked_next_power_of_two().unwrap_or(u64::MAX - 1))
}

fn is_good(factor: u64) -> bool {
    let mut rest = factor;
    for prime in 2..=MAX_FACTOR {
        while rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    rest == 1 && (factor.is_multiple_of(16) || factor == 1000)
}

/// Contents of a `.inf` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inf {
    /// Base name of the files, without suffix.
    pub name: String,
    /// Name of the telescope.
    pub telescope: String,
    /// Name of the backend.
    pub instrument: String,
    /// Name of the source.
    pub source_name: String,
    /// Right ascension in degrees (J2000), when known.
    pub ra_deg: Option<f64>,
    /// Declination in degrees (J2000), when known.
    pub dec_deg: Option<f64>,
    /// Observer.
    pub observer: String,
    /// Start of the first sample, MJD (UTC, or barycentric); 0 when unknown.
    pub epoch_mjd: f64,
    /// Whether times are barycentric.
    pub is_barycentred: bool,
    /// Number of samples.
    pub bins: u64,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// First and last bin of each valid interval; empty if all are valid.
    pub on_off: Vec<(u64, u64)>,
    /// Band of the observation: Radio (also if empty), IR, Optical, UV, X-ray or Gamma.
    pub waveband: String,
    /// Diameter of the beam or the field of view, in arcseconds.
    pub beam_arcsec: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Centre of the lowest channel in MHz.
    pub lowest_mhz: f64,
    /// Width of the band in MHz.
    pub bandwidth_mhz: f64,
    /// Number of channels.
    pub channels: u64,
    /// Width of a channel in MHz.
    pub channel_width_mhz: f64,
    /// Central photon energy in keV, for X-rays and gamma rays.
    pub energy_kev: f64,
    /// Width of the energy band in keV.
    pub energy_band_kev: f64,
    /// Name of the photometric filter, from infrared to ultraviolet.
    pub filter: String,
    /// Central wavelength of the filter in nm.
    pub wavelength_nm: f64,
    /// Width of the filter in nm.
    pub wavelength_band_nm: f64,
    /// Analyst.
    pub analyst: String,
    /// Whether the orbit of a binary pulsar was removed from the times.
    pub is_deorbited: bool,
    /// Notes, one line each.
    pub notes: String,
}

/// A line of a header.
struct Line {
    /// Label in two parts. Only the first part is the same in all programs and versions; PRESTO's Python
    /// (`infodata.py`) identifies lines by it.
    label: &'static str,
    rest: &'static str,
    /// Returns whether a header has the line.
    is_in: fn(&Inf) -> bool,
    set: fn(&mut Inf, &str) -> Parsed,
    get: fn(&Inf) -> String,
}

/// Result of parsing a value; an error says what was found and expected.
type Parsed<T = ()> = std::result::Result<T, String>;

/// Makes a line of one field from its parser and its format.
macro_rules! line {
    ($label:literal $rest:literal, $is_in:expr, $field:ident, $parse:expr, $format:expr) => {
        Line {
            label: $label,
            rest: $rest,
            is_in: $is_in,
            set: |inf, value| {
                inf.$field = $parse(value)?;
                Ok(())
            },
            get: |inf| $format(&inf.$field),
        }
    };
}

/// Lines in PRESTO's order.
const LINES: &[Line] = &[
    line!("Data file name" " without suffix", always, name, word, text),
    line!("Telescope" " used", always, telescope, word, text),
    line!("Instrument" " used", always, instrument, word, text),
    line!("Object being" " observed", always, source_name, word, text),
    line!("J2000 Right" " Ascension (hh:mm:ss.ssss)", always, ra_deg, hours, format_hours),
    line!("J2000 Declination" "     (dd:mm:ss.ssss)", always, dec_deg, degrees, format_degrees),
    line!("Data observed" " by", always, observer, word, text),
    line!("Epoch" " of observation (MJD)", always, epoch_mjd, number, fixed15),
    line!("Barycentered?" "           (1 yes, 0 no)", always, is_barycentred, flag, digit),
    line!("Number of bins" " in the time series", always, bins, count, padded),
    line!("Width of" " each time series bin (sec)", always, tsamp_s, number, f64::to_string),
    // The on/off pairs that follow define the breaks.
    Line {
        label: "Any breaks",
        rest: " in the data? (1 yes, 0 no)",
        is_in: always,
        set: |_, value| count(value).map(drop),
        get: |inf| digit(&(inf.on_off.len() > 1)),
    },
    // `Display` writes these, one line per pair.
    Line { label: ON_OFF, rest: " pair", is_in: always, set: add_pair, get: |_| String::new() },
    line!("Type of" " observation (EM band)", always, waveband, band, format_band),
    line!("Beam diameter" " (arcsec)", Inf::is_radio, beam_arcsec, number, rounded),
    line!("Dispersion measure" " (cm-3 pc)", Inf::is_radio, dm, number, f64::to_string),
    line!("Central freq" " of low channel (MHz)", Inf::is_radio, lowest_mhz, number, digits12),
    line!("Total bandwidth" " (MHz)", Inf::is_radio, bandwidth_mhz, number, digits12),
    line!("Number of channels" "", Inf::is_radio, channels, count, u64::to_string),
    line!("Channel bandwidth" " (MHz)", Inf::is_radio, channel_width_mhz, number, digits12),
    line!("Photometric filter" " used", Inf::is_optical, filter, word, text),
    line!("Field-of-view diameter" " (arcsec)", Inf::has_field, beam_arcsec, number, f64::to_string),
    line!("Central energy" " (kev)", Inf::is_high_energy, energy_kev, number, f64::to_string),
    line!("Energy bandpass" " (kev)", Inf::is_high_energy, energy_band_kev, number, f64::to_string),
    line!("Central wavelength" " (nm)", Inf::is_optical, wavelength_nm, number, f64::to_string),
    line!("Bandpass" " (nm)", Inf::is_optical, wavelength_band_nm, number, f64::to_string),
    line!("Data analyzed" " by", always, analyst, word, text),
    line!("Orbit removed?" "          (1=yes, 0=no)", Inf::had_orbit, is_deorbited, flag, digit),
];

/// Label of the lines with the first and last bin of a valid interval.
const ON_OFF: &str = "On/Off bin";

fn always(_: &Inf) -> bool {
    true
}

fn add_pair(inf: &mut Inf, value: &str) -> Parsed {
    let (first, last) = value.split_once(',').ok_or("expected two bins with a comma between")?;
    inf.on_off.push((count(first)?, count(last)?));
    Ok(())
}

/// Bands known to PRESTO.
const WAVEBANDS: [&str; 6] = ["Radio", "IR", "Optical", "UV", "X-ray", "Gamma"];

/// Column of a line's `=`.
const EQUALS_COLUMN: usize = 40;
/// Maximum bytes of a header.
const MAX_BYTES: u64 = 1 << 20;

impl Inf {
    /// Makes the header of a dedispersed series from its sampling time, its dispersion measure and the recording's
    /// header. The writer sets the name and the number of bins.
    pub fn new(header: &FilterbankHeader, dm: f64, tsamp_s: f64) -> Self {
        let band = &header.band;
        Self {
            telescope: header.telescope.clone(),
            instrument: "Unknown".into(),
            source_name: header.source_name.clone(),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            observer: "Unknown".into(),
            epoch_mjd: header.tstart_mjd,
            tsamp_s,
            dm,
            lowest_mhz: band.lowest_hz() / HZ_PER_MHZ,
            bandwidth_mhz: band.bandwidth_hz() / HZ_PER_MHZ,
            channels: band.channels() as u64,
            channel_width_mhz: band.channel_width_hz() / HZ_PER_MHZ,
            analyst: "sidereal".into(),
            notes: format!("Dedispersed from {}", header.path.display()),
            ..Self::default()
        }
    }

    /// Reads a `.inf` file.
    ///
    /// # Errors
    /// As [`Inf::parse`], and [`Error::Io`].
    pub fn read(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let length = fs::metadata(path).map_err(io)?.len();
        if length > MAX_BYTES {
            let why = format!("found {length} bytes, expected a header of at most {MAX_BYTES}");
            return Err(Error::format(path, "header", 0, why));
        }
        let bytes = fs::read(path).map_err(io)?;
        Self::parse(&String::from_utf8_lossy(&bytes), path)
    }

    /// Parses the text of a `.inf` file; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Format`] for a line without `=`, an unknown label or band, an invalid number, or a missing sampling
    /// time.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut inf = Self::default();
        let mut at = 0;
        let mut lines = text.split_inclusive('\n');
        for line in lines.by_ref() {
            if line.trim().starts_with("Any additional notes") {
                break;
            }
            if !line.trim().is_empty() {
                let (known, label, value) = split(line, path, at)?;
                let fault = |why| Error::format(path, label, at, why);
                (known.set)(&mut inf, value).map_err(fault)?;
            }
            at += line.len() as u64;
        }
        inf.notes = lines.map(str::trim).collect::<Vec<_>>().join("\n").trim().to_string();
        if !(inf.tsamp_s > 0.0 && inf.tsamp_s.is_finite()) {
            let why = format!("found {} s, expected more than 0", inf.tsamp_s);
            return Err(Error::format(path, "Width of each time series bin (sec)", at, why));
        }
        Ok(inf)
    }

    fn is_radio(&self) -> bool {
        matches!(self.waveband.as_str(), "" | "Radio")
    }

    fn is_high_energy(&self) -> bool {
        matches!(self.waveband.as_str(), "X-ray" | "Gamma")
    }

    fn has_field(&self) -> bool {
        !self.is_radio()
    }

    fn had_orbit(&self) -> bool {
        self.is_deorbited
    }

    /// Returns whether the band is infrared, optical or ultraviolet.
    fn is_optical(&self) -> bool {
        !self.is_radio() && !self.is_high_energy()
    }
}

impl fmt::Display for Inf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in LINES.iter().filter(|line| (line.is_in)(self)) {
            let label = format!("{}{}", line.label, line.rest);
            if line.label != ON_OFF {
                writeln!(f, " {label:<39}=  {}", (line.get)(self))?;
            } else if self.on_off.len() > 1 {
                for (index, (first, last)) in self.on_off.iter().enumerate() {
                    let label = format!("{label} #{:3}", index + 1);
                    writeln!(f, " {label:<39}=  {first:<11}, {last:<11}")?;
                }
            }
        }
        writeln!(f, " Any additional notes:")?;
        // PRESTO reads at most 500 bytes of notes, in lines of less than 100.
        for line in self.notes.lines().take(4) {
            writeln!(f, "    {}", text(line))?;
        }
        writeln!(f)
    }
}

/// Splits a line into key, label and value as PRESTO does: the value follows column 40, or the line's last `=`.
fn split<'a>(line: &'a str, path: &Path, at: u64) -> Result<(&'static Line, &'a str, &'a str)> {
    let equals = match line.as_bytes().get(EQUALS_COLUMN) {
        Some(b'=') => Some(EQUALS_COLUMN),
        _ => line.rfind('='),
    };
    let Some(equals) = equals else {
        let why = format!("found {:?}, expected a label, = and a value", line.trim());
        return Err(Error::format(path, "line", at, why));
    };
    let (label, value) = (line[..equals].trim(), line[equals + 1..].trim());
    let known = LINES.iter().find(|known| {
        let words = known.label.split_whitespace().count();
        label.split_whitespace().take(words).eq(known.label.split_whitespace())
    });
    match known {
        Some(known) => Ok((known, label, value)),
        None => {
            let why = format!("unknown label {label:?} of the value {value:?}");
            Err(Error::format(path, "label", at, why))
        }
    }
}

/// PRESTO stores texts in 100 bytes.
const MAX_TEXT: usize = 90;

fn word(value: &str) -> Parsed<String> {
    Ok(value.into())
}

fn flag(value: &str) -> Parsed<bool> {
    Ok(count(value)? != 0)
}

fn digit(flag: &bool) -> String {
    u8::from(*flag).to_string()
}

/// Parses a right ascension; returns degrees.
fn hours(value: &str) -> Parsed<Option<f64>> {
    Ok(sexagesimal::parse(value).map(|hours| hours * 15.0))
}

fn format_hours(ra_deg: &Option<f64>) -> String {
    sexagesimal::format(ra_deg.map_or(0.0, |degrees| degrees / 15.0))
}

fn degrees(value: &str) -> Parsed<Option<f64>> {
    Ok(sexagesimal::parse(value))
}

fn format_degrees(dec_deg: &Option<f64>) -> String {
    sexagesimal::format(dec_deg.unwrap_or(0.0))
}

fn band(value: &str) -> Parsed<String> {
    match WAVEBANDS.contains(&value) {
        true => Ok(value.into()),
        false => Err(format!("found {value}, expected one of {}", WAVEBANDS.join(", "))),
    }
}

fn format_band(name: &str) -> String {
    if name.is_empty() { "Radio".into() } else { text(name) }
}

fn fixed15(number: &f64) -> String {
    format!("{number:.15}")
}

fn rounded(number: &f64) -> String {
    format!("{number:.0}")
}

fn padded(count: &u64) -> String {
    format!("{count:<11}")
}

/// Parses a finite number.
fn number(value: &str) -> Parsed<f64> {
    match value.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("found {value:?}, expected a number")),
    }
}

/// Parses a non-negative integer.
fn count(value: &str) -> Parsed<u64> {
    // Older writers format counts as floats: 131072.0.
    let whole = value.trim().trim_end_matches('0').trim_end_matches('.');
    let exact = value.trim().parse::<u64>().ok();
    exact
        .or_else(|| value.contains('.').then(|| whole.parse().ok()).flatten())
        .ok_or_else(|| format!("found {value:?}, expected a whole number"))
}

/// Formats one line of at most [`MAX_TEXT`] bytes, `Unknown` if empty, because PRESTO stops at an empty value.
fn text(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default().trim();
    let line = crate::io::printable(line);
    let mut end = line.len().min(MAX_TEXT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 { "Unknown".into() } else { line[..end].into() }
}

/// Formats twelve significant digits without trailing zeros, as PRESTO writes frequencies.
fn digits12(value: &f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(*value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_goes_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x_DM56.75.dat");
        let inf = Inf { dm: 56.75, tsamp_s: 64e-6, ..Inf::default() };
        let values: Vec<f32> = (0..5000).map(|t| t as f32 * 0.5 - 9.0).collect();
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.write(&values[..1]).unwrap();
        writer.release().unwrap();
        writer.write(&values[1..]).unwrap();
        writer.finish().unwrap();
        let (read_inf, read_values, _) = read(&path).unwrap();
        assert_eq!(read_values, values);
        assert_eq!(
            (read_inf.name.as_str(), read_inf.bins, read_inf.dm),
            ("x_DM56.75", 5000, 56.75)
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_series_is_filled_and_says_where_its_own_samples_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        let inf = Inf { tsamp_s: 1e-3, ..Inf::default() };
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.fill(8, 1.0).unwrap();
        assert_eq!(writer.bins(), 0, "there is no level to fill with");
        writer.write(&[3.0; 5]).unwrap();
        writer.fill(5, 1.0).unwrap();
        writer.fill(2048, 2.5).unwrap();
        writer.finish().unwrap();
        let (inf, values, _) = read(&path).unwrap();
        assert_eq!((inf.bins, inf.on_off), (2048, vec![(0, 4), (2047, 2047)]));
        assert_eq!(values[..5], [3.0; 5]);
        assert!(values.len() == 2048 && values[5..].iter().all(|value| *value == 2.5));
    }

    #[test]
    fn a_series_shorter_than_its_header_is_cut_and_a_longer_one_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        let inf = Inf { tsamp_s: 1e-3, ..Inf::default() };
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.write(&[0.0; 8]).unwrap();
        writer.finish().unwrap();
        fs::write(&path, [0; 31]).unwrap();
        let (_, values, cut) = read(&path).unwrap();
        assert_eq!(values, [0.0; 7]);
        assert!(cut.is_some_and(|cut| cut.contains("7 of the 8")));
        for bytes in [3, 36] {
            fs::write(&path, vec![0; bytes]).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains(&format!("{bytes} bytes")));
        }
        fs::remove_file(folder.path().join("x.inf")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("x.inf"));
        assert!(SeriesWriter::create(&folder.path().join("x.fil"), &inf).is_err());
    }

    #[test]
    fn lengths_are_those_of_prepsubband() {
        assert_eq!((1000..=10_000).filter(|factor| is_good(*factor)).count(), 114);
        for (times, length) in [
            (1, 2),
            (2, 2),
            (12, 16),
            (700, 1000),
            (1000, 1000),
            (1001, 1008),
            (1017, 1024),
            (9857, 10_000),
            (10_000, 10_000),
            (10_001, 10_080),
            (131_072, 131_072),
            (131_000, 131_072),
            (531_000, 537_600),
            (1_048_000, 1_048_576),
            (123_456_789, 128_000_000),
        ] {
            assert_eq!(good_length(times), length, "{times}");
        }
        assert!(good_length(u64::MAX).is_multiple_of(2));
    }

    fn full() -> Inf {
        Inf {
            name: "x_DM10.00".into(),
            telescope: "GBT".into(),
            instrument: "VEGAS".into(),
            source_name: "J1807-0847".into(),
            ra_deg: Some(271.908),
            dec_deg: Some(-8.795),
            observer: "A. Person".into(),
            epoch_mjd: 59313.25,
            bins: 131_072,
            tsamp_s: 0.000_163_84,
            on_off: vec![(0, 99), (1000, 131_071)],
            beam_arcsec: 234_000.0,
            dm: 112.3802,
            lowest_mhz: 720.78125,
            bandwidth_mhz: 200.0,
            channels: 256,
            channel_width_mhz: 0.78125,
            waveband: "Radio".into(),
            analyst: "sidereal".into(),
            notes: "first note\nsecond = note".into(),
            ..Inf::default()
        }
    }

    fn parse(text: &str) -> Result<Inf> {
        Inf::parse(text, Path::new("x.inf"))
    }

    #[test]
    fn a_header_goes_round() {
        let inf = full();
        let read = parse(&inf.to_string()).unwrap();
        assert!((read.ra_deg.unwrap() - inf.ra_deg.unwrap()).abs() < 1e-6);
        assert!((read.dec_deg.unwrap() - inf.dec_deg.unwrap()).abs() < 1e-6);
        assert_eq!(Inf { ra_deg: inf.ra_deg, dec_deg: inf.dec_deg, ..read }, inf);
    }

    #[test]
    fn lines_are_as_presto_writes_them() {
        let text = full().to_string();
        assert!(text.starts_with(" Data file name without suffix          =  x_DM10.00\n"));
        assert!(text.contains(" J2000 Declination     (dd:mm:ss.ssss)  =  -08:47:42.0000\n"));
        assert!(text.contains(" Number of bins in the time series      =  131072     \n"));
        assert!(text.contains(" Width of each time series bin (sec)    =  0.00016384\n"));
        assert!(
            text.contains(" On/Off bin pair #  1                   =  0          , 99         \n")
        );
        for line in text.lines().take_while(|line| !line.contains("notes")) {
            assert_eq!(line.as_bytes()[EQUALS_COLUMN], b'=', "{line}");
        }
    }

    /// Header as PRESTO's Python writes it (`infodata.to_file`): another text in parentheses, no observer or band,
    /// and an additional line.
    const FROM_PYTHON: &str = "\
 Data file name without suffix          =  GBT_Lband_PSR_DM62.00
 Telescope used                         =  GBT
 Instrument used                        =  BCPM1
 Object being observed                  =  Mystery_PSR
 J2000 Right Ascension (hh:mm:ss.ssss)  =  16:43:38.1000
 J2000 Declination     (dd:mm:ss.ssss)  =  -12:24:58.7000
 Epoch of observation (MJD)             =  53010.484826388892543
 Barycentered?           (1=yes, 0=no)  =  1
 Number of bins in the time series      =  537600     
 Width of each time series bin (sec)    =  7.2e-05
 Any breaks in the data? (1 yes, 0 no)  =  1
 On/Off bin pair #  1                   =  0          , 530399     
 On/Off bin pair #  2                   =  537599     , 537599     
 Dispersion measure (cm-3 pc)           =  62
 Central freq of low channel (Mhz)      =  1352.5
 Total bandwidth (Mhz)                  =  96
 Number of channels                     =  96
 Channel bandwidth (Mhz)                =  1
 Data analyzed by                       =  ransom
 Orbit removed?          (1=yes, 0=no)  =  1
 Any additional notes:
    Input filterbank samples have 4 bits.
";

    #[test]
    fn a_header_of_prestos_python_is_read() {
        let inf = parse(FROM_PYTHON).unwrap();
        assert!(inf.is_barycentred && inf.is_deorbited);
        assert_eq!((inf.bins, inf.tsamp_s, inf.dm), (537_600, 7.2e-5, 62.0));
        assert_eq!(inf.on_off, [(0, 530_399), (537_599, 537_599)]);
        assert_eq!((inf.lowest_mhz, inf.bandwidth_mhz, inf.channels), (1352.5, 96.0, 96));
        assert_eq!(inf.notes, "Input filterbank samples have 4 bits.");
        let again = parse(&inf.to_string()).unwrap();
        assert_eq!(again, Inf { waveband: "Radio".into(), observer: "Unknown".into(), ..inf });
    }

    #[test]
    fn headers_of_other_bands_are_read() {
        let radio = full().to_string();
        let (before, after) = radio.split_once(" Beam diameter").unwrap();
        let (_, analyst) = after.split_once(" Data analyzed").unwrap();
        let with = |band: &str, lines: &str| {
            let text = format!("{before}{lines} Data analyzed{analyst}");
            parse(&text.replacen("=  Radio", &format!("=  {band}"), 1)).unwrap()
        };
        let field = " Field-of-view diameter (arcsec)        =  3.50\n";
        let x_ray = with(
            "X-ray",
            &format!(
                "{field} Central energy (kev)                   =  6.5\n \
                 Energy bandpass (kev)                  =  9.0\n"
            ),
        );
        assert_eq!((x_ray.energy_kev, x_ray.energy_band_kev, x_ray.beam_arcsec), (6.5, 9.0, 3.5));
        let optical = with(
            "Optical",
            &format!(
                " Photometric filter used                =  Clear\n{field} \
                 Central wavelength (nm)                =  550.0\n \
                 Bandpass (nm)                          =  200.0\n"
            ),
        );
        assert_eq!((optical.wavelength_nm, optical.wavelength_band_nm), (550.0, 200.0));
        assert_eq!((optical.filter.as_str(), optical.waveband.as_str()), ("Clear", "Optical"));
        for inf in [x_ray, optical] {
            assert_eq!(parse(&inf.to_string()).unwrap(), inf);
            assert!(!inf.to_string().contains("Dispersion"));
        }
    }

    #[test]
    fn bad_lines_are_named_with_their_place() {
        let good = full().to_string();
        let cases = [
            ("=  0.00016384", "=  -1", "Width"),
            ("=  0.00016384", "=  NaN", "Width"),
            ("=  131072     ", "=  many", "Number of bins"),
            ("=  256", "=  -4", "Number of channels"),
            ("=  Radio", "=  Sound", "Type of observation"),
            ("Telescope used  ", "Colour of paint ", "Colour"),
            ("=  112.3802", "   112.3802", "expected a label"),
        ];
        for (from, to, named) in cases {
            assert!(good.contains(from), "{from}");
            let error = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("x.inf"), "{error}");
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn counts_may_be_written_as_floats() {
        assert_eq!(count("1310.0"), Ok(1310));
        assert_eq!(count("1310"), Ok(1310));
        assert!(count("13.5").is_err() && count("").is_err() && count(".").is_err());
    }
}
