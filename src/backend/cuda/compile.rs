//! Compilation of CUDA kernels at run time by NVRTC, and the architecture that they are compiled for: the device's own,
//! or an older one if NVRTC does not know it.

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcResult};

use super::startup::{self, Step};
use crate::error::{Error, Result};

/// Headers that every kernel can include: helpers, and PTX instructions without a C++ equivalent.
pub const HEADERS: &[(&str, &str)] =
    &[("device.cuh", include_str!("device.cuh")), ("ptx.cuh", include_str!("ptx.cuh"))];

/// Kernel file and the values of its constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, for messages.
    pub name: &'static str,
    /// Text of the file.
    pub text: &'static str,
    /// Other files that it includes, by name, besides [`HEADERS`].
    pub includes: &'static [(&'static str, &'static str)],
    /// Constants: names and values.
    pub defines: Vec<(&'static str, String)>,
}

/// Program that compiles a kernel: it calls `CompileRequest::from_environment` first.
#[derive(Clone, Debug)]
pub struct CompilerProgram {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Compiled code and the compiler's messages.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code, or zero-terminated PTX for an architecture `compute_NN`.
    pub code: Vec<u8>,
    /// Log of the compiler.
    pub log: String,
    /// Resources of each kernel; empty for PTX.
    pub resources: Vec<Resources>,
}

/// Resources that a kernel needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Name of the kernel.
    pub kernel: String,
    /// Registers per thread.
    pub registers: usize,
    /// Bytes of static shared memory per block.
    pub shared_bytes: usize,
    /// Bytes of stack frame per thread.
    pub stack_bytes: usize,
    /// Bytes of spilled registers: stores and loads.
    pub spill_bytes: usize,
    /// Bytes of local memory.
    pub local_bytes: usize,
}

impl Source {
    /// Returns the compiler options for `architecture`.
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

impl Compiled {
    /// Returns defects of the machine code, one line each: spilled registers, stack frames or local memory,
    /// serialized matrix instructions (`wgmma`), and compiler warnings.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for found in &self.resources {
            let parts = [
                (found.spill_bytes, "bytes of registers spilled"),
                (found.stack_bytes, "bytes of stack frame"),
                (found.local_bytes, "bytes of local memory"),
            ];
            let parts = parts.iter().filter(|part| part.0 > 0);
            problems.extend(parts.map(|(bytes, what)| format!("{}: {bytes} {what}", found.kernel)));
        }
        let said = self.log.lines().filter(|line| is_problem(line));
        problems.extend(said.map(|line| line.trim().to_owned()));
        problems.dedup();
        problems
    }
}

/// Returns whether a line of the compiler's log reports a defect.
fn is_problem(line: &str) -> bool {
    /// Notes on serialized `wgmma`, which the compiler reports only as information.
    const NOTES: [&str; 6] = ["C7510", "C7511", "C7512", "C7513", "C7514", "C7515"];
    let is_warning = line.contains("warning") && !line.starts_with("Remark:");
    is_warning || NOTES.iter().any(|note| line.contains(note))
}

/// Compiles for an architecture such as `sm_80` or `sm_90a`; `compute_90` yields PTX.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC or for an architecture unknown to it; [`Error::Device`] with the compiler's
/// log if the source is rejected.
pub fn compile(source: &Source, architecture: &str) -> Result<Compiled> {
    let unavailable = |why| Error::Unavailable { what: "compiling CUDA kernels".to_owned(), why };
    let (major, minor) = nvrtc()?;
    let mut program = Program::new(source)?;
    let compiled = program.compile(&source.options(architecture));
    let log = program.log();
    match compiled {
        Ok(()) => {}
        Err(nvrtcResult::NVRTC_ERROR_INVALID_OPTION) if log.contains("gpu-architecture") => {
            let why = format!(
                "NVRTC {major}.{minor} does not know the architecture {architecture}: another version is \
                 needed (`pip install --upgrade nvidia-cuda-nvrtc`, or another CUDA toolkit)"
            );
            return Err(unavailable(why));
        }
        Err(result) => {
            let text = format!("{}: {log}", source.name);
            return Err(Error::Device { call: "nvrtcCompileProgram", code: result as i64, text });
        }
    }
    let code = if is_virtual(architecture) { program.ptx()? } else { program.cubin()? };
    let resources = resources(&log);
    Ok(Compiled { code, log, resources })
}

/// NVRTC handle of one compilation.
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
        // SAFETY: all strings are zero-terminated and outlive the call, which copies them.
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
        // SAFETY: the program is valid; the options outlive the call.
        let result =
            unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) };
        if result == nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(result) }
    }

    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program is valid; the buffer has the reported size of the log, including its zero.
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
        // SAFETY: the program is valid and was compiled for a real architecture; the buffer has the reported size.
        unsafe {
            checked("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(self.0, &raw mut bytes))?;
            let mut cubin = vec![0_u8; bytes];
            checked("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()))?;
            Ok(cubin)
        }
    }
}

impl Program {
    fn ptx(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is valid and was compiled; the buffer has the reported size, including the zero.
        unsafe {
            checked("nvrtcGetPTXSize", sys::nvrtcGetPTXSize(self.0, &raw mut bytes))?;
            let mut ptx = vec![0_u8; bytes.max(1)];
            checked("nvrtcGetPTX", sys::nvrtcGetPTX(self.0, ptx.as_mut_ptr().cast()))?;
            Ok(ptx)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once.
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

/// Parses the resource report of ptxas for each kernel; the functions that it calls are included.
fn resources(log: &str) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Resources { kernel, ..Resources::default() });
        } else if let Some(last) = found.last_mut() {
            if line.contains("bytes stack frame") {
                last.stack_bytes = last.stack_bytes.max(number(line, " bytes stack frame"));
                let spills = [" bytes spill stores", " bytes spill loads"];
                last.spill_bytes += spills.iter().map(|after| number(line, after)).sum::<usize>();
            } else if line.contains("Used ") {
                last.registers = number(line, " registers");
                last.shared_bytes = number(line, " bytes smem");
                last.local_bytes = number(line, " bytes lmem");
            }
        }
    }
    found
}

/// Returns the number before `after`, or 0.
fn number(line: &str, after: &str) -> usize {
    let before = line.split_once(after).map_or("", |(before, _)| before);
    let digits = before.rsplit(|letter: char| !letter.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Architectures that every kernel is compiled for, unless it needs Hopper's instructions.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_90a", "sm_100"];

/// Kernel file with its constants and target architectures.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Kernel file and constants.
    pub source: Source,
    /// NVRTC names of the architectures.
    pub architectures: &'static [&'static str],
}

/// Coverage of the table of kernels to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every value of every axis at least once.
    Representative,
    /// Every combination.
    All,
}

impl Variant {
    /// Creates a variant for all of [`ARCHITECTURES`].
    pub fn everywhere(source: Source) -> Self {
        Self { source, architectures: ARCHITECTURES }
    }

    /// Creates a variant of a short source of plain C++: for one architecture, or for all with [`Extent::All`].
    pub fn plain(source: Source, extent: Extent) -> Self {
        match extent {
            Extent::Representative => Self { source, architectures: &["sm_90a"] },
            Extent::All => Self::everywhere(source),
        }
    }

    /// Creates a variant for `sm_90a` only, for a source with Hopper's instructions.
    pub fn hopper(source: Source) -> Self {
        Self { source, architectures: &["sm_90a"] }
    }
}

/// Returns sets of constants from axes (name and values): as many sets as the longest axis has values, or the product
/// of all axes.
///
/// ```
/// use sidereal::backend::cuda::{Extent, combinations};
/// let axes: &[(&str, &[&str])] = &[("TYPE", &["u8", "i16"]), ("CHANNELS", &["256", "512", "1024"])];
/// assert_eq!(combinations(axes, Extent::Representative).len(), 3);
/// assert_eq!(combinations(axes, Extent::All).len(), 6);
/// ```
pub fn combinations(
    axes: &[(&'static str, &[&str])],
    extent: Extent,
) -> Vec<Vec<(&'static str, String)>> {
    let lengths = axes.iter().map(|axis| axis.1.len());
    let count = match extent {
        Extent::Representative => lengths.max().unwrap_or(0),
        Extent::All => lengths.product(),
    };
    (0..count).map(|index| combination(axes, extent, index)).collect()
}

fn combination(
    axes: &[(&'static str, &[&str])],
    extent: Extent,
    mut index: usize,
) -> Vec<(&'static str, String)> {
    let mut constants = Vec::with_capacity(axes.len());
    for (name, values) in axes {
        constants.push((*name, values[index % values.len()].to_owned()));
        if extent == Extent::All {
            index /= values.len();
        }
    }
    constants
}

/// Returns NVRTC's version, major and minor.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC, with what to install.
pub fn nvrtc() -> Result<(u32, u32)> {
    found_compiler().map(|compiler| compiler.version)
}

/// Like [`nvrtc`], with the supported architectures.
pub(super) fn found_compiler() -> Result<&'static Compiler> {
    let unavailable = |why: &String| Error::Unavailable {
        what: "compiling CUDA kernels".to_owned(),
        why: why.clone(),
    };
    installed().as_ref().map_err(unavailable)
}

/// Returns NVRTC's version, or instructions to install it.
pub(super) fn version() -> std::result::Result<(u32, u32), String> {
    installed().as_ref().map(|compiler| compiler.version).map_err(String::clone)
}

/// Returns NVRTC, or instructions to install it; looks it up only once.
pub(super) fn installed() -> &'static std::result::Result<Compiler, String> {
    static FOUND: OnceLock<std::result::Result<Compiler, String>> = OnceLock::new();
    FOUND.get_or_init(|| startup::timed(Step::Compiler, std::result::Result::is_ok, find))
}

fn find() -> std::result::Result<Compiler, String> {
    // SAFETY: only checks whether the library can be loaded.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "NVRTC (libnvrtc.so.13 or .12) is not on the library path: it comes with the CUDA \
                    toolkit, or with `pip install nvidia-cuda-nvrtc` (put its lib folder on \
                    LD_LIBRARY_PATH)"
                .to_owned(),
        );
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present; writes two integers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
    Ok(Compiler { version, known: known_capabilities() })
}

/// Returns the compute capabilities that NVRTC supports; empty if it does not report them. NVRTC must be present.
fn known_capabilities() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut known = vec![0_i32; usize::try_from(count).unwrap_or(0)];
    if !known.is_empty() {
        // SAFETY: writes the reported number of integers.
        let _ = unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    }
    known
        .into_iter()
        .filter_map(|known| u32::try_from(known).ok())
        .filter(|known| *known > 0)
        .collect()
}

/// Architecture that a device's kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Whether it is the device's own architecture. Code for an older one is PTX, which the driver compiles for the
    /// device.
    pub is_own: bool,
}

impl Target {
    /// Selects the newest architecture known to the compiler that is not newer than the device. If there is none,
    /// selects the device's own, which the compiler then rejects.
    pub(super) fn new(capability: (u32, u32), known: &[u32]) -> Self {
        let own = 10 * capability.0 + capability.1;
        let newest = known.iter().copied().filter(|known| *known <= own).max().unwrap_or(own);
        Self { capability: (newest / 10, newest % 10), is_own: newest == own }
    }

    /// Returns NVRTC's name of the architecture: `sm_90a` for capability 9.0 (the suffix enables its specific
    /// instructions), `sm_80` and the like for others, `compute_120` and the like for PTX.
    pub fn architecture(self) -> String {
        let (major, minor) = self.capability;
        if !self.is_own {
            return format!("{VIRTUAL}{major}{minor}");
        }
        let suffix = if self.capability == (9, 0) { "a" } else { "" };
        format!("sm_{major}{minor}{suffix}")
    }

    /// Returns a note for the user of a device if its kernels are compiled through PTX.
    pub(super) fn note(
        self,
        name: &str,
        (major, minor): (u32, u32),
        compiler: &Compiler,
    ) -> Option<String> {
        let (version, architecture) = (compiler.version_text(), self.architecture());
        (!self.is_own).then(|| {
            format!(
                "kernels for {name} are compiled through PTX ({architecture}), because NVRTC {version} does not know \
                 sm_{major}{minor}: a newer one makes them faster (`pip install --upgrade nvidia-cuda-nvrtc`, or \
                 another CUDA toolkit)"
            )
        })
    }
}

/// Prefix of architectures that are compiled to PTX.
const VIRTUAL: &str = "compute_";

/// Returns whether code for an architecture is PTX.
pub(super) fn is_virtual(architecture: &str) -> bool {
    architecture.starts_with(VIRTUAL)
}

/// Version and supported architectures of an installed or recorded NVRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiler {
    /// Major and minor.
    pub(super) version: (u32, u32),
    /// Supported compute capabilities, as 90 for 9.0.
    pub(super) known: Vec<u32>,
}

impl Compiler {
    /// Formats the version and the architectures as one line, for the record in the cache folder.
    pub(super) fn text(&self) -> String {
        let known: String = self.known.iter().map(|known| format!(" {known}")).collect();
        format!("{}{known}\n", self.version_text())
    }

    /// Parses the line that [`Compiler::text`] formats.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (major, minor) = words.next()?.split_once('.')?;
        let version = (major.parse().ok()?, minor.parse().ok()?);
        let known = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self { version, known })
    }

    fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'fir' for 'sm_90a'\n\
        ptxas info    : Function properties for fir\n    \
        0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 126 registers, used 1 barriers, 1024 bytes smem\n\
        ptxas info    : Compile time = 3.9 ms\n";

    fn compiled(log: &str) -> Compiled {
        Compiled { code: Vec::new(), log: log.to_owned(), resources: resources(log) }
    }

    #[test]
    fn the_assemblers_report_is_read() {
        let expected = Resources {
            kernel: "fir".to_owned(),
            registers: 126,
            shared_bytes: 1024,
            ..Resources::default()
        };
        assert_eq!(resources(LOG), [expected]);
        assert_eq!(compiled(LOG).problems(), [""; 0]);
    }

    #[test]
    fn spills_a_stack_and_serialized_instructions_are_problems() {
        let spilled = LOG.replace(
            "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
            "16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads",
        );
        let expected = ["fir: 12 bytes of registers spilled", "fir: 16 bytes of stack frame"];
        assert_eq!(compiled(&spilled).problems(), expected);
        let local = LOG.replace("smem", "smem, 40 bytes lmem");
        assert_eq!(compiled(&local).problems(), ["fir: 40 bytes of local memory"]);
        for number in 7510..=7515 {
            let note = format!(
                "ptxas info    : (C{number}) Potential Performance Loss: wgmma.mma_async \
                instructions are serialized due to insufficient register resources"
            );
            assert_eq!(compiled(&format!("{LOG}{note}\n")).problems(), [note]);
        }
        let warning = "fir.cu(3): warning #177-D: variable \"x\" was declared but never referenced";
        let remark = "Remark: The warnings can be suppressed with \"-diag-suppress <number>\"";
        assert_eq!(compiled(&format!("{warning}\n{remark}\n{LOG}")).problems(), [warning]);
    }

    #[test]
    fn functions_that_a_kernel_calls_count_with_it() {
        let called = "ptxas info    : Function properties for helper\n    \
            32 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n";
        let found = resources(&format!("{LOG}{called}"));
        assert_eq!((found[0].stack_bytes, found[0].spill_bytes), (32, 8));
    }

    const AXES: &[(&str, &[&str])] = &[("A", &["1", "2", "3"]), ("B", &["x", "y"]), ("C", &["0"])];

    #[test]
    fn all_are_different() {
        let mut all = combinations(AXES, Extent::All);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn representatives_hold_each_value() {
        let few = combinations(AXES, Extent::Representative);
        assert_eq!(few.len(), 3);
        for (name, values) in AXES {
            for value in *values {
                assert!(few.iter().flatten().any(|found| found.0 == *name && found.1 == *value));
            }
        }
    }
}

#[cfg(test)]
mod target_tests {
    use super::*;

    const KNOWN: [u32; 12] = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

    fn architecture(capability: (u32, u32)) -> String {
        Target::new(capability, &KNOWN).architecture()
    }

    #[test]
    fn a_device_that_is_known_has_its_own_code() {
        assert_eq!(architecture((9, 0)), "sm_90a");
        assert_eq!(architecture((8, 9)), "sm_89");
        assert_eq!(architecture((12, 1)), "sm_121");
    }

    #[test]
    fn a_newer_one_has_ptx_of_the_newest_before_it_without_its_own_instructions() {
        assert_eq!(architecture((13, 0)), "compute_121");
        assert_eq!(architecture((99, 9)), "compute_121");
        assert_eq!(architecture((10, 1)), "compute_100");
        let before_hopper = Target::new((9, 0), &KNOWN[..6]);
        assert_eq!(before_hopper.architecture(), "compute_89");
        assert_eq!((before_hopper.capability, before_hopper.is_own), ((8, 9), false));
        assert!(is_virtual("compute_90") && !is_virtual("sm_90"));
    }

    #[test]
    fn one_that_is_older_than_all_or_of_a_compiler_that_says_nothing_stays_what_it_is() {
        assert_eq!(architecture((5, 2)), "sm_52");
        assert_eq!(Target::new((9, 0), &[]).architecture(), "sm_90a");
    }

    #[test]
    fn the_note_names_what_is_missing() {
        let compiler = Compiler { version: (13, 0), known: KNOWN.to_vec() };
        let note = |capability| Target::new(capability, &KNOWN).note("GPU", capability, &compiler);
        let text = note((13, 0)).expect("it is newer");
        for word in ["GPU", "PTX", "compute_121", "NVRTC 13.0 ", "sm_130", "pip install"] {
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(note((9, 0)), None);
    }

    #[test]
    fn a_compiler_is_read_again_from_its_line() {
        let compiler = Compiler { version: (13, 0), known: KNOWN.to_vec() };
        assert_eq!(Compiler::parse(&compiler.text()), Some(compiler));
        let bare = Compiler { version: (12, 8), known: Vec::new() };
        assert_eq!(Compiler::parse("12.8\n"), Some(bare));
        for damaged in ["", "13", "13.x", "-1.0", "13.0 80 x"] {
            assert_eq!(Compiler::parse(damaged), None, "{damaged}");
        }
    }
}
