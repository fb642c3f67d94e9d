//! From files of templates to a filter bank for one detector's noise.

use super::phase::Turn;
use super::spectrum::Whitening;
use super::strain::Strain;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::templates::Templates;
use crate::math::power_spectrum::PowerSpectrum;
use crate::spiir::bank::{self, Bank, BankTemplate};
use crate::spiir::whiten::Psd;
use crate::strain::Waveform;
use crate::waveform::{Approximant, InspiralOptions, inspiral};

/// What a bank is designed from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The waveforms, which share one rate.
    pub waveforms: Vec<Waveform>,
    /// How filters are made.
    pub options: bank::Options,
}

/// The waveforms of a file of templates: those that it holds, or those of its binaries by the approximant, for which
/// each binary's usual one stands in where none is given; of `inspirals` its own is not used.
///
/// # Errors
/// [`Error::Parameter`] when a waveform has another rate than `inspirals.rate_hz`, or masses make no inspiral in band.
pub fn waveforms(
    templates: Templates,
    inspirals: &InspiralOptions,
    approximant: Option<Approximant>,
) -> Result<Vec<Waveform>> {
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
        Templates::Binaries(binaries) => binaries
            .iter()
            .map(|(name, binary)| {
                let approximant = approximant.unwrap_or_else(|| Approximant::usual(binary));
                let waveform = inspiral(binary, &InspiralOptions { approximant, ..*inspirals })?;
                let named = if name.is_empty() { waveform.name.clone() } else { name.clone() };
                Ok(Waveform { name: named, ..waveform })
            })
            .collect(),
    }
}

/// Designs a bank for noise of a power spectrum, all templates at once on the threads.
///
/// # Errors
/// As [`bank::design`], of the first template that fails; [`Error::Parameter`] when there is none.
pub fn design(source: &Source, psd: &PowerSpectrum, threads: &Threads) -> Result<Bank> {
    let mut rows: Vec<(usize, Option<Result<BankTemplate>>)> =
        (0..source.waveforms.len()).map(|index| (index, None)).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut rows, 1, |_, _, row| {
        for (index, made) in row {
            *made = Some(bank::design(&source.waveforms[*index], psd, &source.options));
        }
    });
    let templates = rows.into_iter().filter_map(|(_, made)| made).collect::<Result<Vec<_>>>()?;
    let Some(first) = source.waveforms.first() else {
        return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
    };
    Ok(Bank {
        rate_hz: first.rate_hz,
        options: source.options.clone(),
        psd: psd.clone(),
        resampler: source.options.resampler.clone(),
        templates,
    })
}

/// Designs a bank for a recording as it will be whitened.
///
/// # Errors
/// As [`design`]; [`Error::Parameter`] for templates that are longer than the recording, or of another rate.
pub(super) fn design_for(
    source: &Source,
    recording: &Strain,
    whitening: &Whitening,
    threads: &Threads,
) -> Result<(Bank, PowerSpectrum)> {
    let rate_hz = recording.rate_hz;
    if let Some(other) = source.waveforms.iter().find(|waveform| waveform.rate_hz != rate_hz) {
        let rule = format!("the strain of {} has {rate_hz} Hz", recording.detector);
        return Err(Error::parameter("rate of the template (Hz)", other.rate_hz, rule));
    }
    let psd = whitening.spectrum(recording)?;
    let whitener = whitening.options(rate_hz, &psd, source.options.f_low_hz);
    let turn = Turn::new(&whitener, Psd::Fixed(psd.clone()))?;
    let bank = match turn {
        None => design(source, &psd, threads)?,
        Some(turn) => {
            let turned = source.waveforms.iter().map(|waveform| turn.apply(waveform));
            let waveforms = turned.collect::<Result<_>>()?;
            design(&Source { waveforms, options: source.options.clone() }, &psd, threads)?
        }
    };
    check_length(&bank, recording)?;
    Ok((bank, psd))
}

/// Fails unless all templates of a bank fit into the data.
///
/// # Errors
/// [`Error::Parameter`] naming the longest template, for one that is longer than the recording.
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
