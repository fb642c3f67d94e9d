//! Times the filter bank from host memory to host memory.

use std::time::Instant;

use sidereal::Result;
use sidereal::backend::cuda::measure;
use sidereal::channelize::{Channelizer, Output, Plan};
use sidereal::voltage::Voltages;

use super::super::{Figure, Gpu};
use super::{Case, Data, bytes_per_sample, check};

/// Runs that are timed.
const RUNS: usize = 7;

/// Number of times the voltages are repeated, end to end.
const COPIES: usize = 4;

/// Bytes of the copies that measure the bus.
const BUS_BYTES: usize = 256 << 20;

pub(super) fn measure(gpu: &Gpu, case: &Case, plan: &Plan, data: &Data) -> Result<Figure> {
    // Longer than the kernels need: start and end would dominate a short run.
    let copies = if gpu.quick { 1 } else { COPIES };
    let host = data.host.repeat(copies);
    let times = copies * data.times(plan)?;
    let mut channelizer = Channelizer::new(plan.clone(), &gpu.backend)?;
    let mut output = vec![0f32; plan.max_rows(times) * plan.row_elements()];
    let input = Voltages::new(&host, data.encoding, 1, host.len(), times)?;
    let rows = channelizer.run(input, Output::F32(&mut output))?.produced;
    let elements = plan.row_elements();
    let mut checked = rows as u64 == plan.rows(times as u64);
    for row in [0, rows / 2, rows.saturating_sub(1)] {
        let found = bytemuck::cast_slice(&output[row * elements..][..elements]);
        checked &= check::is_row(plan, &host, row, found)?;
    }
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        channelizer.run(input, Output::F32(&mut output))?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let bus = measure::transfers(&gpu.device, if gpu.quick { 1 << 16 } else { BUS_BYTES })?;
    let inward = plan.input().encoding.sample_bits() as f64 / 8.0;
    let outward = bytes_per_sample(plan) - inward;
    // Both directions run at once, so the slower one is the roof.
    let roof = (bus.to_device / inward).min(bus.both / outward);
    Ok(Figure {
        case: case.name.clone(),
        work: times as f64 * 1e-9,
        unit: "Gsample/s",
        seconds,
        roof: roof * 1e-9,
        roof_unit: "Gsample/s over the bus",
        peer: 0.0,
        checked,
    })
}
