//! Persistent thread pool with a parallel-for over chunks of a slice; all stages use it for threading.
//!
//! Invariant: a call allocates nothing, each chunk is processed exactly once, and no worker accesses the caller's data
//! after the call returns.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that a thread copies at a time in [`Threads::copy`].
const COPY_BYTES: usize = 1 << 18;

/// Thread pool; clones share it. The calling thread participates as worker 0. Work on the pool must not start work on
/// the same pool, which would deadlock.
#[derive(Clone)]
pub struct Threads {
    pool: Arc<Pool>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count()).finish()
    }
}

struct Pool {
    shared: Arc<Shared>,
    /// Held during a call, so that calls of clones do not overlap.
    in_call: Mutex<()>,
    handles: Vec<JoinHandle<()>>,
}

struct Shared {
    work: Mutex<Work>,
    start: Condvar,
    done: Condvar,
    panicked: AtomicBool,
}

/// State of the current call, protected by the mutex.
#[derive(Default)]
struct Work {
    /// Number of calls so far; a change starts the workers.
    generation: u64,
    /// Workers that have started.
    started: usize,
    /// Workers that have taken the job and have not finished it.
    working: usize,
    /// Whether the workers must end.
    stop: bool,
    job: Option<Job>,
}

/// Borrowed `dyn Fn(worker)` with its lifetime erased for the pool's threads, which outlive it.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure is Sync, and `Threads::run` keeps it alive until no worker holds the pointer.
unsafe impl Send for Job {}

impl Threads {
    /// Creates a pool of `count` threads including the caller; 0 means one per core.
    pub fn new(count: usize) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = if count == 0 { cores() } else { count };
        let shared = Arc::new(Shared {
            work: Mutex::new(Work::default()),
            start: Condvar::new(),
            done: Condvar::new(),
            panicked: AtomicBool::new(false),
        });
        let handles = (1..count).filter_map(|worker| {
            let shared = Arc::clone(&shared);
            let name = format!("sidereal-{worker}");
            std::thread::Builder::new().name(name).spawn(move || shared.worker_loop(worker)).ok()
        });
        let handles: Vec<_> = handles.collect();
        // Wait until all threads have started: a starting thread allocates, and calls must not.
        let mut work = shared.lock();
        while work.started < handles.len() {
            work = shared.done.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        drop(work);
        Self { pool: Arc::new(Pool { shared, in_call: Mutex::new(()), handles }) }
    }

    /// Returns the number of threads, including the caller.
    pub fn count(&self) -> usize {
        self.pool.handles.len() + 1
    }

    /// Calls `work(&mut scratch[worker], index, chunk)` once for each chunk of `chunk` elements of `data`, in any
    /// order; the last chunk may be shorter. `scratch` must hold at least [`Threads::count`] elements.
    ///
    /// # Panics
    /// If `scratch` is too short, `chunk` is 0, or `work` panics.
    pub fn for_each_chunk<S, T, F>(&self, scratch: &mut [S], data: &mut [T], chunk: usize, work: F)
    where
        S: Send,
        T: Send,
        F: Fn(&mut S, usize, &mut [T]) + Sync,
    {
        assert!(scratch.len() >= self.count() && chunk > 0, "one scratch a thread");
        let length = data.len();
        let chunks = length.div_ceil(chunk);
        if self.count() == 1 || chunks < 2 {
            let only = &mut scratch[0];
            data.chunks_mut(chunk).enumerate().for_each(|(i, part)| work(only, i, part));
            return;
        }
        let next = AtomicUsize::new(0);
        let data = SharedPointer(data.as_mut_ptr());
        let scratch = SharedPointer(scratch.as_mut_ptr());
        self.run(&|worker| {
            // SAFETY: `worker < count() <= scratch.len()`, and each worker number is in use only once at a time.
            let own = unsafe { &mut *scratch.get().add(worker) };
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= chunks {
                    break;
                }
                let start = index * chunk;
                let size = chunk.min(length - start);
                // SAFETY: the counter yields each index once, so the chunks are disjoint and lie in `data`, which
                // stays borrowed until `run` returns.
                let part = unsafe { std::slice::from_raw_parts_mut(data.get().add(start), size) };
                work(own, index, part);
            }
        });
    }

    /// Like [`Threads::for_each_chunk`], without scratch memory.
    ///
    /// # Panics
    /// If `chunk` is 0 or `work` panics.
    pub fn for_each<T, F>(&self, data: &mut [T], chunk: usize, work: F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        // A vector of zero-sized elements allocates nothing.
        let mut none = vec![(); self.count()];
        self.for_each_chunk(&mut none, data, chunk, |(), index, part| work(index, part));
    }

    /// Returns `make(one)` of each element, in their order.
    ///
    /// # Panics
    /// If `make` panics.
    pub fn map<T: Send, R: Send>(&self, from: Vec<T>, make: impl Fn(T) -> R + Sync) -> Vec<R> {
        let mut both: Vec<(Option<T>, Option<R>)> =
            from.into_iter().map(|one| (Some(one), None)).collect();
        self.for_each(&mut both, 1, |_, own| {
            let (one, made) = &mut own[0];
            *made = one.take().map(&make);
        });
        both.into_iter().filter_map(|(_, made)| made).collect()
    }

    /// Calls `own` on the calling thread and `other` on a worker at the same time, or `other` after `own` if no worker starts
    /// meanwhile; returns both results. A pool of two threads is meant for it.
    ///
    /// # Panics
    /// If one of them panics.
    pub fn beside<A: Send, B>(
        &self,
        other: impl FnOnce() -> A + Send,
        own: impl FnOnce() -> B,
    ) -> (A, B) {
        let other = Mutex::new((Some(other), None));
        let mut own = (Some(own), None);
        let caller = OfCaller(&raw mut own);
        self.run(&|worker| {
            if worker == 0 {
                // SAFETY: worker 0 is the calling thread, which lends `own` to this closure alone until `run` returns.
                let (work, done) = unsafe { &mut *caller.get() };
                *done = work.take().map(|work| work());
            }
            // The lock is held during the call, so that the caller waits for its end.
            let (work, done) = &mut *other.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(work) = work.take() {
                *done = Some(work());
            }
        });
        let (_, other) = other.into_inner().unwrap_or_else(PoisonError::into_inner);
        (other.expect("it was called"), own.1.expect("it was called"))
    }

    /// Copies `from` to `to`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), to.len(), "lengths of a copy");
        let chunk = (COPY_BYTES / size_of::<T>().max(1)).max(1);
        self.for_each(to, chunk, |index, part| {
            part.copy_from_slice(&from[index * chunk..][..part.len()]);
        });
    }

    /// Calls `work(&mut scratch[worker], part, tile)` once for each tile of rows of bytes, in any order; `part` counts the
    /// groups of rows. `scratch` must hold at least [`Threads::count`] elements.
    ///
    /// # Panics
    /// If `scratch` is too short, a tile would reach beyond its row or `bytes`, or `work` panics.
    pub fn for_each_tile<S, F>(
        &self,
        scratch: &mut [S],
        bytes: &mut [u8],
        tiling: &Tiling<'_>,
        work: F,
    ) where
        S: Send,
        F: Fn(&mut S, usize, Tile<'_>) + Sync,
    {
        let Tiling { stride, rows, places, ref columns, step } = *tiling;
        assert!(scratch.len() >= self.count() && step > 0, "one scratch a thread");
        let (parts, first) = (rows.len().saturating_sub(1), columns.start / step);
        let across = columns.end.div_ceil(step).saturating_sub(first);
        if columns.is_empty() || parts == 0 {
            return;
        }
        assert!(rows.is_sorted() && columns.end <= stride, "tiles lie within rows");
        assert!(places.is_sound() && places.fit(rows[parts], stride, bytes.len()), "all rows");
        let bytes = SharedPointer(bytes.as_mut_ptr());
        let tile = |own: &mut S, index: usize| {
            let (part, column) = (index / across, first + index % across);
            let columns = columns.start.max(column * step)
                ..columns.end.min((column + 1).saturating_mul(step));
            let rows = rows[part]..rows[part + 1];
            let bytes = bytes.get();
            let tile = Tile { bytes, stride, rows, places, columns, borrow: PhantomData };
            work(own, part, tile);
        };
        if self.count() == 1 || parts * across < 2 {
            return (0..parts * across).for_each(|index| tile(&mut scratch[0], index));
        }
        let next = AtomicUsize::new(0);
        let scratch = SharedPointer(scratch.as_mut_ptr());
        self.run(&|worker| {
            // SAFETY: `worker < count() <= scratch.len()`, and each worker number is in use only once at a time.
            let own = unsafe { &mut *scratch.get().add(worker) };
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= parts * across {
                    break;
                }
                // The counter yields each index once, so the tiles are disjoint; `bytes` stays borrowed until `run` returns.
                tile(own, index);
            }
        });
    }

    /// Runs `job(worker)` on the calling thread and on each worker that starts it before the calling thread finishes; returns when
    /// all of them have finished. Each job goes on until nothing is left to claim, so a worker that would start later has no work: on a busy
    /// machine a call does not wait until all workers were scheduled.
    fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        let _in_call = self.pool.in_call.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.pool.shared;
        // SAFETY: only the lifetime changes. `run` removes the job and then waits until `working` is 0, after the last worker
        // that took a copy has dropped it.
        let hidden: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), _>(job) };
        {
            let mut work = shared.lock();
            work.generation += 1;
            work.job = Some(Job(hidden));
        }
        shared.start.notify_all();
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut work = shared.lock();
        work.job = None;
        while work.working > 0 {
            work = shared.done.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        drop(work);
        let theirs = shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!theirs, "a worker thread panicked");
    }
}

/// Pointer that only the calling thread of [`Threads::run`] follows.
struct OfCaller<T>(*mut T);

// SAFETY: other threads hold the pointer and do not follow it.
unsafe impl<T> Sync for OfCaller<T> {}

impl<T> OfCaller<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Division of a range of columns of rows of bytes into tiles.
#[derive(Clone, Debug)]
pub struct Tiling<'a> {
    /// Bytes between the starts of consecutive rows.
    pub stride: usize,
    /// First row of each group of rows, ascending, and the end of the last group.
    pub rows: &'a [usize],
    /// Places of these rows in the bytes.
    pub places: Places,
    /// Bytes of each row that are divided.
    pub columns: Range<usize>,
    /// Columns are divided at multiples of this many bytes.
    pub step: usize,
}

/// Places of some rows among more: groups of consecutive rows at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Place of the first row.
    pub first: usize,
    /// Rows of a group, at least one.
    pub group: usize,
    /// Places from the start of a group to that of the next one, at least as many as a group has rows.
    pub step: usize,
}

impl Places {
    /// Each row in its own place.
    pub const ALL: Self = Self { first: 0, group: usize::MAX, step: usize::MAX };

    /// Returns the place of a row.
    #[inline]
    pub const fn of(&self, row: usize) -> usize {
        // A division takes as long as a copy of the few bytes that a short heap has of a row.
        if row < self.group {
            return self.first + row;
        }
        self.first + row / self.group * self.step + row % self.group
    }

    /// Divides consecutive rows into those whose places follow each other, and returns the places.
    pub fn ranges(self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut next = rows.start;
        std::iter::from_fn(move || {
            let left = self.group - next % self.group;
            let count = left.min(rows.end.saturating_sub(next));
            let first = self.of(next);
            next += count;
            (count > 0).then(|| first..first + count)
        })
    }

    /// Returns whether no two rows have the same place.
    const fn is_sound(&self) -> bool {
        self.group > 0 && self.step >= self.group
    }

    /// Returns whether the first `rows` rows of `stride` bytes lie within `bytes` bytes.
    fn fit(&self, rows: usize, stride: usize, bytes: usize) -> bool {
        let Some(last) = rows.checked_sub(1) else { return true };
        let groups = (last / self.group).checked_mul(self.step);
        let place = groups.and_then(|place| place.checked_add(last % self.group));
        let end = place.and_then(|place| place.checked_add(self.first)?.checked_add(1));
        end.and_then(|end| end.checked_mul(stride)).is_some_and(|end| end <= bytes)
    }
}

/// Rectangle of bytes of [`Threads::for_each_tile`], of which one thread has the use.
#[derive(Debug)]
pub struct Tile<'a> {
    /// Start of the first of all rows.
    bytes: *mut u8,
    stride: usize,
    rows: Range<usize>,
    places: Places,
    columns: Range<usize>,
    borrow: PhantomData<&'a mut [u8]>,
}

impl Tile<'_> {
    /// Returns the columns: positions of the bytes in their rows.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Returns the bytes of a row, by its number among all rows.
    ///
    /// # Panics
    /// If the row is not in the tile.
    #[inline]
    pub fn row(&mut self, row: usize) -> &mut [u8] {
        assert!(self.rows.contains(&row), "a row of the tile");
        let place = self.places.of(row);
        // SAFETY: `for_each_tile` has checked that the places of all rows, with these columns, lie in the caller's bytes and that no
        // two rows share one; no other tile has them, and the result borrows this tile.
        unsafe {
            let first = self.bytes.add(place * self.stride + self.columns.start);
            std::slice::from_raw_parts_mut(first, self.columns.len())
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the job of each call until the pool is dropped.
    fn worker_loop(&self, worker: usize) {
        let mut seen = 0;
        self.lock().started += 1;
        self.done.notify_all();
        loop {
            let job = {
                let mut work = self.lock();
                while work.generation == seen && !work.stop {
                    work = self.start.wait(work).unwrap_or_else(PoisonError::into_inner);
                }
                if work.stop {
                    return;
                }
                seen = work.generation;
                let Some(job) = work.job else { continue };
                work.working += 1;
                job
            };
            let Job(job) = job;
            // SAFETY: `run` keeps the closure alive until this worker has decremented `working`.
            let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(worker) }));
            if outcome.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            let mut work = self.lock();
            work.working -= 1;
            if work.working == 0 {
                self.done.notify_all();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.start.notify_all();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

/// Pointer shared by the workers, which access disjoint elements.
struct SharedPointer<T>(*mut T);

impl<T> SharedPointer<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: workers access disjoint elements only, and every use requires `T: Send`.
unsafe impl<T: Send> Sync for SharedPointer<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_stays_on_the_calling_thread_beside_another() {
        for count in [1, 2, 3] {
            let threads = Threads::new(count);
            let here = std::thread::current().id();
            for number in 0..50 {
                // Not to be sent to another thread.
                let own = std::rc::Rc::new(number);
                let (other, own) =
                    threads.beside(|| 2 * number, || (*own, std::thread::current().id() == here));
                assert_eq!((other, own), (2 * number, (number, true)), "{count} threads");
            }
        }
    }

    #[test]
    fn every_chunk_is_worked_once() {
        for count in [1, 2, 5] {
            let threads = Threads::new(count);
            let mut scratch = vec![0usize; threads.count()];
            let mut data = vec![0u32; 1003];
            for generation in 1..50 {
                threads.for_each_chunk(&mut scratch, &mut data, 10, |own, index, part| {
                    *own += 1;
                    part.iter_mut().enumerate().for_each(|(i, x)| *x += (index * 10 + i) as u32);
                });
                assert_eq!(scratch.iter().sum::<usize>(), 101 * generation);
            }
            assert!(data.iter().enumerate().all(|(i, x)| *x == 49 * i as u32));
        }
    }

    #[test]
    fn every_byte_of_a_tiling_is_in_one_tile() {
        for count in [1, 2, 5] {
            let threads = Threads::new(count);
            let mut scratch = vec![0usize; threads.count()];
            for (rows, columns, step) in [
                (&[0, 1, 1, 4, 7][..], 3..50, 8),
                (&[2, 5], 0..50, 64),
                (&[0, 7], 20..21, usize::MAX),
                (&[0, 7], 9..9, 4),
                (&[3], 0..50, 4),
                (&[], 0..50, 4),
            ] {
                let mut bytes = vec![0u8; 7 * 50 + 3];
                let (places, columns) = (Places::ALL, columns.clone());
                let tiling = Tiling { stride: 50, rows, places, columns: columns.clone(), step };
                threads.for_each_tile(&mut scratch, &mut bytes, &tiling, |own, part, mut tile| {
                    *own += 1;
                    assert!(tile.columns().len() <= step);
                    for row in rows[part]..rows[part + 1] {
                        tile.row(row).iter_mut().for_each(|byte| *byte += 1);
                    }
                });
                let inside = rows.first().copied().unwrap_or(0)..rows.last().copied().unwrap_or(0);
                let is_inside =
                    |at: usize| inside.contains(&(at / 50)) && columns.contains(&(at % 50));
                let expected: Vec<u8> = (0..7 * 50 + 3).map(|at| u8::from(is_inside(at))).collect();
                assert_eq!(bytes, expected);
            }
        }
    }

    #[test]
    fn tiles_outside_of_their_bytes_are_refused() {
        let threads = Threads::new(2);
        let refuses = |rows: &[usize], columns: Range<usize>, row: usize| {
            let tiling = Tiling { stride: 10, rows, places: Places::ALL, columns, step: 4 };
            let mut bytes = [0u8; 30];
            let work = |(): &mut (), _: usize, mut tile: Tile<'_>| tile.row(row)[0] = 1;
            let call = || threads.for_each_tile(&mut [(), ()], &mut bytes, &tiling, work);
            catch_unwind(AssertUnwindSafe(call)).is_err()
        };
        assert!(!refuses(&[1, 3], 0..10, 2));
        assert!(refuses(&[1, 3], 0..10, 0) && refuses(&[1, 3], 0..10, 3));
        assert!(refuses(&[0, 4], 0..10, 0) && refuses(&[0, 3], 0..11, 0));
        assert!(refuses(&[2, 0, 3], 0..10, 2) && refuses(&[0, usize::MAX], 0..10, 0));
    }

    #[test]
    fn rows_of_tiles_have_the_places_given() {
        for count in [1, 3] {
            let threads = Threads::new(count);
            let places = Places { first: 1, group: 2, step: 5 };
            let fill = |rows: usize, places: Places| {
                let mut bytes = vec![0u8; 13 * 4];
                let mut scratch = vec![(); threads.count()];
                let starts = [0, 1, 3, rows];
                let tiling = Tiling { stride: 4, rows: &starts, places, columns: 1..3, step: 2 };
                threads.for_each_tile(&mut scratch, &mut bytes, &tiling, |(), part, mut tile| {
                    for row in starts[part]..starts[part + 1] {
                        tile.row(row).fill(row as u8 + 1);
                    }
                });
                bytes.chunks(4).map(|row| row[1]).collect::<Vec<_>>()
            };
            assert_eq!(fill(6, places), [0, 1, 2, 0, 0, 0, 3, 4, 0, 0, 0, 5, 6]);
            let ranges: Vec<_> = places.ranges(1..6).collect();
            assert_eq!(ranges, [2..3, 6..8, 11..13]);
            let mut all = Places::ALL.ranges(3..9);
            assert_eq!((all.next(), all.next()), (Some(3..9), None));
            assert_eq!(places.ranges(4..4).count(), 0);
            let refuses =
                |rows, places| catch_unwind(AssertUnwindSafe(|| fill(rows, places))).is_err();
            assert!(refuses(7, places) && refuses(6, Places { first: 2, ..places }));
            assert!(
                refuses(6, Places { step: 1, ..places })
                    && refuses(6, Places { group: 0, ..places })
            );
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let threads = Threads::new(3);
        let mut scratch = [(), (), ()];
        let mut data = vec![0u8; 64];
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            threads.for_each_chunk(&mut scratch, &mut data, 1, |(), i, _| assert!(i != 40));
        }));
        assert!(outcome.is_err());
        threads.for_each_chunk(&mut scratch, &mut data, 1, |(), _, part| part[0] = 1);
        assert!(data.iter().all(|x| *x == 1));
    }
}
