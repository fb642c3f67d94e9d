//! Manifests: lists of runs, each with its inputs.
//!
//! A line is the path of the run's input, or a JSON object with several inputs, the output and further options. Empty lines
//! and lines that begin with `#` are left out.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sidereal::io::is_stream;
use sidereal::{Error, Result};

/// Most faults that an error names.
const NAMED: usize = 5;

/// Run that a manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Manifest that has it.
    pub(super) manifest: PathBuf,
    /// Its line, counted from 1.
    pub(super) line: usize,
    /// Inputs as the verb takes them, relative to the current folder or absolute.
    pub(super) inputs: Vec<String>,
    /// Path of the product in the folder of results.
    pub(super) output: Option<String>,
    /// Options in addition to those of all runs.
    pub(super) options: Vec<String>,
}

impl Listed {
    /// Begins the run of a line.
    fn at(manifest: &Path, line: usize) -> Self {
        let manifest = manifest.to_path_buf();
        Self { manifest, line, inputs: Vec::new(), output: None, options: Vec::new() }
    }

    /// Reads a line without blanks at its ends; `None` if it has no run.
    fn parse(mut self, text: &str) -> Result<Option<Self>> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        if text.starts_with('{') {
            let object: Object = serde_json::from_str(text)
                .map_err(|error| self.fault("JSON", error.to_string()))?;
            (self.inputs, self.output, self.options) =
                (object.inputs, object.output, object.options);
        } else {
            self.inputs.push(text.to_owned());
        }
        if self.inputs.is_empty() || self.inputs.iter().any(String::is_empty) {
            return Err(
                self.fault("inputs", "found an empty list or path, expected paths of files")
            );
        }
        if let Some(stream) = self.inputs.iter().find(|path| is_stream(Path::new(path))) {
            let why = format!("found {stream}, expected a file: a task cannot read a stream");
            return Err(self.fault("inputs", why));
        }
        let folder = self.manifest.parent().unwrap_or(Path::new(""));
        self.inputs.iter_mut().for_each(|input| *input = relative_to(folder, input));
        Ok(Some(self))
    }

    /// Makes an error that names manifest and line.
    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        Error::format(&self.manifest, format!("line {}: {field}", self.line), 0, why)
    }

    /// Formats manifest and line.
    pub(super) fn place(&self) -> String {
        format!("{}, line {}", self.manifest.display(), self.line)
    }
}

/// Line of JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    inputs: Vec<String>,
    output: Option<String>,
    #[serde(default)]
    options: Vec<String>,
}

/// Reads manifests, and checks that every input exists.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] naming manifest and line for one that is empty or damaged, and for missing inputs.
pub(super) fn read(manifests: &[PathBuf]) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    for manifest in manifests {
        let before = all.len();
        let file = File::open(manifest).map_err(|error| Error::io(manifest, error))?;
        for (index, text) in BufReader::new(file).lines().enumerate() {
            let listed = Listed::at(manifest, index + 1);
            match text {
                Ok(text) => all.extend(listed.parse(text.trim())?),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let why = "found bytes that are not UTF-8, expected a path or JSON";
                    return Err(listed.fault("text", why));
                }
                Err(error) => return Err(Error::io(manifest, error)),
            }
        }
        if all.len() == before {
            let why = "found no run, expected a line with a path or JSON for each run";
            return Err(Error::format(manifest, "manifest", 0, why));
        }
    }
    check_inputs(&all)?;
    Ok(all)
}

/// Returns a path of a manifest in this folder as seen from the current folder. `NAME=FILE`, as some verbs take it, keeps
/// its name.
fn relative_to(folder: &Path, input: &str) -> String {
    let joined = |path: &str| folder.join(path).to_string_lossy().into_owned();
    match input.split_once('=') {
        Some((name, path)) if !folder.join(input).exists() => format!("{name}={}", joined(path)),
        _ => joined(input),
    }
}

/// Returns the file of an input: without the name in `NAME=FILE`.
pub(super) fn file_of(input: &str) -> &Path {
    match input.split_once('=') {
        Some((_, path)) if !Path::new(input).exists() => Path::new(path),
        _ => Path::new(input),
    }
}

/// Returns the size of an input; 0 if it stands for a series of numbered files, `None` if it is missing.
pub(super) fn bytes_of(input: &str) -> Option<u64> {
    let path = file_of(input);
    if let Ok(found) = fs::metadata(path) {
        return Some(if found.is_file() { found.len() } else { 0 });
    }
    let mut first = path.as_os_str().to_owned();
    first.push(".0000.raw");
    fs::metadata(first).is_ok().then_some(0)
}

fn check_inputs(all: &[Listed]) -> Result<()> {
    let inputs = all.iter().flat_map(|run| run.inputs.iter().map(move |input| (run, input)));
    let missing: Vec<_> = inputs.filter(|(_, input)| bytes_of(input).is_none()).collect();
    let Some((first, _)) = missing.first() else { return Ok(()) };
    let mut named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|(run, input)| format!("{} ({})", file_of(input).display(), run.place()))
        .collect();
    if missing.len() > NAMED {
        named.push(format!("{} more", missing.len() - NAMED));
    }
    let why =
        format!("expected files that exist, found {} missing: {}", missing.len(), named.join("; "));
    Err(first.fault("inputs", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_count_from_the_manifest() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("lists")).unwrap();
        fs::write(at("lists/a=b.fil"), "12").unwrap();
        fs::write(at("c.fil"), "123").unwrap();
        fs::write(at("v.0000.raw"), "").unwrap();
        let manifest = at("lists/m");
        let text = format!(
            "# comment\n\n{{\"inputs\": [\"a=b.fil\", \"../v\"]}}\n {{\"inputs\": [\"X={}\"], \"output\": \"o\", \"options\": [\"--snr\", \"7\"]}}\n",
            at("c.fil").display()
        );
        fs::write(&manifest, text).unwrap();
        let all = read(std::slice::from_ref(&manifest)).unwrap();
        assert_eq!(all.iter().map(|run| run.line).collect::<Vec<_>>(), [3, 4]);
        let folder = at("lists");
        let own = |name: &str| folder.join(name).to_string_lossy().into_owned();
        assert_eq!(all[0].inputs, [own("a=b.fil"), own("../v")]);
        assert_eq!(all[1].inputs, [format!("X={}", at("c.fil").display())]);
        assert_eq!((all[1].output.as_deref(), all[1].options.len()), (Some("o"), 2));
        fs::write(&manifest, "\ta = b 'c.fil \r\n").unwrap();
        fs::write(at("lists/a = b 'c.fil"), "").unwrap();
        let plain = read(std::slice::from_ref(&manifest)).unwrap();
        assert_eq!(plain[0].inputs, [own("a = b 'c.fil")], "a path is the whole line");
        let sizes = all.iter().flat_map(|run| &run.inputs).map(|input| bytes_of(input));
        assert_eq!(sizes.collect::<Vec<_>>(), [Some(2), Some(0), Some(3)]);
    }

    #[test]
    fn faults_name_the_line() {
        let home = tempfile::tempdir().unwrap();
        let manifest = home.path().join("m");
        let fault = |text: &[u8]| {
            fs::write(&manifest, text).unwrap();
            read(std::slice::from_ref(&manifest)).unwrap_err().to_string()
        };
        for (text, words) in [
            (&b"# nothing\n"[..], ["m: manifest", "no run"]),
            (b"m\n{'m", ["line 2: JSON", "key must be a string"]),
            (b"m\n{\"inputs\": 3}", ["line 2: JSON", "expected a sequence"]),
            (b"{\"inputs\": [\"m\"], \"outputs\": 1}", ["line 1: JSON", "unknown field `outputs`"]),
            (b"{\"inputs\": []}", ["line 1: inputs", "empty list"]),
            (b"{\"inputs\": [\"\"]}", ["line 1: inputs", "empty list or path"]),
            (b"-", ["line 1: inputs", "expected a file"]),
            (b"m\nx\ny\n", ["line 2: inputs", "found 2 missing"]),
            (b"m\n\xff\n", ["line 2", "not UTF-8"]),
        ] {
            let fault = fault(text);
            assert!(words.iter().all(|word| fault.contains(word)), "{fault}");
        }
        assert!(fault(&[b'x', b'\n'].repeat(9)).contains("4 more"));
        assert!(read(&[home.path().join("missing")]).is_err());
    }
}
