//! Report on templates that miss the match.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::spiir::bank::{self, Bank};

use crate::plots::{plural, short};

/// Most templates of each kind listed on the terminal.
const LISTED: usize = 5;

/// Template that was dropped from the bank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOut {
    name: String,
    /// Best match that its filters reached; null if none were made.
    #[serde(rename = "match")]
    fit: Option<f64>,
    reason: String,
}

/// Template that was kept although its match is below the requested one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Below {
    name: String,
    #[serde(rename = "match")]
    fit: f64,
}

/// Templates of a bank whose filters miss the requested match.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Missed {
    /// Dropped templates.
    left_out: Vec<LeftOut>,
    /// Kept templates with a match below the requested one.
    below_match: Vec<Below>,
}

impl Missed {
    /// Collects those of a bank.
    pub(crate) fn new(bank: &Bank) -> Self {
        let left_out = |one: &bank::LeftOut| LeftOut {
            name: one.name.clone(),
            fit: one.fit,
            reason: one.reason.clone(),
        };
        let asked = bank.options.minimum_match;
        let below = bank.templates.iter().filter(|template| template.fit < asked);
        Self {
            left_out: bank.left_out.iter().map(left_out).collect(),
            below_match: below.map(|one| Below { name: one.name.clone(), fit: one.fit }).collect(),
        }
    }

    /// Formats them as lines; empty if all templates reach the match.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.left_out.is_empty() {
            lines.push(format!("{} left out:", plural(self.left_out.len(), "template")));
            let each = self.left_out.iter().map(|one| format!("  {}: {}", one.name, one.reason));
            lines.extend(listed(each));
        }
        if !self.below_match.is_empty() {
            let count = plural(self.below_match.len(), "template");
            lines.push(format!("{count} kept with less than the match that was asked for:"));
            let mut worst: Vec<&Below> = self.below_match.iter().collect();
            worst.sort_by(|a, b| a.fit.total_cmp(&b.fit));
            let each = worst.iter().map(|one| format!("  {}: {}", one.name, short(one.fit, 4)));
            lines.extend(listed(each));
        }
        lines
    }
}

/// Returns the first of them and the number of the others.
fn listed(mut each: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = each.len().saturating_sub(LISTED);
    let mut lines: Vec<String> = each.by_ref().take(LISTED).collect();
    if more > 0 {
        lines.push(format!("  and {more} more (--json lists all)"));
    }
    lines
}
