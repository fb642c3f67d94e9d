//! The table of kernels that is compiled without a GPU, to see that none spills.

use super::Source;

/// The architectures that every kernel is compiled for, unless it needs Hopper's own instructions.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_90a", "sm_100"];

/// A kernel file with its constants, and what it is compiled for.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The kernel file.
    pub source: Source,
    /// As NVRTC names them.
    pub architectures: &'static [&'static str],
}

/// How much of a table is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Each value of each axis at least once.
    Representative,
    /// Every combination.
    All,
}

impl Variant {
    /// A source for all of [`ARCHITECTURES`].
    pub fn everywhere(source: Source) -> Self {
        Self { source, architectures: ARCHITECTURES }
    }

    /// A short source of plain C++: one architecture stands for all of them, unless all are wanted.
    pub fn plain(source: Source, extent: Extent) -> Self {
        match extent {
            Extent::Representative => Self { source, architectures: &["sm_90a"] },
            Extent::All => Self::everywhere(source),
        }
    }

    /// A source with instructions that Hopper alone has.
    pub fn hopper(source: Source) -> Self {
        Self { source, architectures: &["sm_90a"] }
    }
}

/// Constants from axes, each a name and its values: as many sets as the longest axis has values, or the
/// product of all.
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
