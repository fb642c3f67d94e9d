//! Gravitational waves: strain, spectra, templates, banks.

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io;
use sidereal::io::gwf::Gwf;
use sidereal::io::ligolw::Values;
use sidereal::io::psd::Density;
use sidereal::io::strain::{OpenOptions, StrainSource, open};
use sidereal::io::templates::{TemplateOptions, Templates};
use sidereal::pipeline::cbc::waveforms;
use sidereal::spiir::Spiir;
use sidereal::spiir::bank::Bank;
use sidereal::spiir::whiten::{self, Method, Psd, Whitener};
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;

use super::pipelines::{RATE_HZ, filter};
use super::{Outcome, Read, with_file};

/// Recorded strain: HDF5 in both layouts, and raw series; filtered where it has the rate of the filters.
pub(super) fn strain(bytes: &[u8]) -> Outcome {
    let raw = OpenOptions {
        start: Some(Gps::from_s(1e9)),
        rate_hz: Some(RATE_HZ),
        ..OpenOptions::default()
    };
    let injections = vec!["NO_CBC_HW_INJ".to_string()];
    let strict = OpenOptions { required_injections: injections, ..OpenOptions::default() };
    // A raw series states neither its rate nor its start.
    let usual = if bytes.starts_with(b"\x93NUMPY") { &raw } else { &OpenOptions::default() };
    with_file(bytes, |path| {
        for options in [&raw, &strict] {
            if let Ok(mut source) = open(path, options) {
                let _ = drain(source.as_mut());
            }
        }
        drain(open(path, usual)?.as_mut())
    })
}

/// Frame files: all channels, to their ends.
pub(super) fn gwf(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        assert!(io::gwf::is_gwf(path) || !bytes.starts_with(b"IGWD\0"));
        let _ = open(path, &OpenOptions::default());
        let file = Gwf::open(path)?;
        let verified = file.verify();
        let mut read = if file.cut().is_some() { Read::Cut } else { Read::Whole };
        // Files with very many channels take long.
        for name in file.names().take(100) {
            assert_eq!(file.channel(name)?.name, name);
            let options = OpenOptions { channel: Some(name.to_owned()), ..OpenOptions::default() };
            if drain(open(path, &options)?.as_mut())? == Read::Part {
                read = Read::Part;
            }
        }
        verified.map(|()| read)
    })
}

/// Reads strain to its end, if that is near, and checks its declared properties.
fn drain(source: &mut dyn StrainSource) -> Outcome {
    let promised = source.header().times.expect("a file's length is known");
    let rate_hz = source.header().rate_hz;
    assert!(promised > 0 && rate_hz > 0);
    let (mut samples, mut valid) = ([1.0; 999], [true; 999]);
    let (mut all, mut all_valid) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        let count = source.read(&mut samples, &mut valid)?;
        for (sample, valid) in samples[..count].iter().zip(&valid) {
            assert!(sample.is_finite() && (*valid || *sample == 0.0));
        }
        all.extend_from_slice(&samples[..count]);
        all_valid.extend_from_slice(&valid[..count]);
        if count == 0 {
            assert_eq!(all.len() as u64, promised);
            if rate_hz == RATE_HZ && all.len() <= 1 << 14 {
                filter(&all, &all_valid, Method::Overlap { fft_s: 1.0 }, 999)?;
            }
            return Ok(if source.cut().is_some() { Read::Cut } else { Read::Whole });
        }
    }
    Ok(Read::Part)
}

/// Tables of LIGO_LW files, gzipped or not.
pub(super) fn ligolw(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let is_one = io::ligolw::is_ligolw(path);
        let _ = io::ligolw::read_table(path, "process");
        let table = io::ligolw::read_table(path, "sngl_inspiral")?;
        // The root element of the document may follow a comment.
        assert!(is_one || bytes.len() > 4096);
        for column in &table.columns {
            let cells = match &column.values {
                Values::Text(cells) => cells.len(),
                Values::Whole(cells) => cells.len(),
                Values::Real(cells) => cells.len(),
            };
            assert_eq!(cells, table.rows);
            let _ = table.optional_reals(&column.name);
        }
        Ok(Read::Whole)
    })
}

/// Filter banks: a readable bank can be written and read again, and a small one filters.
pub(super) fn bank_h5(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let bank = io::bank_h5::read(path)?;
        assert!(io::bank_h5::is_bank(path) && bank.rate_hz > 0 && !bank.templates.is_empty());
        io::bank_h5::write(path, &bank).expect("what was read can be written");
        let again = io::bank_h5::read(path).expect("what was written can be read");
        assert_eq!(again.templates, bank.templates);
        assert_eq!((again.rate_hz, again.resampler), (bank.rate_hz, bank.resampler));
        let (bank, _) = sidereal::pipeline::cbc::read_bank(path)?;
        filter_with(&bank)?;
        Ok(Read::Whole)
    })
}

/// Filters a ramp with a small bank.
fn filter_with(bank: &Bank) -> sidereal::Result<()> {
    if bank.templates.len() > 8 {
        return Ok(());
    }
    let mut filters = Spiir::new(bank.plan()?, &Backend::best(1))?;
    let ramp: Vec<f32> = (0..512).map(|k| (k % 17) as f32 - 8.0).collect();
    let mut ratios = vec![Complex::new(0.0, 0.0); ramp.len() * bank.templates.len()];
    let stride = ramp.len();
    let made = filters.run(&ramp, &mut ratios, stride)?.produced;
    assert!(made <= ramp.len());
    filters.flush(&mut ratios, stride)?;
    Ok(())
}

/// Templates of any kind: HDF5 series and banks, LIGO_LW, CSV.
pub(super) fn templates(bytes: &[u8]) -> Outcome {
    let options = TemplateOptions { rate_hz: Some(4096), distance_mpc: None };
    let inspirals =
        InspiralOptions { rate_hz: 4096, f_low_hz: 400.0, ..InspiralOptions::default() };
    with_file(bytes, |path| {
        let mut templates = io::templates::open_with(path, &options)?;
        match &mut templates {
            Templates::Waveforms(waveforms) => assert!(!waveforms.is_empty()),
            Templates::Binaries(binaries) => {
                assert!(!binaries.is_empty());
                for (_, binary) in binaries.iter() {
                    assert!(binary.mass1_msun > 0.0 && binary.mass2_msun > 0.0);
                    assert!(binary.spin1z.abs() < 1.0 && binary.spin2z.abs() < 1.0);
                }
                binaries.truncate(3);
            }
        }
        // The masses may have no inspiral in the band.
        for wave in waveforms(templates, &inspirals, None, &Threads::new(1)).unwrap_or_default() {
            assert!(wave.peak < wave.samples.len() && wave.rate_hz > 0);
            assert!(wave.samples.iter().all(|h| h.is_finite()));
        }
        Ok(Read::Whole)
    })
}

/// Power spectra, text of two columns or `.npy`, and noise whitened with them.
pub(super) fn psd(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let _ = io::psd::read(path, Density::Amplitude);
        let spectrum = io::psd::read(path, Density::Power)?;
        assert!(spectrum.densities().len() >= 2 && spectrum.spacing_hz() > 0.0);
        assert!(spectrum.densities().iter().all(|value| *value > 0.0));
        let method = Method::Overlap { fft_s: 1.0 };
        let options =
            whiten::Options { method, ..whiten::Options::new(RATE_HZ, Psd::Fixed(spectrum)) };
        // The spectrum may not cover the frequencies to whiten.
        if let Ok(mut whitener) = Whitener::new(options) {
            let strain: Vec<f64> = (0..1024).map(|k| f64::from(k % 17) * 1e-22).collect();
            let (mut white, mut valid) = (vec![0.0; 1024], vec![false; 1024]);
            whitener.run(&strain, &[true; 1024], &mut white, &mut valid)?;
            assert!(white.iter().all(|x| x.is_finite()));
        }
        Ok(Read::Whole)
    })
}
