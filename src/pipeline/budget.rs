//! Memory limit of a run, and the bytes it leaves for blocks.
//!
//! Invariant: results do not depend on the limit; only blocks do.

use crate::error::{Error, Result};

/// Returns the bytes that `limit` leaves for blocks after `held` fixed bytes; without a limit, `usize::MAX`.
///
/// # Errors
/// [`Error::Unavailable`], with the need and the limit, when the shortest blocks (`least` bytes) do not fit.
pub(super) fn remaining_bytes(
    limit: Option<u64>,
    what: &str,
    held: usize,
    least: usize,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(usize::MAX) };
    let need = held.saturating_add(least);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if need <= limit {
        return Ok(limit - held);
    }
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    Err(Error::Unavailable {
        what: format!("memory for {what}"),
        why: format!("{} MiB are needed at least, and `memory` allows {}", mib(need), limit >> 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_what_is_not_held() {
        assert_eq!(remaining_bytes(None, "all", usize::MAX, usize::MAX).unwrap(), usize::MAX);
        assert_eq!(remaining_bytes(Some(100), "all", 60, 40).unwrap(), 40);
        let text = remaining_bytes(Some(8 << 20), "a search", 8 << 20, 1).unwrap_err().to_string();
        assert!(text.contains("a search") && text.contains("9 MiB") && text.contains("allows 8"));
    }
}
