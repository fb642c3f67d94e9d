//! Sender of `bench live`: packets of voltages at a rate, each of which shows its number.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use sidereal::io::voltages::VoltageHeader;
use sidereal::live::header::Content;
use sidereal::live::socket::{BATCH, Sender};
use sidereal::live::spead::{Flavour, Packetizer, Repeat};
use sidereal::live::stream::Stream;
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

/// Bytes of samples in a packet.
pub(crate) const PAYLOAD: usize = 8192;

/// Receiver that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sockets alone.
    Roof,
    /// Packets with a fixed header, in a window.
    Declared,
    /// SPEAD heaps with a header, by the capture thread.
    Spead,
}

/// Channels of a pair, of two polarizations each, and samples of a packet.
pub(crate) const CHANNELS: usize = 64;
pub(crate) const TIMES: usize = PAYLOAD / (4 * CHANNELS);

/// Header of the voltages of a pair. Its channels adjoin those of the pair before it.
pub(crate) fn header(pair: usize, tsamp_s: f64) -> VoltageHeader {
    let width_hz = 1.0 / tsamp_s;
    let channel = |index: usize| 1400e6 + width_hz * index as f64;
    let centres = (CHANNELS * pair..CHANNELS * (pair + 1)).map(channel).collect();
    let mut header = VoltageHeader::new(centres, tsamp_s, VoltageEncoding::Complex8);
    header.polarizations = 2;
    header.start = Epoch::new(60_000, 0.0);
    header
}

/// Byte that fills packet `number`.
pub(crate) fn filling(number: u64) -> u8 {
    (number % 251) as u8
}

/// Returns the error of a thread that has panicked.
pub(crate) fn failed() -> Error {
    Error::Unavailable { what: "a thread of the benchmark".into(), why: "it panicked".into() }
}

/// Sends packets at a rate in 10^9 bits a second; returns their number and the time that it took.
///
/// # Errors
/// Those of the socket.
pub(crate) fn send(
    kind: Kind,
    port: u16,
    gb_s: f64,
    seconds: f64,
    header: &VoltageHeader,
) -> Result<(u64, f64)> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut socket = Sender::new(address, None)?;
    let stream = Stream::with_times(Content::Voltages(header.clone()), TIMES)?;
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut packetizer = Packetizer::new(Flavour::BITS_48, PAYLOAD, Repeat::All)?;
    if kind == Kind::Spead {
        let mut whole = Packetizer::new(Flavour::BITS_48, 49_152, Repeat::All)?;
        let text = stream.header_payload()?;
        whole.send(0, &stream.header_items(), &text, &mut |packet| socket.send(&[packet]))?;
        for _ in 0..BATCH {
            let items = stream.data_items(0, 0);
            packetizer.send(0, &items, &[0; PAYLOAD], &mut |packet| {
                packets.push(packet.to_vec());
                Ok(())
            })?;
        }
    } else {
        let mut packet = vec![0; 16 + PAYLOAD];
        packet[15] = 7;
        packets.resize(BATCH, packet);
    }
    let begin = Instant::now();
    let mut sent = 0_u64;
    while begin.elapsed().as_secs_f64() < seconds {
        for (packet, number) in packets.iter_mut().zip(sent..) {
            let start = packet.len() - PAYLOAD;
            // The whole payload would cost the sender more than the socket does.
            packet[start] = filling(number);
            packet[start + PAYLOAD - 1] = filling(number);
            if kind == Kind::Spead {
                // The heap's number and the time are the first and the fifth item.
                packet[10..16].copy_from_slice(&(number + 1).to_be_bytes()[2..]);
                packet[42..48].copy_from_slice(&(TIMES as u64 * number).to_be_bytes()[2..]);
            } else {
                packet[..8].copy_from_slice(&number.to_be_bytes());
            }
        }
        let batch: [&[u8]; BATCH] = std::array::from_fn(|index| packets[index].as_slice());
        socket.send(&batch)?;
        sent += BATCH as u64;
        let due = sent as f64 * PAYLOAD as f64 * 8e-9 / gb_s;
        let ahead = due.min(seconds) - begin.elapsed().as_secs_f64();
        if ahead > 0.0 {
            thread::sleep(Duration::from_secs_f64(ahead));
        }
    }
    Ok((sent, begin.elapsed().as_secs_f64()))
}
