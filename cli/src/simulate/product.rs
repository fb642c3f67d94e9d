//! Truth files of simulations: provenance, name and end of the run.

use std::path::PathBuf;

use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::output::Files;
use crate::provenance::{Product, Provenance, Run};
use crate::{interrupt, json};

/// Suffix that a truth file's name adds to the recording's.
pub(crate) const TRUTH: &str = ".truth.json";

/// Wraps the truth of a simulation with its provenance; `inputs` are the files that the simulation reads.
pub(crate) fn product<T>(
    name: &str,
    truth: T,
    inputs: &[PathBuf],
    common: &Common,
) -> Result<Product<T>> {
    Ok(Product::new(name, truth, Provenance::new(common, inputs)?, Run::new(common)))
}

/// Writes the truth file, renames all files to their final names, and reports the output.
pub(crate) fn conclude(
    files: Files,
    product: &impl Serialize,
    common: &Common,
    summary: impl FnOnce() -> String,
) -> Result<()> {
    json::write(&files.beside(TRUTH), product)?;
    let truth_path = files.place_beside(TRUTH);
    interrupt::check()?;
    files.finish()?;
    if common.json {
        return json::print(product);
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&summary())?;
    json::say(&format!("what is in it: {}", truth_path.display()))
}
