//! Corner turn: transposes the spectra of all antennas into the X-engine's packed order.

mod cpu;
mod reference;
mod source;

use crate::backend::{Backend, Host};
use crate::correlate::block::BlockBuffer;
use crate::correlate::plan::Plan;
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::Voltages;
pub use source::Rows;
use source::Source;

#[derive(Debug)]
enum Engine {
    Reference,
    Cpu(Box<cpu::Engine>),
}

/// Transposes spectra of all inputs from the order of the F-engines to the packed order of the X-engine.
///
/// | buffer     | axes                                    | type                    | access      |
/// |------------|-----------------------------------------|-------------------------|-------------|
/// | `rows`     | antenna, polarization, time, channel    | complex 4 or 8 bit, f32 | read        |
/// | `voltages` | antenna, channel, polarization, time    | complex 4 or 8 bit, f32 | read        |
/// | `buffer`   | those of [`Plan::packed_bytes`]         | complex 4 or 8 bit, f32 | overwritten |
///
/// Inputs that pad the last panel, and the second time of an odd last pair, become 0. The buffer's mask is not
/// changed.
///
/// # Numerics
/// All values are copied unchanged.
/// # Real time
/// [`rows`](Self::rows) and [`streams`](Self::streams) allocate nothing.
#[derive(Debug)]
pub struct CornerTurn {
    plan: Plan,
    engine: Engine,
}

impl CornerTurn {
    /// Binds an X-engine's plan to a backend.
    pub fn new(plan: &Plan, backend: &Backend) -> Self {
        let engine = match &backend.host() {
            Host::Reference => Engine::Reference,
            Host::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(plan, *level, threads)))
            }
        };
        Self { plan: plan.clone(), engine }
    }

    /// Returns the X-engine's plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Fills the buffer with its number of spectra, from time `first` of the rows on.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the rows have the length that the plan and their times require, and contain all
    /// requested times; [`Error::Parameter`] for a buffer of another plan.
    pub fn rows(&mut self, rows: Rows<'_>, first: usize, buffer: &mut BlockBuffer) -> Result<()> {
        let plan = &self.plan;
        self.check_buffer(buffer)?;
        let row = plan.channels() * plan.encoding().sample_bits() / 8;
        let bytes = plan.inputs().checked_mul(rows.times).and_then(|rows| rows.checked_mul(row));
        let bytes = bytes.unwrap_or(usize::MAX);
        check_length(
            "rows (antenna, polarization, time, channel; bytes)",
            bytes,
            rows.bytes.len(),
        )?;
        let left = rows.times.saturating_sub(first);
        check_length("times of the rows", buffer.times(), buffer.times().min(left))?;
        self.turn(Source::Rows(rows, first), buffer);
        Ok(())
    }

    /// Fills the buffer with channelized voltages, which have its number of spectra.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the numbers of streams and times match the plan and the buffer;
    /// [`Error::Parameter`] for voltages of another encoding than the plan's, or a buffer of another plan.
    pub fn streams(&mut self, voltages: Voltages<'_>, buffer: &mut BlockBuffer) -> Result<()> {
        let plan = &self.plan;
        self.check_buffer(buffer)?;
        if voltages.encoding() != plan.encoding() {
            let rule = format!("the correlator takes {:?}", plan.encoding());
            return Err(Error::parameter("encoding", format!("{:?}", voltages.encoding()), rule));
        }
        let streams = plan.inputs() * plan.channels();
        check_length("streams (antenna, channel, polarization)", streams, voltages.streams())?;
        check_length("times of the voltages", buffer.times(), voltages.times())?;
        self.turn(Source::Streams(voltages), buffer);
        Ok(())
    }

    fn check_buffer(&self, buffer: &BlockBuffer) -> Result<()> {
        if buffer.plan() == &self.plan {
            return Ok(());
        }
        let value = format!("{:?}", buffer.plan().options());
        Err(Error::parameter("block", value, format!("its plan must be {:?}", self.plan.options())))
    }

    fn turn(&mut self, source: Source<'_>, buffer: &mut BlockBuffer) {
        let times = buffer.times();
        match &mut self.engine {
            Engine::Reference => reference::turn(&self.plan, source, times, buffer.bytes_mut()),
            Engine::Cpu(engine) => engine.turn(source, times, buffer.bytes_mut()),
        }
    }
}
