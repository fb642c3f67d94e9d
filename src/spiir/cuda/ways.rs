//! The ways to run a bank's filters, all to the same bits, and which of them a device takes.

use super::bank::PIECE;
use super::kernels;
use super::pack::Packed;
use crate::backend::cuda::Device;
use crate::backend::cuda::tune::{self, Choice};

/// Samples of a launch such that what passes add to stays in a device's cache: 32 MiB for 4096 templates.
const CACHED_PIECE: usize = 1024;

/// Passes over filters of one rate from which on what they add to costs more than windows that are filled more often.
const MANY_PASSES: u32 = 16;

/// Most samples of the full rate in one launch: what was measured best for these tables on this device, else by the passes.
pub(super) fn piece(packed: &Packed, device: &Device) -> usize {
    let passes = packed.units.iter().map(|unit| unit[3]).max().unwrap_or(0);
    let is_one_rate = packed.units.iter().all(|unit| unit[0] == 0);
    let pieces = suitable(passes, is_one_rate);
    let candidate = |piece: &usize| Choice {
        name: format!("launches of {piece} samples"),
        values: vec![*piece as u32],
    };
    let candidates: Vec<Choice> = pieces.iter().map(candidate).collect();
    let choice = tune::choice(device, &kernels::sources(), &packed.words(), &candidates);
    let chosen = pieces.iter().find(|piece| choice.values == [**piece as u32]);
    *chosen.unwrap_or(&pieces[0])
}

/// The pieces that suit so many passes, the one first that a model takes. A single pass adds to nothing, and of several rates each
/// piece brings up the lower ones.
fn suitable(passes: u32, is_one_rate: bool) -> &'static [usize] {
    match passes {
        0..=1 => &[PIECE],
        MANY_PASSES.. if is_one_rate => &[CACHED_PIECE, PIECE],
        _ => &[PIECE, CACHED_PIECE],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_passes_take_short_launches() {
        assert_eq!(suitable(1, true), [PIECE]);
        assert_eq!(suitable(4, true)[0], PIECE);
        assert_eq!(suitable(50, true)[0], CACHED_PIECE);
        assert_eq!(suitable(50, false)[0], PIECE);
    }
}
