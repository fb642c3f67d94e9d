//! Devices: opening, properties, memory limit and notes for the user.

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cufft;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::compile::{CompilerProgram, Target};
use super::startup::{self, Step};
use super::{cache, compile};
use crate::backend::simd::Level;
use crate::error::{Error, Result};

/// Most GPUs that may be joined: bounds the memory of work that is divided among them.
pub const MOST_JOINED: usize = 32;

/// An open GPU, and the SIMD level of the accompanying host work; clones refer to the same GPU.
///
/// It may have peers ([`Device::with_peers`]), among which pipelines divide their work; stages use this GPU alone.
#[derive(Clone)]
pub struct Device {
    pub(super) inner: Arc<Inner>,
    level: Level,
    peers: Arc<[Self]>,
}

pub(super) struct Inner {
    ordinal: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    properties: Properties,
    state: Mutex<State>,
    /// Bytes copied to the host.
    copied_out: AtomicU64,
    /// Limit on allocated device memory in bytes, and the bytes allocated.
    pub(super) limit: AtomicUsize,
    pub(super) held: AtomicUsize,
}

// SAFETY: the driver allows any thread to use a context; each call binds it first.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Product name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Architecture for which its kernels are compiled; kernel selection follows it too.
    pub target: Target,
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Bytes of device memory.
    pub memory_bytes: usize,
    /// Bytes of L2 cache.
    pub l2_bytes: usize,
    /// Maximum bytes of shared memory per block.
    pub shared_bytes: usize,
    /// CUDA version of the driver: 1000 x major + 10 x minor.
    pub driver_version: u32,
}

impl Device {
    /// Returns the number of devices of this machine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without a driver; [`Error::Device`] if the driver fails.
    pub fn count() -> Result<usize> {
        start()?;
        let mut count = 0;
        // SAFETY: writes one integer.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without a driver or such a device; [`Error::Device`] if the driver fails.
    pub fn open(ordinal: usize) -> Result<Self> {
        // NVRTC, a large library, is loaded while the driver starts.
        std::thread::scope(|scope| {
            scope.spawn(compile::installed);
            Self::open_started(ordinal)
        })
    }

    /// Opens several devices at the same time, since each takes some tenths of a second.
    ///
    /// # Errors
    /// As [`Device::open`], of the first device that cannot be opened.
    pub fn open_each(ordinals: &[usize]) -> Result<Vec<Self>> {
        std::thread::scope(|scope| {
            let open = |ordinal: &usize| {
                let ordinal = *ordinal;
                scope.spawn(move || Self::open(ordinal))
            };
            let opening: Vec<_> = ordinals.iter().map(open).collect();
            let ended = opening.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    fn open_started(ordinal: usize) -> Result<Self> {
        let count = Self::count()?;
        if ordinal >= count {
            let why = match count {
                0 => "the driver finds no GPU".to_owned(),
                1 => "this machine has one device, number 0".to_owned(),
                _ => format!("this machine has devices 0 to {}", count - 1),
            };
            return Err(Error::Unavailable { what: format!("CUDA device {ordinal}"), why });
        }
        let mut handle = 0;
        let mut context = std::ptr::null_mut();
        startup::timed(Step::Context, Result::is_ok, || {
            // SAFETY: both calls write to the pointers passed; the context is released in `Inner::drop`.
            unsafe {
                check("cuDeviceGet", sys::cuDeviceGet(&raw mut handle, ordinal as i32))?;
                let retained = sys::cuDevicePrimaryCtxRetain(&raw mut context, handle);
                let what = format!("CUDA device {ordinal}");
                check_open(&what, "cuDevicePrimaryCtxRetain", retained)?;
            }
            retain_context(ordinal, handle)
        })?;
        let properties = Properties::of(handle)?;
        let state = Mutex::new(State::with_notes(notes(&properties)));
        let copied_out = AtomicU64::new(0);
        let (limit, held) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let inner = Inner { ordinal, handle, context, properties, state, copied_out, limit, held };
        Ok(Self { inner: Arc::new(inner), level: Level::best(), peers: Arc::default() })
    }

    /// Opens every device that can be opened.
    pub fn all() -> Vec<Self> {
        let count = Self::count().unwrap_or(0);
        (0..count).filter_map(|ordinal| Self::open(ordinal).ok()).collect()
    }

    /// Returns the same GPU with another SIMD level for the accompanying host work.
    #[must_use]
    pub fn with_host_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Returns the same GPU with others of this host as its peers. They reach each other's memory directly where the hardware
    /// allows it (NVLink, or PCIe below one root); elsewhere copies between them pass through the host.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a GPU is named twice, or for more than [`MOST_JOINED`]; [`Error::Device`] if the driver fails.
    pub fn with_peers(self, peers: Vec<Self>) -> Result<Self> {
        if peers.len() >= MOST_JOINED {
            let rule = format!("at most {MOST_JOINED} may be used together");
            return Err(Error::parameter("number of CUDA devices", 1 + peers.len(), rule));
        }
        let mut all: Vec<&Self> = vec![&self];
        for peer in &peers {
            if all.contains(&peer) {
                return Err(Error::parameter("CUDA device", peer.ordinal(), "it is named twice"));
            }
            all.push(peer);
        }
        for device in &all {
            for other in all.iter().filter(|other| *other != device) {
                device.reach(other)?;
            }
        }
        Ok(Self { peers: peers.into(), ..self })
    }

    /// Returns the same GPU without its peers.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { peers: Arc::default(), ..self.clone() }
    }

    /// Returns the peers, without this GPU.
    pub fn peers(&self) -> &[Self] {
        &self.peers
    }

    /// Returns this GPU and its peers.
    pub fn joined(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.peers())
    }

    /// Returns whether the hardware allows this GPU to access the memory of another. Otherwise copies between them pass through the
    /// host.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn reaches(&self, other: &Self) -> Result<bool> {
        let mut is_possible = 0;
        let (own, others) = (self.inner.handle, other.inner.handle);
        // SAFETY: writes one integer; both handles are valid.
        check("cuDeviceCanAccessPeer", unsafe {
            sys::cuDeviceCanAccessPeer(&raw mut is_possible, own, others)
        })?;
        Ok(is_possible != 0)
    }

    /// Makes the memory of another GPU accessible to this one, if the hardware allows it.
    fn reach(&self, other: &Self) -> Result<()> {
        if !self.reaches(other)? {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the other context lives as long as `other`, and a second reference to it as long as the process.
        match unsafe { sys::cuCtxEnablePeerAccess(other.inner.context, 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => check("cuCtxEnablePeerAccess", result),
        }
    }

    /// Returns the context, for copies between devices.
    pub(super) fn context(&self) -> sys::CUcontext {
        self.inner.context
    }

    /// Returns the SIMD level of the accompanying host work.
    pub fn host_level(&self) -> Level {
        self.level
    }

    /// Returns the device's index among those of the machine.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Returns the device's properties.
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// Returns the architecture that NVRTC compiles for: [`Target::architecture`].
    pub fn architecture(&self) -> String {
        self.inner.properties.target.architecture()
    }

    /// Returns whether its kernels may use Hopper's matrix instructions (`wgmma`) and bulk copies.
    pub fn is_hopper(&self) -> bool {
        self.inner.properties.target == Target { capability: (9, 0), is_own: true }
    }

    /// Returns its PCI bus address, which identifies it in `nvidia-smi`.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn bus_id(&self) -> Result<String> {
        let mut text = [0_u8; 64];
        // SAFETY: writes into the buffer within its length, with a terminating zero.
        check("cuDeviceGetPCIBusId", unsafe {
            let room = text.len() as i32;
            sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), room, self.inner.handle)
        })?;
        let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }

    /// Limits device memory to `bytes` bytes from now on; stages then use smaller blocks.
    pub fn limit_memory(&self, bytes: usize) {
        self.inner.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of free device memory, within the limit.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn free_bytes(&self) -> Result<usize> {
        let (limit, held) = (&self.inner.limit, &self.inner.held);
        let within = limit.load(Ordering::Relaxed).saturating_sub(held.load(Ordering::Relaxed));
        Ok(within.min(self.driver_free_bytes()?))
    }

    fn driver_free_bytes(&self) -> Result<usize> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    /// Returns the bytes that this handle and its clones have copied to the host or enqueued for copying.
    pub fn copied_out_bytes(&self) -> u64 {
        self.inner.copied_out.load(Ordering::Relaxed)
    }

    pub(super) fn count_copied_out(&self, bytes: usize) {
        self.inner.copied_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns and clears the notes for the user: tuned choices that were not used, kernels compiled for an older
    /// architecture, and, once in a process, a cache folder that cannot be written.
    pub fn take_notes(&self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.state().notes);
        notes.extend(cache::take_note());
        notes
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes this device current for the calling thread.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.context) })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.inner.ordinal)
            .field("properties", &self.inner.properties)
            .finish()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.inner.ordinal == other.inner.ordinal
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; nothing that uses the context outlives it.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

impl Properties {
    fn of(handle: sys::CUdevice) -> Result<Self> {
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, handle) };
            check("cuDeviceGetAttribute", result).map(|()| usize::try_from(value).unwrap_or(0))
        };
        let mut name = [0_u8; 256];
        let (mut memory_bytes, mut driver_version) = (0, 0);
        // SAFETY: each call writes within the length passed; the name is zero-terminated.
        unsafe {
            let room = name.len() as i32;
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), room, handle))?;
            let total = sys::cuDeviceTotalMem_v2(&raw mut memory_bytes, handle);
            check("cuDeviceTotalMem", total)?;
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&raw mut driver_version))?;
        }
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let capability = (major as u32, minor as u32);
        let compiler = cache::compiler();
        let known = compiler.as_ref().map_or(&[][..], |compiler| &compiler.known);
        Ok(Self {
            name: String::from_utf8_lossy(&name[..length]).into_owned(),
            capability,
            target: Target::new(capability, known),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            driver_version: u32::try_from(driver_version).unwrap_or(0),
        })
    }
}

/// Returns the notes for the user that apply from the start.
fn notes(properties: &Properties) -> Vec<String> {
    let Properties { name, capability, target, .. } = properties;
    let compiler = cache::compiler();
    compiler.and_then(|compiler| target.note(name, *capability, &compiler)).into_iter().collect()
}

/// Retains a device's context until the process ends, because creating another one takes a large fraction of a second.
fn retain_context(ordinal: usize, handle: sys::CUdevice) -> Result<()> {
    static RETAINED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let mut ordinals = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if !ordinals.contains(&ordinal) {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle; this reference is never released.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, handle) };
        check("cuDevicePrimaryCtxRetain", retained)?;
        ordinals.push(ordinal);
    }
    Ok(())
}

/// Loads and initializes the driver.
fn start() -> Result<()> {
    startup::timed(Step::Driver, Result::is_ok, initialize)
}

fn initialize() -> Result<()> {
    // SAFETY: only checks whether the library can be loaded; its initializers run nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::Unavailable {
            what: "a CUDA device".to_owned(),
            why: "the NVIDIA driver (libcuda.so.1) is not installed, or not on the library path: \
                  install your system's package of it"
                .to_owned(),
        });
    }
    // SAFETY: the library is present; the flags must be 0.
    check_open("a CUDA device", "cuInit", unsafe { sys::cuInit(0) })
}

/// Converts the driver's result of `call`.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        // The driver also allocates memory internally, for streams and modules.
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::Unavailable {
            what: format!("memory on the CUDA device, which {call} asks for,"),
            why: format!("it is full; {OTHERS}"),
        }),
        _ => Err(Error::Device { call, code: result as i64, text: text(result) }),
    }
}

/// Possible users of device memory.
pub(super) const OTHERS: &str = "other programs may hold it (`nvidia-smi` shows them)";

/// Like [`check`], for calls needed to open a device; the error says what the user can do.
pub(super) fn check_open(what: &str, call: &'static str, result: CUresult) -> Result<()> {
    let why = match result {
        CUresult::CUDA_ERROR_NO_DEVICE => "the driver finds no GPU".to_owned(),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            format!("its memory is full, so that nothing can be started on it; {OTHERS}")
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "it is busy: another program has it to itself (`nvidia-smi` shows its compute mode)"
                .to_owned()
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library (libcuda.so.1) and its kernel module are of different versions: \
             restart the machine, or install the driver again"
                .to_owned()
        }
        _ => return check(call, result),
    };
    Err(Error::Unavailable { what: what.to_owned(), why })
}

/// Returns the driver's name and text of a result code.
fn text(result: CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both calls write null or a pointer to a string that lives as long as the driver.
    unsafe {
        let _ = sys::cuGetErrorName(result, &raw mut name);
        let _ = sys::cuGetErrorString(result, &raw mut text);
    }
    format!("{}: {}", string(name), string(text))
}

fn string(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, and the driver's strings are zero-terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Available CUDA components; the text of each missing one says what to install.
#[derive(Debug)]
pub struct Status {
    /// CUDA version of the driver (1000 x major + 10 x minor), or why it is missing.
    pub driver: std::result::Result<u32, String>,
    /// Version of NVRTC (major, minor), or why it is missing.
    pub nvrtc: std::result::Result<(u32, u32), String>,
    /// Version of cuFFT, or why it is missing.
    pub cufft: std::result::Result<u32, String>,
    /// Devices that can be opened.
    pub devices: Vec<Device>,
}

/// Looks up the driver, NVRTC, cuFFT and the devices.
pub fn status() -> Status {
    let devices = Device::all();
    let driver = match (Device::count(), devices.first()) {
        (Err(Error::Unavailable { why, .. }), _) => Err(why),
        (Err(error), _) => Err(error.to_string()),
        (Ok(0), _) => Err("the driver is installed, but finds no GPU".to_owned()),
        (Ok(_), None) => Err("the driver finds a GPU that can't be opened".to_owned()),
        (Ok(_), Some(device)) => Ok(device.properties().driver_version),
    };
    Status { driver, nvrtc: compile::version(), cufft: cufft_version(), devices }
}

/// Checks that kernels are available: from NVRTC, or from the cache of an NVRTC used earlier.
///
/// # Errors
/// [`Error::Unavailable`] without either, with what to install.
pub fn kernels_at_hand() -> crate::error::Result<()> {
    match compile::nvrtc() {
        Err(missing) if cache::recorded_compiler().is_none() => Err(missing),
        _ => Ok(()),
    }
}

/// Returns cuFFT's version.
pub(super) fn cufft_version() -> std::result::Result<u32, String> {
    // SAFETY: only checks whether the library can be loaded.
    if !unsafe { cufft::sys::is_culib_present() } {
        return Err("cuFFT (libcufft.so.12 or .11) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cufft`; only channels that are no power of two \
                    and very many, and coherent dedispersion, need it"
            .to_owned());
    }
    let mut version = 0;
    // SAFETY: the library is present; writes one integer.
    let _ = unsafe { cufft::sys::cufftGetVersion(&raw mut version) };
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Tuning candidate: one configuration of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name for tables, such as `tile 64 x 128, 3 stages`.
    pub name: String,
    /// Values of the kernel's parameters.
    pub values: Vec<u32>,
}

/// Kernel, device and shape for which a choice is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TuningKey {
    pub(super) kernel: String,
    pub(super) kernel_hash: u128,
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) shape: String,
}

/// State of a device's tuning, and notes for its user.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) is_tuning: bool,
    /// Program that compiles the best kernels while stages begin with quick ones.
    pub(super) quick_start: Option<CompilerProgram>,
    pub(super) pending: Vec<PendingKey>,
    pub(super) forced: Vec<(TuningKey, Candidate)>,
    pub(super) notes: Vec<String>,
}

/// Kernel that a plan uses, and its tuning candidates.
#[derive(Clone, Debug)]
pub(super) struct PendingKey {
    pub(super) key: TuningKey,
    pub(super) candidates: Vec<Candidate>,
}

impl State {
    /// Returns the state of a device with notes that apply from the start.
    pub(super) fn with_notes(notes: Vec<String>) -> Self {
        Self { notes, ..Self::default() }
    }

    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}
