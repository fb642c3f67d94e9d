//! Formats that voltages are written in.

use std::path::Path;

use clap::ValueEnum;
use sidereal::io::voltages::{VoltageHeader, dada, guppi};
use sidereal::simulate::voltages::Options;
use sidereal::voltage::Voltages;
use sidereal::{Error, Result};

/// The most bytes of a GUPPI block in a recording with gaps, about.
const BLOCK_BYTES: u64 = 1 << 20;

/// The most blocks of a GUPPI recording with gaps.
const MOST_BLOCKS: u64 = 1 << 14;

/// Blocks in the shortest gap, about: a gap's ends are rounded to whole blocks.
const BLOCKS_A_GAP: u64 = 8;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// GUPPI raw, with the name's end .raw: complex samples of 4, 8 or 16 bits.
    Guppi,
    /// PSRDADA, with the name's end .dada.
    Dada,
}

impl Format {
    /// The format asked for, or the one that a file's name says.
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

/// Brings gaps to what a format can say. A gap of GUPPI raw is made of blocks that are missing, so its
/// ends are rounded to blocks, of which the length is returned; DADA has no gaps, they are zeros in it.
///
/// # Errors
/// [`Error::Parameter`] for a gap at the beginning or the end, or too short to be whole blocks.
pub(super) fn fit_gaps(format: Format, options: &mut Options) -> Result<Option<usize>> {
    let Some(shortest) = options.gaps.iter().map(|(_, times)| *times).min() else {
        return Ok(None);
    };
    if format == Format::Dada {
        return Ok(None);
    }
    let frame = (options.streams() * options.encoding.bytes(1)) as u64;
    let usual = (shortest / BLOCKS_A_GAP).min(BLOCK_BYTES / frame);
    let block = usual.max(options.times.div_ceil(MOST_BLOCKS)).max(1);
    let nearest = |time: u64| (time + block / 2) / block;
    for (start, times) in &mut options.gaps {
        let (first, last) = (nearest(*start), nearest(*start + *times));
        if first == 0 || first == last || last * block >= options.times {
            let tsamp_s = options.channel_width_hz.recip();
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

/// A file being written.
pub(super) enum Writer {
    Guppi(guppi::Writer),
    Dada(dada::Writer),
}

impl Writer {
    /// Starts a file; `block` is what [`fit_gaps`] says.
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

    /// Passes over samples that are missing: one block of a recording with gaps.
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
        let mut options = Options::new(1400e6, 1e6, 1, 100_000);
        assert_eq!(fit_gaps(Format::Guppi, &mut options).unwrap(), None);
        options.gaps = vec![(1003, 807), (50_000, 20_000)];
        let mut whole = options.clone();
        assert_eq!(fit_gaps(Format::Guppi, &mut whole).unwrap(), Some(100));
        assert_eq!(whole.gaps, [(1000, 800), (50_000, 20_000)]);
        assert_eq!(fit_gaps(Format::Dada, &mut options).unwrap(), None);
        for gap in [(0, 1000), (99_000, 1000), (3, 1)] {
            options.gaps = vec![gap];
            assert!(fit_gaps(Format::Guppi, &mut options).is_err(), "{gap:?}");
        }
    }
}
