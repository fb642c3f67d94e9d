//! NVIDIA GPUs: devices, memory, streams, and kernels compiled at run time for the device.
//!
//! CUDA is needed neither to build nor to start. The driver and NVRTC are looked up when a device is opened; a
//! missing library is an [`Error::Unavailable`](crate::Error::Unavailable) that says what to install.

#![allow(unsafe_code)]

mod cache;
mod compile;
mod device;
mod foreign;
mod fourier;
mod locked_block;
pub mod measure;
mod memory;
mod module;
mod prefetch;
mod quick;
mod staging;
mod startup;
mod stream;
#[cfg(test)]
#[path = "../../../tests/common/cuda.rs"]
pub(crate) mod testing;
pub mod tune;

pub use compile::{
    ARCHITECTURES, Compiled, CompilerProgram, Extent, HEADERS, Resources, Source, Target, Variant,
    combinations, compile, nvrtc,
};
pub use device::{Device, MOST_JOINED, Properties, Status, kernels_at_hand, status};
pub use foreign::owner;
pub use fourier::{Fourier, Length};
pub use locked_block::LockedBlock;
pub use measure::{Rates, kernels};
pub use memory::{Buffer, Pinned, Plane, PlaneKind};
pub use module::{Arguments, Boxes, Function, Module, Tensor};
pub use prefetch::Prefetch;
pub use quick::{Better, CompileRequest};
pub use staging::{DownloadRing, ReadRows, RowReader, UploadRing, UploadSlot, Uploaded};
pub use startup::{Spent, StartUp, start_up};
pub use stream::{CopiedRows, Event, MAX_PITCH, Stream};
