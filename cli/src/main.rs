//! The `sidereal` program.

use std::process::ExitCode;

use sidereal::backend::cuda::CompilerProgram;

fn main() -> ExitCode {
    let program = std::env::current_exe().ok();
    let program = program.map(|path| CompilerProgram { path, arguments: Vec::new() });
    ExitCode::from(sidereal_cli::run(std::env::args_os().collect(), program))
}
