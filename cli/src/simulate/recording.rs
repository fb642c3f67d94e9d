//! Options, encodings and file formats of simulated voltages.

use std::path::Path;

use clap::{Args, ValueEnum};
use sidereal::io::voltages::{VoltageHeader, dada, guppi};
use sidereal::units::{HZ_PER_MHZ, MAX_CHANNELS};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

/// Approximate maximum size of a GUPPI block in a recording with gaps.
const BLOCK_BYTES: u64 = 1 << 20;

/// Largest number of blocks of a GUPPI recording with gaps.
const MAX_BLOCKS: u64 = 1 << 14;

/// Approximate number of blocks in the shortest gap: a gap's ends are rounded to whole blocks.
const BLOCKS_PER_GAP: u64 = 8;

/// Options of the recorded band.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(super) struct Band {
    /// Centre of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true)]
    freq: f64,
    /// Width of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true)]
    bandwidth: f64,
}

impl Band {
    /// Returns centre and width in Hz of a band that `channels` recorded channels divide; `option` names their number.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a band that reaches zero frequency, or no channel, or too many.
    pub(super) fn hz(&self, option: &'static str, channels: usize) -> Result<[f64; 2]> {
        let Self { freq, bandwidth } = *self;
        positive("--freq", freq)?;
        positive("--bandwidth", bandwidth)?;
        if 0.5 * bandwidth >= freq {
            let rule = format!("a band of that width around {freq} MHz would reach below 0");
            return Err(Error::parameter("--bandwidth", bandwidth, rule));
        }
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("it must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter(option, channels, rule));
        }
        Ok([freq, bandwidth].map(|mhz| mhz * HZ_PER_MHZ))
    }
}

/// Options of the recorded samples.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(super) struct Samples {
    /// Bits per real value: 4 (complex only), 8, 16 or 32 (floats; DADA only).
    ///
    /// A complex sample has two values.
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, default_value_t = 8)]
    nbits: usize,
    /// Record real samples, at twice the rate of complex ones; DADA only.
    #[arg(long)]
    pub(super) real: bool,
}

impl Samples {
    /// Returns the encoding.
    ///
    /// # Errors
    /// [`Error::Parameter`] for other numbers of bits.
    pub(super) fn encoding(&self) -> Result<VoltageEncoding> {
        let bits = self.nbits;
        match (bits, self.real) {
            (4, false) => Ok(VoltageEncoding::Complex4),
            (8, false) => Ok(VoltageEncoding::Complex8),
            (16, false) => Ok(VoltageEncoding::Complex16),
            (32, false) => Ok(VoltageEncoding::ComplexF32),
            (8, true) => Ok(VoltageEncoding::Real8),
            (16, true) => Ok(VoltageEncoding::Real16),
            (32, true) => Ok(VoltageEncoding::RealF32),
            (_, false) => Err(Error::parameter("--nbits", bits, "it must be 4, 8, 16 or 32")),
            (_, true) => {
                Err(Error::parameter("--nbits", bits, "of real samples it must be 8, 16 or 32"))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Feed {
    /// X and Y.
    Linear,
    /// R and L.
    Circular,
}

/// # Errors
/// [`Error::Parameter`] unless the value is finite and above 0.
pub(super) fn positive(name: &'static str, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::parameter(name, value, "it must be a positive number"))
}

/// Returns the bytes of `times` samples of `streams` streams.
pub(super) fn need(encoding: VoltageEncoding, times: u64, streams: usize) -> u64 {
    let bits = u128::from(times) * encoding.sample_bits() as u128 * streams as u128;
    u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// GUPPI raw, extension .raw: complex samples of 4, 8 or 16 bits.
    Guppi,
    /// PSRDADA, extension .dada.
    Dada,
}

impl Format {
    /// Returns the name used on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Guppi => "guppi",
            Self::Dada => "dada",
        }
    }

    /// Returns the requested format, or the one that the file's extension implies.
    pub(super) fn choose(asked: Option<Self>, out: &Path) -> Result<Self> {
        let end = out.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match (asked, end.as_deref()) {
            (Some(format), _) => Ok(format),
            (None, Some("raw")) => Ok(Self::Guppi),
            (None, Some("dada")) => Ok(Self::Dada),
            _ => {
                let rule = "its name must end in .raw or .dada, or --format must say what to write";
                Err(Error::parameter("OUT", out.display(), rule))
            }
        }
    }
}

/// Rounds gaps to what the format can represent. A gap of GUPPI raw consists of missing blocks, so its ends are
/// rounded to blocks, whose length is returned; DADA has no gaps and contains zeros instead.
///
/// # Errors
/// [`Error::Parameter`] for a gap at the beginning or the end, or too short for whole blocks.
pub(super) fn fit_gaps(
    format: Format,
    gaps: &mut [(u64, u64)],
    recording: &VoltageHeader,
) -> Result<Option<usize>> {
    let Some(shortest) = gaps.iter().map(|(_, times)| *times).min() else {
        return Ok(None);
    };
    if format == Format::Dada {
        return Ok(None);
    }
    let frame = (recording.streams() * recording.encoding.bytes(1)) as u64;
    let all = recording.times.unwrap_or(0);
    let usual = (shortest / BLOCKS_PER_GAP).min(BLOCK_BYTES / frame);
    let block = usual.max(all.div_ceil(MAX_BLOCKS)).max(1);
    let nearest = |time: u64| (time + block / 2) / block;
    for (start, times) in gaps {
        let (first, last) = (nearest(*start), nearest(*start + *times));
        if first == 0 || first == last || last * block >= all {
            let tsamp_s = recording.tsamp_s;
            let [start_s, length_s] = [*start, *times].map(|time| time as f64 * tsamp_s);
            let gap = format!("start={start_s},duration={length_s}");
            let rule = format!(
                "in GUPPI raw it is made of missing blocks, here of {:e} s, and neither the first nor \
                 the last block can be missing",
                block as f64 * tsamp_s
            );
            return Err(Error::parameter("--gap", gap, rule));
        }
        (*start, *times) = (first * block, (last - first) * block);
    }
    Ok(Some(block as usize))
}

/// File being written.
pub(super) enum Writer {
    Guppi(guppi::Writer),
    Dada(dada::Writer),
}

impl Writer {
    /// Creates a file; `block` is the length that [`fit_gaps`] returns.
    pub(super) fn create(
        format: Format,
        out: &Path,
        header: &VoltageHeader,
        block: Option<usize>,
    ) -> Result<Self> {
        match format {
            Format::Guppi => {
                let options = guppi::WriterOptions { block_times: block, ..Default::default() };
                guppi::Writer::create(out, header, &options).map(Self::Guppi)
            }
            Format::Dada => dada::Writer::create(out, header).map(Self::Dada),
        }
    }

    pub(super) fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.write(voltages),
            Self::Dada(writer) => writer.write(voltages),
        }
    }

    /// Skips missing samples: one block of a recording with gaps.
    pub(super) fn leave_out(&mut self, voltages: Voltages<'_>) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.leave_out(1),
            Self::Dada(writer) => writer.write(voltages),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.finish(),
            Self::Dada(writer) => writer.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_format() {
        let chosen = |asked, name| Format::choose(asked, Path::new(name)).ok();
        assert_eq!(chosen(None, "a.b/x.RAW"), Some(Format::Guppi));
        assert_eq!(chosen(None, "x.dada"), Some(Format::Dada));
        assert_eq!(chosen(Some(Format::Dada), "x.raw"), Some(Format::Dada));
        assert_eq!((chosen(None, "x.fil"), chosen(None, "x")), (None, None));
    }

    #[test]
    fn gaps_of_guppi_are_whole_blocks() {
        let header = VoltageHeader {
            polarizations: 2,
            times: Some(100_000),
            ..VoltageHeader::new(vec![1400e6], 1e-6, VoltageEncoding::Complex8)
        };
        assert_eq!(fit_gaps(Format::Guppi, &mut [], &header).unwrap(), None);
        let mut gaps = [(1003, 807), (50_000, 20_000)];
        assert_eq!(fit_gaps(Format::Dada, &mut gaps, &header).unwrap(), None);
        assert_eq!(fit_gaps(Format::Guppi, &mut gaps, &header).unwrap(), Some(100));
        assert_eq!(gaps, [(1000, 800), (50_000, 20_000)]);
        for gap in [(0, 1000), (99_000, 1000), (3, 1)] {
            assert!(fit_gaps(Format::Guppi, &mut [gap], &header).is_err(), "{gap:?}");
        }
    }
}
