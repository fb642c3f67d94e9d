//! GUPPI raw files written byte by byte, without our writer.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::{Path, PathBuf};

use super::voltages::{Keys, save};

/// A file under construction: cards, and the PKTIDX of each block.
#[derive(Clone)]
pub struct Raw {
    pub cards: Vec<(&'static str, String)>,
    pub packets: Vec<u64>,
    /// Samples of each stream in a block.
    pub times: usize,
    /// Bytes of one sample of every stream.
    pub frame: usize,
    pub directio: bool,
    pub filled: bool,
}

pub const CHANNELS: usize = 3;

impl Raw {
    /// Two polarizations of three channels, 8 bits, blocks of 10 samples.
    pub fn new(packets: &[u64]) -> Self {
        let cards = [
            ("OBSFREQ", "1400.0"),
            ("OBSBW", "3.0"),
            ("OBSNCHAN", "3"),
            ("NPOL", "4"),
            ("NBITS", "8"),
            ("TBIN", "1.0E-6"),
            ("STT_IMJD", "60000"),
            ("STT_SMJD", "3600"),
            ("STT_OFFS", "0.25"),
            ("BLOCSIZE", "120"),
            ("PKTSIZE", "12"),
            ("SRC_NAME", "'B0329+54'"),
            ("TELESCOP", "'GBT     '"),
            ("RA_STR", "'03:32:59.4'"),
            ("DEC_STR", "'+54:34:43.3'"),
            ("FD_POLN", "'LIN     '"),
        ];
        let cards = cards.map(|(key, value)| (key, value.to_string())).to_vec();
        let packets = packets.to_vec();
        Self { cards, packets, times: 10, frame: 12, directio: false, filled: false }
    }

    pub fn header(&self, packet: u64) -> Vec<u8> {
        let mut text = String::new();
        for (key, value) in &self.cards {
            text += &format!("{:<80}", format!("{key:<8}= {value:>20}"));
        }
        text += &format!("{:<80}", format!("PKTIDX  = {packet:>20}"));
        text += &format!("{:<80}", "END");
        let mut bytes = text.into_bytes();
        if self.directio {
            bytes.resize(bytes.len().next_multiple_of(512), b' ');
        }
        bytes
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for packet in &self.packets {
            bytes.extend(self.header(*packet));
            let length = self.times * self.frame;
            bytes.extend((0..length).map(|at| payload(*packet, at)));
            if self.filled {
                bytes.resize(bytes.len().next_multiple_of(512), 0);
            }
        }
        bytes
    }

    pub fn save(&self, folder: &Path, name: &str) -> PathBuf {
        save(folder, name, &self.bytes())
    }
}

impl Keys for Raw {
    fn lines(&mut self) -> &mut Vec<(&'static str, String)> {
        &mut self.cards
    }
}

/// Returns the value at a byte of the block with a packet index.
pub fn payload(packet: u64, at: usize) -> u8 {
    ((packet % 1000) as usize * 31 + at * 7 + at / 251) as u8
}

/// Sample `time` of a stream of [`Raw::new`]'s blocks, as bytes: axes channel, time, polarization.
pub fn sample(packet: u64, stream: usize, time: usize) -> [u8; 2] {
    let at = ((stream / 2 * 10 + time) * 2 + stream % 2) * 2;
    [payload(packet, at), payload(packet, at + 1)]
}
