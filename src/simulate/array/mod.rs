//! Voltages of an array whose antennas observe the same sky, each with its own receiver and delay.
//!
//! Invariant: a sample is a function of options, antenna and its own number, whatever was read before and
//! by however many threads.

mod delay;
mod options;
mod scene;

pub use options::{ArrayOptions, Layout, PointSource, Receiver};
pub use scene::Delay;

use std::path::PathBuf;
use std::sync::Arc;

use self::delay::{HOP, Track};
use self::scene::{Received, Scene, Scratch};
use super::recording::{Recording, store};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::geometry::{DelayModel, PhaseCentre, Sky, plus_elapsed_s};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Generates the voltages that the antennas of an array would record.
///
/// `x_i(t) = n_i(t) + sum over sources k of a_ik s_k(t - d_ik(t)) exp(-2 pi i f d_ik(t))`
///
/// for each recorded channel and polarization. n_i is the receiver noise, s_k the source's signal at the array's
/// reference point as the channel would record it there, and d_ik the delay of its wave at the antenna relative to
/// that point ([`Sky::delays_s`] plus the antenna's fixed delay). f is the sky frequency that the channel records as
/// frequency 0: its centre, or for real samples its band edge, of which the real part is recorded. A lower sideband
/// holds the conjugate.
///
/// - n_i and s_k are Gaussian and white over the recorded channel, an ideal rectangular band. n_i is independent in
///   all antennas, channels and polarizations. s_k is independent in all sources, channels and (if unpolarized)
///   polarizations, and the same in all antennas.
/// - Sample n is taken at `(n + 1/2) tsamp` after the start, the middle of its interval; d is the delay at that time.
/// - Strengths: in each polarization an antenna's power divides into its SEFD and the fluxes of all sources above the
///   horizon; their sum is `rms^2` in each real number. So the correlation coefficient of one unpolarized source of
///   flux S, between antennas of equal SEFD, is `S / (SEFD + sum of S)`. Whether a source is above the horizon is
///   decided once, for the middle of the recording and the reference point. There is no primary beam.
/// - A feed keeps its angle to the sky: a polarized source does not rotate with the parallactic angle.
///
/// Each antenna's stream is generated independently ([`ArraySimulator::antenna`]), in constant memory.
///
/// # Numerics
/// The fractional delay is a windowed sinc of 2048 taps (Kaiser, 100 dB). Over the central 99 % of the band (real
/// samples: from 0.5 % to 99.5 %) amplitude and phase are accurate to 1e-4 (0.006 degrees). Delays that change by up
/// to 3e-6 s/s are tracked to 5e-4 of the amplitude; below 2e-7 s/s, to 1e-5.
/// # Source
/// Thompson, Moran & Swenson 2017, Interferometry and Synthesis in Radio Astronomy, chapters 2 and 9.
#[derive(Debug)]
pub struct ArraySimulator {
    scene: Arc<Scene>,
    headers: Vec<VoltageHeader>,
    truth: ArrayTruth,
}

impl ArraySimulator {
    /// Creates a simulation with the delays of the sky.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range, or an antenna without any signal; as
    /// [`Sky::frame`].
    pub fn new(options: ArrayOptions) -> Result<Self> {
        options.check()?;
        let sky = Sky::new(&options.array, options.dut1.clone())?;
        let length_s = options.times as f64 * options.tsamp_s();
        let middle = plus_elapsed_s(&options.start, 0.5 * length_s)?;
        let mut delays: Vec<Option<Delay>> = Vec::new();
        let mut places = Vec::new();
        for source in &options.sources {
            let place = sky.altitude_azimuth_deg(source.direction, middle)?;
            let centre = PhaseCentre::Source(source.direction);
            let model = DelayModel::fit(&sky, centre, options.start, length_s, &[])?;
            let delay: Delay = Box::new(move |antenna, seconds| model.at(antenna, seconds));
            delays.push((place.0 > 0.0).then_some(delay));
            places.push(place);
        }
        let mut simulator = Self::build(&options, delays)?;
        for ((truth, source), place) in
            simulator.truth.sources.iter_mut().zip(&options.sources).zip(places)
        {
            (truth.altitude_deg, truth.azimuth_deg) = (Some(place.0), Some(place.1));
            if !truth.received {
                truth.delays_s = sky.delays_s(source.direction, options.start)?;
            }
        }
        Ok(simulator)
    }

    /// Creates a simulation with the caller's delays, one function per source. The sources' directions and the
    /// antennas' positions are not used.
    ///
    /// # Errors
    /// As [`ArraySimulator::new`]; [`Error::Shape`] for another number of delays than sources.
    pub fn with_delays(options: ArrayOptions, delays: Vec<Delay>) -> Result<Self> {
        options.check()?;
        check_length("delays", options.sources.len(), delays.len())?;
        Self::build(&options, delays.into_iter().map(Some).collect())
    }

    /// Builds the simulation; a source without a delay is not received.
    fn build(options: &ArrayOptions, delays: Vec<Option<Delay>>) -> Result<Self> {
        let mut received = Vec::new();
        let mut places = Vec::new();
        for (number, (source, delay)) in options.sources.iter().zip(delays).enumerate() {
            places.push(delay.is_some().then_some(received.len()));
            if let Some(delay) = delay {
                received.push(Received::new(source, number, options, delay));
            }
        }
        let scene = Scene::new(options, received)?;
        let antennas = 0..options.array.antennas.len();
        let source = |place: Option<usize>| {
            let source = place.map(|place| &scene.received[place]);
            SourceTruth {
                altitude_deg: None,
                azimuth_deg: None,
                received: source.is_some(),
                delays_s: source.map_or_else(Vec::new, |source| {
                    antennas.clone().map(|i| scene.delay_s(source, i, 0.0)).collect()
                }),
                amplitudes: source.map_or_else(Vec::new, |source| {
                    antennas.clone().map(|i| scene.amplitudes(i, source)).collect()
                }),
            }
        };
        let truth = ArrayTruth {
            autocorrelations: antennas.clone().map(|i| scene.autocorrelations(i)).collect(),
            sources: places.into_iter().map(source).collect(),
        };
        let headers = antennas.map(|antenna| header(options, antenna)).collect();
        Ok(Self { scene: Arc::new(scene), headers, truth })
    }

    /// Returns the number of antennas.
    pub fn antennas(&self) -> usize {
        self.headers.len()
    }

    /// Returns the voltages of one antenna from the first sample on; its header has the antenna's name as telescope.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an index out of range.
    pub fn antenna(&self, index: usize) -> Result<ArrayAntenna> {
        let Some(header) = self.headers.get(index) else {
            let rule = format!("there are {}, counted from 0", self.antennas());
            return Err(Error::parameter("antenna", index, rule));
        };
        Ok(ArrayAntenna::new(Arc::clone(&self.scene), index, header.clone()))
    }

    /// Returns the simulated truth.
    pub fn truth(&self) -> &ArrayTruth {
        &self.truth
    }
}

fn header(options: &ArrayOptions, antenna: usize) -> VoltageHeader {
    VoltageHeader {
        path: PathBuf::from("simulation"),
        format: "simulation",
        source_name: options.source_name.clone(),
        telescope: options.array.antennas[antenna].name.clone(),
        ra_deg: options.pointing.map(|pointing| pointing.ra_deg),
        dec_deg: options.pointing.map(|pointing| pointing.dec_deg),
        start: options.start,
        lower_sideband: options.lower_sideband,
        polarizations: options.polarizations,
        circular: Some(options.circular),
        times: Some(options.times),
        ..VoltageHeader::new(options.centres_hz.clone(), options.tsamp_s(), options.encoding)
    }
}

/// Quantities that a correlator can measure.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayTruth {
    /// Mean of |x|^2 of each antenna in each polarization, as stored, in counts^2; 0 for a dead antenna.
    pub autocorrelations: Vec<Vec<f64>>,
    /// Sources, in the order of the options.
    pub sources: Vec<SourceTruth>,
}

/// Source as received by the array.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTruth {
    /// Altitude above the array's horizon in the middle of the recording, in degrees; `None` if the caller gave the
    /// delays.
    pub altitude_deg: Option<f64>,
    /// Azimuth at that time, from north through east, in degrees.
    pub azimuth_deg: Option<f64>,
    /// Whether it is above the horizon at that time; otherwise it is not received.
    pub received: bool,
    /// Delay at each antenna at the start of the first sample, including its cable, in seconds: positive if the wave
    /// arrives later than at the array's reference point.
    pub delays_s: Vec<f64>,
    /// Amplitude in each antenna and polarization, in counts. After removal of the delay, the mean of x_i conj(x_j)
    /// of two antennas is the product of their amplitudes in counts^2; with few bits this holds for small
    /// correlations.
    pub amplitudes: Vec<Vec<f64>>,
}

/// Voltages of one antenna of an [`ArraySimulator`]; axes stream (recorded channel, polarization), time.
///
/// Samples are generated in blocks counted from the first sample, so that any sequence of reads returns the same
/// bytes. Memory: one block of every stream as stored, about 0.5 MB per thread and 0.1 MB per source.
#[derive(Debug)]
pub struct ArrayAntenna {
    scene: Arc<Scene>,
    index: usize,
    recording: Recording,
    tracks: Vec<Track>,
    scratch: Vec<Scratch>,
    threads: Threads,
    /// Current block and its number.
    made: VoltageBlock<'static>,
    number: Option<u64>,
}

impl ArrayAntenna {
    fn new(scene: Arc<Scene>, index: usize, header: VoltageHeader) -> Self {
        let tracks = scene.received.iter().map(|_| Track::default()).collect();
        let made = header.block(HOP);
        let antenna = Self {
            recording: Recording::new(header, &scene.receivers[index].gaps),
            scene,
            index,
            tracks,
            scratch: Vec::new(),
            threads: Threads::new(1),
            made,
            number: None,
        };
        antenna.with_threads(Threads::new(1))
    }

    /// Uses several threads, which share the recorded channels.
    pub fn with_threads(mut self, threads: Threads) -> Self {
        let Scene { filter, polarizations, numbers, .. } = &*self.scene;
        let scratch = || Scratch::new(filter, *polarizations, *numbers);
        self.scratch = (0..threads.count()).map(|_| scratch()).collect();
        self.threads = threads;
        self
    }

    /// Generates a block, unless it is the current one.
    fn generate(&mut self, number: u64) {
        if self.number == Some(number) {
            return;
        }
        let (scene, index) = (&*self.scene, self.index);
        if scene.receivers[index].dead {
            self.made.rows_mut().for_each(|row| row.fill(scene.encoding.zero_byte()));
        } else {
            for (source, track) in scene.received.iter().zip(&mut self.tracks) {
                let delay = |seconds| scene.delay_s(source, index, seconds);
                track.follow(&scene.filter, scene.tsamp_s, number, delay);
            }
            let tracks = &self.tracks;
            let mut rows: Vec<&mut [u8]> = self.made.rows_mut().collect();
            let each = scene.polarizations;
            self.threads.for_each_chunk(
                &mut self.scratch,
                &mut rows,
                each,
                |scratch, channel, rows| {
                    scene.make(index, channel, number, tracks, scratch);
                    for (row, counts) in rows.iter_mut().zip(&scratch.counts) {
                        store(counts, scene.encoding, row);
                    }
                },
            );
            let first = number * HOP as u64;
            let (recording, samples) = (&self.recording, first..first + HOP as u64);
            self.made.rows_mut().for_each(|row| recording.fill_gaps(samples.clone(), row));
        }
        self.number = Some(number);
    }
}

impl VoltageSource for ArrayAntenna {
    fn header(&self) -> &VoltageHeader {
        &self.recording.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.recording.times_into(block)?;
        let mut filled = 0;
        while filled < times {
            let next = self.recording.next;
            let (number, offset) = (next / HOP as u64, (next % HOP as u64) as usize);
            self.generate(number);
            let some = (HOP - offset).min(times - filled);
            let from = self.recording.bytes(offset, some);
            let to = self.recording.bytes(filled, some);
            for (stream, row) in block.rows_mut().enumerate() {
                row[to.clone()].copy_from_slice(&self.made.row_mut(stream)[from.clone()]);
            }
            filled += some;
            self.recording.next += some as u64;
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.recording.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.recording.flags
    }
}
