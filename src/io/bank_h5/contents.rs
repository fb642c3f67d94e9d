//! Names in the file, and types common to several data sets.

use hdf5_pure::{CompoundTypeBuilder, Datatype, FormatError};
use num_complex::Complex;

use super::TemplateRecord;
use crate::strain::Binary;

/// A numeric field of a template: data set name, getter and setter.
pub(super) struct Number {
    pub(super) name: &'static str,
    pub(super) of: fn(&TemplateRecord) -> f64,
    pub(super) put: fn(&mut TemplateRecord, f64),
}

macro_rules! number {
    ($field:ident) => {
        Number {
            name: stringify!($field),
            of: |template| template.$field,
            put: |template, value| template.$field = value,
        }
    };
}

/// Fields that every template has.
pub(super) const NUMBERS: &[Number] = &[
    number!(fit),
    number!(placement_fit),
    number!(epsilon),
    number!(sigma_1mpc),
    number!(horizon_mpc),
    number!(peak_offset_s),
    number!(duration_s),
    number!(f_low_hz),
    number!(f_final_hz),
];

/// Fields of a template's binary; NaN if unknown.
pub(super) const BINARY: [&str; 4] = ["mass1_msun", "mass2_msun", "spin1z", "spin2z"];

pub(super) fn binary_numbers(binary: Option<&Binary>) -> [f64; 4] {
    binary.map_or([f64::NAN; 4], |own| [own.mass1_msun, own.mass2_msun, own.spin1z, own.spin2z])
}

pub(super) fn complex_type() -> Result<Datatype, FormatError> {
    CompoundTypeBuilder::new().f32_field("r").f32_field("i").build()
}

pub(super) fn complex_bytes(values: &[Complex<f32>]) -> Vec<u8> {
    let both = |z: &Complex<f32>| [z.re.to_le_bytes(), z.im.to_le_bytes()].concat();
    values.iter().flat_map(both).collect()
}

pub(super) fn complex_values(bytes: &[u8]) -> Vec<Complex<f32>> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let (pairs, _) = numbers.as_chunks::<2>();
    pairs
        .iter()
        .map(|[re, im]| Complex::new(f32::from_le_bytes(*re), f32::from_le_bytes(*im)))
        .collect()
}
