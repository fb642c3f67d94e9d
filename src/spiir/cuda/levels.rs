//! Layout of the inputs and sums of each rate in device memory.

use super::super::plan::{Plan, Template};
use super::scaled::TILE;
use crate::error::{Error, Result};

/// Ranges of a rate's ring buffers that the next launch reads from earlier launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// Input ring: first element, length, and number of last samples needed.
    pub(super) input: usize,
    pub(super) input_ring: usize,
    pub(super) input_needed: usize,
    /// Rings of sums: first element, length and needed samples of each, and the number of rows.
    pub(super) sums: usize,
    pub(super) sums_ring: usize,
    pub(super) sums_needed: usize,
    pub(super) rows: usize,
}

/// Ring buffers of all rates.
#[derive(Debug)]
pub(super) struct Levels {
    /// Table for the kernels: first input, first sum, masks of both.
    pub(super) table: Vec<[u64; 3]>,
    /// Elements of all inputs, and of all sums.
    pub(super) inputs: usize,
    pub(super) sums: usize,
    pub(super) past: Vec<Past>,
    /// Row of sums for each level and template.
    rows: Vec<Vec<usize>>,
    /// Templates with lower rates: output row, lowest rate, bit mask of rates with filters, index of their rows in
    /// `deep_rows`.
    pub(super) deep: Vec<[u32; 4]>,
    pub(super) deep_rows: Vec<i32>,
}

/// Returns the lowest rate at which a template has filters.
fn depth(template: &Template) -> usize {
    let filled = template.branches.iter().filter(|branch| !branch.filters.is_empty());
    filled.map(|branch| branch.halvings as usize).max().unwrap_or(0)
}

impl Levels {
    /// Lays out rings for launches of at most `piece` full-rate samples; upsampling reads sums up to `reach` samples
    /// back.
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

    /// Returns the row of a template's sums at a level; at the full rate it is the output row.
    pub(super) fn row(&self, level: usize, template: usize) -> usize {
        if level == 0 { template } else { self.rows[level][template] }
    }
}

/// Returns the length of a ring that holds `samples` samples: a power of two.
fn ring(samples: usize) -> Result<usize> {
    let length = samples.max(64).next_power_of_two();
    if length <= 1 << 31 {
        return Ok(length);
    }
    let what = "the filter bank's history on a GPU".to_owned();
    let why = format!("a filter reaches back {samples} samples, and 2^31 are possible");
    Err(Error::Unavailable { what, why })
}
