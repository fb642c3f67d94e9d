//! One antenna's rows of a filter bank's detected rows, on a device.

use super::variants;
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Stream};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Threads along a row.
const BLOCK: usize = 256;

/// The most blocks along the rows.
const MOST_ROWS: usize = 1 << 14;

/// How a filter bank's rows, axes copy, antenna, product, place, channel, become one antenna's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Copies of all antennas: channel `c` of a recorded channel is that of copy `c mod copies`.
    pub copies: usize,
    /// Antennas whose numbers are summed.
    pub antennas: usize,
    /// Products of each.
    pub products: usize,
    /// The filter bank's place of each recorded channel.
    pub places: Vec<usize>,
    /// Channels of each recorded channel.
    pub channels: usize,
    /// A channel of each recorded channel that becomes the mean of two others, and these.
    pub middle: Option<(usize, [usize; 2])>,
}

/// Sums antennas, puts recorded channels in order and joins copies, on a device.
///
/// | buffer | axes                                      | type                      | access      |
/// |--------|-------------------------------------------|---------------------------|-------------|
/// | `from` | time, copy, antenna, product, channel     | f32 (its bytes in memory) | read        |
/// | `to`   | time, product, channel                    | f32 (its bytes in memory) | overwritten |
///
/// # Numerics
/// Single precision; antennas are summed in their order.
/// # Real time
/// Allocates nothing after `new`.
#[derive(Debug)]
pub struct RowJoiner {
    joining: Joining,
    function: Function,
    places: Buffer<u32>,
}

impl RowJoiner {
    /// Binds it to a device.
    ///
    /// # Errors
    /// [`Error::Parameter`] for places that there are not; [`Error::Unavailable`] without memory or NVRTC;
    /// [`Error::Device`] when the driver refuses.
    pub fn new(device: &Device, joining: Joining) -> Result<Self> {
        if let Some(place) = joining.places.iter().find(|place| **place >= joining.places.len()) {
            let rule = format!("there are {} recorded channels", joining.places.len());
            return Err(Error::parameter("place of a recorded channel", place, rule));
        }
        let module = device.module(&variants::rows())?;
        let places: Vec<u32> = joining.places.iter().map(|place| *place as u32).collect();
        Ok(Self {
            function: module.function("join_rows", 0)?,
            places: device.upload(&places)?,
            joining,
        })
    }

    /// Numbers of a row that comes out.
    fn elements(&self) -> usize {
        self.joining.products * self.joining.places.len() * self.joining.channels
    }

    /// Queues the joining of `rows` rows.
    ///
    /// # Errors
    /// [`Error::Shape`] when the buffers have no room for them; [`Error::Device`] when the driver refuses.
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
        // No channel has the number that stands for none.
        let (zero, [above, below]) = middle.unwrap_or((u32::MAX as usize, [0, 0]));
        let arguments = Arguments::new().with(from.address());
        let numbers = [rows, copies, antennas, products, places.len(), channels];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(self.places.address());
        let numbers = [zero, above, below];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(to.address());
        let grid = [self.elements().div_ceil(BLOCK), rows.min(MOST_ROWS), 1];
        // SAFETY: the arguments are the kernel's; both buffers have room for the rows.
        unsafe { stream.launch(&self.function, grid, [BLOCK, 1, 1], &arguments) }
    }
}
