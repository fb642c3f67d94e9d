//! Analysis of blocks: statistics of channels, outlier channels, and amplitudes of spectra.
//!
//! Invariant: what is found in a block depends on it and on the blocks before it.

use std::sync::Arc;

use super::block::{Block, ROWS, Settings};
use super::broadband::Series;
use super::iqrm::Outliers;
use super::profile::{self, Amplitudes, Part, Profile, Statistics, has_signal, row_length};
use super::steps::Bandpass;
use crate::error::Result;
use crate::sample::unpack_f32;
use crate::trace::{self, Work};

/// Profile of the channels, and the blocks analyzed so far.
#[derive(Debug)]
pub(super) struct Analysis {
    settings: Arc<Settings>,
    /// Scratch row of each thread, with the padding that group sums read.
    scratch: Vec<Vec<f32>>,
    origin: Vec<f32>,
    profile: Profile,
    /// Blocks that initialized the profile; they do not update it again.
    begun_with: usize,
    blocks: u64,
    /// Outlier channels of the last block.
    before: Option<Vec<bool>>,
}

impl Analysis {
    /// Initializes the profile from the stream's first rows.
    ///
    /// # Errors
    /// Errors of [`Samples::new`](crate::sample::Samples::new) for rows that are not whole.
    pub(super) fn new(settings: &Arc<Settings>, first: &[u8]) -> Result<Self> {
        let (channels, row_bytes) = (settings.channels, settings.row_bytes());
        let rows = settings.threads.count();
        let mut own = Self {
            settings: Arc::clone(settings),
            scratch: vec![vec![0.0; row_length(channels)]; rows],
            origin: vec![0.0; channels],
            profile: Profile::new(&settings.masked, settings.vectors),
            begun_with: 0,
            blocks: 0,
            before: None,
        };
        if first.len() >= row_bytes {
            unpack_f32(&first[..row_bytes], settings.encoding, &mut own.origin);
        }
        let length = settings.block_rows * row_bytes;
        let chunks = first.chunks(length);
        let whole = chunks.filter(|block| block.len() == length || first.len() < length);
        let begun: Vec<&[u8]> = whole.collect();
        for statistics in own.statistics(&begun)? {
            let gain = own.profile.levels().gain(&statistics.mean);
            own.profile.push(&statistics, gain, &vec![false; channels]);
        }
        own.begun_with = begun.len();
        Ok(own)
    }

    /// Computes the statistics of blocks, all their parts in parallel.
    fn statistics(&mut self, blocks: &[&[u8]]) -> Result<Vec<Statistics>> {
        let _span = trace::span(Work::Compute, "statistics of channels");
        let mut parts = Vec::new();
        for block in blocks {
            let samples = self.settings.samples(block)?;
            let length = Statistics::part_rows(samples.times());
            for start in (0..samples.times()).step_by(length) {
                let rows = samples.slice(start, length.min(samples.times() - start));
                parts.push((rows, Part::default()));
            }
        }
        let (origin, vectors) = (&self.origin, self.settings.vectors);
        self.settings.threads.for_each_chunk(
            &mut self.scratch,
            &mut parts,
            1,
            |scratch, _, own| {
                let (rows, part) = &mut own[0];
                *part = Part::of(*rows, origin, vectors, scratch);
            },
        );
        let mut parts = parts.into_iter().map(|(_, part)| part);
        let mut all = Vec::with_capacity(blocks.len());
        for block in blocks {
            let times = block.len() / self.settings.row_bytes().max(1);
            let count = times.div_ceil(Statistics::part_rows(times));
            all.push(Statistics::new(parts.by_ref().take(count).collect(), vectors));
        }
        Ok(all)
    }

    /// Finds outlier channels of blocks and the amplitudes of their spectra.
    pub(super) fn analyze(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Block>> {
        let bytes: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let mut statistics = self.statistics(&bytes)?;
        let span = trace::span(Work::Compute, "outliers of channels");
        let mut loud = self.loud(&statistics).into_iter();
        let mut analyzed: Vec<Block> = Vec::with_capacity(blocks.len());
        for (bytes, statistics) in blocks.into_iter().zip(&mut statistics) {
            let past = self.profile.levels();
            let signal: Vec<bool> =
                statistics.parts.iter().map(|part| past.has_signal_in(&part.mean)).collect();
            let signal_parts = signal.iter().filter(|has_signal| **has_signal).count();
            let mut loud = loud.next();
            if (1..signal.len()).contains(&signal_parts) {
                statistics.take_parts(self.settings.vectors, |part| signal[part]);
                loud = self.loud(std::slice::from_ref(statistics)).pop();
            }
            let gain = past.gain(&statistics.mean);
            let mut marked = vec![false; self.settings.channels];
            if let Some(loud) = loud {
                if has_signal(gain) {
                    marked = self.outliers().of_block(statistics, &past, gain, loud);
                }
                // A block that is mostly lost also keeps the marks of the previous one.
                let before = analyzed.last().map(|block| &block.marked).or(self.before.as_ref());
                if let Some(before) = before.filter(|_| 2 * signal_parts < signal.len()) {
                    marked.iter_mut().zip(before).for_each(|(all, own)| *all |= own);
                }
                for (channel, marked) in marked.iter_mut().enumerate() {
                    *marked |= past.is_moving(channel);
                }
            }
            self.blocks += 1;
            if self.blocks > self.begun_with as u64 {
                self.profile.push(statistics, gain, &marked);
            }
            let rows = self.settings.samples(&bytes)?.times();
            let (parts, levels) = (Vec::new(), self.profile.levels());
            analyzed.push(Block {
                bytes,
                rows,
                marked,
                parts,
                past,
                levels,
                terms: None,
                series: None,
            });
        }
        self.mark_parts(&mut analyzed, &statistics);
        drop(span);
        self.measure(&mut analyzed)?;
        self.before = analyzed.last().map(|block| block.marked.clone()).or(self.before.take());
        Ok(analyzed)
    }

    fn outliers(&self) -> Outliers<'_> {
        Outliers { masked: &self.settings.masked, threads: &self.settings.threads }
    }

    /// Finds channels whose deviation is an outlier in most of a block; none without IQRM.
    fn loud(&self, blocks: &[Statistics]) -> Vec<Vec<bool>> {
        if self.settings.steps.iqrm { self.outliers().loud(blocks) } else { Vec::new() }
    }

    /// Finds outlier channels in parts of blocks, and the terms of blocks.
    fn mark_parts(&self, analyzed: &mut [Block], statistics: &[Statistics]) {
        let steps = self.settings.steps;
        let is_fitted = steps.time || steps.bandpass != Bandpass::Off;
        let (threads, outliers) = (&self.settings.threads, self.outliers());
        if steps.iqrm {
            for (block, statistics) in analyzed.iter_mut().zip(statistics) {
                block.parts = vec![Vec::new(); statistics.parts.len()];
            }
            let mut tasks = Vec::new();
            for (block, statistics) in analyzed.iter_mut().zip(statistics) {
                let Block { past, parts, .. } = block;
                let both = parts.iter_mut().zip(&statistics.parts);
                tasks.extend(both.map(|(marked, part)| (&*past, part, marked)));
            }
            threads.for_each(&mut tasks, 1, |_, task| {
                let (past, part, marked) = &mut task[0];
                **marked = outliers.of_part(part, past);
            });
        }
        if is_fitted {
            threads.for_each(analyzed, 1, |_, block| {
                let block = &mut block[0];
                block.terms = Some(block.levels.terms(&block.marked)).filter(|own| !own.is_empty());
            });
        }
    }

    /// Computes the amplitudes of blocks' spectra.
    fn measure(&mut self, analyzed: &mut [Block]) -> Result<()> {
        let _span = trace::span(Work::Compute, "amplitudes of spectra");
        let mut series: Vec<Vec<Amplitudes>> = Vec::with_capacity(analyzed.len());
        for block in &*analyzed {
            let rows = if block.terms.is_some() { block.rows } else { 0 };
            series.push(vec![Amplitudes::default(); rows]);
        }
        let mut tasks = Vec::new();
        for (block, rows) in analyzed.iter().zip(&mut series) {
            let samples = self.settings.samples(&block.bytes)?;
            let Some(terms) = &block.terms else { continue };
            for (index, rows) in rows.chunks_mut(ROWS).enumerate() {
                tasks.push((samples, terms, index * ROWS, rows));
            }
        }
        let vectors = self.settings.vectors;
        self.settings.threads.for_each_chunk(
            &mut self.scratch,
            &mut tasks,
            1,
            |scratch, _, task| {
                let (samples, terms, start, rows) = &mut task[0];
                profile::amplitudes(vectors, *samples, *start, terms, scratch, rows);
            },
        );
        drop(tasks);
        let mut both: Vec<_> = analyzed.iter_mut().zip(series).collect();
        self.settings.threads.for_each(&mut both, 1, |_, own| {
            let (block, rows) = &mut own[0];
            if let Some(terms) = &block.terms {
                block.series = Some(Series::new(terms, std::mem::take(rows)));
            }
        });
        Ok(())
    }
}
