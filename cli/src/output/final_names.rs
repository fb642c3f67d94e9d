//! Names in messages: an unfinished folder appears under its final name.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Names of unfinished folders, each with its replacement in messages.
static FINAL_NAMES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Makes messages contain `final_name` instead of an unfinished folder's name.
pub(crate) fn remember_final_name(path: &Path, final_name: &str, end: &str) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned() + end;
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.push((name, final_name.to_owned()));
}

/// Makes messages contain an unfinished folder's own name, because it stays.
pub(crate) fn forget_final_name(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(unfinished, _)| unfinished.trim_end_matches('/') != name);
}

/// Replaces the names in a message by the final names of the files.
pub(crate) fn with_final_names(message: &str) -> String {
    let all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(message.to_owned(), |text, (name, final_name)| text.replace(name, final_name))
}
