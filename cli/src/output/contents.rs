//! Contents of a verb's folder, which distinguish its own product from a folder with other files.

use std::fs;
use std::io;
use std::path::Path;

use super::{CHECKPOINT, JOURNAL};

/// Files of one verb's product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Name of the verb.
    pub(crate) verb: &'static str,
    /// Documents, of which each product has at least one. The first states whether the product is complete.
    pub(crate) documents: &'static [&'static str],
    /// Function that returns whether the verb, in this version or an earlier one, writes a file of this name into
    /// this folder. Names in inner folders contain a `/`.
    pub(crate) writes: fn(&Path, &str) -> bool,
}

impl Contents {
    /// Returns the reason why a folder must not be replaced; `None` if it is empty, or a product of this verb and
    /// nothing else.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(super) fn why_kept(&self, folder: &Path) -> io::Result<Option<String>> {
        let files = files(folder)?;
        let own = |name: &String| {
            self.documents.contains(&name.as_str()) || is_state(name) || (self.writes)(folder, name)
        };
        if let Some(foreign) = files.iter().find(|name| !own(name)) {
            return Ok(Some(format!(
                "it holds {foreign}, which {} does not write, so it is not replaced; give another name",
                self.verb
            )));
        }
        let known = |name: &&String| self.documents.contains(&name.as_str()) || is_state(name);
        if !files.is_empty() && files.iter().find(known).is_none() {
            return Ok(Some(format!(
                "it holds no {}, so it is no product of {} and is not replaced; give another name",
                self.documents.join(" nor "),
                self.verb
            )));
        }
        Ok(None)
    }

    /// Returns whether a folder's document states that the product is complete; `None` if no document states it.
    pub(super) fn is_complete(&self, folder: &Path) -> Option<bool> {
        let text = fs::read(folder.join(self.documents.first()?)).ok()?;
        let document: serde_json::Value = serde_json::from_slice(&text).ok()?;
        document.get("complete")?.as_bool()
    }
}

/// Returns whether any verb stores a file of this name to resume an interrupted run.
fn is_state(name: &str) -> bool {
    name == JOURNAL || name.starts_with(CHECKPOINT)
}

/// Returns the names of all files in a folder and its inner folders, sorted.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), name + "/"));
            } else {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Contents = Contents {
        verb: "search",
        documents: &["summary.json"],
        writes: |_, name| name.ends_with(".png") || name == "inner/x",
    };

    #[test]
    fn only_a_product_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        let why = || SEARCH.why_kept(home.path()).unwrap();
        fs::create_dir(home.path().join("inner")).unwrap();
        assert_eq!(why(), None);
        write("a.png", "");
        assert!(why().unwrap().contains("no summary.json"));
        write("summary.json", "{\"complete\": false}");
        write("inner/x", "");
        write("journal", "");
        assert_eq!((why(), SEARCH.is_complete(home.path())), (None, Some(false)));
        write("inner/thesis.tex", "");
        assert!(why().unwrap().contains("holds inner/thesis.tex, which search does not write"));
        write("summary.json", "{");
        assert_eq!(SEARCH.is_complete(home.path()), None);
    }
}
