//! Template space: ranges of masses and aligned spins, and random points in it.

use crate::error::{Error, Result};
use crate::simulate::random::{Key, Stream};
use crate::strain::Binary;

/// Largest mass ratio for which the waveforms are calibrated.
const CALIBRATED_RATIO: f64 = 18.0;
/// Largest spin that the waveforms allow.
const MAX_SPIN: f64 = 0.99;
/// Smallest and largest mass in solar masses.
const MASSES: Range = Range::new(0.1, 1e4);
/// Significant digits of a mass, and steps of a spin per unit.
const MASS_DIGITS: i32 = 7;
const SPIN_DECIMALS: f64 = 1e4;
/// Attempts per random point before the space counts as empty.
const MAX_TRIES: u64 = 1 << 17;

/// Range of values, including both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
}

impl Range {
    /// Creates a range; [`Space::check`] checks that it ascends.
    pub const fn new(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn clamp(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// Returns the value at a fraction of the range.
    fn at(self, part: f64) -> f64 {
        self.low + (self.high - self.low) * part
    }
}

/// Detector-frame (redshifted) masses and aligned spins of binaries; the first body is the heavier one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Space {
    /// Mass of the heavier body, in solar masses.
    pub mass1_msun: Range,
    /// Mass of the lighter body, in solar masses.
    pub mass2_msun: Range,
    /// Sum of the masses, in solar masses.
    pub total_msun: Range,
    /// Mass of the heavier body over that of the lighter one.
    pub ratio: Range,
    /// Chirp mass, in solar masses.
    pub chirp_msun: Range,
    /// Spin of the heavier body along the orbit's angular momentum.
    pub spin1z: Range,
    /// Spin of the lighter body along the orbit's angular momentum.
    pub spin2z: Range,
}

impl Space {
    /// Returns the space of component masses within one range, without spins and with mass ratios up to 18.
    pub fn of_masses(range: Range) -> Self {
        let any = Range::new(0.0, f64::MAX);
        Self {
            mass1_msun: range,
            mass2_msun: range,
            total_msun: any,
            ratio: Range::new(1.0, CALIBRATED_RATIO),
            chirp_msun: any,
            spin1z: Range::new(0.0, 0.0),
            spin2z: Range::new(0.0, 0.0),
        }
    }

    /// Checks that ranges ascend and lie within the waveforms' limits.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the range.
    pub fn check(&self) -> Result<()> {
        let spins = Range::new(-MAX_SPIN, MAX_SPIN);
        let positive = Range::new(0.0, f64::MAX);
        let ranges = [
            ("masses of the heavier body (solar masses)", self.mass1_msun, MASSES),
            ("masses of the lighter body (solar masses)", self.mass2_msun, MASSES),
            ("total masses (solar masses)", self.total_msun, positive),
            ("mass ratios", self.ratio, Range::new(1.0, 100.0)),
            ("chirp masses (solar masses)", self.chirp_msun, positive),
            ("spins of the heavier body", self.spin1z, spins),
            ("spins of the lighter body", self.spin2z, spins),
        ];
        for (name, Range { low, high }, Range { low: least, high: most }) in ranges {
            let found = || format!("{low}:{high}");
            if low.is_nan() || high.is_nan() || low > high {
                let rule = "the first number of a range must not be above the second";
                return Err(Error::parameter(name, found(), rule));
            }
            if low < least || high > most {
                let rule = format!("they must lie within {least} to {most}");
                return Err(Error::parameter(name, found(), rule));
            }
        }
        Ok(())
    }

    /// Whether the space contains a binary, heavier body first.
    pub fn contains(&self, binary: &Binary) -> bool {
        let Binary { mass1_msun, mass2_msun, spin1z, spin2z } = *binary;
        mass1_msun >= mass2_msun
            && self.mass1_msun.contains(mass1_msun)
            && self.mass2_msun.contains(mass2_msun)
            && self.total_msun.contains(binary.total_mass_msun())
            && self.ratio.contains(mass1_msun / mass2_msun)
            && self.chirp_msun.contains(binary.chirp_mass_msun())
            && self.spin1z.contains(spin1z)
            && self.spin2z.contains(spin2z)
    }

    /// Returns bounds on the chirp masses; the first exceeds the second if the space is empty.
    pub(super) fn chirp_range(&self) -> Range {
        let chirp = |first: f64, second: f64| Binary::of_masses(first, second).chirp_mass_msun();
        let lighter = self.mass2_msun.high.min(self.mass1_msun.high);
        let least = chirp(self.mass1_msun.low.max(self.mass2_msun.low), self.mass2_msun.low);
        let most = chirp(self.mass1_msun.high, lighter);
        // For a given total mass, equal masses have the largest chirp mass.
        let heaviest = self.total_msun.high * 0.25_f64.powf(0.6);
        // Margin for the rounding of the corners' sums and ratios.
        let least = least.max(self.chirp_msun.low) * (1.0 - 1e-9);
        Range::new(least, most.min(self.chirp_msun.high).min(heaviest) * (1.0 + 1e-9))
    }

    /// Maps four numbers from 0 to 1 to a binary: masses uniform in their ranges, or in their logarithms, and spins
    /// uniform. The binary may violate other limits.
    fn at(&self, numbers: [f64; 4], is_logarithmic: bool) -> Binary {
        let mass = |range: Range, part: f64| {
            let mass = match is_logarithmic {
                true => Range::new(range.low.ln(), range.high.ln()).at(part).exp(),
                false => range.at(part),
            };
            range.clamp(short(mass))
        };
        let spin = |range: Range, part: f64| {
            range.clamp((range.at(part) * SPIN_DECIMALS).round() / SPIN_DECIMALS)
        };
        Binary {
            mass1_msun: mass(self.mass1_msun, numbers[0]),
            mass2_msun: mass(self.mass2_msun, numbers[1]),
            spin1z: spin(self.spin1z, numbers[2]),
            spin2z: spin(self.spin2z, numbers[3]),
        }
    }

    /// Returns the part of the space with chirp masses in a range, with mass ranges as narrow as possible.
    pub(super) fn slice(&self, chirp_msun: Range) -> Self {
        let Range { low, high } = chirp_msun;
        // For masses q and 1, the chirp mass is q^(3/5) (1 + q)^(-1/5).
        let of_ratio = |ratio: f64| (1.0 + ratio).powf(0.2) * ratio.powf(-0.6);
        let (equal, most) = (of_ratio(1.0), self.ratio.high);
        let heaviest = partner(high, self.mass2_msun.low).min(high * of_ratio(most) * most);
        let heaviest = heaviest.min(self.mass1_msun.high).max(self.mass1_msun.low);
        let lightest = partner(low, heaviest).max(low * of_ratio(most));
        let mass1 = Range::new((low * equal).clamp(self.mass1_msun.low, heaviest), heaviest);
        let most = (high * equal).clamp(self.mass2_msun.low, self.mass2_msun.high);
        let mass2 = Range::new(lightest.clamp(self.mass2_msun.low, most), most);
        Self { mass1_msun: mass1, mass2_msun: mass2, chirp_msun, ..*self }
    }
}

/// Returns the mass that gives a chirp mass together with another mass.
fn partner(chirp: f64, mass: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..60 {
        let middle: f64 = 0.5 * (low + high);
        match Binary::of_masses(mass, middle.exp()).chirp_mass_msun() < chirp {
            true => low = middle,
            false => high = middle,
        }
    }
    (0.5 * (low + high)).exp()
}

/// Random binaries of a space.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    space: Space,
    key: Key,
    /// Largest ratio of the density uniform in chirp times to the density uniform in logarithms of masses; `None` for
    /// points uniform in masses.
    greatest: Option<f64>,
}

impl Draws {
    /// Draws points uniform in the chirp times tau_0 and tau_3, in which the template density is nearly constant, and
    /// in spins.
    pub(super) fn by_chirp_times(space: &Space, seed: u64, stream_index: u64) -> Self {
        let ratio =
            (space.mass1_msun.high / space.mass2_msun.low).clamp(space.ratio.low, space.ratio.high);
        let of = |chirp, ratio: f64| chirp_time_density(chirp, ratio);
        let greatest = of(space.chirp_msun.low, ratio);
        let is_line = |range: Range| range.high <= range.low * (1.0 + 1e-6);
        let is_flat = [space.mass1_msun, space.mass2_msun, space.ratio].into_iter().any(is_line);
        let greatest = if is_flat { 0.0 } else { greatest };
        let key = Key::new(seed, Stream::Placement, stream_index);
        Self { space: *space, key, greatest: Some(greatest) }
    }

    /// Draws points uniform in masses and spins.
    pub(super) fn by_masses(space: &Space, seed: u64, stream_index: u64) -> Self {
        // Complemented indices do not collide with those of chirp times, which are below 2^63.
        let key = Key::new(seed, Stream::Placement, !stream_index);
        Self { space: *space, key, greatest: None }
    }

    /// Returns point `number`, or `None` if all attempts fail.
    pub(super) fn point(&self, number: u64) -> Option<Binary> {
        (0..MAX_TRIES).find_map(|attempt| {
            let first = 5 * (number * MAX_TRIES + attempt);
            let numbers = [0, 1, 2, 3].map(|offset| self.key.uniform(first + offset));
            let binary = self.space.at(numbers, self.greatest.is_some());
            let is_kept = self.space.contains(&binary)
                && self.greatest.is_none_or(|greatest| {
                    let ratio = binary.mass1_msun / binary.mass2_msun;
                    let density = chirp_time_density(binary.chirp_mass_msun(), ratio);
                    self.key.uniform(first + 4) * greatest <= density
                });
            is_kept.then_some(binary)
        })
    }
}

/// Returns `|d(tau_0, tau_3) / d(ln m_1, ln m_2)|` up to a constant: `tau_0 tau_3 (m_1 - m_2) / M`.
fn chirp_time_density(chirp: f64, ratio: f64) -> f64 {
    let nu = ratio / (1.0 + ratio).powi(2);
    chirp.powf(-7.0 / 3.0) * nu.powf(-0.6) * (ratio - 1.0) / (ratio + 1.0)
}

/// Rounds a mass to enough significant digits to distinguish templates of 10^5 cycles.
fn short(mass: f64) -> f64 {
    let scale = 10_f64.powi(MASS_DIGITS - 1 - mass.log10().floor() as i32);
    (mass * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_in_their_space_and_slices_hold_all_of_it() {
        let space = Space {
            total_msun: Range::new(0.0, 100.0),
            spin1z: Range::new(-0.5, 0.9),
            ..Space::of_masses(Range::new(3.0, 80.0))
        };
        let Range { low, high } = space.chirp_range();
        let all = Draws::by_masses(&space, 1, 0);
        let middle = (low * high).sqrt();
        let slices = [space.slice(Range::new(low, middle)), space.slice(Range::new(middle, high))];
        let mut found = [0; 2];
        for number in 0..2000 {
            let binary = all.point(number).expect("a point");
            assert!(space.contains(&binary), "{binary:?}");
            let inside = slices.map(|slice| slice.contains(&binary));
            assert!(inside[0] || inside[1], "{binary:?}");
            found[usize::from(inside[1])] += 1;
        }
        assert!(found.iter().all(|count| *count > 100), "{found:?}");
        for (slice, stream_index) in slices.iter().zip(1..) {
            let draws = Draws::by_chirp_times(slice, 1, stream_index);
            for number in 0..500 {
                let binary = draws.point(number).expect("a point");
                assert!(slice.contains(&binary) && space.contains(&binary), "{binary:?}");
            }
        }
    }

    #[test]
    fn ranges_that_fall_or_leave_the_waveforms_are_refused() {
        let good = Space::of_masses(Range::new(1.0, 100.0));
        assert!(good.check().is_ok());
        let bad = [
            Space::of_masses(Range::new(60.0, 10.0)),
            Space::of_masses(Range::new(0.0, 10.0)),
            Space::of_masses(Range::new(f64::NAN, 10.0)),
            Space { spin1z: Range::new(-1.0, 0.0), ..good },
            Space { ratio: Range::new(0.5, 2.0), ..good },
        ];
        assert!(bad.iter().all(|space| space.check().is_err()));
    }

    #[test]
    fn a_space_may_be_a_line_or_a_point() {
        let point = Space::of_masses(Range::new(30.0, 30.0));
        let draws = Draws::by_chirp_times(&point.slice(point.chirp_range()), 1, 0);
        assert_eq!(draws.point(0), Some(Binary::of_masses(30.0, 30.0)));
        let line =
            Space { mass1_msun: Range::new(5.0, 10.0), ..Space::of_masses(Range::new(1.4, 1.4)) };
        let draws = Draws::by_chirp_times(&line.slice(line.chirp_range()), 1, 0);
        assert!(draws.point(7).is_some_and(|binary| binary.mass2_msun == 1.4));
        let nothing = Space { total_msun: Range::new(1.0, 2.0), ..point };
        assert_eq!(Draws::by_masses(&nothing, 1, 0).point(0), None);
    }
}
