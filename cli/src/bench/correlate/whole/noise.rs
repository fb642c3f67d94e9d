//! Noise of one antenna in memory, read repeatedly from its start for longer recordings.

use std::path::PathBuf;
use std::sync::Arc;

use sidereal::Result;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

/// Bytes held for all antennas: several times any cache.
const BYTES: usize = 256 << 20;

/// Bytes of a complex sample.
const SAMPLE: usize = 2;

/// Two polarizations of one recorded channel.
#[derive(Clone)]
pub(super) struct Noise {
    header: VoltageHeader,
    /// Bytes of the first polarization, then of the second.
    bytes: Arc<Vec<u8>>,
    /// Index of the next sample.
    next: usize,
    /// Samples of each polarization.
    times: usize,
}

/// Returns the header of a recording of `times` samples.
pub(super) fn header(times: usize) -> VoltageHeader {
    let mut header = VoltageHeader::new(vec![1.4e9], 1.0 / RATE_HZ, VoltageEncoding::Complex8);
    header.path = PathBuf::from("noise");
    header.polarizations = 2;
    header.circular = Some(false);
    header.start = Epoch::new(60_000, 0.0);
    header.times = Some(times as u64);
    header
}

impl Noise {
    /// Makes the noise of antenna `antenna` of `antennas`.
    pub(super) fn new(antenna: usize, antennas: usize, times: usize) -> Self {
        let held = (BYTES / (2 * SAMPLE * antennas)).min(times);
        let mut state = 0x2545_f491_4f6c_dd1d ^ (antenna as u64 + 1).wrapping_mul(0x9e37_79b9);
        let mut bytes = vec![0u8; 2 * SAMPLE * held];
        for bytes in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
        }
        Self { header: header(times), bytes: Arc::new(bytes), next: 0, times }
    }

    /// Returns whether both polarizations' powers equal those of the voltages.
    pub(super) fn agrees(&self, powers: [f64; 2]) -> bool {
        let rows = self.bytes.chunks_exact(self.bytes.len() / 2);
        let square = |byte: &u8| f64::from(*byte as i8).powi(2);
        let means =
            rows.map(|row| SAMPLE as f64 * row.iter().map(square).sum::<f64>() / row.len() as f64);
        means.zip(powers).all(|(mean, found)| (found / mean - 1.0).abs() < POWER_TOLERANCE)
    }
}

impl VoltageSource for Noise {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = block.capacity().min(self.times - self.next);
        let held = self.bytes.len() / 2;
        for (row, from) in block.rows_mut().zip(self.bytes.chunks_exact(held)) {
            let (mut at, mut row) = (self.next * SAMPLE % held, &mut row[..times * SAMPLE]);
            while !row.is_empty() {
                let (part, rest) = row.split_at_mut(row.len().min(held - at));
                part.copy_from_slice(&from[at..at + part.len()]);
                (row, at) = (rest, 0);
            }
        }
        block.set_times(times)?;
        self.next += times;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = (times as usize).min(self.times - self.next);
        self.next += times;
        Ok(times as u64)
    }
}

/// Samples per second of each polarization: 1.05 s in total.
pub(crate) const RATE_HZ: f64 = 4e6;

/// Allowed relative difference between the mean power of all channels and that of the voltages.
pub(crate) const POWER_TOLERANCE: f64 = 0.01;
