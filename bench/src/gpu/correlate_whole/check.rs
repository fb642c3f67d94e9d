//! Checks a gulp's visibilities against the CPU's.

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::UploadRing;
use sidereal::channelize::{Channelizer, Output};
use sidereal::delay::{self, Aligner, Rows, Slope};
use sidereal::voltage::{VoltageEncoding, Voltages};

use super::chain::{Chain, band, bank, delay, gain};
use crate::gpu::Gpu;

/// Distance between compared channels.
const STEP: usize = 32;

/// Allowed difference relative to the power: one sample in a few thousand may round differently.
const TOLERANCE: f64 = 2e-4;

/// Processes `voltages` as the first gulp on device and CPU, and compares three antennas.
pub(super) fn is_right(
    gpu: &Gpu,
    chain: &mut Chain,
    uploads: &mut UploadRing,
    voltages: &[u8],
) -> Result<bool> {
    let size = chain.size;
    let bytes = size.gulp_bytes();
    // The chain uses the slots in the order of filling.
    put(uploads, &voltages[..bytes])?;
    chain.begin(uploads)?;
    chain.step(uploads)?;
    chain.read()?;
    chain.end(uploads)?;
    let antennas = [0, size.antennas / 2, size.antennas - 1];
    let host = Backend::best(gpu.backend.threads());
    let each = bytes / size.antennas;
    let spectra = antennas.map(|antenna| {
        let own = &voltages[antenna * each..(antenna + 1) * each];
        aligned(chain, antenna, own, &host)
    });
    let [a, b, c] = spectra;
    Ok(are_right(chain, antennas, &[a?, b?, c?]))
}

/// Copies voltages into the present pair.
fn put(uploads: &mut UploadRing, voltages: &[u8]) -> Result<()> {
    let mut slot = uploads.current();
    slot.host()?[..voltages.len()].copy_from_slice(voltages);
    Ok(())
}

/// Returns one antenna's spectra from the CPU, and their number; axes polarization, time, channel.
fn aligned(chain: &Chain, antenna: usize, own: &[u8], host: &Backend) -> Result<(Vec<u8>, usize)> {
    let size = chain.size;
    let plan = bank(size, 1)?;
    let samples = size.channels * size.spectra;
    let input = Voltages::new(own, VoltageEncoding::Complex8, 2, 2 * samples, samples)?;
    let mut spectra = vec![Complex::ZERO; plan.row_elements() * plan.max_rows(samples)];
    let mut channelizer = Channelizer::new(plan, host)?;
    let made = channelizer.run(input, Output::Complex(&mut spectra))?.produced;
    let options = delay::Options {
        polarizations: 2,
        coarse_channels: 1,
        channels: size.channels,
        encoding: VoltageEncoding::Complex8,
        gains: vec![gain(size)],
    };
    let mut aligner = Aligner::new(delay::Plan::new(options)?, host);
    let band = band(size);
    let slopes: Vec<Slope> = (0..made).map(|time| band.slope(0, delay(antenna, time))).collect();
    let mut bytes = vec![0; 2 * made * size.channels * 2];
    let elements = made * 2 * size.channels;
    let rows = Rows { bytes: &mut bytes, times: made, first: 0 };
    aligner.run(&spectra[..elements], &slopes, rows)?;
    Ok((bytes, made))
}

fn are_right(chain: &Chain, antennas: [usize; 3], spectra: &[(Vec<u8>, usize); 3]) -> bool {
    let channels = chain.size.channels;
    let baselines = chain.size.antennas * (chain.size.antennas + 1) / 2;
    let part = |byte: u8| f64::from(byte as i8);
    let value = |own: usize, polarization: usize, time: usize, channel: usize| {
        let (bytes, times) = &spectra[own];
        let at = 2 * ((polarization * times + time) * channels + channel);
        Complex::new(part(bytes[at]), part(bytes[at + 1]))
    };
    let times = spectra[0].1;
    let sum = |(i, p): (usize, usize), (j, q): (usize, usize), channel: usize| {
        let products = (0..times).map(|t| value(i, p, t, channel) * value(j, q, t, channel).conj());
        products.sum::<Complex<f64>>()
    };
    (0..channels).step_by(STEP).all(|channel| {
        let power = |own: (usize, usize)| sum(own, own, channel).re;
        (0..3).all(|i| {
            (0..=i).all(|j| {
                let (first, second) = (antennas[i], antennas[j]);
                let row = channel * baselines + first * (first + 1) / 2 + second;
                let counted = chain.counts[row] == times as u64;
                (0..4).all(|pair| {
                    let (p, q) = (pair / 2, pair % 2);
                    let found = chain.sums[4 * row + pair];
                    let found = Complex::new(found.re as f64, found.im as f64);
                    let off = (found - sum((i, p), (j, q), channel)).norm();
                    let most = TOLERANCE * (power((i, p)) * power((j, q))).sqrt();
                    counted && power((i, p)) > 0.0 && off <= most
                })
            })
        })
    })
}
