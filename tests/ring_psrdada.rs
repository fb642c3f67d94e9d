//! Rings shared with PSRDADA's C library: `tests/psrdada/build.sh` compiles the other program.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sidereal::live::ring::{self, Key, Options, Reader, Received, Writer};

#[path = "common/skip.rs"]
mod skip;

const LIMIT: Duration = Duration::from_secs(60);

/// The program, or a note that it is not there.
fn peer() -> Option<PathBuf> {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/psrdada/peer");
    let program = std::env::var_os("SIDEREAL_PSRDADA").map_or(built, PathBuf::from);
    if program.is_file() {
        return Some(program);
    }
    skip::skip("psrdada", &format!("{} is missing (tests/psrdada/build.sh)", program.display()));
    None
}

/// A ring of either library, removed at the end.
struct Ring {
    program: PathBuf,
    key: Key,
}

impl Ring {
    fn new(program: &std::path::Path, at: u32, is_theirs: bool, readers: usize) -> Self {
        let key = Key::new(0x3d0a_0002 + (std::process::id() % 0x7ff) * 32 + 2 * at).unwrap();
        let ring = Self { program: program.to_owned(), key };
        if is_theirs {
            succeeds(ring.peer("create", [3, 1000, readers]));
        } else {
            let mut options = Options::default();
            (options.blocks, options.block_bytes, options.readers) = (3, 1000, readers);
            ring::create(key, &options).unwrap();
        }
        ring
    }

    fn peer(&self, role: &str, numbers: [usize; 3]) -> Child {
        Command::new(&self.program)
            .args([role, &self.key.to_string()])
            .args(numbers.map(|number| number.to_string()))
            // The library reports each end of data of the headers, which is none of its errors.
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = ring::destroy(self.key);
    }
}

fn succeeds(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

fn data(transfer: usize, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(2654435761) >> 7) as u8 ^ transfer as u8).collect()
}

fn send(key: Key, transfers: usize, bytes: usize, piece: usize) {
    let mut writer = Writer::attach(key, LIMIT).unwrap();
    for transfer in 0..transfers {
        let header = format!("HDR_SIZE 4096\nFILE_NUMBER {transfer}\n");
        assert!(writer.begin(header.as_bytes(), LIMIT).unwrap());
        for part in data(transfer, bytes).chunks(piece) {
            assert_eq!(writer.write(part, LIMIT).unwrap(), part.len());
        }
        assert!(writer.end(LIMIT).unwrap());
    }
}

/// Receives transfers; attaches anew for each if `is_new`.
fn receive(mut reader: Reader, key: Key, transfers: usize, bytes: usize, is_new: bool) {
    for transfer in 0..transfers {
        let header = reader.header(LIMIT).unwrap().expect("a header");
        assert_eq!(header.count("FILE_NUMBER").unwrap(), Some(transfer as u64));
        let (mut found, mut part) = (Vec::new(), [0; 333]);
        loop {
            match reader.read(&mut part, LIMIT).unwrap() {
                Received::Bytes(count) => found.extend_from_slice(&part[..count]),
                Received::End => break,
                Received::Waiting => panic!("no data within {LIMIT:?}"),
            }
        }
        assert!(found == data(transfer, bytes), "{transfer}: {} bytes", found.len());
        if is_new {
            drop(reader);
            reader = Reader::attach(key, LIMIT).unwrap();
        }
    }
}

/// Transfers that end within a block, with a block, and in the first one.
const LENGTHS: [usize; 4] = [3500, 4000, 1000, 10];

#[test]
fn their_writer_to_our_reader() {
    let Some(program) = peer() else { return };
    for (at, bytes) in LENGTHS.into_iter().enumerate() {
        for is_theirs in [true, false] {
            let ring = Ring::new(&program, at as u32, is_theirs, 1);
            let child = ring.peer("write", [20, bytes, 777]);
            let reader = Reader::attach(ring.key, LIMIT).unwrap();
            receive(reader, ring.key, 20, bytes, at % 2 == 0);
            succeeds(child);
            assert!(ring::repair(ring.key, false).unwrap().is_empty());
        }
    }
}

#[test]
fn our_writer_to_their_reader() {
    let Some(program) = peer() else { return };
    for (at, bytes) in LENGTHS.into_iter().enumerate() {
        for is_theirs in [true, false] {
            let ring = Ring::new(&program, 4 + at as u32, is_theirs, 1);
            let child = ring.peer("read", [20, bytes, 501]);
            send(ring.key, 20, bytes, 640);
            succeeds(child);
            assert!(ring::repair(ring.key, false).unwrap().is_empty());
        }
    }
}

#[test]
fn both_libraries_read_and_write_in_turns() {
    let Some(program) = peer() else { return };
    let ring = Ring::new(&program, 8, true, 2);
    for round in 0..6 {
        // Their reader leaves its place after each transfer, and takes the one furthest behind: ours must have its own before.
        let (reader, key) = (Reader::attach(ring.key, LIMIT).unwrap(), ring.key);
        let ours = std::thread::spawn(move || receive(reader, key, 5, 2500, false));
        let child = ring.peer("read", [5, 2500, 400]);
        if round % 2 == 0 {
            send(ring.key, 5, 2500, 900);
        } else {
            succeeds(ring.peer("write", [5, 2500, 900]));
        }
        ours.join().unwrap();
        succeeds(child);
        assert!(ring::repair(ring.key, false).unwrap().is_empty(), "{round}");
    }
}

#[test]
fn they_remove_our_ring() {
    let Some(program) = peer() else { return };
    let ring = Ring::new(&program, 9, false, 3);
    succeeds(ring.peer("destroy", [0, 0, 0]));
    assert!(ring::state(ring.key).is_err());
}
