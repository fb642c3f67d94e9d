//! Read-out of sums from tiles to the order of baselines.

use std::ops::Range;

use num_complex::Complex;

use super::super::plan::{LANES, Plan};
use super::clock::Clock;
use super::shape::{Band, ROW_SUMS};
use super::sums::Sums;
use super::tile::Kind;

/// Sums of a band, for read-out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) plan: &'a Plan,
    pub(super) band: &'a Band,
    pub(super) sums: &'a Sums,
    pub(super) kind: Kind,
    pub(super) clock: Clock,
}

impl Reader<'_> {
    /// Writes the baselines of antenna `i` with antennas `others`.
    pub(super) fn integers(&self, i: usize, others: Range<usize>, output: &mut [Complex<i64>]) {
        self.write(i, others, output, |at, column| {
            self.sums.integers(self.kind, self.clock, at, column)
        });
    }

    /// Like `integers`, for floats.
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
                let (re, im) = (&re[first..], &im[first..]);
                if polarizations == 1 {
                    for (to, (re, im)) in output.iter_mut().zip(re.iter().zip(im)) {
                        *to = Complex::new(*re, *im);
                    }
                } else {
                    let parts = re.as_chunks::<2>().0.iter().zip(im.as_chunks::<2>().0);
                    for (to, (re, im)) in output.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
                        to[2 * p] = Complex::new(re[0], im[0]);
                        to[2 * p + 1] = Complex::new(re[1], im[1]);
                    }
                }
            }
            j = end;
        }
    }
}
