//! Processes of one run, which mpirun starts, and how they begin and end.
//!
//! Rank 0 alone creates outputs and prints notes, progress and the document. An error is printed by the rank that met it.

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
use crate::interrupt::Exit;
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

/// Joins the other processes of a run.
///
/// # Errors
/// As [`Session::new`].
pub(crate) fn join(place: Place) -> Result<Session> {
    Session::new(place)
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
/// As [`join`]; errors of `work` are reported, by one rank if [`Group::agree`] returned them.
pub(crate) fn divided(
    place: Place,
    common: &Common,
    work: impl FnOnce(&mut Group<'_>, &Common) -> Result<Exit>,
) -> Result<Exit> {
    let mut session = match join(place) {
        Err(_) if place.rank > 0 => return Ok(Exit::WrongUse),
        joined => joined?,
    };
    say::set_rank(place.rank);
    let no_progress = common.no_progress || place.rank > 0;
    let common = Common { place: Some(place), no_progress, ..common.clone() };
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut Group::of(&mut session), &common)));
    let exit = match done {
        // Other ranks may wait for this one.
        Err(_) => session.abort(errors::after_panic()),
        Ok(Err(error)) if session.is_silent() => Exit::after(&error),
        Ok(Err(error)) => errors::report(&error),
        Ok(Ok(exit)) => exit,
    };
    session.leave();
    Ok(exit)
}

/// Runs a verb whose library part divides the work: `first` as the only process or as rank 0, `assist`, which writes nothing, as any
/// other rank. Rank 0 alone prints notes and progress. Waits until all processes have ended.
///
/// # Errors
/// As [`join`]; errors of `first` without ranks. With ranks errors are reported here, those that all ranks have alike by rank 0.
pub(crate) fn run<E: Into<Exit>>(
    common: &Common,
    first: impl FnOnce(&Common, Option<Ranks>) -> Result<Exit>,
    assist: impl FnOnce(&Common, Ranks) -> Result<E>,
) -> Result<Exit> {
    let Some(place) = Place::of_environment() else { return first(common, None) };
    let common =
        Common { place: Some(place), quiet: common.quiet || place.rank > 0, ..common.clone() };
    let mut session = match join(place) {
        Err(_) if place.rank > 0 => return Ok(Exit::WrongUse),
        joined => joined?,
    };
    say::set_rank(place.rank);
    let own = session.ranks()?;
    let done = match place.rank {
        0 => first(&common, Some(own)),
        _ => assist(&common, own).map(E::into),
    };
    let early = session.early_end();
    let is_own = early.is_own() && early.rank() != Some(0);
    // Once a rank has left, mpirun may end the others, so errors come before that.
    let exit = match done {
        Err(error) if place.rank > 0 && !early.is_broken() && !is_own => Exit::after(&error),
        Err(error) => errors::report(&error),
        Ok(exit) => exit,
    };
    if early.is_broken() {
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

    /// Calls `work` with a function that returns whether another rank has ended early, until now, and that asks this process to stop if
    /// the other was; then tells the others of the end that `work` returns, and waits for theirs.
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
