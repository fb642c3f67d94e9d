//! `sidereal correlate`: makes visibilities from antennas' voltages.

mod arguments;
mod document;
mod inputs;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live;
mod remote;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod watched;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arguments::MissingWord;
use document::{Written, products};
use inputs::{Given, Matched, Silent};
use sidereal::backend::Backend;
use sidereal::io::uvh5;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::math::Window;
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::correlator::{
    self, ArrayCorrelator, ArrayHeader, ArrayInput, CorrelateOptions, Integration, Labels, Missing,
    PhaseCentre, Ranks, WriteReport, write_uvh5,
};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use crate::common::{Common, Gpus, Work, tell_notes};
use crate::interrupt::{self, Exit};
use crate::output::{
    Contents, Existing, Files, Folder, Writing as WritingFolder, WritingFiles, with_final_names,
};
use crate::plots::correlation::{Antenna, FRINGES, LAYOUT, POWERS, Quicklook, Shape, WATERFALLS};
use crate::plots::{self, short};
use crate::progress::Progress;
use crate::provenance::{Made, Product, Provenance, Run};
use crate::ranks;
use crate::say::{self, more, note, warning};
use crate::selection::{file_name, shown};
use crate::sky::{self, Positions};
use crate::space::{self, Reserve};
use crate::voltage_arguments::{file_of_window, points, window};
use crate::{errors, json, report};

pub(crate) use arguments::Arguments;
pub(crate) use arguments::PrecisionWord;
pub(crate) use document::Document;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use live::{LiveArguments, run_live};

/// Largest difference of equal positions, in degrees: rounding of the digits in headers.
const SAME_PLACE_DEG: f64 = 1e-6;

/// Name of a source without a name.
const TARGET: &str = "target";

/// Runs the verb, as one of several processes if mpirun has started them.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    ranks::run(
        common,
        |common, ranks| run_first(arguments, common, ranks),
        |common, ranks| assist(arguments, common, ranks),
    )
}

/// Correlates as the only process, or as rank 0, and prints the document.
fn run_first(arguments: &Arguments, common: &Common, ranks: Option<Ranks>) -> Result<Exit> {
    let (product, ending) = make_with(arguments, common, ranks, &mut |_, _| {})?;
    let document = &product.document;
    for warning in document.warnings() {
        warning!(quiet: common.quiet, "{warning}.");
    }
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        json::say(&document.text())?;
    }
    Ok(errors::ended(&ending, &arguments.writing.output))
}

/// Correlates as another rank than 0, which writes nothing.
fn assist(arguments: &Arguments, common: &Common, mut ranks: Ranks) -> Result<()> {
    let given = inputs::given(&arguments.inputs);
    let Prepared { positions, inputs, options, backend, .. } =
        Prepared::new(arguments, &given, common, Some(&mut ranks))?;
    let array = &positions.array;
    let mut correlator = ArrayCorrelator::divided(array, inputs, &options, &backend, ranks)?;
    correlator.watched_by(Box::new(|_| !interrupt::requested()));
    correlator.assist()
}

/// Recordings of the antennas, and the options that they allow.
struct Assigned {
    inputs: Vec<ArrayInput>,
    /// Name and file of each antenna.
    files: Vec<(String, String)>,
    options: CorrelateOptions,
}

impl Assigned {
    /// Assigns open recordings to antennas, and tells the user about them.
    ///
    /// # Errors
    /// Errors of options and recordings.
    fn new(
        arguments: &Arguments,
        given: &[Given],
        opened: Vec<Box<dyn VoltageSource>>,
        positions: &Positions,
        common: &Common,
    ) -> Result<Self> {
        let csv = &arguments.array.antennas;
        let (inputs, matched) = inputs::assign(given, opened, &positions.names(), csv)?;
        let files = files(given, &inputs);
        tell(matched, &files, csv, common);
        for input in &inputs {
            say::warn_of_recording(input.source.warnings(), input.source.cut(), common.quiet);
        }
        let headers: Vec<&VoltageHeader> =
            inputs.iter().map(|input| input.source.header()).collect();
        let mut options = arguments.options(positions, &headers)?;
        options.memory = common.memory;
        Ok(Self { inputs, files, options })
    }
}

/// Recordings, options and device of a correlation.
struct Prepared {
    positions: Positions,
    inputs: Vec<ArrayInput>,
    /// Name and file of each antenna.
    files: Vec<(String, String)>,
    options: CorrelateOptions,
    backend: Backend,
}

impl Prepared {
    /// Opens the recordings, with ranks those of this rank's antennas.
    ///
    /// # Errors
    /// Errors of options and recordings.
    fn new(
        arguments: &Arguments,
        given: &[Given],
        common: &Common,
        ranks: Option<&mut Ranks>,
    ) -> Result<Self> {
        let recorded: Vec<PathBuf> = given.iter().flat_map(|one| one.files.clone()).collect();
        let work = Work::on_antennas(&recorded, given.len());
        let positions = Positions::read(&arguments.array.antennas, arguments.array.location)?;
        let opened = match ranks {
            None => inputs::open(given, &arguments.lacking, arguments.allow_gaps)?,
            Some(ranks) => remote::open(arguments, given, &positions.names(), ranks)?,
        };
        let Assigned { inputs, files, options } =
            Assigned::new(arguments, given, opened, &positions, common)?;
        let backend = common.backend_for(work, Gpus::Several)?;
        Ok(Self { positions, inputs, files, options, backend })
    }
}

/// Correlates, and writes all files for the data correlated before the run ended; calls `watch` for each integration.
///
/// # Errors
/// Errors of options and recordings, and those of reading and writing before the first integration.
pub(crate) fn make(
    arguments: &Arguments,
    common: &Common,
    watch: &mut dyn FnMut(&ArrayHeader, &Integration),
) -> Result<(Product<Document>, Ending)> {
    make_with(arguments, common, None, watch)
}

/// As [`make`], as rank 0 if there are several.
fn make_with(
    arguments: &Arguments,
    common: &Common,
    mut ranks: Option<Ranks>,
    watch: &mut dyn FnMut(&ArrayHeader, &Integration),
) -> Result<(Product<Document>, Ending)> {
    let given = inputs::given(&arguments.inputs);
    let mut read: Vec<PathBuf> = given.iter().flat_map(|one| one.files.clone()).collect();
    read.push(arguments.array.antennas.clone());
    read.extend(arguments.spectra.gains.file().map(Path::to_path_buf));
    read.extend(arguments.sky.orientation.file());
    read.extend(arguments.spectra.window.as_deref().and_then(file_of_window));
    let mut outputs = Outputs::begin(&arguments.writing, &read, common)?;
    let Prepared { positions, inputs, files, options, backend } =
        Prepared::new(arguments, &given, common, ranks.as_mut())?;
    let array = &positions.array;
    let mut correlator = match ranks {
        Some(ranks) => ArrayCorrelator::divided(array, inputs, &options, &backend, ranks)?,
        None => ArrayCorrelator::new(array, inputs, &options, &backend)?,
    };
    let header = correlator.header().clone();
    let length_s = header.spectra as f64 * header.spectrum_s;
    sky::warn_of_orientation(&options.dut1, header.start, length_s, common);
    space::check(outputs.place(), need(&header), common)?;
    let mut looked = outputs.plots.is_some().then(|| Quicklook::new(shape(&header, arguments)));
    let mut silent = Silent::new(&header);
    let mut see = |integration: &Integration| {
        silent.add(integration);
        if let Some(looked) = &mut looked {
            looked.add(&integration.sums, &integration.counts);
        }
        watch(&header, integration);
    };
    let made =
        Made { provenance: Provenance::new(common, &read)?, run: Run::new(common).on(&backend) };
    let history = [correlator::history(&header, &options), made.lines()?].join("\n");
    let labels = Labels { history, ..Labels::default() };
    let total = Some(header.spectra);
    let mut report = write(&mut correlator, &outputs, &labels, total, &mut see, common)?;
    tell_notes(&backend, common);
    outputs.use_reserve();
    let plots = draw(looked, &outputs, &header, &report, &made).unwrap_or_else(|fault| {
        outputs.leave_out_plots();
        report.ending = Ending::after(fault);
        Vec::new()
    });
    let document = Document::new(Written {
        file: named(outputs.place()),
        header: &header,
        options: &options,
        report: &report,
        files: &files,
        device: backend.is_gpu().then(|| backend.name()),
        silent: silent.names(&header),
        plots,
        page: outputs.has_report.then(|| named(&outputs.files.place_beside(REPORT))),
    });
    let run = document.told(made.run);
    let product = Product::new("correlate", document, made.provenance, run);
    outputs.finish(&product, common)?;
    Ok((product, report.ending))
}

/// Returns the bytes of all visibilities with flags and counts.
fn need(header: &ArrayHeader) -> u64 {
    let rows = header.integrations.saturating_mul(header.baselines.len() as u64);
    rows.saturating_mul((header.frequencies_hz.len() * header.pairs()) as u64).saturating_mul(13)
}

/// Writes OUT, of `total` spectra if they are known, and calls `see` for each integration.
fn write(
    correlator: &mut ArrayCorrelator,
    outputs: &Outputs,
    labels: &Labels,
    total: Option<u64>,
    see: &mut dyn FnMut(&Integration),
    common: &Common,
) -> Result<WriteReport> {
    let header = correlator.header();
    let streams = header.bank.sample_rate_hz * header.spectrum_s * recorded_streams(header) as f64;
    let progress = Arc::new(Progress::new(common, total, streams as usize, header.spectrum_s));
    progress.doing("Correlating");
    let shown = Arc::clone(&progress);
    correlator.watched_by(Box::new(move |spectra| {
        shown.at(spectra);
        !interrupt::requested()
    }));
    let mut observe = |integration: &Integration, _: &Status| {
        see(integration);
        outputs.keep();
        !interrupt::requested()
    };
    let report = write_uvh5(correlator, &outputs.file(), labels, &mut observe)?;
    progress.finish();
    if report.summary.integrations == 0 {
        interrupt::check()?;
    }
    Ok(report)
}

/// Draws the plots; returns their final paths.
fn draw(
    looked: Option<Quicklook>,
    outputs: &Outputs,
    header: &ArrayHeader,
    report: &WriteReport,
    made: &Made,
) -> Result<Vec<String>> {
    let (Some(looked), Some(folder)) = (looked, &outputs.plots) else {
        return Ok(Vec::new());
    };
    let about = looked.finish(file_name(outputs.place()), target(header), report.summary.data_s);
    let names = plots::correlation::draw(&folder.file(""), &about, made)?;
    Ok(names.iter().map(|name| named(&folder.place().join(name))).collect())
}

/// Formats a path under its final name.
fn named(path: &Path) -> String {
    with_final_names(&shown(path))
}

/// Returns the number of recorded streams of an antenna.
fn recorded_streams(header: &ArrayHeader) -> usize {
    let channels = header.frequencies_hz.len() * header.average_channels;
    header.polarizations * channels / header.bank.channels.max(1)
}

/// Returns the sizes and names that the plots need.
fn shape(header: &ArrayHeader, arguments: &Arguments) -> Shape {
    let array = &header.array;
    let places = (0..array.antennas.len()).map(|index| array.enu_m(index).unwrap_or_default());
    let places: Vec<[f64; 3]> = places.collect();
    let station = |(antenna, [east_m, north_m, _]): (&sidereal::geometry::Antenna, &[f64; 3])| {
        Antenna { name: antenna.name.clone(), east_m: *east_m, north_m: *north_m }
    };
    let parallel = products(header.circular, header.polarizations);
    Shape {
        antennas: array.antennas.iter().zip(&places).map(station).collect(),
        up_m: places.iter().map(|place| place[2]).collect(),
        alive: header.present.clone(),
        baselines: header.baselines.clone(),
        listed: !matches!(arguments.writing.visibilities.baselines.as_str(), "all" | "auto"),
        frequencies_hz: header.frequencies_hz.clone(),
        products: parallel.into_iter().take(header.polarizations).map(str::to_owned).collect(),
        integrations: usize::try_from(header.integrations).unwrap_or(usize::MAX),
    }
}

/// Formats source, array and band for the plots.
fn target(header: &ArrayHeader) -> String {
    let source = match &header.phase_centre {
        PhaseCentre::Sidereal { name, .. } => name.clone(),
        PhaseCentre::Drift => "drift".to_owned(),
    };
    let mhz = |hertz: Option<&f64>| short(hertz.copied().unwrap_or(0.0) / HZ_PER_MHZ, 6);
    let frequencies = &header.frequencies_hz;
    let band = format!(
        "{} to {} MHz, {} channels, {} bit",
        mhz(frequencies.first()),
        mhz(frequencies.last()),
        frequencies.len(),
        header.bank.nbits,
    );
    [source, header.array.name.clone(), band].join(" · ")
}

/// Pairs each antenna with its file.
fn files(given: &[Given], inputs: &[ArrayInput]) -> Vec<(String, String)> {
    let pairs = given.iter().zip(inputs);
    let own = |(one, input): (&Given, &ArrayInput)| {
        let file = named(&one.files[0]);
        let names = input.antennas.clone();
        names.into_iter().map(move |name| (name, file.clone()))
    };
    pairs.flat_map(own).collect()
}

/// Reports the assignment of recordings to antennas.
fn tell(matched: Matched, files: &[(String, String)], csv: &Path, common: &Common) {
    if common.quiet {
        return;
    }
    if matched == Matched::Order {
        note!(
            "headers don't name antennas of {0}, so the recordings were taken in the order of \
             {0} (NAME=FILE says whose one is).",
            csv.display()
        );
    }
    if common.verbose {
        files.iter().for_each(|(name, file)| more!("  {name}: {file}"));
    }
}

impl Arguments {
    /// Returns the correlator's options.
    fn options(
        &self,
        positions: &Positions,
        headers: &[&VoltageHeader],
    ) -> Result<CorrelateOptions> {
        let visibilities = &self.writing.visibilities;
        let (channels, taps, channelize) = self.spectra.division()?;
        let names = positions.names();
        let Some(first) = headers.first() else {
            return Err(Error::parameter("FILE", "none", "there must be at least one recording"));
        };
        let divided = channelize.unwrap_or(first.filter.is_none());
        let window = match (&self.spectra.window, divided) {
            (Some(name), true) => window(name, taps, points(first, channels))?,
            _ => Window::default(),
        };
        let axes = arguments::Axes {
            antennas: &names,
            circular: first.circular == Some(true),
            polarizations: first.polarizations,
            channels: first.coarse_channels() * if divided { channels } else { 1 },
        };
        Ok(CorrelateOptions {
            taps,
            window,
            channelize,
            nbits: self.spectra.nbits,
            precision: self.spectra.precision.into(),
            gains: self.spectra.gains.gains(axes)?,
            integration_s: visibilities.integration,
            average_channels: visibilities.average_channels,
            baselines: arguments::parse_baselines(&visibilities.baselines, &names)?,
            phase_centre: self.phase_centre(headers)?,
            dut1: self.sky.orientation.dut1(self.sky.dut1)?,
            cable_delays_s: positions.cable_delays_s.clone(),
            time_range: self.time_range.map(|range| (range.start_s, range.end_s)),
            missing: match self.array.missing {
                MissingWord::Flag => Missing::Flag,
                MissingWord::Fail => Missing::Fail,
            },
            shortest: self.array.shortest,
            gulp: self.gulp,
            ..CorrelateOptions::new(channels)
        })
    }

    /// Returns the phase centre: as requested, or the common position of all recordings.
    fn phase_centre(&self, headers: &[&VoltageHeader]) -> Result<PhaseCentre> {
        let recorded = headers.iter().map(|header| header.source_name.trim());
        let recorded = recorded.clone().find(|name| !name.is_empty()).unwrap_or(TARGET);
        let given = self.sky.source_name.clone();
        if self.sky.drift {
            return Ok(PhaseCentre::Drift);
        }
        if let Some(place) = self.sky.phase_centre {
            // A position other than the recordings' gets another name.
            let own = |header: &&VoltageHeader| {
                let near =
                    |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() <= SAME_PLACE_DEG);
                near(header.ra_deg, place.ra_deg) && near(header.dec_deg, place.dec_deg)
            };
            let name = if headers.iter().all(own) { recorded } else { TARGET };
            let name = given.unwrap_or_else(|| name.to_owned());
            return Ok(PhaseCentre::Sidereal {
                ra_deg: place.ra_deg,
                dec_deg: place.dec_deg,
                name,
            });
        }
        let places = headers.iter().map(|header| header.ra_deg.zip(header.dec_deg));
        let mut places = places.collect::<Option<Vec<_>>>().unwrap_or_default().into_iter();
        let missing = |why: &str| {
            let rule = format!("{why}: give RA,DEC, or say --drift to follow no source");
            Error::parameter("--phase-centre", "not given", rule)
        };
        let (ra_deg, dec_deg) = places
            .next()
            .ok_or_else(|| missing("not all recordings say where the array looked"))?;
        let near = |(ra, dec): (f64, f64)| {
            (ra - ra_deg).abs() <= SAME_PLACE_DEG && (dec - dec_deg).abs() <= SAME_PLACE_DEG
        };
        if !places.all(near) {
            return Err(missing("the recordings say that antennas looked at different places"));
        }
        let name = given.unwrap_or_else(|| recorded.to_owned());
        Ok(PhaseCentre::Sidereal { ra_deg, dec_deg, name })
    }
}

/// Suffixes of the names of the document and of the report.
const DOCUMENT: &str = ".json";
const REPORT: &str = ".html";

/// Contents of the folder of plots.
const CONTENTS: Contents = Contents {
    verb: "correlate",
    documents: &[POWERS, FRINGES, WATERFALLS, LAYOUT],
    writes: |_, _| false,
};

/// Returns whether a file of this name is one of the plots.
pub(crate) fn draws(name: &str) -> bool {
    CONTENTS.documents.contains(&name)
}

/// Output files of a call.
#[derive(Debug)]
struct Outputs {
    place: PathBuf,
    files: Files,
    plots: Option<Folder>,
    has_report: bool,
    reserve: Option<Reserve>,
}

impl Outputs {
    /// Begins all files.
    ///
    /// # Errors
    /// As [`Files::begin`] and [`Folder::begin`]; [`Error::Parameter`] for a name that is none.
    fn begin(writing: &arguments::Writing, inputs: &[PathBuf], common: &Common) -> Result<Self> {
        let (place, plots) = (writing.output.as_path(), writing.plots.as_deref());
        let has_report = plots.is_none() && !writing.no_plots;
        let existing = Existing::new(writing.overwrite);
        if place.as_os_str() == "-" || place.file_name().is_none() {
            let rule = "it must name a file, such as array.uvh5";
            return Err(Error::parameter("--output", place.display(), rule));
        }
        uvh5::check_name(place)?;
        let writing = WritingFiles { option: "--output", existing, inputs, common };
        let ends: &[&str] = if has_report { &[DOCUMENT, REPORT] } else { &[DOCUMENT] };
        let files = Files::begin(place, ends, &writing)?;
        let is_taken = |plots: &Path| *plots == *place || plots == files.place_beside(DOCUMENT);
        if plots.is_some_and(is_taken) {
            let rule = "it must be another name than those of the files";
            return Err(Error::parameter("--plots", place.display(), rule));
        }
        let writing = WritingFolder { contents: CONTENTS, existing, inputs, common };
        let plots = plots.map(|plots| Folder::begin(plots, &writing)).transpose()?;
        let reserve = Reserve::new(&files.main());
        Ok(Self { place: place.to_path_buf(), files, plots, has_report, reserve })
    }

    /// Returns the path of OUT.
    fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the path that OUT is being written to.
    fn file(&self) -> PathBuf {
        self.files.main()
    }

    /// As [`Files::keep`].
    fn keep(&self) {
        self.files.keep();
    }

    /// Frees the reserved disk space for the files that describe the visibilities.
    fn use_reserve(&mut self) {
        self.reserve = None;
    }

    /// Drops the folder of plots after a write error.
    fn leave_out_plots(&mut self) {
        self.plots = None;
    }

    /// Writes the document and the report, and renames all files to their final names.
    ///
    /// # Errors
    /// As [`Files::finish_with`].
    fn finish(self, document: &Product<Document>, common: &Common) -> Result<()> {
        json::write(&self.files.beside(DOCUMENT), document)?;
        if self.has_report {
            let (title, page) = (file_name(&self.place), self.files.beside(REPORT));
            report::add(self.files.folder(), &title, &page, common);
        }
        self.files.finish_with(self.plots)
    }
}
