//! Recorded strain that is played in the place of simulated noise, and the time of a simulation.

use std::path::PathBuf;

use clap::Args;
use sidereal::geometry::Interferometer;
use sidereal::io::strain::{Bits, bits, open_all};
use sidereal::simulate::strain::Recorded;
use sidereal::units::Gps;
use sidereal::{Error, Result};

use super::detector;
use crate::spiir::inputs::Strain;

/// Options of recorded strain.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Recorded strain")]
pub(super) struct RecordedArguments {
    /// Use recorded strain in the place of noise: HDF5 of GWOSC or gwpy, or frames (GWF); may be repeated.
    ///
    /// Written NAME=FILE (H1=strain.gwf) if a file names no detector or several. Files of one detector are joined in time.
    /// Injections and faults are added, the bits of data quality and hardware injections kept, and missing samples are NaN.
    /// The truth's SNRs are those in noise of --psd.
    #[arg(
        long,
        value_name = "[NAME=]FILE",
        conflicts_with_all = ["detectors", "rate", "seed", "noise_low", "no_noise"]
    )]
    recorded: Vec<PathBuf>,
    /// Channels to read from --recorded, separated by commas; needed if a file has more than one candidate.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "recorded")]
    channel: Vec<String>,
}

/// Recordings of several detectors, and the time that all of them have.
pub(super) struct Recordings {
    pub(super) detectors: Vec<&'static Interferometer>,
    pub(super) recorded: Vec<Recorded>,
    pub(super) rate_hz: u32,
    /// First whole second, and the number of whole seconds.
    pub(super) start_s: i64,
    pub(super) length_s: u64,
}

impl RecordedArguments {
    /// Returns every input file.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.strain().files()
    }

    fn strain(&self) -> Strain {
        Strain::whole(self.recorded.clone(), self.channel.clone())
    }

    /// Opens the recordings; `None` without any.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for recordings of an unknown detector, of different rates, or without a common second.
    pub(super) fn open(&self) -> Result<Option<Recordings>> {
        let fault = |found: String, rule: String| Error::parameter("--recorded", found, rule);
        let mut all = Recordings {
            detectors: Vec::new(),
            recorded: Vec::new(),
            rate_hz: 0,
            start_s: 0,
            length_s: 0,
        };
        let (mut start, mut end) = (Gps { ns: i64::MIN }, Gps { ns: i64::MAX });
        for one in self.strain().detectors()? {
            let source = open_all(&one.files, &one.options)?;
            let header = source.header();
            let name = header.path.display().to_string();
            if header.detector.is_empty() {
                return Err(fault(name, "it does not name its detector: write H1=FILE".to_owned()));
            }
            if !all.recorded.is_empty() && header.rate_hz != all.rate_hz {
                let rule =
                    format!("it has {} Hz, and another file {}", header.rate_hz, all.rate_hz);
                return Err(fault(name, rule));
            }
            let Some(times) = header.times else {
                return Err(fault(name, "its length is not known".to_owned()));
            };
            all.rate_hz = header.rate_hz;
            all.detectors.push(detector("--recorded", &header.detector)?);
            start = start.max(header.start);
            end = end.min(header.start.plus_samples(times as i64, header.rate_hz));
            let mut joined = Bits::default();
            for file in &one.files {
                let Bits { quality, injections } = bits(file, &one.options)?;
                // With masks in some files only, a second of another file would count as bad; without any, as good.
                let differs = |known: &[_], new: &[_]| known.is_empty() != new.is_empty();
                if *file != one.files[0]
                    && (differs(&joined.quality, &quality)
                        || differs(&joined.injections, &injections))
                {
                    let rule = "it and another file of its detector differ in having masks of data quality or \
                                injections; all or none must have them";
                    return Err(fault(file.display().to_string(), rule.to_owned()));
                }
                joined.quality.extend(quality);
                joined.injections.extend(injections);
            }
            all.recorded.push(Recorded { source, bits: joined });
        }
        if all.recorded.is_empty() {
            return Ok(None);
        }
        all.start_s = -(-start.ns).div_euclid(1_000_000_000);
        let end_s = end.ns.div_euclid(1_000_000_000);
        all.length_s = u64::try_from(end_s - all.start_s).unwrap_or(0);
        if all.length_s == 0 {
            let found = format!("GPS {} to {}", start.s(), end.s());
            return Err(fault(found, "no whole second is in all of them".to_owned()));
        }
        Ok(Some(all))
    }
}
