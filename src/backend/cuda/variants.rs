//! Table of kernels compiled without a GPU, to check that none spills registers.

use super::Source;

/// Architectures that every kernel is compiled for, unless it needs Hopper's instructions.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_90a", "sm_100"];

/// Kernel file with its constants and target architectures.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Kernel file and constants.
    pub source: Source,
    /// NVRTC names of the architectures.
    pub architectures: &'static [&'static str],
}

/// Coverage of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every value of every axis at least once.
    Representative,
    /// Every combination.
    All,
}

impl Variant {
    /// Compiles a source for all of [`ARCHITECTURES`].
    pub fn everywhere(source: Source) -> Self {
        Self { source, architectures: ARCHITECTURES }
    }

    /// Compiles a short source of plain C++ for one representative architecture, or for all with [`Extent::All`].
    pub fn plain(source: Source, extent: Extent) -> Self {
        match extent {
            Extent::Representative => Self { source, architectures: &["sm_90a"] },
            Extent::All => Self::everywhere(source),
        }
    }

    /// Compiles a source with Hopper's instructions for `sm_90a` only.
    pub fn hopper(source: Source) -> Self {
        Self { source, architectures: &["sm_90a"] }
    }
}

/// Returns sets of constants from axes (name and values): as many sets as the longest axis has values, or the product
/// of all axes.
///
/// ```
/// use sidereal::backend::cuda::{Extent, combinations};
/// let axes: &[(&str, &[&str])] = &[("TYPE", &["u8", "i16"]), ("CHANNELS", &["256", "512", "1024"])];
/// assert_eq!(combinations(axes, Extent::Representative).len(), 3);
/// assert_eq!(combinations(axes, Extent::All).len(), 6);
/// ```
pub fn combinations(
    axes: &[(&'static str, &[&str])],
    extent: Extent,
) -> Vec<Vec<(&'static str, String)>> {
    let lengths = axes.iter().map(|axis| axis.1.len());
    let count = match extent {
        Extent::Representative => lengths.max().unwrap_or(0),
        Extent::All => lengths.product(),
    };
    (0..count).map(|index| combination(axes, extent, index)).collect()
}

fn combination(
    axes: &[(&'static str, &[&str])],
    extent: Extent,
    mut index: usize,
) -> Vec<(&'static str, String)> {
    let mut constants = Vec::with_capacity(axes.len());
    for (name, values) in axes {
        constants.push((*name, values[index % values.len()].to_owned()));
        if extent == Extent::All {
            index /= values.len();
        }
    }
    constants
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: &[(&str, &[&str])] = &[("A", &["1", "2", "3"]), ("B", &["x", "y"]), ("C", &["0"])];

    #[test]
    fn all_are_different() {
        let mut all = combinations(AXES, Extent::All);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn representatives_hold_each_value() {
        let few = combinations(AXES, Extent::Representative);
        assert_eq!(few.len(), 3);
        for (name, values) in AXES {
            for value in *values {
                assert!(few.iter().flatten().any(|found| found.0 == *name && found.1 == *value));
            }
        }
    }
}
