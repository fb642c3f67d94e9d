//! Joins several recordings of one detector into one stream.
//!
//! Invariant: sample `k` of the stream is at `start + k / rate`, whatever is missing between the files.

use super::{StrainHeader, StrainSource};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Longest accepted gap between two files, in seconds; a longer one is presumed to be a mistake.
const LONGEST_GAP_S: u64 = 1_000_000;

/// A source with the index of its first sample in the stream.
struct Part {
    first: u64,
    source: Box<dyn StrainSource>,
}

struct Joined {
    header: StrainHeader,
    parts: Vec<Part>,
    /// The part being read, or the next one after a gap.
    part: usize,
    next: u64,
    cut: Option<String>,
    warnings: Vec<String>,
}

/// Joins sources of known length in order of time.
///
/// # Errors
/// [`Error::Parameter`] for none; [`Error::Format`] for different detectors or rates, for overlaps, for a distance
/// that is not a whole number of samples, or a gap of more than a million seconds.
pub fn join(mut sources: Vec<Box<dyn StrainSource>>) -> Result<Box<dyn StrainSource>> {
    sources.sort_by_key(|source| source.header().start);
    let Some(first) = sources.first() else {
        return Err(Error::parameter("files of strain", 0, "there must be at least one"));
    };
    let mut header = first.header().clone();
    let mut parts = Vec::with_capacity(sources.len());
    let cuts: Vec<&str> = sources.iter().filter_map(|source| source.cut()).collect();
    let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
    let warnings = sources.iter().flat_map(|source| source.warnings().to_vec()).collect();
    let mut end = 0;
    for source in sources {
        let first = place(&header, source.header(), end)?;
        let Some(times) = source.header().times else {
            let why = "its length is not known, so nothing can follow it";
            return Err(Error::format(&source.header().path, "length", 0, why));
        };
        end = first + times;
        parts.push(Part { first, source });
    }
    header.times = Some(end);
    Ok(Box::new(Joined { header, parts, part: 0, next: 0, cut, warnings }))
}

/// Returns the index of a file's first sample in the stream, which has `end` samples so far.
fn place(stream: &StrainHeader, file: &StrainHeader, end: u64) -> Result<u64> {
    let fault = |field: &str, why: String| Err(Error::format(&file.path, field, 0, why));
    if file.detector != stream.detector {
        let why = format!("{:?} found, expected {:?}", file.detector, stream.detector);
        return fault("detector", why);
    }
    if file.rate_hz != stream.rate_hz {
        let why = format!("{} Hz found, expected {} Hz", file.rate_hz, stream.rate_hz);
        return fault("rate", why);
    }
    let rate = i128::from(stream.rate_hz);
    let distance_ns = i128::from(file.start.ns) - i128::from(stream.start.ns);
    let first = (distance_ns * rate + 500_000_000).div_euclid(1_000_000_000);
    // Start times are accurate to about 0.1 us.
    if (first * 1_000_000_000 - distance_ns * rate).abs() > 1000 * rate {
        let why =
            format!("{distance_ns} ns after the first file, which is no whole number of samples");
        return fault("start", why);
    }
    let first = first as u64;
    if first < end {
        let seconds = (end - first) as f64 / f64::from(stream.rate_hz);
        return fault("start", format!("it overlaps the strain before it by {seconds} s"));
    }
    let gap_s = (first - end) / u64::from(stream.rate_hz);
    if gap_s > LONGEST_GAP_S {
        return fault("start", format!("a gap of {gap_s} s, expected {LONGEST_GAP_S} s at most"));
    }
    Ok(first)
}

impl StrainSource for Joined {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        let mut done = 0;
        while done < samples.len() {
            let Some(part) = self.parts.get_mut(self.part) else { break };
            let (samples, valid) = (&mut samples[done..], &mut valid[done..]);
            let count = if self.next < part.first {
                let count = (part.first - self.next).min(samples.len() as u64) as usize;
                samples[..count].fill(0.0);
                valid[..count].fill(false);
                count
            } else {
                let count = part.source.read(samples, valid)?;
                if count == 0 {
                    self.part += 1;
                }
                count
            };
            self.next += count as u64;
            done += count;
        }
        Ok(done)
    }
    fn skip(&mut self, samples: u64) -> Result<u64> {
        let mut done = 0;
        while done < samples {
            let Some(part) = self.parts.get_mut(self.part) else { break };
            let count = if self.next < part.first {
                (part.first - self.next).min(samples - done)
            } else {
                let count = part.source.skip(samples - done)?;
                if count == 0 {
                    self.part += 1;
                }
                count
            };
            self.next += count;
            done += count;
        }
        Ok(done)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
