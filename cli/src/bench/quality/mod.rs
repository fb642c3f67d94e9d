//! `sidereal bench channelize --quality`: scalloping loss and leakage with and without the prototype filter, measured
//! with tones and compared with the windows' computed responses.

mod bank;
mod figure;
mod report;

use std::path::Path;

use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{Contents, Existing, Folder, Writing};
use crate::plots::Png;
use crate::provenance::Made;
pub(crate) use bank::{Bank, CENTRE, CHANNELS, cases, measure, powers_db};

/// File names of the two figures.
const SCALLOPING: &str = "scalloping.png";

const LEAKAGE: &str = "leakage.png";

/// Contents of the output folder.
const CONTENTS: Contents = Contents {
    verb: "bench channelize --quality",
    documents: &[SCALLOPING, LEAKAGE],
    writes: |_, _| false,
};

/// Measures every window, prints the results and draws the two figures into a folder.
///
/// # Errors
/// [`Error::Unavailable`] when a measurement differs from the computed response; [`Error::Io`].
pub(super) fn run(place: &Path, existing: Existing, common: &Common) -> Result<()> {
    let folder =
        Folder::begin(place, &Writing { contents: CONTENTS, existing, inputs: &[], common })?;
    let backend = common.backend()?;
    let mut banks = Vec::new();
    for (window, taps) in cases() {
        banks.push(measure(window, taps, &backend)?);
    }
    report::print(&banks, common)?;
    let made = Made::new(common, &[])?;
    figure::scalloping(&Png::new(folder.file(SCALLOPING), &made), &banks, &backend)?;
    figure::leakage(&Png::new(folder.file(LEAKAGE), &made), &banks, &backend)?;
    folder.finish()?;
    match banks.iter().find(|bank| !bank.agrees()) {
        None => Ok(()),
        Some(bank) => Err(Error::Unavailable {
            what: format!("the response of {}", bank.name()),
            why: format!(
                "measured {:.3} dB of scalloping and {:.2} dB of leakage: {}",
                bank.scalloping_db, bank.leakage_db, bank.summary
            ),
        }),
    }
}
