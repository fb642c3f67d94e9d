//! Kernels' source to machine code for one architecture, by NVRTC; no GPU is needed.

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::sys::{self, nvrtcResult};

use super::{HEADERS, status};
use crate::error::{Error, Result};

/// What is compiled: a kernel file of ours, and what its constants are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name, for messages.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
    /// Further files that it includes, by name, besides [`HEADERS`].
    pub includes: &'static [(&'static str, &'static str)],
    /// Constants: name and value of each.
    pub defines: Vec<(&'static str, String)>,
}

/// Machine code, and what the compiler said of it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// The compiler's words.
    pub log: String,
    /// What each kernel needs.
    pub resources: Vec<Resources>,
}

/// What a kernel needs of a multiprocessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The kernel.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: usize,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: usize,
    /// Bytes of a thread's stack frame.
    pub stack_bytes: usize,
    /// Bytes of registers that are spilled: stores and loads.
    pub spill_bytes: usize,
}

impl Source {
    /// The options of a compilation for `architecture`.
    pub(super) fn options(&self, architecture: &str) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".to_owned(),
            "-default-device".to_owned(),
            "--ptxas-options=-v".to_owned(),
        ];
        options.extend(self.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }
}

/// Compiles for an architecture: `sm_80`, `sm_90a`.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC or for an architecture that it does not know; [`Error::Device`] with
/// the compiler's words when the source is refused.
pub fn compile(source: &Source, architecture: &str) -> Result<Compiled> {
    let unavailable = |why| Error::Unavailable { what: "CUDA kernels".to_owned(), why };
    status::nvrtc_version().map_err(unavailable)?;
    let mut program = Program::new(source)?;
    let compiled = program.compile(&source.options(architecture));
    let log = program.log();
    match compiled {
        Ok(()) => {}
        Err(nvrtcResult::NVRTC_ERROR_INVALID_OPTION) if log.contains("gpu-architecture") => {
            let why = format!("this NVRTC does not know {architecture}: a newer one is needed");
            return Err(unavailable(why));
        }
        Err(result) => {
            let text = format!("{}: {log}", source.name);
            return Err(Error::Device { call: "nvrtcCompileProgram", code: result as i64, text });
        }
    }
    let cubin = program.cubin()?;
    let resources = resources(&log);
    Ok(Compiled { cubin, log, resources })
}

/// NVRTC's handle of one compilation.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(source: &Source) -> Result<Self> {
        let text = c_string(source.text);
        let name = c_string(source.name);
        let files: Vec<(CString, CString)> = HEADERS
            .iter()
            .chain(source.includes)
            .map(|(name, text)| (c_string(name), c_string(text)))
            .collect();
        let names: Vec<*const c_char> = files.iter().map(|file| file.0.as_ptr()).collect();
        let texts: Vec<*const c_char> = files.iter().map(|file| file.1.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings end with a zero and outlive the call, which copies them.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                text.as_ptr(),
                name.as_ptr(),
                files.len() as i32,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        checked("nvrtcCreateProgram", result)?;
        Ok(Self(program))
    }

    fn compile(&mut self, options: &[String]) -> std::result::Result<(), nvrtcResult> {
        let options: Vec<CString> = options.iter().map(|option| c_string(option)).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives; the options outlive the call.
        let result =
            unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) };
        if result == nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(result) }
    }

    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program lives; the log is written into as many bytes as it needs, with its zero.
        let log = unsafe {
            let _ = sys::nvrtcGetProgramLogSize(self.0, &raw mut bytes);
            let mut log = vec![0_u8; bytes.max(1)];
            let _ = sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast());
            log
        };
        let text = CStr::from_bytes_until_nul(&log).unwrap_or_default();
        text.to_string_lossy().into_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program lives and was compiled for a real architecture; the room is what it asked for.
        unsafe {
            checked("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(self.0, &raw mut bytes))?;
            let mut cubin = vec![0_u8; bytes];
            checked("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()))?;
            Ok(cubin)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn checked(call: &'static str, result: nvrtcResult) -> Result<()> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(Error::Device { call, code: result as i64, text: format!("{result:?}") })
}

/// What the assembler's report says of each kernel.
fn resources(log: &str) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    let number = |line: &str, before: &str| -> usize {
        let words = line.split(before).next().unwrap_or_default();
        let last = words.split_whitespace().next_back().unwrap_or_default();
        if line.contains(before) { last.parse().unwrap_or(0) } else { 0 }
    };
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Resources { kernel, ..Resources::default() });
        } else if let Some(last) = found.last_mut() {
            if line.contains("bytes stack frame") {
                last.stack_bytes = number(line, " bytes stack frame");
                let spills = [" bytes spill stores", " bytes spill loads"];
                last.spill_bytes = spills.iter().map(|before| number(line, before)).sum();
            } else if line.contains("Used ") {
                last.registers = number(line, " registers");
                last.shared_bytes = number(line, " bytes smem");
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_report_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'fir' for 'sm_90a'\n\
            ptxas info    : Function properties for fir\n    \
            16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 126 registers, used 1 barriers, 1024 bytes smem\n";
        let expected = Resources {
            kernel: "fir".to_owned(),
            registers: 126,
            shared_bytes: 1024,
            stack_bytes: 16,
            spill_bytes: 12,
        };
        assert_eq!(resources(log), [expected]);
    }
}
