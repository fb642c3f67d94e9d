//! Corner turn: transposes the spectra of all antennas into the X-engine's packed order.

mod cpu;

use crate::backend::{Backend, Host};
use crate::correlate::block::{BlockBuffer, Spectra};
use crate::correlate::plan::{LANES, Plan};
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;

#[derive(Debug)]
enum Engine {
    Reference,
    Cpu(Box<cpu::Engine>),
}

/// Transposes spectra of all inputs from the order of the F-engines to the packed order of the X-engine.
///
/// | buffer     | axes                                    | type                    | access      |
/// |------------|-----------------------------------------|-------------------------|-------------|
/// | rows       | antenna, polarization, time, channel    | complex 4 or 8 bit, f32 | read        |
/// | streams    | antenna, channel, polarization, time    | complex 4 or 8 bit, f32 | read        |
/// | `buffer`   | those of [`Plan::packed_bytes`]         | complex 4 or 8 bit, f32 | overwritten |
///
/// Inputs that pad the last panel, and the second time of an odd last pair, become 0. The buffer's mask is not
/// changed.
///
/// # Numerics
/// All values are copied unchanged.
/// # Real time
/// [`run`](Self::run) allocates nothing.
#[derive(Debug)]
pub struct CornerTurn {
    plan: Plan,
    engine: Engine,
}

impl CornerTurn {
    /// Binds an X-engine's plan to a backend.
    pub fn new(plan: Plan, backend: &Backend) -> Self {
        let engine = match &backend.host() {
            Host::Reference => Engine::Reference,
            Host::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level, threads)))
            }
        };
        Self { plan, engine }
    }

    /// Returns the X-engine's plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Transposes [`BlockBuffer::times`] spectra into the buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] unless rows have the length that the plan and their times require and hold all requested
    /// times, or streams match the plan and the buffer in number and times; [`Error::Parameter`] for voltages of
    /// another encoding than the plan's, or a buffer of another plan.
    pub fn run(&mut self, spectra: Spectra<'_>, buffer: &mut BlockBuffer) -> Result<()> {
        let (plan, times) = (&self.plan, buffer.times());
        if buffer.plan() != plan {
            let value = format!("{:?}", buffer.plan().options());
            return Err(Error::parameter(
                "block",
                value,
                format!("its plan must be {:?}", plan.options()),
            ));
        }
        match spectra {
            Spectra::Rows(rows) => {
                let row = plan.channels() * plan.encoding().sample_bits() / 8;
                let bytes = plan.inputs().saturating_mul(rows.times).saturating_mul(row);
                let what = "rows (antenna, polarization, time, channel; bytes)";
                check_length(what, bytes, rows.bytes.len())?;
                let left = rows.times.saturating_sub(rows.first);
                check_length("times of the rows", times, times.min(left))?;
            }
            Spectra::Streams(voltages) => {
                if voltages.encoding() != plan.encoding() {
                    let rule = format!("the correlator takes {:?}", plan.encoding());
                    let value = format!("{:?}", voltages.encoding());
                    return Err(Error::parameter("encoding", value, rule));
                }
                let streams = plan.inputs() * plan.channels();
                let what = "streams (antenna, channel, polarization)";
                check_length(what, streams, voltages.streams())?;
                check_length("times of the voltages", times, voltages.times())?;
            }
        }
        match &mut self.engine {
            Engine::Reference => transpose(plan, spectra, times, buffer.bytes_mut()),
            Engine::Cpu(engine) => engine.run(spectra, times, buffer.bytes_mut()),
        }
        Ok(())
    }
}

/// Reference: writes `times` spectra in the packed order, sample by sample. All other variants are tested against it.
fn transpose(plan: &Plan, spectra: Spectra<'_>, times: usize, packed: &mut [u8]) {
    let (panel_bytes, group) = (plan.panel_bytes(times), plan.group());
    for (index, panel) in packed.chunks_exact_mut(panel_bytes.max(1)).enumerate() {
        let (channel, first) = (index / plan.panels(), index % plan.panels() * LANES);
        for time in 0..times.next_multiple_of(group) {
            for lane in 0..LANES {
                let mut sample = [0; 8];
                if first + lane < plan.inputs() && time < times {
                    let size = plan.encoding().sample_bits() / 8;
                    let from = spectra.sample(plan, first + lane, channel, time);
                    sample[..size].copy_from_slice(&from[..size]);
                }
                put(plan.encoding(), sample, time, lane, panel);
            }
        }
    }
}

/// Writes one sample into its panel.
fn put(encoding: VoltageEncoding, sample: [u8; 8], time: usize, lane: usize, panel: &mut [u8]) {
    let place = (time / 2 * LANES + lane) * 2 + time % 2;
    match encoding {
        VoltageEncoding::Complex4 => panel[place] = sample[0],
        VoltageEncoding::Complex8 => panel[2 * place..][..2].copy_from_slice(&sample[..2]),
        _ => {
            for (part, bytes) in sample.chunks_exact(4).enumerate() {
                let at = ((2 * time + part) * LANES + lane) * 4;
                panel[at..at + 4].copy_from_slice(bytes);
            }
        }
    }
}
