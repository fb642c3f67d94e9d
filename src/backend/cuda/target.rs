//! Target architecture of the kernels: the device's own, or an older one if NVRTC does not know it.

/// Architecture that a device's kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Whether it is the device's own. Code for an older architecture is PTX, which the driver compiles for the
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

/// Version and architectures of an NVRTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiler {
    /// Major and minor.
    pub(super) version: (u32, u32),
    /// Supported compute capabilities, as 90 for 9.0.
    pub(super) known: Vec<u32>,
}

impl Compiler {
    /// Formats the compiler as one line, for the file that records it.
    pub(super) fn text(&self) -> String {
        let known: String = self.known.iter().map(|known| format!(" {known}")).collect();
        format!("{}{known}\n", self.version_text())
    }

    /// Parses that line.
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
