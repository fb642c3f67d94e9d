//! Cutouts of known data: means, gaps, edges.

use super::{Cutout, Options, cutout, cutouts};
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::sample::Encoding;
use crate::units::{Band, DM_CONSTANT, dispersion_delay_s};

/// Recording in memory.
struct Memory {
    header: FilterbankHeader,
    rows: Vec<u8>,
    place: usize,
}

impl FilterbankSource for Memory {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }
    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let bytes = rows.len().min(self.rows.len() - self.place);
        rows[..bytes].copy_from_slice(&self.rows[self.place..][..bytes]);
        self.place += bytes;
        Ok(bytes / self.header.row_bytes())
    }
    fn skip(&mut self, times: u64) -> Result<u64> {
        let row_bytes = self.header.row_bytes();
        let times = times.min(((self.rows.len() - self.place) / row_bytes) as u64);
        self.place += times as usize * row_bytes;
        Ok(times)
    }
}

const TSAMP_S: f64 = 1e-3;

/// Noise of a small generator, and one pulse of `width` samples that starts at `time` at the highest frequency.
fn recording(band: &Band, times: usize, dm: f64, time: usize, width: usize) -> Memory {
    let channels = band.channels();
    let mut state = 1u64;
    let mut noise = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 59) as u8
    };
    let mut rows: Vec<u8> = (0..times * channels).map(|_| 40 + noise()).collect();
    for (c, frequency) in band.centres_hz().iter().enumerate() {
        let delay = dispersion_delay_s(dm, *frequency, band.highest_hz(), DM_CONSTANT);
        let start = time + (delay / TSAMP_S).round() as usize;
        (start..start + width).filter(|t| *t < times).for_each(|t| rows[t * channels + c] += 30);
    }
    let header = FilterbankHeader {
        path: "memory".into(),
        format: "memory",
        source_name: String::new(),
        telescope: String::new(),
        ra_deg: None,
        dec_deg: None,
        beam: None,
        tstart_mjd: 0.0,
        tsamp_s: TSAMP_S,
        band: band.clone(),
        encoding: Encoding::U8,
        recorded_bits: 8,
        recorded_polarizations: 1,
        times: Some(times as u64),
    };
    Memory { header, rows, place: 0 }
}

fn brightest(values: &[f32]) -> usize {
    let finite = values.iter().enumerate().filter(|(_, x)| x.is_finite());
    finite.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
}

fn cut(band: &Band, time: usize, width: usize) -> Cutout {
    let mut source = recording(band, 4000, 60.0, time, width);
    let time_s = (time as f64 + 0.5 * width as f64) * TSAMP_S;
    let sweep = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    let options = Options::plot(60.0, time_s, width as f64 * TSAMP_S, sweep);
    cutout(&mut source, &options).unwrap()
}

#[test]
fn a_pulse_lies_in_the_middle_at_its_dispersion_measure() {
    for (first, step) in [(1500.0, -2.0), (1300.0, 2.0)] {
        let band = Band::uniform(first, step, 128).unwrap();
        let cutout = cut(&band, 1500, 8);
        let bin = brightest(&cutout.profile);
        let time_s = cutout.start_s + (bin as f64 + 0.5) * cutout.bin_s;
        assert!(time_s.abs() <= 4.1 * TSAMP_S, "{time_s}");
        assert!((cutout.dms[brightest(&cutout.snr)] - 60.0).abs() < 2.0);
        let row = brightest(&cutout.plane) / cutout.times;
        assert!((cutout.dms[row] - 60.0).abs() < 4.0);
        for subband in cutout.waterfall.chunks(cutout.times) {
            assert!(brightest(subband).abs_diff(bin) <= 4);
        }
    }
}

#[test]
fn the_edges_of_a_recording_are_blank_and_harmless() {
    let band = Band::uniform(1500.0, -2.0, 64).unwrap();
    for time in [2, 3990] {
        let cutout = cut(&band, time, 4);
        assert_eq!(cutout.waterfall.len(), cutout.channels * cutout.times);
        assert!(cutout.waterfall.iter().any(|x| x.is_nan()));
        assert!(cutout.profile.iter().chain(&cutout.plane).all(|x| x.is_finite()));
        assert!(cutout.snr.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn masked_channels_are_blank_and_the_rest_is_as_it_was() {
    let band = Band::uniform(1500.0, -2.0, 64).unwrap();
    let mut source = recording(&band, 4000, 60.0, 1500, 4);
    let mut options = Options::plot(60.0, 1.502, 4e-3, 1e-3);
    options.masked = (0..64).map(|c| c % 8 == 0).collect();
    options.zero_dm = true;
    let cutout = cutout(&mut source, &options).unwrap();
    for (subband, row) in cutout.waterfall.chunks(cutout.times).enumerate() {
        assert_eq!(row.iter().all(|x| x.is_nan()), subband % 8 == 0);
    }
}

#[test]
fn wrong_options_are_refused() {
    let band = Band::uniform(1500.0, -2.0, 64).unwrap();
    let mut source = recording(&band, 100, 60.0, 15, 4);
    let good = Options::plot(60.0, 0.015, 4e-3, 1e-3);
    for bad in [
        Options { width_s: 0.0, ..good.clone() },
        Options { time_s: f64::NAN, ..good.clone() },
        Options { dms: (2.0, 1.0, 8), ..good.clone() },
        Options { times: 0, ..good.clone() },
        Options { masked: vec![true; 3], ..good },
    ] {
        assert!(cutout(&mut source, &bad).is_err());
    }
}

#[test]
fn one_pass_cuts_out_what_single_ones_do() {
    let band = Band::uniform(1500.0, -2.0, 128).unwrap();
    let sweep = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    // The last two lie after the end and before the start; two need samples while another grid is open.
    let wanted: Vec<Options> = [1.504, 0.01, 3.2, 1.504, 90.0, -3.0]
        .map(|time_s| Options {
            zero_dm: time_s > 3.0,
            ..Options::plot(60.0, time_s, 0.008, sweep)
        })
        .into();
    let source = || recording(&band, 4000, 60.0, 1500, 8);
    let mut found = vec![None; wanted.len()];
    let mut keep = |place: usize, cutout: Cutout| {
        assert!(found[place].replace(cutout).is_none());
        Ok(())
    };
    assert!(cutouts(&mut source(), &wanted, &mut || true, &mut keep).unwrap().is_empty());
    for (options, found) in wanted.iter().zip(found) {
        let (alone, found) = (cutout(&mut source(), options).unwrap(), found.unwrap());
        // Blank cells are NaN.
        assert_eq!(format!("{found:?}"), format!("{alone:?}"));
    }
    // Grids of 120 MB each: two fit at a time.
    let large = Options { times: 30_000, ..wanted[0].clone() };
    let wanted = vec![large; 3];
    let mut count = 0;
    let mut drop = |_: usize, _: Cutout| {
        count += 1;
        Ok(())
    };
    assert_eq!(cutouts(&mut source(), &wanted, &mut || true, &mut drop).unwrap(), [2]);
    let stopped = cutouts(&mut source(), &wanted, &mut || false, &mut drop).unwrap_err();
    assert_eq!(count, 2);
    assert!(stopped.is_stop());
}
