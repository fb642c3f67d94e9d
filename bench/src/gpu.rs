//! GPU to measure: its roofs, and its power and clock while it works.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Stream, measure};

use crate::runner::{OnGpu, Run, Session};

/// Least number of bytes read for the roof: more than any cache.
const ROOF_BYTES: usize = 1 << 30;

/// The same for a quick run.
const QUICK_BYTES: usize = 1 << 16;

/// Device and its roofs, measured at the start of the run.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) backend: Backend,
    /// Bytes per second that a copy reads and writes.
    pub(crate) copy: f64,
    /// Bytes per second that a kernel can read.
    pub(crate) read: f64,
    /// Quick run: small data and few cases, tests function but not speed.
    pub(crate) quick: bool,
    /// Seconds for which each case is repeated, too.
    sustained_s: Option<f64>,
}

/// Seconds of the work that is queued before the device is waited for.
const BATCH_S: f64 = 0.05;

impl Gpu {
    /// Returns the GPU of a backend with its measured roofs; `None` for a CPU backend.
    pub(crate) fn of(backend: &Backend, OnGpu { quick, sustained }: OnGpu) -> Result<Option<Self>> {
        let Backend::Cuda(device, _) = backend else { return Ok(None) };
        let longest = 4 * device.properties().l2_bytes;
        let bytes = if quick { QUICK_BYTES } else { longest.max(ROOF_BYTES) };
        let read = measure::read_rate(device, bytes)?;
        // A quick run only needs some value.
        let copy = if quick { read } else { device.rates()?.copy };
        let (device, backend) = (device.clone(), backend.clone());
        Ok(Some(Self { device, backend, copy, read, quick, sustained_s: sustained }))
    }

    /// Repeats work that takes `one_s` seconds on a stream for the seconds of `--sustained`; returns the seconds per
    /// call in the last half, `None` without that option.
    pub(crate) fn sustained(
        &self,
        stream: &Stream,
        one_s: f64,
        work: &mut dyn FnMut(&Stream) -> Result<()>,
    ) -> Result<Option<f64>> {
        let calls = (BATCH_S / one_s.max(1e-7)).ceil().max(1.0) as usize;
        self.sustained_calls(&mut || {
            (0..calls).try_for_each(|_| work(stream))?;
            stream.synchronize()?;
            Ok(calls)
        })
    }

    /// Like [`Gpu::sustained`], for work that waits for the device and returns its number of calls.
    pub(crate) fn sustained_calls(
        &self,
        work: &mut dyn FnMut() -> Result<usize>,
    ) -> Result<Option<f64>> {
        let Some(seconds) = self.sustained_s else { return Ok(None) };
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < 0.5 * seconds {
            work()?;
        }
        let (half, mut calls) = (Instant::now(), 0);
        while calls == 0 || begun.elapsed().as_secs_f64() < seconds {
            calls += work()?;
        }
        Ok(Some(half.elapsed().as_secs_f64() / calls as f64))
    }

    /// Begins a benchmark on the GPU, which continues after a case that fails.
    pub(crate) fn begin<'a>(
        &self,
        session: &'a Session<'a>,
        csv: Option<&Path>,
        about: &str,
    ) -> Result<Run<'a>> {
        let device = self.device.properties();
        let words = format!(
            "{about}\nOn {} (driver of CUDA {}.{}): memory copy {:.2} TB/s (read and written), read {:.2} TB/s.",
            device.name,
            device.driver_version / 1000,
            device.driver_version % 1000 / 10,
            self.copy * 1e-12,
            self.read * 1e-12,
        );
        Ok(Run::new(session, csv, &words)?.continuing())
    }
}

/// Interval between readings, and polling interval for a reading.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Card {
    pub(crate) power_w: f64,
    /// Power limit.
    pub(crate) limit_w: f64,
    pub(crate) clock_mhz: f64,
    pub(crate) max_mhz: f64,
}

impl Card {
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.trim().split(',').map(|word| word.trim().parse::<f64>().ok());
        let mut next = || numbers.next().flatten().filter(|number| number.is_finite());
        let (power_w, limit_w, clock_mhz, max_mhz) = (next()?, next()?, next()?, next()?);
        Some(Self { power_w, limit_w, clock_mhz, max_mhz })
    }
}

/// Reason for a missing reading.
pub(crate) type Why = String;

/// Program that reads the card: it takes about a second to start on some machines, and a machine may lack it.
#[derive(Debug)]
pub(crate) struct Reader {
    program: Command,
    /// Delay before the first reading, for the card to settle.
    settled: Duration,
    /// Timeout of a reading.
    patience: Duration,
}

impl Reader {
    /// Creates a reader that runs `nvidia-smi` for a device.
    pub(crate) fn of(device: &Device) -> Result<Self> {
        let fields = "power.draw.instant,enforced.power.limit,clocks.sm,clocks.max.sm";
        let mut program = Command::new("nvidia-smi");
        program.args([format!("--query-gpu={fields}"), "--format=csv,noheader,nounits".to_owned()]);
        program.args(["-i", &device.bus_id()?]);
        Ok(Self::by(program, Duration::from_millis(700), Duration::from_secs(5)))
    }

    fn by(mut program: Command, settled: Duration, patience: Duration) -> Self {
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self { program, settled, patience }
    }

    /// Runs `work`; returns its result and the median of the readings taken meanwhile. At its end, the work calls its
    /// argument and continues while that returns true: the first reading is still pending.
    pub(crate) fn meanwhile<T>(
        &mut self,
        work: impl FnOnce(&dyn Fn() -> bool) -> T,
    ) -> (T, std::result::Result<Card, Why>) {
        let (awaited, ended) = (AtomicBool::new(true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let readings = self.readings(&awaited, &ended);
                awaited.store(false, Ordering::SeqCst);
                readings
            });
            let end = End(&ended);
            let done = work(&|| awaited.load(Ordering::SeqCst));
            drop(end);
            let readings = reader.join().unwrap_or_else(|_| Err("its reader failed".to_owned()));
            (done, readings.and_then(middle))
        })
    }

    /// Takes readings until the work has ended; stops after a first one that fails.
    fn readings(
        &mut self,
        awaited: &AtomicBool,
        ended: &AtomicBool,
    ) -> std::result::Result<Vec<Card>, Why> {
        let mut readings = Vec::new();
        std::thread::sleep(self.settled);
        while !ended.load(Ordering::SeqCst) {
            let reading = self.reading();
            // A reading that arrives after the end may be of an idle card.
            let is_of_work = !ended.load(Ordering::SeqCst);
            match reading {
                Ok(card) if is_of_work => readings.push(card),
                Err(why) if readings.is_empty() => return Err(why),
                _ => {}
            }
            awaited.store(false, Ordering::SeqCst);
            std::thread::sleep(PAUSE);
        }
        Ok(readings)
    }

    fn reading(&mut self) -> std::result::Result<Card, Why> {
        let name = self.program.get_program().to_string_lossy().into_owned();
        let mut child =
            self.program.spawn().map_err(|error| format!("{name} can't be run: {error}"))?;
        if !ends_within(&mut child, self.patience) {
            // A process that has just ended by itself cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} gave no reading within {:?}", self.patience));
        }
        let mut said = Vec::new();
        let pipe = child.stdout.as_mut();
        pipe.map_or(Ok(0), |pipe| pipe.read_to_end(&mut said))
            .map_err(|error| format!("{name} can't be read: {error}"))?;
        let said = String::from_utf8_lossy(&said);
        Card::read(&said).ok_or_else(|| match said.trim().lines().next() {
            Some(line) => format!("{name} said \"{line}\""),
            None => format!("{name} said nothing"),
        })
    }
}

/// Signals on drop that the work has ended, also on a panic: otherwise its reader would wait forever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn middle(mut readings: Vec<Card>) -> std::result::Result<Card, Why> {
    readings.sort_by(|a, b| a.power_w.total_cmp(&b.power_w));
    let middle = readings.get(readings.len() / 2);
    middle.copied().ok_or_else(|| "the work ended before the first reading".to_owned())
}

fn ends_within(child: &mut Child, patience: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "695.12, 700.00, 1500, 1980";

    fn card(power_w: f64) -> Card {
        Card { power_w, limit_w: 700.0, clock_mhz: 1500.0, max_mhz: 1980.0 }
    }

    #[test]
    fn a_line_of_nvidia_smi_is_read() {
        assert_eq!(Card::read(&format!("{LINE}\n")), Some(card(695.12)));
        for other in
            ["[N/A], 700.00, 1500, 1980", "695, 700", "nan, 1, 1, 1", "No devices were found"]
        {
            assert_eq!(Card::read(other), None, "{other}");
        }
    }

    #[test]
    fn the_middle_reading_is_that_of_the_middle_power() {
        assert_eq!(middle([3.0, 1.0, 2.0].map(card).to_vec()), Ok(card(2.0)));
        assert_eq!(middle([1.0, 2.0].map(card).to_vec()), Ok(card(2.0)));
        assert!(middle(Vec::new()).unwrap_err().contains("ended before"));
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    #[cfg(unix)]
    fn shell(script: &str) -> Command {
        let mut program = Command::new("sh");
        program.args(["-c", script]);
        program
    }

    /// Runs work that lasts until the reader has a reading; returns the work's duration and the reading.
    fn read(program: Command, patience: Duration) -> (Duration, std::result::Result<Card, Why>) {
        let settled = Duration::from_millis(20);
        let work = |is_awaited: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while is_awaited() {
                assert!(begin.elapsed() < 2 * LONG, "it never ends");
                std::thread::sleep(LOOK);
            }
            begin.elapsed()
        };
        Reader::by(program, settled, patience).meanwhile(work)
    }

    #[cfg(unix)]
    #[test]
    fn work_goes_on_until_the_first_reading_came() {
        let (lasted, read) = read(shell(&format!("sleep 0.4; echo {LINE}")), LONG);
        assert_eq!(read, Ok(card(695.12)));
        assert!(lasted >= Duration::from_millis(400), "{lasted:?}");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_reading_is_told_and_ends_the_wait() {
        let cases = [
            ("true", "sh said nothing"),
            ("echo No devices were found; exit 6", "sh said \"No devices were found\""),
            ("echo '[N/A], [N/A], 1500, 1980'", "sh said \"[N/A], [N/A], 1500, 1980\""),
            ("printf '\\377\\376, 1'", "sh said"),
        ];
        for (script, expected) in cases {
            let (_, read) = read(shell(script), LONG);
            let why = read.expect_err(script);
            assert!(why.contains(expected), "{script}: {why}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_does_not_end_is_stopped() {
        for script in ["exec sleep 600", "while :; do echo 1, 2, 3, 4; done"] {
            let (lasted, read) = read(shell(script), SHORT);
            assert_eq!(read, Err("sh gave no reading within 300ms".to_owned()), "{script}");
            assert!(lasted >= SHORT, "{script} {lasted:?}");
        }
    }

    #[test]
    fn a_missing_program_is_told_and_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let (_, read) = read(Command::new(folder.path().join("nvidia-smi")), LONG);
        let why = read.unwrap_err();
        assert!(why.contains("nvidia-smi can't be run: "), "{why}");
    }

    #[cfg(unix)]
    #[test]
    fn readings_that_fail_later_and_those_of_a_card_at_rest_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let script =
            format!("if test -e {0}; then exit 1; fi; touch {0}; echo {LINE}", mark.display());
        let mut reader = Reader::by(shell(&script), Duration::ZERO, LONG);
        let ((), read) = reader.meanwhile(|is_awaited| {
            while is_awaited() {
                std::thread::sleep(LOOK);
            }
            std::thread::sleep(3 * PAUSE);
        });
        assert_eq!(read, Ok(card(695.12)));
        let slow = shell(&format!("sleep 0.5; echo {LINE}"));
        let ((), read) =
            Reader::by(slow, Duration::ZERO, LONG).meanwhile(|_| std::thread::sleep(PAUSE));
        assert!(read.unwrap_err().contains("ended before"));
    }
}
