//! Tuning on a device: all candidates are measured, their bits are compared, and launch failures are reported.

#[path = "common/cuda.rs"]
mod cuda_device;

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::tune::{self, Candidate, Work};
use sidereal::backend::cuda::{
    Arguments, Buffer, Device, Function, Plane, PlaneKind, Source, Stream,
};
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::{Dedisperser, Options, Plan};
use sidereal::sample::Encoding;
use sidereal::units::{Band, DM_CONSTANT};

/// Writes numbers with the chosen number of threads; `EXTRA` is added to each.
const TEXT: &str = r#"
#include "device.cuh"
KERNEL number(u32* to, u32 count) {
  for (u32 i = threadIdx.x; i < count; i += STRIDE) to[i] = i + EXTRA;
}
"#;

const COUNT: usize = 4096;

fn source(threads: u32, extra: u32) -> Source {
    let defines = vec![("STRIDE", threads.to_string()), ("EXTRA", extra.to_string())];
    Source { defines, ..cuda_device::source("number.cu", TEXT) }
}

/// Threads, the added number, bytes of shared memory.
fn choice(threads: u32, extra: u32, shared_bytes: u32) -> Candidate {
    let values = vec![threads, extra, shared_bytes];
    Candidate { name: format!("{threads} threads"), values }
}

struct Numbers {
    output: Buffer<u32>,
    threads: usize,
    function: Function,
}

impl Numbers {
    fn new(device: &Device, candidates: &[Candidate]) -> Result<Self> {
        let choice = tune::select(device, &source(32, 0), "numbers=4096", candidates);
        let [threads, extra, shared_bytes] = choice.values[..] else { unreachable!() };
        let module = device.module(&source(threads, extra))?;
        let function = module.function("number", shared_bytes as usize)?;
        let output = device.buffer(COUNT)?;
        Ok(Self { output, threads: threads as usize, function })
    }
}

impl Work for Numbers {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let arguments = Arguments::new().with(self.output.address()).with(COUNT as u32);
        launch(stream, &self.function, self.threads, &arguments)
    }

    fn digest(&mut self) -> Result<u128> {
        tune::digest(&self.output)
    }
}

#[allow(unsafe_code)]
fn launch(
    stream: &Stream,
    function: &Function,
    threads: usize,
    arguments: &Arguments,
) -> Result<()> {
    // SAFETY: the arguments are the kernel's, and the buffer holds `COUNT` numbers.
    unsafe { stream.launch(function, [1, 1, 1], [threads, 1, 1], arguments) }
}

fn tuned(device: &Device, candidates: &[Candidate]) -> Result<Vec<tune::Tuned>> {
    let mut build = || -> Result<Box<dyn Work>> { Ok(Box::new(Numbers::new(device, candidates)?)) };
    tune::tune(device, &mut build, &mut |kernel, _| {
        assert_eq!(kernel, "number.cu");
        Ok(())
    })
}

#[test]
fn every_candidate_is_measured() {
    let Some(device) = cuda_device::device() else { return };
    let too_much = 100 << 20;
    let candidates = [choice(32, 0, 0), choice(64, 0, 0), choice(128, 0, too_much)];
    let tuned = tuned(&device, &candidates).expect("the first can be launched");
    assert_eq!(tuned.len(), 1);
    assert_eq!((tuned[0].kernel(), tuned[0].shape()), ("number.cu", "numbers=4096"));
    let measured = &tuned[0].measured;
    assert!(measured.iter().map(|one| &one.choice).eq(&candidates));
    for one in &measured[..2] {
        let (best, median) = *one.seconds.as_ref().expect("it can be launched");
        assert!(0.0 < best && best <= median, "{best} {median}");
    }
    let why = measured[2].seconds.as_ref().expect_err("no block has so much shared memory");
    assert!(why.contains("shared memory"), "{why}");
    let (best, _) = tuned[0].best().expect("two can be launched");
    assert!(candidates[..2].contains(best));
}

#[test]
fn candidates_with_other_bits_are_an_error() {
    let Some(device) = cuda_device::device() else { return };
    let error = tuned(&device, &[choice(32, 0, 0), choice(64, 1, 0)]).expect_err("other bits");
    assert!(error.to_string().contains("differs from"), "{error}");
    // The device does not remain in tuning mode: a plan uses the first candidate again.
    let mut numbers = Numbers::new(&device, &[choice(32, 7, 0)]).expect("it can be launched");
    let stream = device.stream().expect("a stream");
    numbers.enqueue(&stream).expect("it can be launched");
    let mut values = vec![0; COUNT];
    numbers.output.download(0, &mut values).expect("it ran");
    assert!(values.iter().zip(7..).all(|(value, expected)| *value == expected));
}

#[test]
fn who_observes_may_end_the_tuning() {
    let Some(device) = cuda_device::device() else { return };
    let candidates = [choice(32, 0, 0), choice(64, 0, 0)];
    let mut build =
        || -> Result<Box<dyn Work>> { Ok(Box::new(Numbers::new(&device, &candidates)?)) };
    let mut told = 0;
    let ended = tune::tune(&device, &mut build, &mut |_, _| {
        told += 1;
        Err(sidereal::Error::parameter("tuning", "ended", "it was asked to"))
    });
    assert!(ended.expect_err("it was ended").to_string().contains("asked to"));
    assert_eq!(told, 1);
}

/// Two kernels: the choice of the first determines the key of the second.
struct Chained(Numbers);

impl Work for Chained {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        self.0.enqueue(stream)
    }

    fn digest(&mut self) -> Result<u128> {
        self.0.digest()
    }
}

#[test]
fn what_a_choice_leaves_to_another_kernel_is_measured_then() {
    let Some(device) = cuda_device::device() else { return };
    let candidates = [choice(32, 0, 0), choice(64, 0, 0)];
    let mut build = || -> Result<Box<dyn Work>> {
        let numbers = Numbers::new(&device, &candidates)?;
        let shape = format!("after={}", numbers.threads);
        let other = Source { name: "other.cu", ..source(32, 0) };
        tune::select(&device, &other, &shape, &candidates[..1]);
        Ok(Box::new(Chained(numbers)))
    };
    let tuned = tune::tune(&device, &mut build, &mut |_, _| Ok(())).expect("both can be launched");
    let kernels: Vec<&str> = tuned.iter().map(tune::Tuned::kernel).collect();
    assert_eq!(kernels, ["number.cu", "other.cu"]);
    let (best, _) = tuned[0].best().expect("both can be launched");
    assert_eq!(tuned[1].shape(), format!("after={}", best.values[0]));
}

/// 64 trials of 32 channels, with all data present.
struct Dedispersion {
    dedisperser: Dedisperser,
    input: Buffer<u8>,
    plane: Plane,
}

const TIMES: usize = 640;

impl Dedispersion {
    fn new(device: &Device) -> Result<Self> {
        let options = Options {
            band: Band::uniform(1400.0, -2.0, 32)?,
            tsamp_s: 1e-3,
            dms: (0..64).map(|i| 0.5 * f64::from(i)).collect(),
            downsample: 1,
            encoding: Encoding::U8,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        };
        let backend = Backend::Cuda(device.clone(), Threads::new(1));
        let bytes: Vec<u8> = (0..TIMES * 32).map(|i| (i * i / 5 % 253) as u8).collect();
        Ok(Self {
            dedisperser: Dedisperser::new(Plan::new(options)?, &backend)?,
            input: device.upload(&bytes)?,
            plane: Plane::new(device, PlaneKind::I32, 64, TIMES)?,
        })
    }
}

impl Work for Dedispersion {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let (input, plane) = (&self.input, &mut self.plane);
        stream.fill(&mut plane.words, 0..64 * TIMES, 0)?;
        self.dedisperser.enqueue(input, 0, TIMES, plane, stream).map(|_| ())
    }

    fn digest(&mut self) -> Result<u128> {
        tune::digest(&self.plane.words)
    }
}

#[test]
fn all_shapes_of_a_dedispersion_are_measured_and_give_the_same_bits() {
    let Some(device) = cuda_device::device() else { return };
    let mut build = || -> Result<Box<dyn Work>> { Ok(Box::new(Dedispersion::new(&device)?)) };
    let tuned = tune::tune(&device, &mut build, &mut |_, _| Ok(())).expect("all can be launched");
    let kernels: Vec<&str> = tuned.iter().map(tune::Tuned::kernel).collect();
    let expected = if device.is_hopper() { "wgmma.cu" } else { "general.cu" };
    assert_eq!(kernels, [expected]);
    assert!(tuned[0].measured.len() > 1, "{:?}", tuned[0].measured);
    let refused = tuned[0].measured.iter().find(|one| one.seconds.is_err());
    assert!(refused.is_none(), "{refused:?}");
}

#[test]
fn a_stored_choice_that_can_not_be_launched_is_an_error() {
    const CHILD: &str = "SIDEREAL_TEST_CHILD";
    let Some(device) = cuda_device::device() else { return };
    if std::env::var_os(CHILD).is_none() {
        if !device.properties().name.starts_with("Emulated") {
            return;
        }
        let cache = tempfile::tempdir().expect("a folder");
        let output = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_stored_choice_that_can_not_be_launched_is_an_error"])
            .env(CHILD, "1")
            .env("SIDEREAL_CACHE_DIR", cache.path())
            .env("SIDEREAL_EMULATED_FAIL", "cuFuncSetAttribute:6:1")
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    // The only measured candidate, in four builds, so it is the best.
    let large = choice(64, 0, 60 << 10);
    let tuned = tuned(&device, std::slice::from_ref(&large)).expect("it can be launched");
    tune::store(&tuned[0]).expect("the folder is ours");
    let candidates = [choice(32, 0, 0), large];
    let found = Numbers::new(&device, &candidates).expect("it can still be launched");
    assert_eq!(found.threads, 64);
    let refused = Numbers::new(&device, &candidates).map(|_| ()).expect_err("no more");
    assert!(refused.to_string().contains("cuFuncSetAttribute"), "{refused}");
}
