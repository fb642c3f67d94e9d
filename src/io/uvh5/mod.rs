//! UVH5 files: visibilities in HDF5, as pyuvdata reads them.
//!
//! Invariant: a file has its final name only when it is complete; memory does not grow with its length.
//!
//! # Source
//! The UVH5 memo, version 1.2, as pyuvdata 3.2.8 interprets it; docs/design/uvh5.md records the conventions found by
//! experiment.

mod reader;
mod summary;
mod writer;

use crate::error::{Error, Result};
use crate::units::{MAX_CHANNELS, MAX_FREQUENCY_HZ, MIN_FREQUENCY_HZ};

pub use reader::{Reader, Row, Station};
pub use summary::{Source, Summary, is_uvh5, summary};
pub use writer::{Integration, Pointing, Writer, check_name};

/// The Julian date of modified Julian day 0.
const MJD_ZERO: f64 = 2_400_000.5;

/// Largest antenna number that pyuvdata can convert to a baseline number.
const MAX_ANTENNA_NUMBER: i64 = 2_147_483_647;

/// Observation metadata known before the first integration.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Name of the telescope.
    pub telescope: String,
    /// Name of the instrument (the receiver and correlator).
    pub instrument: String,
    /// Reference point of the array on the WGS84 ellipsoid.
    pub location: Location,
    /// The antennas.
    pub antennas: Vec<Antenna>,
    /// Mount of the antennas.
    pub mount: Mount,
    /// Centre of each channel on the sky, in Hz.
    pub frequencies_hz: Vec<f64>,
    /// Width of a channel in Hz, positive.
    pub channel_width_hz: f64,
    /// Feeds, which define the polarization pairs.
    pub feeds: Feeds,
    /// Angle of the receptor X from north through east, in degrees: 90 for an X that points east. Y is 90 degrees
    /// less.
    pub feed_angle_deg: f64,
    /// Phase centre of the visibilities.
    pub phase_centre: PhaseCentre,
    /// Baselines in the order of `Integration::sums`: pairs (i, j) of indices into
    /// `antennas`, i >= j.
    pub baselines: Vec<(usize, usize)>,
    /// Length of one integration in seconds.
    pub integration_s: f64,
    /// Maximum number of integrations.
    pub integrations: usize,
    /// UT1 - UTC in seconds.
    pub dut1_s: f64,
    /// Day to which sidereal time refers, when known.
    pub reference_day: Option<ReferenceDay>,
    /// Processing history: one line or more.
    pub history: String,
    /// Additional keywords, by name.
    pub keywords: Vec<(String, Keyword)>,
}

/// Position on the WGS84 ellipsoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// East longitude in degrees.
    pub longitude_deg: f64,
    /// Geodetic latitude in degrees.
    pub latitude_deg: f64,
    /// Height above the ellipsoid in metres.
    pub height_m: f64,
}

/// One antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct Antenna {
    /// Its name.
    pub name: String,
    /// Unique antenna number.
    pub number: i64,
    /// Vector from the array's reference point to the antenna along the ITRF axes, in metres.
    pub itrf_offset_m: [f64; 3],
    /// Diameter in metres, when known; written only if all antennas have one.
    pub diameter_m: Option<f64>,
}

/// Antenna mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Azimuth and elevation.
    AltAz,
    /// Polar axis.
    Equatorial,
    /// Two horizontal axes.
    XY,
    /// Fixed to the ground, as dipoles are.
    Fixed,
    /// Electronically steered tiles.
    Phased,
    /// Another, or not known.
    Other,
}

impl Mount {
    /// Returns pyuvdata's name of the mount.
    pub fn name(self) -> &'static str {
        match self {
            Self::AltAz => "alt-az",
            Self::Equatorial => "equatorial",
            Self::XY => "x-y",
            Self::Fixed => "fixed",
            Self::Phased => "phased",
            Self::Other => "other",
        }
    }
}

/// One receptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// First linear receptor.
    X,
    /// Second linear receptor.
    Y,
    /// Right circular.
    R,
    /// Left circular.
    L,
}

impl Feed {
    /// Returns pyuvdata's letter of the feed.
    pub fn letter(self) -> &'static str {
        match self {
            Self::X => "x",
            Self::Y => "y",
            Self::R => "r",
            Self::L => "l",
        }
    }

    /// Returns the receptor's angle in degrees from north through east.
    fn angle_deg(self, header: &Header) -> f64 {
        match self {
            Self::Y => header.feed_angle_deg - 90.0,
            // Both circular feeds have the angle of the linear receptors they derive from.
            Self::X | Self::R | Self::L => header.feed_angle_deg,
        }
    }
}

/// Feeds of every antenna.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeds {
    /// X and Y: pairs XX, XY, YX, YY.
    Linear,
    /// R and L: pairs RR, RL, LR, LL.
    Circular,
    /// A single feed: one pair.
    One(Feed),
}

impl Feeds {
    /// Returns the feeds of each antenna.
    pub fn feeds(self) -> &'static [Feed] {
        match self {
            Self::Linear => &[Feed::X, Feed::Y],
            Self::Circular => &[Feed::R, Feed::L],
            Self::One(Feed::X) => &[Feed::X],
            Self::One(Feed::Y) => &[Feed::Y],
            Self::One(Feed::R) => &[Feed::R],
            Self::One(Feed::L) => &[Feed::L],
        }
    }

    /// Returns the number of polarization pairs: 1 or 4.
    pub fn pairs(self) -> usize {
        self.feeds().len().pow(2)
    }

    /// Returns UVH5's numbers of the pairs, in the file's order: XX, YY, XY, YX (RR, LL, RL, LR).
    pub fn polarization_numbers(self) -> &'static [i32] {
        match self {
            Self::Linear => &[-5, -6, -7, -8],
            Self::Circular => &[-1, -2, -3, -4],
            Self::One(Feed::X) => &[-5],
            Self::One(Feed::Y) => &[-6],
            Self::One(Feed::R) => &[-1],
            Self::One(Feed::L) => &[-2],
        }
    }
}

/// Phase centre of the visibilities.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseCentre {
    /// A tracked source, ICRS (J2000).
    Sidereal {
        /// Its name.
        name: String,
        /// Right ascension in degrees.
        ra_deg: f64,
        /// Declination in degrees.
        dec_deg: f64,
    },
    /// No tracking: no delays are removed, and u, v, w are east, north, up.
    Drift {
        /// Name of the pointing.
        name: String,
    },
}

/// Day to which sidereal time refers.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceDay {
    /// The date, year-month-day.
    pub date: String,
    /// Greenwich apparent sidereal time at the start of that day, in degrees.
    pub gst0_deg: f64,
}

/// Value of an additional keyword.
#[derive(Clone, Debug, PartialEq)]
pub enum Keyword {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
}

impl Header {
    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.frequencies_hz.len()
    }

    /// Returns the number of polarization pairs: 1 or 4.
    pub fn pairs(&self) -> usize {
        self.feeds.pairs()
    }

    /// Counts the antennas that appear in a baseline.
    pub fn antennas_used(&self) -> usize {
        let mut used = vec![false; self.antennas.len()];
        for &(i, j) in &self.baselines {
            used[i] = true;
            used[j] = true;
        }
        used.iter().filter(|used| **used).count()
    }

    /// Checks all constraints on the header.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the field and the violated constraint.
    pub fn check(&self) -> Result<()> {
        self.check_antennas()?;
        self.check_baselines()?;
        self.check_channels()?;
        self.check_numbers()?;
        self.check_texts()
    }

    fn check_antennas(&self) -> Result<()> {
        if self.antennas.is_empty() {
            return Err(Error::parameter("antennas", 0, "there must be at least one"));
        }
        let mut numbers: Vec<i64> = self.antennas.iter().map(|antenna| antenna.number).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            let rule = "each antenna must have a number of its own";
            return Err(Error::parameter("antenna number", twice[0], rule));
        }
        let allowed = 0..=MAX_ANTENNA_NUMBER;
        if let Some(bad) = numbers.iter().find(|number| !allowed.contains(number)) {
            let rule = format!("it must lie within 0 to {MAX_ANTENNA_NUMBER}");
            return Err(Error::parameter("antenna number", bad, rule));
        }
        let mut names: Vec<&str> = self.antennas.iter().map(|antenna| &*antenna.name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let rule = "each antenna must have a name of its own";
            return Err(Error::parameter("antenna name", twice[0], rule));
        }
        for antenna in &self.antennas {
            if let Some(bad) = antenna.itrf_offset_m.iter().find(|metres| !metres.is_finite()) {
                let rule = format!("that of antenna {} must be finite", antenna.name);
                return Err(Error::parameter("antenna position (m)", bad, rule));
            }
            if let Some(bad) = antenna.diameter_m.filter(|metres| !positive(*metres)) {
                let rule = format!("that of antenna {} must be positive", antenna.name);
                return Err(Error::parameter("antenna diameter (m)", bad, rule));
            }
        }
        Ok(())
    }

    fn check_baselines(&self) -> Result<()> {
        if self.baselines.is_empty() {
            return Err(Error::parameter("baselines", 0, "there must be at least one"));
        }
        let antennas = self.antennas.len();
        let mut seen = std::collections::HashSet::with_capacity(self.baselines.len());
        for &(i, j) in &self.baselines {
            let text = format!("({i}, {j})");
            if i >= antennas || j > i {
                let rule = format!("it must be a pair i >= j of antennas 0 to {}", antennas - 1);
                return Err(Error::parameter("baseline", text, rule));
            }
            if !seen.insert((i, j)) {
                return Err(Error::parameter("baseline", text, "each must be there once"));
            }
        }
        Ok(())
    }

    fn check_channels(&self) -> Result<()> {
        let channels = self.channels();
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("there must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("channels", channels, rule));
        }
        let allowed = MIN_FREQUENCY_HZ..=MAX_FREQUENCY_HZ;
        if let Some(bad) = self.frequencies_hz.iter().find(|hertz| !allowed.contains(hertz)) {
            let rule = "every channel centre must be a positive frequency, 1 Hz to 1e18 Hz";
            return Err(Error::parameter("frequency (Hz)", bad, rule));
        }
        check_positive("channel width (Hz)", self.channel_width_hz)
    }

    fn check_numbers(&self) -> Result<()> {
        check_positive("integration (s)", self.integration_s)?;
        if self.integrations == 0 {
            return Err(Error::parameter("integrations", 0, "there must be at least one"));
        }
        let place = self.location;
        check_range("longitude (degrees)", place.longitude_deg, 360.0)?;
        check_range("latitude (degrees)", place.latitude_deg, 90.0)?;
        check_range("height (m)", place.height_m, 1e7)?;
        check_range("UT1 - UTC (s)", self.dut1_s, 1.0)?;
        check_range("feed angle (degrees)", self.feed_angle_deg, 360.0)?;
        if let PhaseCentre::Sidereal { ra_deg, dec_deg, .. } = self.phase_centre {
            check_range("right ascension (degrees)", ra_deg, 360.0)?;
            check_range("declination (degrees)", dec_deg, 90.0)?;
        }
        self.reference_day
            .as_ref()
            .map_or(Ok(()), |day| check_range("gst0 (degrees)", day.gst0_deg, 360.0))
    }

    fn check_texts(&self) -> Result<()> {
        let (PhaseCentre::Sidereal { name: source, .. } | PhaseCentre::Drift { name: source }) =
            &self.phase_centre;
        let names = self.antennas.iter().map(|antenna| ("antenna name", &antenna.name));
        let texts = [
            ("telescope", &self.telescope),
            ("instrument", &self.instrument),
            ("source name", source),
        ];
        for (what, text) in texts.into_iter().chain(names) {
            if text.is_empty() || !text.is_ascii() || text.contains('\0') {
                let rule = "it must be ASCII text and not empty";
                return Err(Error::parameter(what, format!("{text:?}"), rule));
            }
        }
        for (name, _) in &self.keywords {
            if name.is_empty() || name.contains(['/', '\0']) || name == "." {
                let rule = "it must be a name without '/'";
                return Err(Error::parameter("keyword", format!("{name:?}"), rule));
            }
        }
        Ok(())
    }
}

fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn check_positive(name: &'static str, value: f64) -> Result<()> {
    if positive(value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, "it must be positive and finite"))
}

fn check_range(name: &'static str, value: f64, most: f64) -> Result<()> {
    if value.abs() <= most {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must lie within -{most} to {most}")))
}
