//! Rows of a recording in memory.

use sidereal::backend::Backend;
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};

use super::memory::Memory;

pub(crate) fn open(source: &Memory, options: &ChannelizeOptions) -> VoltageFilterbank {
    VoltageFilterbank::new(source.boxed(), options, &Backend::best(2)).unwrap()
}

/// All rows, read `gulp` at a time.
pub(crate) fn read_all(filterbank: &mut VoltageFilterbank, gulp: usize) -> Vec<f32> {
    let elements = filterbank.row_elements();
    let mut rows = Vec::new();
    let mut buffer = vec![0.0; gulp * elements];
    loop {
        let times = filterbank.read_rows(&mut buffer).unwrap();
        rows.extend_from_slice(&buffer[..times * elements]);
        if times < gulp {
            return rows;
        }
    }
}
