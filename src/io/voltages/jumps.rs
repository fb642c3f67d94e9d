//! Limit on the length of filled gaps: a single damaged time can make a gap of a day.

/// Gaps up to this many seconds are always filled.
const ALWAYS_S: f64 = 60.0;
/// Gaps up to this multiple of the data before them are filled.
const RATIO: f64 = 10.0;

/// Describes why a gap of `gap_s` seconds after `data_s` seconds of data, `start_s` after the recording's first
/// sample, is too long; `None` if it may be filled.
pub(super) fn fault(gap_s: f64, start_s: f64, data_s: f64, allowed: bool) -> Option<String> {
    let most = ALWAYS_S.max(RATIO * data_s);
    (!allowed && gap_s > most).then(|| {
        format!(
            "a gap of {gap_s:.6} s begins {start_s:.6} s after the recording's start, behind {data_s:.6} s of data; \
             above {most:.6} s that may be a damaged time: --allow-gaps fills it"
        )
    })
}
