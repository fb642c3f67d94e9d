//! Voltages as the filter bank receives them: as recorded, or dedispersed within channels.
//!
//! Invariant: sample `n` has the time of sample `n` of the recording in either case.

use super::filled::extended;
use super::layout::{ChannelizeOptions, offsets_hz};
use crate::channelize;
use crate::coherent::{Options, Plan};
use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};

/// Voltages that enter the filter bank.
pub(super) struct Entering {
    /// Header: that of the recording, or of two dedispersed copies of each of its antennas, of which the first is
    /// correct for even output channels, the second for odd ones.
    pub(super) header: VoltageHeader,
    /// Samples affected by missing ones.
    pub(super) flags: Vec<Flag>,
    /// Samples before and after a missing one that it affects.
    pub(super) reach: u64,
    /// Dedispersion, if it is requested.
    pub(super) coherent: Option<Plan>,
}

impl Entering {
    /// Plans the dedispersion for a filter bank with `summed` adjacent channels combined.
    ///
    /// # Errors
    /// Those of [`Plan::new`].
    pub(super) fn new(
        source: &dyn VoltageSource,
        bank: &channelize::Plan,
        summed: usize,
        options: &ChannelizeOptions,
    ) -> Result<Self> {
        let recorded = source.header();
        let Some(dm) = options.coherent_dm else {
            let (header, flags) = (recorded.clone(), source.flags().to_vec());
            return Ok(Self { header, flags, reach: 0, coherent: None });
        };
        let plan = Plan::new(Options {
            dm,
            dm_constant: options.dm_constant,
            encoding: recorded.encoding,
            antennas: recorded.antennas,
            polarizations: recorded.polarizations,
            centres_hz: recorded.centres_hz.clone(),
            lower_sideband: recorded.lower_sideband,
            tsamp_s: recorded.tsamp_s,
            offsets_hz: offsets_hz(recorded, bank, summed),
            ringing: bank.points(),
            times: recorded.times,
        })?;
        let (encoding, antennas) = (plan.output_encoding(), 2 * recorded.antennas);
        let reach = plan.reach() as u64;
        Ok(Self {
            header: VoltageHeader { encoding, antennas, ..recorded.clone() },
            flags: source.flags().iter().map(|flag| extended(flag, reach)).collect(),
            reach,
            coherent: Some(plan),
        })
    }

    /// Returns the number of copies of each antenna.
    pub(super) fn copies(&self) -> usize {
        if self.coherent.is_some() { 2 } else { 1 }
    }
}
