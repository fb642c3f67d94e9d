//! Writer of visibilities, one integration at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use num_complex::Complex;

use super::MJD_ZERO;
use super::contents::Counts;
use super::header::Header;
use super::rows::{Row, Rows};
use super::skeleton::Skeleton;
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::units::{Epoch, SECONDS_PER_DAY};
use crate::view::check_length;

/// Bytes of visibilities reordered per batch.
const BATCH_BYTES: usize = 1 << 22;

/// Interval between updates of the counts at the file's start.
const UPDATED_EVERY: Duration = Duration::from_secs(1);

/// Phase centre at the middle of an integration, in apparent coordinates of that time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointing {
    /// Apparent right ascension of the phase centre in degrees; for a drift scan, the sidereal time.
    pub ra_deg: f64,
    /// Apparent declination in degrees; for a drift scan, the latitude.
    pub dec_deg: f64,
    /// Position angle of the catalogue frame's north from apparent north, in degrees; 0 for a drift scan.
    pub frame_angle_deg: f64,
}

/// One integration of all baselines.
///
/// | buffer   | axes                    | type        | unit    |
/// |----------|-------------------------|-------------|---------|
/// | `uvw_m`  | antenna, (u, v, w)      | f64         | m       |
/// | `sums`   | baseline, channel, pair | complex f64 | counts  |
/// | `counts` | baseline, channel       | u64         | samples |
///
/// The sums are `V_ij = sum x_i conj(x_j)` over valid samples, pairs in the order XX, XY, YX, YY (RR, RL,
/// LR, LL), or the one pair of a single feed.
#[derive(Clone, Copy, Debug)]
pub struct Integration<'a> {
    /// Middle of the integration.
    pub centre: Epoch,
    /// Length of that UTC day in seconds: 86400, or 86401 if it ends with a leap second.
    pub day_s: f64,
    /// Local apparent sidereal time at the middle, in degrees.
    pub lst_deg: f64,
    /// Phase centre at the middle.
    pub pointing: Pointing,
    /// u, v, w of each antenna at the middle, from any common origin. v points to the catalogue frame's north (not to
    /// the north of date). East, north, up for a drift scan.
    pub uvw_m: &'a [[f64; 3]],
    /// Sums over valid samples.
    pub sums: &'a [Complex<f64>],
    /// Number of valid samples.
    pub counts: &'a [u64],
    /// Number of samples in a fully valid integration.
    pub full_count: u64,
}

impl Integration<'_> {
    /// Computes the UTC Julian date of the middle; a day with a leap second still has length 1.
    fn julian_date(&self) -> f64 {
        MJD_ZERO + self.centre.day as f64 + self.centre.seconds / self.day_s
    }
}

/// Rejects a name that readers take for a Measurement Set: one that ends in `.ms`.
///
/// # Errors
/// [`Error::Parameter`], with instructions for making a Measurement Set.
pub fn check_name(path: &Path) -> Result<()> {
    let extension = path.extension().unwrap_or_default();
    if !extension.eq_ignore_ascii_case("ms") {
        return Ok(());
    }
    let to = path.to_string_lossy();
    let from = path.with_extension("uvh5");
    // pyuvdata must phase a drift scan for a Measurement Set; phased data are unchanged.
    let call = format!("write_ms(\"{to}\", force_phase=True)");
    let lines = crate::io::foreign::converted(&from.to_string_lossy(), &call);
    let rule = format!(
        "a Measurement Set is a folder of tables, and UVH5 is written; write {}, then convert it with pyuvdata:{lines}",
        from.display()
    );
    Err(Error::parameter("--output", to, rule))
}

/// Unfinished UVH5 file.
///
/// `visdata` is the sum divided by the valid count, `nsamples` the valid count divided by the full count; `flags` is
/// set where the valid count is 0. In a baseline, `ant_1` is the antenna with the lower number; `visdata` is
/// `<conj(x_1) x_2>`, `uvw_array` the second antenna's less the first's, and polarization XY is X of `ant_1` with Y
/// of `ant_2`.
///
/// Each integration's rows are written at their final offset, so memory does not grow with the file. The file's start
/// holds the counts and exists from the beginning: a file can be finished on a full disk, and the partial file of a
/// killed run is valid up to its last second. Dropping the writer before [`finish`](Self::finish) removes the file.
#[derive(Debug)]
pub struct Writer {
    header: Header,
    file: AtomicFile,
    skeleton: Skeleton,
    rows: Vec<Row>,
    written: usize,
    /// Julian date of the last integration.
    last: Option<f64>,
    /// Time of the last update of the file's start.
    updated: Instant,
}

impl Writer {
    /// Creates a file; `finish` replaces an existing one.
    ///
    /// # Errors
    /// As [`Header::check`], [`check_name`] and [`AtomicFile::create`]; [`Error::Parameter`] if the visibilities
    /// exceed the largest file.
    pub fn create(path: &Path, header: Header) -> Result<Self> {
        check_name(path)?;
        header.check()?;
        let skeleton = Skeleton::new(path, &header)?;
        let rows = header.baselines.iter().map(|pair| Row::new(&header.antennas, *pair)).collect();
        let file = AtomicFile::create(path)?;
        let updated = Instant::now();
        let mut writer = Self { header, file, skeleton, rows, written: 0, last: None, updated };
        writer.update_counts()?;
        Ok(writer)
    }

    /// Writes the file's start with the count of the integrations written so far.
    fn update_counts(&mut self) -> Result<()> {
        let counts = Counts::new(&self.header, self.written);
        let start = self.skeleton.finish(self.file.path(), &self.header, counts)?;
        self.updated = Instant::now();
        self.file.put_at(0, &start)
    }

    /// Returns the header given to [`create`](Self::create).
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of integrations written so far.
    pub fn integrations(&self) -> usize {
        self.written
    }

    /// Returns the file's length in bytes with the integrations written so far.
    pub fn bytes(&self) -> u64 {
        self.skeleton.end(Counts::new(&self.header, self.written).rows)
    }

    /// Appends an integration.
    ///
    /// # Errors
    /// [`Error::Shape`] if a buffer's length contradicts the header; [`Error::Parameter`] for more integrations than
    /// the header announced, one that is not later than the last, or numbers that are not finite; [`Error::Io`].
    pub fn write(&mut self, integration: Integration<'_>) -> Result<()> {
        self.check(&integration)?;
        self.write_times(&integration)?;
        self.write_data(&integration)?;
        self.last = Some(integration.julian_date());
        self.written += 1;
        if self.written == 1 || self.updated.elapsed() >= UPDATED_EVERY {
            self.update_counts()?;
        }
        Ok(())
    }

    /// Writes the final counts and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no integration was written; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        if self.written == 0 {
            let rule = "a file of visibilities has at least one";
            return Err(Error::parameter("integrations", 0, rule));
        }
        self.update_counts()?;
        self.file.commit()
    }

    fn check(&self, integration: &Integration<'_>) -> Result<()> {
        let header = &self.header;
        let spectra = header.baselines.len() * header.channels();
        check_length("uvw_m (antenna)", header.antennas.len(), integration.uvw_m.len())?;
        check_length(
            "sums (baseline, channel, pair)",
            spectra * header.pairs(),
            integration.sums.len(),
        )?;
        check_length("counts (baseline, channel)", spectra, integration.counts.len())?;
        if self.written == header.integrations {
            let rule = format!("the header announced {}", header.integrations);
            return Err(Error::parameter("integrations", self.written + 1, rule));
        }
        if integration.full_count == 0 {
            return Err(Error::parameter("full count", 0, "it must be positive"));
        }
        if !(SECONDS_PER_DAY - 1.0..=SECONDS_PER_DAY + 1.0).contains(&integration.day_s) {
            let rule = "a UTC day has 86400 s, one more or one less";
            return Err(Error::parameter("length of the day (s)", integration.day_s, rule));
        }
        if self.last.is_some_and(|last| integration.julian_date() <= last) {
            let rule = "each integration must be later than the one before, by 40 us at least";
            return Err(Error::parameter("middle (MJD)", integration.centre.mjd(), rule));
        }
        let pointing = integration.pointing;
        let angles =
            [integration.lst_deg, pointing.ra_deg, pointing.dec_deg, pointing.frame_angle_deg];
        let lengths = integration.uvw_m.as_flattened();
        match angles.iter().chain(lengths).find(|number| !number.is_finite()) {
            Some(bad) => {
                let rule = "sidereal time, pointing and u, v, w must be finite";
                Err(Error::parameter("integration", bad, rule))
            }
            None => Ok(()),
        }
    }

    /// Writes the data sets without a channel axis.
    fn write_times(&mut self, integration: &Integration<'_>) -> Result<()> {
        let pointing = integration.pointing;
        let same = [
            (Rows::Time, integration.julian_date()),
            (Rows::SiderealTime, integration.lst_deg.to_radians()),
            (Rows::IntegrationTime, self.header.integration_s),
            (Rows::PointingRa, pointing.ra_deg.to_radians()),
            (Rows::PointingDec, pointing.dec_deg.to_radians()),
            (Rows::PointingAngle, pointing.frame_angle_deg.to_radians()),
        ];
        for (which, number) in same {
            self.put(which, 0, &number.to_le_bytes().repeat(self.rows.len()))?;
        }
        self.put(Rows::PhaseCentre, 0, &0_i32.to_le_bytes().repeat(self.rows.len()))?;
        let numbers = |side: fn(&Row) -> i32| -> Vec<u8> {
            self.rows.iter().flat_map(|row| side(row).to_le_bytes()).collect()
        };
        let (first, second) = (numbers(|row| row.number_1), numbers(|row| row.number_2));
        let uvw = self.rows.iter().flat_map(|row| {
            let (from, to) = (integration.uvw_m[row.antenna_1], integration.uvw_m[row.antenna_2]);
            (0..3).flat_map(move |axis| (to[axis] - from[axis]).to_le_bytes())
        });
        let uvw: Vec<u8> = uvw.collect();
        self.put(Rows::Antenna1, 0, &first)?;
        self.put(Rows::Antenna2, 0, &second)?;
        self.put(Rows::Uvw, 0, &uvw)
    }

    fn write_data(&mut self, integration: &Integration<'_>) -> Result<()> {
        let (channels, pairs) = (self.header.channels(), self.header.pairs());
        let elements = channels * pairs;
        let batch = (BATCH_BYTES / (elements * 8)).max(1);
        let (mut visibilities, mut samples, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        for start in (0..self.rows.len()).step_by(batch) {
            let end = (start + batch).min(self.rows.len());
            visibilities.clear();
            samples.clear();
            flags.clear();
            for baseline in start..end {
                let row = &self.rows[baseline];
                let counts = &integration.counts[baseline * channels..][..channels];
                let sums = integration.sums[baseline * elements..][..elements].chunks_exact(pairs);
                for (&count, sums) in counts.iter().zip(sums) {
                    row.visibilities(sums, count, &mut visibilities);
                    let fraction = (count as f64 / integration.full_count as f64) as f32;
                    samples.extend_from_slice(&fraction.to_le_bytes().repeat(pairs));
                    flags.resize(flags.len() + pairs, u8::from(count == 0));
                }
            }
            self.put(Rows::Visibilities, start, &visibilities)?;
            self.put(Rows::Samples, start, &samples)?;
            self.put(Rows::Flags, start, &flags)?;
        }
        Ok(())
    }

    /// Writes consecutive rows of one data set of this integration, starting at baseline `start`.
    fn put(&mut self, which: Rows, start: usize, bytes: &[u8]) -> Result<()> {
        let row = (self.written * self.rows.len() + start) as u64;
        self.file.put_at(self.skeleton.offset(which, row), bytes)
    }
}
