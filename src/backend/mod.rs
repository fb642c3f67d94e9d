//! What a stage can run on.
//!
//! Invariant: a backend is chosen once, when a plan is bound; it is never global.

pub mod roof;
pub mod simd;
pub mod threads;

use simd::Level;
use threads::Threads;

/// Where a stage's work is done.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The equation as loops in f64: slow, and the truth that the others are tested against.
    Reference,
    /// Vector instructions of one level, on a pool of threads.
    Cpu(Level, Threads),
}

impl Backend {
    /// The fastest backend of this machine, with `threads` threads (0: one a core).
    pub fn best(threads: usize) -> Self {
        Self::Cpu(Level::best(), Threads::new(threads))
    }

    /// Every backend that this machine has, slowest first, with `threads` threads.
    pub fn available(threads: usize) -> Vec<Self> {
        Self::of(Level::available(), threads)
    }

    /// As [`Self::available`], with the variants of levels that some stages have code of their own for.
    pub fn variants(threads: usize) -> Vec<Self> {
        Self::of(Level::variants(), threads)
    }

    fn of(levels: Vec<Level>, threads: usize) -> Vec<Self> {
        let pool = Threads::new(threads);
        let cpu = levels.into_iter().map(|level| Self::Cpu(level, pool.clone()));
        std::iter::once(Self::Reference).chain(cpu).collect()
    }

    /// Number of threads that it works on.
    pub fn threads(&self) -> usize {
        match self {
            Self::Reference => 1,
            Self::Cpu(_, threads) => threads.count(),
        }
    }

    /// A short name: `reference`, or `cpu avx512 x2`.
    pub fn name(&self) -> String {
        match self {
            Self::Reference => "reference".to_owned(),
            Self::Cpu(level, threads) => format!("cpu {} x{}", level.name(), threads.count()),
        }
    }
}
