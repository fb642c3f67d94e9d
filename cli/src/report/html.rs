//! HTML of a report: tables, figures, and the pictures themselves.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use sidereal::{Error, Result};

use super::folder::{Document, Found, Object};
use super::plot::Drawing;
use super::search;
use super::text::{base64, encoded, escape};
use crate::output::with_final_names;
use crate::provenance::Made;

const STYLES: [&str; 2] =
    [include_str!("../../assets/page/page.css"), include_str!("../../assets/page/report.css")];
const SCRIPTS: [&str; 2] =
    [include_str!("../../assets/page/plots.js"), include_str!("../../assets/page/report.js")];

/// Columns that come first, in this order; others follow by their names.
const COLUMNS: [&str; 27] = [
    "number",
    "name",
    "gps",
    "mjd",
    "time_s",
    "snr",
    "network_snr",
    "dm",
    "width_s",
    "origin",
    "in_beams",
    "beam_snrs",
    "far_hz",
    "mass1",
    "mass2",
    "state",
    "label",
    "labelled_by",
    "members",
    "observation",
    "start_gps",
    "rate_hz",
    "duration_s",
    "livetime_s",
    "templates",
    "file",
    "band_fraction",
];

/// Keys of lists and lines that are shown otherwise.
const LEFT_OUT: [&str; 8] =
    ["picture", "written_unix_s", "provenance", "run", "plots", "schema", "reason", "histogram"];

/// Most rows of a table.
const MOST_ROWS: usize = 5000;

/// Contents of a report.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) folder: &'a Path,
    pub(super) found: &'a Found,
    /// Plots of each document.
    pub(super) drawings: &'a [Drawing],
    pub(super) made: &'a Made,
}

/// Size of a report, and pictures that it links to.
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) linked: usize,
}

/// Chooses between pictures in the file and links to them.
pub(super) struct Links {
    /// Folder of the report.
    home: PathBuf,
    /// Bytes of pictures that the file may still take.
    left: u64,
    linked: usize,
}

impl Links {
    /// Makes the links of a report at a place, which takes at most this many bytes of pictures.
    pub(super) fn new(place: &Path, embed: u64) -> Self {
        let home = place.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { home, left: embed, linked: 0 }
    }

    /// Returns the address of a picture: its bytes, or its path.
    fn address(&mut self, path: &Path) -> Result<String> {
        let failed = |error| Error::io(path, error);
        let bytes = path.metadata().map_err(failed)?.len();
        if bytes <= self.left {
            self.left -= bytes;
            let bytes = std::fs::read(path).map_err(failed)?;
            return Ok(format!("data:image/png;base64,{}", base64(&bytes)));
        }
        self.linked += 1;
        let within = path
            .strip_prefix(&self.home)
            .ok()
            .filter(|_| path.is_relative() || self.home.is_absolute());
        let whole = || path.canonicalize().map_err(failed);
        let target = match within {
            Some(within) => within.to_path_buf(),
            None => whole()?,
        };
        Ok(encoded(&target.to_string_lossy()))
    }
}

/// Place of each picture in the report, by its path.
type Places = HashMap<PathBuf, usize>;

impl Page<'_> {
    /// Writes the report.
    ///
    /// # Errors
    /// [`Error::Io`] of the file or a picture.
    pub(super) fn write(&self, mut links: Links, path: &Path) -> Result<Written> {
        let failed = |error| Error::io(path, error);
        let pictures = self.pictures();
        let places: Places = pictures.iter().map(|one| (*one).clone()).zip(1..).collect();
        let mut text = String::new();
        self.head(&mut text);
        self.candidates(&mut text, &places)?;
        for (document, drawing) in self.found.documents.iter().zip(self.drawings) {
            self.document(&mut text, document, drawing, &places)?;
        }
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        file.write_all(text.as_bytes()).map_err(failed)?;
        if !pictures.is_empty() {
            file.write_all(b"<section><h2>Pictures</h2>\n").map_err(failed)?;
        }
        for (number, picture) in (1..).zip(pictures.iter().copied()) {
            let address = links.address(picture)?;
            let name = escape(&self.name(picture));
            let figure = format!(
                "<figure id=\"p{number}\"><img src=\"{address}\" alt=\"{name}\"><figcaption>{name}</figcaption></figure>\n"
            );
            file.write_all(figure.as_bytes()).map_err(failed)?;
        }
        if !pictures.is_empty() {
            file.write_all(b"</section>\n").map_err(failed)?;
        }
        let run = escape(&self.made.run.line());
        let version = escape(&self.made.provenance.version);
        let end = format!(
            "</main>\n<footer><p>Made by sidereal {version} at {run}.</p></footer>\n<script>{}</script>\n</body>\n</html>\n",
            SCRIPTS.concat()
        );
        file.write_all(end.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
        let bytes = file.get_ref().metadata().map_err(failed)?.len();
        Ok(Written { bytes, linked: links.linked })
    }

    /// Returns the pictures whose contents the plots of no document show.
    fn pictures(&self) -> Vec<&PathBuf> {
        let is_replaced = |picture: &Path| {
            self.found.documents.iter().zip(self.drawings).any(|(document, drawing)| {
                let name = picture.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let listed = document.object.get("plots").and_then(Value::as_array);
                let mut listed = listed.into_iter().flatten().filter_map(Value::as_str);
                drawing.replaced.iter().any(|other| other == name)
                    && (picture.parent() == document.path.parent()
                        || listed.any(|other| is_same_place(picture, Path::new(other))))
            })
        };
        self.found.pictures.iter().filter(|picture| !is_replaced(picture)).collect()
    }

    /// Returns the name of a file within the folder.
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(self.folder).unwrap_or(path).display().to_string()
    }

    fn head(&self, text: &mut String) {
        let hash = base64(&Sha256::digest(SCRIPTS.concat()));
        let title = escape(self.title);
        let _ = write!(
            text,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"sidereal report\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'sha256-{hash}'; img-src 'self' data: file:; base-uri 'none'; form-action 'none'\">\n\
             <title>{title}: sidereal</title>\n<style>\n{}</style>\n</head>\n<body>\n\
             <header><h1>{title}</h1><p class=\"about\">report of sidereal</p></header>\n<main class=\"report\">\n",
            STYLES.concat()
        );
    }

    /// Writes the candidates of live searches.
    fn candidates(&self, text: &mut String, places: &Places) -> Result<()> {
        let all = &self.found.candidates;
        if all.is_empty() {
            return Ok(());
        }
        text.push_str("<section><h2>Candidates</h2>\n");
        let retracted = Value::from("retracted");
        let kept = all.iter().filter(|one| one.get("state") != Some(&retracted));
        Drawing { plots: search::plots(kept, None), ..Drawing::default() }.write(text)?;
        let pictures = |object: &Object, _: usize| {
            let given = object.get("picture").and_then(Value::as_str).map(Path::new);
            let found =
                given.and_then(|given| places.keys().find(|place| is_same_place(place, given)));
            found.into_iter().map(|place| places[place]).collect()
        };
        table(text, &all.iter().collect::<Vec<_>>(), &pictures);
        text.push_str("</section>\n");
        Ok(())
    }

    /// Writes the facts and lists of a document.
    fn document(
        &self,
        text: &mut String,
        document: &Document,
        drawing: &Drawing,
        places: &Places,
    ) -> Result<()> {
        let Document { path, kind, object } = document;
        let (kind, name) = (escape(&kind.replace('-', " ")), escape(&self.name(path)));
        let _ = writeln!(text, "<section><h2>{kind} <small>{name}</small></h2>");
        if let Some(reason) = object.get("reason").and_then(Value::as_str) {
            let _ = writeln!(text, "<p class=\"trouble\">Incomplete: {}</p>", escape(reason));
        }
        drawing.write(text)?;
        let lists = object.iter().filter_map(|(key, value)| Some((key, objects(value)?)));
        for (key, list) in lists.filter(|(_, list)| !list.is_empty()) {
            let is_main = ["candidates", "events"].contains(&key.as_str());
            let title = escape(&key.replace('_', " "));
            if is_main {
                let _ = writeln!(text, "<h3>{title}</h3>");
            } else {
                let _ = writeln!(text, "<details><summary>{title}</summary>");
            }
            let start = if key == "events" { "event" } else { "candidate_" };
            let pictures = |one: &Object, index: usize| {
                if !is_main {
                    return Vec::new();
                }
                let is_its = |place: &Path| match place.parent() == path.parent() {
                    true => number_of(place, start) == Some(index + 1),
                    // `replot` draws into another folder, with numbers of its own.
                    false => is_drawn_again(place, path, one),
                };
                let found = places.iter().filter(|(place, _)| is_its(place));
                let mut found: Vec<usize> = found.map(|(_, number)| *number).collect();
                found.sort_unstable();
                found
            };
            let is_bare = key == "candidates"
                && self.found.candidates.is_empty()
                && (0..list.len()).all(|index| pictures(list[index], index).is_empty());
            table(text, &list, &pictures);
            if is_bare {
                let folder = path.parent().unwrap_or(Path::new("")).display().to_string();
                let folder = with_final_names(folder.trim_end_matches('/'));
                let folder = if folder.is_empty() { ".".to_owned() } else { folder };
                let recording = object.get("file").and_then(Value::as_str).unwrap_or("RECORDING");
                let (folder, recording) = (escape(&folder), escape(recording));
                let _ = writeln!(
                    text,
                    "<p class=\"none\">The search drew no pictures of candidates. <code>sidereal replot {recording} \
                     {folder}/candidates.cand -o {folder}/pictures</code> draws them for the next report.</p>"
                );
            }
            if !is_main {
                text.push_str("</details>\n");
            }
        }
        // Facts must not push pictures out of sight.
        let is_short = self.found.documents.len() == 1 && places.is_empty();
        let open = if is_short { " open" } else { "" };
        let _ =
            writeln!(text, "<details{open}><summary>facts</summary><table class=\"facts\"><tbody>");
        facts(text, "", object);
        text.push_str("</tbody></table></details>\n");
        for key in ["provenance", "run"] {
            let Some(Value::Object(own)) = object.get(key) else { continue };
            let _ =
                writeln!(text, "<details><summary>{key}</summary><table class=\"facts\"><tbody>");
            facts(text, "", own);
            text.push_str("</tbody></table></details>\n");
        }
        text.push_str("</section>\n");
        Ok(())
    }
}

/// Returns whether two paths have the same name in a folder of the same name.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let last = |path: &Path| -> Vec<_> {
        path.iter().rev().take(2).map(std::ffi::OsStr::to_owned).collect()
    };
    last(one) == last(other)
}

/// Returns whether a picture below the folder of a document is that of one of its candidates.
fn is_drawn_again(place: &Path, document: &Path, candidate: &Object) -> bool {
    let number = |key: &str| candidate.get(key).and_then(Value::as_f64);
    let (Some(dm), Some(time_s)) = (number("dm"), number("time_s")) else { return false };
    let is_below = document.parent().is_some_and(|folder| place.starts_with(folder));
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    is_below
        && name.starts_with("candidate_")
        && name.ends_with(&format!("_DM{dm:.2}_{time_s:.3}s.png"))
}

/// Returns the number in a picture's name: 3 of `candidate_0003_DM56.png`, whose start is `candidate_`.
fn number_of(place: &Path, start: &str) -> Option<usize> {
    let rest = place.file_name()?.to_str()?.strip_prefix(start)?;
    rest.split('_').next()?.parse().ok()
}

/// Returns the objects of a list that has nothing else.
fn objects(value: &Value) -> Option<Vec<&Object>> {
    value.as_array()?.iter().map(Value::as_object).collect()
}

/// Writes values that are neither lists of objects nor null as rows, those of inner objects with the names of both.
fn facts(text: &mut String, before: &str, object: &Object) {
    for (key, value) in object {
        if before.is_empty() && LEFT_OUT.contains(&key.as_str()) {
            continue;
        }
        let name = format!("{before}{}", key.replace('_', " "));
        match value {
            Value::Null => {}
            Value::Object(inner) => facts(text, &format!("{name}, "), inner),
            list if objects(list).is_some_and(|list| !list.is_empty()) => {}
            value => {
                let shown = escape(&words(key, value));
                let _ = writeln!(text, "<tr><td>{}</td><td>{shown}</td></tr>", escape(&name));
            }
        }
    }
}

/// Writes objects as a table; `pictures` returns the places of the pictures of one.
fn table(text: &mut String, list: &[&Object], pictures: &dyn Fn(&Object, usize) -> Vec<usize>) {
    let is_shown = |(key, value): &(&String, &Value)| {
        !(value.is_object() || value.is_array() || LEFT_OUT.contains(&key.as_str()))
    };
    let keys: BTreeSet<&str> = list
        .iter()
        .flat_map(|one| one.iter().filter(is_shown).map(|(key, _)| key.as_str()))
        .collect();
    let first = COLUMNS.into_iter().filter(|column| keys.contains(column));
    let others = keys.iter().copied().filter(|key| !COLUMNS.contains(key));
    let columns: Vec<&str> = first.chain(others).collect();
    let has_number = columns.contains(&"number");
    text.push_str("<div class=\"scroll\"><table class=\"sorted\"><thead><tr>");
    if !has_number {
        text.push_str("<th>no.</th>");
    }
    for column in &columns {
        let _ = write!(text, "<th>{}</th>", escape(&column.replace('_', " ")));
    }
    let shown: Vec<Vec<usize>> =
        list.iter().take(MOST_ROWS).enumerate().map(|(index, one)| pictures(one, index)).collect();
    let has_pictures = shown.iter().any(|places| !places.is_empty());
    text.push_str(if has_pictures {
        "<th>pictures</th></tr></thead>\n<tbody>\n"
    } else {
        "</tr></thead>\n<tbody>\n"
    });
    for (index, (one, places)) in list.iter().zip(&shown).enumerate() {
        let is_retracted = one.get("state") == Some(&Value::from("retracted"));
        text.push_str(if is_retracted { "<tr class=\"retracted\">" } else { "<tr>" });
        if !has_number {
            let _ = write!(text, "<td data-value=\"{0}\">{0}</td>", index + 1);
        }
        for column in &columns {
            let value = one.get(*column).unwrap_or(&Value::Null);
            let exact =
                value.as_f64().map_or_else(String::new, |exact| format!(" data-value=\"{exact}\""));
            let _ = write!(text, "<td{exact}>{}</td>", escape(&words(column, value)));
        }
        if has_pictures {
            let links = places.iter().map(|place| format!("<a href=\"#p{place}\">picture</a>"));
            let _ = write!(text, "<td>{}</td>", links.collect::<Vec<_>>().join(" "));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    if list.len() > MOST_ROWS {
        let _ = writeln!(text, "<p class=\"none\">The first {MOST_ROWS} of {}.</p>", list.len());
    }
}

/// Formats a value: numbers to six digits, times exactly enough.
fn words(key: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            match key {
                _ if key.ends_with("mjd") => format!("{number:.8}"),
                _ if key.ends_with("gps") => format!("{number:.6}"),
                _ => six_digits(number),
            }
        }
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(|one| words(key, one)).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Formats a number with at most six significant digits.
fn six_digits(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{number:.3e}");
    }
    let before = if size < 1.0 { 0 } else { size.log10().floor() as i32 + 1 };
    let text = format!("{number:.*}", (6 - before).clamp(0, 6) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 348.57, 30.01281929, 1e-7, 123_456.78, 0.005, 4096.0].map(six_digits);
        assert_eq!(texts, ["0", "348.57", "30.0128", "1.000e-7", "123457", "0.005", "4096"]);
        assert_eq!(words("mjd", &60000.0001736169.into()), "60000.00017362");
        assert_eq!(words("x", &serde_json::json!([1, "a", null])), "1, a, ");
    }
}
