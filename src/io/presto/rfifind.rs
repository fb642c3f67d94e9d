//! PRESTO's rfifind masks (`.mask`).
//!
//! The file is little endian: six f64 (sigmas in time and frequency, MJD, seconds per interval, MHz of the lowest
//! channel, MHz per channel); three i32 (channels, intervals, samples per interval); the zapped channels and the
//! zapped intervals (each a count and a list); the number of zapped channels of each interval; and these channels,
//! interval by interval. An interval with every channel zapped has a count but no list.
//!
//! Invariant: PRESTO counts channels from the lowest frequency up, whatever the recording's order; only
//! [`Mask::recorded`] converts to the recording's order.
//!
//! # Source
//! PRESTO's `mask.c` (`read_mask`, `write_mask`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::units::{Band, HZ_PER_MHZ, MAX_CHANNELS};

/// The channels zapped in one interval, counted from the lowest frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zapped {
    /// All channels.
    All,
    /// These channels.
    Channels(Vec<u32>),
}

/// A mask as PRESTO stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    /// Path of the mask.
    pub path: PathBuf,
    /// Cut-off in time, sigma.
    pub time_sigma: f64,
    /// Cut-off in frequency, sigma.
    pub frequency_sigma: f64,
    /// Start of the first interval, MJD.
    pub start_mjd: f64,
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Centre of the lowest channel in MHz.
    pub lowest_mhz: f64,
    /// Width of a channel in MHz.
    pub channel_width_mhz: f64,
    /// Number of channels.
    pub channels: usize,
    /// Samples in an interval.
    pub interval_times: usize,
    /// Channels zapped throughout, counted from the lowest frequency.
    pub zapped_channels: Vec<u32>,
    /// Intervals zapped as a whole.
    pub zapped_intervals: Vec<u32>,
    /// Zapped channels of each interval.
    pub intervals: Vec<Zapped>,
}

/// A mask in the order of a recording's channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedMask {
    /// Whether each channel is zapped throughout.
    pub zapped: Vec<bool>,
    /// Samples in an interval.
    pub interval_times: usize,
    /// Channels zapped in each interval, ascending, without those zapped throughout.
    pub intervals: Vec<Vec<u32>>,
}

impl Mask {
    /// Reads a mask file.
    ///
    /// # Errors
    /// As [`Mask::parse`], and [`Error::Io`].
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
        Self::parse(&bytes, path)
    }

    /// Parses a mask from a file's bytes; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Format`] if bytes are missing or left over, a count is invalid, or a channel or interval is out of
    /// range.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let mut cursor = Cursor { bytes, path, at: 0 };
        let [time_sigma, frequency_sigma, start_mjd] =
            [cursor.float("time_sigma")?, cursor.float("freq_sigma")?, cursor.float("MJD")?];
        let interval_s = cursor.positive("dtint")?;
        let lowest_mhz = cursor.positive("lofreq")?;
        let channel_width_mhz = cursor.positive("dfreq")?;
        let channels = cursor.count("numchan", 1, MAX_CHANNELS)?;
        // Each interval takes at least four bytes.
        let intervals = cursor.count("numint", 1, bytes.len() / 4)?;
        let interval_times = cursor.count("ptsperint", 1, i32::MAX as usize)?;
        let zapped_channels = cursor.list("zap_chans", channels)?;
        let zapped_intervals = cursor.list("zap_ints", intervals)?;
        let intervals = cursor.intervals(channels, intervals)?;
        if cursor.at != bytes.len() {
            let why = format!("found {} more bytes after the mask's end", bytes.len() - cursor.at);
            return Err(cursor.error("mask", cursor.at, why));
        }
        Ok(Self {
            path: path.to_path_buf(),
            time_sigma,
            frequency_sigma,
            start_mjd,
            interval_s,
            lowest_mhz,
            channel_width_mhz,
            channels,
            interval_times,
            zapped_channels,
            zapped_intervals,
            intervals,
        })
    }

    /// Returns the mask in the order of `band`'s channels.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the mask was made for another number of channels, or for a band more than half a
    /// channel away.
    pub fn recorded(&self, band: &Band) -> Result<RecordedMask> {
        let misfit = |rule: String| Err(Error::parameter("mask", self.path.display(), rule));
        if self.channels != band.channels() {
            let (ours, theirs) = (self.channels, band.channels());
            return misfit(format!("it has {ours} channels and the recording {theirs}"));
        }
        let lowest_mhz = band.lowest_hz() / HZ_PER_MHZ;
        if (lowest_mhz - self.lowest_mhz).abs() > 0.5 * band.channel_width_hz() / HZ_PER_MHZ {
            let ours = self.lowest_mhz;
            return misfit(format!(
                "its lowest channel is {ours} MHz, the recording's {lowest_mhz}"
            ));
        }
        let order = by_frequency(band);
        let mut zapped = vec![false; self.channels];
        for channel in &self.zapped_channels {
            zapped[order[*channel as usize] as usize] = true;
        }
        let mut intervals: Vec<Vec<u32>> = self
            .intervals
            .iter()
            .map(|interval| match interval {
                Zapped::All => rest(&zapped),
                Zapped::Channels(list) => {
                    let recorded = list.iter().map(|channel| order[*channel as usize]);
                    let mut list: Vec<u32> =
                        recorded.filter(|channel| !zapped[*channel as usize]).collect();
                    list.sort_unstable();
                    list.dedup();
                    list
                }
            })
            .collect();
        for interval in &self.zapped_intervals {
            intervals[*interval as usize] = rest(&zapped);
        }
        Ok(RecordedMask { zapped, interval_times: self.interval_times, intervals })
    }
}

/// Returns all channels except those zapped throughout.
fn rest(zapped: &[bool]) -> Vec<u32> {
    let channels = zapped.iter().enumerate().filter(|(_, zapped)| !**zapped);
    channels.map(|(channel, _)| channel as u32).collect()
}

/// Returns the recorded channels sorted by frequency.
fn by_frequency(band: &Band) -> Vec<u32> {
    let mut order: Vec<u32> = (0..band.channels() as u32).collect();
    let centres = band.centres_hz();
    order.sort_by(|a, b| centres[*a as usize].total_cmp(&centres[*b as usize]));
    order
}

struct Cursor<'a> {
    bytes: &'a [u8],
    path: &'a Path,
    at: usize,
}

impl Cursor<'_> {
    fn error(&self, field: &str, at: usize, why: String) -> Error {
        Error::format(self.path, field, at as u64, why)
    }

    fn take<const BYTES: usize>(&mut self, field: &str) -> Result<[u8; BYTES]> {
        let found = self.bytes[self.at..].first_chunk::<BYTES>();
        let Some(found) = found else {
            let left = self.bytes.len() - self.at;
            let why = format!("the mask breaks off: found {left} bytes, expected {BYTES}");
            return Err(self.error(field, self.at, why));
        };
        self.at += BYTES;
        Ok(*found)
    }

    fn float(&mut self, field: &str) -> Result<f64> {
        let at = self.at;
        let found = f64::from_le_bytes(self.take(field)?);
        if !found.is_finite() {
            return Err(self.error(field, at, format!("found {found}, expected a finite number")));
        }
        Ok(found)
    }

    fn positive(&mut self, field: &str) -> Result<f64> {
        let at = self.at;
        let found = self.float(field)?;
        if found <= 0.0 {
            return Err(self.error(field, at, format!("found {found}, expected more than 0")));
        }
        Ok(found)
    }

    fn count(&mut self, field: &str, least: usize, most: usize) -> Result<usize> {
        let at = self.at;
        let found = i32::from_le_bytes(self.take(field)?);
        match usize::try_from(found) {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            _ => Err(self.error(field, at, format!("found {found}, expected {least} to {most}"))),
        }
    }

    /// Reads `count` numbers below `limit`; memory grows only as bytes are read.
    fn numbers(&mut self, field: &str, count: usize, limit: usize) -> Result<Vec<u32>> {
        let most = limit.saturating_sub(1);
        let number = |_| self.count(field, 0, most).map(|number| number as u32);
        (0..count).map(number).collect()
    }

    fn list(&mut self, field: &str, limit: usize) -> Result<Vec<u32>> {
        let count = self.count(field, 0, limit)?;
        self.numbers(field, count, limit)
    }

    fn intervals(&mut self, channels: usize, intervals: usize) -> Result<Vec<Zapped>> {
        let counts = self.numbers("num_chans_per_int", intervals, channels + 1)?;
        let mut zapped = Vec::with_capacity(counts.len());
        for count in counts {
            let count = count as usize;
            zapped.push(if count == channels {
                Zapped::All
            } else {
                Zapped::Channels(self.numbers("chans", count, channels)?)
            });
        }
        Ok(zapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mask of 4 channels and 3 intervals, in the layout of `write_mask`.
    fn example(lists: &[i32]) -> Vec<u8> {
        let floats = [10.0, 4.0, 59000.5, 1.2, 1400.0, 1.0f64];
        let mut bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.extend([4i32, 3, 1200].iter().flat_map(|value| value.to_le_bytes()));
        bytes.extend(lists.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    /// Channel 0 throughout, interval 2, channels 1 and 3 in interval 0, all in interval 1.
    const LISTS: [i32; 9] = [1, 0, 1, 2, 2, 4, 0, 1, 3];

    fn parse(bytes: &[u8]) -> Result<Mask> {
        Mask::parse(bytes, Path::new("x_rfifind.mask"))
    }

    #[test]
    fn a_mask_is_read_as_presto_writes_it() {
        let mask = parse(&example(&LISTS)).unwrap();
        assert_eq!((mask.channels, mask.interval_times, mask.interval_s), (4, 1200, 1.2));
        assert_eq!((&mask.zapped_channels[..], &mask.zapped_intervals[..]), (&[0][..], &[2][..]));
        let expected = [Zapped::Channels(vec![1, 3]), Zapped::All, Zapped::Channels(Vec::new())];
        assert_eq!(mask.intervals, expected);
    }

    #[test]
    fn channels_are_turned_round_for_a_descending_band() {
        let mask = parse(&example(&LISTS)).unwrap();
        let up = mask.recorded(&Band::uniform(1400.0, 1.0, 4).unwrap()).unwrap();
        assert_eq!(up.zapped, [true, false, false, false]);
        assert_eq!(up.intervals, [vec![1, 3], vec![1, 2, 3], vec![1, 2, 3]]);
        let down = mask.recorded(&Band::uniform(1403.0, -1.0, 4).unwrap()).unwrap();
        assert_eq!(down.zapped, [false, false, false, true]);
        assert_eq!(down.intervals, [vec![0, 2], vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn a_mask_for_another_band_is_refused() {
        let mask = parse(&example(&LISTS)).unwrap();
        assert!(mask.recorded(&Band::uniform(1400.0, 1.0, 5).unwrap()).is_err());
        assert!(mask.recorded(&Band::uniform(1401.0, 1.0, 4).unwrap()).is_err());
    }

    #[test]
    fn broken_masks_are_errors() {
        let good = example(&LISTS);
        for length in 0..good.len() {
            assert!(parse(&good[..length]).is_err(), "{length}");
        }
        let mut long = good;
        long.push(0);
        assert!(parse(&long).is_err());
        let bad: [&[i32]; 5] = [
            &[1, 4, 0, 0, 0, 0],
            &[-1, 0, 0, 0, 0],
            &[0, 1, 3, 0, 0, 0],
            &[0, 0, 5, 0, 0],
            &[0, 0, 1, 0, 0, 7],
        ];
        for lists in bad {
            assert!(parse(&example(lists)).is_err(), "{lists:?}");
        }
    }
}
