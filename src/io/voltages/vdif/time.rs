//! VDIF time: seconds since the start of a half year, leap seconds included.
//!
//! Invariant: seconds of the index are those that passed since 2000-01-01 UTC, leap seconds included.

use crate::units::Epoch;

/// 2000-01-01.
const FIRST_MJD: i64 = 51_544;
/// Days whose first second followed a leap second.
///
/// # Source
/// IERS Bulletin C: the end of 2005, 2008, June 2012, June 2015, 2016.
const LEAP_MJD: [i64; 5] = [53_736, 54_832, 56_109, 57_204, 57_754];

/// Seconds in a day.
const DAY_S: i64 = 86_400;

/// Returns the seconds from 2000 to a number of half years plus seconds later.
pub(super) fn seconds_since_2000(half_years: u32, seconds: u32) -> u64 {
    let years = i64::from(half_years / 2);
    let is_leap_year = years % 4 == 0;
    let july = if half_years % 2 == 1 { 181 + i64::from(is_leap_year) } else { 0 };
    let days = 365 * years + (years + 3) / 4 + july;
    let leaps = LEAP_MJD.iter().filter(|day| **day <= FIRST_MJD + days).count() as i64;
    (days * DAY_S + leaps + i64::from(seconds)) as u64
}

/// Converts to UTC; a leap second maps to the following second.
pub(super) fn epoch(second: u64) -> Epoch {
    let second = second as i64;
    let is_past = |(before, day): &(i64, &i64)| second > (**day - FIRST_MJD) * DAY_S + before;
    let leaps = (0..).zip(&LEAP_MJD).take_while(is_past).count() as i64;
    let second = second - leaps;
    Epoch { day: FIRST_MJD + second.div_euclid(DAY_S), seconds: second.rem_euclid(DAY_S) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(half_years: u32, seconds: u32) -> (i64, f64) {
        let epoch = epoch(seconds_since_2000(half_years, seconds));
        (epoch.day, epoch.seconds)
    }

    #[test]
    fn half_years_begin_where_they_should() {
        assert_eq!(moment(0, 0), (51_544, 0.0));
        assert_eq!(moment(1, 0), (51_726, 0.0), "1 July 2000");
        assert_eq!(moment(2, 0), (51_910, 0.0), "1 January 2001");
        assert_eq!(moment(28, 14_363_767), (56_824, 21_367.0), "16 June 2014, 05:56:07");
        assert_eq!(moment(63, 0), (63_048, 0.0), "1 July 2031");
    }

    #[test]
    fn leap_seconds_count() {
        // Reference epoch 2000, recording of 2016: four leap seconds in between.
        assert_eq!(moment(0, 514_629_935), (57_500, 31_531.0));
        let before = seconds_since_2000(33, 15_897_599);
        assert_eq!(epoch(before), Epoch { day: 57_753, seconds: 86_399.0 });
        assert_eq!(epoch(before + 1), Epoch { day: 57_754, seconds: 0.0 }, "the leap second");
        assert_eq!(epoch(before + 2), Epoch { day: 57_754, seconds: 0.0 });
        assert_eq!(before + 2, seconds_since_2000(34, 0));
    }
}
