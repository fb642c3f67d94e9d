//! Reads a card's power and clock while it works.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidereal::Result;
use sidereal::backend::cuda::Device;

#[cfg(test)]
mod tests;

/// Interval between readings, and polling interval for a reading.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Card {
    pub(super) power_w: f64,
    /// Power limit.
    pub(super) most_w: f64,
    pub(super) clock_mhz: f64,
    pub(super) most_mhz: f64,
}

impl Card {
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.trim().split(',').map(|word| word.trim().parse::<f64>().ok());
        let mut next = || numbers.next().flatten().filter(|number| number.is_finite());
        let (power_w, most_w, clock_mhz, most_mhz) = (next()?, next()?, next()?, next()?);
        Some(Self { power_w, most_w, clock_mhz, most_mhz })
    }
}

/// Reason for a missing reading.
pub(super) type Why = String;

/// Program that reads the card: it takes about a second to start on some machines, and a machine may lack it.
#[derive(Debug)]
pub(super) struct Reader {
    program: Command,
    /// Delay before the first reading, for the card to settle.
    settled: Duration,
    /// Timeout of a reading.
    patience: Duration,
}

impl Reader {
    /// Creates a reader that runs `nvidia-smi` for a device.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn of(device: &Device) -> Result<Self> {
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
    pub(super) fn meanwhile<T>(
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
