//! Reads a filter bank; allocations are bounded by the file's size.

use std::collections::HashMap;
use std::path::Path;

use hdf5_pure::{AttrValue, DType, Dataset, File, Layout, VlenStringReadOptions};
use num_complex::Complex;

use super::contents::{BINARY, NUMBERS, complex_type, complex_values};
use super::{
    BankFile, FORMAT, FilterRecord, LeftOutRecord, ResamplerRecord, TemplateRecord, VERSION,
};
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Binary;

/// Maximum bytes of all names.
const MAX_TEXT: usize = 1 << 26;

/// Returns whether a file is HDF5 and declares a filter bank.
pub fn is_bank(path: &Path) -> bool {
    hdf5_pure::is_hdf5(path).unwrap_or(false)
        && Reader::open(path).is_ok_and(|reader| reader.format().is_ok_and(|word| word == FORMAT))
}

/// Reads a filter bank.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] naming the data set or attribute for a file that is not a filter bank, has
/// another version, or is damaged or inconsistent.
pub fn read(path: &Path) -> Result<BankFile> {
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
    let taps = |name: &str| -> Result<(Vec<f32>, u32)> {
        let delay = reader.whole("resampler", &format!("{name}_delay"))?;
        let delay = u32::try_from(delay)
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
        resampler: ResamplerRecord { down, down_delay, up, up_delay },
        templates: reader.templates()?,
        left_out: reader.left_out()?,
    })
}

struct Reader<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
    root: HashMap<String, AttrValue>,
}

impl<'a> Reader<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let fault = |error: hdf5_pure::Error| Error::format(path, "HDF5", 0, error.to_string());
        crate::io::check_seekable(path)?;
        let bytes = std::fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
        let file = File::open_streaming(path).map_err(fault)?;
        let root = file.root().attrs().map_err(fault)?;
        Ok(Self { path, file, bytes, root })
    }

    fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        Error::format(self.path, field, 0, why)
    }

    fn format(&self) -> Result<&str> {
        let found = self.root.get("format").and_then(AttrValue::as_str);
        found.ok_or_else(|| self.fault("format", "no such attribute, so it is no filter bank"))
    }

    fn text(&self, name: &str) -> String {
        self.root.get(name).and_then(AttrValue::as_str).unwrap_or_default().to_owned()
    }

    /// Returns an attribute of a group, or of the root.
    fn attribute(&self, group: &str, name: &str) -> Result<AttrValue> {
        let field = format!("{group}/{name}");
        let library = |error: hdf5_pure::Error| self.fault(&field, error.to_string());
        let found = if group.is_empty() {
            self.root.get(name).cloned()
        } else {
            let attributes = self.file.group(group).map_err(library)?.attrs().map_err(library)?;
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
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
        let (group, leaf) = name.rsplit_once('/').unwrap_or(("", name));
        let parent = self.file.group(group).map_err(library)?;
        if !parent.datasets().map_err(library)?.iter().any(|own| own == leaf) {
            return Ok(None);
        }
        let dataset = parent.dataset(leaf).map_err(library)?;
        let shape = dataset.shape().map_err(library)?;
        let [elements] = shape[..] else {
            return Err(self.fault(name, format!("axes {shape:?} found, expected one")));
        };
        let width = dataset.element_size().map_err(library)?;
        if elements.checked_mul(width.max(1)).is_none_or(|bytes| bytes > self.bytes) {
            let why = format!("{elements} elements of {width} bytes in a file of {}", self.bytes);
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
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
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
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
        let values = match self.dataset(name)? {
            None => Vec::new(),
            Some((dataset, _)) => {
                let expected = complex_type().map_err(|error| {
                    self.fault(name, hdf5_pure::Error::Format(error).to_string())
                })?;
                if dataset.datatype().map_err(library)? != expected {
                    return Err(self.fault(name, "expected a compound of two floats, r and i"));
                }
                complex_values(&dataset.read_raw().map_err(library)?)
            }
        };
        if values.len() != length {
            let why = format!("{} elements found, expected {length}", values.len());
            return Err(self.fault(name, why));
        }
        match values.iter().find(|z| !z.is_finite()) {
            Some(bad) => Err(self.fault(name, format!("{bad} found, expected finite numbers"))),
            None => Ok(values),
        }
    }

    fn names(&self, name: &str) -> Result<Vec<String>> {
        let Some((dataset, _)) = self.dataset(name)? else { return Ok(Vec::new()) };
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
        match dataset.dtype().map_err(library)? {
            DType::VariableLengthString => {
                let bounds = VlenStringReadOptions::new()
                    .with_max_payload_bytes(MAX_TEXT.min(self.bytes as usize));
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

    fn templates(&self) -> Result<Vec<TemplateRecord>> {
        let names = self.names("templates/name")?;
        if names.is_empty() {
            return Err(self.fault("templates/name", "no templates found, expected at least 1"));
        }
        let count = names.len();
        let record = |name| TemplateRecord { name, ..TemplateRecord::default() };
        let mut all: Vec<TemplateRecord> = names.into_iter().map(record).collect();
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

    /// Returns no records for a file without the group.
    fn left_out(&self) -> Result<Vec<LeftOutRecord>> {
        if self.file.group("left_out").is_err() {
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
            LeftOutRecord { index: index as usize, name, fit, reason }
        };
        Ok(numbers.zip(texts).map(record).collect())
    }

    fn binaries(&self, all: &mut [TemplateRecord]) -> Result<()> {
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
    fn approximants(&self, all: &mut [TemplateRecord]) -> Result<()> {
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
        let fits = offsets[0] == 0 && offsets.is_sorted() && offsets[templates] <= self.bytes;
        if !fits {
            return Err(self.fault(&name, "expected numbers that rise from 0"));
        }
        Ok(offsets.into_iter().map(|offset| offset as usize).collect())
    }

    fn filters(&self, all: &mut [TemplateRecord]) -> Result<()> {
        let offsets = self.offsets("filters", all.len())?;
        let length = offsets[all.len()];
        let whole = |name: &str| {
            self.elements(&format!("filters/{name}"), &DType::U32, Some(length), Dataset::read_u32)
        };
        let (halvings, delays) = (whole("halvings")?, whole("delay")?);
        let (poles, weights) =
            (self.complex("filters/a", length)?, self.complex("filters/b", length)?);
        for (own, ends) in all.iter_mut().zip(offsets.windows(2)) {
            let filter = |k: usize| FilterRecord {
                halvings: halvings[k],
                a: poles[k],
                b: weights[k],
                delay: delays[k],
            };
            own.filters = (ends[0]..ends[1]).map(filter).collect();
        }
        Ok(())
    }

    fn values(
        &self,
        group: &str,
        all: &mut [TemplateRecord],
        of: fn(&mut TemplateRecord) -> &mut Vec<Complex<f32>>,
    ) -> Result<()> {
        let offsets = self.offsets(group, all.len())?;
        let values = self.complex(&format!("{group}/values"), offsets[all.len()])?;
        for (own, ends) in all.iter_mut().zip(offsets.windows(2)) {
            *of(own) = values[ends[0]..ends[1]].to_vec();
        }
        Ok(())
    }
}
