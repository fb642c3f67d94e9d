//! The options that every verb has, and what follows from them.

use std::path::PathBuf;

use clap::Args;
use sidereal::backend::Backend;
use sidereal::backend::simd::{self, Level};
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::provenance::Asked;
use crate::say::note;

/// Where the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The processor's vector instructions.
    Cpu,
    /// The slow equations in double precision, to check the others.
    Reference,
    /// A GPU of NVIDIA's, by its number.
    Cuda(usize),
    /// The fastest that this machine has for the work.
    Auto,
}

/// What `--device auto` weighs: a GPU takes a second to get ready, more where kernels are not yet compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// The bytes that come in, or are made; none if nobody knows.
    bytes: Option<u64>,
    /// What they are.
    of: &'static str,
    /// From how many on a GPU is worth it.
    worth_bytes: u64,
}

impl Work {
    /// Trial dispersion measures: much work for each byte that comes in.
    pub(crate) fn on_trials(inputs: &[PathBuf]) -> Self {
        Self { bytes: bytes(inputs), of: "data", worth_bytes: 64 << 20 }
    }

    /// A filter bank's: done about as fast as files are read.
    pub(crate) fn on_voltages(inputs: &[PathBuf]) -> Self {
        Self { bytes: bytes(inputs), of: "data", worth_bytes: 1 << 30 }
    }

    /// Matched filters': 8 bytes of signal-to-noise ratio for each template and sample.
    pub(crate) fn on_ratios(ratios: u64) -> Self {
        let bytes = Some(ratios.saturating_mul(8));
        Self { bytes, of: "signal-to-noise ratios", worth_bytes: 4 << 30 }
    }

    fn is_worth_a_gpu(self) -> bool {
        self.bytes.is_none_or(|bytes| bytes >= self.worth_bytes)
    }
}

/// What the files hold; none for a pipe, or for the first part of a recording that names the others.
fn bytes(inputs: &[PathBuf]) -> Option<u64> {
    let sizes = inputs.iter().map(|path| match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Some(found.len()),
        Ok(_) => None,
        Err(_) => {
            let mut first = path.clone().into_os_string();
            first.push(".0000.raw");
            let is_known = path.as_os_str() != "-" && std::fs::metadata(first).is_err();
            is_known.then_some(0)
        }
    });
    sizes.sum()
}

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Where to run: cpu; cuda, cuda:1 (an NVIDIA GPU, by the number that `sidereal devices` shows);
    /// reference (the slow equations, to check the others); or auto: a GPU where there is one and the work is
    /// worth its start, else the CPU. Of a recording that is from 64 MiB on in search and dedisperse, from
    /// 1 GiB on in channelize and correlate, and standard input always; of strain from 4 GiB of signal-to-noise ratios on
    /// (templates x samples x 8 bytes) in spiir.
    #[arg(
        long,
        default_value = "auto",
        value_name = "DEVICE",
        value_parser = parse_device,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) device: Device,
    /// Threads to use; 0 means one a core.
    #[arg(short = 't', long, default_value_t = 0, global = true, help_heading = "Common options")]
    pub(crate) threads: usize,
    /// The most memory that buffers may take, of the host and of a GPU: 500M, 4G, 512MiB. Blocks get shorter, results stay
    /// the same; what does not fit is refused with its need. By default the host has no limit, and a GPU its free memory.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) memory: Option<u64>,
    /// Vector instructions to use [default: the widest that the processor has]. Sums of floats differ in
    /// their last digits between levels: name the level to make one machine's results again on another.
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = simd::NAMES,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) simd: Option<String>,
    /// Append what is said, with times (UTC) and levels, and the progress of long work to a file.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Common options")]
    pub(crate) log_file: Option<PathBuf>,
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
    /// Do not wait until files are on the disk before they get their names: faster on a slow disk, but a power cut may
    /// then leave empty files under final names.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) no_sync: bool,
    /// Leave out of products all that differs from run to run: date (1970, or that of SOURCE_DATE_EPOCH, which has the
    /// same effect), host, device, command and times. The same data and options then give the same bytes.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) reproducible: bool,
    /// The command as it was given, which products tell.
    #[arg(skip)]
    pub(crate) asked: Asked,
}

impl Common {
    /// The backend that `--device` and `--threads` ask for; `auto` is the CPU.
    ///
    /// # Errors
    /// As [`Common::threads`]; [`Error::Unavailable`] for a GPU that can't be had.
    pub(crate) fn backend(&self) -> Result<Backend> {
        let (threads, level) = (self.threads()?, self.level()?);
        match self.device {
            Device::Reference => Ok(Backend::Reference),
            Device::Cpu | Device::Auto => Ok(Backend::Cpu(level, Threads::new(threads))),
            Device::Cuda(ordinal) => {
                gpu(ordinal, threads, level).map(|backend| self.limited(backend))
            }
        }
    }

    /// The vector level that `--simd` asks for, else the widest.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for one that this machine lacks.
    fn level(&self) -> Result<Level> {
        self.simd.as_deref().map_or_else(|| Ok(Level::best()), Level::named)
    }

    /// The backend where it does not hang on the work; `None` where [`Common::backend_for`] chooses one.
    ///
    /// # Errors
    /// As [`Common::backend`].
    pub(crate) fn asked_backend(&self) -> Result<Option<Backend>> {
        self.threads()?;
        (self.device != Device::Auto).then(|| self.backend()).transpose()
    }

    /// As [`Common::backend`], for work that GPUs have kernels for: `auto` is the GPU if there is one and the
    /// work is worth it, and it is said which was taken.
    ///
    /// # Errors
    /// As [`Common::backend`].
    pub(crate) fn backend_for(&self, work: Work) -> Result<Backend> {
        if self.device != Device::Auto || !work.is_worth_a_gpu() {
            return self.backend();
        }
        match gpu_for_all(self.threads()?, self.level()?) {
            Ok(backend) => {
                let backend = self.limited(backend);
                if !self.quiet {
                    let size = work.bytes.map_or_else(
                        || "data of unknown length".to_owned(),
                        |bytes| format!("{} MiB of {}", bytes >> 20, work.of),
                    );
                    note!("on {}, for {size}; --device cpu takes the processor.", backend.name());
                }
                Ok(backend)
            }
            Err(why) => {
                let backend = self.backend()?;
                // A GPU that lies idle is worth a word.
                if !self.quiet && (self.verbose || has_gpu()) {
                    note!("on {}: {why}", backend.name());
                }
                Ok(backend)
            }
        }
    }

    /// The backend, its GPU limited to `--memory`.
    fn limited(&self, backend: Backend) -> Backend {
        #[cfg(feature = "cuda")]
        if let (Backend::Cuda(device, _), Some(bytes)) = (&backend, self.memory) {
            device.limit_memory(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        backend
    }

    /// Refuses a GPU for a verb that has no kernels for one.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(crate) fn on_host_only(&self, verb: &str) -> Result<()> {
        match self.device {
            Device::Cuda(_) => {
                let rule = format!("{verb} has no kernels for a GPU: use cpu or auto");
                Err(Error::parameter("--device", "cuda", rule))
            }
            Device::Cpu | Device::Reference | Device::Auto => Ok(()),
        }
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

/// Tells what the backend's user should know of the run: tuned choices that no longer hold, kernels that are compiled for an
/// earlier device.
pub(crate) fn tell_notes(backend: &Backend, common: &Common) {
    #[cfg(feature = "cuda")]
    if let Backend::Cuda(device, _) = backend
        && !common.quiet
    {
        for note in device.take_notes() {
            note!("{note}");
        }
    }
    #[cfg(not(feature = "cuda"))]
    let _ = (backend, common);
}

/// A size as it is written on the command line: a number with K, M, G or T, each 1024 of the one before.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let rule = "it must be a number of bytes above 0 with K, M, G or T: 500M, 4G, 1.5GiB";
    let word = text.trim().to_ascii_lowercase();
    let number = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = word[number.len()..].trim_end_matches("ib").trim_end_matches('b');
    let power = ["", "k", "m", "g", "t"].iter().position(|own| *own == unit).ok_or(rule)?;
    let bytes = number.trim().parse::<f64>().map_err(|_| rule)? * 1024_f64.powi(power as i32);
    if (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(rule.to_owned()) }
}

/// A device as it is written on the command line.
fn parse_device(text: &str) -> std::result::Result<Device, String> {
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "cpu" => return Ok(Device::Cpu),
        "reference" => return Ok(Device::Reference),
        "auto" => return Ok(Device::Auto),
        "cuda" => return Ok(Device::Cuda(0)),
        _ => {}
    }
    let rule = "it must be cpu, reference, cuda, cuda:0, cuda:1 and so on, or auto";
    let number = word.strip_prefix("cuda:").ok_or(rule)?;
    number.parse().map(Device::Cuda).map_err(|_| rule.to_owned())
}

/// A GPU that there are kernels for, or that some can be compiled for.
#[cfg(feature = "cuda")]
fn gpu(ordinal: usize, threads: usize, level: Level) -> Result<Backend> {
    use sidereal::backend::cuda;
    let device = cuda::Device::open(ordinal)?.with_host_level(level);
    cuda::kernels_at_hand()?;
    Ok(Backend::Cuda(device, Threads::new(threads)))
}

/// The first GPU, if any kernel can be compiled for it.
#[cfg(feature = "cuda")]
fn gpu_for_all(threads: usize, level: Level) -> Result<Backend> {
    let backend = gpu(0, threads, level)?;
    sidereal::backend::cuda::nvrtc()?;
    Ok(backend)
}

#[cfg(feature = "cuda")]
fn has_gpu() -> bool {
    sidereal::backend::cuda::Device::count().is_ok_and(|count| count > 0)
}

#[cfg(not(feature = "cuda"))]
fn gpu(ordinal: usize, _: usize, _: Level) -> Result<Backend> {
    Err(Error::Unavailable {
        what: format!("CUDA device {ordinal}"),
        why: "this program was built without the feature `cuda`".to_owned(),
    })
}

#[cfg(not(feature = "cuda"))]
fn gpu_for_all(threads: usize, level: Level) -> Result<Backend> {
    gpu(0, threads, level)
}

#[cfg(not(feature = "cuda"))]
fn has_gpu() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let cases = [
            ("cpu", Device::Cpu),
            ("reference", Device::Reference),
            ("auto", Device::Auto),
            ("cuda", Device::Cuda(0)),
            ("CUDA:3", Device::Cuda(3)),
        ];
        for (text, device) in cases {
            assert_eq!(parse_device(text), Ok(device));
        }
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda3", "cuda:99999999999999999999"]
        {
            let error = parse_device(text).expect_err(text);
            assert!(error.contains("cuda:1"), "{error}");
        }
    }

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("1", 1),
            ("512MiB", 512 << 20),
            ("4G", 4 << 30),
            ("1.5gb", 3 << 29),
            ("64 K", 64 << 10),
            ("2TiB", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "4X", "G", "nan", "inf", "1e30", "4Gi4"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_gpu_is_for_much_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, mebibytes: u64| {
            let path = folder.path().join(name);
            std::fs::File::create(&path)
                .and_then(|file| file.set_len(mebibytes << 20))
                .expect("room");
            path
        };
        let (small, large) = (file("a", 40), file("b", 1024));
        let trials = |paths: &[&PathBuf]| {
            Work::on_trials(&paths.iter().map(|path| (*path).clone()).collect::<Vec<_>>())
        };
        assert!(!trials(&[&small]).is_worth_a_gpu());
        assert!(trials(&[&small, &small]).is_worth_a_gpu());
        assert!(trials(&[&"-".into()]).is_worth_a_gpu(), "a pipe may hold any number");
        assert!(!trials(&[&folder.path().join("missing")]).is_worth_a_gpu());
        assert!(!Work::on_voltages(&[small.clone(), small]).is_worth_a_gpu());
        assert!(Work::on_voltages(&[large]).is_worth_a_gpu());
        assert!(!Work::on_ratios(1000 * 4096).is_worth_a_gpu(), "one template");
        assert!(Work::on_ratios(1024 * 2 * 64 * 4096).is_worth_a_gpu());
        file("v.0000.raw", 1);
        assert!(Work::on_voltages(&[folder.path().join("v")]).is_worth_a_gpu());
    }
}
