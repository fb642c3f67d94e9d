//! The options that every verb has, and what follows from them.

use clap::{Args, ValueEnum};
use sidereal::backend::Backend;
use sidereal::{Error, Result};

/// Where the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The processor's vector instructions.
    Cpu,
    /// The slow equations in double precision, to check the others.
    Reference,
    /// The fastest that this machine has for the work.
    Auto,
}

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Where to run.
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) device: Device,
    /// Threads to use; 0 means one a core.
    #[arg(short = 't', long, default_value_t = 0, global = true, help_heading = "Common options")]
    pub(crate) threads: usize,
    /// Print one JSON document on standard output, and nothing else.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Say more about what is done.
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) verbose: bool,
    /// Say nothing but errors.
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// Show no progress bar.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) no_progress: bool,
}

impl Common {
    /// The backend that `--device` and `--threads` ask for.
    ///
    /// # Errors
    /// As [`Common::threads`].
    pub(crate) fn backend(&self) -> Result<Backend> {
        let threads = self.threads()?;
        Ok(match self.device {
            Device::Reference => Backend::Reference,
            Device::Cpu | Device::Auto => Backend::best(threads),
        })
    }

    /// How many threads are asked for.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than any machine could start.
    pub(crate) fn threads(&self) -> Result<usize> {
        let most = 1024;
        if self.threads > most {
            let rule = format!("it must be 0 (one a core) to {most}");
            return Err(Error::parameter("--threads", self.threads, rule));
        }
        Ok(self.threads)
    }
}
