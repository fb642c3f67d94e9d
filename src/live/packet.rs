//! Result common to all formats of packets: the place of a packet's samples, or the reason for rejecting it.

use crate::error::{Error, Result};

/// Most sources of one window.
const MOST_SOURCES: usize = 1 << 16;

/// Samples of a packet and their place: a block of one source at one value of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Number of the source: antenna, polarization and range of channels, whatever the format tells apart.
    pub source: usize,
    /// Counter of the block as sent, before it is continued over its wraps.
    pub counter: u64,
    /// Offset of the payload in the block, in bytes.
    pub offset: usize,
    /// Samples.
    pub payload: &'a [u8],
}

/// Reason for rejecting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its length, or its place in the block, is not that of the format.
    WrongLength,
    /// Its source or channels are not among those declared.
    WrongSource,
    /// Its header violates the format, or says that the samples are invalid.
    Invalid,
    /// It is a part of a heap whose items have not arrived.
    Unplaced,
}

/// Rejected packet: the reason, and the source where the header could be read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason.
    pub reason: Reason,
    /// The source, if known.
    pub source: Option<usize>,
}

impl Rejection {
    /// Makes a rejection of a packet of unknown source.
    pub fn of(reason: Reason) -> Self {
        Self { reason, source: None }
    }

    /// Makes a rejection of a packet of a known source.
    pub fn from_source(reason: Reason, source: usize) -> Self {
        Self { reason, source: Some(source) }
    }
}

/// Outcome of a packet: its samples; nothing for a packet without samples, such as a descriptor; or a rejection.
pub type Outcome<'a> = std::result::Result<Option<Part<'a>>, Rejection>;

/// Format of packets.
pub trait Format {
    /// Returns the sizes of the blocks that its packets fill.
    fn shape(&self) -> Shape;

    /// Returns the place of a packet's samples. It allocates nothing.
    ///
    /// # Errors
    /// The [`Rejection`] of a packet that is not of this format, length or source.
    fn part<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a>;
}

/// Sizes of the blocks that packets fill. A block holds the samples of one source at one value of the counter; it comes
/// in one packet or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of sources.
    pub sources: usize,
    /// Bytes per block.
    pub block_bytes: usize,
    /// Bytes by which presence is tracked: payloads begin and end at multiples of it, or at the end of the block.
    pub granule_bytes: usize,
    /// Difference of the counter between consecutive blocks of a source.
    pub step: u64,
    /// Values of the counter before it returns to 0; `None`: 2^64.
    pub period: Option<u64>,
    /// Byte that encodes zeros.
    pub zero_byte: u8,
}

impl Shape {
    /// Checks the sizes.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first impossible size.
    pub fn check(&self) -> Result<()> {
        if self.sources == 0 || self.sources > MOST_SOURCES {
            let rule = format!("there must be 1 to {MOST_SOURCES} sources");
            return Err(Error::parameter("sources", self.sources, rule));
        }
        if self.block_bytes == 0 || self.block_bytes > 1 << 30 {
            return Err(Error::parameter("block_bytes", self.block_bytes, "it must be 1 to 2^30"));
        }
        if self.granule_bytes == 0 || self.granule_bytes > self.block_bytes {
            let rule = format!("it must be 1 to the bytes of a block, {}", self.block_bytes);
            return Err(Error::parameter("granule_bytes", self.granule_bytes, rule));
        }
        let period = self.period.unwrap_or(1 << 63);
        if !(2..=1 << 63).contains(&period) {
            return Err(Error::parameter("period", period, "it must be 2 to 2^63"));
        }
        if self.step == 0 || self.step > period / 2 {
            let rule = format!("it must be 1 to half of the counter's period, {}", period / 2);
            return Err(Error::parameter("step", self.step, rule));
        }
        Ok(())
    }

    /// Returns the granules of a block.
    pub fn granules(&self) -> usize {
        self.block_bytes.div_ceil(self.granule_bytes)
    }

    /// Returns the counter after `units` more, which may wrap.
    pub(crate) fn advanced(&self, counter: u64, units: u64) -> u64 {
        match self.period {
            None => counter.wrapping_add(units),
            Some(period) => ((u128::from(counter) + u128::from(units)) % u128::from(period)) as u64,
        }
    }

    /// Returns the signed way from one value of the counter to another, over a wrap if that is shorter.
    pub(crate) fn distance(&self, from: u64, to: u64) -> i64 {
        match self.period {
            None => to.wrapping_sub(from) as i64,
            Some(period) => {
                let ahead = if to >= from { to - from } else { to + (period - from) };
                if ahead > period / 2 { -((period - ahead) as i64) } else { ahead as i64 }
            }
        }
    }
}

/// Values that one field of a header takes: `first`, `first + step` and so on, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// First value.
    pub first: u64,
    /// Difference between values.
    pub step: u64,
    /// Number of values.
    pub count: usize,
}

impl Values {
    /// Makes `count` consecutive values from `first` on.
    pub const fn from(first: u64, count: usize) -> Self {
        Self { first, step: 1, count }
    }

    /// Returns the position of a value among them.
    pub fn index(&self, value: u64) -> Option<usize> {
        let above = value.checked_sub(self.first)?;
        let index = above.checked_div(self.step).filter(|_| above.is_multiple_of(self.step))?;
        usize::try_from(index).ok().filter(|index| *index < self.count)
    }

    /// Multiplies the counts of several fields: the number of sources that they tell apart.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a step or a count of 0, or too many sources.
    pub fn sources(fields: impl Iterator<Item = Self>) -> Result<usize> {
        let mut sources = 1_usize;
        for values in fields {
            if values.step == 0 || values.count == 0 {
                let rule = "values need a step and a count of 1 or more";
                return Err(Error::parameter("values", values.count, rule));
            }
            sources = sources.saturating_mul(values.count);
        }
        if sources > MOST_SOURCES {
            let rule = format!("there must be at most {MOST_SOURCES} sources");
            return Err(Error::parameter("sources", sources, rule));
        }
        Ok(sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        sources: 1,
        block_bytes: 8,
        granule_bytes: 8,
        step: 16,
        period: Some(1 << 38),
        zero_byte: 0,
    };

    #[test]
    fn distances_take_the_shorter_way_around() {
        let top = (1 << 38) - 16;
        assert_eq!(SHAPE.distance(top, 0), 16);
        assert_eq!(SHAPE.distance(0, top), -16);
        assert_eq!(SHAPE.distance(5, 5), 0);
        assert_eq!(SHAPE.advanced(top, 48), 32);
        let full = Shape { period: None, ..SHAPE };
        assert_eq!(full.distance(u64::MAX, 1), 2);
        assert_eq!(full.advanced(u64::MAX, 2), 1);
        let odd = Shape { period: Some(25), ..SHAPE };
        assert_eq!((odd.distance(24, 3), odd.distance(3, 24), odd.advanced(24, 30)), (4, -4, 4));
    }

    #[test]
    fn values_outside_the_list_have_no_index() {
        let values = Values { first: 256, step: 64, count: 3 };
        let found: Vec<_> = [0, 256, 257, 320, 384, 448].map(|v| values.index(v)).into();
        assert_eq!(found, [None, Some(0), None, Some(1), Some(2), None]);
        assert!(Values::sources([values, Values::from(0, 4)].into_iter()).is_ok_and(|n| n == 12));
        assert!(Values::sources([Values { step: 0, ..values }].into_iter()).is_err());
        assert!(Values::sources([Values::from(0, usize::MAX), values].into_iter()).is_err());
    }

    #[test]
    fn impossible_sizes_are_named() {
        assert!(SHAPE.check().is_ok());
        for (shape, name) in [
            (Shape { sources: 0, ..SHAPE }, "sources"),
            (Shape { block_bytes: 0, ..SHAPE }, "block_bytes"),
            (Shape { granule_bytes: 9, ..SHAPE }, "granule_bytes"),
            (Shape { step: 0, ..SHAPE }, "step"),
            (Shape { period: Some(30), ..SHAPE }, "step"),
            (Shape { period: Some(1), ..SHAPE }, "period"),
        ] {
            let error = shape.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
