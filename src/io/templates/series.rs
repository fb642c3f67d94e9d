//! Time series in an HDF5 file: plus and cross as two data sets, as rows of one data set, complex, or plus alone.

use num_complex::Complex64;
use rustfft::FftPlanner;

use super::binaries;
use super::hdf5::{Array, Input, Numbers};
use crate::error::{Error, Result};
use crate::strain::{Binary, Waveform};

/// Values for properties that a file does not store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TemplateOptions {
    /// Sampling rate of series without one.
    pub rate_hz: Option<u32>,
    /// Source distance in Mpc of series without one; 1 by default.
    pub distance_mpc: Option<f64>,
}

/// Names of the two polarizations, ignoring case.
const PAIRS: [[&str; 2]; 5] =
    [["plus", "cross"], ["h_plus", "h_cross"], ["hplus", "hcross"], ["hp", "hc"], ["h+", "hx"]];

/// Names of data sets whose two rows are plus and cross.
const TWO_ROWS: [&str; 5] = ["template", "waveform", "strain", "h", "polarizations"];

/// Attributes with the sampling rate.
const RATES: [&str; 7] =
    ["rate", "rate_hz", "sample_rate", "sampling_rate", "fs", "srate", "sample_rate_hz"];

/// Attributes with the sampling time.
const STEPS: [&str; 5] = ["dt", "delta_t", "deltaT", "Xspacing", "dx"];

/// Attributes that identify a PyCBC series, in time and in frequency.
const PYCBC_TIME: &str = "delta_t";
const PYCBC_FREQUENCY: &str = "delta_f";

/// Maximum samples of a series of plus alone, whose cross is constructed.
const MAX_PLUS: usize = 1 << 25;

/// Attributes with the distance in Mpc.
const DISTANCES: [&str; 3] = ["distance_mpc", "distance", "dist_mpc"];

/// Attributes with the fields of [`Binary`].
const BODIES: [[&str; 3]; 4] = [
    ["mass1", "m1", "mass1_msun"],
    ["mass2", "m2", "mass2_msun"],
    ["spin1z", "a1", "chi1"],
    ["spin2z", "a2", "chi2"],
];

/// Maximum number of data sets named in an error.
const TOLD: usize = 20;

/// Maximum number of samples of all series.
const MAX_SAMPLES: u64 = 1 << 27;

/// Reads all series of a file.
pub(super) fn read(file: &Input, options: &TemplateOptions) -> Result<Vec<Waveform>> {
    let mut search = Search { file, options, found: Vec::new(), samples: 0 };
    let mut told = Vec::new();
    for group in file.groups()? {
        let names = file.datasets(&group)?;
        search.group(&group, &names)?;
        if told.len() < TOLD {
            told.extend(names.iter().map(|name| file.describe(&full_name(&group, name))));
        }
    }
    if search.found.is_empty() {
        told.truncate(TOLD);
        let found = if told.is_empty() { "no data sets".to_string() } else { told.join(", ") };
        let why = format!(
            "found {found}; expected data sets plus and cross, one of two rows named template, complex series, a TimeSeries of \
             PyCBC, or masses mass1 and mass2"
        );
        return Err(file.fault("templates", why));
    }
    Ok(search.found)
}

struct Search<'a> {
    file: &'a Input,
    options: &'a TemplateOptions,
    found: Vec<Waveform>,
    samples: u64,
}

impl Search<'_> {
    /// Reads the series of one group.
    fn group(&mut self, group: &str, names: &[String]) -> Result<()> {
        let find = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
        for [plus, cross] in PAIRS {
            match (find(plus), find(cross)) {
                (Some(plus), Some(cross)) => self.pair(group, plus, cross)?,
                (None, None) => {}
                (Some(one), None) | (None, Some(one)) => {
                    let other = if one.eq_ignore_ascii_case(plus) { cross } else { plus };
                    let why = format!("found without {other}, expected both polarizations");
                    return Err(self.file.fault(&full_name(group, one), why));
                }
            }
        }
        for name in names {
            let full = full_name(group, name);
            if !self.file.is_series(&full) {
                continue;
            }
            if self.file.attribute(&full, PYCBC_FREQUENCY).is_some() {
                let why = "found a PyCBC FrequencySeries, expected a TimeSeries: save its to_timeseries()";
                return Err(self.file.fault(&full, why));
            }
            if self.file.is_complex(&full) {
                self.complex(group, name)?;
            } else if self.is_plus(&full, name) {
                self.plus(group, name)?;
            } else if TWO_ROWS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                self.two_rows(group, name)?;
            }
        }
        Ok(())
    }

    /// Reads plus and cross from two data sets, with one series or one series per row.
    fn pair(&mut self, group: &str, plus: &str, cross: &str) -> Result<()> {
        let (plus, cross) = (full_name(group, plus), full_name(group, cross));
        let (first, second) = (self.file.numbers(&plus)?, self.file.numbers(&cross)?);
        if first.shape != second.shape {
            let why =
                format!("axes {:?}, expected {:?} as those of {plus}", second.shape, first.shape);
            return Err(self.file.fault(&cross, why));
        }
        let (rows, columns) = first.rows();
        let (first, second) = (self.reals(first, &plus)?, self.reals(second, &cross)?);
        for row in 0..rows {
            let range = row * columns..(row + 1) * columns;
            let samples = joined(&first[range.clone()], &second[range]);
            let name = self.name(group, "", (rows > 1).then_some(row));
            self.take(name, [&plus, group], samples)?;
        }
        Ok(())
    }

    /// Reads plus and cross from rows (or columns) of one data set.
    fn two_rows(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let shape = self.file.shape(&full)?;
        let samples = match shape[..] {
            [2, _] => {
                let rows = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
                let (plus, cross) = rows.split_at(rows.len() / 2);
                joined(plus, cross)
            }
            [_, 2] => {
                let pairs = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
                pairs.chunks_exact(2).map(|pair| Complex64::new(pair[0], -pair[1])).collect()
            }
            _ => {
                let why = format!("axes {shape:?} found, expected two rows, plus and cross");
                return Err(self.file.fault(&full, why));
            }
        };
        let label = self.name(group, "", None);
        self.take(label, [&full, group], samples)
    }

    /// Returns whether a data set is a real PyCBC TimeSeries that is not one of a pair of polarizations.
    fn is_plus(&self, full: &str, name: &str) -> bool {
        let is_named = |known: &&str| name.eq_ignore_ascii_case(known);
        self.file.attribute(full, PYCBC_TIME).is_some()
            && self.file.shape(full).is_ok_and(|shape| shape.len() == 1)
            && !PAIRS.iter().flatten().any(is_named)
    }

    /// Reads plus alone; cross is that of a face-on source, a quarter cycle behind at all frequencies.
    fn plus(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let numbers = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
        let bounds =
            |is: fn(&f64) -> bool| (numbers.iter().position(is), numbers.iter().rposition(is));
        let (Some(first), Some(last)) = bounds(|h| *h != 0.0) else {
            return Err(self.file.fault(&full, "found nothing but zeros, expected a waveform"));
        };
        let plus = &numbers[first..=last];
        if plus.len() > MAX_PLUS {
            let why = format!("{} samples found, expected {MAX_PLUS} at most", plus.len());
            return Err(self.file.fault(&full, why));
        }
        let label = self.name(group, name, None);
        self.take(label, [&full, group], with_cross(plus))
    }

    /// Reads a complex series, or one per row.
    fn complex(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let array = self.file.numbers(&full)?;
        let (rows, columns) = array.rows();
        let Numbers::Complex(numbers) = array.numbers else { return Ok(()) };
        for row in 0..rows {
            let samples = numbers[row * columns..(row + 1) * columns].to_vec();
            let label = self.name(group, name, (rows > 1).then_some(row));
            self.take(label, [&full, group], samples)?;
        }
        Ok(())
    }

    fn reals(&self, array: Array, name: &str) -> Result<Vec<f64>> {
        match array.numbers {
            Numbers::Real(numbers) => Ok(numbers),
            Numbers::Complex(_) => {
                Err(self.file.fault(name, "complex numbers found, expected real ones"))
            }
        }
    }

    /// Names a series by its group (or, in the root group, its file), data set and row.
    fn name(&self, group: &str, dataset: &str, row: Option<usize>) -> String {
        let stem = self.file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut name = if group.is_empty() { stem.unwrap_or_default() } else { group.to_string() };
        for part in [dataset.to_string(), row.map_or_else(String::new, |row| row.to_string())] {
            if !part.is_empty() {
                name = format!("{name}_{part}");
            }
        }
        name
    }

    /// Makes a waveform from samples; `objects` may carry its attributes.
    fn take(&mut self, name: String, objects: [&str; 2], samples: Vec<Complex64>) -> Result<()> {
        let [dataset, group] = objects;
        self.samples = self.samples.saturating_add(samples.len() as u64);
        let most = MAX_SAMPLES.min(self.file.most_bytes() / size_of::<Complex64>() as u64);
        if self.samples > most {
            let why = format!("more than {most} samples in all");
            return Err(self.file.fault(dataset, why));
        }
        let objects = [dataset, group, "meta", ""];
        let rate_hz = self.rate(&objects)?;
        let distance = first(self.file, &objects, &DISTANCES);
        let distance_mpc = distance.or(self.options.distance_mpc).unwrap_or(1.0);
        let waveform = Waveform::new(
            name,
            binary(self.file, &objects),
            rate_hz,
            trimmed(samples),
            distance_mpc,
        );
        // Report invalid samples as an error of the file.
        let waveform = waveform.map_err(|error| self.file.fault(dataset, error.to_string()))?;
        self.found.push(waveform);
        Ok(())
    }

    fn rate(&self, objects: &[&str; 4]) -> Result<u32> {
        let step = first(self.file, objects, &STEPS).map(|seconds| 1.0 / seconds);
        let rate = first(self.file, objects, &RATES).or(step);
        match (rate, self.options.rate_hz) {
            (Some(hertz), _) => {
                let whole = hertz.round();
                // A single-precision sampling time is accurate to 1e-7.
                let is_whole = (hertz - whole).abs() <= 1e-6 * whole;
                if !is_whole || !(1.0..=f64::from(1 << 30)).contains(&whole) {
                    let why =
                        format!("{hertz} Hz found, expected a whole number of samples a second");
                    return Err(self.file.fault("rate", why));
                }
                Ok(whole as u32)
            }
            (None, Some(rate_hz)) => Ok(rate_hz),
            (None, None) => {
                let why = format!(
                    "no rate found: expected an attribute {} or {} of {}, its group, a group meta or the file, or the \
                     rate as an option",
                    RATES.join(", "),
                    STEPS.join(", "),
                    objects[0]
                );
                Err(Error::format(self.file.path(), "rate", 0, why))
            }
        }
    }
}

/// Returns a data set's path within the file.
fn full_name(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_string() } else { format!("{group}/{name}") }
}

/// Computes `h_plus - i h_cross`.
fn joined(plus: &[f64], cross: &[f64]) -> Vec<Complex64> {
    plus.iter().zip(cross).map(|(plus, cross)| Complex64::new(*plus, -cross)).collect()
}

/// Computes `h_plus - i h_cross` from its real part by keeping only negative frequencies, so that the phase
/// decreases.
fn with_cross(plus: &[f64]) -> Vec<Complex64> {
    let points = (2 * plus.len()).next_power_of_two();
    let mut series: Vec<Complex64> = plus.iter().map(|h| Complex64::new(*h, 0.0)).collect();
    series.resize(points, Complex64::ZERO);
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(points).process(&mut series);
    let scale = 1.0 / points as f64;
    for (bin, value) in series.iter_mut().enumerate() {
        let is_shared = bin == 0 || bin == points / 2;
        *value *= if is_shared {
            scale
        } else if bin < points / 2 {
            0.0
        } else {
            2.0 * scale
        };
    }
    planner.plan_fft_inverse(points).process(&mut series);
    series.truncate(plus.len());
    series.iter_mut().zip(plus).for_each(|(h, plus)| h.re = *plus);
    series
}

/// Removes the zeros at both ends, which are useless to a filter.
fn trimmed(mut samples: Vec<Complex64>) -> Vec<Complex64> {
    let is_something = |sample: &Complex64| *sample != Complex64::ZERO;
    let end = samples.iter().rposition(is_something).map_or(0, |last| last + 1);
    samples.truncate(end);
    let start = samples.iter().position(is_something).unwrap_or(0);
    samples.split_off(start)
}

/// Returns the first of these attributes that any object has.
fn first(file: &Input, objects: &[&str], names: &[&str]) -> Option<f64> {
    let mut all = objects.iter().flat_map(|object| names.iter().map(move |name| (object, name)));
    all.find_map(|(object, name)| file.attribute(object, name))
}

/// Returns the binary, if the attributes have both masses and valid values.
fn binary(file: &Input, objects: &[&str; 4]) -> Option<Binary> {
    let [mass1, mass2, spin1z, spin2z] = BODIES.map(|names| first(file, objects, &names));
    let numbers = [mass1?, mass2?, spin1z.unwrap_or(0.0), spin2z.unwrap_or(0.0)];
    binaries::fault(&numbers).is_none().then(|| binaries::binary(numbers))
}
