//! Events of a single detector; only their loudness distinguishes them from its noise.

use super::report::DetectorReport;
use crate::spiir::coincidence::{Event, Found, Ranking, TimedTrigger};

/// Returns the triggers that rank highest within `cluster_s`, best first, without false-alarm rates.
pub(super) fn events(report: &DetectorReport, cluster_s: f64, ranking: Ranking) -> Found {
    let rank = |trigger: &TimedTrigger| match ranking {
        Ranking::Reweighted => f64::from(trigger.reweighted()),
        Ranking::Snr => f64::from(trigger.snr),
    };
    let mut triggers: Vec<TimedTrigger> = report.triggers.clone();
    triggers.sort_by_key(|trigger| (trigger.gps, trigger.template));
    let near = |a: &TimedTrigger, b: &TimedTrigger| a.gps.seconds_since(b.gps).abs() <= cluster_s;
    let is_best = |place: usize| {
        let own = &triggers[place];
        let before = triggers[..place].iter().rev().take_while(|other| near(own, other));
        let after = triggers[place + 1..].iter().take_while(|other| near(own, other));
        before.into_iter().all(|other| rank(other) < rank(own))
            && after.into_iter().all(|other| rank(other) <= rank(own))
    };
    let event = |place: usize| {
        let trigger = triggers[place];
        Event {
            template: trigger.template,
            gps: trigger.gps,
            detectors: vec![Some(trigger)],
            network_snr: f64::from(trigger.snr),
            ranking: rank(&trigger),
            louder: 0,
            far_hz: None,
            far_sigma: None,
            false_alarm_probability: None,
        }
    };
    let mut events: Vec<Event> =
        (0..triggers.len()).filter(|place| is_best(*place)).map(event).collect();
    events.sort_by(|a, b| b.ranking.total_cmp(&a.ranking));
    Found { events, livetime_s: report.livetime_s, ..Found::default() }
}
