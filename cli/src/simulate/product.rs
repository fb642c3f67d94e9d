//! Files of simulations: options, and the truth file with its provenance at the end of a run.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::{Product, Provenance, Run};
use crate::{interrupt, json};

/// Options of the files to write.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(super) struct Output {
    /// File to write.
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,
    /// Same as OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// Replace OUT and its truth file if they exist.
    #[arg(long)]
    pub(super) overwrite: bool,
}

impl Output {
    pub(super) fn path(&self) -> &Path {
        self.out.as_deref().or(self.output.as_deref()).unwrap_or(Path::new(""))
    }

    /// Begins OUT and its truth file.
    pub(super) fn begin(&self, common: &Common) -> Result<Files> {
        let existing = Existing::new(self.overwrite);
        let writing = WritingFiles { option: "OUT", existing, inputs: &[], common };
        Files::begin(self.path(), &[TRUTH], &writing)
    }
}

/// Suffix that a truth file's name adds to the recording's.
pub(crate) const TRUTH: &str = ".truth.json";

/// Wraps the truth of a simulation with its provenance; `inputs` are the files that the simulation reads.
pub(super) fn product<T>(
    name: &str,
    truth: T,
    inputs: &[PathBuf],
    common: &Common,
) -> Result<Product<T>> {
    Ok(Product::new(name, truth, Provenance::new(common, inputs)?, Run::new(common)))
}

/// Writes the truth file, renames all files to their final names, and reports the output.
pub(super) fn conclude(
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

/// Formats counts with their singular or plural names; omits zeros.
pub(super) fn list(counts: &[(usize, &str, &str)]) -> String {
    let mut parts = Vec::new();
    for (number, one, several) in counts.iter().filter(|(number, ..)| *number > 0) {
        parts.push(format!("{number} {}", if *number == 1 { one } else { several }));
    }
    if parts.is_empty() { "noise alone".to_owned() } else { parts.join(", ") }
}
