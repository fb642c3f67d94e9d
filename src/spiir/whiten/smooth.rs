//! Smooth spectra for templates: lines and the estimate's scatter taken out, band edges walled off.
//!
//! Invariant: as many bins come out as went in.

use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;

/// Smooths a spectrum: a running median over `width_hz`, which takes out lines, then a running mean over as much. At the
/// ends the windows are cut off.
///
/// Between bins of noise the median lies below the mean by the bias of the estimate's scatter, a few per cent for
/// spectra of 16 segments; the scale of a template does not matter for its shape.
///
/// # Errors
/// [`Error::Parameter`] unless the width is finite and 0 or more.
pub fn smooth(spectrum: &PowerSpectrum, width_hz: f64) -> Result<PowerSpectrum> {
    if !(width_hz.is_finite() && width_hz >= 0.0) {
        return Err(Error::parameter("smoothing (Hz)", width_hz, "it must be 0 Hz or more"));
    }
    let densities = spectrum.densities();
    let half = (width_hz / (2.0 * spectrum.spacing_hz())).round();
    let half = half.min(densities.len() as f64) as usize;
    let medians = running_median(densities, half);
    PowerSpectrum::new(spectrum.spacing_hz(), running_mean(&medians, half))
}

/// What [`condition`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionOptions {
    /// Width of the smoothing in Hz.
    pub smoothing_hz: f64,
    /// Below this nothing is known: the densities are infinite.
    pub f_wall_hz: f64,
    /// From the wall to here the densities fall from infinity to their own, as `1 / sin^4`.
    pub f_low_hz: f64,
    /// From here to Nyquist's frequency they rise to infinity, as `1 / cos^4`; `None` for 0.9 of Nyquist's frequency.
    pub f_high_hz: Option<f64>,
}

/// A spectrum for whitening templates: smoothed, with walls at the band's edges.
///
/// # Errors
/// [`Error::Parameter`] unless `0 <= f_wall_hz < f_low_hz < f_high_hz < ` Nyquist's frequency, and as [`smooth`].
pub fn condition(spectrum: &PowerSpectrum, options: &ConditionOptions) -> Result<PowerSpectrum> {
    let nyquist = spectrum.highest_hz();
    let high = options.f_high_hz.unwrap_or(0.9 * nyquist);
    let (wall, low) = (options.f_wall_hz, options.f_low_hz);
    if !(0.0 <= wall && wall < low && low < high && high < nyquist) {
        let found = format!("{wall}, {low}, {high}, {nyquist}");
        let rule = "wall, lowest and highest frequency and Nyquist's must ascend from 0 Hz";
        return Err(Error::parameter("edges of the band (Hz)", found, rule));
    }
    let smoothed = smooth(spectrum, options.smoothing_hz)?;
    let spacing = spectrum.spacing_hz();
    let quarter = std::f64::consts::FRAC_PI_2;
    let densities = smoothed.densities().iter().enumerate().map(|(bin, density)| {
        let frequency = bin as f64 * spacing;
        let rising = ((frequency - wall) / (low - wall)).clamp(0.0, 1.0);
        let falling = ((nyquist - frequency) / (nyquist - high)).clamp(0.0, 1.0);
        let weight = ((rising * quarter).sin() * (falling * quarter).sin()).powi(4);
        if weight > 0.0 { density / weight } else { f64::INFINITY }
    });
    PowerSpectrum::new(spacing, densities.collect())
}

/// The median (the upper middle one of an even number) of each value's neighbours up to `half` away.
fn running_median(values: &[f64], half: usize) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::with_capacity(2 * half + 2);
    let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| *other < value);
    for value in &values[..half.min(values.len())] {
        let place = place(&sorted, *value);
        sorted.insert(place, *value);
    }
    let one = |centre: usize| {
        if let Some(entering) = values.get(centre + half) {
            let place = place(&sorted, *entering);
            sorted.insert(place, *entering);
        }
        if let Some(leaving) = centre.checked_sub(half + 1) {
            let place = place(&sorted, values[leaving]);
            sorted.remove(place);
        }
        sorted[sorted.len() / 2]
    };
    (0..values.len()).map(one).collect()
}

/// The mean of each value's neighbours up to `half` away; infinite where one of them is.
fn running_mean(values: &[f64], half: usize) -> Vec<f64> {
    let one = |centre: usize| {
        let end = (centre + half + 1).min(values.len());
        let window = &values[centre.saturating_sub(half)..end];
        window.iter().sum::<f64>() / window.len() as f64
    };
    (0..values.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_median_is_the_median_of_each_window() {
        let values: Vec<f64> = (0..97).map(|n| f64::from(n * 37 % 101) + 1.0).collect();
        for half in [0, 1, 3, 10, 200] {
            let expected: Vec<f64> = (0..values.len())
                .map(|centre| {
                    let end = (centre + half + 1).min(values.len());
                    let mut window = values[centre.saturating_sub(half)..end].to_vec();
                    window.sort_by(f64::total_cmp);
                    window[window.len() / 2]
                })
                .collect();
            assert_eq!(running_median(&values, half), expected, "{half}");
        }
    }

    #[test]
    fn lines_vanish_and_walls_stand() {
        let mut densities = vec![2.0; 513];
        densities[100] = 1e6;
        densities[101] = 1e5;
        let spectrum = PowerSpectrum::new(0.25, densities).expect("a spectrum");
        let smoothed = smooth(&spectrum, 4.0).expect("smooth");
        assert!(smoothed.densities().iter().all(|density| *density == 2.0));
        let options = ConditionOptions {
            smoothing_hz: 4.0,
            f_wall_hz: 10.0,
            f_low_hz: 15.0,
            f_high_hz: None,
        };
        let walled = condition(&spectrum, &options).expect("walls");
        assert_eq!(walled.at(9.0), f64::INFINITY);
        assert!((walled.at(12.5) - 8.0).abs() < 1e-12, "sin^4 of 45 degrees");
        assert_eq!((walled.at(15.0), walled.at(100.0)), (2.0, 2.0));
        assert_eq!(walled.at(128.0), f64::INFINITY);
        assert!(condition(&spectrum, &ConditionOptions { f_wall_hz: 16.0, ..options }).is_err());
        assert!(smooth(&spectrum, f64::NAN).is_err());
    }
}
