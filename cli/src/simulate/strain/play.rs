//! Strain played as frame files that are renamed into the folder of their detector, in real time.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use sidereal::io::atomic::AtomicFile;
use sidereal::io::strain::{NewStrain, StrainSource, StrainWriter};
use sidereal::simulate::strain::StrainSimulator;
use sidereal::units::Gps;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::numbers::within;
use crate::say::note;
use crate::{interrupt, json};

/// Name of the file that says what is in the strain, in the folder of all detectors.
const TRUTH: &str = "truth.json";

/// Longest sleep between looks at requests to stop.
const STEP: Duration = Duration::from_millis(50);

/// Sleep between looks at the frames that a reader removes.
const READER: Duration = Duration::from_millis(1);

/// Options of playing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Playing")]
pub(super) struct Play {
    /// Write the strain in real time as frame files (GWF), one each second for each detector, to FOLDER/H1 and so on.
    ///
    /// Files are renamed into place when their last sample would have been recorded. FOLDER/truth.json lists the injections
    /// before the first frame.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["out", "output", "overwrite"])]
    pub(super) live: Option<PathBuf>,
    /// Length of a frame in seconds: 1/64 to 64, whole or a power of two.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        requires = "live"
    )]
    frame: f64,
    /// Speed as a multiple of real time; 0 writes without waiting.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        requires = "live"
    )]
    speed: f64,
    /// Wait while readers have not removed this many frames of a detector; 0 never waits.
    ///
    /// It waits for ever if nobody removes them. With --speed 0 and `live spiir --remove-frames`, strain is played as fast as it is searched.
    #[arg(long, value_name = "FRAMES", default_value_t = 0, requires = "live")]
    queue: usize,
    /// Remove frames that begin this many seconds or more before the newest one; 0 keeps all.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        requires = "live"
    )]
    keep: f64,
}

impl Play {
    /// Plays the strain of each simulator into its folder.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming an option; [`Error::Io`]; a request to stop.
    pub(super) fn run(
        &self,
        simulators: &mut [StrainSimulator],
        folders: &[PathBuf],
        truth: &impl Serialize,
        common: &Common,
    ) -> Result<()> {
        within("--frame", self.frame, 1.0 / 64.0..=64.0, "seconds")?;
        let least = if self.speed == 0.0 { 0.0 } else { 1e-3 };
        within("--speed", self.speed, least..=1e6, "times real time")?;
        within("--keep", self.keep, 0.0..=1e9, "seconds")?;
        if self.frame.fract() != 0.0 && self.frame.recip().log2().fract() != 0.0 {
            let rule = "it must be whole, or a half, a quarter and so on";
            return Err(Error::parameter("--frame", self.frame, rule));
        }
        for folder in folders {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        let Some(parent) = folders.first().and_then(|folder| folder.parent()) else {
            return Ok(());
        };
        let mut file = AtomicFile::create(&parent.join(TRUTH))?;
        let text = json::line(truth)?;
        file.append(format!("{text}\n").as_bytes())?;
        file.commit()?;
        let begun = Instant::now();
        let mut number = 0;
        let mut samples = Vec::new();
        let mut written: Vec<Written> = Vec::new();
        loop {
            number += 1;
            let mut now = None;
            for (simulator, folder) in simulators.iter_mut().zip(folders) {
                let rate_hz = simulator.header().rate_hz;
                let count = self.frame * f64::from(rate_hz);
                if count.fract() != 0.0 {
                    let rule = format!("it must be a whole number of samples at {rate_hz} Hz");
                    return Err(Error::parameter("--frame", self.frame, rule));
                }
                samples.resize(count as usize, 0.0);
                let count = simulator.read_recorded(&mut samples)?;
                if count == 0 {
                    break;
                }
                let frame = Frame::new(simulator, (number - 1) * samples.len() as u64, count);
                if now.is_none() {
                    self.wait(begun, number)?;
                    self.wait_for_reader(&mut written)?;
                }
                now = Some(frame.strain.start);
                let path = folder.join(&frame.name);
                let mut writer = StrainWriter::create(&path, &frame.strain)?;
                writer.write(&samples[..count])?;
                writer.finish()?;
                written.push(Written { start: frame.strain.start, path });
            }
            let Some(now) = now else { break };
            self.remove(&mut written, now);
        }
        if common.json {
            json::print(truth)
        } else {
            if !common.quiet {
                let frames = (number - 1) * folders.len() as u64;
                note!(
                    "{frames} frames in {:.1} s; what is in them: {}",
                    begun.elapsed().as_secs_f64(),
                    parent.join(TRUTH).display()
                );
            }
            Ok(())
        }
    }

    /// Waits until the last sample of a frame, counted from 1, would have been recorded.
    fn wait(&self, begun: Instant, number: u64) -> Result<()> {
        let due = (self.speed > 0.0).then(|| number as f64 * self.frame / self.speed);
        let due = Duration::from_secs_f64(due.unwrap_or(0.0));
        loop {
            interrupt::check()?;
            let left = due.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(STEP));
        }
    }

    /// Waits until a reader has removed enough frames.
    fn wait_for_reader(&self, written: &mut Vec<Written>) -> Result<()> {
        if self.queue == 0 {
            return Ok(());
        }
        while fullest(written) >= self.queue {
            written.retain(|one| one.path.exists());
            if fullest(written) < self.queue {
                break;
            }
            interrupt::check()?;
            sleep(READER);
        }
        Ok(())
    }

    /// Removes frames that are old.
    fn remove(&self, written: &mut Vec<Written>, now: Gps) {
        if self.keep == 0.0 {
            if self.queue == 0 {
                written.clear();
            }
            return;
        }
        let is_old = |one: &mut Written| now.seconds_since(one.start) >= self.keep;
        for Written { path, .. } in written.extract_if(.., is_old) {
            // A reader may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the most frames in a folder.
fn fullest(written: &[Written]) -> usize {
    let folder = |one: &Written| one.path.parent().map(Path::to_owned);
    let same = |one| written.iter().filter(|other| folder(other) == folder(one)).count();
    written.iter().map(same).max().unwrap_or(0)
}

/// Frame that has been written, and may be there.
struct Written {
    start: Gps,
    path: PathBuf,
}

/// Frame to write.
struct Frame {
    name: String,
    strain: NewStrain,
}

impl Frame {
    /// Describes `count` samples from sample `first` on.
    fn new(simulator: &StrainSimulator, first: u64, count: usize) -> Self {
        let header = simulator.header();
        let rate = u64::from(header.rate_hz);
        let start = header.start.plus_samples(first as i64, header.rate_hz);
        let length_s = count as f64 / f64::from(header.rate_hz);
        let detector = header.detector.clone();
        let site = detector.get(..1).unwrap_or_default();
        let tag = if simulator.is_recorded() { "REC" } else { "SIM" };
        let name = format!("{site}-{detector}_{tag}-{}-{length_s}.gwf", start.s());
        let seconds = first / rate..(first + count as u64).div_ceil(rate);
        let strain = NewStrain {
            channel: None,
            start,
            rate_hz: header.rate_hz,
            samples: count as u64,
            description: description(simulator).to_owned(),
            bits: Some(simulator.bits(seconds)),
            is_compressed: false,
            detector,
        };
        Self { name, strain }
    }
}

/// Returns the description of a simulator's strain in a frame.
pub(super) fn description(simulator: &StrainSimulator) -> &'static str {
    if simulator.is_recorded() { "Recorded strain" } else { "Simulated strain" }
}
