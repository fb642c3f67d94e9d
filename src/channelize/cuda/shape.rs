//! Geometry of the fused kernel: compile-time constants, resource use and tables of each candidate for a plan.
//!
//! Invariant: the shape decides about speed alone; every shape of a plan gives the same bits.

use std::f64::consts::TAU;

use crate::backend::cuda::tune::Choice;
use crate::backend::cuda::{Properties, Source};
use crate::channelize::plan::{Feed, Form, Order, Plan, Products};
use crate::voltage::VoltageEncoding;

/// Maximum number of taps that a thread holds in registers; equals the kernel's constant.
pub(super) const MOST_HELD: usize = 16;

/// Sums of two channels per thread, counted over radix, spectra and polarizations: 64 registers.
const SUMS: usize = 16;

/// Maximum number of spectra per row; longer rows would occupy too few blocks.
const MOST_SPECTRA: usize = 512;

/// Shared memory that a multiprocessor has beyond the maximum of one block, and that the driver reserves per block,
/// in bytes.
const RESERVED_BYTES: usize = 1024;

/// Sizes of a fused kernel, named as its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) points: usize,
    pub(super) side: usize,
    pub(super) radix: usize,
    pub(super) taps: usize,
    /// Spectra per batch.
    pub(super) batch: usize,
    pub(super) threads: usize,
    /// Resident blocks per multiprocessor.
    pub(super) resident: usize,
    /// Blocks of a cluster, which compute a batch together; 1 if each block computes its own.
    pub(super) cluster: usize,
    /// Whether each block of a cluster sends its sums in a different order.
    pub(super) rotates: bool,
    /// Rows of samples prefetched by bulk copy.
    pub(super) prefetched: usize,
    /// Upper limit of `prefetched`; shared memory left free serves as L1 cache for samples that are read again.
    pub(super) most_prefetched: usize,
    /// Rows in flight from global memory to registers.
    pub(super) ahead: usize,
    /// Whether taps stay in registers across batches.
    pub(super) holds_taps: bool,
    /// Whether the window is symmetric bit for bit, so that mirrored columns can share taps.
    pub(super) is_symmetric: bool,
    /// Whether mirrored columns share taps.
    pub(super) mirrors: bool,
    /// Whether each tap of the ring is loaded one row before its use.
    pub(super) early_taps: bool,
    /// Order of a row's products, which decides about register bank conflicts.
    pub(super) product_order: usize,
    /// Streams whose products one block forms.
    pub(super) polarizations: usize,
    pub(super) encoding: usize,
    pub(super) sample_bytes: usize,
    pub(super) conversion: usize,
    pub(super) form: usize,
    pub(super) products: usize,
    pub(super) bits: usize,
    /// XOR mask that maps a frequency to its index in the output.
    pub(super) order: usize,
}

impl Shape {
    /// Returns the shapes worth measuring for a plan; the model's choice is first.
    pub(super) fn candidates(plan: &Plan, properties: &Properties) -> Vec<Self> {
        let (shared, copies) = (properties.shared_bytes, properties.target.capability >= (9, 0));
        let mut found: Vec<Self> = Vec::new();
        for shape in Self::of_plan(plan, copies).iter().flat_map(Self::others) {
            if let Some(shape) = shape.fitting(shared, copies)
                && !found.contains(&shape)
            {
                found.push(shape);
            }
        }
        found
    }

    /// Returns the plan's geometry before it is fitted to shared memory.
    fn of_plan(plan: &Plan, copies: bool) -> Option<Self> {
        let points = plan.points();
        let fits = points.is_power_of_two() && (256..=1 << 14).contains(&points);
        let (encoding, sample_bytes) = encoding(plan.input().encoding)?;
        let (form, products, bits, is_joint) = form(plan)?;
        // The kernel indexes the elements of a row with 32 bits.
        if !fits || plan.hop() != points || u32::try_from(plan.row_elements()).is_err() {
            return None;
        }
        let side = if points < 1024 { 16 } else { 32 };
        let radix = points / (side * side);
        let polarizations = if is_joint { 2 } else { 1 };
        let batch = SUMS / radix / polarizations;
        let shape = Self {
            points,
            side,
            radix,
            taps: plan.taps(),
            batch,
            threads: side * side / 2,
            resident: 1024 / (side * side),
            cluster: 1,
            rotates: false,
            prefetched: 0,
            most_prefetched: 32,
            ahead: 4,
            holds_taps: plan.taps() * radix <= MOST_HELD,
            // Without bulk copies, samples of eight bytes exceed the registers.
            is_symmetric: radix > 1
                && plan.taps() <= MOST_HELD
                && (copies || sample_bytes < 8)
                && is_symmetric(plan),
            mirrors: false,
            early_taps: false,
            product_order: 2,
            polarizations,
            encoding,
            sample_bytes,
            conversion: 0,
            form,
            products,
            bits,
            order: order(plan.options().order, points),
        };
        (batch > 0).then(|| shape.measured())
    }

    /// Fits the number of resident blocks and prefetched rows to shared memory.
    fn fitting(mut self, shared_bytes: usize, copies: bool) -> Option<Self> {
        let room = |resident: usize| {
            let all = shared_bytes + RESERVED_BYTES;
            (all / resident).saturating_sub(RESERVED_BYTES).min(shared_bytes)
        };
        if self.cluster > 1 && !copies {
            return None;
        }
        self.prefetched = 0;
        while self.shared_bytes() > room(self.resident) {
            match (self.resident, self.batch) {
                (2.., _) => self.resident /= 2,
                (1, 2..) if self.cluster == 1 => self.batch /= 2,
                _ => return None,
            }
        }
        if copies {
            let row = self.row_bytes();
            let wanted = match self.taps {
                0..=MOST_HELD => self.taps + self.batch - 1,
                _ => self.ahead.min(self.batch),
            };
            let wanted = wanted.min(self.most_prefetched);
            self.prefetched = wanted.min((room(self.resident) - self.shared_bytes()) / row);
        }
        Some(self)
    }

    /// Returns the key under which the tuner caches its choice.
    pub(super) fn tuning_key(&self) -> String {
        let Self { points, taps, encoding, polarizations, form, products, bits, .. } = self;
        let window = if self.is_symmetric { " window=symmetric" } else { "" };
        format!(
            "points={points} taps={taps} encoding={encoding} form={form}/{products}/{bits} \
             polarizations={polarizations}{window}"
        )
    }

    /// Returns the shape as a tuning candidate.
    pub(super) fn choice(&self) -> Choice {
        let Self { batch, threads, resident, cluster, prefetched, ahead, .. } = *self;
        let Self { conversion, product_order, .. } = *self;
        let taps = ["", ", taps held"][usize::from(self.holds_taps)];
        let early = ["", ", taps early"][usize::from(self.early_taps)];
        let mirrored = ["", ", taps shared"][usize::from(self.mirrors)];
        let order = ["", " in turns"][usize::from(self.rotates)];
        let clusters = match cluster {
            1 => String::new(),
            _ => format!("{cluster} together{order}, "),
        };
        let name = format!(
            "{clusters}{resident} x {threads} threads, {batch} spectra, rows {prefetched} and {ahead} ahead, \
             conversion {conversion}, order {product_order}{taps}{early}{mirrored}"
        );
        let flags = usize::from(self.holds_taps)
            + 2 * usize::from(self.early_taps)
            + 4 * usize::from(self.mirrors)
            + 8 * usize::from(self.rotates);
        let values = [
            batch,
            threads,
            resident,
            prefetched,
            ahead,
            conversion,
            product_order,
            flags,
            cluster,
        ];
        Choice { name, values: values.map(|value| value as u32).to_vec() }
    }

    /// Returns the bytes of shared memory per block for full batches.
    pub(super) fn shared_bytes(&self) -> usize {
        self.rows_bytes(self.batch) + self.prefetched * self.row_bytes() + 16
    }

    /// Returns the bytes that a block reads per row of samples.
    fn row_bytes(&self) -> usize {
        self.polarizations * self.points * self.sample_bytes / self.cluster
    }

    /// Returns the bytes of shared memory per block for one spectrum at a time.
    pub(super) fn shared_bytes_of_one(&self) -> usize {
        self.rows_bytes(1) + 16
    }

    /// Returns the bytes of the rows of values and of the twiddle factors.
    fn rows_bytes(&self, batch: usize) -> usize {
        let rows = batch * self.polarizations * self.radix / self.cluster;
        let pad = match self.radix {
            1 => 0,
            2..8 => 16 / self.radix,
            _ => 2,
        };
        8 * rows * (self.side * (self.side + 1) + pad) + 4 * self.factors().len()
    }

    /// Returns the twiddle factors of the transforms over c3 (axes: word, k1 + RADIX k2), then those over c2 if RADIX
    /// is above 1 (axes: k1, word). Each word holds two complex factors.
    pub(super) fn factors(&self) -> Vec<f32> {
        let Self { points, side, radix, .. } = *self;
        let words = side / 4;
        let lines = points / side;
        let mut factors = vec![0.0; 4 * words * lines];
        for line in 0..lines {
            for (word, values) in twiddle_words(side, line as f64 / points as f64).enumerate() {
                factors[4 * (word * lines + line)..][..4].copy_from_slice(&values);
            }
        }
        if radix > 1 {
            for k in 0..radix {
                factors.extend(twiddle_words(side, k as f64 / (side * radix) as f64).flatten());
            }
        }
        factors
    }

    /// Returns the kernel's source and constants.
    pub(super) fn source(&self) -> Source {
        let constants = [
            ("POINTS", self.points),
            ("SIDE", self.side),
            ("RADIX", self.radix),
            ("TAPS", self.taps),
            ("BATCH", self.batch),
            ("THREADS", self.threads),
            ("RESIDENT", self.resident),
            ("CLUSTER", self.cluster),
            ("ROTATES", usize::from(self.rotates)),
            ("PREFETCHED", self.prefetched),
            ("AHEAD", self.ahead),
            ("HOLDS_TAPS", usize::from(self.holds_taps)),
            ("EARLY_TAPS", usize::from(self.early_taps)),
            ("MIRRORS", usize::from(self.mirrors)),
            ("PRODUCT_ORDER", self.product_order),
            ("POLARIZATIONS", self.polarizations),
            ("ENCODING", self.encoding),
            ("CONVERSION", self.conversion),
            ("FORM", self.form),
            ("PRODUCT", self.products),
            ("BITS", self.bits),
            ("ORDER", self.order),
        ];
        Source {
            name: "fused.cu",
            text: include_str!("fused.cu"),
            includes: &[
                ("cluster.cuh", include_str!("cluster.cuh")),
                ("decode.cuh", include_str!("decode.cuh")),
                ("fft.cuh", include_str!("fft.cuh")),
                ("fir.cuh", include_str!("fir.cuh")),
                ("forms.cuh", include_str!("forms.cuh")),
            ],
            defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
        }
    }
}

/// Returns words of two twiddle factors for a transform whose input `c` has phase `c * phase` (in turns): w^(N/2),
/// w^(N/4), then for each stage of `half` points w^(N/2/half) W_(2 half)^m for m below half / 2.
pub(super) fn twiddle_words(side: usize, phase: f64) -> impl Iterator<Item = [f32; 4]> {
    let halves = (1..=side / 4).map(|word| 2 * word);
    let factor = move |index: usize| {
        // Factor 0 belongs to the first stage; factors of the stage of `half` points begin at index half / 2.
        let half = if index == 0 { 1 } else { 2 << index.ilog2() };
        let m = if index == 0 { 0 } else { index - half / 2 };
        let angle = phase * (side / 2 / half) as f64 + m as f64 / (2 * half) as f64;
        let (sine, cosine) = (-TAU * angle).sin_cos();
        [cosine as f32, sine as f32]
    };
    halves.map(move |end| {
        let ([a, b], [c, d]) = (factor(end - 2), factor(end - 1));
        [a, b, c, d]
    })
}

/// Returns whether the window, in the kernel's single precision, is symmetric.
fn is_symmetric(plan: &Plan) -> bool {
    let (all, scale) = (plan.coefficients(), plan.input().scale);
    let tap = |b: &f64| ((b * scale) as f32).to_bits();
    all.iter().zip(all.iter().rev()).take(all.len() / 2).all(|(a, b)| tap(a) == tap(b))
}

/// Returns the kernel's code of an encoding and the bytes per sample.
pub(super) fn encoding(encoding: VoltageEncoding) -> Option<(usize, usize)> {
    match encoding {
        VoltageEncoding::Complex4 => Some((0, 1)),
        VoltageEncoding::Complex8 => Some((1, 2)),
        VoltageEncoding::ComplexOffset8 => Some((2, 2)),
        VoltageEncoding::Complex16 => Some((3, 4)),
        VoltageEncoding::ComplexF32 => Some((4, 8)),
        _ => None,
    }
}

/// Returns the kernel's codes of the form and the products, the bits, and whether two streams are combined.
fn form(plan: &Plan) -> Option<(usize, usize, usize, bool)> {
    let polarizations = plan.input().polarizations;
    match &plan.options().form {
        Form::Spectra => Some((0, 0, 8, false)),
        Form::Filtered => None,
        Form::Requantized { bits, .. } => Some((2, 0, *bits, false)),
        Form::Detected(detection) => {
            let is_plain = detection.channels == 1 && !detection.interpolate_dc;
            let products = match (detection.products, detection.feed) {
                (Products::Power, _) => 0,
                (Products::I, _) => usize::from(polarizations == 2),
                (Products::Iquv, Feed::Linear) => 2,
                (Products::Iquv, Feed::Circular) => 3,
                (Products::Aabbcrci, _) => 4,
            };
            let fits = is_plain && detection.spectra <= MOST_SPECTRA;
            fits.then_some((1, products, 8, products > 0))
        }
    }
}

pub(super) fn order(order: Order, points: usize) -> usize {
    match order {
        Order::Natural => 0,
        Order::Ascending => points / 2,
        Order::Descending => points / 2 - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::plan::Options;

    fn shape(channels: usize, taps: usize, encoding: VoltageEncoding) -> Shape {
        let plan = Plan::new(Options::new(channels, taps, encoding)).unwrap();
        Shape::of_plan(&plan, true).unwrap().fitting(232_448, true).unwrap()
    }

    #[test]
    fn a_block_uses_the_memory_that_there_is() {
        let found = shape(1024, 8, VoltageEncoding::Complex8);
        assert_eq!((found.batch, found.prefetched, found.shared_bytes()), (16, 23, 186_384));
        let found = shape(1024, 8, VoltageEncoding::ComplexF32);
        assert_eq!((found.batch, found.resident, found.prefetched), (16, 1, 11));
        let found = shape(16384, 8, VoltageEncoding::Complex8);
        assert_eq!((found.batch, found.prefetched), (1, 0));
        let small = shape(1024, 8, VoltageEncoding::Complex8).fitting(100 << 10, false).unwrap();
        assert_eq!((small.batch, small.resident), (8, 1));
    }

    #[test]
    fn places_are_the_plans() {
        for order_of in [Order::Natural, Order::Ascending, Order::Descending] {
            let options = Options::new(256, 4, VoltageEncoding::Complex8);
            let plan = Plan::new(Options { order: order_of, ..options }).unwrap();
            let mask = order(order_of, 256);
            assert!((0..256).all(|place| plan.bin(place) ^ mask == place));
        }
    }

    #[test]
    fn factors_are_on_the_circle_in_the_kernels_order() {
        let factors = shape(512, 4, VoltageEncoding::Complex8).factors();
        assert_eq!(factors.len(), 512 + 2 * 16);
        let angle = |index: usize| f64::from(factors[index + 1]).atan2(f64::from(factors[index]));
        // Line 3: w^8 and w^4, w = exp(-2 pi i 3 / 512); the stage of 4 points begins with w^2.
        for (index, turns) in [(12, 24.0), (14, 12.0), (128 + 12, 6.0), (512 + 16, 128.0)] {
            assert!((angle(index) + TAU * turns / 512.0).abs() < 1e-6, "{index}");
        }
    }
}
