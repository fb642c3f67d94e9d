//! Gaps in voltages: their fill contains nothing that a search could detect, and adds no row.

use crate::support::memory;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::burst::{self, SearchOptions};
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};

#[test]
fn a_search_finds_nothing_in_filled_noise() {
    let header =
        VoltageHeader { polarizations: 2, ..header(&[401.0, 400.0], VoltageEncoding::Complex8) };
    let flag = |start, times| Flag { streams: 0..4, start, times };
    let flags = vec![flag(1_000_000, 50_000), flag(2_600_000, 300_000)];
    let missing = |time: usize| {
        let time = time as u64;
        flags.iter().any(|flag| time >= flag.start && time < flag.start + flag.times)
    };
    let mut source = Memory::new(header, 4_000_000, |stream, time| {
        noise(stream, time) * if missing(time) { 0.0 } else { 40.0 }
    });
    source.flags.clone_from(&flags);
    let options = ChannelizeOptions { integrate: 8, ..ChannelizeOptions::new(16) };
    let backend = Backend::best(2);
    let mut filterbank = VoltageFilterbank::new(source.boxed(), &options, &backend).unwrap();
    let search = SearchOptions::new(DmPlan { ranges: vec![DmRange::new(0.0, 100.0, 1.0)] });
    let report =
        burst::search(burst::Source::Voltages(&mut filterbank), &search, &backend, &mut |_| true)
            .unwrap();
    assert_eq!(report.gaps.len(), 2);
    assert!(report.candidates.is_empty(), "{:?}", report.candidates);
}

#[test]
fn nothing_but_a_gap_is_refused() {
    let header = header(&[400.0], VoltageEncoding::ComplexF32);
    let mut source = Memory::new(header, 10_000, noise);
    source.flags = vec![Flag { streams: 0..1, start: 2000, times: 6000 }];
    let open = |source: &Memory, range| {
        let options = ChannelizeOptions { time_range: range, ..ChannelizeOptions::new(16) };
        VoltageFilterbank::new(source.boxed(), &options, &Backend::best(1))
    };
    let error = open(&source, Some((3e-3, 7e-3))).unwrap_err().to_string();
    assert!(error.contains("time_range") && error.contains("missing"), "{error}");
    assert!(open(&source, Some((3e-3, 9e-3))).is_ok());
    source.flags = vec![Flag { streams: 0..1, start: 0, times: 10_000 }];
    assert!(open(&source, None).unwrap_err().to_string().contains("missing"));
}

#[test]
fn samples_that_are_not_finite_are_zeros_and_counted() {
    for (encoding, coherent_dm) in [
        (VoltageEncoding::ComplexF32, None),
        (VoltageEncoding::ComplexF32, Some(10.0)),
        (VoltageEncoding::RealF32, None),
    ] {
        let with = |bad: [Complex<f64>; 3]| {
            Memory::new(header(&[1400.0], encoding), 10_000, move |stream, time| match time {
                1000 => bad[0],
                1001 => bad[1],
                5555 => bad[2],
                _ => noise(stream, time),
            })
        };
        let infinite = Complex::new(f64::NEG_INFINITY, 1.0);
        let not = Complex::new(f64::NAN, f64::NAN);
        let options = ChannelizeOptions { coherent_dm, ..ChannelizeOptions::new(16) };
        let read = |source: Memory| {
            let backend = Backend::best(1);
            let mut filterbank =
                VoltageFilterbank::new(Box::new(source), &options, &backend).unwrap();
            let mut rows = vec![0.0; filterbank.row_elements() * 200];
            filterbank.read_rows(&mut rows).unwrap();
            let mut rest = rows.clone();
            filterbank.read_rows(&mut rest).unwrap();
            (rows, rest, filterbank.not_finite())
        };
        let (rows, rest, count) = read(with([not, infinite, not]));
        let expected = read(with([Complex::ZERO; 3]));
        assert!(rows == expected.0 && rest == expected.1, "{encoding:?} {coherent_dm:?}");
        assert_eq!((count, expected.2), (3, 0), "{encoding:?} {coherent_dm:?}");
    }
}
