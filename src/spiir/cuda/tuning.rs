//! Tuning candidates for the launch length of a filter bank; all give the same bits.

use super::kernels;
use super::pack::Packed;
use crate::backend::cuda::Device;
use crate::backend::cuda::tune::{self, Choice};

/// Most full-rate samples in one launch of any filter bank.
pub(super) const PIECE: usize = 4096;
/// Samples of a launch whose sums stay in the device's level-2 cache: 32 MiB for 4096 templates.
const CACHED_PIECE: usize = 1024;

/// Pass count above which accumulator traffic outweighs refilling the window.
const MANY_PASSES: u32 = 16;

/// Returns the most full-rate samples in one launch: the tuned choice for these tables and this device, else by the
/// passes.
pub(super) fn piece(packed: &Packed, device: &Device) -> usize {
    let passes = packed.units.iter().map(|unit| unit[3]).max().unwrap_or(0);
    let is_one_rate = packed.units.iter().all(|unit| unit[0] == 0);
    let pieces = suitable(passes, is_one_rate);
    let candidate = |piece: &usize| Choice {
        name: format!("launches of {piece} samples"),
        values: vec![*piece as u32],
    };
    let candidates: Vec<Choice> = pieces.iter().map(candidate).collect();
    let choice = tune::choice(device, &kernels::sources(), &packed.tuning_key(), &candidates);
    let chosen = pieces.iter().find(|piece| choice.values == [**piece as u32]);
    *chosen.unwrap_or(&pieces[0])
}

/// Returns the candidates for a number of passes, the model's choice first. A single pass adds to no earlier sums,
/// and with several rates each launch also upsamples the lower ones.
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
