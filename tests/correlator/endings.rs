//! Correlations that end early: the sums so far are saved, with the bits of a whole run.

use crate::support::array;
use crate::support::memory;
use std::path::Path;

use array::{drain, inputs, recording};
use memory::{Memory, noise};
use sidereal::backend::Backend;
use sidereal::io::uvh5;
use sidereal::pipeline::Ending;
use sidereal::pipeline::correlator::{
    ArrayCorrelator, CorrelateOptions, Integration, Labels, WriteReport, write_uvh5,
};
use sidereal::voltage::VoltageEncoding;

/// Samples of each recording, and of a spectrum; those under its window.
const TIMES: usize = 80_000;
const HOP: usize = 16;
const SPAN: usize = 8 * HOP;

/// Spectra of an integration.
const SPECTRA: u64 = 625;

fn recordings() -> Vec<Memory> {
    let header = memory::header(&[1400.0, 1401.0], VoltageEncoding::Complex8);
    let own =
        |antenna| recording(&header, antenna, TIMES, |stream, time| noise(stream, time) * 9.0);
    (0..3).map(own).collect()
}

fn options() -> CorrelateOptions {
    CorrelateOptions { integration_s: 0.01, ..CorrelateOptions::new(HOP) }
}

fn bind(recordings: &[Memory], options: &CorrelateOptions) -> ArrayCorrelator {
    let array = array::array(recordings.len());
    ArrayCorrelator::new(&array, inputs(recordings), options, &Backend::best(2)).unwrap()
}

/// Integrations until the end or an error.
fn gather(correlator: &mut ArrayCorrelator) -> (Vec<Integration>, Option<sidereal::Error>) {
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    loop {
        match correlator.next_integration(&mut integration) {
            Ok(true) => all.push(integration.clone()),
            Ok(false) => return (all, None),
            Err(error) => {
                assert!(!correlator.next_integration(&mut integration).unwrap());
                return (all, Some(error));
            }
        }
    }
}

fn write(
    correlator: &mut ArrayCorrelator,
    path: &Path,
    go_on: &mut dyn FnMut(&Integration) -> bool,
) -> sidereal::Result<WriteReport> {
    write_uvh5(correlator, path, &Labels::default(), &mut |own, _| go_on(own))
}

/// Visibilities, counts, flags and times of a file.
fn contents(path: &Path) -> Vec<Vec<u8>> {
    let file = hdf5_pure::File::open(path).unwrap();
    let names = ["Data/visdata", "Data/nsamples", "Data/flags", "Header/time_array"];
    names.map(|name| file.dataset(name).unwrap().read_raw().unwrap()).to_vec()
}

#[test]
fn integrations_before_a_read_error_are_kept() {
    let whole = drain(&mut bind(&recordings(), &options()));
    for (antenna, first) in [(1, 50_000), (0, 30_128), (2, TIMES - 1), (1, 20_000)] {
        let mut broken = recordings();
        broken[antenna].broken_from = Some(first);
        for gulp in [0, 100] {
            let options = CorrelateOptions { gulp, ..options() };
            let (all, error) = gather(&mut bind(&broken, &options));
            let error = error.unwrap().to_string();
            let words = [&format!("A{antenna}.dada"), "a sector is broken"];
            assert!(words.iter().all(|word| error.contains(*word)), "{error}");
            let (last, before) = all.split_last().unwrap();
            assert_eq!(before, &whole[..before.len()]);
            // All but those of the read that failed: the samples of a gulp.
            let made = last.first + last.spectra;
            let read = if gulp == 0 { 1024 } else { gulp } * HOP + SPAN;
            assert_eq!(made as usize, (first / read * read - SPAN) / HOP + 1, "{first}");
            // The spectra of a last, shorter integration are those of recordings that end there.
            let mut short = recordings();
            for own in &mut short {
                own.header.times = Some(SPAN as u64 + (made - 1) * HOP as u64);
            }
            assert_eq!(Some(last), drain(&mut bind(&short, &options)).last());
        }
    }
}

#[test]
fn a_stop_within_an_integration_keeps_its_spectra() {
    let folder = tempfile::tempdir().unwrap();
    let (all, part) = (folder.path().join("all.uvh5"), folder.path().join("part.uvh5"));
    let options = CorrelateOptions { gulp: 100, ..options() };
    let report = write(&mut bind(&recordings(), &options), &all, &mut |_| true).unwrap();
    assert!(report.ending.is_complete());
    assert_eq!(std::fs::metadata(&all).unwrap().len(), report.bytes);
    let expected = contents(&all);
    let mut correlator = bind(&recordings(), &options);
    // Spectra are made 100 at once: 225 of the fourth integration are there when it is heard.
    correlator.watched_by(Box::new(|spectra| spectra < 3 * SPECTRA + 200));
    let report = write(&mut correlator, &part, &mut |_| true).unwrap();
    assert!(matches!(report.ending, Ending::Stopped), "{:?}", report.ending);
    assert_eq!((report.summary.integrations, report.summary.spectra), (4, 2100));
    assert_eq!(std::fs::metadata(&part).unwrap().len(), report.bytes);
    let told = uvh5::summary(&part).unwrap();
    assert_eq!((told.integrations, told.rows), (4, 24));
    for (found, expected) in contents(&part).iter().zip(&expected) {
        let each = found.len() / 4;
        assert_eq!(found[..3 * each], expected[..3 * each]);
    }
    // The counts of the last integration show its fraction: number of spectra out of a full integration, in single
    // precision.
    let counts: Vec<f32> = bytemuck::pod_collect_to_vec(&contents(&part)[1]);
    assert!(counts[3 * counts.len() / 4..].iter().all(|count| *count == 225.0 / SPECTRA as f32));
    let report = write(&mut bind(&recordings(), &options), &part, &mut |own| own.number < 1);
    assert_eq!(report.unwrap().summary.integrations, 2);
    assert_eq!(uvh5::summary(&part).unwrap().integrations, 2);
}

#[test]
fn what_ends_before_the_first_spectrum_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.uvh5");
    let mut broken = recordings();
    broken[2].broken_from = Some(100);
    let error = write(&mut bind(&broken, &options()), &path, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("a sector is broken"), "{error}");
    let mut correlator = bind(&recordings(), &options());
    correlator.watched_by(Box::new(|_| false));
    let report = write(&mut correlator, &path, &mut |_| true).unwrap();
    assert!(matches!(report.ending, Ending::Stopped) && report.summary.integrations == 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_recording_that_is_cut_short_ends_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.uvh5");
    let mut all = recordings();
    all[1].streams.iter_mut().for_each(|row| row.truncate(2 * 50_000));
    all[1].header.times = Some(50_000);
    let array = array::array(3);
    let error = ArrayCorrelator::new(&array, inputs(&all), &options(), &Backend::best(2));
    assert!(error.unwrap_err().to_string().contains("`shortest`"));
    all[1].cut = Some("its last frame has 3 of 8 bytes".to_owned());
    let report = write(&mut bind(&all, &options()), &path, &mut |_| true).unwrap();
    assert_eq!(report.summary.spectra as usize, (50_000 - SPAN) / HOP + 1);
    let why = report.ending.reason().unwrap();
    assert!(matches!(report.ending, Ending::Cut(_)), "{:?}", report.ending);
    assert!(why.contains("A1.dada") && why.contains("3 of 8 bytes"), "{why}");
    // All requested integrations lie before the cut.
    let options = CorrelateOptions { time_range: Some((0.0, 0.04)), ..options() };
    let report = write(&mut bind(&all, &options), &path, &mut |_| true).unwrap();
    assert!(report.ending.is_complete(), "{:?}", report.ending);
}
