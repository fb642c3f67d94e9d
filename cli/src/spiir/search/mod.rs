//! `sidereal spiir search`: finds coincident events in strain.

mod document;
mod pictures;
mod products;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::{ArgGroup, Args, ValueEnum};
use num_complex::Complex;
use serde::{Deserialize, Serialize};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::templates::{self, Templates};
use sidereal::pipeline::cbc::{
    self, ChirpSearch, Input, Report, SearchOptions, Status, Strain, Whitening, harmonic_mean,
};
use sidereal::pipeline::{Ending, Ranks};
use sidereal::spiir::coincidence::{Ranking, Sample, TimedTrigger};
use sidereal::spiir::trigger::Trigger;
use sidereal::{Error, Result};

use super::inputs::{self, Banks, Whiten};
use super::templates::{self as options, Design, Placement};
use crate::common::{self, Common, Gpus, tell_notes};
use crate::interrupt::Exit;
use crate::numbers::within;
use crate::output::{Contents, Existing, Folder, JOURNAL, Writing as WritingFolder};
use crate::progress::Progress;
use crate::provenance::{Made, Product, Provenance, Run};
use crate::ranks;
use crate::report::{NAME as REPORT, add_to as add_report};
use crate::resume::{self, Identity, Resume, RunJournal};
use crate::say::note;
use crate::selection::file_name;
use crate::space::Reserve;
use crate::{errors, flags, interrupt, json};
pub(crate) use document::Document;
pub(super) use document::{EventRow, LatencyRow, event_row};
pub(super) use products::{HALF_S, detector_row, options as option_words, template_row};

/// Templates and design options, which conflict with a bank from a file.
pub(super) const DESIGN: [&str; 15] = [
    "templates",
    "f_low",
    "f_high",
    "approximant",
    "before",
    "f_stop",
    "epsilon",
    "minimum_match",
    "match_floor",
    "resampling",
    "stop_band",
    "lowest_rate",
    "single_rate",
    "smoothing",
    "autocorrelation_length",
];

/// Search strain of several detectors for compact binaries.
///
/// Whitens, filters, finds triggers, and keeps those that are coincident within the light travel time.
///
/// Writes a folder with events.json (loudest first), events.xml (LIGO_LW: sngl_inspiral, coinc tables, the SNR series
/// and spectra that BAYESTAR localizes with), snr.h5 (SNR series of the events, whitened strain), bank_H1.h5 and so
/// on if banks were made (not with minimum-phase whitening, whose phase shift they would contain), and
/// report.html with plots.
/// False-alarm rates come from time slides.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("waves").args(["templates", "bank", "masses"]).required(true))]
#[command(mut_arg("resampling", |resampling| {
    resampling.default_value_if("causal", "true", "low-latency")
}))]
#[command(after_help = "Examples:\n  \
    sidereal spiir search H-H1_STRAIN.hdf5 L-L1_STRAIN.hdf5 --templates GW150914_4_template.hdf5 -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 v1.hdf5 --templates masses.csv --f-low 30 --psd running -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 --bank H1=h1_bank.h5 --bank L1=l1_bank.h5 -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 --masses 10:60 --spins=-0.9:0.9 -o found")]
pub(crate) struct Arguments {
    #[command(flatten)]
    strain: inputs::Strain,
    /// Template file; a bank is made from it for each detector's own noise.
    #[arg(long, value_name = "FILE", help_heading = "Templates")]
    templates: Option<PathBuf>,
    /// Existing bank: FILE for all detectors, or NAME=FILE for one.
    ///
    /// Its design options cannot be changed.
    #[arg(long, value_name = "BANK", conflicts_with_all = DESIGN, help_heading = "Templates")]
    bank: Vec<PathBuf>,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    design: Design,
    #[command(flatten)]
    whitening: Whiten,
    #[command(flatten)]
    detection: Detection,
    #[command(flatten)]
    background: Slides,
    #[command(flatten)]
    writing: Writing,
}

/// Options of triggers and events.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Detection")]
pub(super) struct Detection {
    /// Lowest signal-to-noise ratio of a trigger.
    #[arg(long, value_name = "SNR", default_value_t = 4.0, allow_negative_numbers = true)]
    threshold: f64,
    /// Seconds added to the light travel time between two detectors.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.002, allow_negative_numbers = true)]
    window_pad: f64,
    /// Keep only the best of events within this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, allow_negative_numbers = true)]
    cluster: f64,
    /// Drop triggers within this many seconds of a gate.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.25,
        default_value_if("causal", "true", "0.05"),
        allow_negative_numbers = true
    )]
    gate_pad: f64,
    /// Ranking of events: reweighted (by xi-squared) or snr.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "reweighted")]
    rank: RankWord,
}

/// Options of the background and the steps.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Detection")]
struct Slides {
    /// Triggers of the background: inclusive or exclude-foreground.
    ///
    /// inclusive uses all triggers, so that signals raise the rates; exclude-foreground excludes those of clear
    /// events and their surroundings, louder events first.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "inclusive")]
    background: BackgroundWord,
    /// Number of time slides for the background; 0 disables them.
    #[arg(long, value_name = "N", default_value_t = 100)]
    slides: usize,
    /// Interval of the slides, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1, allow_negative_numbers = true)]
    slide_interval: f64,
    /// Samples per step; 0 chooses.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0)]
    gulp: usize,
}

/// Rankings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RankWord {
    /// Signal-to-noise ratio, reduced if xi-squared is above 1.
    Reweighted,
    /// Network signal-to-noise ratio.
    Snr,
}

/// Backgrounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackgroundWord {
    /// All triggers.
    Inclusive,
    /// Without the triggers of events that are clearly not false alarms.
    ExcludeForeground,
}

/// Output options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
struct Writing {
    /// Folder to write.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Replace the folder if it exists.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    resume: Resume,
    /// Write neither report.html nor other plots.
    #[arg(long)]
    no_plots: bool,
    /// Draw the plots as PNG files in place of report.html.
    #[arg(long, conflicts_with = "no_plots")]
    png: bool,
    /// With --png, draw at most this many of the loudest events; report.html has ten.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_plots: usize,
    /// List at most this many of the loudest events in events.json.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_events: usize,
    /// Write at most this many of the loudest events to events.xml.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_xml: usize,
}

/// Finished search with its output.
pub(crate) struct Done {
    pub(crate) product: Product<Document>,
    pub(crate) report: Report,
}

/// Contents of a search's folder.
pub(crate) const CONTENTS: Contents =
    Contents { verb: "spiir search", documents: &["events.json", "events.xml"], writes };

/// Returns whether a file of this name belongs to a search's folder.
pub(crate) fn writes(_: &Path, name: &str) -> bool {
    let is = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
    let is_numbered = name.chars().nth("event".len()).is_some_and(|letter| letter.is_ascii_digit());
    matches!(name, "events.json" | "events.xml" | "snr.h5" | "background.png" | REPORT)
        || is("bank_", ".h5")
        || (is_numbered && is("event", ".png"))
}

/// Runs the verb, as one of several processes if mpirun has started them.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    ranks::run(
        common,
        |common, ranks| run_first(arguments, common, ranks),
        |common, ranks| assist(arguments, common, ranks),
    )
}

/// Searches as another rank than 0, which writes nothing.
fn assist(arguments: &Arguments, common: &Common, ranks: Ranks) -> Result<()> {
    let Work { search, .. } = Work::begin(arguments, None, common, Some(ranks))?;
    search.assist(&mut |_| !interrupt::requested())
}

/// Searches as the only process, or as rank 0, and prints the document.
fn run_first(arguments: &Arguments, common: &Common, ranks: Option<Ranks>) -> Result<Exit> {
    let writing = &arguments.writing;
    let inputs = arguments.files();
    let existing = Existing::new(writing.overwrite);
    let place = WritingFolder { contents: CONTENTS, existing, inputs: &inputs, common };
    let (folder, is_resumed) = writing.resume.begin(
        &inputs,
        || Folder::resume(&writing.output, &place),
        || Folder::begin(&writing.output, &place),
        common,
    )?;
    let keep = if is_resumed { Keep::FromBefore } else { Keep::FromTheBeginning };
    let place = folder.place().to_path_buf();
    let work = Work::begin(arguments, is_resumed.then_some(&folder), common, ranks)?;
    let Done { product, report } = work.search(&folder, keep, common)?;
    let writing = &arguments.writing;
    if report.ending.is_read() && !writing.no_plots && !writing.png {
        let names: Vec<String> =
            arguments.strain.files().iter().map(|path| file_name(path)).collect();
        add_report(&folder, &names.join(", "), common);
    }
    folder.finish()?;
    // Not earlier: a run killed while files are written to disk can be resumed.
    if !matches!(report.ending, Ending::Stopped | Ending::Failed(_)) {
        resume::clear(&place)?;
    }
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        json::say(product.document.text(&place).trim_end())?;
    }
    Ok(errors::ended(&report.ending, &place))
}

/// Searches into a folder that is being filled; leaves nothing if interrupted.
///
/// # Errors
/// As [`run`]; whatever stops the search before its end.
pub(crate) fn run_into(folder: &Folder, arguments: &Arguments, common: &Common) -> Result<Done> {
    let done = Work::begin(arguments, None, common, None)?.search(folder, Keep::Nothing, common)?;
    interrupt::check()?;
    match &done.report.ending {
        Ending::Failed(error) => {
            let why = flags::text(error);
            Err(Error::Unavailable { what: "the whole search".to_owned(), why })
        }
        _ => Ok(done),
    }
}

/// Data that a search stores for `--resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Nothing: the search is part of a product that cannot be resumed.
    Nothing,
    /// Everything, for a new search.
    FromTheBeginning,
    /// Everything, for a resumed search.
    FromBefore,
}

/// One search with checked options.
struct Work<'a> {
    arguments: &'a Arguments,
    backend: Backend,
    search: ChirpSearch,
    rate_hz: u32,
    /// Number of processes that divide the templates.
    processes: usize,
}

impl<'a> Work<'a> {
    /// Checks all options; fails if `before`, where it is a folder, holds the output of another search.
    fn begin(
        arguments: &'a Arguments,
        before: Option<&Folder>,
        common: &Common,
        ranks: Option<Ranks>,
    ) -> Result<Self> {
        let options = arguments.detection.options()?;
        arguments.background.check()?;
        if !arguments.bank.is_empty() {
            arguments.whitening.check_bank()?;
        }
        let asked = common.asked_backend(Gpus::Several)?;
        let recordings = arguments.strain.open()?;
        arguments.whitening.warn_of_learning(&recordings, common);
        let (rate_hz, length_s) = recordings
            .first()
            .map_or((1, 0.0), |recording| (recording.rate_hz, recording.duration_s()));
        let whitening = arguments.whitening.whitening(rate_hz, length_s, common.memory)?;
        let inputs = arguments.inputs(recordings, &whitening, common)?;
        let chosen =
            || common.backend_for(common::Work::on_ratios(ratios_of(&inputs)), Gpus::Several);
        let backend = asked.map_or_else(chosen, Ok)?;
        let processes = ranks.as_ref().map_or(1, Ranks::count);
        if let Some(folder) = before {
            RunJournal::new(folder.file(""), arguments.identity(&backend, processes)?)
                .check(folder.place())?;
        }
        let options = arguments.background.add(options(whitening), common.memory);
        let search = match ranks {
            Some(ranks) => ChirpSearch::divided(inputs, &options, &backend, ranks)?,
            None => ChirpSearch::new(inputs, &options, &backend)?,
        };
        Ok(Self { arguments, backend, search, rate_hz, processes })
    }

    /// Runs the search and writes all output.
    fn search(mut self, folder: &Folder, keep: Keep, common: &Common) -> Result<Done> {
        let progress = Progress::new(common, Some(0), 1, 1.0 / f64::from(self.rate_hz));
        progress.doing("Searching");
        let whitening = &self.arguments.whitening;
        let provenance = Provenance::new(common, &self.arguments.files())?;
        let made = Made { provenance, run: Run::new(common).on(&self.backend) };
        let is_bank_written = self.arguments.bank.is_empty() && !whitening.turns_phases();
        let banks = self.search.banks().filter(|_| is_bank_written);
        let banks: Vec<_> = banks.map(|(name, bank)| (name.to_owned(), Arc::clone(bank))).collect();
        let origin = comment(&made, "banks of")?;
        let path = folder.file("");
        let reserve = Reserve::new(&folder.file("events.json"));
        let keeper = match keep {
            Keep::Nothing => None,
            _ => {
                let identity = self.arguments.identity(&self.backend, self.processes)?;
                Some(RunJournal::new(path.clone(), identity))
            }
        };
        let left = (keep == Keep::FromBefore).then(|| folder.place());
        let mut keeping = Keeping::begin(&mut self.search, &path, keeper, left, &progress)?;
        if keep == Keep::FromBefore {
            remove_pictures(&path)?;
        }
        let (search, is_failed) = (self.search, Arc::clone(&keeping.is_failed));
        let (report, written) = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let written = products::write_banks(folder, &banks, &origin);
                is_failed.store(written.is_err(), Ordering::Relaxed);
                written
            });
            let report = search.run_kept(&mut keeping);
            (report, writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        drop(banks);
        let mut report = match written.and(report) {
            Ok(report) => report,
            Err(error) => {
                // The run has nothing to resume.
                resume::clear(&path)?;
                return Err(error);
            }
        };
        if matches!(report.ending, Ending::Stopped) {
            interrupt::finishing();
        }
        progress.finish();
        tell_notes(&self.backend, common);
        drop(reserve);
        let place = Place { folder, arguments: self.arguments, backend: &self.backend, made };
        // The series of a long search take a while to write; an interrupted run skips them.
        let is_stopped = matches!(report.ending, Ending::Stopped);
        let (events, series) = thread::scope(|scope| {
            let series =
                scope.spawn(|| if is_stopped { Ok(()) } else { place.write_series(&report) });
            let events = place.write_events(&report);
            (events, series.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let mut product = events?;
        if let Err(error) = series {
            let series = folder.file("snr.h5");
            if series.exists() {
                std::fs::remove_file(&series).map_err(|error| Error::io(series, error))?;
            }
            report.ending = Ending::after(error);
            product = place.write_events(&report)?;
        }
        if keep == Keep::Nothing {
            resume::clear(&path)?;
        }
        Ok(Done { product, report })
    }
}

/// Removes the plots of an interrupted search: the final run may draw fewer.
fn remove_pictures(folder: &Path) -> Result<()> {
    let io = |error| Error::io(folder, error);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|end| end == "png") {
            std::fs::remove_file(&path).map_err(io)?;
        }
    }
    Ok(())
}

/// Output of a search.
struct Place<'a> {
    folder: &'a Folder,
    arguments: &'a Arguments,
    backend: &'a Backend,
    made: Made,
}

/// Returns a comment with the provenance, for products without another place for it.
fn comment(made: &Made, what: &str) -> Result<String> {
    Ok(format!("{what} sidereal spiir search\n{}", made.lines()?))
}

impl Place<'_> {
    /// Writes the tables of events.
    fn write_events(&self, report: &Report) -> Result<Product<Document>> {
        let writing = &self.arguments.writing;
        let document = Document::new(report, writing.max_events, self.backend);
        let Made { provenance, run } = &self.made;
        let run = run.clone().took(report.elapsed_s, report.elapsed_s * report.realtime_factor());
        let product = Product::new("spiir-search", document, provenance.clone(), run);
        json::write(&self.folder.file("events.json"), &product)?;
        // The host computes the series: a few templates do not justify kernels, whose failure must not end a finished
        // search.
        let (path, host) = (self.folder.file("events.xml"), self.backend.on_host());
        products::write_events_xml(&path, report, writing.max_xml, &self.made, &host)?;
        Ok(product)
    }

    /// Writes the series and draws the plots.
    fn write_series(&self, report: &Report) -> Result<()> {
        let (writing, host) = (&self.arguments.writing, self.backend.on_host());
        let comment = comment(&self.made, "series of")?;
        let path = self.folder.file("snr.h5");
        let (series, pictures) = thread::scope(|scope| {
            let series = scope.spawn(|| products::write_series(&path, report, comment, &host));
            let (most, threshold) = (writing.max_plots, self.arguments.detection.threshold);
            let pictures = match writing.png {
                true => pictures::draw(self.folder, &self.made, report, most, threshold, &host),
                false => Ok(()),
            };
            (series.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), pictures)
        });
        series.and(pictures)
    }
}

/// Returns the templates that a rank designs: every n-th of those of n ranks, so that all ranks take about as long.
///
/// # Errors
/// [`Error::Parameter`] for more ranks than templates.
fn dealt(templates: Templates, place: ranks::Place) -> Result<Templates> {
    let count = templates.len();
    if count < place.ranks {
        let rule = format!("each rank needs at least one of the {count} templates");
        return Err(Error::parameter("ranks", place.ranks, rule));
    }
    let ranks::Place { rank, ranks, .. } = place;
    Ok(match templates {
        Templates::Waveforms(all) => {
            Templates::Waveforms(all.into_iter().skip(rank).step_by(ranks).collect())
        }
        Templates::Binaries(all) => {
            Templates::Binaries(all.into_iter().skip(rank).step_by(ranks).collect())
        }
    })
}

/// Returns the number of signal-to-noise ratios in a search: one per template and sample.
fn ratios_of(inputs: &[(Strain, Input)]) -> u64 {
    let templates = |input: &Input| match input {
        Input::Templates(source) => source.waveforms.len(),
        Input::Bank(bank) => bank.templates.len(),
    };
    inputs.iter().map(|(one, input)| one.times * templates(input) as u64).sum()
}

impl Arguments {
    /// Returns every input file.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.strain.files();
        files.extend(self.templates.clone());
        files.extend(Banks::files(&self.bank));
        files.extend(self.whitening.file());
        files
    }

    /// Returns the identity that a resumed search must match: everything that its results depend on, and the number of processes,
    /// each of which saves the state of its templates.
    fn identity(&self, backend: &Backend, processes: usize) -> Result<Identity> {
        let background = Slides { gulp: 0, ..self.background.clone() };
        let options: [(&str, &dyn Debug); 9] = [
            ("processes", &processes),
            ("strain", &self.strain),
            ("--templates", &self.templates),
            ("--bank", &self.bank),
            ("placement of templates", &self.placement),
            ("design of filters", &self.design),
            ("whitening", &self.whitening),
            ("detection", &self.detection),
            ("background", &background),
        ];
        Identity::new("spiir search", &self.files(), &options, backend)
    }

    /// Returns each recording with its templates or its bank.
    fn inputs(
        &self,
        recordings: Vec<Strain>,
        whitening: &Whitening,
        common: &Common,
    ) -> Result<Vec<(Strain, Input)>> {
        let rate_hz = recordings.first().map_or(1, |recording| recording.rate_hz);
        let templates = match &self.templates {
            Some(path) => Some(templates::open(path)?),
            None if self.placement.is_asked() => {
                Some(self.place(&recordings, whitening, common)?)
            }
            None => None,
        };
        if let Some(mut templates) = templates {
            if let Some(place) = common.place {
                templates = dealt(templates, place)?;
            }
            let threads = Threads::new(common.threads()?);
            let source = self.design.source(templates, rate_hz, &threads, common.quiet)?;
            let source = Arc::new(source);
            let with = |recording| (recording, Input::Templates(Arc::clone(&source)));
            return Ok(recordings.into_iter().map(with).collect());
        }
        // The search asks for the spectra again, with their errors.
        let banks = thread::scope(|scope| {
            scope.spawn(|| whitening.spectra(&recordings));
            Banks::read(&self.bank)
        })?;
        let with = |recording: Strain| {
            let bank = banks.of(&recording.detector)?;
            Ok((recording, Input::Bank(bank)))
        };
        recordings.into_iter().map(with).collect()
    }

    /// Places templates for the harmonic mean of the recordings' spectra, which governs the network's signal-to-noise
    /// ratio.
    fn place(
        &self,
        recordings: &[Strain],
        whitening: &Whitening,
        common: &Common,
    ) -> Result<Templates> {
        let spectra = whitening.spectra(recordings).into_iter();
        let psd = harmonic_mean(&spectra.collect::<Result<Vec<_>>>()?)?;
        let rate_hz = recordings.first().map_or(1, |recording| recording.rate_hz);
        let threads = Threads::new(common.threads()?);
        let (placed, report) = self.placement.place(&psd, &self.design, rate_hz, &threads)?;
        if !common.quiet {
            note!("{}", report.text());
        }
        Ok(options::placed(&placed))
    }
}

impl Detection {
    /// Returns the search options for the given whitening, without a background.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range.
    pub(super) fn options(&self) -> Result<impl Fn(Whitening) -> SearchOptions + use<'_>> {
        within("--threshold", self.threshold, 1.0..=1e3, "standard deviations")?;
        within("--window-pad", self.window_pad, 0.0..=0.1, "seconds")?;
        within("--cluster", self.cluster, 0.0..=60.0, "seconds")?;
        within("--gate-pad", self.gate_pad, 0.0..=60.0, "seconds")?;
        Ok(move |whitening| SearchOptions {
            whitening,
            threshold: self.threshold as f32,
            window_s: 0.1,
            gate_pad_s: self.gate_pad,
            window_pad_s: self.window_pad,
            slides: 0,
            slide_interval_s: 1.0,
            cluster_s: self.cluster,
            ranking: match self.rank {
                RankWord::Reweighted => Ranking::Reweighted,
                RankWord::Snr => Ranking::Snr,
            },
            background: Sample::Inclusive,
            block: 0,
            memory: None,
        })
    }
}

impl Slides {
    fn check(&self) -> Result<()> {
        within("--slide-interval", self.slide_interval, 1e-3..=1e6, "seconds")
    }

    fn add(&self, options: SearchOptions, memory: Option<u64>) -> SearchOptions {
        SearchOptions {
            slides: self.slides,
            slide_interval_s: self.slide_interval,
            background: match self.background {
                BackgroundWord::Inclusive => Sample::Inclusive,
                BackgroundWord::ExcludeForeground => Sample::ExcludeForeground,
            },
            block: self.gulp,
            memory,
            ..options
        }
    }
}

/// Journal line of a trigger. Floats are written so that they are read back bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    detector: String,
    gps: f64,
    snr: f64,
    template: u32,
    sample: u64,
    offset: f64,
    z: [f64; 2],
    /// `None` for infinity, which JSON cannot represent.
    xi2: Option<f64>,
}

impl Line {
    fn new(detector: &str, trigger: &Trigger, timed: &TimedTrigger) -> Self {
        let Trigger { template, sample, offset, z, xi2 } = *trigger;
        Self {
            detector: detector.to_owned(),
            gps: timed.gps.s(),
            snr: timed.snr.into(),
            template,
            sample,
            offset: offset.into(),
            z: [z.re.into(), z.im.into()],
            xi2: xi2.is_finite().then_some(xi2.into()),
        }
    }

    fn trigger(&self) -> Trigger {
        let z = Complex::new(self.z[0] as f32, self.z[1] as f32);
        let Self { template, sample, .. } = *self;
        let xi2 = self.xi2.map_or(f32::INFINITY, |xi2| xi2 as f32);
        Trigger { template, sample, offset: self.offset as f32, z, xi2 }
    }
}

/// Observer that stores a search's triggers and states, shows its progress, and stops it when the user asks.
struct Keeping<'a> {
    keeper: Option<RunJournal>,
    names: Vec<String>,
    progress: &'a Progress,
    /// Set when the banks cannot be written, which makes the search useless.
    is_failed: Arc<AtomicBool>,
}

impl<'a> Keeping<'a> {
    /// Begins a search in a folder, or resumes the one whose product at `left` is stored there. Without the run journal
    /// `keeper` nothing is stored for `--resume`.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the difference from the interrupted run; [`Error::Format`] for a damaged journal
    /// or checkpoint; [`Error::Io`].
    fn begin(
        search: &mut ChirpSearch,
        folder: &Path,
        mut keeper: Option<RunJournal>,
        left: Option<&Path>,
        progress: &'a Progress,
    ) -> Result<Self> {
        let names: Vec<String> = search.banks().map(|(name, _)| name.to_owned()).collect();
        let resumed = match (&mut keeper, left) {
            (Some(keeper), Some(place)) => keeper.resume(place)?,
            _ => None,
        };
        match (&keeper, resumed) {
            (Some(keeper), Some(left)) => {
                let triggers = triggers(&names, keeper.lines()?)?;
                search.resume(folder, &mut left.saved()?, triggers)?;
            }
            _ => search.store_in(folder)?,
        }
        Ok(Self { keeper, names, progress, is_failed: Arc::default() })
    }
}

impl cbc::SearchObserver for Keeping<'_> {
    fn at(&mut self, status: &Status) -> bool {
        self.progress.total(Some(status.total));
        self.progress.at(status.times);
        !interrupt::requested() && !self.is_failed.load(Ordering::Relaxed)
    }

    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        let name = &self.names[detector];
        keeper.append(triggers.iter().map(|(trigger, timed)| Line::new(name, trigger, timed)))
    }

    fn is_due(&mut self) -> bool {
        self.keeper.as_ref().is_some_and(RunJournal::is_due)
    }

    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        self.keeper.as_mut().map_or(Ok(()), |keeper| keeper.checkpoint(&state))
    }
}

/// Collects each detector's triggers from a journal.
fn triggers(names: &[String], lines: Vec<Line>) -> Result<Vec<Vec<Trigger>>> {
    let mut all = vec![Vec::new(); names.len()];
    for (index, line) in lines.into_iter().enumerate() {
        let Some(detector) = names.iter().position(|name| *name == line.detector) else {
            let why = format!("a trigger of {}, which is not searched", line.detector);
            return Err(Error::format(JOURNAL, format!("line {}", index + 1), 0, why));
        };
        all[detector].push(line.trigger());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use sidereal::units::Gps;

    use super::*;

    #[test]
    fn triggers_come_back_from_the_journal_bit_for_bit() {
        let mut state = 1_u32;
        let mut float = || {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            f32::from_bits(state >> 2 | 0x2000_0000)
        };
        for sample in 0..2000 {
            let z = Complex::new(float(), -float());
            let trigger = Trigger { template: 3, sample, offset: -float(), z, xi2: float() };
            let timed = TimedTrigger::new(&trigger, Gps::from_s(1e9), 4096, 0.1);
            let text = serde_json::to_vec(&Line::new("H1", &trigger, &timed)).unwrap();
            let read: Line = serde_json::from_slice(&text).unwrap();
            assert_eq!(read.trigger(), trigger);
        }
    }
}
