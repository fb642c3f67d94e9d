//! Session of a program that was built without MPI: there is none.

use sidereal::pipeline::correlator::Ranks;
use sidereal::{Error, Result};

use super::End;
use super::place::{OPTION, Place};
use crate::interrupt::Exit;

/// This process as one of several, which needs MPI.
pub(crate) enum Session {}

impl Session {
    /// Fails, because the processes cannot exchange data.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(crate) fn new(place: Place) -> Result<Self> {
        let rule = "this program was built without MPI, and each process would write the same output: build it with \
                    `--features mpi`, or run it without mpirun";
        Err(Error::parameter(OPTION, place.ranks, rule))
    }

    pub(super) fn rank(&self) -> usize {
        match *self {}
    }

    pub(super) fn count(&self) -> usize {
        match *self {}
    }

    pub(super) fn is_silent(&self) -> bool {
        match *self {}
    }

    pub(super) fn agree<T>(&mut self, _: Result<T>) -> Result<T> {
        match *self {}
    }

    pub(super) fn share(&mut self, _: Vec<u8>) -> Result<Vec<u8>> {
        match *self {}
    }

    pub(super) fn gather(&mut self, _: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        match *self {}
    }

    pub(super) fn until_all_end<T>(
        &mut self,
        _: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> (T, End),
    ) -> T {
        match *self {}
    }

    pub(crate) fn ranks(&mut self) -> Result<Ranks> {
        match *self {}
    }

    pub(super) fn is_awaited(&self, _: bool) -> bool {
        match *self {}
    }

    pub(crate) fn leave(self) {
        match self {}
    }

    pub(crate) fn abort(&self, _: Exit) -> ! {
        match *self {}
    }
}
