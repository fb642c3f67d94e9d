//! Reader of a ring.

use std::time::Duration;

use super::buffer::{Buffer, DISCONNECTED, Limit, READ, ReadEnd};
use super::options::{Key, MAX_READERS};
use crate::error::{Error, Result};
use crate::io::voltages::Fields;
use crate::io::voltages::dada;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes at the start of the buffer, 1 at least.
    Bytes(usize),
    /// No data came within the limit.
    Waiting,
    /// The transfer has ended.
    End,
}

/// One reader of a ring: receives transfers, each a header, bytes and an end.
///
/// Every reader of a ring gets all transfers. A reader that is dropped within a block, or before the first block of a transfer,
/// puts the block or the header back for the next one.
#[derive(Debug)]
pub struct Reader {
    headers: Buffer,
    data: Buffer,
    header_end: ReadEnd,
    data_end: ReadEnd,
    /// Header of the current transfer, if `has_header`.
    header: Vec<u8>,
    has_header: bool,
    /// Bytes of the block in use that were read.
    read: usize,
    /// Whether the transfer has ended, which no call has returned yet.
    has_ended: bool,
}

impl Reader {
    /// Attaches a ring as one of its readers, in the place that is furthest behind; waits up to `limit` while all are taken.
    ///
    /// If the last reader of the place stopped within a transfer, this one continues it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no ring, or all its readers are attached all the time; [`Error::Format`] for a damaged
    /// ring; [`Error::Io`].
    pub fn attach(key: Key, limit: Duration) -> Result<Self> {
        Self::attach_place(key, None, limit)
    }

    /// Attaches a ring in one place, or the one furthest behind.
    pub(super) fn attach_place(key: Key, place: Option<usize>, limit: Duration) -> Result<Self> {
        let headers = Buffer::attach(key.headers(), key.headers_path())?;
        let data = Buffer::attach(key, key.path())?;
        let data_place = lock(&data, place, limit)?;
        // The same place in both rings, unless other programs have taken it.
        let header_place = match lock(&headers, Some(data_place), Duration::ZERO) {
            Ok(found) => Ok(found),
            Err(_) => lock(&headers, None, limit),
        };
        let header_place = header_place.inspect_err(|_| unlock(&data, data_place))?;
        let mut reader = Self {
            header: vec![0; headers.block_bytes()],
            header_end: ReadEnd::new(&headers, header_place),
            data_end: ReadEnd::new(&data, data_place),
            headers,
            data,
            has_header: false,
            read: 0,
            has_ended: false,
        };
        if reader.data_end.is_reading() {
            reader.recall_header();
        }
        Ok(reader)
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.data.block_bytes()
    }

    /// Returns the place among the readers, from 0.
    pub fn place(&self) -> usize {
        self.data_end.place
    }

    /// Copies the header that the last reader of this place took, if its block was not written again.
    fn recall_header(&mut self) {
        let (headers, place) = (&self.headers, self.header_end.place);
        let (block, transfer) = (headers.read_block(place), headers.read_transfer(place));
        // Since PSRDADA 1.1 an unfinished transfer of the place is a header that was put back.
        if headers.is_reading(place) && headers.ends_at(transfer, block) {
            let taken = self.header_end.take(headers, Limit::after(Duration::ZERO), || Ok(()));
            if let Ok(Some(taken)) = taken {
                headers.block(taken.block).copy_out(0, &mut self.header);
                self.has_header = true;
                return;
            }
        }
        // Before PSRDADA 1.1 a reader did not count the last block of a transfer.
        let counts_last = transfer > 0
            && !headers.is_reading(place)
            && headers.ends_at(transfer.wrapping_sub(1), block);
        let last = if counts_last { block } else { block.wrapping_sub(1) };
        let age = headers.write_current().wrapping_sub(last);
        if (1..=headers.blocks() as u64).contains(&age) {
            headers.block(last).copy_out(0, &mut self.header);
            self.has_header = true;
        }
    }

    /// Returns the header of the current transfer, or of the next one after an end; `None` if none came within the limit.
    ///
    /// # Errors
    /// [`Error::Format`] for an invalid header, or one that was overwritten before this reader continued its transfer;
    /// [`Error::Io`] of kind `ConnectionAborted` if the writer has died; [`Error::Unavailable`] if the ring was destroyed.
    pub fn header(&mut self, limit: Duration) -> Result<Option<Fields>> {
        if !self.await_header(Limit::after(limit))? {
            return Ok(None);
        }
        let most = self.headers.block_bytes() as u64;
        dada::parse_header(&self.header, most, self.headers.path()).map(Some)
    }

    /// Returns the bytes of the current header, up to the first zero; empty before [`Reader::header`] has returned one.
    pub fn header_bytes(&self) -> &[u8] {
        let bytes = if self.has_header { self.header.as_slice() } else { &[] };
        &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
    }

    /// Waits for a header.
    fn await_header(&mut self, limit: Limit) -> Result<bool> {
        if self.has_header {
            return Ok(true);
        }
        if self.data_end.is_reading() {
            let why = "found it overwritten, expected the header of the transfer that this reader continues";
            return Err(Error::format(self.headers.path(), "header", 0, why));
        }
        let (headers, data) = (&self.headers, &self.data);
        // A writer that died before its header was complete has left its mark in the ring of data.
        let look = || data.look_at_writer();
        while let Some(taken) = self.header_end.take(headers, limit, look)? {
            if taken.start < taken.end {
                // Readers get the whole block, as the last byte of a header is not always counted.
                headers.block(taken.block).copy_out(0, &mut self.header);
                self.has_header = true;
                return Ok(true);
            }
            // Writers that closed the ring without a header have left an empty block.
            self.header_end.clear(headers)?;
        }
        Ok(false)
    }

    /// Reads bytes of the transfer into `output`, at most those of one block; waits up to the limit for the first of them.
    ///
    /// # Errors
    /// As [`Reader::header`].
    pub fn read(&mut self, output: &mut [u8], limit: Duration) -> Result<Received> {
        if std::mem::take(&mut self.has_ended) {
            self.has_header = false;
            return Ok(Received::End);
        }
        let limit = Limit::after(limit);
        if output.is_empty() || !self.data_end.is_reading() && !self.await_header(limit)? {
            return Ok(Received::Waiting);
        }
        let data = &self.data;
        while let Some(taken) = self.data_end.take(data, limit, || data.look_at_writer())? {
            // The header is kept until its transfer is under way, so that a reader that dies loses neither.
            self.header_end.clear(&self.headers)?;
            let left = taken.end - taken.start - self.read;
            let count = left.min(output.len());
            data.block(taken.block).copy_out(taken.start + self.read, &mut output[..count]);
            self.read += count;
            if count == left {
                self.read = 0;
                let is_last = self.data_end.clear(data)?;
                if is_last && count == 0 {
                    self.has_header = false;
                    return Ok(Received::End);
                }
                self.has_ended = is_last;
            }
            if count > 0 {
                return Ok(Received::Bytes(count));
            }
        }
        Ok(Received::Waiting)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Errors cannot be reported here; `repair` finds what is left undone.
        for (end, buffer) in
            [(&mut self.data_end, &self.data), (&mut self.header_end, &self.headers)]
        {
            let _ = end.put_back(buffer);
            if !end.is_reading() {
                buffer.set_read_state(end.place, DISCONNECTED);
            }
            unlock(buffer, end.place);
        }
    }
}

/// Becomes a reader of one ring; returns the place.
fn lock(buffer: &Buffer, place: Option<usize>, limit: Duration) -> Result<usize> {
    let busy = |what: String, process: i32| Error::Unavailable {
        what,
        why: format!(
            "process {process} is attached there; the ring has {} readers",
            buffer.readers()
        ),
    };
    let path = buffer.path().display();
    if !buffer.connect(READ, -1, limit)? {
        return Err(busy(format!("reading from {path}"), buffer.reader(0)?.process));
    }
    // As PSRDADA's readers do: the place furthest behind, the lower one of equals.
    let mut places = [0; MAX_READERS].map(|_| (0, usize::MAX));
    for (at, order) in places.iter_mut().enumerate().take(buffer.readers()) {
        *order = (buffer.read_block(at), at);
    }
    places[..buffer.readers()].sort_unstable();
    let asked = |at: usize| place.is_none_or(|place| place == at);
    for (_, at) in places[..buffer.readers()].iter().filter(|(_, at)| asked(*at)) {
        if buffer.connect_reader(*at, -1)? {
            return Ok(*at);
        }
    }
    buffer.connect(READ, 1, Duration::ZERO)?;
    let at = place.unwrap_or(0);
    Err(busy(format!("place {at} of the readers of {path}"), buffer.reader(at)?.process))
}

/// Leaves a place; errors mean that the ring is gone.
fn unlock(buffer: &Buffer, place: usize) {
    let _ = buffer.connect_reader(place, 1);
    let _ = buffer.connect(READ, 1, Duration::ZERO);
}
