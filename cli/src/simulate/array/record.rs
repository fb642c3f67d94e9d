//! Writes the antennas' files, several at a time.

use std::path::PathBuf;

use sidereal::backend::threads::Threads;
use sidereal::io::voltages::VoltageSource;
use sidereal::simulate::array::{ArrayAntenna, ArraySimulator};
use sidereal::voltage::VoltageBlock;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::interrupt;
use crate::progress::Progress;
use crate::simulate::voltages::writer::{Format, Writer};

/// Approximate bytes of an antenna made at once, and the limits of its samples per stream.
const GULP_BYTES: usize = 8 << 20;
const GULP_TIMES: (usize, usize) = (1 << 10, 1 << 16);

/// File to write.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Index of the antenna.
    pub(super) antenna: usize,
    pub(super) path: PathBuf,
    /// Block length if whole blocks are missing.
    pub(super) block: Option<usize>,
}

/// Writes every target, as many antennas at once as there are threads.
pub(super) fn record(
    simulator: &ArraySimulator,
    targets: &[Target],
    format: Format,
    common: &Common,
) -> Result<()> {
    let threads = Threads::new(common.threads()?);
    let Some(first) = targets.first() else { return Ok(()) };
    let header = simulator.antenna(first.antenna)?.header().clone();
    let times = header.times.unwrap_or(0);
    let all = times * targets.len() as u64;
    let each = header.tsamp_s / targets.len() as f64;
    let progress = Progress::new(common, Some(all), header.streams(), each);
    let mut done = 0;
    for group in targets.chunks(threads.count()) {
        let job = |target| Job::new(simulator, target, format);
        let mut jobs = group.iter().map(job).collect::<Result<Vec<_>>>()?;
        let mut nothing = vec![(); threads.count()];
        while jobs.iter().any(|job| !job.ended) {
            interrupt::check()?;
            threads.for_each_chunk(&mut nothing, &mut jobs, 1, |(), _, jobs| {
                jobs.iter_mut().for_each(Job::step);
            });
            if let Some(fault) = jobs.iter_mut().find_map(|job| job.fault.take()) {
                return Err(fault);
            }
            progress.at(done + jobs.iter().map(|job| job.done).sum::<u64>());
        }
        done += times * group.len() as u64;
        jobs.into_iter().try_for_each(|job| job.writer.finish())?;
    }
    progress.finish();
    Ok(())
}

/// Antenna's file in progress.
struct Job {
    antenna: ArrayAntenna,
    writer: Writer,
    block: VoltageBlock<'static>,
    /// Whether the gaps are whole missing blocks.
    pieces: bool,
    /// Blocks to write before the thread continues with another antenna.
    turn: usize,
    done: u64,
    ended: bool,
    fault: Option<Error>,
}

impl Job {
    fn new(simulator: &ArraySimulator, target: &Target, format: Format) -> Result<Self> {
        let antenna = simulator.antenna(target.antenna)?;
        let header = antenna.header();
        let writer = Writer::create(format, &target.path, header, target.block)?;
        let (fewest, most) = GULP_TIMES;
        let bytes = header.encoding.bytes(fewest) * header.streams();
        let usual = (GULP_BYTES / bytes * fewest).clamp(fewest, most);
        let length = target.block.unwrap_or(usual);
        Ok(Self {
            writer,
            block: header.block(length),
            pieces: target.block.is_some(),
            turn: usual.div_ceil(length),
            done: 0,
            ended: false,
            fault: None,
            antenna,
        })
    }

    fn step(&mut self) {
        for _ in 0..self.turn {
            if self.ended {
                return;
            }
            if let Err(fault) = self.write() {
                (self.fault, self.ended) = (Some(fault), true);
            }
        }
    }

    fn write(&mut self) -> Result<()> {
        let times = self.antenna.read(&mut self.block)? as u64;
        if times == 0 {
            self.ended = true;
            return Ok(());
        }
        let (start, end) = (self.done, self.done + times);
        let flags = self.antenna.flags();
        let missing = flags.iter().any(|gap| gap.start <= start && end <= gap.start + gap.times);
        self.done = end;
        if self.pieces && missing {
            return self.writer.leave_out(self.block.voltages());
        }
        self.writer.write(self.block.voltages())
    }
}
