//! Options in a TOML file: a table for each verb, whose keys are the long names of its options.
//!
//! Invariant: every key of the file names an option and every value is one that the option takes, also those of other
//! verbs than the one that runs.

use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use sidereal::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Option that names a file.
pub(super) const CONFIG: &str = "config";
/// Option that prints the options in effect.
pub(super) const PRINT_CONFIG: &str = "print-config";
/// Option that names a preset.
pub(super) const PRESET: &str = "preset";

/// Options that a file cannot hold.
const NOT_IN_FILES: [&str; 4] = ["help", "version", CONFIG, PRINT_CONFIG];

/// Most bytes of a value that an error shows.
const SHOWN: usize = 60;

/// Lowest similarity of a name that an error suggests, as in clap.
const ALIKE: f64 = 0.7;

/// Returns whether a file may hold an option.
pub(super) fn may_hold(argument: &Arg) -> bool {
    let name = argument.get_long();
    !argument.is_hide_set() && name.is_some_and(|name| !NOT_IN_FILES.contains(&name))
}

/// Returns whether an option may be repeated, or its values be separated, so that a file has a list of them.
pub(super) fn is_list(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append) || argument.get_value_delimiter().is_some()
}

/// Value of an option.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    /// Long name of the option.
    pub(super) name: String,
    /// Values; of a flag `true` or `false`.
    pub(super) values: Vec<String>,
}

impl Setting {
    /// Returns whether the value is that of a command line without the option.
    pub(super) fn is_default(&self, argument: &Arg) -> bool {
        if !argument.get_action().takes_values() {
            return self.values == ["false"];
        }
        let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
        let defaults = defaults.collect::<Vec<_>>().join(",");
        argument.get_default_values().is_empty() == self.values.is_empty()
            && defaults == self.values.join(",")
    }

    /// Returns the words of a command line that set the option.
    pub(super) fn words(&self, argument: &Arg) -> Vec<String> {
        let name = &self.name;
        if !argument.get_action().takes_values() {
            let is_set = self.values == ["true"];
            return is_set.then(|| format!("--{name}")).into_iter().collect();
        }
        match argument.get_action() {
            ArgAction::Append => {
                self.values.iter().map(|value| format!("--{name}={value}")).collect()
            }
            _ if self.values.is_empty() => Vec::new(),
            _ => vec![format!("--{name}={}", self.values.join(","))],
        }
    }
}

/// TOML text that holds options.
pub(super) struct File<'a> {
    /// Path for errors.
    path: &'a Path,
    text: &'a str,
    /// The whole command line, with which values are checked; it is built.
    command: Command,
}

impl<'a> File<'a> {
    /// Takes the text of a file; `command` is the whole command line.
    pub(super) fn new(path: &'a Path, text: &'a str, command: &Command) -> Self {
        let mut command = command.clone();
        command.build();
        Self { path, text, command }
    }

    /// Returns the options for a verb: those of its own table and of the tables around it, of which the inner ones win.
    ///
    /// # Errors
    /// [`Error::Format`] naming the line and the key at fault.
    pub(super) fn options(&mut self, verb: &[String]) -> Result<Vec<Setting>> {
        let table = self.parse()?;
        let mut settings = Vec::new();
        self.add(&[], table.get_ref(), verb, &mut settings)?;
        Ok(settings)
    }

    /// Parses the text.
    ///
    /// # Errors
    /// [`Error::Format`] for text that is not TOML.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let why = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::format(self.path, self.line(at), 0, format!("it is not TOML: {why}"))
        })
    }

    /// Adds the options of the table at `place`, a path of verbs, if `verb` is there or below; checks all.
    ///
    /// # Errors
    /// As [`File::options`].
    pub(super) fn add(
        &mut self,
        place: &[String],
        table: &DeTable<'_>,
        verb: &[String],
        settings: &mut Vec<Setting>,
    ) -> Result<()> {
        let mut inner = Vec::new();
        let mut own: Vec<Setting> = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().replace('_', "-");
            let place: Vec<String> = place.iter().cloned().chain([name.clone()]).collect();
            let field = format!("{}: {}", self.line(key.span().start), place.join("."));
            let fault = |why: String| Error::format(self.path, &field, 0, why);
            let command = self.at(&place[..place.len() - 1]);
            if let Some(found) = command.find_subcommand(&name).filter(|_| name != "help") {
                let Some(table) = value.get_ref().as_table() else {
                    let why = format!(
                        "found {}, expected a table of options of `sidereal {}`",
                        self.shown(value),
                        found.get_name()
                    );
                    return Err(fault(why));
                };
                inner.push((place, table));
                continue;
            }
            let argument = command
                .get_arguments()
                .find(|own| may_hold(own) && own.get_long() == Some(&name))
                .ok_or_else(|| fault(unknown(command, &place, &name)))?;
            if own.iter().any(|setting| setting.name == name) {
                return Err(fault("the option is set twice: with - and with _".to_owned()));
            }
            let setting = self.setting(argument, value).map_err(&fault)?;
            let words = setting.words(argument);
            if let Some(why) = self.refusal(&place[..place.len() - 1], &words) {
                return Err(Error::format(self.path, &field, 0, why));
            }
            own.push(setting);
        }
        if verb.starts_with(place) {
            settings.retain(|outer| !own.iter().any(|setting| setting.name == outer.name));
            settings.append(&mut own);
        }
        inner.into_iter().try_for_each(|(place, table)| self.add(&place, table, verb, settings))
    }

    /// Returns the command at a path of verbs.
    fn at(&self, place: &[String]) -> &Command {
        place
            .iter()
            .fold(&self.command, |command, name| command.find_subcommand(name).unwrap_or(command))
    }

    /// Reads the value of an option; an error says what was found and what is expected.
    fn setting(
        &self,
        argument: &Arg,
        value: &Spanned<DeValue<'_>>,
    ) -> std::result::Result<Setting, String> {
        let name = argument.get_long().unwrap_or_default().to_owned();
        let expected = |what: &str| Err(format!("found {}, expected {what}", self.shown(value)));
        if !argument.get_action().takes_values() {
            return match value.get_ref() {
                DeValue::Boolean(is_set) => Ok(Setting { name, values: vec![is_set.to_string()] }),
                _ => expected("true or false"),
            };
        }
        let names = argument.get_value_names().unwrap_or_default();
        let has_commas = is_list(argument) || names.iter().any(|name| name.contains(','));
        let values = match value.get_ref() {
            DeValue::Array(list) if has_commas => list.iter().map(text).collect(),
            DeValue::Array(_) => None,
            _ => text(value).map(|text| vec![text]),
        };
        let Some(values) = values else {
            return expected(match has_commas {
                true => "a text or a number, or a list of them",
                false => "a text or a number",
            });
        };
        let values = if is_list(argument) { values } else { vec![values.join(",")] };
        Ok(Setting { name, values })
    }

    /// Returns why an option does not take the value in these words, if it does not.
    fn refusal(&mut self, verb: &[String], words: &[String]) -> Option<String> {
        let line = ["sidereal"].into_iter().chain(verb.iter().map(String::as_str));
        let line = line.chain(words.iter().map(String::as_str));
        let error = self.command.try_get_matches_from_mut(line).err()?;
        let is_of_value = matches!(
            error.kind(),
            ErrorKind::InvalidValue
                | ErrorKind::ValueValidation
                | ErrorKind::TooManyValues
                | ErrorKind::TooFewValues
                | ErrorKind::WrongNumberOfValues
                | ErrorKind::NoEquals
        );
        is_of_value.then(|| paragraph(&error.to_string()))
    }

    /// Returns the line of a byte of the text: `line 3`.
    fn line(&self, at: usize) -> String {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        format!("line {}", 1 + before.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Returns a value as it stands in the text, shortened.
    fn shown(&self, value: &Spanned<DeValue<'_>>) -> String {
        let text = self.text.get(value.span()).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }
}

/// Reads a file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for text that is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to() as u64;
        Error::format(path, "text", offset, "it is not UTF-8, as TOML must be")
    })
}

/// Returns a text, number or time as it is written.
fn text(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).ok().map(|value| value.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Boolean(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Says that a verb has no option of a name, and which one is nearest to it.
fn unknown(command: &Command, place: &[String], name: &str) -> String {
    let verbs = command.get_subcommands().map(Command::get_name).filter(|verb| *verb != "help");
    let options = command.get_arguments().filter(|own| may_hold(own)).filter_map(Arg::get_long);
    let alike = |other: &str| strsim::jaro_winkler(name, other);
    let nearest = options.chain(verbs).max_by(|one, other| alike(one).total_cmp(&alike(other)));
    let verb = place[..place.len() - 1].iter().map(|verb| format!(" {verb}")).collect::<String>();
    let is_of_a_verb = place.len() == 1
        && command
            .get_subcommands()
            .any(|verb| verb.get_arguments().any(|own| own.get_long() == Some(name)));
    let hint = match nearest.filter(|nearest| alike(nearest) > ALIKE) {
        _ if is_of_a_verb => {
            "it is an option of single verbs: put it into the table of a verb, such as [search]"
                .to_owned()
        }
        Some(nearest) => format!("the nearest is {nearest}"),
        None => format!("`sidereal{verb} --help` lists them"),
    };
    let what = if command.has_subcommands() { "verb or option" } else { "option" };
    format!("`sidereal{verb}` has no {what} of this name; {hint}")
}

/// Returns the first paragraph of clap's error as one line.
fn paragraph(text: &str) -> String {
    let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
