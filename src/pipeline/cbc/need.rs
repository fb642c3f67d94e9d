//! The memory that detectors' chains take on the host, and the longest pieces that a limit leaves.

use crate::error::Result;
use crate::pipeline::budget;

/// The shortest piece, in samples.
const LEAST: usize = 16;

/// The bytes that something takes whatever its pieces, and for each sample of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes that are held.
    pub held: usize,
    /// Bytes of a sample.
    pub sample: usize,
}

impl Need {
    /// Returns the samples of the longest pieces that a limit on all of these leaves; no limit leaves any.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when not even short pieces fit: with what is needed.
    pub fn piece(limit: Option<u64>, what: &str, all: impl Iterator<Item = Self>) -> Result<usize> {
        let Self { held, sample } = all.fold(Self::default(), |sum, one| Self {
            held: sum.held.saturating_add(one.held),
            sample: sum.sample.saturating_add(one.sample),
        });
        let room = budget::room(limit, what, held, sample.saturating_mul(LEAST))?;
        Ok(room / sample.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_what_a_limit_leaves() {
        let needs =
            || [Need { held: 1000, sample: 10 }, Need { held: 2000, sample: 30 }].into_iter();
        assert!(Need::piece(None, "all", needs()).unwrap() > 1 << 40);
        assert_eq!(Need::piece(Some(7000), "all", needs()).unwrap(), 100);
        assert_eq!(Need::piece(Some(3640), "all", needs()).unwrap(), LEAST);
        assert!(Need::piece(Some(3639), "all", needs()).is_err());
    }
}
