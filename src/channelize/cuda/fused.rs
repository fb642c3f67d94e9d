//! Fused kernel, which filters, transforms and writes the output form in one pass: its shapes (compile-time constants,
//! resource use, tables), the default shape of a plan, and its launches.
//!
//! Invariant: a spectrum's value depends only on the samples under its window; the shape affects only the speed.

use std::f64::consts::TAU;

use super::job::Job;
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{
    Arguments, Buffer, Device, Function, Module, Properties, Source, Stream,
};
use crate::channelize::plan::{Feed, Form, Order, Plan, Products};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Maximum number of taps that a thread holds in registers; equals the kernel's constant.
pub(super) const MAX_HELD: usize = 16;

/// Product of radix, spectra and polarizations of a batch. A thread holds that many sums of two complex channels: 64
/// registers.
const SUMS: usize = 16;

/// Maximum number of spectra per row; longer rows would occupy too few blocks.
const MAX_SPECTRA: usize = 512;

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
    /// Order of a row's products, which affects register bank conflicts.
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
    /// Returns the shapes worth measuring for a plan; the default is first.
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
            holds_taps: plan.taps() * radix <= MAX_HELD,
            // Without bulk copies, samples of eight bytes exceed the registers.
            is_symmetric: radix > 1
                && plan.taps() <= MAX_HELD
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

    /// Fits the resident blocks, the spectra per batch and the prefetched rows to shared memory.
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
                0..=MAX_HELD => self.taps + self.batch - 1,
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
    pub(super) fn candidate(&self) -> Candidate {
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
        Candidate { name, values: values.map(|value| value as u32).to_vec() }
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
            let fits = is_plain && detection.spectra <= MAX_SPECTRA;
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
        let eight = Self { holds_taps: 2 * self.taps <= MAX_HELD, ..self.halved() };
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
        if own.taps > MAX_HELD {
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
        let fits = parts > 0 && self.form != 1 && self.taps * parts <= MAX_HELD;
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

/// Maximum number of rows per item that are tried to make the item a whole number of batches.
const MAX_ROWS: usize = 16;

/// Maximum number of blocks along y; equals the kernel's constant.
const MAX_BLOCKS: usize = 65_535;

/// Maximum number of waves of blocks per launch.
const MAX_ROUNDS: usize = 8;

/// Fused kernels of a plan and their device tables.
#[derive(Debug)]
pub(super) struct Fused {
    /// Sorted by batch size, descending; the last kernel's batch is one spectrum.
    kernels: Vec<Kernel>,
    tables: Tables,
    /// Elements per row, elements from product to product, spectra per row, units.
    row_elements: usize,
    product_elements: usize,
    row_spectra: usize,
    units: usize,
}

#[derive(Debug)]
struct Kernel {
    function: Function,
    threads: usize,
    /// Blocks per cluster, and clusters (or single blocks) resident on the device.
    cluster: usize,
    groups: usize,
    /// Spectra per batch.
    batch: usize,
}

/// Tables that the kernel reads.
#[derive(Debug)]
struct Tables {
    coefficients: Buffer<f32>,
    factors: Buffer<f32>,
    /// Each unit's first row element and first gain.
    places: Buffer<u32>,
    /// Gain of each element of a polarization.
    gains: Buffer<f32>,
}

impl Kernel {
    /// Returns `None` if the device cannot run the cluster.
    fn new(
        device: &Device,
        module: &Module,
        shape: &Shape,
        name: &str,
        shared_bytes: usize,
        batch: usize,
    ) -> Result<Option<Self>> {
        let function = module.function(name, shared_bytes)?;
        let Shape { threads, cluster, .. } = *shape;
        let groups = if cluster > 1 {
            function.clusters(cluster, threads)?
        } else {
            let multiprocessors = device.properties().multiprocessors;
            (multiprocessors * function.blocks_per_multiprocessor(threads)?).max(1)
        };
        Ok((groups > 0).then_some(Self { function, threads, cluster, groups, batch }))
    }

    /// Returns a shape's kernels: for full batches, and for launches shorter than a batch.
    fn of_shape(device: &Device, module: &Module, shape: &Shape) -> Result<Vec<Self>> {
        let (all, one) = (shape.shared_bytes(), shape.shared_bytes_of_one());
        let name = if shape.cluster > 1 { "channelize_cluster" } else { "channelize" };
        let mut found = vec![Self::new(device, module, shape, name, all, shape.batch)?];
        if shape.cluster == 1 && shape.batch > 1 {
            found.push(Self::new(device, module, shape, "channelize_single", one, 1)?);
        }
        Ok(found.into_iter().flatten().collect())
    }
}

impl Fused {
    /// Returns `None` if the plan or the device has no fused kernel.
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Option<Self>> {
        let shapes = chosen(plan, device);
        let Some(shape) = shapes.last() else { return Ok(None) };
        let mut kernels = Vec::new();
        for shape in &shapes {
            let module = device.module(&shape.source())?;
            kernels.extend(Kernel::of_shape(device, &module, shape)?);
        }
        let input = plan.input();
        Ok(Some(Self {
            kernels,
            tables: Tables::new(plan, shape, device)?,
            row_elements: plan.row_elements(),
            product_elements: input.coarse_channels * plan.output_channels(),
            row_spectra: plan.spectra_per_row(),
            units: input.streams() / shape.polarizations,
        }))
    }

    /// Enqueues `job.spectra` spectra of every stream.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes.
    pub(super) unsafe fn enqueue(&self, stream: &Stream, job: &Job) -> Result<()> {
        let fitting = self.kernels.iter().find(|kernel| kernel.batch <= job.spectra);
        let Some(kernel) = fitting else { return Ok(()) };
        let item = self.item_spectra(kernel.batch);
        let items = job.spectra.div_ceil(item);
        let arguments = Arguments::new()
            .with(job.input)
            .with(job.stride)
            .with(job.output)
            .with(self.row_elements as u64)
            .with(self.product_elements as u64)
            .with(job.saturated)
            .with(self.tables.coefficients.address())
            .with(self.tables.factors.address())
            .with(self.tables.places.address())
            .with(self.tables.gains.address());
        let last = job.spectra - (items - 1) * item;
        let numbers = [
            job.spectra,
            self.row_spectra,
            self.units,
            items,
            item,
            item.div_ceil(kernel.batch),
            last.div_ceil(kernel.batch),
        ];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let deep = self.units.div_ceil(MAX_BLOCKS);
        let along = kernel.cluster * groups(kernel.groups, self.units, items);
        let grid = [along, self.units.min(MAX_BLOCKS), deep];
        let block = [kernel.threads, 1, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the job.
        unsafe { stream.launch(&kernel.function, grid, block, &arguments) }
    }

    /// Returns the spectra of an item, which one block computes batch by batch: whole rows, and at least one batch.
    fn item_spectra(&self, batch: usize) -> usize {
        let row = self.row_spectra;
        let whole = (1..=MAX_ROWS).find(|rows| (rows * row).is_multiple_of(batch));
        row * whole.unwrap_or((8 * batch).div_ceil(row))
    }
}

/// Lists the kernels of a plan; empty if the plan or the device has none.
pub(super) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    chosen(plan, device).iter().map(Shape::source).collect()
}

/// Returns the shape measured fastest on this device, or else the default, and the shape for shorter launches.
fn chosen(plan: &Plan, device: &Device) -> Vec<Shape> {
    let candidates = Shape::candidates(plan, device.properties());
    let Some(first) = candidates.first() else { return Vec::new() };
    let choices: Vec<Candidate> = candidates.iter().map(Shape::candidate).collect();
    let choice = tune::select(device, &first.source(), &first.tuning_key(), &choices);
    let best = candidates.iter().find(|shape| shape.candidate() == choice).unwrap_or(first);
    best.with_single_block(&candidates)
}

/// Returns the number of block groups per unit that minimizes the estimated time of the launch. `at_a_time` groups run
/// concurrently over all units, and starting a group costs half an item.
fn groups(at_a_time: usize, units: usize, items: usize) -> usize {
    let time =
        |groups: usize| (units * groups).div_ceil(at_a_time) * (2 * items.div_ceil(groups) + 1);
    let choices = (1..=MAX_ROUNDS).map(|rounds| (rounds * at_a_time / units).clamp(1, items));
    choices.min_by_key(|groups| time(*groups)).unwrap_or(1)
}

impl Tables {
    fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        let scale = plan.input().scale;
        let mut coefficients: Vec<f32> =
            plan.coefficients().iter().map(|b| (b * scale) as f32).collect();
        // The kernel may load one row of taps past the end.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        Ok(Self {
            coefficients: device.upload(&coefficients)?,
            factors: device.upload(&shape.factors())?,
            places: device.upload(&places(plan, shape))?,
            gains: device.upload(&gains(plan))?,
        })
    }
}

/// Returns each unit's first row element and first gain. A unit is a stream, or the streams of both polarizations.
fn places(plan: &Plan, shape: &Shape) -> Vec<u32> {
    let input = plan.input();
    let products = input.polarizations / shape.polarizations;
    let mut places = Vec::with_capacity(2 * input.streams() / shape.polarizations);
    for antenna in 0..input.antennas {
        for coarse in 0..input.coarse_channels {
            // The coarse channel order is its own inverse.
            let place = plan.coarse_channel(coarse);
            for product in 0..products {
                let element = plan.row_offset(antenna, product, place);
                places.extend([element as u32, (place * plan.output_channels()) as u32]);
            }
        }
    }
    places
}

/// Returns the gain of each output channel of a polarization; empty without requantization.
fn gains(plan: &Plan) -> Vec<f32> {
    let Form::Requantized { gains, .. } = &plan.options().form else { return Vec::new() };
    match gains.as_slice() {
        [gain] => vec![*gain; plan.channels() * plan.input().coarse_channels],
        _ => gains.clone(),
    }
}

#[cfg(test)]
mod shape_tests {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_together() {
        assert_eq!(groups(132, 1, 8192), 132);
        assert_eq!(groups(132, 2, 8192), 66);
        assert_eq!(groups(132, 1, 5), 5);
        assert_eq!(groups(132, 1000, 1), 1);
        // 100 groups, one per unit, would leave a quarter of the device idle.
        let found = groups(132, 100, 1000);
        assert!((100 * found).is_multiple_of(132) || 100 * found > 500, "{found}");
    }
}
