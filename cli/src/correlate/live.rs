//! Correlation of antennas whose voltages arrive: a file of visibilities per part of an observation.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::backend::Backend;
use sidereal::io::voltages::{VoltageHeader, VoltageOptions, VoltageSource};
use sidereal::io::{is_address, with_threads};
use sidereal::live::clock;
use sidereal::pipeline::Ending;
use sidereal::pipeline::correlator::{
    self, ArrayCorrelator, ArrayHeader, CorrelateOptions, Integration, Labels, Ranks,
    RemoteRecording,
};
use sidereal::{Error, Result};

use super::arguments::{Arguments, Array, Sky, Spectra, Visibilities, Writing};
use super::document::{Document, Written};
use super::inputs::{self, Given, Silent};
use super::watched::{self, Watched};
use super::{Assigned, Outputs, named, need, remote, write};
use crate::behind::Reporter;
use crate::common::{Common, Gpus, Work, tell_notes};
use crate::interrupt::{self, Exit};
use crate::provenance::{self, Made, Product, Provenance, Run};
use crate::say::warning;
use crate::sky::{self, Positions};
use crate::streams::{Expected, Roll};
use crate::voltage_arguments::{Lacking, file_of_window};
use crate::watch::Session;
use crate::{errors, json, space, streams};

/// Options of `live correlate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LiveArguments {
    /// Addresses of streams, each of one or several antennas: spead://HOST:PORT, vdif://HOST:PORT, dada:KEY, or a file that describes
    /// one (.toml).
    ///
    /// An ADDRESS may be written NAME=ADDRESS (A,B,C=ADDRESS for several antennas). Without names, antennas are assigned as those of
    /// recordings are: by their headers, otherwise in the order of the positions.
    #[arg(required = true, value_name = "ADDRESS")]
    addresses: Vec<PathBuf>,
    /// Folder for the files, which is made if it is missing.
    #[arg(
        short,
        long,
        value_name = "DIR",
        default_value = "visibilities",
        help_heading = "Output"
    )]
    output: PathBuf,
    /// Begin another file after this many seconds of data, or this size (4G).
    ///
    /// A file's data sets are laid out for all integrations of that length or size, and take disk space as they are filled.
    #[arg(
        long,
        value_name = "SECONDS|SIZE",
        allow_negative_numbers = true,
        value_parser = Roll::parse,
        default_value_t = Roll::Seconds(300.0),
        help_heading = "Output"
    )]
    roll: Roll,
    #[command(flatten)]
    visibilities: Visibilities,
    /// Spectra to make at once; 0 chooses.
    #[arg(long, value_name = "SPECTRA", default_value_t = 0, help_heading = "Stream")]
    gulp: usize,
    #[command(flatten)]
    array: Array,
    #[command(flatten)]
    sky: Sky,
    #[command(flatten)]
    spectra: Spectra,
    #[command(flatten)]
    lacking: Lacking,
}

impl LiveArguments {
    /// Returns the folder for the files.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    /// Returns the arguments for recordings with the same options.
    fn of_recordings(&self) -> Arguments {
        Arguments {
            inputs: self.addresses.clone(),
            time_range: None,
            gulp: self.gulp,
            allow_gaps: false,
            array: self.array.clone(),
            sky: self.sky.clone(),
            spectra: self.spectra.clone(),
            writing: Writing {
                output: self.output.clone(),
                overwrite: false,
                visibilities: self.visibilities.clone(),
                plots: None,
                no_plots: true,
            },
            lacking: self.lacking.clone(),
        }
    }

    /// Returns the addresses.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an argument that is not an address, or several addresses of one antenna.
    fn addresses(&self, given: &[Given]) -> Result<Vec<PathBuf>> {
        let address = |one: &Given| {
            let [address] = one.files.as_slice() else {
                let rule = "an antenna has one stream";
                return Err(Error::parameter("ADDRESS", one.files[1].display(), rule));
            };
            if !is_address(address) {
                let rule = "expected the address of a stream: spead://HOST:PORT, dada:KEY, or a file that ends with .toml";
                return Err(Error::parameter("ADDRESS", address.display(), rule));
            }
            Ok(address.clone())
        };
        let addresses: Vec<PathBuf> = given.iter().map(address).collect::<Result<_>>()?;
        let twice =
            (1..addresses.len()).find(|index| addresses[..*index].contains(&addresses[*index]));
        match twice {
            None => Ok(addresses),
            Some(index) => {
                let rule = "it is given twice, and a stream has one reader";
                Err(Error::parameter("ADDRESS", addresses[index].display(), rule))
            }
        }
    }

    /// Checks what needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range.
    pub(crate) fn check(&self) -> Result<()> {
        if self.roll == Roll::Seconds(0.0) {
            return Err(Error::parameter("--roll", "0", "expected seconds above 0, or a size"));
        }
        self.addresses(&inputs::given(&self.addresses)).map(drop)
    }

    /// Returns the input files other than streams.
    fn read(&self) -> Vec<PathBuf> {
        let mut read = vec![self.array.antennas.clone()];
        read.extend(self.spectra.gains.file().map(Path::to_path_buf));
        read.extend(self.sky.orientation.file());
        read.extend(self.spectra.window.as_deref().and_then(file_of_window));
        read
    }
}

/// Sources of all streams of an observation, and the ranks that divide it.
type Begun = (Vec<Box<dyn VoltageSource>>, Option<Ranks>);

/// Streams of an array, of which each rank receives some.
struct Streams {
    addresses: Vec<PathBuf>,
    options: VoltageOptions,
    /// Rank that receives each stream; `None` in a single process.
    readers: Option<Vec<usize>>,
    /// Whether this process receives each stream.
    is_own: Vec<bool>,
    /// Threads that sort the voltages of all streams.
    threads: usize,
}

impl Streams {
    /// Waits for the next observation of all streams.
    ///
    /// # Errors
    /// Those of the streams; those of [`RemoteRecording::share`].
    fn next(&self, mut ranks: Option<Ranks>) -> Result<Begun> {
        let pairs = || self.addresses.iter().zip(&self.is_own);
        let own: Vec<PathBuf> =
            pairs().filter(|(_, is_own)| **is_own).map(|(address, _)| address.clone()).collect();
        // Before a rank waits for packets, all must be able to receive theirs.
        agreed(streams::listen(&own, &self.options), &mut ranks)?;
        // Each stream sorts its voltages on threads of its own.
        let threads = (self.threads / own.len().max(1)).max(1);
        let open = |address: &PathBuf| {
            let opened = with_threads(threads, || streams::voltages(address, &self.options))?;
            let source: Box<dyn VoltageSource> = Box::new(opened);
            Ok(source)
        };
        let opened = pairs().map(|(address, is_own)| is_own.then(|| open(address)).transpose());
        // A rank that is asked to stop while it waits stops the others.
        let opened = agreed(opened.collect::<Result<Vec<Option<_>>>>(), &mut ranks)?;
        let Some((mut ranks, readers)) = ranks.zip(self.readers.clone()) else {
            return Ok((opened.into_iter().flatten().collect(), None));
        };
        let headers = RemoteRecording::share(&opened, &mut ranks)?;
        let sources = opened.into_iter().zip(headers);
        let sources = sources.map(|(own, header)| own.unwrap_or_else(|| Box::new(header)));
        Ok((sources.collect(), Some(ranks.read_by(readers))))
    }
}

/// Returns this process's value if all ranks have one.
///
/// # Errors
/// The error of this process; those of [`Ranks::agree_on`].
fn agreed<T>(own: Result<T>, ranks: &mut Option<Ranks>) -> Result<T> {
    match ranks {
        Some(ranks) => ranks.agree_on(own),
        None => own,
    }
}

/// Correlates the observations of live streams. Ends as the session says, or after a request to stop. With ranks, each
/// receives its share of the streams, and rank 0 writes the files.
///
/// # Errors
/// Those of the options and the streams, and those of writing before the first integration of a file.
pub(crate) fn run_live(
    arguments: &LiveArguments,
    session: &Session,
    common: &Common,
    ranks: Option<Ranks>,
) -> Result<Exit> {
    arguments.check()?;
    let given = inputs::given(&arguments.addresses);
    let addresses = arguments.addresses(&given)?;
    let positions = Positions::read(&arguments.array.antennas, arguments.array.location)?;
    watched::check(&session.baselines, &positions.array)?;
    let options = arguments.lacking.options()?;
    let mut ranks = ranks.map(Ranks::repeating);
    let readers =
        ranks.as_ref().map(|own| remote::readers(&given, &positions.names(), own.count()));
    let (rank, readers) = (ranks.as_ref().map_or(0, Ranks::own), readers.transpose()?);
    // A GPU takes a while to start, and a stream does not wait.
    let work = Work::on_antennas(&arguments.addresses, given.len());
    let backend = agreed(common.backend_for(work, Gpus::Several), &mut ranks)?;
    if backend.is_gpu()
        && ranks.is_none()
        && let Some(headers) = streams::described_each(&addresses)?
    {
        compile(arguments, &given, headers, &positions, &backend, common)?;
    }
    let is_own = match &readers {
        None => vec![true; addresses.len()],
        Some(readers) => readers.iter().map(|reader| *reader == rank).collect(),
    };
    let streams = Streams { addresses, options, readers, is_own, threads: backend.threads() };
    let mut done = 0;
    loop {
        let (opened, divided) = match streams.next(ranks.take()) {
            // The usual end of a program that waits for the next observation.
            Err(error) if error.is_stop() && done > 0 => return Ok(Exit::Interrupted),
            opened => opened?,
        };
        let mut observation =
            Observation::begin(arguments, &given, opened, &positions, &backend, divided, common)?;
        let exit = match rank {
            0 => observation.write_all(arguments, session, common)?,
            _ => observation.assist()?,
        };
        if exit != Exit::Success {
            return Ok(exit);
        }
        session.tell(|watcher| watcher.observed());
        ranks = observation.correlator.into_ranks()?;
        done += 1;
        if done == session.observations {
            ranks.iter_mut().for_each(Ranks::finish);
            return Ok(Exit::Success);
        }
    }
}

/// Compiles the kernels for streams that have not begun, because that takes seconds.
///
/// # Errors
/// Those of the options.
fn compile(
    arguments: &LiveArguments,
    given: &[Given],
    mut headers: Vec<VoltageHeader>,
    positions: &Positions,
    backend: &Backend,
    common: &Common,
) -> Result<()> {
    for header in headers.iter_mut().filter(|header| header.start.day == 0) {
        // Delays need a time.
        header.start = clock::now();
    }
    let expected = headers
        .into_iter()
        .map(|header| -> Box<dyn VoltageSource> { Box::new(Expected { header }) });
    let csv = &arguments.array.antennas;
    let (inputs, _) = inputs::assign(given, expected.collect(), &positions.names(), csv)?;
    let headers: Vec<&VoltageHeader> = inputs.iter().map(|input| input.source.header()).collect();
    let mut options = arguments.of_recordings().options(positions, &headers)?;
    options.memory = common.memory;
    ArrayCorrelator::new(&positions.array, inputs, &options, backend).map(drop)
}

/// Returns the integrations of a file.
fn part_integrations(roll: Roll, header: &ArrayHeader) -> u64 {
    let bytes = need(&ArrayHeader { integrations: 1, ..header.clone() });
    roll.samples(header.integration_s(), bytes as f64).unwrap_or(u64::MAX)
}

/// Observation that is being correlated.
struct Observation {
    correlator: ArrayCorrelator,
    options: CorrelateOptions,
    backend: Backend,
    /// Each antenna's name and address.
    files: Vec<(String, String)>,
    reporter: Reporter,
}

impl Observation {
    fn begin(
        arguments: &LiveArguments,
        given: &[Given],
        opened: Vec<Box<dyn VoltageSource>>,
        positions: &Positions,
        backend: &Backend,
        ranks: Option<Ranks>,
        common: &Common,
    ) -> Result<Self> {
        let Assigned { inputs, files, options } =
            Assigned::new(&arguments.of_recordings(), given, opened, positions, common)?;
        let array = &positions.array;
        let correlator = match ranks {
            Some(ranks) => ArrayCorrelator::divided(array, inputs, &options, backend, ranks)?,
            None => ArrayCorrelator::new(array, inputs, &options, backend)?,
        };
        let header = correlator.header();
        let integrations = part_integrations(arguments.roll, header);
        let part_s = integrations as f64 * header.integration_s();
        sky::warn_of_orientation(&options.dut1, header.start, part_s, common);
        let (backend, reporter) = (backend.clone(), Reporter::new(common));
        Ok(Self { correlator, options, backend, files, reporter })
    }

    /// Computes this rank's share of the observation, for ranks other than 0.
    fn assist(&mut self) -> Result<Exit> {
        self.correlator.watched_by(Box::new(|_| !interrupt::requested()));
        match self.correlator.assist() {
            Err(error) if error.is_stop() => Ok(Exit::Interrupted),
            assisted => assisted.map(Exit::from),
        }
    }

    /// Writes the observation to files, a part to each.
    fn write_all(
        &mut self,
        arguments: &LiveArguments,
        session: &Session,
        common: &Common,
    ) -> Result<Exit> {
        fs::create_dir_all(&arguments.output)
            .map_err(|error| Error::io(&arguments.output, error))?;
        loop {
            let exit = match self.write(arguments, session, common) {
                Err(error) if error.is_stop() => return Ok(Exit::Interrupted),
                wrote => match wrote? {
                    Some((path, ending)) => errors::ended(&ending, &path),
                    None => return Ok(Exit::Success),
                },
            };
            if exit != Exit::Success {
                return Ok(exit);
            }
        }
    }

    /// Writes the next part of the observation to a file of its own; returns none at its end.
    fn write(
        &mut self,
        arguments: &LiveArguments,
        session: &Session,
        common: &Common,
    ) -> Result<Option<(PathBuf, Ending)>> {
        let Self { correlator, options, backend, files, reporter } = self;
        correlator.begin_part(part_integrations(arguments.roll, correlator.header()));
        let header = correlator.part_header()?;
        if header.integrations == 0 {
            return Ok(None);
        }
        let name = streams::name_of(header.start);
        let path = streams::free_name(&arguments.output, &name, ".uvh5");
        let read = arguments.read();
        let writing = Writing { output: path, ..arguments.of_recordings().writing };
        let mut outputs = Outputs::begin(&writing, &read, common)?;
        if let Some(shortage) = space::shortage(outputs.place(), need(&header)) {
            warning!(quiet: common.quiet, "{shortage}.");
        }
        let made = Made {
            provenance: Provenance::new(common, &read)?,
            run: Run::new(common).on(backend).live(),
        };
        let history = [
            correlator::history(&header, options),
            provenance::lines(&made.provenance, &made.run)?,
        ];
        let labels = Labels { history: history.join("\n"), ..Labels::default() };
        let mut silent = Silent::new(&header);
        let mut watched = Watched::new(session, &header);
        let mut see = |integration: &Integration| {
            silent.add(integration);
            watched.add(integration);
            reporter.look();
        };
        let report = write(correlator, &outputs, &labels, None, &mut see, common)?;
        tell_notes(backend, common);
        if report.summary.integrations == 0 {
            return Ok(None);
        }
        outputs.use_reserve();
        let mut document = Document::new(Written {
            file: named(outputs.place()),
            header: &header,
            options,
            report: &report,
            files,
            device: backend.is_gpu().then(|| backend.name()),
            silent: silent.names(&header),
            plots: Vec::new(),
            page: None,
        });
        document.dropped = reporter.sum();
        let run = document.told(made.run);
        let product = Product::new("correlate", document, made.provenance, run);
        outputs.finish(&product, common)?;
        interrupt::goes_on();
        for warning in product.document.warnings() {
            warning!(quiet: common.quiet, "{warning}.");
        }
        if common.json {
            json::print(&product)?;
        } else if !common.quiet {
            json::say(&product.document.text())?;
        }
        Ok(Some((writing.output, report.ending)))
    }
}
