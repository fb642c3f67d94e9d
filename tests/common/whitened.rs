//! A stream through a whitener, from its first sample to its flush.

use sidereal::spiir::whiten::{Options, Whitener};

/// Passes a whole stream through a whitener, in blocks of the lengths that `next` returns.
pub(crate) fn whiten(
    whitener: &mut Whitener,
    strain: &[f64],
    valid: &[bool],
    mut next: impl FnMut() -> usize,
) -> (Vec<f32>, Vec<bool>) {
    let (mut all, mut flags): (Vec<f32>, Vec<bool>) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < strain.len() {
        let end = (at + next()).min(strain.len());
        let (mut output, mut good) = (vec![7.0; end - at], vec![true; end - at]);
        let done = whitener.run(&strain[at..end], &valid[at..end], &mut output, &mut good);
        let done = done.expect("whitened");
        assert_eq!(done.consumed, end - at);
        all.extend(&output[..done.produced]);
        flags.extend(&good[..done.produced]);
        assert_eq!(all.len(), end.saturating_sub(whitener.latency()), "one sample for each, later");
        at = end;
    }
    loop {
        let length = next();
        let (mut output, mut good) = (vec![7.0; length], vec![true; length]);
        match whitener.flush(&mut output, &mut good).expect("flushed") {
            0 if length > 0 => break,
            count => {
                all.extend(&output[..count]);
                flags.extend(&good[..count]);
            }
        }
    }
    assert_eq!(all.len(), strain.len());
    assert!(all.iter().all(|sample| sample.is_finite()));
    (all, flags)
}

/// The same in blocks longer than any stream here.
pub(crate) fn whole(options: Options, strain: &[f64], valid: &[bool]) -> (Vec<f32>, Vec<bool>) {
    let mut whitener = Whitener::new(options).expect("options that hold");
    whiten(&mut whitener, strain, valid, || 1 << 18)
}
