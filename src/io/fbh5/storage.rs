//! Reads samples band by band; a band has the times of one chunk.
//!
//! This module reads and decodes bitshuffled chunks; the HDF5 library reads every other layout.
//!
//! Invariant: memory holds one band and one chunk.

use std::io::{Read, Seek, SeekFrom};

use hdf5_pure::{Chunk, Dataset};

use super::bitshuffle;
use super::layout::{Axes, DataLayout, Kind, Packing};
use crate::error::{Error, Result};

/// Samples of a file.
pub(super) struct Storage<R> {
    input: R,
    place: DataLayout,
    kind: Kind,
    band_times: u64,
    packed: Vec<u8>,
    decoded: Vec<u8>,
}

/// Selected feeds of a band, axes feed, time, channel, and its start time.
struct Band<'a> {
    start: u64,
    times: usize,
    feeds: &'a [usize],
    bytes: &'a mut [u8],
}

impl<R: Read + Seek> Storage<R> {
    /// Opens the samples of a data set; `input` is the same file.
    pub(super) fn new(input: R, mut place: DataLayout, dataset: Dataset) -> Result<Self> {
        let (kind, band_times) = place.bind(dataset)?;
        Ok(Self { input, place, kind, band_times, packed: Vec::new(), decoded: Vec::new() })
    }

    /// Returns the number of times in the file.
    pub(super) fn times(&self) -> u64 {
        self.place.axes[0]
    }

    /// Describes what the file's end truncates, if anything.
    pub(super) fn cut(&self) -> Option<&str> {
        self.place.cut.as_deref()
    }

    /// Returns the times per band; the last band may be shorter.
    pub(super) fn band_times(&self) -> u64 {
        self.band_times
    }

    /// Reads the band that starts at time `start`, a multiple of [`Storage::band_times`], into `bytes`: axes feed (of
    /// `feeds`), time, channel.
    pub(super) fn read_band(
        &mut self,
        start: u64,
        feeds: &[usize],
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let [all_times, _, channels] = self.place.axes;
        let times = self.band_times.min(all_times - start) as usize;
        bytes.clear();
        bytes.resize(feeds.len() * times * channels as usize * self.place.element_bytes, 0);
        let mut band = Band { start, times, feeds, bytes };
        match &self.kind {
            Kind::Library(dataset) => read_rows(&self.place, dataset, &mut band),
            Kind::Chunks { chunks, axes, packing } => {
                let first = chunks.partition_point(|chunk| chunk.offset[0] < start);
                let here = chunks[first..].iter().take_while(|chunk| chunk.offset[0] == start);
                for chunk in here.filter(|chunk| wants(feeds, chunk, axes)) {
                    self.packed.resize(chunk.storage_size as usize, 0);
                    self.input
                        .seek(SeekFrom::Start(chunk.address))
                        .and_then(|_| self.input.read_exact(&mut self.packed))
                        .map_err(|e| Error::io(&self.place.path, e))?;
                    let bytes = axes.iter().product::<u64>() as usize * self.place.element_bytes;
                    self.decoded.resize(bytes, 0);
                    let is_plain = chunk.filter_mask & 1 == 1;
                    let packing = (!is_plain).then_some(*packing);
                    decode(&self.packed, packing, self.place.element_bytes, &mut self.decoded)
                        .map_err(|why| self.place.fault(chunk.address, why))?;
                    band.take(&self.place, (chunk, axes), &self.decoded);
                }
                Ok(())
            }
        }
    }
}

/// Reads a band through the HDF5 library.
fn read_rows(place: &DataLayout, dataset: &Dataset, band: &mut Band<'_>) -> Result<()> {
    let rows = dataset.read_raw_rows(band.start, band.times as u64);
    let rows = rows.map_err(|error| place.library_fault(&error))?;
    let line = place.axes[2] as usize * place.element_bytes;
    let row = line * place.axes[1] as usize;
    if rows.len() != band.times * row {
        let why = format!("{} bytes read, expected {}", rows.len(), band.times * row);
        return Err(place.fault(0, why));
    }
    let planes = band.bytes.chunks_exact_mut(band.times * line);
    for (plane, feed) in planes.zip(band.feeds) {
        for (output, row) in plane.chunks_exact_mut(line).zip(rows.chunks_exact(row)) {
            output.copy_from_slice(&row[feed * line..][..line]);
        }
    }
    Ok(())
}

fn decode(
    packed: &[u8],
    packing: Option<Packing>,
    element_bytes: usize,
    output: &mut [u8],
) -> std::result::Result<(), String> {
    match packing {
        Some(Packing::Lz4) => bitshuffle::decode_lz4(packed, element_bytes, output),
        Some(Packing::Bare { block_elements }) => {
            bitshuffle::decode_bare(packed, element_bytes, block_elements, output)
        }
        None if packed.len() == output.len() => {
            output.copy_from_slice(packed);
            Ok(())
        }
        None => Err(format!("{} bytes found, expected {}", packed.len(), output.len())),
    }
}

impl Band<'_> {
    /// Copies a decoded chunk's samples into the band.
    fn take(&mut self, place: &DataLayout, chunk: (&Chunk, &Axes), decoded: &[u8]) {
        let (chunk, axes) = chunk;
        let element = place.element_bytes;
        let [_, chunk_feeds, chunk_channels] = axes.map(|length| length as usize);
        let first = chunk.offset[2] as usize;
        let channels = place.axes[2] as usize;
        let bytes = chunk_channels.min(channels - first) * element;
        for (index, feed) in self.feeds.iter().enumerate() {
            let Some(feed) = feed_in_chunk(*feed, chunk, axes) else { continue };
            for time in 0..self.times {
                let from = (time * chunk_feeds + feed) * chunk_channels * element;
                let to = ((index * self.times + time) * channels + first) * element;
                self.bytes[to..to + bytes].copy_from_slice(&decoded[from..from + bytes]);
            }
        }
    }
}

/// Returns whether a chunk holds any selected feed.
fn wants(feeds: &[usize], chunk: &Chunk, axes: &Axes) -> bool {
    feeds.iter().any(|feed| feed_in_chunk(*feed, chunk, axes).is_some())
}

/// Returns the index of a feed within a chunk, if present.
fn feed_in_chunk(feed: usize, chunk: &Chunk, axes: &Axes) -> Option<usize> {
    let place = (feed as u64).checked_sub(chunk.offset[1])?;
    (place < axes[1]).then_some(place as usize)
}
