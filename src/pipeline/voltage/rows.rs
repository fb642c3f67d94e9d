//! Filter-bank rows with antennas summed and recorded channels ordered; gaps are not filled.

use super::bank::{FilterBank, Plans};
use super::spectra::{Bank, Spectra, Unread, Watch};
use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::channelize::{Feed, Form, Joining, Plan, Products};
use crate::coherent;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageSource};

/// Bytes of rows assembled per step.
const SCRATCH_BYTES: usize = 4 << 20;

/// Bytes of rows assembled per step for each GPU that computes them: enough to copy and compute at the same time.
const DEVICE_BYTES: usize = 32 << 20;

/// Bytes of rows that a thread assembles at a time.
const PIECE_BYTES: usize = 1 << 16;

/// Detected spectra and their assembly into rows.
pub(super) struct Rows {
    spectra: Spectra<f32>,
    assembly: Option<Assembly>,
    /// Whether the filter bank assembles the rows.
    is_assembled: bool,
    scratch: Vec<f32>,
    threads: Threads,
    /// Product whose sign changes in a lower sideband.
    sign_flipped: Option<usize>,
}

impl Rows {
    /// Binds a source, and the dedispersion of its voltages, to a filter bank.
    ///
    /// # Errors
    /// As [`Spectra::new`].
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        plan: Plan,
        coherent: Option<coherent::Plan>,
        assembly: Option<Assembly>,
        gulp: usize,
        backend: &Backend,
    ) -> Result<Self> {
        let row = plan.row_elements();
        let is_lower = source.header().lower_sideband;
        let sign_flipped = if is_lower { imaginary_product(&plan) } else { None };
        let joining = assembly.as_ref().map(Assembly::joining);
        let plans = Plans { bank: plan, coherent, joining };
        let spectra = Spectra::new(source, None, plans, gulp, backend)?;
        let is_assembled = assembly.is_none() || spectra.bank().joins();
        let bytes = SCRATCH_BYTES.max(DEVICE_BYTES * spectra.gpus());
        let rows = if is_assembled { 0 } else { (bytes / (4 * row)).max(1) };
        Ok(Self {
            spectra,
            assembly,
            is_assembled,
            scratch: vec![0.0; rows * row],
            threads: backend.host().threads(),
            sign_flipped,
        })
    }

    /// As [`Spectra::watched_by`].
    pub(super) fn watched_by(&mut self, watch: Watch) {
        self.spectra.watched_by(watch);
    }

    /// As [`Spectra::cut`].
    pub(super) fn cut(&self) -> Option<&str> {
        self.spectra.cut()
    }

    /// As [`Spectra::take_flags`].
    pub(super) fn take_flags(&mut self, flags: &mut Vec<Flag>) {
        self.spectra.take_flags(flags);
    }

    /// As [`Spectra::take_fault`].
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.spectra.take_fault()
    }

    /// Returns the filter bank's plan.
    pub(super) fn plan(&self) -> &Plan {
        self.spectra.plan()
    }

    /// As [`Spectra::gpus`].
    pub(super) fn gpus(&self) -> usize {
        self.spectra.gpus()
    }

    /// As [`Spectra::least_rows`].
    pub(super) fn least_rows(&self) -> usize {
        self.spectra.least_rows()
    }

    /// Returns the number of the next row.
    pub(super) fn row(&self) -> u64 {
        self.spectra.row()
    }

    /// Returns the numbers in a row.
    pub(super) fn elements(&self) -> usize {
        let assembly = self.assembly.as_ref().filter(|_| !self.is_assembled);
        self.spectra.elements() / assembly.map_or(1, Assembly::rows)
    }

    /// Fills `rows` with the next rows; returns fewer only at the end of the data.
    pub(super) fn read(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.assembled(rows)?;
        if let Some(product) = self.sign_flipped {
            let (elements, products) = (self.elements(), self.plan().output_products());
            let line = elements / products;
            let rows = rows.chunks_exact_mut(elements).take(times);
            // Voltages of a lower sideband are conjugates of the sky's, so X Y* is conjugated as well.
            rows.for_each(|row| row[product * line..][..line].iter_mut().for_each(|x| *x = -*x));
        }
        Ok(times)
    }

    /// Reads the next rows without the sign change of a lower sideband.
    fn assembled(&mut self, rows: &mut [f32]) -> Result<usize> {
        let assembly = self.assembly.as_ref().filter(|_| !self.is_assembled);
        let Some(assembly) = assembly else { return self.spectra.read(rows) };
        let parts = self.spectra.elements();
        let elements = parts / assembly.rows();
        let mut done = 0;
        for rows in rows.chunks_mut(self.scratch.len() / parts * elements) {
            let asked = rows.len() / elements;
            let made = &mut self.scratch[..asked * parts];
            let times = self.spectra.read(made)?;
            let each = (PIECE_BYTES / (4 * parts)).max(1);
            self.threads.for_each(&mut rows[..times * elements], each * elements, |index, rows| {
                let made = made[index * each * parts..].chunks_exact(parts);
                made.zip(rows.chunks_exact_mut(elements))
                    .for_each(|(from, to)| assembly.put(from, to));
            });
            done += times;
            if times < asked {
                break;
            }
        }
        Ok(done)
    }

    /// Skips rows; skips fewer only at the end of the data.
    pub(super) fn skip(&mut self, rows: u64) -> Result<u64> {
        self.spectra.skip(rows)
    }
}

/// Access for rows that a device computes.
impl Rows {
    /// Returns the filter bank.
    pub(super) fn bank(&self) -> &FilterBank {
        self.spectra.bank()
    }

    /// Returns the assembly of its rows for the device, if they need one.
    pub(super) fn joining(&self) -> Option<Joining> {
        self.assembly.as_ref().map(Assembly::joining)
    }

    /// Splits the rows into the unread voltages and the filter bank.
    pub(super) fn split(&mut self) -> (Unread<'_>, Bank<'_>) {
        self.spectra.split()
    }
}

/// Returns the product that holds the imaginary part of the cross product.
fn imaginary_product(plan: &Plan) -> Option<usize> {
    let Form::Detected(detection) = &plan.options().form else { return None };
    match (detection.products, detection.feed) {
        (Products::Iquv, Feed::Circular) => Some(2),
        (Products::Iquv, Feed::Linear) | (Products::Aabbcrci, _) => Some(3),
        (Products::Power | Products::I, _) => None,
    }
}

/// Assembly of the filter bank's rows into rows summed over antennas.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    /// Copies of all antennas: channel `c` comes from copy `c mod copies`.
    pub(super) copies: usize,
    /// Antennas summed.
    pub(super) antennas: usize,
    /// Products per antenna.
    pub(super) products: usize,
    /// Filter-bank index of each recorded channel.
    pub(super) places: Vec<usize>,
    /// Channels per recorded channel.
    pub(super) channels: usize,
    /// Interpolation of each recorded channel's zero-frequency channel, after the copies are merged.
    pub(super) middle: Option<Middle>,
}

/// Index of the zero-frequency channel and of its adjacent channels (for real samples, both are the same).
#[derive(Clone, Copy, Debug)]
pub(super) struct Middle {
    zero: usize,
    sides: [usize; 2],
}

impl Middle {
    /// Finds the indices in a plan that sums no channels.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let place = |bin: usize| (0..plan.channels()).find(|index| plan.bin(*index) == bin);
        let below = if plan.input().encoding.is_complex() { plan.channels() - 1 } else { 1 };
        Some(Self { zero: place(0)?, sides: [place(1)?, place(below)?] })
    }
}

impl Assembly {
    /// Returns the number of filter-bank rows per output row.
    fn rows(&self) -> usize {
        self.copies * self.antennas
    }

    /// Returns the assembly for a device.
    fn joining(&self) -> Joining {
        let Self { copies, antennas, products, channels, middle, ref places } = *self;
        let middle = middle.map(|Middle { zero, sides }| (zero, sides));
        Joining { copies, antennas, products, places: places.clone(), channels, middle }
    }

    /// Assembles one row; axes of `from`: copy, antenna, product, channel.
    fn put(&self, from: &[f32], to: &mut [f32]) {
        let line = self.places.len() * self.channels;
        for (index, from) in from.chunks_exact(line).enumerate() {
            let (antenna, product) = (index / self.products, index % self.products);
            let (copy, antenna) = (antenna / self.antennas, antenna % self.antennas);
            let to = &mut to[product * line..][..line];
            for (to, place) in to.chunks_exact_mut(self.channels).zip(&self.places) {
                let from = &from[place * self.channels..][..self.channels];
                self.add(copy, antenna == 0, from, to);
            }
        }
        if let Some(Middle { zero, sides: [above, below] }) = self.middle {
            for own in to.chunks_exact_mut(self.channels) {
                own[zero] = 0.5 * (own[above] + own[below]);
            }
        }
    }

    /// Sets, or adds to, the channels of one copy within a recorded channel.
    fn add(&self, copy: usize, is_first: bool, from: &[f32], to: &mut [f32]) {
        if self.copies == 1 && is_first {
            return to.copy_from_slice(from);
        }
        let pairs = to.iter_mut().zip(from).skip(copy).step_by(self.copies);
        pairs.for_each(|(sum, value)| *sum = if is_first { *value } else { *sum + value });
    }
}
