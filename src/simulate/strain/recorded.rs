//! Recorded strain that is played in the place of simulated noise.

use super::options::StrainOptions;
use crate::error::{Error, Result};
use crate::io::strain::{ALL_INJECTIONS, ALL_QUALITY, Bits, StrainSource};
use crate::units::NS_PER_S;

/// Bits of a usable second: DATA and CBC_CAT1.
const USABLE: u32 = 0b11;

/// Recording of one detector.
pub struct Recorded {
    /// Samples, whose invalid ones are missing: those of any quality count as valid.
    pub source: Box<dyn StrainSource>,
    /// Masks of its seconds; without any, all bits of all seconds are set.
    pub bits: Bits,
}

/// Recording that is read from the first sample of a simulation on.
pub(super) struct Played {
    source: Box<dyn StrainSource>,
    valid: Vec<bool>,
    /// Data-quality and injection bits of each second of the simulation.
    quality: Vec<u32>,
    injections: Vec<u32>,
}

impl Played {
    /// Skips what lies before the start of the options.
    ///
    /// # Errors
    /// Those of [`super::Simulation::of_recordings`].
    pub(super) fn new(given: Recorded, detector: &str, options: &StrainOptions) -> Result<Self> {
        let Recorded { mut source, bits } = given;
        let header = source.header().clone();
        let fault = |field: &str, why: String| Err(Error::format(&header.path, field, 0, why));
        if header.detector != detector {
            return fault(
                "detector",
                format!("{:?} found, expected {detector:?}", header.detector),
            );
        }
        if header.rate_hz != options.rate_hz {
            let (found, expected) = (header.rate_hz, options.rate_hz);
            return fault("rate", format!("{found} Hz found, expected {expected} Hz"));
        }
        let (start, rate, second) =
            (options.start, i128::from(options.rate_hz), i128::from(NS_PER_S));
        if start.ns % NS_PER_S != 0 {
            let rule = "recorded strain begins with a whole second";
            return Err(Error::parameter("start (GPS s)", start.s(), rule));
        }
        let late = (i128::from(start.ns) - i128::from(header.start.ns)) * rate;
        let skipped = (late + second / 2).div_euclid(second);
        let is_there = |held: u64| i128::from(held) >= skipped + i128::from(options.times);
        if skipped < 0 || !header.times.is_none_or(is_there) {
            let why = format!(
                "it lacks some of the {} s from GPS {} on",
                options.times as f64 / f64::from(options.rate_hz),
                start.s()
            );
            return fault("time", why);
        }
        // Files state starts to about 0.1 us.
        if (late - skipped * second).abs() > 1000 * rate {
            let why = format!("GPS {} lies between its samples", start.s());
            return fault("start", why);
        }
        if source.skip(skipped as u64)? < skipped as u64 {
            return fault("length", "it is shorter than its header says".to_owned());
        }
        let seconds = options.times.div_ceil(u64::from(options.rate_hz)) as usize;
        let masks = |pieces: &[(i64, Vec<u32>)], all: u32| {
            let mut masks = vec![if pieces.is_empty() { all } else { 0 }; seconds];
            Bits::copy(pieces, start.ns / NS_PER_S, &mut masks);
            masks
        };
        let quality = masks(&bits.quality, ALL_QUALITY);
        let injections = masks(&bits.injections, ALL_INJECTIONS);
        Ok(Self { source, valid: Vec::new(), quality, injections })
    }

    /// Reads the next samples; missing ones are NaN.
    ///
    /// # Errors
    /// Those of the source; [`Error::Format`] at its end.
    pub(super) fn fill(&mut self, samples: &mut [f64]) -> Result<()> {
        self.valid.resize(samples.len(), false);
        let mut done = 0;
        while done < samples.len() {
            let valid = &mut self.valid[done..samples.len()];
            match self.source.read(&mut samples[done..], valid)? {
                0 => {
                    let (path, why) =
                        (&self.source.header().path, "it ends before its header says");
                    return Err(Error::format(path, "length", 0, why));
                }
                count => done += count,
            }
        }
        let flagged = samples.iter_mut().zip(&self.valid).filter(|(_, valid)| !**valid);
        flagged.for_each(|(x, _)| *x = f64::NAN);
        Ok(())
    }

    /// Returns the data-quality and injection bits of a second, counted from the first sample.
    pub(super) fn bits(&self, second: u64) -> [u32; 2] {
        let of = |masks: &[u32]| masks.get(second as usize).copied().unwrap_or(0);
        [of(&self.quality), of(&self.injections)]
    }

    pub(super) fn is_good(&self, second: u64) -> bool {
        self.bits(second)[0] & USABLE == USABLE
    }
}
