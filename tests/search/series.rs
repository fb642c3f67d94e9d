//! Series for each trial, written block by block, against the definition.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::FilterbankSource;
use sidereal::pipeline::burst::{SearchOptions, Status};
use sidereal::pipeline::series::{Block, SeriesRange, SeriesReport, SeriesSink, dedisperse};
use sidereal::sample::{Encoding, value};
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};

const TSAMP_S: f64 = 1e-3;
const TIMES: u64 = 700;

/// Keeps every series in memory.
#[derive(Default)]
struct Memory {
    series: Vec<Vec<Vec<f32>>>,
}

impl SeriesSink for Memory {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        self.series = ranges.iter().map(|range| vec![Vec::new(); range.dms.len()]).collect();
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        for (dm, series) in self.series[block.range].iter_mut().enumerate() {
            let row = block.plane.row(dm);
            series.extend_from_slice(&row[..block.valid[dm]]);
            assert!(row[block.valid[dm]..].iter().all(|x| *x == 0.0));
        }
        Ok(())
    }

    fn observe(&mut self, _: &Status) -> bool {
        true
    }
}

fn simulator(encoding: Encoding) -> Simulator {
    let mut options = Options::new(Band::uniform(1400.0, -4.0, 64).unwrap(), TSAMP_S, TIMES);
    options.encoding = encoding;
    options.bursts = vec![Burst::new(80.0, 0.2, 4e-3, 10.0)];
    Simulator::new(options).unwrap()
}

fn options() -> SearchOptions {
    let second = DmRange { downsample: 3, ..DmRange::new(60.0, 90.0, 7.5) };
    let plan = DmPlan::from_ranges(vec![DmRange::new(0.0, 60.0, 4.0), second]).unwrap();
    SearchOptions { zapped: vec![3, 60], auto_mask: false, ..SearchOptions::new(plan) }
}

fn run(source: &mut Simulator, options: &SearchOptions) -> (Memory, SeriesReport) {
    let mut memory = Memory::default();
    let report = dedisperse(source, options, &Backend::best(2), &mut memory).unwrap();
    (memory, report)
}

/// The definition: sums over the channels, shifted, of time bins.
fn definition(encoding: Encoding, range: &SeriesRange, dm: f64) -> Vec<f32> {
    let mut source = simulator(encoding);
    let band = source.header().band.clone();
    let row_bytes = source.header().row_bytes();
    let mut rows = vec![0; TIMES as usize * row_bytes];
    source.read(&mut rows).unwrap();
    let channels: Vec<usize> = (0..64).filter(|c| *c != 3 && *c != 60).collect();
    let shift = |c: usize| {
        let delay = dispersion_delay_s(dm, band.centres_hz()[c], band.highest_hz(), DM_CONSTANT);
        (delay / range.tsamp_s).round_ties_even() as usize
    };
    let shifts: Vec<usize> = channels.iter().map(|c| shift(*c)).collect();
    let bins = TIMES as usize / range.downsample;
    let longest = shifts.iter().copied().max().unwrap();
    let sum = |time: usize| {
        let cell = |(c, shift): (&usize, &usize)| {
            let first = (time + shift) * range.downsample;
            let row = |t: usize| &rows[t * row_bytes..][..row_bytes];
            (first..first + range.downsample).map(|t| value(row(t), encoding, *c)).sum::<f64>()
        };
        channels.iter().zip(&shifts).map(cell).sum::<f64>() as f32
    };
    (0..bins.saturating_sub(longest)).map(sum).collect()
}

#[test]
fn series_are_those_of_the_definition_for_any_gulp() {
    for encoding in [Encoding::U1, Encoding::U8, Encoding::F32] {
        for gulp in [0, 1, 64, 333] {
            let options = SearchOptions { gulp, ..options() };
            let (memory, report) = run(&mut simulator(encoding), &options);
            assert_eq!(report.ranges.len(), 2);
            for (index, range) in report.ranges.iter().enumerate() {
                for (dm, series) in range.dms.iter().zip(&memory.series[index]) {
                    let expected = definition(encoding, range, *dm);
                    assert_eq!(series.len(), expected.len(), "{encoding:?} DM {dm}");
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
                    let same = |(a, b): (&f32, &f32)| a == b;
                    let mut pairs = series.iter().zip(&expected);
                    let right =
                        if encoding == Encoding::F32 { pairs.all(near) } else { pairs.all(same) };
                    assert!(right, "{encoding:?} DM {dm} gulp {gulp}");
                }
                let lengths: Vec<u64> =
                    memory.series[index].iter().map(|series| series.len() as u64).collect();
                assert_eq!(report.times[index], lengths);
            }
        }
    }
}

#[test]
fn a_time_range_is_a_part_of_the_whole() {
    let (whole, _) = run(&mut simulator(Encoding::U8), &options());
    let part = SearchOptions { time_range: Some((0.1, 0.5)), ..options() };
    let (part, report) = run(&mut simulator(Encoding::U8), &part);
    assert_eq!((report.rows, report.ranges[0].start_s), (400, 0.1));
    for (part, whole) in part.series[0].iter().zip(&whole.series[0]) {
        assert_eq!(part[..], whole[100..100 + part.len()]);
    }
}

#[test]
fn trials_longer_than_the_data_are_left_out_and_none_is_an_error() {
    let plan = DmPlan::fixed(&[(0.0, 4000.0, 100.0)]).unwrap();
    let (memory, report) = run(&mut simulator(Encoding::U8), &SearchOptions { plan, ..options() });
    assert!(report.skipped_dms > 0 && report.skipped_dms < 40);
    assert_eq!(memory.series[0].len() + report.skipped_dms, 40);
    let plan = DmPlan::fixed(&[(4000.0, 4001.0, 1.0)]).unwrap();
    let options = SearchOptions { plan, ..options() };
    let mut memory = Memory::default();
    let mut source = simulator(Encoding::U8);
    assert!(dedisperse(&mut source, &options, &Backend::best(1), &mut memory).is_err());
    assert!(memory.series.is_empty());
}
