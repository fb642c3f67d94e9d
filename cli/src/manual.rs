//! `sidereal completions` and `sidereal man`: the description of the command line, for shells and for `man`.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::json;
use crate::output::{Existing, Files, WritingFiles};
use crate::say::note;

/// Print the script with which a shell completes verbs and options.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal completions bash > ~/.local/share/bash-completion/completions/sidereal\n  \
    sidereal completions zsh > ~/.zfunc/_sidereal\n  \
    sidereal completions fish > ~/.config/fish/completions/sidereal.fish")]
pub(crate) struct CompletionsArguments {
    /// Shell that reads the script.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual: pages for `man`, one for each verb.
///
/// `man` finds them if MANPATH or its option -M names the parent of FOLDER.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal man && man -M man sidereal-search\n  \
    sidereal man ~/.local/share/man/man1 --overwrite")]
pub(crate) struct ManArguments {
    /// Folder to write to; it is made if it is missing.
    #[arg(value_name = "FOLDER", default_value = "man/man1")]
    folder: PathBuf,
    /// Replace pages of the same names.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
}

/// Prints the completions of a shell for a command.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn complete(arguments: &CompletionsArguments, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "sidereal", &mut script);
    json::say(String::from_utf8_lossy(&script).trim_end())
}

/// Writes the pages of a command and of its verbs.
///
/// # Errors
/// [`Error::Parameter`] for pages that exist; [`Error::Io`].
pub(crate) fn write(arguments: &ManArguments, command: Command, common: &Common) -> Result<()> {
    let folder = &arguments.folder;
    let pages = pages(command)?;
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "FOLDER", existing, inputs: &[], common };
    let places: Vec<PathBuf> = pages.iter().map(|page| folder.join(&page.name)).collect();
    let files = Files::begin_all(&folder.join("sidereal"), &places, &writing)?;
    for (page, place) in pages.iter().zip(&places) {
        let path = files.file(place);
        fs::write(&path, &page.text).map_err(|error| Error::io(&path, error))?;
    }
    files.finish()?;
    if !common.quiet {
        note!("{}: {} pages", folder.display(), pages.len());
    }
    Ok(())
}

/// Page of the manual.
struct Page {
    /// Name of the file: `sidereal-search.1`.
    name: String,
    /// Text for troff.
    text: Vec<u8>,
}

/// Makes the pages of a command and of all its verbs.
fn pages(command: Command) -> Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<Page>) -> Result<()> {
    let source = format!("sidereal {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Manual of sidereal");
    let name = man.get_filename();
    let text = render(&man, command).map_err(|error| Error::io(&name, error))?;
    pages.push(Page { name, text });
    let mut verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs.try_for_each(|verb| add_pages(verb, pages))
}

/// Renders a page. The text below the options keeps its lines, because it has commands to copy.
fn render(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES AND NOTES"]).control("nf", []);
        for line in notes.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut text)?;
    }
    Ok(text)
}
