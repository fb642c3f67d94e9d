//! One rank of a divided search: its templates, the filters that ranks design for each other, and triggers on their way to rank 0.
//!
//! Invariant: templates, triggers and states depend on the division among ranks in nothing but their place.

use std::path::Path;

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::pipeline::exchange::Ranks;
use crate::spiir::bank::{BankTemplate, LeftOut};
use crate::spiir::trigger::Trigger;
use crate::state::{Saved, Saving};
use crate::strain::{Binary, Branch, Filter, Template};

/// Part of the templates of a bank that a process searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Number of the part, from 0.
    pub(super) own: usize,
    pub(super) count: usize,
}

impl Part {
    /// All templates.
    pub(super) const WHOLE: Self = Self { own: 0, count: 1 };

    /// Returns the part of a rank; the whole without ranks.
    pub(super) fn of(ranks: Option<&Ranks>) -> Self {
        ranks.map_or(Self::WHOLE, |ranks| Self { own: ranks.own(), count: ranks.count() })
    }
}

/// Result of the design of a template.
pub(super) type Made = std::result::Result<BankTemplate, LeftOut>;

/// Returns the designs of all ranks in the order of the waveforms, of which each rank has designed every n-th, from its own number on.
///
/// # Errors
/// As [`Ranks::share`]; [`Error::Unavailable`] if the ranks have other waveforms.
pub(super) fn share_designs(ranks: &mut Ranks, own: Result<Vec<Made>>) -> Result<Vec<Made>> {
    let all = ranks.share(own.map(|own| designs_to_bytes(&own)))?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| designs_of_bytes(&sent_by(rank), bytes);
    let all = all.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
    let total: usize = all.iter().map(Vec::len).sum();
    for (rank, designs) in all.iter().enumerate() {
        let expected = (rank..total).step_by(all.len()).len();
        if designs.len() != expected {
            let why =
                format!("it designed {} of {total} templates, expected {expected}", designs.len());
            return Err(Error::Unavailable { what: format!("rank {rank}"), why });
        }
    }
    let mut all: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
    let count = all.len();
    Ok((0..total).filter_map(|place| all[place % count].next()).collect())
}

/// Checks that all ranks have the same value of each of these named settings.
///
/// # Errors
/// [`Error::Unavailable`] that names the first rank with another value; as [`Ranks::share`].
pub(super) fn check_alike(ranks: &mut Ranks, settings: &[(&str, String)]) -> Result<()> {
    let mut own = Saving::default();
    settings.iter().for_each(|(_, value)| own.bytes(value.as_bytes()));
    let all = ranks.share(Ok(own.finish()))?;
    let read = |rank: usize| -> Result<Vec<String>> {
        let place = sent_by(rank);
        let mut from = Saved::new(Path::new(&place), 0, &all[rank])?;
        settings.iter().map(|_| from.text(usize::MAX)).collect()
    };
    let first = read(0)?;
    for rank in 1..all.len() {
        for ((name, _), (value, expected)) in settings.iter().zip(read(rank)?.iter().zip(&first)) {
            if value != expected {
                let why = format!("its {name} is {value}, and that of rank 0 {expected}");
                return Err(Error::Unavailable { what: format!("rank {rank}"), why });
            }
        }
    }
    Ok(())
}

/// Triggers and progress of a rank in a round.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) detectors: Vec<SentDetector>,
    /// State of the rank, if one is due and complete.
    pub(super) state: Option<Vec<u8>>,
}

/// Triggers of a detector in a round.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SentDetector {
    pub(super) triggers: Vec<Trigger>,
    /// Sample before which there are no further triggers.
    pub(super) decided: u64,
}

impl Sent {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Saving::default();
        to.number(self.detectors.len() as u64);
        for SentDetector { triggers, decided } in &self.detectors {
            to.number(*decided);
            to.number(triggers.len() as u64);
            for Trigger { template, sample, offset, z, xi2 } in triggers {
                to.number(u64::from(*template));
                to.number(*sample);
                to.f32s([*offset, z.re, z.im, *xi2].iter());
            }
        }
        to.number(u64::from(self.state.is_some()));
        to.bytes(self.state.as_deref().unwrap_or_default());
        to.finish()
    }

    /// Reads what a rank has sent.
    ///
    /// # Errors
    /// [`Error::Format`] that names the rank.
    pub(super) fn of_bytes(rank: usize, bytes: &[u8]) -> Result<Self> {
        let place = sent_by(rank);
        let from = &mut Saved::new(Path::new(&place), 0, bytes)?;
        let mut detectors = Vec::new();
        for _ in 0..from.at_most(bytes.len())? {
            let decided = from.number()?;
            let mut triggers = Vec::new();
            for _ in 0..from.at_most(bytes.len())? {
                let template = from.at_most(u32::MAX as usize)? as u32;
                let sample = from.number()?;
                let mut floats = [0.0; 4];
                from.fill_f32(&mut floats)?;
                let [offset, re, im, xi2] = floats;
                triggers.push(Trigger { template, sample, offset, z: Complex::new(re, im), xi2 });
            }
            detectors.push(SentDetector { triggers, decided });
        }
        let is_whole = from.at_most(1)? == 1;
        let state = from.bytes(bytes.len())?;
        from.end()?;
        Ok(Self { detectors, state: is_whole.then_some(state) })
    }
}

/// Returns the state of a divided search: the states of all ranks, in ascending order.
pub(super) fn join_states(states: &[Vec<u8>]) -> Vec<u8> {
    let mut to = Saving::default();
    to.part("ranks");
    to.number(states.len() as u64);
    states.iter().for_each(|state| to.bytes(state));
    to.finish()
}

/// Returns the states of all ranks.
///
/// # Errors
/// [`Error::Format`] for a state that a search by another number of ranks has saved.
pub(super) fn split_states(from: &mut Saved<'_>, ranks: usize) -> Result<Vec<Vec<u8>>> {
    from.part("ranks")?;
    from.expect("ranks", ranks as u64)?;
    let states = (0..ranks).map(|_| from.bytes(usize::MAX)).collect::<Result<Vec<_>>>()?;
    from.end()?;
    Ok(states)
}

/// Name of the data of a rank in errors.
fn sent_by(rank: usize) -> String {
    format!("data of rank {rank}")
}

fn add_text(to: &mut Saving, text: Option<&str>) {
    to.number(u64::from(text.is_some()));
    to.bytes(text.unwrap_or_default().as_bytes());
}

fn maybe_text(from: &mut Saved<'_>) -> Result<Option<String>> {
    let is_some = from.at_most(1)? == 1;
    let text = from.text(usize::MAX)?;
    Ok(is_some.then_some(text))
}

fn designs_to_bytes(designs: &[Made]) -> Vec<u8> {
    let mut to = Saving::default();
    to.number(designs.len() as u64);
    for design in designs {
        match design {
            Ok(template) => {
                to.number(1);
                add_template(&mut to, template);
            }
            Err(LeftOut { name, fit, reason, .. }) => {
                to.number(0);
                add_text(&mut to, Some(name));
                add_text(&mut to, Some(reason));
                to.f64s(fit.as_slice().iter());
            }
        }
    }
    to.finish()
}

fn designs_of_bytes(place: &str, bytes: &[u8]) -> Result<Vec<Made>> {
    let from = &mut Saved::new(Path::new(place), 0, bytes)?;
    let count = from.at_most(bytes.len())?;
    let mut designs = Vec::with_capacity(count);
    for _ in 0..count {
        designs.push(match from.at_most(1)? {
            1 => Ok(template(from)?),
            _ => {
                let name = maybe_text(from)?.unwrap_or_default();
                let reason = maybe_text(from)?.unwrap_or_default();
                let fit = from.f64s(1)?.first().copied();
                Err(LeftOut { index: 0, name, fit, reason })
            }
        });
    }
    from.end()?;
    Ok(designs)
}

fn add_template(to: &mut Saving, one: &BankTemplate) {
    add_text(to, Some(&one.name));
    add_text(to, one.approximant.as_deref());
    let binary = one.binary.as_ref();
    let binary = binary.map(|own| [own.mass1_msun, own.mass2_msun, own.spin1z, own.spin2z]);
    to.f64s(binary.as_ref().map_or(&[][..], |numbers| &numbers[..]).iter());
    to.number(one.filters.branches.len() as u64);
    for Branch { halvings, filters } in &one.filters.branches {
        to.number(u64::from(*halvings));
        let poles: Vec<Complex<f32>> = filters.iter().map(|filter| filter.a).collect();
        let weights: Vec<Complex<f32>> = filters.iter().map(|filter| filter.b).collect();
        let delays: Vec<u32> = filters.iter().map(|filter| filter.delay).collect();
        to.complex(&poles);
        to.complex(&weights);
        to.bytes(bytemuck::cast_slice(&delays));
    }
    let numbers = [
        one.fit,
        one.placement_fit,
        one.epsilon,
        one.sigma_1mpc,
        one.horizon_mpc,
        one.peak_offset_s,
        one.duration_s,
        one.f_low_hz,
        one.f_final_hz,
        f64::from(one.autocorrelation_norm),
    ];
    to.f64s(numbers.iter());
    to.complex(&one.autocorrelation);
    to.complex(&one.whitened);
}

fn template(from: &mut Saved<'_>) -> Result<BankTemplate> {
    let name = maybe_text(from)?.unwrap_or_default();
    let approximant = maybe_text(from)?;
    let binary = match from.f64s(4)?[..] {
        [mass1_msun, mass2_msun, spin1z, spin2z] => {
            Some(Binary { mass1_msun, mass2_msun, spin1z, spin2z })
        }
        _ => None,
    };
    let count = from.at_most(usize::MAX)?;
    let branches = (0..count).map(|_| branch(from)).collect::<Result<Vec<_>>>()?;
    let [
        fit,
        placement_fit,
        epsilon,
        sigma_1mpc,
        horizon_mpc,
        peak_offset_s,
        duration_s,
        f_low_hz,
        f_final_hz,
        norm,
    ] = from.f64_array()?;
    let (autocorrelation, whitened) = (from.complex(usize::MAX)?, from.complex(usize::MAX)?);
    Ok(BankTemplate {
        name,
        binary,
        approximant,
        filters: Template { branches },
        fit,
        placement_fit,
        epsilon,
        sigma_1mpc,
        horizon_mpc,
        autocorrelation,
        autocorrelation_norm: norm as f32,
        peak_offset_s,
        duration_s,
        f_low_hz,
        f_final_hz,
        whitened,
    })
}

fn branch(from: &mut Saved<'_>) -> Result<Branch> {
    let halvings = from.at_most(u32::MAX as usize)? as u32;
    let (poles, weights) = (from.complex(usize::MAX)?, from.complex(usize::MAX)?);
    let delays: Vec<u32> = bytemuck::pod_collect_to_vec(&from.bytes(usize::MAX)?);
    if poles.len() != weights.len() || poles.len() != delays.len() {
        let why =
            format!("{} poles, {} weights, {} delays", poles.len(), weights.len(), delays.len());
        return Err(from.fault("filters", why));
    }
    let filters = poles.into_iter().zip(weights).zip(delays);
    let filters = filters.map(|((a, b), delay)| Filter { a, b, delay }).collect();
    Ok(Branch { halvings, filters })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(number: f32) -> Filter {
        let (a, b) = (Complex::new(0.5, number), Complex::new(-number, 0.25));
        Filter { a, b, delay: u32::MAX - number as u32 }
    }

    fn designs() -> Vec<Made> {
        let whole = BankTemplate {
            name: "10+9".to_owned(),
            binary: Some(Binary::of_masses(10.0, 9.0)),
            approximant: Some("IMRPhenomD".to_owned()),
            filters: Template {
                branches: vec![
                    Branch { halvings: 0, filters: vec![] },
                    Branch { halvings: 3, filters: vec![filter(0.125), filter(7.0)] },
                ],
            },
            fit: 0.98,
            placement_fit: -0.0,
            epsilon: 0.02,
            sigma_1mpc: 1e4,
            horizon_mpc: 1250.0,
            autocorrelation: vec![Complex::new(1.0, 0.0), Complex::new(f32::MIN_POSITIVE, -1.5)],
            autocorrelation_norm: 1.0 / 3.0,
            peak_offset_s: -0.1,
            duration_s: 3.0,
            f_low_hz: 30.0,
            f_final_hz: 400.0,
            whitened: vec![Complex::new(0.1, 0.2)],
        };
        let left_out = |fit| LeftOut { index: 0, name: "w".into(), fit, reason: "too long".into() };
        vec![Ok(whole), Err(left_out(None)), Ok(BankTemplate::default()), Err(left_out(Some(0.5)))]
    }

    #[test]
    fn designs_arrive_bit_for_bit_and_damaged_ones_do_not() {
        let designs = designs();
        let bytes = designs_to_bytes(&designs);
        assert_eq!(designs_of_bytes("x", &bytes).unwrap(), designs);
        for length in 0..bytes.len() {
            assert!(designs_of_bytes("x", &bytes[..length]).is_err());
        }
    }

    #[test]
    fn triggers_and_states_arrive_bit_for_bit() {
        let z = Complex::new(-4.5, f32::MIN_POSITIVE);
        let trigger =
            Trigger { template: 3, sample: 1 << 40, offset: -0.25, z, xi2: f32::INFINITY };
        let detectors = vec![
            SentDetector {
                triggers: vec![trigger, Trigger { template: 0, ..trigger }],
                decided: 9,
            },
            SentDetector::default(),
        ];
        for state in [None, Some(vec![]), Some(vec![1, 2, 3])] {
            let sent = Sent { detectors: Vec::new(), state };
            assert_eq!(Sent::of_bytes(1, &sent.to_bytes()).unwrap(), sent);
        }
        let bytes = Sent { detectors, state: None }.to_bytes();
        assert_eq!(Sent::of_bytes(0, &bytes).unwrap().to_bytes(), bytes);
        let error = Sent::of_bytes(2, &bytes[1..]).unwrap_err().to_string();
        assert!(error.contains("rank 2"), "{error}");
    }

    #[test]
    fn states_of_another_number_of_ranks_are_refused() {
        let states = vec![vec![1, 2], vec![], vec![3]];
        let bytes = join_states(&states);
        let open = || Saved::new(Path::new("x"), 0, &bytes).unwrap();
        assert_eq!(split_states(&mut open(), 3).unwrap(), states);
        let error = split_states(&mut open(), 2).unwrap_err().to_string();
        assert!(error.contains("ranks") && error.contains('3'), "{error}");
    }
}
