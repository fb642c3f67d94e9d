//! Groups of spectra that are summed together, and the division of a call's work into tasks.
//!
//! Invariant: groups are anchored to the stream's first spectrum; a task holds whole groups, but at the
//! ends of a call.

use super::shape::Shape;
use crate::channelize::plan::Plan;

/// Maximum number of spectra per group; longer rows are sums of groups.
const MOST: usize = 256;

/// Tasks per thread and round, if rows have several groups.
pub(super) const ROUND: usize = 4;

/// Spectra per row and per group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    row: u64,
    group: u64,
}

impl Groups {
    pub(super) fn new(plan: &Plan) -> Self {
        let row = plan.spectra_per_row();
        let group = row.min(MOST.max((8 * plan.taps()).next_power_of_two()));
        Self { row: row as u64, group: group as u64 }
    }

    /// Returns the groups per row.
    pub(super) fn in_row(&self) -> u64 {
        self.row.div_ceil(self.group)
    }

    /// Returns the group of a spectrum.
    fn group(&self, spectrum: u64) -> u64 {
        spectrum / self.row * self.in_row() + spectrum % self.row / self.group
    }

    /// Returns a group's first spectrum.
    fn start(&self, group: u64) -> u64 {
        group / self.in_row() * self.row + group % self.in_row() * self.group
    }

    /// Returns whether a spectrum is the first of its group.
    pub(super) fn begins(&self, spectrum: u64) -> bool {
        self.start(self.group(spectrum)) == spectrum
    }

    /// Returns whether a spectrum is the last of its group.
    pub(super) fn ends(&self, spectrum: u64) -> bool {
        self.begins(spectrum + 1)
    }
}

/// Tasks of a call: each is one unit (an antenna's recorded channel) and a range of spectra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    pub(super) count: usize,
    units: usize,
    first: u64,
    last: u64,
    /// Groups per task.
    groups: u64,
}

impl Tasks {
    /// Divides the spectra `first .. last` of all units into a few tasks per thread, long enough that their overlap
    /// of `taps - 1` rows costs little.
    pub(super) fn new(
        shape: &Shape,
        groups: &Groups,
        (first, last): (u64, u64),
        units: usize,
        threads: usize,
    ) -> Self {
        let total = groups.group(last - 1) - groups.group(first) + 1;
        let own = if groups.in_row() > 1 {
            1
        } else if threads == 1 {
            total
        } else {
            let parts = (4 * threads).div_ceil(units) as u64;
            let least = (4 * shape.plan.taps()).next_multiple_of(2 * shape.block) as u64;
            let spectra = (total * groups.row).div_ceil(parts).max(least);
            spectra.next_multiple_of(shape.block as u64).div_ceil(groups.row)
        };
        let count = units * total.div_ceil(own) as usize;
        Self { count, units, first, last, groups: own }
    }

    /// Returns a task's unit and spectra; tasks are ordered by spectra, then by unit.
    pub(super) fn task(&self, groups: &Groups, index: usize) -> (usize, (u64, u64)) {
        let (unit, part) = (index % self.units, (index / self.units) as u64);
        let group = groups.group(self.first) + part * self.groups;
        let end = groups.start(group + self.groups).min(self.last);
        (unit, (groups.start(group).max(self.first), end))
    }
}
