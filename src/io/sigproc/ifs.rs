//! Choosing or adding the IFs of rows that hold several.

use super::filterbank::Layout;
use crate::error::{Error, Result};
use crate::io::Polarizations;
use crate::sample::{Encoding, unpack_f32, value};

/// What to do with a row's IFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is but one: rows stay as they are.
    Only,
    /// Take the one with this number.
    One(usize),
    /// Add the first two.
    Sum,
}

impl Choice {
    pub(super) fn new(polarizations: Polarizations, ifs: usize) -> Result<Self> {
        match (polarizations, ifs) {
            (Polarizations::One(chosen), ifs) if chosen >= ifs => {
                let rule = format!("the file has {ifs}, counted from 0");
                Err(Error::parameter("polarization", chosen, rule))
            }
            (_, 1) => Ok(Self::Only),
            (Polarizations::One(chosen), _) => Ok(Self::One(chosen)),
            (Polarizations::Total, 2 | 4) => Ok(Self::Sum),
            (Polarizations::Total, ifs) => {
                let rule = format!("of the file's {ifs} IFs one must be chosen, from 0");
                Err(Error::parameter("polarization", "total", rule))
            }
        }
    }
}

/// Turns rows as recorded into rows as given.
pub(super) fn convert(choice: Choice, layout: &Layout, recorded: &[u8], rows: &mut [u8]) {
    let if_bytes = layout.if_bytes();
    let rows_in = recorded.chunks_exact(layout.row_bytes());
    match choice {
        Choice::Only => rows.copy_from_slice(recorded),
        Choice::One(chosen) => {
            for (row, output) in rows_in.zip(rows.chunks_exact_mut(if_bytes)) {
                output.copy_from_slice(&row[chosen * if_bytes..][..if_bytes]);
            }
        }
        Choice::Sum => {
            let encoding = layout.output_encoding(Polarizations::Total);
            let output_bytes = layout.band.channels() * encoding.bits() / 8;
            for (row, output) in rows_in.zip(rows.chunks_exact_mut(output_bytes)) {
                let (first, second) = row[..2 * if_bytes].split_at(if_bytes);
                add(first, second, layout.encoding, output);
            }
        }
    }
}

/// Adds two IFs: exactly, but for floats, which are rounded once.
fn add(first: &[u8], second: &[u8], encoding: Encoding, output: &mut [u8]) {
    match encoding {
        Encoding::U8 => {
            for ((sum, a), b) in output.chunks_exact_mut(2).zip(first).zip(second) {
                sum.copy_from_slice(&(u16::from(*a) + u16::from(*b)).to_le_bytes());
            }
        }
        Encoding::I8 => {
            for ((sum, a), b) in output.chunks_exact_mut(2).zip(first).zip(second) {
                sum.copy_from_slice(&(i16::from(*a as i8) + i16::from(*b as i8)).to_le_bytes());
            }
        }
        Encoding::U1 | Encoding::U2 | Encoding::U4 => {
            for (channel, sum) in output.chunks_exact_mut(2).enumerate() {
                let total = value(first, encoding, channel) + value(second, encoding, channel);
                sum.copy_from_slice(&(total as u16).to_le_bytes());
            }
        }
        Encoding::U16 | Encoding::I16 | Encoding::F32 => {
            let bytes = encoding.bits() / 8;
            let pairs = first.chunks_exact(bytes).zip(second.chunks_exact(bytes));
            for (sum, (a, b)) in output.chunks_exact_mut(4).zip(pairs) {
                let mut values = [0.0f32; 2];
                unpack_f32(a, encoding, &mut values[..1]);
                unpack_f32(b, encoding, &mut values[1..]);
                sum.copy_from_slice(&(values[0] + values[1]).to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Band;

    fn layout(encoding: Encoding, ifs: usize) -> Layout {
        let band = Band::uniform(1500.0, -1.0, 8).unwrap();
        Layout { band, encoding, ifs, tsamp_s: 1e-3, tstart_mjd: 0.0, data_offset: 0 }
    }

    #[test]
    fn the_choice_follows_the_file() {
        assert_eq!(Choice::new(Polarizations::Total, 1).unwrap(), Choice::Only);
        assert_eq!(Choice::new(Polarizations::One(0), 1).unwrap(), Choice::Only);
        assert_eq!(Choice::new(Polarizations::Total, 4).unwrap(), Choice::Sum);
        assert_eq!(Choice::new(Polarizations::One(3), 4).unwrap(), Choice::One(3));
        assert!(Choice::new(Polarizations::One(2), 2).is_err());
        assert!(Choice::new(Polarizations::Total, 3).is_err());
    }

    #[test]
    fn sums_are_exact_at_every_depth() {
        for encoding in Encoding::ALL {
            let layout = layout(encoding, 2);
            // Random bits, but no NaN among the floats.
            let mut recorded: Vec<u8> =
                (0..2 * layout.row_bytes()).map(|k| (k * 151 + 77) as u8).collect();
            if encoding == Encoding::F32 {
                recorded.iter_mut().skip(3).step_by(4).for_each(|byte| *byte = 0x42);
            }
            let output = layout.output_encoding(Polarizations::Total);
            let mut rows = vec![0xff; 2 * 8 * output.bits() / 8];
            convert(Choice::Sum, &layout, &recorded, &mut rows);
            for time in 0..2 {
                let row = &recorded[time * layout.row_bytes()..];
                let sums = &rows[time * 8 * output.bits() / 8..];
                for channel in 0..8 {
                    let a = value(row, encoding, channel);
                    let b = value(&row[layout.if_bytes()..], encoding, channel);
                    let sum = (a + b) as f32;
                    assert_eq!(value(sums, output, channel) as f32, sum, "{encoding:?}");
                }
            }
        }
    }

    #[test]
    fn one_of_several_is_cut_out() {
        let layout = layout(Encoding::U4, 4);
        let recorded: Vec<u8> = (0..32).collect();
        let mut rows = [0; 8];
        convert(Choice::One(2), &layout, &recorded, &mut rows);
        assert_eq!(rows, [8, 9, 10, 11, 24, 25, 26, 27]);
    }
}
