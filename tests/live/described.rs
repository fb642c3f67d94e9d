//! Streams with a description: packets without a header of their own return as the voltages and spectra that were sent.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::Duration;

use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::live::clock::Clock;
use sidereal::live::cores::Cores;
use sidereal::live::declared::{Axis, Declaration, Declared, Extent, Field};
use sidereal::live::description::{Description, Packets};
use sidereal::live::header::Content;
use sidereal::live::heaps::{Heaps, ItemMap};
use sidereal::live::packet::{Format, Values};
use sidereal::live::socket::{Options, Sender};
use sidereal::live::source::{Live, LiveVoltages, Observation};
use sidereal::live::spead::{Flavour, Item, Packetizer, Repeat};
use sidereal::sample::Encoding;
use sidereal::units::{Band, Epoch};
use sidereal::voltage::VoltageEncoding;

use crate::random::Random;

const TSAMP_S: f64 = 1e-4;
pub(crate) const SYNC: Epoch = Epoch { day: 60_000, seconds: 5.0 };

/// A way to send blocks: the format, the axes of its sources and of its payload.
pub(crate) struct Case {
    pub(crate) packets: Packets,
    axes: Vec<Extent>,
    pub(crate) header: VoltageHeader,
    pub(crate) blocks: u64,
}

fn header(antennas: usize, polarizations: usize, channels: usize) -> VoltageHeader {
    let centres = (0..channels).map(|channel| 1e9 + channel as f64 * 1e6).collect();
    let mut header = VoltageHeader::new(centres, TSAMP_S, VoltageEncoding::Complex4);
    (header.antennas, header.polarizations) = (antennas, polarizations);
    header
}

fn declared(
    declaration: Declaration,
    outer: &[Extent],
    header: VoltageHeader,
    blocks: u64,
) -> Case {
    let axes = outer.iter().chain(&declaration.axes).copied().collect();
    let packets = Packets::Declared(Declared::new(declaration).unwrap());
    Case { packets, axes, header, blocks }
}

pub(crate) fn cases() -> Vec<Case> {
    let values = |step, count| Values { first: step, step, count };
    let antennas = |count| Extent::new(Axis::Antenna, count);
    let channels = |count| Extent::new(Axis::Channel, count);
    let mut grex = header(1, 2, 2048);
    grex.encoding = VoltageEncoding::Complex8;
    let mut wrapping = Declaration::chips(4, 2, Values::from(9, 1));
    wrapping.sequence = Field::big(8, 8).part(3, 20);
    let mut feng = header(2, 2, 8);
    feng.encoding = VoltageEncoding::Complex8;
    let map = ItemMap::meerkat_f_engine(2, values(4, 2), 4, 16, 8192);
    vec![
        declared(
            Declaration::snap(2, values(256, 2)),
            &[antennas(2), channels(2)],
            header(2, 2, 512),
            40,
        ),
        declared(
            Declaration::snap2(6, 4, values(6, 2), Values { first: 0, step: 4, count: 3 }),
            &[antennas(3), channels(2)],
            header(6, 2, 12),
            300,
        ),
        declared(wrapping, &[antennas(2)], header(32, 2, 4), 700),
        declared(Declaration::grex(), &[], grex, 50),
        Case {
            packets: Packets::Heaps(Heaps::new(map).unwrap()),
            axes: vec![
                antennas(2),
                channels(2),
                channels(4),
                Extent::new(Axis::Time, 16),
                Extent::new(Axis::Polarization, 2),
            ],
            header: feng,
            blocks: 60,
        },
    ]
}

/// A byte of a sample.
pub(crate) fn byte(stream: usize, time: u64, part: usize) -> u8 {
    let sum = stream as u64 * 7919 + time * 104_729 + part as u64 * 31;
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Case {
    pub(crate) fn sources(&self) -> usize {
        self.packets.shape().sources
    }

    pub(crate) fn times(&self) -> u64 {
        let time = self.axes.iter().find(|extent| extent.axis == Axis::Time);
        time.map_or(1, |extent| extent.count as u64)
    }

    pub(crate) fn description(&self) -> Description {
        let shape = self.packets.shape();
        let rate = shape.step as f64 / (self.times() as f64 * TSAMP_S);
        let content = Content::Voltages(self.header.clone());
        Description::new(content, self.packets.clone(), &self.axes)
            .unwrap()
            .with_clock(Clock::new(SYNC, rate, None).unwrap())
            .with_idle(Duration::from_millis(1500))
            .unwrap()
    }

    /// Stream and time of each sample of a block of all sources, in the order of the bytes.
    pub(crate) fn places(&self) -> Vec<[usize; 2]> {
        let count = self.axes.iter().map(|extent| extent.count).product();
        let has_polarizations = self.axes.iter().any(|e| e.axis == Axis::Polarization);
        let (channels, polarizations) = (self.header.coarse_channels(), self.header.polarizations);
        let place = |index: usize| {
            let (mut rest, mut indices, mut sizes) = (index, [0; 4], [1; 4]);
            for extent in self.axes.iter().rev() {
                let axis = extent.axis as usize;
                indices[axis] += rest % extent.count * sizes[axis];
                (rest, sizes[axis]) = (rest / extent.count, sizes[axis] * extent.count);
            }
            let [mut antenna, channel, mut polarization, time] = indices;
            if !has_polarizations {
                (antenna, polarization) = (antenna / polarizations, antenna % polarizations);
            }
            [(antenna * channels + channel) * polarizations + polarization, time]
        };
        (0..count).map(place).collect()
    }

    /// Sends blocks from a counter on, without those that are lost (block, source).
    fn send(&self, socket: &mut Sender, first: u64, lost: &BTreeSet<(u64, usize)>) {
        let (shape, places) = (self.packets.shape(), self.places());
        let bytes = self.header.encoding.sample_bits() / 8;
        for block in 0..self.blocks {
            let counter = first + block * shape.step;
            let counter = shape.period.map_or(counter, |period| counter % period);
            let whole: Vec<u8> = places
                .iter()
                .flat_map(|[stream, time]| {
                    let time = block * self.times() + *time as u64;
                    (0..bytes).map(move |part| byte(*stream, time, part))
                })
                .collect();
            for (source, payload) in whole.chunks_exact(shape.block_bytes).enumerate() {
                if lost.contains(&(block, source)) {
                    continue;
                }
                match &self.packets {
                    Packets::Declared(declared) => {
                        let header_bytes = declared.declaration().header_bytes;
                        let mut packet = vec![0; header_bytes];
                        packet.extend_from_slice(payload);
                        declared.write_header(&mut packet, source, counter).unwrap();
                        socket.send(&[&packet]).unwrap();
                    }
                    Packets::Heaps(_) => {
                        let items = [
                            Item::immediate(0x1600, counter),
                            Item::immediate(0x4101, source as u64 / 2),
                            Item::immediate(0x4103, 4 + 4 * (source as u64 % 2)),
                            Item::at(0x4300, 0),
                        ];
                        let number = 1 + block * self.sources() as u64 + source as u64;
                        let mut divided =
                            Packetizer::new(Flavour::BITS_48, 96, Repeat::All).unwrap();
                        divided.send(number, &items, payload, &mut |p| socket.send(&[p])).unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
            // A loaded machine must not lose packets in the kernel's buffer.
            if block % 8 == 7 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Reads an observation to its end, and compares it with the blocks that were sent and arrived; the first has the counter
    /// `first`.
    pub(crate) fn check(
        &self,
        mut source: LiveVoltages,
        first: u64,
        blocks: Range<u64>,
        lost: &BTreeSet<(u64, usize)>,
    ) {
        let times = ((blocks.end - blocks.start) * self.times()) as usize;
        let shape = self.packets.shape();
        let rate = shape.step as f64 / (self.times() as f64 * TSAMP_S);
        let passed = source.header().start.seconds_since(&SYNC) - first as f64 / rate;
        assert!(passed.abs() < 1e-6, "{passed}");
        let mut block = source.header().block(times + 16);
        assert_eq!(source.read(&mut block).unwrap(), times);
        let mut is_lost = vec![vec![false; times]; source.header().streams()];
        let places = self.places();
        let per_source = places.len() / shape.sources;
        for (number, own) in lost.iter().filter(|(number, _)| blocks.contains(number)) {
            for [stream, time] in &places[own * per_source..][..per_source] {
                let number = number - blocks.start;
                is_lost[*stream][(number * self.times()) as usize + time] = true;
            }
        }
        let mut flagged = vec![vec![false; times]; source.header().streams()];
        for flag in block.flags() {
            for row in &mut flagged[flag.streams.clone()] {
                row[flag.start as usize..(flag.start + flag.times) as usize].fill(true);
            }
        }
        assert!(flagged == is_lost);
        let bytes = self.header.encoding.sample_bits() / 8;
        for (stream, is_lost) in is_lost.iter().enumerate() {
            let row = block.voltages().row(stream);
            for (time, is_lost) in is_lost.iter().enumerate() {
                for part in 0..bytes {
                    let whole = blocks.start * self.times() + time as u64;
                    let sent = if *is_lost { 0 } else { byte(stream, whole, part) };
                    assert_eq!(row[time * bytes + part], sent, "{stream} {time}");
                }
            }
        }
    }
}

pub(crate) fn open(description: &Description) -> (Live, Vec<Sender>) {
    // The system chooses the ports.
    let socket = Options { buffer_bytes: 16 << 20, ..Options::new("127.0.0.1:0".parse().unwrap()) };
    let live = Live::described(Path::new("site.toml"), &[socket], description).unwrap();
    let port = live.port().unwrap();
    let sender = Sender::new(format!("127.0.0.1:{port}").parse().unwrap(), None).unwrap();
    (live, vec![sender])
}

pub(crate) fn voltages(live: &Live) -> LiveVoltages {
    match live.next(Box::new(|| true)).unwrap() {
        Observation::Voltages(voltages) => voltages,
        Observation::Spectra(_) => panic!("spectra"),
    }
}

#[test]
fn packets_without_a_header_return_as_the_samples_sent() {
    let mut random = Random::new(7);
    for (number, case) in cases().into_iter().enumerate() {
        let mut lost = BTreeSet::new();
        for block in 1..case.blocks - 1 {
            for source in 0..case.sources() {
                if random.below(12) == 0 {
                    lost.insert((block, source));
                }
            }
        }
        // A stretch that all sources lose.
        for block in 11..14 {
            lost.extend((0..case.sources()).map(|source| (block, source)));
        }
        let (live, mut senders) = open(&case.description());
        let shape = case.packets.shape();
        // The counter of fewer bits wraps in the middle.
        let first = match shape.period {
            Some(period) if period <= 1 << 20 => period - case.blocks / 2 * shape.step,
            _ => 1_000_000 * shape.step,
        };
        thread::scope(|scope| {
            let sender = &mut senders[0];
            let (case, lost) = (&case, &lost);
            scope.spawn(move || case.send(sender, first, lost));
            let threads = Threads::new([1, 2, 5][number % 3]);
            let source = voltages(&live).with_threads(threads);
            case.check(source, first, 0..case.blocks, lost);
        });
        let counters = live.shared_statistics().unwrap().lock().unwrap().clone();
        assert_eq!(counters.sum(|counts| counts.missing), lost.len() as u64, "case {number}");
        assert!(counters.clock.is_some_and(|clock| clock.worst_ns < -1_000_000_000));
    }
}

#[test]
fn a_sender_that_restarts_begins_another_observation() {
    let mut case = cases().remove(1);
    case.blocks = 9000;
    let (live, mut senders) = open(&case.description());
    let none = BTreeSet::new();
    thread::scope(|scope| {
        let (sender, case, none) = (&mut senders[0], &case, &none);
        scope.spawn(move || {
            case.send(sender, 5_000_000, none);
            case.send(sender, 3, none);
        });
        let mut first = voltages(&live);
        let mut block = first.header().block(10_000);
        assert_eq!(first.read(&mut block).unwrap(), 9000);
        drop(first);
        let mut second = voltages(&live);
        // The packets that confirm the restart are lost.
        let late_s = second.header().start.seconds_since(&SYNC);
        let late = (late_s / TSAMP_S).round() as usize - 3;
        assert!((1..9000).contains(&late), "{late}");
        assert_eq!(second.read(&mut block).unwrap(), 9000 - late);
        let row = block.voltages().row(5);
        (0..9000 - late).for_each(|time| assert_eq!(row[time], byte(5, (time + late) as u64, 0)));
    });
}

#[test]
fn spectra_of_groups_of_channels_are_joined_and_the_lost_filled() {
    let declaration = Declaration {
        axes: vec![Extent::new(Axis::Time, 4), Extent::new(Axis::Channel, 8)],
        encoding: VoltageEncoding::Real8,
        step: 4,
        ..Declaration::chips(1, 1, Values { first: 0, step: 8, count: 3 })
    };
    let declaration = Declaration {
        sources: declaration.sources[1..].to_vec(),
        constants: Vec::new(),
        ..declaration
    };
    let mut axes = vec![Extent::new(Axis::Channel, 3)];
    axes.extend(&declaration.axes);
    let header = FilterbankHeader {
        path: "site.toml".into(),
        format: "packets",
        source_name: String::new(),
        telescope: String::new(),
        ra_deg: None,
        dec_deg: None,
        beam: None,
        tstart_mjd: 0.0,
        tsamp_s: 1e-3,
        band: Band::uniform(1500.0, -1.0, 24).unwrap(),
        encoding: Encoding::U8,
        recorded_bits: 8,
        recorded_polarizations: 1,
        times: None,
    };
    let format = Declared::new(declaration).unwrap();
    let packets = Packets::Declared(format.clone());
    let content = Content::Spectra(header);
    let description = Description::new(content, packets, &axes)
        .unwrap()
        .with_clock(Clock::new(SYNC, 1e3, None).unwrap());
    let (live, mut senders) = open(&description);
    for block in 0..100 {
        for group in 0..3 {
            if block == 20 && group == 1 {
                continue;
            }
            let rows = (0..4).flat_map(|time| (0..8).map(move |c| (time, c)));
            let sample = |(time, channel)| byte(8 * group + channel, 4 * block + time, 0);
            let mut packet = vec![0; 16];
            packet.extend(rows.map(sample));
            format.write_header(&mut packet, group, 8000 + 4 * block).unwrap();
            senders[0].send(&[&packet]).unwrap();
        }
    }
    let Observation::Spectra(mut spectra) = live.next(Box::new(|| true)).unwrap() else {
        panic!("voltages");
    };
    let start = Epoch::from_mjd(spectra.header().tstart_mjd);
    assert!((start.seconds_since(&SYNC) - 8.0).abs() < 1e-4);
    let mut rows = vec![0; 500 * 24];
    assert_eq!(spectra.read(&mut rows).unwrap(), 400);
    let gaps: Vec<_> = spectra.gaps().iter().map(|gap| (gap.start_time, gap.times)).collect();
    assert_eq!(gaps, [(80, 4)]);
    for (time, row) in rows.chunks_exact(24).take(400).enumerate() {
        if !(80..84).contains(&time) {
            let sent: Vec<u8> = (0..24).map(|channel| byte(channel, time as u64, 0)).collect();
            assert_eq!(row, sent, "{time}");
        }
    }
}

/// A sample of 10 bits.
fn ten_bits(stream: usize, time: u64) -> i16 {
    i16::from_le_bytes([byte(stream, time, 0), byte(stream, time, 1)]) >> 6
}

#[test]
fn samples_of_ten_bits_keep_their_width() {
    let mut header = header(1, 2, 1);
    header.encoding = VoltageEncoding::Real10;
    let heaps = Heaps::new(ItemMap::meerkat_digitiser()).unwrap();
    let axes = [Extent::new(Axis::Polarization, 2), Extent::new(Axis::Time, 4096)];
    let packets = Packets::Heaps(heaps);
    let describe = |header: &VoltageHeader, axes: &[Extent]| {
        Description::new(Content::Voltages(header.clone()), packets.clone(), axes)
    };
    let bytes = VoltageHeader { encoding: VoltageEncoding::Real8, ..header.clone() };
    assert!(describe(&bytes, &axes).unwrap_err().to_string().contains("10240"));
    let inner = [axes[1], axes[0]];
    assert!(describe(&header, &inner).unwrap_err().to_string().contains("time as the last axis"));
    let clock = Clock::new(SYNC, 1.0 / TSAMP_S, None).unwrap();
    let (live, mut senders) = open(&describe(&header, &axes).unwrap().with_clock(clock));
    let lost = [(3, 1), (9, 0), (9, 1), (10, 0)];
    for block in 0..24 {
        for stream in 0..2 {
            if lost.contains(&(block, stream)) {
                continue;
            }
            let times = 4096 * block..4096 * (block + 1);
            // Four samples are 40 bits, the first ones highest.
            let samples: Vec<i16> = times.map(|time| ten_bits(stream, time)).collect();
            let bits = |four: &[i16]| {
                four.iter().fold(0, |bits, sample| bits << 10 | (*sample as u64 & 0x3ff))
            };
            let payload: Vec<u8> =
                samples.chunks(4).flat_map(|four| bits(four).to_be_bytes()[3..].to_vec()).collect();
            let items = [
                Item::immediate(0x1600, 8192 + 4096 * block),
                Item::immediate(0x3101, 0xab_0000 + stream as u64),
                Item::immediate(0x3102, 0),
                Item::at(0x3300, 0),
            ];
            let mut divided = Packetizer::new(Flavour::BITS_48, 5120, Repeat::All).unwrap();
            let number = 1 + 2 * block + stream as u64;
            divided.send(number, &items, &payload, &mut |p| senders[0].send(&[p])).unwrap();
        }
    }
    let mut source = voltages(&live);
    assert!((source.header().start.seconds_since(&SYNC) - 8192.0 * TSAMP_S).abs() < 1e-6);
    let (mut time, mut flagged) = (0, vec![vec![false; 24 * 4096]; 2]);
    for length in [1, 7, 4088, 5000, 3, 40_000].into_iter().cycle() {
        let mut block = source.header().block(length);
        let read = source.read(&mut block).unwrap();
        for stream in 0..2 {
            for place in 0..read {
                let at = time + place as u64;
                let sent =
                    if lost.contains(&(at / 4096, stream)) { 0 } else { ten_bits(stream, at) };
                let found = block.voltages().value(stream, place).re;
                assert_eq!(found, f64::from(sent), "{stream} {at}");
            }
        }
        for flag in block.flags() {
            let first = (time + flag.start) as usize;
            for row in &mut flagged[flag.streams.clone()] {
                row[first..first + flag.times as usize].fill(true);
            }
        }
        time += read as u64;
        if read < block.capacity() {
            break;
        }
    }
    assert_eq!(time, 24 * 4096);
    for (stream, flagged) in flagged.iter().enumerate() {
        for (at, flagged) in flagged.iter().enumerate() {
            assert_eq!(*flagged, lost.contains(&(at as u64 / 4096, stream)), "{stream} {at}");
        }
    }
}

#[test]
fn several_sockets_make_one_stream() {
    let case = cases().remove(0);
    let socket = Options { buffer_bytes: 16 << 20, ..Options::new("127.0.0.1:0".parse().unwrap()) };
    let other = Options::new("127.0.0.2:0".parse().unwrap());
    let path = Path::new("site.toml");
    assert!(Live::described(path, &[], &case.description()).is_err());
    // The core on which this test happens to run is one that it may use.
    let core = rustix::thread::sched_getcpu();
    let description = case.description().with_cores(Cores::new(&[core]).unwrap());
    let live = Live::described(path, &[other, socket], &description).unwrap();
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten().map(|thread| thread.path());
    let read = |path: &Path, name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    let is_pinned = |thread: &Path| {
        let allowed = format!("Cpus_allowed_list:\t{core}\n");
        read(thread, "comm") == "capture\n" && read(thread, "status").contains(&allowed)
    };
    assert!(threads.into_iter().any(|thread| is_pinned(&thread)));
    let port = live.port().unwrap();
    let mut sender = Sender::new(format!("127.0.0.2:{port}").parse().unwrap(), None).unwrap();
    let none = BTreeSet::new();
    case.send(&mut sender, 160, &none);
    case.check(voltages(&live), 160, 0..case.blocks, &none);
}
