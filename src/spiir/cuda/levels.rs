//! Where inputs and sums of each rate stand on the device.

use super::super::plan::{Plan, Template};
use super::scaled::TILE;
use crate::error::{Error, Result};

/// Ranges of a rate's ring buffers whose samples, from before the next launch, that launch reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// First element of the inputs, elements of their ring, and the last samples that are needed.
    pub(super) input: usize,
    pub(super) input_ring: usize,
    pub(super) input_needed: usize,
    /// The same of each row of sums, and the number of rows.
    pub(super) sums: usize,
    pub(super) sums_ring: usize,
    pub(super) sums_needed: usize,
    pub(super) rows: usize,
}

/// Rings of all rates.
#[derive(Debug)]
pub(super) struct Levels {
    /// As kernels read them: first input, first sum, masks of both.
    pub(super) table: Vec<[u64; 3]>,
    /// Elements of all inputs, and of all sums.
    pub(super) inputs: usize,
    pub(super) sums: usize,
    pub(super) past: Vec<Past>,
    /// For each level and template, its row of sums.
    rows: Vec<Vec<usize>>,
    /// Templates with lower rates: row of the output, lowest rate, rates with filters, where their rows begin.
    pub(super) deep: Vec<[u32; 4]>,
    pub(super) deep_rows: Vec<i32>,
}

/// The lowest rate at which a template has filters.
fn depth(template: &Template) -> usize {
    let filled = template.branches.iter().filter(|branch| !branch.filters.is_empty());
    filled.map(|branch| branch.halvings as usize).max().unwrap_or(0)
}

impl Levels {
    /// For launches of at most `piece` samples of the full rate, and sums that are doubled from `reach` samples back.
    pub(super) fn new(plan: &Plan, piece: usize, reach: usize) -> Result<Self> {
        let resampler = &plan.options().resampler;
        let templates = &plan.options().templates;
        let mut levels = Self {
            table: Vec::new(),
            inputs: 0,
            sums: 0,
            past: Vec::new(),
            rows: Vec::new(),
            deep: Vec::new(),
            deep_rows: Vec::new(),
        };
        for level in 0..plan.levels() {
            let fresh = (piece >> level) + 1;
            let input_needed = plan.history(level) + resampler.down.len() + 2 * TILE;
            let input = ring(input_needed + fresh)?;
            let sums = if level == 0 { TILE } else { ring(resampler.up.len() + fresh + 2 * TILE)? };
            let mut next = 0;
            let row = |template: &Template| {
                let row = next;
                next += usize::from(depth(template) >= level);
                row
            };
            levels.rows.push(templates.iter().map(row).collect());
            let masks = (input as u64 - 1) | (sums as u64 - 1) << 32;
            levels.table.push([levels.inputs as u64, levels.sums as u64, masks]);
            levels.past.push(Past {
                input: levels.inputs,
                input_ring: input,
                input_needed,
                sums: levels.sums,
                sums_ring: sums,
                sums_needed: reach + 1,
                rows: if level == 0 { 0 } else { next },
            });
            levels.inputs = levels.inputs.saturating_add(input);
            let own = if level == 0 { 0 } else { next.saturating_mul(sums) };
            levels.sums = levels.sums.saturating_add(own);
        }
        for (at, template) in
            templates.iter().enumerate().filter(|(_, template)| depth(template) > 0)
        {
            let filled = template.branches.iter().filter(|branch| !branch.filters.is_empty());
            let own = filled.fold(0, |own, branch| own | 1 << branch.halvings);
            levels.deep.push([
                at as u32,
                depth(template) as u32,
                own,
                levels.deep_rows.len() as u32,
            ]);
            let rows = (1..=depth(template)).map(|level| levels.rows[level][at] as i32);
            levels.deep_rows.extend(rows);
        }
        Ok(levels)
    }

    /// The row of a template's sums at a level; at the full rate it is the output's.
    pub(super) fn row(&self, level: usize, template: usize) -> usize {
        if level == 0 { template } else { self.rows[level][template] }
    }
}

/// Samples of a ring that holds so many.
fn ring(samples: usize) -> Result<usize> {
    let length = samples.max(64).next_power_of_two();
    if length <= 1 << 31 {
        return Ok(length);
    }
    let what = "the filter bank's history on a GPU".to_owned();
    let why = format!("a filter reaches back {samples} samples, and 2^31 are possible");
    Err(Error::Unavailable { what, why })
}
