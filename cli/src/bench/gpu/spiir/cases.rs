//! The cases of each table on a GPU, and what peers reach.

use sidereal::spiir::Plan;
use sidereal::{Error, Result};

use crate::bench::gpu::peers;
use crate::bench::spiir::{Name, bank};

/// Templates of a bank.
const TEMPLATES: usize = 4096;

/// The same when it is only tried whether all works.
const QUICK_TEMPLATES: usize = 8;

/// Filters of a trial run's chirps, for each rate: some 200 samples' worth.
const QUICK_CHIRPS: usize = 40;

/// Operations a second and multiprocessor that the direct form allows: 48 x 10^12 on the 132 of an H200.
const ROOF: f64 = 48e12 / 132.0;

/// Filters of chirps, and the seconds that so many follow.
const FAR: [(usize, u32); 2] = [(256, 17), (512, 152)];

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Operations.
    Operations,
    /// Samples of templates.
    Samples,
    /// Seconds of data for the whole bank.
    RealTime,
}

/// A bank and what is shown of it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) templates: usize,
    pub(super) filters: usize,
    pub(super) rates: u32,
    /// Whether filters lie where a chirp's do, each at the lowest rate that holds it; else within two seconds.
    pub(super) is_chirps: bool,
    pub(super) shown: Shown,
    /// What the best peer reaches; 0 where none was measured.
    pub(super) peer: f64,
}

impl Case {
    /// What a template's sample of so many operations counts.
    pub(super) fn scale(&self, operations: f64) -> f64 {
        match self.shown {
            Shown::Operations => operations * 1e-12,
            Shown::Samples => 1e-6,
            Shown::RealTime => 1.0 / (self.templates as f64 * f64::from(bank::RATE_HZ)),
        }
    }

    /// Filters of short delays shared equally among the rates, or, of chirps of some length, where each belongs.
    pub(super) fn plan(&self) -> Result<Plan> {
        let of = if self.is_chirps { bank::chirps } else { bank::near };
        of(self.templates, self.filters, self.rates)
    }

    /// Makes it one of a trial run.
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

/// Operations a second that the direct form allows.
pub(super) fn roof(multiprocessors: usize) -> f64 {
    ROOF * multiprocessors as f64
}

/// A table's cases.
///
/// # Errors
/// [`Error::Parameter`] for a table that is the processor's alone.
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

/// Filters whose delays are those of a chirp that lasts so many seconds, all at the full rate.
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

/// A bank of chirps that last so long, at as many rates as fit them.
fn length(seconds: f64, peer: f64) -> Case {
    // As many as follow a chirp of two neutron stars with 0.02 cycles of error: 386 in 61.8 s.
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
