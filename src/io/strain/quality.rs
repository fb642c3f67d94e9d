//! Valid seconds of a GWOSC file, HDF5 or GWF, from its bit masks.
//!
//! Invariant: a mask covers every sample of the strain that it belongs to.
//!
//! # Source
//! GWOSC's file format: bits of `quality/simple/DQmask` and `quality/injections/Injmask`, one number per second,
//! named by `DQShortnames` and `InjShortnames`; a set bit means that the test is passed.

use super::StrainHeader;
use super::header::OpenOptions;
use super::series::Input;
use crate::error::Result;

/// Default required bits, if the file has them.
pub(super) const DEFAULT_BITS: [&str; 2] = ["DATA", "CBC_CAT1"];
/// Maximum seconds in a mask: over a year.
pub(super) const LONGEST_MASK: u64 = 1 << 25;

/// Validity of the steps of a mask.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mask {
    /// Samples of strain per step, and offset of the strain's start from the mask's start in samples.
    samples: u64,
    offset: u64,
    is_good: Vec<bool>,
}

impl Mask {
    /// Makes a mask; a step is good if it has all bits of `wanted`.
    pub(super) fn new([samples, offset]: [u64; 2], numbers: &[f64], wanted: u32) -> Self {
        let is_good = numbers.iter().map(|number| *number as u32 & wanted == wanted).collect();
        Self { samples, offset, is_good }
    }

    pub(super) fn is_good(&self, sample: u64) -> bool {
        let step = (sample + self.offset) / self.samples;
        self.is_good.get(step as usize).copied().unwrap_or(false)
    }
}

/// Reads a file's masks for strain of `times` samples.
pub(super) fn masks(
    input: &Input,
    header: &StrainHeader,
    times: u64,
    options: &OpenOptions,
) -> Result<Vec<Mask>> {
    let mut masks = Vec::new();
    let simple = ["quality/simple/DQmask", "quality/simple/DQShortnames"];
    match &options.required_quality {
        Some(names) if names.is_empty() => {}
        Some(names) => masks.push(read(input, header, times, simple, Bits::All(names))?),
        None if input.has(simple[0]) => {
            masks.push(read(input, header, times, simple, Bits::Known(&DEFAULT_BITS))?);
        }
        None => {}
    }
    if !options.required_injections.is_empty() {
        let injections = ["quality/injections/Injmask", "quality/injections/InjShortnames"];
        let bits = Bits::All(&options.required_injections);
        masks.push(read(input, header, times, injections, bits)?);
    }
    Ok(masks)
}

/// Required bits.
enum Bits<'a> {
    /// All of these.
    All(&'a [String]),
    /// Those of these that the file has.
    Known(&'a [&'a str]),
}

fn read(
    input: &Input,
    header: &StrainHeader,
    times: u64,
    [mask_name, names_name]: [&str; 2],
    bits: Bits<'_>,
) -> Result<Mask> {
    let names = input.texts(names_name)?;
    let bit = |name: &str| names.iter().position(|known| known == name).filter(|bit| *bit < 32);
    let wanted = match bits {
        Bits::Known(wanted) => wanted.iter().filter_map(|name| bit(name)).collect(),
        Bits::All(wanted) => {
            let bits = wanted.iter().map(|name| {
                let why = || format!("{name} is asked for, but the file has {}", names.join(", "));
                bit(name).ok_or_else(|| input.fault(names_name, why()))
            });
            bits.collect::<Result<Vec<usize>>>()?
        }
    };
    let wanted = wanted.into_iter().fold(0_u32, |mask, bit| mask | 1 << bit);
    let series = input.series(mask_name)?;
    let spacing_s = series.number("Xspacing")?.unwrap_or(1.0);
    let start_s = header.start.s();
    let late_s = start_s - series.number("Xstart")?.unwrap_or(start_s);
    let [samples, offset] =
        place(spacing_s, late_s, header.rate_hz).map_err(|why| series.fault(why))?;
    let needed = (times + offset).div_ceil(samples);
    if series.len() < needed {
        let why = format!("{} steps, expected {needed} for {times} samples", series.len());
        return Err(series.fault(why));
    }
    Ok(Mask::new([samples, offset], &series.read_all(LONGEST_MASK)?, wanted))
}

/// Returns the samples of strain per mask step, and the offset in samples from the mask's start to the strain's,
/// which is `late_s`.
pub(super) fn place(
    spacing_s: f64,
    late_s: f64,
    rate_hz: u32,
) -> std::result::Result<[u64; 2], String> {
    let samples = spacing_s * f64::from(rate_hz);
    if !(1.0..1e9).contains(&samples) || samples.fract() != 0.0 {
        return Err(format!("steps of {spacing_s} s, expected whole samples at {rate_hz} Hz"));
    }
    let offset = late_s * f64::from(rate_hz);
    if !(0.0..1e12).contains(&offset) || offset.fract() != 0.0 {
        return Err(format!(
            "the mask begins {late_s} s before the strain, expected 0 or whole samples"
        ));
    }
    Ok([samples as u64, offset as u64])
}

/// Returns the first second of a mask.
pub(super) fn whole_second(spacing_s: f64, first_s: f64) -> std::result::Result<i64, String> {
    if spacing_s != 1.0 || first_s.fract() != 0.0 || !(0.0..5e9).contains(&first_s) {
        return Err(format!(
            "steps of {spacing_s} s from GPS {first_s} on, expected whole seconds of 1 s"
        ));
    }
    Ok(first_s as i64)
}
