//! Writes a strain channel as a frame file of version 8.
//!
//! A frame is at most 64 s long, as in LIGO's strain files, so memory holds at most one frame.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sofars::cal::jd2cal;
use sofars::ts::dat;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::gwf::structure::{Checksum, HEAD_BYTES};
use crate::units::{GPS_ZERO_MJD, Gps, SECONDS_PER_DAY};
use crate::view::check_length;

/// Maximum seconds per frame.
const FRAME_S: u64 = 64;
const TAI_GPS_S: i64 = 19;
/// Header code of the checksum: POSIX `cksum`.
const POSIX_CHECKSUM: u8 = 1;
/// Bits of FrVect.compress: little endian, and zlib.
const LITTLE_ENDIAN: u16 = 256;
const ZLIB: u16 = 1;

/// Classes of this writer, numbered from 3 in this order: names, then fields and types.
const CLASSES: [(&str, &[(&str, &str)]); 6] = [
    (
        "FrameH",
        &[
            ("name", "STRING"),
            ("run", "INT_4S"),
            ("frame", "INT_4U"),
            ("dataQuality", "INT_4U"),
            ("GTimeS", "INT_4U"),
            ("GTimeN", "INT_4U"),
            ("ULeapS", "INT_2U"),
            ("dt", "REAL_8"),
            ("type", "PTR_STRUCT(FrVect *)"),
            ("user", "PTR_STRUCT(FrVect *)"),
            ("detectSim", "PTR_STRUCT(FrDetector *)"),
            ("detectProc", "PTR_STRUCT(FrDetector *)"),
            ("history", "PTR_STRUCT(FrHistory *)"),
            ("rawData", "PTR_STRUCT(FrRawData *)"),
            ("procData", "PTR_STRUCT(FrProcData *)"),
            ("simData", "PTR_STRUCT(FrSimData *)"),
            ("event", "PTR_STRUCT(FrEvent *)"),
            ("simEvent", "PTR_STRUCT(FrSimEvent *)"),
            ("summaryData", "PTR_STRUCT(FrSummary *)"),
            ("auxData", "PTR_STRUCT(FrVect *)"),
            ("auxTable", "PTR_STRUCT(FrTable *)"),
        ],
    ),
    (
        "FrProcData",
        &[
            ("name", "STRING"),
            ("comment", "STRING"),
            ("type", "INT_2U"),
            ("subType", "INT_2U"),
            ("timeOffset", "REAL_8"),
            ("tRange", "REAL_8"),
            ("fShift", "REAL_8"),
            ("phase", "REAL_4"),
            ("fRange", "REAL_8"),
            ("BW", "REAL_8"),
            ("nAuxParam", "INT_2U"),
            ("auxParam", "REAL_8[nAuxParam]"),
            ("auxParamNames", "STRING[nAuxParam]"),
            ("data", "PTR_STRUCT(FrVect *)"),
            ("aux", "PTR_STRUCT(FrVect *)"),
            ("table", "PTR_STRUCT(FrTable *)"),
            ("history", "PTR_STRUCT(FrHistory *)"),
            ("next", "PTR_STRUCT(FrProcData *)"),
        ],
    ),
    (
        "FrVect",
        &[
            ("name", "STRING"),
            ("compress", "INT_2U"),
            ("type", "INT_2U"),
            ("nData", "INT_8U"),
            ("nBytes", "INT_8U"),
            ("data", "CHAR[nBytes]"),
            ("nDim", "INT_4U"),
            ("nx", "INT_8U[nDim]"),
            ("dx", "REAL_8[nDim]"),
            ("startX", "REAL_8[nDim]"),
            ("unitX", "STRING[nDim]"),
            ("unitY", "STRING"),
            ("next", "PTR_STRUCT(FrVect *)"),
        ],
    ),
    (
        "FrEndOfFrame",
        &[("run", "INT_4S"), ("frame", "INT_4U"), ("GTimeS", "INT_4U"), ("GTimeN", "INT_4U")],
    ),
    (
        "FrTOC",
        &[
            ("ULeapS", "INT_2S"),
            ("nFrame", "INT_4U"),
            ("dataQuality", "INT_4U[nFrame]"),
            ("GTimeS", "INT_4U[nFrame]"),
            ("GTimeN", "INT_4U[nFrame]"),
            ("dt", "REAL_8[nFrame]"),
            ("runs", "INT_4S[nFrame]"),
            ("frame", "INT_4U[nFrame]"),
            ("positionH", "INT_8U[nFrame]"),
            ("nFirstADC", "INT_8U[nFrame]"),
            ("nFirstSer", "INT_8U[nFrame]"),
            ("nFirstTable", "INT_8U[nFrame]"),
            ("nFirstMsg", "INT_8U[nFrame]"),
            ("nSH", "INT_4U"),
            ("SHid", "INT_2U[nSH]"),
            ("SHname", "STRING[nSH]"),
            ("nDetector", "INT_4U"),
            ("nameDetector", "STRING[nDetector]"),
            ("positionDetector", "INT_8U[nDetector]"),
            ("nStatType", "INT_4U"),
            ("nameStat", "STRING[nStatType]"),
            ("detector", "STRING[nStatType]"),
            ("nStatInstance", "INT_4U[nStatType]"),
            ("nTotalStat", "INT_4U"),
            ("tStart", "INT_4U[nTotalStat]"),
            ("tEnd", "INT_4U[nTotalStat]"),
            ("version", "INT_4U[nTotalStat]"),
            ("positionStat", "INT_8U[nTotalStat]"),
            ("nADC", "INT_4U"),
            ("name", "STRING[nADC]"),
            ("channelID", "INT_4U[nADC]"),
            ("groupID", "INT_4U[nADC]"),
            ("positionADC", "INT_8U[nADC][nFrame]"),
            ("nProc", "INT_4U"),
            ("nameProc", "STRING[nProc]"),
            ("positionProc", "INT_8U[nProc][nFrame]"),
            ("nSim", "INT_4U"),
            ("nameSim", "STRING[nSim]"),
            ("positionSim", "INT_8U[nSim][nFrame]"),
            ("nSer", "INT_4U"),
            ("nameSer", "STRING[nSer]"),
            ("positionSer", "INT_8U[nSer][nFrame]"),
            ("nSummary", "INT_4U"),
            ("nameSum", "STRING[nSummary]"),
            ("positionSum", "INT_8U[nSummary][nFrame]"),
            ("nEventType", "INT_4U"),
            ("nameEvent", "STRING[nEventType]"),
            ("nEvent", "INT_4U[nEventType]"),
            ("nTotalEvent", "INT_4U"),
            ("GTimeSEvent", "INT_4U[nTotalEvent]"),
            ("GTimeNEvent", "INT_4U[nTotalEvent]"),
            ("amplitudeEvent", "REAL_4[nTotalEvent]"),
            ("positionEvent", "INT_8U[nTotalEvent]"),
            ("nSimEventType", "INT_4U"),
            ("nameSimEvent", "STRING[nSimEventType]"),
            ("nSimEvent", "INT_4U[nSimEventType]"),
            ("nTotalSEvent", "INT_4U"),
            ("GTimeSSim", "INT_4U[nTotalSEvent]"),
            ("GTimeNSim", "INT_4U[nTotalSEvent]"),
            ("amplitudeSimEvent", "REAL_4[nTotalSEvent]"),
            ("positionSimEvent", "INT_8U[nTotalSEvent]"),
        ],
    ),
    (
        "FrEndOfFile",
        &[
            ("nFrames", "INT_4U"),
            ("nBytes", "INT_8U"),
            ("seekTOC", "INT_8U"),
            ("chkSumFrHeader", "INT_4U"),
            ("chkSum", "INT_4U"),
            ("chkSumFile", "INT_4U"),
        ],
    ),
];
const FRAME: u16 = 3;
const PROCESSED: u16 = 4;
const VECTOR: u16 = 5;
const END_OF_FRAME: u16 = 6;
const TABLE: u16 = 7;
const END_OF_FILE: u16 = 8;

/// Contents of a strain frame file.
#[derive(Clone, Debug, PartialEq)]
pub struct GwfHeader {
    /// Name of the channel, such as `H1:STRAIN`.
    pub channel: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Number of samples.
    pub samples: u64,
    /// Unit of the samples: `strain`.
    pub unit: String,
    /// Description of the data in one sentence.
    pub description: String,
    /// Whether to compress samples with zlib.
    pub is_compressed: bool,
    /// Channels with one number per second, from the first sample on: names and numbers.
    pub masks: Vec<(String, Vec<u32>)>,
}

/// Unfinished file; dropping it before [`GwfWriter::finish`] removes the file.
#[derive(Debug)]
pub struct GwfWriter {
    file: AtomicFile,
    header: GwfHeader,
    leap_s: u16,
    /// Bytes written so far.
    bytes: u64,
    /// Checksum of the bytes written so far.
    sum: Checksum,
    header_sum: u32,
    /// Samples of the current frame.
    held: Vec<f64>,
    /// Number of samples written before the current frame.
    before: u64,
    frames: Vec<FrameEntry>,
    /// Number of structures of each class in this frame.
    counts: [u32; CLASSES.len()],
    /// Number of classes defined so far.
    defined: usize,
}

/// Table-of-contents entry of a frame.
#[derive(Clone, Debug)]
struct FrameEntry {
    start: Gps,
    length_s: f64,
    place: u64,
    /// Offsets of the channels: strain, then the masks.
    channels: Vec<u64>,
}

/// Serialized fields of a structure.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u16(&mut self, number: u16) {
        self.0.extend(number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn real(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Appends a string with its length and NUL, truncated to 65534 bytes.
    fn text(&mut self, text: &str) {
        let end = text.floor_char_boundary(text.len().min(usize::from(u16::MAX) - 1));
        self.u16(end as u16 + 1);
        self.0.extend(&text.as_bytes()[..end]);
        self.0.push(0);
    }

    fn pointer(&mut self, class: u16, instance: u32) {
        self.u16(class);
        self.u32(instance);
    }

    fn nothing(&mut self, pointers: usize) {
        (0..pointers).for_each(|_| self.pointer(0, 0));
    }
}

/// Encoded samples of a vector.
struct Encoded {
    /// FrVect.type: 2 for 64-bit floats, 4 for 32-bit integers.
    kind: u16,
    samples: u64,
    bytes: Vec<u8>,
}

impl GwfHeader {
    fn check(&self) -> Result<()> {
        let is_name = |name: &str| {
            let is_letter = |b: u8| b.is_ascii_graphic() && b != b'/';
            (1..=255).contains(&name.len()) && name.bytes().all(is_letter)
        };
        let bad = [&self.channel].into_iter().chain(self.masks.iter().map(|mask| &mask.0));
        if let Some(bad) = bad.into_iter().find(|name| !is_name(name)) {
            let rule = "it must be 1 to 255 letters, digits and marks without spaces, as H1:STRAIN";
            return Err(Error::parameter("channel", bad, rule));
        }
        if self.rate_hz == 0 || self.samples == 0 {
            let rule = "rate and length must be above 0";
            return Err(Error::parameter("samples", self.samples, rule));
        }
        let rate = u64::from(self.rate_hz);
        for (_, numbers) in &self.masks {
            let seconds = self.samples.div_ceil(rate) as usize;
            check_length("mask (seconds)", seconds, numbers.len())?;
        }
        if !(0..3_786_825_600_000_000_000).contains(&self.start.ns) {
            let rule = "it must lie in the years 1980 to 2099";
            return Err(Error::parameter("start (GPS s)", self.start.s(), rule));
        }
        Ok(())
    }
}

impl GwfWriter {
    /// Creates a file; `finish` replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a header without samples, rate or channel name, or a time outside the years 1980 to
    /// 2099; [`Error::Shape`] unless each mask has one number per second; [`Error::Io`].
    pub fn create(path: &Path, header: &GwfHeader) -> Result<Self> {
        header.check()?;
        let leap_s = leap_seconds(header.start)?;
        let mut writer = Self {
            file: AtomicFile::create(path)?,
            header: header.clone(),
            leap_s,
            bytes: 0,
            sum: Checksum::default(),
            header_sum: 0,
            held: Vec::new(),
            before: 0,
            frames: Vec::new(),
            counts: [0; CLASSES.len()],
            defined: 0,
        };
        let mut head = b"IGWD\0\x08\x00\x02\x04\x08\x04\x08".to_vec();
        head.extend(0x1234_u16.to_le_bytes());
        head.extend(0x1234_5678_u32.to_le_bytes());
        head.extend(0x0123_4567_89ab_cdef_u64.to_le_bytes());
        head.extend(std::f32::consts::PI.to_le_bytes());
        head.extend(std::f64::consts::PI.to_le_bytes());
        // 0: this library has no registered number.
        head.extend([0, POSIX_CHECKSUM]);
        writer.put(&head)?;
        writer.header_sum = writer.sum.clone().finish();
        Ok(writer)
    }

    /// Appends samples; missing samples are NaN.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more samples than the header announced; [`Error::Io`].
    pub fn write(&mut self, mut samples: &[f64]) -> Result<()> {
        let written = self.before + (self.held.len() + samples.len()) as u64;
        if written > self.header.samples {
            let rule = format!("the header gives {}", self.header.samples);
            return Err(Error::parameter("samples", written, rule));
        }
        let whole = (FRAME_S * u64::from(self.header.rate_hz)) as usize;
        while !samples.is_empty() {
            let (next, rest) = samples.split_at(samples.len().min(whole - self.held.len()));
            self.held.extend_from_slice(next);
            samples = rest;
            if self.held.len() == whole {
                self.write_frame()?;
            }
        }
        Ok(())
    }

    /// Writes the last frame and the table of contents, and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer samples than the header announced; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        if !self.held.is_empty() {
            self.write_frame()?;
        }
        if self.before < self.header.samples {
            let rule = format!("the header gives {}", self.header.samples);
            return Err(Error::parameter("samples", self.before, rule));
        }
        let table = self.write_table()?;
        self.write_end(table)?;
        self.file.commit()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.add(bytes);
        self.bytes += bytes.len() as u64;
        self.file.append(bytes)
    }

    /// Writes the definitions of all classes up to `class` that are not yet written.
    fn define(&mut self, class: u16) -> Result<()> {
        while self.defined <= usize::from(class - FRAME) {
            let (name, fields) = CLASSES[self.defined];
            let mut definition = Body::default();
            definition.text(name);
            definition.u16(FRAME + self.defined as u16);
            definition.text("");
            self.raw(1, 0, &definition.0)?;
            // The end-of-file structure lists its three checksums among its fields.
            let sum = Some(("chkSum", "INT_4U")).filter(|_| self.defined + 1 < CLASSES.len());
            for (field, (name, kind)) in fields.iter().copied().chain(sum).enumerate() {
                let mut definition = Body::default();
                definition.text(name);
                definition.text(kind);
                definition.text("");
                self.raw(2, field as u32, &definition.0)?;
            }
            self.defined += 1;
        }
        Ok(())
    }

    /// Writes a structure, preceded by its class definition if needed; returns its offset.
    fn structure(&mut self, class: u16, body: &[u8]) -> Result<u64> {
        self.define(class)?;
        let place = self.bytes;
        let count = &mut self.counts[usize::from(class - FRAME)];
        let instance = *count;
        *count += 1;
        self.raw(class, instance, body)?;
        Ok(place)
    }

    /// Writes a structure's header, body and checksum.
    fn raw(&mut self, class: u16, instance: u32, body: &[u8]) -> Result<()> {
        let mut head = Vec::with_capacity(HEAD_BYTES as usize);
        head.extend((HEAD_BYTES + body.len() as u64 + 4).to_le_bytes());
        head.extend([POSIX_CHECKSUM, class as u8]);
        head.extend(instance.to_le_bytes());
        let mut sum = Checksum::default();
        sum.add(&head);
        sum.add(body);
        self.put(&head)?;
        self.put(body)?;
        self.put(&sum.finish().to_le_bytes())
    }

    /// Writes the buffered samples as a frame.
    fn write_frame(&mut self) -> Result<()> {
        let rate = u64::from(self.header.rate_hz);
        let samples = std::mem::take(&mut self.held);
        let number = self.frames.len() as u32;
        let start = self.header.start.plus_samples(self.before as i64, self.header.rate_hz);
        let length_s = samples.len() as f64 / rate as f64;
        self.counts = [0; CLASSES.len()];
        let times = |body: &mut Body| {
            body.u32(start.ns.div_euclid(1_000_000_000) as u32);
            body.u32(start.ns.rem_euclid(1_000_000_000) as u32);
        };
        let mut body = Body::default();
        body.text("sidereal");
        body.u32(0);
        body.u32(number);
        body.u32(0);
        times(&mut body);
        body.u16(self.leap_s);
        body.real(length_s);
        body.nothing(6);
        body.pointer(PROCESSED, 0);
        body.nothing(6);
        let place = self.structure(FRAME, &body.0)?;

        let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
        let encoded = Encoded { kind: 2, samples: samples.len() as u64, bytes };
        let header = self.header.clone();
        let is_last = header.masks.is_empty();
        let (name, unit) = (&header.channel, &header.unit);
        let spacing_s = 1.0 / rate as f64;
        let first = self.channel(name, unit, &encoded, spacing_s, length_s, is_last)?;
        let mut channels = vec![first];
        for (index, (name, numbers)) in header.masks.iter().enumerate() {
            let first = (self.before / rate) as usize;
            let numbers = &numbers[first..first + samples.len().div_ceil(rate as usize)];
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let encoded = Encoded { kind: 4, samples: numbers.len() as u64, bytes };
            let is_last = index + 1 == header.masks.len();
            channels.push(self.channel(name, "", &encoded, 1.0, length_s, is_last)?);
        }
        let mut body = Body::default();
        body.u32(0);
        body.u32(number);
        times(&mut body);
        self.structure(END_OF_FRAME, &body.0)?;
        self.before += samples.len() as u64;
        self.frames.push(FrameEntry { start, length_s, place, channels });
        self.held = samples;
        self.held.clear();
        Ok(())
    }

    /// Writes a channel and its vector; returns the channel's offset.
    fn channel(
        &mut self,
        name: &str,
        unit: &str,
        encoded: &Encoded,
        spacing_s: f64,
        length_s: f64,
        is_last: bool,
    ) -> Result<u64> {
        let instance = self.counts[usize::from(PROCESSED - FRAME)];
        let mut body = Body::default();
        body.text(name);
        body.text(if instance == 0 { &self.header.description } else { "" });
        // Type 1, subtype 0: a plain time series.
        body.u16(1);
        body.u16(0);
        body.real(0.0);
        body.real(length_s);
        body.real(0.0);
        body.u32(0);
        body.real(0.0);
        body.real(0.0);
        body.u16(0);
        body.pointer(VECTOR, self.counts[usize::from(VECTOR - FRAME)]);
        body.nothing(3);
        if is_last {
            body.nothing(1)
        } else {
            body.pointer(PROCESSED, instance + 1)
        }
        let place = self.structure(PROCESSED, &body.0)?;

        let zlib = || {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&encoded.bytes).and_then(|()| encoder.finish())
        };
        let packed = self.header.is_compressed.then(zlib).transpose();
        let packed = packed.map_err(|error| Error::io("zlib", error))?;
        let (compress, bytes) = match &packed {
            // Compression can lengthen short noise.
            Some(packed) if packed.len() < encoded.bytes.len() => (ZLIB, packed),
            _ => (0, &encoded.bytes),
        };
        let mut body = Body::default();
        body.text(name);
        body.u16(LITTLE_ENDIAN | compress);
        body.u16(encoded.kind);
        body.u64(encoded.samples);
        body.u64(bytes.len() as u64);
        body.0.extend(bytes);
        body.u32(1);
        body.u64(encoded.samples);
        body.real(spacing_s);
        body.real(0.0);
        body.text("s");
        body.text(unit);
        body.nothing(1);
        self.structure(VECTOR, &body.0)?;
        Ok(place)
    }

    /// Writes the table of contents; returns its offset.
    fn write_table(&mut self) -> Result<u64> {
        let frames = std::mem::take(&mut self.frames);
        let mut body = Body::default();
        body.u16(self.leap_s);
        body.u32(frames.len() as u32);
        frames.iter().for_each(|_| body.u32(0));
        frames.iter().for_each(|frame| body.u32(frame.start.ns.div_euclid(1_000_000_000) as u32));
        frames.iter().for_each(|frame| body.u32(frame.start.ns.rem_euclid(1_000_000_000) as u32));
        frames.iter().for_each(|frame| body.real(frame.length_s));
        frames.iter().for_each(|_| body.u32(0));
        (0..frames.len()).for_each(|number| body.u32(number as u32));
        frames.iter().for_each(|frame| body.u64(frame.place));
        // No first ADC, serial channel, table or message.
        (0..4 * frames.len()).for_each(|_| body.u64(0));
        let classes = &CLASSES[..usize::from(END_OF_FILE - FRAME)];
        body.u32(classes.len() as u32);
        (0..classes.len()).for_each(|class| body.u16(FRAME + class as u16));
        classes.iter().for_each(|(name, _)| body.text(name));
        // No detectors, static data or ADCs.
        (0..4).for_each(|_| body.u32(0));
        let names = [&self.header.channel].into_iter();
        let names: Vec<&String> =
            names.chain(self.header.masks.iter().map(|mask| &mask.0)).collect();
        body.u32(names.len() as u32);
        names.iter().for_each(|name| body.text(name));
        for channel in 0..names.len() {
            frames.iter().for_each(|frame| body.u64(frame.channels[channel]));
        }
        // No simulated or serial channels, summaries, events or simulated events.
        (0..7).for_each(|_| body.u32(0));
        self.frames = frames;
        self.structure(TABLE, &body.0)
    }

    /// Writes the end-of-file structure with the checksums of the header, of itself and of the file.
    fn write_end(&mut self, table: u64) -> Result<()> {
        self.define(END_OF_FILE)?;
        let length = HEAD_BYTES + 32;
        let total = self.bytes + length;
        let mut body = Body::default();
        body.u64(length);
        body.0.extend([POSIX_CHECKSUM, END_OF_FILE as u8]);
        body.u32(0);
        body.u32(self.frames.len() as u32);
        body.u64(total);
        body.u64(total - table);
        body.u32(self.header_sum);
        let mut sum = Checksum::default();
        sum.add(&body.0);
        body.u32(sum.finish());
        self.put(&body.0)?;
        let sum = self.sum.clone().finish();
        self.put(&sum.to_le_bytes())
    }
}

/// Returns TAI - UTC in seconds, which the frame format calls leap seconds.
fn leap_seconds(start: Gps) -> Result<u16> {
    const MJD_ZERO: f64 = 2_400_000.5;
    let tai_s = start.ns.div_euclid(1_000_000_000) + TAI_GPS_S;
    let at = |utc_s: i64| -> Option<i64> {
        let day = utc_s.div_euclid(SECONDS_PER_DAY as i64);
        let (year, month, day, _) = jd2cal(MJD_ZERO, (GPS_ZERO_MJD + day) as f64).ok()?;
        Some(dat(year, month, day, 0.0).ok()? as i64)
    };
    let found = at(tai_s).and_then(|leap_s| at(tai_s - leap_s));
    let leap_s = found.and_then(|leap_s| u16::try_from(leap_s).ok());
    leap_s.ok_or_else(|| Error::parameter("start (GPS s)", start.s(), "it must have a date in UTC"))
}

#[cfg(test)]
mod tests {
    use super::super::Gwf;
    use super::*;

    fn header(samples: u64) -> GwfHeader {
        GwfHeader {
            channel: "V1:TEST_STRAIN".into(),
            start: Gps { ns: 1_167_264_017_250_000_000 },
            rate_hz: 64,
            samples,
            unit: "strain".into(),
            description: "a test".into(),
            is_compressed: true,
            masks: vec![("V1:TEST_DQMASK".into(), vec![127; samples.div_ceil(64) as usize])],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("V-TEST.gwf");
        let samples: Vec<f64> = (0..64 * 150 - 7).map(|n| f64::from(n % 977) * 1e-21).collect();
        for is_compressed in [true, false] {
            let header = GwfHeader { is_compressed, ..header(samples.len() as u64) };
            let mut writer = GwfWriter::create(&path, &header).unwrap();
            samples.chunks(1000).for_each(|part| writer.write(part).unwrap());
            writer.finish().unwrap();
            let file = Gwf::open(&path).unwrap();
            file.verify().unwrap();
            let names: Vec<&str> = file.names().collect();
            assert_eq!(names, ["V1:TEST_DQMASK", "V1:TEST_STRAIN"]);
            assert_eq!((file.frames(), file.version(), file.cut()), (3, 8, None));
            let pieces = file.pieces("V1:TEST_STRAIN").unwrap();
            let starts: Vec<i64> = pieces.iter().map(|piece| piece.start.ns).collect();
            assert_eq!(starts, [0, 64, 128].map(|s| header.start.ns + s * 1_000_000_000));
            let mut found = Vec::new();
            for piece in &pieces {
                let mut samples = vec![0.0; piece.samples as usize];
                file.open_piece(piece).unwrap().read(&mut samples).unwrap();
                found.extend(samples);
            }
            assert_eq!(found, samples);
            let mask = file.pieces("V1:TEST_DQMASK").unwrap();
            let steps: Vec<u64> = mask.iter().map(|piece| piece.samples).collect();
            assert_eq!(steps, [64, 64, 22]);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn wrong_lengths_and_headers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gwf");
        let mut writer = GwfWriter::create(&path, &header(100)).unwrap();
        writer.write(&[0.0; 99]).unwrap();
        assert!(writer.write(&[0.0; 2]).is_err_and(|error| error.to_string().contains("100")));
        assert!(writer.finish().is_err() && !path.exists());
        let refused = |change: fn(&mut GwfHeader)| {
            let mut bad = header(100);
            change(&mut bad);
            GwfWriter::create(&path, &bad).is_err()
        };
        assert!(refused(|bad| bad.channel = "two words".into()));
        assert!(refused(|bad| bad.rate_hz = 0) && refused(|bad| bad.samples = 0));
        assert!(refused(|bad| bad.start.ns = -1) && refused(|bad| bad.masks[0].1.clear()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn leap_seconds_are_counted() {
        for (gps_s, leap_s) in
            [(0, 19), (1_126_259_446, 36), (1_167_264_016, 36), (1_167_264_018, 37)]
        {
            assert_eq!(leap_seconds(Gps { ns: gps_s * 1_000_000_000 }).unwrap(), leap_s, "{gps_s}");
        }
    }
}
