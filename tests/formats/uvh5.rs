//! UVH5 files as written, read back without any client, and rejected visibilities.

use std::path::Path;

use num_complex::Complex;
use sidereal::Error;
use sidereal::io::uvh5::{
    self, Antenna, Feed, Feeds, Header, Integration, Keyword, Location, Mount, PhaseCentre,
    Pointing, Reader, Writer,
};
use sidereal::units::Epoch;

const CHANNELS: usize = 3;

/// Three antennas in the order of their numbers 7, 4, 9; all baselines.
fn header() -> Header {
    let antenna = |(place, number): (usize, i64)| Antenna {
        name: format!("N{place}"),
        number,
        itrf_offset_m: [place as f64 * 10.0, -3.0, 0.5],
        diameter_m: Some(12.0),
    };
    Header {
        telescope: "house".into(),
        instrument: "sidereal".into(),
        location: Location { longitude_deg: 21.4, latitude_deg: -30.7, height_m: 1050.0 },
        antennas: [7, 4, 9].into_iter().enumerate().map(antenna).collect(),
        mount: Mount::AltAz,
        frequencies_hz: vec![1.0e9, 1.1e9, 1.2e9],
        channel_width_hz: 1e8,
        feeds: Feeds::Linear,
        feed_angle_deg: 90.0,
        phase_centre: PhaseCentre::Sidereal { name: "3C 48".into(), ra_deg: 24.4, dec_deg: 33.2 },
        baselines: vec![(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)],
        integration_s: 2.0,
        integrations: 2,
        dut1_s: 0.05,
        reference_day: None,
        history: "π in the history".into(),
        keywords: vec![("taps".into(), Keyword::Integer(8)), ("b".into(), Keyword::Float(0.5))],
    }
}

const UVW: [[f64; 3]; 3] = [[0.0; 3], [1.0, 2.0, 3.0], [-5.0, 0.0, 1.0]];

/// The sum of a baseline, channel and pair: no two are the same.
fn sum(baseline: usize, channel: usize, pair: usize) -> Complex<f64> {
    let number = (baseline * CHANNELS + channel) * 4 + pair;
    Complex::new(number as f64 + 1.0, 0.25 * number as f64 - 3.0)
}

fn sums() -> Vec<Complex<f64>> {
    let of = |k: usize| sum(k / (4 * CHANNELS), k / 4 % CHANNELS, k % 4);
    (0..6 * CHANNELS * 4).map(of).collect()
}

fn integration<'a>(seconds: f64, sums: &'a [Complex<f64>], counts: &'a [u64]) -> Integration<'a> {
    Integration {
        centre: Epoch::new(60_000, seconds),
        day_s: 86_400.0,
        lst_deg: 12.0,
        pointing: Pointing { ra_deg: 24.5, dec_deg: 33.1, frame_angle_deg: 0.1 },
        uvw_m: &UVW,
        sums,
        counts,
        full_count: 4,
    }
}

fn write(path: &Path, header: Header, counts: &[u64]) -> sidereal::Result<()> {
    let sums = sums();
    let integrations = header.integrations;
    let mut writer = Writer::create(path, header)?;
    for time in 0..integrations {
        writer.write(integration(2.0 * time as f64, &sums, counts))?;
    }
    writer.finish()
}

/// Raw f32 of a data set.
fn floats(file: &hdf5_pure::File, name: &str) -> Vec<f32> {
    let bytes = file.dataset(name).unwrap().read_raw().unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn every_number_is_where_it_belongs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let mut counts = vec![4; 6 * CHANNELS];
    (counts[5], counts[10]) = (0, 1);
    write(&path, header(), &counts).unwrap();
    let file = hdf5_pure::File::open(&path).unwrap();
    let first = file.dataset("Header/ant_1_array").unwrap().read_i32().unwrap();
    let second = file.dataset("Header/ant_2_array").unwrap().read_i32().unwrap();
    assert_eq!(first[..6], [7, 4, 4, 7, 4, 9]);
    assert_eq!(second[6..], [7, 7, 4, 9, 9, 9]);
    let visibilities = floats(&file, "Data/visdata");
    assert_eq!(visibilities.len(), 2 * 6 * CHANNELS * 4 * 2);
    // Baseline (1, 0) is reversed, since antenna 1 has the lower number.
    let orders = [[0, 3, 2, 1], [0, 3, 1, 2]];
    for (at, pair) in visibilities.chunks_exact(2).enumerate() {
        let (baseline, channel, place) = (at / 4 / CHANNELS % 6, at / 4 % CHANNELS, at % 4);
        let is_turned = baseline == 1;
        let count = counts[baseline * CHANNELS + channel];
        let mut expected = sum(baseline, channel, orders[usize::from(is_turned)][place]);
        if is_turned {
            expected = expected.conj();
        }
        if [0, 2, 5].contains(&baseline) && place < 2 {
            expected.im = 0.0;
        }
        expected = if count == 0 { Complex::default() } else { expected / count as f64 };
        assert_eq!((pair[0], pair[1]), (expected.re as f32, expected.im as f32), "{at}");
    }
    let samples = floats(&file, "Data/nsamples");
    let flags = file.dataset("Data/flags").unwrap().read_raw().unwrap();
    for (at, (fraction, flag)) in samples.iter().zip(&flags).enumerate() {
        let count = counts[at / 4 % (6 * CHANNELS)];
        assert_eq!((*fraction, *flag), (count as f32 / 4.0, u8::from(count == 0)));
    }
    let uvw = file.dataset("Header/uvw_array").unwrap().read_f64().unwrap();
    assert_eq!(uvw[3..6], [-1.0, -2.0, -3.0]);
    assert_eq!(uvw[12..15], [-6.0, -2.0, -2.0]);
    let times = file.dataset("Header/time_array").unwrap().read_f64().unwrap();
    assert_eq!((times[0], times[11]), (2_460_000.5, 2_460_000.5 + 2.0 / 86_400.0));
}

#[test]
fn rows_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let mut counts = vec![4; 6 * CHANNELS];
    (counts[5], counts[10]) = (0, 1);
    write(&path, header(), &counts).unwrap();
    let reader = Reader::open(&path).unwrap();
    let names: Vec<_> =
        reader.antennas().iter().map(|one| (one.name.as_str(), one.number)).collect();
    assert_eq!(names, [("N0", 7), ("N1", 4), ("N2", 9)]);
    assert_eq!(reader.antennas()[1].itrf_offset_m, [10.0, -3.0, 0.5]);
    // The antenna with the lower number comes first.
    assert_eq!(reader.baselines(), [(0, 0), (1, 0), (1, 1), (0, 2), (1, 2), (2, 2)]);
    let row = reader.row(1, 1).unwrap();
    assert_eq!(row.samples, [[1.0; 8], [0.0; 8]].concat()[..12]);
    let sum = sum(1, 1, 0) / 4.0;
    assert_eq!(row.visibilities[4], Complex::new(sum.re as f32, -sum.im as f32));
    assert_eq!(row.visibilities[8..], [Complex::default(); 4]);
    assert_eq!(reader.row(0, 3).unwrap().samples[4..8], [0.25; 4]);
    assert!(matches!(reader.row(2, 0), Err(Error::Format { .. })));

    std::fs::write(&path, "no HDF5").unwrap();
    assert!(matches!(Reader::open(&path), Err(Error::Format { .. })));
}

#[test]
fn a_summary_says_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    write(&path, header(), &[4; 6 * CHANNELS]).unwrap();
    assert!(uvh5::is_uvh5(&path));
    let found = uvh5::summary(&path).unwrap();
    let asked = header();
    assert_eq!(found.telescope, asked.telescope);
    assert_eq!(found.location, asked.location);
    assert_eq!(found.antennas, ["N0", "N1", "N2"]);
    assert_eq!((found.antennas_used, found.baselines, found.integrations), (3, 6, 2));
    assert_eq!((found.rows, &found.frequencies_hz), (12, &asked.frequencies_hz));
    assert_eq!(found.polarizations, [-5, -6, -7, -8]);
    assert!(found.last.seconds_since(&found.first) - 2.0 < 1e-4);
    let source = found.source.unwrap();
    assert_eq!((&*source.name, &*source.kind), ("3C 48", "sidereal"));
    assert!((source.place_deg.unwrap().1 - 33.2).abs() < 1e-12);
}

#[test]
fn a_writer_given_up_leaves_nothing_and_one_without_data_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let (sums, counts) = (sums(), [4; 6 * CHANNELS]);
    let mut writer = Writer::create(&path, header()).unwrap();
    writer.write(integration(0.0, &sums, &counts)).unwrap();
    drop(writer);
    let writer = Writer::create(&path, header()).unwrap();
    assert!(matches!(writer.finish(), Err(Error::Parameter { name: "integrations", .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn fewer_integrations_than_announced_are_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let (sums, counts) = (sums(), [4; 6 * CHANNELS]);
    let mut writer = Writer::create(&path, Header { integrations: 1000, ..header() }).unwrap();
    writer.write(integration(0.0, &sums, &counts)).unwrap();
    writer.finish().unwrap();
    let found = uvh5::summary(&path).unwrap();
    assert_eq!((found.integrations, found.rows), (1, 6));
}

#[test]
fn wrong_integrations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let (sums, counts) = (sums(), [4; 6 * CHANNELS]);
    let mut writer = Writer::create(&path, header()).unwrap();
    let good = integration(0.0, &sums, &counts);
    let short = writer.write(Integration { counts: &counts[1..], ..good });
    assert!(matches!(short, Err(Error::Shape { expected: 18, actual: 17, .. })));
    let none = writer.write(Integration { full_count: 0, ..good });
    assert!(matches!(none, Err(Error::Parameter { name: "full count", .. })));
    let nowhere = [[0.0; 3], [f64::NAN; 3], [0.0; 3]];
    assert!(writer.write(Integration { uvw_m: &nowhere, ..good }).is_err());
    writer.write(good).unwrap();
    assert!(writer.write(good).unwrap_err().to_string().contains("later"));
    writer.write(integration(2.0, &sums, &counts)).unwrap();
    let more = writer.write(integration(4.0, &sums, &counts)).unwrap_err();
    assert!(more.to_string().contains("the header gives 2"), "{more}");
}

/// A change to a good header.
type Change = fn(&mut Header);

#[test]
fn wrong_headers_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let cases: [(&str, Change); 17] = [
        ("antennas", |h| h.antennas.clear()),
        ("antenna number", |h| h.antennas[1].number = 7),
        ("antenna number", |h| h.antennas[1].number = -1),
        ("antenna number", |h| h.antennas[1].number = 1 << 31),
        ("antenna name", |h| h.antennas[1].name = "N0".into()),
        ("antenna name", |h| h.antennas[1].name = "ä".into()),
        ("antenna position", |h| h.antennas[2].itrf_offset_m[1] = f64::INFINITY),
        ("antenna diameter", |h| h.antennas[2].diameter_m = Some(0.0)),
        ("baseline", |h| h.baselines[1] = (0, 1)),
        ("baseline", |h| h.baselines[1] = (3, 1)),
        ("baseline", |h| h.baselines[1] = (0, 0)),
        ("channels", |h| h.frequencies_hz.clear()),
        ("frequency", |h| h.frequencies_hz[1] = f64::NAN),
        ("channel width", |h| h.channel_width_hz = -1.0),
        ("integrations", |h| h.integrations = usize::MAX),
        ("telescope", |h| h.telescope.clear()),
        ("keyword", |h| h.keywords[0].0 = "a/b".into()),
    ];
    for (name, change) in cases {
        let mut wrong = header();
        change(&mut wrong);
        let error = Writer::create(&path, wrong).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}, not {name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn one_feed_has_one_pair() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let sums: Vec<_> = (0..6 * CHANNELS).map(|at| sum(at, 0, 0)).collect();
    let one = Header { feeds: Feeds::One(Feed::L), integrations: 1, ..header() };
    let mut writer = Writer::create(&path, one).unwrap();
    writer.write(integration(0.0, &sums, &[4; 6 * CHANNELS])).unwrap();
    writer.finish().unwrap();
    assert_eq!(uvh5::summary(&path).unwrap().polarizations, [-2]);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.h5");
    let mut builder = hdf5_pure::FileBuilder::new();
    builder.create_dataset("data").with_f32_data(&[1.0]);
    std::fs::write(&path, builder.finish().unwrap()).unwrap();
    assert!(!uvh5::is_uvh5(&path));
    assert!(
        matches!(uvh5::summary(&path), Err(Error::Format { field, .. }) if field == "Data/visdata")
    );
    std::fs::write(&path, b"no HDF5").unwrap();
    assert!(!uvh5::is_uvh5(&path));
    assert!(uvh5::summary(&path).is_err());
    assert!(matches!(uvh5::summary(&folder.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn a_leap_second_lies_between_integrations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leap.uvh5");
    let (sums, counts) = (sums(), vec![4; 6 * CHANNELS]);
    let header = Header { integration_s: 1.0, integrations: 3, ..header() };
    let mut writer = Writer::create(&path, header).unwrap();
    let moments =
        [(57_753, 86_399.5, 86_401.0), (57_753, 86_400.5, 86_401.0), (57_754, 0.5, 86_400.0)];
    for (day, seconds, day_s) in moments {
        let centre = Epoch { day, seconds };
        writer.write(Integration { centre, day_s, ..integration(0.0, &sums, &counts) }).unwrap();
    }
    let again = Integration { centre: Epoch::new(57_754, 0.5), ..integration(0.0, &sums, &counts) };
    let mut other =
        Writer::create(&folder.path().join("o.uvh5"), Header { integrations: 2, ..self::header() })
            .unwrap();
    other.write(again).unwrap();
    assert!(other.write(again).unwrap_err().to_string().contains("later"));
    let short = Integration { day_s: 0.0, ..again };
    assert!(other.write(short).unwrap_err().to_string().contains("day"));
    writer.finish().unwrap();
    let file = hdf5_pure::File::open(&path).unwrap();
    let times: Vec<f64> = file.dataset("Header/time_array").unwrap().read_f64().unwrap();
    let expected = moments.map(|(day, seconds, day_s)| 2_400_000.5 + day as f64 + seconds / day_s);
    assert_eq!([times[0], times[6], times[12]], expected);
}
