//! Processes of one run, which mpirun starts, and how they begin and end.
//!
//! Rank 0 alone prints notes, progress and the document, and creates outputs, but for the folders of beams that other ranks search.
//! An error is printed by the rank that met it.

mod place;
#[cfg(feature = "mpi")]
mod session;
#[cfg(not(feature = "mpi"))]
mod without;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sidereal::Result;
use sidereal::pipeline::Ranks;

pub(crate) use place::{OPTION, Place};
#[cfg(feature = "mpi")]
pub(crate) use session::Session;
#[cfg(not(feature = "mpi"))]
pub(crate) use without::Session;

use crate::common::Common;
use crate::interrupt::{self, Exit};
use crate::{errors, say};

/// Returns the path of a file that each process writes: other ranks than 0 append their number, as in `trace.json.rank1`.
pub(crate) fn own_file(path: &Path) -> PathBuf {
    let mut own = path.as_os_str().to_owned();
    match say::rank() {
        0 => {}
        rank => own.push(format!(".rank{rank}")),
    }
    own.into()
}

/// End of a rank's share of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed,
    Stopped,
}

#[cfg(feature = "mpi")]
impl End {
    /// Returns the end that a notice states as a number.
    fn of(number: u8) -> Self {
        let all = [Self::Done, Self::Failed, Self::Stopped];
        all.into_iter().find(|end| *end as u8 == number).unwrap_or(Self::Failed)
    }
}

/// Calls `work` as one of the processes that mpirun started, and waits until all have ended. Rank 0 has the verbosity of the run;
/// others show no progress.
///
/// # Errors
/// As [`joined`].
pub(crate) fn divided(
    place: Place,
    common: &Common,
    work: impl FnOnce(&mut Group<'_>, &Common) -> Result<Exit>,
) -> Result<Exit> {
    let no_progress = common.no_progress || place.rank > 0;
    let common = Common { place: Some(place), no_progress, ..common.clone() };
    joined(place, |session| work(&mut Group::of(session), &common))
}

/// Runs a verb whose library part divides the work: `first` as the only process or as rank 0, `assist`, which writes nothing, as any
/// other rank. Rank 0 alone prints notes and progress. Waits until all processes have ended.
///
/// # Errors
/// As [`joined`]; errors of `first` without ranks.
pub(crate) fn run<E: Into<Exit>>(
    common: &Common,
    first: impl FnOnce(&Common, Option<Ranks>) -> Result<Exit>,
    assist: impl FnOnce(&Common, Ranks) -> Result<E>,
) -> Result<Exit> {
    let Some(place) = Place::of_environment() else { return first(common, None) };
    let common =
        Common { place: Some(place), quiet: common.quiet || place.rank > 0, ..common.clone() };
    joined(place, |session| {
        let own = session.ranks()?;
        match place.rank {
            0 => first(&common, Some(own)),
            _ => assist(&common, own).map(E::into),
        }
    })
}

/// Joins the other processes of a run, calls `work`, reports its error unless another rank does, and waits until all have ended. A
/// panic, or a connection that has failed, ends all processes for which others may wait.
///
/// # Errors
/// As [`Session::new`], at rank 0.
fn joined(place: Place, work: impl FnOnce(&mut Session) -> Result<Exit>) -> Result<Exit> {
    let mut session = match Session::new(place) {
        Err(_) if place.rank > 0 => return Ok(Exit::WrongUse),
        joined => joined?,
    };
    say::set_rank(place.rank);
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut session)));
    let is_awaited = session.is_awaited(done.is_err());
    // Once a rank has left, mpirun may end the others, so errors come before that.
    let exit = match done {
        Err(_) => errors::after_panic(),
        // After a stop, rank 0 may leave while others wait for it.
        Ok(Err(_)) if session.is_silent() && interrupt::requested() => Exit::Interrupted,
        Ok(Err(error)) if session.is_silent() => Exit::after(&error),
        Ok(Err(error)) => errors::report(&error),
        Ok(Ok(exit)) => exit,
    };
    if is_awaited {
        session.abort(exit);
    }
    session.leave();
    Ok(exit)
}

/// Processes that do parts of the same work: this one alone, or several ranks. All ranks make the same calls in the same order.
pub(crate) struct Group<'a>(Option<&'a mut Session>);

impl<'a> Group<'a> {
    /// Returns the group of a process that is alone.
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    fn of(session: &'a mut Session) -> Self {
        Self(Some(session))
    }

    /// Returns the number of this rank.
    pub(crate) fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |session| session.rank())
    }

    /// Returns the number of ranks.
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |session| session.count())
    }

    /// Returns this rank's value if all ranks have one. Of the ranks that have an error, the lowest prints it.
    ///
    /// # Errors
    /// The error of this rank; [`sidereal::Error::Unavailable`] that names the lowest rank with an error if this one has none.
    pub(crate) fn agree<T>(&mut self, own: Result<T>) -> Result<T> {
        match &mut self.0 {
            Some(session) => session.agree(own),
            None => own,
        }
    }

    /// Returns the bytes of rank 0 at all ranks; those of others are not used.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(crate) fn share(&mut self, own: Vec<u8>) -> Result<Vec<u8>> {
        match &mut self.0 {
            Some(session) => session.share(own),
            None => Ok(own),
        }
    }

    /// Returns the bytes of all ranks at rank 0, in ascending order; `None` at the others.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(crate) fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        match &mut self.0 {
            Some(session) => session.gather(own),
            None => Ok(Some(vec![own])),
        }
    }

    /// Calls `work`, sends the others the end that it returns, and waits for theirs. The function that `work` gets returns whether another
    /// rank has ended early so far; it asks this process to stop if the other was asked to.
    pub(crate) fn until_all_end<T>(
        &mut self,
        work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> (T, End),
    ) -> T {
        match &mut self.0 {
            Some(session) => session.until_all_end(work),
            None => work(&|| false).0,
        }
    }
}
