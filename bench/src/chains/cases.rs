//! Chains to measure: the verbs with their options, inputs and products.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use sidereal::{Error, Result};

use super::inputs::{
    Array, BLOCK_TIMES, COARSE, Filterbank, Maker, POSITIONS, write_binaries, write_guppi,
};

/// Verbs of the chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    /// Search of a filterbank for bursts, without and with pictures, and of a few seconds of data.
    Search,
    /// Filter bank of GUPPI raw voltages to powers and to voltages.
    Channelize,
    /// The same with coherent dedispersion.
    Coherent,
    /// Time series of 501 trials.
    Dedisperse,
    /// Correlation of an array's voltages.
    Correlate,
    /// Search of two detectors' strain for binaries, with given masses and with ready filter banks.
    Spiir,
    /// Search of the beams of an observation.
    Beams,
    /// The demonstration of every verb.
    Demo,
}

/// Amount of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// About a minute on two cores.
    Quick,
    /// Some hundreds of megabytes: runs of some seconds to a minute on two cores.
    Small,
    /// Gigabytes, as in the record.
    Full,
    /// The same, and a search of 16.8 GB.
    Large,
    /// Gigabytes, and 4096 templates, which GPUs divide.
    #[value(skip)]
    Scale,
}

/// Sizes of the recordings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    search: Filterbank,
    long: Option<Filterbank>,
    short: Filterbank,
    /// Each of the [`BEAMS`] beams.
    beam: Filterbank,
    series: Filterbank,
    blocks: u64,
    coherent_blocks: u64,
    array: Array,
    strain_s: u64,
    templates: usize,
}

impl Sizes {
    pub(super) fn of(size: Size) -> Self {
        let filterbank = |tile_rows, bursts| Filterbank { tile_rows, bursts, silent: 0 };
        if size == Size::Quick {
            return Self {
                search: filterbank(12_288, 3),
                long: None,
                short: filterbank(8_192, 3),
                beam: filterbank(8_192, 1),
                series: filterbank(12_288, 2),
                blocks: 4,
                coherent_blocks: 2,
                array: Array { antennas: 8, times: 1 << 20 },
                strain_s: 64,
                templates: 8,
            };
        }
        if size == Size::Small {
            return Self {
                search: filterbank(40_960, 9),
                long: None,
                short: filterbank(8_192, 3),
                beam: filterbank(20_480, 3),
                series: filterbank(20_480, 6),
                blocks: 24,
                coherent_blocks: 8,
                array: Array { antennas: 32, times: 1 << 22 },
                strain_s: 1024,
                templates: 256,
            };
        }
        let search = filterbank(151_936, 27);
        Self {
            search,
            long: (size == Size::Large).then_some(Filterbank { silent: 3, ..search }),
            short: filterbank(16_384, 3),
            beam: filterbank(49_152, 9),
            series: filterbank(158_336, 6),
            blocks: 240,
            coherent_blocks: 60,
            array: Array { antennas: 64, times: 20_000_000 },
            strain_s: 1024,
            templates: if size == Size::Scale { 4096 } else { 1024 },
        }
    }
}

impl Sizes {
    /// Returns sizes with at least as many templates.
    pub(super) fn with_templates(self, least: usize) -> Self {
        Self { templates: self.templates.max(least), ..self }
    }

    /// Returns sizes with `factor` times the data: longer recordings, and more templates.
    pub(super) fn times(self, factor: u64) -> Self {
        let longer = |one: Filterbank| Filterbank { bursts: factor * one.bursts, ..one };
        Self {
            search: longer(self.search),
            long: self.long.map(longer),
            short: longer(self.short),
            beam: longer(self.beam),
            series: longer(self.series),
            blocks: factor * self.blocks,
            coherent_blocks: factor * self.coherent_blocks,
            array: Array { times: factor * self.array.times, ..self.array },
            templates: factor as usize * self.templates,
            ..self
        }
    }
}

/// Result that a chain must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Check {
    /// At least this many candidates.
    Candidates(u64),
    /// The product exists.
    Exists,
}

/// Verb with its options, input and product.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// Name, unique among the chains.
    pub(super) name: String,
    /// Words of the command line; [`INPUT`] and [`OUTPUT`] stand for paths.
    pub(super) words: Vec<String>,
    /// Files that are read.
    pub(super) inputs: Vec<PathBuf>,
    /// Whether the input can come from a pipe.
    pub(super) streams: bool,
    /// Name of the product in the folder of outputs.
    pub(super) output: &'static str,
    /// Length of the data in seconds, if they have one.
    pub(super) seconds: Option<f64>,
    pub(super) check: Check,
    /// Files of the product that later chains read, and the paths that they move to.
    pub(super) kept: Vec<Kept>,
}

/// File of a product that a later chain reads.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) from: String,
    pub(super) to: PathBuf,
}

/// Words that stand for the input and the product.
pub(super) const INPUT: &str = "INPUT";
pub(super) const OUTPUT: &str = "OUTPUT";

/// Bytes for documents and pictures of a product.
const MORE: u64 = 64 << 20;

impl Chain {
    fn new(
        name: impl Into<String>,
        words: &str,
        inputs: Vec<PathBuf>,
        output: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            words: words.split_whitespace().map(str::to_owned).collect(),
            inputs,
            streams: false,
            output,
            seconds: None,
            check: Check::Exists,
            kept: Vec::new(),
        }
    }

    /// Returns the words of the command line for a product's path, with the input from a pipe or from its files.
    pub(super) fn command_line(&self, output: &Path, piped: bool) -> Vec<String> {
        let mut words = Vec::new();
        for word in &self.words {
            match word.as_str() {
                INPUT if piped => words.push("-".to_owned()),
                INPUT => words.extend(self.inputs.iter().map(|path| path.display().to_string())),
                OUTPUT => words.push(output.display().to_string()),
                other => words.push(other.to_owned()),
            }
        }
        words
    }

    /// Returns the bytes of all inputs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn input_bytes(&self) -> Result<u64> {
        let size = |path: &PathBuf| {
            std::fs::metadata(path).map(|found| found.len()).map_err(|error| Error::io(path, error))
        };
        self.inputs.iter().map(size).sum()
    }
}

/// Formats bytes as 4.2 GB.
pub(super) fn gigabytes(bytes: u64) -> String {
    let gigabytes = bytes as f64 * 1e-9;
    if gigabytes < 0.95 {
        format!("{:.0} MB", gigabytes * 1e3)
    } else {
        format!("{gigabytes:.1} GB")
    }
}

impl Verb {
    /// Returns the bytes that the verb's inputs and its largest product need on the disk.
    pub(super) fn need(self, sizes: &Sizes) -> u64 {
        let voltages = |blocks: u64| blocks * BLOCK_TIMES * COARSE as u64 * 4;
        let bytes = match self {
            Self::Search => {
                let long = sizes.long.map_or(0, Filterbank::bytes);
                sizes.search.bytes().max(long) + sizes.short.bytes()
            }
            // Products as large as the input.
            Self::Channelize => 2 * voltages(sizes.blocks),
            Self::Coherent => 2 * voltages(sizes.coherent_blocks),
            Self::Dedisperse => sizes.series.bytes() + series_bytes(sizes.series),
            Self::Correlate => sizes.array.bytes() + visibility_bytes(sizes.array),
            Self::Spiir => 2 * 8 * 4096 * sizes.strain_s + spiir_bytes(sizes),
            Self::Beams => BEAMS * sizes.beam.bytes(),
            Self::Demo => 1 << 30,
        };
        bytes + MORE
    }

    /// Makes the verb's inputs in a folder and returns its chains; `simulate` runs a verb of the command line.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::stopped`] if the user asked to stop.
    pub(super) fn make(
        self,
        sizes: &Sizes,
        folder: &Path,
        maker: &Maker<'_>,
    ) -> Result<Vec<Chain>> {
        match self {
            Self::Search => search(sizes, folder, maker),
            Self::Channelize => channelize(sizes, folder, maker),
            Self::Coherent => coherent(sizes, folder, maker),
            Self::Dedisperse => dedisperse(sizes, folder, maker),
            Self::Correlate => correlate(sizes, folder, maker),
            Self::Spiir => spiir(sizes, folder),
            Self::Beams => beams(sizes, folder, maker),
            Self::Demo => {
                let words = format!("demo -o {OUTPUT}");
                Ok(vec![Chain::new("demo", &words, vec![], "demo")])
            }
        }
    }
}

fn search(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let mut chains = Vec::new();
    let mut add = |filterbank: Filterbank, file: &str, options: &[(&str, &str)]| -> Result<()> {
        let path = folder.join(file);
        filterbank.write(&path, maker)?;
        for (about, option) in options {
            let name = format!("search, {}, {about}", gigabytes(filterbank.bytes()));
            let words = format!("search {INPUT} -o {OUTPUT} {option}");
            chains.push(Chain {
                streams: *about != "pictures",
                seconds: Some(filterbank.seconds()),
                check: Check::Candidates(filterbank.bursts),
                ..Chain::new(name, &words, vec![path.clone()], "search")
            });
        }
        Ok(())
    };
    add(sizes.short, "short.fil", &[("a few seconds", "--max-plots 0")])?;
    add(sizes.search, "search.fil", &[("no pictures", "--max-plots 0"), ("pictures", "")])?;
    if let Some(long) = sizes.long {
        add(long, "long.fil", &[("no pictures", "--max-plots 0")])?;
    }
    Ok(chains)
}

/// Beams of an observation.
const BEAMS: u64 = 8;

fn beams(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let paths: Vec<PathBuf> =
        (0..BEAMS).map(|beam| folder.join(format!("beam{beam}.fil"))).collect();
    sizes.beam.write(&paths[0], maker)?;
    for path in &paths[1..] {
        std::fs::copy(&paths[0], path).map_err(|error| Error::io(path, error))?;
    }
    let bytes = gigabytes(BEAMS * sizes.beam.bytes());
    let words = format!("search --beams {INPUT} -o {OUTPUT} --max-plots 0");
    let chain =
        Chain::new(format!("search --beams, {BEAMS} beams, {bytes}"), &words, paths, "beams");
    Ok(vec![Chain { seconds: Some(sizes.beam.seconds()), ..chain }])
}

/// Channels of each recorded channel after `channelize`.
const FINE: usize = 64;

fn voltages(blocks: u64, path: &Path, maker: &Maker<'_>) -> Result<Chain> {
    write_guppi(path, blocks, maker)?;
    let bytes = blocks * BLOCK_TIMES * COARSE as u64 * 4;
    let chain = Chain::new(gigabytes(bytes), "", vec![path.to_owned()], "out.fil");
    let seconds = (blocks * BLOCK_TIMES) as f64 / super::inputs::COARSE_HZ;
    Ok(Chain { seconds: Some(seconds), ..chain })
}

fn channelize(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let chain = voltages(sizes.blocks, &folder.join("voltages.raw"), maker)?;
    let case = |about: &str, output: &'static str, options: &str| {
        let words = format!("channelize {INPUT} -o {OUTPUT} --channels {FINE} {options}");
        let name = format!("channelize, {}, to {about}", chain.name);
        let words = words.split_whitespace().map(str::to_owned).collect();
        Chain { name, words, output, ..chain.clone() }
    };
    Ok(vec![
        case("powers of 16", "out.fil", "--integrate 16"),
        case("8-bit GUPPI", "out.raw", "--format guppi --nbits 8"),
        case("8-bit DADA", "out.dada", "--format dada --nbits 8"),
    ])
}

fn coherent(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let chain = voltages(sizes.coherent_blocks, &folder.join("coherent.raw"), maker)?;
    let words = format!(
        "channelize {INPUT} -o {OUTPUT} --channels {FINE} --integrate 16 --coherent-dm 100"
    );
    let words = words.split_whitespace().map(str::to_owned).collect();
    let name = format!("channelize --coherent-dm, {}", chain.name);
    Ok(vec![Chain { name, words, ..chain }])
}

/// Trials of `dedisperse`, 1 pc cm^-3 apart.
const TRIALS: u64 = 501;

fn series_bytes(series: Filterbank) -> u64 {
    TRIALS * 4 * series.bytes() / super::inputs::CHANNELS as u64
}

fn dedisperse(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let path = folder.join("series.fil");
    sizes.series.write(&path, maker)?;
    let words =
        format!("dedisperse {INPUT} -o {OUTPUT} --dm-min 0 --dm-max {} --dm-step 1", TRIALS - 1);
    let name = format!("dedisperse, {}, {TRIALS} trials", gigabytes(sizes.series.bytes()));
    Ok(vec![Chain {
        streams: true,
        seconds: Some(sizes.series.seconds()),
        ..Chain::new(name, &words, vec![path], "series")
    }])
}

/// Channels and integrations of `correlate`.
const ARRAY_CHANNELS: u64 = 256;
const INTEGRATIONS: u64 = 8;

fn visibility_bytes(array: Array) -> u64 {
    let baselines = (array.antennas * (array.antennas + 1) / 2) as u64;
    // Visibility, count and flag, of four products.
    baselines * ARRAY_CHANNELS * (INTEGRATIONS + 1) * 4 * (8 + 4 + 1)
}

fn correlate(sizes: &Sizes, folder: &Path, maker: &Maker<'_>) -> Result<Vec<Chain>> {
    let array = sizes.array;
    let place = folder.join("array");
    let paths = array.write(&place, maker)?;
    let words = format!(
        "correlate {INPUT} -o {OUTPUT} --drift --no-plots --channels {ARRAY_CHANNELS} \
         --integration {:.6} --antennas {}",
        array.seconds() / INTEGRATIONS as f64,
        place.join(POSITIONS).display(),
    );
    let name = format!("correlate, {} antennas, {}", array.antennas, gigabytes(array.bytes()));
    Ok(vec![Chain {
        seconds: Some(array.seconds()),
        ..Chain::new(name, &words, paths, "out.uvh5")
    }])
}

/// Filter banks of two detectors take about this many bytes per template.
fn spiir_bytes(sizes: &Sizes) -> u64 {
    4 * (sizes.templates as u64) * (256 << 10)
}

fn spiir(sizes: &Sizes, folder: &Path) -> Result<Vec<Chain>> {
    let strain = folder.join("strain.hdf5");
    let time = 1_400_000_000.0 + 0.7 * sizes.strain_s as f64;
    let words = format!(
        "simulate strain --detectors H1,L1 --start 1400000000 --length {} --seed 21 -q \
         --inject m1=36,m2=29,distance=600,ra=1.95,dec=-1.27,inclination=2.7,time={time}",
        sizes.strain_s
    );
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    words.insert(2, strain.display().to_string());
    run(&words)?;
    let paths: Vec<PathBuf> =
        ["H1", "L1"].map(|name| folder.join(format!("strain_{name}.hdf5"))).into();
    let binaries = folder.join("binaries.csv");
    write_binaries(&binaries, sizes.templates)?;
    let banks = ["H1", "L1"].map(|name| folder.join(format!("bank_{name}.h5")));
    let kept = banks.iter().map(|bank| {
        let name = bank.file_name().unwrap_or_default().to_string_lossy();
        Kept { from: format!("spiir/{name}"), to: bank.clone() }
    });
    let masses = format!(
        "spiir search {INPUT} -o {OUTPUT} --no-plots --f-low 30 --templates {}",
        binaries.display()
    );
    let ready = format!(
        "spiir search {INPUT} -o {OUTPUT} --no-plots --bank {} --bank {}",
        banks[0].display(),
        banks[1].display()
    );
    let case = |about: &str, words: &str| {
        let (seconds, templates) = (sizes.strain_s, sizes.templates);
        let name = format!("spiir search, {seconds} s, {templates} templates, {about}");
        Chain {
            seconds: Some(sizes.strain_s as f64),
            ..Chain::new(name, words, paths.clone(), "spiir")
        }
    };
    let first = Chain { kept: kept.collect(), ..case("masses given", &masses) };
    Ok(vec![first, case("ready banks", &ready)])
}

/// Runs a verb of this program that makes an input.
fn run(words: &[String]) -> Result<()> {
    let program = std::env::current_exe().map_err(|error| Error::io("sidereal", error))?;
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|error| Error::io(&program, error))?;
    if status.success() {
        return Ok(());
    }
    let (what, why) = ("an input".to_owned(), format!("{} ended with {status}", words.join(" ")));
    Err(Error::Unavailable { what, why })
}
