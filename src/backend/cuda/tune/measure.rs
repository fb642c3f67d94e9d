//! Measuring candidates, one after the other, on data that are resident.

use super::{Asked, Choice, Question};
use crate::backend::cuda::{Device, Stream};
use crate::error::{Error, Result};

/// A stage that is bound to a plan and a device, with resident data that are larger than the caches.
pub trait Work {
    /// Queues the work once.
    ///
    /// # Errors
    /// Whatever keeps it from being launched.
    fn enqueue(&mut self, stream: &Stream) -> Result<()>;
    /// A hash of what the first launch wrote ([`super::digest`], [`super::digest_of`]): the same for every choice.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    fn digest(&mut self) -> Result<u128>;
}

/// What became of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The candidate.
    pub choice: Choice,
    /// Seconds of the fastest run of the work and of the median, or why it can't be launched.
    pub seconds: std::result::Result<(f64, f64), String>,
}

/// What became of all candidates of one kernel of the work.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub(super) question: Question,
    /// In the order in which the stage offers them.
    pub measured: Vec<Measured>,
}

impl Tuned {
    /// The kernel's file.
    pub fn kernel(&self) -> &str {
        &self.question.kernel
    }

    /// What the choice holds for.
    pub fn shape(&self) -> &str {
        &self.question.shape
    }

    /// The fastest candidate by the median, and the seconds of its fastest run.
    pub fn best(&self) -> Option<(&Choice, f64)> {
        let launched = self.measured.iter().filter_map(|measured| {
            let (fastest, median) = *measured.seconds.as_ref().ok()?;
            Some((&measured.choice, fastest, median))
        });
        let best = launched.min_by(|a, b| a.2.total_cmp(&b.2));
        best.map(|(choice, fastest, _)| (choice, fastest))
    }
}

/// Batches that are timed, of which each takes about `BATCH_S`.
const BATCHES: usize = 20;
const BATCH_S: f64 = 2e-3;
/// Runs of a batch at most.
const MOST_RUNS: usize = 64;

/// Measures every candidate of every kernel of a piece of work, a kernel after the other, each with the best of
/// those before it. `build` makes the work, in which stages ask [`super::choice`]; `observe` is told each
/// candidate as it is done, with its kernel's file, and may end the tuning by an error.
///
/// # Errors
/// What `build` says with the first choices, and what `observe` says; [`Error::Device`] when candidates do not give the same bits, or
/// when the device is lost.
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
    while let Some(Asked { question, candidates }) = next(device, build, &all)? {
        let mut tuned = Tuned { question, measured: Vec::new() };
        for choice in candidates {
            force(device, &tuned.question, &choice);
            let seconds = match seconds(&stream, build, digest) {
                Err(Error::Device { call: "tune", code, text }) => {
                    let text = format!("{}, {}: {text}", tuned.kernel(), choice.name);
                    return Err(Error::Device { call: "tune", code, text });
                }
                // A device that is lost answers nothing any more.
                Err(error) => device.synchronize().map(|()| Err(error.to_string()))?,
                Ok(seconds) => Ok(seconds),
            };
            let measured = Measured { choice, seconds };
            observe(tuned.kernel(), &measured)?;
            tuned.measured.push(measured);
        }
        if let Some((choice, _)) = tuned.best() {
            force(device, &tuned.question, choice);
        }
        all.push(tuned);
    }
    Ok(all)
}

/// What is asked with the best choices so far, and was not measured yet: what one kernel leaves to another may
/// depend on its choice.
fn next(
    device: &Device,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    done: &[Tuned],
) -> Result<Option<Asked>> {
    device.state().asked.clear();
    drop(build()?);
    let asked = device.state().asked.clone();
    let is_new = |asked: &Asked| done.iter().all(|tuned| tuned.question != asked.question);
    Ok(asked.into_iter().find(is_new))
}

/// While it lives, stages take what is forced, whatever was stored.
struct Tuning<'a>(&'a Device);

impl<'a> Tuning<'a> {
    fn begin(device: &'a Device) -> Self {
        let mut state = device.state();
        (state.asked, state.forced) = (Vec::new(), Vec::new());
        state.is_tuning = true;
        Self(device)
    }
}

impl Drop for Tuning<'_> {
    fn drop(&mut self) {
        self.0.state().is_tuning = false;
    }
}

fn force(device: &Device, question: &Question, choice: &Choice) {
    let forced = &mut device.state().forced;
    forced.retain(|other| other.0 != *question);
    forced.push((question.clone(), choice.clone()));
}

/// Seconds of the work: the fastest batch, and the median.
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
