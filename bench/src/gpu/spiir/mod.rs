//! `bench spiir` on a GPU: filter samples per second, strain and ratios in device memory.

mod cases;
mod whole;

use cases::{Case, Shown, cases};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::spiir::{Options, Plan, Spiir};
use sidereal::{Error, Result};

use super::{Figure, Gpu, table};
use crate::session::Session;
use crate::spiir::bank::noise;
use crate::spiir::measure::{ERROR, error};
use crate::spiir::{Arguments, Name, accuracy};
use crate::table::Table;
pub(crate) use cases::{QUICK_TIMES, TIMES, longest_delay, operations};

/// Templates that are compared with the reference.
const CHECKED: usize = 3;

const ABOUT: &str = "\
10^12 operations a second, 12 for each filter and sample of its own rate: kernels alone, a second of whitened strain in,
its ratios out, on the device, filters' states carried from call to call; the best and the median of 20 batches. Roof: the
direct form's 8 instructions a filter and sample on an H200. Baseline: the kernel of Guo et al. 2018 on an H200 (driver 580,
CUDA 13.0), for filters with delays within two seconds; the one before it reached 0.30, 0.64, 1.32, 2.49, 2.59, 2.65, 2.69 and 2.70. Rates: 10^6 template samples a
second, beside all filters at one rate. Lengths: multiples of real time of 4096 templates, beside overlap-save by Fourier
transforms (PyTorch). Some templates are compared with the reference. Accuracy: the largest error in an hour, in 10^-6 of the
output's root mean square, beside what is allowed and the root mean square error.";

/// Runs the benchmark.
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let names = arguments.names();
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part));
    let (mut table, bench) = table(gpu, session, arguments.csv.as_deref(), ("spiir", ABOUT))?;
    let mut outcome = Outcome::default();
    let mut one_rate = None;
    for name in &names {
        for case in cases(*name, gpu.quick)?.iter().filter(|case| wanted(&case.name)) {
            let figure = measure(gpu, case, &mut one_rate);
            let row = figure.map(|figure| vec![gpu.row(bench, figure)]);
            outcome.take(&mut table, &case.name, row)?;
        }
        if *name == Name::Accuracy {
            let most = if gpu.quick { 1 } else { accuracy::CASES.len() };
            for case in accuracy::CASES.iter().take(most).filter(|case| wanted(case.name)) {
                let row = accuracy::measure(case, &gpu.backend, gpu.quick).map(|row| vec![row]);
                outcome.take(&mut table, case.name, row)?;
            }
        }
        if *name == Name::Whole && wanted("the whole search") {
            let rows = whole::measure(gpu, arguments.length, session.threads);
            outcome.take(&mut table, "the whole search", rows)?;
        }
    }
    outcome.end(table, arguments)
}

/// Failures among the cases: a case that fails is reported and the others continue.
#[derive(Default)]
struct Outcome {
    cases: usize,
    failed: Vec<String>,
}

impl Outcome {
    fn take(
        &mut self,
        table: &mut Table<'_>,
        name: &str,
        rows: Result<Vec<crate::table::Row>>,
    ) -> Result<()> {
        self.cases += 1;
        match rows {
            Ok(rows) => rows.into_iter().try_for_each(|row| table.push(row)),
            Err(error) => {
                eprintln!("sidereal: {name}: {error}");
                self.failed.push(name.to_owned());
                Ok(())
            }
        }
    }

    fn end(self, table: Table<'_>, arguments: &Arguments) -> Result<()> {
        if self.cases == 0 {
            let part = arguments.only.as_deref().unwrap_or_default();
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
        let ended = table.finish();
        match self.failed.first() {
            None => ended,
            Some(first) => Err(Error::Unavailable {
                what: format!("the rate of {} of {} cases", self.failed.len(), self.cases),
                why: format!("they failed as told above; {first} first"),
            }),
        }
    }
}

/// Filter bank whose strain and ratios stay in device memory.
struct Resident {
    spiir: Spiir,
    input: Buffer<f32>,
    output: Buffer<Complex<f32>>,
    times: usize,
}

impl Resident {
    fn new(gpu: &Gpu, plan: &Plan, input: &[f32]) -> Result<Self> {
        let times = input.len();
        Ok(Self {
            spiir: Spiir::new(plan.clone(), &gpu.backend)?,
            input: gpu.device.upload(input)?,
            output: gpu.device.buffer(plan.templates() * times)?,
            times,
        })
    }

    fn step(&mut self, stream: &Stream) -> Result<usize> {
        let times = self.times;
        let output = (&mut self.output, 0, times);
        Ok(self.spiir.enqueue((&self.input, 0), times, output, stream)?.produced)
    }
}

fn measure(gpu: &Gpu, case: &Case, one_rate: &mut Option<f64>) -> Result<Figure> {
    let plan = case.plan()?;
    let input = noise(if gpu.quick { QUICK_TIMES } else { TIMES });
    let stream = gpu.device.stream()?;
    let mut resident = Resident::new(gpu, &plan, &input)?;
    let checked = is_right(&mut resident, &input, &stream)?;
    let seconds = measure::seconds(&stream, &mut |stream| resident.step(stream).map(|_| ()))?;
    let samples = (plan.templates() * input.len()) as f64;
    let scale = case.scale(operations(&plan));
    let work = samples * scale;
    let best = work / seconds.first().copied().unwrap_or(f64::INFINITY);
    if case.shown == Shown::Samples && case.rates == 1 {
        *one_rate = Some(best);
    }
    Ok(Figure {
        case: case.name.clone(),
        work,
        unit: case.unit(),
        seconds,
        roof: cases::roof(gpu.device.properties().multiprocessors) / operations(&plan) * scale,
        roof_unit: case.unit(),
        peer: if case.shown == Shown::Samples { one_rate.unwrap_or(0.0) } else { case.peer },
        checked,
    })
}

/// Returns whether some templates' ratios, from the stream's start over several calls, agree with the reference.
fn is_right(resident: &mut Resident, input: &[f32], stream: &Stream) -> Result<bool> {
    let plan = resident.spiir.plan().clone();
    let (templates, times) = (plan.templates(), input.len());
    let places: Vec<usize> = (0..CHECKED).map(|k| k * (templates - 1) / (CHECKED - 1)).collect();
    // Enough calls for every filter's input to begin.
    let calls = 2 + (plan.latency() + longest_delay(&plan)) / times;
    let mut found = vec![Vec::new(); CHECKED];
    let mut row = vec![Complex::default(); times];
    for _ in 0..calls {
        let produced = resident.step(stream)?;
        for (found, template) in found.iter_mut().zip(&places) {
            resident.output.download(template * times, &mut row[..produced])?;
            found.extend_from_slice(&row[..produced]);
        }
    }
    let options = plan.options();
    let few = places.iter().map(|place| options.templates[*place].clone()).collect();
    let few = Plan::new(Options { templates: few, ..options.clone() })?;
    let (input, samples) = (input.repeat(calls), calls * times);
    let mut expected = vec![Complex::default(); CHECKED * samples];
    let progress = Spiir::new(few, &Backend::Reference)?.run(&input, &mut expected, samples)?;
    let rows = found.iter().zip(expected.chunks_exact(samples));
    let is_right = |(found, expected): (&Vec<Complex<f32>>, &[Complex<f32>])| {
        found.len() == progress.produced && error(found, &expected[..found.len()]) < ERROR
    };
    Ok(progress.produced > 0 && rows.into_iter().all(is_right))
}
