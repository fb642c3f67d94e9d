//! Sample geometry of a block, which must agree in every block of a recording.

use crate::error::Result;
use crate::io::voltages::fields::Fields;
use crate::io::voltages::layout::{Axis, Counts, Layout};
use crate::units::MAX_CHANNELS;
use crate::voltage::VoltageEncoding;

/// Geometry common to all blocks of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Geometry {
    /// Antennas, channels per antenna, polarizations.
    pub(super) counts: Counts,
    pub(super) encoding: VoltageEncoding,
    /// Bytes of samples per block (BLOCSIZE).
    pub(super) block_bytes: u64,
    /// Samples per stream in a block.
    pub(super) times: u64,
    /// Samples at a block's end that the next block repeats.
    pub(super) overlap: u64,
    /// Whether headers, and usually blocks, are padded to multiples of 512 bytes.
    pub(super) directio: bool,
    time_first: bool,
    /// The header values behind the geometry, to name one that changes.
    fields: [(&'static str, Option<f64>); 11],
}

/// Cards that must not change within a recording.
const FIELDS: [&str; 11] = [
    "BLOCSIZE", "OBSNCHAN", "NPOL", "NBITS", "NANTS", "OVERLAP", "DIRECTIO", "TBIN", "OBSFREQ",
    "OBSBW", "PIPERBLK",
];

impl Geometry {
    /// Reads the geometry from a block's cards.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for a missing or invalid card.
    pub(super) fn new(cards: &Fields) -> Result<Self> {
        let block_bytes = cards.needed("BLOCSIZE")?;
        let channels = cards.needed("OBSNCHAN")?;
        let antennas = cards.count("NANTS")?.unwrap_or(1);
        let limit = MAX_CHANNELS as u64;
        if antennas == 0
            || !channels.is_multiple_of(antennas)
            || channels > limit * antennas.min(limit)
        {
            let why = format!(
                "{channels} channels of all antennas, expected a multiple of the {antennas} \
                 antennas (NANTS), at most {limit} channels each"
            );
            return Err(cards.fault("OBSNCHAN", why));
        }
        let real = is_real(cards, channels)?;
        let counts = Counts {
            antennas: antennas as usize,
            channels: (channels / antennas) as usize,
            polarizations: polarizations(cards)?,
        };
        let encoding = encoding(cards, real)?;
        let time_first = match cards.text("PKTFMT") {
            Some("VDIF") => {
                let why = "VDIF packets in GUPPI blocks are not supported, expected 1SFA or SIMPLE";
                return Err(cards.fault("PKTFMT", why));
            }
            format => format == Some("SIMPLE"),
        };
        let bytes = channels * counts.polarizations as u64 * (encoding.sample_bits() / 8) as u64;
        if !block_bytes.is_multiple_of(bytes) {
            let why = format!(
                "a block of {block_bytes} bytes does not hold whole samples, expected a multiple \
                 of {bytes} ({channels} channels, {} polarizations, {encoding:?})",
                counts.polarizations
            );
            return Err(cards.fault("BLOCSIZE", why));
        }
        let (times, overlap) = (block_bytes / bytes, cards.count("OVERLAP")?.unwrap_or(0));
        if overlap >= times {
            let why = format!("{overlap} samples, expected fewer than the block's {times}");
            return Err(cards.fault("OVERLAP", why));
        }
        let directio = cards.number("DIRECTIO")?.unwrap_or(0.0) != 0.0;
        let mut fields = FIELDS.map(|key| (key, None));
        for (key, value) in &mut fields {
            *value = cards.number(key)?;
        }
        Ok(Self { counts, encoding, block_bytes, times, overlap, directio, time_first, fields })
    }

    /// Returns the samples from a block's start to the next block's start.
    pub(super) fn hop(&self) -> u64 {
        self.times - self.overlap
    }

    /// Returns the sample layout of a block.
    pub(super) fn layout(&self) -> Layout {
        let order = if self.time_first {
            [Axis::Time, Axis::Antenna, Axis::Channel, Axis::Polarization]
        } else {
            [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization]
        };
        Layout::new(order, self.counts, self.times, self.encoding.sample_bits() / 8)
    }

    /// Returns the bytes of one sample of every stream.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.block_bytes / self.times
    }

    /// Checks that a later block agrees with this one.
    ///
    /// # Errors
    /// [`crate::Error::Format`] naming the block and the first card that differs.
    pub(super) fn check(&self, other: &Self, cards: &Fields, block: usize) -> Result<()> {
        let pairs = self.fields.iter().zip(&other.fields);
        for ((key, expected), (_, found)) in pairs {
            if expected != found {
                let show = |value: &Option<f64>| {
                    value.map_or_else(|| "nothing".to_string(), |value| value.to_string())
                };
                let why = format!(
                    "block {block} has {}, expected {} as in block 0",
                    show(found),
                    show(expected)
                );
                return Err(cards.fault(key, why));
            }
        }
        if self != other {
            let why = format!("block {block} is laid out differently from block 0");
            return Err(cards.fault("PKTFMT", why));
        }
        Ok(())
    }
}

/// Reads NPOL: two polarizations are written as 2, or as 4, by the convention of detected data.
fn polarizations(cards: &Fields) -> Result<usize> {
    match cards.needed("NPOL")? {
        1 => Ok(1),
        2 | 4 => Ok(2),
        other => Err(cards.fault("NPOL", format!("found {other}, expected 1, 2 or 4"))),
    }
}

/// Returns whether samples are real: a single channel sampled at twice its width.
fn is_real(cards: &Fields, channels: u64) -> Result<bool> {
    let (Some(width), Some(tbin)) = (cards.number("OBSBW")?, cards.number("TBIN")?) else {
        return Ok(false);
    };
    let samples = (width * 1e6 * tbin).abs();
    Ok(channels == 1 && (0.49..0.51).contains(&samples))
}

fn encoding(cards: &Fields, real: bool) -> Result<VoltageEncoding> {
    match (cards.count("NBITS")?.unwrap_or(8), real) {
        (4, false) => Ok(VoltageEncoding::Complex4),
        (8, false) => Ok(VoltageEncoding::Complex8),
        (16, false) => Ok(VoltageEncoding::Complex16),
        (8, true) => Ok(VoltageEncoding::Real8),
        (16, true) => Ok(VoltageEncoding::Real16),
        (other, true) => {
            Err(cards.fault("NBITS", format!("found {other}, expected 8 or 16 (real samples)")))
        }
        (other, false) => Err(cards.fault("NBITS", format!("found {other}, expected 4, 8 or 16"))),
    }
}
