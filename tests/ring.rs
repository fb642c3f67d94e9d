//! PSRDADA rings between processes: this program runs itself as writers and readers.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sidereal::Error;
use sidereal::live::ring::{self, Key, Options, Reader, Received, Writer};

/// Longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(30);

/// A ring with a key of its own, removed at the end.
struct Ring {
    key: Key,
}

impl Ring {
    fn new(blocks: usize, block_bytes: usize, readers: usize) -> Self {
        let mut options = Options::default();
        (options.blocks, options.block_bytes, options.readers) = (blocks, block_bytes, readers);
        let first = std::process::id() % 0x7000 * 2;
        let keys = (0..0x7000).map(|at| 0x2d0a_0000 + (first + 2 * at) % 0xe000 + 2);
        let free = |number: &u32| {
            let key = Key::new(*number).unwrap();
            match ring::create(key, &options) {
                Ok(()) => true,
                Err(Error::Parameter { name: "ring.key", .. }) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let key = Key::new(keys.into_iter().find(free).expect("a free key")).unwrap();
        Self { key }
    }

    fn writer(&self) -> Writer {
        Writer::attach(self.key, LONG).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::attach(self.key, LONG).unwrap()
    }

    /// Starts this program as another process with a role, which `transfers` transfers of `bytes` bytes go through.
    fn process(&self, role: &str, transfers: usize, bytes: usize) -> Child {
        let program = std::env::current_exe().unwrap();
        Command::new(program)
            .args(["--exact", "process", "--nocapture"])
            .env("RING_KEY", self.key.to_string())
            .env("RING_ROLE", role)
            .env("RING_TRANSFERS", transfers.to_string())
            .env("RING_BYTES", bytes.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits until the ring's state is so.
    fn until(&self, mut is_so: impl FnMut(&ring::State) -> bool) {
        let begun = Instant::now();
        while !is_so(&ring::state(self.key).unwrap()) {
            assert!(begun.elapsed() < LONG, "{:?}", ring::state(self.key));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = ring::destroy(self.key);
    }
}

fn header(transfer: usize) -> Vec<u8> {
    format!("HEADER DADA\nHDR_SIZE 4096\nFILE_NUMBER {transfer}\n").into_bytes()
}

/// Bytes of a transfer.
fn data(transfer: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2654435761) >> 7) as u8 ^ transfer as u8).collect()
}

/// Sends a transfer in pieces.
fn send(writer: &mut Writer, transfer: usize, bytes: &[u8], piece: usize) {
    assert!(writer.begin(&header(transfer), LONG).unwrap());
    for part in bytes.chunks(piece) {
        assert_eq!(writer.write(part, LONG).unwrap(), part.len());
    }
    assert!(writer.end(LONG).unwrap());
}

/// Receives a transfer in pieces: its number and bytes.
fn receive(reader: &mut Reader, piece: usize) -> (usize, Vec<u8>) {
    let header = reader.header(LONG).unwrap().expect("a header");
    let transfer = header.count("FILE_NUMBER").unwrap().unwrap() as usize;
    let (mut bytes, mut part) = (Vec::new(), vec![0; piece]);
    loop {
        match reader.read(&mut part, LONG).unwrap() {
            Received::Bytes(count) => bytes.extend_from_slice(&part[..count]),
            Received::End => return (transfer, bytes),
            Received::Waiting => panic!("no data within {LONG:?}"),
        }
    }
}

/// Runs the other processes of the tests. Without a role, checks that a process starts and ends.
#[test]
fn process() {
    let Ok(role) = std::env::var("RING_ROLE") else {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "process"]).env("RING_ROLE", "nothing");
        assert!(child.stdout(Stdio::null()).status().unwrap().success());
        return;
    };
    if role == "nothing" {
        return;
    }
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let key: Key = std::env::var("RING_KEY").unwrap().parse().unwrap();
    let (transfers, bytes) = (number("RING_TRANSFERS"), number("RING_BYTES"));
    match role.as_str() {
        "write" => {
            let mut writer = Writer::attach(key, LONG).unwrap();
            for transfer in 0..transfers {
                send(&mut writer, transfer, &data(transfer, bytes), 777);
            }
        }
        "read" => {
            let mut reader = Reader::attach(key, LONG).unwrap();
            for transfer in 0..transfers {
                assert_eq!(receive(&mut reader, 501), (transfer, data(transfer, bytes)));
            }
        }
        // Stops within the first transfer, until it is killed.
        "write-and-stop" => {
            let mut writer = Writer::attach(key, LONG).unwrap();
            assert!(writer.begin(&header(0), LONG).unwrap());
            assert_eq!(writer.write(&data(0, bytes), LONG).unwrap(), bytes);
            std::thread::sleep(10 * LONG);
        }
        "read-and-stop" => {
            let mut reader = Reader::attach(key, LONG).unwrap();
            reader.header(LONG).unwrap().unwrap();
            assert_eq!(reader.read(&mut vec![0; bytes], LONG).unwrap(), Received::Bytes(bytes));
            std::thread::sleep(10 * LONG);
        }
        // Takes a header and no data.
        "read-header-and-stop" => {
            let mut reader = Reader::attach(key, LONG).unwrap();
            reader.header(LONG).unwrap().unwrap();
            std::thread::sleep(10 * LONG);
        }
        other => panic!("no role {other}"),
    }
}

fn kill(mut child: Child) -> i32 {
    child.kill().unwrap();
    child.wait().unwrap();
    child.id() as i32
}

fn succeeds(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

#[test]
fn processes_start_in_every_order() {
    for order in [["write", "read", "read"], ["read", "write", "read"], ["read", "read", "write"]] {
        let ring = Ring::new(3, 1000, 2);
        let children = order.map(|role| {
            let child = ring.process(role, 12, 2500);
            std::thread::sleep(SHORT);
            child
        });
        children.into_iter().for_each(succeeds);
        ring.until(|state| {
            state.data.transfers == 12 && state.data.readers.iter().all(|one| one.transfers == 12)
        });
        assert!(ring::repair(ring.key, false).unwrap().is_empty(), "{order:?}");
    }
}

#[test]
fn transfers_of_every_length_go_through() {
    let ring = Ring::new(4, 64, 1);
    let (mut writer, mut reader) = (ring.writer(), ring.reader());
    for (transfer, bytes) in
        [0, 1, 63, 64, 65, 128, 0, 0, 129, 190, 64, 0, 5].into_iter().enumerate()
    {
        send(&mut writer, transfer, &data(transfer, bytes), 50);
        assert_eq!(receive(&mut reader, 7), (transfer, data(transfer, bytes)));
    }
    // Another writer and another reader continue.
    drop((writer, reader));
    send(&mut ring.writer(), 99, &data(99, 100), 100);
    assert_eq!(receive(&mut ring.reader(), 100), (99, data(99, 100)));
    assert_eq!(ring.reader().header(SHORT).unwrap().map(drop), None);
}

#[test]
fn a_full_block_is_held_back_until_it_is_known_not_to_be_the_last() {
    let ring = Ring::new(4, 16, 1);
    let (mut writer, mut reader) = (ring.writer(), ring.reader());
    assert!(writer.begin(&header(0), SHORT).unwrap());
    assert_eq!(writer.write(&[1; 16], SHORT).unwrap(), 16);
    let mut bytes = [0; 64];
    assert_eq!(reader.read(&mut bytes, SHORT).unwrap(), Received::Waiting);
    assert_eq!(writer.write(&[2], SHORT).unwrap(), 1);
    assert_eq!(reader.read(&mut bytes, SHORT).unwrap(), Received::Bytes(16));
    assert!(writer.end(SHORT).unwrap());
    assert_eq!(reader.read(&mut bytes, SHORT).unwrap(), Received::Bytes(1));
    assert_eq!(reader.read(&mut bytes, SHORT).unwrap(), Received::End);
}

#[test]
fn waits_end_in_time_and_continue() {
    let ring = Ring::new(2, 10, 1);
    let mut writer = ring.writer();
    assert!(writer.begin(&header(0), SHORT).unwrap());
    // Two blocks are full, and none is free.
    assert_eq!(writer.write(&data(0, 35), SHORT).unwrap(), 20);
    assert!(writer.waits_for().unwrap().contains("no process is attached as reader 0"));
    let mut reader = ring.reader();
    let mut bytes = Vec::new();
    let mut part = [0; 6];
    let (mut written, mut has_ended) = (20, false);
    while bytes.len() < 35 {
        if let Received::Bytes(count) = reader.read(&mut part, SHORT).unwrap() {
            bytes.extend_from_slice(&part[..count]);
        }
        if !has_ended {
            written += writer.write(&data(0, 35)[written..], SHORT).unwrap();
            has_ended = written == 35 && writer.end(SHORT).unwrap();
        }
    }
    assert_eq!(bytes, data(0, 35));
    assert_eq!(reader.read(&mut part, SHORT).unwrap(), Received::End);
    // Nine transfers without a reader: eight starts may be unacknowledged, and as many headers fit.
    let mut begun = 0;
    for _ in 0..9 {
        if !writer.begin(&header(1), SHORT).unwrap() || !writer.end(SHORT).unwrap() {
            break;
        }
        begun += 1;
    }
    assert_eq!(begun, 2);
    for _ in 0..2 {
        assert_eq!(receive(&mut reader, 10), (1, Vec::new()));
    }
}

#[test]
fn places_are_taken_once() {
    let ring = Ring::new(2, 10, 1);
    let (writer, reader) = (ring.writer(), ring.reader());
    let own = format!("process {}", std::process::id());
    for error in [
        Writer::attach(ring.key, SHORT).unwrap_err().to_string(),
        Reader::attach(ring.key, SHORT).unwrap_err().to_string(),
    ] {
        assert!(error.contains(&own), "{error}");
    }
    drop((writer, reader));
    drop((ring.writer(), ring.reader()));
    let key = ring.key;
    assert!(matches!(ring::create(key, &Options::default()), Err(Error::Parameter { .. })));
    ring::destroy(key).unwrap();
    assert!(matches!(ring::state(key), Err(Error::Unavailable { .. })));
    assert!(matches!(ring::destroy(key), Err(Error::Unavailable { .. })));
    assert!(matches!(Reader::attach(key, SHORT), Err(Error::Unavailable { .. })));
}

#[test]
fn a_removed_ring_ends_the_wait() {
    let ring = Ring::new(2, 10, 1);
    let mut reader = ring.reader();
    let key = ring.key;
    let remover = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        ring::destroy(key).unwrap();
    });
    let error = reader.header(LONG).unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { why, .. } if why.contains("destroyed")),
        "{error}"
    );
    remover.join().unwrap();
}

#[test]
fn wrong_calls_and_headers_are_errors() {
    let ring = Ring::new(2, 10, 1);
    let mut writer = ring.writer();
    for (header, expected) in [
        (&b"SOURCE x\n"[..], "HDR_SIZE"),
        (b"HDR_SIZE 4097\n", "found 4097, expected 1 to 4096"),
        (b"HDR_SIZE 4096\n\x01", "0x01"),
        (&[b'#'; 4097], "4096 bytes at most"),
    ] {
        let error = writer.begin(header, SHORT).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(writer.write(b"x", SHORT).is_err() && writer.end(SHORT).is_err());
    assert!(writer.begin(&header(0), SHORT).unwrap());
    assert!(writer.begin(&header(1), SHORT).is_err());
}

#[test]
fn a_dropped_writer_ends_its_transfer_and_a_dropped_reader_puts_its_block_back() {
    let ring = Ring::new(4, 10, 1);
    let mut writer = ring.writer();
    assert!(writer.begin(&header(3), SHORT).unwrap());
    assert_eq!(writer.write(&data(3, 25), SHORT).unwrap(), 25);
    drop(writer);
    for _ in 0..2 {
        // Neither the header alone nor a part of a block is lost.
        assert!(ring.reader().header(SHORT).unwrap().is_some());
        let mut reader = ring.reader();
        assert_eq!(reader.read(&mut [0; 4], SHORT).unwrap(), Received::Bytes(4));
    }
    assert_eq!(receive(&mut ring.reader(), 100), (3, data(3, 25)));
    assert!(ring::repair(ring.key, false).unwrap().is_empty());
}

#[test]
fn a_killed_writer_is_named_and_its_transfer_repaired() {
    let ring = Ring::new(4, 100, 2);
    let child = ring.process("write-and-stop", 1, 250);
    let mut reader = ring.reader();
    ring.until(|state| state.data.written == 2);
    let mut part = [0; 100];
    for _ in 0..2 {
        assert_eq!(reader.read(&mut part, LONG).unwrap(), Received::Bytes(100));
    }
    assert_eq!(reader.read(&mut part, SHORT).unwrap(), Received::Waiting);
    let process = kill(child);
    let error = reader.read(&mut part, LONG).unwrap_err();
    assert!(error.to_string().contains(&format!("process {process} writes no longer")), "{error}");
    assert!(
        matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::ConnectionAborted)
    );
    assert!(Writer::attach(ring.key, SHORT).unwrap_err().to_string().contains("repair the ring"));
    let repairs = ring::repair(ring.key, false).unwrap();
    assert_eq!((repairs.ended, repairs.put_back), (1, 0), "{repairs:?}");
    assert!(ring::repair(ring.key, false).unwrap().is_empty());
    // The last 50 bytes were not in a full block.
    assert_eq!(reader.read(&mut part, LONG).unwrap(), Received::End);
    let mut second = ring.reader();
    assert_eq!(receive(&mut second, 100), (0, data(0, 200)));
    // The ring is as good as new.
    let mut writer = ring.writer();
    for transfer in 1..20 {
        send(&mut writer, transfer, &data(transfer, 333), 100);
        for reader in [&mut reader, &mut second] {
            assert_eq!(receive(reader, 60), (transfer, data(transfer, 333)));
        }
    }
}

#[test]
fn a_killed_reader_is_named_and_its_block_put_back() {
    let ring = Ring::new(3, 100, 2);
    let mut writer = ring.writer();
    let mut other = ring.reader();
    let child = ring.process("read-and-stop", 1, 150 - 100);
    ring.until(|state| state.data.readers[1].peer.is_attached);
    assert!(writer.begin(&header(0), LONG).unwrap());
    let sent = data(0, 1000);
    let mut written = writer.write(&sent, SHORT).unwrap();
    ring.until(|state| state.data.readers[1].held == 1);
    let process = kill(child);
    let mut received = Vec::new();
    let mut part = [0; 100];
    let error = loop {
        if let Received::Bytes(count) = other.read(&mut part, SHORT).unwrap() {
            received.extend_from_slice(&part[..count]);
        }
        match writer.write(&sent[written..], Duration::from_millis(300)) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains(&format!("process {process} reads no longer")), "{error}");
    let repairs = ring::repair(ring.key, false).unwrap();
    assert_eq!((repairs.put_back, repairs.ended), (1, 0), "{repairs:?}");
    // The next reader continues the transfer, with its header and the block that the killed one held.
    let mut second = ring.reader();
    assert_eq!(second.place(), 1);
    assert_eq!(second.header(SHORT).unwrap().unwrap().count("FILE_NUMBER").unwrap(), Some(0));
    let mut received_by_second = Vec::new();
    let mut has_ended = false;
    while received.len() < 1000 || received_by_second.len() < 1000 {
        for (reader, bytes) in [(&mut other, &mut received), (&mut second, &mut received_by_second)]
        {
            if let Received::Bytes(count) = reader.read(&mut part, SHORT).unwrap() {
                bytes.extend_from_slice(&part[..count]);
            }
        }
        if !has_ended {
            written += writer.write(&sent[written..], SHORT).unwrap();
            has_ended = written == 1000 && writer.end(SHORT).unwrap();
        }
    }
    assert_eq!((received, received_by_second), (sent.clone(), sent));
    assert!(ring::repair(ring.key, false).unwrap().is_empty());
}

#[test]
fn a_reader_killed_between_header_and_data_loses_neither() {
    let ring = Ring::new(3, 100, 1);
    send(&mut ring.writer(), 5, &data(5, 150), 150);
    let child = ring.process("read-header-and-stop", 1, 0);
    ring.until(|state| state.headers.readers[0].held == 1);
    kill(child);
    assert_eq!(ring::repair(ring.key, false).unwrap().put_back, 1);
    assert_eq!(receive(&mut ring.reader(), 100), (5, data(5, 150)));
}

#[test]
fn what_waits_for_dead_readers_is_discarded_on_request() {
    let ring = Ring::new(3, 100, 1);
    let reader = ring.process("read-and-stop", 1, 50);
    let writer = ring.process("write-and-stop", 1, 300);
    ring.until(|state| state.data.readers[0].held == 1 && state.data.written == 2);
    kill(reader);
    kill(writer);
    let repairs = ring::repair(ring.key, true).unwrap();
    assert_eq!((repairs.put_back, repairs.ended, repairs.discarded), (1, 1, 200), "{repairs:?}");
    send(&mut ring.writer(), 1, &data(1, 250), 250);
    assert_eq!(receive(&mut ring.reader(), 100), (1, data(1, 250)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pieces of any size, written and read by threads, arrive in order and whole at every reader.
    #[test]
    fn pieces_of_any_size_arrive(
        blocks in 1usize..6,
        block_bytes in 1usize..200,
        readers in 1usize..4,
        lengths in prop::collection::vec(0usize..1500, 1..12),
        pieces in prop::collection::vec(1usize..300, 4),
    ) {
        let ring = Ring::new(blocks, block_bytes, readers);
        let key = ring.key;
        let attached: Vec<Reader> = (0..readers).map(|_| ring.reader()).collect();
        std::thread::scope(|scope| {
            for (at, mut reader) in attached.into_iter().enumerate() {
                let (lengths, piece) = (&lengths, pieces[at]);
                scope.spawn(move || {
                    for (transfer, bytes) in lengths.iter().enumerate() {
                        assert_eq!(receive(&mut reader, piece), (transfer, data(transfer, *bytes)));
                    }
                });
            }
            let mut writer = Writer::attach(key, LONG).unwrap();
            for (transfer, bytes) in lengths.iter().enumerate() {
                send(&mut writer, transfer, &data(transfer, *bytes), pieces[3]);
            }
        });
        prop_assert!(ring::repair(key, false).unwrap().is_empty());
    }
}
