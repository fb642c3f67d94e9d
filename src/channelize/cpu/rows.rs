//! Sample rows as read by the windowed sums: converted in advance, or in their recorded encoding.
//!
//! Invariant: a column's value does not depend on where it is read from.
#![allow(unsafe_code)]

use super::butterfly::Complexes;
use super::vector::Vector;
use crate::voltage::VoltageEncoding;

/// Storage format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Converted: real parts, then imaginary parts.
    Split,
    /// Recorded single-precision floats.
    Float,
    /// Recorded 16-bit integers.
    Short,
    /// Recorded signed bytes.
    Byte,
}

impl Row {
    /// Returns the fastest format for rows of whole registers. With few taps, each sample is read too few times for a
    /// separate conversion pass to pay for its memory traffic.
    pub(super) fn best(encoding: VoltageEncoding, taps: usize) -> Self {
        use VoltageEncoding as E;
        match encoding {
            E::ComplexF32 | E::RealF32 if taps <= MOST_FLOAT_TAPS => Self::Float,
            E::Complex16 | E::Real16 if taps <= MOST_TAPS => Self::Short,
            E::Complex8 | E::Real8 if taps <= MOST_TAPS => Self::Byte,
            _ => Self::Split,
        }
    }
}

/// Maximum number of taps for which integers are converted at every read.
const MOST_TAPS: usize = 8;

/// Maximum number of taps for which floats are deinterleaved at every read.
const MOST_FLOAT_TAPS: usize = 24;

/// Loads a register of columns of a row.
///
/// # Safety
/// Same requirements as for [`Vector`]'s methods; the row must hold the columns.
pub(super) unsafe trait Load {
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V>;
}

pub(super) struct Split;
pub(super) struct Float;
pub(super) struct Short;
pub(super) struct Byte;

// SAFETY: reads two registers of a converted row.
unsafe impl Load for Split {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Complexes::load(row.cast::<f32>().add(column), imaginary) }
    }
}

// SAFETY: reads 8 bytes per column.
unsafe impl Load for Float {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let from = row.cast::<f32>().add(2 * column);
            let (re, im) = V::load(from).deinterleave(V::load(from.add(V::LANES)));
            Complexes { re, im }
        }
    }
}

// SAFETY: reads 4 bytes per column.
unsafe impl Load for Short {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let words = V::words_4(row.add(4 * column));
            Complexes { re: V::field::<16, 16>(words), im: V::field::<0, 16>(words) }
        }
    }
}

// SAFETY: reads 2 bytes per column.
unsafe impl Load for Byte {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let words = V::words_2(row.add(2 * column));
            Complexes { re: V::field::<24, 24>(words), im: V::field::<16, 24>(words) }
        }
    }
}
