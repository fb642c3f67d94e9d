//! Writer of a SIGPROC filterbank file or pipe.
//!
//! Invariant: rows are written as they arrive, and a file has its final name only when it is complete.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Encoder;
use crate::error::{Error, Result};
use crate::io::FilterbankHeader;
use crate::io::atomic::AtomicFile;
use crate::sample::Encoding;
use crate::units::{Band, HZ_PER_MHZ};

/// Maximum number of IFs: Stokes parameters, or products of two feeds.
const MAX_IFS: usize = 4;

enum Output {
    File(AtomicFile),
    Pipe(Box<dyn Write + Send>),
}

/// Unfinished filterbank; dropping a file before [`FilterbankWriter::finish`] removes it.
pub struct FilterbankWriter {
    output: Output,
    path: PathBuf,
    header_bytes: u64,
    row_bytes: usize,
    rows: u64,
}

impl std::fmt::Debug for FilterbankWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterbankWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FilterbankWriter {
    /// Creates a file with one IF in the header's encoding.
    ///
    /// # Errors
    /// [`Error::Parameter`] for signed 16-bit samples, which SIGPROC readers interpret as unsigned, and for rows that
    /// end within a byte; [`Error::Io`].
    pub fn create(path: &Path, header: &FilterbankHeader) -> Result<Self> {
        Self::create_ifs(path, header, 1)
    }

    /// Creates a file of several IFs (polarizations, or Stokes parameters); axes of its rows: IF, channel.
    ///
    /// # Errors
    /// As [`FilterbankWriter::create`]; [`Error::Parameter`] unless there is at least one IF.
    pub fn create_ifs(path: &Path, header: &FilterbankHeader, ifs: usize) -> Result<Self> {
        let bytes = encode(header, ifs, path)?;
        let mut file = AtomicFile::create(path)?;
        file.append(&bytes)?;
        let header_bytes = file.bytes();
        Ok(Self { header_bytes, ..Self::new(Output::File(file), path, header, ifs) })
    }

    /// Starts a stream to a pipe, such as standard output.
    ///
    /// # Errors
    /// As [`FilterbankWriter::create`].
    pub fn to_pipe(pipe: Box<dyn Write + Send>, header: &FilterbankHeader) -> Result<Self> {
        Self::to_pipe_ifs(pipe, header, 1)
    }

    /// Starts a stream of several IFs to a pipe.
    ///
    /// # Errors
    /// As [`FilterbankWriter::create_ifs`].
    pub fn to_pipe_ifs(
        mut pipe: Box<dyn Write + Send>,
        header: &FilterbankHeader,
        ifs: usize,
    ) -> Result<Self> {
        let path = Path::new("-");
        pipe.write_all(&encode(header, ifs, path)?).map_err(|error| Error::io(path, error))?;
        Ok(Self::new(Output::Pipe(pipe), path, header, ifs))
    }

    fn new(output: Output, path: &Path, header: &FilterbankHeader, ifs: usize) -> Self {
        let row_bytes = ifs * header.row_bytes();
        Self { output, path: path.to_path_buf(), header_bytes: 0, row_bytes, rows: 0 }
    }

    /// Appends whole rows.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `rows` holds whole rows; [`Error::Io`].
    pub fn write(&mut self, rows: &[u8]) -> Result<()> {
        let whole = rows.len() / self.row_bytes;
        crate::view::check_length("rows to write (bytes)", whole * self.row_bytes, rows.len())?;
        match &mut self.output {
            Output::File(file) => file.append(rows)?,
            Output::Pipe(pipe) => {
                pipe.write_all(rows).map_err(|error| Error::io(&self.path, error))?;
            }
        }
        self.rows += whole as u64;
        Ok(())
    }

    /// Returns the number of rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends the data: writes all buffered rows, so that a full disk is detected before the file is renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end_data(&mut self) -> Result<()> {
        match &mut self.output {
            Output::File(file) => file.flush(),
            Output::Pipe(pipe) => pipe.flush().map_err(|error| Error::io(&self.path, error)),
        }
    }

    /// Recovers after a failed write: truncates the file to complete rows, and returns their number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_whole(&mut self) -> Result<u64> {
        if let Output::File(file) = &mut self.output {
            let (header, row) = (self.header_bytes, self.row_bytes as u64);
            let whole = |bytes: u64| bytes.saturating_sub(header) / row * row + header;
            self.rows = file.cut_to(whole)?.saturating_sub(header) / row;
        }
        Ok(self.rows)
    }

    /// Ends the data and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        match self.output {
            Output::File(file) => file.commit(),
            Output::Pipe(mut pipe) => pipe.flush().map_err(|error| Error::io(self.path, error)),
        }
    }
}

fn encode(header: &FilterbankHeader, ifs: usize, path: &Path) -> Result<Vec<u8>> {
    let encoding = header.encoding;
    if !(1..=MAX_IFS).contains(&ifs) {
        return Err(Error::parameter("IFs", ifs, format!("there must be 1 to {MAX_IFS}")));
    }
    if encoding == Encoding::I16 {
        let rule = "SIGPROC's 16-bit samples are unsigned; 32-bit floats hold them exactly";
        return Err(Error::parameter("sample encoding", "signed 16 bit", rule));
    }
    if encoding.row_bytes(header.channels()).is_none() {
        let rule = format!("{} channels of it must fill whole bytes", header.channels());
        return Err(Error::parameter("nbits", encoding.bits(), rule));
    }
    let mut encoder = Encoder::new();
    encoder.observation(path, &header.source_name, &header.telescope);
    encoder.position(header.ra_deg, header.dec_deg);
    encoder.integer("data_type", 1);
    frequencies(&mut encoder, &header.band);
    encoder.integer("nchans", header.channels() as i32);
    let beam = header.beam.map_or((1, 1), |beam| (beam.number, beam.of.unwrap_or(0)));
    encoder.integer("nbeams", beam.1.try_into().unwrap_or(i32::MAX));
    encoder.integer("ibeam", beam.0.try_into().unwrap_or(i32::MAX));
    encoder.integer("nbits", encoding.bits() as i32);
    encoder.float("tstart", header.tstart_mjd);
    encoder.float("tsamp", header.tsamp_s);
    encoder.integer("nifs", ifs as i32);
    if encoding == Encoding::I8 {
        encoder.byte("signed", 1);
    }
    Ok(encoder.finish())
}

/// Writes `fch1` and `foff` for a uniform band, else a table of all centres.
fn frequencies(encoder: &mut Encoder, band: &Band) {
    let (first, step) = (tidy(band.fch1_mhz()), tidy(band.foff_mhz()));
    let is_uniform = band.centres_hz().iter().enumerate().all(|(channel, centre)| {
        let ideal = (first + channel as f64 * step) * HZ_PER_MHZ;
        (ideal - centre).abs() <= 1e-6 * band.channel_width_hz()
    });
    if is_uniform {
        encoder.float("fch1", first);
        encoder.float("foff", step);
    } else {
        encoder.frequencies(band.centres_hz().iter().map(|centre| centre / HZ_PER_MHZ));
    }
}

/// Removes the rounding error of a conversion from Hz to MHz and back.
fn tidy(mhz: f64) -> f64 {
    format!("{mhz:.12e}").parse().unwrap_or(mhz)
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;
    use crate::io::{FilterbankSource, Polarizations};

    fn header(encoding: Encoding, band: Band) -> FilterbankHeader {
        FilterbankHeader {
            path: PathBuf::new(),
            format: "SIGPROC filterbank",
            source_name: "B0531+21".into(),
            telescope: "MeerKAT".into(),
            ra_deg: Some(83.63),
            dec_deg: Some(-22.01),
            beam: None,
            tstart_mjd: 59000.123456789,
            tsamp_s: 64e-6,
            band,
            encoding,
            recorded_bits: encoding.bits(),
            recorded_polarizations: 1,
            times: None,
        }
    }

    #[test]
    fn a_header_goes_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fil");
        let bands = [
            Band::uniform(1510.0, -1.09, 64).unwrap(),
            Band::uniform(400.390625, 0.390625, 64).unwrap(),
            Band::from_centres((0..64).map(|c| 1e9 + f64::from(c * c) * 1e6).collect(), 3e6)
                .unwrap(),
        ];
        for band in bands {
            let written = header(Encoding::U8, band);
            let mut writer = FilterbankWriter::create(&path, &written).unwrap();
            writer.write(&[1; 640]).unwrap();
            assert!(writer.write(&[1; 63]).is_err());
            assert_eq!(writer.rows(), 10);
            writer.finish().unwrap();
            let reader = open(&path, Polarizations::Total).unwrap();
            let read = reader.header();
            for (a, b) in read.band.centres_hz().iter().zip(written.band.centres_hz()) {
                assert!((a - b).abs() < 0.1, "{a} {b}");
            }
            assert_eq!(read.band.foff_mhz(), written.band.foff_mhz());
            assert_eq!(read.telescope, "MeerKAT");
            assert_eq!(read.source_name, "B0531+21");
            assert_eq!((read.tsamp_s, read.tstart_mjd), (written.tsamp_s, written.tstart_mjd));
            assert!((read.ra_deg.unwrap() - 83.63).abs() < 1e-9);
            assert!((read.dec_deg.unwrap() + 22.01).abs() < 1e-9);
            assert_eq!(read.times, Some(10));
        }
    }

    #[test]
    fn several_ifs_stand_side_by_side_in_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fil");
        let header = header(Encoding::U8, Band::uniform(1500.0, -1.0, 2).unwrap());
        let mut writer = FilterbankWriter::create_ifs(&path, &header, 4).unwrap();
        assert!(writer.write(&[0; 12]).is_err());
        writer.write(&(0..16).collect::<Vec<u8>>()).unwrap();
        assert_eq!(writer.rows(), 2);
        writer.finish().unwrap();
        for number in 0..4u8 {
            let wanted = Polarizations::One(usize::from(number));
            let mut rows = [0; 4];
            let mut reader = open(&path, wanted).unwrap();
            assert_eq!(reader.read(&mut rows).unwrap(), 2);
            let first = 2 * number;
            assert_eq!(rows, [first, first + 1, first + 8, first + 9]);
        }
        for ifs in [0, 5] {
            assert!(FilterbankWriter::create_ifs(&path, &header, ifs).is_err());
        }
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let band = Band::uniform(1500.0, -1.0, 8).unwrap();
        let path = folder.path().join("a.fil");
        let mut writer = FilterbankWriter::create(&path, &header(Encoding::F32, band)).unwrap();
        writer.write(&[0; 32]).unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_sigproc_cannot_say_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fil");
        let band = |channels| Band::uniform(1500.0, -1.0, channels).unwrap();
        assert!(FilterbankWriter::create(&path, &header(Encoding::I16, band(8))).is_err());
        assert!(FilterbankWriter::create(&path, &header(Encoding::U1, band(9))).is_err());
    }

    #[test]
    fn a_pipe_gets_the_bytes_of_a_file() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone)]
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let header = header(Encoding::U2, Band::uniform(1500.0, -1.0, 8).unwrap());
        let pipe = Shared(Arc::default());
        let mut writer = FilterbankWriter::to_pipe(Box::new(pipe.clone()), &header).unwrap();
        writer.write(&[1, 2, 3, 4]).unwrap();
        writer.finish().unwrap();
        let bytes = pipe.0.lock().unwrap().clone();
        let mut reader = super::super::FilterbankReader::from_pipe(
            Box::new(std::io::Cursor::new(bytes)),
            Path::new("-"),
            Polarizations::Total,
        )
        .unwrap();
        let mut rows = [0; 8];
        assert_eq!(reader.header().times, None);
        assert_eq!(reader.read(&mut rows).unwrap(), 2);
        assert_eq!(rows[..4], [1, 2, 3, 4]);
        assert_eq!(reader.read(&mut rows).unwrap(), 0);
    }
}
