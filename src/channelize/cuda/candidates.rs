//! Default shapes of the fused kernel and its tuning candidates.
//!
//! Invariant: all of them give the same bits.

use super::shape::{MOST_HELD, Shape};
use crate::backend::cuda::Properties;
use crate::channelize::plan::Plan;

/// Blocks per cluster.
const CLUSTER_BLOCKS: usize = 8;

impl Shape {
    /// Returns the default shapes of a plan on an untuned device; empty if the plan has no fused kernel.
    pub(super) fn defaults(plan: &Plan, properties: &Properties) -> Vec<Self> {
        let candidates = Self::candidates(plan, properties);
        candidates.first().map_or_else(Vec::new, |first| first.with_single_block(&candidates))
    }

    /// Returns this shape and, if it uses clusters, a single-block shape after it for launches of too few spectra.
    pub(super) fn with_single_block(&self, candidates: &[Self]) -> Vec<Self> {
        let single = candidates.iter().find(|shape| self.cluster > 1 && shape.cluster == 1);
        [self].into_iter().chain(single).copied().collect()
    }

    /// Applies the settings measured fastest on an H200 that do not spill registers.
    pub(super) fn measured(self) -> Self {
        let own = self.measured_alone();
        let is_wide = own.sample_bytes == 8;
        let shared = Self { mirrors: true, conversion: 0, ..own };
        match (own.radix, own.taps) {
            _ if !own.is_symmetric || own.side < 32 && !is_wide => own,
            _ if is_wide && own.form == 1 && (own.polarizations == 2 || own.side < 32) => own,
            // The registers fit all taps of a column because its mirrored column shares them.
            (2, ..=8) => {
                let row = own.side * own.side;
                let (threads, resident) = (row / 2, 1024 / row);
                Self { threads, resident, holds_taps: true, ..shared.whole() }
            }
            (2, _) | (4, ..=8) if !is_wide && !own.holds_taps => shared,
            _ => own,
        }
    }

    /// Same as [`Self::measured`], without shared taps.
    fn measured_alone(self) -> Self {
        let Self { radix, taps, sample_bytes, .. } = self;
        let is_wide = sample_bytes == 8;
        let own = Self { ahead: if is_wide { 2 } else { 4 }, ..self };
        match (radix, taps) {
            (1, _) => self.measured_of_one(),
            // Many loads are in flight at these tap counts, and batches are small anyway.
            (_, 17..) => Self { threads: self.threads / 2, holds_taps: false, ..own },
            // With eight-byte samples, a batch of powers needs more than 128 registers per thread.
            (2, _) if is_wide && self.form == 1 => {
                Self { threads: self.threads / 2, holds_taps: false, ..own }
            }
            (2, _) if is_wide => Self { holds_taps: taps <= 4, ..own.halved() },
            (2, _) => {
                let most = if self.side == 16 && sample_bytes <= 2 { 8 } else { 4 };
                let conversion = usize::from(sample_bytes == 2);
                Self { holds_taps: taps <= most, conversion, ..own }
            }
            _ if is_wide && self.batch > 1 => {
                Self { threads: self.threads / 2, ahead: 4, holds_taps: false, ..own }
            }
            _ => Self { conversion: usize::from(sample_bytes == 2), ..own },
        }
    }

    /// Same as [`Self::measured_alone`], for a radix of 1.
    fn measured_of_one(self) -> Self {
        let eight = Self { holds_taps: 2 * self.taps <= MOST_HELD, ..self.halved() };
        match (self.sample_bytes, self.taps) {
            (8, ..=8) => self,
            (8, 9..=16) if self.form == 1 => {
                Self { threads: self.threads / 2, holds_taps: false, ahead: 2, ..self }
            }
            // Rows prefetched to shared memory would need as many registers as rows loaded from global memory.
            (8, 9..=16) => Self { ahead: 2, holds_taps: false, most_prefetched: 0, ..self },
            (8, 32 | 64) => Self { ahead: 2, ..self },
            (8, _) => Self { ahead: 2, early_taps: true, ..eight },
            (4, ..=8) | (_, 64) => self,
            (bytes, 32) => {
                let conversion = usize::from(bytes == 4);
                Self { ahead: 8, early_taps: true, conversion, ..self }
            }
            // Detection leaves fewer registers.
            (2, ..=8) => Self { conversion: usize::from(self.form != 1), ..self },
            // With detection the taps do not fit in registers, and one polarization leaves none for a full batch.
            (bytes, ..=16) if self.form == 1 && self.polarizations == 1 => {
                Self { conversion: usize::from(bytes == 2), ..eight }
            }
            (_, ..=16) => Self { conversion: 1, holds_taps: self.polarizations == 1, ..self },
            _ => Self { early_taps: true, ..eight },
        }
    }

    /// Returns this shape and variants that differ in one parameter.
    pub(super) fn others(&self) -> Vec<Self> {
        let own = *self;
        let conversion = if own.conversion == 1 { 0 } else { 1 };
        let ahead = if own.ahead == 8 { 4 } else { 8 };
        let mut others = Vec::new();
        // With narrow samples and fewer points, single blocks wait less, so they are tried first.
        let (first, last) = match own.radix == 16 || own.sample_bytes > 2 {
            true => (own.cluster_variant(), None),
            false => (None, own.cluster_variant()),
        };
        others.extend(first);
        others.extend([own, own.halved(), Self { conversion, ..own }, Self { ahead, ..own }]);
        others.extend(last);
        if own.is_symmetric {
            others.push(Self { mirrors: !own.mirrors, ..own });
        }
        if own.taps > MOST_HELD {
            others.push(Self { early_taps: !own.early_taps, ..own });
            others.push(Self { product_order: 2 - own.product_order, ..own });
        } else {
            others.push(Self { holds_taps: !own.holds_taps, ..own });
        }
        others
    }

    /// Returns the cluster variant: eight blocks compute batches of sixteen or eight spectra together and hold their
    /// taps in registers. A single block would reload samples and taps for every one or two spectra of this many
    /// points.
    fn cluster_variant(&self) -> Option<Self> {
        let parts = self.radix / CLUSTER_BLOCKS;
        let is_wide = self.sample_bytes == 8;
        let fits = parts > 0 && self.form != 1 && self.taps * parts <= MOST_HELD;
        fits.then_some(Self {
            cluster: CLUSTER_BLOCKS,
            batch: 16 / parts.max(1),
            threads: self.side * self.side / 2,
            resident: 1,
            ahead: if is_wide && parts > 1 { 2 } else { 4 },
            rotates: parts == 1 && self.sample_bytes == 4,
            holds_taps: true,
            mirrors: false,
            ..*self
        })
    }

    /// Enlarges batches to as many spectra as the registers hold.
    fn whole(self) -> Self {
        Self { batch: 16 / self.radix / self.polarizations, ..self }
    }

    /// Halves the spectra per batch and the threads per block, and doubles the resident blocks.
    fn halved(self) -> Self {
        if self.batch < 2 {
            return self;
        }
        let Self { batch, threads, resident, .. } = self;
        Self { batch: batch / 2, threads: threads / 2, resident: 2 * resident, ..self }
    }
}
