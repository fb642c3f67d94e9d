//! The largest error of single precision over an hour, with the coefficients as they were rounded.

use num_complex::{Complex, Complex64};
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::spiir::{Filter, Spiir};

use super::super::Row;
use super::bank::{self, RATE_HZ, Random};
use super::measure::ERROR;

/// Seconds of data.
const SECONDS: usize = 3600;

/// A template's size.
pub(super) struct Case {
    pub(super) name: &'static str,
    filters: usize,
}

/// From short memories to those of a binary neutron star from 15 Hz.
pub(super) const CASES: [Case; 4] = [
    Case { name: "largest error in an hour, 4 filters", filters: 4 },
    Case { name: "largest error in an hour, 64 filters", filters: 64 },
    Case { name: "largest error in an hour, 386 filters", filters: 386 },
    Case { name: "largest error in an hour, 640 filters", filters: 640 },
];

/// A filter in double precision, with its inputs read from the recent past.
struct Exact {
    filter: Filter,
    y: Complex64,
}

/// Measures one case: the rate is the error.
///
/// # Errors
/// Those of the filter bank.
pub(super) fn measure(case: &Case) -> Result<Row> {
    let plan = bank::plan(1, case.filters, 1)?;
    let filters = &plan.options().templates[0].branches[0].filters;
    let mut exact: Vec<Exact> =
        filters.iter().map(|filter| Exact { filter: *filter, y: Complex64::default() }).collect();
    let backend = Backend::Cpu(Level::best(), Threads::new(1));
    let mut spiir = Spiir::new(plan.clone(), &backend)?;
    let (longest, block) = (plan.history(0), RATE_HZ as usize);
    let mut random = Random(31);
    let mut input = vec![0f32; longest + block];
    let mut output = vec![Complex::default(); block];
    let mut expected = vec![Complex64::default(); block];
    let (mut worst, mut power, mut errors) = (0f64, 0f64, 0f64);
    for _ in 0..SECONDS {
        input.copy_within(block.., 0);
        input[longest..].fill_with(|| random.normal());
        spiir.run(&input[longest..], &mut output, block)?;
        expected.fill(Complex64::default());
        for one in &mut exact {
            one.add(&input, longest, &mut expected);
        }
        for (z, exact) in output.iter().zip(&expected) {
            let error = (Complex64::new(z.re.into(), z.im.into()) - exact).norm_sqr();
            (worst, errors, power) = (worst.max(error), errors + error, power + exact.norm_sqr());
        }
    }
    let mean = power / (SECONDS * block) as f64;
    let micro = |square: f64| 1e6 * (square / mean).sqrt();
    let error = micro(worst);
    Ok(Row {
        bench: "spiir",
        case: case.name.to_owned(),
        device: backend.name(),
        rate: error,
        unit: "1e-6 of rms",
        roof: 1e6 * ERROR,
        roof_unit: "1e-6 of rms",
        fraction_of_roof: error * 1e-6 / ERROR,
        baseline: micro(errors / (SECONDS * block) as f64),
        ratio_to_baseline: (worst / errors * (SECONDS * block) as f64).sqrt(),
        checked: error * 1e-6 < ERROR,
        median: error,
    })
}

impl Exact {
    /// Adds a block's outputs; the block's first sample is `x[begin]`.
    fn add(&mut self, x: &[f32], begin: usize, output: &mut [Complex64]) {
        let (a, b) = (self.filter.pole(), self.filter.weight());
        let x = &x[begin - self.filter.delay as usize..];
        for (z, x) in output.iter_mut().zip(x) {
            self.y = a * self.y + b * f64::from(*x);
            *z += self.y;
        }
    }
}
