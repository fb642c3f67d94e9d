//! Frames made of a recording: one thread per antenna (station) and polarization.
//!
//! Frames have a whole number per second, so that their numbers say their time, and a whole number of 8-byte words. Headers have
//! extended data of version 1, which states the sample rate, if it is a whole number of kHz or MHz, and of version 0 otherwise.

use super::{
    FIRST_MJD, FULL_BYTES, Form, Header, LEAP_MJD, SYNC, seconds_since_2000, station_number,
};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::io::voltages::frames::{Packer, exact_bits};
use crate::units::Epoch;
use crate::voltage::Voltages;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = FULL_BYTES;

/// Longest time of a frame if the sizes allow it, in seconds.
const FRAME_S: f64 = 0.1;

/// Most frames per second.
const MOST_FRAMES: u64 = 1 << 24;

/// Largest reference epoch: half years since 2000.
const LAST_EPOCH: u32 = 63;

/// Sizes of frames to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSizes {
    /// Most bytes of samples.
    pub(crate) most_bytes: usize,
    /// Samples per frame; `None` chooses the most that fit.
    pub(crate) times: Option<usize>,
}

/// Writer of the frames of a recording.
#[derive(Clone, Debug)]
pub(crate) struct FrameWriter {
    header: Header,
    packer: Packer,
    payload_bytes: usize,
    frames_per_s: u64,
    /// Number of the first frame, from the second of the header on.
    first: u64,
    /// Identifiers of the stations.
    stations: Vec<u16>,
    /// Streams of the channels of each thread, thread by thread.
    streams: Vec<Vec<usize>>,
    times: usize,
    /// Seconds by which the first frame begins later than the recording.
    shift_s: f64,
}

impl FrameWriter {
    /// Divides a recording into frames. The first begins at the recording's start, to the nearest frame.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an encoding, a number of channels, a sample rate or a start that frames do not have.
    pub(crate) fn new(recording: &VoltageHeader, sizes: FrameSizes) -> Result<Self> {
        let channels = recording.coarse_channels();
        if !channels.is_power_of_two() || channels >= 1 << 31 {
            let rule = "the channels of a VDIF thread are a power of 2";
            return Err(Error::parameter("recorded channels", channels, rule));
        }
        let bits = exact_bits(recording)?;
        let complex = recording.encoding.is_complex();
        let time_bits = bits * if complex { 2 } else { 1 } * channels;
        let rate = 1.0 / recording.tsamp_s;
        let whole = rate.round();
        if (rate - whole).abs() > 1e-9 * whole || !(1.0..=1e15).contains(&whole) {
            let rule = "a second must have a whole number of samples for whole frames";
            return Err(Error::parameter("sample rate (Hz)", rate, rule));
        }
        let times = frame_times(recording, time_bits, whole as u64, sizes)?;
        let payload_bytes = times * time_bits / 8;
        let frames_per_s = whole as u64 / times as u64;
        let mut header = Header {
            form: Form {
                legacy: false,
                version: 1,
                channels_log2: channels.ilog2(),
                frame_bytes: HEADER_BYTES + payload_bytes,
                complex,
                bits,
                edv: 0,
            },
            invalid: false,
            seconds: 0,
            epoch: 0,
            number: 0,
            thread: 0,
            station: 0,
            extended: [0; 4],
        };
        // The field holds the complex rate; real samples are twice as many.
        let stated = if complex { whole } else { 0.5 * whole };
        let units = [(1e3, 0), (1e6, 1 << 23)];
        let fits = |unit: f64| (stated / unit).fract() == 0.0 && stated / unit < f64::from(1 << 23);
        if let Some((unit, bit)) = units.into_iter().find(|(unit, _)| fits(*unit)) {
            header.form.edv = 1;
            header.extended = [1 << 24 | bit | (stated / unit) as u32, SYNC, 0, 0];
        }
        let start = recording.start;
        let number = (start.seconds.fract() * frames_per_s as f64).round();
        let shift_s = number / frames_per_s as f64 - start.seconds.fract();
        (header.epoch, header.seconds) = moment(&start)?;
        let polarizations = recording.polarizations;
        let stream =
            |antenna: usize, channel: usize| (antenna * channels + channel) * polarizations;
        let threads = recording.antennas * polarizations;
        let streams = (0..threads).map(|thread| {
            let (antenna, polarization) = (thread / polarizations, thread % polarizations);
            (0..channels).map(|channel| stream(antenna, channel) + polarization).collect()
        });
        let layout = header.form.layout();
        Ok(Self {
            packer: Packer::new(recording.encoding, layout),
            payload_bytes,
            frames_per_s,
            first: number as u64,
            stations: stations(recording)?,
            streams: streams.collect(),
            times,
            shift_s,
            header,
        })
    }

    /// Returns the samples per frame.
    pub(crate) fn times(&self) -> usize {
        self.times
    }

    /// Returns the bytes of a frame.
    pub(crate) fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes
    }

    /// Returns the number of threads of all stations.
    pub(crate) fn threads(&self) -> usize {
        self.streams.len()
    }

    /// Returns the streams of a thread, channel by channel.
    pub(super) fn streams_of(&self, thread: usize) -> &[usize] {
        &self.streams[thread]
    }

    /// Begins with the frame in which the sample at `start` lies; returns the samples of the frame before it.
    pub(super) fn align(&mut self, start: &Epoch) -> usize {
        let (times, fraction) = (self.times as u64, start.seconds.fract());
        let rate = (self.frames_per_s * times) as f64;
        let sample = (fraction * rate).round() as u64;
        self.first = sample / times;
        self.shift_s = sample as f64 / rate - fraction;
        (sample % times) as usize
    }

    /// Marks the samples of a frame as invalid.
    pub(super) fn invalidate(frame: &mut [u8]) {
        frame[3] |= 0x80;
    }

    /// Returns the seconds by which the first frame begins later than the recording.
    pub(crate) fn shift_s(&self) -> f64 {
        self.shift_s
    }

    /// Writes the frame of a thread that has the samples from `start` on, and is number `number` of the recording.
    pub(crate) fn write(
        &self,
        voltages: Voltages<'_>,
        start: usize,
        number: u64,
        thread: usize,
        frame: &mut [u8],
    ) {
        let number = self.first + number;
        let per_station = self.streams.len() / self.stations.len();
        let header = Header {
            seconds: self.header.seconds.wrapping_add((number / self.frames_per_s) as u32),
            number: (number % self.frames_per_s) as u32,
            station: self.stations[thread / per_station],
            thread: (thread % per_station) as u16,
            ..self.header
        };
        let (own, payload) = frame.split_at_mut(HEADER_BYTES);
        own.copy_from_slice(&header.bytes());
        self.packer.pack(voltages, &self.streams[thread], start, payload);
    }
}

impl Header {
    /// Returns the bytes of a header with extended data.
    fn bytes(&self) -> [u8; FULL_BYTES] {
        let Form { version, channels_log2, frame_bytes, complex, bits, .. } = self.form;
        let [fourth, fifth, sixth, seventh] = self.extended;
        let words = [
            u32::from(self.invalid) << 31 | self.seconds & ((1 << 30) - 1),
            self.epoch << 24 | self.number,
            version << 29 | channels_log2 << 24 | (frame_bytes / 8) as u32,
            u32::from(complex) << 31
                | (bits as u32 - 1) << 26
                | u32::from(self.thread) << 16
                | u32::from(self.station),
            fourth,
            fifth,
            sixth,
            seventh,
        ];
        let mut bytes = [0; FULL_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Chooses the samples per frame, or checks those given.
fn frame_times(
    recording: &VoltageHeader,
    time_bits: usize,
    rate: u64,
    sizes: FrameSizes,
) -> Result<usize> {
    let most = sizes.most_bytes * 8 / time_bits;
    let fits = |times: usize| {
        times > 0
            && times <= most
            && rate.is_multiple_of(times as u64)
            && rate / times as u64 <= MOST_FRAMES
            && (times * time_bits).is_multiple_of(64)
            && times.is_multiple_of(recording.encoding.group_samples())
    };
    let rule = format!(
        "a VDIF frame has at most {} bytes of samples, here of {time_bits} bits in all channels, in whole words of 8 bytes, and \
         divides a second of {rate} samples",
        sizes.most_bytes
    );
    if let Some(times) = sizes.times {
        return if fits(times) {
            Ok(times)
        } else {
            Err(Error::parameter("samples per frame", times, rule))
        };
    }
    let short = ((rate as f64 * FRAME_S) as usize).clamp(1, most.max(1));
    let found = (1..=short).rev().find(|times| fits(*times));
    let found = found.or_else(|| (short..=most).find(|times| fits(*times)));
    found.ok_or_else(|| Error::parameter("samples per frame", most, rule))
}

/// Returns the identifiers of the stations: those of the recording, if it has them, or numbers from 1 on.
fn stations(recording: &VoltageHeader) -> Result<Vec<u16>> {
    let antennas = recording.antennas;
    if antennas >= 1 << 16 {
        let rule = "VDIF has at most 65535 stations";
        return Err(Error::parameter("antennas", antennas, rule));
    }
    let names: Option<Vec<u16>> = recording.telescope.split(", ").map(station_number).collect();
    // Readers put stations in the order of their identifiers.
    let own = names.filter(|own| own.len() == antennas && own.is_sorted_by(|a, b| a < b));
    Ok(own.unwrap_or_else(|| (1..=antennas as u16).collect()))
}

/// Returns the reference epoch and the seconds since then of the second in which a time lies.
fn moment(time: &Epoch) -> Result<(u32, u32)> {
    let outside = || {
        let rule = "VDIF has times from 2000 to 2031";
        Error::parameter("start (MJD)", time.mjd(), rule)
    };
    let day = time.day - FIRST_MJD;
    if day < 0 {
        return Err(outside());
    }
    let leaps = LEAP_MJD.iter().filter(|leap| **leap <= time.day).count() as i64;
    let second = (day * super::DAY_S + leaps + time.seconds.floor() as i64) as u64;
    let epochs = 0..=LAST_EPOCH;
    let epoch = epochs.rev().find(|epoch| seconds_since_2000(*epoch, 0) <= second);
    let epoch = epoch.ok_or_else(outside)?;
    let seconds = second - seconds_since_2000(epoch, 0);
    // The last epoch has half a year as the others have.
    match seconds {
        0..=16_000_000 => Ok((epoch, seconds as u32)),
        _ => Err(outside()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{epoch, station_name};
    use super::*;
    use crate::voltage::{VoltageBlock, VoltageEncoding};

    const SIZES: FrameSizes = FrameSizes { most_bytes: 8000, times: None };

    fn recording(channels: usize, rate: f64, encoding: VoltageEncoding) -> VoltageHeader {
        let mut header = VoltageHeader::new(vec![0.0; channels], 1.0 / rate, encoding);
        (header.antennas, header.polarizations) = (2, 2);
        header.start = Epoch::new(57_753, 86_399.5);
        header
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        for (encoding, rate, edv) in [
            (VoltageEncoding::Complex4, 1e6, 1),
            (VoltageEncoding::Real2, 64e6, 1),
            // Half of the rate is no whole number of kHz.
            (VoltageEncoding::Real16, 2.5e4, 0),
            (VoltageEncoding::Complex8, 10_500.0, 0),
            (VoltageEncoding::Complex4, 1e10, 1),
        ] {
            let header = recording(4, rate, encoding);
            let writer = FrameWriter::new(&header, SIZES).unwrap();
            let mut block = VoltageBlock::new(encoding, header.streams(), writer.times());
            block.set_times(writer.times()).unwrap();
            let mut frame = vec![0xff; writer.frame_bytes()];
            // The second that follows is a leap second.
            let per_second = writer.frames_per_s;
            writer.write(block.voltages(), 0, per_second + 1, 3, &mut frame);
            let bytes: [u8; FULL_BYTES] = *frame.first_chunk().unwrap();
            let found = Header::parse(&bytes);
            assert!(found.check(std::path::Path::new("x"), 0).is_ok());
            assert_eq!((found.form.edv, found.thread, found.station), (edv, 1, 2));
            assert_eq!(found.form.frame_bytes, frame.len());
            if edv == 1 {
                assert_eq!(found.sample_rate_hz(), Some(rate));
            }
            let second = seconds_since_2000(found.epoch, found.seconds);
            let half = (0.5 * per_second as f64).round() as u64;
            let passed = (half + per_second + 1) / per_second;
            assert_eq!(u64::from(found.number), (half + 1) % per_second);
            let first = seconds_since_2000(writer.header.epoch, writer.header.seconds);
            assert_eq!((second, epoch(first).day), (first + passed, 57_753));
        }
    }

    #[test]
    fn frames_divide_a_second() {
        for (channels, encoding, rate, times) in [
            (1, VoltageEncoding::Complex8, 1e6, 2000),
            (1, VoltageEncoding::Real2, 32e6, 32_000),
            (4, VoltageEncoding::Complex4, 1e6, 2000),
            (1024, VoltageEncoding::Complex4, 1e6 / 64.0, 5),
            (4, VoltageEncoding::Complex8, 1e3, 100),
        ] {
            let writer = FrameWriter::new(&recording(channels, rate, encoding), SIZES).unwrap();
            assert_eq!(writer.times(), times, "{channels} {encoding:?} {rate}");
        }
        let header = recording(1, 1e6, VoltageEncoding::Complex8);
        let with = |times| FrameWriter::new(&header, FrameSizes { times: Some(times), ..SIZES });
        assert_eq!(with(500).unwrap().times(), 500);
        for bad in [0, 3, 501, 4000] {
            let error = with(bad).unwrap_err().to_string();
            assert!(error.contains("samples per frame"), "{error}");
        }
    }

    #[test]
    fn what_frames_cannot_hold_is_refused() {
        let good = recording(4, 1e6, VoltageEncoding::Complex8);
        let with = |change: fn(&mut VoltageHeader)| {
            let mut header = good.clone();
            change(&mut header);
            FrameWriter::new(&header, SIZES).unwrap_err().to_string()
        };
        for (error, words) in [
            (with(|header| header.centres_hz = vec![0.0; 3]), "power of 2"),
            (with(|header| header.tsamp_s = 1.0 / 1_000_000.5), "whole number of samples"),
            (
                with(|header| {
                    (header.tsamp_s, header.centres_hz) = (1.0 / 1_000_003.0, vec![0.0]);
                }),
                "divides a second",
            ),
            (with(|header| header.encoding = VoltageEncoding::ComplexF32), "up to 16 bits"),
            (with(|header| header.centres_hz = vec![0.0; 4096]), "at most 8000 bytes"),
            (with(|header| header.start = Epoch::new(51_543, 0.0)), "2000 to 2031"),
            (with(|header| header.start = Epoch::new(63_300, 0.0)), "2000 to 2031"),
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn stations_keep_their_names() {
        let mut header = recording(1, 1e6, VoltageEncoding::Complex8);
        header.telescope = "Ab, Cd".into();
        let names = |header: &VoltageHeader| -> Vec<String> {
            stations(header).unwrap().into_iter().map(station_name).collect()
        };
        assert_eq!(names(&header), ["Ab", "Cd"]);
        for telescope in ["Cd, Ab", "Ab", "MeerKAT", ""] {
            header.telescope = telescope.into();
            assert_eq!(names(&header), ["station 1", "station 2"], "{telescope}");
        }
        header.telescope = "station 3, station 70".into();
        assert_eq!(names(&header), ["station 3", "station 70"]);
    }

    #[test]
    fn times_are_those_of_their_epoch() {
        for (day, seconds) in [(51_544, 0.0), (56_824, 21_367.9), (57_754, 0.0), (63_048, 5.0)] {
            let (half_years, since) = moment(&Epoch::new(day, seconds)).unwrap();
            let found = epoch(seconds_since_2000(half_years, since));
            assert_eq!((found.day, found.seconds), (day, seconds.floor()));
        }
    }
}
