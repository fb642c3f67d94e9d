//! Tests of rings made by hand as earlier versions of PSRDADA make them, and of damaged ones.

use std::time::Duration;

use super::buffer::Buffer;
use super::system::{Change, Segment, Semaphores};
use super::*;

const LIMIT: Duration = Duration::from_millis(5);

/// A half of a ring made by hand: byte offsets and numbers of semaphores are those of PSRDADA's headers.
struct Half {
    sync: Segment,
    blocks: Vec<Segment>,
    reader: Semaphores,
    base: usize,
}

/// A semaphore that can be lowered at once, or raised.
fn change(set: &Semaphores, number: u16, by: i16) {
    let done = set.change(Change { number, by, undo: false }, Duration::ZERO).unwrap();
    assert!(done, "semaphore {number} cannot be changed by {by}");
}

impl Half {
    /// Makes one with blocks for one reader; `base` is 520 before 2017-07 and 528 since.
    fn create(key: u32, base: usize, blocks: usize, block_bytes: usize) -> Self {
        let sync = Segment::create(key, base + 5 * blocks).unwrap();
        let set =
            |at: usize, value: u64| sync.u64(at).store(value, std::sync::atomic::Ordering::SeqCst);
        let keys: Vec<u32> = (1..=9 + blocks as u32).map(|at| key + at * 0x1_0000).collect();
        for (at, key) in keys[..9].iter().enumerate() {
            sync.copy_in(4 * at, &key.to_ne_bytes());
        }
        set(40, blocks as u64);
        set(48, block_bytes as u64);
        sync.copy_in(248, &1_u32.to_ne_bytes());
        sync.copy_in(384, &[1; 8]);
        if base == 528 {
            sync.copy_in(520, &(-1_i32).to_ne_bytes());
        }
        let mut made = Vec::new();
        for (at, key) in keys[9..].iter().enumerate() {
            sync.copy_in(base + blocks + 4 * at, &key.to_ne_bytes());
            made.push(Segment::create(*key, block_bytes).unwrap());
        }
        let connect = Semaphores::create(keys[0], 2).unwrap();
        connect.set(0, 1).unwrap();
        connect.set(1, 1).unwrap();
        let reader = Semaphores::create(keys[1], 5).unwrap();
        for (number, value) in [(0, 8), (1, 8), (4, 1)] {
            reader.set(number, value).unwrap();
        }
        Self { sync, blocks: made, reader, base }
    }

    fn get(&self, at: usize) -> u64 {
        self.sync.u64(at).load(std::sync::atomic::Ordering::SeqCst)
    }

    fn set(&self, at: usize, value: u64) {
        self.sync.u64(at).store(value, std::sync::atomic::Ordering::SeqCst);
    }

    /// Starts a transfer as PSRDADA 1.0 does.
    fn start(&self) {
        change(&self.reader, 0, -1);
        let slot = (self.get(80) % 8) as usize;
        self.set(256 + 8 * slot, self.get(64));
        self.set(320 + 8 * slot, 0);
        if self.get(64) == 0 {
            self.sync.copy_in(384 + slot, &[0]);
        }
        self.sync.copy_in(72, &3_i32.to_ne_bytes());
    }

    /// Writes a block, and ends the transfer with it if `is_last`.
    fn write(&self, bytes: &[u8], is_last: bool) {
        let block = self.get(56) as usize % self.blocks.len();
        let mut count = [0];
        self.sync.copy_out(self.base + block, &mut count);
        if count[0] > 0 {
            change(&self.reader, 3, -1);
            count[0] -= 1;
        }
        self.set(56, self.get(56) + 1);
        self.blocks[block].copy_in(0, bytes);
        if is_last {
            change(&self.reader, 1, -1);
            let slot = (self.get(80) % 8) as usize;
            self.set(392 + 8 * slot, self.get(64));
            self.set(456 + 8 * slot, bytes.len() as u64);
            self.sync.copy_in(384 + slot, &[1]);
            self.set(80, self.get(80) + 1);
            self.sync.copy_in(72, &0_i32.to_ne_bytes());
        }
        self.sync.copy_in(self.base + block, &[count[0] + 1]);
        self.set(64, self.get(64) + 1);
        change(&self.reader, 2, 1);
    }

    /// Reads a block as PSRDADA 1.0 does; returns its bytes and whether the transfer ends with it.
    fn read(&self) -> (Vec<u8>, bool) {
        change(&self.reader, 2, -1);
        let slot = (self.get(184) % 8) as usize;
        let mut state = [0; 4];
        self.sync.copy_out(152, &mut state);
        if i32::from_ne_bytes(state) != 6 {
            self.set(88, self.get(256 + 8 * slot));
            self.sync.copy_in(152, &6_i32.to_ne_bytes());
            change(&self.reader, 0, 1);
        }
        let mut ended = [0];
        self.sync.copy_out(384 + slot, &mut ended);
        let block = self.get(88);
        let is_last = ended[0] != 0 && block == self.get(392 + 8 * slot);
        let memory = &self.blocks[block as usize % self.blocks.len()];
        let count = if is_last { self.get(456 + 8 * slot) as usize } else { memory.bytes() };
        let mut bytes = vec![0; count];
        memory.copy_out(0, &mut bytes);
        change(&self.reader, 3, 1);
        if is_last {
            self.sync.copy_in(152, &0_i32.to_ne_bytes());
            self.set(184, self.get(184) + 1);
            change(&self.reader, 1, 1);
        } else {
            self.set(88, block + 1);
        }
        (bytes, is_last)
    }
}

/// A ring made by hand, removed at the end.
struct Ring {
    key: Key,
    headers: Half,
    data: Half,
}

impl Ring {
    /// `at` tells the tests of a process apart.
    fn create(at: u32, base: usize) -> Self {
        let key = key(at);
        let headers = Half::create(key.headers().0, base, 8, 4096);
        Self { key, headers, data: Half::create(key.0, base, 3, 10) }
    }

    /// Writes a transfer as PSRDADA 1.0 does: all headers are one transfer.
    fn send(&self, header: &str, bytes: &[u8]) {
        if self.headers.get(64) == 0 {
            self.headers.start();
        }
        self.headers.write(&[header.as_bytes(), &vec![0; 4096 - header.len()]].concat(), false);
        self.data.start();
        let parts: Vec<&[u8]> = bytes.chunks(10).collect();
        for (at, part) in parts.iter().enumerate() {
            self.data.write(part, at + 1 == parts.len());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        destroy(self.key).unwrap();
    }
}

fn key(at: u32) -> Key {
    Key::new(0x5d0a_0002 + (std::process::id() % 0x7ff) * 32 + 2 * at).unwrap()
}

fn receive(reader: &mut Reader) -> Vec<u8> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4]);
    loop {
        match reader.read(&mut part, LIMIT).unwrap() {
            Received::Bytes(count) => bytes.extend_from_slice(&part[..count]),
            Received::End => return bytes,
            Received::Waiting => panic!("no end after {bytes:?}"),
        }
    }
}

fn source(reader: &mut Reader) -> Option<String> {
    let header = reader.header(LIMIT).unwrap()?;
    header.text("SOURCE").map(str::to_owned)
}

#[test]
fn rings_and_transfers_of_earlier_versions_are_read() {
    for (at, base) in [(0, 520), (1, 528)] {
        let ring = Ring::create(at, base);
        let mut reader = Reader::attach(ring.key, LIMIT).unwrap();
        for (name, bytes) in [("A", &b"0123456789abc"[..]), ("B", b"0123456789"), ("C", b"x")] {
            ring.send(&format!("HDR_SIZE 4096\nSOURCE {name}\n"), bytes);
            assert_eq!(source(&mut reader).as_deref(), Some(name));
            assert_eq!(receive(&mut reader), bytes);
        }
        let state = state(ring.key).unwrap();
        let is_new = state.data.generation == Generation::WithDevice;
        assert_eq!((state.data.transfers, is_new), (3, base == 528));
        assert!(repair(ring.key, false).unwrap().is_empty());
    }
}

#[test]
fn programs_of_earlier_versions_take_turns_with_ours() {
    let ring = Ring::create(2, 528);
    let header = |name: &str| format!("HDR_SIZE 4096\nSOURCE {name}\n");
    for round in 0..12 {
        // An old writer to our reader, which joins after an old reader.
        ring.send(&header("OLD"), b"0123456789abc");
        let mut reader = Reader::attach(ring.key, LIMIT).unwrap();
        assert_eq!(source(&mut reader).as_deref(), Some("OLD"), "{round}");
        assert_eq!(receive(&mut reader), b"0123456789abc");
        drop(reader);
        // Our writer to an old reader.
        let mut writer = Writer::attach(ring.key, LIMIT).unwrap();
        assert!(writer.begin(header("NEW").as_bytes(), LIMIT).unwrap());
        assert_eq!(writer.write(b"0123456789012345678", LIMIT).unwrap(), 19);
        assert!(writer.end(LIMIT).unwrap());
        drop(writer);
        let (found, is_last) = ring.headers.read();
        assert!(found.starts_with(header("NEW").as_bytes()) && is_last);
        assert_eq!(ring.data.read(), (b"0123456789".to_vec(), false));
        assert_eq!(ring.data.read(), (b"012345678".to_vec(), true));
        assert!(repair(ring.key, false).unwrap().is_empty(), "{round}");
        // The old writer starts its next transfer of headers.
        ring.headers.start();
    }
}

#[test]
fn a_reader_continues_the_transfer_that_an_old_one_left() {
    let ring = Ring::create(3, 520);
    ring.send("HDR_SIZE 4096\nSOURCE A\n", b"0123456789abcdefghijKLM");
    assert!(!ring.headers.read().1);
    assert_eq!(ring.data.read(), (b"0123456789".to_vec(), false));
    let mut reader = Reader::attach(ring.key, LIMIT).unwrap();
    assert_eq!(source(&mut reader).as_deref(), Some("A"));
    assert_eq!(receive(&mut reader), b"abcdefghijKLM");
}

#[test]
fn keys_are_hexadecimal() {
    assert_eq!("dada".parse::<Key>().unwrap(), Key::DEFAULT);
    assert_eq!("0xDADC".parse::<Key>().unwrap().to_string(), "dadc");
    for wrong in ["", "x", "+dada", "123456789", "0", "ffff", "10000", "0x", "-1"] {
        assert!(wrong.parse::<Key>().is_err(), "{wrong}");
    }
}

#[test]
fn sizes_that_contradict_each_other_are_errors() {
    let ring = Ring::create(4, 528);
    let data = Buffer::attach(ring.key, ring.key.path()).unwrap();
    for (at, wrong, right, field) in [
        (40, 0, 3, "nbufs"),
        (40, 4, 3, "nbufs"),
        (40, u64::MAX, 3, "nbufs"),
        (40, u64::MAX / 5 + 1, 3, "nbufs"),
        (48, 0, 10, "bufsz"),
        (48, u64::MAX, 10, "bufsz"),
        (48, 11, 10, "shmkey"),
    ] {
        data.poke(at, wrong);
        let error = state(ring.key).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("found"), "{error}");
        data.poke(at, right);
    }
    for (at, wrong, right, field) in [
        (248, 0, 1, "n_readers"),
        (248, 9, 1, "n_readers"),
        (520, 0, -1, "on_device_id"),
        (0, 77, ring.key.connect() as i32, "semkey_connect"),
        (4, 77, ring.key.reader(0) as i32, "semkey_data"),
    ] {
        data.poke_i32(at, wrong);
        let error = state(ring.key).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("found"), "{error}");
        data.poke_i32(at, right);
    }
    state(ring.key).unwrap();
}

#[test]
fn memory_of_other_programs_is_not_removed() {
    let key = key(5);
    let other = Segment::create(key.0, 600).unwrap();
    let found = destroy(key).unwrap_err().to_string();
    assert!(found.contains("nbufs"), "{found}");
    assert!(state(key).is_err() && other.state().unwrap().bytes == 600);
    other.remove().unwrap();
}

#[test]
fn damaged_ends_of_transfers_are_errors() {
    for (at, word, value, field) in
        [(6, 456, 11, "e_byte"), (7, 320, 4, "s_byte"), (8, 64, 900, "r_bufs")]
    {
        let ring = Ring::create(at, 528);
        ring.send("HDR_SIZE 4096\n", b"abc");
        ring.data.set(word, value);
        let mut reader = Reader::attach(ring.key, LIMIT).unwrap();
        let error = reader.read(&mut [0; 10], LIMIT).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("found"), "{error}");
    }
}

/// Random words: a linear congruential generator, of which the upper bits are used.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let mut word = || {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 32
        };
        word() << 32 | word()
    }
}

/// Whatever words the memory has, calls return in time and without a panic.
#[test]
fn random_words_never_panic() {
    let mut random = Random(7);
    for _ in 0..150 {
        let ring = Ring::create(9, 528);
        ring.send("HDR_SIZE 4096\nSOURCE A\n", b"0123456789abc");
        for _ in 0..1 + random.next() % 4 {
            let half = if random.next().is_multiple_of(2) { &ring.headers } else { &ring.data };
            // Counters and states, not the sizes.
            let words: Vec<usize> = (56..520).step_by(8).filter(|at| *at != 248).collect();
            let at = words[(random.next() % words.len() as u64) as usize];
            let value = match random.next() % 4 {
                0 => random.next() % 8,
                1 => u64::MAX - random.next() % 8,
                2 => 6 | 3 << 32,
                _ => random.next(),
            };
            half.set(at, value);
            half.sync.copy_in(half.base, &[(random.next() % 3) as u8]);
        }
        let _ = state(ring.key);
        if let Ok(mut reader) = Reader::attach(ring.key, LIMIT) {
            let _ = reader.header(LIMIT);
            let mut bytes = [0; 16];
            for _ in 0..4 {
                let _ = reader.read(&mut bytes, LIMIT);
            }
        }
        if let Ok(mut writer) = Writer::attach(ring.key, LIMIT) {
            let _ = writer.begin(b"HDR_SIZE 4096\n", LIMIT);
            let _ = writer.write(&[1; 25], LIMIT);
            let _ = writer.end(LIMIT);
        }
        let _ = repair(ring.key, random.next().is_multiple_of(2));
    }
}
