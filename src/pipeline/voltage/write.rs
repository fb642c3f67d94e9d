//! Output of channelized voltages: to a SIGPROC filterbank, of floats or of 8-bit counts, or to a voltage file.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::channelized::ChannelizedVoltages;
use super::filterbank::VoltageFilterbank;
use crate::error::Result;
use crate::io::sigproc::FilterbankWriter;
use crate::io::voltages::{Flag, Sweep, VoltageHeader, VoltageSource, dada, guppi, vdif};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::math::median_and_sigma;
use crate::pipeline::overlap::overlapped;
use crate::pipeline::run::{Ending, Status};
use crate::sample::Encoding;
use crate::units::SECONDS_PER_DAY;
use crate::view::check_memory;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Bytes of rows per write if the host computes them, and if a GPU does, which copies and computes parts of them at the
/// same time.
const HOST_GULP_BYTES: usize = 1 << 20;
const DEVICE_GULP_BYTES: usize = 8 << 20;

/// Rows from which the 8-bit scaling is computed, unless they exceed [`SCALING_BYTES`].
const SCALING_ROWS: usize = 4096;

/// Limit in bytes on the rows held for the scaling.
const SCALING_BYTES: usize = 64 << 20;

/// Bytes of rows per read for the scaling.
const LEARN_BYTES: usize = 1 << 20;

/// Number format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Single precision, unscaled.
    #[default]
    F32,
    /// Counts from 0 to 255, scaled by [`Scaling`].
    U8,
}

/// Destination of a filterbank.
pub enum Destination<'a> {
    /// File; it gets its name once it is complete.
    File(&'a Path),
    /// Pipe, such as standard output.
    Pipe(Box<dyn Write + Send>),
}

/// Report of a written filterbank.
#[derive(Clone, Debug)]
pub struct WriteReport {
    /// Number of rows.
    pub rows: u64,
    /// Rows that were filled, counted from the first row written.
    pub gaps: Vec<Gap>,
    /// Scaling of the 8-bit counts.
    pub scaling: Option<Scaling>,
    /// Length of the rows in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the run. The file holds all earlier rows; a run stopped before its first row leaves no file.
    pub ending: Ending,
}

/// Writes all rows up to the end that [`VoltageFilterbank::end_at`] sets to a SIGPROC filterbank, one IF per product. The
/// file starts at the next row's time, and 8-bit counts are scaled by the file's own first rows.
///
/// `observe` receives the progress after each gulp and stops the run by returning false. A stop, a read error, a
/// device failure or a full disk truncates the file: it holds the earlier rows with the same bits as a complete run.
/// A run with 8-bit counts that ends among the rows for the scaling is scaled by the rows that it has.
///
/// # Errors
/// [`crate::Error::Io`] of a pipe; any error before the first row, except a stop.
pub fn write_filterbank(
    filterbank: &mut VoltageFilterbank,
    destination: Destination<'_>,
    depth: Depth,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<WriteReport> {
    let begin = Instant::now();
    let first = filterbank.row();
    let header = header_from(filterbank, first);
    let mut sink = Sink::new(&header, filterbank.products(), destination, depth)?;
    let status = |rows: u64| Status {
        times: rows,
        total: header.times,
        data_s: rows as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
    };
    let mut go_on = |rows: u64| observe(&status(rows));
    let made = sink.fill(filterbank, &mut go_on);
    let ending = match made.and_then(|ending| sink.writer.end_data().map(|()| ending)) {
        Ok(ending) => ending,
        // Data already written to a pipe cannot be recovered.
        Err(fault) if sink.is_pipe => return Err(fault),
        Err(fault) => {
            sink.writer.keep_whole()?;
            Ending::after(fault)
        }
    };
    let Status { times, data_s, elapsed_s, .. } = status(sink.writer.rows());
    let ending = ending.or_error(times > 0)?;
    let scaling = sink.scaling;
    if times > 0 || ending.is_complete() {
        sink.writer.finish()?;
    }
    let within = |gap: &Gap| {
        let start = gap.start_time.saturating_sub(first);
        let end = (gap.start_time + gap.times).saturating_sub(first).min(times);
        (start < end).then(|| Gap { start_time: start, times: end - start })
    };
    let gaps = filterbank.gaps().iter().filter_map(within).collect();
    Ok(WriteReport { rows: times, gaps, scaling, data_s, elapsed_s, ending })
}

/// Returns the header of rows from row `first` on.
fn header_from(filterbank: &VoltageFilterbank, first: u64) -> FilterbankHeader {
    let header = filterbank.header().clone();
    let passed_s = first as f64 * header.tsamp_s;
    let tstart_mjd = match header.tstart_mjd > 0.0 {
        true => header.tstart_mjd + passed_s / SECONDS_PER_DAY,
        false => header.tstart_mjd,
    };
    let times = header.times.map(|times| times.saturating_sub(first));
    FilterbankHeader { tstart_mjd, times, ..header }
}

struct Sink {
    writer: FilterbankWriter,
    is_pipe: bool,
    depth: Depth,
    scaling: Option<Scaling>,
    counts: Vec<u8>,
}

impl Sink {
    fn new(
        header: &FilterbankHeader,
        products: usize,
        destination: Destination<'_>,
        depth: Depth,
    ) -> Result<Self> {
        let encoding = match depth {
            Depth::F32 => Encoding::F32,
            Depth::U8 => Encoding::U8,
        };
        let header = FilterbankHeader { encoding, ..header.clone() };
        let is_pipe = matches!(destination, Destination::Pipe(_));
        let writer = match destination {
            Destination::File(path) => FilterbankWriter::create_ifs(path, &header, products)?,
            Destination::Pipe(pipe) => FilterbankWriter::to_pipe_ifs(pipe, &header, products)?,
        };
        Ok(Self { writer, is_pipe, depth, scaling: None, counts: Vec::new() })
    }

    /// Writes all remaining rows and returns how they ended; `go_on` receives the number of rows written.
    ///
    /// # Errors
    /// Errors of writing only.
    fn fill(
        &mut self,
        filterbank: &mut VoltageFilterbank,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Ending> {
        if self.depth == Depth::U8
            && let Some(ending) = self.learn(filterbank, go_on)?
        {
            return Ok(ending);
        }
        let elements = filterbank.row_elements();
        let bytes = HOST_GULP_BYTES.max(DEVICE_GULP_BYTES * filterbank.gpus());
        let times = (bytes / 4).div_ceil(elements).max(filterbank.least_rows());
        let mut buffers = vec![vec![0.0; times * elements]; BLOCKS];
        let mut goes_on = true;
        let fill = |rows: &mut Vec<f32>| filterbank.read_rows(rows);
        let ending = overlapped(&mut buffers, fill, |rows, times| {
            self.put(&rows[..times * elements])?;
            goes_on = goes_on && go_on(self.writer.rows());
            Ok(goes_on)
        })?;
        Ok(ending.with_cut(filterbank.cut()))
    }

    /// Reads the first rows, computes the scaling from those that are data, and writes them; returns how they ended,
    /// if they did.
    fn learn(
        &mut self,
        filterbank: &mut VoltageFilterbank,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Ending>> {
        let (elements, first) = (filterbank.row_elements(), filterbank.row());
        let mut filling = vec![0.0; elements];
        // A gap at the start repeats one row.
        let mut empty = match filterbank.gap_at_start() {
            Ok(times) => times,
            Err(fault) => return Ok(Some(Ending::after(fault))),
        };
        let mut ending = None;
        if empty > 0 {
            let passed = filterbank.read_rows(&mut filling);
            let passed = passed.and_then(|row| Ok(row as u64 + filterbank.skip(empty - 1)?));
            match passed {
                Ok(passed) => empty = passed,
                Err(fault) => return Ok(Some(Ending::after(fault))),
            }
        }
        let times = SCALING_ROWS.min((SCALING_BYTES / (4 * elements)).max(16));
        let mut rows = Vec::new();
        while rows.len() < times * elements && ending.is_none() {
            let known = rows.len();
            rows.resize((known + LEARN_BYTES / 4).div_ceil(elements) * elements, 0.0);
            rows.truncate(times * elements);
            let read = filterbank.read_rows(&mut rows[known..]);
            rows.truncate(known + elements * *read.as_ref().unwrap_or(&0));
            ending = match read {
                Ok(0) => Some(Ending::of_source(filterbank.cut())),
                Ok(_) => (!go_on(0)).then_some(Ending::Stopped),
                Err(fault) => Some(Ending::after(fault)),
            };
        }
        let gaps = filterbank.gaps();
        let is_data = |row: u64| {
            gaps.iter().all(|gap| row < gap.start_time || row >= gap.start_time + gap.times)
        };
        let data =
            rows.chunks_exact(elements).zip(first + empty..).filter(|(_, row)| is_data(*row));
        let data: Vec<f32> = data.flat_map(|(values, _)| values).copied().collect();
        let scaled = match (data.is_empty(), rows.is_empty()) {
            (false, _) => &data,
            (true, false) => &rows,
            (true, true) => &filling,
        };
        self.scaling = Some(Scaling::new(scaled, elements));
        for row in 0..empty {
            self.put(&filling)?;
            if row % SCALING_ROWS as u64 == 0 && !go_on(row) {
                return Ok(Some(Ending::Stopped));
            }
        }
        self.put(&rows)?;
        Ok(ending)
    }

    fn put(&mut self, rows: &[f32]) -> Result<()> {
        let Some(scaling) = &mut self.scaling else {
            return self.writer.write(bytemuck::cast_slice(rows));
        };
        self.counts.resize(rows.len(), 0);
        scaling.scale(rows, &mut self.counts);
        self.writer.write(&self.counts)
    }
}

/// Count of a channel's mean.
const MEAN: f32 = 64.0;

/// Counts per standard deviation.
const DEVIATION: f64 = 16.0;

/// Outlier limit in robust standard deviations from the median.
const OUTLYING: f64 = 10.0;

/// Scaling of numbers to counts: `count = 64 + gain (x - mean)`, rounded and clipped to 0 to 255, so that `x = mean +
/// (count - 64) / gain`.
///
/// A standard deviation is 16 counts. Rounding adds 1/3072 of the variance; the range is 4 standard deviations below
/// the mean and 12 above. Mean and standard deviation come from the first rows that are not filled, without numbers
/// beyond 10 robust standard deviations.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// Rows from which mean and standard deviation were computed.
    pub rows: usize,
    /// Mean, scaled to count 64; axes product, channel.
    pub means: Vec<f32>,
    /// Counts per unit; axes product, channel.
    pub gains: Vec<f32>,
    /// Numbers that were clipped.
    pub clipped: u64,
}

impl Scaling {
    /// Computes the scaling from rows of `elements` numbers.
    fn new(rows: &[f32], elements: usize) -> Self {
        let mut column = Vec::new();
        let (mut means, mut gains) = (Vec::new(), Vec::new());
        for element in 0..elements {
            let all = rows[element..].iter().step_by(elements).map(|x| f64::from(*x));
            let finite = all.filter(|x| x.is_finite());
            column.clear();
            column.extend(finite);
            let (mean, deviation) = mean_and_deviation(&mut column);
            means.push(mean as f32);
            // A constant channel gets the count of its mean.
            let gain = if deviation > 0.0 { DEVIATION / deviation } else { 1.0 };
            gains.push(gain as f32);
        }
        Self { rows: rows.len() / elements, means, gains, clipped: 0 }
    }

    /// Converts whole rows to counts; NaN becomes the mean.
    fn scale(&mut self, rows: &[f32], counts: &mut [u8]) {
        let elements = self.means.len();
        let pairs = rows.chunks_exact(elements).zip(counts.chunks_exact_mut(elements));
        for (row, counts) in pairs {
            let own = self.means.iter().zip(&self.gains);
            let mut clipped = 0;
            for ((count, x), (mean, gain)) in counts.iter_mut().zip(row).zip(own) {
                let exact = (MEAN + (x - mean) * gain).round_ties_even();
                clipped += u64::from(!(0.0..=255.0).contains(&exact));
                *count = if exact.is_nan() { MEAN as u8 } else { exact.clamp(0.0, 255.0) as u8 };
            }
            self.clipped += clipped;
        }
    }
}

/// Returns mean and standard deviation without outliers; reorders the values.
fn mean_and_deviation(values: &mut Vec<f64>) -> (f64, f64) {
    let mut scratch = values.clone();
    let Some((median, sigma)) = median_and_sigma(&mut scratch) else { return (0.0, 0.0) };
    // With more than half of the values equal, the robust deviation is 0 and no value is an outlier.
    let edge = if sigma > 0.0 { OUTLYING * sigma } else { f64::INFINITY };
    values.retain(|x| (x - median).abs() <= edge);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// Approximate bytes of spectra per write, unless more are computed at once.
const BLOCK_BYTES: usize = 4 << 20;

/// Smallest number of spectra per write.
const MIN_TIMES: usize = 16;

/// Blocks in memory: one is computed, one waits and one is written.
const BLOCKS: usize = 3;

/// File format of voltages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoltageFormat {
    /// GUPPI raw.
    Guppi,
    /// PSRDADA.
    Dada,
    /// VDIF, which states no frequencies.
    Vdif,
}

impl VoltageFormat {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Dada, Self::Guppi, Self::Vdif];

    /// Returns the format's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guppi => "guppi",
            Self::Dada => "dada",
            Self::Vdif => "vdif",
        }
    }

    /// Returns the suffix of its files' names, with the dot.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Guppi => ".raw",
            Self::Dada => ".dada",
            Self::Vdif => ".vdif",
        }
    }
}

/// Report of written channelized voltages.
#[derive(Clone, Debug)]
pub struct VoltageReport {
    /// Samples of each stream.
    pub times: u64,
    /// Samples that are zero because recorded ones are missing, by ascending start; some may lie after the last sample.
    pub flags: Vec<Flag>,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the run. The file holds all earlier samples; without any there is no file.
    pub ending: Ending,
}

/// Writes all spectra up to the end that [`ChannelizedVoltages::end_at`] sets to a voltage file that starts at the next
/// spectrum's time. A thread writes each block while the next ones are computed.
///
/// `observe` receives the progress after each block and stops the run by returning false. A stop, a read error, a
/// device failure or a full disk truncates the file: it holds the earlier samples.
///
/// # Errors
/// As [`guppi::Writer::create`] and [`dada::Writer::create`]; any error before the first sample is written, except a
/// stop.
pub fn write_voltages(
    source: &mut ChannelizedVoltages,
    path: &Path,
    format: VoltageFormat,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<VoltageReport> {
    let begin = Instant::now();
    let first = source.row();
    let header = source.header_from(first);
    let mut writer = VoltageWriter::create(format, path, &header)?;
    let each = header.streams() * header.encoding.bytes(1);
    let block_times = (BLOCK_BYTES.max(source.step_bytes()) / each).max(MIN_TIMES);
    check_memory("blocks of all streams", block_times.checked_mul(BLOCKS * each))?;
    let mut times = 0;
    let mut flags = source.flags_from(first);
    let mut goes_on = true;
    let mut blocks: Vec<_> = (0..BLOCKS).map(|_| header.block(block_times)).collect();
    let read = |block: &mut VoltageBlock<'static>| source.read_block(block);
    let made = overlapped(&mut blocks, read, |block, block_times| {
        writer.write(block.voltages())?;
        flags.extend(block.flags_after(times));
        times += block_times as u64;
        let status = Status {
            times,
            total: header.times,
            data_s: times as f64 * header.tsamp_s,
            elapsed_s: begin.elapsed().as_secs_f64(),
        };
        goes_on = goes_on && observe(&status);
        Ok(goes_on)
    });
    let ending = match made.and_then(|ending| writer.end_data().map(|()| ending)) {
        Ok(ending) => ending.with_cut(source.cut()),
        Err(fault) => {
            times = writer.keep_whole()?;
            Ending::after(fault)
        }
    };
    let ending = ending.or_error(times > 0)?;
    if times > 0 || ending.is_complete() {
        writer.finish()?;
    }
    Ok(VoltageReport { times, flags, elapsed_s: begin.elapsed().as_secs_f64(), ending })
}

/// Voltage file being written. Samples of 10 bits are written as 16 bits, since readers of these formats expect those.
#[derive(Debug)]
pub struct VoltageWriter {
    file: File,
    /// Samples of 10 bits of a call, unpacked.
    unpacked: Option<VoltageBlock<'static>>,
}

/// Writer of one format.
#[derive(Debug)]
enum File {
    Guppi(guppi::Writer),
    Dada(dada::Writer),
    Vdif(Box<vdif::Writer>),
}

impl VoltageWriter {
    /// Returns the bytes in a file of `times` samples of each stream.
    pub fn bytes(header: &VoltageHeader, times: u64) -> u64 {
        let bits = header.streams() * file_encoding(header.encoding).sample_bits();
        times.saturating_mul(bits as u64) / 8
    }

    /// Creates a file.
    ///
    /// # Errors
    /// Those of the format's writer, as for the other calls.
    pub fn create(format: VoltageFormat, path: &Path, header: &VoltageHeader) -> Result<Self> {
        let encoding = file_encoding(header.encoding);
        let is_packed = encoding != header.encoding;
        let header = &VoltageHeader { encoding, ..header.clone() };
        let file = match format {
            VoltageFormat::Dada => File::Dada(dada::Writer::create(path, header)?),
            VoltageFormat::Guppi => {
                let options = guppi::WriterOptions::default();
                File::Guppi(guppi::Writer::create(path, header, &options)?)
            }
            VoltageFormat::Vdif => File::Vdif(Box::new(vdif::Writer::create(path, header)?)),
        };
        Ok(Self { file, unpacked: is_packed.then(|| header.block(0)) })
    }

    /// Appends samples of every stream.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for voltages of another header; [`crate::Error::Io`].
    pub fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        self.write_marked(voltages, &[])
    }

    /// Appends samples of which some are lost: flags count from the first of them on. VDIF marks its frames, the other formats
    /// have no marks.
    ///
    /// # Errors
    /// As [`VoltageWriter::write`].
    pub fn write_marked(&mut self, voltages: Voltages<'_>, lost: &[Flag]) -> Result<()> {
        let voltages = match &mut self.unpacked {
            Some(block) => {
                if block.capacity() < voltages.times() {
                    *block = VoltageBlock::new(block.encoding(), block.streams(), voltages.times());
                }
                voltages.unpack(block)?;
                block.voltages()
            }
            None => voltages,
        };
        match &mut self.file {
            File::Guppi(writer) => writer.write(voltages),
            File::Dada(writer) => writer.write(voltages),
            File::Vdif(writer) => writer.write_marked(voltages, lost),
        }
    }

    /// Replaces the window that the header states; returns false, and does nothing, for a format whose header is written first.
    pub fn set_sweep(&mut self, sweep: &Sweep) -> bool {
        match &mut self.file {
            File::Dada(writer) => writer.set_sweep(sweep),
            File::Guppi(_) | File::Vdif(_) => return false,
        }
        true
    }

    /// Ends the data, so that a full disk is detected before the file is renamed.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn end_data(&mut self) -> Result<()> {
        match &mut self.file {
            File::Guppi(writer) => writer.end_data(),
            File::Dada(writer) => writer.end_data(),
            File::Vdif(writer) => writer.end_data(),
        }
    }

    /// Recovers after a failed write: truncates the file to what is whole, and returns the samples of each stream in it.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn keep_whole(&mut self) -> Result<u64> {
        match &mut self.file {
            File::Guppi(writer) => writer.keep_whole(),
            File::Dada(writer) => writer.keep_whole(),
            File::Vdif(writer) => writer.keep_whole(),
        }
    }

    /// Writes the final header and renames the file to its final name.
    ///
    /// # Errors
    /// [`crate::Error::Io`]; [`crate::Error::Parameter`] without samples.
    pub fn finish(self) -> Result<()> {
        match self.file {
            File::Guppi(writer) => writer.finish(),
            File::Dada(writer) => writer.finish(),
            File::Vdif(writer) => writer.finish(),
        }
    }
}

/// Returns the encoding of recorded samples in files.
fn file_encoding(recorded: VoltageEncoding) -> VoltageEncoding {
    match recorded {
        VoltageEncoding::Real10 => recorded.unpacked(),
        recorded => recorded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::voltages::{VoltageOptions, open};
    use crate::units::Epoch;

    #[test]
    fn samples_of_10_bits_are_written_as_16() {
        let folder = tempfile::tempdir().unwrap();
        let header = VoltageHeader {
            polarizations: 2,
            start: Epoch::new(60_000, 0.0),
            ..VoltageHeader::new(vec![1.4e9], 1e-6, VoltageEncoding::Real10)
        };
        let mut block = header.block(96);
        for (stream, row) in block.rows_mut().enumerate() {
            let bytes = row.iter_mut().enumerate();
            bytes.for_each(|(at, byte)| *byte = (at * 37 + stream * 101) as u8);
        }
        block.set_times(96).unwrap();
        for format in [VoltageFormat::Dada, VoltageFormat::Vdif] {
            let path = folder.path().join(format!("{format:?}"));
            let mut writer = VoltageWriter::create(format, &path, &header).unwrap();
            for (start, times) in [(0, 8), (8, 80), (88, 8)] {
                writer.write(block.voltages().slice(start, times).unwrap()).unwrap();
            }
            writer.finish().unwrap();
            let mut source = open(&[path], &VoltageOptions::default()).unwrap();
            assert_eq!(source.header().encoding, VoltageEncoding::Real16);
            let mut found = source.header().block(96);
            assert_eq!(source.read(&mut found).unwrap(), 96, "{format:?}");
            for (stream, time) in (0..96).flat_map(|time| [(0, time), (1, time)]) {
                let [found, sent] =
                    [&found, &block].map(|block| block.voltages().value(stream, time));
                assert_eq!(found, sent, "{format:?} {stream} {time}");
            }
        }
        let guppi = VoltageWriter::create(VoltageFormat::Guppi, folder.path(), &header);
        assert!(guppi.unwrap_err().to_string().contains("complex integers"));
    }

    #[test]
    fn counts_have_their_mean_and_deviation_and_can_be_undone() {
        // Two channels: ramps with a spike, and a constant.
        let value = |time: usize| if time == 50 { 1e9 } else { 1000.0 + (time % 100) as f32 };
        let rows: Vec<f32> = (0..1000).flat_map(|time| [value(time), 7.0]).collect();
        let mut scaling = Scaling::new(&rows, 2);
        let mut counts = vec![0; rows.len()];
        scaling.scale(&rows, &mut counts);
        assert_eq!(scaling.clipped, 1);
        assert_eq!(counts[100], 255);
        assert!(counts.iter().skip(1).step_by(2).all(|count| *count == 64));
        let ramps = counts.iter().step_by(2).filter(|count| **count < 255);
        let ramps: Vec<f64> = ramps.map(|count| f64::from(*count)).collect();
        let mean = ramps.iter().sum::<f64>() / 999.0;
        assert!((mean - 64.0).abs() < 0.1, "{mean}");
        let variance = ramps.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
        assert!((variance.sqrt() - 16.0).abs() < 0.1, "{variance}");
        for (count, x) in counts.iter().zip(&rows).step_by(2).filter(|(count, _)| **count < 255) {
            let back = scaling.means[0] + (f32::from(*count) - 64.0) / scaling.gains[0];
            assert!((back - x).abs() <= 0.501 / scaling.gains[0]);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_do_no_harm() {
        let rows = [f32::NAN, 1.0, f32::INFINITY, 3.0, f32::NEG_INFINITY, 2.0, f32::NAN, 2.0];
        let mut scaling = Scaling::new(&rows, 2);
        let mut counts = [0; 8];
        scaling.scale(&rows, &mut counts);
        assert_eq!([counts[0], counts[2], counts[4]], [64, 255, 0]);
        assert!(scaling.gains.iter().chain(&scaling.means).all(|x| x.is_finite()));
    }
}
