//! `bench correlate --whole` on a GPU: voltages in page-locked host memory to visibilities in host memory.

mod chain;
mod check;

use std::path::Path;
use std::time::Instant;

use chain::Chain;
use sidereal::backend::cuda::UploadRing;
use sidereal::{Error, Result};

use super::{Figure, Gpu, random, table};
use crate::session::Session;
pub(crate) use chain::Size;

const ABOUT: &str = "\
10^9 bytes a second of voltages (8 bit, two polarizations), from the host's page-locked memory to visibilities in the
host's memory: filter bank of 8 taps, delay phases, gains, rounding to 8 bits, products of all antennas; the best and the
median integration, each read out while the next one's voltages are on their way. Roof: the same memory copied to the
device and nothing else, in the same run. Visibilities of a gulp are compared with the processor's first.";

/// Antennas of the cases; antennas x channels equal `PRODUCT`.
const ANTENNAS: [usize; 4] = [32, 64, 128, 256];
const PRODUCT: usize = 65536;

/// Spectra in a gulp.
const SPECTRA: usize = 1024;

/// Number of gulps in host memory, and in an integration.
const SLOTS: usize = 12;
const GULPS: usize = 32;

/// Integrations that count, after one warm-up.
const RUNS: usize = 5;

fn sizes(quick: bool) -> Vec<Size> {
    if quick {
        return vec![Size { antennas: 3, channels: 256, spectra: 24, gulps: 3 }];
    }
    let size =
        |antennas| Size { antennas, channels: PRODUCT / antennas, spectra: SPECTRA, gulps: GULPS };
    ANTENNAS.map(size).to_vec()
}

/// Runs the benchmark.
///
/// # Errors
/// Those of the device, and of a table with a wrong case.
pub(crate) fn run(gpu: &Gpu, csv: Option<&Path>, session: &Session<'_>) -> Result<()> {
    let sizes = sizes(gpu.quick);
    let bytes = sizes.iter().map(|size| size.gulp_bytes()).max().unwrap_or(0);
    let mut uploads = UploadRing::new(&gpu.device, bytes, if gpu.quick { 4 } else { SLOTS })?;
    let voltages = fill(gpu, &mut uploads, bytes)?;
    let bus = bus(gpu, &mut uploads, bytes)?;
    let table = table(gpu, session, csv, ("correlate", ABOUT))?;
    let name = |size: &Size| {
        format!("{} antennas, {} channels, whole, from the host", size.antennas, size.channels)
    };
    gpu.measure(table, &sizes, name, |size| {
        let mut chain = Chain::new(gpu, *size)?;
        let checked = check::is_right(gpu, &mut chain, &mut uploads, &voltages)?;
        let seconds = integrations(&mut chain, &mut uploads, if gpu.quick { 1 } else { RUNS })?;
        Ok(Figure {
            case: name(size),
            work: (size.gulp_bytes() * size.gulps) as f64 * 1e-9,
            unit: "GB/s",
            seconds,
            roof: bus * 1e-9,
            roof_unit: "GB/s over the bus",
            peer: 0.0,
            checked,
        })
    })
}

/// Fills all buffer pairs with random voltages, each rotated by a further 4096 bytes; returns the first pair's
/// voltages.
fn fill(gpu: &Gpu, uploads: &mut UploadRing, bytes: usize) -> Result<Vec<u8>> {
    let voltages = random::bytes(bytes);
    let work = gpu.device.stream()?;
    let slots = if gpu.quick { 4 } else { SLOTS };
    for slot in 0..slots {
        let turned = slot * 4096 % bytes;
        let mut slot = uploads.current();
        let room = slot.host()?;
        room[..bytes - turned].copy_from_slice(&voltages[turned..]);
        room[bytes - turned..bytes].copy_from_slice(&voltages[..turned]);
        uploads.release(&work)?;
    }
    Ok(voltages)
}

/// Returns the bytes per second over the bus: the best of three passes over all pairs.
fn bus(gpu: &Gpu, uploads: &mut UploadRing, bytes: usize) -> Result<f64> {
    let work = gpu.device.stream()?;
    let slots = if gpu.quick { 4 } else { SLOTS };
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let begin = Instant::now();
        for _ in 0..slots {
            let mut slot = uploads.current();
            slot.host()?;
            slot.send(bytes)?;
            let _ = uploads.acquire(&work)?;
            uploads.release(&work)?;
        }
        work.synchronize()?;
        best = best.max((slots * bytes) as f64 / begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Returns the seconds from the end of one integration to the end of the next, smallest first.
fn integrations(chain: &mut Chain, uploads: &mut UploadRing, runs: usize) -> Result<Vec<f64>> {
    let mut seconds = Vec::new();
    chain.begin(uploads)?;
    let mut ended = Instant::now();
    for run in 0..=runs {
        chain.integrate(uploads)?;
        chain.read()?;
        if run > 0 {
            seconds.push(ended.elapsed().as_secs_f64());
        }
        ended = Instant::now();
    }
    chain.end(uploads)?;
    if seconds.iter().any(|own| !own.is_finite()) {
        let why = "no integration took a time".to_owned();
        return Err(Error::Unavailable { what: "a rate".to_owned(), why });
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}
