//! Recordings sent as live streams: as SPEAD heaps, VDIF frames or through PSRDADA rings, at their own rate or another, with
//! impairments.
//!
//! A [`Recording`] is read in blocks of about 50 ms, repeated on request, and sent on an absolute schedule: the time of a sample
//! follows from its number, so that rounding and delays do not add up. A sender that is late catches up.
//!
//! | file | content |
//! |---|---|
//! | `options` | options, the summary, and what a caller hears while it is sent |
//! | `feed` | samples of a recording, over all its repetitions |
//! | `pace` | schedule |
//! | `packets` | packets of any division of a recording: schedule, restarts and impairments |
//! | `heaps` | SPEAD heaps of [`crate::live::stream`]: header, descriptors, data, end |
//! | `frames` | VDIF frames |
//! | `described` | packets with a fixed header |
//! | `transfers` | transfers through a ring |
//! | `bands` | voltages that arrive, to several receivers |

mod bands;
mod described;
mod feed;
mod frames;
mod heaps;
mod options;
mod pace;
mod packets;
mod transfers;

pub use bands::{BandMonitor, send_bands};
pub use described::send_described;
pub use feed::Recording;
pub use frames::send_frames;
pub use heaps::send_packets;
pub use options::{Lost, Monitor, Options, Summary};
pub use transfers::send_transfers;

use crate::error::Result;
use crate::live::ring::Writer;
use crate::live::socket::Sender;
use crate::live::target::{Target, VdifPort};

/// Sends a recording to a target; `reopen` opens it again for each repetition.
///
/// # Errors
/// Those of [`send_packets`], [`send_frames`] or [`send_transfers`], and of opening a socket or attaching a ring.
pub fn send(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    target: &Target,
    options: &Options,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    match target {
        Target::Spead(port) => {
            let mut socket = Sender::new(port.address, port.interface.as_deref())?;
            let mut send = |packets: &[&[u8]]| socket.send(packets);
            send_packets(recording, reopen, options, &mut send, monitor)
        }
        Target::Vdif(VdifPort { port, numbered }) => {
            let mut socket = Sender::new(port.address, port.interface.as_deref())?;
            let mut send = |packets: &[&[u8]]| socket.send(packets);
            send_frames(recording, reopen, *numbered, options, &mut send, monitor)
        }
        Target::Ring(key) => {
            let mut writer = Writer::attach(*key, transfers::STEP)?;
            send_transfers(recording, reopen, options, &mut writer, monitor)
        }
    }
}
