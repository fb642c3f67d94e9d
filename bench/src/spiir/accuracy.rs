//! Largest single-precision error over one hour, relative to the same rounded coefficients in double precision.

use num_complex::{Complex, Complex64};
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::spiir::{Filter, Spiir};

use super::bank::{self, RATE_HZ, Random};
use super::measure::{ERROR, greater};
use crate::table::Row;

/// Seconds of data.
const SECONDS: usize = 3600;

/// Size of a template.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    filters: usize,
}

/// From short filter memories to those of a binary neutron star from 15 Hz.
pub(crate) const CASES: [Case; 4] = [
    Case { name: "largest error in an hour, 4 filters", filters: 4 },
    Case { name: "largest error in an hour, 64 filters", filters: 64 },
    Case { name: "largest error in an hour, 386 filters", filters: 386 },
    Case { name: "largest error in an hour, 640 filters", filters: 640 },
];

/// Filter in double precision that reads its delayed inputs from the recent past.
struct Exact {
    filter: Filter,
    y: Complex64,
}

/// Filters that one thread sums, and their sums over a block.
struct Group {
    filters: Vec<Exact>,
    sums: Vec<Complex64>,
}

/// Measures one case: the reported rate is the error. All cores share the double-precision sums; `quick` uses 20 s of
/// data.
///
/// # Errors
/// Those of the filter bank.
pub(crate) fn measure(case: &Case, backend: &Backend, quick: bool) -> Result<Row> {
    let plan = bank::plan(1, case.filters, 1)?;
    let filters = &plan.options().templates[0].branches[0].filters;
    let (longest, block) = (plan.history(0), RATE_HZ as usize);
    let seconds = if quick { 20 } else { SECONDS };
    let threads = Threads::new(0);
    let mut groups: Vec<Group> = filters
        .chunks(filters.len().div_ceil(threads.count()))
        .map(|filters| Group {
            filters: filters.iter().map(Exact::new).collect(),
            sums: vec![Complex64::default(); block],
        })
        .collect();
    let mut scratch = vec![(); threads.count()];
    let mut spiir = Spiir::new(plan.clone(), backend)?;
    let mut random = Random(31);
    let mut input = vec![0f32; longest + block];
    let mut output = vec![Complex::default(); block];
    let (mut worst, mut power, mut errors) = (0f64, 0f64, 0f64);
    for _ in 0..seconds {
        input.copy_within(block.., 0);
        input[longest..].fill_with(|| random.normal());
        spiir.run(&input[longest..], &mut output, block)?;
        threads.for_each_chunk(&mut scratch, &mut groups, 1, |(), _, group| {
            group.iter_mut().for_each(|group| group.add(&input, longest));
        });
        for (k, z) in output.iter().enumerate() {
            let exact: Complex64 = groups.iter().map(|group| group.sums[k]).sum();
            let error = (Complex64::new(z.re.into(), z.im.into()) - exact).norm_sqr();
            (worst, errors, power) =
                (greater(worst, error), errors + error, power + exact.norm_sqr());
        }
    }
    let samples = (seconds * block) as f64;
    let mean = power / samples;
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
        baseline: micro(errors / samples),
        ratio_to_baseline: (worst / errors * samples).sqrt(),
        checked: error * 1e-6 < ERROR,
        median: error,
    })
}

impl Group {
    fn add(&mut self, x: &[f32], begin: usize) {
        self.sums.fill(Complex64::default());
        self.filters.iter_mut().for_each(|one| one.add(x, begin, &mut self.sums));
    }
}

impl Exact {
    fn new(filter: &Filter) -> Self {
        Self { filter: *filter, y: Complex64::default() }
    }

    /// Adds a block's outputs; `x[begin]` is the block's first sample.
    fn add(&mut self, x: &[f32], begin: usize, output: &mut [Complex64]) {
        let (a, b) = (self.filter.pole(), self.filter.weight());
        let x = &x[begin - self.filter.delay as usize..];
        for (z, x) in output.iter_mut().zip(x) {
            self.y = a * self.y + b * f64::from(*x);
            *z += self.y;
        }
    }
}
