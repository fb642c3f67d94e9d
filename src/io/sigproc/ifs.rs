//! Selection or sum of the IFs in rows with several.
//!
//! Invariant: a row as given holds one IF, or the sum of two.

use super::filterbank::Layout;
use crate::io::rows::{Chosen, add};

/// Converts recorded rows to output rows.
pub(super) fn convert(chosen: Chosen, layout: &Layout, recorded: &[u8], rows: &mut [u8]) {
    let if_bytes = layout.if_bytes();
    let output_bytes = layout.band.channels() * chosen.encoding(layout.encoding).bits() / 8;
    let recorded = recorded.chunks_exact(layout.row_bytes());
    for (row, output) in recorded.zip(rows.chunks_exact_mut(output_bytes)) {
        let first = &row[chosen.first * if_bytes..][..if_bytes];
        match chosen.second {
            None => output.copy_from_slice(first),
            Some(second) => {
                add(first, &row[second * if_bytes..][..if_bytes], layout.encoding, output);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::Band;

    fn layout(encoding: Encoding, ifs: usize) -> Layout {
        let band = Band::uniform(1500.0, -1.0, 8).unwrap();
        Layout { band, encoding, ifs, tsamp_s: 1e-3, tstart_mjd: 0.0, data_offset: 0 }
    }

    #[test]
    fn one_of_several_is_cut_out() {
        let layout = layout(Encoding::U4, 4);
        let recorded: Vec<u8> = (0..32).collect();
        let mut rows = [0; 8];
        convert(Chosen { first: 2, second: None }, &layout, &recorded, &mut rows);
        assert_eq!(rows, [8, 9, 10, 11, 24, 25, 26, 27]);
    }

    #[test]
    fn the_first_two_of_each_row_are_added() {
        let layout = layout(Encoding::U8, 2);
        let recorded: Vec<u8> = (0..32).map(|k| 8 * k).collect();
        let mut rows = [0; 32];
        convert(Chosen { first: 0, second: Some(1) }, &layout, &recorded, &mut rows);
        let sums: Vec<u16> =
            rows.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let expected: Vec<u16> = (0..16).map(|k| 16 * (k % 8) + 64 + 256 * (k / 8)).collect();
        assert_eq!(sums, expected);
    }
}
