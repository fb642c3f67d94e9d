//! Pseudorandom data, identical in every run, and a recording that repeats them.

use std::sync::Arc;

use sidereal::Result;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::voltage::VoltageBlock;

/// Generator of pseudorandom numbers (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

/// Seed of most data.
pub(crate) const SEED: u64 = 0x2545_f491_4f6c_dd1d;

impl Random {
    pub(crate) fn new() -> Self {
        Self(SEED)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end.max(1) as u64) as usize
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normal number of variance 1: the sum of 12 uniform ones.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Returns `count` approximately normal numbers of variance 1.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.normal() as f32).collect()
}

/// Returns `count` uniformly distributed bytes.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    let mut random = Random::new();
    let mut bytes = vec![0; count];
    for chunk in bytes.chunks_mut(8) {
        // The generator's high bits are its best; the multiplication makes the low byte as good.
        let word = random.next().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Returns the bytes of `count` floats from -0.5 to 0.5.
pub(crate) fn floats(count: usize) -> Vec<u8> {
    let mut bytes = bytes(4 * count);
    for float in bytes.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([float[0], float[1], float[2], float[3]]);
        let value = (bits >> 8) as f32 / (1u32 << 24) as f32 - 0.5;
        float.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Bytes that a thread copies at a time.
pub(crate) const PART: usize = 1 << 18;

/// Recording of one channel that repeats the same voltages.
#[derive(Clone)]
pub(crate) struct RepeatedVoltages {
    header: VoltageHeader,
    /// Bytes of one polarization after another.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Threads that copy.
    threads: Threads,
    /// Index of the next sample.
    next: u64,
}

impl RepeatedVoltages {
    pub(crate) fn new(header: VoltageHeader, bytes: Vec<u8>, threads: Threads) -> Self {
        Self { header, bytes: Arc::new(bytes), threads, next: 0 }
    }

    /// Returns the number of samples.
    pub(crate) fn times(&self) -> u64 {
        self.header.times.unwrap_or(0)
    }

    /// Returns the number of samples that are left.
    fn left(&self) -> u64 {
        self.times() - self.next
    }
}

impl VoltageSource for RepeatedVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let encoding = self.header.encoding;
        let stream = self.bytes.len() / self.header.polarizations;
        let held = (stream * 8 / encoding.sample_bits()) as u64;
        let mut done = 0;
        while done < block.capacity() && self.left() > 0 {
            let contiguous = (held - self.next % held).min(self.left());
            let times = contiguous.min((block.capacity() - done) as u64);
            let from = encoding.bytes((self.next % held) as usize);
            let (at, length) = (encoding.bytes(done), encoding.bytes(times as usize));
            let rows = block.rows_mut().zip(self.bytes.chunks_exact(stream));
            let mut parts: Vec<(&[u8], &mut [u8])> = rows
                .flat_map(|(to, own)| {
                    own[from..from + length].chunks(PART).zip(to[at..at + length].chunks_mut(PART))
                })
                .collect();
            let mut none = vec![(); self.threads.count()];
            self.threads.for_each_chunk(&mut none, &mut parts, 1, |(), _, parts| {
                parts.iter_mut().for_each(|(from, to)| to.copy_from_slice(from));
            });
            self.next += times;
            done += times as usize;
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = times.min(self.left());
        self.next += skipped;
        Ok(skipped)
    }
}
