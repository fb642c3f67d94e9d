//! Processes of one run, which mpirun starts, and how they begin and end.
//!
//! Rank 0 alone creates outputs and prints notes, progress and the document. An error is printed by the rank that met it.

mod place;
#[cfg(feature = "mpi")]
mod session;

use std::path::{Path, PathBuf};

#[cfg(not(feature = "mpi"))]
use sidereal::Error;
use sidereal::Result;

pub(crate) use place::Place;
#[cfg(feature = "mpi")]
pub(crate) use session::Session;

use crate::say;

/// Returns the path of a file that each process writes: other ranks than 0 append their number, as in `trace.json.rank1`.
pub(crate) fn own_file(path: &Path) -> PathBuf {
    let mut own = path.as_os_str().to_owned();
    match say::rank() {
        0 => {}
        rank => own.push(format!(".rank{rank}")),
    }
    own.into()
}

/// Joins the other processes of a run.
///
/// # Errors
/// [`Error::Parameter`] for several processes of a program that was built without MPI.
#[cfg(not(feature = "mpi"))]
pub(crate) fn join(place: Place) -> Result<Session> {
    let rule = "this program was built without MPI, and each process would write the same output: build it with \
                `--features mpi`, or run it without mpirun";
    Err(Error::parameter(place::OPTION, place.ranks, rule))
}

/// Joins the other processes of a run.
///
/// # Errors
/// As [`Session::new`].
#[cfg(feature = "mpi")]
pub(crate) fn join(place: Place) -> Result<Session> {
    Session::new(place)
}

/// Processes of a run; there are none without MPI.
#[cfg(not(feature = "mpi"))]
pub(crate) enum Session {}

#[cfg(not(feature = "mpi"))]
impl Session {
    /// Returns the ranks, for the correlator.
    pub(crate) fn ranks(&mut self) -> Result<sidereal::pipeline::correlator::Ranks> {
        match *self {}
    }

    /// Returns the cause of an early end.
    pub(crate) fn early_end(&self) -> sidereal::pipeline::correlator::EarlyEnd {
        match *self {}
    }

    /// Waits until all processes leave.
    pub(crate) fn leave(self) {
        match self {}
    }

    /// Ends all processes, of which some may wait for this one.
    pub(crate) fn abort(&self, _: crate::interrupt::Exit) -> ! {
        match *self {}
    }
}
