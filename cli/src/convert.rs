//! `sidereal convert`: converts strain between formats.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::strain::{ALL_INJECTIONS, ALL_QUALITY};
use sidereal::io::strain::{
    Bits, NewStrain, OpenOptions, StrainHeader, StrainSource, StrainWriter, Summary, bits, open_all,
};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles, with_final_names};
use crate::progress::Progress;
use crate::provenance::{Product, Provenance, Run};
use crate::{interrupt, json, say, space};

/// Samples read at once.
const GULP: usize = 1 << 16;

/// Suffix that the document's name adds to the file's.
const DOCUMENT: &str = ".json";

const EXAMPLES: &str = "Examples:\n  \
    sidereal convert H-H1_LOSC_4_V2-1126259446-32.hdf5 -o H-H1_LOSC_4_V2-1126259446-32.gwf\n  \
    sidereal convert H-H1_HOFT-*.gwf --channel H1:GDS-CALIB_STRAIN -o strain/ --to hdf5\n  \
    sidereal convert strain.npy --rate 4096 --start 1126259446 --detector L1 -o strain.gwf\n\n\
    Times without data are NaN in the output. The bits of quality and injections of GWOSC's files are kept between\n\
    HDF5 and frames, where they are the channels ..._DQMASK and ..._INJMASK beside ..._STRAIN. HDF5 of strain without\n\
    such bits has all of them where there are data.";

/// Convert strain between frames (GWF), GWOSC's HDF5 and .npy.
///
/// Reads the formats of `spiir search`, including gwpy's HDF5; several files of one detector are joined. Samples keep
/// their values, except that frames are written in version 8 with 64-bit floats, which round integers above 2^53.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Strain of one detector.
    #[arg(required = true, value_name = "STRAIN")]
    inputs: Vec<PathBuf>,
    /// File to write, with extension .gwf, .hdf5 or .npy; or, with --to, an existing folder.
    ///
    /// In a folder the name is like H-H1_STRAIN-1126259446-32.gwf.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Format to write if OUT is a folder.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    to: Option<Format>,
    /// Replace the output if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Channel name in the output frame file [default: that of the input, or the detector's, H1:STRAIN].
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    output_channel: Option<String>,
    /// Compression of samples in frames.
    #[arg(
        long,
        value_enum,
        default_value = "zlib",
        value_name = "METHOD",
        help_heading = "Output"
    )]
    compression: Compression,
    /// Channel to read from frames (GWF) and gwpy's HDF5, if a file has more than one candidate.
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    channel: Option<String>,
    /// Detector, such as H1, if the files do not name it or contain several.
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    detector: Option<String>,
    /// GPS time of the first sample, for a .npy file.
    #[arg(long, value_name = "GPS", help_heading = "Input")]
    start: Option<f64>,
    /// Sampling rate in Hz, for .npy files.
    ///
    /// The rate in other files must agree.
    #[arg(long, value_name = "HZ", help_heading = "Input")]
    rate: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Frames.
    Gwf,
    /// GWOSC's HDF5.
    Hdf5,
    /// NumPy's array.
    Npy,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Gwf => "gwf",
            Self::Hdf5 => "hdf5",
            Self::Npy => "npy",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compression {
    /// Lossless zlib.
    Zlib,
    /// None: larger file, faster to write.
    None,
}

/// Contents of OUT.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    detector: String,
    /// Name of the channel; null if the format has none.
    channel: Option<String>,
    start_gps: f64,
    end_gps: f64,
    rate_hz: u32,
    samples: u64,
    /// Number of samples with values; the others are NaN.
    valid_samples: u64,
    /// Intervals without values, in GPS seconds.
    gaps_gps: Vec<[f64; 2]>,
    complete: bool,
    /// Missing part of truncated inputs.
    reason: Option<String>,
    warnings: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let options = arguments.options()?;
    let mut source = open_all(&arguments.inputs, &options)?;
    let summary = Summary::read(source.as_mut())?;
    let strain = arguments.strain(&summary, &options)?;
    let out = arguments.place(&summary, &strain)?;
    let existing = Existing::new(arguments.overwrite);
    let inputs = &arguments.inputs;
    let writing = WritingFiles { option: "--output", existing, inputs, common };
    let files = Files::begin(&out, &[DOCUMENT], &writing)?;
    space::check(&out, summary.times.saturating_mul(8), common)?;
    let (warnings, cut) = (source.warnings().to_vec(), source.cut().map(str::to_owned));
    say::warn_of_recording(&warnings, cut.as_deref(), common.quiet);
    // The source has been read to its end, so it is opened again.
    let mut source = open_all(&arguments.inputs, &options)?;
    write(source.as_mut(), &files.main(), &strain, common)?;
    let is_frame = out.extension().is_some_and(|ending| ending == "gwf");
    let document = Document {
        file: with_final_names(&out.display().to_string()),
        detector: strain.detector.clone(),
        channel: is_frame.then(|| strain.channel()),
        start_gps: strain.start.s(),
        end_gps: summary.time(summary.times).s(),
        rate_hz: strain.rate_hz,
        samples: summary.times,
        valid_samples: summary.valid_times,
        gaps_gps: summary
            .gaps
            .iter()
            .map(|gap| [summary.time(gap.0).s(), summary.time(gap.1).s()])
            .collect(),
        complete: cut.is_none(),
        reason: cut,
        warnings,
    };
    let product =
        Product::new("convert", document, Provenance::new(common, inputs)?, Run::new(common));
    json::write(&files.beside(DOCUMENT), &product)?;
    interrupt::check()?;
    files.finish()?;
    if common.json {
        return json::print(&product);
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&product.document.table())
}

impl Document {
    fn table(&self) -> String {
        let missing = match self.samples - self.valid_samples {
            0 => String::new(),
            missing => format!(", {missing} of them missing (NaN)"),
        };
        let channel = self.channel.as_deref().unwrap_or(&self.detector);
        format!(
            "{}: {channel}, {} samples at {} Hz from GPS {}{missing}",
            self.file, self.samples, self.rate_hz, self.start_gps
        )
    }
}

/// Copies all samples.
fn write(
    source: &mut dyn StrainSource,
    place: &Path,
    strain: &NewStrain,
    common: &Common,
) -> Result<()> {
    let progress = Progress::new(common, Some(strain.samples), 1, 1.0 / f64::from(strain.rate_hz));
    let mut writer = StrainWriter::create(place, strain)?;
    let (mut samples, mut valid) = (vec![0.0; GULP], vec![false; GULP]);
    let mut done = 0;
    loop {
        interrupt::check()?;
        let count = source.read(&mut samples, &mut valid)?;
        if count == 0 {
            break;
        }
        for (sample, valid) in samples[..count].iter_mut().zip(&valid) {
            if !valid {
                *sample = f64::NAN;
            }
        }
        writer.write(&samples[..count])?;
        done += count as u64;
        progress.at(done);
    }
    progress.finish();
    writer.finish()
}

impl Arguments {
    fn options(&self) -> Result<OpenOptions> {
        if let Some(start) = self.start.filter(|start| !(0.0..5e9).contains(start)) {
            return Err(Error::parameter("--start", start, "it must be GPS seconds, 0 to 5e9"));
        }
        Ok(OpenOptions {
            detector: self.detector.clone(),
            start: self.start.map(Gps::from_s),
            rate_hz: self.rate,
            channel: self.channel.clone(),
            // Bad seconds are copied, with their bits.
            required_quality: Some(Vec::new()),
            required_injections: Vec::new(),
        })
    }

    /// Returns the description of the output.
    fn strain(&self, summary: &Summary, options: &OpenOptions) -> Result<NewStrain> {
        let StrainHeader { detector, start, rate_hz, .. } = summary.header.clone();
        let first = self.inputs.first().map_or(Path::new(""), PathBuf::as_path);
        let channel = match &self.output_channel {
            Some(name) => Some(name.clone()),
            None => sidereal::io::strain::channel_of(first, options)?,
        };
        let names: Vec<String> = self
            .inputs
            .iter()
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        Ok(NewStrain {
            detector,
            channel,
            start,
            rate_hz,
            samples: summary.times,
            description: format!("Converted from {}", names.join(", ")),
            bits: self.bits(summary, options)?,
            is_compressed: self.compression == Compression::Zlib,
        })
    }

    /// Returns the bits of every second; `None` if no file has them and the output needs none, or if the start is not
    /// on a whole second.
    fn bits(&self, summary: &Summary, options: &OpenOptions) -> Result<Option<[Vec<u32>; 2]>> {
        let (start, rate) = (summary.header.start, u64::from(summary.header.rate_hz));
        let second_ns = 1_000_000_000;
        if start.ns % second_ns != 0 {
            return Ok(None);
        }
        let seconds = summary.times.div_ceil(rate) as usize;
        let mut found = [vec![0; seconds], vec![0; seconds]];
        let mut is_known = false;
        for path in &self.inputs {
            let bits = bits(path, options)?;
            is_known |= !bits.is_empty();
            Bits::copy(&bits.quality, start.ns / second_ns, &mut found[0]);
            Bits::copy(&bits.injections, start.ns / second_ns, &mut found[1]);
        }
        if !is_known && self.is_gwosc() {
            found = [vec![ALL_QUALITY; seconds], vec![ALL_INJECTIONS; seconds]];
            for (first, end) in &summary.gaps {
                // A gap at the recording's end includes the last second, even a partial one.
                let end = if *end == summary.times { seconds as u64 } else { end / rate };
                for second in first.div_ceil(rate)..end {
                    found.iter_mut().for_each(|bits| bits[second as usize] = 0);
                }
            }
        }
        Ok((is_known || self.is_gwosc()).then_some(found))
    }

    /// Returns whether the output is GWOSC's HDF5.
    fn is_gwosc(&self) -> bool {
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        self.to.map_or(matches!(ending, Some("hdf5" | "h5")), |to| to == Format::Hdf5)
    }

    /// Returns the path of the output.
    fn place(&self, summary: &Summary, strain: &NewStrain) -> Result<PathBuf> {
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        let is_known = ending.is_some_and(|ending| StrainWriter::ENDINGS.contains(&ending));
        let is_folder = self.output.is_dir();
        match (self.to, is_folder) {
            (None, false) if is_known => Ok(self.output.clone()),
            (Some(format), false) if is_known && ending == Some(format.ending()) => {
                Ok(self.output.clone())
            }
            (Some(format), true) => {
                Ok(self.output.join(frame_name(strain, summary, format.ending())))
            }
            (None, true) => {
                let rule = "it is a folder: say the format with --to";
                Err(Error::parameter("--output", self.output.display(), rule))
            }
            _ => {
                let rule =
                    "its name must end in .gwf, .hdf5 or .npy, as --to says, or be a folder's";
                Err(Error::parameter("--output", self.output.display(), rule))
            }
        }
    }
}

/// Makes a frame file name, `OBS-TAG-GPS-DUR`, in whole seconds that contain all samples.
fn frame_name(strain: &NewStrain, summary: &Summary, ending: &str) -> String {
    let is_word = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let tag: String = strain.channel().chars().map(is_word).collect();
    let site = strain.detector.chars().next().unwrap_or('X');
    let second_ns = 1_000_000_000;
    let start_s = strain.start.ns.div_euclid(second_ns);
    let end_ns = summary.time(summary.times).ns;
    let length_s = (end_ns + second_ns - 1).div_euclid(second_ns) - start_s;
    format!("{site}-{tag}-{start_s}-{length_s}.{ending}")
}
