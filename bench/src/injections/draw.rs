//! Random parameters of the injected binaries.

use std::f64::consts::TAU;

/// Ranges of the masses in solar masses, and of the network signal-to-noise ratio.
const MASSES: (f64, f64) = (1.4, 30.0);
const RATIOS: (f64, f64) = (8.0, 30.0);

/// One binary, before the detectors' responses are known.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub(crate) masses_msun: (f64, f64),
    /// Network ratio: root of the sum of the detectors' squared optimal ratios.
    pub(crate) network_snr: f64,
    pub(crate) ra_rad: f64,
    pub(crate) dec_rad: f64,
    pub(crate) inclination_rad: f64,
    pub(crate) polarization_rad: f64,
    pub(crate) phase_rad: f64,
    /// Seconds of the peak after a whole second.
    pub(crate) part_s: f64,
    /// Seed of the noise.
    pub(crate) seed: u64,
}

impl Case {
    /// Returns the sum of the masses in solar masses.
    pub fn total_msun(&self) -> f64 {
        self.masses_msun.0 + self.masses_msun.1
    }

    /// Draws a binary with masses uniform in their logarithms, isotropic sky position and orientation.
    pub(crate) fn draw(seed: u64, number: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(1 << 20).wrapping_add(number));
        let (low, high) = MASSES;
        let mut mass = || low * (high / low).powf(random.unit());
        let masses_msun = (mass(), mass());
        let mut between = |from: f64, until: f64| from + (until - from) * random.unit();
        Self {
            masses_msun: (masses_msun.0.max(masses_msun.1), masses_msun.0.min(masses_msun.1)),
            network_snr: between(RATIOS.0, RATIOS.1),
            ra_rad: between(0.0, TAU),
            dec_rad: between(-1.0, 1.0).asin(),
            inclination_rad: between(-1.0, 1.0).acos(),
            polarization_rad: between(0.0, TAU / 2.0),
            phase_rad: between(0.0, TAU),
            part_s: between(0.0, 1.0),
            seed: (between(0.0, 1.0) * (1_u64 << 52) as f64) as u64,
        }
    }
}

/// Pseudorandom number generator.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
