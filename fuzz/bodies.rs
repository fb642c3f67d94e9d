//! What each fuzz target does with its bytes; the test of the seeds does the same.
//!
//! A body may fail only by a panic, by asking for memory without end, or by not coming back.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use sidereal::io::{self, FilterbankSource, OpenOptions, Polarizations};

/// Longest row, in bytes, that is read at all: a header may promise more than there is memory.
const LONGEST_ROW: usize = 1 << 20;

/// A SIGPROC filterbank: header and data.
pub fn sigproc(bytes: &[u8]) {
    filterbank(bytes);
}

/// A PSRFITS search-mode file.
pub fn psrfits(bytes: &[u8]) {
    filterbank(bytes);
}

/// blimpy's HDF5 filterbank.
pub fn fbh5(bytes: &[u8]) {
    filterbank(bytes);
}

fn filterbank(bytes: &[u8]) {
    let total = OpenOptions::default();
    let second = OpenOptions { polarizations: Polarizations::One(1), allow_gaps: true };
    with_file(bytes, |path| {
        for options in [&total, &second] {
            if let Ok(mut source) = io::open(&[path.to_path_buf()], options) {
                drain(source.as_mut());
            }
        }
    });
}

/// Reads a source to its end, and holds it to what it promised.
fn drain(source: &mut dyn FilterbankSource) {
    let header = source.header().clone();
    let row = header.row_bytes();
    assert!(row > 0 && header.tsamp_s > 0.0 && header.band.lowest_hz() > 0.0);
    if row > LONGEST_ROW {
        return;
    }
    let gulp = 7;
    let mut rows = vec![0; gulp * row];
    let Ok(mut read) = source.skip(3) else { return };
    for _ in 0..1000 {
        match source.read(&mut rows) {
            Ok(times) if times == gulp => read += times as u64,
            Ok(times) => {
                assert!(times < gulp);
                read += times as u64;
                assert!(header.times.is_none_or(|promised| promised == read));
                return;
            }
            Err(_) => return,
        }
    }
}

/// A SIGPROC time series.
pub fn tim(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok((series, _)) = io::sigproc::read_series(path) {
            assert!(series.tsamp_s > 0.0);
        }
    });
}

/// PRESTO's .inf.
pub fn inf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = io::presto::Inf::parse(&text, Path::new("fuzz.inf"));
}

/// NumPy's .npy.
pub fn npy(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok(array) = io::npy::read(path) {
            assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        }
    });
}

/// Gives `work` a file that holds `bytes`; each thread has its own.
fn with_file(bytes: &[u8], work: impl FnOnce(&Path)) {
    thread_local! {
        static FILE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }
    FILE.with_borrow_mut(|path| {
        let path = path.get_or_insert_with(|| {
            let thread = std::thread::current().id();
            let name = format!("sidereal-fuzz-{}-{thread:?}", std::process::id());
            std::env::temp_dir().join(name.replace(['(', ')'], ""))
        });
        std::fs::write(&*path, bytes).expect("the temporary folder can be written");
        work(path);
        let _ = std::fs::remove_file(path);
    });
}
