//! Plots of a correlation: antenna spectra, fringes of some baselines, array layout.

mod data;
mod fringes;
mod layout;
mod powers;
mod quicklook;
#[cfg(test)]
mod tests;
mod waterfalls;

use std::path::Path;

use sidereal::Result;

use super::png::Png;
use crate::provenance::Made;
pub(crate) use data::{Antenna, Correlation, Fringes, product_colour, scale};
pub(crate) use quicklook::{Quicklook, Shape};

/// File names of the plots.
pub(crate) const POWERS: &str = "autocorrelations.png";
pub(crate) const FRINGES: &str = "baselines.png";
pub(crate) const WATERFALLS: &str = "waterfalls.png";
pub(crate) const LAYOUT: &str = "array.png";

/// Draws all plots into a folder; returns their names.
///
/// # Errors
/// [`sidereal::Error::Io`] when a file cannot be written.
pub(crate) fn draw(folder: &Path, about: &Correlation, made: &Made) -> Result<Vec<&'static str>> {
    let png = |name: &str| Png::new(folder.join(name), made);
    layout::draw(&png(LAYOUT), about)?;
    let mut names = vec![LAYOUT];
    if about.powers.iter().any(|power| power.is_finite()) {
        powers::draw(&png(POWERS), about)?;
        names.push(POWERS);
    }
    if !about.baselines.is_empty() {
        fringes::draw(&png(FRINGES), about)?;
        waterfalls::draw(&png(WATERFALLS), about)?;
        names.extend([FRINGES, WATERFALLS]);
    }
    Ok(names)
}
