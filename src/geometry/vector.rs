//! Vectors of three elements and 3 x 3 matrices.

pub(super) type Vector = [f64; 3];

/// A matrix: rows of three.
pub(super) type Matrix = [[f64; 3]; 3];

pub(super) fn dot(a: &Vector, b: &Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn cross(a: &Vector, b: &Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

pub(super) fn minus(a: &Vector, b: &Vector) -> Vector {
    std::array::from_fn(|k| a[k] - b[k])
}

/// Computes `a + factor b`.
pub(super) fn plus_scaled(a: &Vector, factor: f64, b: &Vector) -> Vector {
    std::array::from_fn(|k| a[k] + factor * b[k])
}

pub(super) fn length(a: &Vector) -> f64 {
    dot(a, a).sqrt()
}

/// Returns the unit vector along `a`, which must not be 0.
pub(super) fn unit(a: &Vector) -> Vector {
    let length = length(a);
    a.map(|value| value / length)
}

/// Multiplies the matrix and the vector.
pub(super) fn rotate(matrix: &Matrix, a: &Vector) -> Vector {
    std::array::from_fn(|row| dot(&matrix[row], a))
}

/// Multiplies the transposed matrix and the vector: the inverse rotation.
pub(super) fn rotate_back(matrix: &Matrix, a: &Vector) -> Vector {
    std::array::from_fn(|k| matrix[0][k] * a[0] + matrix[1][k] * a[1] + matrix[2][k] * a[2])
}
