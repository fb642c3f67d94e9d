//! Extension module of the Python package: functions and classes over the library, and its command line.

mod arguments;
mod arrays;
mod binaries;
mod channelize;
mod coincide;
mod correlate;
mod cutout;
mod dedisperse;
mod device;
mod dlpack;
mod errors;
mod given;
mod interferometer;
mod pickle;
mod recording;
mod search;
mod single_pulse;
mod spiir;
mod strain;
mod voltages;

use std::ffi::OsString;
use std::io::Write as _;

use pyo3::prelude::*;

/// Runs the command line and returns its exit code.
///
/// Parameters
/// ----------
/// words : list of str
///     The program's name and its arguments.
///
/// Returns
/// -------
/// int
///     0 after success; ``sidereal --help`` lists the others.
#[pyfunction]
fn run_command(py: Python<'_>, words: Vec<OsString>) -> PyResult<u8> {
    let program = arguments::program(py)?;
    Ok(py.detach(|| {
        let code = sidereal_cli::run(words, program);
        // Python ends the process without Rust's flush.
        let _ = std::io::stdout().flush();
        code
    }))
}

/// Functions and classes of `sidereal_dsp`.
#[pymodule]
fn _sidereal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<arguments::Device>()?;
    module.add_function(wrap_pyfunction!(arguments::devices, module)?)?;
    module.add_class::<device::DeviceArray>()?;
    module.add_function(wrap_pyfunction!(device::to_device, module)?)?;
    module.add_class::<channelize::Channelizer>()?;
    module.add_function(wrap_pyfunction!(channelize::channelize, module)?)?;
    module.add_function(wrap_pyfunction!(channelize::prototype, module)?)?;
    module.add_function(wrap_pyfunction!(channelize::time_channelize, module)?)?;
    module.add_class::<dedisperse::DmRange>()?;
    module.add_class::<dedisperse::DmPlan>()?;
    module.add_class::<dedisperse::Dedisperser>()?;
    module.add_function(wrap_pyfunction!(dedisperse::plan_dms, module)?)?;
    module.add_function(wrap_pyfunction!(dedisperse::dedisperse, module)?)?;
    module.add_function(wrap_pyfunction!(single_pulse::find_pulses, module)?)?;
    module.add_class::<correlate::Correlator>()?;
    module.add_function(wrap_pyfunction!(correlate::correlate, module)?)?;
    module.add_class::<interferometer::Array>()?;
    module.add_class::<interferometer::Correlation>()?;
    module.add_class::<interferometer::Integrations>()?;
    module.add_function(wrap_pyfunction!(interferometer::delays, module)?)?;
    module.add_function(wrap_pyfunction!(interferometer::correlate_files, module)?)?;
    module.add_class::<binaries::Strain>()?;
    module.add_class::<binaries::Trigger>()?;
    module.add_class::<binaries::Event>()?;
    module.add_function(wrap_pyfunction!(binaries::read_strain, module)?)?;
    module.add_function(wrap_pyfunction!(binaries::search_strain, module)?)?;
    module.add_class::<spiir::Waveform>()?;
    module.add_class::<spiir::Bank>()?;
    module.add_class::<spiir::Spiir>()?;
    module.add_function(wrap_pyfunction!(spiir::inspiral, module)?)?;
    module.add_function(wrap_pyfunction!(spiir::design, module)?)?;
    module.add_function(wrap_pyfunction!(spiir::find_triggers, module)?)?;
    module.add_function(wrap_pyfunction!(coincide::coincide, module)?)?;
    module.add_class::<strain::Psd>()?;
    module.add_function(wrap_pyfunction!(strain::estimate_psd, module)?)?;
    module.add_function(wrap_pyfunction!(strain::whitened, module)?)?;
    module.add_class::<recording::Header>()?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<recording::Gulps>()?;
    module.add_function(wrap_pyfunction!(recording::open_filterbank, module)?)?;
    module.add_class::<search::Candidate>()?;
    module.add_function(wrap_pyfunction!(search::search, module)?)?;
    module.add_function(wrap_pyfunction!(cutout::cutout, module)?)?;
    module.add_function(wrap_pyfunction!(cutout::write_cand, module)?)?;
    module.add_function(wrap_pyfunction!(run_command, module)?)
}
