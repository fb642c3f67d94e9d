//! Helpers of the tests of voltage formats.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use sidereal::Error;
use sidereal::io::voltages::{self, VoltageHeader, VoltageOptions, VoltageSource};

/// A text header under construction.
pub(crate) trait Keys: Sized {
    /// Values of each key, in order.
    fn lines(&mut self) -> &mut Vec<(&'static str, String)>;

    fn set(self, key: &'static str, value: impl ToString) -> Self {
        let mut header = self.without(key);
        header.lines().push((key, value.to_string()));
        header
    }

    fn without(mut self, key: &str) -> Self {
        self.lines().retain(|(other, _)| *other != key);
        self
    }
}

pub(crate) fn save(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Rate, centre and sideband that differ from those of any file.
pub(crate) fn told() -> VoltageOptions {
    VoltageOptions {
        sample_rate_hz: Some(2e6),
        centre_hz: Some(1e9),
        lower_sideband: Some(true),
        ..VoltageOptions::default()
    }
}

/// Opens files without options.
pub(crate) fn open(paths: &[PathBuf]) -> Box<dyn VoltageSource> {
    voltages::open(paths, &VoltageOptions::default()).unwrap()
}

/// Expected errors of opening files: field, byte and message.
pub(crate) fn fault(paths: &[PathBuf]) -> (String, u64, String) {
    match voltages::open(paths, &VoltageOptions::default()) {
        Ok(_) => panic!("{paths:?} opened"),
        Err(error) => {
            let message = error.to_string();
            match error {
                Error::Format { field, offset, .. } => (field, offset, message),
                other => (String::new(), 0, other.to_string()),
            }
        }
    }
}

/// Reads a source to its end, and checks its declared length.
pub(crate) fn drain(source: &mut dyn VoltageSource, gulp: usize) -> Vec<Vec<u8>> {
    let mut block = source.header().block(gulp);
    let mut rows = vec![Vec::new(); source.header().streams()];
    let mut read = 0;
    loop {
        let times = source.read(&mut block).unwrap();
        assert_eq!(block.times(), times);
        for (stream, row) in rows.iter_mut().enumerate() {
            row.extend_from_slice(block.voltages().row(stream));
        }
        read += times as u64;
        if times < block.capacity() {
            break;
        }
    }
    assert_eq!(source.header().times, Some(read));
    rows
}

/// Reads all of a recording, for any gulp.
pub(crate) fn read_all(paths: &[PathBuf]) -> (VoltageHeader, Vec<Vec<u8>>) {
    let mut source = open(paths);
    let rows = drain(source.as_mut(), 1 << 16);
    for gulp in [1, 7, 10] {
        assert_eq!(drain(open(paths).as_mut(), gulp), rows, "gulps of {gulp}");
    }
    (source.header().clone(), rows)
}
