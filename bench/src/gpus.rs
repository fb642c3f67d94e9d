//! `bench gpus`: kernels and pipelines on 1, 2, 4 and more GPUs of a host, with data in the GPUs' or in the host's memory.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use clap::Args;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Device, Stream};
use sidereal::backend::threads::Threads;
use sidereal::clean::{Bandpass, Steps};
use sidereal::correlate::{Correlator, Options as XOptions, Output, Plan as XPlan};
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::FilterbankSource as _;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::burst::{SearchOptions, Source};
use sidereal::pipeline::cbc::{ChirpSearch, Input, Recording as Strain};
use sidereal::pipeline::correlator::Integration;
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::simulate::burst::{Burst, Options as SkyOptions};
use sidereal::spiir::bank::Bank;
use sidereal::units::Band;
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use crate::correlate::recorded::{self, Recorded};
use crate::correlate::{layout, operations as products};
use crate::random::{self, RepeatedVoltages};
use crate::rows::{Recording, running};
use crate::runner::{Rates, Run, Session, no_case};
use crate::spiir::whole::{options as of_bank, recordings, repeated_neutron_stars};
use crate::spiir::{Resident, bank, operations as per_sample};

/// Measure kernels and pipelines on several GPUs of a host, with data in memory.
///
/// `bench scale` measures whole runs of the command line, from files.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Numbers of GPUs [default: 1, 2, 4 and so on, as many as there are].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    numbers: Vec<u16>,
    /// Measure small data once, to test that everything works: the rates mean nothing.
    #[arg(long)]
    quick: bool,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Number of runs of each case; the table has the best and the median [default: 3, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

const ABOUT: &str = "\
Kernels: of the X-engine (8 bit, 256 channels) and of banks of filters (neutron stars, four rates). Each GPU computes its share of the channels or of the templates at the same time as the others, with all data in
its memory. From host memory: a pipeline of the library, which divides its work among the GPUs, from samples in the host's
memory to results there, in the steady state (spiir search, of 1024 s of two detectors: from its start to the list of
events). Correlate: 1024 channels of a tracked source; channelize: sums of 16 spectra of 1024 channels; search: 1024
channels, 64 us, to a DM of 1000, with mitigation unless the name says otherwise. Best and median run. Roof: the median rate on the first number of GPUs,
scaled linearly to this number. A hash of the last run's results (kernels: of some channels or templates; channelize: of the
first row of each read) is compared with that of the first number.";

/// Name of the benchmark.
const BENCH: &str = "gpus";

/// Rates of a case on some GPUs, and what was computed.
struct Measured {
    /// Work per second of each run, in the case's unit.
    rates: Vec<f64>,
    digest: u64,
}

/// Work that GPUs divide.
trait Case {
    /// Measures a number of runs on the GPUs of a backend.
    ///
    /// # Errors
    /// Errors of the stages and of the devices.
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured>;
}

/// Makes the data of a case, which are released after it.
type Make = fn(quick: bool, threads: &Threads) -> Result<Box<dyn Case>>;

/// Names of the cases and the units of their rates.
const CASES: [(&str, &str, Make); 10] = [
    ("X-engine, 256 antennas, kernels", "TFLOP/s", |quick, _| Ok(Box::new(XEngine::new(quick)))),
    ("filters, 4096 templates, kernels", "TFLOP/s", |quick, threads| {
        Ok(Box::new(Filters::new(if quick { 8 } else { 4096 }, threads)?))
    }),
    ("filters, 65536 templates, kernels", "TFLOP/s", |quick, threads| {
        Ok(Box::new(Filters::new(if quick { 12 } else { 65536 }, threads)?))
    }),
    ("correlate, 64 antennas, from host", "GB/s", |quick, _| {
        Ok(Box::new(Correlation::new(if quick { 3 } else { 64 }, quick)?))
    }),
    ("correlate, 256 antennas, from host", "GB/s", |quick, _| {
        Ok(Box::new(Correlation::new(if quick { 5 } else { 256 }, quick)?))
    }),
    ("channelize to powers, from host", "GB/s", |quick, _| {
        Ok(Box::new(Channelization::new(quick)))
    }),
    ("search, default plan, from host", "GB/s", |quick, _| {
        Ok(Box::new(Search::new(&Trials::Default, true, quick)?))
    }),
    ("search, default plan, no mitigation, from host", "GB/s", |quick, _| {
        Ok(Box::new(Search::new(&Trials::Default, false, quick)?))
    }),
    ("search, 25001 trials, from host", "GB/s", |quick, _| {
        Ok(Box::new(Search::new(&Trials::Dense, true, quick)?))
    }),
    ("spiir, 4096 templates, from host", "x real time", |quick, threads| {
        Ok(Box::new(StrainSearch::new(quick, threads)?))
    }),
];

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(0.0)?;
    let numbers = arguments.numbers(&session.backend)?;
    let threads = Threads::new(session.threads);
    let mut run = Run::new(session, arguments.csv.as_deref(), ABOUT)?.continuing();
    let runs = arguments.runs.map_or(if arguments.quick { 1 } else { 3 }, usize::from);
    for (name, unit, make) in CASES {
        if arguments.only.as_deref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        run.case(name, || {
            let case = make(arguments.quick, &threads)?;
            let mut rows = Vec::new();
            let mut first = None;
            for number in &numbers {
                let backend = joined(*number, &threads)?;
                let Measured { rates, digest } = case.measure(&backend, runs)?;
                let own = Rates::of(rates, 0.0, 0.0);
                let (least, rate, expected) = *first.get_or_insert((*number, own.median, digest));
                let roof = rate * *number as f64 / least as f64;
                let rates = Rates { roof, baseline: rate, ..own };
                let name = format!("{name}, {number} GPUs").replace(", 1 GPUs", ", 1 GPU");
                let row = rates.row(BENCH, name, &backend, unit, digest == expected);
                rows.push(row.beside("rate of the first number in proportion"));
            }
            Ok(rows)
        })?;
    }
    if run.cases() == 0 {
        return Err(no_case(arguments.only.as_deref()));
    }
    run.finish()
}

impl Arguments {
    /// Returns the numbers of GPUs.
    ///
    /// # Errors
    /// [`Error::Parameter`] without a GPU, and for more than there are.
    fn numbers(&self, backend: &Backend) -> Result<Vec<usize>> {
        if !backend.is_gpu() {
            let rule = "this measures GPUs: --device cuda";
            return Err(Error::parameter("--device", backend.name(), rule));
        }
        let most = Device::count()?;
        if self.numbers.is_empty() {
            let doubled = std::iter::successors(Some(1_usize), |number| Some(2 * number));
            return Ok(doubled.take_while(|number| *number <= most).collect());
        }
        let numbers: Vec<usize> = self.numbers.iter().map(|number| usize::from(*number)).collect();
        match numbers.iter().find(|number| **number > most) {
            Some(number) => {
                let rule = format!("this machine has {most} GPUs");
                Err(Error::parameter("--numbers", *number, rule))
            }
            None => Ok(numbers),
        }
    }
}

/// Returns the first GPUs of the machine as one backend.
fn joined(count: usize, threads: &Threads) -> Result<Backend> {
    let mut devices = Device::all().into_iter().take(count);
    let Some(first) = devices.next() else {
        let (what, why) = ("a GPU".to_owned(), "none is usable".to_owned());
        return Err(Error::Unavailable { what, why });
    };
    Ok(Backend::Cuda(first.with_peers(devices.collect())?, threads.clone()))
}

/// Returns a hash of values whose equality is that of their bits.
fn hashed<T: Hash>(values: impl IntoIterator<Item = T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.into_iter().for_each(|value| value.hash(&mut hasher));
    hasher.finish()
}

/// Kernels that run on one GPU and find all their data in its memory.
trait Kernels: Send {
    /// Enqueues one call.
    fn enqueue(&mut self) -> Result<()>;

    /// Waits for all calls.
    fn wait(&self) -> Result<()>;
}

/// Seconds of a run of kernels on the first number of GPUs.
const LONG_S: f64 = 0.5;

/// Measures runs of `calls` calls of the kernels of each GPU, all at the same time, after two calls; sets `calls` for runs of
/// about [`LONG_S`] if it is 0. Returns the seconds of each run.
fn together<K: Kernels>(
    shares: &mut [K],
    calls: &Cell<usize>,
    runs: usize,
    quick: bool,
) -> Result<Vec<f64>> {
    // The same number of calls on any number of GPUs: filters keep a state, and hashes of their output are compared.
    let one_s = at_once(shares, 1)?.min(at_once(shares, 1)?);
    if calls.get() == 0 {
        let one_s = if quick { LONG_S } else { one_s };
        calls.set((LONG_S / one_s.max(1e-5)).ceil() as usize);
    }
    (0..runs).map(|_| at_once(shares, calls.get())).collect()
}

/// Returns the seconds that calls of the kernels of all GPUs take, a thread for each GPU.
fn at_once<K: Kernels>(shares: &mut [K], calls: usize) -> Result<f64> {
    let barrier = Barrier::new(shares.len() + 1);
    std::thread::scope(|scope| {
        let running: Vec<_> = shares
            .iter_mut()
            .map(|share| {
                scope.spawn(|| {
                    barrier.wait();
                    (0..calls).try_for_each(|_| share.enqueue())?;
                    share.wait()
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        for one in running {
            one.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))?;
        }
        Ok(begin.elapsed().as_secs_f64())
    })
}

/// Returns the GPU of a backend.
fn device_of(backend: &Backend) -> Result<&Device> {
    match backend {
        Backend::Cuda(device, _) => Ok(device),
        _ => Err(Error::parameter("--device", backend.name(), "expected a GPU")),
    }
}

/// X-engine with spectra in the GPUs' memory.
struct XEngine {
    options: XOptions,
    times: usize,
    /// Spectra of all channels.
    spectra: Vec<u8>,
    calls: Cell<usize>,
    quick: bool,
}

/// X-engine of some channels on a GPU.
struct XShare {
    /// Number of its first channel.
    first: usize,
    correlator: Correlator,
    spectra: Buffer<u8>,
    times: usize,
    stream: Stream,
}

impl Kernels for XShare {
    fn enqueue(&mut self) -> Result<()> {
        self.correlator.reset();
        let layout = layout(self.correlator.plan(), self.times);
        self.correlator.enqueue(&mut self.spectra, layout, None, &self.stream)
    }

    fn wait(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

impl XEngine {
    fn new(quick: bool) -> Self {
        let (antennas, channels, times) = if quick { (3, 8, 64) } else { (256, 256, 1024) };
        let encoding = VoltageEncoding::Complex8;
        let options = XOptions { antennas, polarizations: 2, channels, encoding };
        let spectra = random::bytes(channels * 2 * antennas * encoding.bytes(times));
        Self { options, times, spectra, calls: Cell::new(0), quick }
    }

    /// Makes the share of a GPU: the channels of `range`.
    fn share(&self, backend: &Backend, range: std::ops::Range<usize>) -> Result<XShare> {
        let plan = XPlan::new(XOptions { channels: range.len(), ..self.options.clone() })?;
        let stride = layout(&plan, self.times).channel_stride;
        let device = device_of(backend)?;
        Ok(XShare {
            first: range.start,
            spectra: device.upload(&self.spectra[range.start * stride..range.end * stride])?,
            correlator: Correlator::new(plan, backend)?,
            times: self.times,
            stream: device.stream()?,
        })
    }
}

impl Case for XEngine {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let backends = backend.shares();
        let bound = |k: usize| k * self.options.channels / backends.len();
        let ranges = (0..backends.len()).map(|k| bound(k)..bound(k + 1));
        let shares = backends.iter().zip(ranges).map(|(backend, range)| self.share(backend, range));
        let mut shares = shares.collect::<Result<Vec<_>>>()?;
        let seconds = together(&mut shares, &self.calls, runs, self.quick)?;
        // Channels that the GPUs have for different numbers of them, and those at their edges.
        let checked = [0, 1, 3, 5, 7].map(|eighth| eighth * self.options.channels / 8);
        let mut sums = Vec::new();
        for share in &mut shares {
            let plan = share.correlator.plan().clone();
            for channel in checked {
                let Some(own) = channel.checked_sub(share.first) else { continue };
                if own < plan.channels() {
                    let mut found = vec![Complex::<i64>::ZERO; plan.row_elements()];
                    let mut counts = vec![0; plan.baselines()];
                    share.correlator.read(
                        own..own + 1,
                        Output::Integer(&mut found),
                        &mut counts,
                    )?;
                    sums.extend(found.iter().flat_map(|sum| [sum.re, sum.im]));
                }
            }
        }
        let plan = XPlan::new(self.options.clone())?;
        let work = products(&plan, self.times) * self.calls.get() as f64 * 1e-12;
        Ok(Measured { rates: rates(work, &seconds), digest: hashed(sums) })
    }
}

/// Returns the work per second of each run.
fn rates(work: f64, seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| work / seconds.max(1e-9)).collect()
}

/// Bank of filters with strain and ratios in the GPUs' memory.
struct Filters {
    bank: Bank,
    calls: Cell<usize>,
}

/// Designed templates, which the others of a bank repeat.
const DESIGNS: usize = 16;

/// Samples of a call.
const SAMPLES: usize = 4096;

/// Filters of some templates on a GPU.
struct FilterShare {
    templates: std::ops::Range<usize>,
    filters: Resident,
    /// Number of ratios that the last call made.
    made: usize,
    stream: Stream,
}

impl Kernels for FilterShare {
    fn enqueue(&mut self) -> Result<()> {
        self.made = self.filters.step(&self.stream)?;
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

impl Filters {
    fn new(templates: usize, threads: &Threads) -> Result<Self> {
        let bank = repeated_neutron_stars(templates, DESIGNS.min(templates / 2), threads)?;
        Ok(Self { bank, calls: Cell::new(0) })
    }

    /// Returns whether the data are those of a quick run.
    fn is_quick(&self) -> bool {
        self.bank.templates.len() < DESIGNS
    }
}

impl Case for Filters {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let plan = self.bank.plan()?;
        let (backends, noise) = (backend.shares(), bank::noise(SAMPLES));
        let parts = plan.parts(backends.len());
        let shares = backends.iter().zip(&parts).map(|(backend, part)| {
            let device = device_of(backend)?;
            let filters = Resident::new(device, backend, part, &noise)?;
            let stream = device.stream()?;
            Ok(FilterShare { templates: part.range(), filters, made: 0, stream })
        });
        let mut shares = shares.collect::<Result<Vec<_>>>()?;
        let seconds = together(&mut shares, &self.calls, runs, self.is_quick())?;
        let count = plan.templates();
        let checked = [0, count / 2 - 1, count / 2, count - 1];
        let mut ratios = Vec::new();
        let mut row = vec![Complex::default(); SAMPLES];
        for share in &shares {
            for template in checked.iter().filter(|template| share.templates.contains(template)) {
                let first = (template - share.templates.start) * SAMPLES;
                share.filters.output.download(first, &mut row[..share.made])?;
                ratios.extend(
                    row[..share.made].iter().flat_map(|z| [z.re.to_bits(), z.im.to_bits()]),
                );
            }
        }
        let samples = (count * SAMPLES * self.calls.get()) as f64;
        let work = samples * per_sample(&plan) * 1e-12;
        Ok(Measured { rates: rates(work, &seconds), digest: hashed(ratios) })
    }
}

/// Correlation of voltages in host memory.
struct Correlation {
    recorded: Recorded,
}

impl Correlation {
    fn new(antennas: usize, quick: bool) -> Result<Self> {
        let (spectra, integrations) = if quick { (64, 3) } else { (4096, 4096 / antennas) };
        Ok(Self { recorded: Recorded::new(antennas, spectra, integrations)? })
    }
}

impl Case for Correlation {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let (mut rates, mut digest) = (Vec::new(), 0);
        for _ in 0..runs {
            let options = &self.recorded.options;
            let mut correlator = self.recorded.correlator(options, backend)?;
            let mut integration = Integration::new();
            // The first integration's time is that of the setup, too.
            let mut begun = None;
            let mut spectra = 0;
            while correlator.next_integration(&mut integration)? {
                match begun {
                    None => begun = Some(Instant::now()),
                    Some(_) => spectra += integration.spectra,
                }
            }
            let seconds = begun.map_or(f64::INFINITY, |begun| begun.elapsed().as_secs_f64());
            let samples =
                spectra as f64 * (2 * self.recorded.voltages.len() * recorded::CHANNELS) as f64;
            rates.push(1e-9 * recorded::SAMPLE as f64 * samples / seconds);
            let sums = integration.sums.iter().flat_map(|sum| [sum.re, sum.im].map(f64::to_bits));
            digest = hashed(sums.chain(integration.counts.iter().copied()));
        }
        Ok(Measured { rates, digest })
    }
}

/// Filter bank from voltages to powers, both in host memory.
struct Channelization {
    recording: RepeatedVoltages,
    options: ChannelizeOptions,
    /// Bytes of the rows that are read at once.
    read_bytes: usize,
}

/// Samples of each polarization in memory, and number of times that they are read.
const TIMES: usize = 1 << 26;
const ROUNDS: u64 = 64;

impl Channelization {
    fn new(quick: bool) -> Self {
        let (times, rounds, read_bytes) =
            if quick { (1 << 18, 2, 1 << 14) } else { (TIMES, ROUNDS, 64 << 20) };
        let encoding = VoltageEncoding::Complex8;
        let header = VoltageHeader {
            polarizations: 2,
            times: Some(times as u64 * rounds),
            format: "memory",
            ..VoltageHeader::new(vec![1400e6], 1.0 / 300e6, encoding)
        };
        let bytes = random::bytes(2 * encoding.bytes(times));
        let options = ChannelizeOptions { integrate: 16, ..ChannelizeOptions::new(1024) };
        let recording = RepeatedVoltages::new(header, bytes, Threads::new(0));
        Self { recording, options, read_bytes }
    }
}

impl Case for Channelization {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let (mut rates, mut digest) = (Vec::new(), 0);
        for _ in 0..runs {
            let source = Box::new(self.recording.clone());
            let mut filterbank = VoltageFilterbank::new(source, &self.options, backend)?;
            let row_bytes = filterbank.header().row_bytes();
            let mut rows = vec![0; (self.read_bytes / row_bytes).max(1) * row_bytes];
            let mut hasher = DefaultHasher::new();
            let (mut begun, mut times) = (None, 0);
            loop {
                let made = filterbank.read(&mut rows)?;
                if made == 0 {
                    break;
                }
                match begun {
                    None => begun = Some(Instant::now()),
                    Some(_) => times += made,
                }
                rows[..row_bytes].hash(&mut hasher);
            }
            let seconds = begun.map_or(f64::INFINITY, |begun| begun.elapsed().as_secs_f64());
            let bytes = (times * self.options.channels * self.options.integrate * 2 * 2) as f64;
            rates.push(1e-9 * bytes / seconds);
            digest = hasher.finish();
        }
        Ok(Measured { rates, digest })
    }
}

/// Search of rows in host memory.
struct Search {
    recording: Recording,
    options: SearchOptions,
    /// Number of times that the recording is read.
    count: u64,
    row_bytes: f64,
}

/// Trials of a search to a dispersion measure of 1000.
enum Trials {
    /// Those of the default tolerance.
    Default,
    /// 25001.
    Dense,
}

impl Search {
    fn new(trials: &Trials, is_mitigated: bool, quick: bool) -> Result<Self> {
        // A quick run has long samples, and thus few trials.
        let (channels, tsamp_s) = if quick { (64, 1e-3) } else { (1024, 64e-6) };
        let step_mhz = -300.0 / channels as f64;
        let band = Band::uniform(1500.0 + 0.5 * step_mhz, step_mhz, channels)?;
        let times = if quick { 1 << 14 } else { 1 << 20 };
        let mut sky = SkyOptions::new(band.clone(), tsamp_s, times);
        sky.bursts = vec![Burst::new(300.0, 0.4 * times as f64 * tsamp_s, 5e-3, 20.0)];
        let plan = match trials {
            Trials::Default => {
                DmPlan::tolerance(&band, tsamp_s, 0.0, 1000.0, &ToleranceOptions::default())?
            }
            Trials::Dense if quick => DmPlan::fixed(&[(0.0, 1000.0, 4.0)])?,
            Trials::Dense => DmPlan::fixed(&[(0.0, 1000.0, 0.04)])?,
        };
        let steps = Steps { iqrm: true, bandpass: Bandpass::Outliers, time: true };
        let mitigation = is_mitigated.then_some(steps);
        let options = SearchOptions { mitigation, ..SearchOptions::new(plan) };
        let count = match (quick, trials) {
            (true, _) => 2,
            (_, Trials::Default) => 32,
            (_, Trials::Dense) => 8,
        };
        let row_bytes = channels as f64;
        Ok(Self { recording: Recording::simulated(sky)?, options, count, row_bytes })
    }
}

impl Case for Search {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let (mut rates, mut digest) = (Vec::new(), 0);
        for _ in 0..runs {
            let mut source = self.recording.repeated(self.count);
            let (report, rows) = running(Source::Rows(&mut source), &self.options, backend)?;
            rates.push(1e-9 * self.row_bytes * rows);
            if report.candidates.is_empty() {
                let (what, why) = ("the burst".to_owned(), "the search did not find it".to_owned());
                return Err(Error::Unavailable { what, why });
            }
            digest = hashed(
                report
                    .candidates
                    .iter()
                    .flat_map(|one| [one.dm, one.time_s, one.snr].map(f64::to_bits)),
            );
        }
        Ok(Measured { rates, digest })
    }
}

/// Search of two detectors' strain in host memory.
struct StrainSearch {
    bank: Bank,
    recordings: Vec<Strain>,
    seconds: f64,
}

impl StrainSearch {
    fn new(quick: bool, threads: &Threads) -> Result<Self> {
        let (templates, designs, seconds) = if quick { (8, 2, 80.0) } else { (4096, 16, 1024.0) };
        let bank = repeated_neutron_stars(templates, designs, threads)?;
        Ok(Self { recordings: recordings(seconds, &bank)?, bank, seconds })
    }
}

impl Case for StrainSearch {
    fn measure(&self, backend: &Backend, runs: usize) -> Result<Measured> {
        let (mut rates, mut digest) = (Vec::new(), 0);
        for _ in 0..runs {
            let input = |one: &Strain| (one.clone(), Input::Bank(Arc::new(self.bank.clone())));
            let inputs = self.recordings.iter().map(input).collect();
            let search = ChirpSearch::new(inputs, &of_bank(&self.bank), backend)?;
            let report = search.run(&mut |_| true)?;
            rates.push(self.seconds / report.elapsed_s);
            if report.found.events.is_empty() {
                let (what, why) =
                    ("the binary".to_owned(), "the search did not find it".to_owned());
                return Err(Error::Unavailable { what, why });
            }
            digest = hashed(
                report
                    .found
                    .events
                    .iter()
                    .flat_map(|event| [event.network_snr, event.ranking].map(f64::to_bits)),
            );
        }
        Ok(Measured { rates, digest })
    }
}
