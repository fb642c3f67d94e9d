//! Arguments that several functions have: quantities with units, frequencies, devices and trial dispersion measures.

use std::path::PathBuf;
use std::str::FromStr;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use sidereal::backend::cuda::{self, CompilerProgram};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, Host};
use sidereal::units::{Band, HZ_PER_MHZ};

use crate::errors::{raised, refused};

/// Units of quantities, in which plain numbers are given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Seconds.
    Second,
    /// Megahertz.
    Megahertz,
    /// Hertz.
    Hertz,
    /// Dispersion measure, pc cm^-3.
    Dispersion,
    /// Number without a unit.
    One,
}

impl Unit {
    /// Returns the unit's name in astropy.
    fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Megahertz => "MHz",
            Self::Hertz => "Hz",
            Self::Dispersion => "pc / cm3",
            Self::One => "",
        }
    }

    /// Describes quantities as an alternative to numbers, for messages.
    fn or_quantity(self) -> String {
        match self {
            Self::One => String::new(),
            _ => format!(" or a quantity in {}", self.name()),
        }
    }

    /// Converts a quantity to this unit; other objects stay as they are.
    fn plain<'py>(self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match value.hasattr("to_value")? {
            true => value.call_method1("to_value", (self.name(),)),
            false => Ok(value.clone()),
        }
    }

    /// Returns a number in this unit, from a number or a quantity (an object with `to_value`, as astropy's).
    ///
    /// # Errors
    /// `ParameterError` for anything else; astropy's error for a quantity of other dimensions.
    pub(crate) fn number(self, name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
        self.plain(value)?.extract().map_err(|_| {
            let rule = format!("it must be a number{}", self.or_quantity());
            refused(name, kind(value), rule)
        })
    }

    /// Returns numbers in this unit, from a sequence, an array or a quantity; axis: index.
    ///
    /// # Errors
    /// As [`Unit::number`]; `ParameterError` for more than one axis.
    pub(crate) fn numbers(
        self,
        name: &'static str,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<f64>> {
        let plain = self.plain(value)?;
        let wrong = || {
            let rule = format!("it must be numbers{}, of one axis", self.or_quantity());
            refused(name, kind(value), rule)
        };
        // Columns of records may not be aligned.
        let arguments = (plain, "float64", ["C", "A"]);
        let array = value.py().import("numpy")?.call_method1("require", arguments);
        let array: PyReadonlyArray1<'_, f64> =
            array.map_err(|_| wrong())?.extract().map_err(|_| wrong())?;
        Ok(array.as_array().to_vec())
    }
}

/// Returns the name of an object's type, for messages.
pub(crate) fn kind(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// Returns a count from Python's integer.
///
/// # Errors
/// `ParameterError` for a negative number.
pub(crate) fn count(name: &'static str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| refused(name, value, "it must not be negative"))
}

/// Returns whether each channel of a band is left out: `value` has the channels' numbers, or a bool for each channel.
///
/// # Errors
/// `ParameterError` for anything else, numbers mixed with bools, a channel that the band does not have, and all
/// channels.
pub(crate) fn zapped(value: Option<&Bound<'_, PyAny>>, channels: usize) -> PyResult<Vec<bool>> {
    const NAME: &str = "zap_channels";
    let mut zapped = vec![false; channels];
    let Some(value) = value else { return Ok(zapped) };
    let array = value.py().import("numpy")?.call_method1("asarray", (value,));
    let wrong =
        || refused(NAME, kind(value), "it must be channels' numbers, or a bool for each channel");
    let array = array.map_err(|_| wrong())?;
    if array.getattr("ndim")?.extract::<usize>()? != 1 {
        return Err(wrong());
    }
    if let Ok(flags) = array.extract::<PyReadonlyArray1<'_, bool>>() {
        let flags = flags.as_array();
        if flags.len() != channels {
            let rule = format!("a bool for each channel is needed, {channels}");
            return Err(refused(NAME, format!("{} bools", flags.len()), rule));
        }
        zapped = flags.to_vec();
    } else {
        // NumPy would turn the bools of such a list into the numbers 0 and 1.
        let items = value.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        if items.iter().any(|item| item.extract::<bool>().is_ok()) {
            return Err(refused(NAME, "numbers mixed with bools", "it must be one of these"));
        }
        for channel in array.try_iter()? {
            let channel = channel?;
            let Ok(number) = channel.extract::<i64>() else { return Err(wrong()) };
            let known = usize::try_from(number).ok().and_then(|at| zapped.get_mut(at));
            let rule = format!("there are channels 0 to {}", channels.saturating_sub(1));
            *known.ok_or_else(|| refused(NAME, number, rule))? = true;
        }
    }
    if channels > 0 && zapped.iter().all(|zapped| *zapped) {
        return Err(refused(NAME, "all channels", "one must be left"));
    }
    Ok(zapped)
}

/// Parses a word by the library's own rule.
///
/// # Errors
/// `ParameterError` for a word that the library does not have.
pub(crate) fn parsed<T: FromStr<Err = sidereal::Error>>(word: &str) -> PyResult<T> {
    word.parse().map_err(raised)
}

/// Width of a band's channels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width<'a, 'py> {
    /// Not used by the caller.
    Any,
    /// Mean distance of the channels.
    Mean,
    /// Number or quantity, MHz.
    Given(&'a Bound<'py, PyAny>),
}

/// Makes a band from the centres of channels in MHz.
///
/// # Errors
/// `ParameterError` for no channel, for the mean distance of one, and for frequencies that are not positive and
/// finite.
pub(crate) fn band(frequencies: &Bound<'_, PyAny>, width: Width<'_, '_>) -> PyResult<Band> {
    let centres = Unit::Megahertz.numbers("freqs", frequencies)?;
    let width = match (width, centres.as_slice()) {
        (Width::Any, _) => 1.0,
        (Width::Given(width), _) => Unit::Megahertz.number("channel_width", width)?,
        (Width::Mean, [first, .., last]) => (last - first).abs() / (centres.len() - 1) as f64,
        (Width::Mean, _) => {
            let rule = "one channel or none needs `channel_width`";
            return Err(refused("number of freqs", centres.len(), rule));
        }
    };
    let hertz = centres.iter().map(|centre| centre * HZ_PER_MHZ).collect();
    Band::from_centres(hertz, width * HZ_PER_MHZ).map_err(raised)
}

/// Opens a backend: `cpu`, `reference`, `cuda` or `cuda:N`, with a number of threads (0: one per core).
///
/// # Errors
/// `ParameterError` for another word or too many threads; `UnavailableError` for a GPU that cannot be used.
pub(crate) fn backend(py: Python<'_>, device: &str, threads: i64) -> PyResult<Backend> {
    const MOST: usize = 4096;
    let threads = count("threads", threads)?;
    if threads > MOST {
        return Err(refused("threads", threads, format!("it may be {MOST} at most")));
    }
    let ordinal = match device {
        "cpu" => return Ok(Backend::best(threads)),
        "reference" => return Ok(Backend::Reference),
        "cuda" => 0,
        other => {
            let number = other.strip_prefix("cuda:").and_then(|number| number.parse().ok());
            let rule = "it must be cpu, reference, cuda or cuda:N";
            number.ok_or_else(|| refused("device", device, rule))?
        }
    };
    let program = program(py)?;
    py.detach(|| {
        let gpu = cuda::Device::open(ordinal)?.with_host_level(Level::best());
        cuda::kernels_at_hand()?;
        let gpu = match program {
            Some(program) => gpu.with_quick_start(program),
            None => gpu,
        };
        Ok(Backend::Cuda(gpu, Threads::new(threads)))
    })
    .map_err(raised)
}

/// Opens a GPU: `cuda` or `cuda:N`.
///
/// # Errors
/// As [`backend`], and `ParameterError` for the host.
pub(crate) fn gpu(py: Python<'_>, device: &str) -> PyResult<cuda::Device> {
    let opened = backend(py, device, 0)?;
    device_of(&opened).ok_or_else(|| refused("device", device, "it must be cuda or cuda:N"))
}

/// Returns a backend's GPU, if it is one.
pub(crate) fn device_of(backend: &Backend) -> Option<cuda::Device> {
    match backend {
        Backend::Cuda(device, _) => Some(device.clone()),
        _ => None,
    }
}

/// Returns the program that compiles kernels in other processes: this Python with this package.
///
/// # Errors
/// Any of Python's.
pub(crate) fn program(py: Python<'_>) -> PyResult<Option<CompilerProgram>> {
    let path: Option<PathBuf> = py.import("sys")?.getattr("executable")?.extract()?;
    let arguments = vec!["-m".to_owned(), "sidereal_dsp".to_owned()];
    Ok(path
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| CompilerProgram { path, arguments }))
}

/// Device on which functions can run. It is made from its attributes in their order.
#[pyclass(frozen, get_all, new = "from_fields", module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Word for the argument `device`.
    name: String,
    /// Processor's vector level, or the GPU's name.
    description: String,
    /// Threads of the processor that are used.
    threads: usize,
    /// Bytes of a GPU's memory.
    memory_bytes: Option<usize>,
}

#[pymethods]
impl Device {
    fn __repr__(&self) -> String {
        format!("<Device {}: {}>", self.name, self.description)
    }

    fn __getnewargs__(&self) -> (&str, &str, usize, Option<usize>) {
        (&self.name, &self.description, self.threads, self.memory_bytes)
    }
}

/// Lists the devices of this machine.
///
/// Returns
/// -------
/// list of Device
///     The processor first, then the GPUs; `name` is what the argument `device` of other functions takes.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<Device> {
    let of_gpu = |gpu: cuda::Device| {
        let properties = gpu.properties();
        Device {
            name: format!("cuda:{}", gpu.ordinal()),
            description: properties.name.clone(),
            threads: Threads::new(0).count(),
            memory_bytes: Some(properties.memory_bytes),
        }
    };
    let of_processor = || {
        let best = Backend::best(0);
        let threads = match best.host() {
            Host::Reference => 1,
            Host::Cpu(_, threads) => threads.count(),
        };
        let (name, description) = ("cpu".to_owned(), Level::best().name().to_owned());
        Device { name, description, threads, memory_bytes: None }
    };
    py.detach(|| {
        std::iter::once(of_processor()).chain(cuda::Device::all().into_iter().map(of_gpu)).collect()
    })
}
