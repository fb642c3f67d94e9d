//! File format of a choice: a word and its value per line, and a hash at the end.

use super::Question;
use crate::backend::cuda::cache::hash::Hash;

/// Choice, and the question it was measured for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) question: Question,
    pub(super) values: Vec<u32>,
    /// Seconds of the fastest launch.
    pub(super) seconds: f64,
}

/// First line of the file.
const TITLE: &str = "sidereal tune 1";

impl Stored {
    /// Formats the file.
    pub(super) fn text(&self) -> String {
        let Question { kernel, kernel_hash, device, driver, shape } = &self.question;
        let values: Vec<String> = self.values.iter().map(u32::to_string).collect();
        let lines = [
            TITLE.to_owned(),
            format!("kernel {kernel}"),
            format!("hash {kernel_hash:032x}"),
            format!("device {device}"),
            format!("driver {driver}"),
            format!("shape {shape}"),
            format!("choice {}", values.join(" ")),
            format!("seconds {:e}", self.seconds),
        ];
        let text = lines.map(|line| line.replace('\n', " ") + "\n").concat();
        format!("{text}check {:032x}\n", Hash::new().bytes(text.as_bytes()).value())
    }

    /// Parses a file; returns `None` if it is incomplete or damaged.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (body, check) = text.strip_suffix('\n')?.split_at(text.rfind("check ")?);
        let check = u128::from_str_radix(check.strip_prefix("check ")?, 16).ok()?;
        if Hash::new().bytes(body.as_bytes()).value() != check {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != TITLE {
            return None;
        }
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        Some(Self {
            question: Question {
                kernel: value("kernel")?.to_owned(),
                kernel_hash: u128::from_str_radix(value("hash")?, 16).ok()?,
                device: value("device")?.to_owned(),
                driver: value("driver")?.to_owned(),
                shape: value("shape")?.to_owned(),
            },
            values: value("choice")?
                .split_whitespace()
                .map(|word| word.parse().ok())
                .collect::<Option<_>>()?,
            seconds: value("seconds")?.parse().ok()?,
        })
    }
}
