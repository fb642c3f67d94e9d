//! State of the system's clock: whether NTP or PTP keeps it on time, and its errors, as the kernel knows them.
//!
//! A program such as chronyd, ntpd or phc2sys sets these values as it adjusts the clock. Without one the kernel lets the maximum
//! error grow to 16 s and then regards the clock as not synchronized. Linux does not say which program it was.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;

use crate::error::{Error, Result};

/// State of the system's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SystemClock {
    /// Whether the clock is synchronized.
    pub is_synchronized: bool,
    /// Largest error that is possible, in seconds.
    pub maximum_error_s: f64,
    /// Error as the program that adjusts the clock estimates it, in seconds.
    pub estimated_error_s: f64,
}

impl SystemClock {
    /// Asks the kernel.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system call is refused, as in some containers.
    pub fn now() -> Result<Self> {
        // SAFETY: it is plain data, for which zeros are valid; without modes the call changes nothing.
        let mut state: libc::timex = unsafe { zeroed() };
        // SAFETY: the pointer is that of the structure, which outlives the call.
        match unsafe { libc::adjtimex(&mut state) } {
            -1 => Err(Error::Unavailable {
                what: "the system call adjtimex".into(),
                why: io::Error::last_os_error().to_string(),
            }),
            code => Ok(Self::of(code, &state)),
        }
    }

    /// Reads the result of the system call.
    fn of(code: libc::c_int, state: &libc::timex) -> Self {
        let seconds = |microseconds: libc::c_long| microseconds as f64 / 1e6;
        Self {
            is_synchronized: code != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
            maximum_error_s: seconds(state.maxerror),
            estimated_error_s: seconds(state.esterror),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_is_not_synchronized() {
        // SAFETY: plain data, for which zeros are valid.
        let mut state: libc::timex = unsafe { zeroed() };
        (state.maxerror, state.esterror, state.status) = (1_500, 20, libc::STA_NANO);
        let good = SystemClock::of(libc::TIME_OK, &state);
        assert!(good.is_synchronized);
        assert_eq!((good.maximum_error_s, good.estimated_error_s), (1.5e-3, 2e-5));
        // A leap second is being inserted.
        assert!(SystemClock::of(libc::TIME_INS, &state).is_synchronized);
        assert!(!SystemClock::of(libc::TIME_ERROR, &state).is_synchronized);
        state.status |= libc::STA_UNSYNC;
        assert!(!SystemClock::of(libc::TIME_OK, &state).is_synchronized);
    }

    #[test]
    fn the_kernel_answers() {
        match SystemClock::now() {
            Ok(clock) => {
                assert!(clock.maximum_error_s >= 0.0 && clock.estimated_error_s >= 0.0);
            }
            Err(error) => assert!(error.to_string().contains("adjtimex"), "{error}"),
        }
    }
}
