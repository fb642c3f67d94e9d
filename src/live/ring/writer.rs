//! Writer of a ring.

use std::path::Path;
use std::time::Duration;

use super::buffer::{Buffer, DISCONNECTED, FULL, Limit, WRITE, WriteEnd};
use super::options::Key;
use crate::error::{Error, Result};
use crate::io::voltages::dada;

/// The one writer of a ring: sends transfers, each a header, bytes and an end.
///
/// A full block reaches the readers when more bytes or the end come after it, so that the last block is known as the last. If
/// the writer is dropped within a transfer, the transfer ends with the bytes written so far.
#[derive(Debug)]
pub struct Writer {
    headers: Buffer,
    data: Buffer,
    header_end: WriteEnd,
    data_end: WriteEnd,
    /// Bytes in the block in use.
    filled: usize,
}

impl Writer {
    /// Attaches a ring as its writer; waits up to `limit` while another process is.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no ring, or it has another writer all the time; [`Error::Format`] for a damaged ring;
    /// [`Error::Io`], of kind `ConnectionAborted` if the last writer has left a transfer without an end.
    pub fn attach(key: Key, limit: Duration) -> Result<Self> {
        let headers = Buffer::attach(key.headers(), key.headers_path())?;
        let data = Buffer::attach(key, key.path())?;
        lock(&headers, limit)?;
        let locked = lock(&data, limit).and_then(|()| {
            data.look_at_unfinished().inspect_err(|_| drop(data.connect(WRITE, 1, Duration::ZERO)))
        });
        if let Err(error) = locked {
            headers.connect(WRITE, 1, Duration::ZERO)?;
            return Err(error);
        }
        let mut writer = Self {
            headers,
            data,
            header_end: WriteEnd::default(),
            data_end: WriteEnd::default(),
            filled: 0,
        };
        if writer.headers.is_writing() {
            // Before PSRDADA 1.1 all headers are one transfer.
            writer.header_end.resume();
        }
        for buffer in [&writer.headers, &writer.data] {
            // A writer that died may have opened a block that it did not fill.
            buffer.set_write_next(buffer.write_current());
        }
        Ok(writer)
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.data.block_bytes()
    }

    /// Starts a transfer with a header: text with a key HDR_SIZE, filled up with zeros. Returns whether it has started; not if
    /// the readers have not taken earlier headers or transfers within the limit, and the call may be repeated then.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the last transfer has not ended, or for a header that is too long for the ring or has no valid
    /// HDR_SIZE; [`Error::Io`] of kind `ConnectionAborted` if a reader has died; [`Error::Unavailable`] if the ring was
    /// destroyed.
    pub fn begin(&mut self, header: &[u8], limit: Duration) -> Result<bool> {
        if self.data_end.is_writing() {
            let rule = "a transfer begins after the end of the last one";
            return Err(Error::parameter("transfer", self.data.write_transfer(), rule));
        }
        check_header(header, self.headers.block_bytes(), self.headers.path())?;
        let limit = Limit::after(limit);
        let (headers, data) = (&self.headers, &self.data);
        let may_begin = self.header_end.may_start(headers, limit)?
            && self.header_end.open(headers, limit)?
            && self.header_end.may_end(headers, limit)?
            && self.data_end.may_start(data, limit)?;
        let Some(block) = self.header_end.block().filter(|_| may_begin) else { return Ok(false) };
        let memory = headers.block(block);
        memory.copy_in(0, header);
        memory.zero(header.len(), headers.block_bytes() - header.len());
        // Header and transfer become visible together, so that no header is without its transfer.
        self.header_end.start(headers);
        self.header_end.end(headers, headers.block_bytes())?;
        self.data_end.start(data);
        Ok(true)
    }

    /// Writes bytes of the transfer. Returns how many: fewer than given if the readers have cleared no block within the limit.
    ///
    /// # Errors
    /// [`Error::Parameter`] outside a transfer; otherwise as [`Writer::begin`].
    pub fn write(&mut self, bytes: &[u8], limit: Duration) -> Result<usize> {
        if !self.data_end.is_writing() {
            let rule = "a transfer begins with a header";
            return Err(Error::parameter("bytes outside a transfer", bytes.len(), rule));
        }
        let limit = Limit::after(limit);
        let size = self.data.block_bytes();
        let mut written = 0;
        while written < bytes.len() {
            if self.filled == size {
                self.data_end.fill(&self.data)?;
                self.filled = 0;
            }
            if !self.data_end.open(&self.data, limit)? {
                break;
            }
            let Some(block) = self.data_end.block() else { break };
            let count = (size - self.filled).min(bytes.len() - written);
            let part = &bytes[written..written + count];
            self.data.block(block).copy_in(self.filled, part);
            self.filled += count;
            written += count;
        }
        Ok(written)
    }

    /// Ends the transfer; the next one begins with its header. Returns whether it has ended: not if the readers have cleared no
    /// block, or not acknowledged the ends of 8 transfers, within the limit, and the call may be repeated then.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn end(&mut self, limit: Duration) -> Result<bool> {
        if !self.data_end.is_writing() {
            let rule = "a transfer begins with a header";
            return Err(Error::parameter("end outside a transfer", 0, rule));
        }
        let limit = Limit::after(limit);
        // A transfer without data has an empty block, because readers learn the end from a block.
        let may_end =
            self.data_end.open(&self.data, limit)? && self.data_end.may_end(&self.data, limit)?;
        if may_end {
            self.data_end.end(&self.data, std::mem::take(&mut self.filled))?;
        }
        Ok(may_end)
    }

    /// Describes the reader that has the most blocks still to clear, for a message about a full ring.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the ring was destroyed.
    pub fn waits_for(&self) -> Result<String> {
        let mut slowest = (0, i32::MIN);
        for place in 0..self.data.readers() {
            let full = self.data.value(place, FULL)?;
            if full > slowest.1 {
                slowest = (place, full);
            }
        }
        let (place, full) = slowest;
        let peer = self.data.reader(place)?;
        Ok(match peer.is_attached {
            true => {
                format!("reader {place}, process {}, has {full} full blocks to read", peer.process)
            }
            false => {
                format!("no process is attached as reader {place}, and {full} full blocks wait")
            }
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Errors cannot be reported here; readers and `repair` find what is left undone.
        let _ = (self.data_end.is_writing()).then(|| self.end(Duration::ZERO));
        for (end, buffer) in
            [(&mut self.data_end, &self.data), (&mut self.header_end, &self.headers)]
        {
            let _ = end.give_back(buffer);
            if !end.is_writing() {
                buffer.set_write_state(DISCONNECTED);
                buffer.set_write_next(buffer.write_current());
            }
            let _ = buffer.connect(WRITE, 1, Duration::ZERO);
        }
    }
}

/// Becomes the writer of one ring.
fn lock(buffer: &Buffer, limit: Duration) -> Result<()> {
    if buffer.connect(WRITE, -1, limit)? {
        return Ok(());
    }
    let peer = buffer.writer()?;
    Err(Error::Unavailable {
        what: format!("writing to {}", buffer.path().display()),
        why: format!("process {} is its writer, and a ring has one", peer.process),
    })
}

impl Buffer {
    /// Fails if a transfer has no end; called by the one writer.
    fn look_at_unfinished(&self) -> Result<()> {
        if !self.is_writing() {
            return Ok(());
        }
        let why = format!(
            "the last writer has left transfer {} without an end; repair the ring",
            self.write_transfer()
        );
        let kind = std::io::ErrorKind::ConnectionAborted;
        Err(Error::io(self.path(), std::io::Error::new(kind, why)))
    }
}

/// Checks a header to be written.
fn check_header(header: &[u8], most: usize, path: &Path) -> Result<()> {
    if header.len() > most {
        let rule = format!("headers of this ring have {most} bytes at most");
        return Err(Error::parameter("header (bytes)", header.len(), rule));
    }
    let size = dada::parse_header(header, most as u64, path)?.count("HDR_SIZE")?;
    match size {
        Some(_) => Ok(()),
        None => {
            let rule = "readers of rings need the key HDR_SIZE";
            Err(Error::parameter("header", "without HDR_SIZE", rule))
        }
    }
}
