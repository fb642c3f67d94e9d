//! Keys and sizes of rings.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Most readers of a ring.
pub const MAX_READERS: usize = 8;

/// Most blocks of a ring: the system's usual number of segments.
pub const MAX_BLOCKS: usize = 4096;

/// Steps between the keys of a ring's parts.
const KEY_STEP: u32 = 0x1_0000;

/// Key of a ring: that of its data; headers have the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub(super) u32);

impl Key {
    /// Key that PSRDADA's programs use unless another is given.
    pub const DEFAULT: Self = Self(0xdada);

    /// Makes a key.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a key of which parts would have key 0, which the system gives to nothing shared.
    pub fn new(key: u32) -> Result<Self> {
        if key & 0xffff == 0 || key & 0xffff == 0xffff {
            let rule = "its last four hexadecimal digits must be neither 0000 nor ffff";
            return Err(Error::parameter("ring.key", format!("{key:x}"), rule));
        }
        Ok(Self(key))
    }

    /// Returns the key's number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the key of the headers' ring.
    pub(super) fn headers(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the key of the semaphores by which processes attach.
    pub(super) fn connect(self) -> u32 {
        self.0.wrapping_add(KEY_STEP)
    }

    /// Returns the key of a reader's semaphores.
    pub(super) fn reader(self, reader: usize) -> u32 {
        self.0.wrapping_add(KEY_STEP * (2 + reader as u32))
    }

    /// Returns the key of a block.
    pub(super) fn block(self, block: usize) -> u32 {
        self.0.wrapping_add(KEY_STEP.wrapping_mul(2 + MAX_READERS as u32 + block as u32))
    }

    /// Returns the name in errors of the ring of data.
    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(format!("ring {self}"))
    }

    /// Returns the name in errors of the ring of headers.
    pub(super) fn headers_path(self) -> PathBuf {
        PathBuf::from(format!("headers of ring {self}"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Key {
    type Err = Error;

    /// Parses hexadecimal digits, with or without 0x.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        let rule = "it must be 1 to 8 hexadecimal digits, such as dada";
        Self::new(number.ok_or_else(|| Error::parameter("ring.key", text, rule))?)
    }
}

/// Layout of a ring's memory. Versions of PSRDADA after 2017-07 have the same layout; their transfers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Since 2017-07: a field tells on which GPU the blocks are, if on any.
    WithDevice,
    /// Before 2017-07.
    WithoutDevice,
}

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Blocks of data: 1 to [`MAX_BLOCKS`].
    pub blocks: usize,
    /// Bytes of a block of data.
    pub block_bytes: usize,
    /// Blocks of headers: 1 to [`MAX_BLOCKS`].
    pub header_blocks: usize,
    /// Bytes of a header.
    pub header_bytes: usize,
    /// Readers: 1 to [`MAX_READERS`].
    pub readers: usize,
}

impl Default for Options {
    /// Makes the sizes that PSRDADA's dada_db has: 4 blocks of 512 KiB, 8 headers of 4096 bytes, one reader.
    fn default() -> Self {
        let [header_blocks, header_bytes] = [8, 4096];
        Self { blocks: 4, block_bytes: 512 << 10, header_blocks, header_bytes, readers: 1 }
    }
}

impl Options {
    /// Makes the sizes of a ring with these blocks of data, otherwise as the default.
    pub fn new(blocks: usize, block_bytes: usize) -> Self {
        Self { blocks, block_bytes, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<()> {
        let within = |name: &'static str, value: usize, most: usize| {
            let rule = || format!("it must be 1 to {most}");
            let is_within = (1..=most).contains(&value);
            if is_within { Ok(()) } else { Err(Error::parameter(name, value, rule())) }
        };
        within("ring.blocks", self.blocks, MAX_BLOCKS)?;
        within("ring.block_bytes", self.block_bytes, isize::MAX as usize)?;
        within("ring.header_blocks", self.header_blocks, MAX_BLOCKS)?;
        within("ring.header_bytes", self.header_bytes, isize::MAX as usize)?;
        within("ring.readers", self.readers, MAX_READERS)
    }
}
