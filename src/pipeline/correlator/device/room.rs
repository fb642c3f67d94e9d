//! Allocation of the F-engine on a device.

use super::{Kind, OnDevice, Wanted};
use crate::backend::Backend;
use crate::correlate;
use crate::error::{Error, Result};
use crate::io::voltages::VoltageSource;
use crate::pipeline::correlator::front::Spectra;
use crate::pipeline::correlator::setup::{Asked, Room, Shape};
use crate::pipeline::correlator::sizes::capacity_on_device;

impl Shape {
    /// Allocates the F-engine on the GPU and returns it with the number of spectra per call. If memory or the filter
    /// bank's library is missing, returns the reason, and the host computes the spectra. Without a GPU backend there
    /// is no reason.
    pub(in crate::pipeline::correlator) fn room_on_device(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        (sources, numbers): (&[Box<dyn VoltageSource>], &[usize]),
    ) -> Result<std::result::Result<Room, Option<String>>> {
        let Backend::Cuda(device, _) = asked.backend else { return Ok(Err(None)) };
        let kinds = kinds(sources, numbers);
        let capacity = capacity_on_device(plan, self.spectra, asked.options.gulp);
        let wanted = Wanted {
            plan,
            channels: &self.channels,
            bank: self.bank.as_ref(),
            fixed: self.fixed,
            direct: self.direct,
            kinds: &kinds,
            capacity,
        };
        match OnDevice::new(device, &wanted) {
            Ok(made) => {
                let spectra = Spectra::Device(Box::new(made));
                Ok(Ok(Room { spectra, capacity, not_on_device: None }))
            }
            Err(error @ Error::Unavailable { .. }) => Ok(Err(Some(error.to_string()))),
            Err(error) => Err(error),
        }
    }
}

/// Returns the sample format of each antenna, by ascending array number.
fn kinds(sources: &[Box<dyn VoltageSource>], numbers: &[usize]) -> Vec<Kind> {
    let kinds = sources.iter().flat_map(|source| {
        let header = source.header();
        let kind = Kind { encoding: header.encoding, scale: header.scale };
        std::iter::repeat_n(kind, header.antennas)
    });
    let mut all: Vec<(usize, Kind)> = numbers.iter().copied().zip(kinds).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, kind)| kind).collect()
}
