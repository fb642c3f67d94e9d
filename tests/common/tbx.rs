//! A reader of LWA TBX recordings: channelized 4-bit voltages of all stands.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::Path;

/// First bytes of every frame.
const SYNC: u32 = 0xdec0_de5c;

/// Frames of this kind.
const KIND: u8 = 8;

/// Bytes of a frame before its samples: seven big-endian fields.
const HEADER: usize = 28;

/// Samples of some channels of all stands at one time.
///
/// | field         | bytes | value                                     |
/// |---------------|-------|-------------------------------------------|
/// | sync          | 4     | de c0 de 5c                               |
/// | kind          | 1     | 8                                         |
/// | frame count   | 3     |                                           |
/// | second count  | 4     |                                           |
/// | first channel | 4     | in steps of the channel width             |
/// | stands        | 2     |                                           |
/// | channels      | 2     |                                           |
/// | time          | 8     | ticks of the sampling clock since 1970    |
/// | samples       |       | axes channel, stand, polarization; 1 byte |
///
/// A sample has its real part in the high nibble, its imaginary part in the low one.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub first_channel: u32,
    pub stands: usize,
    pub channels: usize,
    pub time: u64,
    pub samples: Vec<u8>,
}

impl Frame {
    /// Samples of a channel, axes stand, polarization.
    pub fn channel(&self, channel: usize) -> &[u8] {
        &self.samples[channel * 2 * self.stands..][..2 * self.stands]
    }
}

/// All whole frames; what follows the last one is a frame cut short.
pub fn read(path: &Path) -> Vec<Frame> {
    let bytes = std::fs::read(path).unwrap();
    let (mut frames, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((header, behind)) = rest.split_at_checked(HEADER) {
        let number =
            |bytes: &[u8]| bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        assert_eq!(
            number(&header[..4]),
            u64::from(SYNC),
            "no frame at byte {}",
            bytes.len() - rest.len()
        );
        assert_eq!(header[4], KIND, "a frame of another kind");
        let (stands, channels) =
            (number(&header[16..18]) as usize, number(&header[18..20]) as usize);
        let Some((samples, next)) = behind.split_at_checked(stands * channels * 2) else { break };
        frames.push(Frame {
            first_channel: number(&header[12..16]) as u32,
            stands,
            channels,
            time: number(&header[20..]),
            samples: samples.to_vec(),
        });
        rest = next;
    }
    frames
}
