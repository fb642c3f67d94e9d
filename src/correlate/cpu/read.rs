//! Sums of tiles, written out baseline by baseline.

use std::ops::Range;

use num_complex::Complex;

use super::super::plan::{LANES, Plan};
use super::clock::Clock;
use super::shape::{Band, ROW_SUMS};
use super::sums::Sums;
use super::tile::Kind;

/// A band's sums, to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) plan: &'a Plan,
    pub(super) band: &'a Band,
    pub(super) sums: &'a Sums,
    pub(super) kind: Kind,
    pub(super) clock: Clock,
}

impl Reader<'_> {
    /// Baselines of antenna `i` with some others.
    pub(super) fn integers(&self, i: usize, others: Range<usize>, output: &mut [Complex<i64>]) {
        self.write(i, others, output, |at, column| {
            self.sums.integers(self.kind, self.clock, at, column)
        });
    }

    /// The same of floats.
    pub(super) fn floats(&self, i: usize, others: Range<usize>, output: &mut [Complex<f64>]) {
        self.write(i, others, output, |at, _| self.sums.floats(self.clock, at));
    }

    #[inline(always)]
    fn write<T: Copy>(
        &self,
        i: usize,
        others: Range<usize>,
        output: &mut [Complex<T>],
        sums: impl Fn(usize, usize) -> [T; ROW_SUMS],
    ) {
        let polarizations = self.plan.polarizations();
        let antennas = LANES / polarizations;
        let (panel, pairs) = (i / antennas, self.plan.pairs());
        let mut j = others.start;
        while j < others.end {
            let column = j / antennas;
            let end = others.end.min((column + 1) * antennas);
            let output = &mut output[(j - others.start) * pairs..(end - others.start) * pairs];
            for p in 0..polarizations {
                let row = (i * polarizations + p) % LANES;
                let at = self.band.at(panel, column) + row * ROW_SUMS;
                let sums = sums(at, self.band.column(column));
                let (re, im) = sums.split_at(ROW_SUMS / 2);
                let first = (j % antennas) * polarizations;
                let parts = re[first..].iter().zip(&im[first..]);
                if polarizations == 1 {
                    for (to, (re, im)) in output.iter_mut().zip(parts) {
                        *to = Complex::new(*re, *im);
                    }
                } else {
                    let output = output.iter_mut().enumerate();
                    let row = output.filter(|(at, _)| at / 2 % 2 == p).map(|(_, to)| to);
                    for (to, (re, im)) in row.zip(parts) {
                        *to = Complex::new(*re, *im);
                    }
                }
            }
            j = end;
        }
    }
}
