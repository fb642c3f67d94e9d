//! Filter banks in HDF5: coefficients, template properties needed by a search, and the power spectrum.
//!
//! | path                       | contents                                                               |
//! |----------------------------|------------------------------------------------------------------------|
//! | `/` attributes             | `format`, `version`, `rate_hz`, `detector`, `comment`                  |
//! | `/options/name`, `value`   | design options, a number each                                          |
//! | `/psd/densities`           | one-sided power spectral density (`spacing_hz` its attribute)          |
//! | `/resampler/down`, `up`    | taps (`down_delay`, `up_delay` the attributes of `/resampler`)         |
//! | `/templates/NAME`          | one number (or the name) per template; masses, spins NaN if unknown    |
//! | `/templates/approximant`   | approximant of each waveform, empty if unknown; absent in older files  |
//! | `/filters/offset`          | index of each template's first filter, and the total                   |
//! | `/filters/halvings` ...    | `halvings`, `a`, `b`, `delay` of each filter                           |
//! | `/autocorrelation/offset`  | as `/filters/offset`, into `values`                                    |
//! | `/whitened/offset`         | as `/filters/offset`, into `values`                                    |
//! | `/left_out/index` ...      | `index`, `name`, `match` (NaN without one), `reason`, if any           |
//!
//! Complex numbers are compounds (r, i), as in h5py. Nothing is compressed: a write and a read preserve every bit.
//!
//! Invariant: templates that were read have finite numbers, and no read exceeds the size of the file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hdf5_pure::{
    AttrValue, DType, Dataset, FileBuilder, GroupBuilder, Layout, VlenStringReadOptions,
};
use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::atomic;
use crate::io::hdf5::{self, Built, Element, Input};
use crate::math::PowerSpectrum;
use crate::strain::{BankTemplate, Binary, Branch, Filter, LeftOut, Resampler, Template};
use crate::trace::{self, Work};

/// Value of the root attribute `format`.
const FORMAT: &str = "sidereal filter bank";

/// Version of the layout.
const VERSION: i64 = 1;

/// Contents of a filter bank file.
#[derive(Clone, Debug, PartialEq)]
pub struct BankFile<'a> {
    /// Sampling rate of the whitened strain.
    pub rate_hz: u32,
    /// Detector of the power spectrum; empty if none.
    pub detector: String,
    /// Origin of the bank, one line.
    pub comment: String,
    /// Design options: names and values.
    pub options: Vec<(String, f64)>,
    /// Power spectrum that whitens the templates.
    pub psd: PowerSpectrum,
    /// Resampling filters.
    pub resampler: Resampler,
    /// The templates.
    pub templates: Cow<'a, [BankTemplate]>,
    /// Candidate templates excluded from the bank.
    pub left_out: Vec<LeftOut>,
}

impl BankFile<'_> {
    /// Returns the value of an option, if present.
    pub fn option(&self, name: &str) -> Option<f64> {
        self.options.iter().find(|(own, _)| own == name).map(|(_, number)| *number)
    }
}

/// A numeric field of a template: data set name, getter and setter.
struct Number {
    name: &'static str,
    of: fn(&BankTemplate) -> f64,
    put: fn(&mut BankTemplate, f64),
}

macro_rules! number {
    ($field:ident) => {
        Number {
            name: stringify!($field),
            of: |template| template.$field,
            put: |template, value| template.$field = value,
        }
    };
}

/// Fields that every template has.
const NUMBERS: &[Number] = &[
    number!(fit),
    number!(placement_fit),
    number!(epsilon),
    number!(sigma_1mpc),
    number!(horizon_mpc),
    number!(peak_offset_s),
    number!(duration_s),
    number!(f_low_hz),
    number!(f_final_hz),
];

/// Fields of a template's binary; NaN if unknown.
const BINARY: [&str; 4] = ["mass1_msun", "mass2_msun", "spin1z", "spin2z"];

fn binary_numbers(binary: Option<&Binary>) -> [f64; 4] {
    binary.map_or([f64::NAN; 4], |own| [own.mass1_msun, own.mass2_msun, own.spin1z, own.spin2z])
}

fn complex_values(bytes: &[u8]) -> Vec<Complex<f32>> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let (pairs, _) = numbers.as_chunks::<2>();
    pairs
        .iter()
        .map(|[re, im]| Complex::new(f32::from_le_bytes(*re), f32::from_le_bytes(*im)))
        .collect()
}

/// Writes a filter bank; replaces an existing file.
///
/// # Errors
/// [`Error::Parameter`] if the bank has no template; [`Error::Io`].
pub fn write(path: &Path, bank: &BankFile<'_>) -> Result<()> {
    let _span = trace::span(Work::Write, "bank");
    if bank.templates.is_empty() {
        return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
    }
    atomic::write(path, &hdf5::finish(path, fill(bank))?)
}

fn fill(bank: &BankFile<'_>) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    let text = |text: &str| AttrValue::VarLenString(text.to_owned());
    builder.set_attr("format", text(FORMAT));
    builder.set_attr("version", AttrValue::I64(VERSION));
    builder.set_attr("rate_hz", AttrValue::I64(bank.rate_hz.into()));
    builder.set_attr("detector", text(&bank.detector));
    builder.set_attr("comment", text(&bank.comment));
    let mut options = builder.create_group("options");
    let names: Vec<&str> = bank.options.iter().map(|(name, _)| name.as_str()).collect();
    let numbers: Vec<f64> = bank.options.iter().map(|(_, number)| *number).collect();
    if !names.is_empty() {
        options.create_dataset("name").with_vlen_strings(&names);
        options.create_dataset("value").with_f64_data(&numbers);
    }
    builder.add_group(options.finish());
    let mut psd = builder.create_group("psd");
    psd.set_attr("spacing_hz", AttrValue::F64(bank.psd.spacing_hz()));
    psd.create_dataset("densities").with_f64_data(bank.psd.densities());
    builder.add_group(psd.finish());
    let mut resampler = builder.create_group("resampler");
    for (name, taps, delay) in [
        ("down", &bank.resampler.down, bank.resampler.down_delay),
        ("up", &bank.resampler.up, bank.resampler.up_delay),
    ] {
        resampler.set_attr(
            &format!("{name}_delay"),
            AttrValue::I64(u32::try_from(delay).unwrap_or(u32::MAX).into()),
        );
        if !taps.is_empty() {
            resampler.create_dataset(name).with_f32_data(taps);
        }
    }
    builder.add_group(resampler.finish());
    for (name, fill) in GROUPS {
        let mut group = builder.create_group(name);
        fill(&mut group, &bank.templates)?;
        builder.add_group(group.finish());
    }
    if !bank.left_out.is_empty() {
        let mut group = builder.create_group("left_out");
        left_out(&mut group, &bank.left_out);
        builder.add_group(group.finish());
    }
    Ok(builder)
}

type Fill = fn(&mut GroupBuilder, &[BankTemplate]) -> Built;

const GROUPS: [(&str, Fill); 4] = [
    ("templates", templates),
    ("filters", filters),
    ("autocorrelation", |group, all| values(group, all, |own| &own.autocorrelation)),
    ("whitened", |group, all| values(group, all, |own| &own.whitened)),
];

fn templates(group: &mut GroupBuilder, all: &[BankTemplate]) -> Built {
    let names: Vec<&str> = all.iter().map(|own| own.name.as_str()).collect();
    group.create_dataset("name").with_vlen_strings(&names);
    let approximants: Vec<&str> =
        all.iter().map(|own| own.approximant.as_deref().unwrap_or_default()).collect();
    group.create_dataset("approximant").with_vlen_strings(&approximants);
    for number in NUMBERS {
        let column: Vec<f64> = all.iter().map(number.of).collect();
        group.create_dataset(number.name).with_f64_data(&column);
    }
    for (place, name) in BINARY.iter().enumerate() {
        let column: Vec<f64> =
            all.iter().map(|own| binary_numbers(own.binary.as_ref())[place]).collect();
        group.create_dataset(name).with_f64_data(&column);
    }
    let norms: Vec<f32> = all.iter().map(|own| own.autocorrelation_norm).collect();
    group.create_dataset("autocorrelation_norm").with_f32_data(&norms);
    Ok(())
}

fn filters(group: &mut GroupBuilder, all: &[BankTemplate]) -> Built {
    offsets(group, all.iter().map(|own| own.filters.filters()));
    let branches = || all.iter().flat_map(|own| &own.filters.branches);
    let each: Vec<Filter> = branches().flat_map(|branch| branch.filters.iter().copied()).collect();
    if each.is_empty() {
        return Ok(());
    }
    let halvings = branches().flat_map(|own| vec![own.halvings; own.filters.len()]);
    let halvings: Vec<u32> = halvings.collect();
    let delays: Vec<u32> = each.iter().map(|filter| filter.delay).collect();
    group.create_dataset("halvings").with_u32_data(&halvings);
    group.create_dataset("delay").with_u32_data(&delays);
    let poles: Vec<_> = each.iter().map(|filter| filter.a).collect();
    let weights: Vec<_> = each.iter().map(|filter| filter.b).collect();
    complex(group, "a", std::iter::once(&poles[..]))?;
    complex(group, "b", std::iter::once(&weights[..]))
}

fn left_out(group: &mut GroupBuilder, all: &[LeftOut]) {
    let numbers = |of: fn(&LeftOut) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let texts = |of: fn(&LeftOut) -> &str| all.iter().map(of).collect::<Vec<&str>>();
    group.create_dataset("index").with_f64_data(&numbers(|one| one.index as f64));
    group.create_dataset("match").with_f64_data(&numbers(|one| one.fit.unwrap_or(f64::NAN)));
    group.create_dataset("name").with_vlen_strings(&texts(|one| &one.name));
    group.create_dataset("reason").with_vlen_strings(&texts(|one| &one.reason));
}

/// Writes the concatenated series of all templates.
fn values(
    group: &mut GroupBuilder,
    all: &[BankTemplate],
    of: fn(&BankTemplate) -> &Vec<Complex<f32>>,
) -> Built {
    offsets(group, all.iter().map(|own| of(own).len()));
    let is_empty = all.iter().all(|own| of(own).is_empty());
    if is_empty { Ok(()) } else { complex(group, "values", all.iter().map(|own| &of(own)[..])) }
}

/// Writes the offset of each template's part, and the total.
fn offsets(group: &mut GroupBuilder, lengths: impl Iterator<Item = usize>) {
    let ends = lengths.scan(0, |end, length| {
        *end += length as u64;
        Some(*end)
    });
    let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
    group.create_dataset("offset").with_u64_data(&offsets);
}

fn complex<'a>(
    group: &mut GroupBuilder,
    name: &str,
    pieces: impl Iterator<Item = &'a [Complex<f32>]> + Clone,
) -> Built {
    let mut bytes = Vec::with_capacity(pieces.clone().map(size_of_val).sum());
    pieces.for_each(|piece| hdf5::append_complex(&mut bytes, piece));
    let count = (bytes.len() / size_of::<Complex<f32>>()) as u64;
    let dataset = group.create_dataset(name);
    dataset.with_raw_data(Element::Complex.datatype()?, bytes, count);
    dataset.with_shape(&[count]);
    Ok(())
}

/// Maximum bytes of all names.
const MAX_TEXT: usize = 1 << 26;

/// Returns whether a file is HDF5 and declares a filter bank.
pub fn is_bank(path: &Path) -> bool {
    crate::io::hdf5::is_hdf5(path)
        && Reader::open(path).is_ok_and(|reader| reader.format().is_ok_and(|word| word == FORMAT))
}

/// Reads a filter bank.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] naming the data set or attribute for a file that is not a filter bank, has
/// another version, or is damaged or inconsistent.
pub fn read(path: &Path) -> Result<BankFile<'static>> {
    let _span = trace::span(Work::Read, "bank");
    let reader = Reader::open(path)?;
    let found = reader.format()?;
    if found != FORMAT {
        let why = format!("{found:?} found, expected {FORMAT:?}");
        return Err(reader.fault("format", why));
    }
    let version = reader.whole("", "version")?;
    if version != VERSION {
        return Err(reader.fault("version", format!("{version} found, expected {VERSION}")));
    }
    let rate = reader.whole("", "rate_hz")?;
    let rate_hz = u32::try_from(rate).ok().filter(|rate| *rate > 0).ok_or_else(|| {
        reader.fault("rate_hz", format!("{rate} found, expected a number above 0"))
    })?;
    let psd = PowerSpectrum::new(
        reader.real("psd", "spacing_hz")?,
        reader.reals("psd/densities", None, |density| !density.is_nan())?,
    );
    let taps = |name: &str| -> Result<(Vec<f32>, usize)> {
        let delay = reader.whole("resampler", &format!("{name}_delay"))?;
        let delay = u32::try_from(delay)
            .map(|delay| delay as usize)
            .map_err(|_| reader.fault(&format!("resampler/{name}_delay"), format!("{delay}")))?;
        Ok((reader.floats(&format!("resampler/{name}"), None, true)?, delay))
    };
    let ((down, down_delay), (up, up_delay)) = (taps("down")?, taps("up")?);
    Ok(BankFile {
        rate_hz,
        detector: reader.text("detector"),
        comment: reader.text("comment"),
        options: reader.options()?,
        psd: psd.map_err(|error| reader.fault("psd", error.to_string()))?,
        resampler: Resampler { down, down_delay, up, up_delay },
        templates: reader.templates()?.into(),
        left_out: reader.left_out()?,
    })
}

struct Reader {
    input: Input,
    root: HashMap<String, AttrValue>,
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        crate::io::check_seekable(path)?;
        let input = Input::open(path)?;
        let root = input.file.root().attrs().map_err(input.library("HDF5"))?;
        Ok(Self { input, root })
    }

    fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        self.input.fault(field, why)
    }

    fn format(&self) -> Result<&str> {
        let found = self.root.get("format").and_then(AttrValue::as_str);
        found.ok_or_else(|| self.fault("format", "no such attribute, so it is not a filter bank"))
    }

    fn text(&self, name: &str) -> String {
        self.root.get(name).and_then(AttrValue::as_str).unwrap_or_default().to_owned()
    }

    /// Returns an attribute of a group, or of the root.
    fn attribute(&self, group: &str, name: &str) -> Result<AttrValue> {
        let field = format!("{group}/{name}");
        let library = self.input.library(&field);
        let found = if group.is_empty() {
            self.root.get(name).cloned()
        } else {
            let attributes =
                self.input.file.group(group).map_err(library)?.attrs().map_err(library)?;
            attributes.get(name).cloned()
        };
        found.ok_or_else(|| self.fault(&field, "no such attribute"))
    }

    fn whole(&self, group: &str, name: &str) -> Result<i64> {
        let found = self.attribute(group, name)?.as_i64();
        found.ok_or_else(|| self.fault(&format!("{group}/{name}"), "expected a whole number"))
    }

    fn real(&self, group: &str, name: &str) -> Result<f64> {
        let found = self.attribute(group, name)?;
        match found {
            AttrValue::F64(number) => Ok(number),
            _ => Err(self.fault(&format!("{group}/{name}"), "expected a number of 64 bits")),
        }
    }

    /// Opens a contiguous one-dimensional data set inside the file and returns it with its length; `None` if absent.
    fn dataset(&self, name: &str) -> Result<Option<(Dataset, u64)>> {
        let library = self.input.library(name);
        let (group, leaf) = name.rsplit_once('/').unwrap_or(("", name));
        let parent = self.input.file.group(group).map_err(library)?;
        if !parent.datasets().map_err(library)?.iter().any(|own| own == leaf) {
            return Ok(None);
        }
        let dataset = parent.dataset(leaf).map_err(library)?;
        let shape = dataset.shape().map_err(library)?;
        let [elements] = shape[..] else {
            return Err(self.fault(name, format!("axes {shape:?} found, expected one")));
        };
        let width = dataset.element_size().map_err(library)?;
        if elements.checked_mul(width.max(1)).is_none_or(|bytes| bytes > self.input.bytes) {
            let why =
                format!("{elements} elements of {width} bytes in a file of {}", self.input.bytes);
            return Err(self.fault(name, why));
        }
        match dataset.layout().map_err(library)? {
            Layout::Compact { .. } | Layout::Contiguous { address: Some(_), .. } => {
                Ok(Some((dataset, elements)))
            }
            other => Err(self.fault(name, format!("layout {other} found, expected one piece"))),
        }
    }

    /// Reads all elements of a data set of this type and length through `take`; empty if absent.
    fn elements<T>(
        &self,
        name: &str,
        kind: &DType,
        length: Option<usize>,
        take: fn(&Dataset) -> std::result::Result<Vec<T>, hdf5_pure::Error>,
    ) -> Result<Vec<T>> {
        let library = self.input.library(name);
        let values = match self.dataset(name)? {
            None => Vec::new(),
            Some((dataset, elements)) => {
                let found = dataset.dtype().map_err(library)?;
                if found != *kind {
                    return Err(self.fault(name, format!("type {found} found, expected {kind}")));
                }
                let values = take(&dataset).map_err(library)?;
                if values.len() as u64 != elements {
                    let why = format!("{} of {elements} elements", values.len());
                    return Err(self.fault(name, why));
                }
                values
            }
        };
        match length {
            Some(length) if values.len() != length => {
                let why = format!("{} elements found, expected {length}", values.len());
                Err(self.fault(name, why))
            }
            _ => Ok(values),
        }
    }

    fn reals(&self, name: &str, length: Option<usize>, fits: fn(&f64) -> bool) -> Result<Vec<f64>> {
        let numbers = self.elements(name, &DType::F64, length, Dataset::read_f64)?;
        match numbers.iter().find(|number| !fits(number)) {
            Some(bad) => Err(self.fault(name, format!("{bad} found, expected a finite number"))),
            None => Ok(numbers),
        }
    }

    fn floats(&self, name: &str, length: Option<usize>, finite: bool) -> Result<Vec<f32>> {
        let numbers = self.elements(name, &DType::F32, length, Dataset::read_f32)?;
        match numbers.iter().find(|number| finite && !number.is_finite()) {
            Some(bad) => Err(self.fault(name, format!("{bad} found, expected a finite number"))),
            None => Ok(numbers),
        }
    }

    fn complex(&self, name: &str, length: usize) -> Result<Vec<Complex<f32>>> {
        Ok(self.complex_parts(name, &[0, length])?.swap_remove(0))
    }

    /// Reads the complex numbers between consecutive offsets, of which the last is the length.
    fn complex_parts(&self, name: &str, offsets: &[usize]) -> Result<Vec<Vec<Complex<f32>>>> {
        let library = self.input.library(name);
        let bytes = match self.dataset(name)? {
            None => Vec::new(),
            Some((dataset, _)) => {
                let expected = Element::Complex.datatype();
                let expected = expected.map_err(hdf5_pure::Error::Format).map_err(library)?;
                if dataset.datatype().map_err(library)? != expected {
                    return Err(self.fault(name, "expected a compound of two floats, r and i"));
                }
                dataset.read_raw().map_err(library)?
            }
        };
        let width = size_of::<Complex<f32>>();
        let (found, length) = (bytes.len() / width, offsets.last().copied().unwrap_or(0));
        if found != length {
            return Err(self.fault(name, format!("{found} elements found, expected {length}")));
        }
        let parts = offsets.windows(2).map(|ends| {
            let values = complex_values(&bytes[ends[0] * width..ends[1] * width]);
            match values.iter().find(|z| !z.is_finite()) {
                Some(bad) => Err(self.fault(name, format!("{bad} found, expected finite numbers"))),
                None => Ok(values),
            }
        });
        parts.collect()
    }

    fn names(&self, name: &str) -> Result<Vec<String>> {
        let Some((dataset, _)) = self.dataset(name)? else { return Ok(Vec::new()) };
        let library = self.input.library(name);
        match dataset.dtype().map_err(library)? {
            DType::VariableLengthString => {
                let bounds = VlenStringReadOptions::new()
                    .with_max_payload_bytes(MAX_TEXT.min(self.input.bytes as usize));
                dataset.read_vlen_strings(bounds).map_err(library)
            }
            other => Err(self.fault(name, format!("type {other} found, expected text"))),
        }
    }

    fn options(&self) -> Result<Vec<(String, f64)>> {
        let names = self.names("options/name")?;
        let numbers = self.reals("options/value", Some(names.len()), |_| true)?;
        Ok(names.into_iter().zip(numbers).collect())
    }

    fn templates(&self) -> Result<Vec<BankTemplate>> {
        let names = self.names("templates/name")?;
        if names.is_empty() {
            return Err(self.fault("templates/name", "no templates found, expected at least 1"));
        }
        let count = names.len();
        let record = |name| BankTemplate { name, ..BankTemplate::default() };
        let mut all: Vec<BankTemplate> = names.into_iter().map(record).collect();
        for number in NUMBERS {
            let field = format!("templates/{}", number.name);
            let column = self.reals(&field, Some(count), |number| number.is_finite())?;
            all.iter_mut().zip(column).for_each(|(own, value)| (number.put)(own, value));
        }
        let norms = self.floats("templates/autocorrelation_norm", Some(count), true)?;
        all.iter_mut().zip(norms).for_each(|(own, norm)| own.autocorrelation_norm = norm);
        self.binaries(&mut all)?;
        self.approximants(&mut all)?;
        self.filters(&mut all)?;
        self.values("autocorrelation", &mut all, |own| &mut own.autocorrelation)?;
        self.values("whitened", &mut all, |own| &mut own.whitened)?;
        Ok(all)
    }

    /// Reads the records of the templates left out; none for a file without the group.
    fn left_out(&self) -> Result<Vec<LeftOut>> {
        if self.input.file.group("left_out").is_err() {
            return Ok(Vec::new());
        }
        let is_index = |index: &f64| (0.0..1e9).contains(index) && index.fract() == 0.0;
        let indices = self.reals("left_out/index", None, is_index)?;
        let count = indices.len();
        let fits = self.reals("left_out/match", Some(count), |fit| !fit.is_infinite())?;
        let texts = |name: &str| -> Result<Vec<String>> {
            let texts = self.names(name)?;
            if texts.len() == count {
                return Ok(texts);
            }
            Err(self.fault(name, format!("{} elements found, expected {count}", texts.len())))
        };
        let texts = texts("left_out/name")?.into_iter().zip(texts("left_out/reason")?);
        let numbers = indices.into_iter().zip(fits);
        let record = |((index, fit), (name, reason)): ((f64, f64), (String, String))| {
            let fit = (!fit.is_nan()).then_some(fit);
            LeftOut { index: index as usize, name, fit, reason }
        };
        Ok(numbers.zip(texts).map(record).collect())
    }

    fn binaries(&self, all: &mut [BankTemplate]) -> Result<()> {
        let column = |name: &&str| {
            self.reals(&format!("templates/{name}"), Some(all.len()), |number| {
                !number.is_infinite()
            })
        };
        let columns = BINARY.iter().map(column).collect::<Result<Vec<_>>>()?;
        for (place, own) in all.iter_mut().enumerate() {
            let [mass1_msun, mass2_msun, spin1z, spin2z] = [0, 1, 2, 3].map(|c| columns[c][place]);
            let binary = Binary { mass1_msun, mass2_msun, spin1z, spin2z };
            let known = [mass1_msun, mass2_msun, spin1z, spin2z].iter().all(|x| x.is_finite());
            own.binary = known.then_some(binary);
        }
        Ok(())
    }

    /// Reads the approximants; absent in files of earlier versions.
    fn approximants(&self, all: &mut [BankTemplate]) -> Result<()> {
        let field = "templates/approximant";
        let names = self.names(field)?;
        if !names.is_empty() && names.len() != all.len() {
            let why = format!("{} elements found, expected {}", names.len(), all.len());
            return Err(self.fault(field, why));
        }
        for (own, name) in all.iter_mut().zip(names) {
            own.approximant = Some(name).filter(|name| !name.is_empty());
        }
        Ok(())
    }

    /// Reads the offsets of the templates' parts in a group's data sets, the total last.
    fn offsets(&self, group: &str, templates: usize) -> Result<Vec<usize>> {
        let name = format!("{group}/offset");
        let offsets = self.elements(&name, &DType::U64, Some(templates + 1), Dataset::read_u64)?;
        // The file's size bounds every count.
        let fits = offsets[0] == 0 && offsets.is_sorted() && offsets[templates] <= self.input.bytes;
        if !fits {
            return Err(self.fault(&name, "expected numbers that rise from 0"));
        }
        Ok(offsets.into_iter().map(|offset| offset as usize).collect())
    }

    fn filters(&self, all: &mut [BankTemplate]) -> Result<()> {
        let offsets = self.offsets("filters", all.len())?;
        let length = offsets[all.len()];
        let whole = |name: &str| {
            self.elements(&format!("filters/{name}"), &DType::U32, Some(length), Dataset::read_u32)
        };
        let (halvings, delays) = (whole("halvings")?, whole("delay")?);
        let (poles, weights) =
            (self.complex("filters/a", length)?, self.complex("filters/b", length)?);
        for (own, ends) in all.iter_mut().zip(offsets.windows(2)) {
            own.filters =
                template((ends[0]..ends[1]).map(|k| {
                    (halvings[k], Filter { a: poles[k], b: weights[k], delay: delays[k] })
                }));
        }
        Ok(())
    }

    fn values(
        &self,
        group: &str,
        all: &mut [BankTemplate],
        of: fn(&mut BankTemplate) -> &mut Vec<Complex<f32>>,
    ) -> Result<()> {
        let offsets = self.offsets(group, all.len())?;
        let parts = self.complex_parts(&format!("{group}/values"), &offsets)?;
        all.iter_mut().zip(parts).for_each(|(own, values)| *of(own) = values);
        Ok(())
    }
}

/// Sorts filters with their halvings into branches.
fn template(filters: impl Iterator<Item = (u32, Filter)>) -> Template {
    let mut branches: BTreeMap<u32, Vec<Filter>> = BTreeMap::new();
    for (halvings, filter) in filters {
        branches.entry(halvings).or_default().push(filter);
    }
    let branch = |(halvings, filters)| Branch { halvings, filters };
    Template { branches: branches.into_iter().map(branch).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, filters: usize, known: bool) -> BankTemplate {
        let filter = |k: usize| {
            let (a, b) = (Complex::new(0.99 - k as f32 * 1e-3, 0.1), -(k as f32) / 3.0);
            let filter = Filter { a, b: Complex::new(1e-30, b), delay: 17 * k as u32 };
            ((k % 4) as u32, filter)
        };
        BankTemplate {
            name: name.to_owned(),
            binary: known.then(|| Binary { spin1z: -0.3, ..Binary::of_masses(1.4, 1.35) }),
            approximant: known.then(|| "IMRPhenomD".to_owned()),
            filters: template((0..filters).map(filter)),
            fit: 0.991,
            placement_fit: 0.977,
            epsilon: 0.02,
            sigma_1mpc: 1234.5,
            horizon_mpc: 154.3,
            autocorrelation: (0..5).map(|k| Complex::new(k as f32, 0.25)).collect(),
            autocorrelation_norm: 3.75,
            peak_offset_s: -0.0157,
            duration_s: 61.8,
            f_low_hz: 30.0,
            f_final_hz: 1571.0,
            whitened: if known { vec![Complex::new(0.5, -0.5); 9] } else { Vec::new() },
        }
    }

    fn bank() -> BankFile<'static> {
        BankFile {
            rate_hz: 4096,
            detector: "H1".to_owned(),
            comment: "a test".to_owned(),
            options: vec![("f_low_hz".to_owned(), 30.0), ("epsilon".to_owned(), 0.1 + 0.2)],
            psd: PowerSpectrum::new(0.25, vec![f64::INFINITY, 1e-46, 3e-46]).expect("a spectrum"),
            resampler: Resampler {
                down: vec![0.25, 0.5, 0.25],
                down_delay: 1,
                up: vec![1.0, 2.0],
                up_delay: 3,
            },
            templates: vec![
                record("1.4+1.35", 12, true),
                record("", 1, false),
                record("ü", 3, true),
            ]
            .into(),
            left_out: vec![
                LeftOut {
                    index: 2,
                    name: "30+30".to_owned(),
                    fit: Some(0.5),
                    reason: "low".to_owned(),
                },
                LeftOut { index: 4, ..LeftOut::default() },
            ],
        }
    }

    #[test]
    fn what_is_written_reads_back_bit_by_bit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bank.h5");
        write(&path, &bank()).expect("a file");
        assert!(is_bank(&path));
        let again = read(&path).expect("a bank");
        assert_eq!(again, bank());
        assert_eq!(again.option("epsilon"), Some(0.1 + 0.2));
        let mut bare = bank();
        bare.options.clear();
        bare.left_out.clear();
        bare.resampler = Resampler::default();
        bare.templates.to_mut().iter_mut().for_each(|own| own.whitened.clear());
        write(&path, &bare).expect("a file");
        assert_eq!(read(&path).expect("a bank"), bare);
        bare.templates.to_mut().clear();
        assert!(matches!(write(&path, &bare), Err(Error::Parameter { .. })));
    }

    #[test]
    fn other_files_versions_and_spoilt_banks_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bank.h5");
        let why = |path: &std::path::Path| read(path).expect_err("a fault").to_string();
        assert!(why(&path).contains("bank.h5"));
        std::fs::write(&path, b"no HDF5 at all").expect("a file");
        assert!(why(&path).contains("HDF5") && !is_bank(&path));
        let other = |format: &str, version: i64| {
            let mut builder = hdf5_pure::FileBuilder::new();
            builder.set_attr("format", hdf5_pure::AttrValue::VarLenString(format.to_owned()));
            builder.set_attr("version", hdf5_pure::AttrValue::I64(version));
            std::fs::write(&path, builder.finish().expect("bytes")).expect("a file");
            why(&path)
        };
        assert!(other("something", 1).contains("\"something\" found"));
        assert!(other(FORMAT, 2).contains("2 found, expected 1"));
        assert!(other(FORMAT, 1).contains("rate_hz"));
        write(&path, &bank()).expect("a file");
        let bytes = std::fs::read(&path).expect("bytes");
        for end in (0..bytes.len()).step_by(97) {
            std::fs::write(&path, &bytes[..end]).expect("a file");
            assert!(read(&path).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bank.h5");
        let mut spoilt = bank();
        spoilt.templates.to_mut()[2].filters.branches[1].filters[0].b.im = f32::NAN;
        write(&path, &spoilt).expect("a file");
        assert!(read(&path).expect_err("a fault").to_string().contains("filters/b"));
    }
}
