//! Reference implementation of the corner turn, sample by sample: slow; all other variants are tested against it.

use super::source::Source;
use crate::correlate::plan::{LANES, Plan};
use crate::voltage::VoltageEncoding;

/// Writes `times` spectra in the packed order.
pub(super) fn turn(plan: &Plan, source: Source<'_>, times: usize, packed: &mut [u8]) {
    let (panel_bytes, group) = (plan.panel_bytes(times), plan.group());
    for (index, panel) in packed.chunks_exact_mut(panel_bytes.max(1)).enumerate() {
        let (channel, first) = (index / plan.panels(), index % plan.panels() * LANES);
        for time in 0..times.next_multiple_of(group) {
            for lane in 0..LANES {
                let mut sample = [0; 8];
                if first + lane < plan.inputs() && time < times {
                    let size = plan.encoding().sample_bits() / 8;
                    let from = source.sample(plan, first + lane, channel, time);
                    sample[..size].copy_from_slice(&from[..size]);
                }
                put(plan.encoding(), sample, time, lane, panel);
            }
        }
    }
}

/// Writes one sample into its panel.
fn put(encoding: VoltageEncoding, sample: [u8; 8], time: usize, lane: usize, panel: &mut [u8]) {
    let place = (time / 2 * LANES + lane) * 2 + time % 2;
    match encoding {
        VoltageEncoding::Complex4 => panel[place] = sample[0],
        VoltageEncoding::Complex8 => panel[2 * place..][..2].copy_from_slice(&sample[..2]),
        _ => {
            for (part, bytes) in sample.chunks_exact(4).enumerate() {
                let at = ((2 * time + part) * LANES + lane) * 4;
                panel[at..at + 4].copy_from_slice(bytes);
            }
        }
    }
}
