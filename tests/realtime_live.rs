//! Receiving packets does not allocate, nor do restarts, gaps and readers that are late. Reading voltages and sending do not
//! allocate for a packet.

#[path = "common/counting.rs"]
mod counting;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "common/memory.rs"]
mod memory;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "common/random.rs"]
mod random;

use counting::{Counting, assert_quiet, requests_during};
use sidereal::live::declared::{Declaration, Declared};
use sidereal::live::heaps::{Heaps, ItemMap};
use sidereal::live::packet::{Format, Values};
use sidereal::live::spead::{Flavour, Item, Packetizer, Repeat};
use sidereal::live::vdif::{Frames, Thread};
use sidereal::live::window::{Options, Ready, Window};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Receives all packets three times, which restarts twice, and gives each chunk back when the next one is taken.
fn receive(format: &mut impl Format, packets: &[Vec<u8>]) {
    let shape = format.shape();
    let options = Options { jump: 64, ..Options::new(4, 3) };
    let mut window = Window::with_buffers(shape, options, 5).unwrap();
    let mut held = None;
    assert_quiet("window", 0, 3, || {
        for packet in packets {
            window.receive(format, packet);
            window.receive(format, &packet[..packet.len() - 1]);
            while let Some(ready) = window.take() {
                if let Ready::Chunk(chunk) = ready
                    && let Some(before) = held.replace(chunk)
                {
                    window.recycle(before).expect("a chunk of this window");
                }
            }
        }
    });
    window.finish();
    assert_eq!(window.totals().streams, 3);
    assert!(window.counts().iter().all(|c| c.received > 300 && c.missing > 0 && c.overrun == 0));
}

#[test]
fn receiving_asks_for_no_memory() {
    assert!(requests_during(|| drop(vec![0u8; 64])) > 0, "the counter counts");

    let counters = || (0..200_u64).filter(|counter| counter % 17 != 3);
    let mut declared = Declared::new(Declaration::grex()).unwrap();
    let packet = |counter| {
        let mut packet = vec![5; 8200];
        declared.write_header(&mut packet, 0, counter).unwrap();
        packet
    };
    let packets: Vec<_> = counters().map(packet).collect();
    receive(&mut declared, &packets);

    let thread = Thread { station: 0x4161, thread: 0 };
    let mut frames = Frames::new(sidereal::live::vdif::Options {
        numbered: true,
        threads: vec![thread],
        payload_bytes: 64,
        frames_per_s: 25,
        zero_byte: 0x80,
    })
    .unwrap();
    let frame = |counter: u64| {
        let words = [
            (counter / 25) as u32,
            40 << 24 | (counter % 25) as u32,
            96 / 8,
            1 << 26 | 0x4161,
            0,
            0,
            0,
            0,
        ];
        let header = words.iter().flat_map(|word| word.to_le_bytes());
        counter.to_le_bytes().into_iter().chain(header).chain([9; 64]).collect::<Vec<u8>>()
    };
    receive(&mut frames, &counters().map(frame).collect::<Vec<_>>());

    let mut heaps =
        Heaps::new(ItemMap::meerkat_f_engine(1, Values::from(0, 1), 4, 2, 128)).unwrap();
    let mut packets = Vec::new();
    let mut divider = Packetizer::new(Flavour::BITS_48, 16, Repeat::First).unwrap();
    for counter in counters() {
        let items = [Item::immediate(0x1600, counter * 256), Item::at(0x4300, 0)];
        let mut keep = |packet: &[u8]| {
            packets.push(packet.to_vec());
            Ok(())
        };
        divider.send(counter, &items, &[3; 32], &mut keep).unwrap();
    }
    receive(&mut heaps, &packets);

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        reading::reads_ask_for_no_memory();
        sending::longer_recordings_ask_for_no_more_memory();
    }
}

/// Readers, counted in the same test.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod reading {
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use sidereal::io::voltages::{VoltageHeader, VoltageSource};
    use sidereal::live::declared::{Axis, Declaration, Declared, Extent};
    use sidereal::live::description::{Description, Packets};
    use sidereal::live::header::Content;
    use sidereal::live::joined::JoinedVoltages;
    use sidereal::live::packet::{Format, Values};
    use sidereal::live::socket::{Options, Sender};
    use sidereal::live::source::{Live, Observation};
    use sidereal::voltage::VoltageEncoding;

    use super::counting::assert_quiet;

    /// Packets of each antenna for a read, of 16 samples.
    const PACKETS: u64 = 64;

    /// Sends the packets of a read of two streams, of a band each, and reads them, again and again.
    pub(super) fn reads_ask_for_no_memory() {
        let declaration = Declaration::snap(2, Values { first: 0, step: 256, count: 1 });
        let mut axes = vec![Extent::new(Axis::Antenna, 2)];
        axes.extend_from_slice(&declaration.axes);
        let declared = Declared::new(declaration).unwrap();
        let packets = Packets::Declared(declared.clone());
        let step = packets.shape().step;
        let lives = [1000e6, 1256e6].map(|first_hz| {
            let centres = (0..256).map(|channel| first_hz + f64::from(channel) * 1e6).collect();
            let mut header = VoltageHeader::new(centres, 1e-4, VoltageEncoding::Complex4);
            (header.antennas, header.polarizations) = (2, 2);
            let content = Content::Voltages(header);
            let description = Description::new(content, packets.clone(), &axes).unwrap();
            let options = Options::new("127.0.0.1:0".parse().unwrap());
            Live::described(Path::new("site.toml"), &[options], &description).unwrap()
        });
        let mut senders = lives.each_ref().map(|live| {
            let port = live.port().unwrap();
            Sender::new(format!("127.0.0.1:{port}").parse().unwrap(), None).unwrap()
        });
        let header_bytes = declared.declaration().header_bytes;
        let mut packet = vec![3; header_bytes + declared.shape().block_bytes];
        let mut next = 0;
        let mut send = || {
            for _ in 0..PACKETS {
                for source in 0..2 {
                    declared.write_header(&mut packet, source, next).unwrap();
                    senders.iter_mut().for_each(|sender| sender.send(&[&packet]).unwrap());
                }
                next += step;
                // A loaded machine must not lose packets in the kernel's buffer.
                thread::sleep(Duration::from_micros(200));
            }
        };
        // Ahead of the reads, so that a chunk need not be whole to be read.
        (0..2).for_each(|_| send());
        let end = Instant::now() + Duration::from_secs(60);
        let mut open = |number: usize| {
            let observation = lives[number].resume(Box::new(move || Instant::now() < end))?;
            let Observation::Voltages(voltages) = observation else { panic!("spectra") };
            Ok(voltages)
        };
        let mut source = JoinedVoltages::open(2, &mut open).unwrap();
        assert_eq!(source.header().coarse_channels(), 512);
        let mut block = source.header().block(16 * PACKETS as usize);
        // Counters are published 10 times a second; the first time asks for their memory.
        assert_quiet("reads of voltages", 24, 16, || {
            send();
            assert_eq!(source.read(&mut block).unwrap(), 16 * PACKETS as usize);
            let is_filled =
                |stream: usize| block.voltages().row(stream).iter().all(|byte| *byte == 3);
            assert!((0..2048).all(is_filled));
        });
    }
}

/// Senders, counted in the same test: the counter is that of the whole program.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sending {
    use sidereal::live::send::{Monitor, Options, Recording, send_packets};

    use super::counting::requests_during;
    use super::memory::{Spectra, Streams};

    struct Silent;

    impl Monitor for Silent {
        fn stops(&mut self) -> bool {
            false
        }
    }

    /// Requests while a recording is sent, and its packets.
    fn requests(recording: Recording) -> [usize; 2] {
        let mut options = Options::default();
        options.rate = None;
        options.packet_bytes = 1024;
        (options.impairments.loss, options.impairments.duplicate) = (0.1, 0.1);
        let mut packets = 0;
        let mut put = |batch: &[&[u8]]| {
            packets += batch.len();
            Ok(())
        };
        let mut reopen = || panic!("it is sent once");
        let count = requests_during(|| {
            send_packets(recording, &mut reopen, &options, &mut put, &mut Silent).unwrap();
        });
        [count, packets]
    }

    pub(super) fn longer_recordings_ask_for_no_more_memory() {
        let spectra = |times| Spectra::new(256, times, 1e-3, 5).recording();
        let voltages = |times| Streams::new(2, 8, times, 5).recording();
        for make in [&spectra as &dyn Fn(usize) -> Recording, &voltages] {
            let [short, long] = [2000, 60_000].map(|times| requests(make(times)));
            assert!(long[1] > short[1] + 1000, "{short:?}, {long:?}");
            assert_eq!(short[0], long[0]);
        }
    }
}
