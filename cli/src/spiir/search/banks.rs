//! Banks from files, and their assignment to detectors.

use std::path::{Path, PathBuf};

use sidereal::pipeline::cbc::read_bank;
use sidereal::spiir::bank::Bank;
use sidereal::{Error, Result};

/// Banks of single detectors, and one for all others.
pub(in crate::spiir) struct Banks {
    own: Vec<(String, Bank)>,
    shared: Option<Bank>,
}

impl Banks {
    /// Reads `FILE` and `NAME=FILE`; a file made for a detector belongs to that detector.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for two banks of one detector, or two for all.
    pub(in crate::spiir) fn read(words: &[PathBuf]) -> Result<Self> {
        let mut banks = Self { own: Vec::new(), shared: None };
        for word in words {
            let (name, file) = split(word);
            let (bank, detector) = read_bank(&file)?;
            let alone = words.len() == 1;
            let name = name.or_else(|| (!alone && !detector.is_empty()).then_some(detector));
            let twice = match &name {
                Some(name) => banks.own.iter().any(|(other, _)| other == name),
                None => banks.shared.is_some(),
            };
            if twice {
                let whose = name.as_deref().unwrap_or("all detectors");
                let rule = format!("there is another bank for {whose}; say NAME=BANK");
                return Err(Error::parameter("--bank", file.display(), rule));
            }
            match name {
                Some(name) => banks.own.push((name, bank)),
                None => banks.shared = Some(bank),
            }
        }
        Ok(banks)
    }

    /// Returns the files that [`Banks::read`] reads.
    pub(in crate::spiir) fn files(words: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
        words.iter().map(|word| split(word).1)
    }

    /// Returns the bank of a detector.
    ///
    /// # Errors
    /// [`Error::Parameter`] when there is none.
    pub(in crate::spiir) fn take(&mut self, detector: &str) -> Result<Bank> {
        let own = self.own.iter().find(|(name, _)| name == detector).map(|(_, bank)| bank.clone());
        own.or_else(|| self.shared.clone()).ok_or_else(|| {
            let rule = format!("none is for {detector}; say --bank {detector}=BANK");
            Error::parameter("--bank", "given", rule)
        })
    }
}

/// Splits an argument into name and file; if a file with the whole argument's name exists, there is no name.
fn split(word: &Path) -> (Option<String>, PathBuf) {
    let pair = word.to_str().and_then(|text| text.split_once('='));
    match pair.filter(|(name, file)| !name.is_empty() && !file.is_empty() && !word.exists()) {
        Some((name, file)) => (Some(name.to_owned()), file.into()),
        None => (None, word.to_path_buf()),
    }
}
