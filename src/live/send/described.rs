//! Packets with a fixed header, as a description of a stream declares them.

use super::feed::{Feed, Recording};
use super::options::{Monitor, Options, Summary};
use super::packets::{Block, Division, Outlet, Put, run};
use crate::error::{Error, Result};
use crate::live::clock::Clock;
use crate::live::declared::Declared;
use crate::live::description::{Begun, Description, Packets};
use crate::live::header::Content;
use crate::units::Epoch;

/// Divides a recording into the packets of a description and passes them to `send`, a batch at a time. `reopen` opens the recording
/// again for each repetition. The counter begins with the time of the recording, if both it and the description's clock are known,
/// and otherwise at [`Options::first`].
///
/// # Errors
/// [`Error::Parameter`] for options out of range, contents that are not those of the description, and SPEAD heaps; those of the
/// recording, of `send` and of the listener.
pub fn send_described(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    description: &Description,
    options: &Options,
    send: Put<'_>,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    options.check()?;
    if let Some(times) = options.heap_times {
        let rule = "it is for SPEAD and VDIF; a description has the samples of its packets";
        return Err(Error::parameter("send.heap_times", times, rule));
    }
    let content = recording.content();
    check(&content, description.begun().content())?;
    let packets = Described::new(description, &content, options.first)?;
    run(recording, reopen, packets, options, send, monitor)
}

/// Compares a recording with the contents that packets have.
fn check(found: &Content, expected: &Content) -> Result<()> {
    let differs = |name, found: usize, expected: usize| {
        let rule = format!("the packets have {expected}");
        if found == expected { Ok(()) } else { Err(Error::parameter(name, found, rule)) }
    };
    let (own, other) = match (found, expected) {
        (Content::Spectra(own), Content::Spectra(other)) => {
            differs("recording (channels)", own.channels(), other.channels())?;
            let kinds = [own.encoding, other.encoding].map(|encoding| format!("{encoding:?}"));
            (own.band.centres_hz().to_vec(), (other.band.centres_hz().to_vec(), kinds))
        }
        (Content::Voltages(own), Content::Voltages(other)) => {
            differs("recording (antennas)", own.antennas, other.antennas)?;
            differs("recording (polarizations)", own.polarizations, other.polarizations)?;
            differs("recording (channels)", own.coarse_channels(), other.coarse_channels())?;
            let kinds = [own.encoding, other.encoding].map(|encoding| format!("{encoding:?}"));
            (own.centres_hz.clone(), (other.centres_hz.clone(), kinds))
        }
        (Content::Spectra(_), Content::Voltages(_)) => {
            return Err(Error::parameter("recording", "spectra", "the packets have voltages"));
        }
        (Content::Voltages(_), Content::Spectra(_)) => {
            return Err(Error::parameter("recording", "voltages", "the packets have spectra"));
        }
    };
    let (expected_hz, [kind, expected_kind]) = other;
    if kind != expected_kind {
        let rule = format!("the packets have {expected_kind}");
        return Err(Error::parameter("recording (encoding)", kind, rule));
    }
    let (tsamp_s, expected_s) = (found.tsamp_s(), expected.tsamp_s());
    if (tsamp_s / expected_s - 1.0).abs() > 1e-6 {
        let rule = format!("the packets have {expected_s} s");
        return Err(Error::parameter("recording (sampling time in s)", tsamp_s, rule));
    }
    // Recordings without frequencies are those of the description.
    let off = |pair: &(&f64, &f64)| {
        *pair.0 != 0.0 && *pair.1 != 0.0 && (pair.0 / pair.1 - 1.0).abs() > 1e-6
    };
    match own.iter().zip(&expected_hz).find(off) {
        None => Ok(()),
        Some((found, expected)) => {
            let rule = format!("the packets have {expected} at its place");
            Err(Error::parameter("recording (channel centre in Hz)", *found, rule))
        }
    }
}

/// Packets of all sources.
struct Described<'a> {
    begun: &'a Begun,
    declared: &'a Declared,
    clock: Option<&'a Clock>,
    /// Counter of the first block since the last start.
    first: u64,
    packet: Vec<u8>,
}

impl<'a> Described<'a> {
    fn new(description: &'a Description, content: &Content, first: u64) -> Result<Self> {
        let Packets::Declared(declared) = description.packets() else {
            let rule =
                "only packets with a fixed header are sent; spead:// has the heaps of this program";
            return Err(Error::parameter("packets", "SPEAD heaps", rule));
        };
        let begun = description.begun();
        let shape = begun.shape();
        let mut packets = Self {
            begun,
            declared,
            clock: description.clock(),
            first,
            packet: vec![0; declared.declaration().header_bytes + shape.block_bytes],
        };
        if let Some(period) = shape.period.filter(|period| first >= *period) {
            let rule = format!("the counter of the packets has values below {period}");
            return Err(Error::parameter("send.first", first, rule));
        }
        if first == 0 {
            packets.first = packets.counter(content)?;
        }
        Ok(packets)
    }

    /// Returns the counter of a recording's start; 0 if it is unknown.
    fn counter(&self, content: &Content) -> Result<u64> {
        match self.clock {
            Some(clock) if content.start() != Epoch::default() => clock.counter(&content.start()),
            _ => Ok(0),
        }
    }
}

impl Division for Described<'_> {
    fn times(&self) -> usize {
        self.begun.times()
    }

    fn sources(&self) -> usize {
        self.begun.shape().sources
    }

    fn zero_byte(&self) -> u8 {
        self.begun.shape().zero_byte
    }

    fn packet_bytes(&self) -> usize {
        self.packet.len()
    }

    fn packed_bytes(&self) -> usize {
        let shape = self.begun.shape();
        shape.sources * shape.block_bytes
    }

    fn pack(&self, feed: &Feed<'_>, start: usize, packed: &mut [u8]) -> Result<()> {
        let begun = self.begun;
        let times = begun.times();
        if let (Some(voltages), Some(layout)) = (feed.voltages()?, begun.layout()) {
            let run_bytes = layout.run_bytes(times as u64) as usize;
            for (run, bytes) in packed.chunks_exact_mut(run_bytes).enumerate() {
                layout.gather(run, voltages, start, bytes);
            }
            return Ok(());
        }
        // Sources are groups of channels.
        let rows = feed.spectra(start, times);
        let (row_bytes, sources) = (rows.len() / times, begun.shape().sources);
        let group = row_bytes / sources;
        for (source, block) in packed.chunks_exact_mut(times * group).enumerate() {
            for (to, row) in block.chunks_exact_mut(group).zip(rows.chunks_exact(row_bytes)) {
                to.copy_from_slice(&row[source * group..][..group]);
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        source: usize,
        block: &Block<'_, '_>,
        outlet: &mut Outlet<'_>,
    ) -> Result<bool> {
        let shape = self.begun.shape();
        let steps = (block.position / self.begun.times() as u64).wrapping_mul(shape.step);
        let counter = shape.advanced(self.first, steps);
        self.declared.write_header(&mut self.packet, source, counter)?;
        let payload = &block.packed[source * shape.block_bytes..][..shape.block_bytes];
        let at = self.packet.len() - shape.block_bytes;
        self.packet[at..].copy_from_slice(payload);
        outlet.samples(&self.packet)
    }

    fn restart(&mut self, content: Content, _position: u64) -> Result<()> {
        self.first = self.counter(&content)?;
        Ok(())
    }
}
