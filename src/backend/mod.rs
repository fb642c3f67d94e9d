//! What a stage can run on.
//!
//! Invariant: a backend is chosen once, when a plan is bound; it is never global.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod roof;
pub mod simd;
pub mod threads;

use crate::error::{Error, Result};
use simd::Level;
use threads::Threads;

/// Where a stage's work is done.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The equation as loops in f64: slow, and the truth that the others are tested against.
    Reference,
    /// Vector instructions of one level, on a pool of threads.
    Cpu(Level, Threads),
    /// A GPU of NVIDIA's, and a pool of threads for what the host does beside it.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Device, Threads),
}

/// Where the host's own work is done.
#[derive(Clone, Debug)]
pub enum Host {
    /// As [`Backend::Reference`].
    Reference,
    /// As [`Backend::Cpu`].
    Cpu(Level, Threads),
}

impl Backend {
    /// The fastest backend of this machine, with `threads` threads (0: one a core).
    pub fn best(threads: usize) -> Self {
        Self::Cpu(Level::best(), Threads::new(threads))
    }

    /// Every backend that this machine has, slowest first, GPUs last, with `threads` threads.
    pub fn available(threads: usize) -> Vec<Self> {
        Self::with_devices(Self::of(Level::available(), threads), threads)
    }

    /// The backends of the host alone, with the variants of levels that some stages have code of their own
    /// for: what stages run on that have no kernels for a GPU.
    pub fn variants(threads: usize) -> Vec<Self> {
        Self::of(Level::variants(), threads)
    }

    /// What the host works with beside this backend: itself, unless it is a GPU.
    pub fn host(&self) -> Host {
        match self {
            Self::Reference => Host::Reference,
            Self::Cpu(level, threads) => Host::Cpu(*level, threads.clone()),
            #[cfg(feature = "cuda")]
            Self::Cuda(device, threads) => Host::Cpu(device.host_level(), threads.clone()),
        }
    }

    /// [`Backend::host`] as a backend: for work that is too small for a GPU.
    pub fn on_host(&self) -> Self {
        match self.host() {
            Host::Reference => Self::Reference,
            Host::Cpu(level, threads) => Self::Cpu(level, threads),
        }
    }

    #[cfg(feature = "cuda")]
    fn with_devices(mut backends: Vec<Self>, threads: usize) -> Vec<Self> {
        let devices = cuda::Device::all();
        backends
            .extend(devices.into_iter().map(|device| Self::Cuda(device, Threads::new(threads))));
        backends
    }

    #[cfg(not(feature = "cuda"))]
    fn with_devices(backends: Vec<Self>, _: usize) -> Vec<Self> {
        backends
    }

    fn of(levels: Vec<Level>, threads: usize) -> Vec<Self> {
        let pool = Threads::new(threads);
        let cpu = levels.into_iter().map(|level| Self::Cpu(level, pool.clone()));
        std::iter::once(Self::Reference).chain(cpu).collect()
    }

    /// The vector level that the host works with; none for the reference.
    pub fn level(&self) -> Option<Level> {
        match self.host() {
            Host::Reference => None,
            Host::Cpu(level, _) => Some(level),
        }
    }

    /// The name of [`Backend::level`], as documents have it.
    pub fn simd(&self) -> Option<&'static str> {
        self.level().map(Level::name)
    }

    /// Number of threads that it works on.
    pub fn threads(&self) -> usize {
        match self {
            Self::Reference => 1,
            Self::Cpu(_, threads) => threads.count(),
            #[cfg(feature = "cuda")]
            Self::Cuda(_, threads) => threads.count(),
        }
    }

    /// As [`Self::host`], for a stage that has no kernels for a GPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when this is one.
    pub fn only_host(&self, stage: &str) -> Result<Host> {
        if !self.is_gpu() {
            return Ok(self.host());
        }
        Err(Error::Unavailable {
            what: format!("{stage} on {}", self.name()),
            why: "it has no kernels for a GPU: use --device cpu".to_owned(),
        })
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        !matches!(self, Self::Reference | Self::Cpu(..))
    }

    /// A short name: `reference`, `cpu avx512 x2`, or `cuda:0` and the GPU's name.
    pub fn name(&self) -> String {
        match self {
            Self::Reference => "reference".to_owned(),
            Self::Cpu(level, threads) => format!("cpu {} x{}", level.name(), threads.count()),
            #[cfg(feature = "cuda")]
            Self::Cuda(device, _) => {
                format!("cuda:{} {}", device.ordinal(), device.properties().name)
            }
        }
    }
}
