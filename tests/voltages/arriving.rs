//! A recording read as it arrives, whose missing samples are known block by block, gives the bits of its file.

#[path = "../voltage/arriving.rs"]
mod source;

use crate::support::{memory, rows};
use memory::{Memory, header, noise};
use rows::read_all;
use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankSource, Gap};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use source::Arriving;

use crate::random::Random;

const TIMES: usize = 60_000;

/// Voltages of two antennas and two recorded channels; `seed` chooses encoding and sideband.
fn recording(seed: u64) -> Memory {
    let encodings =
        [VoltageEncoding::Complex8, VoltageEncoding::Real8, VoltageEncoding::ComplexF32];
    let header = VoltageHeader {
        antennas: 2,
        polarizations: 2,
        lower_sideband: seed % 2 == 1,
        ..header(&[400.0, 401.0], encodings[seed as usize % 3])
    };
    Memory::new(header, TIMES, |stream, time| 30.0 * noise(stream, time))
}

/// Missing samples: some at the start and at the end, long and short, of all streams or of an antenna.
fn flags(random: &mut Random, from: u64) -> Vec<Flag> {
    let mut flags = Vec::new();
    for _ in 0..random.below(6) {
        let longest = [3, 300, 30_000][random.below(3)];
        let times = 1 + random.below(longest) as u64;
        let start = match random.below(4) {
            0 => from,
            1 => (TIMES as u64 - times).max(from),
            _ => from + random.below(TIMES - from as usize) as u64,
        };
        let times = times.min(TIMES as u64 - start);
        let streams = [0..8, 0..4, 4..8, 6..7][random.below(4)].clone();
        flags.push(Flag { streams, start, times });
    }
    flags.sort_by_key(|flag| flag.start);
    flags
}

/// Gaps within the rows.
fn within(gaps: &[Gap], rows: u64) -> Vec<(u64, u64)> {
    let gaps = gaps.iter().filter(|gap| gap.start_time < rows);
    gaps.map(|gap| (gap.start_time, gap.times.min(rows - gap.start_time))).collect()
}

#[test]
fn rows_and_gaps_are_those_of_the_file() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut file = recording(seed);
        file.flags = flags(&mut random, 0);
        let is_coherent = file.header.encoding.is_complex() && random.below(4) == 0;
        let options = ChannelizeOptions {
            taps: 1 + random.below(4),
            oversampling: [(1, 1), (4, 3)][random.below(2)],
            integrate: 1 + random.below(5),
            products: [Products::I, Products::Iquv][random.below(2)],
            coherent_dm: is_coherent.then_some(2.0),
            gulp: [0, 1, 500, 20_000][random.below(4)],
            ..ChannelizeOptions::new([6, 12, 24][random.below(3)])
        };
        let backend = Backend::best(1 + random.below(2));
        let Ok(mut known) = VoltageFilterbank::new(file.boxed(), &options, &backend) else {
            // All samples of a short recording may be missing.
            continue;
        };
        let expected = read_all(&mut known, 1000);
        let open =
            || VoltageFilterbank::new(Arriving::boxed(file.boxed()), &options, &backend).unwrap();
        for step in [1 + random.below(50), 1000] {
            let mut arriving = open();
            let found = read_all(&mut arriving, step);
            assert!(found == expected, "seed {seed}, rows by {step}");
            let rows = (expected.len() / known.row_elements()) as u64;
            let gaps = within(arriving.gaps(), rows);
            assert_eq!(gaps, within(known.gaps(), rows), "seed {seed}");
        }
        let elements = known.row_elements();
        let skipped = random.below(expected.len() / elements);
        let mut arriving = open();
        assert_eq!(arriving.skip(skipped as u64).unwrap(), skipped as u64);
        assert!(read_all(&mut arriving, 77) == expected[skipped * elements..], "seed {seed}, skip");
    }
}

/// Reads all samples, and the flagged ones as pairs of stream and time.
fn read_voltages(source: &mut ChannelizedVoltages, times: usize) -> (Vec<Vec<u8>>, Vec<Vec<bool>>) {
    let streams = source.header().streams();
    let (mut samples, mut flagged) = (vec![Vec::new(); streams], vec![Vec::new(); streams]);
    let mut block: VoltageBlock = source.header().block(times);
    let mut done = 0;
    loop {
        let read = source.read(&mut block).unwrap();
        for (stream, all) in samples.iter_mut().enumerate() {
            all.extend_from_slice(block.voltages().row(stream));
            flagged[stream].resize(done + read, false);
        }
        let absolute = |flag: &Flag| Flag { start: done as u64 + flag.start, ..flag.clone() };
        let listed: Vec<Flag> = match source.is_live() {
            true => block.flags().iter().map(absolute).collect(),
            false => source.flags().to_vec(),
        };
        for flag in listed {
            let end = (flag.start + flag.times).min((done + read) as u64) as usize;
            for stream in flag.streams {
                let own = &mut flagged[stream];
                (flag.start as usize..end).for_each(|time| own[time] = true);
            }
        }
        done += read;
        if read < times {
            return (samples, flagged);
        }
    }
}

#[test]
fn channelized_voltages_and_flags_are_those_of_the_file() {
    for seed in 0..20 {
        let mut random = Random::new(1000 + seed);
        let mut file = recording(seed);
        // Gains of a file are measured after spectra that are missing at its start; a live source has none of these.
        file.flags = flags(&mut random, 400);
        let options = ChannelizeOptions {
            taps: 1 + random.below(4),
            oversampling: [(1, 1), (4, 3)][random.below(2)],
            gulp: [0, 1, 500, 20_000][random.below(4)],
            ..ChannelizeOptions::new([6, 12, 24][random.below(3)])
        };
        let bits = [4, 8][random.below(2)];
        let gains = [Gains::Automatic, Gains::Given(vec![0.3])][random.below(2)].clone();
        let form = Requantization { bits, gains };
        let backend = Backend::best(2);
        let Ok(mut known) = ChannelizedVoltages::new(file.boxed(), &options, &form, &backend)
        else {
            continue;
        };
        let expected = read_voltages(&mut known, 1000);
        for step in [1 + random.below(50), 1000] {
            let source = Arriving::boxed(file.boxed());
            let mut arriving = ChannelizedVoltages::new(source, &options, &form, &backend).unwrap();
            assert!(arriving.is_live() && arriving.flags().is_empty());
            let found = read_voltages(&mut arriving, step);
            assert_eq!(arriving.gains(), known.gains(), "seed {seed}");
            assert!(found.0 == expected.0, "seed {seed}, samples by {step}");
            assert!(found.1 == expected.1, "seed {seed}, flags by {step}");
        }
    }
}

#[test]
fn a_stream_that_is_dead_from_the_start_is_an_error() {
    let mut file = recording(0);
    file.header.tsamp_s = 1e-2;
    file.flags = vec![Flag { streams: 3..4, start: 0, times: TIMES as u64 }];
    let options = ChannelizeOptions::new(12);
    let source = Arriving::boxed(file.boxed());
    let mut arriving = VoltageFilterbank::new(source, &options, &Backend::best(1)).unwrap();
    let mut rows = vec![0.0; arriving.row_elements()];
    let error = arriving.read_rows(&mut rows).unwrap_err().to_string();
    assert!(error.contains("data at the start") && error.contains("missing"), "{error}");
    // A stream that begins later than the others does no harm.
    file.flags[0].times = 900;
    let source = Arriving::boxed(file.boxed());
    let mut arriving = VoltageFilterbank::new(source, &options, &Backend::best(1)).unwrap();
    assert_eq!(arriving.read_rows(&mut rows).unwrap(), 1);
}
