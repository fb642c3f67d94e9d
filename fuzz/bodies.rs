//! What each fuzz target does with its bytes; the test of the seeds does the same.
//!
//! A body may fail only by a panic, by asking for memory without end, or by not coming back.

#[path = "bodies/arrays.rs"]
mod arrays;
#[path = "bodies/filterbanks.rs"]
mod filterbanks;
#[path = "bodies/searches.rs"]
mod searches;
#[path = "bodies/strain.rs"]
mod strain;
#[path = "bodies/voltages.rs"]
mod voltages;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

pub use arrays::{antennas, uvh5};
pub use filterbanks::{bitshuffle, fbh5, psrfits, sigproc};
pub use searches::{cand, dm_plan, inf, mask, npy, tim};
pub use strain::{bank_h5, ligolw, psd, strain, templates};
pub use voltages::{dada, guppi, mark5b, vdif};

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
