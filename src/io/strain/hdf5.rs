//! Strain in HDF5: GWOSC's layout (`strain/Strain` with bit masks, versions 1 to 3), and gwpy's individual series.
//!
//! Invariant: reading holds one chunk of the file.
//!
//! # Source
//! GWOSC's documentation of its HDF5 files; gwpy 4.1 (`gwpy/types/io/hdf5.py`): attributes x0 and dx in seconds.

use std::path::Path;

use super::header::{OpenOptions, Said, ask_for_channel, finish_header};
use super::quality::{self, Mask};
use super::series::{Input, Series};
use super::{StrainHeader, StrainSource};
use crate::error::Result;
use crate::view::check_length;

pub(super) const STRAIN: &str = "strain/Strain";

/// Opens a file in either layout.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let input = Input::open(path)?;
    let source =
        if input.has(STRAIN) { gwosc(&input, path, options) } else { gwpy(&input, path, options) };
    Ok(Box::new(source?))
}

/// Returns whether a file is HDF5 with strain in either layout, even if damaged.
pub(super) fn is_strain(path: &Path) -> bool {
    let Ok(input) = Input::open(path) else { return false };
    let has_series =
        || input.root_names().is_ok_and(|names| names.iter().any(|name| input.is_series(name)));
    input.has(STRAIN) || has_series()
}

fn gwosc(input: &Input, path: &Path, options: &OpenOptions) -> Result<Source> {
    let series = input.series(STRAIN)?;
    let spacing_s = match series.number("Xspacing")? {
        Some(spacing_s) => spacing_s,
        None => return Err(input.fault("strain/Strain attribute Xspacing", "it is missing")),
    };
    let start_s = match series.number("Xstart")? {
        Some(start_s) => start_s,
        None => input.number("meta/GPSstart")?,
    };
    let detector = input.texts("meta/Detector").ok().and_then(|texts| texts.into_iter().next());
    let said = Said { format: "GWOSC HDF5", detector, spacing_s, start_s };
    let times = series.len();
    let header = finish_header(path, said, times, options)?;
    let masks = quality::masks(input, &header, times, options)?;
    Ok(Source::new(header, series, masks))
}

/// A gwpy series with its attributes.
struct GwpySeries {
    /// Name for selection: its channel, or its data set if several share a channel.
    name: String,
    dataset: String,
    detector: Option<String>,
    series: Series,
    spacing_s: f64,
    start_s: f64,
}

/// Reads all gwpy series of a file, sorted by name.
fn gwpy_series(input: &Input) -> Result<Vec<GwpySeries>> {
    let mut found = Vec::new();
    for dataset in input.root_names()?.into_iter().filter(|name| input.is_series(name)) {
        let series = input.series(&dataset)?;
        if let (Some(spacing_s), Some(start_s)) = (series.number("dx")?, series.number("x0")?) {
            let names = [series.text("channel"), series.text("name"), &dataset];
            let channel = names.into_iter().find(|name| name.contains(':'));
            let name = channel.unwrap_or(&dataset).to_owned();
            let detector = name.split_once(':').map(|(site, _)| site.to_owned());
            found.push(GwpySeries { name, dataset, detector, series, spacing_s, start_s });
        }
    }
    let names: Vec<String> = found.iter().map(|one| one.name.clone()).collect();
    for one in &mut found {
        if names.iter().filter(|name| **name == one.name).count() > 1 {
            one.name.clone_from(&one.dataset);
        }
    }
    Ok(found)
}

/// Returns the channels of a file's gwpy series; none for other files.
pub(super) fn channels(path: &Path) -> Result<Vec<String>> {
    let Ok(input) = Input::open(path) else { return Ok(Vec::new()) };
    if input.has(STRAIN) {
        return Ok(Vec::new());
    }
    Ok(gwpy_series(&input)?.into_iter().map(|one| one.name).collect())
}

/// Returns the name of the selected gwpy series if it is a channel; `None` for other files.
pub(super) fn channel_of(path: &Path, options: &OpenOptions) -> Result<Option<String>> {
    let Ok(input) = Input::open(path) else { return Ok(None) };
    if input.has(STRAIN) {
        return Ok(None);
    }
    Ok(Some(choose(&input, path, options)?.name).filter(|name| name.contains(':')))
}

/// Selects the requested gwpy series, or the only one.
fn choose(input: &Input, path: &Path, options: &OpenOptions) -> Result<GwpySeries> {
    let mut found = gwpy_series(input)?;
    let names: Vec<String> = found.iter().map(|one| one.name.clone()).collect();
    if found.is_empty() {
        let why = "it is missing, and so are gwpy's series (attributes x0 and dx)";
        return Err(input.fault(STRAIN, why));
    }
    if let Some(asked) = &options.channel {
        found.retain(|one| one.name == *asked || one.dataset == *asked);
        if found.is_empty() {
            let why = format!("no such channel; there are {}", names.join(", "));
            return Err(input.fault(asked, why));
        }
    } else if found.len() > 1 {
        let of_detector = |one: &GwpySeries| {
            options.detector.is_none() || one.detector.is_none() || one.detector == options.detector
        };
        found.retain(of_detector);
        if found.len() > 1 {
            found.retain(|one| one.name.ends_with("STRAIN"));
        }
    }
    if found.len() != 1 {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(ask_for_channel(path, &names));
    }
    Ok(found.remove(0))
}

fn gwpy(input: &Input, path: &Path, options: &OpenOptions) -> Result<Source> {
    let GwpySeries { detector, series, spacing_s, start_s, .. } = choose(input, path, options)?;
    if let Some(bits) =
        options.required_quality.iter().flatten().chain(&options.required_injections).next()
    {
        return Err(input
            .fault("quality", format!("{bits} is asked for, but a gwpy file has no such bits")));
    }
    let said = Said { format: "gwpy HDF5", detector, spacing_s, start_s };
    let header = finish_header(path, said, series.len(), options)?;
    Ok(Source::new(header, series, Vec::new()))
}

/// Source of one file's samples.
struct Source {
    header: StrainHeader,
    series: Series,
    masks: Vec<Mask>,
    next: u64,
    /// Buffered samples, and the index of the first.
    piece: Vec<f64>,
    piece_start: u64,
    cut: Option<String>,
}

impl Source {
    fn new(header: StrainHeader, series: Series, masks: Vec<Mask>) -> Self {
        let cut = series.cut();
        Self { header, series, masks, next: 0, piece: Vec::new(), piece_start: 0, cut }
    }

    fn fill_piece(&mut self) -> Result<()> {
        let start = self.next / self.series.piece() * self.series.piece();
        self.piece = self.series.read(start, self.series.piece().min(self.series.len() - start))?;
        self.piece_start = start;
        Ok(())
    }
}

impl StrainSource for Source {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        let mut done = 0;
        while done < samples.len() && self.next < self.series.len() {
            let end = self.piece_start + self.piece.len() as u64;
            if !(self.piece_start..end).contains(&self.next) {
                self.fill_piece()?;
            }
            let from = (self.next - self.piece_start) as usize;
            let count = (self.piece.len() - from).min(samples.len() - done);
            for place in 0..count {
                let sample = self.piece[from + place];
                let time = self.next + place as u64;
                let is_valid =
                    sample.is_finite() && self.masks.iter().all(|mask| mask.is_good(time));
                samples[done + place] = if is_valid { sample } else { 0.0 };
                valid[done + place] = is_valid;
            }
            done += count;
            self.next += count as u64;
        }
        Ok(done)
    }

    fn skip(&mut self, samples: u64) -> Result<u64> {
        let count = samples.min(self.series.len() - self.next);
        self.next += count;
        Ok(count)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}
