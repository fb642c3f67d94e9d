//! Host memory of the detectors' chains, and the longest pieces within a limit.

use crate::error::Result;
use crate::pipeline::budget;

/// Shortest piece in samples.
const LEAST: usize = 16;

/// Memory need: a fixed part, and a part per sample of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Fixed bytes.
    pub held: usize,
    /// Bytes per sample.
    pub sample: usize,
}

impl Need {
    /// Returns the samples of the longest pieces for which all needs together stay within `limit`.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`], with the need, when not even the shortest pieces fit.
    pub fn piece(limit: Option<u64>, what: &str, all: impl Iterator<Item = Self>) -> Result<usize> {
        let Self { held, sample } = all.fold(Self::default(), |sum, one| Self {
            held: sum.held.saturating_add(one.held),
            sample: sum.sample.saturating_add(one.sample),
        });
        let remaining = budget::remaining_bytes(limit, what, held, sample.saturating_mul(LEAST))?;
        Ok(remaining / sample.max(1))
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
