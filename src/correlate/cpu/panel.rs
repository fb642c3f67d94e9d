//! Spectra of one panel in the form of the arithmetic: 8 bit or floats, invalid samples zero.

use super::super::block::Block;
use super::super::plan::{LANES, Plan};
use super::partition::Piece;
use crate::voltage::VoltageEncoding;

/// Channel of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel<'a> {
    pub(super) plan: &'a Plan,
    pub(super) block: Block<'a>,
    pub(super) channel: usize,
}

impl<'a> Channel<'a> {
    /// Returns a panel's packed bytes of some times, which begin at an even one.
    #[inline(always)]
    pub(super) fn packed(&self, panel: usize, first: usize, times: usize) -> &'a [u8] {
        let size = self.plan.panel_bytes(self.block.times());
        let bytes = &self.block.bytes()[(self.channel * self.plan.panels() + panel) * size..];
        &bytes[self.plan.panel_bytes(first)..][..self.plan.panel_bytes(times)]
    }

    /// Returns a panel's antennas.
    #[inline(always)]
    fn antennas(&self, panel: usize) -> std::ops::Range<usize> {
        let antennas = LANES / self.plan.polarizations();
        panel * antennas..self.plan.antennas().min((panel + 1) * antennas)
    }

    /// Returns a panel's spectra of a piece: the packed bytes, or a modified copy in the buffer.
    #[inline(always)]
    pub(super) fn spectra<'b>(&self, panel: usize, piece: Piece, buffer: &'b mut [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        let packed = self.packed(panel, piece.first, piece.times);
        let encoding = self.plan.encoding();
        let float = encoding == VoltageEncoding::ComplexF32;
        let odd = !float && piece.times % 2 == 1;
        let valid = self.antennas(panel).all(|antenna| {
            let mask = self.block.mask(self.plan, self.channel, antenna);
            mask.is_none_or(|mask| invalid(mask, piece).all(|(_, bits)| bits == 0))
        });
        if encoding == VoltageEncoding::Complex4 {
            unpack_nibbles(packed, buffer);
        } else if valid && !odd {
            return packed;
        } else {
            buffer[..packed.len()].copy_from_slice(packed);
        }
        let size = packed.len() * if encoding == VoltageEncoding::Complex4 { 2 } else { 1 };
        let buffer = &mut buffer[..size];
        if odd {
            let last = size - 4 * LANES;
            buffer[last..].chunks_exact_mut(4).for_each(|pair| pair[2..].fill(0));
        }
        if !valid {
            self.clear(panel, piece, buffer);
        }
        buffer
    }

    /// Sets invalid samples of a panel's antennas to zero.
    fn clear(&self, panel: usize, piece: Piece, buffer: &mut [u8]) {
        let polarizations = self.plan.polarizations();
        let float = self.plan.encoding() == VoltageEncoding::ComplexF32;
        let first = self.antennas(panel).start;
        for antenna in self.antennas(panel) {
            let Some(mask) = self.block.mask(self.plan, self.channel, antenna) else { continue };
            let lanes = (antenna - first) * polarizations..(antenna - first + 1) * polarizations;
            for (start, mut bits) in invalid(mask, piece) {
                while bits != 0 {
                    let time = start + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    for lane in lanes.clone() {
                        if float {
                            let at = (time * 2 * LANES + lane) * 4;
                            buffer[at..at + 4].fill(0);
                            buffer[at + 4 * LANES..][..4].fill(0);
                        } else {
                            let at = (time / 2 * LANES + lane) * 4 + time % 2 * 2;
                            buffer[at..at + 2].fill(0);
                        }
                    }
                }
            }
        }
    }
}

/// Yields the piece's invalid times in groups of 64: index of the first time in the piece, and one bit per time.
#[inline(always)]
fn invalid(mask: &[u64], piece: Piece) -> impl Iterator<Item = (usize, u64)> {
    (0..piece.times).step_by(64).map(move |start| {
        let (word, shift) = ((piece.first + start) / 64, (piece.first + start) % 64);
        let mut bits = mask[word] >> shift;
        if shift > 0 && word + 1 < mask.len() {
            bits |= mask[word + 1] << (64 - shift);
        }
        let left = (piece.times - start).min(64);
        (start, !bits & (u64::MAX >> (64 - left)))
    })
}

/// Unpacks nibbles to bytes: (real, imaginary), sign-extended.
#[inline(always)]
fn unpack_nibbles(packed: &[u8], buffer: &mut [u8]) {
    for (from, to) in packed.iter().zip(buffer.chunks_exact_mut(2)) {
        // The shift left puts the nibble's sign at the top of the byte; the arithmetic shift right extends it.
        let high = |byte: u8| ((byte as i8) >> 4) as u8;
        (to[0], to[1]) = (high(*from), high(*from << 4));
    }
}
