//! Expected output of a filter bank, element by element, and the tolerance for single precision.
#![allow(dead_code, unreachable_pub, missing_docs)]

use sidereal::channelize::{Feed, Form, Plan, Products};

use super::channelize::{Complex64, Sums, Truth};

/// Half the distance of 1 to the next float of single precision.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// The sums of every stream of one spectrum.
pub struct Spectrum<'a> {
    truth: &'a Truth<'a>,
    plan: &'a Plan,
    streams: Vec<Sums>,
}

impl<'a> Spectrum<'a> {
    pub fn new(truth: &'a Truth<'a>, plan: &'a Plan, spectrum: usize) -> Self {
        let streams = (0..plan.input().streams()).map(|s| truth.sums(s, spectrum)).collect();
        Self { truth, plan, streams }
    }

    pub fn sums(&self, antenna: usize, place: usize, polarization: usize) -> &Sums {
        let coarse = self.plan.coarse_channel(place);
        &self.streams[self.plan.stream(antenna, coarse, polarization)]
    }

    /// A channel's value, and the bound on its error.
    pub fn value(&self, sums: &Sums, channel: usize) -> (Complex64, f64) {
        let plan = self.plan;
        if plan.options().form == Form::Filtered {
            let bound = UNIT * (plan.taps() as f64 + 2.0) * sums.magnitudes[channel];
            return (sums.y[channel], bound);
        }
        let magnitude: f64 = plan.coefficients().iter().map(|b| b.abs()).sum();
        let steps = plan.taps() as f64 + 8.0 * (2.0 * plan.points() as f64).log2();
        let bound = UNIT * steps * sums.largest * magnitude;
        (self.truth.bin(sums, plan.bin(channel)), bound)
    }

    /// Detected value of a channel: products, their bound, and the power summed.
    pub fn detected(&self, at: (usize, usize), channel: usize) -> (Vec<f64>, f64, f64) {
        let Form::Detected(detection) = &self.plan.options().form else { unreachable!() };
        let polarizations = self.plan.input().polarizations;
        let (x, x_off) = self.value(self.sums(at.0, at.1, 0), channel);
        let (y, y_off) = if polarizations == 2 {
            self.value(self.sums(at.0, at.1, 1), channel)
        } else {
            (Complex64::ZERO, 0.0)
        };
        let (xx, yy, xy) = (x.norm_sqr(), y.norm_sqr(), x * y.conj());
        let linear = detection.feed == Feed::Linear;
        let values = match detection.products {
            Products::Power => [xx, yy][..polarizations].to_vec(),
            Products::I => vec![xx + yy],
            Products::Iquv if linear => vec![xx + yy, xx - yy, 2.0 * xy.re, 2.0 * xy.im],
            Products::Iquv => vec![xx + yy, 2.0 * xy.re, 2.0 * xy.im, xx - yy],
            Products::Aabbcrci => vec![xx, yy, xy.re, xy.im],
        };
        let off = x_off + y_off;
        let bound = 2.0 * (x.norm() + y.norm()) * off + 2.0 * off * off + 8.0 * UNIT * (xx + yy);
        (values, bound, xx + yy)
    }

    /// As [`Self::detected`], with the channel of frequency 0 taken from its neighbours.
    pub fn cleaned(&self, at: (usize, usize), channel: usize) -> (Vec<f64>, f64, f64) {
        let Form::Detected(detection) = &self.plan.options().form else { unreachable!() };
        let channels = self.plan.channels();
        if !detection.interpolate_dc || self.plan.bin(channel) != 0 {
            return self.detected(at, channel);
        }
        let with_bin = |bin| (0..channels).find(|c| self.plan.bin(*c) == bin).unwrap();
        let complex = self.plan.input().encoding.is_complex();
        let (a, a_off, a_power) = self.detected(at, with_bin(1));
        let (b, b_off, b_power) =
            self.detected(at, with_bin(if complex { channels - 1 } else { 1 }));
        let mean = a.iter().zip(&b).map(|(a, b)| 0.5 * (a + b)).collect();
        (mean, a_off + b_off, a_power + b_power)
    }
}
