//! Summary of a UVH5 file, without its visibilities.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hdf5_pure::{Dataset, Layout};

use crate::error::{Error, Result};
use crate::io::hdf5::Input;
use crate::io::uvh5::{Location, MJD_ZERO};
use crate::units::{Epoch, MAX_CHANNELS, MAX_FREQUENCY_HZ, MIN_FREQUENCY_HZ, SECONDS_PER_DAY};

/// Maximum number of entries in a table of antennas or polarizations.
pub(super) const MAX_LINES: u64 = 1 << 20;

/// Maximum number of rows whose times are all read; for longer files only the first and last row are read.
const MAX_ROWS: u64 = 1 << 22;

/// First version in which files store the correct number of baselines.
const COUNTS_BASELINES: f64 = 1.2;

/// Relative difference below which two integration lengths are equal.
const ALIKE: f64 = 1e-6;

/// Accepted Julian dates: from 4713 BC to about a million years from now.
const DATES: std::ops::Range<f64> = 0.0..4e8;

/// Summary of a file of visibilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The file.
    pub path: PathBuf,
    /// UVH5 version; empty in files that predate the version field.
    pub version: String,
    /// Name of the telescope, empty when unknown.
    pub telescope: String,
    /// Name of the instrument, empty when unknown.
    pub instrument: String,
    /// Reference point of the array.
    pub location: Location,
    /// Names of all antennas of the telescope.
    pub antennas: Vec<String>,
    /// Number of antennas with data.
    pub antennas_used: u64,
    /// Number of baselines, autocorrelations included.
    pub baselines: u64,
    /// Number of integrations.
    pub integrations: u64,
    /// Number of rows: baselines of all integrations.
    pub rows: u64,
    /// Centre of each channel in Hz.
    pub frequencies_hz: Vec<f64>,
    /// Width of the first channel in Hz.
    pub channel_width_hz: f64,
    /// AIPS polarization numbers.
    pub polarizations: Vec<i64>,
    /// Length of the first row's integration in seconds.
    pub integration_s: f64,
    /// Shortest and longest integration in seconds; they differ under baseline-dependent averaging.
    pub integration_range_s: (f64, f64),
    /// Middle of the first integration.
    pub first: Epoch,
    /// Middle of the last integration.
    pub last: Epoch,
    /// Seconds from the first integration's start to the last one's end.
    pub duration_s: f64,
    /// First source of the phase-centre catalogue, if any.
    pub source: Option<Source>,
    /// The visibilities' unit, empty when unknown.
    pub units: String,
}

impl Summary {
    /// Returns whether integrations differ in length, as under baseline-dependent averaging.
    pub fn is_averaged_by_baseline(&self) -> bool {
        let (shortest, longest) = self.integration_range_s;
        longest - shortest > ALIKE * longest
    }

    /// Returns whether every baseline has a row in every integration.
    pub fn is_rectangular(&self) -> bool {
        self.baselines.checked_mul(self.integrations) == Some(self.rows)
    }
}

/// A source of the phase-centre catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Catalogue type: `sidereal`, `unprojected`, ...
    pub kind: String,
    /// Longitude (right ascension) and latitude (declination) in degrees, of a sidereal source.
    pub place_deg: Option<(f64, f64)>,
}

/// Returns whether a file is HDF5 with the UVH5 visibility data set.
pub fn is_uvh5(path: &Path) -> bool {
    crate::io::hdf5::is_hdf5(path)
        && crate::io::hdf5::open(path).is_ok_and(|file| file.dataset("Data/visdata").is_ok())
}

/// Reads the metadata of a UVH5 file.
///
/// # Errors
/// [`crate::Error::Io`]; [`crate::Error::Format`] naming the data set that is missing, contradicts another or lies
/// beyond the file's end.
pub fn summary(path: &Path) -> Result<Summary> {
    let fields = Fields::open(path)?;
    let visibilities = fields.shape("Data/visdata")?;
    let (rows, channels) = match visibilities[..] {
        [rows, channels, _] | [rows, 1, channels, _] => (rows, channels),
        _ => {
            let why = format!("axes {visibilities:?} found, expected row, channel, polarization");
            return Err(fields.fault("Data/visdata", why));
        }
    };
    for (name, length) in [("Nblts", rows), ("Nfreqs", channels)] {
        let found = fields.count(name)?;
        if found != length {
            let why = format!("{found} found, but visdata has {length}");
            return Err(fields.fault(&format!("Header/{name}"), why));
        }
    }
    for name in ["Data/visdata", "Data/nsamples", "Data/flags"] {
        fields.check_inside(name)?;
    }
    let frequencies_hz = fields.numbers("freq_array", MAX_CHANNELS as u64)?;
    check_band(&fields, &frequencies_hz, channels)?;
    let times = Times::read(&fields, rows)?;
    let version = fields.text_or_empty("version");
    Ok(Summary {
        path: path.to_path_buf(),
        telescope: fields.text_or_empty("telescope_name"),
        instrument: fields.text_or_empty("instrument"),
        location: Location {
            longitude_deg: fields.number("longitude")?,
            latitude_deg: fields.number("latitude")?,
            height_m: fields.number("altitude")?,
        },
        antennas: fields.texts("antenna_names", MAX_LINES)?,
        antennas_used: fields.count("Nants_data")?,
        baselines: baselines(&fields, rows, &version)?,
        version,
        integrations: fields.count("Ntimes")?,
        rows,
        frequencies_hz,
        channel_width_hz: fields.row("channel_width", 0)?,
        polarizations: whole(&fields.numbers("polarization_array", MAX_LINES)?),
        integration_s: fields.row("integration_time", 0)?,
        integration_range_s: times.lengths_s,
        first: times.first,
        last: times.last,
        duration_s: times.duration_s,
        source: source(&fields)?,
        units: fields.text_or_empty("vis_units"),
    })
}

fn check_band(fields: &Fields, frequencies_hz: &[f64], channels: u64) -> Result<()> {
    let field = "Header/freq_array";
    if frequencies_hz.is_empty() || frequencies_hz.len() as u64 != channels {
        let why = format!("{} found, but visdata has {channels}", frequencies_hz.len());
        return Err(fields.fault(field, why));
    }
    let allowed = MIN_FREQUENCY_HZ..=MAX_FREQUENCY_HZ;
    match frequencies_hz.iter().find(|hertz| !allowed.contains(hertz)) {
        Some(bad) => Err(fields.fault(field, format!("{bad} Hz found, expected 1 Hz to 1e18 Hz"))),
        None => Ok(()),
    }
}

fn whole(numbers: &[f64]) -> Vec<i64> {
    numbers.iter().map(|number| *number as i64).collect()
}

/// Times of the rows.
struct Times {
    lengths_s: (f64, f64),
    first: Epoch,
    last: Epoch,
    duration_s: f64,
}

impl Times {
    /// Reads the times of all rows, in any order; beyond [`MAX_ROWS`] only those of the first and last row.
    fn read(fields: &Fields, rows: u64) -> Result<Self> {
        let last = rows.checked_sub(1).ok_or_else(|| fields.fault("Header/Nblts", "no rows"))?;
        let all = |name: &str| match rows <= MAX_ROWS {
            true => fields.numbers(name, rows),
            false => Ok(vec![fields.row(name, 0)?, fields.row(name, last)?]),
        };
        let (middles, mut lengths) = (all("time_array")?, all("integration_time")?);
        if let [length] = lengths[..] {
            lengths = vec![length; middles.len()];
        }
        if lengths.len() != middles.len() {
            let why = format!("{} found, but time_array has {}", lengths.len(), middles.len());
            return Err(fields.fault("Header/integration_time", why));
        }
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ends = |sign: f64| -> Vec<f64> {
            let end = |(day, length): (&f64, &f64)| {
                (day - middles[0]) * SECONDS_PER_DAY + sign * 0.5 * length
            };
            middles.iter().zip(&lengths).map(end).collect()
        };
        Ok(Self {
            lengths_s: (least(&lengths), most(&lengths)),
            first: date(fields, least(&middles))?,
            last: date(fields, most(&middles))?,
            duration_s: most(&ends(1.0)) - least(&ends(-1.0)),
        })
    }
}

/// Returns the number of baselines with rows; before version 1.2 the stored count may be wrong.
fn baselines(fields: &Fields, rows: u64, version: &str) -> Result<u64> {
    let told = fields.count("Nbls")?;
    let is_right = version.parse::<f64>().is_ok_and(|version| version >= COUNTS_BASELINES);
    if is_right || rows > MAX_ROWS {
        return Ok(told);
    }
    let (one, two) = (fields.numbers("ant_1_array", rows), fields.numbers("ant_2_array", rows));
    let (Ok(one), Ok(two)) = (one, two) else { return Ok(told) };
    let pairs: BTreeSet<_> = whole(&one).into_iter().zip(whole(&two)).collect();
    Ok(pairs.len() as u64)
}

fn date(fields: &Fields, julian: f64) -> Result<Epoch> {
    if !DATES.contains(&julian) {
        let why = format!("{julian} found, expected a Julian date");
        return Err(fields.fault("Header/time_array", why));
    }
    let day = (julian - MJD_ZERO).floor();
    Ok(Epoch::new(day as i64, (julian - MJD_ZERO - day) * SECONDS_PER_DAY))
}

/// Reads the first catalogue entry.
fn source(fields: &Fields) -> Result<Option<Source>> {
    let Some(entry) = fields.first_group("phase_center_catalog") else { return Ok(only(fields)) };
    let field = |name: &str| format!("{entry}/{name}");
    let kind = fields.text_or_empty(&field("cat_type"));
    let place_deg = match kind.as_str() {
        "sidereal" => {
            let (lon, lat) = (fields.number(&field("cat_lon"))?, fields.number(&field("cat_lat"))?);
            Some((lon.to_degrees(), lat.to_degrees()))
        }
        _ => None,
    };
    let name = match fields.text_or_empty(&field("cat_name")) {
        // Early files used the source's name as the entry's name.
        none if none.is_empty() => entry.rsplit('/').next().unwrap_or_default().to_string(),
        name => name,
    };
    Ok(Some(Source { name, kind, place_deg }))
}

/// Reads the single source of a file older than version 1.1, which has no catalogue.
fn only(fields: &Fields) -> Option<Source> {
    let name = fields.text_or_empty("object_name");
    let place = || {
        let (ra, dec) = (fields.number("phase_center_ra"), fields.number("phase_center_dec"));
        Some((ra.ok()?.to_degrees(), dec.ok()?.to_degrees()))
    };
    let (kind, place_deg) = match fields.text_or_empty("phase_type").as_str() {
        "phased" => ("sidereal", place()),
        "drift" => ("unprojected", None),
        _ if name.is_empty() => return None,
        _ => ("unknown", None),
    };
    Some(Source { name, kind: kind.into(), place_deg })
}

/// Maximum total bytes of the variable-length strings of a data set.
const MAX_TEXT: usize = 1 << 20;

/// Open HDF5 file. Names refer to the group `Header`, unless they begin with `Data/`.
pub(super) struct Fields {
    pub(super) input: Input,
}

impl Fields {
    pub(super) fn open(path: &Path) -> Result<Self> {
        crate::io::check_seekable(path)?;
        Ok(Self { input: Input::open(path)? })
    }

    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        self.input.fault(field, why)
    }

    pub(super) fn dataset(&self, name: &str) -> Result<(String, Dataset)> {
        let path =
            if name.starts_with("Data/") { name.to_string() } else { format!("Header/{name}") };
        let dataset = self.input.dataset(&path)?;
        Ok((path, dataset))
    }

    fn shape(&self, name: &str) -> Result<Vec<u64>> {
        let (path, dataset) = self.dataset(name)?;
        dataset.shape().map_err(self.input.library(&path))
    }

    /// Fails if part of a data set lies beyond the file's end; accepts a missing data set.
    ///
    /// # Errors
    /// [`Error::Format`] naming it.
    fn check_inside(&self, name: &str) -> Result<()> {
        let Ok((path, dataset)) = self.dataset(name) else { return Ok(()) };
        let library = self.input.library(&path);
        let beyond = |from: u64, bytes: u64| {
            let why = format!(
                "truncated or damaged: {bytes} bytes of it lie at byte {from} of a file of {} bytes",
                self.input.bytes
            );
            Err(self.fault(&path, why))
        };
        let is_inside = |from: u64, bytes: u64| {
            from.checked_add(bytes).is_some_and(|end| end <= self.input.bytes)
        };
        match dataset.layout().map_err(library)? {
            Layout::Contiguous { address: Some(address), .. } => {
                let width = dataset.element_size().map_err(library)?;
                let shape = dataset.shape().map_err(library)?;
                let bytes = shape.iter().try_fold(width, |bytes, axis| bytes.checked_mul(*axis));
                let bytes = bytes.unwrap_or(u64::MAX);
                if is_inside(address, bytes) { Ok(()) } else { beyond(address, bytes) }
            }
            Layout::Chunked { .. } => {
                let chunks = dataset.chunks().map_err(library)?;
                let found = chunks.iter().find(|one| !is_inside(one.address, one.storage_size));
                found.map_or(Ok(()), |one| beyond(one.address, one.storage_size))
            }
            _ => Ok(()),
        }
    }

    /// Returns a data set that is contiguous, inside the file and has at most `most` elements, with its path and its
    /// number of elements.
    fn small(&self, name: &str, most: u64) -> Result<(String, Dataset, u64)> {
        let (path, dataset) = self.dataset(name)?;
        let library = self.input.library(&path);
        let shape = dataset.shape().map_err(library)?;
        let elements = shape.iter().try_fold(1_u64, |product, axis| product.checked_mul(*axis));
        let Some(elements) = elements.filter(|elements| *elements <= most) else {
            return Err(
                self.fault(&path, format!("axes {shape:?}, expected {most} elements at most"))
            );
        };
        let width = dataset.element_size().map_err(library)?;
        let bytes = elements.checked_mul(width);
        if bytes.is_none_or(|bytes| bytes > self.input.bytes) {
            let why =
                format!("{elements} elements of {width} bytes in a file of {}", self.input.bytes);
            return Err(self.fault(&path, why));
        }
        self.input.check_one_piece(&path, &dataset)?;
        Ok((path, dataset, elements))
    }

    /// Reads all numbers of a small data set.
    pub(super) fn numbers(&self, name: &str, most: u64) -> Result<Vec<f64>> {
        let (path, dataset, elements) = self.small(name, most)?;
        self.input.check_numbers(&path, &dataset)?;
        let numbers = dataset.read_f64().map_err(self.input.library(&path))?;
        match numbers.iter().find(|number| !number.is_finite()) {
            None if numbers.len() as u64 == elements => Ok(numbers),
            None => Err(self.fault(&path, format!("{} of {elements} elements", numbers.len()))),
            Some(bad) => Err(self.fault(&path, format!("{bad} found, expected a finite number"))),
        }
    }

    /// Reads the element of one row, or the only element.
    fn row(&self, name: &str, row: u64) -> Result<f64> {
        let (path, dataset, elements) = self.small(name, u64::MAX)?;
        self.input.check_numbers(&path, &dataset)?;
        let library = self.input.library(&path);
        let shape = dataset.shape().map_err(library)?;
        let found = match shape.len() {
            0 => dataset.read_f64().map_err(library)?,
            1 if row < elements => dataset.read_f64_rows(row, 1).map_err(library)?,
            _ => Vec::new(),
        };
        match found[..] {
            [number] if number.is_finite() => Ok(number),
            _ => {
                Err(self.fault(&path, format!("{found:?} in row {row}, expected a finite number")))
            }
        }
    }

    /// Reads consecutive numbers of a long data set.
    pub(super) fn rows(&self, name: &str, first: u64, count: u64) -> Result<Vec<f64>> {
        let (path, dataset, elements) = self.small(name, u64::MAX)?;
        self.input.check_numbers(&path, &dataset)?;
        if first.checked_add(count).is_none_or(|end| end > elements) {
            let why = format!("{elements} elements found, expected {count} from row {first}");
            return Err(self.fault(&path, why));
        }
        dataset.read_f64_rows(first, count).map_err(self.input.library(&path))
    }

    /// Reads a single number.
    fn number(&self, name: &str) -> Result<f64> {
        self.row(name, 0)
    }

    /// Reads a count.
    fn count(&self, name: &str) -> Result<u64> {
        let number = self.number(name)?;
        if number.fract() != 0.0 || !(0.0..9e15).contains(&number) {
            let why = format!("{number} found, expected a whole number");
            return Err(self.fault(&format!("Header/{name}"), why));
        }
        Ok(number as u64)
    }

    /// Reads all strings of a small data set.
    fn texts(&self, name: &str, most: u64) -> Result<Vec<String>> {
        let (path, dataset, _) = self.small(name, most)?;
        self.input.strings(&path, &dataset, MAX_TEXT)
    }

    /// Reads a single string; empty if it is missing or not a string.
    fn text_or_empty(&self, name: &str) -> String {
        self.texts(name, 1).ok().and_then(|texts| texts.into_iter().next()).unwrap_or_default()
    }

    /// Returns the first child group of a group, by name.
    fn first_group(&self, name: &str) -> Option<String> {
        let mut names = self.input.file.group(&format!("Header/{name}")).ok()?.groups().ok()?;
        names.sort();
        names.first().map(|first| format!("{name}/{first}"))
    }
}
