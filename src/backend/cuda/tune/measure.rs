//! Measures tuning candidates one by one on resident data.

use super::state::{Choice, PendingKey, TuningKey};
use crate::backend::cuda::{Device, Stream};
use crate::error::{Error, Result};

/// Stage bound to a plan and a device, with resident data larger than the caches.
pub trait Work {
    /// Enqueues the work once.
    ///
    /// # Errors
    /// Any error that prevents the launch.
    fn enqueue(&mut self, stream: &Stream) -> Result<()>;
    /// Returns a hash of the first launch's output ([`super::digest`], [`super::digest_of`]); it must be equal for
    /// all candidates.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    fn digest(&mut self) -> Result<u128>;
}

/// Result of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Candidate.
    pub choice: Choice,
    /// Seconds of the fastest run and of the median, or the reason why it cannot be launched.
    pub seconds: std::result::Result<(f64, f64), String>,
}

/// Results of all candidates of one kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub(super) key: TuningKey,
    /// Results in the order of the stage's candidates.
    pub measured: Vec<Measured>,
}

impl Tuned {
    /// Returns the kernel's file name.
    pub fn kernel(&self) -> &str {
        &self.key.kernel
    }

    /// Returns the plan's shape to which the choice applies.
    pub fn shape(&self) -> &str {
        &self.key.shape
    }

    /// Returns the candidate with the lowest median, and the seconds of its fastest run.
    pub fn best(&self) -> Option<(&Choice, f64)> {
        let launched = self.measured.iter().filter_map(|measured| {
            let (fastest, median) = *measured.seconds.as_ref().ok()?;
            Some((&measured.choice, fastest, median))
        });
        let best = launched.min_by(|a, b| a.2.total_cmp(&b.2));
        best.map(|(choice, fastest, _)| (choice, fastest))
    }
}

/// Timed batches; each takes about `BATCH_S`.
const BATCHES: usize = 20;
const BATCH_S: f64 = 2e-3;
/// Maximum number of runs per batch.
const MOST_RUNS: usize = 64;

/// Measures every candidate of every kernel of a work, kernel by kernel, each with the best choices for the kernels
/// before it. `build` creates the work, in which stages call [`super::choice`]. `observe` receives each result with
/// its kernel's file name and can abort the tuning with an error.
///
/// # Errors
/// Errors of `build` with the default choices, and of `observe`; [`Error::Device`] if candidates differ in their
/// results or the device is lost.
pub fn tune(
    device: &Device,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    observe: &mut dyn FnMut(&str, &Measured) -> Result<()>,
) -> Result<Vec<Tuned>> {
    let _tuning = Tuning::begin(device);
    let stream = device.stream()?;
    let digest = {
        let mut work = build()?;
        work.enqueue(&stream)?;
        stream.synchronize()?;
        work.digest()?
    };
    let mut all: Vec<Tuned> = Vec::new();
    while let Some(PendingKey { key, candidates }) = next(device, build, &all)? {
        let mut tuned = Tuned { key, measured: Vec::new() };
        for choice in candidates {
            force(device, &tuned.key, &choice);
            let seconds = match seconds(&stream, build, digest) {
                Err(Error::Device { call: "tune", code, text }) => {
                    let text = format!("{}, {}: {text}", tuned.kernel(), choice.name);
                    return Err(Error::Device { call: "tune", code, text });
                }
                // A lost device fails every call, which ends the tuning.
                Err(error) => device.synchronize().map(|()| Err(error.to_string()))?,
                Ok(seconds) => Ok(seconds),
            };
            let measured = Measured { choice, seconds };
            observe(tuned.kernel(), &measured)?;
            tuned.measured.push(measured);
        }
        if let Some((choice, _)) = tuned.best() {
            force(device, &tuned.key, choice);
        }
        all.push(tuned);
    }
    Ok(all)
}

/// Returns a key that arises with the best choices so far and has not been measured. A kernel's keys can
/// depend on another kernel's choice.
fn next(
    device: &Device,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    done: &[Tuned],
) -> Result<Option<PendingKey>> {
    device.state().pending.clear();
    drop(build()?);
    let pending = device.state().pending.clone();
    let is_new = |pending: &PendingKey| done.iter().all(|tuned| tuned.key != pending.key);
    Ok(pending.into_iter().find(is_new))
}

/// While it exists, stages use the forced choices and ignore stored ones.
struct Tuning<'a>(&'a Device);

impl<'a> Tuning<'a> {
    fn begin(device: &'a Device) -> Self {
        let mut state = device.state();
        (state.pending, state.forced) = (Vec::new(), Vec::new());
        state.is_tuning = true;
        Self(device)
    }
}

impl Drop for Tuning<'_> {
    fn drop(&mut self) {
        self.0.state().is_tuning = false;
    }
}

fn force(device: &Device, key: &TuningKey, choice: &Choice) {
    let forced = &mut device.state().forced;
    forced.retain(|other| other.0 != *key);
    forced.push((key.clone(), choice.clone()));
}

/// Returns the seconds of the fastest batch and of the median.
fn seconds(
    stream: &Stream,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    digest: u128,
) -> Result<(f64, f64)> {
    let mut work = build()?;
    let device = stream.device();
    let (begin, end) = (device.event()?, device.event()?);
    let batch = |work: &mut dyn Work, runs: usize| {
        stream.record(&begin)?;
        for _ in 0..runs {
            work.enqueue(stream)?;
        }
        stream.record(&end)?;
        stream.synchronize()?;
        Ok(end.seconds_since(&begin)? / runs as f64)
    };
    batch(work.as_mut(), 1)?;
    if work.digest()? != digest {
        let text = "it gives other bits than the first choice".to_owned();
        return Err(Error::Device { call: "tune", code: 0, text });
    }
    let once: f64 = batch(work.as_mut(), 1)?;
    let runs = ((BATCH_S / once.max(1e-9)).ceil() as usize).clamp(1, MOST_RUNS);
    let times = (0..BATCHES).map(|_| batch(work.as_mut(), runs));
    let mut times = times.collect::<Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[BATCHES / 2]))
}
