//! Runs over voltages that end early: their output so far is saved, with the bits of a whole run.

use crate::support::memory;
use std::path::{Path, PathBuf};

use memory::{Memory, header, noise};
use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageOptions, open};
use sidereal::io::{FilterbankSource, Polarizations, sigproc};
use sidereal::pipeline::Ending;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Depth, Destination, Gains, Requantization,
    VoltageFilterbank, VoltageFormat, VoltageReport, WriteReport, write_filterbank, write_voltages,
};
use sidereal::voltage::VoltageEncoding;

/// Samples of the recording.
const TIMES: usize = 80_000;

/// Samples per read.
const GULP: usize = 1000;

fn recording() -> Memory {
    let header =
        VoltageHeader { polarizations: 2, ..header(&[1400.0, 1401.0], VoltageEncoding::Complex8) };
    let mut memory = Memory::new(header, TIMES, |stream, time| noise(stream, time) * 60.0);
    memory.flags = vec![Flag { streams: 0..4, start: 30_000, times: 500 }];
    memory
}

fn options() -> ChannelizeOptions {
    ChannelizeOptions { products: Products::Iquv, gulp: GULP, ..ChannelizeOptions::new(8) }
}

fn filterbank(
    source: &Memory,
    options: &ChannelizeOptions,
    (path, depth): (&Path, Depth),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> sidereal::Result<WriteReport> {
    let mut rows = VoltageFilterbank::new(source.boxed(), options, &Backend::best(2)).unwrap();
    let to = Destination::File(path);
    write_filterbank(&mut rows, to, depth, &mut |status| go_on(status.times))
}

fn voltages(
    source: &Memory,
    (path, format): (&Path, VoltageFormat),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> sidereal::Result<VoltageReport> {
    let options = ChannelizeOptions { products: Products::I, ..options() };
    let form = Requantization { bits: 8, gains: Gains::Automatic };
    let mut made =
        ChannelizedVoltages::new(source.boxed(), &options, &form, &Backend::best(2)).unwrap();
    write_voltages(&mut made, path, format, &mut |status| go_on(status.times))
}

/// All rows of a filterbank's IF, as bytes; the file determines their number.
fn rows(path: &Path, number: usize) -> Vec<u8> {
    let mut reader = sigproc::open(path, Polarizations::One(number)).unwrap();
    let times = reader.header().times.unwrap() as usize;
    let mut rows = vec![0; times * reader.header().row_bytes()];
    assert_eq!(reader.read(&mut rows).unwrap(), times);
    rows
}

/// All samples of a recording, stream by stream.
fn samples(path: PathBuf) -> Vec<Vec<u8>> {
    let mut source = open(&[path], &VoltageOptions::default()).unwrap();
    assert!(source.cut().is_none());
    let times = source.header().times.unwrap() as usize;
    let mut block = source.header().block(times);
    assert_eq!(source.read(&mut block).unwrap(), times);
    (0..source.header().streams()).map(|stream| block.voltages().row(stream).to_vec()).collect()
}

fn is_broken(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(error) if error.to_string().contains("a sector is broken"))
        && ending.reason().is_some_and(|why| why.contains("memory"))
}

#[test]
fn a_filterbank_keeps_the_rows_before_a_read_error() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole.fil"), folder.path().join("part.fil"));
    let cases = [
        (None, Depth::F32, TIMES - 1),
        (None, Depth::F32, 31_000),
        (None, Depth::F32, 30_100),
        (Some(1.0), Depth::F32, 50_000),
        // After the rows that determine the scaling.
        (None, Depth::U8, 60_000),
    ];
    for (coherent_dm, depth, first) in cases {
        let options = ChannelizeOptions { coherent_dm, ..options() };
        let mut source = recording();
        let all = filterbank(&source, &options, (&whole, depth), &mut |_| true).unwrap();
        assert!(all.ending.is_complete());
        source.broken_from = Some(first);
        let report = filterbank(&source, &options, (&part, depth), &mut |_| true).unwrap();
        assert!(is_broken(&report.ending), "{:?}", report.ending);
        // All but the rows of the last reads, of the source and of the dedispersion.
        let held = if coherent_dm.is_some() { 20_000 } else { GULP + 128 };
        let least = (first - held) as u64 / 8;
        // Gaps are not read.
        let most = if first == 30_100 { 30_500 } else { first } as u64 / 8;
        assert!((least..=most).contains(&report.rows), "{first}: {}", report.rows);
        for number in 0..4 {
            let (found, expected) = (rows(&part, number), rows(&whole, number));
            let row = expected.len() / all.rows as usize;
            assert_eq!(found.len(), report.rows as usize * row);
            assert!(expected.starts_with(&found), "{first} {number}");
        }
    }
}

#[test]
fn a_filterbank_keeps_the_rows_before_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole.fil"), folder.path().join("part.fil"));
    let source = recording();
    let file = (whole.as_path(), Depth::F32);
    filterbank(&source, &options(), file, &mut |_| true).unwrap();
    let expected = rows(&whole, 0);
    let file = (part.as_path(), Depth::F32);
    let report = filterbank(&source, &options(), file, &mut |rows| rows < 4000).unwrap();
    assert!(matches!(report.ending, Ending::Stopped));
    assert!((4000..9000).contains(&report.rows), "{}", report.rows);
    assert!(report.gaps.iter().all(|gap| gap.start_time + gap.times <= report.rows));
    assert!(expected.starts_with(&rows(&part, 0)));
    // A stop between two of the many blocks of voltages of a long row.
    let options = ChannelizeOptions { integrate: 500, ..options() };
    let mut bank = VoltageFilterbank::new(source.boxed(), &options, &Backend::best(2)).unwrap();
    let mut blocks = 0;
    bank.watched_by(Box::new(move || {
        blocks += 1;
        blocks <= 30
    }));
    let to = Destination::File(&part);
    let report = write_filterbank(&mut bank, to, Depth::F32, &mut |_| true).unwrap();
    assert!(matches!(report.ending, Ending::Stopped));
    assert_eq!(report.rows, 30 * GULP as u64 / 4000);
    assert_eq!(rows(&part, 0).len() as u64, report.rows * 16 * 4);
    // Before the first row there is nothing to save, and nothing is lost.
    let gone = folder.path().join("gone.fil");
    let mut bank = VoltageFilterbank::new(source.boxed(), &options, &Backend::best(2)).unwrap();
    bank.watched_by(Box::new(|| false));
    let to = Destination::File(&gone);
    let report = write_filterbank(&mut bank, to, Depth::F32, &mut |_| true).unwrap();
    assert!(matches!(report.ending, Ending::Stopped) && report.rows == 0 && !gone.exists());
}

#[test]
fn voltages_keep_the_samples_before_an_error_or_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [(VoltageFormat::Guppi, "raw"), (VoltageFormat::Dada, "dada")] {
        let whole = folder.path().join(format!("whole.{name}"));
        let part = folder.path().join(format!("part.{name}"));
        let mut source = recording();
        let all = voltages(&source, (&whole, format), &mut |_| true).unwrap();
        assert!(all.ending.is_complete() && all.times == (TIMES as u64 - 64) / 8 + 1);
        let expected = samples(whole);
        let check = |report: &VoltageReport| {
            let found = samples(part.clone());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.len(), report.times as usize * 2);
                assert!(expected.starts_with(found), "{name}");
            }
        };
        let options = (part.as_path(), format);
        source.broken_from = Some(50_000);
        let report = voltages(&source, options, &mut |_| true).unwrap();
        assert!(is_broken(&report.ending), "{:?}", report.ending);
        assert!((48_000 / 8..50_000 / 8).contains(&report.times), "{}", report.times);
        check(&report);
        source.broken_from = None;
        let report = voltages(&source, options, &mut |_| false).unwrap();
        assert!(matches!(report.ending, Ending::Stopped) && report.times > 0);
        check(&report);
    }
}

#[test]
fn an_error_before_the_first_row_is_one_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fil");
    let mut source = recording();
    source.broken_from = Some(20);
    let error = filterbank(&source, &options(), (&path, Depth::F32), &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("a sector is broken"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_a_cut_recording_lacks_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fil");
    let mut source = recording();
    source.cut = Some("memory: 3 bytes of a sample".to_owned());
    let cut = |ending: &Ending| matches!(ending, Ending::Cut(why) if why.contains("3 bytes"));
    for coherent_dm in [None, Some(1.0)] {
        let options = ChannelizeOptions { coherent_dm, ..options() };
        let report = filterbank(&source, &options, (&path, Depth::F32), &mut |_| true).unwrap();
        assert!(cut(&report.ending) && report.rows == (TIMES as u64 - 64) / 8 + 1);
    }
    let report = voltages(&source, (&path, VoltageFormat::Dada), &mut |_| true).unwrap();
    assert!(cut(&report.ending));
    // A segment that ends before the cut is complete.
    let options = ChannelizeOptions { time_range: Some((0.0, 0.05)), ..options() };
    let report = filterbank(&source, &options, (&path, Depth::F32), &mut |_| true).unwrap();
    assert!(report.ending.is_complete());
}
