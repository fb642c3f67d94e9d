//! Joins the rows of a filter bank into one antenna's rows, on a device.

use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Threads per block, along a row.
const BLOCK: usize = 256;

/// Maximum number of blocks along the rows.
const MOST_ROWS: usize = 1 << 14;

/// Conversion of filter-bank rows (axes: copy, antenna, product, recorded channel, channel) to one antenna's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Copies of all antennas: channel `c` of a recorded channel is taken from copy `c mod copies`.
    pub copies: usize,
    /// Antennas to sum.
    pub antennas: usize,
    /// Products per antenna.
    pub products: usize,
    /// Index in the filter-bank row of each recorded channel.
    pub places: Vec<usize>,
    /// Channels per recorded channel.
    pub channels: usize,
    /// Channel of each recorded channel to replace by the mean of two others, and those two.
    pub middle: Option<(usize, [usize; 2])>,
}

/// Sums antennas, orders recorded channels and joins copies, on a device.
///
/// | buffer | axes                                      | type                      | access      |
/// |--------|-------------------------------------------|---------------------------|-------------|
/// | `from` | time, copy, antenna, product, channel     | f32 (its bytes in memory) | read        |
/// | `to`   | time, product, channel                    | f32 (its bytes in memory) | overwritten |
///
/// # Numerics
/// Single precision; antennas are summed in order.
/// # Real time
/// Allocates nothing after `new`.
#[derive(Debug)]
pub struct RowJoiner {
    joining: Joining,
    function: Function,
    places: Buffer<u32>,
}

impl RowJoiner {
    /// Creates a joiner on a device.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an invalid index of a recorded channel; [`Error::Unavailable`] without memory or
    /// NVRTC; [`Error::Device`] if the driver fails.
    pub fn new(device: &Device, joining: Joining) -> Result<Self> {
        if let Some(place) = joining.places.iter().find(|place| **place >= joining.places.len()) {
            let rule = format!("there are {} recorded channels", joining.places.len());
            return Err(Error::parameter("place of a recorded channel", place, rule));
        }
        let module = device.module(&source())?;
        let places: Vec<u32> = joining.places.iter().map(|place| *place as u32).collect();
        Ok(Self {
            function: module.function("join_rows", 0)?,
            places: device.upload(&places)?,
            joining,
        })
    }

    /// Returns the values per output row.
    fn elements(&self) -> usize {
        self.joining.products * self.joining.places.len() * self.joining.channels
    }

    /// Enqueues the joining of `rows` rows.
    ///
    /// # Errors
    /// [`Error::Shape`] if the buffers are too small; [`Error::Device`] if the driver fails.
    pub fn enqueue(
        &self,
        from: &Buffer<u8>,
        rows: usize,
        to: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<()> {
        let Joining { copies, antennas, products, channels, middle, ref places } = self.joining;
        let bytes = rows.saturating_mul(4 * self.elements());
        let all = bytes.saturating_mul(copies * antennas);
        check_length("rows of antennas (bytes)", all, from.len().min(all))?;
        check_length("joined rows (bytes)", bytes, to.len().min(bytes))?;
        if rows == 0 {
            return Ok(());
        }
        // `u32::MAX` is no channel and disables the replacement.
        let (zero, [above, below]) = middle.unwrap_or((u32::MAX as usize, [0, 0]));
        let arguments = Arguments::new().with(from.address());
        let numbers = [rows, copies, antennas, products, places.len(), channels];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(self.places.address());
        let numbers = [zero, above, below];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(to.address());
        let grid = [self.elements().div_ceil(BLOCK), rows.min(MOST_ROWS), 1];
        // SAFETY: the arguments match the kernel; both buffers have space for the rows.
        unsafe { stream.launch(&self.function, grid, [BLOCK, 1, 1], &arguments) }
    }
}

/// Returns the kernel that joins antennas' rows.
pub(super) fn source() -> Source {
    Source { name: "rows.cu", text: include_str!("rows.cu"), includes: &[], defines: Vec::new() }
}
