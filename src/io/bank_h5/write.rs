//! Writer of filter banks.

use std::path::Path;

use hdf5_pure::{AttrValue, FileBuilder, FormatError, GroupBuilder};
use num_complex::Complex;

use super::contents::{BINARY, NUMBERS, binary_numbers, complex_bytes, complex_type};
use super::{BankFile, FORMAT, FilterRecord, LeftOutRecord, TemplateRecord, VERSION};
use crate::error::{Error, Result};
use crate::io::atomic;

type Built = std::result::Result<(), FormatError>;

/// Writes a filter bank; replaces an existing file.
///
/// # Errors
/// [`Error::Parameter`] if the bank has no template; [`Error::Io`].
pub fn write(path: &Path, bank: &BankFile) -> Result<()> {
    if bank.templates.is_empty() {
        return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
    }
    let fault = |error: hdf5_pure::Error| Error::format(path, "HDF5", 0, error.to_string());
    let mut builder = FileBuilder::new();
    fill(&mut builder, bank).map_err(|error| fault(hdf5_pure::Error::Format(error)))?;
    atomic::write(path, &builder.finish().map_err(fault)?)
}

fn fill(builder: &mut FileBuilder, bank: &BankFile) -> Built {
    let text = |text: &str| AttrValue::VarLenString(text.to_owned());
    builder.set_attr("format", text(FORMAT));
    builder.set_attr("version", AttrValue::I64(VERSION));
    builder.set_attr("rate_hz", AttrValue::I64(bank.rate_hz.into()));
    builder.set_attr("detector", text(&bank.detector));
    builder.set_attr("comment", text(&bank.comment));
    let mut options = builder.create_group("options");
    let names: Vec<&str> = bank.options.iter().map(|(name, _)| name.as_str()).collect();
    let numbers: Vec<f64> = bank.options.iter().map(|(_, number)| *number).collect();
    if !names.is_empty() {
        options.create_dataset("name").with_vlen_strings(&names);
        options.create_dataset("value").with_f64_data(&numbers);
    }
    builder.add_group(options.finish());
    let mut psd = builder.create_group("psd");
    psd.set_attr("spacing_hz", AttrValue::F64(bank.psd.spacing_hz()));
    psd.create_dataset("densities").with_f64_data(bank.psd.densities());
    builder.add_group(psd.finish());
    let mut resampler = builder.create_group("resampler");
    for (name, taps, delay) in [
        ("down", &bank.resampler.down, bank.resampler.down_delay),
        ("up", &bank.resampler.up, bank.resampler.up_delay),
    ] {
        resampler.set_attr(&format!("{name}_delay"), AttrValue::I64(delay.into()));
        if !taps.is_empty() {
            resampler.create_dataset(name).with_f32_data(taps);
        }
    }
    builder.add_group(resampler.finish());
    for (name, fill) in GROUPS {
        let mut group = builder.create_group(name);
        fill(&mut group, &bank.templates)?;
        builder.add_group(group.finish());
    }
    if !bank.left_out.is_empty() {
        let mut group = builder.create_group("left_out");
        left_out(&mut group, &bank.left_out);
        builder.add_group(group.finish());
    }
    Ok(())
}

type Fill = fn(&mut GroupBuilder, &[TemplateRecord]) -> Built;

const GROUPS: [(&str, Fill); 4] = [
    ("templates", templates),
    ("filters", filters),
    ("autocorrelation", |group, all| values(group, all, |own| &own.autocorrelation)),
    ("whitened", |group, all| values(group, all, |own| &own.whitened)),
];

fn templates(group: &mut GroupBuilder, all: &[TemplateRecord]) -> Built {
    let names: Vec<&str> = all.iter().map(|own| own.name.as_str()).collect();
    group.create_dataset("name").with_vlen_strings(&names);
    let approximants: Vec<&str> =
        all.iter().map(|own| own.approximant.as_deref().unwrap_or_default()).collect();
    group.create_dataset("approximant").with_vlen_strings(&approximants);
    for number in NUMBERS {
        let column: Vec<f64> = all.iter().map(number.of).collect();
        group.create_dataset(number.name).with_f64_data(&column);
    }
    for (place, name) in BINARY.iter().enumerate() {
        let column: Vec<f64> =
            all.iter().map(|own| binary_numbers(own.binary.as_ref())[place]).collect();
        group.create_dataset(name).with_f64_data(&column);
    }
    let norms: Vec<f32> = all.iter().map(|own| own.autocorrelation_norm).collect();
    group.create_dataset("autocorrelation_norm").with_f32_data(&norms);
    Ok(())
}

fn filters(group: &mut GroupBuilder, all: &[TemplateRecord]) -> Built {
    offsets(group, all.iter().map(|own| own.filters.len()));
    let each: Vec<FilterRecord> = all.iter().flat_map(|own| own.filters.iter().copied()).collect();
    if each.is_empty() {
        return Ok(());
    }
    let halvings: Vec<u32> = each.iter().map(|filter| filter.halvings).collect();
    let delays: Vec<u32> = each.iter().map(|filter| filter.delay).collect();
    group.create_dataset("halvings").with_u32_data(&halvings);
    group.create_dataset("delay").with_u32_data(&delays);
    let poles: Vec<_> = each.iter().map(|filter| filter.a).collect();
    let weights: Vec<_> = each.iter().map(|filter| filter.b).collect();
    complex(group, "a", &poles)?;
    complex(group, "b", &weights)
}

fn left_out(group: &mut GroupBuilder, all: &[LeftOutRecord]) {
    let numbers = |of: fn(&LeftOutRecord) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let texts = |of: fn(&LeftOutRecord) -> &str| all.iter().map(of).collect::<Vec<&str>>();
    group.create_dataset("index").with_f64_data(&numbers(|one| one.index as f64));
    group.create_dataset("match").with_f64_data(&numbers(|one| one.fit.unwrap_or(f64::NAN)));
    group.create_dataset("name").with_vlen_strings(&texts(|one| &one.name));
    group.create_dataset("reason").with_vlen_strings(&texts(|one| &one.reason));
}

/// Writes the concatenated series of all templates.
fn values(
    group: &mut GroupBuilder,
    all: &[TemplateRecord],
    of: fn(&TemplateRecord) -> &Vec<Complex<f32>>,
) -> Built {
    offsets(group, all.iter().map(|own| of(own).len()));
    let joined: Vec<Complex<f32>> = all.iter().flat_map(|own| of(own).iter().copied()).collect();
    if joined.is_empty() { Ok(()) } else { complex(group, "values", &joined) }
}

/// Writes the offset of each template's part, and the total.
fn offsets(group: &mut GroupBuilder, lengths: impl Iterator<Item = usize>) {
    let ends = lengths.scan(0, |end, length| {
        *end += length as u64;
        Some(*end)
    });
    let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
    group.create_dataset("offset").with_u64_data(&offsets);
}

fn complex(group: &mut GroupBuilder, name: &str, values: &[Complex<f32>]) -> Built {
    let dataset = group.create_dataset(name);
    dataset.with_raw_data(complex_type()?, complex_bytes(values), values.len() as u64);
    dataset.with_shape(&[values.len() as u64]);
    Ok(())
}
