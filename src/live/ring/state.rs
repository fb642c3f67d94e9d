//! The state of a ring, and the repair of what processes that died have left.

use std::io::ErrorKind::ConnectionAborted;
use std::time::Duration;

use super::buffer::{
    Buffer, CLEAR, DISCONNECTED, END_ACK, FULL, Limit, Peer, START_ACK, TRANSFERS, WRITE, WRITING,
    WriteEnd,
};
use super::options::{Generation, Key};
use super::reader::{Reader, Received};
use crate::error::{Error, Result};

/// Time without a change in which a state is taken to be at rest.
const REST: Duration = Duration::from_millis(20);
/// Looks at a ring until it is at rest.
const LOOKS: usize = 100;

/// State of a ring at one moment; other processes may change it meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The ring's key.
    pub key: Key,
    /// Ring of headers.
    pub headers: Half,
    /// Ring of data.
    pub data: Half,
}

/// State of the ring of headers or of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// Layout of its memory.
    pub generation: Generation,
    /// Blocks.
    pub blocks: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Processes that have it attached.
    pub attached: u64,
    /// Process that made it.
    pub creator: i32,
    /// The writer.
    pub writer: Peer,
    /// Whether a transfer has started and not ended.
    pub is_writing: bool,
    /// Transfers that have ended.
    pub transfers: u64,
    /// Blocks that were written.
    pub written: u64,
    /// The readers.
    pub readers: Vec<Place>,
}

/// State of a reader's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The reader.
    pub peer: Peer,
    /// Whether it has started a transfer and not ended it.
    pub is_reading: bool,
    /// Transfers that it has read to their ends.
    pub transfers: u64,
    /// Full blocks that it has not taken.
    pub full: i32,
    /// Blocks that it has cleared and the writer has not reclaimed.
    pub clear: i32,
    /// Blocks that it has taken and not cleared: 0 or 1 at rest.
    pub held: i64,
    /// Unacknowledged starts and ends of transfers: 8 less the semaphores.
    pub unacknowledged: [i32; 2],
}

/// Returns the state of a ring.
///
/// # Errors
/// [`Error::Unavailable`] if there is none; [`Error::Format`] for a damaged ring; [`Error::Io`].
pub fn state(key: Key) -> Result<State> {
    Pair::attach(key)?.state(key)
}

/// The two halves of a ring.
struct Pair {
    headers: Buffer,
    data: Buffer,
}

impl Pair {
    fn attach(key: Key) -> Result<Self> {
        let data = Buffer::attach(key, key.path())?;
        Ok(Self { headers: Buffer::attach(key.headers(), key.headers_path())?, data })
    }

    fn state(&self, key: Key) -> Result<State> {
        Ok(State { key, headers: self.headers.half()?, data: self.data.half()? })
    }

    /// Returns the state as soon as it does not change for a while.
    fn at_rest(&self, key: Key) -> Result<State> {
        let mut before = self.state(key)?;
        for _ in 0..LOOKS {
            std::thread::sleep(REST);
            let after = self.state(key)?;
            if after == before {
                return Ok(after);
            }
            before = after;
        }
        let why = "processes use it, so that nothing waits for a repair".to_owned();
        Err(Error::Unavailable { what: format!("a repair of {}", key.path().display()), why })
    }
}

impl Buffer {
    fn half(&self) -> Result<Half> {
        let attachments = self.attachments()?;
        let readers: Result<Vec<Place>> =
            (0..self.readers()).map(|place| self.place(place)).collect();
        Ok(Half {
            generation: self.generation(),
            blocks: self.blocks(),
            block_bytes: self.block_bytes(),
            // Without this process.
            attached: attachments.attached.saturating_sub(1),
            creator: attachments.creator,
            writer: self.writer()?,
            is_writing: self.is_writing(),
            transfers: self.write_transfer(),
            written: self.write_current(),
            readers: readers?,
        })
    }

    fn place(&self, place: usize) -> Result<Place> {
        let most = TRANSFERS as i32;
        Ok(Place {
            peer: self.reader(place)?,
            is_reading: self.is_reading(place),
            transfers: self.read_transfer(place),
            full: self.value(place, FULL)?,
            clear: self.value(place, CLEAR)?,
            held: self.held(place)?,
            unacknowledged: [
                most.wrapping_sub(self.value(place, START_ACK)?),
                most.wrapping_sub(self.value(place, END_ACK)?),
            ],
        })
    }
}

/// Changes that a repair has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Transfers of dead writers that were ended, with the blocks that had reached the readers.
    pub ended: usize,
    /// Headers of dead writers without a transfer, which got an empty one.
    pub completed: usize,
    /// Blocks and headers of dead readers that were put back for the next reader of the place.
    pub put_back: usize,
    /// Acknowledgements that dead processes had left undone.
    pub acknowledged: usize,
    /// Bytes of data that were discarded.
    pub discarded: u64,
}

impl Repairs {
    /// Returns whether there was nothing to repair.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Frees what dead processes hold: puts the block of a reader back, so that another one continues there, and ends the transfer
/// of a writer. With `discard`, also discards all data that wait for readers of which no process is attached, so that a writer
/// that waits for them continues. Processes that are attached and live are not disturbed.
///
/// # Errors
/// [`Error::Unavailable`] if there is no ring, if it changes all the time, or if no block is free in which a transfer could end;
/// [`Error::Format`] for a damaged ring, whose counters contradict each other; [`Error::Io`].
pub fn repair(key: Key, discard: bool) -> Result<Repairs> {
    let pair = Pair::attach(key)?;
    let rest = pair.at_rest(key)?;
    let mut repairs = Repairs::default();
    for (buffer, half) in [(&pair.headers, &rest.headers), (&pair.data, &rest.data)] {
        for (place, found) in half.readers.iter().enumerate() {
            if !found.peer.is_attached {
                buffer.put_back(place, found, &mut repairs)?;
            }
            if !half.writer.is_attached {
                buffer.complete(place, found.peer, &mut repairs)?;
            }
        }
    }
    if discard {
        repairs.discarded += pair.discard(key)?;
    }
    // The writer's semaphore keeps others out meanwhile. Headers before PSRDADA 1.1 are one transfer, which needs no end.
    let data = &pair.data;
    if !rest.data.writer.is_attached && data.connect(WRITE, -1, Duration::ZERO)? {
        let ended = pair.state(key).and_then(|state| pair.end_transfers(&state, &mut repairs));
        data.set_write_state(if data.is_writing() { WRITING } else { DISCONNECTED });
        data.connect(WRITE, 1, Duration::ZERO)?;
        ended?;
    }
    if discard {
        repairs.discarded += pair.discard(key)?;
    }
    Ok(repairs)
}

impl Pair {
    /// Ends the transfer that a writer has left, and adds one for a header without.
    fn end_transfers(&self, rest: &State, repairs: &mut Repairs) -> Result<()> {
        let data = &self.data;
        let is_header_left = rest.headers.readers.iter().zip(&rest.data.readers).all(|(h, d)| {
            let begun = d.transfers.wrapping_add(u64::from(d.is_reading));
            let transfers = data.started().wrapping_sub(begun) as i64;
            i64::from(h.full) + h.held == transfers + 1
        });
        if data.is_writing() {
            let mut end = WriteEnd::default();
            end.resume();
            end_empty(end, data)?;
            repairs.ended += 1;
        } else if is_header_left {
            end_empty(WriteEnd::default(), data)?;
            repairs.completed += 1;
        }
        Ok(())
    }
}

impl Pair {
    /// Reads and discards what waits for readers of which no process is attached. Returns the bytes.
    fn discard(&self, key: Key) -> Result<u64> {
        let mut bytes = 0;
        let mut block = vec![0; self.data.block_bytes().min(1 << 20)];
        for place in 0..self.data.readers() {
            if self.data.reader(place)?.is_attached {
                continue;
            }
            let mut reader = Reader::attach_place(key, Some(place), Duration::ZERO)?;
            loop {
                match reader.read(&mut block, Duration::ZERO) {
                    Ok(Received::Bytes(count)) => bytes += count as u64,
                    Ok(Received::End) => {}
                    Ok(Received::Waiting) => break,
                    // The transfer of a dead writer has no end yet.
                    Err(Error::Io { source, .. }) if source.kind() == ConnectionAborted => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bytes)
    }
}

/// Ends a transfer with an empty block.
fn end_empty(mut end: WriteEnd, buffer: &Buffer) -> Result<()> {
    buffer.set_write_next(buffer.write_current());
    let limit = Limit::after(Duration::ZERO);
    let may_end =
        end.may_start(buffer, limit)? && end.open(buffer, limit)? && end.may_end(buffer, limit)?;
    if may_end {
        end.start(buffer);
        return end.end(buffer, 0);
    }
    end.give_back(buffer)?;
    buffer.set_write_next(buffer.write_current());
    Err(Error::Unavailable {
        what: format!("an end of the transfer in {}", buffer.path().display()),
        why: "all blocks are full; start or discard the readers, then repair again".to_owned(),
    })
}

impl Buffer {
    /// Puts back what a place without a process holds.
    fn put_back(&self, place: usize, found: &Place, repairs: &mut Repairs) -> Result<()> {
        match found.held {
            0 => Ok(()),
            // The block was cleared, but not counted.
            1 if found.is_reading
                && self.filled() - i64::from(found.full) - i64::from(found.clear) <= 0 =>
            {
                repairs.acknowledged += 1;
                self.count_cleared(place)
            }
            1 => {
                repairs.put_back += 1;
                self.raise(place, FULL)
            }
            other => {
                let why = format!(
                    "found {other} blocks taken by reader {place}, expected 0 or 1: the counters contradict each other"
                );
                Err(Error::format(self.path(), "r_bufs", 0, why))
            }
        }
    }

    /// Completes the steps that a writer has left between a reader's semaphores.
    fn complete(&self, place: usize, peer: Peer, repairs: &mut Repairs) -> Result<()> {
        // A live reader that waits for a block has none; one that is counted as held was never announced.
        if peer.is_attached && self.held(place)? == 1 && self.is_awaited(place, FULL)? {
            self.raise(place, FULL)?;
            repairs.acknowledged += 1;
        }
        let begun = self.read_transfer(place).wrapping_add(u64::from(self.is_reading(place)));
        let open = |written: u64, read: u64| i64::try_from(written.wrapping_sub(read)).ok();
        let most = TRANSFERS as i64;
        let expected = [
            (START_ACK, open(self.started(), begun).map(|open| most - open)),
            (
                END_ACK,
                open(self.write_transfer(), self.read_transfer(place)).map(|open| most - open),
            ),
            (CLEAR, Some(self.filled() - i64::from(self.value(place, FULL)?) - self.held(place)?)),
        ];
        for (number, expected) in expected {
            let found = i64::from(self.value(place, number)?);
            let Some(value) = expected.and_then(|value| i32::try_from(value).ok()) else {
                continue;
            };
            if value >= 0 && i64::from(value) != found {
                self.set_value(place, number, value)?;
                repairs.acknowledged += 1;
            }
        }
        Ok(())
    }
}
