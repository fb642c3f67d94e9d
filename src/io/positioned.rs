//! Reads and writes of a file at offsets, by any number of threads.
//!
//! Windows moves the file's own position with each of them, so a file that is used in this way is not also read in order.

#[cfg(unix)]
pub use std::os::unix::fs::FileExt;

#[cfg(windows)]
pub use windows::FileExt;

#[cfg(windows)]
mod windows {
    use std::fs::File;
    use std::io::{Error, ErrorKind, Result};
    use std::os::windows::fs::FileExt as _;

    /// The calls of `std::os::unix::fs::FileExt`.
    pub trait FileExt {
        /// Reads up to `buffer.len()` bytes from `offset` on; returns their number, 0 at the file's end.
        ///
        /// # Errors
        /// Those of the file.
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

        /// Writes up to `bytes.len()` bytes at `offset`; returns their number.
        ///
        /// # Errors
        /// Those of the file.
        fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize>;

        /// Fills `buffer` with the bytes from `offset` on.
        ///
        /// # Errors
        /// Those of the file; [`ErrorKind::UnexpectedEof`] if it ends before.
        fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
            while !buffer.is_empty() {
                match self.read_at(buffer, offset) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => (buffer, offset) = (&mut buffer[count..], offset + count as u64),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }

        /// Writes all of `bytes` at `offset`.
        ///
        /// # Errors
        /// Those of the file; [`ErrorKind::WriteZero`] if it takes no more.
        fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
            while !bytes.is_empty() {
                match self.write_at(bytes, offset) {
                    Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
                    Ok(count) => (bytes, offset) = (&bytes[count..], offset + count as u64),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }

    impl FileExt for File {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            self.seek_read(buffer, offset)
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
            self.seek_write(bytes, offset)
        }
    }
}
