//! SIGPROC time series (`.tim`): one channel, 8-bit integers or 32-bit floats.
//!
//! Invariant: a value outside the range of an 8-bit series is an error; no value is clipped.

use std::io::{BufReader, Read};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::sigproc::reader::{encoding, position, telescope, tsamp, tstart};
use crate::io::sigproc::{Encoder, Header};
use crate::sample::{Encoding, unpack_f32};

/// Header of a `.tim` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeries {
    /// Name of the source, empty when unknown.
    pub source_name: String,
    /// Name of the telescope, empty when unknown.
    pub telescope: String,
    /// Right ascension in degrees (J2000), when known.
    pub ra_deg: Option<f64>,
    /// Declination in degrees (J2000), when known.
    pub dec_deg: Option<f64>,
    /// Start of the first sample, MJD; 0 when unknown.
    pub tstart_mjd: f64,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// Dispersion measure of the series, pc cm^-3.
    pub dm: f64,
    /// Centre of the highest channel in MHz (the `fch1` of a `.tim` file), the reference frequency of the series.
    pub frequency_mhz: f64,
}

/// Reads a whole series: its header, its samples and, if the file's end truncates the last sample, a message about
/// it.
///
/// # Errors
/// [`Error::Format`] unless the file is a time series of 8-bit integers or 32-bit floats; [`Error::Io`].
pub fn read_series(path: &Path) -> Result<(TimeSeries, Vec<f32>, Option<String>)> {
    let io = |error| Error::io(path, error);
    let mut input = BufReader::new(crate::io::compressed::open(path)?);
    let header = Header::parse(&mut input, path)?;
    let (series, encoding) = describe(&header, path)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(io)?;
    let sample = encoding.bits() / 8;
    let rest = bytes.len() % sample;
    bytes.truncate(bytes.len() - rest);
    let cut = (rest > 0).then(|| {
        let path = path.display();
        format!("{path}: the last sample has {rest} of {sample} bytes and is left out")
    });
    let mut values = vec![0.0; bytes.len() / sample];
    unpack_f32(&bytes, encoding, &mut values);
    Ok((series, values, cut))
}

fn describe(header: &Header, path: &Path) -> Result<(TimeSeries, Encoding)> {
    if let Some(found) = header.integer("data_type").filter(|found| *found != 2) {
        let why = format!("found {found}, expected 2 (a time series)");
        return Err(header.error(path, "data_type", why));
    }
    for keyword in ["nchans", "nifs"] {
        if let Some(found) = header.integer(keyword).filter(|found| *found != 1) {
            let why = format!("found {found}, expected 1 in a time series");
            return Err(header.error(path, keyword, why));
        }
    }
    let encoding = encoding(header, path)?;
    if !matches!(encoding, Encoding::U8 | Encoding::I8 | Encoding::F32) {
        let why = format!("found {}, expected 8 or 32 in a time series", encoding.bits());
        return Err(header.error(path, "nbits", why));
    }
    let (ra_deg, dec_deg) = position(header);
    let series = TimeSeries {
        source_name: header.text("source_name").to_string(),
        telescope: telescope(header),
        ra_deg,
        dec_deg,
        tstart_mjd: tstart(header, path)?,
        tsamp_s: tsamp(header, path)?,
        dm: header.float("refdm").unwrap_or(0.0),
        frequency_mhz: header.float("fch1").unwrap_or(0.0),
    };
    Ok((series, encoding))
}

/// Unfinished `.tim` file.
#[derive(Debug)]
pub struct TimeSeriesWriter {
    file: AtomicFile,
    encoding: Encoding,
    bytes: Vec<u8>,
    header_bytes: u64,
}

impl TimeSeriesWriter {
    /// Creates a file of 32-bit floats ([`Encoding::F32`]) or of bytes ([`Encoding::U8`], [`Encoding::I8`]).
    ///
    /// # Errors
    /// [`Error::Parameter`] for another encoding; [`Error::Io`].
    pub fn create(path: &Path, series: &TimeSeries, encoding: Encoding) -> Result<Self> {
        if !matches!(encoding, Encoding::U8 | Encoding::I8 | Encoding::F32) {
            let rule = "a .tim file holds 8-bit integers or 32-bit floats";
            return Err(Error::parameter("nbits", encoding.bits(), rule));
        }
        let mut file = AtomicFile::create(path)?;
        let header = encode(series, path, encoding);
        file.append(&header)?;
        Ok(Self { file, encoding, bytes: Vec::new(), header_bytes: header.len() as u64 })
    }

    /// Creates or continues a series of 32-bit floats in place: the file has its final name from the start, and a
    /// drop keeps it. Keeps the first `written` samples of an existing series.
    ///
    /// # Errors
    /// [`Error::Format`] if the file has fewer; [`Error::Io`].
    pub fn in_place(path: &Path, series: &TimeSeries, written: u64) -> Result<Self> {
        let encoding = Encoding::F32;
        let header = encode(series, path, encoding);
        let file = AtomicFile::in_place(path, &header, written.saturating_mul(4))?;
        Ok(Self { file, encoding, bytes: Vec::new(), header_bytes: header.len() as u64 })
    }

    /// Truncates the series to its first `written` samples, for example after a write that failed partway.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut(&mut self, written: u64) -> Result<()> {
        self.file.cut(self.header_bytes + written * self.encoding.bits() as u64 / 8)
    }

    /// Removes the series.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(self) -> Result<()> {
        self.file.discard()
    }

    /// Appends samples; a byte encoding rounds them to the nearest integer, ties to even.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a value outside the encoding's range; [`Error::Io`].
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        self.bytes.clear();
        match self.encoding.range() {
            None => self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Some((least, most)) => {
                for value in values {
                    let rounded = value.round_ties_even();
                    if !(least as f32..=most as f32).contains(&rounded) {
                        let rule = format!("8-bit samples of this file hold {least} to {most}");
                        return Err(Error::parameter("time series sample", value, rule));
                    }
                    self.bytes.push(rounded as i32 as u8);
                }
            }
        }
        self.file.append(&self.bytes)
    }

    /// Closes the file handle until the next write.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&mut self) -> Result<()> {
        self.file.release()
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        self.file.commit()
    }
}

fn encode(series: &TimeSeries, path: &Path, encoding: Encoding) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.observation(path, &series.source_name, &series.telescope);
    encoder.position(series.ra_deg, series.dec_deg);
    encoder.integer("data_type", 2);
    encoder.float("refdm", series.dm);
    encoder.float("fch1", series.frequency_mhz);
    encoder.integer("barycentric", 0);
    encoder.integer("nchans", 1);
    encoder.integer("nbits", encoding.bits() as i32);
    if encoding.bits() == 8 {
        // Readers such as riptide reject 8-bit series without this keyword.
        encoder.byte("signed", u8::from(encoding == Encoding::I8));
    }
    encoder.float("tstart", series.tstart_mjd);
    encoder.float("tsamp", series.tsamp_s);
    encoder.integer("nifs", 1);
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> TimeSeries {
        TimeSeries {
            source_name: "J1807-0847".into(),
            telescope: "GBT".into(),
            ra_deg: Some(271.9),
            dec_deg: Some(-8.79),
            tstart_mjd: 59313.25,
            tsamp_s: 1.6384e-4,
            dm: 112.3802,
            frequency_mhz: 920.0,
        }
    }

    #[test]
    fn a_series_goes_round_in_each_encoding() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tim");
        let cases: [(Encoding, &[f32]); 3] = [
            (Encoding::F32, &[1.5, -2e9, 0.1]),
            (Encoding::U8, &[0.0, 255.0, 7.0]),
            (Encoding::I8, &[-128.0, 127.0, -1.0]),
        ];
        for (encoding, values) in cases {
            let mut writer = TimeSeriesWriter::create(&path, &series(), encoding).unwrap();
            writer.write(&values[..1]).unwrap();
            writer.release().unwrap();
            writer.write(&values[1..]).unwrap();
            writer.finish().unwrap();
            let (read, found, _) = read_series(&path).unwrap();
            assert_eq!(found, values);
            assert_eq!((read.dm, read.tsamp_s), (112.3802, 1.6384e-4));
            assert_eq!(read.telescope, "GBT");
        }
    }

    #[test]
    fn nothing_is_clipped_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tim");
        let mut writer = TimeSeriesWriter::create(&path, &series(), Encoding::U8).unwrap();
        assert!(writer.write(&[255.4, 0.5]).is_ok());
        assert!(writer.write(&[256.0]).is_err());
        assert!(writer.write(&[f32::NAN]).is_err());
        assert!(TimeSeriesWriter::create(&path, &series(), Encoding::U2).is_err());
    }
}
