//! Writes strain in the format given by the file name's extension.

use std::path::Path;

use hdf5_pure::{AttrValue, FileBuilder, GroupBuilder};
use sofars::cal::jd2cal;
use sofars::ts::dat;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::gwf::{GwfHeader, GwfWriter};
use crate::io::hdf5::{self, Built};
use crate::io::npy::Header;
use crate::units::{GPS_ZERO_MJD, Gps, SECONDS_PER_DAY};

/// Properties of the strain to write.
#[derive(Clone, Debug, PartialEq)]
pub struct NewStrain {
    /// Two-letter detector prefix: `H1`.
    pub detector: String,
    /// Name of the channel, for frame files; by default the detector and STRAIN.
    pub channel: Option<String>,
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Number of samples.
    pub samples: u64,
    /// Description of the data in one sentence.
    pub description: String,
    /// GWOSC data-quality and injection bits of each second, when known.
    pub bits: Option<[Vec<u32>; 2]>,
    /// Whether to compress the samples of frame files.
    pub is_compressed: bool,
}

/// Unfinished strain file; dropping it before [`StrainWriter::finish`] removes the file.
#[derive(Debug)]
pub enum StrainWriter {
    /// GWOSC's HDF5.
    Gwosc(GwoscWriter),
    /// A frame file.
    Gwf(Box<GwfWriter>),
    /// NumPy array of 64-bit floats, and the number of remaining samples.
    Npy(AtomicFile, u64),
}

impl NewStrain {
    /// Returns the name of the channel in a frame file.
    pub fn channel(&self) -> String {
        let by_detector = || match self.detector.as_str() {
            "" => "STRAIN".to_owned(),
            known => format!("{known}:STRAIN"),
        };
        self.channel.clone().unwrap_or_else(by_detector)
    }

    fn gwosc(&self) -> Result<GwoscHeader> {
        let rate = u64::from(self.rate_hz).max(1);
        let (second_ns, seconds) = (1_000_000_000, self.samples / rate);
        if self.start.ns % second_ns != 0 || !self.samples.is_multiple_of(rate) {
            let found =
                format!("{} s from GPS {} on", self.samples as f64 / rate as f64, self.start.s());
            let rule = "GWOSC's HDF5 has whole seconds: choose them, or write a frame file (.gwf)";
            return Err(Error::parameter("strain", found, rule));
        }
        let good = || [ALL_QUALITY, ALL_INJECTIONS].map(|all| vec![all; seconds as usize]);
        let [quality, injections] = self.bits.clone().unwrap_or_else(good);
        Ok(GwoscHeader {
            detector: self.detector.clone(),
            start_s: self.start.ns / second_ns,
            rate_hz: self.rate_hz,
            description: self.description.clone(),
            quality,
            injections,
        })
    }

    fn gwf(&self) -> GwfHeader {
        let channel = self.channel();
        // GWOSC's mask names replace this suffix of the channel name.
        let stem = channel.strip_suffix("STRAIN");
        let masks = match (&self.bits, stem) {
            (Some([quality, injections]), Some(stem)) => vec![
                (format!("{stem}DQMASK"), quality.clone()),
                (format!("{stem}INJMASK"), injections.clone()),
            ],
            _ => Vec::new(),
        };
        GwfHeader {
            channel,
            start: self.start,
            rate_hz: self.rate_hz,
            samples: self.samples,
            unit: "strain".to_owned(),
            description: self.description.clone(),
            is_compressed: self.is_compressed,
            masks,
        }
    }
}

impl StrainWriter {
    /// Supported extensions.
    pub const ENDINGS: [&str; 4] = ["gwf", "hdf5", "h5", "npy"];

    /// Creates a file in the format of its extension: .gwf is a frame file, .hdf5 and .h5 GWOSC's HDF5, .npy an array
    /// of 64-bit floats.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another extension, a header that the format cannot represent (GWOSC's requires whole
    /// seconds), or no samples; [`Error::Io`].
    pub fn create(path: &Path, strain: &NewStrain) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("hdf5" | "h5") => GwoscWriter::create(path, &strain.gwosc()?).map(Self::Gwosc),
            Some("gwf") => {
                GwfWriter::create(path, &strain.gwf()).map(|writer| Self::Gwf(Box::new(writer)))
            }
            Some("npy") => {
                let mut file = AtomicFile::create(path)?;
                file.append(&Header::encode_series(strain.samples))?;
                Ok(Self::Npy(file, strain.samples))
            }
            _ => {
                let rule = "its name must end in .gwf (frames), .hdf5 (GWOSC's) or .npy";
                Err(Error::parameter("OUT", path.display(), rule))
            }
        }
    }

    /// Appends samples; missing samples are NaN.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more samples than were announced; [`Error::Io`].
    pub fn write(&mut self, samples: &[f64]) -> Result<()> {
        match self {
            Self::Gwosc(writer) => writer.write(samples),
            Self::Gwf(writer) => writer.write(samples),
            Self::Npy(file, left) => {
                let Some(rest) = left.checked_sub(samples.len() as u64) else {
                    let rule = format!("{left} fewer were written than declared");
                    return Err(Error::parameter("samples", samples.len(), rule));
                };
                *left = rest;
                let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
                file.append(&bytes)
            }
        }
    }

    /// Renames the complete file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer samples than announced; [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Gwosc(writer) => writer.finish(),
            Self::Gwf(writer) => writer.finish(),
            Self::Npy(file, 0) => file.commit(),
            Self::Npy(_, left) => {
                Err(Error::parameter("samples", left, "fewer were written than declared"))
            }
        }
    }
}

/// Bits of `DQmask`, least significant first: name and meaning.
pub(crate) const QUALITY_BITS: [(&str, &str); 7] = [
    ("DATA", "data present"),
    ("CBC_CAT1", "passes cbc CAT1 test"),
    ("CBC_CAT2", "passes cbc CAT2 test"),
    ("CBC_CAT3", "passes cbc CAT3 test"),
    ("BURST_CAT1", "passes burst CAT1 test"),
    ("BURST_CAT2", "passes burst CAT2 test"),
    ("BURST_CAT3", "passes burst CAT3 test"),
];

/// Bits of `Injmask`, least significant first: name and meaning.
pub(super) const INJECTION_BITS: [(&str, &str); 5] = [
    ("NO_CBC_HW_INJ", "no cbc injections"),
    ("NO_BURST_HW_INJ", "no burst injections"),
    ("NO_DETCHAR_HW_INJ", "no detchar injections"),
    ("NO_CW_HW_INJ", "no continuous wave injections"),
    ("NO_STOCH_HW_INJ", "no stoch injections"),
];

/// All bits of `DQmask`.
pub const ALL_QUALITY: u32 = (1 << QUALITY_BITS.len()) - 1;

/// All bits of `Injmask`.
pub const ALL_INJECTIONS: u32 = (1 << INJECTION_BITS.len()) - 1;

/// TAI - GPS in seconds.
const TAI_GPS_S: i64 = 19;

const STRAIN: &str = "strain/Strain";

/// Contents of a strain file.
#[derive(Clone, Debug, PartialEq)]
pub struct GwoscHeader {
    /// Two-letter detector prefix: `H1`.
    pub detector: String,
    /// GPS seconds of the first sample.
    pub start_s: i64,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Description of the data in one sentence.
    pub description: String,
    /// GWOSC data-quality bits (`QUALITY_BITS` in this file) of each second; their number determines the file's length.
    pub quality: Vec<u32>,
    /// GWOSC injection bits (`INJECTION_BITS` in this file) of each second.
    pub injections: Vec<u32>,
}

/// Unfinished file in GWOSC's HDF5 layout; dropping it before [`GwoscWriter::finish`] removes the file.
///
/// # Source
/// GWOSC's files of O1 (`H-H1_LOSC_4_V2-1126259446-32.hdf5`), as h5py lists them; gwpy 4.1 reads its `strain/Strain`,
/// `quality/simple` and `meta/Detector`.
#[derive(Debug)]
pub struct GwoscWriter {
    file: AtomicFile,
    /// Announced number of samples.
    samples: u64,
    /// Number of samples still to be written.
    left: u64,
}

impl GwoscHeader {
    /// Returns the total number of samples.
    pub fn samples(&self) -> u64 {
        self.quality.len() as u64 * u64::from(self.rate_hz)
    }

    fn check(&self) -> Result<()> {
        let is_name =
            |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_name(&self.detector) {
            let rule = "it must be two letters or digits, as H1";
            return Err(Error::parameter("detector", &self.detector, rule));
        }
        if self.rate_hz == 0 {
            return Err(Error::parameter("rate (Hz)", 0, "it must be above 0"));
        }
        if self.quality.is_empty() {
            return Err(Error::parameter("length (s)", 0, "a file has one second at least"));
        }
        crate::view::check_length("injections (second)", self.quality.len(), self.injections.len())
    }
}

impl GwoscWriter {
    /// Creates a file; `finish` replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a header without seconds, rate or a two-letter detector, or a time outside the years
    /// 1980 to 2099; [`Error::Shape`] unless both masks have one number per second; [`Error::Io`].
    pub fn create(path: &Path, header: &GwoscHeader) -> Result<Self> {
        header.check()?;
        let start = build(path, header)?;
        let mut file = AtomicFile::create(path)?;
        file.append(&start)?;
        let samples = header.samples();
        Ok(Self { file, samples, left: samples })
    }

    /// Appends samples; missing samples are NaN.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more samples than the header announced; [`Error::Io`].
    pub fn write(&mut self, samples: &[f64]) -> Result<()> {
        let Some(left) = self.left.checked_sub(samples.len() as u64) else {
            let written = self.samples - self.left + samples.len() as u64;
            let rule = format!("the header gives {}", self.samples);
            return Err(Error::parameter("samples", written, rule));
        };
        self.left = left;
        let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.file.append(&bytes)
    }

    /// Renames the complete file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer samples than the header announced; [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        if self.left > 0 {
            let rule = format!("the header gives {}", self.samples);
            return Err(Error::parameter("samples", self.samples - self.left, rule));
        }
        self.file.commit()
    }
}

/// Builds everything that precedes the samples.
fn build(path: &Path, header: &GwoscHeader) -> Result<Vec<u8>> {
    let small = hdf5::finish(path, fill(header, &utc_start(header.start_s)?))?;
    let (reserved, samples) = (small.len() as u64, header.samples());
    let start = reserved.next_multiple_of(hdf5::ALIGNMENT);
    let axes = vec![samples];
    let rows = hdf5::Rows { paths: vec![STRAIN.into()], axes, start, bytes: samples * 8 };
    let mut bytes = hdf5::append_rows(path, small, reserved, &[rows])?;
    bytes.resize(start as usize, 0);
    Ok(bytes)
}

fn fill(header: &GwoscHeader, utc_start: &str) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    let mut meta = builder.create_group("meta");
    let site: String = header.detector.chars().take(1).collect();
    let texts = [
        ("Description", header.description.as_str()),
        ("DescriptionURL", "https://gwosc.org/"),
        ("Detector", &header.detector),
        ("Observatory", &site),
        ("Type", "StrainTimeSeries"),
        ("UTCstart", utc_start),
    ];
    for (name, text) in texts {
        meta.create_dataset(name).with_vlen_strings(&[text]).with_shape(&[]);
    }
    for (name, number) in [("Duration", header.quality.len() as i64), ("GPSstart", header.start_s)]
    {
        meta.create_dataset(name).with_i64_data(&[number]).with_shape(&[]);
    }
    builder.add_group(meta.finish());

    let mut strain = builder.create_group("strain");
    let spacing_s = 1.0 / f64::from(header.rate_hz);
    let series = strain.create_dataset("Strain").with_f64_data(&[0.0]);
    for (name, value) in axes("Strain", header, spacing_s, header.samples()) {
        series.set_attr(name, value);
    }
    series.set_attr("Yunits", text(""));
    builder.add_group(strain.finish());

    let mut quality = builder.create_group("quality");
    let mut simple = quality.create_group("simple");
    let names = ["DQmask", "DQShortnames", "DQDescriptions"];
    fill_mask(&mut simple, names, header, &header.quality, &QUALITY_BITS)?;
    quality.add_group(simple.finish());
    let mut injections = quality.create_group("injections");
    let names = ["Injmask", "InjShortnames", "InjDescriptions"];
    fill_mask(&mut injections, names, header, &header.injections, &INJECTION_BITS)?;
    quality.add_group(injections.finish());
    builder.add_group(quality.finish());
    Ok(builder)
}

fn fill_mask(
    group: &mut GroupBuilder,
    [mask, names, meanings]: [&str; 3],
    header: &GwoscHeader,
    values: &[u32],
    bits: &[(&str, &str)],
) -> Built {
    let series = group.create_dataset(mask).with_u32_data(values);
    for (name, value) in axes(mask, header, 1.0, values.len() as u64) {
        series.set_attr(name, value);
    }
    series.set_attr("Bits", AttrValue::I64(bits.len() as i64));
    let meaning = "Bits of each second; bit k is the k-th of the short names and descriptions.";
    series.set_attr("Description", text(meaning));
    let column = |which: fn(&(&str, &str)) -> String| bits.iter().map(which).collect::<Vec<_>>();
    for (name, column) in
        [(names, column(|bit| bit.0.to_string())), (meanings, column(|bit| bit.1.to_string()))]
    {
        let column: Vec<&str> = column.iter().map(String::as_str).collect();
        group.create_dataset(name).with_ascii_strings(&column)?;
    }
    Ok(())
}

/// Attributes of a series' axes.
fn axes(
    label: &str,
    header: &GwoscHeader,
    spacing_s: f64,
    points: u64,
) -> [(&'static str, AttrValue); 6] {
    [
        ("Npoints", AttrValue::I64(points as i64)),
        ("Xlabel", text("GPS time")),
        ("Xspacing", AttrValue::F64(spacing_s)),
        ("Xstart", AttrValue::I64(header.start_s)),
        ("Xunits", text("second")),
        ("Ylabel", text(label)),
    ]
}

fn text(text: &str) -> AttrValue {
    AttrValue::VarLenString(text.to_string())
}

/// Formats a GPS second as UTC: `2015-09-14T09:50:30`.
fn utc_start(gps_s: i64) -> Result<String> {
    const MJD_ZERO: f64 = 2_400_000.5;
    let day_s = SECONDS_PER_DAY as i64;
    let refused =
        || Error::parameter("start (GPS s)", gps_s, "it must lie in the years 1980 to 2099");
    if !(0..3_786_825_600).contains(&gps_s) {
        return Err(refused());
    }
    let tai_s = gps_s + TAI_GPS_S;
    let date = |day: i64| jd2cal(MJD_ZERO, (GPS_ZERO_MJD + day) as f64).map_err(|_| refused());
    let tai_utc_s = |day: i64| -> Result<i64> {
        let (year, month, day_of_month, _) = date(day)?;
        Ok(dat(year, month, day_of_month, 0.0).map_err(|_| refused())? as i64)
    };
    // The UTC day is the TAI day or the one before.
    let mut day = tai_s.div_euclid(day_s);
    if tai_s - day * day_s < tai_utc_s(day)? {
        day -= 1;
    }
    let second = tai_s - day * day_s - tai_utc_s(day)?;
    let (year, month, day_of_month, _) = date(day)?;
    // The 86401st second of a day is 23:59:60.
    let minute = (second / 60).min(1439);
    let (hour, second) = (minute / 60, second - 60 * minute);
    Ok(format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{:02}:{second:02}", minute % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> GwoscHeader {
        GwoscHeader {
            detector: "L1".to_string(),
            start_s: 1_126_259_446,
            rate_hz: 256,
            description: "test".to_string(),
            quality: vec![ALL_QUALITY, 1, 0],
            injections: vec![ALL_INJECTIONS; 3],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("L-L1.hdf5");
        let samples: Vec<f64> = (0..768).map(|n| 1e-21 * f64::from(n * n % 977)).collect();
        let mut writer = GwoscWriter::create(&path, &header()).unwrap();
        samples.chunks(100).for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let file = hdf5_pure::File::open(&path).unwrap();
        let strain = file.dataset(STRAIN).unwrap();
        assert_eq!(strain.read_f64().unwrap(), samples);
        let attributes = strain.attrs().unwrap();
        assert_eq!(attributes["Xstart"].as_i64(), Some(1_126_259_446));
        assert_eq!(attributes["Xspacing"].as_f64(), Some(1.0 / 256.0));
        let mask = file.dataset("quality/simple/DQmask").unwrap();
        assert_eq!(mask.read_u32().unwrap(), [127, 1, 0]);
    }

    #[test]
    fn wrong_lengths_and_headers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.hdf5");
        let mut writer = GwoscWriter::create(&path, &header()).unwrap();
        writer.write(&[0.0; 767]).unwrap();
        assert!(writer.write(&[0.0; 2]).is_err_and(|error| error.to_string().contains("768")));
        assert!(writer.finish().is_err() && !path.exists());
        let refused = |change: fn(&mut GwoscHeader)| {
            let mut bad = header();
            change(&mut bad);
            GwoscWriter::create(&path, &bad).is_err()
        };
        assert!(refused(|bad| bad.quality.clear()) && refused(|bad| bad.rate_hz = 0));
        assert!(refused(|bad| bad.detector = "Hanford".to_string()));
        assert!(refused(|bad| bad.start_s = -1) && refused(|bad| bad.injections.truncate(2)));
        assert!(refused(|bad| bad.start_s = i64::MAX));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn utc_counts_leap_seconds() {
        for (gps_s, utc) in [
            (0, "1980-01-06T00:00:00"),
            (1_126_259_446, "2015-09-14T09:50:29"),
            (1_167_264_016, "2016-12-31T23:59:59"),
            (1_167_264_017, "2016-12-31T23:59:60"),
            (1_167_264_018, "2017-01-01T00:00:00"),
            (1_187_008_882, "2017-08-17T12:41:04"),
        ] {
            assert_eq!(utc_start(gps_s).unwrap(), utc);
        }
    }
}
