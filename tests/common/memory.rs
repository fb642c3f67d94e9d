//! Recordings in memory, of random bytes.

use sidereal::Result;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::live::send::Recording;
use sidereal::sample::Encoding;
use sidereal::units::{Band, Epoch};
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

use crate::random::Random;

/// Spectra: rows of bytes.
#[derive(Clone)]
pub(crate) struct Spectra {
    pub(crate) header: FilterbankHeader,
    pub(crate) rows: Vec<u8>,
    read: usize,
}

impl Spectra {
    pub(crate) fn new(channels: usize, times: usize, tsamp_s: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let header = FilterbankHeader {
            path: "memory".into(),
            format: "PSRDADA spectra",
            source_name: "J0000+0000".into(),
            telescope: "test".into(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 60_000.25,
            tsamp_s,
            band: Band::uniform(1500.0, -1.0, channels).unwrap(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 1,
            times: Some(times as u64),
        };
        // No byte is 0, so that a lost sample is none of the recording.
        let rows = (0..channels * times).map(|_| 1 + random.below(255) as u8).collect();
        Self { header, rows, read: 0 }
    }

    pub(crate) fn recording(&self) -> Recording {
        Recording::Spectra(Box::new(self.clone()))
    }
}

impl FilterbankSource for Spectra {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let count = rows.len().min(self.rows.len() - self.read);
        rows[..count].copy_from_slice(&self.rows[self.read..][..count]);
        self.read += count;
        Ok(count / self.header.row_bytes())
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let bytes = (times as usize * self.header.row_bytes()).min(self.rows.len() - self.read);
        self.read += bytes;
        Ok((bytes / self.header.row_bytes()) as u64)
    }
}

/// Voltages: a row of bytes of each stream.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) header: VoltageHeader,
    pub(crate) block: VoltageBlock<'static>,
    read: usize,
}

impl Streams {
    pub(crate) fn new(antennas: usize, channels: usize, times: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let centres = (0..channels).map(|channel| 1400e6 + 1e6 * channel as f64).collect();
        let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
        (header.antennas, header.polarizations) = (antennas, 2);
        header.lower_sideband = seed % 2 == 1;
        header.start = Epoch::new(60_000, 3600.0);
        header.times = Some(times as u64);
        let mut block = header.block(times);
        for row in block.rows_mut() {
            row.iter_mut().for_each(|byte| *byte = 1 + random.below(255) as u8);
        }
        block.set_times(times).unwrap();
        Self { header, block, read: 0 }
    }

    pub(crate) fn recording(&self) -> Recording {
        Recording::Voltages(Box::new(self.clone()))
    }
}

impl VoltageSource for Streams {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let count = block.capacity().min(self.block.times() - self.read);
        let encoding = self.header.encoding;
        let (from, bytes) = (encoding.bytes(self.read), encoding.bytes(count));
        let own = self.block.voltages();
        for (stream, row) in block.rows_mut().enumerate() {
            row[..bytes].copy_from_slice(&own.row(stream)[from..][..bytes]);
        }
        block.set_times(count)?;
        self.read += count;
        Ok(count)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let count = (times as usize).min(self.block.times() - self.read);
        self.read += count;
        Ok(count as u64)
    }
}
