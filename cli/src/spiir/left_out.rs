//! What reports say of templates that miss the match.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::spiir::bank::{self, Bank};

use crate::plots::{plural, short};

/// Templates of one kind that the screen lists.
const LISTED: usize = 5;

/// A template that is no part of the bank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOut {
    name: String,
    /// The best match that filters reached; null where none were made.
    #[serde(rename = "match")]
    fit: Option<f64>,
    reason: String,
}

/// A template that is kept, though its match is below what was asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Below {
    name: String,
    #[serde(rename = "match")]
    fit: f64,
}

/// The templates of a bank that its filters do not follow as well as was asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Missed {
    /// Templates that were left out.
    left_out: Vec<LeftOut>,
    /// Templates that are kept with a lower match than was asked for.
    below_match: Vec<Below>,
}

impl Missed {
    /// Those of a bank.
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

    /// Lines that tell them; none where all templates reach the match.
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

/// The first of them, and how many there are more.
fn listed(mut each: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = each.len().saturating_sub(LISTED);
    let mut lines: Vec<String> = each.by_ref().take(LISTED).collect();
    if more > 0 {
        lines.push(format!("  and {more} more (--json lists all)"));
    }
    lines
}
