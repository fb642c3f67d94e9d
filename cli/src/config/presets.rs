//! Presets by telescope, from the table in presets.toml.

use std::path::Path;

use clap::Command;
use sidereal::{Error, Result};
use toml::de::DeTable;

use super::file::{File, Setting};

/// Verbs that have presets.
pub(super) const VERBS: [&str; 3] = ["search", "channelize", "correlate"];

/// Name that prints the presets instead.
pub(super) const LIST: &str = "list";

const TEXT: &str = include_str!("presets.toml");

/// Name of the table in errors.
const PLACE: &str = "presets.toml";

/// Returns the options of a preset for a verb; `command` is the whole command line.
///
/// # Errors
/// [`Error::Parameter`] for an unknown preset and for one without options of the verb.
pub(super) fn options(name: &str, verb: &[String], command: &Command) -> Result<Vec<Setting>> {
    let refuse = |rule: String| Err(Error::parameter("--preset", name, rule));
    let mut file = File::new(Path::new(PLACE), TEXT, command);
    let presets = file.parse()?;
    let Some(preset) = presets.get_ref().get(name).and_then(|preset| preset.get_ref().as_table())
    else {
        let names: Vec<&str> =
            presets.get_ref().keys().map(|name| name.get_ref().as_ref()).collect();
        return refuse(format!("it must be list or one of {}", names.join(", ")));
    };
    let Some(own) = table(preset, verb) else {
        let verbs: Vec<&str> =
            VERBS.into_iter().filter(|verb| preset.contains_key(*verb)).collect();
        let (verb, verbs) = (verb.join(" "), verbs.join(" and "));
        return refuse(format!("it has options of {verbs}, none of {verb}"));
    };
    let mut settings = Vec::new();
    file.add(verb, own, verb, &mut settings)?;
    Ok(settings)
}

/// Returns a preset's table of a verb.
fn table<'a>(preset: &'a DeTable<'_>, verb: &[String]) -> Option<&'a DeTable<'a>> {
    let [verb] = verb else { return None };
    let found = preset.iter().find(|(key, _)| key.get_ref() == verb)?;
    found.1.get_ref().as_table()
}

/// Formats all presets with their options and sources.
///
/// # Errors
/// [`Error::Format`] for a fault of the table, which a test excludes.
pub(super) fn list(command: &Command) -> Result<String> {
    let file = File::new(Path::new(PLACE), TEXT, command);
    let presets = file.parse()?;
    let mut text = String::new();
    for (name, preset) in presets.get_ref() {
        let name = name.get_ref();
        let Some(preset) = preset.get_ref().as_table() else { continue };
        let telescope = preset.get("telescope").and_then(|telescope| telescope.get_ref().as_str());
        text += &format!("{name}: {}\n", telescope.unwrap_or_default());
        for verb in VERBS {
            let path = [verb.to_owned()];
            if table(preset, &path).is_none() {
                continue;
            }
            let own = command.find_subcommand(verb);
            let settings = options(name, &path, command)?;
            let words = settings.iter().filter_map(|setting| {
                let mut arguments = own.into_iter().flat_map(Command::get_arguments);
                let argument = arguments.find(|own| own.get_long() == Some(&setting.name))?;
                Some(setting.words(argument).join(" "))
            });
            text += &format!("    {verb} {}\n", words.collect::<Vec<_>>().join(" "));
        }
        text +=
            &sources(preset).map(|source| format!("    source of {source}\n")).collect::<String>();
    }
    Ok(text)
}

/// Returns the sources of a preset.
fn sources<'a>(preset: &'a DeTable<'_>) -> impl Iterator<Item = &'a str> {
    let list = preset.get("sources").and_then(|sources| sources.get_ref().as_array());
    list.into_iter().flat_map(|list| list.iter()).filter_map(|source| source.get_ref().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_options_that_verbs_take_and_sources() {
        let command = crate::command();
        let file = File::new(Path::new(PLACE), TEXT, &command);
        let presets = file.parse().unwrap();
        assert!(presets.get_ref().len() >= 10);
        for (name, preset) in presets.get_ref() {
            let preset = preset.get_ref().as_table().unwrap();
            assert!(
                preset.get("telescope").is_some_and(|name| name.get_ref().is_str()),
                "{name:?}"
            );
            assert!(sources(preset).count() > 0, "{name:?}");
            let known = [VERBS.as_slice(), &["telescope", "sources"]].concat();
            assert!(preset.keys().all(|key| known.contains(&key.get_ref().as_ref())), "{name:?}");
            let verbs: Vec<_> =
                VERBS.into_iter().filter(|verb| preset.contains_key(*verb)).collect();
            assert!(!verbs.is_empty(), "{name:?}");
            for verb in verbs {
                let settings = options(name.get_ref(), &[verb.to_owned()], &command).unwrap();
                assert!(!settings.is_empty());
                let covered = |setting: &Setting| {
                    sources(preset).any(|source| {
                        let named = source.split(": ").next().unwrap_or_default();
                        named == setting.name || named == verb
                    })
                };
                assert!(settings.iter().all(covered), "{name:?} {verb}");
            }
        }
    }

    #[test]
    fn highest_dms_are_those_of_the_surveys() {
        let command = crate::command();
        for (preset, survey) in [
            ("apertif-alert", "Apertif ALERT"),
            ("arecibo-palfa", "Arecibo PALFA"),
            ("askap-craft", "ASKAP"),
            ("gbt-820", "Green Bank 820"),
            ("gbt-2000", "Green Bank 2000"),
            ("gmrt", "GMRT"),
            ("lovell", "Lovell"),
            ("parkes-superb-f", "Parkes SUPERB F"),
            ("parkes-superb-t", "Parkes SUPERB T"),
            ("utmost", "UTMOST"),
        ] {
            let survey = sidereal::simulate::Telescope::by_name(survey).unwrap();
            let settings = options(preset, &["search".to_owned()], &command).unwrap();
            let dm_max = settings.iter().find(|setting| setting.name == "dm-max").unwrap();
            assert_eq!(dm_max.values[0].parse::<f64>().unwrap(), survey.dm_max, "{preset}");
        }
    }

    #[test]
    fn faults_are_named() {
        let command = crate::command();
        let fault = |name: &str, verb: &str| {
            options(name, &[verb.to_owned()], &command).unwrap_err().to_string()
        };
        let unknown = fault("chime", "search");
        assert!(unknown.contains("--preset is chime, but it must be list or one of"), "{unknown}");
        assert!(unknown.contains("chime-frb, "), "{unknown}");
        let none = fault("chime-frb", "correlate");
        assert!(
            none.contains("it has options of search and channelize, none of correlate"),
            "{none}"
        );
    }

    #[test]
    fn the_list_has_options_and_sources() {
        let text = list(&crate::command()).unwrap();
        assert!(text.contains("    search --dm-max=3763 --max-width=0.0405 --snr=9.5\n"), "{text}");
        assert!(text.contains("    source of snr: github.com/FRBs/zdm"), "{text}");
    }
}
