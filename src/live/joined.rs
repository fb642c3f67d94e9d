//! Voltages of an observation that arrives as several streams: bands that adjoin each other, or polarizations.
//!
//! A telescope that sends more than one thread receives (10 to 20 Gb/s) divides its band or its polarizations among several
//! addresses. Each of them has a capture thread of its own; all are read as one source, and their samples are sorted into rows of the
//! same block by the same threads.
//!
//! Invariant: a sample of the joined source is that of one stream at the same time, or is flagged as that stream flags it; times never
//! shift. Samples and flags do not depend on the division into reads, nor on the order of the addresses of bands.
//!
//! A reader that is too slow loses the same samples of all streams. If each stream dropped samples by itself, the lost times would differ,
//! and most samples would lack some stream. If the reader reads nothing until a stream's memory is full, that stream still drops by itself.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::backend::threads::{Places, Threads};
use crate::error::{Error, Result};
use crate::io;
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::live::capture::Statistics;
use crate::live::voltages::LiveVoltages;
use crate::live::window::Fill;
use crate::units::{Epoch, HZ_PER_MHZ};
use crate::voltage::VoltageBlock;

/// Most seconds of a stream that are skipped until the last stream begins.
const MOST_SKIPPED_S: f64 = 10.0;

/// Largest deviation of starts from whole samples apart, in samples, and accuracy of an epoch's seconds of the day.
const START_TOLERANCE: f64 = 0.01;
const EPOCH_S: f64 = 3e-11;

/// Time over which the sample clocks of two streams may drift by [`DRIFT`] samples, in seconds.
const DRIFT_S: f64 = 3600.0;
const DRIFT: f64 = 0.1;

/// Largest deviation of adjoining bands, and of the channels of equal bands, in channels.
const BAND_TOLERANCE: f64 = 1e-3;

/// Bytes of a stream that are read before the next stream is: enough for long writes, few enough that the last stream's samples wait
/// for little work when they arrive. Least and most bytes of a row among them.
const STEP_BYTES: usize = 16 << 20;
const STEP_ROW_BYTES: Range<usize> = 2 << 10..1 << 20;

/// Share of a stream's memory above which samples of all streams are dropped, and share at which this ends.
const NEARLY_FULL: f64 = 0.875;
const HALF_FULL: f64 = 0.5;

/// Time for a reader that was held up to catch up, before samples are dropped: less than that in which the rest of the memory fills.
const PATIENCE: Duration = Duration::from_millis(30);

/// One observation that arrives as several streams.
#[derive(Debug)]
pub struct JoinedVoltages {
    header: VoltageHeader,
    parts: Vec<Part>,
    threads: Threads,
    /// Samples that are read of each stream in turn.
    step: usize,
    /// Whether samples are dropped until the memory of no stream is more than half full.
    is_behind: bool,
    /// Time from which on the memory of some stream has been nearly full.
    full_since: Option<Instant>,
    state: State,
    cut: Option<String>,
}

/// Stream of a joined source.
#[derive(Debug)]
struct Part {
    source: LiveVoltages,
    /// Places of its rows among those of all streams.
    places: Places,
}

/// Progress of a joined source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// A stream has ended.
    Ended,
    /// A request to stop came while streams had different numbers of samples.
    Stopped,
}

impl JoinedVoltages {
    /// Waits for an observation of each of `count` streams by `next`, which takes the stream's number, and joins them; they begin with
    /// the first sample that all of them have. If a stream ends before that, or begins more than 10 s before it, `next` is called for it
    /// again: [`crate::live::source::Live::resume`] gives the latest samples of a stream that goes on.
    ///
    /// Streams of the same channels and one polarization each become polarizations, in the order of their numbers. Others are bands in
    /// any order.
    ///
    /// # Errors
    /// Those of `next`; [`Error::Parameter`] for no stream; [`Error::Format`] for streams that differ in more than their band, bands that
    /// overlap or leave holes, and starts that are unknown for some, not whole samples apart, or still more than 10 s apart.
    pub fn open(count: usize, next: &mut dyn FnMut(usize) -> Result<LiveVoltages>) -> Result<Self> {
        let threads = Threads::new(io::most_threads());
        // A stream's own threads are never used.
        let mut next = |number| io::with_threads(1, || next(number));
        let mut streams = (0..count).map(&mut next).collect::<Result<Vec<_>>>()?;
        let mut is_second = vec![false; count];
        loop {
            let headers: Vec<&VoltageHeader> = streams.iter().map(VoltageSource::header).collect();
            let arranged = Arranged::new(&headers)?;
            let late = late(&streams)?;
            let number = match begin_together(&mut streams, &late)? {
                Begin::Together => {
                    let sources = streams.into_iter().zip(arranged.places);
                    let parts = sources.map(|(source, places)| Part {
                        source: source.with_threads(threads.clone()),
                        places,
                    });
                    return Ok(Self::new(arranged.header, parts.collect(), threads.clone()));
                }
                Begin::Ended(number) => {
                    is_second[number] = false;
                    number
                }
                Begin::TooEarly(number) if is_second[number] => {
                    return Err(too_early(&streams, &late, number));
                }
                Begin::TooEarly(number) => {
                    is_second[number] = true;
                    number
                }
            };
            // The address takes one observation at a time.
            drop(streams.remove(number));
            streams.insert(number, next(number)?);
        }
    }

    /// Returns the header of streams that are joined, from theirs; its start is that of the first one.
    ///
    /// # Errors
    /// Those of [`JoinedVoltages::open`] about headers.
    pub fn header_of(headers: &[&VoltageHeader]) -> Result<VoltageHeader> {
        Arranged::new(headers).map(|arranged| arranged.header)
    }

    fn new(mut header: VoltageHeader, parts: Vec<Part>, threads: Threads) -> Self {
        if let Some(first) = parts.first() {
            header.start = first.source.header().start;
        }
        let rows = parts.iter().map(|part| part.source.header().streams()).max();
        let row = STEP_BYTES / rows.unwrap_or(1).max(1);
        let row = row.clamp(STEP_ROW_BYTES.start, STEP_ROW_BYTES.end);
        // A step ends with a cache line and a group of samples; one stream needs no turns.
        let step = row.next_multiple_of(320) * 8 / header.encoding.sample_bits();
        let step = if parts.len() == 1 { usize::MAX } else { step };
        let (is_behind, full_since) = (false, None);
        let (state, cut) = (State::Reading, None);
        Self { header, parts, threads, step, is_behind, full_since, state, cut }
    }

    /// Returns the counters of the packets of all streams; `None` for rings alone.
    pub fn statistics(&self) -> Option<Statistics> {
        let mut all = self.parts.iter().filter_map(|part| part.source.statistics());
        let first = all.next()?;
        Some(all.fold(first, Statistics::with))
    }

    /// Reads the next samples of every stream, `times` of the block; returns how many all streams have.
    fn read_step(&mut self, block: &mut VoltageBlock, times: Range<usize>) -> Result<usize> {
        let (mut most, mut ended) = (times.len(), None);
        self.look_behind();
        for number in 0..self.parts.len() {
            let Part { source, places } = &mut self.parts[number];
            let wanted = times.start..times.start + most;
            let read = if self.is_behind {
                source.drop_rows(wanted)
            } else {
                source.read_rows(block, *places, wanted)
            };
            let read = match read {
                Err(error) if error.is_stop() => 0,
                read => read?,
            };
            if read < most {
                most = read;
                ended = source.has_ended().then_some(number);
                self.state = if ended.is_some() { State::Ended } else { State::Stopped };
            }
        }
        if self.is_behind {
            let encoding = self.header.encoding;
            let bytes = encoding.bytes(times.start)..encoding.bytes(times.start + most);
            let stride = block.stride();
            let (memory, own) = block.memory_mut();
            self.threads.for_each(memory, stride, |_, row| {
                row[own.clone()][bytes.clone()].fill(encoding.zero_byte());
            });
        }
        if let Some(number) = ended {
            // The streams before it have given more.
            let mut others = self.parts.iter().skip(number + 1);
            let is_cut = number > 0 || others.any(|part| part.source.has_more());
            self.cut = is_cut.then(|| self.end_of(number));
        }
        Ok(most)
    }

    /// Decides whether the next samples are dropped: from the time at which the memory of a stream has been nearly full for a while until
    /// that of all is at most half full, so that few long times are lost and not many short ones. While a stream has nothing to read,
    /// the others wait for it, and dropping would not help.
    fn look_behind(&mut self) {
        if self.parts.len() == 1 {
            return;
        }
        let fills = self.parts.iter().map(|part| part.source.fill());
        let (mut share, mut has_all) = (0.0_f64, true);
        for Fill { held, capacity } in fills.filter(|fill| fill.capacity > 0) {
            share = share.max(held as f64 / capacity as f64);
            has_all &= held > 1;
        }
        let most = if self.is_behind { HALF_FULL } else { NEARLY_FULL };
        if share <= most || !has_all {
            (self.is_behind, self.full_since) = (false, None);
            return;
        }
        let since = self.full_since.get_or_insert_with(Instant::now);
        self.is_behind |= since.elapsed() >= PATIENCE;
    }

    /// Describes the end of a stream that the others do not share.
    fn end_of(&self, number: usize) -> String {
        let name = |part: &Part| part.source.header().path.display().to_string();
        let others = self.parts.iter().enumerate().filter(|(other, _)| *other != number);
        let others: Vec<String> = others.map(|(_, part)| name(part)).collect();
        format!(
            "{} has ended; what came later from {} is left out",
            name(&self.parts[number]),
            others.join(", ")
        )
    }
}

/// One stream alone is the whole observation.
impl From<LiveVoltages> for JoinedVoltages {
    fn from(source: LiveVoltages) -> Self {
        let header = source.header().clone();
        // A stream alone is sorted on its own threads.
        Self::new(header, vec![Part { source, places: Places::ALL }], Threads::new(1))
    }
}

impl VoltageSource for JoinedVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        block.flags_mut().clear();
        let (capacity, mut done) = (block.capacity(), 0);
        while done < capacity && self.state == State::Reading {
            let times = done..done.saturating_add(self.step).min(capacity);
            done += self.read_step(block, times)?;
        }
        if done == 0 && self.state == State::Stopped && capacity > 0 {
            return Err(Error::stopped(&self.header.path));
        }
        for Part { source, places } in &mut self.parts {
            source.pass_lost(block, *places, done as u64);
        }
        if self.parts.len() > 1 {
            block.flags_mut().sort_unstable_by_key(|flag| (flag.start, flag.streams.start));
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref().or_else(|| self.parts.iter().find_map(|part| part.source.cut()))
    }
}

/// Returns how many samples each stream has before the first one of the stream that begins last.
///
/// # Errors
/// [`Error::Format`] for starts that are known for some streams only, or not whole samples apart.
fn late(streams: &[LiveVoltages]) -> Result<Vec<u64>> {
    let Some(first) = streams.first() else { return Ok(Vec::new()) };
    let (header, position) = (first.header(), first.position());
    let tsamp_s = header.tsamp_s;
    let start = |stream: &LiveVoltages| {
        let own = stream.header();
        let named = |rule: &str| {
            let why = format!(
                "it is {}, but that of {} is {}: {rule}",
                shown(own.start),
                header.path.display(),
                shown(header.start)
            );
            Error::format(&own.path, "start", 0, why)
        };
        if (own.start.day == 0) != (header.start.day == 0) {
            return Err(named("streams that are joined need the same clock"));
        }
        if own.start.day == 0 {
            // Samples are numbered from the same one.
            return Ok(stream.position() as i64 - position as i64);
        }
        let samples = own.start.seconds_since(&header.start) / tsamp_s;
        let whole = samples.round();
        let limit = START_TOLERANCE + 2.0 * EPOCH_S / tsamp_s;
        if (samples - whole).abs() > limit || whole.abs() > 9e15 {
            return Err(named(&format!(
                "expected starts whole samples apart, found {samples:.3} samples"
            )));
        }
        Ok(whole as i64)
    };
    let starts: Vec<i64> = streams.iter().map(start).collect::<Result<_>>()?;
    let last = starts.iter().copied().max().unwrap_or(0);
    let late: Vec<u64> = starts.iter().map(|start| (last - start) as u64).collect();
    let unit = header.encoding.group_samples() as u64;
    match late.iter().position(|times| !times.is_multiple_of(unit)) {
        None => Ok(late),
        Some(number) => {
            let own = streams[number].header();
            let why = format!(
                "it begins {} samples before another stream, which is not a whole number of bytes",
                late[number]
            );
            Err(Error::format(&own.path, "start", 0, why))
        }
    }
}

/// Result of skipping what not all streams have.
enum Begin {
    Together,
    /// The stream of this number has ended before.
    Ended(usize),
    /// The stream of this number begins too long before another one.
    TooEarly(usize),
}

/// Skips the samples of each stream that not all of them have.
///
/// # Errors
/// Those of reading.
fn begin_together(streams: &mut [LiveVoltages], late: &[u64]) -> Result<Begin> {
    for (number, (stream, times)) in streams.iter_mut().zip(late).enumerate() {
        if *times as f64 * stream.header().tsamp_s > MOST_SKIPPED_S {
            return Ok(Begin::TooEarly(number));
        }
        if stream.begin_after(*times)? < *times {
            return Ok(Begin::Ended(number));
        }
    }
    // The one that begins last needs no rounding.
    if let Some(last) = late.iter().position(|times| *times == 0) {
        let start = streams[last].header().start;
        streams.iter_mut().for_each(|stream| stream.begin_at(start));
    }
    Ok(Begin::Together)
}

/// Returns the error of a stream that begins too long before another one.
fn too_early(streams: &[LiveVoltages], late: &[u64], number: usize) -> Error {
    let last = late.iter().position(|times| *times == 0).unwrap_or(0);
    let (own, other) = (streams[number].header(), streams[last].header());
    let why = format!(
        "it is {:.3} s before that of {}, expected {MOST_SKIPPED_S} s at most",
        late[number] as f64 * own.tsamp_s,
        other.path.display()
    );
    Error::format(&own.path, "start", 0, why)
}

fn shown(start: Epoch) -> String {
    match start.day {
        0 => "unknown".to_owned(),
        day => format!("MJD {day} and {:.9} s", start.seconds),
    }
}

/// Header of all streams, and the places of the rows of each.
#[derive(Debug)]
struct Arranged {
    header: VoltageHeader,
    places: Vec<Places>,
}

impl Arranged {
    /// Arranges streams along channels, or along polarizations if all have the same channels and one polarization.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no stream; [`Error::Format`] naming two streams and what does not fit.
    fn new(headers: &[&VoltageHeader]) -> Result<Self> {
        let Some((first, others)) = headers.split_first() else {
            return Err(Error::parameter("streams", 0, "there must be at least one"));
        };
        others.iter().try_for_each(|other| check_pair(first, other))?;
        let same = |other: &&VoltageHeader| has_same_channels(first, other);
        let is_one = first.polarizations == 1;
        let mut arranged = match headers.len() {
            1 => Self { header: (*first).clone(), places: vec![Places::ALL] },
            2 if is_one && others.iter().all(same) => Self::polarizations(headers),
            _ => Self::bands(headers)?,
        };
        let names: Vec<String> =
            headers.iter().map(|header| header.path.display().to_string()).collect();
        arranged.header.path = PathBuf::from(names.join(", "));
        arranged.header.times = None;
        Ok(arranged)
    }

    fn polarizations(headers: &[&VoltageHeader]) -> Self {
        let step = headers.len();
        let places = (0..step).map(|first| Places { first, group: 1, step }).collect();
        let header = VoltageHeader { polarizations: step, ..headers[0].clone() };
        Self { header, places }
    }

    fn bands(headers: &[&VoltageHeader]) -> Result<Self> {
        let bands =
            headers.iter().map(|header| Recorded::new(header)).collect::<Result<Vec<_>>>()?;
        let mut order: Vec<usize> = (0..bands.len()).collect();
        order.sort_by(|a, b| bands[*a].low_hz.total_cmp(&bands[*b].low_hz));
        for pair in order.windows(2) {
            bands[pair[0]].check_next(&bands[pair[1]])?;
        }
        let rising = bands.iter().find(|band| band.order == Some(Order::Rising));
        let falling = bands.iter().find(|band| band.order == Some(Order::Falling));
        if let (Some(rising), Some(falling)) = (rising, falling) {
            let why = format!(
                "its channels are in descending order, those of {} in ascending order: both must have the same",
                rising.name()
            );
            return Err(Error::format(falling.path, "channels", 0, why));
        }
        // Single channels are in the order that formats associate with their sideband.
        let is_lower = rising.is_none() && bands.iter().any(|band| band.is_lower_sideband);
        if falling.is_some() || is_lower {
            order.reverse();
        }
        let step: usize = headers.iter().map(|header| header.coarse_channels()).sum();
        let mut centres_hz = Vec::with_capacity(step);
        let mut places = vec![Places::ALL; headers.len()];
        for number in order {
            let (own, polarizations) = (&headers[number].centres_hz, headers[number].polarizations);
            places[number] = Places {
                first: centres_hz.len() * polarizations,
                group: own.len() * polarizations,
                step: step * polarizations,
            };
            centres_hz.extend_from_slice(own);
        }
        let header = VoltageHeader { centres_hz, ..headers[0].clone() };
        Ok(Self { header, places })
    }
}

/// Order of a stream's channels by frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Rising,
    Falling,
}

/// Band of a stream.
#[derive(Debug)]
struct Recorded<'a> {
    path: &'a Path,
    /// Lower edge of the lowest channel, and upper edge of the highest.
    low_hz: f64,
    high_hz: f64,
    /// Distance of the channels.
    spacing_hz: f64,
    /// Order of the channels; `None` for one channel.
    order: Option<Order>,
    is_lower_sideband: bool,
}

impl<'a> Recorded<'a> {
    fn new(header: &'a VoltageHeader) -> Result<Self> {
        let centres = &header.centres_hz;
        if centres.is_empty() || centres.iter().any(|hz| hz.is_nan() || *hz <= 0.0) {
            let why = "the sky frequencies are unknown, and bands are joined by them";
            return Err(Error::format(&header.path, "FREQ", 0, why));
        }
        let (first, last) = (centres[0], centres[centres.len() - 1]);
        let spacing_hz = match (centres.len(), &header.filter) {
            (1, None) => header.channel_width_hz(),
            (1, Some(filter)) => {
                let (up, down) = filter.oversampling;
                header.channel_width_hz() * down as f64 / up as f64
            }
            (count, _) => (last - first).abs() / (count - 1) as f64,
        };
        let order = if last >= first { Order::Rising } else { Order::Falling };
        Ok(Self {
            path: &header.path,
            low_hz: first.min(last) - 0.5 * spacing_hz,
            high_hz: first.max(last) + 0.5 * spacing_hz,
            spacing_hz,
            order: (centres.len() > 1).then_some(order),
            is_lower_sideband: header.lower_sideband,
        })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn shown(&self) -> String {
        format!("{:.6} to {:.6} MHz", self.low_hz / HZ_PER_MHZ, self.high_hz / HZ_PER_MHZ)
    }

    /// Checks that the next band adjoins this one.
    fn check_next(&self, next: &Self) -> Result<()> {
        let fault = |field: &str, why: String| Err(Error::format(next.path, field, 0, why));
        let limit = BAND_TOLERANCE * self.spacing_hz;
        if (self.spacing_hz - next.spacing_hz).abs() > limit {
            return fault(
                "channels",
                format!(
                    "they are {:.6} MHz apart, those of {} {:.6} MHz: both must be the same",
                    next.spacing_hz / HZ_PER_MHZ,
                    self.name(),
                    self.spacing_hz / HZ_PER_MHZ
                ),
            );
        }
        let hole_hz = next.low_hz - self.high_hz;
        if hole_hz.abs() <= limit {
            return Ok(());
        }
        let which = if hole_hz > 0.0 { "leave a hole of" } else { "overlap by" };
        fault(
            "band",
            format!(
                "it is {}, that of {} is {}: they {which} {:.6} MHz, expected bands that adjoin each other, or two polarizations of \
                 one band",
                next.shown(),
                self.name(),
                self.shown(),
                hole_hz.abs() / HZ_PER_MHZ
            ),
        )
    }
}

/// Returns whether two streams have the same channels, known or not.
fn has_same_channels(first: &VoltageHeader, other: &VoltageHeader) -> bool {
    let limit = BAND_TOLERANCE * first.channel_width_hz();
    first.centres_hz.len() == other.centres_hz.len()
        && first.centres_hz.iter().zip(&other.centres_hz).all(|(a, b)| (a - b).abs() <= limit)
}

/// Checks that two streams may be parts of one recording.
fn check_pair(first: &VoltageHeader, other: &VoltageHeader) -> Result<()> {
    let differ = |field: &str, own: String, expected: String| {
        let why = format!("found {own}, but {} has {expected}", first.path.display());
        Err(Error::format(&other.path, field, 0, why))
    };
    let drift = (first.tsamp_s - other.tsamp_s).abs() / first.tsamp_s * DRIFT_S / first.tsamp_s;
    if drift.is_nan() || drift > DRIFT {
        let shown = |header: &VoltageHeader| format!("{:e} s", header.tsamp_s);
        return differ("sampling time", shown(other), shown(first));
    }
    let same = |field: &str, value: fn(&VoltageHeader) -> String| {
        let (own, expected) = (value(other), value(first));
        if own == expected { Ok(()) } else { differ(field, own, expected) }
    };
    same("samples", |header| format!("{:?}", header.encoding))?;
    same("antennas", |header| header.antennas.to_string())?;
    same("polarizations", |header| header.polarizations.to_string())?;
    same("sideband", |header| if header.lower_sideband { "lower".into() } else { "upper".into() })?;
    same("scale", |header| header.scale.to_string())?;
    same("source", |header| format!("{:?}", header.source_name))?;
    same("feeds", |header| match header.circular {
        Some(true) => "circular ones".into(),
        Some(false) => "linear ones".into(),
        None => "unknown ones".into(),
    })?;
    same("filter bank", |header| match &header.filter {
        Some(filter) => format!("{} channels of {} taps", filter.channels, filter.taps),
        None => "none".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    fn header(path: &str, centres_mhz: &[f64]) -> VoltageHeader {
        let centres = centres_mhz.iter().map(|centre| centre * HZ_PER_MHZ).collect();
        let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
        header.path = path.into();
        header
    }

    /// Centres in MHz of streams that are joined, and the places of the rows of each.
    fn arranged(headers: &[VoltageHeader]) -> Result<(Vec<f64>, Vec<Vec<usize>>)> {
        let Arranged { header, places } = Arranged::new(&headers.iter().collect::<Vec<_>>())?;
        let rows = |(places, own): (&Places, &VoltageHeader)| {
            (0..own.streams()).map(|stream| places.of(stream)).collect()
        };
        let centres = header.centres_hz.iter().map(|centre| centre / HZ_PER_MHZ).collect();
        Ok((centres, places.iter().zip(headers).map(rows).collect()))
    }

    #[test]
    fn bands_are_in_the_order_of_their_channels() {
        let bands = |rising: [&[f64]; 3]| rising.map(|centres| header("x", centres)).to_vec();
        let (centres, rows) = arranged(&bands([&[5.0, 6.0], &[3.0, 4.0], &[7.0]])).unwrap();
        assert_eq!(centres, [3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(rows, [vec![2, 3], vec![0, 1], vec![4]]);
        let (centres, rows) = arranged(&bands([&[6.0, 5.0], &[4.0, 3.0], &[7.0]])).unwrap();
        assert_eq!(centres, [7.0, 6.0, 5.0, 4.0, 3.0]);
        assert_eq!(rows, [vec![1, 2], vec![3, 4], vec![0]]);
        let mut single = bands([&[5.0], &[3.0], &[4.0]]);
        assert_eq!(arranged(&single).unwrap().0, [3.0, 4.0, 5.0]);
        single.iter_mut().for_each(|header| header.lower_sideband = true);
        assert_eq!(arranged(&single).unwrap().0, [5.0, 4.0, 3.0]);
        let error = arranged(&bands([&[5.0, 6.0], &[4.0, 3.0], &[7.0]])).unwrap_err();
        assert!(error.to_string().contains("descending order"), "{error}");
    }

    #[test]
    fn rows_are_in_the_order_antenna_channel_polarization() {
        let mut both = [header("a", &[3.0, 4.0]), header("b", &[5.0])];
        both.iter_mut().for_each(|header| (header.antennas, header.polarizations) = (2, 2));
        let (_, rows) = arranged(&both).unwrap();
        assert_eq!(rows, [vec![0, 1, 2, 3, 6, 7, 8, 9], vec![4, 5, 10, 11]]);
        let mut both = [header("a", &[3.0, 4.0]), header("b", &[3.0, 4.0])];
        both.iter_mut().for_each(|header| header.antennas = 2);
        assert_eq!(arranged(&both).unwrap().1, [vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
    }

    #[test]
    fn oversampled_single_channels_adjoin_by_their_distance() {
        let mut both = [header("a", &[3.0]), header("b", &[3.75])];
        assert!(arranged(&both).unwrap_err().to_string().contains("overlap by 0.25"));
        let filter = crate::io::voltages::FilterGeometry {
            channels: 8,
            taps: 4,
            window: "hann".into(),
            oversampling: (4, 3),
        };
        both.iter_mut().for_each(|header| header.filter = Some(filter.clone()));
        assert_eq!(arranged(&both).unwrap().0, [3.0, 3.75]);
    }
}
