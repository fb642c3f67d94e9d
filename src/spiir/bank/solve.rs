//! Least squares with a Hermitian matrix that has few entries far from its diagonal.

use num_complex::Complex64;

/// Lower triangle of a Hermitian matrix.
#[derive(Clone, Debug)]
pub(super) struct Hermitian {
    size: usize,
    /// Rows in order, each up to the diagonal.
    entries: Vec<Complex64>,
}

impl Hermitian {
    /// Returns a zero matrix.
    pub(super) fn zeros(size: usize) -> Self {
        Self { size, entries: vec![Complex64::default(); size * (size + 1) / 2] }
    }

    /// Sets an entry and its conjugate across the diagonal.
    pub(super) fn set(&mut self, row: usize, column: usize, value: Complex64) {
        if row >= column {
            self.entries[start(row) + column] = value;
        } else {
            self.entries[start(column) + row] = value.conj();
        }
    }

    fn row(&self, row: usize) -> &[Complex64] {
        &self.entries[start(row)..start(row + 1)]
    }

    /// Returns `x^H G x`.
    pub(super) fn norm(&self, x: &[Complex64]) -> f64 {
        let row = |at: usize| {
            let (diagonal, below) = (self.row(at)[at].re, &self.row(at)[..at]);
            let cross: Complex64 = below.iter().zip(x).map(|(entry, other)| entry * other).sum();
            diagonal * x[at].norm_sqr() + 2.0 * (x[at].conj() * cross).re
        };
        (0..self.size).map(row).sum()
    }

    /// Solves `(G + ridge diag G) x = y` by a Cholesky factorization whose rows start at their first nonzero entry.
    pub(super) fn solve(&self, ridge: f64, y: &[Complex64]) -> Option<Vec<Complex64>> {
        let scale: Vec<f64> = (0..self.size).map(|at| self.row(at)[at].re.sqrt()).collect();
        let mut factor = self.clone();
        let mut firsts = Vec::with_capacity(self.size);
        for row in 0..self.size {
            let (above, current) = factor.entries.split_at_mut(start(row));
            let current = &mut current[..=row];
            for (column, entry) in current.iter_mut().enumerate() {
                *entry /= scale[row] * scale[column];
            }
            let first = current.iter().position(|entry| entry.norm_sqr() > 0.0)?;
            for column in first..row {
                let from = first.max(firsts[column]);
                let other = &above[start(column)..start(column + 1)];
                let pairs =
                    current[from.min(column)..column].iter().zip(&other[from.min(column)..column]);
                let done: Complex64 = pairs.map(|(left, right)| left * right.conj()).sum();
                current[column] = (current[column] - done) / other[column].re;
            }
            let done: f64 = current[first..row].iter().map(Complex64::norm_sqr).sum();
            let left = current[row].re * (1.0 + ridge) - done;
            if left <= 0.0 || !left.is_finite() {
                return None;
            }
            current[row] = Complex64::new(left.sqrt(), 0.0);
            firsts.push(first);
        }
        let mut x: Vec<Complex64> = y.iter().zip(&scale).map(|(y, scale)| y / scale).collect();
        for row in 0..self.size {
            let (known, current) = x.split_at_mut(row);
            let entries = factor.row(row);
            let pairs = entries[firsts[row]..row].iter().zip(&known[firsts[row]..]);
            let done: Complex64 = pairs.map(|(entry, x)| entry * x).sum();
            current[0] = (current[0] - done) / entries[row].re;
        }
        for row in (0..self.size).rev() {
            let (rest, current) = x.split_at_mut(row);
            let entries = factor.row(row);
            current[0] /= entries[row].re;
            for (x, entry) in rest[firsts[row]..].iter_mut().zip(&entries[firsts[row]..row]) {
                *x -= entry.conj() * current[0];
            }
        }
        x.iter_mut().zip(&scale).for_each(|(x, scale)| *x /= scale);
        Some(x)
    }
}

fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solution_solves() {
        let size = 7;
        let mut matrix = Hermitian::zeros(size);
        for row in 0..size {
            for column in row.saturating_sub(2)..row {
                matrix.set(column, row, Complex64::new(0.3, 0.1 * column as f64 - 0.2));
            }
            matrix.set(row, row, Complex64::new(2.0 + row as f64, 0.0));
        }
        let truth: Vec<Complex64> =
            (0..size).map(|at| Complex64::new(at as f64, 1.0 - at as f64)).collect();
        let entry = |row: usize, column: usize| {
            if row >= column { matrix.row(row)[column] } else { matrix.row(column)[row].conj() }
        };
        let times = |row: usize| (0..size).map(|column| entry(row, column) * truth[column]).sum();
        let y: Vec<Complex64> = (0..size).map(times).collect();
        let x = matrix.solve(0.0, &y).expect("positive");
        for (x, truth) in x.iter().zip(&truth) {
            assert!((x - truth).norm() < 1e-12, "{x} against {truth}");
        }
        let direct: Complex64 = truth.iter().zip(&y).map(|(x, y)| x.conj() * y).sum();
        assert!((matrix.norm(&truth) - direct.re).abs() < 1e-10);
        matrix.set(3, 3, Complex64::new(-1.0, 0.0));
        assert!(matrix.solve(0.0, &y).is_none());
    }
}
