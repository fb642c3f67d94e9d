//! Named surveys: their bands, sampling and DM ranges.

use crate::error::{Error, Result};
use crate::units::Band;

/// Set-up of a survey, and the published real-time factors of its dedispersion on two GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Telescope {
    /// Name as printed.
    pub name: &'static str,
    /// Centre of the band, MHz.
    pub centre_mhz: f64,
    /// Width of the band, MHz.
    pub bandwidth_mhz: f64,
    /// Sampling time, microseconds.
    pub tsamp_us: f64,
    /// Number of channels.
    pub channels: usize,
    /// Lowest DM searched, pc cm^-3.
    pub dm_min: f64,
    /// Highest DM searched, pc cm^-3.
    pub dm_max: f64,
    /// Published multiple of real time for an NVIDIA V100.
    pub published_v100: f64,
    /// Published multiple of real time for an NVIDIA A100.
    pub published_a100: f64,
}

/// Surveys of the benchmark.
///
/// # Source
/// Novotny et al. 2023, ApJS 269, 1, table 4.
pub const TELESCOPES: [Telescope; 12] = [
    survey("Apertif ALERT", 1400.0, 300.0, 40.92, 1536, 10000.0, [28.0, 41.0]),
    survey("Arecibo PALFA", 1375.0, 322.0, 65.5, 1024, 9866.0, [75.0, 91.0]),
    survey("ASKAP", 1400.0, 336.0, 1265.0, 336, 3763.0, [4613.0, 5835.0]),
    survey("CHIME FRB", 600.0, 400.0, 1000.0, 16384, 2000.0, [20.0, 25.0]),
    survey("Green Bank 820", 820.0, 200.0, 20.48, 512, 2000.0, [69.0, 110.0]),
    survey("Green Bank 2000", 2000.0, 800.0, 10.24, 512, 1000.0, [59.0, 82.0]),
    survey("GMRT", 400.0, 200.0, 1310.72, 4096, 2000.0, [187.0, 239.0]),
    survey("Lovell", 1532.0, 400.0, 256.0, 800, 10000.0, [622.0, 837.0]),
    survey("Parkes SUPERB F", 1382.0, 400.0, 64.0, 1024, 2000.0, [98.0, 133.0]),
    survey("Parkes SUPERB T", 1382.0, 400.0, 64.0, 1024, 10000.0, [89.0, 127.0]),
    survey("UTMOST", 835.5, 31.25, 655.36, 320, 10000.0, [7940.0, 8930.0]),
    survey("VLA", 3000.0, 1024.0, 5000.0, 256, 10000.0, [254200.0, 327665.0]),
];

/// Returns a survey from DM 0; `published` holds the factors for a V100 and an A100.
const fn survey(
    name: &'static str,
    centre_mhz: f64,
    bandwidth_mhz: f64,
    tsamp_us: f64,
    channels: usize,
    dm_max: f64,
    published: [f64; 2],
) -> Telescope {
    let [published_v100, published_a100] = published;
    Telescope {
        name,
        centre_mhz,
        bandwidth_mhz,
        tsamp_us,
        channels,
        dm_min: 0.0,
        dm_max,
        published_v100,
        published_a100,
    }
}

impl Telescope {
    /// Returns the survey with a name. Case, spaces, dashes, underscores and `+` are ignored, and a unique prefix of
    /// a name is sufficient.
    ///
    /// # Errors
    /// [`Error::Parameter`] listing the names.
    pub fn by_name(name: &str) -> Result<&'static Self> {
        let wanted = plain(name);
        let exact = TELESCOPES.iter().find(|telescope| plain(telescope.name) == wanted);
        let mut starts = TELESCOPES.iter().filter(|one| plain(one.name).starts_with(&wanted));
        let only = match (starts.next(), starts.next()) {
            (Some(one), None) if !wanted.is_empty() => Some(one),
            _ => None,
        };
        exact.or(only).ok_or_else(|| {
            let names: Vec<String> = TELESCOPES.iter().map(Self::slug).collect();
            Error::parameter("telescope", name, format!("it must be one of {}", names.join(", ")))
        })
    }

    /// Returns the name in lower case with dashes, as the command line accepts it.
    pub fn slug(&self) -> String {
        self.name.to_lowercase().replace(' ', "-")
    }

    /// Returns the survey's channels, highest frequency first.
    ///
    /// # Errors
    /// None for the surveys of [`TELESCOPES`]; as [`Band::uniform`] for others.
    pub fn band(&self) -> Result<Band> {
        let width = self.bandwidth_mhz / self.channels as f64;
        let first = self.centre_mhz + 0.5 * (self.bandwidth_mhz - width);
        Band::uniform(first, -width, self.channels)
    }

    /// Returns the sampling time in seconds.
    pub fn tsamp_s(&self) -> f64 {
        self.tsamp_us / 1e6
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_written() {
        for telescope in &TELESCOPES {
            for name in [telescope.name.to_owned(), telescope.slug(), plain(telescope.name)] {
                assert_eq!(Telescope::by_name(&name).unwrap(), telescope);
            }
        }
        assert_eq!(Telescope::by_name("chime").unwrap().channels, 16384);
        for bad in ["", "parkes", "Effelsberg"] {
            assert!(Telescope::by_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bands_have_the_centre_and_width_of_the_table() {
        for telescope in &TELESCOPES {
            let band = telescope.band().unwrap();
            assert!((band.centre_hz() / 1e6 - telescope.centre_mhz).abs() < 1e-6);
            assert!((band.bandwidth_hz() / 1e6 - telescope.bandwidth_mhz).abs() < 1e-6);
            assert!(band.foff_mhz() < 0.0);
        }
    }
}
