//! Fourier transforms of lengths that have no kernel of ours: cuFFT, in place, many at a time.

use cudarc::cufft::sys::{self, cufftResult, cufftType};

use super::status;
use super::{Buffer, Device, Stream};
use crate::error::{Error, Result};

/// exp(-2 pi i n m / N), not its conjugate.
const FORWARD: i32 = -1;

/// A batch of forward transforms of one length.
#[derive(Debug)]
pub struct Fourier {
    device: Device,
    plan: sys::cufftHandle,
    length: Length,
    batch: usize,
}

// SAFETY: a plan may be used from any thread, one at a time, which `&mut self` sees to.
unsafe impl Send for Fourier {}
// SAFETY: shared references only read sizes.
unsafe impl Sync for Fourier {}

/// Points of a transform, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many complex points; each transform's begin behind the last one's.
    Complex(usize),
    /// So many real points, which become the bins from 0 to half of them; transforms begin [`Length::pitch`]
    /// floats apart.
    Real(usize),
}

impl Length {
    /// Floats from one transform's first point to the next one's, before and after.
    pub fn pitch(self) -> usize {
        match self {
            Self::Complex(points) => 2 * points,
            Self::Real(points) => 2 * (points / 2 + 1),
        }
    }

    fn points(self) -> usize {
        let (Self::Complex(points) | Self::Real(points)) = self;
        points
    }
}

impl Device {
    /// Plans `batch` transforms at a time. The plan takes memory of its own.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without cuFFT; [`Error::Device`] when it refuses.
    pub fn fourier(&self, length: Length, batch: usize) -> Result<Fourier> {
        let points = length.points();
        status::cufft_version().map_err(|why| Error::Unavailable {
            what: format!("a Fourier transform of {points} points on a GPU"),
            why,
        })?;
        self.bind()?;
        let number = |value: usize| {
            i32::try_from(value).map_err(|_| {
                Error::parameter("size of a Fourier transform", value, "it must be below 2^31")
            })
        };
        let (mut size, batch_size) = (number(points)?, number(batch)?);
        let (from, to, kind) = match length {
            Length::Complex(points) => (points, points, cufftType::CUFFT_C2C),
            Length::Real(_) => (length.pitch(), length.pitch() / 2, cufftType::CUFFT_R2C),
        };
        let (mut from, mut to) = (number(from)?, number(to)?);
        let (from_distance, to_distance) = (from, to);
        let mut plan = 0;
        // SAFETY: one handle is written; the sizes are read during the call.
        check("cufftPlanMany", unsafe {
            sys::cufftPlanMany(
                &raw mut plan,
                1,
                &raw mut size,
                &raw mut from,
                1,
                from_distance,
                &raw mut to,
                1,
                to_distance,
                kind,
                batch_size,
            )
        })?;
        Ok(Fourier { device: self.clone(), plan, length, batch })
    }
}

impl Fourier {
    /// Transforms of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Queues the batch whose first point is float `at` of the buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] when the batch reaches past the buffer's end; [`Error::Device`] when cuFFT refuses.
    pub fn run(&mut self, values: &mut Buffer<f32>, at: usize, stream: &Stream) -> Result<()> {
        let end = at + self.batch * self.length.pitch();
        if end > values.len() {
            let (expected, actual) = (values.len(), end);
            return Err(Error::Shape { what: "batch of Fourier transforms", expected, actual });
        }
        // SAFETY: the whole batch lies in the buffer.
        unsafe { self.run_at(values.at(at), stream) }
    }

    /// Queues the batch whose first point is at an address.
    ///
    /// # Safety
    /// The whole batch lies there, in the device's memory.
    ///
    /// # Errors
    /// [`Error::Device`] when cuFFT refuses.
    pub unsafe fn run_at(&mut self, address: u64, stream: &Stream) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the plan and the stream live; the caller vouches for the batch.
        unsafe {
            check("cufftSetStream", sys::cufftSetStream(self.plan, stream.raw().cast()))?;
            let values = address as *mut sys::cufftComplex;
            match self.length {
                Length::Complex(_) => {
                    check("cufftExecC2C", sys::cufftExecC2C(self.plan, values, values, FORWARD))
                }
                Length::Real(_) => {
                    check("cufftExecR2C", sys::cufftExecR2C(self.plan, values.cast(), values))
                }
            }
        }
    }
}

impl Drop for Fourier {
    fn drop(&mut self) {
        if self.device.bind().is_ok() && self.device.synchronize().is_ok() {
            // SAFETY: made once, and no transform of it runs.
            let _ = unsafe { sys::cufftDestroy(self.plan) };
        }
    }
}

fn check(call: &'static str, result: cufftResult) -> Result<()> {
    if result == cufftResult::CUFFT_SUCCESS {
        return Ok(());
    }
    Err(Error::Device { call, code: result as i64, text: format!("{result:?}") })
}
