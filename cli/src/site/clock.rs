//! Time of a site: the table `[input.time]`.

use sidereal::Result;
use sidereal::geometry::{LEAP_SECONDS_END_MJD, utc_of_tai};
use sidereal::io::voltages::dada::{format_start, parse_utc};
use sidereal::live::clock::{Clock, now, unix};
use sidereal::units::Epoch;

use super::{Moment, Section, Word};

/// Difference between packets and the system's clock that is reported, in seconds, unless the file has another.
const ALARM_S: f64 = 1.0;

/// Statements of a file about time.
pub(super) struct Times {
    sync: Option<Epoch>,
    counter_hz: Option<f64>,
    /// Bits of the counter that are used.
    pub(super) counter_bits: Option<u32>,
    pub(super) alarm_s: f64,
}

impl Times {
    /// Reads `[input.time]`; without it the time of packets is unknown.
    pub(super) fn read(input: &Section<'_>) -> Result<Self> {
        let unknown = Self { sync: None, counter_hz: None, counter_bits: None, alarm_s: ALARM_S };
        let Some(time) = input.section("time")? else { return Ok(unknown) };
        let scales = [Word::new("utc", false), Word::new("tai", true)];
        let is_tai = time.word("scale", &scales)?.unwrap_or(false);
        let expected = "the time at which the counter was 0 (ISO 8601 or Unix seconds)";
        let sync = match time.needed("sync", time.moment("sync")?, expected)? {
            Moment::Unix(seconds) => unix(seconds),
            Moment::Text(text) => parse_utc(&text).ok_or_else(|| {
                let why = format!("found {text:?}, expected YYYY-MM-DDTHH:MM:SS or Unix seconds");
                time.fault("sync", why)
            })?,
        };
        check_expiry(&time, &now())?;
        let sync = if is_tai { utc_of_tai(&sync).map_err(|e| time.locate(e))? } else { sync };
        let alarm_s = time.number("clock_alarm_s", "s")?.unwrap_or(ALARM_S);
        if alarm_s <= 0.0 {
            return Err(time.fault("clock_alarm_s", format!("found {alarm_s}, expected above 0")));
        }
        let counter_hz = time.number("counter_hz", "Hz")?;
        let counter_bits = time.count("counter_bits", 8..=64)?.map(|bits| bits as u32);
        time.finish()?;
        Ok(Self { sync: Some(sync), counter_hz, counter_bits, alarm_s })
    }

    /// Returns the sampling time of samples that advance the counter by `units`: from `tsamp_s`, or from the counter's rate; if the
    /// file has both they must agree.
    pub(super) fn tsamp_s(&self, input: &Section<'_>, units: f64) -> Result<f64> {
        let told = input.number("tsamp_s", "s")?;
        if let Some(bad) = told.filter(|tsamp_s| *tsamp_s <= 0.0) {
            return Err(input.fault("tsamp_s", format!("found {bad}, expected above 0 s")));
        }
        let derived = self.counter_hz.filter(|hz| *hz > 0.0).map(|hz| units / hz);
        match (told, derived) {
            (Some(told), Some(derived)) if (told / derived - 1.0).abs() > 1e-9 => {
                let why = format!(
                    "found {told} s, but the counter advances by {units} per sample, which is {derived} s at time.counter_hz"
                );
                Err(input.fault("tsamp_s", why))
            }
            (_, Some(derived)) => Ok(derived),
            (Some(told), None) => Ok(told),
            (None, None) => {
                Err(input.fault("tsamp_s", "it is missing, expected seconds, or time.counter_hz"))
            }
        }
    }

    /// Returns the clock of a counter that samples of `tsamp_s` advance by `units`.
    pub(super) fn clock(
        &self,
        input: &Section<'_>,
        tsamp_s: f64,
        units: f64,
        period: Option<u64>,
    ) -> Result<Option<Clock>> {
        let Some(sync) = self.sync else { return Ok(None) };
        let rate = self.counter_hz.unwrap_or(units / tsamp_s);
        let clock = Clock::new(sync, rate, period);
        clock.map(Some).map_err(|error| input.locate(error))
    }
}

/// Refuses a table of leap seconds that has expired, unless the file allows it.
fn check_expiry(time: &Section<'_>, now: &Epoch) -> Result<()> {
    let is_allowed = time.flag("allow_expired_leap_seconds")?;
    if is_allowed || now.day < LEAP_SECONDS_END_MJD {
        return Ok(());
    }
    let end = format_start(&Epoch::new(LEAP_SECONDS_END_MJD, 0.0)).0;
    let end = end.get(..10).unwrap_or_default();
    let why = format!(
        "the leap seconds of this program are known up to {end} only: use a newer version, or set this to true if \
         there was none since"
    );
    Err(time.fault("allow_expired_leap_seconds", why))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sidereal::Error;

    use super::*;

    #[test]
    fn an_expired_table_is_refused_unless_allowed() {
        for (text, day, is_good) in [
            ("", LEAP_SECONDS_END_MJD - 1, true),
            ("", LEAP_SECONDS_END_MJD, false),
            ("allow_expired_leap_seconds = true", LEAP_SECONDS_END_MJD, true),
        ] {
            let table: toml::Table = text.parse().unwrap();
            let time = Section::new(Path::new("site.toml"), "input.time".into(), &table);
            let checked = check_expiry(&time, &Epoch::new(day, 0.0));
            match checked {
                Ok(()) => assert!(is_good),
                Err(error @ Error::Format { .. }) => {
                    assert!(!is_good && error.to_string().contains("2027-06-28"), "{error}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
