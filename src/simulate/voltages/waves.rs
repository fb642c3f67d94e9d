//! Waves of all pulses, each in memory only while it lasts.

use std::ops::Range;

use super::band::Band;
use super::wave::{Source, Span, Wave};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};

/// Largest total memory of waves in bytes.
const MAX_BYTES: f64 = (4u64 << 30) as f64;

/// Bytes per window sample during generation: spectra, their transforms and scratch.
const WORK_BYTES: f64 = 64.0;

/// Window length above which windows are generated sequentially.
const TOGETHER: usize = 1 << 20;

/// Future wave.
#[derive(Clone, Copy, Debug)]
struct Planned {
    source: usize,
    channel: usize,
    span: Span,
    /// Numbers of the recorded samples that it covers.
    samples: (u64, u64),
}

/// Pulses, and their waves in memory.
#[derive(Debug)]
pub(super) struct Waves {
    sources: Vec<Source>,
    /// Sorted by first sample.
    planned: Vec<Planned>,
    next: usize,
    /// Sorted by channel; each with its end.
    live: Vec<(u64, Wave)>,
    /// Real numbers per sample: 2 if complex.
    numbers: i64,
}

impl Waves {
    /// Plans the waves that touch the first `times` samples; each read covers at most `gulp` samples.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the waves need too much memory at once.
    pub(super) fn new(sources: Vec<Source>, band: &Band, times: u64, gulp: usize) -> Result<Self> {
        let mut planned = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            for channel in 0..band.centres_hz.len() {
                let Some(span) = source.span(band, channel) else {
                    return Err(too_long(source.pulse.dm));
                };
                let samples = if band.complex { span.window } else { 2 * span.window } as i64;
                let end = span.start.saturating_add(samples).clamp(0, times as i64) as u64;
                let start = span.start.clamp(0, times as i64) as u64;
                if start < end {
                    planned.push(Planned { source: number, channel, span, samples: (start, end) });
                }
            }
        }
        planned.sort_by_key(|wave| wave.samples);
        let numbers = if band.complex { 2 } else { 1 };
        let waves = Self { sources, planned, next: 0, live: Vec::new(), numbers };
        waves.check_memory(gulp as u64)?;
        Ok(waves)
    }

    fn check_memory(&self, gulp: u64) -> Result<()> {
        let bytes = |wave: &Planned| {
            let polarizations = self.sources[wave.source].polarizations;
            (wave.span.window * polarizations * size_of::<[f32; 2]>()) as f64
        };
        let mut changes: Vec<(u64, f64, f64)> = Vec::new();
        for wave in &self.planned {
            let (start, end) = wave.samples;
            changes.push((
                start.saturating_sub(gulp),
                bytes(wave),
                self.sources[wave.source].pulse.dm,
            ));
            changes.push((end + gulp, -bytes(wave), 0.0));
        }
        changes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let longest = self.planned.iter().map(|wave| wave.span.window).max().unwrap_or(0);
        let mut held = longest as f64 * WORK_BYTES;
        for (_, change, dm) in changes {
            held += change;
            if held > MAX_BYTES {
                return Err(too_long(dm));
            }
        }
        Ok(())
    }

    /// Generates the waves needed for a range of samples, and drops those that ended before it.
    pub(super) fn bring(&mut self, samples: Range<u64>, band: &Band, threads: &Threads) {
        self.live.retain(|(end, _)| *end > samples.start);
        let begun = self.planned[self.next..].partition_point(|w| w.samples.0 < samples.end);
        let needed = &self.planned[self.next..self.next + begun];
        self.next += begun;
        let needed: Vec<Planned> =
            needed.iter().filter(|w| w.samples.1 > samples.start).copied().collect();
        if needed.is_empty() {
            return;
        }
        let mut made: Vec<Option<Wave>> = needed.iter().map(|_| None).collect();
        let make = |index: usize, place: &mut Option<Wave>| {
            let wave = &needed[index];
            *place = Some(self.sources[wave.source].wave(band, wave.channel, wave.span));
        };
        if needed.iter().all(|wave| wave.span.window <= TOGETHER) {
            let mut scratch = vec![(); threads.count()];
            threads.for_each_chunk(&mut scratch, &mut made, 1, |(), i, part| make(i, &mut part[0]));
        } else {
            made.iter_mut().enumerate().for_each(|(i, place)| make(i, place));
        }
        let ends = needed.iter().map(|wave| wave.samples.1);
        self.live.extend(ends.zip(made.into_iter().flatten()));
        // Stable, so that waves of one channel are added in the order of their starts.
        self.live.sort_by_key(|(_, wave)| wave.channel);
    }

    /// Adds the waves to a stream from sample `start` on, in counts.
    pub(super) fn add(&self, channel: usize, polarization: usize, start: u64, x: &mut [f32]) {
        let first = self.live.partition_point(|(_, wave)| wave.channel < channel);
        for (_, wave) in self.live[first..].iter().take_while(|(_, w)| w.channel == channel) {
            let values = &wave.values[polarization];
            // Index of x[0] in the wave, in real numbers.
            let offset = (start as i64 - wave.start) * self.numbers;
            let skipped = (-offset).clamp(0, x.len() as i64) as usize;
            let from = offset.clamp(0, values.len() as i64) as usize;
            x[skipped..].iter_mut().zip(&values[from..]).for_each(|(x, value)| *x += value);
        }
    }
}

fn too_long(dm: f64) -> Error {
    let most = MAX_BYTES / f64::from(1 << 30);
    let rule = format!(
        "the pulse needs more than {most} GiB at once to be dispersed; use more coarse channels, a lower \
         DM, a shorter width or fewer pulses at a time"
    );
    Error::parameter("dm of a pulse", dm, rule)
}
