//! Sample encoding and axis order from a PSRDADA header.

use crate::error::Result;
use crate::io::voltages::fields::Fields;
use crate::io::voltages::layout::{Axis, Counts, Layout};
use crate::units::MAX_CHANNELS;
use crate::voltage::VoltageEncoding;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
