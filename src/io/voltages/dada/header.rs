//! PSRDADA header: lines of a key and a value, in a block of HDR_SIZE bytes.
//!
//! Invariant: a header has at most [`MAX_HEADER`] bytes, whatever its HDR_SIZE states.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::fields::{Field, Fields};
use crate::io::voltages::layout::{Axis, Counts, Layout};
use crate::units::{Epoch, MAX_CHANNELS, SECONDS_PER_DAY};
use crate::voltage::VoltageEncoding;

/// Default HDR_SIZE, as in PSRDADA.
pub(super) const DEFAULT_HEADER: u64 = 4096;

/// Longest accepted header.
const MAX_HEADER: u64 = 1 << 20;

/// Values that mean "not set".
const UNSET: [&str; 4] = ["unset", "unknown", "none", "undefined"];

/// Reads the header at a byte of a file.
///
/// # Errors
/// [`Error::Format`] for non-text bytes, an invalid HDR_SIZE, or a file that ends within the header; [`Error::Io`].
pub(super) fn read(file: &mut File, path: &Path, offset: u64) -> Result<Fields> {
    let io = |error| Error::io(path, error);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(DEFAULT_HEADER).read_to_end(&mut bytes).map_err(io)?;
    let first = parse(&bytes, path, offset)?;
    let size = first.count("HDR_SIZE")?.unwrap_or(DEFAULT_HEADER);
    if size == 0 || size > MAX_HEADER {
        let why = format!("found {size}, expected 1 to {MAX_HEADER} bytes");
        return Err(first.fault("HDR_SIZE", why));
    }
    if size > DEFAULT_HEADER {
        file.take(size - DEFAULT_HEADER).read_to_end(&mut bytes).map_err(io)?;
    }
    if (bytes.len() as u64) < size {
        let why = format!(
            "the file ends {} bytes into a header of {size} bytes, expected all of it and samples",
            bytes.len()
        );
        return Err(first.fault("HDR_SIZE", why));
    }
    bytes.truncate(size as usize);
    parse(&bytes, path, offset)
}

/// Parses a header in memory, such as a ring's, of at most `most` bytes. `path` names its place in errors.
///
/// # Errors
/// [`Error::Format`] for non-text bytes or an invalid HDR_SIZE.
pub fn parse_header(bytes: &[u8], most: u64, path: &Path) -> Result<Fields> {
    let whole = parse(bytes, path, 0)?;
    match whole.count("HDR_SIZE")? {
        Some(size) if size == 0 || size > most => {
            Err(whole.fault("HDR_SIZE", format!("found {size}, expected 1 to {most} bytes")))
        }
        Some(size) if size < bytes.len() as u64 => parse(&bytes[..size as usize], path, 0),
        _ => Ok(whole),
    }
}

/// Parses the keys and values of all lines up to the first NUL or the end-of-header line.
fn parse(bytes: &[u8], path: &Path, offset: u64) -> Result<Fields> {
    let text = &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())];
    if let Some(at) = text.iter().position(|byte| is_binary(*byte)) {
        let field = format!("line {} of the header", text[..at].split(|b| *b == b'\n').count());
        let why = format!("found the byte {:#04x}, expected text", text[at]);
        return Err(Error::format(path, field, offset + at as u64, why));
    }
    let (mut list, mut at) = (Vec::new(), offset);
    for line in text.split(|byte| *byte == b'\n') {
        let own = String::from_utf8_lossy(line);
        if own.starts_with('#') && own.contains("end of header") {
            break;
        }
        let content = own.split('#').next().unwrap_or_default().trim();
        if let Some(key) = content.split_whitespace().next() {
            let value = content[key.len()..].trim();
            let value = if UNSET.contains(&value.to_lowercase().as_str()) { "" } else { value };
            list.push(Field { key: key.to_string(), value: value.to_string(), offset: at });
        }
        at += line.len() as u64 + 1;
    }
    Ok(Fields::new(path, offset, bytes.len() as u64, list))
}

/// Returns whether a byte cannot occur in text; bytes from 0x80 on may be non-ASCII letters.
fn is_binary(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t') || byte == 0x7f
}

/// Returns whether a file's first bytes are a PSRDADA header: lines of text with a key HDR_SIZE or HEADER.
pub(super) fn detect(first: &[u8]) -> bool {
    let first = &first[..first.len().min(DEFAULT_HEADER as usize)];
    let text = &first[..first.iter().position(|byte| *byte == 0).unwrap_or(first.len())];
    let key = |line: &[u8], key: &[u8]| {
        line.strip_prefix(key).is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.clone().next().is_some_and(|line| !line.iter().any(|byte| is_binary(*byte)))
        && (key(text, b"HEADER") || lines.any(|line| key(line, b"HDR_SIZE")))
}

/// Samples per stream in one heap of MeerKAT's beamformer, which no key stores.
const MEERKAT_HEAP: u64 = 256;

/// Keys that must agree in all files of a recording.
const FIELDS: [&str; 14] = [
    "NBIT",
    "NDIM",
    "NPOL",
    "NCHAN",
    "NANT",
    "TSAMP",
    "FREQ",
    "BW",
    "ORDER",
    "ENCODING",
    "RESOLUTION",
    "INSTRUMENT",
    "UTC_START",
    "MJD_START",
];

/// Streams and their sample encoding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Geometry {
    pub(super) counts: Counts,
    pub(super) encoding: VoltageEncoding,
    order: [Axis; 4],
    /// Samples per stream in a heap; 1 if time is outermost and appears once.
    unit_times: u64,
}

impl Geometry {
    /// Reads the geometry from a file's header.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for keys that are missing, invalid or unsupported.
    pub(super) fn new(header: &Fields) -> Result<Self> {
        let encoding = encoding(header)?;
        let (channels, polarizations) = (header.needed("NCHAN")?, header.needed("NPOL")?);
        let antennas = match header.text("NANT") {
            Some(_) => header.needed("NANT")?,
            None => 1,
        };
        if polarizations > 2 {
            let why = format!("found {polarizations}, expected 1 or 2");
            return Err(header.fault("NPOL", why));
        }
        for (key, count) in [("NCHAN", channels), ("NANT", antennas)] {
            if count > MAX_CHANNELS as u64 {
                let why = format!("found {count}, expected {MAX_CHANNELS} at most");
                return Err(header.fault(key, why));
            }
        }
        let [antennas, channels, polarizations] =
            [antennas, channels, polarizations].map(|count| count as usize);
        let counts = Counts { antennas, channels, polarizations };
        let (order, heaps) = order(header, counts)?;
        let mut geometry = Self { counts, encoding, order, unit_times: 1 };
        geometry.unit_times = geometry.heap_times(header, heaps)?;
        Ok(geometry)
    }

    /// Returns the bytes of one sample of every stream; cannot overflow, because the counts are bounded.
    pub(super) fn frame_bytes(&self) -> u64 {
        let counts = [self.counts.antennas, self.counts.channels, self.counts.polarizations];
        counts.iter().map(|count| *count as u64).product::<u64>() * self.sample_bytes() as u64
    }

    fn sample_bytes(&self) -> usize {
        self.encoding.sample_bits() / 8
    }

    /// Returns the samples per stream in a heap.
    pub(super) fn unit_times(&self) -> u64 {
        self.unit_times
    }

    /// Returns the sample layout. The caller has checked that the file holds at least one sample of every stream.
    pub(super) fn layout(&self) -> Layout {
        Layout::new(self.order, self.counts, self.unit_times, self.sample_bytes())
    }

    /// Computes the samples per stream in a heap.
    fn heap_times(&self, header: &Fields, heaps: Heaps) -> Result<u64> {
        let bytes = match heaps {
            Heaps::None => return Ok(1),
            Heaps::Meerkat => return Ok(MEERKAT_HEAP),
            Heaps::Resolution => header.count("RESOLUTION")?.unwrap_or(0),
        };
        if bytes == 0 || !bytes.is_multiple_of(self.frame_bytes()) {
            let why = format!(
                "found {bytes}, but with this ORDER it is the bytes of one heap: expected a \
                 multiple of {} (one sample of everything)",
                self.frame_bytes()
            );
            return Err(header.fault("RESOLUTION", why));
        }
        Ok(bytes / self.frame_bytes())
    }
}

/// Checks that a later file agrees with the first.
///
/// # Errors
/// [`crate::Error::Format`] naming the first key that differs.
pub(super) fn same(first: &Fields, other: &Fields) -> Result<()> {
    for key in FIELDS {
        let (expected, found) = (first.text(key), other.text(key));
        if expected != found {
            let show = |text: Option<&str>| text.unwrap_or("nothing").to_string();
            let (found, expected) = (show(found), show(expected));
            let why =
                format!("found {found}, expected {expected} as in the recording's first file");
            return Err(other.fault(key, why));
        }
    }
    Ok(())
}

/// Source of the heap length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heaps {
    /// Time is outermost: no heaps.
    None,
    /// Heaps of RESOLUTION bytes.
    Resolution,
    /// MeerKAT's beamformer.
    Meerkat,
}

/// Reads the axis order and the kind of heaps.
fn order(header: &Fields, counts: Counts) -> Result<([Axis; 4], Heaps)> {
    if let (Some(instrument @ ("MKBF" | "MKBFRo")), None) =
        (header.text("INSTRUMENT"), header.text("ORDER"))
    {
        if instrument == "MKBFRo" {
            let why = "MKBFRo, whose samples are swapped in pairs, is not supported, expected MKBF";
            return Err(header.fault("INSTRUMENT", why));
        }
        let order = [Axis::Antenna, Axis::Polarization, Axis::Channel, Axis::Time];
        return Ok((order, Heaps::Meerkat));
    }
    let text = match header.text("ORDER") {
        Some(text) => text.to_ascii_uppercase(),
        None if counts.antennas == 1 => "TFP".to_string(),
        None => {
            let why = "it is missing, expected the order of axes where there are several antennas \
                       (NANT), such as TFAP";
            return Err(header.fault("ORDER", why));
        }
    };
    parse_order(&text, counts).ok_or_else(|| {
        let why = format!(
            "{text} is not supported, expected each of T, F, P (and A for several antennas) once, \
             such as TFP, FTP or TPF, or with a T before them for heaps, such as TFTP"
        );
        header.fault("ORDER", why)
    })
}

/// Parses an axis order such as `TFP`; a second `T` after a leading one means heaps.
fn parse_order(text: &str, counts: Counts) -> Option<([Axis; 4], Heaps)> {
    let heaped = text.starts_with('T') && text.matches('T').count() == 2;
    let letters = if heaped { &text[1..] } else { text };
    let mut axes = Vec::new();
    for letter in letters.chars() {
        let axis = match letter {
            'T' => Axis::Time,
            'F' => Axis::Channel,
            'P' => Axis::Polarization,
            'A' => Axis::Antenna,
            _ => return None,
        };
        if axes.contains(&axis) {
            return None;
        }
        axes.push(axis);
    }
    for (axis, count) in [
        (Axis::Antenna, counts.antennas),
        (Axis::Channel, counts.channels),
        (Axis::Polarization, counts.polarizations),
    ] {
        if !axes.contains(&axis) {
            // Only an axis of length 1 may be omitted.
            if count > 1 {
                return None;
            }
            axes.insert(0, axis);
        }
    }
    let order: [Axis; 4] = axes.try_into().ok()?;
    let before = order.iter().take_while(|axis| **axis != Axis::Time);
    let runs = before.map(|axis| match axis {
        Axis::Antenna => counts.antennas,
        Axis::Channel => counts.channels,
        _ => counts.polarizations,
    });
    let heaps =
        if runs.into_iter().all(|count| count == 1) { Heaps::None } else { Heaps::Resolution };
    Some((order, heaps))
}

fn encoding(header: &Fields) -> Result<VoltageEncoding> {
    let bits = header.needed("NBIT")?;
    let complex = match (header.count("NDIM")?, header.text("STATE")) {
        (Some(2), _) | (None, Some("Analytic")) => true,
        (Some(1), _) | (None, Some("Nyquist")) => false,
        (found, _) => {
            let found = found.map_or("nothing".to_string(), |count| count.to_string());
            let why = format!("found {found}, expected 1 (real) or 2 (complex)");
            return Err(header.fault("NDIM", why));
        }
    };
    let offset = is_offset(header)?;
    if bits > 8
        && header.text("ENDIAN").is_some_and(|endian| !endian.eq_ignore_ascii_case("little"))
    {
        let why = "found big-endian samples, which are not supported, expected LITTLE";
        return Err(header.fault("ENDIAN", why));
    }
    match (bits, complex, offset) {
        (4, true, false) => Ok(VoltageEncoding::Complex4),
        (8, true, false) => Ok(VoltageEncoding::Complex8),
        (8, true, true) => Ok(VoltageEncoding::ComplexOffset8),
        (16, true, false) => Ok(VoltageEncoding::Complex16),
        (32, true, false) => Ok(VoltageEncoding::ComplexF32),
        (8, false, false) => Ok(VoltageEncoding::Real8),
        (8, false, true) => Ok(VoltageEncoding::RealOffset8),
        (16, false, false) => Ok(VoltageEncoding::Real16),
        (32, false, false) => Ok(VoltageEncoding::RealF32),
        (_, _, true) => {
            let why = format!("offset samples of {bits} bits are not supported, expected 8 bits");
            Err(header.fault("ENCODING", why))
        }
        (4, false, _) => {
            let why = "real samples of 4 bits are not supported, expected 8, 16 or 32";
            Err(header.fault("NBIT", why))
        }
        _ => Err(header.fault("NBIT", format!("found {bits}, expected 4, 8, 16 or 32 (float)"))),
    }
}

/// Returns whether samples are offset binary.
fn is_offset(header: &Fields) -> Result<bool> {
    let Some(text) = header.text("ENCODING") else { return Ok(false) };
    match text.to_ascii_uppercase().replace(['_', '-', ' '], "").as_str() {
        "TWOSCOMPLEMENT" | "SIGNED" | "FLOAT" => Ok(false),
        "OFFSETBINARY" | "OFFSET" | "UNSIGNED" => Ok(true),
        _ => {
            let why = format!("found {text}, expected TWOSCOMPLEMENT or OFFSETBINARY");
            Err(header.fault("ENCODING", why))
        }
    }
}

/// The modified Julian day of 1 January 1970.
const UNIX_DAY: i64 = 40587;

/// Returns the start of the observation, before OBS_OFFSET.
///
/// MJD_START takes precedence, unless UTC_START is a whole second and equals MJD_START within its printed digits;
/// then that second is exact. PICOSECONDS are added.
///
/// # Errors
/// [`crate::Error::Format`] for an invalid date.
pub(super) fn start(header: &Fields) -> Result<Option<Epoch>> {
    let utc = match header.text("UTC_START") {
        Some(text) => Some(parse_utc(text).ok_or_else(|| {
            let why = format!("found {text:?}, expected a date such as 2013-07-02-01:37:40");
            header.fault("UTC_START", why)
        })?),
        None => None,
    };
    let mjd = match header.text("MJD_START") {
        Some(text) => parse_mjd(text).ok_or_else(|| {
            let why = format!("found {text:?}, expected a modified Julian date");
            header.fault("MJD_START", why)
        })?,
        None => None,
    };
    let picoseconds = header.number("PICOSECONDS")?.unwrap_or(0.0);
    let start = match (utc, mjd) {
        (Some(utc), Some((mjd, resolution))) => {
            let same = mjd.seconds_since(&utc).abs() <= resolution;
            Some(if same && utc.seconds.fract() == 0.0 { utc } else { mjd })
        }
        (utc, mjd) => utc.or(mjd.map(|(mjd, _)| mjd)),
    };
    Ok(start.map(|start| start.plus_s(picoseconds.clamp(0.0, 1e12) * 1e-12)))
}

/// Parses UTC from `yyyy-mm-dd-hh:mm:ss.fff`, also with `T` or a space before the hour and with a trailing `Z`;
/// `None` for an invalid date.
pub fn parse_utc(text: &str) -> Option<Epoch> {
    let (date, time) = (text.get(..10)?, text.get(11..)?);
    if !text[10..].starts_with(['-', 'T', ' ']) {
        return None;
    }
    let mut parts = date.split('-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || !(1900..=9999).contains(&year) {
        return None;
    }
    let days = [31, 28 + u32::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if day == 0 || day > *days.get(month.checked_sub(1)? as usize)? {
        return None;
    }
    let mut parts = time.trim_end_matches('Z').split(':');
    let (hours, minutes) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    let seconds = parts.next()?.parse::<f64>().ok()?;
    // 60 to 61 is a leap second.
    if parts.next().is_some() || hours > 23 || minutes > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    let seconds = f64::from(hours * 3600 + minutes * 60) + seconds;
    Some(Epoch::new(day_number(year, month, day), seconds))
}

/// Parses an MJD and returns it with the resolution of its last digit in seconds; the inner value is `None` for 0.
fn parse_mjd(text: &str) -> Option<Option<(Epoch, f64)>> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let day: i64 = whole.parse().ok()?;
    if !(0..10_000_000).contains(&day) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part: f64 = format!("0.{fraction}").parse().ok()?;
    let digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX).min(300);
    // An `f64` of this size resolves about 1e-11 s.
    let resolution = (SECONDS_PER_DAY * 10f64.powi(-digits)).max(1e-10);
    let known = day > 0 || part > 0.0;
    Some(known.then(|| (Epoch::new(day, part * SECONDS_PER_DAY), resolution)))
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the modified Julian day of a Gregorian date.
fn day_number(year: u32, month: u32, day: u32) -> i64 {
    // Start years in March, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // Days from 1 March of year 0 to 1 January 1970: 719468.
    i64::from(days) - 719_468 + UNIX_DAY
}

/// Returns the Gregorian date of a modified Julian day.
fn date(day: i64) -> (i64, i64, i64) {
    let days = day - UNIX_DAY + 719_468;
    let (cycle, rest) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (rest - rest / 1460 + rest / 36_524 - rest / 146_096) / 365;
    let days = rest - (365 * year + year / 4 - year / 100);
    let month = (5 * days + 2) / 153;
    let day = days - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + 400 * cycle + next, month, day)
}

/// Formats UTC_START and MJD_START, to better than a nanosecond.
pub fn format_start(start: &Epoch) -> (String, String) {
    // Round to nanoseconds, so that a start of whole nanoseconds is written exactly.
    let nanoseconds = (start.seconds * 1e9).round() as i64;
    let (year, month, day) = date(start.day + nanoseconds / 86_400_000_000_000);
    let nanoseconds = nanoseconds % 86_400_000_000_000;
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}") };
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = format!("{:.18}", (start.seconds / SECONDS_PER_DAY).min(1.0 - f64::EPSILON));
    let utc = format!("{year:04}-{month:02}-{day:02}-{clock}{fraction}");
    (utc, format!("{}{}", start.day, part.trim_start_matches('0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Result<Fields> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dada");
        std::fs::write(&path, text).unwrap();
        read(&mut File::open(&path).unwrap(), &path, 0)
    }

    #[test]
    fn keys_and_values_come_without_comments() {
        let text = "HEADER DADA # x\n\n# FREQ 1\nHDR_SIZE 128\nSOURCE  J0 # name\nNCHAN 1 \t# y\r\n\
                    UTC_STOP None\n# end of header\nNBIT 8\n";
        let header = fields(&format!("{text:\0<130}")).unwrap();
        assert_eq!(header.bytes(), 128);
        assert_eq!(header.text("SOURCE"), Some("J0"));
        assert_eq!(header.count("NCHAN").unwrap(), Some(1));
        for none in ["NBIT", "UTC_STOP", "FREQ", "#"] {
            assert_eq!(header.text(none), None, "{none}");
        }
    }

    #[test]
    fn a_header_must_fit_its_file() {
        for (text, expected) in [
            ("HDR_SIZE 4096\nNBIT 8\n", "ends 21 bytes"),
            ("NBIT 8\n", "ends 7 bytes"),
            ("HDR_SIZE 99999999\n", "expected 1 to"),
            ("HDR_SIZE -1\n", "count"),
            ("HDR_SIZE 0\n", "expected 1 to"),
            ("HDR_SIZE 16\n\u{1}", "0x01"),
        ] {
            let found = fields(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
        let long = format!("{:\0<8192}", "HDR_SIZE 8192\n");
        assert_eq!(fields(&long).unwrap().bytes(), 8192);
        let far = format!("HDR_SIZE 8192\n{:#<5000}\nNBIT 8\n{:\0<8192}", "", "");
        assert_eq!(fields(&far).unwrap().count("NBIT").unwrap(), Some(8));
    }

    #[test]
    fn a_header_is_known_by_its_keys() {
        assert!(detect(b"HEADER  DADA") && detect(b"BW 1\nHDR_SIZE 4096\n\0\0"));
        assert!(!detect(b"HDR_SIZE") && !detect(b"BW 1\n") && !detect(b"") && !detect(b"HEADER"));
        assert!(!detect(b"\x01\x02\nHDR_SIZE 4096\n") && !detect(b"NBITS   = 8"));
    }

    #[test]
    fn axes_of_one_have_no_place() {
        use Axis::{Antenna, Channel, Polarization, Time};
        let counts =
            |antennas, channels, polarizations| Counts { antennas, channels, polarizations };
        let cases = [
            ("FTP", counts(1, 1, 2), Some(([Antenna, Channel, Time, Polarization], Heaps::None))),
            (
                "FTP",
                counts(1, 4, 2),
                Some(([Antenna, Channel, Time, Polarization], Heaps::Resolution)),
            ),
            ("TFP", counts(1, 4, 2), Some(([Antenna, Time, Channel, Polarization], Heaps::None))),
            (
                "TAFTP",
                counts(3, 4, 2),
                Some(([Antenna, Channel, Time, Polarization], Heaps::Resolution)),
            ),
            ("T", counts(1, 1, 1), Some(([Polarization, Channel, Antenna, Time], Heaps::None))),
            ("TFP", counts(2, 4, 2), None),
            ("TFFP", counts(1, 4, 2), None),
            ("FTPT", counts(1, 4, 2), None),
            ("TFS", counts(1, 4, 1), None),
            ("FP", counts(1, 4, 2), None),
            ("", counts(1, 1, 1), None),
        ];
        for (text, counts, expected) in cases {
            assert_eq!(parse_order(text, counts), expected, "{text}");
        }
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        for (text, day) in [
            ("1970-01-01-00:00:00", 40587),
            ("2000-02-29-00:00:00", 51603),
            ("2013-07-02-01:37:40", 56475),
            ("1900-03-01-00:00:00", 15079),
            ("2026-12-31T23:59:59.5Z", 61405),
        ] {
            let epoch = parse_utc(text).unwrap();
            assert_eq!(epoch.day, day, "{text}");
            let (year, month, day) = date(epoch.day);
            assert_eq!(format!("{year:04}-{month:02}-{day:02}"), text[..10]);
        }
        for wrong in [
            "2013-02-29-00:00:00",
            "2013-13-01-00:00:00",
            "2013-00-01-00:00:00",
            "",
            "2013-07-02",
            "2013-07-02-24:00:00",
            "2013-07-02-00:60:00",
            "2013-07-02-00:00:61",
            "2013-07-02-00:00",
            "2013-07-02_00:00:00",
            "2013-07-02-00:00:nan",
            "2013-07-02-\u{e9}0:00:00",
            "1-1-1-1:1:1",
        ] {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn moments_go_round() {
        for (day, seconds) in
            [(56475, 5860.0), (59596, 22_670.998_315), (60000, 86_399.999_999_999_9)]
        {
            let epoch = Epoch::new(day, seconds);
            let (utc, mjd) = format_start(&epoch);
            let (again, _) = parse_mjd(&mjd).unwrap().unwrap();
            assert!(again.seconds_since(&epoch).abs() < 1e-10, "{mjd}");
            assert!(parse_utc(&utc).unwrap().seconds_since(&epoch).abs() < 1e-9, "{utc}");
        }
        assert_eq!(format_start(&Epoch::new(56475, 5860.0)).0, "2013-07-02-01:37:40");
        assert_eq!(parse_mjd("0"), Some(None));
        for wrong in ["", "x", "-1.5", "1.5.5", "56475.x", "99999999999"] {
            assert_eq!(parse_mjd(wrong), None, "{wrong}");
        }
    }
}
