//! Voltage recording read as a filterbank, whose rows a GPU may compute and hold.
//!
//! Invariant: rows on a GPU are, bit for bit, those that the same recording gives as a filterbank when its filter bank
//! runs on the same GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coherent::Entering;
use super::filled::{Due, Filled, Making, Segment, gaps};
use super::layout::{self, ChannelizeOptions, Geometry, Layout};
use super::level::Level;
use super::rows::{Assembly, Middle, Rows};
use super::source::{finite, part};
use super::spectra::{Pieces, Unread, Watch, fitting_gulp};
use super::swept::Swept;
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Source, Stream};
use crate::channelize::{Detection, Form, Plan, RowJoiner};
use crate::clean::GapFiller;
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Encoding;
use crate::units::Band;

/// Longest time at the start of a live source in which no row is whole, in seconds.
const START_S: f64 = 10.0;

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
    rows: Filled,
    /// Rows of a dump, whose channels have windows.
    swept: Option<Swept>,
    not_finite: Arc<AtomicU64>,
    scratch: Vec<f32>,
    warnings: Vec<String>,
    /// Whether the voltages arrive in real time.
    is_live: bool,
}

impl std::fmt::Debug for VoltageFilterbank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VoltageFilterbank").field("header", &self.header).finish_non_exhaustive()
    }
}

impl VoltageFilterbank {
    /// Binds a recording to its filter bank. A GPU that has peers computes all rows, which a search finds in its memory. After coherent
    /// dedispersion it and its peers divide them, if the rows of a file have at most half of the bytes of its voltages: the
    /// search copies them back.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming an option that does not fit the recording, or one required because the recording
    /// does not state the value (`centre_hz`).
    pub fn new(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::open(source, options, backend, false)
    }

    /// Like [`Self::new`], for rows that the host reads: a GPU and its peers divide them. A search of such rows on a GPU copies them
    /// back to it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn divided(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::open(source, options, backend, true)
    }

    fn open(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        backend: &Backend,
        is_for_host: bool,
    ) -> Result<Self> {
        let all = source.header().times;
        let (source, not_finite) = finite(part(source, options)?);
        let recorded = source.header().clone();
        let mut warnings = source.warnings().to_vec();
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
        let entering = Entering::new(source.as_ref(), &plan, detection.channels, options)?;
        let copies = entering.copies();
        // The adjacent channels, needed for interpolation, are in the other copy.
        let interpolate_later = detection.interpolate_dc && copies > 1;
        if interpolate_later && detection.channels > 1 {
            let rule = "with `coherent_dm` and `average_channels` it can't be done: leave one out";
            return Err(Error::parameter("interpolate_dc", "set", rule));
        }
        let interpolate_dc = detection.interpolate_dc && !interpolate_later;
        let form = Form::Detected(Detection { interpolate_dc, ..detection });
        let plan = Plan::new(layout.options(&entering.header, options, form))?;
        let gaps = gaps(&entering.flags, &plan, header.times);
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
        let (coherent, reach) = (entering.coherent, entering.reach);
        let gulp = fitting_gulp(&recorded, &plan, coherent.as_ref(), options)?;
        let is_live = source.is_live();
        let products = geometry.products.len();
        let centres_hz = header.band.centres_hz();
        let swept = Swept::new(&recorded, &plan, centres_hz, products, reach);
        if swept.is_some() {
            warnings.push(
                "the recording is a dump: outside of each channel's window, other rows of the channel replace its zeros"
                    .to_owned(),
            );
        }
        let voltage_bits = plan.samples_per_row() * recorded.sample_bits();
        let is_short = 2 * 8 * header.row_bytes() <= voltage_bits;
        let backend = match is_for_host || coherent.is_some() && !is_live && is_short {
            true => backend.clone(),
            false => backend.alone(),
        };
        let rows = Rows::new(source, plan, coherent, assembly, gulp, &backend)?;
        warnings.extend(rows.bank().warning().map(str::to_owned));
        let rows = if is_live {
            Filled::arriving(rows, reach, (START_S / header.tsamp_s) as u64 + 1)
        } else {
            Filled::new(rows, gaps)
        };
        let scratch = Vec::new();
        Ok(Self { header, recorded, geometry, rows, swept, not_finite, scratch, warnings, is_live })
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
        let times = self.read_any(rows)?;
        if times == 0 {
            self.check_fault()?
        }
        Ok(times)
    }

    /// Returns the number of the next row.
    pub fn row(&self) -> u64 {
        self.swept.as_ref().map_or_else(|| self.rows.row(), Swept::next)
    }

    /// Ends the rows before row `end`, as if the data ended there, until another end is set.
    pub fn end_at(&mut self, end: u64) {
        match &mut self.swept {
            Some(swept) => swept.end_at(end),
            None => self.rows.end_at(end),
        }
    }

    /// Returns the length of a gap at the very start. A live source is read until it is known.
    pub(super) fn gap_at_start(&mut self) -> Result<u64> {
        self.rows.gap_at_start()
    }

    /// Returns the error that ended the rows, once.
    fn check_fault(&mut self) -> Result<()> {
        self.rows.rows_mut().take_fault().map_or(Ok(()), Err)
    }

    /// Like [`Self::read_rows`], but returns an error instead of the rows before it.
    fn read_or_fail(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.read_any(rows)?;
        self.check_fault()?;
        Ok(times)
    }

    fn read_any(&mut self, rows: &mut [f32]) -> Result<usize> {
        match &mut self.swept {
            Some(swept) => swept.read(rows, &mut |rows| self.rows.read(rows)),
            None => self.rows.read(rows),
        }
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
        let skipped = match &mut self.swept {
            Some(swept) => swept.skip(times, &mut |rows| self.rows.read(rows))?,
            None => self.rows.skip(times)?,
        };
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

    fn is_live(&self) -> bool {
        self.is_live
    }

    fn is_finite(&self) -> bool {
        true
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

impl VoltageFilterbank {
    /// Returns the number of GPUs that compute rows.
    pub(super) fn gpus(&self) -> usize {
        self.rows.rows().gpus()
    }

    /// Returns the rows that a read should ask for at least, so that every GPU has its part.
    pub(super) fn least_rows(&self) -> usize {
        self.rows.rows().least_rows()
    }

    /// Returns the GPU that computes rows from the recorded voltages, if one does.
    pub(in crate::pipeline) fn device(&self) -> Option<&Device> {
        self.rows.rows().bank().device().filter(|_| self.swept.is_none())
    }

    /// Returns the recorded samples, after those of a row, that the row may depend on.
    pub(in crate::pipeline) fn delay(&self) -> usize {
        self.rows.rows().bank().delay()
    }

    /// Returns the most samples that a device holds between calls of [`DeviceRows::make`], or before the first.
    pub(in crate::pipeline) fn backlog(&self) -> usize {
        self.rows.rows().bank().backlog()
    }

    /// Returns the samples that the filter bank has consumed since its last reset.
    pub(in crate::pipeline) fn taken(&self) -> u64 {
        self.rows.rows().bank().channelizer().times()
    }

    /// Whether a device can compute the rows from here on. Otherwise the host must read rows first: the level that
    /// fills a gap at the start comes from the rows after it.
    pub(in crate::pipeline) fn can_split(&self) -> bool {
        self.rows.can_split()
    }

    /// Splits the filterbank into its unread voltages and the state that computes rows; both can be used
    /// concurrently.
    pub(in crate::pipeline) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        self.rows.split()
    }

    /// Returns the device bytes per row for the rows of all antennas, in addition to the summed row.
    pub(in crate::pipeline) fn unjoined_row_bytes(&self) -> usize {
        let joining = self.rows.rows().joining();
        joining.map_or(0, |_| 4 * self.plan().row_elements())
    }
}

/// Computes rows from voltages on a device: sums antennas, orders recorded channels, fills gaps.
pub(in crate::pipeline) struct DeviceRows {
    joiner: Option<(RowJoiner, Buffer<u8>)>,
    filler: Option<GapFiller>,
    /// First row of the gap for which the current level was computed.
    filled: Option<u64>,
    rows: Buffer<u8>,
    has_begun: bool,
}

impl DeviceRows {
    /// Lists the kernels for rows of a filterbank.
    pub(in crate::pipeline) fn sources(filterbank: &VoltageFilterbank) -> Vec<Source> {
        let mut sources = Vec::new();
        if filterbank.rows.rows().joining().is_some() {
            sources.extend(RowJoiner::sources());
        }
        if filterbank.rows.level().is_some() {
            sources.extend(GapFiller::sources());
        }
        sources
    }

    /// Allocates memory for at most `most` rows per call.
    ///
    /// # Errors
    /// Those of [`RowJoiner::new`] and [`GapFiller::new`].
    pub(in crate::pipeline) fn new(
        device: &Device,
        filterbank: &VoltageFilterbank,
        most: usize,
    ) -> Result<Self> {
        let joiner = match filterbank.rows.rows().joining() {
            Some(joining) => {
                let bytes = most.saturating_mul(filterbank.unjoined_row_bytes());
                Some((RowJoiner::new(device, joining)?, device.buffer(bytes)?))
            }
            None => None,
        };
        let elements = filterbank.row_elements();
        let filler = |level: &Level| {
            GapFiller::new(device, elements, level.samples(), level.capacity() - level.samples())
        };
        Ok(Self {
            joiner,
            filler: filterbank.rows.level().map(filler).transpose()?,
            filled: None,
            rows: device.buffer(most.saturating_mul(filterbank.header().row_bytes()))?,
            has_begun: false,
        })
    }

    /// Returns the buffer with the latest rows.
    pub(in crate::pipeline) fn rows(&self) -> &Buffer<u8> {
        &self.rows
    }

    /// Enqueues the computation of rows from voltages on the device; returns the number of rows.
    pub(in crate::pipeline) fn make(
        &mut self,
        making: &mut Making<'_>,
        voltages: &Buffer<u8>,
        pieces: Pieces<'_>,
        stream: &Stream,
    ) -> Result<usize> {
        if !self.has_begun {
            self.begin(making)?;
            self.has_begun = true;
        }
        let times = match &mut self.joiner {
            Some((joiner, all)) => {
                let times = making.bank.enqueue(voltages, pieces, all, stream)?;
                joiner.enqueue(all, times, &mut self.rows, stream)?;
                times
            }
            None => making.bank.enqueue(voltages, pieces, &mut self.rows, stream)?,
        };
        self.fill(making, times, stream)?;
        Ok(times)
    }

    /// Copies the host's level state to the device.
    fn begin(&mut self, making: &Making<'_>) -> Result<()> {
        let (Some(filler), Some(seen)) = (&mut self.filler, &making.seen) else { return Ok(()) };
        self.filled = seen.filling.map(|(start, _)| start);
        filler.begin(seen.ring, seen.rows, seen.filling.map(|(_, level)| level))
    }

    /// Fills gaps, and records rows for the levels of later gaps.
    fn fill(&mut self, making: &mut Making<'_>, times: usize, stream: &Stream) -> Result<()> {
        let cursor = &mut *making.cursor;
        let Some(filler) = &mut self.filler else {
            cursor.advance(times as u64);
            return Ok(());
        };
        let mut done = 0;
        while done < times {
            if let Some(Due { start, latest }) = cursor.due(self.filled) {
                filler.take_level(latest, stream)?;
                self.filled = Some(start);
            }
            let passed = match cursor.segment((times - done) as u64) {
                Segment::Gap(gap) => {
                    filler.fill(&mut self.rows, done..done + gap, stream)?;
                    gap
                }
                Segment::Data(data) => {
                    let unused = cursor.unneeded(data as u64) as usize;
                    filler.observe(&self.rows, done + unused..done + data, stream)?;
                    data
                }
            };
            cursor.advance(passed as u64);
            done += passed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::DeviceVoltages;
    use crate::simulate::voltages::{Options, VoltageSimulator};
    use crate::voltage::VoltageBlock;

    /// Two antennas with gaps, some of them after the level's 1024 rows are complete.
    fn filterbank(coherent_dm: Option<f64>, backend: &Backend) -> VoltageFilterbank {
        let mut options = Options::new(400e6, 3e6, 3, 40_000);
        // Recorded channels neither ascend nor descend.
        options.centres_hz.swap(0, 1);
        options.antennas = 2;
        options.gaps =
            vec![(3_000, 10), (20_000, 900), (22_000, 1), (33_000, 4_000), (39_000, 100)];
        let source = Box::new(VoltageSimulator::new(options).unwrap());
        let interpolate_dc = coherent_dm.is_some();
        let asked = ChannelizeOptions {
            taps: 4,
            coherent_dm,
            interpolate_dc,
            ..ChannelizeOptions::new(16)
        };
        VoltageFilterbank::new(source, &asked, backend).unwrap()
    }

    /// Returns `first` rows computed by the host followed by rows from the device, fed `times` samples at a time.
    fn on_device(
        filterbank: &mut VoltageFilterbank,
        device: &Device,
        (first, times): (usize, usize),
    ) -> Vec<f32> {
        let elements = filterbank.row_elements();
        let mut all = vec![0.0; first * elements];
        assert_eq!(filterbank.read_rows(&mut all).unwrap(), first);
        assert!(filterbank.can_split());
        let (encoding, streams) = {
            let input = filterbank.plan().input();
            (input.encoding, input.streams())
        };
        let stream = device.stream().unwrap();
        let most = (times + filterbank.backlog()) / 16 + 1;
        let mut rows = DeviceRows::new(device, filterbank, most).unwrap();
        let mut is_last = false;
        loop {
            let mut memory = vec![0; streams * encoding.bytes(times)];
            let mut block = VoltageBlock::lent(&mut memory, encoding, streams, times).unwrap();
            let (mut unread, mut making) = filterbank.split();
            let times = unread.read(&mut block).unwrap();
            if is_last {
                return all;
            }
            is_last = times == 0;
            let layout = DeviceVoltages { first_byte: 0, stride: block.stride(), times };
            let input = device.upload(&memory).unwrap();
            let layouts = [layout];
            let pieces = Pieces { layouts: &layouts[..usize::from(times > 0)], is_last };
            let made = rows.make(&mut making, &input, pieces, &stream).unwrap();
            let mut bytes = vec![0; 4 * elements * made];
            rows.rows().download(0, &mut bytes).unwrap();
            all.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
    }

    #[test]
    fn rows_are_those_of_the_host() {
        let Some(gpu) = Backend::available(1).into_iter().find(Backend::is_gpu) else { return };
        let Backend::Cuda(device, _) = &gpu else { unreachable!("it is a GPU") };
        for (coherent_dm, parts) in [
            (None, &[(0, 40_000), (0, 7_777), (1500, 640), (2300, 3_000)][..]),
            (Some(5.0), &[(100, 4_000)]),
        ] {
            let mut host = filterbank(coherent_dm, &gpu);
            let mut expected = vec![0.0; 3000 * host.row_elements()];
            let times = host.read_rows(&mut expected).unwrap();
            expected.truncate(times * host.row_elements());
            assert!(host.gaps().len() > 4 && times > 2400);
            for part in parts {
                let rows = on_device(&mut filterbank(coherent_dm, &gpu), device, *part);
                let differing =
                    rows.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differing, None, "{part:?}, {} a row", host.row_elements());
                assert_eq!(rows.len(), expected.len(), "{part:?}");
            }
        }
    }
}
