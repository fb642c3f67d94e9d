//! `sidereal channelize`: makes spectra from recorded voltages, as a filterbank file or as voltages of more channels.

mod document;
mod output;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod sending;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use output::{Format, Making, Outputs, Values, Wrote};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::target::Target;
use sidereal::pipeline::voltage::ChannelizeOptions;
use sidereal::units::DM_CONSTANT;
use sidereal::{Error, Result};

use crate::common::{Common, Gpus, Work};
use crate::dm_arguments::check_constant;
use crate::interrupt::Exit;
use crate::output::{Existing, WritingFiles};
use crate::selection::{TimeRange, parse_time_range};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::streams::Expected;
use crate::voltage_arguments::VoltageArguments;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::watch::Session;
use crate::{errors, streams};

pub(crate) use document::Document;

/// Channelize recorded voltages to a filterbank (.fil) or to voltages of more channels.
///
/// A polyphase filter bank divides each recorded channel. For a filterbank, powers are detected and summed, and
/// channels run from the highest sky frequency down; a file's start is the middle of its first window, so that pulses
/// keep their times. Gaps of a recording are filled with each channel's running level (in voltages: with zeros) and
/// listed in OUT.gaps.json; OUT.json records how the file was made.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Voltages: GUPPI raw, PSRDADA, VDIF or Mark 5B.
    ///
    /// The format is recognized by content. Several files are parts of one recording, in any order; NAME stands for
    /// NAME.0000.raw, NAME.0001.raw and so on.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Use only these seconds of the recording; either end may be omitted: 10:20, 10:, :20.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true)]
    time_range: Option<TimeRange>,
    /// Samples of each stream to read at once; 0 chooses.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0)]
    gulp: usize,
    /// Fill gaps of any length.
    ///
    /// By default a gap longer than both one minute and ten times the data before it is an error, because one damaged
    /// timestamp makes such a gap.
    #[arg(long)]
    allow_gaps: bool,
    /// File to write; `-` is a filterbank on standard output, without side files.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Replace OUT and its side files if they exist.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Format of OUT [default: guppi if it ends in .raw, dada if in .dada, else fil].
    #[arg(long, value_enum, help_heading = "Output")]
    format: Option<Format>,
    #[command(flatten)]
    spectra: Spectra,
}

/// Options of `live channelize`.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[derive(Args, Clone, Debug)]
pub(crate) struct LiveArguments {
    /// Address of the stream: spead://HOST:PORT, vdif://HOST:PORT, dada:KEY, or a file that describes it (.toml).
    ///
    /// Several addresses are the bands or the two polarizations of one recording, in any order of the bands.
    #[arg(required = true, value_name = "ADDRESS")]
    addresses: Vec<PathBuf>,
    /// Folder for the files, which is made if it is missing.
    #[arg(short, long, value_name = "DIR", default_value = "spectra", help_heading = "Output")]
    output: PathBuf,
    /// Format of the files.
    #[arg(long, value_enum, default_value = "fil", help_heading = "Output")]
    format: Format,
    /// Begin another file after this many seconds of data, or this size (4G); 0 writes a file per observation.
    #[arg(
        long,
        value_name = "SECONDS|SIZE",
        allow_negative_numbers = true,
        value_parser = streams::Roll::parse,
        default_value_t = streams::Roll::Seconds(0.0),
        help_heading = "Output"
    )]
    roll: streams::Roll,
    /// Send the voltages to these receivers in place of files: spead://HOST:PORT, or dada:KEY with the hexadecimal key of a ring.
    ///
    /// The channels are divided among them into contiguous parts as equal as possible, in the frequency order of the voltages; each gets
    /// its part of all antennas. Streams that share a clock have spectra of the same times, whenever each process starts, so that one
    /// `live correlate` takes those of several processes. Spectra of lost samples are not sent; in a ring they are zeros. --gain is
    /// required.
    #[arg(
        long,
        value_name = "TARGET",
        value_delimiter = ',',
        conflicts_with_all = ["output", "format", "roll"],
        help_heading = "Output"
    )]
    send: Vec<Target>,
    /// Samples of each stream to read at once; 0 chooses, at most 50 ms.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0, help_heading = "Stream")]
    gulp: usize,
    #[command(flatten)]
    spectra: Spectra,
}

/// Options of the spectra.
#[derive(Args, Clone, Debug)]
struct Spectra {
    /// Bits per value.
    ///
    /// In a filterbank 32 (floats; the default) or 8 (scaled as recorded in OUT.json); in voltages 8 (the default) or
    /// 4.
    #[arg(long, value_name = "BITS", help_heading = "Output")]
    nbits: Option<usize>,
    /// Factor for all voltages before rounding [default: chosen for each channel from its power].
    ///
    /// Only for output voltages.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, help_heading = "Output")]
    gain: Option<f32>,
    #[command(flatten)]
    voltages: VoltageArguments,
    /// Dispersion constant of --coherent-dm, s MHz^2 pc^-1 cm^3.
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        default_value_t = DM_CONSTANT,
        help_heading = "Voltages"
    )]
    dm_constant: f64,
    /// I, IQUV, AABB (power of each polarization) or AABBCRCI (with their cross product) [default: I].
    #[arg(
        long,
        value_enum,
        value_name = "PRODUCTS",
        ignore_case = true,
        help_heading = "Filterbank"
    )]
    stokes: Option<Stokes>,
    /// Order channels from the lowest sky frequency up.
    ///
    /// By default they run from the highest down.
    #[arg(long, help_heading = "Filterbank")]
    ascending: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal channelize voltages.raw -o spectra.fil --channels 64 --integrate 8\n  \
    sidereal channelize voltages.raw -o pulsar.fil --channels 16 --coherent-dm 26.8 --stokes IQUV\n  \
    sidereal channelize station.vdif -o station.fil --channels 1024 --freq 1420 --nbits 8\n  \
    sidereal channelize voltages.raw -o narrow.dada --channels 16 --oversample 4/3";

/// Detected products, in pulsar observers' notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stokes {
    #[value(name = "I")]
    I,
    #[value(name = "IQUV")]
    Iquv,
    #[value(name = "AABB")]
    Aabb,
    #[value(name = "AABBCRCI")]
    Aabbcrci,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let spectra = &arguments.spectra;
    let window = spectra.voltages.window_file();
    let read: Vec<PathBuf> = arguments.inputs.iter().cloned().chain(window).collect();
    if arguments.output.as_os_str() == "-" && common.json {
        let rule = "standard output can't hold both the data and a JSON document";
        return Err(Error::parameter("--json", "given with --output -", rule));
    }
    let existing = Existing::new(arguments.overwrite);
    let files = WritingFiles { option: "--output", existing, inputs: &read, common };
    let outputs = Outputs::begin(&arguments.output, arguments.format, &files)?;
    spectra.check_form(outputs.format())?;
    let recorded = spectra.voltages.lacking.open(&arguments.inputs, arguments.allow_gaps)?;
    let options = ChannelizeOptions {
        time_range: arguments.time_range.map(|range| (range.start_s, range.end_s)),
        gulp: arguments.gulp,
        memory: common.memory,
        ..spectra.options(recorded.header())?
    };
    let backend = common.backend_for(Work::on_voltages(&arguments.inputs), Gpus::Several)?;
    let mut making =
        Making::begin(recorded, spectra.values(outputs.format()), options, &backend, common)?;
    let piped = outputs.piped();
    let ending = making.write(outputs, &read, &backend, common)?.ending;
    let place = if piped { Path::new("standard output") } else { &arguments.output };
    Ok(errors::ended(&ending, place))
}

/// Channelizes the observations of a live stream. Ends as the session says, or after a request to stop.
///
/// # Errors
/// Those of the stream and the options, and of writing before the first row of a file.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn run_live(
    arguments: &LiveArguments,
    session: &Session,
    common: &Common,
) -> Result<Exit> {
    let LiveArguments { addresses, gulp, spectra, .. } = arguments;
    arguments.check()?;
    let values = spectra.values(arguments.format());
    // A GPU takes a while to start, and a stream does not wait.
    let backend = common.backend_for(Work::on_voltages(addresses), Gpus::Several)?;
    if backend.is_gpu()
        && let Some(header) = streams::described(addresses)?
    {
        // Compile the kernels now, because that takes seconds.
        let options =
            ChannelizeOptions { gulp: *gulp, memory: common.memory, ..spectra.options(&header)? };
        let expected = Box::new(Expected { header });
        Making::begin(expected, values, options, &backend, common)?;
    }
    let (mut done, mut last) = (0, Exit::Success);
    loop {
        let recorded = match streams::joined(addresses, &spectra.voltages.lacking.options()?) {
            // The usual end of a program that waits for the next observation.
            Err(error) if error.is_stop() && done > 0 => return Ok(Exit::Interrupted),
            recorded => recorded?,
        };
        let options = ChannelizeOptions {
            gulp: *gulp,
            memory: common.memory,
            ..spectra.options(recorded.header())?
        };
        let exit = if arguments.send.is_empty() {
            let making = Making::begin(recorded, values, options, &backend, common)?;
            arguments.write(making, &backend, common)?
        } else {
            sending::send(recorded, &arguments.send, values, options, &backend, common)?
        };
        match exit {
            Exit::Success => {}
            // A receiver that failed may be there for the next observation.
            Exit::Failed if !arguments.send.is_empty() => last = exit,
            other => return Ok(other),
        }
        session.tell(|watcher| watcher.observed());
        done += 1;
        if done == session.observations {
            return Ok(last);
        }
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl LiveArguments {
    /// Returns the folder for the files.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    /// Lists the receivers of what is sent in place of files; `None` for files.
    pub(crate) fn receivers(&self) -> Option<String> {
        let receivers: Vec<String> = self.send.iter().map(Target::to_string).collect();
        (!receivers.is_empty()).then(|| receivers.join(", "))
    }

    /// Checks what needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range or not for the format.
    pub(crate) fn check(&self) -> Result<()> {
        streams::check(&self.addresses, "ADDRESS")?;
        self.spectra.check_form(self.format())?;
        if self.send.is_empty() { Ok(()) } else { sending::check(&self.send, self.spectra.gain) }
    }

    /// Returns the format of the files; what is sent is voltages.
    fn format(&self) -> Format {
        if self.send.is_empty() { self.format } else { Format::Dada }
    }

    /// Writes the files of an observation, until it ends or the run does.
    ///
    /// # Errors
    /// Those before the first row of a file, and those of its side files.
    fn write(&self, mut making: Making, backend: &Backend, common: &Common) -> Result<Exit> {
        let Self { output, format, roll, spectra, .. } = self;
        let read: Vec<PathBuf> = spectra.voltages.window_file().into_iter().collect();
        let most = roll.samples(making.tsamp_s(), making.sample_bytes()).unwrap_or(u64::MAX);
        fs::create_dir_all(output).map_err(|error| Error::io(output, error))?;
        loop {
            let name = streams::name_of(making.start());
            let path = streams::free_name(output, &name, format.suffix());
            let existing = Existing::Refuse;
            let files = WritingFiles { option: "--output", existing, inputs: &read, common };
            let outputs = Outputs::begin(&path, Some(*format), &files)?;
            making.end_after(most);
            let Wrote { times, ending } = match making.write(outputs, &read, backend, common) {
                Err(error) if error.is_stop() => return Ok(Exit::Interrupted),
                wrote => wrote?,
            };
            let exit = errors::ended(&ending, &path);
            if exit != Exit::Success || times < most {
                return Ok(exit);
            }
        }
    }
}

impl Spectra {
    fn values(&self, format: Format) -> Values {
        Values { format, nbits: self.nbits, gain: self.gain }
    }

    /// Rejects options that do not apply to the format of the output.
    fn check_form(&self, format: Format) -> Result<()> {
        if format == Format::Fil {
            return match self.gain {
                Some(gain) => {
                    let rule = "it is for voltages; a filterbank of 8 bits has gains of its own";
                    Err(Error::parameter("--gain", gain, rule))
                }
                None => Ok(()),
            };
        }
        let stokes = self.stokes.map(|_| "--stokes");
        let ascending = self.ascending.then_some("--ascending");
        match stokes.or(ascending).or(self.voltages.detection_given()) {
            None => Ok(()),
            Some(option) => {
                let rule = "it is for a filterbank, and OUT holds voltages, which are not detected";
                Err(Error::parameter(option, "given", rule))
            }
        }
    }

    fn options(&self, header: &VoltageHeader) -> Result<ChannelizeOptions> {
        check_constant(self.dm_constant)?;
        Ok(ChannelizeOptions {
            products: match self.stokes.unwrap_or(Stokes::I) {
                Stokes::I => Products::I,
                Stokes::Iquv => Products::Iquv,
                Stokes::Aabb => Products::Power,
                Stokes::Aabbcrci => Products::Aabbcrci,
            },
            ascending: self.ascending,
            ..self.voltages.options(header, self.dm_constant)?
        })
    }
}
