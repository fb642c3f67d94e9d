//! Sockets on the loopback interface: every packet arrives or is counted as dropped. Skipped where sockets are not allowed.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use crate::skip::skip;
use sidereal::Error;
use sidereal::live::declared::{Declaration, Declared};
use sidereal::live::packet::Format;
use sidereal::live::socket::{Options, Receiver, Sender};
use sidereal::live::window::{Options as Sizes, Ready, Window};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a receiver and a sender to it; says so and returns nothing where the system refuses them.
fn pair(options: &Options) -> Option<(Receiver, Sender)> {
    let made = Receiver::new(options).and_then(|receiver| {
        let address = *options.address.ip();
        let target = SocketAddrV4::new(address, receiver.port()?);
        Ok((receiver, Sender::new(target, options.interface.as_deref())?))
    });
    match made {
        Ok(pair) => Some(pair),
        Err(Error::Unavailable { what, why }) => {
            skip("sockets", &format!("{what}: {why}"));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn loopback() -> Options {
    Options::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Receives until nothing more comes; returns the packets.
fn drain(receiver: &mut Receiver, timeout: Duration) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        match receiver.receive(timeout).unwrap() {
            0 => return all,
            count => all.extend((0..count).map(|index| receiver.packet(index).to_vec())),
        }
    }
}

#[test]
fn packets_arrive_as_they_were_sent() {
    let Some((mut receiver, mut sender)) = pair(&loopback()) else { return };
    let packets: Vec<Vec<u8>> = (0..150_u8).map(|k| vec![k; 1 + 60 * usize::from(k)]).collect();
    sender.send(&packets.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    let mut received = Vec::new();
    while received.len() < packets.len() {
        let count = receiver.receive(TIMEOUT).unwrap();
        assert!(count > 0, "{} packets came", received.len());
        received.extend((0..count).map(|index| receiver.packet(index).to_vec()));
    }
    assert_eq!(received, packets);
    assert_eq!(receiver.drops(), 0);
    assert_eq!(receiver.receive(Duration::from_millis(5)).unwrap(), 0);
    assert_eq!(receiver.advice().is_some(), receiver.granted_bytes() < loopback().buffer_bytes);
}

#[test]
fn packets_of_the_same_length_stay_packets() {
    let Some((mut receiver, mut sender)) = pair(&loopback()) else { return };
    let lengths = [5, 5, 5, 0, 0, 8264, 8264, 8264, 8264, 8264, 8264, 8264, 8264, 8264, 1, 1472];
    let length = |k: usize| if k < 100 { 1472 } else { lengths[k % lengths.len()] };
    let packets: Vec<Vec<u8>> = (0..300).map(|k| vec![k as u8; length(k)]).collect();
    sender.send(&packets.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    assert_eq!(drain(&mut receiver, Duration::from_millis(300)), packets);
}

/// Sends packets of these lengths in turn to a small buffer; returns how many arrive and how many messages the kernel counts as
/// dropped.
fn dropped(lengths: &[usize]) -> Option<[u64; 2]> {
    let options = Options { buffer_bytes: 1 << 16, ..loopback() };
    let (mut receiver, mut sender) = pair(&options)?;
    let packets: Vec<Vec<u8>> = lengths.iter().map(|length| vec![1; *length]).collect();
    let all: Vec<&[u8]> = packets.iter().map(Vec::as_slice).cycle().take(50).collect();
    for _ in 0..10 {
        sender.send(&all).unwrap();
    }
    let mut received = drain(&mut receiver, Duration::from_millis(200)).len() as u64;
    // The counter comes with a packet that arrives after the drops.
    sender.send(&all[..1]).unwrap();
    received += drain(&mut receiver, Duration::from_millis(200)).len() as u64;
    assert!(received < 500 && receiver.drops() > 0);
    Some([received, receiver.drops()])
}

#[test]
fn what_the_kernel_drops_is_counted() {
    // Packets of different lengths are messages of their own.
    let Some([received, drops]) = dropped(&[8000, 7999]) else { return };
    assert_eq!(received + drops, 501);
    let Some([received, drops]) = dropped(&[8000]) else { return };
    // At most eight packets of 8000 bytes fit a message.
    assert!((received + drops..=received + 8 * drops).contains(&501), "{received}, {drops}");
}

#[test]
fn long_packets_are_cut_and_so_of_a_wrong_length() {
    let options = Options { packet_bytes: 100, ..loopback() };
    let Some((mut receiver, mut sender)) = pair(&options) else { return };
    sender.send(&[&[1; 300], &[2; 100]]).unwrap();
    let lengths: Vec<usize> =
        drain(&mut receiver, Duration::from_millis(200)).iter().map(Vec::len).collect();
    assert_eq!(lengths, [101, 100]);
}

#[test]
fn a_group_is_joined_on_an_interface_by_name() {
    let address = SocketAddrV4::new(Ipv4Addr::new(239, 255, 71, 48), 0);
    let options = Options { interface: Some("lo".into()), ..Options::new(address) };
    let Some((mut receiver, mut sender)) = pair(&options) else { return };
    if let Err(error) = sender.send(&[&[7; 64]]) {
        skip("multicast", &error.to_string());
        return;
    }
    let count = receiver.receive(TIMEOUT).unwrap();
    if count == 0 {
        skip("multicast", "the loopback interface carries none here");
        return;
    }
    assert_eq!(receiver.packet(0), [7; 64]);
    let unknown = Options { interface: Some("no such".into()), ..Options::new(address) };
    assert!(Receiver::new(&unknown).unwrap_err().to_string().contains("no such"));
}

#[test]
fn a_stream_through_a_socket_is_whole() {
    let Some((mut receiver, mut sender)) = pair(&loopback()) else { return };
    let mut format = Declared::new(Declaration::grex()).unwrap();
    let mut window = Window::with_buffers(format.shape(), Sizes::new(8, 2), 4).unwrap();
    let mut blocks = 0;
    for batch in 0..20_u64 {
        let packet = |counter| {
            let mut packet = vec![counter as u8; 8200];
            format.write_header(&mut packet, 0, counter).unwrap();
            packet
        };
        let packets: Vec<_> = (batch * 16..batch * 16 + 16).map(packet).collect();
        sender.send(&packets.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let mut received = 0;
        while received < packets.len() {
            let count = receiver.receive(TIMEOUT).unwrap();
            assert!(count > 0);
            (0..count).for_each(|index| window.receive(&mut format, receiver.packet(index)));
            received += count;
        }
        while let Some(ready) = window.take() {
            let Ready::Chunk(chunk) = ready else { panic!("{ready:?}") };
            for (block, bytes) in chunk.bytes().chunks(8192).enumerate() {
                assert!(bytes.iter().all(|byte| *byte == (chunk.first + block as u64) as u8));
            }
            blocks += chunk.blocks;
            window.recycle(chunk).unwrap();
        }
    }
    assert_eq!((blocks, window.counts()[0].missing), (320, 0));
}
