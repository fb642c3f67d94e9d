//! Filter banks: their design for one detector's noise from template files, and their files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use num_complex::Complex64;

use super::divided::{Made, share_designs};
use super::options::Whitening;
use super::strain::Strain;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::bank_h5::{self, BankFile};
use crate::io::templates::Templates;
use crate::math::{PowerSpectrum, Transforms};
use crate::pipeline::exchange::Ranks;
use crate::spiir::bank::{self, Bank, Designer};
use crate::spiir::whiten::{Method, Options, Psd, Whitener};
use crate::strain::{Binary, Waveform};
use crate::trace::{self, Work};
use crate::waveform::{Approximant, InspiralOptions, inspiral_with};

/// Input of a filter-bank design.
#[derive(Clone, Debug)]
pub struct Source {
    /// Waveforms; all have one sample rate.
    pub waveforms: Vec<Waveform>,
    /// Design options.
    pub options: bank::Options,
}

/// Templates or bank of a detector.
#[derive(Clone, Debug)]
pub enum Input {
    /// Templates, which several detectors may share, and from which a bank is designed for the detector's own noise.
    Templates(Arc<Source>),
    /// Existing bank, which several detectors may share.
    Bank(Arc<Bank>),
}

/// Returns the waveforms of a template file: stored ones, or those computed from its binaries with `approximant`, in
/// parallel.
/// Without it, each binary's usual approximant applies; the one in `inspirals` is ignored.
///
/// # Errors
/// [`Error::Parameter`] when a waveform's rate differs from `inspirals.rate_hz`, or masses give no inspiral in the
/// band.
pub fn waveforms(
    templates: Templates,
    inspirals: &InspiralOptions,
    approximant: Option<Approximant>,
    threads: &Threads,
) -> Result<Vec<Waveform>> {
    let _span = trace::span(Work::Compute, "waveforms");
    let rate_hz = inspirals.rate_hz;
    match templates {
        Templates::Waveforms(waveforms) => {
            if let Some(other) = waveforms.iter().find(|waveform| waveform.rate_hz != rate_hz) {
                let rule =
                    format!("template {} must have {rate_hz} Hz, the strain's rate", other.name);
                return Err(Error::parameter("rate of the template (Hz)", other.rate_hz, rule));
            }
            Ok(waveforms)
        }
        Templates::Binaries(binaries) => {
            let transforms = Transforms::default();
            let make = |name: &str, binary: &Binary| {
                let approximant = approximant.unwrap_or_else(|| Approximant::usual(binary));
                let options = InspiralOptions { approximant, ..*inspirals };
                let waveform = inspiral_with(binary, &options, &transforms)?;
                let named = if name.is_empty() { waveform.name.clone() } else { name.to_owned() };
                Ok(Waveform { name: named, ..waveform })
            };
            let mut rows: Vec<_> = binaries.into_iter().map(|row| (row, None)).collect();
            threads.for_each(&mut rows, 1, |_, row| {
                for ((name, binary), made) in row {
                    *made = Some(make(name, binary));
                }
            });
            rows.into_iter().filter_map(|(_, made)| made).collect()
        }
    }
}

/// Designs a bank for noise with a power spectrum, in parallel over templates. Templates for which no filters can be
/// designed are [left out](Bank::left_out).
///
/// # Errors
/// As [`Designer::new`]; [`Error::Parameter`] without templates, [`Error::Unavailable`] when none is left.
pub fn design(source: &Source, psd: &PowerSpectrum, threads: &Threads) -> Result<Bank> {
    design_each(source, psd, threads, None, |waveform| Ok(Cow::Borrowed(waveform)))
}

/// Designs a bank from what `change` makes of each waveform, which exists only while its filters are designed. Ranks
/// share what each has designed of its own waveforms.
fn design_each<'a>(
    source: &'a Source,
    psd: &PowerSpectrum,
    threads: &Threads,
    ranks: Option<&mut Ranks>,
    change: impl Fn(&'a Waveform) -> Result<Cow<'a, Waveform>> + Sync,
) -> Result<Bank> {
    let Some(first) = source.waveforms.first() else {
        return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
    };
    let designer = Designer::new(psd, &source.options, first.rate_hz)?;
    let span = trace::span(Work::Compute, "fits");
    let mut rows: Vec<(usize, Option<Result<Made>>)> =
        (0..source.waveforms.len()).map(|index| (index, None)).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut rows, 1, |_, _, row| {
        for (index, made) in row {
            let changed = change(&source.waveforms[*index]);
            *made = Some(changed.map(|waveform| designer.design(&waveform)));
        }
    });
    drop(span);
    let made = rows.into_iter().filter_map(|(_, made)| made).collect::<Result<Vec<_>>>();
    let made = match ranks {
        Some(ranks) => share_designs(ranks, made)?,
        None => made?,
    };
    Bank::of(made.into_iter(), psd, &source.options, first.rate_hz)
}

/// Phase correction of waveforms for a minimum-phase whitener, so that templates match the whitened strain.
#[derive(Debug)]
struct PhaseCorrection {
    /// Phase factors of the frequencies from 0 to Nyquist, by the length of the transform.
    phases: BTreeMap<usize, Vec<Complex64>>,
    /// Length of the whitener's impulse response in samples.
    tail: usize,
    transforms: Transforms,
}

impl PhaseCorrection {
    /// Builds the correction of waveforms for a whitener with these options and a fixed spectrum; `None` for a zero-phase
    /// whitener.
    fn new(options: &Options, psd: Psd, waveforms: &[Waveform]) -> Result<Option<Self>> {
        let Method::MinimumPhase { taps_s } = options.method else { return Ok(None) };
        let tail = (taps_s * f64::from(options.rate_hz)).ceil() as usize;
        let whitener = Whitener::new(Options { psd, ..options.clone() })?;
        let phase = |gain: Complex64| {
            let size = gain.norm();
            if size > 0.0 { gain / size } else { Complex64::new(1.0, 0.0) }
        };
        let mut phases = BTreeMap::new();
        for waveform in waveforms {
            let points = (waveform.samples.len() + tail).next_power_of_two();
            if let Entry::Vacant(vacant) = phases.entry(points) {
                let response = whitener.response(points)?;
                vacant.insert(response.into_iter().map(phase).collect());
            }
        }
        Ok(Some(Self { phases, tail, transforms: Transforms::default() }))
    }

    /// Returns the waveform with the whitener's phase response applied; its peak time stays.
    fn apply(&self, waveform: &Waveform) -> Result<Waveform> {
        let used = waveform.samples.len() + self.tail;
        let points = used.next_power_of_two();
        let mut samples = waveform.samples.clone();
        samples.resize(points, Complex64::default());
        self.transforms.forward(&mut samples);
        let phases = &self.phases[&points];
        for (bin, value) in samples.iter_mut().enumerate() {
            let positive = bin.min(points - bin);
            let phase = phases[positive];
            // The impulse response is real, so negative frequencies are conjugates.
            *value *= if bin == positive { phase } else { phase.conj() };
            *value /= points as f64;
        }
        self.transforms.inverse(&mut samples);
        samples.truncate(used);
        if samples.iter().any(|h| !h.is_finite()) {
            let rule = "its whitened samples must be finite";
            return Err(Error::parameter("waveform", &waveform.name, rule));
        }
        Ok(Waveform { samples, ..waveform.clone() })
    }
}

/// Designs a bank that matches a recording's whitening with its spectrum, and returns both.
///
/// # Errors
/// As [`design`]; [`Error::Parameter`] for templates of another rate. Templates longer than the recording are left
/// out.
pub(super) fn design_for(
    source: &Source,
    recording: &Strain,
    psd: Result<PowerSpectrum>,
    whitening: &Whitening,
    threads: &Threads,
    ranks: Option<&mut Ranks>,
) -> Result<(Bank, PowerSpectrum)> {
    let (detector, length_s) = (&recording.detector, recording.duration_s());
    let rate_hz = recording.rate_hz;
    if let Some(other) = source.waveforms.iter().find(|waveform| waveform.rate_hz != rate_hz) {
        let rule = format!("the strain of {detector} has {rate_hz} Hz");
        return Err(Error::parameter("rate of the template (Hz)", other.rate_hz, rule));
    }
    let psd = psd?;
    let mut bank = design_whitened(source, &psd, whitening, threads, ranks)?;
    bank.leave_out(&mut |_, one| {
        let is_longer = one.duration_s > length_s;
        let longer = || {
            format!(
                "it lasts {:.2} s, longer than the data of {detector} ({length_s} s)",
                one.duration_s
            )
        };
        is_longer.then(longer)
    });
    bank.some_left()?;
    Ok((bank, psd))
}

/// Designs a bank that matches the whitening of strain with a spectrum.
///
/// # Errors
/// As [`design`].
pub(super) fn design_whitened(
    source: &Source,
    psd: &PowerSpectrum,
    whitening: &Whitening,
    threads: &Threads,
    ranks: Option<&mut Ranks>,
) -> Result<Bank> {
    let plain = |waveform| Ok(Cow::Borrowed(waveform));
    let Some(first) = source.waveforms.first() else { return design(source, psd, threads) };
    let whitener = whitening.options(first.rate_hz, psd, source.options.f_low_hz);
    match PhaseCorrection::new(&whitener, Psd::Fixed(psd.clone()), &source.waveforms)? {
        None => design_each(source, psd, threads, ranks, plain),
        Some(correction) => {
            let correct = |waveform| Ok(Cow::Owned(correction.apply(waveform)?));
            design_each(source, psd, threads, ranks, correct)
        }
    }
}

/// Removes from each detector's bank the templates that another bank leaves out, if all were designed from the same
/// number of templates.
///
/// # Errors
/// [`Error::Unavailable`] when no template is left.
pub(super) fn keep_common(banks: &mut [(&str, &mut Arc<Bank>)]) -> Result<()> {
    let count = |bank: &Bank| bank.templates.len() + bank.left_out.len();
    let is_same = banks.windows(2).all(|pair| count(pair[0].1) == count(pair[1].1));
    if !is_same || banks.iter().all(|(_, bank)| bank.left_out.is_empty()) {
        return Ok(());
    }
    let mut whose: BTreeMap<usize, String> = BTreeMap::new();
    for (detector, bank) in banks.iter() {
        for one in &bank.left_out {
            whose.entry(one.index).or_insert_with(|| format!("{detector} leaves it out"));
        }
    }
    for (_, bank) in banks {
        if bank.left_out.len() < whose.len() {
            Arc::make_mut(bank).leave_out(&mut |index, _| whose.get(&index).cloned());
        }
        bank.some_left()?;
    }
    Ok(())
}

/// Checks that all templates of a bank are shorter than the data.
///
/// # Errors
/// [`Error::Parameter`] naming the longest template, if it is longer than the recording.
pub fn check_length(bank: &Bank, recording: &Strain) -> Result<()> {
    let longest = bank.templates.iter().max_by(|a, b| a.duration_s.total_cmp(&b.duration_s));
    match longest {
        Some(one) if one.duration_s > recording.duration_s() => {
            let rule = format!(
                "template {} is longer than the data of {}, which last {} s",
                one.name,
                recording.detector,
                recording.duration_s()
            );
            let length_s = format!("{:.2}", one.duration_s);
            Err(Error::parameter("length of the whitened template (s)", length_s, rule))
        }
        _ => Ok(()),
    }
}

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
        templates: Cow::Borrowed(&bank.templates),
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
        templates: file.templates.into_owned(),
        left_out: file.left_out,
    };
    bank.plan().map_err(|error| Error::format(path, "filters", 0, error.to_string()))?;
    Ok((bank, file.detector))
}

/// Returns the options as names and numbers.
fn numbers(options: &bank::Options) -> Vec<(String, f64)> {
    let lowest_hz = match options.rates {
        bank::Rates::Single => 0.0,
        bank::Rates::Multi { lowest_hz } => lowest_hz,
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
    let f_stop = options.f_stop_hz.map(|f_stop_hz| ("f_stop_hz", f_stop_hz));
    pairs.into_iter().chain(f_stop).map(|(name, number)| (name.to_owned(), number)).collect()
}

fn options(file: &BankFile<'_>) -> bank::Options {
    let usual = bank::Options::default();
    let or = |name: &str, usual: f64| file.option(name).unwrap_or(usual);
    let above = |name: &str| file.option(name).filter(|number| *number > 0.0);
    bank::Options {
        f_low_hz: or("f_low_hz", usual.f_low_hz),
        f_high_hz: above("f_high_hz"),
        epsilon: or("epsilon", usual.epsilon),
        alpha: or("alpha", usual.alpha),
        beta: or("beta", usual.beta),
        padding: or("padding", usual.padding),
        minimum_match: or("minimum_match", usual.minimum_match),
        match_floor: or("match_floor", usual.match_floor),
        rates: above("lowest_rate_hz")
            .map_or(bank::Rates::Single, |lowest_hz| bank::Rates::Multi { lowest_hz }),
        resampler: file.resampler.clone(),
        before_s: or("before_s", usual.before_s),
        f_stop_hz: above("f_stop_hz"),
        autocorrelation_length: or("autocorrelation_length", 201.0) as usize,
        smoothing_hz: or("smoothing_hz", usual.smoothing_hz),
        power: or("power", usual.power),
    }
}
