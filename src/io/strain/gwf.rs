//! Strain in frame files (GWF): a channel's samples, frame by frame, with GWOSC's masks if present.
//!
//! Invariant: a reader holds 64 KiB buffers of one channel, and that channel's masks.
//!
//! # Source
//! GWOSC's frame files: `H1:GWOSC-4KHZ_R1_STRAIN` with per-second bits in `..._DQMASK` and `..._INJMASK`, identical
//! to those of its HDF5 files.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::gwf::{Gwf, Piece, Series};
use crate::io::strain::writer::{INJECTION_BITS, QUALITY_BITS};
use crate::io::strain::{
    DEFAULT_BITS, FileMetadata, MAX_MASK, Mask, OpenOptions, StrainHeader, StrainSource,
    ask_for_channel, finish_header, join, mask_steps, whole_second,
};
use crate::view::check_length;

/// Suffix of a strain channel's name.
const STRAIN: &str = "STRAIN";
/// Suffixes that replace it in the names of GWOSC's quality and injection masks.
pub(super) const QUALITY: &str = "DQMASK";
pub(super) const INJECTIONS: &str = "INJMASK";

/// Opens the requested channel, or the only candidate.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let file = Arc::new(Gwf::open(path)?);
    let name = choose(&file, path, options)?;
    let masks = Masks::new(&file, path, &name, options)?;
    let mut sources: Vec<Box<dyn StrainSource>> = Vec::new();
    // All pieces are of one file, whose truncation is reported once.
    let mut cut = file.cut().map(str::to_owned);
    // The requested start applies to the first piece only.
    let mut options = options.clone();
    for piece in file.pieces(&name)? {
        let detector = detector_of_channel(&name);
        let metadata = FileMetadata {
            format: "GWF",
            detector,
            spacing_s: piece.spacing_s,
            start_s: piece.start.s(),
        };
        let mut header = finish_header(path, metadata, piece.samples, &options)?;
        header.start = piece.start;
        options.start = None;
        let masks = masks.of_piece(&file, &header, &piece)?;
        let file = Arc::clone(&file);
        sources.push(Box::new(Source {
            header,
            file,
            piece,
            masks,
            next: 0,
            series: None,
            cut: cut.take(),
        }));
    }
    match sources.len() {
        1 => Ok(sources.remove(0)),
        _ => join(sources),
    }
}

/// Returns the detector prefix of a channel name such as `H1:GDS-CALIB_STRAIN`.
pub(super) fn detector_of_channel(name: &str) -> Option<String> {
    let (prefix, _) = name.split_once(':')?;
    (prefix.len() == 2).then(|| prefix.to_owned())
}

/// Selects the channel to read.
pub(super) fn choose(file: &Gwf, path: &Path, options: &OpenOptions) -> Result<String> {
    if let Some(name) = &options.channel {
        return Ok(file.channel(name)?.name);
    }
    let mut found = Vec::new();
    for name in file.names() {
        let is_of = |asked: &String| detector_of_channel(name).is_none_or(|known| known == *asked);
        if options.detector.as_ref().is_none_or(is_of) && file.channel(name)?.encoding.is_float() {
            found.push(name);
        }
    }
    let strain: Vec<&str> = found.iter().copied().filter(|name| name.ends_with(STRAIN)).collect();
    match (found.as_slice(), strain.as_slice()) {
        ([only], _) | (_, [only]) => Ok((*only).to_owned()),
        _ => {
            let names: Vec<&str> = file.names().collect();
            Err(ask_for_channel(path, &names))
        }
    }
}

/// Returns the name of a strain channel's mask, if present.
fn mask_name(file: &Gwf, name: &str, ending: &str) -> Option<String> {
    let mask = format!("{}{ending}", name.strip_suffix(STRAIN)?);
    file.names().any(|name| name == mask).then_some(mask)
}

/// Reads a strain channel's mask: the first second and the numbers of each piece.
pub(super) fn mask_of(
    file: &Gwf,
    name: &str,
    ending: &str,
    path: &Path,
) -> Result<Vec<(i64, Vec<u32>)>> {
    let Some(mask) = mask_name(file, name, ending) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for piece in file.pieces(&mask)? {
        let fault = |why: String| Error::format(path, mask.as_str(), 0, why);
        let first_s = whole_second(piece.spacing_s, piece.start.s()).map_err(fault)?;
        if piece.samples > MAX_MASK {
            let why = format!("{} found, expected {MAX_MASK} at most", piece.samples);
            return Err(Error::format(path, mask.as_str(), 0, why));
        }
        let mut numbers = vec![0.0; piece.samples as usize];
        file.open_piece(&piece)?.read(&mut numbers)?;
        found.push((first_s, numbers.iter().map(|number| *number as u32).collect()));
    }
    Ok(found)
}

/// Masks of a channel that the options require.
struct Masks(Vec<(Vec<Piece>, u32)>);

impl Masks {
    fn new(file: &Gwf, path: &Path, name: &str, options: &OpenOptions) -> Result<Self> {
        let mut masks = Vec::new();
        let injections = Some(&options.required_injections).filter(|names| !names.is_empty());
        let wanted = [
            (QUALITY, &QUALITY_BITS[..], options.required_quality.as_ref()),
            (INJECTIONS, &INJECTION_BITS[..], injections),
        ];
        for (ending, known, asked) in wanted {
            let mask = mask_name(file, name, ending);
            let bit = |name: &str| known.iter().position(|(bit, _)| *bit == name);
            let names: Vec<&str> = match asked {
                Some(names) => names.iter().map(String::as_str).collect(),
                // Without a mask, all data are good.
                None if ending == QUALITY && mask.is_some() => DEFAULT_BITS.to_vec(),
                None => Vec::new(),
            };
            let mut wanted = 0_u32;
            for name in &names {
                let Some(bit) = bit(name) else {
                    let known: Vec<&str> = known.iter().map(|(bit, _)| *bit).collect();
                    let why = format!("{name} was requested, but there are {}", known.join(", "));
                    return Err(Error::format(path, ending, 0, why));
                };
                wanted |= 1 << bit;
            }
            match mask {
                Some(mask) if wanted != 0 => masks.push((file.pieces(&mask)?, wanted)),
                None if wanted != 0 => {
                    let why = format!(
                        "{} is asked for, but the file has no channel of such bits beside {name}",
                        names.join(", ")
                    );
                    return Err(Error::format(path, ending, 0, why));
                }
                _ => {}
            }
        }
        Ok(Self(masks))
    }

    /// Returns the masks of one frame's strain; a frame without masks has no good second.
    fn of_piece(&self, file: &Gwf, header: &StrainHeader, strain: &Piece) -> Result<Vec<Mask>> {
        let mut masks = Vec::with_capacity(self.0.len());
        for (pieces, wanted) in &self.0 {
            let Some(piece) = pieces.iter().find(|piece| piece.frame == strain.frame) else {
                masks.push(Mask::new([u64::from(header.rate_hz), 0], &[], *wanted));
                continue;
            };
            let fault = |why: String| Error::format(&header.path, "mask", 0, why);
            let late_s = strain.start.seconds_since(piece.start);
            let place = mask_steps(piece.spacing_s, late_s, header.rate_hz).map_err(fault)?;
            let needed = (strain.samples + place[1]).div_ceil(place[0]);
            if piece.samples < needed || piece.samples > MAX_MASK {
                let found = piece.samples;
                return Err(fault(format!("{found} steps found, expected {needed}")));
            }
            let mut numbers = vec![0.0; piece.samples as usize];
            file.open_piece(piece)?.read(&mut numbers)?;
            masks.push(Mask::new(place, &numbers, *wanted));
        }
        if let Some(flags) = file.flags(strain)? {
            let good: Vec<f64> =
                flags.iter().map(|flag| f64::from(u8::from(*flag == 0.0))).collect();
            masks.push(Mask::new([strain.samples / good.len() as u64, 0], &good, 1));
        }
        Ok(masks)
    }
}

/// Source of one frame's samples.
struct Source {
    header: StrainHeader,
    file: Arc<Gwf>,
    piece: Piece,
    masks: Vec<Mask>,
    next: u64,
    /// Opened at the first read.
    series: Option<Series>,
    cut: Option<String>,
}

impl Source {
    fn series(&mut self) -> Result<&mut Series> {
        match &mut self.series {
            Some(series) => Ok(series),
            none => Ok(none.insert(self.file.open_piece(&self.piece)?)),
        }
    }
}

impl StrainSource for Source {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        if self.next == self.piece.samples {
            // Free the buffers, so that a file of many frames holds those of only one.
            self.series = None;
            return Ok(0);
        }
        let count = self.series()?.read(samples)?;
        for (place, (sample, valid)) in samples[..count].iter_mut().zip(valid).enumerate() {
            let time = self.next + place as u64;
            *valid = self.piece.is_valid
                && sample.is_finite()
                && self.masks.iter().all(|mask| mask.is_good(time));
            if !*valid {
                *sample = 0.0;
            }
        }
        self.next += count as u64;
        Ok(count)
    }

    fn skip(&mut self, samples: u64) -> Result<u64> {
        let count = samples.min(self.piece.samples - self.next);
        // A whole frame is skipped without opening it.
        if self.next + count < self.piece.samples {
            self.series()?.skip(count)?;
        }
        self.next += count;
        Ok(count)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}
