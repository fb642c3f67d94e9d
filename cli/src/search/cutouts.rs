//! Data around candidates, read from the recording again and worked on by several threads.
//!
//! Invariant: at most one cutout per thread, plus one that waits, exists at a time, in addition to the grids of the
//! current pass over the rows; all threads have ended when an error is returned.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use sidereal::backend::Backend;
use sidereal::clean::Removals;
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::pipeline::burst::{CleanedRows, RecleanedRows, SearchOptions};
use sidereal::pipeline::cutout::{Cutout, Options, Section, section, sections};
use sidereal::trace::{self, Work};
use sidereal::{Error, Result};

use super::files::Spooled;
use crate::interrupt;
use crate::selection::Recording;

/// Limit in bytes on the memory of all threads, unless one needs more.
const MOST_BYTES: usize = 1 << 30;

/// Memory of a picture: its pixels before and after they are averaged, its file, and its cutout.
const PICTURE_BYTES: usize = 32 << 20;

/// Rows of a search, for cutouts.
pub(super) struct Rows<'a> {
    pub(super) recording: &'a Recording,
    pub(super) backend: &'a Backend,
    pub(super) options: &'a SearchOptions,
    /// Header of the recording, from its first sample.
    pub(super) header: &'a FilterbankHeader,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(super) delay_s: f64,
    /// Whether a filter bank makes the rows from voltages.
    pub(super) is_voltages: bool,
    /// Whether rows were cleaned before the search.
    pub(super) is_cleaned: bool,
    /// Record of what the cleaning removed, if it suffices to clean rows again.
    pub(super) removals: Option<&'a Removals>,
    /// Channels masked throughout.
    pub(super) masked: Vec<bool>,
    /// Copy of the rows, if the recording cannot be read again.
    pub(super) spool: Option<PathBuf>,
}

/// Consumer of cutouts, which receives each with its index among the wanted ones.
pub(super) type Consumer<'a> = dyn Fn(usize, Cutout) -> Result<()> + Sync + 'a;

impl Rows<'_> {
    /// Cuts out the surroundings of each candidate, at times that count from the recording's first sample. `each`
    /// receives the cutouts in any order, on the threads of the backend's host, as many as memory allows.
    ///
    /// # Errors
    /// The first error of the recording or of `each`; [`Error::stopped`] after a request to stop.
    pub(super) fn cutouts(&self, wanted: &[Options], each: &Consumer<'_>) -> Result<()> {
        let threads = self.threads(wanted)?;
        let depends = self.is_cleaned && self.removals.is_none();
        if depends || self.is_voltages {
            return self.in_passes(wanted, threads, each);
        }
        let cut = |index: usize| {
            let span = trace::span(Work::Read, "candidate");
            let (mut rows, start_s) = self.searched(&mut || !interrupt::requested())?;
            let section = section(rows.as_mut(), &self.from(&wanted[index], start_s))?;
            drop((rows, span));
            each(index, section.cutout())
        };
        pool(threads, &cut, |hand| (0..wanted.len()).try_for_each(|index| hand.give(index)))
    }

    /// Returns the number of threads that work on cutouts.
    fn threads(&self, wanted: &[Options]) -> Result<usize> {
        let mut largest = PICTURE_BYTES;
        for options in wanted {
            largest = largest.max(Section::bytes(self.header, options)? + PICTURE_BYTES);
        }
        let limit = self.options.memory.map_or(usize::MAX, |limit| limit as usize);
        let most = (MOST_BYTES.min(limit) / largest).max(1);
        Ok(self.backend.host().threads().count().min(most).min(wanted.len()))
    }

    /// Reads the rows in turn, once for as many candidates as memory allows: without a record the mitigation of a row
    /// depends on all earlier rows, and the start of a filter bank takes longer than the rows of a candidate.
    fn in_passes(&self, wanted: &[Options], threads: usize, each: &Consumer<'_>) -> Result<()> {
        let mut left: Vec<usize> = (0..wanted.len()).collect();
        while !left.is_empty() {
            let work = |binned: Binned| each(left[binned.place], binned.section.cutout());
            let again = pool(threads, &work, |hand| {
                let mut goes_on = || hand.goes_on();
                let (mut rows, start_s) = self.searched(&mut goes_on)?;
                let part = left.iter().map(|place| self.from(&wanted[*place], start_s));
                let part: Vec<Options> = part.collect();
                sections(rows.as_mut(), &part, &mut goes_on, &mut |place, section| {
                    hand.give(Binned { place, section })
                })
            })?;
            left = again.into_iter().map(|place| left[place]).collect();
        }
        Ok(())
    }

    /// Opens the rows as they were searched, and returns the time of the first one.
    fn searched(
        &self,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Box<dyn FilterbankSource + '_>, f64)> {
        let rows = self.open()?;
        if !self.is_cleaned {
            return Ok((rows, self.delay_s));
        }
        let host = self.backend.on_host();
        if let Some(removals) = self.removals {
            let rows = RecleanedRows::new(rows, self.options, removals, &self.masked, &host)?;
            let start_s = self.delay_s + rows.start_s();
            return Ok((Box::new(rows), start_s));
        }
        let rows = CleanedRows::new(rows, self.options, &host, goes_on)?;
        let start_s = self.delay_s + rows.start_s();
        Ok((Box::new(rows), start_s))
    }

    /// Returns the options for a source whose first row is at `start_s`; cleaned rows have zero-DM applied already.
    fn from(&self, options: &Options, start_s: f64) -> Options {
        let (time_s, zero_dm) = (options.time_s - start_s, options.zero_dm && !self.is_cleaned);
        Options { time_s, zero_dm, ..options.clone() }
    }

    /// Opens the recording at its first row.
    fn open(&self) -> Result<Box<dyn FilterbankSource>> {
        if let Some(path) = &self.spool {
            return Ok(Box::new(Spooled::open(self.header, path)?));
        }
        Ok(self.recording.open(self.options.dm_constant, self.backend)?.source.into_rows())
    }
}

/// Section of a candidate at a place of a pass.
struct Binned {
    place: usize,
    section: Section,
}

/// Work of a [`pool`] on one item.
type Job<'a, T> = dyn Fn(T) -> Result<()> + Sync + 'a;

/// Passes items of `produce` to `work` on `threads` threads, in any order; with fewer than two threads, the work runs on
/// the calling thread. An error of either ends both.
///
/// # Errors
/// The first error of `work`, else that of `produce`; [`Error::stopped`] after a request to stop.
fn pool<T: Send, R>(
    threads: usize,
    work: &Job<'_, T>,
    produce: impl FnOnce(&Hand<'_, T>) -> Result<R>,
) -> Result<R> {
    let fault = Mutex::new(None);
    if threads < 2 {
        return produce(&Hand { to: To::Caller(work), fault: &fault });
    }
    // A rendezvous channel keeps at most one item waiting.
    let (sender, receiver) = sync_channel(0);
    let receiver = Arc::new(Mutex::new(receiver));
    let run = |receiver: Arc<Mutex<Receiver<T>>>| {
        while let Some(item) = next(&receiver) {
            if lock(&fault).is_some() {
                continue;
            }
            if let Err(error) = work(item) {
                lock(&fault).get_or_insert(error);
            }
        }
    };
    let produced = thread::scope(|scope| {
        let start = |number: usize| {
            let (run, receiver) = (&run, Arc::clone(&receiver));
            let name = thread::Builder::new().name(format!("picture-{number}"));
            name.spawn_scoped(scope, move || run(receiver)).is_ok()
        };
        let started = (1..=threads).take_while(|number| start(*number)).count();
        // The threads alone hold the receiver, so that sending fails once none is left.
        drop(receiver);
        let to = if started > 0 { To::Threads(sender) } else { To::Caller(work) };
        produce(&Hand { to, fault: &fault })
    });
    match fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => produced,
    }
}

/// Hand of the producer of a [`pool`].
struct Hand<'a, T> {
    to: To<'a, T>,
    fault: &'a Mutex<Option<Error>>,
}

/// Place of the work.
enum To<'a, T> {
    Caller(&'a Job<'a, T>),
    Threads(SyncSender<T>),
}

impl<T> Hand<'_, T> {
    /// Passes on an item when a thread is free.
    ///
    /// # Errors
    /// That of the work on this thread; [`Error::stopped`] if the work failed on another, or after a request to stop.
    fn give(&self, item: T) -> Result<()> {
        if !self.goes_on() {
            return Err(Error::stopped("the pictures"));
        }
        match &self.to {
            To::Caller(work) => work(item),
            To::Threads(sender) => sender.send(item).map_err(|_| Error::stopped("the pictures")),
        }
    }

    /// Returns whether nothing failed and nobody asked to stop.
    fn goes_on(&self) -> bool {
        !interrupt::requested() && lock(self.fault).is_none()
    }
}

fn next<T>(receiver: &Mutex<Receiver<T>>) -> Option<T> {
    lock(receiver).recv().ok()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Item that counts how many exist.
    struct Counted<'a>(&'a AtomicUsize, usize);

    impl<'a> Counted<'a> {
        fn new(alive: &'a AtomicUsize, most: &AtomicUsize, number: usize) -> Self {
            most.fetch_max(alive.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Self(alive, number)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_item_is_worked_on_once_and_few_exist_at_a_time() {
        for threads in [1, 2, 5] {
            let (alive, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let seen = Mutex::new(Vec::new());
            let work = |item: Counted<'_>| {
                thread::sleep(Duration::from_millis(1));
                lock(&seen).push(item.1);
                Ok(())
            };
            let all = pool(threads, &work, |hand| {
                (0..40).try_for_each(|number| hand.give(Counted::new(&alive, &most, number)))
            });
            all.unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!(seen, (0..40).collect::<Vec<_>>());
            assert_eq!(alive.into_inner(), 0);
            assert!(most.into_inner() <= threads + 1, "{threads}");
        }
    }

    #[test]
    fn a_panic_of_every_thread_reaches_the_caller() {
        for threads in [1, 2] {
            let work = |number: usize| -> Result<()> { panic!("item {number}") };
            let all = || pool(threads, &work, |hand| (0..9).try_for_each(|i| hand.give(i)));
            assert!(std::panic::catch_unwind(all).is_err());
        }
    }

    #[test]
    fn the_first_error_ends_the_production_and_is_the_only_one() {
        let failed = |what: &str| Error::io(what, std::io::ErrorKind::StorageFull.into());
        for threads in [1, 3] {
            let worked = AtomicUsize::new(0);
            let work = |number: usize| {
                worked.fetch_add(1, Ordering::SeqCst);
                if number == 4 { Err(failed("fourth.png")) } else { Ok(()) }
            };
            let mut given = 0;
            let result = pool(threads, &work, |hand| {
                (0..10_000).try_for_each(|number| {
                    given = number;
                    hand.give(number)
                })
            });
            assert!(result.unwrap_err().to_string().contains("fourth.png"));
            assert!(given < 9_999 && worked.into_inner() <= given + 1);
            // An error of the production is returned after the work on earlier items.
            let worked = AtomicUsize::new(0);
            let work = |_: usize| {
                worked.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            let result: Result<()> = pool(threads, &work, |hand| {
                (0..7).try_for_each(|number| hand.give(number))?;
                Err(failed("rows.fil"))
            });
            assert!(result.unwrap_err().to_string().contains("rows.fil"));
            assert_eq!(worked.into_inner(), 7);
        }
    }
}
