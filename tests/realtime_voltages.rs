//! Voltages to rows in real time: no allocation after warm-up.
#![allow(unsafe_code)]

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use sidereal::backend::Backend;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::voltage::VoltageEncoding;

#[path = "common/counting.rs"]
mod counting;
#[path = "voltage/memory.rs"]
mod memory;

use memory::{Memory, header, noise};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

fn recording() -> Memory {
    let header = VoltageHeader {
        antennas: 2,
        polarizations: 2,
        ..header(&[1401.0, 1400.0], VoltageEncoding::Complex8)
    };
    Memory::new(header, 200_000, |stream, time| noise(stream, time) * 100.0)
}

fn options(coherent_dm: Option<f64>) -> ChannelizeOptions {
    ChannelizeOptions { coherent_dm, gulp: 1000, ..ChannelizeOptions::new(64) }
}

/// Waits for a channel, since a thread's first wait allocates its place in queues.
fn wait_once() {
    let (_sender, receiver) = sync_channel::<()>(1);
    assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
}

#[test]
fn reading_allocates_nothing() {
    assert!(counting::requests_during(|| drop(vec![0u8; 64])) > 0);
    wait_once();
    let (source, backend) = (recording(), Backend::best(2));
    for coherent_dm in [None, Some(100.0)] {
        let options = options(coherent_dm);
        let mut filterbank = VoltageFilterbank::new(source.boxed(), &options, &backend).unwrap();
        let mut rows = vec![0.0; 100 * filterbank.row_elements()];
        let read = || assert_eq!(filterbank.read_rows(&mut rows).unwrap(), 100);
        counting::assert_quiet(&format!("rows {coherent_dm:?}"), 5, 20, read);
        let requantization = Requantization { bits: 8, gains: Gains::Automatic };
        let mut voltages =
            ChannelizedVoltages::new(source.boxed(), &options, &requantization, &backend).unwrap();
        let mut block = voltages.header().block(100);
        let read = || assert_eq!(voltages.read(&mut block).unwrap(), 100);
        // The first spectra, from which the gains were measured, come in a separate block.
        counting::assert_quiet(&format!("voltages {coherent_dm:?}"), 15, 14, read);
    }
}
