//! Execution backends of the stages.
//!
//! Invariant: a backend is chosen once, when a plan is bound; there is no global backend.

pub mod cuda;
mod pages;
pub mod roof;
pub mod simd;
pub mod threads;
// Some stages do not use it yet, so parts of it are unused.
#[allow(dead_code)]
pub(crate) mod vector;

pub(crate) use pages::{lock_memory, resize_in_huge_pages};
use simd::Level;
use threads::Threads;

/// Backend that runs a stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Backend {
    /// Reference: the equation as loops in f64, against which the other backends are tested.
    Reference,
    /// Vector instructions of one SIMD level on a thread pool.
    Cpu(Level, Threads),
    /// NVIDIA GPU, and a thread pool for the accompanying host work.
    Cuda(cuda::Device, Threads),
}

/// Host part of a backend.
#[derive(Clone, Debug)]
pub enum Host {
    /// Same as [`Backend::Reference`].
    Reference,
    /// Same as [`Backend::Cpu`].
    Cpu(Level, Threads),
}

impl Host {
    /// Returns the thread pool; one thread for the reference.
    pub fn threads(&self) -> Threads {
        match self {
            Self::Reference => Threads::new(1),
            Self::Cpu(_, threads) => threads.clone(),
        }
    }
}

impl Backend {
    /// Returns the fastest CPU backend of this machine with `threads` threads (0: one per core).
    pub fn best(threads: usize) -> Self {
        Self::Cpu(Level::best(), Threads::new(threads))
    }

    /// Returns all backends of this machine with `threads` threads, slowest first, GPUs last.
    pub fn available(threads: usize) -> Vec<Self> {
        Self::with_devices(Self::of(Level::available(), threads), threads)
    }

    /// Returns the host backends only, including variants of SIMD levels for which some stages have separate code.
    /// Stages without GPU kernels run on these.
    pub fn variants(threads: usize) -> Vec<Self> {
        Self::of(Level::variants(), threads)
    }

    /// Returns the host part: the backend itself, unless it is a GPU.
    pub fn host(&self) -> Host {
        match self {
            Self::Reference => Host::Reference,
            Self::Cpu(level, threads) => Host::Cpu(*level, threads.clone()),
            Self::Cuda(device, threads) => Host::Cpu(device.host_level(), threads.clone()),
        }
    }

    /// Returns [`Backend::host`] as a backend, for work too small for a GPU.
    pub fn on_host(&self) -> Self {
        match self.host() {
            Host::Reference => Self::Reference,
            Host::Cpu(level, threads) => Self::Cpu(level, threads),
        }
    }

    fn with_devices(mut backends: Vec<Self>, threads: usize) -> Vec<Self> {
        let devices = cuda::Device::all();
        backends
            .extend(devices.into_iter().map(|device| Self::Cuda(device, Threads::new(threads))));
        backends
    }

    fn of(levels: Vec<Level>, threads: usize) -> Vec<Self> {
        let pool = Threads::new(threads);
        let cpu = levels.into_iter().map(|level| Self::Cpu(level, pool.clone()));
        std::iter::once(Self::Reference).chain(cpu).collect()
    }

    /// Returns a backend without peers for each device among which a pipeline divides its work: one for a GPU and each of its peers,
    /// otherwise this one alone.
    pub fn shares(&self) -> Vec<Self> {
        match self {
            Self::Cuda(device, threads) => {
                device.joined().map(|device| Self::Cuda(device.alone(), threads.clone())).collect()
            }
            Self::Reference | Self::Cpu(..) => vec![self.clone()],
        }
    }

    /// Returns this backend without the peers of its GPU.
    #[must_use]
    pub fn alone(&self) -> Self {
        match self {
            Self::Cuda(device, threads) => Self::Cuda(device.alone(), threads.clone()),
            Self::Reference | Self::Cpu(..) => self.clone(),
        }
    }

    /// Returns the SIMD level of the host part; `None` for the reference.
    pub fn level(&self) -> Option<Level> {
        match self.host() {
            Host::Reference => None,
            Host::Cpu(level, _) => Some(level),
        }
    }

    /// Returns the name of [`Backend::level`], as used in documents.
    pub fn simd(&self) -> Option<&'static str> {
        self.level().map(Level::name)
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        match self {
            Self::Reference => 1,
            Self::Cpu(_, threads) => threads.count(),
            Self::Cuda(_, threads) => threads.count(),
        }
    }

    /// Returns whether this backend is a GPU.
    pub fn is_gpu(&self) -> bool {
        !matches!(self, Self::Reference | Self::Cpu(..))
    }

    /// Returns a short name: `reference`, `cpu avx512 x2`, or the numbers and the name of GPUs: `cuda:0,1 NVIDIA H200`; GPUs of
    /// different kinds follow each other, joined by ` + `.
    pub fn name(&self) -> String {
        match self {
            Self::Reference => "reference".to_owned(),
            Self::Cpu(level, threads) => format!("cpu {} x{}", level.name(), threads.count()),
            Self::Cuda(device, _) => name_of(device),
        }
    }
}

/// Returns the numbers and names of a GPU and its peers, those of one kind together.
fn name_of(device: &cuda::Device) -> String {
    let mut kinds: Vec<(&str, Vec<String>)> = Vec::new();
    for device in device.joined() {
        let (name, ordinal) = (device.properties().name.as_str(), device.ordinal().to_string());
        match kinds.iter_mut().find(|(own, _)| *own == name) {
            Some((_, ordinals)) => ordinals.push(ordinal),
            None => kinds.push((name, vec![ordinal])),
        }
    }
    let texts: Vec<String> = kinds
        .iter()
        .map(|(name, ordinals)| format!("cuda:{} {name}", ordinals.join(",")))
        .collect();
    texts.join(" + ")
}
