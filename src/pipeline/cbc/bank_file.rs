//! Filter-bank files.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::bank_h5::{
    self, BankFile, FilterRecord, LeftOutRecord, ResamplerRecord, TemplateRecord,
};
use crate::spiir::bank::{Bank, BankTemplate, LeftOut, Options, Rates};
use crate::spiir::{Branch, Filter, Resampler, Template};

/// Writes a bank; replaces an existing file.
///
/// # Errors
/// As [`bank_h5::write`].
pub fn write_bank(path: &Path, bank: &Bank, detector: &str, comment: &str) -> Result<()> {
    let record = |delay: usize| u32::try_from(delay).unwrap_or(u32::MAX);
    let file = BankFile {
        rate_hz: bank.rate_hz,
        detector: detector.to_owned(),
        comment: comment.to_owned(),
        options: numbers(&bank.options),
        psd: bank.psd.clone(),
        resampler: ResamplerRecord {
            down: bank.resampler.down.clone(),
            down_delay: record(bank.resampler.down_delay),
            up: bank.resampler.up.clone(),
            up_delay: record(bank.resampler.up_delay),
        },
        templates: bank.templates.iter().map(to_record).collect(),
        left_out: bank.left_out.iter().map(to_left_out).collect(),
    };
    bank_h5::write(path, &file)
}

/// Reads a bank and the name of the detector it was designed for (empty for none).
///
/// # Errors
/// As [`bank_h5::read`]; [`Error::Format`] for invalid filters.
pub fn read_bank(path: &Path) -> Result<(Bank, String)> {
    let file = bank_h5::read(path)?;
    let resampler = Resampler {
        down: file.resampler.down.clone(),
        down_delay: file.resampler.down_delay as usize,
        up: file.resampler.up.clone(),
        up_delay: file.resampler.up_delay as usize,
    };
    let bank = Bank {
        rate_hz: file.rate_hz,
        options: options(&file, &resampler),
        psd: file.psd.clone(),
        resampler,
        templates: file.templates.iter().map(from_record).collect(),
        left_out: file.left_out.iter().map(from_left_out).collect(),
    };
    bank.plan().map_err(|error| Error::format(path, "filters", 0, error.to_string()))?;
    Ok((bank, file.detector))
}

/// Returns the options as names and numbers.
fn numbers(options: &Options) -> Vec<(String, f64)> {
    let lowest_hz = match options.rates {
        Rates::Single => 0.0,
        Rates::Multi { lowest_hz } => lowest_hz,
    };
    let pairs = [
        ("f_low_hz", options.f_low_hz),
        ("f_high_hz", options.f_high_hz.unwrap_or(0.0)),
        ("epsilon", options.epsilon),
        ("alpha", options.alpha),
        ("beta", options.beta),
        ("padding", options.padding),
        ("minimum_match", options.minimum_match),
        ("match_floor", options.match_floor),
        ("lowest_rate_hz", lowest_hz),
        ("before_s", options.before_s),
        ("autocorrelation_length", options.autocorrelation_length as f64),
        ("smoothing_hz", options.smoothing_hz),
        ("power", options.power),
    ];
    pairs.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

fn options(file: &BankFile, resampler: &Resampler) -> Options {
    let usual = Options::default();
    let or = |name: &str, usual: f64| file.option(name).unwrap_or(usual);
    let above = |name: &str| file.option(name).filter(|number| *number > 0.0);
    Options {
        f_low_hz: or("f_low_hz", usual.f_low_hz),
        f_high_hz: above("f_high_hz"),
        epsilon: or("epsilon", usual.epsilon),
        alpha: or("alpha", usual.alpha),
        beta: or("beta", usual.beta),
        padding: or("padding", usual.padding),
        minimum_match: or("minimum_match", usual.minimum_match),
        match_floor: or("match_floor", usual.match_floor),
        rates: above("lowest_rate_hz")
            .map_or(Rates::Single, |lowest_hz| Rates::Multi { lowest_hz }),
        resampler: resampler.clone(),
        before_s: or("before_s", usual.before_s),
        autocorrelation_length: or("autocorrelation_length", 201.0) as usize,
        smoothing_hz: or("smoothing_hz", usual.smoothing_hz),
        power: or("power", usual.power),
    }
}

fn to_left_out(one: &LeftOut) -> LeftOutRecord {
    let (name, reason) = (one.name.clone(), one.reason.clone());
    LeftOutRecord { index: one.index, name, fit: one.fit, reason }
}

fn from_left_out(one: &LeftOutRecord) -> LeftOut {
    let (name, reason) = (one.name.clone(), one.reason.clone());
    LeftOut { index: one.index, name, fit: one.fit, reason }
}

fn to_record(template: &BankTemplate) -> TemplateRecord {
    let branches = template.filters.branches.iter();
    let filters = branches.flat_map(|branch| {
        branch.filters.iter().map(|filter| FilterRecord {
            halvings: branch.halvings,
            a: filter.a,
            b: filter.b,
            delay: filter.delay,
        })
    });
    TemplateRecord {
        name: template.name.clone(),
        binary: template.binary,
        approximant: template.approximant.clone(),
        filters: filters.collect(),
        fit: template.fit,
        placement_fit: template.placement_fit,
        epsilon: template.epsilon,
        sigma_1mpc: template.sigma_1mpc,
        horizon_mpc: template.horizon_mpc,
        autocorrelation: template.autocorrelation.clone(),
        autocorrelation_norm: template.autocorrelation_norm,
        peak_offset_s: template.peak_offset_s,
        duration_s: template.duration_s,
        f_low_hz: template.f_low_hz,
        f_final_hz: template.f_final_hz,
        whitened: template.whitened.clone(),
    }
}

fn from_record(record: &TemplateRecord) -> BankTemplate {
    let mut branches: Vec<Branch> = Vec::new();
    for one in &record.filters {
        let filter = Filter { a: one.a, b: one.b, delay: one.delay };
        match branches.iter_mut().find(|branch| branch.halvings == one.halvings) {
            Some(branch) => branch.filters.push(filter),
            None => branches.push(Branch { halvings: one.halvings, filters: vec![filter] }),
        }
    }
    branches.sort_by_key(|branch| branch.halvings);
    BankTemplate {
        name: record.name.clone(),
        binary: record.binary,
        approximant: record.approximant.clone(),
        filters: Template { branches },
        fit: record.fit,
        placement_fit: record.placement_fit,
        epsilon: record.epsilon,
        sigma_1mpc: record.sigma_1mpc,
        horizon_mpc: record.horizon_mpc,
        autocorrelation: record.autocorrelation.clone(),
        autocorrelation_norm: record.autocorrelation_norm,
        peak_offset_s: record.peak_offset_s,
        duration_s: record.duration_s,
        f_low_hz: record.f_low_hz,
        f_final_hz: record.f_final_hz,
        whitened: record.whitened.clone(),
    }
}
