//! Spectra of a live stream sent to X-engines, as voltages of more channels.
//!
//! Invariant: spectra of streams with a common clock begin whole spectra apart, whenever they are begun.

use sidereal::backend::Backend;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::live::header::Content;
use sidereal::live::send::{BandMonitor, Options, Summary, send_bands};
use sidereal::live::target::Target;
use sidereal::pipeline::voltage::{ChannelizeOptions, ChannelizedVoltages};
use sidereal::units::SECONDS_PER_DAY;
use sidereal::{Error, Result};

use super::output::{Values, requantization};
use crate::behind::Reporter;
use crate::common::{Common, tell_notes};
use crate::interrupt::{self, Exit};
use crate::json;
use crate::provenance::{Product, Provenance, Run};
use crate::say::{self, fault, warning};
use crate::send::Document;
use crate::voltage_arguments::points;

/// Checks the receivers of `--send`, and that the gain is the same for all antennas.
///
/// # Errors
/// [`Error::Parameter`].
pub(super) fn check(receivers: &[Target], gain: Option<f32>) -> Result<()> {
    if let Some(vdif) = receivers.iter().find(|one| matches!(one, Target::Vdif(_))) {
        let rule = "expected spead://HOST:PORT or dada:KEY: VDIF frames do not state frequencies";
        return Err(Error::parameter("--send", vdif.to_string(), rule));
    }
    if let Some(twice) =
        (1..receivers.len()).find(|one| receivers[..*one].contains(&receivers[*one]))
    {
        let rule = "it is given twice, and a receiver gets one range of channels";
        return Err(Error::parameter("--send", receivers[twice].to_string(), rule));
    }
    if gain.is_none() {
        let rule = "with --send it must be given, the same for all antennas: a gain chosen from the power would differ \
                    between them";
        return Err(Error::parameter("--gain", "not given", rule));
    }
    Ok(())
}

/// Channelizes an observation and sends an equal part of the channels to each receiver.
///
/// # Errors
/// Those of the options and of the source.
pub(super) fn send(
    recorded: Box<dyn VoltageSource>,
    receivers: &[Target],
    values: Values,
    options: ChannelizeOptions,
    backend: &Backend,
    common: &Common,
) -> Result<Exit> {
    say::warn_of_recording(recorded.warnings(), recorded.cut(), common.quiet);
    let lead_s = lead_s(recorded.header(), &options);
    let options = ChannelizeOptions { time_range: Some((lead_s, f64::INFINITY)), ..options };
    let form = requantization(values.nbits, values.gain)?;
    let mut source = ChannelizedVoltages::new(recorded, &options, &form, backend)?;
    source.watched_by(Box::new(|| !interrupt::requested()));
    let content = Content::Voltages(source.header().clone());
    let provenance = Provenance::new(common, &[])?;
    let monitor = Listener { is_quiet: common.quiet, reporter: Reporter::new(common).into() };
    let sent = send_bands(&mut source, receivers, &Options::default(), &monitor)?;
    tell_notes(backend, common);
    let of_receivers = receivers.iter().zip(&sent);
    for (receiver, summary) in of_receivers.filter_map(|(own, sent)| Some((own, sent.as_ref()?))) {
        tell(Document::new(receiver.to_string(), &content, summary), summary, &provenance, common)?;
    }
    match interrupt::requested() {
        true => Ok(Exit::Interrupted),
        false if sent.iter().any(Option::is_none) => Ok(Exit::Failed),
        false => Ok(Exit::Success),
    }
}

/// Prints what a receiver was sent.
fn tell(
    document: Document,
    summary: &Summary,
    provenance: &Provenance,
    common: &Common,
) -> Result<()> {
    if common.json {
        let run = Run::new(common).took(summary.elapsed_s, summary.data_s).live();
        json::print(&Product::new("send", document, provenance.clone(), run))
    } else if common.quiet {
        Ok(())
    } else {
        json::say(&document.table(summary))
    }
}

/// Returns the time from a stream's start to its first sample that is a whole number of spectra after MJD 0. Phases of an
/// oversampled filter bank repeat after several spectra, of which it is a whole number then.
fn lead_s(header: &VoltageHeader, options: &ChannelizeOptions) -> f64 {
    if header.start.day == 0 {
        return 0.0;
    }
    let (_, every) = options.oversampling;
    let samples = (points(header, options.channels) * every) as f64;
    let period_s = samples * header.tsamp_s;
    // Remainders of floats are exact.
    let day_s = (header.start.day as f64 * SECONDS_PER_DAY) % period_s;
    let passed = ((day_s + header.start.seconds % period_s) / header.tsamp_s).round() % samples;
    if passed == 0.0 { 0.0 } else { (samples - passed) * header.tsamp_s }
}

/// Listener of the senders.
struct Listener {
    is_quiet: bool,
    reporter: std::sync::Mutex<Reporter>,
}

impl BandMonitor for Listener {
    fn stops(&self) -> bool {
        interrupt::requested()
    }

    fn sent(&self) {
        self.reporter.lock().unwrap_or_else(std::sync::PoisonError::into_inner).look();
    }

    fn waits(&self, receiver: &Target, why: &str) {
        warning!(quiet: self.is_quiet, "{receiver}: the ring is full: {why}.");
    }

    fn failed(&self, receiver: &Target, why: &Error) {
        fault!("{receiver} gets nothing more of this observation: {why}");
    }
}

#[cfg(test)]
mod tests {
    use sidereal::units::Epoch;
    use sidereal::voltage::VoltageEncoding;

    use super::*;

    #[test]
    fn streams_that_begin_at_other_times_have_spectra_of_the_same_times() {
        let tsamp_s = 1.0 / 3e6;
        let mut options = ChannelizeOptions::new(96);
        for oversampling in [(1, 1), (4, 3)] {
            options.oversampling = oversampling;
            let period = 96 * oversampling.1;
            let begin = |samples: usize| {
                let start =
                    Epoch { day: 60_676, seconds: 86_399.0 }.plus_s(samples as f64 * tsamp_s);
                let header = VoltageHeader::new(vec![1e9], tsamp_s, VoltageEncoding::Complex8);
                let lead_s = lead_s(&VoltageHeader { start, ..header }, &options);
                samples + (lead_s / tsamp_s).round() as usize
            };
            let first = begin(0);
            for samples in [1, 95, 96, 97, 1000, 2_999_999, 3_000_001, 12_345_678] {
                let found = begin(samples);
                assert!((samples..samples + period).contains(&found), "{samples} {found}");
                assert_eq!((found - first) % period, 0, "{samples}");
            }
        }
    }
}
