//! PSRFITS: real recordings against each other, and made files against their values.

use crate::support::common;
use crate::support::fits;
use crate::support::streams;
use std::path::Path;

use fits::SearchFile;
use sidereal::io::{FilterbankSource, Gap, Polarizations, open_psrfits, psrfits_from_bytes};
use sidereal::sample::{Encoding, unpack_f32};
use sidereal::{Error, Result};
use streams::{noise, read_all};

type Source = Box<dyn FilterbankSource>;

fn open(file: &SearchFile, polarizations: Polarizations) -> Result<Source> {
    psrfits_from_bytes(file.bytes(), Path::new("made.fits"), polarizations, false)
}

/// A file of random samples in three rows of the table.
fn made(shape: (usize, usize, usize), bits: usize, range: (i64, i64)) -> SearchFile {
    let (channels, polarizations, block_times) = shape;
    let mut file = SearchFile::new(channels, polarizations, block_times, bits);
    let all = noise(3 * channels * polarizations * block_times, range.0, range.1);
    for samples in all.chunks_exact(all.len() / 3) {
        file.push(samples.to_vec());
    }
    file
}

/// One polarization's samples: axes time, channel.
fn product(file: &SearchFile, polarization: usize) -> Vec<f32> {
    let spectra = file.rows.iter().flat_map(|row| row.samples.chunks_exact(file.channels));
    let wanted = spectra.skip(polarization).step_by(file.polarizations);
    wanted.flatten().map(|x| *x as f32).collect()
}

#[test]
fn samples_of_every_depth_keep_their_width() {
    let cases = [
        (1, (0, 1), Encoding::U1),
        (2, (0, 3), Encoding::U2),
        (4, (0, 15), Encoding::U4),
        (8, (0, 255), Encoding::U8),
        (16, (-32768, 32767), Encoding::I16),
        (32, (-5000, 5000), Encoding::F32),
    ];
    for (bits, range, encoding) in cases {
        for unusual in [false, true] {
            let mut file = made((16, 1, 10), bits, range);
            file.unusual = unusual;
            let mut source = open(&file, Polarizations::Total).unwrap();
            assert_eq!(source.header().encoding, encoding);
            assert_eq!(source.header().recorded_bits, bits);
            assert_eq!(read_all(source.as_mut()), product(&file, 0), "{bits} bits");
        }
    }
}

#[test]
fn signed_and_shifted_integers_keep_their_sign() {
    let signed = ("SIGNINT", "1".to_string());
    let cases = [
        (2, 'B', (-2, 1), vec![signed.clone()], Encoding::I8),
        (4, 'B', (-8, 7), vec![signed.clone()], Encoding::I8),
        (8, 'B', (-128, 127), vec![signed.clone()], Encoding::I8),
        (16, 'I', (-32768, 32767), vec![signed.clone()], Encoding::I16),
        (16, 'B', (-32768, 32767), vec![signed], Encoding::I16),
        (16, 'B', (0, 65535), vec![], Encoding::U16),
    ];
    for (bits, letter, range, cards, encoding) in cases {
        let mut file = made((12, 1, 9), bits, range);
        file.letter = letter;
        file.cards = cards;
        let mut source = open(&file, Polarizations::Total).unwrap();
        assert_eq!(source.header().encoding, encoding, "{bits}");
        assert_eq!(read_all(source.as_mut()), product(&file, 0), "{bits} bits in {letter}");
    }
    // FITS stores unsigned values as signed ones: the stored values are the true ones minus TZERO.
    for (bits, range, zero, encoding) in
        [(8, (-128, 127), -128.0, Encoding::I8), (16, (0, 65535), 32768.0, Encoding::U16)]
    {
        let mut file = made((12, 1, 9), bits, range);
        let truth = product(&file, 0);
        file.rows.iter_mut().flat_map(|row| &mut row.samples).for_each(|x| *x -= zero);
        file.cards = vec![("TZERO7", zero.to_string())];
        let mut source = open(&file, Polarizations::Total).unwrap();
        assert_eq!(source.header().encoding, encoding);
        assert_eq!(read_all(source.as_mut()), truth, "TZERO {zero}");
    }
}

#[test]
fn spectra_that_end_inside_a_byte_are_widened() {
    for (bits, range) in [(1, (0, 1)), (2, (0, 3)), (4, (0, 15))] {
        for block_times in [3, 8] {
            let file = made((5, 3, block_times), bits, range);
            let mut source = open(&file, Polarizations::One(1)).unwrap();
            assert_eq!(source.header().encoding, Encoding::U8);
            assert_eq!(read_all(source.as_mut()), product(&file, 1), "{bits} bits");
        }
    }
}

#[test]
fn polarizations_are_chosen_and_added() {
    let sums = [
        (4, (0, 15), Encoding::U8),
        (8, (0, 255), Encoding::U16),
        (16, (-32768, 32767), Encoding::F32),
        (32, (-999, 999), Encoding::F32),
    ];
    for (bits, range, encoding) in sums {
        let mut file = made((8, 4, 6), bits, range);
        file.cards = vec![("POL_TYPE", "'AABBCRCI'".into())];
        let (a, b) = (product(&file, 0), product(&file, 1));
        let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let mut source = open(&file, Polarizations::Total).unwrap();
        assert_eq!(source.header().encoding, encoding);
        assert_eq!(read_all(source.as_mut()), sum);
        for polarization in 0..4 {
            let mut source = open(&file, Polarizations::One(polarization)).unwrap();
            assert_eq!(read_all(source.as_mut()), product(&file, polarization));
        }
        assert!(matches!(open(&file, Polarizations::One(4)), Err(Error::Parameter { .. })));
        file.cards = vec![("POL_TYPE", "'IQUV    '".into())];
        assert_eq!(read_all(open(&file, Polarizations::Total).unwrap().as_mut()), a);
    }
}

#[test]
fn scales_offsets_weights_and_the_zero_are_applied() {
    let mut file = made((8, 2, 6), 4, (0, 15));
    file.cards = vec![("POL_TYPE", "'AABB    '".into()), ("ZERO_OFF", "7.5".into())];
    for (index, row) in file.rows.iter_mut().enumerate() {
        row.scales = (0..16).map(|k| 0.25 + (k + index) as f32).collect();
        row.offsets = (0..16).map(|k| 3.5 * k as f32 - 11.0).collect();
        row.weights = (0..8).map(|k| if k == 5 { 0.0 } else { 1.0 + k as f32 / 8.0 }).collect();
    }
    let value = |row: &fits::Row, time: usize, polarization: usize, channel: usize| {
        let product = polarization * 8 + channel;
        let raw = row.samples[time * 16 + product] as f32;
        ((raw - 7.5) * row.scales[product] + row.offsets[product]) * row.weights[channel]
    };
    for (wanted, parts) in [(Polarizations::Total, vec![0, 1]), (Polarizations::One(1), vec![1])] {
        let mut truth = Vec::new();
        for (row, time, channel) in file.rows.iter().flat_map(|row| {
            (0..6).flat_map(move |time| (0..8).map(move |channel| (row, time, channel)))
        }) {
            let values = parts.iter().map(|part| value(row, time, *part, channel));
            truth.push(values.reduce(|a, b| a + b).unwrap());
        }
        let mut source = open(&file, wanted).unwrap();
        assert_eq!(source.header().encoding, Encoding::F32);
        assert_eq!(read_all(source.as_mut()), truth);
    }
}

#[test]
fn one_factor_in_one_row_makes_floats() {
    let mut file = made((8, 1, 6), 8, (0, 255));
    file.rows[2].weights[3] = 0.5;
    let mut truth = product(&file, 0);
    truth[12 * 8..].iter_mut().skip(3).step_by(8).for_each(|x| *x *= 0.5);
    let mut source = open(&file, Polarizations::Total).unwrap();
    assert_eq!(source.header().encoding, Encoding::F32);
    assert_eq!(read_all(source.as_mut()), truth);
    file.rows.iter_mut().for_each(|row| row.weights.fill(0.0));
    assert!(
        matches!(open(&file, Polarizations::Total), Err(Error::Format { field, .. }) if field == "DAT_WTS")
    );
    file.rows[1].weights[0] = f32::NAN;
    assert!(open(&file, Polarizations::Total).is_err());
}

#[test]
fn headers_say_what_the_file_says() {
    let mut file = made((6, 1, 10), 8, (0, 255));
    (file.first_mhz, file.step_mhz) = (1200.0, 2.0);
    file.cards = vec![("NSTOT", "27".into()), ("NSUBOFFS", "4".into())];
    let mut source = open(&file, Polarizations::Total).unwrap();
    let header = source.header().clone();
    assert_eq!(header.times, Some(27));
    assert_eq!((header.source_name.as_str(), header.telescope.as_str()), ("B0531+21", "Testing"));
    assert_eq!((header.band.fch1_mhz(), header.band.foff_mhz()), (1200.0, 2.0));
    assert_eq!(header.band.channel_width_hz(), 2e6);
    assert_eq!(header.dec_deg, Some(-0.51));
    assert!((header.ra_deg.unwrap() - 83.632_916_666_7).abs() < 1e-9);
    // Four rows of 10 samples of 1 ms come before.
    assert!((header.tstart_mjd - (58000.5 + 0.54 / 86400.0)).abs() < 1e-11);
    assert_eq!(read_all(source.as_mut()), product(&file, 0)[..27 * 6]);
    // A total that ends outside the last row gives no length for it.
    for total in ["0", "20", "31", "99999999", "'*'"] {
        file.cards[0].1 = total.into();
        assert_eq!(open(&file, Polarizations::Total).unwrap().header().times, Some(30), "{total}");
    }
}

#[test]
fn skipping_is_reading_without_looking() {
    for bits in [4, 32] {
        let file = made((6, 1, 10), bits, (0, 9));
        let truth = product(&file, 0);
        for skipped in [0, 1, 9, 10, 11, 25, 30] {
            let mut source = open(&file, Polarizations::Total).unwrap();
            assert_eq!(source.skip(skipped).unwrap(), skipped);
            let mut rows = vec![0; 30 * source.header().row_bytes()];
            let times = source.read(&mut rows).unwrap();
            assert_eq!(times as u64, 30 - skipped);
            let mut values = vec![0.0; times * 6];
            unpack_f32(&rows, source.header().encoding, &mut values);
            assert_eq!(values, truth[skipped as usize * 6..]);
            assert_eq!(source.skip(5).unwrap(), 0);
        }
    }
    let mut source = open(&made((6, 1, 10), 8, (0, 9)), Polarizations::Total).unwrap();
    assert!(matches!(source.read(&mut [0; 7]), Err(Error::Shape { .. })));
}

#[test]
fn lost_rows_are_an_error_or_are_filled() {
    let mut file = made((6, 1, 10), 8, (0, 255));
    file.rows[1].centre_s += 0.025;
    file.rows[2].centre_s += 0.025;
    let error = open(&file, Polarizations::Total).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("OFFS_SUB") && error.contains("row 1") && error.contains("25"),
        "{error}"
    );
    let reader = || file.bytes();
    let open = || psrfits_from_bytes(reader(), Path::new("x"), Polarizations::Total, true).unwrap();
    let truth = product(&file, 0);
    let values = read_all(open().as_mut());
    assert_eq!(values.len(), 55 * 6);
    assert_eq!(values[..60], truth[..60]);
    assert_eq!(values[35 * 6..], truth[60..]);
    for channel in 0..6 {
        let mut column: Vec<f32> = truth[..60].iter().skip(channel).step_by(6).copied().collect();
        column.sort_by(f32::total_cmp);
        let filled = values[60..35 * 6].iter().skip(channel).step_by(6);
        assert!(filled.into_iter().all(|value| *value == column[4]), "channel {channel}");
    }
    assert_eq!(open().gaps(), [Gap { start_time: 10, times: 25 }]);
    let mut skipping = open();
    assert_eq!(skipping.skip(12).unwrap(), 12);
    let mut rows = vec![0; 30 * 6];
    assert_eq!(skipping.read(&mut rows).unwrap(), 30);
    let expected: Vec<u8> = values[72..42 * 6].iter().map(|x| *x as u8).collect();
    assert_eq!(rows, expected);
    file.rows[2].centre_s = 0.001;
    assert!(open_gaps(&file).is_err());
    file.rows[2].centre_s = 1e300;
    assert!(open_gaps(&file).is_err());
    let mut tiny = file.clone();
    (tiny.tsamp_s, tiny.rows[2].centre_s) = (1e-300, 1.0);
    assert!(open_gaps(&tiny).is_err());
    file.rows.iter_mut().for_each(|row| row.centre_s = 0.0);
    assert_eq!(open_gaps(&file).unwrap().header().times, Some(30));
}

fn open_gaps(file: &SearchFile) -> Result<Source> {
    psrfits_from_bytes(file.bytes(), Path::new("x"), Polarizations::Total, true)
}

/// Reads all rows, `gulp` at a time.
fn rows_in_gulps(source: &mut dyn FilterbankSource, gulp: usize) -> Vec<u8> {
    let row_bytes = source.header().row_bytes();
    let (mut all, mut rows) = (Vec::new(), vec![0; gulp * row_bytes]);
    loop {
        let times = source.read(&mut rows).unwrap();
        all.extend_from_slice(&rows[..times * row_bytes]);
        if times < gulp {
            return all;
        }
    }
}

/// A file whose rows several threads convert, with a gap before the last row.
fn long(bits: usize) -> SearchFile {
    let mut file = SearchFile::new(512, 2, 1500, bits);
    for row in 0..4u32 {
        let samples = (0..1500 * 2 * 512u32).map(|k| f64::from((k % 4099 * 7919 + row * 31) % 13));
        let made = file.push(samples.collect());
        made.scales.iter_mut().enumerate().for_each(|(k, scale)| *scale = 1.0 + k as f32 / 512.0);
        made.offsets.iter_mut().for_each(|offset| *offset = row as f32);
    }
    file.rows[3].centre_s += 0.7;
    file
}

#[test]
fn threads_convert_as_one_does() {
    for bits in [4, 8, 16] {
        let file = long(bits);
        let rows = |gulp| rows_in_gulps(open_gaps(&file).unwrap().as_mut(), gulp);
        let whole = rows(6701);
        assert_eq!(whole.len(), 6700 * 512 * 4);
        assert!(rows(100) == whole, "{bits} bits");
        assert!(rows(2003) == whole, "{bits} bits");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_that_keeps_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.fits");
    let bytes = long(8).bytes();
    std::fs::write(&path, &bytes).unwrap();
    let mut source = open_psrfits(&path, Polarizations::Total, true).unwrap();
    let row_bytes = source.header().row_bytes();
    let mut whole = vec![0; 6700 * row_bytes];
    assert_eq!(source.read(&mut whole).unwrap(), 6700);
    let mut source = open_psrfits(&path, Polarizations::Total, true).unwrap();
    // About 1.6 of the four rows are left.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 * 2 / 5).unwrap();
    let mut rows = vec![0; 6700 * row_bytes];
    match source.read(&mut rows).unwrap_err() {
        Error::Io { source, .. } => assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof),
        other => panic!("{other}"),
    }
    // Shorter reads return the rows before the end.
    let mut rows = vec![0; 100 * row_bytes];
    let mut read = 0;
    while let Ok(times) = source.read(&mut rows) {
        assert!(rows == whole[read * row_bytes..][..times * row_bytes]);
        read += times;
    }
    assert!((2200..2500).contains(&read), "{read}");
}

#[test]
fn a_first_row_late_in_the_observation_moves_the_start() {
    let mut file = made((6, 1, 10), 8, (0, 255));
    file.rows.iter_mut().for_each(|row| row.centre_s += 0.07);
    let source = open(&file, Polarizations::Total).unwrap();
    assert!((source.header().tstart_mjd - (58000.5 + 0.57 / 86400.0)).abs() < 1e-11);
}

/// Each fault names its card.
#[test]
fn absurd_headers_are_named() {
    let cases = [
        ("NCHAN", "0"),
        ("NCHAN", "2147483648"),
        ("NCHAN", "-4"),
        ("NPOL", "0"),
        ("NSBLK", "9223372036854775807"),
        ("NBITS", "3"),
        ("NBITS", "64"),
        ("TBIN", "-1"),
        ("TBIN", "nan"),
        ("TBIN", "0"),
        ("NAXIS1", "99999999999"),
        ("NAXIS2", "4000000000"),
        ("NAXIS2", "0"),
        ("TFIELDS", "1000000"),
        ("PCOUNT", "-5"),
    ];
    for (key, value) in cases {
        let mut file = made((8, 1, 10), 8, (0, 255));
        file.cards = vec![(key, value.to_string())];
        let result = open(&file, Polarizations::Total);
        match result.map(|_| ()) {
            Err(Error::Format { .. }) => {}
            Ok(()) if key == "PCOUNT" => {}
            other => panic!("{key} = {value}: {other:?}"),
        }
    }
}

#[test]
fn cut_and_damaged_files_are_errors_and_never_panics() {
    let file = made((4, 1, 4), 8, (0, 255));
    let whole = file.bytes();
    let open =
        |bytes: Vec<u8>| psrfits_from_bytes(bytes, Path::new("x"), Polarizations::Total, true);
    let data_end = whole.len() - 2880 + 3 * (16 + 4 * 8 + 3 * 16 + 16);
    let row = 16 + 4 * 8 + 3 * 16 + 16;
    for length in (0..data_end).step_by(97).chain([data_end - row, data_end - row - 1]) {
        match open(whole[..length].to_vec()) {
            Ok(source) => {
                let rows = 3 - (data_end - length).div_ceil(row);
                assert_eq!(source.header().times, Some(4 * rows as u64), "{length}");
                assert!(source.cut().is_some_and(|cut| cut.contains("of the 3 rows")), "{length}");
            }
            Err(_) => assert!(data_end - length > 2 * row, "{length}"),
        }
    }
    assert!(open(whole[..data_end].to_vec()).is_ok_and(|source| source.cut().is_none()));
    let mut changes = noise(3000, 0, i64::from(u32::MAX)).into_iter().map(|x| x as usize);
    while let (Some(position), Some(value)) = (changes.next(), changes.next()) {
        let mut bytes = whole.clone();
        bytes[position % whole.len()] = if value % 3 == 0 { b'9' } else { value as u8 };
        if let Ok(mut source) = open(bytes) {
            let mut rows = vec![0; 50 * source.header().row_bytes()];
            let _ = source.read(&mut rows);
        }
    }
}

#[test]
fn the_askap_burst_is_the_same_in_both_formats() {
    let Some(data) = common::data_dir() else { return };
    let path = data.join("frb/FRB180417_askap_28.fits");
    let mut source = open_psrfits(&path, Polarizations::Total, false).unwrap();
    let header = source.header().clone();
    assert_eq!((header.encoding, header.times, header.channels()), (Encoding::U8, Some(5523), 336));
    assert_eq!((header.band.fch1_mhz(), header.band.foff_mhz()), (1465.0, -1.0));
    assert!((header.tstart_mjd - 58_682.620_316_710_374).abs() < 1e-9);
    let mut rows = vec![0; 5523 * 336];
    assert_eq!(source.read(&mut rows).unwrap(), 5523);
    let fil = std::fs::read(data.join("frb/FRB180417_askap_28.fil")).unwrap();
    let samples = &fil[327..];
    assert_eq!(&rows[..samples.len()], samples);
    assert!(rows[samples.len()..].iter().all(|sample| *sample == 0));
}

#[test]
fn the_parkes_polarizations_are_scaled() {
    let Some(data) = common::data_dir() else { return };
    let path = data.join("pulsar/parkes_4bit.sf");
    let read = |wanted| read_all(open_psrfits(&path, wanted, false).unwrap().as_mut());
    let (total, first, second) =
        (read(Polarizations::Total), read(Polarizations::One(0)), read(Polarizations::One(1)));
    assert_eq!(total.len(), 4096 * 416);
    assert!(total.iter().zip(first.iter().zip(&second)).all(|(sum, (a, b))| *sum == a + b));
    let bytes = std::fs::read(&path).unwrap();
    // Columns in the order of the file: 5 D, 416 D, 416 E, then DAT_OFFS and DAT_SCL, then DATA.
    let row = 25920;
    let float = |at: usize| f32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (offsets, scales) = (row + 40 + 416 * 12, row + 40 + 416 * 12 + 1664 * 4);
    let spectrum = scales + 1664 * 4;
    for channel in 0..416 {
        let byte = bytes[spectrum + channel / 2];
        let raw = if channel % 2 == 0 { byte >> 4 } else { byte & 15 };
        let scale = float(scales + 4 * channel);
        let value = (f32::from(raw) - 7.5) * scale + float(offsets + 4 * channel);
        assert_eq!(first[channel], value, "channel {channel}");
    }
}
