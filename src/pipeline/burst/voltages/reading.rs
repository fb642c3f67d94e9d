//! Gulps on their way to a device: rows that the host has made, then voltages.

use super::super::super::cleaning::Reader;
use super::super::super::voltage::{Unread, VoltageFilterbank};
use super::super::device::ROW_BYTES;
use crate::backend::cuda::Filling;
use crate::channelize::{DeviceVoltages, Plan};
use crate::error::Result;
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Bits of which kernels read samples at once.
const ALIGNED_BITS: usize = 128;

/// What a gulp holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// So many rows.
    Rows(usize),
    Voltages(DeviceVoltages),
    /// Nothing: the source has ended.
    End,
}

/// Sizes of a gulp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gulp {
    encoding: VoltageEncoding,
    streams: usize,
    row_bytes: usize,
    /// Samples of each stream that gulps begin at multiples of, so that kernels may read them where they lie.
    step: usize,
    /// Samples of each stream.
    samples: usize,
    /// The most rows that come of it.
    pub(super) rows: usize,
    /// Bytes of its voltages, or of one row.
    pub(super) bytes: usize,
}

impl Gulp {
    /// Bytes of the voltages of a row, no more than those of a gulp.
    pub(super) fn row_bytes(plan: &Plan) -> usize {
        let bits = plan.input().streams() * plan.input().encoding.sample_bits();
        plan.samples_per_row().saturating_mul(bits).div_ceil(8).min(ROW_BYTES)
    }

    /// Of about so many rows, of `row_bytes` bytes each, or of a good part of one.
    pub(super) fn new(plan: &Plan, row_bytes: usize, rows: usize) -> Self {
        let (encoding, streams) = (plan.input().encoding, plan.input().streams());
        let aligned = ALIGNED_BITS / encoding.sample_bits();
        let row = plan.samples_per_row();
        let most = ROW_BYTES * 8 / (streams * encoding.sample_bits());
        let wanted = if row <= most { rows.saturating_mul(row) } else { most.max(1) };
        let step = row / common_divisor(row, aligned) * aligned;
        let samples =
            if wanted < step { wanted.next_multiple_of(aligned) } else { wanted / step * step };
        Self {
            encoding,
            streams,
            row_bytes,
            step,
            samples,
            rows: plan.max_rows(samples),
            bytes: (streams * encoding.bytes(samples)).max(row_bytes),
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// How far the voltages are read.
#[derive(Debug)]
pub(super) struct Reading {
    gulp: Gulp,
    /// Samples since the filter bank was begun, and those that are still wanted, once voltages are read.
    voltages: Option<(u64, u64)>,
}

impl Reading {
    pub(super) fn new(gulp: Gulp) -> Self {
        Self { gulp, voltages: None }
    }

    /// Reads the next gulp and sends it on its way: rows as long as the host has some, then voltages.
    pub(super) fn next(
        &mut self,
        reader: &mut Reader,
        filterbank: &mut VoltageFilterbank,
        mut filling: Filling<'_>,
    ) -> Result<Content> {
        if !reader.holds_rows() && filterbank.can_split() {
            let taken = filterbank.taken();
            self.voltages = Some((taken, wanted(filterbank.plan(), taken, reader.left())));
            return self.voltages(filterbank.split().0, filling);
        }
        let Gulp { rows, bytes, row_bytes, .. } = self.gulp;
        let most = rows.min(bytes / row_bytes) * row_bytes;
        let times = reader.read(filterbank, &mut filling.bytes()?[..most])?;
        if times == 0 {
            return Ok(Content::End);
        }
        filling.send(times * row_bytes)?;
        Ok(Content::Rows(times))
    }

    /// Reads the next gulp of voltages and sends it on its way.
    pub(super) fn voltages(
        &mut self,
        mut unread: Unread<'_>,
        mut filling: Filling<'_>,
    ) -> Result<Content> {
        let Gulp { encoding, streams, step, samples, .. } = self.gulp;
        let Some((position, left)) = &mut self.voltages else { return Ok(Content::End) };
        let past = (*position % step as u64) as usize;
        let most = match unread.held() {
            0 if past == 0 => samples,
            // Up to where gulps begin.
            0 => samples.min(step - past),
            held => samples.min(held),
        };
        let most = most.min(usize::try_from(*left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(Content::End);
        }
        let mut block = VoltageBlock::lent(filling.bytes()?, encoding, streams, most)?;
        let times = unread.read(&mut block)?;
        let stride = block.stride();
        if times == 0 {
            return Ok(Content::End);
        }
        filling.send(streams * stride)?;
        *position += times as u64;
        *left = left.saturating_sub(times as u64);
        Ok(Content::Voltages(DeviceVoltages { first_byte: 0, stride, times }))
    }
}

/// Samples, behind the `taken` ones, that the next `rows` rows need.
fn wanted(plan: &Plan, taken: u64, rows: u64) -> u64 {
    if rows == 0 || rows == u64::MAX {
        return rows;
    }
    let last = plan.rows(taken).saturating_add(rows);
    // The last row's windows end so many samples behind its own.
    let overlap = (plan.span() - plan.hop()) as u64;
    let end = last.saturating_mul(plan.samples_per_row() as u64).saturating_add(overlap);
    end.saturating_sub(taken)
}
