//! Header of a stream: the text of PSRDADA, of detected spectra or of voltages.
//!
//! A header of spectra has the keys that Heimdall reads from a ring: NCHAN, NBIT, FREQ and BW (MHz; channels descend if BW is
//! negative), TSAMP (microseconds), UTC_START, with NDIM 1 and STATE Intensity. Numbers that those keys would round are
//! repeated under keys of our own, which take precedence: FCH1 and FOFF (MHz, as in SIGPROC), TSTART (MJD), TSAMP_S
//! (seconds).
//!
//! # Source
//! PSRDADA's headers as Heimdall, digifil and dspsr read and write them.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::dada;
use crate::io::voltages::{Fields, VoltageHeader, VoltageOptions};
use crate::io::{Beam, FilterbankHeader, TSAMP_S};
use crate::sample::Encoding;
use crate::units::{Band, Epoch, HZ_PER_MHZ, MAX_CHANNELS};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 4096;

/// Longest header that is read.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// Most streams of voltages, for each of which a receiver keeps memory.
const MOST_STREAMS: usize = 1 << 20;

/// Day (MJD) after any start, so that names and times can be formed from it.
const LAST_MJD: i64 = 1_000_000;

/// Contents of a stream, with its header.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Detected spectra: axes time, channel.
    Spectra(FilterbankHeader),
    /// Voltages.
    Voltages(VoltageHeader),
}

impl Content {
    /// Parses the text of a header; `path` names its place in errors.
    ///
    /// # Errors
    /// [`Error::Format`] for text, keys or values that are missing, invalid or unsupported; [`Error::Parameter`] for invalid options.
    pub fn parse(text: &[u8], path: &Path, options: &VoltageOptions) -> Result<Self> {
        Self::new(&dada::parse_header(text, MOST_BYTES, path)?, path, options)
    }

    /// Reads keys and values.
    ///
    /// # Errors
    /// As [`Content::parse`].
    pub fn new(fields: &Fields, path: &Path, options: &VoltageOptions) -> Result<Self> {
        if is_of_voltages(fields)? {
            let header = dada::describe_stream(fields, path, options)?;
            if header.streams() > MOST_STREAMS {
                let why = format!(
                    "found {} antennas x {} channels x {} polarizations, expected {MOST_STREAMS} streams at most",
                    header.antennas,
                    header.coarse_channels(),
                    header.polarizations
                );
                return Err(fields.fault("NANT", why));
            }
            if !(0..LAST_MJD).contains(&header.start.day) {
                // An offset moves a start that is valid by itself.
                let why = start_fault(&header.start.day.to_string());
                return Err(fields.fault("OBS_OFFSET", why));
            }
            return Ok(Self::Voltages(header));
        }
        Ok(Self::Spectra(spectra(fields, path)?))
    }

    /// Formats the header as a text of [`HEADER_BYTES`] bytes, padded with zeros.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels that are not evenly spaced, an encoding that PSRDADA lacks, or texts that are too long.
    pub fn text(&self) -> Result<Vec<u8>> {
        match self {
            Self::Spectra(header) => spectra_text(header),
            Self::Voltages(header) => dada::header_text(header),
        }
    }

    /// Returns the sampling time in seconds.
    pub fn tsamp_s(&self) -> f64 {
        match self {
            Self::Spectra(header) => header.tsamp_s,
            Self::Voltages(header) => header.tsamp_s,
        }
    }

    /// Returns the start of the first sample; day 0 if it is unknown.
    pub fn start(&self) -> Epoch {
        match self {
            Self::Spectra(header) if header.tstart_mjd > 0.0 => Epoch::from_mjd(header.tstart_mjd),
            Self::Spectra(_) => Epoch::default(),
            Self::Voltages(header) => header.start,
        }
    }
}

/// Returns whether samples are voltages: complex, or real ones of STATE Nyquist.
fn is_of_voltages(fields: &Fields) -> Result<bool> {
    let state = fields.text("STATE").unwrap_or_default();
    Ok(fields.count("NDIM")? == Some(2)
        || state.eq_ignore_ascii_case("Analytic")
        || state.eq_ignore_ascii_case("Nyquist"))
}

fn start_fault(found: &str) -> String {
    format!("the start is MJD {found}, expected 0 (unknown) to {LAST_MJD}")
}

/// Reads the header of detected spectra.
fn spectra(fields: &Fields, path: &Path) -> Result<FilterbankHeader> {
    let missing = |key| fields.fault(key, "it is missing from the header");
    let channels = fields.needed("NCHAN")?;
    if channels > MAX_CHANNELS as u64 {
        return Err(
            fields.fault("NCHAN", format!("found {channels}, expected {MAX_CHANNELS} at most"))
        );
    }
    let channels = channels as usize;
    let polarizations = fields.count("NPOL")?.unwrap_or(1);
    if polarizations != 1 {
        let why = format!("found {polarizations}, expected 1: spectra of total intensity");
        return Err(fields.fault("NPOL", why));
    }
    let encoding = encoding(fields)?;
    if encoding.row_bytes(channels).is_none() {
        let why = format!(
            "found {channels} channels of {} bits, which end within a byte",
            encoding.bits()
        );
        return Err(fields.fault("NCHAN", why));
    }
    let tsamp_s = match fields.number("TSAMP_S")? {
        Some(seconds) => seconds,
        None => fields.number("TSAMP")?.ok_or_else(|| missing("TSAMP"))? / 1e6,
    };
    if !TSAMP_S.contains(&tsamp_s) {
        return Err(fields.fault("TSAMP", format!("found {tsamp_s} s, expected 1e-9 to 86400 s")));
    }
    let band = match (fields.number("FCH1")?, fields.number("FOFF")?) {
        (Some(first), Some(step)) => Band::uniform(first, step, channels)?,
        _ => {
            let middle = fields.number("FREQ")?.ok_or_else(|| missing("FREQ"))?;
            let width = fields.number("BW")?.ok_or_else(|| missing("BW"))?;
            let step = width / channels as f64;
            Band::uniform(middle - 0.5 * width + 0.5 * step, step, channels)?
        }
    };
    let tstart_mjd = match fields.number("TSTART")? {
        Some(mjd) => mjd,
        None => dada::stream_start(fields, tsamp_s, (channels * encoding.bits() / 8) as u64)?.mjd(),
    };
    if !(0.0..LAST_MJD as f64).contains(&tstart_mjd) {
        return Err(fields.fault("TSTART", start_fault(&tstart_mjd.to_string())));
    }
    let text = |key| fields.text(key).unwrap_or_default().to_string();
    let number = |key| fields.number(key);
    let beam = Beam::new(
        fields.count("BEAM")?.and_then(|count| i64::try_from(count).ok()),
        fields.count("NBEAM")?.and_then(|count| i64::try_from(count).ok()),
    );
    Ok(FilterbankHeader {
        path: path.to_path_buf(),
        format: "PSRDADA spectra",
        source_name: text("SOURCE"),
        telescope: text("TELESCOPE"),
        ra_deg: number("RA_DEG")?,
        dec_deg: number("DEC_DEG")?,
        beam,
        tstart_mjd,
        tsamp_s,
        band,
        encoding,
        recorded_bits: encoding.bits(),
        recorded_polarizations: 1,
        times: None,
    })
}

fn encoding(fields: &Fields) -> Result<Encoding> {
    let bits = fields.needed("NBIT")?;
    let text = fields.text("ENCODING").unwrap_or_default().to_ascii_uppercase();
    let is_signed = matches!(text.as_str(), "SIGNED" | "TWOSCOMPLEMENT");
    match (bits, is_signed) {
        (1, false) => Ok(Encoding::U1),
        (2, false) => Ok(Encoding::U2),
        (4, false) => Ok(Encoding::U4),
        (8, false) => Ok(Encoding::U8),
        (8, true) => Ok(Encoding::I8),
        (16, false) => Ok(Encoding::U16),
        (16, true) => Ok(Encoding::I16),
        (32, false) => Ok(Encoding::F32),
        _ => {
            let why = format!("found {bits} bits {text}, expected 1, 2, 4, 8, 16 or 32 (float)");
            Err(fields.fault("NBIT", why))
        }
    }
}

/// Evenly spaced channels: FCH1 and FOFF in MHz.
struct Grid {
    first: f64,
    step: f64,
}

impl Grid {
    /// Returns the numbers with the fewest digits that give exactly the centres of a band, or the closest ones.
    fn of(band: &Band) -> Result<Self> {
        let (first, step) = (band.fch1_mhz(), band.foff_mhz());
        let rounded = |number: f64, digits| format!("{number:.digits$e}").parse().unwrap_or(number);
        for digits in 3..17 {
            let (first, step) = (rounded(first, digits), rounded(step, digits));
            if Band::uniform(first, step, band.channels()).is_ok_and(|even| even == *band) {
                return Ok(Self { first, step });
            }
        }
        let even = Band::uniform(first, step, band.channels())?;
        let pairs = even.centres_hz().iter().zip(band.centres_hz());
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if worst > 1e-3 * band.channel_width_hz() {
            let rule = "a stream has evenly spaced channels only";
            return Err(Error::parameter("channel centre off the grid (Hz)", worst, rule));
        }
        Ok(Self { first, step })
    }
}

/// Formats the header of detected spectra.
fn spectra_text(header: &FilterbankHeader) -> Result<Vec<u8>> {
    let band = &header.band;
    let channels = header.channels();
    let Grid { first, step } = Grid::of(band)?;
    let encoding = match header.encoding {
        Encoding::F32 => "FLOAT",
        Encoding::I8 | Encoding::I16 => "SIGNED",
        _ => "UNSIGNED",
    };
    let middle = band.centre_hz() / HZ_PER_MHZ;
    let mut lines = vec![
        ("HEADER", "DADA".to_string()),
        ("HDR_VERSION", "1.0".to_string()),
        ("HDR_SIZE", HEADER_BYTES.to_string()),
        ("SOURCE", header.source_name.clone()),
        ("TELESCOPE", header.telescope.clone()),
        ("INSTRUMENT", "sidereal".to_string()),
    ];
    if header.tstart_mjd > 0.0 {
        let (utc, mjd) = dada::format_start(&Epoch::from_mjd(header.tstart_mjd));
        lines.extend([
            ("UTC_START", utc),
            ("MJD_START", mjd),
            ("TSTART", header.tstart_mjd.to_string()),
        ]);
    }
    lines.extend(header.ra_deg.map(|degrees| ("RA_DEG", degrees.to_string())));
    lines.extend(header.dec_deg.map(|degrees| ("DEC_DEG", degrees.to_string())));
    if let Some(beam) = header.beam {
        lines.push(("BEAM", beam.number.to_string()));
        lines.extend(beam.of.map(|of| ("NBEAM", of.to_string())));
    }
    lines.extend([
        ("FREQ", middle.to_string()),
        ("BW", (step * channels as f64).to_string()),
        ("FCH1", first.to_string()),
        ("FOFF", step.to_string()),
        ("TSAMP", (header.tsamp_s * 1e6).to_string()),
        ("TSAMP_S", header.tsamp_s.to_string()),
        ("NBIT", header.encoding.bits().to_string()),
        ("NDIM", "1".to_string()),
        ("NPOL", "1".to_string()),
        ("NCHAN", channels.to_string()),
        ("STATE", "Intensity".to_string()),
        ("ENCODING", encoding.to_string()),
        ("ENDIAN", "LITTLE".to_string()),
        ("ORDER", "TF".to_string()),
        ("OBS_OFFSET", "0".to_string()),
        ("RESOLUTION", header.row_bytes().to_string()),
    ]);
    dada::format_header(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    fn spectra() -> FilterbankHeader {
        FilterbankHeader {
            path: "x".into(),
            format: "PSRDADA spectra",
            source_name: "FRB 1".into(),
            telescope: "CHIME".into(),
            ra_deg: Some(12.25),
            dec_deg: Some(-0.1),
            beam: Beam::new(Some(3), Some(13)),
            tstart_mjd: 58_225.123_456_789_01,
            tsamp_s: 1.0 / 3.0 * 1e-3,
            band: Band::uniform(1499.9, -0.1, 64).unwrap(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 1,
            times: None,
        }
    }

    #[test]
    fn headers_of_spectra_return_as_they_were_written() {
        for encoding in Encoding::ALL {
            let header = FilterbankHeader { encoding, recorded_bits: encoding.bits(), ..spectra() };
            let content = Content::Spectra(header);
            let text = content.text().unwrap();
            assert_eq!(text.len(), HEADER_BYTES);
            let found = Content::parse(&text, Path::new("x"), &VoltageOptions::default()).unwrap();
            assert_eq!(found, content);
        }
    }

    #[test]
    fn headers_of_voltages_return_as_they_were_written() {
        let mut header = VoltageHeader::new(
            vec![1400e6, 1401e6, 1402e6, 1403e6],
            1e-6,
            VoltageEncoding::Complex8,
        );
        header.path = "x".into();
        header.format = "PSRDADA";
        (header.antennas, header.polarizations) = (3, 2);
        header.start = Epoch::new(58_225, 1234.5);
        let content = Content::Voltages(header);
        let text = content.text().unwrap();
        let found = Content::parse(&text, Path::new("x"), &VoltageOptions::default()).unwrap();
        assert_eq!(found, content);
    }

    #[test]
    fn spectra_of_heimdalls_ring_are_read() {
        let text = "HDR_SIZE 4096\nNCHAN 4\nBW -40\nFREQ 1400\nNPOL 1\nNBIT 8\nTSAMP 64\n\
                    UTC_START 2024-01-02-03:04:05\nBEAM 2\n";
        let found = Content::parse(text.as_bytes(), Path::new("x"), &VoltageOptions::default());
        let Ok(Content::Spectra(header)) = found else { panic!("{found:?}") };
        assert_eq!(header.band.centres_hz(), [1415e6, 1405e6, 1395e6, 1385e6]);
        assert_eq!((header.tsamp_s, header.encoding), (64e-6, Encoding::U8));
        assert!((header.tstart_mjd - 60_311.127_835_648).abs() < 1e-8, "{}", header.tstart_mjd);
    }

    #[test]
    fn streams_beyond_any_memory_are_refused() {
        let text = "NCHAN 1048576\nNANT 1048576\nNPOL 2\nNDIM 2\nBW 40\nFREQ 1400\nNBIT 8\nTSAMP 1\nORDER TFAP\n";
        let found = Content::parse(text.as_bytes(), Path::new("x"), &VoltageOptions::default());
        let error = found.unwrap_err().to_string();
        assert!(error.contains("NANT") && error.contains("1048576 streams at most"), "{error}");
    }

    #[test]
    fn what_a_header_lacks_is_named() {
        let whole = "NCHAN 4\nBW -40\nFREQ 1400\nNBIT 8\nTSAMP 64\n";
        for (key, replaced) in [
            ("NCHAN", "NCHAN 0"),
            ("NCHAN", "NCHAN 1000000000000000000"),
            ("NBIT", "NBIT 7"),
            ("TSAMP", "X 1"),
            ("FREQ", "X 1"),
            ("TSAMP", "TSAMP -3"),
            ("BW", "BW none"),
        ] {
            let lines =
                whole.lines().map(|line| if line.starts_with(key) { replaced } else { line });
            let text = lines.collect::<Vec<_>>().join("\n");
            let error = Content::parse(text.as_bytes(), Path::new("x"), &VoltageOptions::default());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
