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
    Telescope {
        name: "Apertif ALERT",
        centre_mhz: 1400.0,
        bandwidth_mhz: 300.0,
        tsamp_us: 40.92,
        channels: 1536,
        dm_min: 0.0,
        dm_max: 10000.0,
        published_v100: 28.0,
        published_a100: 41.0,
    },
    Telescope {
        name: "Arecibo PALFA",
        centre_mhz: 1375.0,
        bandwidth_mhz: 322.0,
        tsamp_us: 65.5,
        channels: 1024,
        dm_min: 0.0,
        dm_max: 9866.0,
        published_v100: 75.0,
        published_a100: 91.0,
    },
    Telescope {
        name: "ASKAP",
        centre_mhz: 1400.0,
        bandwidth_mhz: 336.0,
        tsamp_us: 1265.0,
        channels: 336,
        dm_min: 0.0,
        dm_max: 3763.0,
        published_v100: 4613.0,
        published_a100: 5835.0,
    },
    Telescope {
        name: "CHIME FRB",
        centre_mhz: 600.0,
        bandwidth_mhz: 400.0,
        tsamp_us: 1000.0,
        channels: 16384,
        dm_min: 0.0,
        dm_max: 2000.0,
        published_v100: 20.0,
        published_a100: 25.0,
    },
    Telescope {
        name: "Green Bank 820",
        centre_mhz: 820.0,
        bandwidth_mhz: 200.0,
        tsamp_us: 20.48,
        channels: 512,
        dm_min: 0.0,
        dm_max: 2000.0,
        published_v100: 69.0,
        published_a100: 110.0,
    },
    Telescope {
        name: "Green Bank 2000",
        centre_mhz: 2000.0,
        bandwidth_mhz: 800.0,
        tsamp_us: 10.24,
        channels: 512,
        dm_min: 0.0,
        dm_max: 1000.0,
        published_v100: 59.0,
        published_a100: 82.0,
    },
    Telescope {
        name: "GMRT",
        centre_mhz: 400.0,
        bandwidth_mhz: 200.0,
        tsamp_us: 1310.72,
        channels: 4096,
        dm_min: 0.0,
        dm_max: 2000.0,
        published_v100: 187.0,
        published_a100: 239.0,
    },
    Telescope {
        name: "Lovell",
        centre_mhz: 1532.0,
        bandwidth_mhz: 400.0,
        tsamp_us: 256.0,
        channels: 800,
        dm_min: 0.0,
        dm_max: 10000.0,
        published_v100: 622.0,
        published_a100: 837.0,
    },
    Telescope {
        name: "Parkes SUPERB F",
        centre_mhz: 1382.0,
        bandwidth_mhz: 400.0,
        tsamp_us: 64.0,
        channels: 1024,
        dm_min: 0.0,
        dm_max: 2000.0,
        published_v100: 98.0,
        published_a100: 133.0,
    },
    Telescope {
        name: "Parkes SUPERB T",
        centre_mhz: 1382.0,
        bandwidth_mhz: 400.0,
        tsamp_us: 64.0,
        channels: 1024,
        dm_min: 0.0,
        dm_max: 10000.0,
        published_v100: 89.0,
        published_a100: 127.0,
    },
    Telescope {
        name: "UTMOST",
        centre_mhz: 835.5,
        bandwidth_mhz: 31.25,
        tsamp_us: 655.36,
        channels: 320,
        dm_min: 0.0,
        dm_max: 10000.0,
        published_v100: 7940.0,
        published_a100: 8930.0,
    },
    Telescope {
        name: "VLA",
        centre_mhz: 3000.0,
        bandwidth_mhz: 1024.0,
        tsamp_us: 5000.0,
        channels: 256,
        dm_min: 0.0,
        dm_max: 10000.0,
        published_v100: 254200.0,
        published_a100: 327665.0,
    },
];

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
            Error::parameter("--telescope", name, format!("it must be one of {}", names.join(", ")))
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
