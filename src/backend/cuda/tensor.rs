//! Arrays of bytes that the copy engine takes boxes of, on Hopper and later.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUtensorMap};

use super::call::check;
use crate::error::Result;

/// An array of bytes in a device's memory and the box that is taken at a time.
///
/// A box is swizzled in shared memory: chunk c of 16 bytes of row r stands at c ^ (r % 8) where rows of the box have 128
/// bytes, at c ^ (r / 2 % 4) where they have 64. What of it lies outside of the array is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boxes {
    /// The first byte, a multiple of 16.
    pub address: u64,
    /// Bytes of a row, rows of a plane, planes.
    pub extents: [usize; 3],
    /// Bytes from a row to the next, and from a plane to the next: multiples of 16.
    pub strides: [usize; 2],
    /// Bytes of a row of the box, 64 or 128; rows; planes; at most 256 each.
    pub size: [usize; 3],
}

/// An array and its boxes as a kernel takes them: `const __grid_constant__ TensorMap`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Tensor(CUtensorMap);

impl Tensor {
    /// Encodes; no heap, no lock, and nothing of the device is touched.
    ///
    /// # Errors
    /// [`crate::error::Error::Device`] when the driver refuses the numbers.
    pub fn new(boxes: &Boxes) -> Result<Self> {
        let mut map = CUtensorMap { opaque: [0; 16] };
        let extents = boxes.extents.map(|extent| extent as u64);
        let strides = boxes.strides.map(|stride| stride as u64);
        let size = boxes.size.map(|size| size as u32);
        let swizzle = match boxes.size[0] {
            64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        // SAFETY: the arrays have as many numbers as axes, of which there is one stride less; the map is written.
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
