//! `sidereal spiir search`: from strain to coincident events.

pub(super) mod banks;
mod document;
mod keeping;
mod localize;
mod pictures;
mod ratios;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args, ValueEnum};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::templates::{self, Templates};
use sidereal::pipeline::cbc::placement::harmonic_mean;
use sidereal::pipeline::cbc::{ChirpSearch, Input, Report, SearchOptions, Strain, Whitening};
use sidereal::pipeline::ending::Ending;
use sidereal::spiir::coincidence::{Ranking, Sample};
use sidereal::{Error, Result};

use super::design::{Design, within};
use super::inputs;
use super::placement::{self, Placement};
use super::whitening::Whiten;
use crate::common::{self, Common, tell_notes};
use crate::errors::Exit;
use crate::kept::{self, Identity, Keeper, Resume};
use crate::output::{Contents, Existing, Folder, Writing as WritingFolder};
use crate::progress::Progress;
use crate::provenance::{Made, Product, Provenance, Run};
use crate::say::note;
use crate::space::Reserve;
use crate::{errors, interrupt, json};
use banks::Banks;
pub(crate) use document::Document;
use keeping::Keeping;

/// What a bank in a file has settled, and templates.
const DESIGN: [&str; 14] = [
    "templates",
    "f_low",
    "f_high",
    "approximant",
    "before",
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

/// Searches strain of several detectors for compact binaries: whitens, filters, finds triggers, and keeps those that
/// light's travel time allows.
///
/// Writes a folder with events.json (loudest first), events.xml (LIGO_LW: sngl_inspiral, coinc tables, the SNR series and
/// spectra that BAYESTAR localizes with), snr.h5 (SNR series of what was found, whitened strain), bank_H1.h5 and so on
/// where banks were made (none of minimum-phase whitening, whose turn of phases they would hold), and pictures. False-alarm rates come from time slides.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("waves").args(["templates", "bank", "masses"]).required(true))]
#[command(after_help = "Examples:\n  \
    sidereal spiir search H-H1_STRAIN.hdf5 L-L1_STRAIN.hdf5 --templates GW150914_4_template.hdf5 -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 v1.hdf5 --templates masses.csv --f-low 30 --psd running -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 --bank H1=h1_bank.h5 --bank L1=l1_bank.h5 -o found\n  \
    sidereal spiir search h1.hdf5 l1.hdf5 --masses 10:60 --spins=-0.9:0.9 -o found")]
pub(crate) struct Arguments {
    #[command(flatten)]
    strain: inputs::Strain,
    /// File of templates, of which a bank is made for each detector's own noise.
    #[arg(long, value_name = "FILE", help_heading = "Templates")]
    templates: Option<PathBuf>,
    /// A bank that was made before: FILE for all detectors, or NAME=FILE for one; how it was made is settled.
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
    writing: Writing,
}

/// What an event is.
#[derive(Args, Clone, Debug)]
struct Detection {
    /// Least signal-to-noise ratio of a trigger.
    #[arg(
        long,
        value_name = "SNR",
        default_value_t = 4.0,
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    threshold: f64,
    /// Added to light's travel time between two detectors, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.002,
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    window_pad: f64,
    /// Of events this close in time only the best is kept, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.5,
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    cluster: f64,
    /// Triggers this close to a gate are dropped, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.25,
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    gate_pad: f64,
    /// What ranks events: reweighted (by xi-squared) or snr.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "reweighted",
        help_heading = "Detection"
    )]
    rank: RankWord,
    /// Triggers that the background is made of: inclusive (all, so that signals raise the rates) or exclude-foreground (those
    /// of clear events and what is near them left out, louder events first).
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "inclusive",
        help_heading = "Detection"
    )]
    background: BackgroundWord,
    /// Time slides for the background; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Detection")]
    slides: usize,
    /// Interval of the slides, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.1,
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    slide_interval: f64,
    /// Samples taken at once; 0 chooses. Results are the same for any.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0, help_heading = "Detection")]
    gulp: usize,
}

/// The rankings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RankWord {
    /// Signal-to-noise ratios lowered where xi-squared is above 1.
    Reweighted,
    /// The network's signal-to-noise ratio.
    Snr,
}

/// The backgrounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackgroundWord {
    /// All triggers.
    Inclusive,
    /// Without the triggers of events that are clearly no false alarms.
    ExcludeForeground,
}

/// What is written.
#[derive(Args, Clone, Debug)]
struct Writing {
    /// Folder to write.
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    output: PathBuf,
    /// Replace the folder if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    #[command(flatten)]
    resume: Resume,
    /// Draw nothing.
    #[arg(long, help_heading = "Output")]
    no_plots: bool,
    /// Draw this many of the loudest events at most.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Output")]
    max_plots: usize,
    /// List this many of the loudest events at most, in events.json.
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Output")]
    max_events: usize,
    /// Write this many of the loudest events at most into events.xml.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    max_xml: usize,
}

/// A search that was done and written.
pub(crate) struct Done {
    pub(crate) product: Product<Document>,
    pub(crate) report: Report,
}

/// Contents of a search's folder.
pub(crate) const CONTENTS: Contents =
    Contents { verb: "spiir search", documents: &["events.json", "events.xml"], writes };

/// Whether a file of this name is one of them.
pub(crate) fn writes(_: &Path, name: &str) -> bool {
    let is = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
    let is_numbered = name.chars().nth("event".len()).is_some_and(|letter| letter.is_ascii_digit());
    matches!(name, "events.json" | "events.xml" | "snr.h5" | "background.png")
        || is("bank_", ".h5")
        || (is_numbered && is("event", ".png"))
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
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
    let work = Work::begin(arguments, is_resumed.then_some(&folder), common)?;
    let Done { product, report } = work.search(&folder, keep, common)?;
    folder.finish()?;
    // Not before: a run that is killed while files go to the disk can go on.
    if !matches!(report.ending, Ending::Stopped | Ending::Failed(_)) {
        kept::clear(&place)?;
    }
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        json::say(product.document.text(&place).trim_end())?;
    }
    Ok(errors::ended(&report.ending, &place))
}

/// Searches into a folder that is being filled, of which nothing is left when it is interrupted.
///
/// # Errors
/// As [`run`]; what stops the search before its end.
pub(crate) fn run_into(folder: &Folder, arguments: &Arguments, common: &Common) -> Result<Done> {
    let done = Work::begin(arguments, None, common)?.search(folder, Keep::Nothing, common)?;
    interrupt::check()?;
    match &done.report.ending {
        Ending::Failed(error) => {
            let why = error.to_string();
            Err(Error::Unavailable { what: "the whole search".to_owned(), why })
        }
        _ => Ok(done),
    }
}

/// What is kept for a run that goes on where this one is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// The search is part of something that can't go on.
    Nothing,
    /// All, of a search that begins.
    FromTheBeginning,
    /// All, of a search that goes on itself.
    FromBefore,
}

/// One search, all options checked.
struct Work<'a> {
    arguments: &'a Arguments,
    backend: Backend,
    search: ChirpSearch,
    rate_hz: u32,
}

impl<'a> Work<'a> {
    /// Fails unless `before`, where it is a folder, was left by the same search.
    fn begin(arguments: &'a Arguments, before: Option<&Folder>, common: &Common) -> Result<Self> {
        let options = arguments.detection.options(common.memory)?;
        if !arguments.bank.is_empty() {
            arguments.whitening.check_bank()?;
        }
        let asked = common.asked_backend()?;
        let recordings = arguments.strain.open()?;
        arguments.whitening.warn_of_learning(&recordings, common);
        let (rate_hz, length_s) = recordings
            .first()
            .map_or((1, 0.0), |recording| (recording.rate_hz, recording.duration_s()));
        let whitening = arguments.whitening.whitening(rate_hz, length_s, common.memory)?;
        let inputs = arguments.inputs(recordings, &whitening, common)?;
        let chosen = || common.backend_for(common::Work::on_ratios(ratios_of(&inputs)));
        let backend = asked.map_or_else(chosen, Ok)?;
        if let Some(folder) = before {
            Keeper::new(folder.file(""), arguments.identity(&backend)?).check(folder.place())?;
        }
        let search = ChirpSearch::new(inputs, &options(whitening), &backend)?;
        Ok(Self { arguments, backend, search, rate_hz })
    }

    /// Searches, and writes everything.
    fn search(mut self, folder: &Folder, keep: Keep, common: &Common) -> Result<Done> {
        let progress = Progress::new(common, Some(0), 1, 1.0 / f64::from(self.rate_hz));
        progress.doing("Searching");
        let whitening = &self.arguments.whitening;
        let provenance = Provenance::new(common, &self.arguments.files())?;
        let made = Made { provenance, run: Run::new(common).on(&self.backend) };
        if self.arguments.bank.is_empty() && !whitening.turns_phases() {
            ratios::write_banks(folder, self.search.banks(), &comment(&made, "banks of")?)?;
        }
        let path = folder.file("");
        let reserve = Reserve::new(&folder.file("events.json"));
        let keeper = match keep {
            Keep::Nothing => None,
            _ => Some(Keeper::new(path.clone(), self.arguments.identity(&self.backend)?)),
        };
        let kept = (keeper, (keep == Keep::FromBefore).then(|| folder.place()));
        let mut keeping = Keeping::begin(&mut self.search, &path, kept, &progress)?;
        if keep == Keep::FromBefore {
            remove_pictures(&path)?;
        }
        let mut report = match self.search.run_kept(&mut keeping) {
            Ok(report) => report,
            Err(error) => {
                // There is nothing to go on with.
                kept::clear(&path)?;
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
        let mut product = place.write_events(&report)?;
        // The series of a long search take a while, for which one who stops it does not wait.
        if !matches!(report.ending, Ending::Stopped)
            && let Err(error) = place.write_series(&report)
        {
            let series = folder.file("snr.h5");
            if series.exists() {
                std::fs::remove_file(&series).map_err(|error| Error::io(series, error))?;
            }
            report.ending = Ending::after(error);
            product = place.write_events(&report)?;
        }
        if keep == Keep::Nothing {
            kept::clear(&path)?;
        }
        Ok(Done { product, report })
    }
}

/// Removes the pictures of a search that was interrupted: there may be fewer in the end.
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

/// Where a search is written.
struct Place<'a> {
    folder: &'a Folder,
    arguments: &'a Arguments,
    backend: &'a Backend,
    made: Made,
}

/// A comment for products that have no other place for their provenance.
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
        // A few templates are not worth kernels of their own, nor is a finished search to fail for them.
        let (path, host) = (self.folder.file("events.xml"), self.backend.on_host());
        localize::write(&path, report, (writing.max_xml, &self.made), &host)?;
        Ok(product)
    }

    /// Writes the series, and draws the pictures.
    fn write_series(&self, report: &Report) -> Result<()> {
        let (writing, host) = (&self.arguments.writing, self.backend.on_host());
        ratios::write(
            &self.folder.file("snr.h5"),
            report,
            comment(&self.made, "series of")?,
            &host,
        )?;
        if writing.no_plots {
            return Ok(());
        }
        let threshold = self.arguments.detection.threshold;
        let folder = (self.folder, &self.made);
        pictures::draw(folder, report, (writing.max_plots, threshold), &host)
    }
}

/// Signal-to-noise ratios that a search makes: one for each template and sample.
fn ratios_of(inputs: &[(Strain, Input)]) -> u64 {
    let templates = |input: &Input| match input {
        Input::Templates(source) => source.waveforms.len(),
        Input::Shared(source) => source.waveforms.len(),
        Input::Bank(bank) => bank.templates.len(),
    };
    inputs.iter().map(|(one, input)| one.times * templates(input) as u64).sum()
}

impl Arguments {
    /// Every file that is read.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.strain.files();
        files.extend(self.templates.clone());
        files.extend(Banks::files(&self.bank));
        files.extend(self.whitening.file());
        files
    }

    /// What the search is, for one that goes on where it is interrupted: all that results depend on.
    fn identity(&self, backend: &Backend) -> Result<Identity> {
        let detection = Detection { gulp: 0, ..self.detection.clone() };
        let options: [(&str, &dyn Debug); 7] = [
            ("strain", &self.strain),
            ("--templates", &self.templates),
            ("--bank", &self.bank),
            ("placement of templates", &self.placement),
            ("design of filters", &self.design),
            ("whitening", &self.whitening),
            ("detection", &detection),
        ];
        Identity::new("spiir search", &self.files(), &options, backend)
    }

    /// Each recording with its templates or its bank.
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
        if let Some(templates) = templates {
            let source = Arc::new(self.design.source(templates, rate_hz, common.quiet)?);
            let with = |recording| (recording, Input::Shared(Arc::clone(&source)));
            return Ok(recordings.into_iter().map(with).collect());
        }
        let mut banks = Banks::read(&self.bank)?;
        let with = |recording: Strain| {
            let bank = banks.take(&recording.detector)?;
            Ok((recording, Input::Bank(Box::new(bank))))
        };
        recordings.into_iter().map(with).collect()
    }

    /// Places templates for the harmonic mean of the recordings' spectra: that of the network's signal-to-noise ratio.
    fn place(
        &self,
        recordings: &[Strain],
        whitening: &Whitening,
        common: &Common,
    ) -> Result<Templates> {
        let spectra = recordings.iter().map(|recording| whitening.spectrum(recording));
        let psd = harmonic_mean(&spectra.collect::<Result<Vec<_>>>()?)?;
        let rate_hz = recordings.first().map_or(1, |recording| recording.rate_hz);
        let threads = Threads::new(common.threads()?);
        let band_hz = self.design.band_hz(rate_hz);
        let (placed, report) = self.placement.place(&psd, band_hz, &threads)?;
        if !common.quiet {
            note!("{}", report.text());
        }
        Ok(placement::templates(&placed))
    }
}

impl Detection {
    /// What is asked of a search, given how it whitens.
    fn options(
        &self,
        memory: Option<u64>,
    ) -> Result<impl Fn(Whitening) -> SearchOptions + use<'_>> {
        within("--threshold", self.threshold, (1.0, 1e3), "standard deviations")?;
        within("--window-pad", self.window_pad, (0.0, 0.1), "seconds")?;
        within("--cluster", self.cluster, (0.0, 60.0), "seconds")?;
        within("--gate-pad", self.gate_pad, (0.0, 60.0), "seconds")?;
        within("--slide-interval", self.slide_interval, (1e-3, 1e6), "seconds")?;
        Ok(move |whitening| SearchOptions {
            whitening,
            threshold: self.threshold as f32,
            window_s: 0.1,
            gate_pad_s: self.gate_pad,
            window_pad_s: self.window_pad,
            slides: self.slides,
            slide_interval_s: self.slide_interval,
            cluster_s: self.cluster,
            ranking: match self.rank {
                RankWord::Reweighted => Ranking::Reweighted,
                RankWord::Snr => Ranking::Snr,
            },
            background: match self.background {
                BackgroundWord::Inclusive => Sample::Inclusive,
                BackgroundWord::ExcludeForeground => Sample::ExcludeForeground,
            },
            block: self.gulp,
            memory,
        })
    }
}
