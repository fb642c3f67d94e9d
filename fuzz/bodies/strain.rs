//! Gravitational waves: strain, spectra, templates, banks.

use sidereal::io;
use sidereal::io::ligolw::Values;
use sidereal::io::psd::Density;
use sidereal::io::templates::{TemplateOptions, Templates};

use super::with_file;

/// Recorded strain: HDF5 in both layouts, and raw series.
pub fn strain(bytes: &[u8]) {
    use sidereal::io::strain::{OpenOptions, open};
    use sidereal::units::Gps;
    let start = Some(Gps::from_s(1e9));
    let raw = OpenOptions { start, rate_hz: Some(4096), ..OpenOptions::default() };
    let injections = vec!["NO_CBC_HW_INJ".to_string()];
    let strict = OpenOptions { required_injections: injections, ..OpenOptions::default() };
    with_file(bytes, |path| {
        for options in [&OpenOptions::default(), &raw, &strict] {
            if let Ok(mut source) = open(path, options) {
                drain_strain(source.as_mut());
            }
        }
    });
}

/// Reads strain to its end, if that is near, and holds it to what it promised.
fn drain_strain(source: &mut dyn sidereal::io::strain::StrainSource) {
    let promised = source.header().times.expect("a file's length is known");
    assert!(promised > 0 && source.header().rate_hz > 0);
    let (mut samples, mut valid) = ([1.0; 999], [true; 999]);
    let mut read = 0;
    for _ in 0..1000 {
        let Ok(count) = source.read(&mut samples, &mut valid) else { return };
        read += count as u64;
        for (sample, valid) in samples[..count].iter().zip(&valid) {
            assert!(sample.is_finite() && (*valid || *sample == 0.0));
        }
        if count == 0 {
            assert_eq!(read, promised);
            return;
        }
    }
}

/// Tables of LIGO_LW files, gzipped or not.
pub fn ligolw(bytes: &[u8]) {
    with_file(bytes, |path| {
        let is_one = io::ligolw::is_ligolw(path);
        for name in ["sngl_inspiral", "process"] {
            let Ok(table) = io::ligolw::read_table(path, name) else { continue };
            // The document's own element may come late, behind a comment.
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
        }
    });
}

/// Filter banks: what can be read can be written and read again.
pub fn bank_h5(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(bank) = io::bank_h5::read(path) else { return };
        assert!(io::bank_h5::is_bank(path) && bank.rate_hz > 0 && !bank.templates.is_empty());
        io::bank_h5::write(path, &bank).expect("what was read can be written");
        let again = io::bank_h5::read(path).expect("what was written can be read");
        assert_eq!(again.templates, bank.templates);
        assert_eq!((again.rate_hz, again.resampler), (bank.rate_hz, bank.resampler));
    });
}

/// Templates of any kind: HDF5 series and banks, LIGO_LW, CSV.
pub fn templates(bytes: &[u8]) {
    let options = TemplateOptions { rate_hz: Some(4096), distance_mpc: None };
    with_file(bytes, |path| match io::templates::open_with(path, &options) {
        Ok(Templates::Waveforms(waveforms)) => {
            assert!(!waveforms.is_empty());
            for wave in waveforms {
                assert!(wave.peak < wave.samples.len() && wave.rate_hz > 0);
                assert!(wave.samples.iter().all(|h| h.is_finite()));
            }
        }
        Ok(Templates::Binaries(binaries)) => {
            assert!(!binaries.is_empty());
            for (_, binary) in binaries {
                assert!(binary.mass1_msun > 0.0 && binary.mass2_msun > 0.0);
                assert!(binary.spin1z.abs() < 1.0 && binary.spin2z.abs() < 1.0);
            }
        }
        Err(_) => {}
    });
}

/// Power spectra: text of two columns, `.npy`.
pub fn psd(bytes: &[u8]) {
    with_file(bytes, |path| {
        for density in [Density::Power, Density::Amplitude] {
            let Ok(spectrum) = io::psd::read(path, density) else { continue };
            assert!(spectrum.densities().len() >= 2 && spectrum.spacing_hz() > 0.0);
            assert!(spectrum.densities().iter().all(|value| *value > 0.0));
        }
    });
}
