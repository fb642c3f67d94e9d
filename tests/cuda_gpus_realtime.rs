//! Work that several GPUs divide asks for no memory once it is warm: spectra of voltages, and searches.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "voltage/memory.rs"]
mod memory;

use counting::{Counting, assert_quiet, requests_during};
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::pipeline::burst::{SearchOptions, Source, Status, search};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::sample::Encoding;
use sidereal::units::Band;
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rows of one period again and again, without a burst.
struct Rows {
    header: FilterbankHeader,
    period: Vec<u8>,
    read: u64,
}

impl Rows {
    fn new(times: u64) -> Self {
        let header = FilterbankHeader {
            path: "memory".into(),
            format: "memory",
            source_name: "none".into(),
            telescope: "none".into(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 60_000.0,
            tsamp_s: 1e-3,
            band: Band::uniform(1500.0, -4.0, 32).unwrap(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 1,
            times: Some(times),
        };
        let period = (0..97 * 32).map(|n: u32| 100 + (n.wrapping_mul(2_654_435_761) >> 28) as u8);
        Self { header, period: period.collect(), read: 0 }
    }
}

impl FilterbankSource for Rows {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let left = self.header.times.unwrap_or(0) - self.read;
        let times = (rows.len() / 32).min(left as usize);
        for row in rows.chunks_exact_mut(32).take(times) {
            let place = (self.read % 97) as usize * 32;
            row.copy_from_slice(&self.period[place..place + 32]);
            self.read += 1;
        }
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.read += times;
        Ok(times)
    }
}

/// Returns the requests of a search of `times` rows, and its gulps.
fn requests_of_search(times: u64, backend: &Backend) -> [usize; 2] {
    let plan = DmPlan { ranges: vec![DmRange::new(0.0, 100.0, 0.5)] };
    let mut options = SearchOptions::new(plan);
    (options.baseline_s, options.max_width_s, options.gulp) = (1.0, 0.03, 500);
    // Bursts that the ends cut are searched on the host.
    (options.min_band, options.auto_mask) = (1.0, false);
    let (mut rows, mut gulps) = (Rows::new(times), 0);
    let requests = requests_during(|| {
        let mut observe = |_: &Status| {
            gulps += 1;
            true
        };
        let report = search(Source::Rows(&mut rows), &options, backend, &mut observe).unwrap();
        assert_eq!((report.times, report.candidates.len()), (times, 0));
    });
    [requests, gulps]
}

fn searches(backend: &Backend) {
    // The first search compiles kernels.
    requests_of_search(3_000, backend);
    let [short, long] = [4_000, 16_000].map(|times| requests_of_search(times, backend));
    assert!(long[1] > short[1] + 20, "{short:?}, {long:?}");
    assert_eq!(short[0], long[0], "{}", backend.name());
}

fn spectra(backend: &Backend) {
    let header = VoltageHeader {
        antennas: 2,
        polarizations: 2,
        ..header(&[1401.0, 1400.0], VoltageEncoding::Complex8)
    };
    let source = Memory::new(header, 800_000, |stream, time| noise(stream, time) * 100.0);
    for coherent_dm in [None, Some(30.0)] {
        let options = ChannelizeOptions { coherent_dm, gulp: 30_000, ..ChannelizeOptions::new(16) };
        let mut filterbank = VoltageFilterbank::divided(source.boxed(), &options, backend).unwrap();
        let mut rows = vec![0.0; 1_500 * filterbank.row_elements()];
        let read = || assert_eq!(filterbank.read_rows(&mut rows).unwrap(), 1_500);
        assert_quiet(&format!("rows {coherent_dm:?} on {}", backend.name()), 8, 16, read);
        let requantization = Requantization { bits: 8, gains: Gains::Automatic };
        let mut voltages =
            ChannelizedVoltages::new(source.boxed(), &options, &requantization, backend).unwrap();
        let mut block = voltages.header().block(1_500);
        let read = || assert_eq!(voltages.read(&mut block).unwrap(), 1_500);
        assert_quiet(&format!("voltages {coherent_dm:?} on {}", backend.name()), 8, 16, read);
    }
}

#[test]
fn warm_work_of_several_gpus_asks_for_no_memory() {
    assert!(requests_during(|| drop(vec![0u8; 64])) > 0, "the counter counts");
    let Some((_, divided)) = cuda::divisions(3) else { return };
    for backend in &divided {
        spectra(backend);
        searches(backend);
    }
}
