//! Voltages from memory, as a recording.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

use num_complex::Complex;

use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use sidereal::{Error, Result};

/// A recording in memory: one row of bytes per stream.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) header: VoltageHeader,
    pub(crate) streams: Vec<Vec<u8>>,
    pub(crate) flags: Vec<Flag>,
    /// The first unreadable sample.
    pub(crate) broken_from: Option<usize>,
    /// Samples that the recording lists as missing.
    pub(crate) cut: Option<String>,
    at: usize,
}

/// A header of recorded channels with 1 MHz of samples, one antenna, one polarization.
pub(crate) fn header(centres_mhz: &[f64], encoding: VoltageEncoding) -> VoltageHeader {
    let centres_hz = centres_mhz.iter().map(|mhz| mhz * 1e6).collect();
    VoltageHeader {
        path: "memory".into(),
        format: "memory",
        source_name: "B0833-45".into(),
        telescope: "Parkes".into(),
        ra_deg: Some(128.8),
        dec_deg: Some(-45.2),
        start: Epoch::new(60000, 43200.0),
        ..VoltageHeader::new(centres_hz, 1e-6, encoding)
    }
}

impl Memory {
    /// Each stream's samples from `value(stream, time)`.
    pub(crate) fn new(
        header: VoltageHeader,
        times: usize,
        value: impl Fn(usize, usize) -> Complex<f64>,
    ) -> Self {
        let encoding = header.encoding;
        let stream = |stream| {
            let values = (0..times).map(|time| value(stream, time));
            if encoding == VoltageEncoding::Real10 {
                let values: Vec<i16> = values.map(|z| z.re.round() as i16).collect();
                return values.chunks_exact(4).flat_map(ten_bits).collect();
            }
            values.flat_map(|z| encode(z, encoding)).collect()
        };
        let streams = (0..header.streams()).map(stream).collect();
        let header = VoltageHeader { times: Some(times as u64), ..header };
        Self { header, streams, flags: Vec::new(), broken_from: None, cut: None, at: 0 }
    }

    pub(crate) fn boxed(&self) -> Box<dyn VoltageSource> {
        Box::new(self.clone())
    }

    fn left(&self) -> usize {
        self.streams[0].len() * 8 / self.header.encoding.sample_bits() - self.at
    }
}

/// Packs four samples of 10 bits.
pub(crate) fn ten_bits(four: &[i16]) -> [u8; 5] {
    let bits = four.iter().fold(0u64, |bits, x| bits << 10 | (*x as u64 & 0x3ff));
    let [_, _, _, packed @ ..] = bits.to_be_bytes();
    packed
}

fn encode(z: Complex<f64>, encoding: VoltageEncoding) -> Vec<u8> {
    let float = |x: f64| (x as f32).to_le_bytes();
    let short = |x: f64| (x.round() as i16).to_le_bytes();
    match encoding {
        VoltageEncoding::ComplexF32 => [float(z.re), float(z.im)].concat(),
        VoltageEncoding::RealF32 => float(z.re).to_vec(),
        VoltageEncoding::Complex8 => {
            vec![z.re.round() as i8 as u8, z.im.round() as i8 as u8]
        }
        VoltageEncoding::Real8 => vec![z.re.round() as i8 as u8],
        VoltageEncoding::Complex16 => [short(z.re), short(z.im)].concat(),
        VoltageEncoding::Real16 => short(z.re).to_vec(),
        other => panic!("{other:?} is not needed here"),
    }
}

impl VoltageSource for Memory {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.left().min(block.capacity());
        if self.broken_from.is_some_and(|first| self.at + times > first) {
            let why = std::io::Error::other("a sector is broken");
            return Err(Error::io(&self.header.path, why));
        }
        let encoding = self.header.encoding;
        let (start, length) = (encoding.bytes(self.at), encoding.bytes(times));
        for (row, stream) in block.rows_mut().zip(&self.streams) {
            row[..length].copy_from_slice(&stream[start..start + length]);
        }
        block.set_times(times)?;
        self.at += times;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let passed = self.left().min(times.min(usize::MAX as u64) as usize);
        self.at += passed;
        Ok(passed as u64)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}

/// Uniform noise from -1 to 1 in both parts, a function of the index.
pub(crate) fn noise(stream: usize, time: usize) -> Complex<f64> {
    let part = |k: u64| {
        let mut x = (stream as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (time as u64 * 2 + k);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    Complex::new(part(0), part(1))
}
