//! Output of channelized voltages to a voltage file.

use std::path::Path;
use std::time::Instant;

use super::channelized::ChannelizedVoltages;
use crate::error::Result;
use crate::io::voltages::{VoltageHeader, VoltageSource, dada, guppi};
use crate::pipeline::burst::Status;
use crate::pipeline::ending::Ending;
use crate::view::check_memory;
use crate::voltage::Voltages;

/// Approximate bytes of spectra per write.
const BLOCK_BYTES: usize = 4 << 20;

/// Smallest number of spectra per write.
const FEWEST_TIMES: usize = 16;

/// File format of channelized voltages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoltageFormat {
    /// GUPPI raw.
    Guppi,
    /// PSRDADA.
    Dada,
}

/// Report of written channelized voltages.
#[derive(Clone, Debug)]
pub struct VoltageReport {
    /// Samples of each stream.
    pub times: u64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the run. The file holds all earlier samples; without any there is no file.
    pub ending: Ending,
}

/// Writes all remaining spectra to a voltage file.
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
    let header = source.header().clone();
    let mut writer = Writer::create(format, path, &header)?;
    let each = header.streams() * header.encoding.bytes(1);
    let block_times = (BLOCK_BYTES / each).max(FEWEST_TIMES);
    check_memory("a block of all streams", block_times.checked_mul(each))?;
    let mut block = header.block(block_times);
    let mut times = 0;
    let made = loop {
        match source.read_block(&mut block) {
            Ok(0) => break Ok(Ending::of_source(source.cut())),
            Ok(_) => {}
            Err(fault) => break Ok(Ending::after(fault)),
        }
        if let Err(fault) = writer.write(block.voltages()) {
            break Err(fault);
        }
        times += block.times() as u64;
        let status = Status {
            times,
            total: header.times,
            data_s: times as f64 * header.tsamp_s,
            elapsed_s: begin.elapsed().as_secs_f64(),
        };
        if !observe(&status) {
            break Ok(Ending::Stopped);
        }
    };
    let ending = match made.and_then(|ending| writer.end_data().map(|()| ending)) {
        Ok(ending) => ending,
        Err(fault) => {
            times = writer.keep_whole()?;
            Ending::after(fault)
        }
    };
    let ending = ending.or_error(times > 0)?;
    if times > 0 || ending.is_complete() {
        writer.finish()?;
    }
    Ok(VoltageReport { times, elapsed_s: begin.elapsed().as_secs_f64(), ending })
}

/// Voltage file being written.
enum Writer {
    Guppi(guppi::Writer),
    Dada(dada::Writer),
}

impl Writer {
    fn create(format: VoltageFormat, path: &Path, header: &VoltageHeader) -> Result<Self> {
        match format {
            VoltageFormat::Dada => dada::Writer::create(path, header).map(Self::Dada),
            VoltageFormat::Guppi => {
                let options = guppi::WriterOptions::default();
                guppi::Writer::create(path, header, &options).map(Self::Guppi)
            }
        }
    }

    fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.write(voltages),
            Self::Dada(writer) => writer.write(voltages),
        }
    }

    fn end_data(&mut self) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.end_data(),
            Self::Dada(writer) => writer.end_data(),
        }
    }

    fn keep_whole(&mut self) -> Result<u64> {
        match self {
            Self::Guppi(writer) => writer.keep_whole(),
            Self::Dada(writer) => writer.keep_whole(),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Guppi(writer) => writer.finish(),
            Self::Dada(writer) => writer.finish(),
        }
    }
}
