//! What a card says of its power and clock while it works.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidereal::Result;
use sidereal::backend::cuda::Device;

/// Time between two readings, and before the first, until the card has settled.
const PAUSE: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_millis(700);

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Card {
    pub(super) power_w: f64,
    /// What it may draw.
    pub(super) most_w: f64,
    pub(super) clock_mhz: f64,
    pub(super) most_mhz: f64,
}

impl Card {
    /// Asks `nvidia-smi`; `None` where there is none, or it does not know the device.
    pub(super) fn of(device: &Device) -> Option<Self> {
        let fields = "power.draw.instant,enforced.power.limit,clocks.sm,clocks.max.sm";
        let output = Command::new("nvidia-smi")
            .args([format!("--query-gpu={fields}"), "--format=csv,noheader,nounits".to_owned()])
            .args(["-i", &device.bus_id().ok()?])
            .output()
            .ok()?;
        Self::read(&String::from_utf8_lossy(&output.stdout))
    }

    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.trim().split(',').map(|word| word.trim().parse::<f64>().ok());
        let mut next = || numbers.next().flatten();
        let (power_w, most_w, clock_mhz, most_mhz) = (next()?, next()?, next()?, next()?);
        Some(Self { power_w, most_w, clock_mhz, most_mhz })
    }
}

/// Does something, and gives the middle reading of those that were taken meanwhile.
///
/// # Errors
/// Those of what is done.
pub(super) fn meanwhile<T>(
    device: &Device,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<Card>)> {
    let ended = AtomicBool::new(false);
    let readings = || {
        let mut readings = Vec::new();
        std::thread::sleep(SETTLED);
        while !ended.load(Ordering::Relaxed) {
            readings.extend(Card::of(device));
            std::thread::sleep(PAUSE);
        }
        readings
    };
    let (done, mut readings) = std::thread::scope(|scope| {
        let reader = scope.spawn(readings);
        let done = work();
        ended.store(true, Ordering::Relaxed);
        (done, reader.join().unwrap_or_default())
    });
    readings.sort_by(|a, b| a.power_w.total_cmp(&b.power_w));
    Ok((done?, readings.get(readings.len() / 2).copied()))
}

#[cfg(test)]
mod tests {
    use super::Card;

    #[test]
    fn a_line_of_nvidia_smi_is_read() {
        let card = Card::read("695.12, 700.00, 1500, 1980\n").unwrap();
        assert_eq!((card.power_w, card.most_w), (695.12, 700.0));
        assert_eq!((card.clock_mhz, card.most_mhz), (1500.0, 1980.0));
        assert_eq!(Card::read("[N/A], 700.00, 1500, 1980"), None);
        assert_eq!(Card::read("No devices were found"), None);
    }
}
