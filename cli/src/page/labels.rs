//! Labels that a person gives to candidates, appended to a file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sidereal::{Error, Result};

use crate::json;

/// Most letters of a label and of a name.
const MOST_LETTERS: usize = 200;

/// Bytes at a file's end that are read.
const TAIL_BYTES: u64 = 1 << 20;

/// Label as a person gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    pub(super) observation: String,
    pub(super) number: u64,
    label: String,
    #[serde(default)]
    name: String,
}

/// Label of a candidate as a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LabelLine {
    /// Folder of the observation.
    pub(super) observation: String,
    /// Number of the candidate in it.
    pub(super) number: u64,
    /// `astrophysical`, `interference`, `noise`, or other words.
    label: String,
    /// Name of the person; empty if none was given.
    name: String,
    /// Time of the label, in seconds since 1970.
    labelled_unix_s: f64,
}

impl Given {
    /// Checks the texts; returns the line.
    ///
    /// # Errors
    /// The fault, in words.
    pub(super) fn line(self, labelled_unix_s: f64) -> std::result::Result<LabelLine, String> {
        let Self { observation, number, label, name } = self;
        let (label, name) = (label.trim().to_owned(), name.trim().to_owned());
        if label.is_empty() {
            return Err("label: found nothing, expected words".to_owned());
        }
        for (field, text) in [("label", &label), ("name", &name)] {
            let letters = text.chars().count();
            if letters > MOST_LETTERS {
                return Err(format!(
                    "{field}: found {letters} letters, expected at most {MOST_LETTERS}"
                ));
            }
            if text.contains(char::is_control) {
                return Err(format!("{field}: found a control character, expected text"));
            }
        }
        Ok(LabelLine { observation, number, label, name, labelled_unix_s })
    }
}

/// File of labels.
pub(super) struct Labels {
    path: PathBuf,
}

impl Labels {
    /// Names the file; it is made with the first label.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the latest labels.
    pub(super) fn read(&self) -> Vec<LabelLine> {
        tail(&self.path)
    }

    /// Appends a label.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn append(&self, line: &LabelLine) -> Result<()> {
        let failed = |error| Error::io(&self.path, error);
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        let text = json::line(line)?;
        file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes())).map_err(failed)
    }
}

/// Reads the last lines of a file of JSON, at most 1 MiB; a file that is missing has none, and other lines are left out.
pub(super) fn tail<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_appended_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let labels = Labels::new(folder.path().join("labels.ndjson"));
        assert!(labels.read().is_empty());
        let given = |text: &str| serde_json::from_str::<Given>(text);
        let text = r#"{"observation": "o", "number": 3, "label": " noise ", "name": "é"}"#;
        let line = given(text).unwrap().line(1.5).unwrap();
        labels.append(&line).unwrap();
        std::fs::write(folder.path().join("other"), "x").unwrap();
        labels.append(&LabelLine { number: 4, ..line }).unwrap();
        let read = labels.read();
        assert_eq!((read.len(), read[0].number, read[1].number), (2, 3, 4));
        assert_eq!((read[0].label.as_str(), read[0].name.as_str()), ("noise", "é"));
        for (text, why) in [
            (r#"{"observation": "o", "number": 3, "label": "  "}"#.to_owned(), "nothing"),
            (r#"{"observation": "o", "number": 3, "label": "a\u0007"}"#.to_owned(), "control"),
            (
                format!(r#"{{"observation": "o", "number": 3, "label": "{}"}}"#, "é".repeat(201)),
                "201",
            ),
        ] {
            assert!(given(&text).unwrap().line(0.0).unwrap_err().contains(why), "{text}");
        }
        assert!(given(r#"{"observation": "o", "number": -3, "label": "a"}"#).is_err());
        assert!(given(r#"{"observation": "o", "number": 3, "label": "a", "x": 1}"#).is_err());
    }
}
