//! Tensor maps for bulk copies of boxes of byte arrays (Hopper and later).

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUtensorMap};

use super::call::check;
use crate::error::Result;

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
    /// [`crate::error::Error::Device`] if the driver rejects the numbers.
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
