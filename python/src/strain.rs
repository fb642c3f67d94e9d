//! Power spectra and whitening of strain.

use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use sidereal::math::PowerSpectrum;
use sidereal::spiir::whiten::{self, Average, Method, WelchOptions, Whitener, welch};

use crate::arguments::{Unit, kind};
use crate::arrays::{Readable, empty};
use crate::errors::{detached, raised, refused};

/// Samples between two checks for signals.
const PIECE: usize = 1 << 20;

/// One-sided power spectral density at equally spaced frequencies from 0 Hz on.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Psd {
    pub(crate) spectrum: PowerSpectrum,
}

#[pymethods]
impl Psd {
    /// Makes a spectrum from the distance of its frequencies in Hz and its densities.
    #[new]
    fn new(df: &Bound<'_, PyAny>, densities: &Bound<'_, PyAny>) -> PyResult<Self> {
        let df = Unit::Hertz.number("df", df)?;
        let densities = Unit::One.numbers("densities", densities)?;
        Ok(Self { spectrum: PowerSpectrum::new(df, densities).map_err(raised)? })
    }

    /// Distance of the frequencies, Hz.
    #[getter]
    fn df(&self) -> f64 {
        self.spectrum.spacing_hz()
    }

    /// Frequencies, Hz; a float64 array.
    #[getter]
    fn frequencies<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let spacing = self.spectrum.spacing_hz();
        let bins = self.spectrum.densities().len();
        (0..bins).map(|bin| bin as f64 * spacing).collect::<Vec<_>>().into_pyarray(py)
    }

    /// Densities in the squared unit of the samples per Hz; a float64 array.
    #[getter]
    fn densities<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, self.spectrum.densities())
    }

    fn __len__(&self) -> usize {
        self.spectrum.densities().len()
    }

    fn __repr__(&self) -> String {
        format!("<Psd: 0 to {} Hz by {} Hz>", self.spectrum.highest_hz(), self.df())
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (f64, Bound<'py, PyArray1<f64>>) {
        (self.df(), self.densities(py))
    }
}

impl From<PowerSpectrum> for Psd {
    fn from(spectrum: PowerSpectrum) -> Self {
        Self { spectrum }
    }
}

/// Strain of one detector as given, and its valid samples.
pub(crate) struct Checked<'py> {
    array: Readable<'py>,
    pub(crate) valid: Vec<bool>,
    pub(crate) rate_hz: u32,
}

/// Returns a sampling rate in Hz.
pub(crate) fn whole_rate(rate: &Bound<'_, PyAny>) -> PyResult<u32> {
    let rate = Unit::Hertz.number("sample_rate", rate)?;
    if !(1.0..=1e6).contains(&rate) || rate.fract() != 0.0 {
        return Err(refused("sample_rate", rate, "it must be a whole number of Hz, 1 to 1000000"));
    }
    Ok(rate as u32)
}

impl<'py> Checked<'py> {
    /// Borrows strain; samples that are not finite are invalid.
    ///
    /// # Errors
    /// `ParameterError` for another type or shape of one of the arguments.
    pub(crate) fn new(
        strain: &Bound<'py, PyAny>,
        rate: &Bound<'py, PyAny>,
        valid: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let rate_hz = whole_rate(rate)?;
        let array = Readable::new("strain", strain)?;
        let mut own = Self { array, valid: Vec::new(), rate_hz };
        own.valid = own.samples()?.iter().map(|sample| sample.is_finite()).collect();
        if let Some(valid) = valid {
            let rule = "it must be an array of bool, one for each sample";
            let wrong = || refused("valid", kind(valid), rule);
            let flags: PyReadonlyArray1<'_, bool> = valid.extract().map_err(|_| wrong())?;
            if flags.as_array().len() != own.valid.len() {
                return Err(refused("length of valid", flags.as_array().len(), rule));
            }
            let both = own.valid.iter_mut().zip(flags.as_array());
            both.for_each(|(finite, flag)| *finite &= *flag);
        }
        Ok(own)
    }

    /// Returns the samples.
    ///
    /// # Errors
    /// `ParameterError` unless they are float64 with one axis.
    pub(crate) fn samples(&self) -> PyResult<&[f64]> {
        match &self.array {
            Readable::F64(samples) if self.array.shape().len() == 1 => Ok(samples.as_slice()?),
            other => {
                let found =
                    format!("an array of {} with {} axes", other.kind(), other.shape().len());
                Err(refused("strain", found, "it must be of float64, with one axis"))
            }
        }
    }
}

/// Estimates the power spectral density of strain by Welch's method.
///
/// Parameters
/// ----------
/// strain : array of float64
///     Axis: time; contiguous.
/// sample_rate : int or Quantity
///     Sampling rate, a whole number of Hz.
/// segment : float or Quantity, default 4
///     Length of the half-overlapping segments, s; the distance of the frequencies is its reciprocal.
/// average : str, default "median"
///     ``median`` or ``mean`` of the segments.
/// skip_ends : float or Quantity, default 2
///     Time left out at both ends, s.
/// valid : array of bool, optional
///     Samples that may be used; those that are not finite never are.
///
/// Returns
/// -------
/// Psd
#[pyfunction]
#[pyo3(signature = (strain, sample_rate, *, segment=None, average="median", skip_ends=None, valid=None))]
pub(crate) fn estimate_psd<'py>(
    py: Python<'py>,
    strain: &Bound<'py, PyAny>,
    sample_rate: &Bound<'py, PyAny>,
    segment: Option<&Bound<'py, PyAny>>,
    average: &str,
    skip_ends: Option<&Bound<'py, PyAny>>,
    valid: Option<&Bound<'py, PyAny>>,
) -> PyResult<Psd> {
    let mut options = WelchOptions::default();
    if let Some(segment) = segment {
        options.segment_s = Unit::Second.number("segment", segment)?;
    }
    if let Some(skip) = skip_ends {
        options.skip_ends_s = Unit::Second.number("skip_ends", skip)?;
    }
    options.average = match average {
        "median" => Average::Median,
        "mean" => Average::Mean,
        other => return Err(refused("average", other, "there are median and mean")),
    };
    let strain = Checked::new(strain, sample_rate, valid)?;
    let samples = strain.samples()?;
    let spectrum = detached(py, || welch(samples, &strain.valid, strain.rate_hz, &options))?;
    py.check_signals()?;
    Ok(Psd { spectrum })
}

/// Whitens strain: noise of the given spectrum becomes white with unit variance per sample.
///
/// Parameters
/// ----------
/// strain : array of float64
///     Axis: time; contiguous.
/// sample_rate : int or Quantity
///     Sampling rate, a whole number of Hz.
/// psd : Psd
///     Spectrum up to half the rate or beyond.
/// f_low : float or Quantity, default 15
///     Lowest frequency that is whitened, Hz; the response is 0 below 3/4 of it.
/// low_latency : bool, default False
///     Whether the filter has minimum phase in place of zero phase.
/// valid : array of bool, optional
///     Samples that may be used; those that are not finite never are.
///
/// Returns
/// -------
/// whitened : array of float32
///     A sample for each of the strain, in standard deviations of the noise.
/// valid : array of bool
///     False for samples without strain and within 1 s of those, and of the start and end.
#[pyfunction]
#[pyo3(name = "whiten", signature = (strain, sample_rate, psd, *, f_low=None, low_latency=false, valid=None))]
pub(crate) fn whitened<'py>(
    py: Python<'py>,
    strain: &Bound<'py, PyAny>,
    sample_rate: &Bound<'py, PyAny>,
    psd: PyRef<'py, Psd>,
    f_low: Option<&Bound<'py, PyAny>>,
    low_latency: bool,
    valid: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let strain = Checked::new(strain, sample_rate, valid)?;
    let spectrum = whiten::Psd::Fixed(psd.spectrum.clone());
    let mut options = match low_latency {
        true => whiten::Options::low_latency(strain.rate_hz, spectrum),
        false => whiten::Options::new(strain.rate_hz, spectrum),
    };
    if let Method::Overlap { fft_s } = &mut options.method {
        // The kernel is at least as long as the segments of the spectrum.
        *fft_s = fft_s.max(1.0 / psd.spectrum.spacing_hz());
    }
    if let Some(f_low) = f_low {
        options.f_low_hz = Unit::Hertz.number("f_low", f_low)?;
    }
    let samples = strain.samples()?;
    let output = empty::<f32>(py, &[samples.len()])?;
    let output_valid = empty::<bool>(py, &[samples.len()])?;
    {
        let mut output = output.try_readwrite().map_err(PyErr::from)?;
        let mut output_valid = output_valid.try_readwrite().map_err(PyErr::from)?;
        let (output, output_valid) = (output.as_slice_mut()?, output_valid.as_slice_mut()?);
        let mut whitener = detached(py, || Whitener::new(options))?;
        let mut done = 0;
        for (samples, valid) in samples.chunks(PIECE).zip(strain.valid.chunks(PIECE)) {
            let (to, to_valid) = (&mut output[done..], &mut output_valid[done..]);
            done += detached(py, || {
                let (to, to_valid) = (&mut to[..samples.len()], &mut to_valid[..samples.len()]);
                whitener.run(samples, valid, to, to_valid)
            })?
            .produced;
            py.check_signals()?;
        }
        let (to, to_valid) = (&mut output[done..], &mut output_valid[done..]);
        detached(py, || whitener.flush(to, to_valid))?;
    }
    Ok((output.into_any(), output_valid.into_any()))
}
