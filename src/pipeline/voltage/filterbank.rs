//! Voltage recording read as a filterbank.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coherent::dedispersed;
use super::filled::Filled;
use super::finite::finite;
use super::gaps::gaps;
use super::geometry::Geometry;
use super::layout::{self, Layout};
use super::options::ChannelizeOptions;
use super::part::part;
use super::rows::{Assembly, Middle, Rows};
use super::spectra::{Watch, fitting_gulp};
use crate::backend::Backend;
use crate::channelize::{Detection, Form, Plan};
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Encoding;
use crate::units::Band;

/// Filterbank rows computed from voltages as they are read.
///
/// | buffer | axes                   | type | access      |
/// |--------|------------------------|------|-------------|
/// | rows   | time, product, channel | f32  | overwritten |
///
/// Channels descend in sky frequency by default. A row's time is the middle of its windows' weights. Powers of
/// several antennas are summed. Rows with flagged samples under a window are gaps; each channel's level over the 1024
/// rows before fills them (at the very start, the 1024 rows after). The level is the mean over 16 groups of those
/// rows, without groups whose own mean is an outlier.
///
/// # Numerics
/// Single precision; the same bits for any `gulp`, any number of threads and any mixture of reading and skipping.
pub struct VoltageFilterbank {
    header: FilterbankHeader,
    recorded: VoltageHeader,
    geometry: Geometry,
    pub(super) rows: Filled,
    not_finite: Arc<AtomicU64>,
    scratch: Vec<f32>,
    warnings: Vec<String>,
}

impl std::fmt::Debug for VoltageFilterbank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VoltageFilterbank").field("header", &self.header).finish_non_exhaustive()
    }
}

impl VoltageFilterbank {
    /// Binds a recording to its filter bank.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming an option that does not fit the recording, or one required because the recording
    /// does not state the value (`centre_hz`).
    pub fn new(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let all = source.header().times;
        let (source, not_finite) = finite(part(source, options)?);
        let recorded = source.header().clone();
        let warnings = source.warnings().to_vec();
        let layout = Layout::new(&recorded, options.ascending)?;
        let detection = layout::detection(&recorded, options);
        let plan = Plan::new(layout.options(&recorded, options, Form::Detected(detection)))?;
        let centres = layout.centres_hz(&recorded, &plan, detection.channels)?;
        let width = recorded.channel_width_hz() / plan.output_channels() as f64;
        let band = Band::from_centres(centres, width)?;
        let header = header(&recorded, &plan, band);
        if header.times == Some(0) {
            return Err(too_short(&recorded, all, &plan));
        }
        let mut geometry = Geometry::new(&recorded, &plan, Some(detection));
        geometry.coherent_dm = options.coherent_dm;
        let (source, copies) = dedispersed(source, &plan, detection.channels, options, backend)?;
        // The adjacent channels, needed for interpolation, are in the other copy.
        let interpolate_later = detection.interpolate_dc && copies > 1;
        if interpolate_later && detection.channels > 1 {
            let rule = "with `coherent_dm` and `average_channels` it can't be done: leave one out";
            return Err(Error::parameter("interpolate_dc", "set", rule));
        }
        let interpolate_dc = detection.interpolate_dc && !interpolate_later;
        let form = Form::Detected(Detection { interpolate_dc, ..detection });
        let plan = Plan::new(layout.options(source.header(), options, form))?;
        let gaps = gaps(source.flags(), &plan, header.times);
        if let [only] = gaps[..]
            && only.start_time == 0
            && header.times.is_some_and(|times| only.times >= times)
        {
            return Err(all_flagged(&recorded, options));
        }
        let mut assembly = assembly(&recorded, &plan, &layout, copies);
        if let (Some(assembly), true) = (&mut assembly, interpolate_later) {
            assembly.middle = Middle::new(&plan);
        }
        let gulp = fitting_gulp(&plan, options)?;
        let rows = Rows::new(source, plan, assembly, gulp, backend)?;
        let rows = Filled::new(rows, gaps);
        Ok(Self { header, recorded, geometry, rows, not_finite, scratch: Vec::new(), warnings })
    }

    /// Returns the recording's header.
    pub fn recorded(&self) -> &VoltageHeader {
        &self.recorded
    }

    /// Returns the filter bank's parameters.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the filter bank's plan: coefficients and all sizes.
    pub fn plan(&self) -> &Plan {
        self.rows.rows().plan()
    }

    /// Returns the number of products per channel.
    pub fn products(&self) -> usize {
        self.geometry.products.len()
    }

    /// Returns the numbers in a row: products x channels.
    pub fn row_elements(&self) -> usize {
        self.products() * self.header.channels()
    }

    /// Returns the samples read so far that were not finite, in a recording of floats; zeros replaced them.
    pub fn not_finite(&self) -> u64 {
        self.not_finite.load(Ordering::Relaxed)
    }

    /// Sets a callback that runs before each block of voltages; returning false ends the rows with
    /// [`Error::stopped`].
    pub fn watched_by(&mut self, watch: Watch) {
        self.rows.rows_mut().watched_by(watch);
    }

    /// Fills `rows` with whole rows, axes time, product, channel, and returns their number. It is below the request
    /// only at the end of the data or before an error, which the next call returns.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `rows` holds a whole number of rows; errors of the source and the filter bank;
    /// [`Error::stopped`].
    pub fn read_rows(&mut self, rows: &mut [f32]) -> Result<usize> {
        let elements = self.row_elements();
        let times = rows.len() / elements;
        crate::view::check_length("rows (numbers)", times * elements, rows.len())?;
        let times = self.rows.read(rows)?;
        if times == 0 {
            self.check_fault()?
        }
        Ok(times)
    }

    /// Returns the error that ended the rows, once.
    fn check_fault(&mut self) -> Result<()> {
        self.rows.rows_mut().take_fault().map_or(Ok(()), Err)
    }

    /// Like [`Self::read_rows`], but returns an error instead of the rows before it.
    fn read_or_fail(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.rows.read(rows)?;
        self.check_fault()?;
        Ok(times)
    }

    /// Checks that there is only one product, as a filterbank source requires.
    fn check_products(&self) -> Result<()> {
        if self.products() == 1 {
            return Ok(());
        }
        let rule = "a search takes one product of each channel, such as I";
        Err(Error::parameter("products", self.geometry.products.concat(), rule))
    }
}

impl FilterbankSource for VoltageFilterbank {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        self.check_products()?;
        self.header.times_in(rows)?;
        if let Ok(rows) = bytemuck::try_cast_slice_mut(rows) {
            return self.read_or_fail(rows);
        }
        // The buffer is not aligned for f32.
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(rows.len() / 4, 0.0);
        let times = self.read_or_fail(&mut scratch);
        rows.copy_from_slice(bytemuck::cast_slice(&scratch));
        self.scratch = scratch;
        times
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = self.rows.skip(times)?;
        self.check_fault()?;
        Ok(skipped)
    }

    fn cut(&self) -> Option<&str> {
        self.rows.rows().cut()
    }

    fn gaps(&self) -> &[Gap] {
        self.rows.gaps()
    }

    fn flagged_samples(&self) -> u64 {
        self.not_finite()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

fn header(recorded: &VoltageHeader, plan: &Plan, band: Band) -> FilterbankHeader {
    let delay_s = plan.delay_samples() * recorded.tsamp_s;
    let start = recorded.start.plus_s(delay_s);
    FilterbankHeader {
        path: recorded.path.clone(),
        format: "channelized voltages",
        source_name: recorded.source_name.clone(),
        telescope: recorded.telescope.clone(),
        ra_deg: recorded.ra_deg,
        dec_deg: recorded.dec_deg,
        beam: recorded.beam,
        tstart_mjd: if recorded.start.day == 0 { 0.0 } else { start.mjd() },
        tsamp_s: plan.samples_per_row() as f64 * recorded.tsamp_s,
        band,
        encoding: Encoding::F32,
        recorded_bits: recorded.recorded_bits,
        recorded_polarizations: recorded.polarizations,
        times: recorded.times.map(|times| plan.rows(times)),
    }
}

/// Returns the sum over antennas and the order of recorded channels, if the filter bank's rows need either.
fn assembly(
    recorded: &VoltageHeader,
    plan: &Plan,
    layout: &Layout,
    copies: usize,
) -> Option<Assembly> {
    let in_order = || (0..recorded.coarse_channels()).collect();
    let needed = copies * recorded.antennas > 1 || layout.places.is_some();
    needed.then(|| Assembly {
        copies,
        antennas: recorded.antennas,
        products: plan.output_products(),
        places: layout.places.clone().unwrap_or_else(in_order),
        channels: plan.output_channels(),
        middle: None,
    })
}

/// Returns the error for a recording without a single row; it names the option that needs more samples than there
/// are. `all` is the whole recording's length.
pub(super) fn too_short(recorded: &VoltageHeader, all: Option<u64>, plan: &Plan) -> Error {
    let times = recorded.times.unwrap_or(0);
    let (span, points) = (plan.span() as u64, plan.points() as u64);
    let spectra = plan.spectra_per_row();
    let needed = span + (spectra as u64 - 1) * plan.hop() as u64;
    let rule = format!(
        "a row needs {needed} samples ({} channels, {} taps, {spectra} spectra), and there are {times} \
         of each stream",
        plan.channels(),
        plan.taps(),
    );
    if times == 0 {
        return Error::format(&recorded.path, "data", 0, rule);
    }
    if all.is_some_and(|all| all >= needed) {
        let duration_s = times as f64 * recorded.tsamp_s;
        return Error::parameter("time_range.length_s", duration_s, rule);
    }
    match () {
        () if times >= span => Error::parameter("integrate", spectra, rule),
        () if times >= points => Error::parameter("taps", plan.taps(), rule),
        () => Error::parameter("channelize.channels", plan.channels(), rule),
    }
}

/// Returns the error for a recording in which all samples are flagged.
pub(super) fn all_flagged(recorded: &VoltageHeader, options: &ChannelizeOptions) -> Error {
    let rule = "all its samples are missing or not valid";
    match options.time_range {
        Some((from, to)) => Error::parameter("time_range", format!("{from}:{to}"), rule),
        None => Error::format(&recorded.path, "validity", 0, rule),
    }
}
