//! Page of a live run: a web server that shows rates and losses, latency, spectra and candidates, and takes labels.

mod board;
mod dumps;
mod guard;
mod labels;
mod metrics;
mod sampler;
mod server;
mod status;
mod strain;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use board::{About, Board};
use clap::Args;
use guard::{Guard, Token};
use sampler::Sampler;
use server::{Server, Shared};
use sidereal::{Error, Result};

use crate::alerts::Inlet;
use crate::common::Common;
use crate::provenance::Made;
use crate::say::{self, note};
use crate::spiir::Viewer;
use crate::watch::Watcher;

pub(crate) use board::Candidates;
pub(crate) use labels::LabelLine;
pub(crate) use status::Status;

/// Address and port without others.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PORT: u16 = 7149;

/// File of the token in the output folder.
const TOKEN: &str = "page-token";

/// Options of the page.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageArguments {
    /// Show the run as a web page at this address, or at 127.0.0.1:7149.
    ///
    /// An IP address, a port, or both: 0.0.0.0:8080, [::1]:8080, 8080; port 0 takes a free one. Whoever labels candidates needs the
    /// token in the file page-token of the output folder, as does whoever comes from another machine. Traffic is not encrypted: put a
    /// proxy with TLS before it, and name it with --page-host.
    #[arg(long, value_name = "ADDRESS", value_parser = address, help_heading = "Page")]
    page: Option<Option<SocketAddr>>,
    /// Read the page's token from this file instead of drawing one.
    #[arg(long, value_name = "FILE", help_heading = "Page")]
    page_token: Option<PathBuf>,
    /// Answer requests for this name of the machine, too, such as that of a proxy; it may be repeated.
    #[arg(long, value_name = "NAME", value_parser = host, help_heading = "Page")]
    page_host: Vec<String>,
}

/// Parses the address of the page.
fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(LOCAL, port));
    }
    let numbers = match text.strip_prefix("localhost") {
        Some(rest) if rest.is_empty() || rest.starts_with(':') => format!("{LOCAL}{rest}"),
        _ => text.to_owned(),
    };
    let bare = numbers.trim_start_matches('[').trim_end_matches(']');
    let ip = || bare.parse().map(|ip| SocketAddr::new(ip, PORT));
    numbers.parse().or_else(|_| ip()).map_err(|_| {
        "expected an IP address, a port, or both, such as 127.0.0.1:7149 or [::1]:7149".to_owned()
    })
}

/// Checks a further name.
fn host(text: &str) -> std::result::Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !text.is_empty() && text.bytes().all(is_letter);
    let why = "expected a name or an IPv4 address without a port, such as telescope.example";
    if is_name { Ok(text.to_ascii_lowercase()) } else { Err(why.to_owned()) }
}

/// Page of this run, which is served until this value is dropped.
pub(crate) struct Page {
    board: Arc<Board>,
    /// Fields are dropped in this order: no request comes to a board that nobody fills.
    _server: Server,
    _sampler: Sampler,
}

impl Page {
    /// Returns what shows a search of strain.
    pub(crate) fn viewer(&self) -> Arc<dyn Viewer> {
        let board: Arc<Board> = Arc::clone(&self.board);
        board
    }

    /// Returns what watches the run.
    pub(crate) fn watcher(&self) -> Arc<dyn Watcher> {
        let board: Arc<Board> = Arc::clone(&self.board);
        board
    }
}

impl PageArguments {
    /// Checks what needs no socket.
    ///
    /// # Errors
    /// Those of the token's file; [`Error::Parameter`] for an option that needs --page.
    pub(crate) fn check(&self) -> Result<()> {
        let needs = |option| Err(Error::parameter(option, "given", "it needs --page"));
        match (&self.page, &self.page_token) {
            (None, Some(_)) => needs("--page-token"),
            (None, None) if !self.page_host.is_empty() => needs("--page-host"),
            (Some(_), Some(file)) => Token::read(file).map(drop),
            (_, None) => Ok(()),
        }
    }

    /// Starts the page if it is wanted; `folder` is that of the output, which is made if it is missing. Triggers that come to it are
    /// put in the queue, if there is one.
    ///
    /// # Errors
    /// Those of [`PageArguments::check`]; [`Error::Io`] if the address is in use or the folder cannot be written.
    pub(crate) fn start(
        &self,
        folder: &Path,
        triggers: Option<Inlet>,
        common: &Common,
    ) -> Result<Option<Page>> {
        self.check()?;
        let Some(address) = self.page else { return Ok(None) };
        let address = address.unwrap_or(SocketAddr::new(LOCAL, PORT));
        let failed = |error| Error::io(format!("{address} (--page)"), error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        let file = self.page_token.clone().unwrap_or_else(|| folder.join(TOKEN));
        let token = match &self.page_token {
            Some(file) => Token::read(file)?,
            None => Token::draw(&file)?,
        };
        let verb = common.command_line.verb.clone();
        let (folder, made) = (folder.to_path_buf(), Made::new(common, &[])?);
        let board = Arc::new(Board::new(About { verb, folder, made }));
        let guard = Guard { address, names: self.page_host.clone(), token };
        let sampler = Sampler::start(Arc::clone(&board))?;
        let server = Server::start(listener, Shared::new(Arc::clone(&board), guard, triggers))?;
        let words = format!("page: http://{address}/ (token in {})", file.display());
        if common.quiet {
            say::log(tracing::Level::INFO, &words);
        } else {
            note!("{words}");
        }
        Ok(Some(Page { board, _server: server, _sampler: sampler }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_defaults() {
        for (text, expected) in [
            ("7000", "127.0.0.1:7000"),
            ("127.0.0.1", "127.0.0.1:7149"),
            ("localhost", "127.0.0.1:7149"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("::1", "[::1]:7149"),
            ("[::1]", "[::1]:7149"),
            ("[::]:8080", "[::]:8080"),
        ] {
            assert_eq!(address(text).map(|one| one.to_string()), Ok(expected.into()), "{text}");
        }
        for text in ["", "telescope.example", "spead://:7148", "1.2.3.4:x", "70000", "localhosts"] {
            assert!(address(text).is_err(), "{text}");
        }
        assert_eq!(host("Telescope.Example").unwrap(), "telescope.example");
        assert!(host("a:1").is_err() && host("").is_err() && host("a/b").is_err());
    }
}
