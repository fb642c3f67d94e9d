//! VDIF: damaged frames give errors with the field and the byte.

use crate::support::random;
use crate::support::vdif_files;
use crate::support::vlbi;
use random::Random;
use sidereal::Error;
use sidereal::io::voltages::vdif;
use vdif_files::{at_rate, fault};
use vlbi::{Folder, PLAIN, Vdif};

#[test]
fn bad_headers_are_named_with_their_byte() {
    let folder = Folder::new();
    let second = |change: fn(&mut Vdif)| {
        let mut frame = Vdif { number: 1, ..PLAIN };
        change(&mut frame);
        [PLAIN.noise_frame(), frame.noise_frame()].concat()
    };
    let first = |change: fn(&mut Vdif)| {
        let mut frame = PLAIN;
        change(&mut frame);
        let payload = vec![0; frame.payload];
        frame.frame(&payload)
    };
    let cut = |bytes: usize| PLAIN.noise_frame()[..bytes].to_vec();
    let cases: Vec<(Vec<u8>, &str, u64)> = vec![
        (first(|frame| frame.extended[0] = 7 << 24), "extended data version", 19),
        (first(|frame| frame.bits = 17), "bits", 15),
        (first(|frame| frame.bits = 32), "bits", 15),
        (first(|frame| (frame.bits, frame.channels_log2) = (3, 1)), "bits", 15),
        (first(|frame| frame.channels_log2 = 31), "frame length", 8),
        (first(|frame| frame.payload = 0), "frame length", 8),
        (first(|frame| frame.extended = [1 << 24, 1, 0, 0]), "sync word", 20),
        (first(|frame| (frame.bits, frame.extended[0]) = (4, 0xabad_deed)), "bits", 15),
        (vec![0; 64], "frame length", 8),
        (second(|frame| frame.payload = 24), "frame length", 48 + 8),
        (second(|frame| frame.bits = 4), "bits", 48 + 15),
        (second(|frame| frame.complex = true), "complex bit", 48 + 15),
        (second(|frame| frame.channels_log2 = 1), "channels (log2)", 48 + 11),
        (second(|frame| frame.extended[0] = 2 << 24), "extended data version", 48 + 19),
        (second(|frame| frame.number = 0), "frame number", 48),
        (second(|frame| frame.number = 10), "frame number", 48),
        (second(|frame| frame.seconds = 90_000), "seconds", 48),
        (cut(47), "frame", 0),
        (cut(20), "frame", 0),
        (vec![], "file", 0),
    ];
    for (bytes, expected, byte) in cases {
        let path = folder.file("x.vdif", &bytes);
        match fault(&[path], &at_rate(&PLAIN)) {
            Error::Format { field, offset, path, .. } => {
                assert_eq!((field.as_str(), offset), (expected, byte));
                assert!(path.ends_with("x.vdif"));
            }
            other => panic!("{expected}: {other}"),
        }
    }
    assert!(matches!(fault(&[], &at_rate(&PLAIN)), Error::Parameter { .. }));
    let missing = folder.file("x", b"").with_file_name("none.vdif");
    assert!(matches!(fault(&[missing], &at_rate(&PLAIN)), Error::Io { .. }));
}

#[test]
fn any_bytes_give_samples_or_an_error() {
    let folder = Folder::new();
    let mut random = Random::new(5);
    let frames = (0..20).map(|k| Vdif { number: k / 2, thread: k % 2, ..PLAIN }.noise_frame());
    let whole: Vec<u8> = frames.flatten().collect();
    let mut opened = 0;
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        bytes.truncate(random.below(bytes.len()) + 1);
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let path = folder.file("x.vdif", &bytes);
        let Ok(mut source) = vdif::open(&[path], &at_rate(&PLAIN)) else { continue };
        let mut block = source.header().block(1000);
        let _ = source.read(&mut block);
        opened += 1;
    }
    assert!(opened > 200, "{opened}");
}
