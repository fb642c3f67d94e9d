//! Detection of interference by the statistics of blocks of rows, and its removal.
//!
//! Invariant: blocks begin at multiples of their length, so that how rows are read changes nothing; what is decided of a
//! block depends on the blocks before it, on it and on the next one; rows without interference stay as they are.

mod analysis;
mod block;
mod broadband;
mod iqrm;
mod profile;
mod record;
mod removal;
mod steps;
mod treatment;

use std::sync::Arc;

use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::sample::Encoding;
use analysis::Analysis;
use block::{Block, Settings};
pub use iqrm::iqrm_mask;
use profile::Amplitudes;
pub use record::Removals;
pub use steps::{Bandpass, Mitigated, Rfi, Steps};
use treatment::{DONORS, Treatment};

/// Fewest and most rows of a block.
const MIN_ROWS: usize = 512;
const MAX_ROWS: usize = 1 << 14;

/// Largest size of a block in bytes, but at least 64 rows.
const BLOCK_BYTES: usize = 8 << 20;

/// Largest number of bytes in a batch of blocks processed in parallel, and blocks per thread.
const BATCH_BYTES: usize = 64 << 20;
const BLOCKS_PER_THREAD: usize = 8;

/// Fewest channels for channel outliers and for telling a broadband signal from a dispersed one.
const MIN_CHANNELS: usize = 64;

/// Finds interference in a stream block by block and removes it.
///
/// | buffer | axes          | type                   | unit   | access               |
/// |--------|---------------|------------------------|--------|----------------------|
/// | block  | time, channel | the recording's        | counts | read and overwritten |
///
/// - **IQRM**: channels whose deviation or mean is an outlier in a block ([`iqrm_mask`]) hold their level there and
///   in the adjacent blocks.
/// - **Bandpass**: `x - m (a - A)`, `a = (x . m) / (m . m)`, where m is the channels' levels (running medians over 16
///   blocks) and A the level of `a`; applied to spectra in which `a` is an outlier over the whole band at once. If
///   the noise's profile differs from m, its part orthogonal to m is fitted as well.
/// - **Time**: spectra of dropouts are replaced by nearby spectra in random order, which have noise and no pulse.
///   After a gain step `m (L - A)` is subtracted, where L is the running median of `a` over a block's length.
///
/// # Numerics
/// Sums run in a fixed order on the host: the same bits for every backend, vector level, number of threads and number
/// of blocks pushed together. Integers are rounded with offsets that spread over the channels, so that no fraction of
/// a count remains in all of them.
#[derive(Debug)]
pub struct Mitigator {
    settings: Arc<Settings>,
    analysis: Analysis,
    treatment: Treatment,
    /// Analyzed blocks that are treated while the next ones are analyzed.
    analyzed: Vec<Block>,
    /// The calling thread and one more, for both at the same time.
    pair: Option<Threads>,
}

impl Mitigator {
    /// Creates a mitigator for rows of an encoding with `masked` channels excluded throughout. `first` holds the
    /// stream's first rows, which give the initial levels.
    ///
    /// # Errors
    /// Errors of [`Samples::new`](crate::sample::Samples::new) for rows that are not whole.
    pub fn new(
        first: &[u8],
        encoding: Encoding,
        tsamp_s: f64,
        masked: &[bool],
        steps: Steps,
        block_s: f64,
        backend: &Backend,
    ) -> Result<Self> {
        let channels = masked.len();
        let row_bytes = channels * encoding.bits() / 8;
        let (vectors, threads) = match backend.host() {
            Host::Cpu(vectors, threads) => (vectors, threads),
            Host::Reference => (Level::Portable, Threads::new(1)),
        };
        // Samples of 1 and 2 bits cannot represent corrections below their noise.
        let is_coarse = matches!(encoding, Encoding::U1 | Encoding::U2);
        let is_narrow = channels < MIN_CHANNELS;
        let settings = Arc::new(Settings {
            channels,
            encoding,
            steps: Steps {
                iqrm: steps.iqrm && !is_narrow,
                bandpass: if is_coarse || is_narrow { Bandpass::Off } else { steps.bandpass },
                time: steps.time && !is_coarse && !is_narrow,
            },
            block_rows: Self::rows_of_block(block_s / tsamp_s, row_bytes),
            masked: masked.to_vec(),
            vectors,
            threads,
        });
        let analysis = Analysis::new(&settings, first)?;
        let treatment = Treatment::new(&settings);
        Ok(Self { settings, analysis, treatment, analyzed: Vec::new(), pair: None })
    }

    fn rows_of_block(wanted: f64, row_bytes: usize) -> usize {
        let wanted = wanted.clamp(1.0, 1e9) as usize;
        let rows = wanted.next_power_of_two().clamp(MIN_ROWS, MAX_ROWS);
        let most = 1 << (BLOCK_BYTES / row_bytes.max(1)).max(1).ilog2();
        rows.min(most).max(MIN_ROWS / 8)
    }

    /// Records what is removed from now on, before the first block, in at most `most_bytes`.
    pub fn record(&mut self, most_bytes: usize) {
        self.treatment.record(most_bytes);
    }

    /// Takes the record of the blocks returned so far; `None` if there is none or its limit did not suffice.
    pub fn take_removals(&mut self) -> Option<Removals> {
        self.treatment.removals.take().filter(Removals::is_whole)
    }

    /// Returns whether no step is active, as for few channels. Samples of 1 and 2 bits allow IQRM only.
    pub fn is_idle(&self) -> bool {
        let steps = self.settings.steps;
        !steps.iqrm && !steps.time && steps.bandpass == Bandpass::Off
    }

    /// Returns the active steps.
    pub fn steps(&self) -> Steps {
        self.settings.steps
    }

    /// Returns the threads that process blocks.
    pub fn threads(&self) -> &Threads {
        &self.settings.threads
    }

    /// Returns the rows of a block; the last of a stream may have fewer.
    pub fn block_rows(&self) -> usize {
        self.settings.block_rows
    }

    /// Returns the best number of blocks to push together, of at most `most` bytes if there are several.
    pub fn batch_blocks(&self, most: usize) -> usize {
        let Settings { block_rows, threads, .. } = &*self.settings;
        if threads.count() == 1 {
            return 1;
        }
        let block = block_rows * self.settings.row_bytes();
        let fitting = most.min(BATCH_BYTES) / block.max(1);
        fitting.clamp(1, BLOCKS_PER_THREAD * threads.count())
    }

    /// Returns the memory in use while `blocks` blocks are pushed together, including the reader's rows and the limit of
    /// the record.
    pub fn held_bytes(&self, blocks: usize) -> usize {
        let Settings { channels, block_rows, .. } = *self.settings;
        let row_bytes = self.settings.row_bytes();
        let spectra = block_rows * (size_of::<Amplitudes>() + 32);
        let block = block_rows * row_bytes + spectra + 100 * channels;
        let record = self.treatment.removals.as_ref().map_or(0, Removals::most_bytes);
        (blocks + 3) * block + DONORS * row_bytes + 300 * channels + record
    }

    /// Returns the statistics of the blocks returned so far.
    pub fn mitigated(&self) -> Mitigated {
        let Settings { steps, block_rows, .. } = *self.settings;
        Mitigated { steps, block_rows, ..self.treatment.mitigated }
    }

    /// Processes the next blocks, all complete except the stream's last. Returns the finished blocks, including the
    /// one held by the previous call and excluding the last of this one.
    ///
    /// # Errors
    /// Errors of [`Samples::new`](crate::sample::Samples::new) for rows that are not whole.
    pub fn push(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let mut analyzed = std::mem::take(&mut self.analyzed);
        analyzed.extend(self.analysis.analyze(blocks)?);
        self.treatment.push(analyzed)
    }

    /// Like [`Mitigator::push`], but analyzes these blocks while those of the previous such call are treated: returns blocks up
    /// to one call later. This uses the threads better, since each has parts that use one thread only.
    ///
    /// # Errors
    /// As [`Mitigator::push`].
    pub fn push_ahead(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let analyzed = std::mem::take(&mut self.analyzed);
        let Self { analysis, treatment, pair, .. } = self;
        let pair = pair.get_or_insert_with(|| Threads::new(2));
        let (next, done) = pair.beside(|| analysis.analyze(blocks), || treatment.push(analyzed));
        self.analyzed = next?;
        done
    }

    /// Returns the remaining blocks.
    ///
    /// # Errors
    /// As [`Mitigator::push`].
    pub fn flush(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut done = self.treatment.push(std::mem::take(&mut self.analyzed))?;
        done.extend(self.treatment.flush()?);
        Ok(done)
    }
}
