//! Samples of a live stream that were dropped because processing was slower than the stream.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::source::Behind;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::{common::Common, say::warning, streams};

/// Least time between two warnings.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const EVERY: Duration = Duration::from_secs(10);

/// Samples dropped because processing was slower than the stream.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Dropped {
    /// Number of stretches; they are among the gaps.
    stretches: u64,
    /// Blocks of the stream in them: heaps or packets, each of all sources.
    blocks: u64,
    dropped_s: f64,
    /// Stage that took longest before the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest_stage: Option<&'static str>,
}

/// Reporter of what is dropped of one observation.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) struct Reporter {
    is_quiet: bool,
    reported: Behind,
    last: Option<Instant>,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Reporter {
    pub(crate) fn new(common: &Common) -> Self {
        Self { is_quiet: common.quiet, reported: Behind::default(), last: None }
    }

    /// Warns of what was dropped since the last warning, unless that was a short time ago.
    pub(crate) fn look(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.tell();
        }
    }

    /// Warns of what was dropped since the last warning; returns the sum over the observation so far, `None` without any.
    pub(crate) fn sum(&mut self) -> Option<Dropped> {
        let tsamp_s = self.tell();
        let Behind { stretches, blocks, times, slowest, .. } = self.reported;
        (times > 0).then(|| Dropped {
            stretches,
            blocks,
            dropped_s: times as f64 * tsamp_s,
            slowest_stage: slowest.map(|slowest| slowest.name),
        })
    }

    /// Returns the time of a sample in seconds.
    fn tell(&mut self) -> f64 {
        let (behind, tsamp_s) = streams::behind();
        if let Some(line) = line(&self.reported, &behind, tsamp_s) {
            warning!(quiet: self.is_quiet, "{line}");
            (self.reported, self.last) = (behind, Some(Instant::now()));
        }
        tsamp_s
    }
}

/// Describes what was dropped between two looks; `None` if nothing was.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn line(before: &Behind, now: &Behind, tsamp_s: f64) -> Option<String> {
    let times = now.times.checked_sub(before.times).filter(|times| *times > 0)?;
    let last = now.last?;
    let (first, end) = (last.start_time, last.start_time + last.times);
    let which = match now.stretches.saturating_sub(before.stretches) {
        0 | 1 => String::new(),
        several => format!(" in {several} stretches, of which the last is"),
    };
    let mut line = format!(
        "behind real time: {} blocks ({:.4} s) were dropped,{which} samples {first} to {}, from {:.4} s on.",
        now.blocks.saturating_sub(before.blocks),
        times as f64 * tsamp_s,
        end - 1,
        first as f64 * tsamp_s,
    );
    if let Some(slowest) = now.slowest {
        line += &format!(
            " The slowest stage is `{}`: {:.2} s of the last {:.2} s.",
            slowest.name, slowest.busy_s, slowest.of_s
        );
    }
    Some(line)
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use sidereal::io::Gap;
    use sidereal::trace::Slowest;

    use super::*;

    #[test]
    fn a_line_names_the_samples_and_the_slowest_stage() {
        let nothing = Behind::default();
        assert_eq!(line(&nothing, &nothing, 1e-3), None);
        let slowest = Slowest { name: "dedisperse", busy_s: 0.9, of_s: 1.25 };
        let one = Behind {
            stretches: 1,
            blocks: 2,
            times: 256,
            last: Some(Gap { start_time: 12_288, times: 256 }),
            slowest: Some(slowest),
        };
        assert_eq!(
            line(&nothing, &one, 1e-3).unwrap(),
            "behind real time: 2 blocks (0.2560 s) were dropped, samples 12288 to 12543, from 12.2880 s on. \
             The slowest stage is `dedisperse`: 0.90 s of the last 1.25 s."
        );
        assert_eq!(line(&one, &one, 1e-3), None);
        let last = Some(Gap { start_time: 20_480, times: 128 });
        let more = Behind { stretches: 4, blocks: 5, times: 640, last, slowest: None };
        assert_eq!(
            line(&one, &more, 1e-3).unwrap(),
            "behind real time: 3 blocks (0.3840 s) were dropped, in 3 stretches, of which the last is samples \
             20480 to 20607, from 20.4800 s on."
        );
    }
}
