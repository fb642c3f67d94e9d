//! Time of a counter: the moment at which it was 0, its rate, and the wraps since then.
//!
//! Times count leap seconds: the table of [`crate::geometry`]. A counter that wraps says the time up to a whole number of
//! periods, which follows from the system's clock as the nearest one.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::geometry::{elapsed_s, plus_elapsed_s};
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Modified Julian day of 1970 January 1.
const UNIX_DAY: i64 = 40_587;

/// Clock of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    sync: Epoch,
    counter_hz: f64,
    period: Option<u64>,
}

impl Clock {
    /// Makes the clock of a counter that was 0 at `sync` (UTC), advances by `counter_hz` per second and returns to 0 after `period`
    /// values, or never.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a time outside the years 1972 to 2099, or a rate that is not 1e-3 to 1e12 Hz.
    pub fn new(sync: Epoch, counter_hz: f64, period: Option<u64>) -> Result<Self> {
        if !(1e-3..=1e12).contains(&counter_hz) {
            return Err(Error::parameter("counter_hz", counter_hz, "it must be 1e-3 to 1e12 Hz"));
        }
        plus_elapsed_s(&sync, 0.0)?;
        Ok(Self { sync, counter_hz, period })
    }

    /// Returns the time (UTC) of a counter that has wrapped `wraps` times.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a time after the year 2099.
    pub fn utc(&self, counter: u64, wraps: u64) -> Result<Epoch> {
        let periods = u128::from(wraps) * u128::from(self.period.unwrap_or(0));
        let count = u128::from(counter) + periods;
        // Whole seconds of an integer rate are exact, however far the counter is.
        let (whole, rest_s) = if self.counter_hz.fract() == 0.0 {
            let rate = self.counter_hz as u128;
            (count / rate, (count % rate) as f64 / self.counter_hz)
        } else {
            let seconds = count as f64 / self.counter_hz;
            (seconds as u128, seconds.fract())
        };
        let sync = plus_elapsed_s(&self.sync, whole as f64)?;
        plus_elapsed_s(&sync, rest_s)
    }

    /// Returns the counter at a time (UTC), to the nearest value.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a time before the counter was first 0, or outside the years 1972 to 2099.
    pub fn counter(&self, time: &Epoch) -> Result<u64> {
        let whole = |epoch: &Epoch| Epoch { day: epoch.day, seconds: epoch.seconds.floor() };
        let seconds = elapsed_s(&whole(&self.sync), &whole(time))?;
        let rest_s = time.seconds.fract() - self.sync.seconds.fract();
        let rest = (rest_s * self.counter_hz).round();
        // Whole seconds of an integer rate are exact, however far the time is.
        let count = if self.counter_hz.fract() == 0.0 {
            seconds as i128 * self.counter_hz as i128 + rest as i128
        } else {
            ((seconds + rest_s) * self.counter_hz).round() as i128
        };
        let Ok(count) = u128::try_from(count) else {
            let rule = format!("the counter was first 0 at {}", self.sync.mjd());
            return Err(Error::parameter("start (MJD)", time.mjd(), rule));
        };
        Ok((count % u128::from(self.period.unwrap_or(u64::MAX))) as u64)
    }

    /// Returns how often a counter has wrapped: its time is then the nearest to `now`, and not before the counter was first 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a time outside the years 1972 to 2099.
    pub fn wraps(&self, counter: u64, now: &Epoch) -> Result<u64> {
        let Some(period) = self.period else { return Ok(0) };
        let since_s = elapsed_s(&self.sync, now)?;
        let periods = (since_s * self.counter_hz - counter as f64) / period as f64;
        Ok(periods.round().clamp(0.0, 1e18) as u64)
    }

    /// Returns by how much the time of a counter that has just arrived is ahead of the system's clock, in seconds.
    ///
    /// # Errors
    /// As [`Clock::wraps`].
    pub fn ahead_s(&self, counter: u64, now: &Epoch) -> Result<f64> {
        elapsed_s(now, &self.utc(counter, self.wraps(counter, now)?)?)
    }
}

/// Returns the time of the system's clock.
pub fn now() -> Epoch {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = since.as_secs() / SECONDS_PER_DAY as u64;
    let seconds = (since.as_secs() % SECONDS_PER_DAY as u64) as f64;
    Epoch::new(UNIX_DAY + days as i64, seconds + f64::from(since.subsec_nanos()) * 1e-9)
}

/// Returns the time of seconds since 1970 (Unix), which do not count leap seconds.
pub fn unix(seconds: f64) -> Epoch {
    Epoch::new(UNIX_DAY, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_times() {
        let sync = Epoch::new(60_000, 0.25);
        let clock = Clock::new(sync, 1_712_000_000.0, Some(1 << 48)).unwrap();
        // Two years of samples, to the nanosecond.
        let second = 730 * 86_400_u128;
        let count = second * 1_712_000_000 + 428_000_000;
        let (wraps, counter) = ((count >> 48) as u64, (count & ((1 << 48) - 1)) as u64);
        let utc = clock.utc(counter, wraps).unwrap();
        assert_eq!((utc.day, utc.seconds), (60_730, 0.5));
        let near = Epoch::new(60_730, 3.0);
        assert_eq!(clock.wraps(counter, &near).unwrap(), wraps);
        assert!((clock.ahead_s(counter, &near).unwrap() + 2.5).abs() < 1e-6);
        assert_eq!(clock.counter(&utc).unwrap(), counter);
        assert!(clock.counter(&Epoch::new(60_000, 0.0)).is_err(), "before the synchronization");
        // Before the synchronization the counter has not wrapped.
        assert_eq!(clock.wraps(counter, &Epoch::new(59_000, 0.0)).unwrap(), 0);
        // A counter that is about to wrap, and one that has just done so.
        let before = clock.utc((1 << 48) - 1712, 7).unwrap();
        assert_eq!(clock.wraps((1 << 48) - 1712, &before.plus_s(0.5)).unwrap(), 7);
        assert_eq!(clock.wraps(5, &before).unwrap(), 8);
        let rate = 196e6 / 8192.0;
        let odd = Clock::new(sync, rate, None).unwrap();
        assert_eq!(odd.counter(&odd.utc(23_925_781_250, 0).unwrap()).unwrap(), 23_925_781_250);
        assert!((odd.utc(23_925_781_250, 0).unwrap().seconds - 49_600.25).abs() < 1e-7);
    }

    #[test]
    fn leap_seconds_count_as_elapsed_time() {
        // 2016 December 31, 12 h, ten hertz.
        let clock = Clock::new(Epoch::new(57_753, 43_200.0), 10.0, None).unwrap();
        let utc = clock.utc(432_000 + 20, 0).unwrap();
        assert_eq!(utc, Epoch { day: 57_754, seconds: 1.0 });
        assert_eq!(clock.utc(432_005, 0).unwrap(), Epoch { day: 57_753, seconds: 86_400.5 });
        assert_eq!(clock.ahead_s(432_020, &Epoch::new(57_754, 0.0)).unwrap(), 1.0);
    }

    #[test]
    fn impossible_clocks_are_refused() {
        let sync = Epoch::new(60_000, 0.0);
        for (sync, rate, name) in [
            (sync, 0.0, "counter_hz"),
            (sync, f64::NAN, "counter_hz"),
            (Epoch::new(0, 0.0), 1.0, "time (MJD)"),
        ] {
            let error = Clock::new(sync, rate, None).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        // A damaged counter has no date, but no panic either.
        assert!(Clock::new(sync, 1.0, None).unwrap().utc(u64::MAX, 0).is_err());
    }

    #[test]
    fn unix_seconds_are_those_of_their_day() {
        assert_eq!(unix(1_700_000_000.5), Epoch::new(60_262, 80_000.5));
        assert!((60_000..88_000).contains(&now().day));
    }
}
