//! Gaps that are too long to be believed: one damaged time makes a day of them.

/// A gap of so many seconds is always filled.
const ALWAYS_S: f64 = 60.0;
/// And so is one of at most so many times the data before it.
const RATIO: f64 = 10.0;

/// Says what is wrong with a gap of `gap_s` seconds behind `data_s` seconds of data, `start_s` after the recording's
/// first sample; `None` for one that may be filled.
pub(super) fn fault(gap_s: f64, start_s: f64, data_s: f64, allowed: bool) -> Option<String> {
    let most = ALWAYS_S.max(RATIO * data_s);
    (!allowed && gap_s > most).then(|| {
        format!(
            "a gap of {gap_s:.6} s begins {start_s:.6} s after the recording's start, behind {data_s:.6} s of data; \
             above {most:.6} s that may be a damaged time: --allow-gaps fills it"
        )
    })
}
