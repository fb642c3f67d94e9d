//! Triggers: requests to keep the data around a burst, from the search itself or from other programs, with limits on what
//! they may ask for.

mod message;
mod rate;

use std::fmt;
use std::net::SocketAddr;

use crate::units::{Epoch, SECONDS_PER_DAY};

pub use message::{Dialect, MOST_BYTES, Malformed, Message, Stream, When, Width, parse};
pub use rate::RateLimit;

/// Longest name in bytes.
pub const MOST_NAME_BYTES: usize = 64;

/// Modified Julian day of 2000 January 1, before which no trigger can be.
const EARLIEST_DAY: i64 = 51_544;

/// Sender of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The search that runs in this program.
    Search,
    /// A datagram from this address.
    Udp(SocketAddr),
    /// A request over HTTP.
    Http,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search => f.write_str("search"),
            Self::Udp(address) => write!(f, "udp {address}"),
            Self::Http => f.write_str("http"),
        }
    }
}

/// Request to keep the data of a burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Name, which may be part of file names once [`Limits::check`] has accepted it.
    pub name: String,
    /// Sender.
    pub source: Origin,
    /// Arrival of the burst's start at the reference frequency, UTC.
    pub start: Epoch,
    /// Reference frequency in Hz; `None` is the highest frequency of the band.
    pub reference_hz: Option<f64>,
    /// Dispersion measure in pc cm^-3.
    pub dm: f64,
    /// Its error: the data from `dm - dm_error` to `dm + dm_error` are wanted.
    pub dm_error: f64,
    /// Length of the burst in seconds.
    pub width_s: f64,
    /// Signal-to-noise ratio, if the sender has one.
    pub snr: Option<f64>,
    /// Priority: the higher is served first.
    pub priority: u8,
    /// Whether it is a test or an injection.
    pub is_test: bool,
}

/// Limits on triggers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most seconds from now to the start of a trigger in the future.
    pub future_s: f64,
    /// Highest dispersion measure, its error included.
    pub highest_dm: f64,
    /// Longest width in seconds.
    pub longest_s: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { future_s: 10.0, highest_dm: 10_000.0, longest_s: 60.0 }
    }
}

impl Limits {
    /// Checks a trigger that arrives at `now`.
    ///
    /// # Errors
    /// The first limit that it violates.
    pub fn check(&self, trigger: &Trigger, now: &Epoch) -> Result<(), Refusal> {
        let Trigger { start, reference_hz, dm, dm_error, width_s, snr, .. } = trigger;
        if !is_name(&trigger.name) {
            return Err(Refusal::Name);
        }
        let numbers = [
            ("time", start.seconds),
            ("reference frequency", reference_hz.unwrap_or(1.0)),
            ("DM", *dm),
            ("error of the DM", *dm_error),
            ("width", *width_s),
            ("S/N", snr.unwrap_or(0.0)),
        ];
        if let Some((what, _)) = numbers.iter().find(|(_, number)| !number.is_finite()) {
            return Err(Refusal::NotFinite(what));
        }
        if start.day < EARLIEST_DAY {
            return Err(Refusal::Early { mjd: start.mjd() });
        }
        let ahead_s = start.seconds_since(now);
        if ahead_s > self.future_s {
            return Err(Refusal::Future { ahead_s, most_s: self.future_s });
        }
        if reference_hz.is_some_and(|hz| !(1e6..=1e12).contains(&hz)) {
            return Err(Refusal::Reference);
        }
        let highest = self.highest_dm;
        if !(0.0..=highest).contains(dm) {
            return Err(Refusal::Dm { dm: *dm, highest });
        }
        if !(0.0..=highest - dm).contains(dm_error) {
            return Err(Refusal::DmError { dm_error: *dm_error, highest });
        }
        if !(0.0..=self.longest_s).contains(width_s) {
            return Err(Refusal::Width { width_s: *width_s, longest_s: self.longest_s });
        }
        Ok(())
    }
}

/// Returns whether a name can be part of a file's name on every system: letters, digits and `+-_.:`, no dot first.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_.:".contains(&byte);
    (1..=MOST_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
}

/// Reason for which a trigger is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// The name is empty, too long, or has other characters.
    Name,
    /// A number is infinite or none.
    NotFinite(&'static str),
    /// The time is before the year 2000.
    Early {
        /// Its modified Julian date.
        mjd: f64,
    },
    /// The time is in the future.
    Future {
        /// By how much, in seconds.
        ahead_s: f64,
        /// The limit.
        most_s: f64,
    },
    /// The reference frequency is not one of a radio telescope.
    Reference,
    /// The dispersion measure is negative or too high.
    Dm {
        /// Its value.
        dm: f64,
        /// The limit.
        highest: f64,
    },
    /// The error of the dispersion measure is negative or too large.
    DmError {
        /// Its value.
        dm_error: f64,
        /// The limit.
        highest: f64,
    },
    /// The width is negative or too long.
    Width {
        /// Its value in seconds.
        width_s: f64,
        /// The limit.
        longest_s: f64,
    },
    /// The time is a number of a sample, but the start of the observation is unknown.
    NoStart,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(
                f,
                "the name must have 1 to {MOST_NAME_BYTES} letters, digits or +-_.: and no dot first"
            ),
            Self::NotFinite(what) => write!(f, "the {what} is no finite number"),
            Self::Early { mjd } => write!(f, "the time is MJD {mjd:.3}, before the year 2000"),
            Self::Future { ahead_s, most_s } => {
                write!(f, "the time is {ahead_s:.3} s in the future, more than {most_s} s")
            }
            Self::Reference => f.write_str("the reference frequency must be 1 to 1e6 MHz"),
            Self::Dm { dm, highest } => write!(f, "the DM is {dm}, not 0 to {highest}"),
            Self::DmError { dm_error, highest } => {
                write!(f, "the error of the DM is {dm_error}, not 0 to {highest}")
            }
            Self::Width { width_s, longest_s } => {
                write!(f, "the width is {width_s} s, not 0 to {longest_s}")
            }
            Self::NoStart => f.write_str(
                "the time is the number of a sample, but no observation with a known start is there",
            ),
        }
    }
}

/// Converts seconds since 1970, in whole seconds and nanoseconds, to UTC.
fn unix(seconds: i64, nanoseconds: i64) -> Epoch {
    let day = SECONDS_PER_DAY as i64;
    let rest = seconds.rem_euclid(day) as f64 + nanoseconds as f64 * 1e-9;
    Epoch::new(seconds.div_euclid(day).saturating_add(40_587), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Trigger);

    fn trigger() -> Trigger {
        Trigger {
            name: "241128aaaa".into(),
            source: Origin::Search,
            start: Epoch::new(60_000, 100.0),
            reference_hz: None,
            dm: 500.0,
            dm_error: 1.0,
            width_s: 0.01,
            snr: Some(12.0),
            priority: 0,
            is_test: false,
        }
    }

    #[test]
    fn absurd_triggers_are_refused_with_the_reason() {
        let now = Epoch::new(60_000, 105.0);
        let check = |change: Change| {
            let mut changed = trigger();
            change(&mut changed);
            Limits::default().check(&changed, &now)
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|t| t.start = Epoch::new(60_000, 114.0)), Ok(()));
        assert_eq!(check(|t| t.reference_hz = Some(400e6)), Ok(()));
        let cases: [(Change, &str); 15] = [
            (|t| t.start = unix(0, 0), "MJD 40587.000, before the year 2000"),
            (|t| t.start = Epoch::new(60_000, 116.0), "11.000 s in the future, more than 10 s"),
            (|t| t.start = Epoch { day: 60_000, seconds: f64::NAN }, "time is no finite number"),
            (|t| t.dm = 1e9, "the DM is 1000000000, not 0 to 10000"),
            (|t| t.dm = -1.0, "the DM is -1, not"),
            (|t| t.dm = f64::NAN, "the DM is no finite number"),
            (|t| t.dm_error = f64::INFINITY, "error of the DM is no finite number"),
            (|t| t.dm_error = -0.1, "the error of the DM is -0.1"),
            (|t| t.width_s = 61.0, "the width is 61 s, not 0 to 60"),
            (|t| t.snr = Some(f64::NAN), "S/N is no finite number"),
            (|t| t.reference_hz = Some(1.0), "reference frequency must be"),
            (|t| t.name = String::new(), "the name must have"),
            (|t| t.name = "../../etc/passwd".into(), "the name must have"),
            (|t| t.name = ".hidden".into(), "the name must have"),
            (|t| t.name = "a".repeat(65), "the name must have 1 to 64"),
        ];
        for (change, expected) in cases {
            let why = check(change).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }
}
