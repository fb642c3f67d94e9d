//! Voltages to visibilities: filter bank, alignment and X-engine, gulp after gulp.

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::cuda::{Buffer, Stream, UploadRing};
use sidereal::channelize;
use sidereal::channelize::{Channelizer, DeviceVoltages, Order};
use sidereal::correlate;
use sidereal::correlate::{Correlator, DeviceSpectra, Output};
use sidereal::delay::{
    Band, Delay, DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural,
};
use sidereal::voltage::VoltageEncoding;

use crate::gpu::Gpu;

/// Taps: rows of samples in the filter bank's window.
const TAPS: usize = 8;

/// Frequency of the recorded channel's centre, and its width.
const SKY_HZ: f64 = 1.4e9;
const WIDTH_HZ: f64 = 4e6;

/// Chain of device calls from voltages to visibilities.
pub(super) struct Chain {
    pub(super) size: Size,
    work: Stream,
    channelizer: Channelizer,
    spectra: Buffer<u8>,
    aligner: DeviceAligner,
    seconds: Buffer<f64>,
    natural: Buffer<u8>,
    layout: Natural,
    correlator: Correlator,
    pub(super) sums: Vec<Complex<i64>>,
    pub(super) counts: Vec<u64>,
    /// Buffer pairs whose copies are ahead of the computation.
    ahead: usize,
}

/// Plans the filter bank of `antennas` antennas.
pub(super) fn bank(size: Size, antennas: usize) -> Result<channelize::Plan> {
    let mut options = channelize::Options::new(size.channels, TAPS, VoltageEncoding::Complex8);
    options.input.antennas = antennas;
    options.input.polarizations = 2;
    options.order = Order::Ascending;
    channelize::Plan::new(options)
}

/// Returns the band that delays refer to.
pub(super) fn band(size: Size) -> Band {
    Band {
        zeros_hz: vec![SKY_HZ],
        first_hz: -0.5 * WIDTH_HZ,
        step_hz: WIDTH_HZ / size.channels as f64,
    }
}

/// Returns an antenna's delay at a spectrum of a gulp: the residual is below half a sample.
pub(super) fn delay(antenna: usize, spectrum: usize) -> Delay {
    let residual_s = 1e-7 * (antenna as f64 * 0.7).sin() + 1e-12 * spectrum as f64;
    Delay { total_s: 0.75e-6 * antenna as f64 + residual_s, residual_s }
}

/// Returns a gain that gives real and imaginary parts a deviation of about 20 counts: uniform 8-bit samples have 74,
/// and a filter bank of unit gain leaves each channel its share of their power.
pub(super) fn gain(size: Size) -> Complex<f32> {
    Complex::new(20.0 / 74.0 * (size.channels as f32).sqrt(), 0.0)
}

impl Chain {
    pub(super) fn new(gpu: &Gpu, size: Size) -> Result<Self> {
        let Size { antennas, channels, spectra, .. } = size;
        let encoding = VoltageEncoding::Complex8;
        let plan = correlate::Plan::new(correlate::Options {
            antennas,
            polarizations: 2,
            channels,
            encoding,
        })?;
        let options = DeviceOptions {
            inputs: (0..antennas).map(|antenna| 2 * antenna).collect(),
            polarizations: 2,
            coarse_channels: 1,
            channels,
            encoding,
            form: Form::Spectra,
            band: Some(band(size)),
        };
        let mut aligner = DeviceAligner::new(&gpu.device, options)?;
        let gain = [gain(size)];
        aligner.set_gains((0..antennas).map(|antenna| (antenna, &gain[..])))?;
        let delays = (0..antennas).flat_map(|antenna| {
            (0..spectra).flat_map(move |spectrum| {
                let own = delay(antenna, spectrum);
                [own.total_s, own.residual_s]
            })
        });
        let input_stride = encoding.bytes(spectra).next_multiple_of(128);
        let layout =
            Natural { first_byte: 0, channel_stride: 2 * antennas * input_stride, input_stride };
        Ok(Self {
            work: gpu.device.stream()?,
            channelizer: Channelizer::new(bank(size, antennas)?, &gpu.backend)?,
            spectra: gpu.device.buffer(8 * 2 * antennas * channels * spectra)?,
            aligner,
            seconds: gpu.device.upload(&delays.collect::<Vec<f64>>())?,
            natural: gpu.device.buffer(channels * layout.channel_stride)?,
            layout,
            sums: vec![Complex::ZERO; channels * plan.row_elements()],
            counts: vec![0; channels * plan.baselines()],
            correlator: Correlator::new(plan, &gpu.backend)?,
            ahead: 0,
            size,
        })
    }

    /// Sends the first gulps.
    pub(super) fn begin(&mut self, uploads: &mut UploadRing) -> Result<()> {
        self.channelizer.reset();
        self.correlator.reset();
        let bytes = self.size.gulp_bytes();
        let mut current = uploads.current();
        current.host()?;
        current.send(bytes)?;
        let (_, others) = uploads.acquire(&self.work)?;
        let mut others: Vec<_> = others.collect();
        // One pair is in use, and another may still be in use when it is due to be filled.
        self.ahead = others.len() - 1;
        for slot in others.iter_mut().take(self.ahead - 1) {
            slot.host()?;
            slot.send(bytes)?;
        }
        Ok(())
    }

    /// Queues all gulps of an integration, each as soon as its copy has been queued.
    pub(super) fn integrate(&mut self, uploads: &mut UploadRing) -> Result<()> {
        (0..self.size.gulps).try_for_each(|_| self.step(uploads))
    }

    /// Sends the gulp farthest ahead, and queues the computation on the present one.
    pub(super) fn step(&mut self, uploads: &mut UploadRing) -> Result<()> {
        let Size { channels, spectra, .. } = self.size;
        let bytes = self.size.gulp_bytes();
        let (voltages, mut others) = uploads.acquire(&self.work)?;
        if let Some(mut slot) = others.nth(self.ahead - 1) {
            slot.host()?;
            slot.send(bytes)?;
        }
        drop(others);
        let samples = channels * spectra;
        let layout = DeviceVoltages { first_byte: 0, stride: 2 * samples, times: samples };
        let made = self.channelizer.enqueue(voltages, layout, &mut self.spectra, &self.work)?;
        let times = made.produced;
        let stride = 8 * self.channelizer.plan().row_elements();
        let from = DeviceSamples { first_byte: 0, stride, times };
        let delays = DeviceDelays { seconds: &self.seconds, first: 0, stride: spectra };
        self.aligner.enqueue(
            &self.spectra,
            from,
            Some(delays),
            &mut self.natural,
            self.layout,
            &self.work,
        )?;
        let layout = DeviceSpectra {
            first_byte: 0,
            channel_stride: self.layout.channel_stride,
            input_stride: self.layout.input_stride,
            times,
        };
        self.correlator.enqueue(&mut self.natural, layout, None, &self.work)?;
        uploads.release(&self.work)
    }

    /// Copies the visibilities to the host, and begins another integration.
    pub(super) fn read(&mut self) -> Result<()> {
        let output = Output::Integer(&mut self.sums);
        self.correlator.read(0..self.size.channels, output, &mut self.counts)?;
        self.correlator.reset();
        Ok(())
    }

    /// Waits for pending work.
    pub(super) fn end(&mut self, uploads: &mut UploadRing) -> Result<()> {
        for _ in 0..self.ahead {
            let _ = uploads.acquire(&self.work)?;
            uploads.release(&self.work)?;
        }
        self.work.synchronize()
    }
}

/// Sizes of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) antennas: usize,
    pub(crate) channels: usize,
    /// Spectra in a gulp.
    pub(crate) spectra: usize,
    /// Gulps in an integration.
    pub(crate) gulps: usize,
}

impl Size {
    /// Returns the bytes of a gulp's voltages.
    pub(crate) fn gulp_bytes(self) -> usize {
        2 * 2 * self.antennas * self.channels * self.spectra
    }
}
