//! Bodies of the fuzz targets, shared with the test of the seeds.
//!
//! A body may fail only by a panic, by unbounded memory, or by not returning. It reads its input to the end and runs
//! a short stretch of the pipeline for it.

#[path = "bodies/arrays.rs"]
mod arrays;
#[path = "bodies/filterbanks.rs"]
mod filterbanks;
#[path = "bodies/kept.rs"]
mod kept;
#[path = "bodies/memory.rs"]
mod memory;
#[path = "bodies/packets.rs"]
mod packets;
#[path = "bodies/pipelines.rs"]
mod pipelines;
#[path = "bodies/searches.rs"]
mod searches;
#[path = "bodies/strain.rs"]
mod strain;
#[path = "bodies/streams.rs"]
mod streams;
#[path = "bodies/voltages.rs"]
mod voltages;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Extent to which an input was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// To its end, and it is whole.
    Whole,
    /// To the last whole piece of an input that is cut short.
    Cut,
    /// Not at all, or not to its end: it promises more than a body reads.
    Part,
}

/// Extent to which an input was read, or the reason why it was refused.
pub type Outcome = sidereal::Result<Read>;

/// Body of a fuzz target.
pub type Body = fn(&[u8]) -> Outcome;

/// All targets by name.
pub const TARGETS: &[(&str, Body)] = &[
    ("antennas", arrays::antennas),
    ("bank_h5", strain::bank_h5),
    ("bitshuffle", filterbanks::bitshuffle),
    ("cand", searches::cand),
    ("channelize", pipelines::channelize),
    ("correlate", pipelines::correlate),
    ("dada", voltages::dada),
    ("declared", streams::declared),
    ("discovery", streams::discovery),
    ("dm_plan", searches::dm_plan),
    ("fbh5", filterbanks::fbh5),
    ("frames", streams::frames),
    ("guppi", voltages::guppi),
    ("gwf", strain::gwf),
    ("heaps", streams::heaps),
    ("inf", searches::inf),
    ("ligolw", strain::ligolw),
    ("mark5b", voltages::mark5b),
    ("mask", searches::mask),
    ("npy", searches::npy),
    ("packets", packets::packets),
    ("placement", streams::placement),
    ("psd", strain::psd),
    ("psrfits", filterbanks::psrfits),
    ("saved_search", kept::saved_search),
    ("saved_series", kept::saved_series),
    ("saved_state", kept::saved_state),
    ("search", pipelines::search),
    ("sigproc", filterbanks::sigproc),
    ("spead", packets::spead),
    ("spiir_filter", pipelines::spiir_filter),
    ("strain", strain::strain),
    ("stream_header", streams::stream_header),
    ("templates", strain::templates),
    ("tim", searches::tim),
    ("trigger", streams::trigger),
    ("uvh5", arrays::uvh5),
    ("vdif", voltages::vdif),
    ("window_file", voltages::window_file),
];

/// Calls `work` with a file that holds `bytes`; each thread has its own file.
fn with_file<T>(bytes: &[u8], work: impl FnOnce(&Path) -> T) -> T {
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
        let done = work(path);
        let _ = std::fs::remove_file(path);
        done
    })
}
