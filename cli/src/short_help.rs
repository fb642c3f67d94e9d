//! The short help (`-h`): of each verb its common options, and how many more `--help` shows.

use clap::Command;

/// Options of every verb that each short help shows.
const EVERYWHERE: [&str; 5] = ["device", "threads", "config", "json", "quiet"];

/// A verb with at most this many options of its own shows all of them.
const FEW: usize = 14;

/// Common options of a verb that has more than [`FEW`].
struct Common {
    verb: &'static str,
    /// Long names; help has them in the order of their declarations, and required ones in any case.
    options: &'static str,
}

const COMMON: &[Common] = &[
    Common {
        verb: "search",
        options: "preset output overwrite snr max-width dm-min dm-max zap-chans rfi time-range channels coherent-dm",
    },
    Common {
        verb: "replot",
        options: "output overwrite snr max-plots zap-chans rfi channels coherent-dm",
    },
    Common {
        verb: "dedisperse",
        options: "output overwrite format dm-min dm-max dm-step zap-chans rfi time-range channels coherent-dm",
    },
    Common {
        verb: "channelize",
        options: "preset overwrite format nbits channels taps integrate average-channels coherent-dm stokes time-range",
    },
    Common {
        verb: "correlate",
        options: "preset overwrite antennas phase-centre drift channels taps integration average-channels baselines time-range",
    },
    Common {
        verb: "plan",
        options: "toml overwrite telescope fch1 foff channels tsamp dm-min dm-max dm-step ddplan",
    },
    Common {
        verb: "simulate burst",
        options: "overwrite duration nbits seed telescope dm time width snr burst rfi-narrow",
    },
    Common {
        verb: "simulate array",
        options: "overwrite seconds antennas layout source start format sefd channels nbits",
    },
    Common {
        verb: "simulate strain",
        options: "overwrite detectors start length rate seed psd recorded inject live",
    },
    Common {
        verb: "simulate voltages",
        options: "overwrite format duration seed coarse-channels nbits pols antennas pulse tone",
    },
    Common {
        verb: "spiir bank",
        options: "output overwrite psd rate masses spins min-match f-low approximant match",
    },
    Common {
        verb: "spiir filter",
        options: "bank time-range channel quality rate output overwrite resume psd",
    },
    Common {
        verb: "spiir search",
        options: "channel templates bank masses f-low psd threshold background output overwrite",
    },
    Common {
        verb: "live search",
        options: "output snr dm-min dm-max zap-chans channels page trigger-snr on-event",
    },
    Common {
        verb: "live channelize",
        options: "output format roll nbits channels taps integrate average-channels stokes page",
    },
    Common {
        verb: "live correlate",
        options: "output roll antennas phase-centre drift channels taps integration average-channels page",
    },
    Common {
        verb: "live spiir",
        options: "frames channel templates bank masses psd threshold far-max on-event output page",
    },
    Common {
        verb: "send",
        options: "rate loop pol channels packet-bytes interface loss reorder overwrite",
    },
    Common { verb: "tune dedisperse", options: "nbits telescope dm-min dm-max dm-step plan" },
];

/// Returns the command, each verb with a short help.
pub(crate) fn shortened(command: Command) -> Command {
    let global = globals(&command);
    let command = command.mut_args(|argument| {
        let is_common =
            argument.get_long().is_some_and(|name| EVERYWHERE.contains(&name) || name == "version");
        argument.hide_short_help(!is_common)
    });
    // Help and version.
    let count = global + 2;
    with_last_line(command, "", count).mut_subcommands(|verb| shorten(verb, "", global))
}

/// Counts the options that a command passes on to its verbs.
fn globals(command: &Command) -> usize {
    command.get_arguments().filter(|own| own.is_global_set()).count()
}

/// Shortens the help of a verb below `parent`, which passes on `global` options.
fn shorten(command: Command, parent: &str, global: usize) -> Command {
    let path = format!("{parent} {}", command.get_name()).trim_start().to_owned();
    let options = command.get_arguments().filter(|own| own.get_long().is_some());
    let own = options.filter(|own| !own.is_hide_set()).count();
    let common = COMMON.iter().find(|common| common.verb == path);
    let is_long = own > FEW;
    let command = command.mut_args(|argument| {
        let shows = |common: &Common| {
            argument.get_long().is_none_or(|name| common.options.split(' ').any(|own| own == name))
                || argument.is_required_set()
        };
        let is_hidden = is_long && !common.is_some_and(shows);
        argument.hide_short_help(is_hidden)
    });
    // Help.
    let count = own + global + 1;
    let global = global + globals(&command);
    let command = with_last_line(command, &path, count);
    command.mut_subcommands(|verb| shorten(verb, &path, global))
}

/// Adds the line that names the long help below the examples; notes behind them are in the long help alone.
fn with_last_line(command: Command, path: &str, count: usize) -> Command {
    let space = if path.is_empty() { "" } else { " " };
    let last = format!("`sidereal {path}{space}--help` shows all {count} options.");
    let below = command.get_after_help().map(ToString::to_string);
    let long = command.get_after_long_help().map(ToString::to_string);
    let examples = below.as_deref().and_then(|text| text.split("\n\n").next());
    let short = examples.map_or_else(String::new, |text| format!("{text}\n\n")) + &last;
    let long = long.or(below).unwrap_or_default();
    command.after_help(short).after_long_help(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this build has streams, and a page of them.
    const HAS_STREAMS: bool = cfg!(all(target_os = "linux", target_pointer_width = "64"));
    const HAS_PAGE: bool = cfg!(feature = "page");

    #[test]
    fn the_table_names_verbs_and_options_that_exist() {
        let command = crate::command();
        for common in COMMON {
            let verb = common.verb;
            if !HAS_STREAMS && (verb.starts_with("live") || verb == "send") {
                continue;
            }
            let found = verb.split(' ').try_fold(&command, |own, name| own.find_subcommand(name));
            let own = found.unwrap_or_else(|| panic!("no verb {verb}"));
            for option in common.options.split(' ').filter(|option| HAS_PAGE || *option != "page") {
                let mut arguments = own.get_arguments();
                let found = arguments.any(|argument| argument.get_long() == Some(option));
                assert!(found, "{verb} has no option {option}");
            }
        }
    }
}
