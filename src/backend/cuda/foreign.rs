//! Device memory that another library of this process allocated: checks of its addresses, and buffers that borrow it.

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUmemorytype, CUpointer_attribute as Attribute, CUresult};

use super::device::check;
use super::{Buffer, Device};
use crate::error::{Error, Result};

/// Returns the ordinal of the GPU whose memory holds `bytes` bytes from `address` on.
///
/// # Errors
/// [`Error::Parameter`] if some of them are not memory of one GPU; [`Error::Unavailable`] without a driver;
/// [`Error::Device`] if the driver fails.
pub fn owner(address: u64, bytes: usize) -> Result<usize> {
    Device::count()?;
    let refused = |rule: String| Error::parameter("address", format!("{address:#x}"), rule);
    let end = u64::try_from(bytes).ok().and_then(|bytes| address.checked_add(bytes));
    let end = end.ok_or_else(|| refused(format!("no memory has {bytes} bytes from there on")))?;
    let outside = || refused("it must be in the memory of a CUDA device".to_owned());
    let ordinal: i32 =
        attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)?.ok_or_else(outside)?;
    let mut at = address;
    // A library may have mapped several allocations one after another.
    while at < end {
        let kind: Option<u32> = attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at)?;
        let is_managed: Option<u32> = attribute(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, at)?;
        let own: Option<i32> = attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at)?;
        let first: Option<u64> = attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at)?;
        let size: Option<u64> = attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, at)?;
        let is_device = kind == Some(CUmemorytype::CU_MEMORYTYPE_DEVICE as u32);
        if !(is_device || is_managed == Some(1)) || own != Some(ordinal) {
            return Err(match at == address {
                true => outside(),
                false => refused(format!(
                    "{bytes} bytes from there on must be memory of one CUDA device; it has {}",
                    at - address
                )),
            });
        }
        let next = first.zip(size).and_then(|(first, size)| first.checked_add(size));
        at = next.filter(|next| *next > at).ok_or_else(outside)?;
    }
    usize::try_from(ordinal).map_err(|_| outside())
}

impl Device {
    /// Makes a buffer of `len` elements of memory that another library of this process allocated. Dropping the buffer
    /// does not free them.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless all elements lie in this device's memory and are aligned; those of [`owner`].
    /// # Safety
    /// The memory must stay allocated until all work with the buffer has run. Until then nothing else may write it,
    /// or, if that work writes it, access it.
    pub unsafe fn borrow<T: Pod>(&self, address: u64, len: usize) -> Result<Buffer<T>> {
        if len > 0 {
            let refused = |rule| Error::parameter("address", format!("{address:#x}"), rule);
            if !address.is_multiple_of(align_of::<T>() as u64) {
                let rule = format!("elements must be at multiples of {} bytes", align_of::<T>());
                return Err(refused(rule));
            }
            let ordinal = owner(address, len.saturating_mul(size_of::<T>()))?;
            if ordinal != self.ordinal() {
                let rule = format!(
                    "it is on CUDA device {ordinal}, and must be on device {}",
                    self.ordinal()
                );
                return Err(refused(rule));
            }
        }
        Ok(Buffer::borrowed(self, address, len))
    }
}

/// Returns an attribute of an address; `None` if the driver has none because it is not memory of a device.
fn attribute<T: Default>(attribute: Attribute, address: u64) -> Result<Option<T>> {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8) };
    let mut value = T::default();
    // SAFETY: the attributes that this file asks for have the size of `T`; the driver does not access the address.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
    match result {
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
        other => check("cuPointerGetAttribute", other).map(|()| Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::testing;

    #[test]
    fn memory_of_others_is_borrowed_and_stays() {
        if let Some(device) = testing::device() {
            let numbers: Vec<u32> = (0..100).collect();
            let owned = device.upload(&numbers).unwrap();
            assert_eq!(owner(owned.address(), 400).unwrap(), device.ordinal());
            // SAFETY: `owned` outlives the buffers, and no work writes it.
            let middle = unsafe { device.borrow::<u32>(owned.at(10), 20) }.unwrap();
            let mut values = [0; 20];
            middle.download(0, &mut values).unwrap();
            assert_eq!(values[..], numbers[10..30]);
            drop(middle);
            let mut values = [0; 100];
            owned.download(0, &mut values).unwrap();
            assert_eq!(values[..], numbers[..]);
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        if let Some(device) = testing::device() {
            let owned = device.buffer::<u8>(1000).unwrap();
            let host = [0_u8; 64];
            // SAFETY: the buffers are not used.
            let borrow = |address, len| unsafe { device.borrow::<u32>(address, len) };
            let text = |result: Result<Buffer<u32>>| result.unwrap_err().to_string();
            assert!(text(borrow(host.as_ptr() as u64, 4)).contains("memory of a CUDA device"));
            assert!(text(borrow(0, 4)).contains("memory of a CUDA device"));
            assert!(text(borrow(owned.address() + 2, 4)).contains("multiples of 4"));
            assert!(text(borrow(u64::MAX - 3, 4)).contains("no memory"));
            assert!(text(borrow(owned.address(), 1 << 30)).contains("memory of"));
            assert!(borrow(0, 0).unwrap().is_empty());
        }
    }
}
