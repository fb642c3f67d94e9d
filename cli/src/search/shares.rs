//! Searches of several beams, divided among the backends of a process and among processes.
//!
//! Invariant: every rank takes part in all collective calls, however its searches end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::pipeline::Ending;
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use super::beams::Beam;
use super::searched::{Searched, read_ending, save_ending};
use crate::interrupt::Exit;
use crate::output::{CHECKPOINT, Folder};
use crate::ranks::{End, Group};

/// Beam whose search has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) beam: usize,
    /// Results, or why the search ended before the recording.
    pub(super) searched: std::result::Result<Searched, Ending>,
}

/// Returns the backends on which beams are searched at the same time: each of several GPUs with its share of the threads, if there are
/// as many beams; otherwise all together, which divide the trial DMs of each beam.
pub(super) fn backends(backend: &Backend, beams: usize) -> Vec<Backend> {
    let shares = backend.shares();
    let count = shares.len();
    if count == 1 || beams < count {
        return vec![backend.clone()];
    }
    // Calls of one pool do not overlap, so each has its own.
    let threads = (backend.threads() / count).max(1);
    let alone = |share: Backend| match share {
        Backend::Cuda(device, _) => Backend::Cuda(device.alone(), Threads::new(threads)),
        other => other,
    };
    shares.into_iter().map(alone).collect()
}

/// Searches the beams of this rank with `search`, on several backends at the same time, until one fails, the user asks to stop, or
/// another rank ends early; returns those whose search began. Keeps of a search that ended early what `--resume` needs.
pub(super) fn search_all(
    beams: &[Beam],
    group: &mut Group<'_>,
    backends: &[Backend],
    folder: &Folder,
    search: impl Fn(usize, &Backend, &(dyn Fn() -> bool + Sync)) -> Result<Searched> + Sync,
) -> Vec<Done> {
    let own: Vec<usize> = (group.rank()..beams.len()).step_by(group.count()).collect();
    let named = |error: Error, backend: &Backend| match backend {
        Backend::Cuda(device, _) if backends.len() > 1 => error.on_device(device.ordinal()),
        _ => error,
    };
    group.until_all_end(|others_end| {
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done = Mutex::new(Vec::with_capacity(own.len()));
        let work = |backend: &Backend| {
            while !is_over.load(Ordering::Relaxed)
                && !others_end()
                && let Some(beam) = own.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let searched = search(*beam, backend, others_end);
                let searched = searched.map_err(|error| {
                    is_over.store(true, Ordering::Relaxed);
                    // A folder that cannot be removed has the hidden name of an unfinished product.
                    let _ = remove_beam(&folder.file(&beams[*beam].folder));
                    Ending::after(named(error, backend))
                });
                let ended = Done { beam: *beam, searched };
                done.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
            }
        };
        match backends {
            [only] => work(only),
            several => thread::scope(|scope| {
                let work = &work;
                several.iter().for_each(|backend| drop(scope.spawn(move || work(backend))));
            }),
        }
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let end = end_of(&done);
        (done, end)
    })
}

/// Returns how the searches of a rank ended.
fn end_of(done: &[Done]) -> End {
    let early = done.iter().find_map(|one| match &one.searched {
        Ok(searched) => Some(&searched.ending).filter(|ending| !ending.is_read()),
        Err(ending) => Some(ending),
    });
    match early {
        None => End::Done,
        Some(Ending::Stopped) => End::Stopped,
        Some(_) => End::Failed,
    }
}

/// Removes the folder of a beam, if there is one without a checkpoint.
fn remove_beam(folder: &Path) -> Result<()> {
    if folder.join(CHECKPOINT).exists() {
        return Ok(());
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(folder, error)),
        _ => Ok(()),
    }
}

/// Returns the exit code of a rank that writes no product.
pub(super) fn exit(done: &[Done]) -> Exit {
    match done.iter().find_map(|one| one.searched.as_ref().err()) {
        Some(Ending::Failed(error)) => Exit::after(error),
        Some(_) => Exit::Interrupted,
        None => Exit::Success,
    }
}

/// Returns the searches of all ranks at rank 0; `None` at the others. Errors of other ranks name them.
///
/// # Errors
/// Errors of the connection.
pub(super) fn gather(
    group: &mut Group<'_>,
    mut own: Vec<Done>,
    beams: &[Beam],
) -> Result<Option<Vec<Done>>> {
    let bytes = if group.rank() == 0 { Vec::new() } else { saved(&own, beams) };
    let Some(all) = group.gather(bytes)? else { return Ok(None) };
    for (rank, bytes) in all.iter().enumerate().skip(1) {
        own.extend(read(rank, bytes, beams)?);
    }
    Ok(Some(own))
}

/// Returns the searches of a rank as bytes.
fn saved(done: &[Done], beams: &[Beam]) -> Vec<u8> {
    let mut saving = Saving::default();
    saving.number(done.len() as u64);
    for one in done {
        saving.number(one.beam as u64);
        saving.number(u64::from(one.searched.is_ok()));
        match &one.searched {
            Ok(searched) => searched.save(&mut saving),
            Err(ending) => {
                save_ending(ending, &beams[one.beam].path.display().to_string(), &mut saving)
            }
        }
    }
    saving.finish()
}

/// Reads the searches of a rank.
///
/// # Errors
/// [`Error::Format`] for other bytes than those of [`saved`].
fn read(rank: usize, bytes: &[u8], beams: &[Beam]) -> Result<Vec<Done>> {
    let from = PathBuf::from(format!("results of rank {rank}"));
    let mut saved = Saved::new(&from, 0, bytes)?;
    let count = saved.at_most(beams.len())?;
    let mut done = Vec::with_capacity(count);
    for _ in 0..count {
        let beam = saved.at_most(beams.len() - 1)?;
        let searched = match saved.at_most(1)? {
            1 => Ok(Searched::read(&mut saved)?),
            _ => Err(read_ending(&format!("rank {rank}, {}", beams[beam].name()), &mut saved)?),
        };
        done.push(Done { beam, searched });
    }
    saved.end()?;
    Ok(done)
}

/// Divides beams into those that were searched to their ends, in their order, and the end of the whole search.
pub(super) fn settled(mut done: Vec<Done>) -> (Vec<Searched>, Ending) {
    done.sort_by_key(|one| one.beam);
    let (mut all, mut ending) = (Vec::new(), Ending::Complete);
    for one in done {
        match one.searched {
            Ok(searched) => {
                if ending.is_complete() && !searched.ending.is_complete() {
                    ending = searched.ending.clone();
                }
                all.push(searched);
            }
            // Only beams that were searched to their ends are joined.
            Err(early) if ending.is_read() => ending = early,
            Err(_) => {}
        }
    }
    (all, ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(beam: usize, ending: Ending) -> Searched {
        Searched { beam, data_s: 2.0, candidates: Vec::new(), ending }
    }

    fn failed(beam: usize, error: Error) -> Done {
        Done { beam, searched: Err(Ending::after(error)) }
    }

    #[test]
    fn the_end_of_all_is_the_first_early_one() {
        let done = |beam| Done { beam, searched: Ok(searched(beam, Ending::Complete)) };
        let (all, ending) = settled(vec![done(2), done(0), done(1)]);
        assert!(ending.is_complete());
        assert_eq!(all.iter().map(|one| one.beam).collect::<Vec<_>>(), [0, 1, 2]);
        let late = failed(3, Error::stopped("b3"));
        let first = failed(1, Error::format("b1", "nbits", 0, "found 3"));
        assert_eq!(end_of(std::slice::from_ref(&first)), End::Failed);
        assert_eq!(end_of(std::slice::from_ref(&late)), End::Stopped);
        assert_eq!(exit(std::slice::from_ref(&first)), Exit::Damaged);
        let (all, ending) = settled(vec![late, done(0), first]);
        assert_eq!((all.len(), ending.reason().unwrap()), (1, "b1: nbits: found 3".to_owned()));
        // Plots that failed do not keep a beam out of the events.
        let cut = searched(0, Ending::Stopped);
        let (all, ending) = settled(vec![Done { beam: 0, searched: Ok(cut) }]);
        assert!(all.len() == 1 && !ending.is_read());
    }
}
