//! Window of a dispersed burst, which follows its delay from channel to channel.

use std::ops::Range;

use super::VoltageHeader;
use crate::units::dispersion_delay_s;

/// Keys of the four limits and of the dispersion constant in headers.
const KEYS: [&str; 5] = ["SWP_DMLO", "SWP_DMHI", "SWP_T0", "SWP_T1", "SWP_K"];

/// Window of a dispersed burst: channels hold samples within it and zeros elsewhere.
///
/// Times count from the first sample, at the band's upper edge. A channel's window begins when the lowest dispersion measure
/// would arrive at its upper edge, and ends when the highest one would arrive at its lower edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// Lowest and highest dispersion measure in pc cm^-3.
    pub dms: [f64; 2],
    /// First and last time in seconds.
    pub times_s: [f64; 2],
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
}

impl Sweep {
    /// Returns the window of each recorded channel in seconds; `None` if the header states no frequencies.
    pub fn windows_s(&self, header: &VoltageHeader) -> Option<Vec<Range<f64>>> {
        let half_hz = 0.5 * header.channel_width_hz();
        let centres = &header.centres_hz;
        let lowest_hz = centres.iter().copied().fold(f64::INFINITY, f64::min) - half_hz;
        let highest_hz = centres.iter().copied().fold(0.0, f64::max) + half_hz;
        if !(lowest_hz > 0.0 && highest_hz.is_finite()) {
            return None;
        }
        let delay_s = |dm, hz| dispersion_delay_s(dm, hz, highest_hz, self.dm_constant);
        let window = |centre: &f64| {
            let first_s = self.times_s[0] + delay_s(self.dms[0], centre + half_hz);
            first_s..self.times_s[1] + delay_s(self.dms[1], centre - half_hz)
        };
        Some(centres.iter().map(window).collect())
    }

    /// Returns the samples that lie in the window of each recorded channel as a whole, at most `times`; `None` as for
    /// [`Sweep::windows_s`].
    pub fn windows(&self, header: &VoltageHeader, times: u64) -> Option<Vec<Range<u64>>> {
        let rate = 1.0 / header.tsamp_s;
        let samples = |window: Range<f64>| {
            let first = (window.start * rate).ceil().max(0.0) as u64;
            let end = ((window.end * rate).floor().max(0.0) as u64).min(times);
            first.min(end)..end
        };
        Some(self.windows_s(header)?.into_iter().map(samples).collect())
    }

    /// Returns the sweep with times counted from `start_s` seconds later.
    #[must_use]
    pub fn after(&self, start_s: f64) -> Self {
        Self { times_s: self.times_s.map(|time_s| time_s - start_s), ..*self }
    }

    /// Returns the smallest sweep that contains both.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self {
            dms: [self.dms[0].min(other.dms[0]), self.dms[1].max(other.dms[1])],
            times_s: [self.times_s[0].min(other.times_s[0]), self.times_s[1].max(other.times_s[1])],
            dm_constant: self.dm_constant,
        }
    }

    /// Parses the fields of a header, whose texts `text` returns by their keys; `None` if one is missing or invalid.
    pub(super) fn parse<'a>(text: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let number = |key: &str| text(key)?.trim().parse::<f64>().ok();
        let [low, high, first, last, constant] = KEYS.map(number);
        let (dms, times_s, dm_constant) = ([low?, high?], [first?, last?], constant?);
        let is_finite = dms.iter().chain(&times_s).all(|value| value.abs() < 1e9);
        let is_valid = is_finite && 0.0 <= dms[0] && dms[0] <= dms[1] && times_s[0] <= times_s[1];
        (is_valid && (1.0..1e5).contains(&dm_constant)).then_some(Self {
            dms,
            times_s,
            dm_constant,
        })
    }

    /// Formats the fields for a header.
    pub(super) fn fields(&self) -> [(&'static str, String); 5] {
        let [low, high, first, last, constant] = KEYS;
        let text = |value: f64| format!("{value:?}");
        [
            (low, text(self.dms[0])),
            (high, text(self.dms[1])),
            (first, text(self.times_s[0])),
            (last, text(self.times_s[1])),
            (constant, text(self.dm_constant)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DM_CONSTANT;
    use crate::voltage::VoltageEncoding;

    fn sweep() -> Sweep {
        Sweep { dms: [290.0, 310.0], times_s: [0.5, 1.5], dm_constant: DM_CONSTANT }
    }

    #[test]
    fn windows_follow_the_delay() {
        let centres: Vec<f64> = (0..4).map(|channel| 1.2e9 + 1e6 * f64::from(channel)).collect();
        let header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
        let windows = sweep().windows_s(&header).expect("frequencies are known");
        // The uppermost channel begins with the window; its lower edge is later by the delay within it.
        assert!((windows[3].start - 0.5).abs() < 1e-12);
        let delay_s = dispersion_delay_s(310.0, 1.1995e9, 1.2035e9, DM_CONSTANT);
        assert!((windows[0].end - 1.5 - delay_s).abs() < 1e-12);
        assert!(windows.windows(2).all(|pair| pair[0].start > pair[1].start));
        let samples = sweep().windows(&header, 1_000_000).expect("frequencies are known");
        assert_eq!(samples[3].start, 500_000);
        assert!(samples.iter().all(|window| window.end == 1_000_000));
        let unknown = VoltageHeader { centres_hz: vec![0.0], ..header };
        assert!(sweep().windows(&unknown, 10).is_none());
    }

    #[test]
    fn fields_give_the_same_sweep() {
        let pairs = sweep().fields();
        let text = |key: &str| {
            let pair = pairs.iter().find(|pair| pair.0 == key)?;
            Some(pair.1.as_str())
        };
        assert_eq!(Sweep::parse(text), Some(sweep()));
        let joined = sweep().joined(&sweep().after(0.25));
        assert_eq!((joined.times_s, joined.dms), ([0.25, 1.5], [290.0, 310.0]));
    }
}
