//! Waits for a pipe's bytes in short steps, so that a request to stop takes effect while none arrive.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sidereal::Result;
use sidereal::error::Stopped;
use sidereal::io::{FilterbankSource, OpenOptions, open_with};

use crate::interrupt;

/// Time between two checks for a request to stop.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Opens files as one observation; reads of standard input, FIFOs and devices end at a request to stop.
///
/// # Errors
/// As [`open_with`]; a read that a request to stop ended has [`sidereal::Error::is_stop`].
pub(crate) fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn FilterbankSource>> {
    let stream = |path: &Path| -> io::Result<Box<dyn Read + Send>> {
        let file = if path.as_os_str() == "-" {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        Ok(Box::new(Pipe(file)))
    };
    open_with(paths, options, &stream)
}

/// Open pipe, terminal or device.
struct Pipe(File);

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if interrupt::requested() {
                return Err(io::Error::other(Stopped));
            }
            let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut waited, Some(&STEP)) {
                Ok(0) | Err(Errno::INTR) => {}
                // End of file and errors are results of a read.
                Ok(_) => return self.0.read(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
