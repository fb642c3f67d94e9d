//! Spectra of all inputs, in the X-engine's packed order (`Block`, `BlockBuffer`) and in the order of the F-engines
//! (`Spectra`), and the destination of correlation sums (`Output`).

use std::ops::Range;

use num_complex::Complex;

use super::plan::{LANES, Plan};
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::{VoltageEncoding, Voltages, voltage};

/// Bytes of a cache line, the alignment of a buffer.
const LINE: usize = 64;

/// Packed spectra of all inputs, with their validity mask.
///
/// The axes of the bytes are those of [`Plan::packed_bytes`]. Inputs that pad the last panel, and the second time of
/// an odd last pair, are undefined.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    bytes: &'a [u8],
    times: usize,
    valid: Option<&'a [u64]>,
}

impl<'a> Block<'a> {
    /// Creates a view of `times` spectra. `valid` has the axes channel, antenna, word of 64 times. Bit `t % 64` of
    /// word `t / 64` is set if antenna and channel are valid at time `t`. `None` means that all samples are valid.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both lengths match the plan.
    pub fn new(
        plan: &Plan,
        bytes: &'a [u8],
        times: usize,
        valid: Option<&'a [u64]>,
    ) -> Result<Self> {
        check_length("packed spectra (bytes)", plan.packed_bytes(times), bytes.len())?;
        if let Some(valid) = valid {
            let expected = plan.channels() * plan.antennas() * Plan::mask_words(times);
            check_length("mask (channel, antenna, word)", expected, valid.len())?;
        }
        if plan.encoding() == VoltageEncoding::ComplexF32
            && bytemuck::try_cast_slice::<u8, f32>(bytes).is_err()
        {
            let rule = "single-precision spectra must begin at a multiple of 4 bytes";
            return Err(Error::parameter("packed spectra", "not aligned", rule));
        }
        Ok(Self { bytes, times, valid })
    }

    /// Returns the spectra of some channels; `plan` is that of the block.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels out of range.
    pub fn channels(self, plan: &Plan, channels: Range<usize>) -> Result<Self> {
        if channels.start > channels.end || channels.end > plan.channels() {
            let rule = format!("there are {}", plan.channels());
            return Err(Error::parameter("channels", format!("{channels:?}"), rule));
        }
        let bytes = plan.panels() * plan.panel_bytes(self.times);
        let words = plan.antennas() * Plan::mask_words(self.times);
        let of = |each: usize| channels.start * each..channels.end * each;
        let valid = self.valid.map(|valid| &valid[of(words)]);
        Ok(Self { bytes: &self.bytes[of(bytes)], times: self.times, valid })
    }

    /// Returns the number of spectra.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the packed bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the validity mask; `None` if all samples are valid.
    pub fn valid(&self) -> Option<&'a [u64]> {
        self.valid
    }

    /// Returns the validity mask of an antenna in a channel.
    pub fn mask(&self, plan: &Plan, channel: usize, antenna: usize) -> Option<&'a [u64]> {
        let words = Plan::mask_words(self.times);
        self.valid.map(|valid| &valid[(channel * plan.antennas() + antenna) * words..][..words])
    }

    /// Returns whether a sample is valid. Slow; for references and tests.
    pub fn is_valid(&self, plan: &Plan, channel: usize, antenna: usize, time: usize) -> bool {
        let mask = self.mask(plan, channel, antenna);
        mask.is_none_or(|words| words[time / 64] >> (time % 64) & 1 == 1)
    }

    /// Returns the value of a sample, valid or not. Slow; for references and tests.
    pub fn value(&self, plan: &Plan, channel: usize, input: usize, time: usize) -> Complex<f64> {
        let size = plan.panel_bytes(self.times);
        let panel = &self.bytes[(channel * plan.panels() + input / LANES) * size..][..size];
        let lane = input % LANES;
        match plan.encoding() {
            VoltageEncoding::ComplexF32 => {
                let part = |part: usize| {
                    voltage(panel, VoltageEncoding::RealF32, (2 * time + part) * LANES + lane).re
                };
                Complex::new(part(0), part(1))
            }
            encoding => voltage(panel, encoding, (time / 2 * LANES + lane) * 2 + time % 2),
        }
    }
}

/// Buffer of packed spectra with their mask, aligned to a cache line.
#[derive(Debug)]
pub struct BlockBuffer {
    plan: Plan,
    bytes: Vec<u8>,
    valid: Vec<u64>,
    capacity: usize,
    times: usize,
    all_valid: bool,
}

impl BlockBuffer {
    /// Allocates memory for `capacity` spectra.
    pub fn new(plan: &Plan, capacity: usize) -> Self {
        let words = plan.channels() * plan.antennas() * Plan::mask_words(capacity);
        Self {
            bytes: vec![0; plan.packed_bytes(capacity) + LINE],
            valid: vec![0; words],
            capacity,
            times: 0,
            all_valid: true,
            plan: plan.clone(),
        }
    }

    /// Returns the X-engine's plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the largest number of spectra.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of spectra.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Sets the number of spectra and marks all as valid. The previous contents become undefined.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than the capacity.
    pub fn set_times(&mut self, times: usize) -> Result<()> {
        if times > self.capacity {
            let (expected, actual) = (self.capacity, times);
            return Err(Error::Shape { what: "times in a block", expected, actual });
        }
        self.times = times;
        self.all_valid = true;
        Ok(())
    }

    /// Returns the packed bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let offset = self.bytes.as_ptr().align_offset(LINE).min(LINE);
        &mut self.bytes[offset..][..self.plan.packed_bytes(self.times)]
    }

    /// Returns the mask for writing and activates it. It holds old values, so the caller must write all of it.
    pub fn mask_mut(&mut self) -> &mut [u64] {
        self.all_valid = false;
        let words = Plan::mask_words(self.times);
        &mut self.valid[..self.plan.channels() * self.plan.antennas() * words]
    }

    /// Returns the contents.
    pub fn block(&self) -> Block<'_> {
        let offset = self.bytes.as_ptr().align_offset(LINE).min(LINE);
        let words = self.plan.channels() * self.plan.antennas() * Plan::mask_words(self.times);
        Block {
            bytes: &self.bytes[offset..][..self.plan.packed_bytes(self.times)],
            times: self.times,
            valid: (!self.all_valid).then(|| &self.valid[..words]),
        }
    }
}

/// Destination of sums; axes channel, baseline, polarization pair.
#[derive(Debug)]
pub enum Output<'a> {
    /// Sums of integer spectra: exact.
    Integer(&'a mut [Complex<i64>]),
    /// Sums of single-precision spectra.
    Float(&'a mut [Complex<f64>]),
}

impl Output<'_> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(sums) => sums.len(),
            Self::Float(sums) => sums.len(),
        }
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Spectra of all inputs in the order of the F-engines; axes antenna, polarization, time, channel.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Bytes of all inputs, `times` spectra and all channels.
    pub bytes: &'a [u8],
    /// Number of spectra per input in `bytes`.
    pub times: usize,
    /// First spectrum to transpose.
    pub first: usize,
}

/// Input of the corner turn.
#[derive(Clone, Copy, Debug)]
pub enum Spectra<'a> {
    /// Spectra in the order of the F-engines.
    Rows(Rows<'a>),
    /// Channelized voltages, one stream for each input and channel; axes antenna, channel, polarization, time.
    Streams(Voltages<'a>),
}

impl<'a> Spectra<'a> {
    /// Returns the bytes from a sample to the end of the rows, or of its stream.
    pub(super) fn sample(
        &self,
        plan: &Plan,
        input: usize,
        channel: usize,
        time: usize,
    ) -> &'a [u8] {
        let size = plan.encoding().sample_bits() / 8;
        match self {
            Self::Rows(rows) => {
                let row = input * rows.times + rows.first + time;
                &rows.bytes[(row * plan.channels() + channel) * size..]
            }
            Self::Streams(voltages) => {
                let (antenna, polarization) =
                    (input / plan.polarizations(), input % plan.polarizations());
                let stream = (antenna * plan.channels() + channel) * plan.polarizations();
                &voltages.row(stream + polarization)[time * size..]
            }
        }
    }
}
