//! Cases of each table on a GPU, and the peers' rates.

use sidereal::spiir::Plan;
use sidereal::spiir::{Branch, Template};
use sidereal::{Error, Result};

use crate::gpu::peers;
use crate::spiir::{Name, bank};

/// Templates in a bank.
const TEMPLATES: usize = 4096;

/// The same for a quick run.
const QUICK_TEMPLATES: usize = 8;

/// Filters per rate of a quick run's chirps: they cover about 200 samples.
const QUICK_CHIRPS: usize = 40;

/// Operations per second and multiprocessor that the direct form allows: 48 x 10^12 on the 132 of an H200.
const ROOF: f64 = 48e12 / 132.0;

/// Filters of chirps, and the seconds that they cover.
const FAR: [(usize, u32); 2] = [(256, 17), (512, 152)];

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Operations.
    Operations,
    /// Template samples.
    Samples,
    /// Seconds of data for the whole bank.
    RealTime,
}

/// Filter bank and the unit of its figure.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) templates: usize,
    pub(super) filters: usize,
    pub(super) rates: u32,
    /// Whether filters have a chirp's delays, each at the lowest sufficient rate; otherwise all delays are below two
    /// seconds.
    pub(super) is_chirps: bool,
    pub(super) shown: Shown,
    /// Rate of the best peer; 0 if not measured.
    pub(super) peer: f64,
}

impl Case {
    /// Returns the value of one template sample of `operations` operations in the figure's unit.
    pub(super) fn scale(&self, operations: f64) -> f64 {
        match self.shown {
            Shown::Operations => operations * 1e-12,
            Shown::Samples => 1e-6,
            Shown::RealTime => 1.0 / (self.templates as f64 * f64::from(bank::RATE_HZ)),
        }
    }

    /// Makes the plan: filters of short delays split equally among the rates, or a chirp's filters each at its own
    /// rate.
    pub(super) fn plan(&self) -> Result<Plan> {
        let of = if self.is_chirps { bank::chirps } else { bank::near };
        of(self.templates, self.filters, self.rates)
    }

    /// Reduces the case to the size of a quick run.
    fn shrink(&mut self) {
        let each = if self.is_chirps { QUICK_CHIRPS } else { 4 };
        (self.templates, self.filters) = (QUICK_TEMPLATES, each * self.rates as usize);
        let (filters, plural) = (self.filters, if self.rates == 1 { "" } else { "s" });
        let of = if self.is_chirps { " of chirps" } else { "" };
        self.name = format!("{filters} filters{of} at {} rate{plural}", self.rates);
    }

    pub(super) fn unit(&self) -> &'static str {
        match self.shown {
            Shown::Operations => "TFLOP/s",
            Shown::Samples => "M template samples/s",
            Shown::RealTime => "times real time",
        }
    }
}

/// Returns the operations per second that the direct form allows.
pub(super) fn roof(multiprocessors: usize) -> f64 {
    ROOF * multiprocessors as f64
}

/// Returns a table's cases.
///
/// # Errors
/// [`Error::Parameter`] for a table that only the CPU has.
pub(super) fn cases(name: Name, quick: bool) -> Result<Vec<Case>> {
    let mut cases = match name {
        Name::Filters => (2..=9).map(|bits| filters(1 << bits)).chain(FAR.map(far)).collect(),
        Name::Rates => (1..=8).map(rates).collect(),
        Name::Fourier => peers::SPIIR_FOURIER.iter().map(|one| length(one.0, one.1)).collect(),
        Name::Accuracy | Name::Whole => Vec::new(),
        Name::Levels | Name::Blocks | Name::Silence | Name::Binaries => {
            let rule = "on a GPU there are filters, rates, fourier, accuracy and whole";
            return Err(Error::parameter("--table", format!("{name:?}").to_lowercase(), rule));
        }
    };
    if quick {
        let chirps = cases.iter().find(|case| case.is_chirps).cloned();
        cases.retain(|case| !case.is_chirps);
        cases.truncate(2);
        cases.extend(chirps);
        cases.iter_mut().for_each(Case::shrink);
    }
    Ok(cases)
}

fn filters(filters: usize) -> Case {
    Case {
        name: format!("{filters} filters, {TEMPLATES} templates"),
        templates: TEMPLATES,
        filters,
        rates: 1,
        is_chirps: false,
        shown: Shown::Operations,
        peer: peers::spiir(filters),
    }
}

/// Creates a case with the delays of a chirp of this many seconds, all filters at the full rate.
fn far((count, seconds): (usize, u32)) -> Case {
    Case {
        name: format!("{count} filters of chirps of {seconds} s, {TEMPLATES} templates"),
        is_chirps: true,
        peer: 0.0,
        ..filters(count)
    }
}

fn rates(rates: u32) -> Case {
    let name = format!("1024 filters at {rates} rates, {TEMPLATES} templates");
    Case { name, filters: 1024, rates, shown: Shown::Samples, peer: 0.0, ..filters(4) }
}

/// Creates a case with chirps of `seconds` seconds, at as many rates as suit them.
fn length(seconds: f64, peer: f64) -> Case {
    // Number of filters for a binary neutron star's chirp with 0.02 cycles of error: 386 in 61.8 s.
    let count = (386.0 * (seconds / 61.8).powf(1.0 / 3.2)).round() as usize;
    Case {
        name: format!("chirps of {seconds} s, {TEMPLATES} templates"),
        filters: count,
        rates: 4,
        is_chirps: true,
        shown: Shown::RealTime,
        peer,
        ..filters(4)
    }
}

/// Samples in a call: one second.
pub(crate) const TIMES: usize = bank::RATE_HZ as usize;

/// The same for a quick run.
pub(crate) const QUICK_TIMES: usize = 256;

/// Operations per filter and sample.
pub(crate) const OPERATIONS: f64 = 12.0;

/// Returns the longest delay of any filter, in samples of the full rate.
pub(crate) fn longest_delay(plan: &Plan) -> usize {
    let branches = plan.options().templates.iter().flat_map(|template| &template.branches);
    let delay = |branch: &Branch| {
        let longest = branch.filters.iter().map(|filter| filter.delay as usize).max();
        longest.unwrap_or(0) << branch.halvings
    };
    branches.map(delay).max().unwrap_or(0)
}

/// Returns the operations per template and sample.
pub(crate) fn operations(plan: &Plan) -> f64 {
    let effective = plan.options().templates.iter().map(Template::effective_filters);
    OPERATIONS * effective.sum::<f64>() / plan.templates() as f64
}
