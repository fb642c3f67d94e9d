//! PSRDADA rings: observations passed from a program to others through blocks of shared memory.
//!
//! A ring has two rings of blocks: headers (text as in PSRDADA files, key + 1) and data. A writer sends transfers, each with a
//! header, bytes and an end; each of up to 8 readers gets all of them. A ring is used by this library and by PSRDADA's at the
//! same time:
//!
//! - Rings and transfers are written as PSRDADA 1.1 (2025) does: each header is a transfer of its own. Transfers of all
//!   versions since 2013 are read, also in rings made before 2017, which have no field for a GPU.
//! - Calls take a limit of time and return when it is over. A process that has died where it stops the other end is named in an
//!   error ([`std::io::ErrorKind::ConnectionAborted`]); [`repair`] frees what it held.
//! - Sizes and counters in shared memory are checked: a damaged or hostile ring gives an error.
//! - Reading and writing allocate nothing.
//!
//! ```
//! use std::time::Duration;
//! use sidereal::live::ring::{self, Key, Options, Reader, Received, Writer};
//!
//! # let key = Key::new(0x5d0c_0100 + (std::process::id() & 0x3fff) * 2)?;
//! let limit = Duration::from_secs(1);
//! ring::create(key, &Options::new(4, 8))?;
//! let mut writer = Writer::attach(key, limit)?;
//! let mut reader = Reader::attach(key, limit)?;
//! assert!(writer.begin(b"HDR_SIZE 4096\nSOURCE J0534+2200\n", limit)?);
//! assert_eq!(writer.write(b"hello, world", limit)?, 12);
//! assert!(writer.end(limit)?);
//! assert_eq!(reader.header(limit)?.unwrap().text("SOURCE"), Some("J0534+2200"));
//! let mut bytes = [0; 16];
//! assert_eq!(reader.read(&mut bytes, limit)?, Received::Bytes(8));
//! assert_eq!(reader.read(&mut bytes[8..], limit)?, Received::Bytes(4));
//! assert_eq!(reader.read(&mut bytes, limit)?, Received::End);
//! # drop((writer, reader));
//! ring::destroy(key)?;
//! # Ok::<(), sidereal::Error>(())
//! ```
//!
//! # Source
//! Layout and protocol: PSRDADA's ipcbuf and ipcio, from the memory of running programs and from reading them.

mod buffer;
mod options;
mod reader;
mod state;
mod system;
#[cfg(test)]
mod tests;
mod writer;

pub use buffer::Peer;
pub use options::{Generation, Key, MAX_BLOCKS, MAX_READERS, Options};
pub use reader::{Reader, Received};
pub use state::{Half, Place, Repairs, State, repair, state};
pub use writer::Writer;

use crate::error::{Error, Result};
use buffer::Buffer;

/// Makes a ring of zeros, which stays until [`destroy`] or the machine's restart.
///
/// # Errors
/// [`Error::Parameter`] for sizes out of range, or a key in use; [`Error::Io`], such as too little memory. Nothing is left of a
/// ring that could not be made.
pub fn create(key: Key, options: &Options) -> Result<()> {
    options.check()?;
    let Options { blocks, block_bytes, header_blocks, header_bytes, readers } = *options;
    let headers = key.headers();
    drop(Buffer::create(headers, key.headers_path(), header_blocks, header_bytes, readers)?);
    let made = Buffer::create(key, key.path(), blocks, block_bytes, readers);
    if made.is_err() {
        Buffer::destroy(headers, &key.headers_path())?;
    }
    made.map(drop)
}

/// Removes a ring, also one of which parts are missing. Its memory is freed when the last process has detached it.
///
/// # Errors
/// [`Error::Unavailable`] if there is none; [`Error::Format`] if the memory with its key is none of a ring; [`Error::Io`].
pub fn destroy(key: Key) -> Result<()> {
    let removed =
        [Buffer::destroy(key, &key.path()), Buffer::destroy(key.headers(), &key.headers_path())];
    match removed {
        // One half may be missing after an interrupted creation.
        [Ok(()), Err(Error::Unavailable { .. })] | [Err(Error::Unavailable { .. }), Ok(())] => {
            Ok(())
        }
        [data, headers] => data.and(headers),
    }
}
