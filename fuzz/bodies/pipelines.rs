//! Pipelines from bytes in memory: the first bytes choose the options, the others are the data.
//!
//! Each runs twice with different block lengths, and both runs must give the same bits.

use std::sync::OnceLock;

use num_complex::Complex64;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::channelize::{Feed, Products};
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::geometry::{Array, Location};
use sidereal::io::presto::Mask;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::math::{PowerSpectrum, Window};
use sidereal::pipeline::burst::{self, SearchOptions, Status};
use sidereal::pipeline::cbc::{ChirpDetector, DetectorOptions, Piece, Source, design};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, Baselines, CorrelateOptions, Gains, Integration, PhaseCentre,
};
use sidereal::pipeline::series::{self, Block, SeriesRange, SeriesSink};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, Depth, Destination, VoltageFilterbank, write_filterbank,
};
use sidereal::sample::Encoding;
use sidereal::spiir::bank::{self, Bank, Rates};
use sidereal::spiir::whiten::{self, Method, Psd};
use sidereal::strain::Waveform;
use sidereal::units::{Band, Epoch, Gps};
use sidereal::voltage::VoltageEncoding;

use super::memory::{LARGEST, Numbers, Recording, Rows};
use super::{Outcome, Read};

/// Drops the series of a dedispersion.
struct Nowhere;

impl SeriesSink for Nowhere {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        assert!(ranges.iter().all(|range| range.tsamp_s > 0.0));
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        assert!(block.valid.iter().all(|valid| *valid <= block.plane.times()));
        Ok(())
    }

    fn observe(&mut self, _: &Status) -> bool {
        true
    }
}

/// Searches and dedisperses a small recording at three trials.
pub(super) fn burst(open: impl Fn() -> Result<Box<dyn FilterbankSource>>) -> Result<()> {
    let mut source = open()?;
    let header = source.header();
    let most = (LARGEST / header.row_bytes()) as u64;
    if header.times.is_none_or(|times| times > most) {
        return Ok(());
    }
    let plan = DmPlan::fixed(&[(0.0, 20.0, 10.0)])?;
    let options = SearchOptions { gulp: 33, ..SearchOptions::new(plan) };
    burst::search(burst::Source::Rows(source.as_mut()), &options, &Backend::best(1), &mut |_| {
        true
    })?;
    series::dedisperse(open()?.as_mut(), &options, &Backend::best(1), &mut Nowhere)?;
    Ok(())
}

/// Makes a filterbank of a small voltage recording, and correlates its first antenna with itself.
pub(super) fn voltages(open: impl Fn() -> Result<Box<dyn VoltageSource>>) -> Result<()> {
    let source = open()?;
    let header = source.header();
    let bytes = header.encoding.sample_bits() as u64 * header.streams() as u64 / 8 + 1;
    if header.times.is_none_or(|times| times.saturating_mul(bytes) > 4 * LARGEST as u64) {
        return Ok(());
    }
    let (antennas, duration_s) = (header.antennas, header.duration_s().unwrap_or(1.0));
    let options = ChannelizeOptions { taps: 2, ..ChannelizeOptions::new(2) };
    let mut rows = VoltageFilterbank::new(source, &options, &Backend::best(1))?;
    let nowhere = Destination::Pipe(Box::new(std::io::sink()));
    write_filterbank(&mut rows, nowhere, Depth::U8, &mut |_| true)?;
    if antennas <= 4 {
        let options = CorrelateOptions {
            taps: 2,
            channelize: Some(true),
            integration_s: 0.4 * duration_s,
            ..CorrelateOptions::new(2)
        };
        integrations(vec![open()?], &options)?;
    }
    Ok(())
}

/// Correlates recordings of antennas some metres apart.
fn integrations(
    sources: Vec<Box<dyn VoltageSource>>,
    options: &CorrelateOptions,
) -> Result<Vec<Integration>> {
    let (mut places, mut inputs) = (Vec::new(), Vec::new());
    for source in sources {
        let first = places.len();
        let names: Vec<String> =
            (first..first + source.header().antennas).map(|i| format!("A{i}")).collect();
        for name in &names {
            let i = places.len() as f64;
            places.push((name.clone(), [13.0 * i * i, 29.0 * i - 5.0, 0.5 * i]));
        }
        inputs.push(ArrayInput { antennas: names, source });
    }
    let location = Location { longitude_deg: -107.6, latitude_deg: 37.0, height_m: 2100.0 };
    let array = Array::from_enu("fuzz", &places, location)?;
    let mut correlator = ArrayCorrelator::new(&array, inputs, options, &Backend::best(1))?;
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    while all.len() < 1000 && correlator.next_integration(&mut integration)? {
        all.push(integration.clone());
    }
    Ok(all)
}

/// A search of rows in memory.
pub(super) fn search(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let encoding = numbers.one_of(&Encoding::ALL);
    let channels = 8 * (1 + numbers.below(4));
    let step_mhz = numbers.one_of(&[-1.0, 1.0, -10.0, 0.1]);
    let tsamp_s = numbers.one_of(&[1e-3, 1e-5, 0.1, 7e-4]);
    let dm_max = 3.0 * f64::from(numbers.byte());
    let plan = DmPlan::fixed(&[(0.0, dm_max, (dm_max / 7.0).max(0.5))])?;
    let flags = numbers.byte();
    let mut options = SearchOptions {
        snr: 3.0 + numbers.below(8) as f64,
        max_width_s: tsamp_s * (1 + numbers.below(64)) as f64,
        baseline_s: tsamp_s * (8.0 + f64::from(numbers.byte())),
        zero_dm: flags & 1 != 0,
        auto_mask: flags & 2 != 0,
        gulp: 1 + numbers.below(100),
        ..SearchOptions::new(plan)
    };
    if flags & 4 != 0 {
        options.zapped = vec![numbers.below(channels)];
    }
    if flags & 8 != 0 {
        options.time_range = Some((10.0 * tsamp_s, 200.0 * tsamp_s));
    }
    let rows = numbers.data();
    let header = header(Band::uniform(1500.0, step_mhz, channels)?, encoding, tsamp_s, None);
    let times = (rows.len() / header.row_bytes()) as u64;
    let known = FilterbankHeader { times: Some(times), ..header.clone() };
    let found = |header: &FilterbankHeader, options: &SearchOptions| {
        let mut source = Rows { header: header.clone(), bytes: rows, next: 0 };
        let report = burst::search(
            burst::Source::Rows(&mut source),
            options,
            &Backend::best(1),
            &mut |_| true,
        )?;
        // Text, so that NaN equals itself.
        Ok::<String, sidereal::Error>(format!("{:?}", report.candidates))
    };
    let first = found(&known, &options)?;
    assert_eq!(first, found(&known, &SearchOptions { gulp: 0, ..options.clone() })?);
    // Rows from a pipe, whose number is unknown.
    let _ = found(&header, &options);
    let mut source = Rows { header: known, bytes: rows, next: 0 };
    series::dedisperse(&mut source, &options, &Backend::best(1), &mut Nowhere)?;
    Ok(Read::Whole)
}

/// A header of voltages and the source of its options.
fn recorded(numbers: &mut Numbers<'_>) -> VoltageHeader {
    let encoding = numbers.one_of(&VoltageEncoding::ALL);
    let coarse = 1 + numbers.below(3);
    let centres = (0..coarse).map(|k| 1.4e9 + 1e6 * k as f64).collect();
    let flags = numbers.byte();
    VoltageHeader {
        lower_sideband: flags & 1 != 0,
        polarizations: 1 + usize::from(flags & 2 != 0),
        circular: (flags & 4 != 0).then_some(flags & 8 != 0),
        scale: numbers.one_of(&[1.0, 1e-3, 250.0]),
        start: Epoch::new(60000, 43200.0),
        ..VoltageHeader::new(centres, 1e-6, encoding)
    }
}

/// A filter bank over voltages in memory.
pub(super) fn channelize(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let header = VoltageHeader { antennas: 1 + numbers.below(2), ..recorded(&mut numbers) };
    let channels = numbers.one_of(&[1, 2, 4, 6, 8, 16, 15]);
    let products = [Products::I, Products::Power, Products::Iquv, Products::Aabbcrci];
    let options = ChannelizeOptions {
        taps: 1 + numbers.below(5),
        oversampling: numbers.one_of(&[(1, 1), (4, 3), (2, 1), (8, 7)]),
        products: numbers.one_of(&products),
        feed: numbers.one_of(&[None, Some(Feed::Linear), Some(Feed::Circular)]),
        integrate: 1 + numbers.below(5),
        average_channels: numbers.one_of(&[1, 2, 3]),
        interpolate_dc: numbers.byte() & 1 != 0,
        coherent_dm: numbers.one_of(&[None, Some(0.1), Some(5.0)]),
        ascending: numbers.byte() & 1 != 0,
        antenna: numbers.one_of(&[None, Some(0)]),
        gulp: numbers.byte().into(),
        ..ChannelizeOptions::new(channels)
    };
    let depth = numbers.one_of(&[Depth::F32, Depth::U8]);
    let Some(recording) = Recording::new(header, numbers.data()) else {
        return Ok(Read::Part);
    };
    let rows = |options: &ChannelizeOptions, most: usize| {
        let source = Box::new(recording.clone());
        let mut bank = VoltageFilterbank::new(source, options, &Backend::best(1))?;
        let mut some = vec![0.0; most * bank.row_elements()];
        let mut bits: Vec<u32> = Vec::new();
        loop {
            let times = bank.read_rows(&mut some)?;
            bits.extend(some[..times * bank.row_elements()].iter().map(|x| x.to_bits()));
            if times < most {
                return Ok::<Vec<u32>, sidereal::Error>(bits);
            }
        }
    };
    let first = rows(&options, 5)?;
    assert_eq!(first, rows(&ChannelizeOptions { gulp: 0, ..options.clone() }, 100)?);
    let source = Box::new(recording);
    let mut bank = VoltageFilterbank::new(source, &options, &Backend::best(1))?;
    let nowhere = Destination::Pipe(Box::new(std::io::sink()));
    write_filterbank(&mut bank, nowhere, depth, &mut |_| true)?;
    Ok(Read::Whole)
}

/// The correlation of two or three antennas in memory.
pub(super) fn correlate(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let header = recorded(&mut numbers);
    let antennas = 2 + numbers.below(2);
    let channels = numbers.one_of(&[1, 2, 4, 8, 16]);
    let flags = numbers.byte();
    let options = CorrelateOptions {
        taps: 1 + numbers.below(4),
        channelize: numbers.one_of(&[None, Some(true), Some(false)]),
        nbits: numbers.one_of(&[8, 4, 32]),
        gains: if numbers.below(2) == 0 { Gains::Auto } else { Gains::Fixed(3.0) },
        integration_s: 1e-5 * (1 + numbers.below(40)) as f64,
        average_channels: numbers.one_of(&[1, 2]),
        baselines: if flags & 1 == 0 { Baselines::All } else { Baselines::Autos },
        phase_centre: match flags & 2 {
            0 => PhaseCentre::Drift,
            _ => PhaseCentre::Sidereal { ra_deg: 10.0, dec_deg: 20.0, name: "x".into() },
        },
        cable_delays_s: match flags & 4 {
            0 => Vec::new(),
            _ => (0..antennas).map(|i| 1.7e-6 * i as f64).collect(),
        },
        shortest: flags & 8 != 0,
        gulp: numbers.below(64),
        ..CorrelateOptions::new(channels)
    };
    let rest = numbers.data();
    let pieces = rest.chunks_exact((rest.len() / antennas).max(1)).take(antennas);
    let recordings: Option<Vec<Recording>> =
        pieces.map(|piece| Recording::new(header.clone(), piece)).collect();
    let Some(recordings) = recordings.filter(|all| all.len() == antennas) else {
        return Ok(Read::Part);
    };
    let sums = |options: &CorrelateOptions| {
        let source = |one: &Recording| Box::new(one.clone()) as Box<dyn VoltageSource>;
        let all = integrations(recordings.iter().map(source).collect(), options)?;
        Ok::<String, sidereal::Error>(format!("{all:?}"))
    };
    let first = sums(&options)?;
    assert_eq!(first, sums(&CorrelateOptions { gulp: 0, ..options.clone() })?);
    Ok(Read::Whole)
}

/// Samples a second of the strain that is filtered.
pub(super) const RATE_HZ: u32 = 256;

/// Standard deviation of the strain noise.
pub(super) const SIGMA: f64 = 1e-21;

/// White noise's power spectrum.
fn white() -> PowerSpectrum {
    let density = 2.0 * SIGMA * SIGMA / f64::from(RATE_HZ);
    PowerSpectrum::new(1.0, vec![density; RATE_HZ as usize / 2 + 1]).expect("a spectrum")
}

/// The filters of one short chirp.
fn chirp_bank() -> &'static Bank {
    static BANK: OnceLock<Bank> = OnceLock::new();
    BANK.get_or_init(|| {
        let sample = |k: usize| {
            let t = k as f64 / f64::from(RATE_HZ);
            let phase = std::f64::consts::TAU * (25.0 * t + 60.0 * t * t);
            Complex64::from_polar(SIGMA * (0.2 + t), -phase)
        };
        let wave = Waveform::new("chirp", None, RATE_HZ, (0..128).map(sample).collect(), 1.0);
        let options = bank::Options {
            f_low_hz: 20.0,
            minimum_match: 0.8,
            rates: Rates::Multi { lowest_hz: 128.0 },
            autocorrelation_length: 41,
            ..bank::Options::default()
        };
        let source = Source { waveforms: vec![wave.expect("a wave")], options };
        design(&source, &white(), &Threads::new(1)).expect("a bank")
    })
}

/// A chain over strain of the bank's rate.
pub(super) fn detector(method: Method) -> Result<ChirpDetector> {
    let psd = Psd::Fixed(white());
    let options = DetectorOptions {
        whitening: whiten::Options { method, ..whiten::Options::new(RATE_HZ, psd) },
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
    };
    ChirpDetector::new(Gps::from_s(1e9), chirp_bank(), &options, &Backend::best(1))
}

/// Whitens strain, filters it with a small bank, and looks for triggers.
pub(super) fn filter(
    strain: &[f64],
    valid: &[bool],
    method: Method,
    block: usize,
) -> Result<String> {
    let mut detector = detector(method)?;
    let mut keep = |piece: Piece<'_>| {
        if let Piece::Whitened { samples, .. } = piece {
            assert!(samples.iter().all(|x| x.is_finite()));
        }
    };
    for (strain, valid) in strain.chunks(block).zip(valid.chunks(block)) {
        detector.run(strain, valid, &mut keep)?;
    }
    detector.flush(&mut keep)?;
    Ok(format!("{:?}", detector.triggers()))
}

/// Matched filters of strain in memory.
pub(super) fn spiir_filter(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let methods = [Method::Overlap { fft_s: 1.0 }, Method::MinimumPhase { taps_s: 1.0 }];
    let method = numbers.one_of(&methods);
    let block = 1 + usize::from(numbers.byte());
    let scale = SIGMA / 16.0 * numbers.one_of(&[1.0, 1e3, 1e-30]);
    let rest = numbers.data();
    let strain: Vec<f64> = rest
        .iter()
        .map(|byte| match *byte as i8 {
            127 => f64::NAN,
            -128 => f64::INFINITY,
            126 => 1e300,
            value => scale * f64::from(value),
        })
        .collect();
    let valid: Vec<bool> = rest.iter().map(|byte| *byte != 100).collect();
    let valid = &valid[..strain.len()];
    let first = filter(&strain, valid, method, block)?;
    assert_eq!(first, filter(&strain, valid, method, 1 << 14)?);
    Ok(Read::Whole)
}

/// A filter bank of 2 taps and 8 points with a window of its own, over a short ramp.
pub(super) fn with_window(window: Window) -> Result<()> {
    let header = VoltageHeader::new(vec![1.4e9], 1e-6, VoltageEncoding::Complex8);
    let ramp: Vec<u8> = (0..=255).collect();
    let Some(recording) = Recording::new(header, &ramp) else { return Ok(()) };
    let options = ChannelizeOptions { taps: 2, window, ..ChannelizeOptions::new(8) };
    let mut bank = VoltageFilterbank::new(Box::new(recording), &options, &Backend::best(1))?;
    let mut rows = vec![0.0; 100 * bank.row_elements()];
    assert!(bank.read_rows(&mut rows)? > 0);
    Ok(())
}

/// A search of rows with a mask.
pub(super) fn masked(mask: Mask, band: Band) -> Result<()> {
    let channels = band.channels();
    let bytes: Vec<u8> = (0..64 * channels).map(|k| (k * 37 % 251) as u8).collect();
    let header = header(band, Encoding::U8, 1e-3, Some(64));
    let options = SearchOptions {
        mask: Some(mask),
        ..SearchOptions::new(DmPlan::fixed(&[(0.0, 0.0, 1.0)])?)
    };
    let mut source = Rows { header, bytes: &bytes, next: 0 };
    burst::search(burst::Source::Rows(&mut source), &options, &Backend::best(1), &mut |_| true)?;
    Ok(())
}

/// A header of rows in memory.
pub(super) fn header(
    band: Band,
    encoding: Encoding,
    tsamp_s: f64,
    times: Option<u64>,
) -> FilterbankHeader {
    FilterbankHeader {
        path: "fuzz".into(),
        format: "memory",
        source_name: String::new(),
        telescope: String::new(),
        ra_deg: None,
        dec_deg: None,
        beam: None,
        tstart_mjd: 60000.0,
        tsamp_s,
        band,
        encoding,
        recorded_bits: encoding.bits(),
        recorded_polarizations: 1,
        times,
    }
}
