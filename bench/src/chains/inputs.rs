//! Recordings for whole chains: deterministic noise with known bursts, written by all threads in bounded memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sidereal::backend::threads::Threads;
use sidereal::io::positioned::FileExt;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::io::voltages::{VoltageHeader, dada, guppi};
use sidereal::io::{FilterbankHeader, FilterbankSource, atomic};
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{Band, Epoch};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

use crate::random::Random;
use crate::runner::Caller;

/// Bytes that a thread writes at a time.
const PIECE: usize = 4 << 20;

/// Bytes of voltage noise, which recordings repeat.
const NOISE: usize = 16 << 20;

/// Rms of the voltage noise in counts.
const RMS: f64 = 20.0;

/// Bytes of a header card of GUPPI raw.
const CARD: usize = 80;

/// Channels of a filterbank.
pub(super) const CHANNELS: usize = 1024;

/// Sampling time of a filterbank in seconds.
pub(super) const TSAMP_S: f64 = 64e-6;

/// Upper edge and width of a channel of the filterbanks.
const FCH1_MHZ: f64 = 1500.0;
const FOFF_MHZ: f64 = -300.0 / 1024.0;

/// Bursts of three kinds of tiles: DM, width in seconds and S/N.
const BURSTS: [[f64; 3]; 3] = [[50.0, 1e-3, 30.0], [150.0, 2e-3, 40.0], [300.0, 4e-3, 50.0]];

/// Position of a burst in its tile, as a fraction of the tile.
const BURST_AT: f64 = 0.3;

/// Recorded channels of the GUPPI recordings, each with two polarizations.
pub(super) const COARSE: usize = 16;

/// Bandwidth and centre of a GUPPI recording in Hz.
pub(super) const COARSE_HZ: f64 = 2_929_687.5;
const CENTRE_HZ: f64 = 1.4e9;

/// Samples of each stream in a block of GUPPI raw: 16 MiB of all streams.
pub(super) const BLOCK_TIMES: u64 = (NOISE / (COARSE * 4)) as u64;

/// Bandwidth of an antenna of the array in Hz; one channel, two polarizations.
const ARRAY_HZ: f64 = 20e6;

/// Filterbank of 8 bits, 1024 channels and 64 us, made of tiles of equal length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Filterbank {
    /// Rows of a tile.
    pub(super) tile_rows: u64,
    /// Tiles with a burst.
    pub(super) bursts: u64,
    /// Tiles of noise after each.
    pub(super) silent: u64,
}

impl Filterbank {
    fn tiles(self) -> u64 {
        self.bursts * (1 + self.silent)
    }

    /// Returns the bytes of all rows.
    pub(super) fn bytes(self) -> u64 {
        self.tiles() * self.tile_rows * CHANNELS as u64
    }

    /// Returns the length in seconds.
    pub(super) fn seconds(self) -> f64 {
        (self.tiles() * self.tile_rows) as f64 * TSAMP_S
    }

    /// Makes one of the kinds of tiles: one burst, or none.
    fn tile(self, burst: Option<[f64; 3]>, seed: u64, threads: &Threads) -> Result<Tile> {
        let band = Band::uniform(FCH1_MHZ, FOFF_MHZ, CHANNELS)?;
        let mut options = Options::new(band, TSAMP_S, self.tile_rows);
        options.seed = seed;
        "bench chains".clone_into(&mut options.source_name);
        if let Some([dm, width_s, snr]) = burst {
            let time_s = BURST_AT * self.tile_rows as f64 * TSAMP_S;
            options.bursts.push(Burst::new(dm, time_s, width_s, snr));
        }
        let mut simulator = Simulator::new(options)?.with_threads(threads.clone());
        let mut rows = vec![0; self.tile_rows as usize * CHANNELS];
        simulator.read(&mut rows)?;
        Ok(Tile { header: simulator.header().clone(), rows })
    }

    /// Writes the recording.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::stopped`] if the user asked to stop.
    pub(super) fn write(self, path: &Path, maker: &Maker<'_>) -> Result<()> {
        let mut tiles = Vec::new();
        for (seed, burst) in BURSTS.into_iter().enumerate() {
            tiles.push(self.tile(Some(burst), seed as u64, maker.threads)?);
            maker.caller.check_interrupt()?;
        }
        if self.silent > 0 {
            tiles.push(self.tile(None, BURSTS.len() as u64, maker.threads)?);
        }
        let header = header_of(path, |path| {
            let header = FilterbankHeader { times: None, ..tiles[0].header.clone() };
            FilterbankWriter::create(path, &header)?.finish()
        })?;
        let tile_bytes = self.tile_rows * CHANNELS as u64;
        maker.write(path, header.len() as u64 + self.bytes(), |mut at, mut piece| {
            at = copy_header(&header, at, &mut piece);
            while !piece.is_empty() {
                let (index, offset) = (at / tile_bytes, (at % tile_bytes) as usize);
                let kind = match index % (1 + self.silent) {
                    0 => (index / (1 + self.silent)) as usize % BURSTS.len(),
                    _ => BURSTS.len(),
                };
                at += copy_from(&tiles[kind].rows[offset..], &mut piece);
            }
        })
    }
}

/// Rows of a tile, and the header of its recording.
struct Tile {
    header: FilterbankHeader,
    rows: Vec<u8>,
}

/// Writes `blocks` blocks of GUPPI raw: 16 recorded channels, two polarizations, 8 bit.
///
/// # Errors
/// [`Error::Io`]; [`Error::stopped`] if the user asked to stop.
pub(super) fn write_guppi(path: &Path, blocks: u64, maker: &Maker<'_>) -> Result<()> {
    let centre = |channel: usize| CENTRE_HZ + (channel as f64 - 7.5) * COARSE_HZ;
    let mut about = VoltageHeader::new(
        (0..COARSE).map(centre).collect(),
        1.0 / COARSE_HZ,
        VoltageEncoding::Complex8,
    );
    "bench chains".clone_into(&mut about.source_name);
    about.polarizations = 2;
    about.start = Epoch::new(60000, 0.0);
    let streams = about.streams();
    let first = header_of(path, |path| {
        let times = BLOCK_TIMES as usize;
        let options =
            guppi::WriterOptions { block_times: Some(times), ..guppi::WriterOptions::default() };
        let mut writer = guppi::Writer::create(path, &about, &options)?;
        let zeros = vec![0; NOISE];
        writer.write(Voltages::new(&zeros, about.encoding, streams, 2 * times, times)?)?;
        writer.finish()
    })?;
    let first = &first[..first.len() - NOISE];
    let headers: Vec<Vec<u8>> = (0..blocks).map(|block| numbered(first, block)).collect();
    let (noise, block_bytes) = (noise(), first.len() as u64 + NOISE as u64);
    maker.write(path, blocks * block_bytes, |mut at, mut piece| {
        while !piece.is_empty() {
            let (block, before) = ((at / block_bytes) as usize, piece.len());
            let within = copy_header(&headers[block], at % block_bytes, &mut piece) as usize;
            // Each block begins at another sample, so that neighbouring blocks differ.
            let shift = (block * 64 * 4099) % NOISE;
            copy_round(&noise, shift + within, NOISE - within, &mut piece);
            at += (before - piece.len()) as u64;
        }
    })
}

/// Returns the header of GUPPI raw with the number of the block's first sample.
fn numbered(first: &[u8], block: u64) -> Vec<u8> {
    let mut header = first.to_vec();
    for card in header.chunks_exact_mut(CARD).filter(|card| card.starts_with(b"PKTIDX  ")) {
        let text = format!("{:<8}= {:>20}", "PKTIDX", block * BLOCK_TIMES);
        card.fill(b' ');
        card[..text.len()].copy_from_slice(text.as_bytes());
    }
    header
}

/// Array of antennas with a PSRDADA file each: one channel of 20 MHz, two polarizations, 8 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) antennas: usize,
    /// Samples of each stream.
    pub(super) times: u64,
}

impl Array {
    /// Returns the bytes of an antenna's samples.
    fn antenna_bytes(self) -> u64 {
        4 * self.times
    }

    /// Returns the bytes of all antennas.
    pub(super) fn bytes(self) -> u64 {
        self.antennas as u64 * self.antenna_bytes()
    }

    /// Returns the length in seconds.
    pub(super) fn seconds(self) -> f64 {
        self.times as f64 / ARRAY_HZ
    }

    /// Writes the recordings and the positions of the antennas into a folder; returns the paths of the recordings.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::stopped`] if the user asked to stop.
    pub(super) fn write(self, folder: &Path, maker: &Maker<'_>) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        let noise = noise();
        let mut positions =
            "# longitude_deg=21.44\n# latitude_deg=-30.71\n# height_m=1053\nname,east,north,up\n"
                .to_owned();
        let mut random = Random::new();
        let mut paths = Vec::new();
        for antenna in 0..self.antennas {
            let name = format!("a{antenna:03}");
            let place = [(); 2].map(|()| 2000.0 * (random.unit() - 0.5));
            positions += &format!("{name},{:.3},{:.3},0\n", place[0], place[1]);
            let path = folder.join(format!("{name}.dada"));
            self.write_antenna(&path, &name, antenna, &noise, maker)?;
            paths.push(path);
        }
        atomic::write(&folder.join(POSITIONS), positions.as_bytes())?;
        Ok(paths)
    }

    fn write_antenna(
        self,
        path: &Path,
        name: &str,
        antenna: usize,
        noise: &[u8],
        maker: &Maker<'_>,
    ) -> Result<()> {
        let mut about =
            VoltageHeader::new(vec![CENTRE_HZ], 1.0 / ARRAY_HZ, VoltageEncoding::Complex8);
        name.clone_into(&mut about.telescope);
        "bench chains".clone_into(&mut about.source_name);
        about.polarizations = 2;
        about.start = Epoch::new(60000, 0.0);
        let sample = [0u8; 4];
        let one = header_of(path, |path| {
            let mut writer = dada::Writer::create(path, &about)?;
            writer.write(Voltages::new(&sample, about.encoding, 2, 2, 1)?)?;
            writer.finish()
        })?;
        let header = sized(&one[..one.len() - sample.len()], self.antenna_bytes());
        // Each antenna begins elsewhere in the noise, which none reaches within the delays of an array.
        let shift = (antenna * 4 * 65_521) % NOISE;
        maker.write(path, header.len() as u64 + self.antenna_bytes(), |at, mut piece| {
            let start = (copy_header(&header, at, &mut piece) % NOISE as u64) as usize;
            let rest = piece.len();
            copy_round(noise, shift + start, rest, &mut piece);
        })
    }
}

/// Name of the file of the antennas' positions.
pub(super) const POSITIONS: &str = "antennas.csv";

/// Returns a PSRDADA header with another FILE_SIZE.
fn sized(header: &[u8], bytes: u64) -> Vec<u8> {
    let text = String::from_utf8_lossy(header);
    let lines = text.trim_end_matches('\0').lines().map(|line| match line.split_once(' ') {
        Some(("FILE_SIZE", _)) => format!("{:<13}{bytes}\n", "FILE_SIZE"),
        _ => format!("{line}\n"),
    });
    let mut sized = lines.collect::<String>().into_bytes();
    sized.resize(header.len(), 0);
    sized
}

/// Writes a table of `count` binaries of 20 to 60 solar masses each.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn write_binaries(path: &Path, count: usize) -> Result<()> {
    let mut random = Random::new();
    let mut text = "mass1,mass2\n".to_owned();
    for _ in 0..count {
        let [a, b] = [(); 2].map(|()| 20.0 + 40.0 * random.unit());
        text += &format!("{:.6},{:.6}\n", a.max(b), a.min(b));
    }
    atomic::write(path, text.as_bytes())
}

/// Returns approximately normal 8-bit noise.
fn noise() -> Vec<u8> {
    /// Bits of an index of the table of deviates.
    const BITS: u32 = 12;
    let mut random = Random::new();
    // Deviates in pairs of opposite sign: their mean is 0.
    let deviates = (0..1 << (BITS - 1)).map(|_| RMS * random.normal());
    let table: Vec<u8> = deviates
        .flat_map(|deviate| [deviate, -deviate])
        .map(|deviate| (deviate.round().clamp(-127.0, 127.0) as i8).cast_unsigned())
        .collect();
    let mut noise = vec![0; NOISE];
    for bytes in noise.chunks_mut(5) {
        let mut word = random.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 4;
        for byte in bytes {
            *byte = table[word as usize % (1 << BITS)];
            word >>= BITS;
        }
    }
    noise
}

/// Writes a file beside `path`, and returns its bytes.
fn header_of(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<Vec<u8>> {
    let beside = unfinished(path);
    write(&beside)?;
    let bytes = fs::read(&beside).map_err(|error| Error::io(&beside, error))?;
    fs::remove_file(&beside).map_err(|error| Error::io(&beside, error))?;
    Ok(bytes)
}

/// Returns the hidden name of a file that is being written.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.unfinished"))
}

/// Copies as much of `from` as the piece takes, advances the piece, and returns the number of bytes.
fn copy_from(from: &[u8], piece: &mut &mut [u8]) -> u64 {
    let bytes = from.len().min(piece.len());
    let (to, rest) = std::mem::take(piece).split_at_mut(bytes);
    to.copy_from_slice(&from[..bytes]);
    *piece = rest;
    bytes as u64
}

/// Copies the header if `at` lies in it; returns the offset in the data after it.
fn copy_header(header: &[u8], at: u64, piece: &mut &mut [u8]) -> u64 {
    let length = header.len() as u64;
    if at < length {
        let copied = copy_from(&header[at as usize..], piece);
        return (at + copied).saturating_sub(length);
    }
    at - length
}

/// Copies at most `most` bytes from `start` on of noise that repeats.
fn copy_round(noise: &[u8], start: usize, most: usize, piece: &mut &mut [u8]) {
    let (mut at, mut left) = (start % noise.len(), most.min(piece.len()));
    while left > 0 {
        let part = &noise[at..noise.len().min(at + left)];
        left -= copy_from(part, piece) as usize;
        at = 0;
    }
}

/// Threads that write recordings, and the program that may be interrupted meanwhile.
pub(super) struct Maker<'a> {
    pub(super) threads: &'a Threads,
    pub(super) caller: &'a dyn Caller,
}

impl Maker<'_> {
    /// Writes a file of `length` bytes: `fill(offset, piece)` makes the bytes from an offset on, on any thread. The
    /// file has its name when it is complete.
    fn write(&self, path: &Path, length: u64, fill: impl Fn(u64, &mut [u8]) + Sync) -> Result<()> {
        let hidden = unfinished(path);
        let done = self.write_pieces(&hidden, length, fill);
        let renamed =
            done.and_then(|()| fs::rename(&hidden, path).map_err(|error| Error::io(path, error)));
        if renamed.is_err() {
            // The error of the write is the one to report.
            let _ = fs::remove_file(&hidden);
        }
        renamed
    }

    fn write_pieces(
        &self,
        path: &Path,
        length: u64,
        fill: impl Fn(u64, &mut [u8]) + Sync,
    ) -> Result<()> {
        let file = File::create(path).map_err(|error| Error::io(path, error))?;
        let next = AtomicU64::new(0);
        let failed = Mutex::new(Ok(()));
        let work = || {
            let mut piece = vec![0; PIECE];
            loop {
                let at = next.fetch_add(PIECE as u64, Ordering::Relaxed);
                if at >= length {
                    return;
                }
                let piece = &mut piece[..PIECE.min((length - at) as usize)];
                fill(at, piece);
                if let Err(error) = file.write_all_at(piece, at) {
                    next.store(length, Ordering::Relaxed);
                    *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                        Err(Error::io(path, error));
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads.count()).map(|_| scope.spawn(work)).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                if let Err(error) = self.caller.check_interrupt() {
                    next.store(length, Ordering::Relaxed);
                    return Err(error);
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Ok(())
        })?;
        failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Document;
    use sidereal::io::voltages::{self, VoltageOptions};
    use sidereal::io::{Polarizations, sigproc};

    struct Unasked;

    impl Caller for Unasked {
        fn print(&self, _: &Document) -> Result<()> {
            Ok(())
        }

        fn check_interrupt(&self) -> Result<()> {
            Ok(())
        }

        fn has_ranks(&self) -> bool {
            false
        }

        fn hold(&self, _: &Path) -> Box<dyn std::any::Any> {
            Box::new(())
        }
    }

    struct Interrupted;

    impl Caller for Interrupted {
        fn print(&self, _: &Document) -> Result<()> {
            Ok(())
        }

        fn check_interrupt(&self) -> Result<()> {
            Err(Error::stopped("the run"))
        }

        fn has_ranks(&self) -> bool {
            false
        }

        fn hold(&self, _: &Path) -> Box<dyn std::any::Any> {
            Box::new(())
        }
    }

    #[test]
    fn recordings_are_the_same_for_any_threads_and_readers_take_them() {
        let folder = tempfile::tempdir().unwrap();
        let filterbank = Filterbank { tile_rows: 3000, bursts: 4, silent: 1 };
        let array = Array { antennas: 3, times: 5 << 20 };
        let made = [1, 3].map(|count| {
            let threads = Threads::new(count);
            let maker = Maker { threads: &threads, caller: &Unasked };
            let place = folder.path().join(count.to_string());
            fs::create_dir(&place).unwrap();
            filterbank.write(&place.join("a.fil"), &maker).unwrap();
            write_guppi(&place.join("a.raw"), 2, &maker).unwrap();
            let antennas = array.write(&place.join("array"), &maker).unwrap();
            let names = fs::read_dir(&place).unwrap().count();
            assert_eq!(names, 3, "nothing unfinished stays");
            let mut paths = vec![place.join("a.fil"), place.join("a.raw")];
            paths.extend(antennas);
            paths
        });
        for (one, other) in made[0].iter().zip(&made[1]) {
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{}", one.display());
        }
        let reader = sigproc::open(&made[0][0], Polarizations::Total).unwrap();
        assert_eq!(reader.header().times, Some(8 * 3000));
        assert_eq!(filterbank.bytes(), 8 * 3000 * CHANNELS as u64);
        let header = |path: &PathBuf| {
            let source =
                voltages::open(std::slice::from_ref(path), &VoltageOptions::default()).unwrap();
            assert_eq!(source.cut(), None);
            source.header().clone()
        };
        let guppi = header(&made[0][1]);
        assert_eq!((guppi.times, guppi.streams()), (Some(2 * BLOCK_TIMES), 2 * COARSE));
        for (antenna, path) in made[0][2..].iter().enumerate() {
            let dada = header(path);
            assert_eq!((dada.times, dada.streams()), (Some(array.times), 2));
            assert_eq!(dada.telescope, format!("a{antenna:03}"));
        }
        let [one, other] = [&made[0][2], &made[0][3]].map(|path| fs::read(path).unwrap());
        assert!(one[4096..] != other[4096..], "antennas have noise of their own");
    }

    #[test]
    fn an_interrupted_recording_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let threads = Threads::new(1);
        let maker = Maker { threads: &threads, caller: &Interrupted };
        let error = write_guppi(&folder.path().join("a.raw"), 2, &maker).unwrap_err();
        assert!(error.is_stop());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
