//! Options that select parts of a recording: inputs, polarization, channels, times.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::presto::Mask;
use sidereal::io::voltages::VoltageSource;
use sidereal::io::{
    Beam, ChannelForm, FilterbankHeader, FilterbankSource, OpenOptions, Polarizations, is_stream,
    read_channels, voltages,
};
use sidereal::pipeline::Summed;
use sidereal::pipeline::burst::{self, SearchOptions};
use sidereal::pipeline::voltage::VoltageFilterbank;
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::dm_arguments::DmArguments;
use crate::rfi::Rfi;
use crate::say::{self, warning};
use crate::streams::Arriving;
use crate::voltage_arguments::VoltageArguments;
use crate::{geometry, numbers, streams};

/// Default, least and greatest length of the mitigation's blocks in seconds.
const BLOCK_S: f64 = 0.5;
const BLOCKS_S: std::ops::RangeInclusive<f64> = 0.01..=10.0;

/// Recording input options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Recording {
    /// SIGPROC filterbank (.fil), PSRFITS search mode, FBH5 (.h5), or voltages.
    ///
    /// Voltages (GUPPI raw, PSRDADA, VDIF, Mark 5B) need --channels. The format is recognized by content. Several
    /// files are parts of one observation, in any order; `-` is standard input. A pipe or a FIFO must
    /// contain a SIGPROC filterbank; other formats need a seekable file. Files and pipes may be compressed by gzip or Zstandard.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Use only one polarization (IF), counted from 0; by default the total intensity.
    #[arg(long, value_name = "N", help_heading = "Recording")]
    pub(crate) pol: Option<usize>,
    /// Fill gaps between and inside files with each channel's running median.
    ///
    /// By default a gap is an error. In voltages, only a gap longer than both one minute and ten times the data
    /// before it needs this option, because one damaged timestamp makes such a gap.
    #[arg(long, help_heading = "Recording")]
    pub(crate) allow_gaps: bool,
    /// Sum the INPUTs incoherently: recordings of beams or antennas of one time and band, instead of parts of one observation.
    ///
    /// Each has the same noise in the sum, in each channel. Recordings that begin at different times are aligned to the nearest
    /// sample, from the latest start to the earliest end.
    #[arg(long, help_heading = "Recording")]
    sum: bool,
    #[command(flatten)]
    voltages: VoltageArguments,
}

/// Beam of a receiver.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BeamDocument {
    /// Number of the beam in the header.
    pub(crate) number: u32,
    /// Number of beams, if known.
    of: Option<u32>,
}

impl From<Beam> for BeamDocument {
    fn from(Beam { number, of }: Beam) -> Self {
        Self { number, of }
    }
}

impl BeamDocument {
    /// Formats the beam: `3 of 13`.
    pub(crate) fn text(self) -> String {
        let of = self.of.map_or_else(String::new, |of| format!(" of {of}"));
        format!("{}{of}", self.number)
    }
}

/// Observation that a product was made from, according to its recording.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Observation {
    /// Name of the telescope; empty if unknown.
    telescope: String,
    /// Name of the source; empty if unknown.
    source: String,
    /// Position in ICRS.
    pub(crate) ra_deg: Option<f64>,
    pub(crate) dec_deg: Option<f64>,
    /// Beam of the receiver; absent if it is unknown or the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beam: Option<BeamDocument>,
    /// Start of the first sample, UTC.
    pub(crate) tstart_mjd: Option<f64>,
    pub(crate) tsamp_s: f64,
    pub(crate) channels: usize,
    /// Centre of the first channel, as recorded.
    pub(crate) fch1_mhz: f64,
    pub(crate) foff_mhz: f64,
    /// Reference frequency of times: the highest channel's centre.
    reference_mhz: f64,
    /// Dispersion constant: a pulse of DM at f MHz is later by `dm_constant_s DM (f^-2 - reference_mhz^-2)`; in s
    /// MHz^2 pc^-1 cm^3.
    pub(crate) dm_constant_s: f64,
}

impl Observation {
    pub(crate) fn new(header: &FilterbankHeader, dm_constant: f64) -> Self {
        let band = &header.band;
        Self {
            telescope: header.telescope.clone(),
            source: header.source_name.clone(),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            beam: header.beam.map(BeamDocument::from),
            tstart_mjd: (header.tstart_mjd > 0.0).then_some(header.tstart_mjd),
            tsamp_s: header.tsamp_s,
            channels: header.channels(),
            fch1_mhz: band.fch1_mhz(),
            foff_mhz: band.foff_mhz(),
            reference_mhz: band.highest_hz() / HZ_PER_MHZ,
            dm_constant_s: dm_constant,
        }
    }
}

/// Source of a recording's rows.
pub(crate) enum Source {
    /// Filterbank rows.
    Rows(Box<dyn FilterbankSource>),
    /// Recorded voltages.
    Voltages(Box<VoltageFilterbank>),
}

impl Source {
    pub(crate) fn header(&self) -> &FilterbankHeader {
        self.rows().header()
    }

    pub(crate) fn rows(&self) -> &dyn FilterbankSource {
        match self {
            Self::Rows(rows) => rows.as_ref(),
            Self::Voltages(filterbank) => filterbank.as_ref(),
        }
    }

    /// Returns the source for a search, which may read voltages.
    pub(crate) fn for_search(&mut self) -> burst::Source<'_> {
        match self {
            Self::Rows(rows) => burst::Source::Rows(rows.as_mut()),
            Self::Voltages(filterbank) => burst::Source::Voltages(filterbank),
        }
    }

    pub(crate) fn rows_mut(&mut self) -> &mut dyn FilterbankSource {
        self.for_search().into_rows()
    }

    pub(crate) fn into_rows(self) -> Box<dyn FilterbankSource> {
        match self {
            Self::Rows(rows) => rows,
            Self::Voltages(filterbank) => filterbank,
        }
    }
}

/// Recording, open at its first spectrum.
pub(crate) struct Opened {
    pub(crate) source: Source,
    /// Filter bank that makes the spectra from voltages.
    pub(crate) geometry: Option<geometry::Document>,
}

impl Opened {
    /// Returns the seconds from the recording's first sample to the first spectrum's start: the filter's delay.
    pub(crate) fn delay_s(&self) -> f64 {
        self.geometry.as_ref().map_or(0.0, geometry::Document::delay_s)
    }

    /// Returns the DM that was removed coherently within channels of voltages.
    fn coherent_dm(&self) -> Option<f64> {
        self.geometry.as_ref().and_then(geometry::Document::coherent_dm)
    }
}

/// Options of masking and cleaning.
#[derive(Args, Clone, Debug)]
pub(crate) struct Cleaning {
    /// Channels to mask, counted from 0 as recorded, ends included: 10:20,300; or a file that lists them.
    ///
    /// The file may have such numbers and ranges, in lines or with commas (.bad_chans of `your`), Heimdall's
    /// options (-zap_chans 10 20), or one 0 or 1 for each channel, where 0 masks (kill masks of dedisp and peasoup). Where the
    /// form is not clear, name it before the file: numbers:FILE, presto:FILE (counted from the lowest frequency),
    /// keep:FILE (0 masks), kill:FILE (1 masks).
    #[arg(long, value_name = "A:B,C|FILE", value_parser = parse_channels, help_heading = "Channels and times")]
    pub(crate) zap_chans: Option<Channels>,
    /// PRESTO rfifind mask whose channels and intervals to mask.
    #[arg(long, value_name = "FILE", help_heading = "Channels and times")]
    pub(crate) rfi_mask: Option<PathBuf>,
    /// Subtract each spectrum's mean to remove undispersed broadband interference.
    #[arg(long, help_heading = "Channels and times")]
    pub(crate) zero_dm: bool,
    /// RFI mitigation: auto, none, or steps [default: auto in search, none in dedisperse].
    ///
    /// auto applies all of the following steps where the data show interference; otherwise name some of: iqrm (mask
    /// channels that are outliers, while they are), bandpass (subtract the part of each spectrum that follows the
    /// bandpass), time (replace dropouts, track steps of the gain).
    #[arg(long, value_name = "STEPS", value_parser = Rfi::parse, help_heading = "Channels and times")]
    pub(crate) rfi: Option<Rfi>,
    /// Length of the blocks in which --rfi looks for interference, in seconds [default: 0.5].
    ///
    /// A spectrum is searched once the block after its own is known, so that short blocks let candidates of a live stream appear
    /// sooner; they miss more of what is narrow. Blocks have a power of two of spectra, 512 to 16384.
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Channels and times"
    )]
    pub(crate) rfi_block: Option<f64>,
    /// Mask a channel in which more than this fraction is not finite (NaN, infinities).
    ///
    /// Other samples that are not finite are replaced by their channel's level.
    #[arg(
        long,
        value_name = "PART",
        default_value_t = 0.5,
        allow_negative_numbers = true,
        help_heading = "Channels and times"
    )]
    pub(crate) max_flagged: f64,
}

/// Options of channels and times.
#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    #[command(flatten)]
    pub(crate) cleaning: Cleaning,
    /// Use only these seconds of the recording; either end may be omitted: 10:20, 10:, :20.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true, help_heading = "Channels and times")]
    pub(crate) time_range: Option<TimeRange>,
    /// Spectra to read at once; 0 chooses a number that suits the memory.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "TIMES", default_value_t = 0, help_heading = "Channels and times")]
    pub(crate) gulp: usize,
}

/// Channels to mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// Ranges, both ends included.
    Ranges(Vec<(usize, usize)>),
    /// File, and its form if it was named.
    File(PathBuf, Option<ChannelForm>),
}

/// Seconds from the recording's start; infinite if the end was omitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeRange {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
}

impl Recording {
    /// Opens the recording at its first sample; voltages are channelized as they are read.
    ///
    /// # Errors
    /// Those of opening; [`Error::Parameter`] for options that do not fit the kind of recording.
    pub(crate) fn open(&self, dm_constant: f64, backend: &Backend) -> Result<Opened> {
        self.open_through(dm_constant, backend, &mut Ok)
    }

    /// Opens the recording as [`Recording::open`] does; the voltages of a live stream pass through `wrap`.
    ///
    /// # Errors
    /// Those of opening and of `wrap`.
    pub(crate) fn open_through(
        &self,
        dm_constant: f64,
        backend: &Backend,
        wrap: &mut dyn FnMut(Box<dyn VoltageSource>) -> Result<Box<dyn VoltageSource>>,
    ) -> Result<Opened> {
        if self.sum {
            return self.open_sum();
        }
        let first = &self.inputs[0];
        match streams::arriving(&self.inputs, &self.voltages.lacking.options()?)? {
            Some(Arriving::Spectra(source)) => {
                self.voltages.check_none(first)?;
                return Ok(Opened { source: Source::Rows(source), geometry: None });
            }
            Some(Arriving::Voltages(recorded)) => {
                return self.channelized(wrap(recorded)?, dm_constant, backend);
            }
            None => {}
        }
        if self.is_pipe() && self.voltages.given().is_some() {
            // The options ask for voltages, so the error explains why a pipe cannot contain them.
            self.voltages.lacking.open(&self.inputs, self.allow_gaps)?;
        }
        if self.is_pipe() || !voltages::is_voltages(first)? {
            let source = open(&self.inputs, self.pol, self.allow_gaps);
            if let (Err(_), Some(_)) = (&source, self.voltages.given()) {
                // The options ask for voltages, so the error explains why the file has none.
                self.voltages.lacking.open(&self.inputs, self.allow_gaps)?;
            }
            let source = source?;
            self.voltages.check_none(first)?;
            return Ok(Opened { source: Source::Rows(source), geometry: None });
        }
        let recorded = self.voltages.lacking.open(&self.inputs, self.allow_gaps)?;
        self.channelized(recorded, dm_constant, backend)
    }

    /// Opens the recordings that are summed, in the order of their names.
    fn open_sum(&self) -> Result<Opened> {
        check_files("--sum", &self.inputs)?;
        self.voltages.check_none(&self.inputs[0])?;
        let mut paths = self.inputs.clone();
        paths.sort();
        let mut sources = Vec::with_capacity(paths.len());
        for path in paths {
            if voltages::is_voltages(&path)? {
                let rule =
                    "it has voltages; `channelize --format fil` makes spectra, which can be summed";
                return Err(Error::parameter("an input of --sum", path.display(), rule));
            }
            sources.push(open(&[path], self.pol, self.allow_gaps)?);
        }
        Ok(Opened { source: Source::Rows(Box::new(Summed::new(sources)?)), geometry: None })
    }

    /// Binds voltages to the filter bank that makes their spectra.
    ///
    /// # Errors
    /// [`Error::Parameter`] for options that do not fit them; those of the filter bank.
    pub(crate) fn channelized(
        &self,
        recorded: Box<dyn VoltageSource>,
        dm_constant: f64,
        backend: &Backend,
    ) -> Result<Opened> {
        if let Some(pol) = self.pol {
            let rule = "voltages are always searched in total intensity";
            return Err(Error::parameter("--pol", pol, rule));
        }
        let options = self.voltages.options(recorded.header(), dm_constant)?;
        let source = VoltageFilterbank::new(recorded, &options, backend)?;
        let geometry = Some(geometry::Document::new(source.geometry()));
        Ok(Opened { source: Source::Voltages(Box::new(source)), geometry })
    }

    /// Prints the recording's warnings, and warns if four products are summed as if they were polarizations.
    pub(crate) fn warn(&self, source: &dyn FilterbankSource, common: &Common) {
        say::warn_of_recording(source.warnings(), source.cut(), common.quiet);
        let header = source.header();
        if self.pol.is_none()
            && header.format.contains("SIGPROC")
            && header.recorded_polarizations == 4
        {
            warning!(quiet: common.quiet,
                "the recording has 4 IFs and does not say what they are; the first \
                 two are summed. If they are Stokes I, Q, U and V, take I alone: --pol 0."
            );
        }
    }

    /// Returns the recording of one input alone.
    pub(crate) fn of_one(&self, input: &Path) -> Self {
        Self { inputs: vec![input.to_path_buf()], ..self.clone() }
    }

    /// Returns the recording of one antenna alone.
    pub(crate) fn of_antenna(&self, antenna: usize) -> Self {
        Self { voltages: self.voltages.of_antenna(antenna), ..self.clone() }
    }

    /// Returns the number of antennas of voltages; 1 if --antenna names one, and for spectra.
    ///
    /// # Errors
    /// Those of opening.
    pub(crate) fn antennas(&self) -> Result<usize> {
        if self.voltages.has_antenna() || !voltages::is_voltages(&self.inputs[0])? {
            return Ok(1);
        }
        let recorded = self.voltages.lacking.open(&self.inputs, self.allow_gaps)?;
        Ok(recorded.header().antennas)
    }

    /// Returns every input file.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.inputs.iter().cloned().chain(self.voltages.window_file()).collect()
    }

    /// Describes the recording's options: everything besides its files that its rows depend on.
    pub(crate) fn told(&self) -> String {
        let Self { pol, allow_gaps, sum, voltages, .. } = self;
        format!("polarization {pol:?}, gaps {allow_gaps}, sum {sum}, {voltages:?}")
    }

    /// Returns whether it comes through a pipe or a FIFO and so cannot be read twice.
    pub(crate) fn is_pipe(&self) -> bool {
        self.inputs.iter().any(|path| is_stream(path))
    }

    fn is_stdin(&self) -> bool {
        self.inputs.iter().any(|path| path.as_os_str() == "-")
    }

    /// Returns the name of the first file without its folder.
    pub(crate) fn name(&self) -> String {
        if self.is_stdin() {
            return "standard input".to_owned();
        }
        file_name(&self.inputs[0])
    }

    /// Returns the first input's name without folder and extension.
    pub(crate) fn stem(&self) -> String {
        // A process substitution has a number for a name (/dev/fd/63).
        let unnamed = self.is_stdin() || self.inputs[0].starts_with("/dev");
        if unnamed { "stdin".to_owned() } else { stem_of(&self.inputs[0]) }
    }
}

/// Returns whether a file's name is that of a compressed one.
pub(crate) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "gz" || end == "zst")
}

/// Returns the name of a file without folder and extension, and without that of compression.
pub(crate) fn stem_of(path: &Path) -> String {
    let name = Path::new(path.file_name().unwrap_or_default());
    let name = if is_packed(name) { name.with_extension("") } else { name.to_path_buf() };
    name.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Checks that the inputs of `option` are two or more files, each given once.
///
/// # Errors
/// [`Error::Parameter`].
pub(crate) fn check_files(option: &'static str, inputs: &[PathBuf]) -> Result<()> {
    if inputs.iter().any(|path| is_stream(path)) {
        return Err(Error::parameter(option, "given", "it is for files, not for streams"));
    }
    if inputs.len() < 2 {
        let rule = "it takes two or more";
        return Err(Error::parameter("INPUT", format!("one file with {option}"), rule));
    }
    let mut seen = HashSet::new();
    let is_again = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| !seen.insert(path));
    match inputs.iter().find(is_again) {
        Some(path) => {
            let rule = format!("{option} takes each file once");
            Err(Error::parameter("INPUT", format!("{} twice", path.display()), rule))
        }
        None => Ok(()),
    }
}

/// Formats a path for messages.
pub(crate) fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// Returns the last component of a path.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Opens files as one observation.
pub(crate) fn open(
    paths: &[PathBuf],
    pol: Option<usize>,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let polarizations = pol.map_or(Polarizations::Total, Polarizations::One);
    streams::open(paths, &OpenOptions { polarizations, allow_gaps })
}

impl Cleaning {
    /// Returns the files that the cleaning reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let list = match &self.zap_chans {
            Some(Channels::File(path, _)) => Some(path),
            _ => None,
        };
        self.rfi_mask.iter().chain(list)
    }

    /// Returns the steps of mitigation, and whether outlying channels are masked; `no_auto_mask` keeps them.
    pub(crate) fn rfi(&self, default: Rfi, no_auto_mask: bool) -> (Rfi, bool) {
        let rfi = self.rfi.unwrap_or(default);
        match (no_auto_mask, rfi) {
            (true, Rfi::Auto) => (rfi.without_masks(), false),
            (no_mask, _) => (rfi, rfi.has_mask() && !no_mask),
        }
    }

    /// Returns the length of the mitigation's blocks in seconds.
    fn block_s(&self) -> Result<f64> {
        let seconds = self.rfi_block.unwrap_or(BLOCK_S);
        if !(BLOCKS_S.contains(&seconds)) {
            let rule = format!("it must be {} to {}", BLOCKS_S.start(), BLOCKS_S.end());
            return Err(Error::parameter("--rfi-block", seconds, rule));
        }
        Ok(seconds)
    }

    /// Returns search options with this cleaning and default detection options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or the error of reading a mask.
    pub(crate) fn options(
        &self,
        header: &FilterbankHeader,
        plan: DmPlan,
        rfi: Rfi,
        auto_mask: bool,
    ) -> Result<SearchOptions> {
        Ok(SearchOptions {
            zero_dm: self.zero_dm,
            zapped: zapped(self.zap_chans.as_ref(), header)?,
            auto_mask,
            mitigation: rfi.steps(),
            mitigation_block_s: self.block_s()?,
            max_flagged: self.max_flagged,
            mask: self.rfi_mask.as_deref().map(Mask::read).transpose()?,
            ..SearchOptions::new(plan)
        })
    }
}

impl Selection {
    /// Returns every input file except the recording.
    pub(crate) fn files(&self, trials: &DmArguments) -> Vec<PathBuf> {
        self.cleaning.files().chain(&trials.plan).cloned().collect()
    }

    /// Returns the options of a search or a dedispersion, with default detection options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or the error of reading a plan or a mask.
    pub(crate) fn options(
        &self,
        opened: &Opened,
        trials: &DmArguments,
        rfi: Rfi,
        auto_mask: bool,
    ) -> Result<SearchOptions> {
        let header = opened.source.header();
        let plan = trials.plan(&header.band, header.tsamp_s, None, opened.coherent_dm())?;
        Ok(SearchOptions {
            dm_constant: trials.dm_constant,
            gulp: self.gulp,
            time_range: self.time_range(opened)?,
            ..self.cleaning.options(header, plan, rfi, auto_mask)?
        })
    }

    /// Returns the requested seconds, counted from the first spectrum's start.
    fn time_range(&self, opened: &Opened) -> Result<Option<(f64, f64)>> {
        let Some(TimeRange { start_s, end_s }) = self.time_range else { return Ok(None) };
        let (header, delay_s) = (opened.source.header(), opened.delay_s());
        let length_s = header.duration_s().map(|length_s| length_s + delay_s);
        if let Some(length_s) = length_s.filter(|length_s| *length_s <= start_s) {
            let rule = format!("the recording ends at {length_s} s");
            return Err(Error::parameter("start of --time-range", start_s, rule));
        }
        if end_s <= delay_s {
            let rule = format!("the filter bank's first spectrum starts at {delay_s} s");
            return Err(Error::parameter("end of --time-range", end_s, rule));
        }
        Ok(Some(((start_s - delay_s).max(0.0), end_s - delay_s)))
    }
}

/// Returns the channels of `--zap-chans`.
pub(crate) fn zapped(
    zap_chans: Option<&Channels>,
    header: &FilterbankHeader,
) -> Result<Vec<usize>> {
    let channels = header.channels();
    let mut zapped = match zap_chans {
        None => return Ok(Vec::new()),
        Some(Channels::File(path, form)) => read_channels(path, *form, &header.band)?,
        Some(Channels::Ranges(ranges)) => {
            if let Some((_, last)) = ranges.iter().find(|(_, last)| *last >= channels) {
                let rule = format!("the recording has channels 0 to {}", channels - 1);
                return Err(Error::parameter("--zap-chans", last, rule));
            }
            ranges.iter().flat_map(|(a, b)| *a..=*b).collect()
        }
    };
    zapped.sort_unstable();
    zapped.dedup();
    if zapped.len() == channels {
        return Err(Error::parameter("--zap-chans", "all channels", "one must be left"));
    }
    Ok(zapped)
}

/// Warns of samples that were not finite.
pub(crate) fn warn_of_flagged(samples: u64, quiet: bool) {
    if samples > 0 {
        warning!(quiet: quiet,
            "{samples} samples are not finite or above 1.8e19 in size; they were filled with the level of their channel."
        );
    }
}

/// Parses channels, or the name of a file that lists them.
pub(crate) fn parse_channels(words: &str) -> std::result::Result<Channels, String> {
    let why = match parse_ranges(words) {
        Ok(ranges) => return Ok(Channels::Ranges(ranges)),
        Err(why) => why,
    };
    if let Some((name, path)) = words.split_once(':')
        && let Some(form) = ChannelForm::ALL.into_iter().find(|form| form.name() == name)
    {
        if path.is_empty() {
            return Err(format!("a file must follow the form: {name}:FILE"));
        }
        return Ok(Channels::File(path.into(), Some(form)));
    }
    let path = PathBuf::from(words);
    if path.exists() {
        return Ok(Channels::File(path, None));
    }
    Err(format!(
        "{why}; there is no file of this name, which may follow numbers:, presto:, keep: or kill:"
    ))
}

fn parse_ranges(words: &str) -> std::result::Result<Vec<(usize, usize)>, String> {
    let number = |word: &str| word.trim().parse::<usize>().map_err(|_| bad_channels(word));
    let range = |word: &str| match word.split_once(':') {
        None => number(word).map(|channel| (channel, channel)),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            let rising = first <= last;
            rising.then_some((first, last)).ok_or_else(|| format!("{word} runs backwards"))
        }
    };
    words.split(',').map(range).collect()
}

fn bad_channels(word: &str) -> String {
    format!("\"{word}\" is not a channel number; write numbers and ranges as 10:20,300")
}

pub(crate) fn parse_time_range(words: &str) -> std::result::Result<TimeRange, String> {
    let Some((start, end)) = words.split_once(':') else {
        return Err("write it as START:END in seconds; either may be left out".to_owned());
    };
    let number = |word: &str, missing: f64| match word.trim() {
        "" => Ok(missing),
        word => numbers::real(word)
            .map_err(|why| format!("\"{word}\" is not a number of seconds: {why}")),
    };
    let range = TimeRange { start_s: number(start, 0.0)?, end_s: number(end, f64::INFINITY)? };
    if range.start_s.is_nan() || range.start_s < 0.0 || range.start_s.is_infinite() {
        return Err("it must start at 0 s or later".to_owned());
    }
    let rising = range.start_s < range.end_s;
    rising.then_some(range).ok_or_else(|| "its end must come after its start".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_numbers_and_ranges() {
        let ranges = Channels::Ranges(vec![(3, 3), (10, 12)]);
        assert_eq!(parse_channels("3,10:12").unwrap(), ranges);
        for bad in ["", "a", "3:", "5:2", "1,,2", "-1", "99999999999999999999"] {
            assert!(parse_channels(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn channels_may_be_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.txt");
        let name = path.to_string_lossy().into_owned();
        let missing = parse_channels(&name).unwrap_err();
        assert!(missing.contains("there is no file of this name"), "{missing}");
        std::fs::write(&path, "1").unwrap();
        assert_eq!(parse_channels(&name), Ok(Channels::File(path.clone(), None)));
        let form = Some(ChannelForm::Kill);
        assert_eq!(parse_channels(&format!("kill:{name}")), Ok(Channels::File(path, form)));
    }

    #[test]
    fn time_ranges_may_be_open() {
        let range = |words| parse_time_range(words).map(|r| (r.start_s, r.end_s));
        assert_eq!(range("1:2.5"), Ok((1.0, 2.5)));
        assert_eq!(range(":3"), Ok((0.0, 3.0)));
        assert_eq!(range("3:"), Ok((3.0, f64::INFINITY)));
        for bad in ["", "3", "3:2", "-1:2", "a:b", "nan:2", "1:nan"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
