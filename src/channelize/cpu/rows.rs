//! Rows of samples as the windowed sums read them: converted before, or as they came.
//!
//! Invariant: a column's value does not depend on where it is read from.
#![allow(unsafe_code)]

use super::butterfly::Complexes;
use super::vector::Vector;
use crate::voltage::VoltageEncoding;

/// How rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Converted: real parts, imaginary ones behind them.
    Split,
    /// Single-precision floats as they came.
    Float,
    /// 16-bit integers as they came.
    Short,
    /// Signed bytes as they came.
    Byte,
}

impl Row {
    /// How rows of whole registers are read best: few taps read integers too seldom for a conversion to
    /// pay for its way through memory.
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

/// The most taps for which integers are converted each time that they are read.
const MOST_TAPS: usize = 8;

/// The most taps for which floats are taken apart each time that they are read.
const MOST_FLOAT_TAPS: usize = 24;

/// A register of columns of a row.
///
/// # Safety
/// As for [`Vector`]'s methods; the row holds the columns.
pub(super) unsafe trait Load {
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V>;
}

pub(super) struct Split;
pub(super) struct Float;
pub(super) struct Short;
pub(super) struct Byte;

// SAFETY: two registers of a converted row.
unsafe impl Load for Split {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V> {
        // SAFETY: the caller's promise is handed on.
        unsafe { Complexes::load(row.cast::<f32>().add(column), imaginary) }
    }
}

// SAFETY: 8 bytes a column.
unsafe impl Load for Float {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            let from = row.cast::<f32>().add(2 * column);
            let (re, im) = V::load(from).deinterleave(V::load(from.add(V::LANES)));
            Complexes { re, im }
        }
    }
}

// SAFETY: 4 bytes a column.
unsafe impl Load for Short {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            let words = V::words_4(row.add(4 * column));
            Complexes { re: V::field::<16, 16>(words), im: V::field::<0, 16>(words) }
        }
    }
}

// SAFETY: 2 bytes a column.
unsafe impl Load for Byte {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            let words = V::words_2(row.add(2 * column));
            Complexes { re: V::field::<24, 24>(words), im: V::field::<16, 24>(words) }
        }
    }
}
