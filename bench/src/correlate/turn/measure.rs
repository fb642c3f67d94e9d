//! Rounds, random input and rows of measured corner turns.

use sidereal::backend::Backend;
use sidereal::voltage::VoltageEncoding;
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8};

use crate::table::{Row, best_and_median};

/// Least number of rounds.
pub(crate) const ROUNDS: usize = 5;

/// Names an encoding: `4 bit`, `8 bit`, `f32`.
pub(crate) fn encoding_name(encoding: VoltageEncoding) -> &'static str {
    match encoding {
        Complex4 => "4 bit",
        Complex8 => "8 bit",
        _ => "f32",
    }
}

/// Returns a generator of pseudorandom numbers.
pub(crate) fn random() -> impl FnMut() -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Makes a case's row from rates, roofs and baselines.
pub(crate) fn row_of(
    name: &str,
    (backend, unit): (&Backend, &'static str),
    checked: bool,
    [mut rates, mut roofs, mut baselines]: [Vec<f64>; 3],
) -> Row {
    let (rate, median) = best_and_median(&mut rates);
    let (roof, baseline) = (best_and_median(&mut roofs).0, best_and_median(&mut baselines).0);
    Row {
        bench: "correlate",
        case: name.to_owned(),
        device: backend.name(),
        rate,
        unit,
        roof,
        roof_unit: unit,
        fraction_of_roof: rate / roof,
        baseline,
        ratio_to_baseline: rate / baseline,
        checked,
        median,
    }
}
