//! Fourier transforms of lengths without a dedicated kernel: batched, in place, by cuFFT.

use cudarc::cufft::sys::{self, cufftResult, cufftType};

use super::device::cufft_version;
use super::{Buffer, Device, Stream};
use crate::error::{Error, Result};
use crate::trace::Work;

/// Sign of the exponent of a transform: exp(-2 pi i n m / N) forward.
const FORWARD: i32 = -1;
const INVERSE: i32 = 1;

/// Batch of transforms of one length.
#[derive(Debug)]
pub struct Fourier {
    device: Device,
    plan: sys::cufftHandle,
    length: Length,
    batch: usize,
}

// SAFETY: any thread may use a plan, one at a time, which `&mut self` ensures.
unsafe impl Send for Fourier {}
// SAFETY: shared references only read sizes.
unsafe impl Sync for Fourier {}

/// Length and input type of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Complex points; transforms are contiguous.
    Complex(usize),
    /// Real points, transformed to the bins from 0 to half the length; transforms begin [`Length::pitch`] floats
    /// apart.
    Real(usize),
}

impl Length {
    /// Returns the floats from one transform to the next, before and after the transform.
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
    /// Plans `batch` concurrent transforms. The plan allocates its own memory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without cuFFT; [`Error::Device`] if it fails.
    pub fn fourier(&self, length: Length, batch: usize) -> Result<Fourier> {
        let points = length.points();
        cufft_version().map_err(|why| Error::Unavailable {
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
        // SAFETY: writes one handle; the sizes are read during the call.
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
    /// Returns the transforms per batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Enqueues the batch whose first point is float `at` of the buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] if the batch exceeds the buffer; [`Error::Device`] if cuFFT fails.
    pub fn run(&mut self, values: &mut Buffer<f32>, at: usize, stream: &Stream) -> Result<()> {
        self.check(values, at)?;
        // SAFETY: the whole batch lies in the buffer.
        unsafe { self.run_at(values.at(at), stream) }
    }

    /// Like [`Fourier::run`], for inverse transforms, which are not divided by the number of points.
    ///
    /// # Errors
    /// Same as for [`Fourier::run`], and [`Error::Parameter`] for a plan of real points.
    pub fn run_inverse(
        &mut self,
        values: &mut Buffer<f32>,
        at: usize,
        stream: &Stream,
    ) -> Result<()> {
        self.check(values, at)?;
        if let Length::Real(points) = self.length {
            let rule = "an inverse transform needs a plan of complex points";
            return Err(Error::parameter("real points", points, rule));
        }
        // SAFETY: the whole batch lies in the buffer.
        unsafe { self.execute(values.at(at), INVERSE, stream) }
    }

    /// Checks that a batch from float `at` on lies in a buffer.
    fn check(&self, values: &Buffer<f32>, at: usize) -> Result<()> {
        let end = at + self.batch * self.length.pitch();
        if end > values.len() {
            let (expected, actual) = (values.len(), end);
            return Err(Error::Shape { what: "batch of Fourier transforms", expected, actual });
        }
        Ok(())
    }

    /// Enqueues the batch whose first point is at a device address.
    ///
    /// # Safety
    /// The whole batch must lie in device memory at that address.
    ///
    /// # Errors
    /// [`Error::Device`] if cuFFT fails.
    pub unsafe fn run_at(&mut self, address: u64, stream: &Stream) -> Result<()> {
        // SAFETY: forwards the caller's guarantee.
        unsafe { self.execute(address, FORWARD, stream) }
    }

    /// Enqueues a batch of transforms; `sign` is that of the exponent, for complex points.
    ///
    /// # Safety
    /// Same requirement as for [`Fourier::run_at`].
    unsafe fn execute(&mut self, address: u64, sign: i32, stream: &Stream) -> Result<()> {
        self.device.bind()?;
        let name = if sign == FORWARD { "Fourier transform" } else { "inverse Fourier transform" };
        // SAFETY: the plan and the stream are valid; the caller guarantees the batch.
        stream.traced(Work::Kernel, name, 0, || unsafe {
            check("cufftSetStream", sys::cufftSetStream(self.plan, stream.raw().cast()))?;
            let values = address as *mut sys::cufftComplex;
            match self.length {
                Length::Complex(_) => {
                    check("cufftExecC2C", sys::cufftExecC2C(self.plan, values, values, sign))
                }
                Length::Real(_) => {
                    check("cufftExecR2C", sys::cufftExecR2C(self.plan, values.cast(), values))
                }
            }
        })
    }
}

impl Drop for Fourier {
    fn drop(&mut self) {
        if self.device.bind().is_ok() && self.device.synchronize().is_ok() {
            // SAFETY: created once, and none of its transforms runs.
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
