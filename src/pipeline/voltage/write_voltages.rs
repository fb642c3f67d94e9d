//! From voltages to voltages of more channels in a file.

use std::path::Path;
use std::time::Instant;

use super::channelized::ChannelizedVoltages;
use crate::error::Result;
use crate::io::voltages::{VoltageHeader, VoltageSource, dada, guppi};
use crate::pipeline::burst::Status;
use crate::pipeline::ending::Ending;
use crate::view::check_memory;
use crate::voltage::Voltages;

/// Bytes of spectra that are made before they are written, about.
const BLOCK_BYTES: usize = 4 << 20;

/// The fewest spectra that are made before they are written.
const FEWEST_TIMES: usize = 16;

/// A format that channelized voltages are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoltageFormat {
    /// GUPPI raw.
    Guppi,
    /// PSRDADA.
    Dada,
}

/// What was written of channelized voltages.
#[derive(Clone, Debug)]
pub struct VoltageReport {
    /// Samples of each stream.
    pub times: u64,
    /// Time that it took, in seconds.
    pub elapsed_s: f64,
    /// How it ended. The file has all that was made before; there is none where that is nothing.
    pub ending: Ending,
}

/// Writes all spectra that are left to a file of voltages.
///
/// `observe` is told after each block how far the work is, and stops it by returning false. A stop, a read error, a
/// failure of the device or a full disk ends the file before its time: it holds what was made before.
///
/// # Errors
/// As [`guppi::Writer::create`] and [`dada::Writer::create`]; whatever ends the work before its first sample is
/// written, unless that is a stop.
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
    let room = (BLOCK_BYTES / each).max(FEWEST_TIMES);
    check_memory("a block of all streams", room.checked_mul(each))?;
    let mut block = header.block(room);
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

/// A file being written.
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
