//! Which seconds of a GWOSC file may be used, by its bit masks.
//!
//! Invariant: a mask covers every sample of the strain that it belongs to.
//!
//! # Source
//! GWOSC's file format: bits of `quality/simple/DQmask` and `quality/injections/Injmask`, one number a second, named
//! by `DQShortnames` and `InjShortnames`; a set bit is a test that is passed.

use super::StrainHeader;
use super::open::OpenOptions;
use super::series::{Input, Series};
use crate::error::Result;

/// The bits that good data have where nothing else is asked for, if the file knows them.
const DEFAULT_BITS: [&str; 2] = ["DATA", "CBC_CAT1"];
/// A mask has this many seconds at most: over a year.
const LONGEST_MASK: u64 = 1 << 25;

/// Good and bad steps of a mask.
#[derive(Clone, Debug)]
pub(super) struct Mask {
    /// Samples of strain in one step, and those that the strain begins after the mask.
    samples: u64,
    offset: u64,
    is_good: Vec<bool>,
}

impl Mask {
    pub(super) fn is_good(&self, sample: u64) -> bool {
        let step = (sample + self.offset) / self.samples;
        self.is_good.get(step as usize).copied().unwrap_or(false)
    }
}

/// The masks of a file for strain of `times` samples.
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

/// Bits that are asked for.
enum Bits<'a> {
    /// Every one of these.
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
    let (samples, offset) = place(&series, header)?;
    let needed = (times + offset).div_ceil(samples);
    if series.len() < needed {
        let why = format!("{} steps, expected {needed} for {times} samples", series.len());
        return Err(series.fault(why));
    }
    let numbers = series.read_all(LONGEST_MASK)?;
    let is_good = numbers.iter().map(|number| *number as u32 & wanted == wanted).collect();
    Ok(Mask { samples, offset, is_good })
}

/// Samples of strain in a mask's step, and how many of them the mask begins before the strain.
fn place(series: &Series, header: &StrainHeader) -> Result<(u64, u64)> {
    let spacing_s = series.number("Xspacing")?.unwrap_or(1.0);
    let samples = spacing_s * f64::from(header.rate_hz);
    if !(1.0..1e9).contains(&samples) || samples.fract() != 0.0 {
        let why =
            format!("steps of {spacing_s} s, expected whole samples at {} Hz", header.rate_hz);
        return Err(series.fault(why));
    }
    let start_s = header.start.s();
    let offset_s = start_s - series.number("Xstart")?.unwrap_or(start_s);
    let offset = offset_s * f64::from(header.rate_hz);
    if !(0.0..1e12).contains(&offset) || offset.fract() != 0.0 {
        let why =
            format!("the mask begins {offset_s} s before the strain, expected 0 or whole samples");
        return Err(series.fault(why));
    }
    Ok((samples as u64, offset as u64))
}
