//! Writer of PSRDADA files.

use std::path::Path;

use super::header::DEFAULT_HEADER;
use super::header::format_start;
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::voltages::fields::{EvenBand, counts, filter_fields};
use crate::io::voltages::layout::{Axis, Layout};
use crate::io::voltages::{Sweep, VoltageHeader, check_streams};
use crate::io::{parallel, sexagesimal};
use crate::units::{Epoch, HZ_PER_MHZ};
use crate::voltage::{VoltageEncoding, Voltages};

/// Tiles of samples per write, which threads share.
const TILES: usize = 32;

/// Unfinished PSRDADA file: axes time, polarization, channel (ORDER TPF), the order baseband assumes; with several
/// antennas time, channel, antenna, polarization (ORDER TFAP).
///
/// dspsr ignores ORDER and assumes TFP, which is identical for one channel or one polarization.
///
/// Channels are in the order that this format associates with their sideband: descending for a lower sideband.
#[derive(Debug)]
pub struct Writer {
    file: AtomicFile,
    encoding: VoltageEncoding,
    order: Order,
    frames: Vec<u8>,
}

impl Writer {
    /// Creates a file.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a header that this format cannot represent: real samples of 2, 4 or 10 bits, unevenly
    /// spaced channels, texts too long for its header; [`Error::Io`].
    pub fn create(path: &Path, header: &VoltageHeader) -> Result<Self> {
        let encoding = header.encoding;
        let order = Order::new(header)?;
        let mut file = AtomicFile::create(path)?;
        file.append(&text(&order.lines, 0)?)?;
        Ok(Self { file, encoding, order, frames: Vec::new() })
    }

    /// Appends samples of every stream.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of streams or another encoding than the header's; [`Error::Io`].
    pub fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        check_streams(voltages, self.order.layout.streams(), self.encoding)?;
        let step = self.order.step_times();
        for start in (0..voltages.times()).step_by(step) {
            let times = step.min(voltages.times() - start);
            self.order.gather(voltages, start, times, &mut self.frames);
            self.file.append(&self.frames)?;
        }
        Ok(())
    }

    /// Replaces the window that the final header states, of a file that was created with one.
    pub fn set_sweep(&mut self, sweep: &Sweep) {
        for (key, value) in sweep.fields() {
            if let Some(line) = self.order.lines.iter_mut().find(|line| line.0 == key) {
                line.1 = value;
            }
        }
    }

    /// Ends the data: writes all buffered samples, so that a full disk is detected before the file is renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end_data(&mut self) -> Result<()> {
        self.file.flush()
    }

    /// Recovers after a failed write: truncates the file to whole samples, and returns the number of samples per
    /// stream.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_whole(&mut self) -> Result<u64> {
        let frame = self.order.layout.frame_bytes();
        let samples = |bytes: u64| bytes.saturating_sub(DEFAULT_HEADER) / frame;
        Ok(samples(self.file.cut_to(|bytes| DEFAULT_HEADER + samples(bytes) * frame)?))
    }

    /// Writes the final header and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no sample was written; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        let bytes = self.file.bytes() - DEFAULT_HEADER;
        if bytes == 0 {
            return Err(Error::parameter("samples", 0, "a PSRDADA file holds one sample at least"));
        }
        self.file.rewrite_start(&text(&self.order.lines, bytes)?)?;
        self.file.commit()
    }
}

/// Order of samples, and the lines of the header that states it.
#[derive(Debug)]
pub(crate) struct Order {
    layout: Layout,
    lines: Vec<(&'static str, String)>,
}

impl Order {
    /// Chooses the order for a header to be written.
    ///
    /// # Errors
    /// [`Error::Parameter`] as [`Writer::create`].
    pub(crate) fn new(header: &VoltageHeader) -> Result<Self> {
        let encoding = header.encoding;
        if encoding.group_samples() > 1 {
            let rule = "PSRDADA files are written with real samples of 8, 16 or 32 bits";
            return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
        }
        let band = EvenBand::new(header)?;
        let counts = counts(header)?;
        let order = if counts.antennas == 1 {
            [Axis::Time, Axis::Polarization, Axis::Channel, Axis::Antenna]
        } else {
            [Axis::Time, Axis::Channel, Axis::Antenna, Axis::Polarization]
        };
        let mut layout = Layout::new(order, counts, 1, encoding.sample_bits() / 8);
        if band.reversed {
            layout.reverse_channels(counts);
        }
        let lines = lines(header, &band, layout.frame_bytes());
        Ok(Self { layout, lines })
    }

    /// Returns the samples per stream that are put in order at once.
    pub(crate) fn step_times(&self) -> usize {
        TILES * self.layout.tile_times()
    }

    /// Puts `times` samples of every stream from `start` on in order, in place of the bytes of `frames`.
    pub(crate) fn gather(
        &self,
        voltages: Voltages<'_>,
        start: usize,
        times: usize,
        frames: &mut Vec<u8>,
    ) {
        let (layout, tile_times) = (&self.layout, self.layout.tile_times());
        let bytes = layout.run_bytes(times as u64) as usize;
        frames.resize(bytes, 0);
        let tiles = frames.chunks_mut(layout.run_bytes(tile_times as u64) as usize);
        parallel::for_each(bytes, tiles.enumerate(), |(index, tile)| {
            layout.gather(0, voltages, start + index * tile_times, tile);
        });
    }
}

/// Returns the header's keys and values, except FILE_SIZE, which is known only at the end.
fn lines(header: &VoltageHeader, band: &EvenBand, frame: u64) -> Vec<(&'static str, String)> {
    let complex = header.encoding.is_complex();
    let mut lines = vec![
        ("HEADER", "DADA".to_string()),
        ("HDR_VERSION", "1.0".to_string()),
        ("HDR_SIZE", DEFAULT_HEADER.to_string()),
        ("DADA_VERSION", "1.0".to_string()),
        ("FILE_NUMBER", "0".to_string()),
        ("OBS_OFFSET", "0".to_string()),
        ("OBS_OVERLAP", "0".to_string()),
        ("SOURCE", plain(&header.source_name)),
        ("TELESCOPE", plain(&header.telescope)),
        ("INSTRUMENT", "sidereal".to_string()),
    ];
    if header.start != Epoch::default() {
        let (utc, mjd) = format_start(&header.start);
        lines.extend([("UTC_START", utc), ("MJD_START", mjd)]);
    }
    if let Some(ra) = header.ra_deg {
        lines.push(("RA", sexagesimal::format(ra / 15.0)));
    }
    if let Some(dec) = header.dec_deg {
        lines.push(("DEC", sexagesimal::format(dec)));
    }
    if let Some(circular) = header.circular {
        lines.push(("BASIS", if circular { "Circular" } else { "Linear" }.to_string()));
    }
    if let Some(middle) = band.middle_hz {
        lines.push(("FREQ", (middle / HZ_PER_MHZ).to_string()));
    }
    let offset =
        matches!(header.encoding, VoltageEncoding::ComplexOffset8 | VoltageEncoding::RealOffset8);
    let encoding = match header.encoding.bits() {
        32 => "FLOAT",
        _ if offset => "OFFSETBINARY",
        _ => "TWOSCOMPLEMENT",
    };
    lines.extend([
        ("BW", (band.width_hz / HZ_PER_MHZ).to_string()),
        ("TSAMP", (header.tsamp_s * 1e6).to_string()),
        ("NBIT", header.encoding.bits().to_string()),
        ("NDIM", if complex { "2" } else { "1" }.to_string()),
        ("STATE", if complex { "Analytic" } else { "Nyquist" }.to_string()),
        ("ENCODING", encoding.to_string()),
        ("ENDIAN", "LITTLE".to_string()),
        ("NPOL", header.polarizations.to_string()),
        ("NCHAN", header.coarse_channels().to_string()),
    ]);
    if header.antennas > 1 {
        lines.push(("NANT", header.antennas.to_string()));
    }
    lines.push(("ORDER", if header.antennas > 1 { "TFAP" } else { "TPF" }.to_string()));
    lines.push(("RESOLUTION", frame.to_string()));
    lines.push(("DSB", u8::from(complex).to_string()));
    lines.extend(header.filter.iter().flat_map(filter_fields).map(|(key, v)| (key, plain(&v))));
    lines.extend(header.sweep.iter().flat_map(Sweep::fields));
    lines
}

/// Formats the header of a file.
fn text(lines: &[(&'static str, String)], file_size: u64) -> Result<Vec<u8>> {
    let size = ("FILE_SIZE", file_size.to_string());
    format_header(&[lines, &[size]].concat())
}

/// Formats the header of a stream of voltages, as of a file: axes time, polarization, channel, with several antennas time,
/// channel, antenna, polarization.
///
/// # Errors
/// [`Error::Parameter`] as [`Writer::create`].
pub fn header_text(header: &VoltageHeader) -> Result<Vec<u8>> {
    let Order { lines, .. } = Order::new(header)?;
    format_header(&lines)
}

/// Returns whether a header's text has the channels in the reverse order of `header`, as sidebands are written.
///
/// # Errors
/// [`Error::Parameter`] for channels that are not evenly spaced.
pub(crate) fn is_reversed(header: &VoltageHeader) -> Result<bool> {
    Ok(EvenBand::new(header)?.reversed)
}

/// Formats a header of [`DEFAULT_HEADER`] bytes.
///
/// # Errors
/// [`Error::Parameter`] for lines that do not fit it.
pub(crate) fn format_header(lines: &[(&'static str, String)]) -> Result<Vec<u8>> {
    let mut text = String::new();
    for (key, value) in lines {
        text += &format!("{key:<13}{}\n", plain(value));
    }
    text += "# end of header\n";
    let mut bytes = text.into_bytes();
    if bytes.len() as u64 > DEFAULT_HEADER {
        let rule = format!("names and numbers must fit a header of {DEFAULT_HEADER} bytes");
        return Err(Error::parameter("header (bytes)", bytes.len(), rule));
    }
    bytes.resize(DEFAULT_HEADER as usize, 0);
    Ok(bytes)
}

/// Replaces characters that would end a header line or begin a comment.
fn plain(text: &str) -> String {
    let letter =
        |letter: char| if (' '..='~').contains(&letter) && letter != '#' { letter } else { '?' };
    let text: String = text.trim().chars().map(letter).collect();
    if text.is_empty() { "unset".to_string() } else { text }
}
