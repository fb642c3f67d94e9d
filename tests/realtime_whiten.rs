//! Whitening does not allocate, with both methods, a running spectrum and a gate.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet};
use sidereal::math::PowerSpectrum;
use sidereal::spiir::whiten::{GateOptions, Options, Psd, RunningOptions, Whitener};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most samples in a block: a second.
const TIMES: usize = 256;

#[test]
fn whitening_asks_for_no_memory() {
    let spectrum = PowerSpectrum::new(1.0, vec![2.0 / 256.0; 129]).expect("a spectrum");
    let running = RunningOptions { segment_s: 1.0, settle: 2, ..RunningOptions::default() };
    for psd in [Psd::Fixed(spectrum), Psd::Running(running)] {
        for base in [Options::new, Options::low_latency] {
            let gate = Some(GateOptions { threshold: 4.0, hold_s: 0.1, taper_s: 0.1 });
            let options = Options { gate, ..base(256, psd.clone()) };
            let name = format!("{:?}", options.method);
            let mut whitener = Whitener::new(options).expect("options that hold");
            let mut strain = vec![0.0; TIMES];
            let mut valid = vec![true; TIMES];
            let (mut output, mut flags) = (vec![0.0; TIMES], vec![false; TIMES]);
            let (mut round, mut state) = (0_usize, 1_u32);
            assert_quiet(&name, 12, 60, || {
                round += 1;
                for sample in &mut strain {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *sample = f64::from(state) / f64::from(u32::MAX) - 0.5;
                }
                strain[round % TIMES] = f64::NAN;
                strain[(3 * round) % TIMES] = 1e3;
                valid.fill(round % 7 != 0);
                let times = [TIMES, 1, 77, 0][round % 4];
                let (output, flags) = (&mut output[..times], &mut flags[..times]);
                whitener.run(&strain[..times], &valid[..times], output, flags).expect("runs");
                if round % 30 == 0 {
                    whitener.flush(output, flags).expect("flushes");
                    whitener.reset();
                }
            });
        }
    }
}
