//! Filter-bank files.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::bank_h5::{self, BankFile};
use crate::spiir::bank::{Bank, Options, Rates};

/// Writes a bank; replaces an existing file.
///
/// # Errors
/// As [`bank_h5::write`].
pub fn write_bank(path: &Path, bank: &Bank, detector: &str, comment: &str) -> Result<()> {
    let file = BankFile {
        rate_hz: bank.rate_hz,
        detector: detector.to_owned(),
        comment: comment.to_owned(),
        options: numbers(&bank.options),
        psd: bank.psd.clone(),
        resampler: bank.resampler.clone(),
        templates: bank.templates.clone(),
        left_out: bank.left_out.clone(),
    };
    bank_h5::write(path, &file)
}

/// Reads a bank and the name of the detector it was designed for (empty for none).
///
/// # Errors
/// As [`bank_h5::read`]; [`Error::Format`] for invalid filters.
pub fn read_bank(path: &Path) -> Result<(Bank, String)> {
    let file = bank_h5::read(path)?;
    let bank = Bank {
        rate_hz: file.rate_hz,
        options: options(&file),
        psd: file.psd,
        resampler: file.resampler,
        templates: file.templates,
        left_out: file.left_out,
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

fn options(file: &BankFile) -> Options {
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
        resampler: file.resampler.clone(),
        before_s: or("before_s", usual.before_s),
        autocorrelation_length: or("autocorrelation_length", 201.0) as usize,
        smoothing_hz: or("smoothing_hz", usual.smoothing_hz),
        power: or("power", usual.power),
    }
}
