//! Equation of the filter bank: impulses, tones, splits of the stream.

use num_complex::{Complex, Complex64};
use sidereal::backend::Backend;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

fn filter(frequency: f64, memory: f64, delay: u32) -> Filter {
    let a = Complex64::from_polar((-1.0 / memory).exp(), std::f64::consts::TAU * frequency);
    Filter { a: Complex::new(a.re as f32, a.im as f32), b: Complex::new(0.1, -0.05), delay }
}

fn plan(branches: Vec<Branch>) -> Plan {
    let templates = vec![Template { branches }];
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

fn whole(plan: &Plan, input: &[f32], block: usize) -> Vec<Complex<f32>> {
    let mut spiir = Spiir::new(plan.clone(), &Backend::Reference).expect("bound");
    let mut output = Vec::new();
    let mut row = vec![Complex::new(f32::NAN, f32::NAN); block];
    for part in input.chunks(block) {
        let produced = spiir.run(part, &mut row, block).expect("run").produced;
        output.extend_from_slice(&row[..produced]);
    }
    loop {
        let produced = spiir.flush(&mut row, block).expect("flush");
        output.extend_from_slice(&row[..produced]);
        if produced == 0 {
            return output;
        }
    }
}

#[test]
fn an_impulse_gives_each_filters_response() {
    let one = filter(0.1, 20.0, 3);
    let plan = plan(vec![Branch { halvings: 0, filters: vec![one] }]);
    let mut input = vec![0.0; 64];
    input[5] = 1.0;
    let output = whole(&plan, &input, 64);
    assert_eq!(output.len(), 64);
    for (k, z) in output.iter().enumerate() {
        let expected = k
            .checked_sub(8)
            .map_or(Complex64::default(), |n| one.weight() * one.pole().powu(n as u32));
        assert!((Complex64::new(z.re.into(), z.im.into()) - expected).norm() < 1e-7, "{k}");
    }
}

#[test]
fn a_tone_in_a_halved_branch_comes_out_in_step_with_one_at_the_full_rate() {
    // The same filter at full rate and at an eighth: a' = a^8, b' = 8 b, delays of whole low-rate samples.
    let (frequency, memory) = (0.02, 400.0);
    let full = filter(frequency, memory, 80);
    let low = filter(8.0 * frequency, memory / 8.0, 10);
    let low = Filter { b: full.b * 8.0, ..low };
    let tone = |n: usize| (std::f64::consts::TAU * frequency * n as f64).cos() as f32;
    let input: Vec<f32> = (0..20_000).map(tone).collect();
    let at_full = whole(&plan(vec![Branch { halvings: 0, filters: vec![full] }]), &input, 20_000);
    let at_low = whole(&plan(vec![Branch { halvings: 3, filters: vec![low] }]), &input, 20_000);
    assert_eq!((at_full.len(), at_low.len()), (20_000, 20_000));
    // An eighth's samples hold the response's sum to about 1 / (2 memory / 8).
    for k in 10_000..18_000 {
        let (full, low) = (at_full[k], at_low[k]);
        assert!((full - low).norm() < 0.03 * full.norm(), "{k}: {full} against {low}");
    }
}

#[test]
fn any_split_gives_the_same() {
    let branches = (0..4)
        .map(|halvings| Branch { halvings, filters: vec![filter(0.2, 30.0, 7 * halvings + 1)] })
        .collect();
    let plan = plan(branches);
    let input: Vec<f32> = (0..3001).map(|n| ((n * n) as f32 * 0.37).sin()).collect();
    let expected = whole(&plan, &input, 3001);
    assert_eq!(expected.len(), 3001);
    for block in [1, 7, 256, 1000] {
        assert_eq!(whole(&plan, &input, block), expected, "blocks of {block}");
    }
}
