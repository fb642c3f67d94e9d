//! End-to-end checks of an array's correlation: a source far off zenith appears at its true position and flux;
//! missing data change the amount of data, and nothing else.

use crate::support::tracked;
use sidereal::geometry::{Dut1, Sky};
use sidereal::pipeline::correlator::{
    ArrayHeader, CorrelateOptions, Gains, Integration, PhaseCentre,
};
use sidereal::simulate::array::ArraySimulator;
use sidereal::voltage::VoltageEncoding::{Complex4, ComplexF32, Real2, Real8};
use tracked::{
    ANTENNAS, CHANNELS, Case, Complex64, INTEGRATIONS, PLAIN, SPECTRA, array, correlate,
    correlate_late, start, target,
};

/// Mean visibilities of one integration; axes baseline, channel, pair.
fn means(integration: &Integration) -> Vec<Complex64> {
    integration.means().collect()
}

/// Whether an output channel holds no edge of a recorded channel, where the band aliases.
fn is_inner(channel: usize, case: &Case) -> bool {
    let whole = CHANNELS / case.average;
    (1..whole - 1).contains(&(channel % whole))
}

/// Root mean square of the phases, in degrees, of one baseline and pair.
fn phase_rms(header: &ArrayHeader, all: &[Integration], case: &Case, place: (usize, usize)) -> f64 {
    let (baseline, pair) = place;
    let channels = header.frequencies_hz.len();
    let (mut squares, mut count) = (0.0, 0.0);
    for integration in all.iter().filter(|integration| integration.spectra == SPECTRA as u64) {
        let means = means(integration);
        for channel in (0..channels).filter(|channel| is_inner(*channel, case)) {
            let value = means[(baseline * channels + channel) * header.pairs() + pair];
            assert!(value.norm() > 0.0, "nothing was summed");
            squares += value.arg().to_degrees().powi(2);
            count += 1.0;
        }
    }
    assert!(count > 0.0, "no whole integration");
    f64::sqrt(squares / count)
}

/// Tracks the source, and checks that every baseline's phase is within a degree.
fn is_flat(case: Case) {
    let simulator = ArraySimulator::new(case.simulation()).unwrap();
    let (header, all) = correlate(&simulator, &case.options());
    assert_eq!(all.len(), INTEGRATIONS + usize::from(all.last().unwrap().spectra < SPECTRA as u64));
    // Noise of a phase: the part that is not common, over the root of twice the samples.
    let coherence = case.coherence();
    let samples = (SPECTRA * case.average) as f64;
    let noise = ((1.0 - coherence.powi(2)) / (2.0 * samples)).sqrt() / coherence;
    assert!(noise.to_degrees() < 0.3, "{case:?}: noise of {} degrees", noise.to_degrees());
    for (baseline, (i, j)) in header.baselines.iter().enumerate().filter(|(_, (i, j))| i != j) {
        for pair in if header.pairs() == 4 { vec![0, 3] } else { vec![0] } {
            let rms = phase_rms(&header, &all, &case, (baseline, pair));
            assert!(rms < 1.0, "{case:?}: {i}-{j} pair {pair}: {rms} degrees");
        }
    }
}

/// Verification method: a source 40 degrees off zenith is simulated with its true geometric delays and
/// cables; it is tracked, and on every baseline the phase over all channels and integrations is within 1
/// degree rms of zero, with less than 0.3 degrees of noise. Once for each way of recording.
#[test]
fn a_tracked_source_has_no_phase() {
    is_flat(PLAIN);
    is_flat(Case { polarizations: 2, ..PLAIN });
    is_flat(Case { nbits: 32, encoding: ComplexF32, ..PLAIN });
}

/// As [`a_tracked_source_has_no_phase`], in the lower sideband.
#[test]
fn a_tracked_source_has_no_phase_in_a_lower_sideband() {
    is_flat(Case { lower: true, ..PLAIN });
    is_flat(Case { lower: true, coarse: 3, average: 4, ..PLAIN });
}

/// As [`a_tracked_source_has_no_phase`], of real samples.
#[test]
fn a_tracked_source_has_no_phase_in_real_samples() {
    is_flat(Case { encoding: Real8, ..PLAIN });
    is_flat(Case { encoding: Real8, lower: true, coarse: 2, polarizations: 2, ..PLAIN });
}

/// As [`a_tracked_source_has_no_phase`], with few bits: rounding adds noise.
#[test]
fn a_tracked_source_has_no_phase_in_few_bits() {
    is_flat(Case { encoding: Complex4, nbits: 4, average: 4, flux_jy: 200.0, ..PLAIN });
    is_flat(Case { encoding: Real2, nbits: 8, coarse: 2, average: 8, flux_jy: 200.0, ..PLAIN });
}

/// Verification method: the same source in recordings that begin at different samples, and in a fraction of their
/// time. Phases are equally flat, for any batch size.
#[test]
fn a_tracked_source_has_no_phase_in_parts_of_recordings() {
    for case in [PLAIN, Case { encoding: Real8, lower: true, ..PLAIN }] {
        let simulator = ArraySimulator::new(case.simulation()).unwrap();
        let whole = SPECTRA as f64 * case.bank().hop() as f64 * case.tsamp_s();
        for (late, time_range, gulp) in [
            ([0, 4000, 1236, 52, 8], None, 0),
            ([0; ANTENNAS], Some((0.3 * whole, 3.7 * whole)), 333),
            ([804, 0, 0, 12, 7744], Some((0.11 * whole, 4.0 * whole)), 64),
        ] {
            let options = CorrelateOptions { time_range, gulp, shortest: true, ..case.options() };
            let (header, all) = correlate_late(&simulator, &options, late);
            for (baseline, (i, j)) in
                header.baselines.iter().enumerate().filter(|(_, (i, j))| i != j)
            {
                let rms = phase_rms(&header, &all, &case, (baseline, 0));
                assert!(rms < 1.0, "{late:?} {time_range:?}: {i}-{j}: {rms} degrees");
            }
        }
    }
}

/// Verification method: the same recordings, tracked to the mirrored position (on the other side of the reference's
/// zenith), to a position a tenth of a degree away, and not at all: phases wind.
#[test]
fn elsewhere_phases_are_not_flat() {
    let simulator = ArraySimulator::new(PLAIN.simulation()).unwrap();
    let zenith = Sky::new(&array(), Dut1::Table).unwrap().zenith(start()).unwrap();
    let target = target();
    let mirrored = (2.0 * zenith.ra_deg - target.ra_deg, 2.0 * zenith.dec_deg - target.dec_deg);
    let near = (target.ra_deg + 0.1, target.dec_deg);
    for place in [Some(mirrored), Some(near), None] {
        let phase_centre = match place {
            Some((ra_deg, dec_deg)) => PhaseCentre::Sidereal {
                ra_deg: ra_deg.rem_euclid(360.0),
                dec_deg,
                name: "other".into(),
            },
            None => PhaseCentre::Drift,
        };
        let options = CorrelateOptions { phase_centre, ..PLAIN.options() };
        let (header, all) = correlate(&simulator, &options);
        // The short baseline of antennas 0 and 4 hardly resolves a tenth of a degree.
        for (baseline, (i, j)) in header.baselines.iter().enumerate() {
            if i != j && (*i, *j) != (4, 0) {
                let rms = phase_rms(&header, &all, &PLAIN, (baseline, 0));
                assert!(rms > 20.0, "{place:?} {i}-{j}: {rms} degrees");
            }
        }
    }
}

/// Mean over inner channels and whole integrations; axes baseline, pair.
fn averages(header: &ArrayHeader, all: &[Integration], case: &Case) -> Vec<Complex64> {
    let (channels, pairs) = (header.frequencies_hz.len(), header.pairs());
    let mut sums = vec![Complex64::ZERO; header.baselines.len() * pairs];
    let mut count = 0.0;
    for integration in all.iter().filter(|integration| integration.spectra == SPECTRA as u64) {
        let means = means(integration);
        for channel in (0..channels).filter(|channel| is_inner(*channel, case)) {
            count += 1.0;
            for (at, sum) in sums.iter_mut().enumerate() {
                let (baseline, pair) = (at / pairs, at % pairs);
                *sum += means[(baseline * channels + channel) * pairs + pair];
            }
        }
    }
    sums.iter().map(|sum| sum / count).collect()
}

/// Mean square of a Gaussian number rounded to `nbits` at the target deviation, and its correlation with the unrounded
/// number, by summing over the density.
fn rounded(nbits: usize) -> (f64, f64) {
    let (deviation, most) = match nbits {
        4 => (2.8, 7.0),
        8 => (20.0, 127.0),
        _ => return (1.0, 1.0),
    };
    let step = 1e-4;
    let (mut power, mut kept) = (0.0, 0.0);
    for index in -80_000..80_000 {
        let x = (f64::from(index) + 0.5) * step;
        let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt() * step;
        let value = (deviation * x).round().clamp(-most - 1.0, most) / deviation;
        power += density * value * value;
        kept += density * value * x;
    }
    (power, kept)
}

/// Verification method: the simulation's powers and the source's share are known; white noise of power P has
/// `P sum b^2` in every channel of a filter bank of coefficients b. Autocorrelations and, in the parallel hands,
/// cross-correlations must agree with that within 5 times their noise, and the cross hands of an unpolarized source
/// must be zero.
#[test]
fn amplitudes_are_the_simulated_ones() {
    for case in [
        Case { flux_jy: 0.3, polarizations: 2, ..PLAIN },
        Case { flux_jy: 0.3, encoding: Real8, lower: true, nbits: 32, ..PLAIN },
        Case { flux_jy: 0.3, encoding: Complex4, nbits: 4, coarse: 2, average: 2, ..PLAIN },
        Case { flux_jy: 0.1, encoding: Real2, ..PLAIN },
    ] {
        let simulator = ArraySimulator::new(case.simulation()).unwrap();
        let truth = simulator.truth();
        let (header, all) = correlate(&simulator, &case.options());
        let found = averages(&header, &all, &case);
        let gain: f64 = case.bank().coefficients().iter().map(|b| b * b).sum();
        let inner = (CHANNELS / case.average - 2) * case.average * case.coarse;
        let noise = 1.0 / ((SPECTRA * INTEGRATIONS * inner) as f64).sqrt();
        let (powers, kept) = rounded(case.nbits);
        for (baseline, (i, j)) in header.baselines.iter().enumerate() {
            for pair in 0..header.pairs() {
                let (p, q) = (pair / case.polarizations, pair % case.polarizations);
                let power = (truth.autocorrelations[*i][p] * truth.autocorrelations[*j][q]).sqrt();
                let amplitudes = &truth.sources[0].amplitudes;
                let expected = match (i == j, p == q) {
                    (true, true) => power * powers,
                    (false, true) => amplitudes[*i][p] * amplitudes[*j][q] * kept * kept,
                    _ => 0.0,
                };
                let off = (found[baseline * header.pairs() + pair] / gain - expected) / power;
                // Noise, plus half a percent for gains from few spectra and for the aliased band edges.
                let bound = 5.0 * noise + 5e-3;
                let name = format!("{case:?}: {i}-{j} pair {pair}");
                assert!(off.norm() < bound, "{name}: off by {off} of the power, at most {bound}");
            }
        }
    }
}

/// Verification method: a tenth of one antenna's samples is lost in pieces; the counts of its baselines
/// fall by what the filter bank's windows over the gaps hold, means stay within the noise of what is lost,
/// and other baselines have the same bits.
#[test]
fn missing_samples_change_counts_and_not_the_scale() {
    let case = Case { flux_jy: 1.0, ..PLAIN };
    let mut simulation = case.simulation();
    let whole = ArraySimulator::new(simulation.clone()).unwrap();
    let (hop, span) = (case.bank().hop() as u64, case.bank().span() as u64);
    // Sixty gaps of 480 samples, at offsets that favour no spectrum.
    simulation.receivers[2].gaps = (0..60).map(|n| (3200 + n * 4724, 480)).collect();
    let holed = ArraySimulator::new(simulation).unwrap();
    // One gain for all, since measured gains would differ.
    let options = CorrelateOptions { gains: Gains::Fixed(8.0), ..case.options() };
    let (header, before) = correlate(&whole, &options);
    let (_, after) = correlate(&holed, &options);
    let channels = header.frequencies_hz.len();
    let total = |all: &[Integration], baseline: usize| -> u64 {
        let row = baseline * channels..(baseline + 1) * channels;
        all.iter().map(|integration| integration.counts[row.clone()].iter().sum::<u64>()).sum()
    };
    let (full, holes) = (averages(&header, &before, &case), averages(&header, &after, &case));
    for (baseline, (i, j)) in header.baselines.iter().enumerate() {
        let lost = total(&before, baseline) - total(&after, baseline);
        if *i != 2 && *j != 2 {
            assert_eq!((lost, full[baseline]), (0, holes[baseline]), "{i}-{j}");
            continue;
        }
        // A gap spoils the spectra whose windows overlap it.
        let expected = 60.0 * (480 + span - 1) as f64 / hop as f64 * channels as f64;
        let ratio = lost as f64 / expected;
        assert!((ratio - 1.0).abs() < 0.02, "{i}-{j}: lost {lost}, expected {expected}");
        let inner = (channels - 2) as f64;
        let part = lost as f64 / total(&before, baseline) as f64;
        let power = (full[auto(*i)] * full[auto(*j)]).norm().sqrt();
        let noise = power * (part / (SPECTRA as f64 * INTEGRATIONS as f64 * inner)).sqrt();
        let off = (holes[baseline] - full[baseline]).norm();
        assert!(off < 6.0 * noise, "{i}-{j}: off by {off}, noise {noise}");
    }
}

/// Index of an antenna's autocorrelation.
fn auto(antenna: usize) -> usize {
    antenna * (antenna + 1) / 2 + antenna
}
