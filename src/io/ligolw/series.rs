//! Series in LAL's LIGO_LW form: an epoch, an array of (abscissa, value, ...) rows, and parameters.

use super::events::{PsdRow, SnrSeries};
use super::sink::{Sink, real};
use crate::error::Result;
use crate::units::Gps;

/// Nanoseconds in a second.
const NS_PER_S: u64 = 1_000_000_000;

/// Formats GPS seconds with nine decimals.
pub(super) fn gps(moment: Gps) -> String {
    let sign = if moment.ns < 0 { "-" } else { "" };
    let ns = moment.ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / NS_PER_S, ns % NS_PER_S)
}

/// Names and step of an array's axis.
struct Axis<'a> {
    name: &'a str,
    values: &'a str,
    unit: &'a str,
    step: f64,
}

/// Writes the complex signal-to-noise ratio series of the trigger with this id.
pub(super) fn snr(sink: &mut Sink, series: &SnrSeries, event_id: i64) -> Result<()> {
    let step = 1.0 / f64::from(series.rate_hz);
    let axis = Axis { name: "Time", values: "Time,Real,Imaginary", unit: "s", step };
    sink.element("LIGO_LW", &[("Name", "COMPLEX8TimeSeries")], |sink| {
        head(sink, series.start)?;
        let row = |(place, z): (usize, &num_complex::Complex<f32>)| {
            format!("{} {} {}", real(place as f64 * step), z.re, z.im)
        };
        let rows = series.samples.iter().enumerate().map(row);
        array(sink, ("snr:array", ""), (&axis, 3), rows)?;
        let id = [("Name", "event_id:param"), ("Type", "int_8s")];
        sink.value("Param", &id, &event_id.to_string())
    })
}

/// Writes the power spectrum of a detector.
pub(super) fn psd(sink: &mut Sink, row: &PsdRow) -> Result<()> {
    let step = row.psd.spacing_hz();
    let axis = Axis { name: "Frequency", values: "Frequency,Real", unit: "s^-1", step };
    sink.element("LIGO_LW", &[("Name", "REAL8FrequencySeries")], |sink| {
        head(sink, Gps::default())?;
        let line = |(bin, density): (usize, &f64)| {
            format!("{} {}", real(bin as f64 * step), real(*density))
        };
        let rows = row.psd.densities().iter().enumerate().map(line);
        array(sink, ("psd:array", "s strain^2"), (&axis, 2), rows)?;
        sink.value("Param", &[("Name", "instrument:param"), ("Type", "lstring")], &row.ifo)
    })
}

fn head(sink: &mut Sink, epoch: Gps) -> Result<()> {
    sink.value("Time", &[("Type", "GPS"), ("Name", "epoch")], &gps(epoch))?;
    sink.value("Param", &[("Name", "f0:param"), ("Type", "real_8"), ("Unit", "s^-1")], "0")
}

/// Writes a named array with `columns` numbers per row.
fn array(
    sink: &mut Sink,
    (name, unit): (&str, &str),
    (axis, columns): (&Axis<'_>, usize),
    rows: impl ExactSizeIterator<Item = String>,
) -> Result<()> {
    sink.element("Array", &[("Type", "real_8"), ("Name", name), ("Unit", unit)], |sink| {
        let scale = real(axis.step);
        let places = [("Name", axis.name), ("Unit", axis.unit), ("Start", "0"), ("Scale", &scale)];
        sink.value("Dim", &places, &rows.len().to_string())?;
        sink.value("Dim", &[("Name", axis.values)], &columns.to_string())?;
        sink.element("Stream", &[("Type", "Local"), ("Delimiter", " ")], |sink| {
            // Numbers need a delimiter also across a line end.
            let mut rows = rows.peekable();
            while let Some(row) = rows.next() {
                let end = if rows.peek().is_some() { " " } else { "" };
                sink.line(&(row + end))?;
            }
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(gps(Gps { ns: 1_126_259_462_000_000_411 }), "1126259462.000000411");
        assert_eq!(gps(Gps { ns: -1_500_000_000 }), "-1.500000000");
    }
}
