//! The verb of a command line, and the words that layers of settings add to it.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Id};

use super::file::Setting;

/// Verb of a command line.
pub(super) struct Verb<'a> {
    /// Its names: `live`, `search`.
    pub(super) path: Vec<String>,
    /// Its description, with the options of every verb.
    pub(super) command: &'a Command,
    pub(super) matches: &'a ArgMatches,
}

impl<'a> Verb<'a> {
    /// Finds the verb that was parsed; `None` if there is none.
    pub(super) fn of(command: &'a Command, matches: &'a ArgMatches) -> Option<Self> {
        let mut verb = Self { path: Vec::new(), command, matches };
        while let Some((name, matches)) = verb.matches.subcommand() {
            verb.command = verb.command.find_subcommand(name)?;
            verb.matches = matches;
            verb.path.push(name.to_owned());
        }
        (!verb.path.is_empty()).then_some(verb)
    }

    /// Returns the text of an option that the verb may lack.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.matches.try_get_one::<String>(name).ok().flatten().cloned()
    }

    /// Returns the words of the layers' settings, the first layer winning over the next, and the command line over all.
    pub(super) fn added(&self, layers: &[Vec<Setting>]) -> Vec<String> {
        let ids = self.command.get_arguments().map(Arg::get_id);
        let is_given = |id: &&Id| {
            let source = self.matches.try_contains_id(id.as_str()).is_ok();
            source && self.matches.value_source(id.as_str()) == Some(ValueSource::CommandLine)
        };
        let mut given: Vec<&Id> = ids.filter(is_given).collect();
        let mut decided = given.clone();
        let mut words = Vec::new();
        for layer in layers {
            let (mut here, mut set) = (Vec::new(), Vec::new());
            for setting in layer {
                let mut arguments = self.command.get_arguments();
                let Some(argument) =
                    arguments.find(|own| own.get_long() == Some(setting.name.as_str()))
                else {
                    continue;
                };
                if decided.contains(&argument.get_id()) {
                    continue;
                }
                here.push(argument.get_id());
                let loses = given.iter().any(|id| self.excludes(argument, id));
                if !loses && !setting.is_default(argument) {
                    words.extend(setting.words(argument));
                    set.push(argument.get_id());
                }
            }
            decided.append(&mut here);
            given.append(&mut set);
        }
        words
    }

    /// Returns whether an option may not stand beside another one.
    fn excludes(&self, argument: &Arg, other: &Id) -> bool {
        let conflicts = |one: &Arg, other: &Id| {
            let conflicts = self.command.get_arg_conflicts_with(one);
            conflicts.iter().any(|conflict| conflict.get_id() == other)
        };
        let in_one_group = || {
            self.command.get_groups().any(|group| {
                let ids: Vec<&Id> = group.get_args().collect();
                let has_both = ids.contains(&argument.get_id()) && ids.contains(&other);
                has_both && !group.clone().is_multiple()
            })
        };
        let mut arguments = self.command.get_arguments();
        let other_way = arguments.find(|own| own.get_id() == other);
        conflicts(argument, other)
            || other_way.is_some_and(|own| conflicts(own, argument.get_id()))
            || in_one_group()
    }
}
