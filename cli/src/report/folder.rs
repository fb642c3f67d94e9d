//! Products in a folder: documents, lines of candidates, labels, and pictures.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sidereal::{Error, Result};

/// Levels of folders below the one given, and most files that are looked at.
const DEPTH: usize = 3;
const MOST_FILES: usize = 20_000;

/// Most bytes of a document or a list.
const MOST_BYTES: u64 = 1 << 28;

/// List of a live search's candidates, and that of their labels.
const LINES: &str = "candidates.ndjson";
const LABELS: &str = "labels.ndjson";

/// Object of JSON.
pub(super) type Object = Map<String, Value>;

/// Document of a product, by the name in its schema.
pub(super) struct Document {
    pub(super) path: PathBuf,
    /// `search` of the schema `sidereal/search/1`.
    pub(super) kind: String,
    pub(super) object: Object,
}

/// Contents of a folder, in the order of their names.
#[derive(Default)]
pub(super) struct Found {
    pub(super) documents: Vec<Document>,
    /// Last line of each candidate of live searches.
    pub(super) candidates: Vec<Object>,
    pub(super) pictures: Vec<PathBuf>,
    lists: Vec<PathBuf>,
}

impl Found {
    /// Reads a folder.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a list or document that is no JSON.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            // The error of a missing folder is that of reading it.
            fs::read_dir(folder).map_err(|error| Error::io(folder, error))?;
        }
        let mut files = Vec::new();
        list(folder, DEPTH, &mut files)?;
        files.sort();
        let mut found = Self::default();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match path.extension().and_then(|end| end.to_str()) {
                _ if name == LINES => {
                    found.candidates.extend(candidates(&path)?);
                    found.lists.push(path);
                }
                Some("png") => found.pictures.push(path),
                Some("json") => found.documents.extend(document(path)?),
                _ => {}
            }
        }
        // Events of all beams come before the candidates of each.
        found
            .documents
            .sort_by_key(|document| !["search-beams", "merge"].contains(&document.kind.as_str()));
        Ok(found)
    }

    /// Returns whether there is nothing to report.
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.candidates.is_empty()
    }

    /// Returns the files that were read.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let documents = self.documents.iter().map(|document| document.path.clone());
        documents.chain(self.lists.iter().cloned()).chain(self.pictures.iter().cloned()).collect()
    }
}

/// Lists the files of a folder, but for hidden ones and links to folders.
fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| Error::io(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') || files.len() >= MOST_FILES {
            continue;
        }
        if kind.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    let failed = |error| Error::io(path, error);
    let file = fs::File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > MOST_BYTES {
        let why = format!("found {bytes} bytes, expected at most {MOST_BYTES}");
        return Err(Error::format(path, "file", 0, why));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Reads a document of a product that is reported; `None` for any other file.
fn document(path: PathBuf) -> Result<Option<Document>> {
    let Ok(Value::Object(object)) = serde_json::from_str(&text(&path)?) else { return Ok(None) };
    let schema = object.get("schema").and_then(Value::as_str).unwrap_or_default();
    let kind = schema.strip_prefix("sidereal/").and_then(|rest| rest.split('/').next());
    let is_reported = |kind: &&str| match *kind {
        "merge" => object.contains_key("events"),
        kind => ["search", "search-beams", "correlate", "spiir-search"].contains(&kind),
    };
    let kind = kind.filter(is_reported).map(str::to_owned);
    Ok(kind.map(|kind| Document { path, kind, object }))
}

/// Reads the last line of each candidate, with its last label; the latest candidate comes first.
fn candidates(path: &Path) -> Result<Vec<Object>> {
    let key = |object: &Object| {
        let observation = object.get("observation").and_then(Value::as_str).unwrap_or_default();
        (observation.to_owned(), object.get("number").and_then(Value::as_u64).unwrap_or(0))
    };
    let mut labels = HashMap::new();
    let beside = path.with_file_name(LABELS);
    if beside.is_file() {
        for object in lines(&beside)? {
            labels.insert(key(&object), object);
        }
    }
    let (mut last, mut places) = (Vec::new(), HashMap::new());
    for object in lines(path)? {
        let place = *places.entry(key(&object)).or_insert(last.len());
        if place == last.len() {
            last.push(object);
        } else {
            last[place] = object;
        }
    }
    for object in &mut last {
        let Some(label) = labels.get(&key(object)) else { continue };
        for (own, other) in [("label", "label"), ("labelled_by", "name")] {
            let text = label.get(other).cloned().unwrap_or_default();
            object.insert(own.to_owned(), text);
        }
    }
    last.reverse();
    Ok(last)
}

/// Reads lines of objects. A last line that is cut off, as after a power failure, is left out.
fn lines(path: &Path) -> Result<Vec<Object>> {
    let text = text(path)?;
    let count = text.lines().count();
    let mut objects = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(object) => objects.push(object),
            Err(_) if index + 1 == count => {}
            Err(error) => {
                let why = format!("line {}: {error}", index + 1);
                return Err(Error::format(path, "JSON", 0, why));
            }
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_and_label_of_a_candidate_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LINES);
        let text = "{\"observation\":\"o\",\"number\":1,\"state\":\"provisional\"}\n\
                    {\"observation\":\"o\",\"number\":2,\"state\":\"provisional\"}\n\
                    {\"observation\":\"o\",\"number\":1,\"state\":\"final\"}\n{\"obs";
        fs::write(&path, text).unwrap();
        let labels = "{\"observation\":\"o\",\"number\":1,\"label\":\"noise\",\"name\":\"a\"}\n\
                      {\"observation\":\"o\",\"number\":1,\"label\":\"interference\",\"name\":\"b\"}\n";
        fs::write(folder.path().join(LABELS), labels).unwrap();
        let found = Found::read(folder.path()).unwrap();
        let all: Vec<_> =
            found.candidates.iter().map(|one| one["state"].as_str().unwrap()).collect();
        assert_eq!(all, ["provisional", "final"]);
        assert_eq!(
            (&found.candidates[1]["label"], &found.candidates[1]["labelled_by"]),
            (&"interference".into(), &"b".into())
        );
        fs::write(&path, "{\"number\":1}\nnonsense\n{\"number\":2}\n").unwrap();
        let error = Found::read(folder.path()).err().unwrap().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
