//! Rings in real time: no allocation for a block.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code)]

use std::time::Duration;

use sidereal::live::ring::{self, Key, Options, Reader, Received, Writer};

#[path = "common/counting.rs"]
mod counting;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

#[test]
fn blocks_pass_without_allocations() {
    let key = Key::new(0x2d0e_0100 + (std::process::id() & 0x3fff) * 2).unwrap();
    let mut options = Options::default();
    options.block_bytes = 1000;
    ring::create(key, &options).unwrap();
    let limit = Duration::from_secs(60);
    let (mut writer, mut reader) =
        (Writer::attach(key, limit).unwrap(), Reader::attach(key, limit).unwrap());
    assert!(writer.begin(b"HDR_SIZE 4096\n", limit).unwrap());
    let (sent, mut part) = (vec![7; 1500], vec![0; 1000]);
    counting::assert_quiet("blocks", 5, 50, || {
        assert_eq!(writer.write(&sent, limit).unwrap(), 1500);
        while let Received::Bytes(_) = reader.read(&mut part, Duration::ZERO).unwrap() {}
    });
    drop((writer, reader));
    ring::destroy(key).unwrap();
}
