//! Quick starts: a stage begins with a kernel that compiles in a short time, and takes the best one once another process
//! has compiled it into the cache.
//!
//! Both kernels take the same arguments and give the same results. The other process may outlive this one: a search of
//! seconds of data ends before the best kernel is ready, and the next search finds it in the cache.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::{CompilerProgram, Device, Module, Source, cache, startup};
use crate::error::{Error, Result};

/// Environment variable of the compiling process: architecture, name of the kernel file, and its constants, a line each.
const REQUEST: &str = "SIDEREAL_COMPILE";

/// Best kernel file of a stage, while another process compiles it.
#[derive(Debug)]
pub struct Better {
    source: Source,
    process: Arc<Mutex<Child>>,
}

/// Requests made so far, and the processes that compile them: stages with the same kernel share one.
static PROCESSES: Mutex<Vec<(String, Arc<Mutex<Child>>)>> = Mutex::new(Vec::new());

/// Kernel that this process was started to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileRequest(String);

impl Device {
    /// Returns the same GPU and peers with quick starts allowed: `compiler` is run to compile the best kernels.
    #[must_use]
    pub fn with_quick_start(self, compiler: CompilerProgram) -> Self {
        for device in self.joined() {
            device.state().quick_start = Some(compiler.clone());
        }
        self
    }

    /// Returns whether a stage begins with a quick kernel instead of `best`: quick starts are allowed, and `best` is
    /// neither loaded nor in the cache on disk. Kernels that are being tuned are always the best.
    pub fn begins_quickly(&self, best: &Source) -> bool {
        let state = self.state();
        let is_allowed = state.quick_start.is_some() && !state.is_tuning;
        drop(state);
        is_allowed && cache::keeps() && !cache::is_at_hand(best, &self.architecture())
    }

    /// Loads `best`, or `quick` if the stage begins with it; another process then compiles `best`.
    ///
    /// # Errors
    /// As [`Device::module`].
    pub fn module_or_quick(
        &self,
        best: &Source,
        quick: &Source,
    ) -> Result<(Module, Option<Better>)> {
        let compiler = self.state().quick_start.clone();
        let compiler = compiler.filter(|_| self.begins_quickly(best));
        // Without a process, the best kernel is compiled now.
        let better = compiler.and_then(|program| Better::begin(&program, best, self));
        let module = self.module(if better.is_some() { quick } else { best })?;
        Ok((module, better))
    }
}

impl Better {
    fn begin(program: &CompilerProgram, source: &Source, device: &Device) -> Option<Self> {
        let request = request(source, &device.architecture());
        let mut processes = PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let process = match processes.iter().find(|(other, _)| *other == request) {
            Some((_, process)) => Arc::clone(process),
            None => {
                let process = Command::new(&program.path)
                    .args(&program.arguments)
                    .env(REQUEST, &request)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .ok()?;
                let process = Arc::new(Mutex::new(process));
                processes.push((request, Arc::clone(&process)));
                process
            }
        };
        startup::began_quickly();
        Some(Self { source: source.clone(), process })
    }

    /// Returns whether the process has ended.
    pub fn is_ready(&self) -> bool {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(process.try_wait(), Ok(None))
    }

    /// Loads the kernel file. Returns `None` if the process did not compile it.
    pub fn module(&self, device: &Device) -> Option<Module> {
        let is_there = cache::is_at_hand(&self.source, &device.architecture());
        is_there.then(|| device.module(&self.source).ok()).flatten()
    }
}

/// Formats a request.
fn request(source: &Source, architecture: &str) -> String {
    let constants = source.defines.iter().map(|(name, value)| format!("\n{name}={value}"));
    format!("{architecture}\n{}{}", source.name, constants.collect::<String>())
}

impl CompileRequest {
    /// Returns the request that a program with quick starts has made of this process.
    pub fn from_environment() -> Option<Self> {
        std::env::var(REQUEST).ok().map(Self)
    }

    /// Compiles the requested kernel, one of `sources`, into the cache.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not one of them; as [`Device::module`].
    pub fn compile(&self, sources: impl IntoIterator<Item = Source>) -> Result<()> {
        let architecture = self.0.lines().next().unwrap_or_default();
        let is_requested = |source: &Source| request(source, architecture) == self.0;
        let Some(source) = sources.into_iter().find(is_requested) else {
            let (what, why) = (format!("a kernel by {REQUEST}"), "none is so named".to_owned());
            return Err(Error::Unavailable { what, why });
        };
        cache::cubin(&source, architecture).map(drop)
    }
}
