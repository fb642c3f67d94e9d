//! Writer of visibilities, one integration at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use hdf5_pure::{FileBuilder, GroupBuilder};
use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::hdf5::{self, Built, Element, add_single};
use crate::io::uvh5::{Antenna, Header, Keyword, MJD_ZERO, PhaseCentre};
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
    Err(Error::parameter("path", path.display(), rule))
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
        let rows =
            header.baselines.iter().map(|&(i, j)| Row::new(&header.antennas, i, j)).collect();
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
    /// the header gives, one that is not later than the last, or numbers that are not finite; [`Error::Io`].
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
            let rule = format!("the header gives {}", header.integrations);
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
                    (0..pairs).for_each(|_| samples.extend_from_slice(&fraction.to_le_bytes()));
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

/// File layout.
#[derive(Clone, Debug)]
struct Skeleton {
    reserved: u64,
    /// Address of the first row of each data set.
    starts: Vec<u64>,
    /// Bytes per row of each.
    row_bytes: Vec<u64>,
}

impl Skeleton {
    fn new(path: &Path, header: &Header) -> Result<Self> {
        // The header length does not depend on the counts.
        let reserved = hdf5::finish(path, fill(header, Counts::new(header, 1)))?.len() as u64;
        let row_bytes: Vec<u64> = Rows::all().map(|rows| rows.row_bytes(header)).collect();
        let rows = (header.integrations as u64).checked_mul(header.baselines.len() as u64);
        let bytes = row_bytes.iter().map(|bytes| rows.and_then(|rows| rows.checked_mul(*bytes)));
        let starts = hdf5::addresses(reserved, bytes).map_err(|_| {
            let rule = "the visibilities of all of them are more than a file can hold";
            Error::parameter("integrations", header.integrations, rule)
        })?;
        Ok(Self { reserved, starts, row_bytes })
    }

    /// Returns the file offset of a row.
    fn offset(&self, which: Rows, row: u64) -> u64 {
        self.starts[which as usize] + row * self.row_bytes[which as usize]
    }

    /// Returns the length of a file with `rows` rows.
    fn end(&self, rows: u64) -> u64 {
        self.offset(Rows::Flags, rows)
    }

    /// Returns the start of the file, with the counts of the rows written.
    fn finish(&self, path: &Path, header: &Header, counts: Counts) -> Result<Vec<u8>> {
        let place = |rows: Rows| hdf5::Rows {
            paths: vec![rows.path()],
            axes: [counts.rows].into_iter().chain(rows.row_axes(header)).collect(),
            start: self.offset(rows, 0),
            bytes: counts.rows * self.row_bytes[rows as usize],
        };
        let small = hdf5::finish(path, fill(header, counts))?;
        let rows: Vec<_> = Rows::all().map(place).collect();
        hdf5::append_rows(path, small, self.reserved, &rows)
    }
}

fn fill(header: &Header, counts: Counts) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group("Header");
    fill_header(&mut group, header, counts)?;
    builder.add_group(group.finish());
    let mut group = builder.create_group("Data");
    for rows in Rows::all().filter(|rows| rows.is_data()) {
        add_single(&mut group, rows.name(), rows.element(), rows.rank())?;
    }
    builder.add_group(group.finish());
    Ok(builder)
}

/// Rotation of the Earth, in degrees per day of UT1: 1.00273781191135448 turns of the Earth rotation angle.
///
/// # Source
/// IERS Conventions (2010), eq. 5.15.
const EARTH_DEGREES_PER_DAY: f64 = 360.0 * 1.002_737_811_911_354_5;

/// Counts known only at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) integrations: usize,
    pub(super) rows: u64,
}

impl Counts {
    fn new(header: &Header, integrations: usize) -> Self {
        let rows = integrations as u64 * header.baselines.len() as u64;
        Self { integrations, rows }
    }
}

/// Fills the group `Header`.
fn fill_header(group: &mut GroupBuilder, header: &Header, counts: Counts) -> Built {
    for rows in Rows::all().filter(|rows| !rows.is_data()) {
        add_single(group, rows.name(), rows.element(), rows.rank())?;
    }
    fill_counts(group, header, counts);
    fill_telescope(group, header)?;
    fill_antennas(group, header)?;
    let channels = header.channels();
    group.create_dataset("freq_array").with_f64_data(&header.frequencies_hz);
    group.create_dataset("channel_width").with_f64_data(&vec![header.channel_width_hz; channels]);
    group.create_dataset("spw_array").with_i32_data(&[0]);
    group.create_dataset("flex_spw_id_array").with_i64_data(&vec![0; channels]);
    group.create_dataset("polarization_array").with_i32_data(header.feeds.polarization_numbers());
    // Time is the slower row axis: each integration has all its baselines in a row.
    add_bool(group, "blts_are_rectangular", true)?;
    add_bool(group, "time_axis_faster_than_bls", false)?;
    fill_phase_centre(group, &header.phase_centre)?;
    fill_keywords(group, &header.keywords)
}

fn fill_counts(group: &mut GroupBuilder, header: &Header, counts: Counts) {
    let numbers = [
        ("Nants_data", header.antennas_used() as i64),
        ("Nants_telescope", header.antennas.len() as i64),
        ("Nbls", header.baselines.len() as i64),
        ("Nblts", counts.rows as i64),
        ("Nfeeds", header.feeds.feeds().len() as i64),
        ("Nfreqs", header.channels() as i64),
        ("Nphase", 1),
        ("Npols", header.pairs() as i64),
        ("Nspws", 1),
        ("Ntimes", counts.integrations as i64),
    ];
    for (name, number) in numbers {
        group.create_dataset(name).with_i64_data(&[number]).with_shape(&[]);
    }
}

fn fill_telescope(group: &mut GroupBuilder, header: &Header) -> Built {
    let place = header.location;
    let numbers = [
        ("latitude", place.latitude_deg),
        ("longitude", place.longitude_deg),
        ("altitude", place.height_m),
        ("dut1", header.dut1_s),
        ("earth_omega", EARTH_DEGREES_PER_DAY),
    ];
    for (name, number) in numbers {
        add_number(group, name, number);
    }
    let texts = [
        ("version", "1.2"),
        ("telescope_frame", "itrs"),
        ("telescope_name", &header.telescope),
        ("instrument", &header.instrument),
        ("vis_units", "uncalib"),
        ("timesys", "UTC"),
        ("history", &header.history),
    ];
    for (name, text) in texts {
        add_text(group, name, text)?;
    }
    if let Some(day) = &header.reference_day {
        add_number(group, "gst0", day.gst0_deg);
        add_text(group, "rdate", &day.date)?;
    }
    Ok(())
}

fn fill_antennas(group: &mut GroupBuilder, header: &Header) -> Built {
    let antennas = &header.antennas;
    let count = antennas.len();
    let names: Vec<&str> = antennas.iter().map(|antenna| &*antenna.name).collect();
    group.create_dataset("antenna_names").with_ascii_strings(&names)?;
    let numbers: Vec<i32> = antennas.iter().map(|antenna| antenna.number as i32).collect();
    group.create_dataset("antenna_numbers").with_i32_data(&numbers);
    let offsets: Vec<f64> = antennas.iter().flat_map(|antenna| antenna.itrf_offset_m).collect();
    let offsets_shape = [count as u64, 3];
    group.create_dataset("antenna_positions").with_f64_data(&offsets).with_shape(&offsets_shape);
    let diameters: Option<Vec<f64>> = antennas.iter().map(|antenna| antenna.diameter_m).collect();
    if let Some(diameters) = diameters {
        group.create_dataset("antenna_diameters").with_f64_data(&diameters);
    }
    let mounts = vec![header.mount.name(); count];
    group.create_dataset("mount_type").with_ascii_strings(&mounts)?;
    let feeds = header.feeds.feeds();
    let shape = [count as u64, feeds.len() as u64];
    let letters: Vec<&str> = feeds.iter().map(|feed| feed.letter()).collect();
    let letters = letters.repeat(count);
    group.create_dataset("feed_array").with_ascii_strings(&letters)?.with_shape(&shape);
    let angles: Vec<f64> = feeds.iter().map(|feed| feed.angle_deg(header).to_radians()).collect();
    let angles = angles.repeat(count);
    group.create_dataset("feed_angle").with_f64_data(&angles).with_shape(&shape);
    Ok(())
}

fn fill_phase_centre(group: &mut GroupBuilder, centre: &PhaseCentre) -> Built {
    let mut catalogue = group.create_group("phase_center_catalog");
    let mut entry = catalogue.create_group("0");
    match centre {
        PhaseCentre::Sidereal { name, ra_deg, dec_deg } => {
            add_text(&mut entry, "cat_name", name)?;
            add_text(&mut entry, "cat_type", "sidereal")?;
            add_text(&mut entry, "cat_frame", "icrs")?;
            add_number(&mut entry, "cat_epoch", 2000.0);
            add_number(&mut entry, "cat_lon", ra_deg.to_radians());
            add_number(&mut entry, "cat_lat", dec_deg.to_radians());
        }
        PhaseCentre::Drift { name } => {
            add_text(&mut entry, "cat_name", name)?;
            add_text(&mut entry, "cat_type", "unprojected")?;
            // The zenith.
            add_text(&mut entry, "cat_frame", "altaz")?;
            add_number(&mut entry, "cat_lon", 0.0);
            add_number(&mut entry, "cat_lat", std::f64::consts::FRAC_PI_2);
        }
    }
    catalogue.add_group(entry.finish());
    group.add_group(catalogue.finish());
    Ok(())
}

fn fill_keywords(group: &mut GroupBuilder, keywords: &[(String, Keyword)]) -> Built {
    if keywords.is_empty() {
        return Ok(());
    }
    let mut inner = group.create_group("extra_keywords");
    for (name, value) in keywords {
        match value {
            Keyword::Text(text) => add_text(&mut inner, name, text)?,
            Keyword::Integer(number) => {
                inner.create_dataset(name).with_i64_data(&[*number]).with_shape(&[]);
            }
            Keyword::Float(number) => add_number(&mut inner, name, *number),
        }
    }
    group.add_group(inner.finish());
    Ok(())
}

fn add_number(group: &mut GroupBuilder, name: &str, number: f64) {
    group.create_dataset(name).with_f64_data(&[number]).with_shape(&[]);
}

fn add_text(group: &mut GroupBuilder, name: &str, text: &str) -> Built {
    // HDF5 does not allow strings of width 0.
    let width = text.len().max(1) as u32;
    let dataset = group.create_dataset(name);
    let dataset = match text.is_ascii() {
        true => dataset.with_ascii_strings_sized(&[text], width)?,
        false => dataset.with_strings_sized(&[text], width)?,
    };
    dataset.with_shape(&[]);
    Ok(())
}

fn add_bool(group: &mut GroupBuilder, name: &str, value: bool) -> Built {
    let kind = Element::Bool.datatype()?;
    group.create_dataset(name).with_raw_data(kind, vec![u8::from(value)], 1).with_shape(&[]);
    Ok(())
}

/// A data set with one row per baseline and integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Time,
    SiderealTime,
    IntegrationTime,
    Antenna1,
    Antenna2,
    Uvw,
    PhaseCentre,
    PointingRa,
    PointingDec,
    PointingAngle,
    Visibilities,
    Samples,
    Flags,
}

/// Name in the group and type of each data set, in file order: that of [`Rows`].
const ROWS: [(Rows, &str, Element); 13] = [
    (Rows::Time, "time_array", Element::F64),
    (Rows::SiderealTime, "lst_array", Element::F64),
    (Rows::IntegrationTime, "integration_time", Element::F64),
    (Rows::Antenna1, "ant_1_array", Element::I32),
    (Rows::Antenna2, "ant_2_array", Element::I32),
    (Rows::Uvw, "uvw_array", Element::F64),
    (Rows::PhaseCentre, "phase_center_id_array", Element::I32),
    (Rows::PointingRa, "phase_center_app_ra", Element::F64),
    (Rows::PointingDec, "phase_center_app_dec", Element::F64),
    (Rows::PointingAngle, "phase_center_frame_pa", Element::F64),
    (Rows::Visibilities, "visdata", Element::Complex),
    (Rows::Samples, "nsamples", Element::F32),
    (Rows::Flags, "flags", Element::Bool),
];

impl Rows {
    /// Iterates over all data sets, in file order.
    fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|(rows, ..)| *rows)
    }

    /// Returns its name in its group.
    fn name(self) -> &'static str {
        ROWS[self as usize].1
    }

    fn element(self) -> Element {
        ROWS[self as usize].2
    }

    /// Returns whether it is in the group `Data` instead of `Header`.
    fn is_data(self) -> bool {
        matches!(self, Self::Visibilities | Self::Samples | Self::Flags)
    }

    /// Returns its path in the file.
    fn path(self) -> String {
        format!("{}/{}", if self.is_data() { "Data" } else { "Header" }, self.name())
    }

    /// Returns its number of axes, the row axis included.
    fn rank(self) -> usize {
        match self {
            Self::Uvw => 2,
            _ if self.is_data() => 3,
            _ => 1,
        }
    }

    /// Returns the lengths of its axes after the row axis.
    fn row_axes(self, header: &Header) -> Vec<u64> {
        match self {
            Self::Uvw => vec![3],
            _ if self.is_data() => vec![header.channels() as u64, header.pairs() as u64],
            _ => Vec::new(),
        }
    }

    /// Returns the bytes of one row.
    fn row_bytes(self, header: &Header) -> u64 {
        self.row_axes(header).iter().product::<u64>() * self.element().bytes()
    }
}

/// A baseline as stored: the antenna with the lower number first.
#[derive(Clone, Copy, Debug)]
struct Row {
    antenna_1: usize,
    antenna_2: usize,
    number_1: i32,
    number_2: i32,
    /// Indices of the pairs of `V_ij` in the file's order XX, YY, XY, YX.
    pairs: [usize; 4],
    conjugate: bool,
}

impl Row {
    /// Maps baseline (i, j) of checked antennas to its row.
    ///
    /// The file stores `<conj(x_1) x_2>`. With j first that is `V_ij`, and its XY is `conj(X_j) Y_i`: our YX. With i
    /// first it is the conjugate, and its XY is `conj(X_i) Y_j`: our XY.
    fn new(antennas: &[Antenna], i: usize, j: usize) -> Self {
        let conjugate = antennas[i].number < antennas[j].number;
        let (first, second) = if conjugate { (i, j) } else { (j, i) };
        let pairs = if conjugate { [0, 3, 1, 2] } else { [0, 3, 2, 1] };
        Self {
            antenna_1: first,
            antenna_2: second,
            // `Header::check` has bounded the numbers to 0 to 2^31 - 1.
            number_1: antennas[first].number as i32,
            number_2: antennas[second].number as i32,
            pairs,
            conjugate,
        }
    }

    /// Appends the means of one channel: the sums of all pairs divided by the count of valid samples.
    fn visibilities(&self, sums: &[Complex<f64>], count: u64, bytes: &mut Vec<u8>) {
        let scale = if count == 0 { 0.0 } else { 1.0 / count as f64 };
        let is_power = self.antenna_1 == self.antenna_2;
        for (place, pair) in self.pairs.iter().take(sums.len()).enumerate() {
            // Scaling by 0 would not turn an infinite sum into 0.
            let sum = if count == 0 { Complex::default() } else { sums[*pair] };
            let mean = if self.conjugate { sum.conj() } else { sum } * scale;
            // The two parallel pairs of an autocorrelation are powers: drop the imaginary rounding residue.
            let imaginary = if is_power && place < 2 { 0.0 } else { mean.im };
            bytes.extend_from_slice(&(mean.re as f32).to_le_bytes());
            bytes.extend_from_slice(&(imaginary as f32).to_le_bytes());
        }
    }
}
