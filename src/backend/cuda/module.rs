//! Kernels on a device, and tensor maps for their bulk copies (Hopper and later). Launches allocate no memory and take
//! no locks, unless a trace is recorded.

use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUtensorMap};

use super::device::check;
use super::startup::{self, Step};
use super::{Device, Source, Stream, cache};
use crate::error::{Error, Result};
use crate::trace::{self, Work};

/// Loaded module of compiled kernels.
#[derive(Debug)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    device: Device,
    handle: sys::CUmodule,
}

// SAFETY: the driver allows any thread to use a module.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// Kernel of a module, with its dynamic shared memory per block.
#[derive(Clone, Debug)]
pub struct Function {
    name: String,
    handle: sys::CUfunction,
    shared_bytes: u32,
    /// Keeps the module loaded as long as its kernels.
    _module: Arc<Loaded>,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Maximum number of kernel arguments.
const MOST: usize = 40;

/// Maximum number of tensor maps among the arguments.
const MAX_TENSORS: usize = 2;

/// Arguments of a kernel, in order: values and addresses of at most 8 bytes, and tensor maps.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    values: [Argument; MOST],
    count: usize,
    tensors: [Option<Tensor>; MAX_TENSORS],
}

#[derive(Clone, Copy, Debug)]
enum Argument {
    Value(u64),
    /// Index among the tensor maps.
    Tensor(usize),
}

impl Default for Arguments {
    fn default() -> Self {
        Self { values: [Argument::Value(0); MOST], count: 0, tensors: [None; MAX_TENSORS] }
    }
}

impl Arguments {
    /// Creates an empty argument list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an argument of exactly the type that the kernel declares (`u64` for a pointer).
    ///
    /// # Panics
    /// If there are more than 40 arguments, or one has more than 8 bytes.
    #[must_use]
    pub fn with<T: Pod>(mut self, value: T) -> Self {
        let bytes = bytemuck::bytes_of(&value);
        let mut word = 0_u64;
        bytemuck::bytes_of_mut(&mut word)[..bytes.len()].copy_from_slice(bytes);
        self.values[self.count] = Argument::Value(word);
        self.count += 1;
        self
    }

    /// Appends a tensor map, which the kernel declares as `const __grid_constant__ TensorMap`.
    ///
    /// # Panics
    /// If there are more than 40 arguments, or more than 2 tensor maps.
    #[must_use]
    pub fn with_tensor(mut self, tensor: Tensor) -> Self {
        let number = self.tensors.iter().flatten().count();
        self.tensors[number] = Some(tensor);
        self.values[self.count] = Argument::Tensor(number);
        self.count += 1;
        self
    }

    /// Returns a pointer to argument `index`.
    fn pointer(&self, index: usize) -> *const c_void {
        match &self.values[index] {
            Argument::Value(value) => std::ptr::from_ref(value).cast(),
            Argument::Tensor(number) => self.tensors[*number]
                .as_ref()
                .map_or(std::ptr::null(), |tensor| std::ptr::from_ref(tensor).cast()),
        }
    }
}

impl Device {
    /// Compiles a source for this device, or loads it from the cache, and loads the module. Waits for another thread
    /// that is doing so, such as that of a [`Prefetch`](super::Prefetch).
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NVRTC; [`Error::Device`] if it or the driver fails.
    pub fn module(&self, source: &Source) -> Result<Module> {
        let _span = trace::span(Work::Compile, source.name);
        let architecture = self.architecture();
        let cubin = cache::cubin(source, &architecture)?;
        match Module::load(self, &cubin.code) {
            Err(_) if cubin.is_stored => {
                Module::load(self, &cache::compiled(source, &architecture)?.code)
            }
            loaded => loaded,
        }
    }
}

impl Module {
    /// Loads machine code or PTX.
    pub(super) fn load(device: &Device, code: &[u8]) -> Result<Self> {
        device.bind()?;
        startup::timed(Step::Loaded, Result::is_ok, || {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the image is a complete cubin or zero-terminated text, which the driver checks and copies.
            let result = unsafe { sys::cuModuleLoadData(&raw mut handle, code.as_ptr().cast()) };
            check("cuModuleLoadData", result)?;
            Ok(Self(Arc::new(Loaded { device: device.clone(), handle })))
        })
    }

    /// Returns a kernel with `shared_bytes` of dynamic shared memory per block. It keeps its module loaded.
    ///
    /// # Errors
    /// [`Error::Device`] if the module has no such kernel; [`Error::Unavailable`] if the device has less shared
    /// memory.
    pub fn function(&self, name: &str, shared_bytes: usize) -> Result<Function> {
        let Loaded { device, handle: module } = &*self.0;
        device.bind()?;
        let most = device.properties().shared_bytes;
        if shared_bytes > most {
            let what = format!("{shared_bytes} bytes of shared memory for kernel {name}");
            let why = format!("a block of {} has at most {most}", device.properties().name);
            return Err(Error::Unavailable { what, why });
        }
        let text = CString::new(name).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; the module is valid.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut handle, *module, text.as_ptr()) };
        check("cuModuleGetFunction", found)?;
        let shared_bytes = shared_bytes as u32;
        if shared_bytes > 48 << 10 {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the handle is valid.
            let set = unsafe { sys::cuFuncSetAttribute(handle, attribute, shared_bytes as i32) };
            check("cuFuncSetAttribute", set)?;
        }
        let name = name.to_owned();
        Ok(Function { name, handle, shared_bytes, _module: Arc::clone(&self.0) })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.device.bind().is_ok() && self.device.synchronize().is_ok() {
            // SAFETY: loaded once, and none of its kernels runs.
            let _ = unsafe { sys::cuModuleUnload(self.handle) };
        }
    }
}

impl Function {
    /// Returns the kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of dynamic shared memory per block.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes as usize
    }

    /// Returns the resident blocks of `threads` threads per multiprocessor; 0 if no block fits.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn blocks_per_multiprocessor(&self, threads: usize) -> Result<usize> {
        let mut blocks = 0;
        // SAFETY: writes one integer; the handle is valid.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.handle,
                threads as i32,
                self.shared_bytes(),
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(usize::try_from(blocks).unwrap_or(0))
    }
}

impl Function {
    /// Returns the resident clusters of `blocks` blocks of `threads` threads on the device, for a kernel compiled
    /// with that cluster size; 0 if none fits.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    pub fn clusters(&self, blocks: usize, threads: usize) -> Result<usize> {
        let config = sys::CUlaunchConfig {
            gridDimX: blocks as u32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: std::ptr::null_mut(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let mut clusters = 0;
        // SAFETY: writes one integer; the handle is valid, and the driver reads the configuration during the call.
        let result = unsafe {
            sys::cuOccupancyMaxActiveClusters(&raw mut clusters, self.handle, &raw const config)
        };
        check("cuOccupancyMaxActiveClusters", result)?;
        Ok(usize::try_from(clusters).unwrap_or(0))
    }
}

impl Stream {
    /// Enqueues a kernel of `grid` blocks of `block` threads.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an empty grid or one beyond the driver's limits; [`Error::Device`] if the driver
    /// fails.
    /// # Safety
    /// The arguments must match the kernel's declaration. Memory accessed through them must belong to this device,
    /// and nothing else may write it meanwhile.
    pub unsafe fn launch(
        &self,
        function: &Function,
        grid: [usize; 3],
        block: [usize; 3],
        arguments: &Arguments,
    ) -> Result<()> {
        check_sizes(function, grid, block)?;
        self.bind()?;
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST];
        for (index, pointer) in pointers.iter_mut().enumerate().take(arguments.count) {
            *pointer = arguments.pointer(index).cast_mut();
        }
        let [grid, block] = [grid, block].map(|sizes| sizes.map(|size| size as u32));
        // SAFETY: the caller guarantees the arguments; the driver copies them before it returns.
        self.traced(Work::Kernel, &function.name, 0, || unsafe {
            let launched = sys::cuLaunchKernel(
                function.handle,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                function.shared_bytes,
                self.handle(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            );
            check("cuLaunchKernel", launched)
        })?;
        startup::launched();
        if is_checking() { self.synchronize() } else { Ok(()) }
    }
}

/// Returns whether `SIDEREAL_CUDA_CHECK` requests that every launch waits for its kernel and checks the result.
fn is_checking() -> bool {
    static CHECKING: OnceLock<bool> = OnceLock::new();
    *CHECKING
        .get_or_init(|| std::env::var_os("SIDEREAL_CUDA_CHECK").is_some_and(|word| word != "0"))
}

fn check_sizes(function: &Function, grid: [usize; 3], block: [usize; 3]) -> Result<()> {
    let most = [(1 << 31) - 1, 65535, 65535];
    let threads: usize = block.iter().product();
    let fits = grid.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
    if fits && (1..=1024).contains(&threads) {
        return Ok(());
    }
    let value = format!("{grid:?} blocks of {block:?} threads for {}", function.name);
    let rule = "a launch needs 1 to (2^31 - 1, 65535, 65535) blocks of 1 to 1024 threads";
    Err(Error::parameter("size of a launch", value, rule))
}

/// Array of bytes in device memory, and the size of the boxes copied from it.
///
/// Boxes are swizzled in shared memory. Chunk c (16 bytes) of row r is stored at chunk c ^ (r % 8) if rows of the box
/// have 128 bytes, and at c ^ (r / 2 % 4) if they have 64. Bytes of a box outside the array are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boxes {
    /// Address of the first byte, a multiple of 16.
    pub address: u64,
    /// Bytes per row, rows per plane, planes.
    pub extents: [usize; 3],
    /// Bytes from row to row and from plane to plane; multiples of 16.
    pub strides: [usize; 2],
    /// Size of a box: bytes per row (64 or 128), rows, planes; at most 256 each.
    pub size: [usize; 3],
}

/// Tensor map as a kernel's argument: `const __grid_constant__ TensorMap`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Tensor(CUtensorMap);

impl Tensor {
    /// Encodes the map. Allocates nothing, takes no lock, and does not access the device.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver rejects the numbers.
    pub fn new(boxes: &Boxes) -> Result<Self> {
        let mut map = CUtensorMap { opaque: [0; 16] };
        let extents = boxes.extents.map(|extent| extent as u64);
        let strides = boxes.strides.map(|stride| stride as u64);
        let size = boxes.size.map(|size| size as u32);
        let swizzle = match boxes.size[0] {
            64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        // SAFETY: each array has one number per axis (strides: one less); the map is written.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
                3,
                boxes.address as *mut c_void,
                extents.as_ptr(),
                strides.as_ptr(),
                size.as_ptr(),
                [1; 3].as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", result)?;
        Ok(Self(map))
    }
}
