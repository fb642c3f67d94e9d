//! What each fuzz target does with its bytes; the test of the seeds does the same.
//!
//! A body may fail only by a panic, by asking for memory without end, or by not coming back.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use sidereal::dedisperse;
use sidereal::dedisperse::dm_plan::{DdplanOptions, DmPlan, DmRange, ToleranceOptions};
use sidereal::io::ligolw::Values;
use sidereal::io::psd::Density;
use sidereal::io::templates::{TemplateOptions, Templates};
use sidereal::io::voltages::{self, VoltageOptions, VoltageSource};
use sidereal::io::{self, FilterbankSource, OpenOptions, Polarizations};
use sidereal::pipeline;
use sidereal::sample::Encoding;
use sidereal::units::{Band, DM_CONSTANT};

/// Longest row, in bytes, that is read at all: a header may promise more than there is memory.
const LONGEST_ROW: usize = 1 << 20;

/// Longest block of voltages, in bytes, that is read at all.
const LONGEST_BLOCK: usize = 1 << 22;

/// A SIGPROC filterbank: header and data.
pub fn sigproc(bytes: &[u8]) {
    filterbank(bytes);
}

/// A PSRFITS search-mode file.
pub fn psrfits(bytes: &[u8]) {
    filterbank(bytes);
}

/// blimpy's HDF5 filterbank.
pub fn fbh5(bytes: &[u8]) {
    filterbank(bytes);
}

fn filterbank(bytes: &[u8]) {
    let total = OpenOptions::default();
    let second = OpenOptions { polarizations: Polarizations::One(1), allow_gaps: true };
    with_file(bytes, |path| {
        for options in [&total, &second] {
            if let Ok(mut source) = io::open(&[path.to_path_buf()], options) {
                drain(source.as_mut());
            }
        }
    });
}

/// Reads a source to its end, and holds it to what it promised.
fn drain(source: &mut dyn FilterbankSource) {
    let header = source.header().clone();
    let row = header.row_bytes();
    assert!(row > 0 && header.tsamp_s > 0.0 && header.band.lowest_hz() > 0.0);
    if row > LONGEST_ROW {
        return;
    }
    let gulp = 7;
    let mut rows = vec![0; gulp * row];
    let Ok(mut read) = source.skip(3) else { return };
    for _ in 0..1000 {
        match source.read(&mut rows) {
            Ok(times) if times == gulp => read += times as u64,
            Ok(times) => {
                assert!(times < gulp);
                read += times as u64;
                assert!(header.times.is_none_or(|promised| promised == read));
                return;
            }
            Err(_) => return,
        }
    }
}

/// GUPPI raw: headers, blocks and their places in time.
pub fn guppi(bytes: &[u8]) {
    voltages(bytes, io::voltages::guppi::open);
}

/// PSRDADA: header, samples in any order.
pub fn dada(bytes: &[u8]) {
    voltages(bytes, io::voltages::dada::open);
}

/// Opens the files of a recording of voltages.
type OpenVoltages = fn(&[PathBuf], &VoltageOptions) -> sidereal::Result<Box<dyn VoltageSource>>;

fn voltages(bytes: &[u8], open: OpenVoltages) {
    let told = VoltageOptions { sample_rate_hz: Some(1e6), ..VoltageOptions::default() };
    with_file(bytes, |path| {
        for options in [&VoltageOptions::default(), &told] {
            if let Ok(mut source) = open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
        let _ = io::voltages::is_voltages(path);
    });
}

/// VDIF: headers and data, at the rate that the file shows and at one that is given.
pub fn vdif(bytes: &[u8]) {
    let known = VoltageOptions::default();
    let given = VoltageOptions { sample_rate_hz: Some(6400.0), ..known.clone() };
    let paired =
        VoltageOptions { sample_rate_hz: Some(1e6), polarizations: Some(2), ..known.clone() };
    with_file(bytes, |path| {
        for options in [&known, &given, &paired] {
            if let Ok(mut source) = voltages::vdif::open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
    });
}

/// Mark 5B: headers and data, in two modes.
pub fn mark5b(bytes: &[u8]) {
    let wide = VoltageOptions { mark5b_channels: Some(8), ..VoltageOptions::default() };
    let given = VoltageOptions {
        sample_rate_hz: Some(800_000.0),
        mark5b_channels: Some(1),
        mark5b_bits: Some(1),
        ..VoltageOptions::default()
    };
    with_file(bytes, |path| {
        for options in [&wide, &given] {
            if let Ok(mut source) = voltages::mark5b::open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
    });
}

/// Reads a source to its end, if that is near, and holds it and its flags to what they promised.
fn drain_voltages(source: &mut dyn VoltageSource) {
    let header = source.header().clone();
    let times = header.times.expect("a file's length is known");
    assert!(header.streams() > 0 && header.tsamp_s > 0.0 && header.scale > 0.0);
    assert!((0.0..86_400.0).contains(&header.start.seconds));
    let flags = source.flags();
    assert!(flags.is_sorted_by_key(|flag| flag.start));
    assert!(flags.iter().all(|flag| flag.times > 0 && flag.start + flag.times <= times));
    assert!(flags.iter().all(|flag| flag.streams.end <= header.streams()));
    if header.encoding.bytes(1000) * header.streams() > LONGEST_BLOCK {
        return;
    }
    let mut block = header.block(1000);
    let mut read = source.skip(4).unwrap_or(0);
    for _ in 0..1000 {
        match source.read(&mut block) {
            Ok(new) if new == block.capacity() => read += new as u64,
            Ok(new) => {
                assert_eq!(read + new as u64, times);
                return;
            }
            Err(_) => return,
        }
    }
}

/// UVH5: all but the visibilities.
pub fn uvh5(bytes: &[u8]) {
    with_file(bytes, |path| {
        let is_one = io::uvh5::is_uvh5(path);
        if let Ok(summary) = io::uvh5::summary(path) {
            assert!(is_one && summary.rows > 0 && !summary.frequencies_hz.is_empty());
            assert!(summary.first.mjd().is_finite() && summary.last.mjd().is_finite());
        }
    });
}

/// Recorded strain: HDF5 in both layouts, and raw series.
pub fn strain(bytes: &[u8]) {
    use sidereal::io::strain::{OpenOptions, open};
    use sidereal::units::Gps;
    let start = Some(Gps::from_s(1e9));
    let raw = OpenOptions { start, rate_hz: Some(4096), ..OpenOptions::default() };
    let injections = vec!["NO_CBC_HW_INJ".to_string()];
    let strict = OpenOptions { required_injections: injections, ..OpenOptions::default() };
    with_file(bytes, |path| {
        for options in [&OpenOptions::default(), &raw, &strict] {
            if let Ok(mut source) = open(path, options) {
                drain_strain(source.as_mut());
            }
        }
    });
}

/// Reads strain to its end, if that is near, and holds it to what it promised.
fn drain_strain(source: &mut dyn sidereal::io::strain::StrainSource) {
    let promised = source.header().times.expect("a file's length is known");
    assert!(promised > 0 && source.header().rate_hz > 0);
    let (mut samples, mut valid) = ([1.0; 999], [true; 999]);
    let mut read = 0;
    for _ in 0..1000 {
        let Ok(count) = source.read(&mut samples, &mut valid) else { return };
        read += count as u64;
        for (sample, valid) in samples[..count].iter().zip(&valid) {
            assert!(sample.is_finite() && (*valid || *sample == 0.0));
        }
        if count == 0 {
            assert_eq!(read, promised);
            return;
        }
    }
}

/// A SIGPROC time series.
pub fn tim(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok((series, _)) = io::sigproc::read_series(path) {
            assert!(series.tsamp_s > 0.0);
        }
    });
}

/// PRESTO's .inf.
pub fn inf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = io::presto::Inf::parse(&text, Path::new("fuzz.inf"));
}

/// NumPy's .npy.
pub fn npy(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok(array) = io::npy::read(path) {
            assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        }
    });
}

/// PRESTO's rfifind mask.
pub fn mask(bytes: &[u8]) {
    let Ok(mask) = io::rfifind::Mask::parse(bytes, Path::new("fuzz.mask")) else { return };
    let step = if mask.channels.is_multiple_of(2) { 1e-3 } else { -1e-3 };
    let Ok(band) = Band::uniform(1500.0, step, mask.channels.min(4096)) else { return };
    if let Ok(recorded) = mask.recorded(&band) {
        assert_eq!(recorded.zapped.len(), mask.channels);
        let inside = |channel: &u32| (*channel as usize) < mask.channels;
        assert!(recorded.intervals.iter().flatten().all(inside));
    }
}

/// Heimdall's candidates.
pub fn cand(bytes: &[u8]) {
    let _ = io::candidates::parse_heimdall(&String::from_utf8_lossy(bytes), Path::new("fuzz.cand"));
}

/// Antennas' positions: what can be read can be written and read again.
pub fn antennas(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(table) = io::antennas::parse(&text, Path::new("fuzz.csv")) else { return };
    assert!(!table.rows.is_empty());
    assert!(table.rows.iter().flat_map(|row| row.position_m).all(f64::is_finite));
    let _ = pipeline::antennas::array(&table, None);
    with_file(b"", |path| {
        io::antennas::write(path, &table).expect("the temporary folder can be written");
        let again = io::antennas::read(path).expect("what was written can be read");
        assert_eq!((again.frame, again.place), (table.frame, table.place));
        assert_eq!(again.rows.len(), table.rows.len());
        for (row, before) in again.rows.iter().zip(&table.rows) {
            assert_eq!((&row.name, row.number), (&before.name, before.number));
            assert_eq!((row.position_m, row.diameter_m), (before.position_m, before.diameter_m));
        }
    });
}

/// Tables of LIGO_LW files, gzipped or not.
pub fn ligolw(bytes: &[u8]) {
    with_file(bytes, |path| {
        let is_one = io::ligolw::is_ligolw(path);
        for name in ["sngl_inspiral", "process"] {
            let Ok(table) = io::ligolw::read_table(path, name) else { continue };
            // The document's own element may come late, behind a comment.
            assert!(is_one || bytes.len() > 4096);
            for column in &table.columns {
                let cells = match &column.values {
                    Values::Text(cells) => cells.len(),
                    Values::Whole(cells) => cells.len(),
                    Values::Real(cells) => cells.len(),
                };
                assert_eq!(cells, table.rows);
                let _ = table.optional_reals(&column.name);
            }
        }
    });
}

/// Filter banks: what can be read can be written and read again.
pub fn bank_h5(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(bank) = io::bank_h5::read(path) else { return };
        assert!(io::bank_h5::is_bank(path) && bank.rate_hz > 0 && !bank.templates.is_empty());
        io::bank_h5::write(path, &bank).expect("what was read can be written");
        let again = io::bank_h5::read(path).expect("what was written can be read");
        assert_eq!(again.templates, bank.templates);
        assert_eq!((again.rate_hz, again.resampler), (bank.rate_hz, bank.resampler));
    });
}

/// A chunk of bitshuffle and LZ4, behind a byte that says how wide its elements are.
pub fn bitshuffle(bytes: &[u8]) {
    let Some((width, chunk)) = bytes.split_first() else { return };
    let width = usize::from(*width);
    // A reader knows a chunk's length from the file's own header: here it comes from the chunk, and
    // from a fixed one.
    let promised = chunk.iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    for length in [promised.min(1 << 16) as usize, 1024] {
        let mut output = vec![0; length];
        let _ = io::fbh5::bitshuffle::decode_lz4(chunk, width, &mut output);
        let _ = io::fbh5::bitshuffle::decode_bare(
            chunk,
            width,
            usize::from(chunk.len() as u16),
            &mut output,
        );
    }
}

/// DM plans from any numbers, and what they say of themselves.
pub fn dm_plan(bytes: &[u8]) {
    let mut numbers = [0.0; 9];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = f64::from_le_bytes(std::array::from_fn(|k| bytes[k]));
    }
    let [centre, width, tsamp_s, dm_min, dm_max, dm_step, tolerance, resolution_us, channels] =
        numbers;
    let channels = (channels as usize).clamp(1, 4096);
    let step = -width / channels as f64;
    let Ok(band) = Band::uniform(centre + width / 2.0, step, channels) else { return };
    let levin = ToleranceOptions { tolerance, ..ToleranceOptions::default() };
    let presto =
        DdplanOptions { time_resolution_s: resolution_us * 1e-6, ..DdplanOptions::default() };
    let plans = [
        DmPlan::fixed(&[(dm_min, dm_max, dm_step)]),
        DmPlan::tolerance(&band, tsamp_s, dm_min, dm_max, &levin),
        DmPlan::ddplan(&band, tsamp_s, dm_min, dm_max, &presto),
    ];
    for plan in plans.into_iter().flatten() {
        plan.check().expect("a plan that is made passes its own check");
        assert!(plan.trials() > 0);
        if plan.trials() <= 2000 {
            assert_eq!(plan.dms().len(), plan.trials());
            assert_eq!(plan.rows(&band, tsamp_s, DM_CONSTANT).len(), plan.ranges.len());
            bind(&plan.ranges[0], &band, tsamp_s);
        }
    }
}

/// One range bound to the band.
fn bind(range: &DmRange, band: &Band, tsamp_s: f64) {
    let options = dedisperse::Options {
        band: band.clone(),
        tsamp_s,
        dms: range.dms().into_iter().take(8).collect(),
        downsample: range.downsample,
        encoding: Encoding::U8,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    };
    if let Ok(plan) = dedisperse::Plan::new(options) {
        for dm in 0..plan.dms().len() {
            assert!(plan.trial_shift(dm) <= plan.max_shift());
            assert!(plan.valid_times(1 << 20, dm) <= 1 << 20);
        }
    }
}

/// Templates of any kind: HDF5 series and banks, LIGO_LW, CSV.
pub fn templates(bytes: &[u8]) {
    let options = TemplateOptions { rate_hz: Some(4096), distance_mpc: None };
    with_file(bytes, |path| match io::templates::open_with(path, &options) {
        Ok(Templates::Waveforms(waveforms)) => {
            assert!(!waveforms.is_empty());
            for wave in waveforms {
                assert!(wave.peak < wave.samples.len() && wave.rate_hz > 0);
                assert!(wave.samples.iter().all(|h| h.is_finite()));
            }
        }
        Ok(Templates::Binaries(binaries)) => {
            assert!(!binaries.is_empty());
            for (_, binary) in binaries {
                assert!(binary.mass1_msun > 0.0 && binary.mass2_msun > 0.0);
                assert!(binary.spin1z.abs() < 1.0 && binary.spin2z.abs() < 1.0);
            }
        }
        Err(_) => {}
    });
}

/// Power spectra: text of two columns, `.npy`.
pub fn psd(bytes: &[u8]) {
    with_file(bytes, |path| {
        for density in [Density::Power, Density::Amplitude] {
            let Ok(spectrum) = io::psd::read(path, density) else { continue };
            assert!(spectrum.densities().len() >= 2 && spectrum.spacing_hz() > 0.0);
            assert!(spectrum.densities().iter().all(|value| *value > 0.0));
        }
    });
}

/// Gives `work` a file that holds `bytes`; each thread has its own.
fn with_file(bytes: &[u8], work: impl FnOnce(&Path)) {
    thread_local! {
        static FILE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }
    FILE.with_borrow_mut(|path| {
        let path = path.get_or_insert_with(|| {
            let thread = std::thread::current().id();
            let name = format!("sidereal-fuzz-{}-{thread:?}", std::process::id());
            std::env::temp_dir().join(name.replace(['(', ')'], ""))
        });
        std::fs::write(&*path, bytes).expect("the temporary folder can be written");
        work(path);
        let _ = std::fs::remove_file(path);
    });
}
