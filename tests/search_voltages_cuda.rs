//! A search of recorded voltages on a GPU, which makes the rows there, finds what the processor finds; on whatever
//! device is there: a real one, or the emulator of `tests/cuda_on_host`.
//!
//! Verification method: test against the same search by way of the host, on the same device, whose candidates must
//! be the same in every bit, and against the search on the processor, whose rows differ by the rounding of another
//! Fourier transform.

#[path = "common/cuda.rs"]
mod cuda;

use std::sync::Arc;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::pipeline::burst::{Report, SearchOptions, Source, Status, search};
use sidereal::pipeline::recent::RecentRows;
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::units::DM_CONSTANT;
use sidereal::voltage::VoltageEncoding;

#[path = "voltage/arriving.rs"]
mod arriving;
#[path = "voltage/memory.rs"]
mod memory;

use arriving::Arriving;
use memory::{Memory, header, noise};

/// The rows of another source, and nothing else of it.
struct Rows(VoltageFilterbank);

impl FilterbankSource for Rows {
    fn header(&self) -> &FilterbankHeader {
        self.0.header()
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        self.0.read(rows)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.0.skip(times)
    }

    fn gaps(&self) -> &[Gap] {
        self.0.gaps()
    }
}

const TIMES: usize = 48_000;

/// Samples from the recording's first one to the bursts, and of a burst.
const BURSTS: [usize; 2] = [15_000, 41_000];
const WIDTH: usize = 400;

const DM: f64 = 12.0;

/// Noise in which all is twice as large during a burst, later in lower recorded channels.
fn recording(header: VoltageHeader) -> Memory {
    let highest = header.centres_hz.iter().fold(0.0f64, |a, b| a.max(*b)) * 1e-6;
    let delay = |centre_hz: f64| {
        let delay_s = DM_CONSTANT * DM * ((centre_hz * 1e-6).powi(-2) - highest.powi(-2));
        (delay_s / header.tsamp_s) as usize
    };
    let delays: Vec<usize> = header.centres_hz.iter().map(|centre| delay(*centre)).collect();
    let (polarizations, coarse) = (header.polarizations, header.coarse_channels());
    Memory::new(header, TIMES, move |stream, time| {
        let delay = delays[stream / polarizations % coarse];
        let within = |start: usize| (start + delay..start + delay + WIDTH).contains(&time);
        let gain = if BURSTS.into_iter().any(within) { 60.0 } else { 30.0 };
        gain * noise(stream, time)
    })
}

/// One recording of eight channels with both polarizations.
fn plain() -> VoltageHeader {
    let centres: Vec<f64> = (0..4).map(|channel| 403.0 - f64::from(channel)).collect();
    VoltageHeader { polarizations: 2, ..header(&centres, VoltageEncoding::Complex8) }
}

fn channels(channels: usize, integrate: usize) -> ChannelizeOptions {
    ChannelizeOptions { taps: 4, integrate, ..ChannelizeOptions::new(channels) }
}

fn options() -> SearchOptions {
    let mut options = SearchOptions::new(DmPlan { ranges: vec![DmRange::new(0.0, 24.0, 2.0)] });
    (options.baseline_s, options.max_width_s) = (0.01, 0.002);
    options
}

/// A search run by three methods.
struct Case {
    what: &'static str,
    source: Memory,
    channelize: ChannelizeOptions,
    search: SearchOptions,
}

impl Case {
    fn new(what: &'static str, header: VoltageHeader, channelize: ChannelizeOptions) -> Self {
        Self { what, source: recording(header), channelize, search: options() }
    }

    fn open(&self, backend: &Backend) -> VoltageFilterbank {
        VoltageFilterbank::new(self.source.boxed(), &self.channelize, backend).unwrap()
    }

    fn run(&self, source: Source<'_>, backend: &Backend) -> Report {
        search(source, &self.search, backend, &mut |_| true).unwrap()
    }

    /// The report of the search on the device, which is the others'.
    fn check(&self, gpu: &Backend) -> Report {
        let what = self.what;
        let found = self.run(Source::Voltages(&mut self.open(gpu)), gpu);
        let rows = self.run(Source::Rows(&mut Rows(self.open(gpu))), gpu);
        let cpu = Backend::best(2);
        let expected = self.run(Source::Voltages(&mut self.open(&cpu)), &cpu);
        assert!(!expected.candidates.is_empty(), "{what}: the processor finds nothing");
        assert_eq!(found.candidates, rows.candidates, "{what}: by way of the host");
        for (other, place) in [(&rows, "by way of the host"), (&expected, "on the processor")] {
            assert_eq!(found.dms, other.dms, "{what} {place}");
            assert_eq!(found.masked_channels, other.masked_channels, "{what} {place}");
            assert_eq!((found.times, &found.gaps), (other.times, &other.gaps), "{what} {place}");
        }
        let (found_list, list) = (&found.candidates, &expected.candidates);
        assert_eq!(found_list.len(), list.len(), "{what}: {found_list:?} {list:?}");
        for (found, expected) in found_list.iter().zip(list) {
            assert_eq!((found.dm, found.time_s), (expected.dm, expected.time_s), "{what}");
            assert_eq!(found.width_s, expected.width_s, "{what}");
            assert!(
                (found.snr / expected.snr - 1.0).abs() < 1e-3,
                "{what}: {found:?} {expected:?}"
            );
        }
        found
    }
}

#[test]
fn candidates_are_those_of_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    let one = header(&[400.0], VoltageEncoding::Complex8);
    let jumbled = |encoding| VoltageHeader {
        antennas: 3,
        polarizations: 2,
        ..header(&[401.0, 402.0, 400.0], encoding)
    };
    let lower = VoltageHeader { lower_sideband: true, ..plain() };
    let real = VoltageHeader { antennas: 2, ..header(&[400.0, 400.5], VoltageEncoding::Real8) };
    let short = header(&[400.5, 400.0], VoltageEncoding::Real16);
    let packed = VoltageHeader { encoding: VoltageEncoding::Real10, ..short.clone() };
    let cases = [
        Case::new("one stream", one.clone(), channels(32, 1)),
        Case::new("two polarizations", plain(), channels(8, 4)),
        Case::new("jumbled antennas", jumbled(VoltageEncoding::Complex16), channels(8, 4)),
        Case::new(
            "jumbled antennas of floats",
            jumbled(VoltageEncoding::ComplexF32),
            channels(8, 3),
        ),
        Case::new(
            "lower sideband",
            lower.clone(),
            ChannelizeOptions { ascending: true, ..channels(8, 4) },
        ),
        Case::new("real samples", real, channels(8, 2)),
        Case::new("wide real samples", short, channels(8, 2)),
        Case::new("samples of 10 bits", packed, channels(8, 2)),
        Case::new(
            "oversampled, averaged, without the middle",
            lower,
            ChannelizeOptions {
                oversampling: (4, 3),
                average_channels: 2,
                interpolate_dc: true,
                ..channels(12, 2)
            },
        ),
        Case::new(
            "coherently dedispersed",
            plain(),
            ChannelizeOptions { coherent_dm: Some(DM), interpolate_dc: true, ..channels(8, 4) },
        ),
    ];
    for case in cases {
        case.check(&gpu);
    }
}

#[test]
fn several_gpus_find_in_voltages_what_one_finds() {
    let Some((one, all)) = cuda::several(2) else { return };
    for gulp in [0, 77] {
        let mut case = Case::new("voltages", plain(), channels(8, 4));
        case.search.plan = DmPlan { ranges: vec![DmRange::new(0.0, 24.0, 0.125)] };
        case.search.list_absorbed = true;
        case.search.gulp = gulp;
        let expected = case.check(&one);
        let found = case.check(&all);
        assert_eq!(found.absorbed, expected.absorbed, "{gulp}");
        assert_eq!(found.candidates, expected.candidates, "{gulp}");
    }
}

/// Rows that several GPUs dedisperse coherently pass through the host, unless they are as long as the voltages.
#[test]
fn several_gpus_dedisperse_coherently_what_one_searches() {
    let Some((one, all)) = cuda::several(2) else { return };
    for (integrate, is_divided) in [(4, true), (1, false)] {
        let dispersed = ChannelizeOptions { coherent_dm: Some(DM), ..channels(8, integrate) };
        let case = Case::new("coherently dedispersed", plain(), dispersed);
        let filterbank = case.open(&all);
        let recent = Arc::new(RecentRows::new(filterbank.header(), 1 << 20).unwrap());
        let options = SearchOptions { recent: Some(Arc::clone(&recent)), ..case.search.clone() };
        let mut opened = case.open(&all);
        search(Source::Voltages(&mut opened), &options, &all, &mut |_| true).unwrap();
        assert_eq!(recent.are_on_device(), !is_divided, "{integrate}");
        assert_eq!(case.check(&all).candidates, case.check(&one).candidates, "{integrate}");
    }
}

/// The gulp that a GPU has begun when a search is stopped belongs to its rows.
#[test]
fn a_stopped_search_finds_what_a_search_of_its_rows_finds() {
    let Some(gpu) = cuda::backend(2) else { return };
    let mut case = Case::new("stopped", plain(), channels(8, 2));
    (case.search.gulp, case.search.auto_mask) = (200, false);
    // A stop within the rows that the search of the start looked at does not search them for bursts that it cuts.
    case.search.min_band = 1.0;
    let whole = case.run(Source::Voltages(&mut case.open(&gpu)), &gpu);
    for stop in [whole.times / 3, whole.times / 2] {
        let mut filterbank = case.open(&gpu);
        let row_s = filterbank.header().tsamp_s;
        let mut goes_on = |status: &Status| status.times < stop;
        let source = Source::Voltages(&mut filterbank);
        let stopped = search(source, &case.search, &gpu, &mut goes_on).unwrap();
        assert!(!stopped.ending.is_complete(), "{stop}");
        assert!((stop..whole.times).contains(&stopped.times), "{stop}: {}", stopped.times);
        let time_range = Some((0.0, stopped.times as f64 * row_s));
        let part = SearchOptions { time_range, ..case.search.clone() };
        let source = Source::Voltages(&mut case.open(&gpu));
        let expected = search(source, &part, &gpu, &mut |_| true).unwrap();
        assert!(!expected.candidates.is_empty());
        assert_eq!(stopped.times, expected.times);
        assert_eq!(stopped.candidates, expected.candidates);
    }
}

#[test]
fn any_gulp_and_any_part_give_the_same() {
    let Some(gpu) = cuda::backend(2) else { return };
    let whole = Case::new("whole", plain(), channels(8, 4)).check(&gpu);
    for gulp in [1, 77, 1000] {
        let mut case = Case::new("gulps", plain(), channels(8, 4));
        (case.search.gulp, case.search.auto_mask) = (gulp, gulp == 77);
        let found = case.check(&gpu);
        assert_eq!(found.candidates, whole.candidates, "{gulp}");
    }
    let mut case = Case::new("part", plain(), channels(8, 4));
    case.search.gulp = 100;
    case.search.time_range = Some((0.0101, 0.0443));
    for auto_mask in [false, true] {
        case.search.auto_mask = auto_mask;
        // The first and the last rows are searched on the host for bursts that they cut.
        case.search.min_band = 1.0;
        let part = case.check(&gpu);
        assert_eq!(part.times, ((0.0443f64 / 32e-6).round() - (0.0101f64 / 32e-6).round()) as u64);
    }
    case.search.time_range = None;
    case.channelize.time_range = Some((0.0101, 0.0443));
    case.channelize.antenna = Some(0);
    case.check(&gpu);
}

#[test]
fn gaps_are_filled_as_on_the_host_and_as_they_arrive() {
    let Some(gpu) = cuda::backend(2) else { return };
    let silent = |case: &mut Case, flags: &[(u64, u64)]| {
        let streams = case.source.streams.len();
        for &(start, times) in flags {
            for stream in &mut case.source.streams {
                stream[2 * start as usize..2 * (start + times) as usize].fill(0);
            }
            case.source.flags.push(Flag { streams: 0..streams, start, times });
        }
    };
    let many: &[(u64, u64)] =
        &[(5_000, 40), (12_000, 640), (20_000, 1), (20_100, 900), (33_000, 3_000), (45_000, 100)];
    for (what, flags) in [
        ("gaps", many),
        ("a gap at the start", &[(0, 3_000), (9_000, 500)]),
        ("a gap at the end", &[(46_000, 2_000)]),
    ] {
        for (gulp, auto_mask) in [(0, true), (50, false), (200, true)] {
            let mut case = Case::new(what, plain(), channels(8, 2));
            silent(&mut case, flags);
            (case.search.gulp, case.search.auto_mask) = (gulp, auto_mask);
            let found = case.check(&gpu);
            assert!(!found.gaps.is_empty(), "{what}");
            for gulp in [0, 3_000] {
                case.channelize.gulp = gulp;
                for backend in [&gpu, &Backend::best(2)] {
                    let filed = case.run(Source::Voltages(&mut case.open(backend)), backend);
                    let source = Arriving::boxed(case.source.boxed());
                    let mut source =
                        VoltageFilterbank::new(source, &case.channelize, backend).unwrap();
                    let live = case.run(Source::Voltages(&mut source), backend);
                    assert_eq!(live.candidates, filed.candidates, "{what}, live, by {gulp}");
                    assert_eq!(live.gaps, filed.gaps, "{what}, live, by {gulp}");
                }
            }
        }
    }
    // The search begins between gaps, within one, and after all.
    for from in [0.0101, 0.0339, 0.0385] {
        let mut case = Case::new("a part with gaps", plain(), channels(8, 2));
        silent(&mut case, many);
        (case.search.gulp, case.search.auto_mask) = (100, false);
        case.search.time_range = Some((from, 1.0));
        case.check(&gpu);
    }
}

/// A live search that keeps up reads no gulp ahead.
#[test]
fn a_live_search_of_a_part_ends_with_it() {
    let Some(gpu) = cuda::backend(2) else { return };
    for (gulp, range) in [(50, (0.0, 0.0443)), (100, (0.0101, 0.0443)), (64, (0.0101, 0.0399))] {
        let mut case = Case::new("a part", plain(), channels(8, 2));
        (case.search.gulp, case.search.auto_mask) = (gulp, false);
        case.search.time_range = Some(range);
        let filed = case.run(Source::Voltages(&mut case.open(&gpu)), &gpu);
        let source = Arriving::boxed(case.source.boxed());
        let mut source = VoltageFilterbank::new(source, &case.channelize, &gpu).unwrap();
        let live = case.run(Source::Voltages(&mut source), &gpu);
        assert_eq!((live.times, live.candidates), (filed.times, filed.candidates), "{range:?}");
    }
}

#[test]
fn samples_that_are_not_finite_are_zeros_on_the_way_too() {
    let Some(gpu) = cuda::backend(2) else { return };
    let floats = header(&[401.0, 400.0], VoltageEncoding::ComplexF32);
    let mut case = Case::new("not finite", floats, channels(8, 4));
    let not = Complex::new(f32::NAN, f32::INFINITY);
    case.source.streams[1][8 * 30_000..][..8].copy_from_slice(bytemuck::bytes_of(&not));
    let mut filterbank = case.open(&gpu);
    case.run(Source::Voltages(&mut filterbank), &gpu);
    assert_eq!(filterbank.not_finite(), 1);
    case.check(&gpu);
}

#[test]
fn no_rows_come_back() {
    let Some(gpu) = cuda::backend(2) else { return };
    let Backend::Cuda(device, _) = &gpu else { unreachable!("it is a GPU") };
    let mut case =
        Case::new("one stream", header(&[400.0], VoltageEncoding::Complex8), channels(32, 1));
    let mut copied = |auto_mask| {
        case.search.auto_mask = auto_mask;
        // The first and the last rows are searched on the host for bursts that they cut.
        case.search.min_band = 1.0;
        let mut filterbank = case.open(&gpu);
        let before = device.copied_out_bytes();
        let found = case.run(Source::Voltages(&mut filterbank), &gpu);
        (device.copied_out_bytes() - before, found.times * 32 * 4)
    };
    let (events, rows) = copied(false);
    let (with_mask, _) = copied(true);
    // The automatic mask looks at the first rows, which here are all; once.
    assert_eq!(with_mask - events, rows);
    assert!(events < rows / 2, "{events} of {rows} bytes");
}

#[test]
fn rows_that_stay_on_the_device_are_not_kept_for_pictures() {
    let Some(gpu) = cuda::backend(2) else { return };
    let case =
        Case::new("one stream", header(&[400.0], VoltageEncoding::Complex8), channels(32, 1));
    let stay = |source: &dyn Fn(&mut VoltageFilterbank, &SearchOptions) -> Report, backend| {
        let mut filterbank = case.open(backend);
        let recent = Arc::new(RecentRows::new(filterbank.header(), 1 << 20).unwrap());
        let options = SearchOptions { recent: Some(Arc::clone(&recent)), ..case.search.clone() };
        assert!(source(&mut filterbank, &options).times > 0);
        recent.are_on_device()
    };
    let cpu = Backend::best(2);
    let voltages = |backend: &Backend, filterbank: &mut VoltageFilterbank, options: &_| {
        search(Source::Voltages(filterbank), options, backend, &mut |_| true).unwrap()
    };
    assert!(stay(&|filterbank, options| voltages(&gpu, filterbank, options), &gpu));
    assert!(!stay(&|filterbank, options| voltages(&cpu, filterbank, options), &cpu));
    // The filter bank of the host feeds the search of the device.
    assert!(!stay(&|filterbank, options| voltages(&gpu, filterbank, options), &cpu));
}
