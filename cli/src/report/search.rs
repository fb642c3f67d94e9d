//! Plots of the candidates of a search: by time and DM, and their distributions.

use serde_json::Value;
use sidereal::units::SECONDS_PER_DAY;

use super::folder::Object;
use super::plot::{Axis, Plot, Point, What};

/// Most candidates that are drawn, and that are named by their number.
const MOST: usize = 5000;
const NAMED: usize = 15;

/// Returns the plots of candidates; `whole` is the document that lists them, if there is one.
pub(super) fn plots<'a>(
    list: impl Iterator<Item = &'a Object>,
    whole: Option<&Object>,
) -> Vec<Plot> {
    let number = |one: &Object, key: &str| one.get(key).and_then(Value::as_f64);
    let mut all: Vec<(usize, &Object)> = list.enumerate().collect();
    let snr = |one: &Object| number(one, "snr").unwrap_or(0.0);
    all.sort_by(|a, b| snr(b.1).total_cmp(&snr(a.1)));
    all.truncate(MOST);
    let is_dated = whole.is_none() && all.iter().all(|(_, one)| number(one, "mjd").is_some());
    let first = all.iter().filter_map(|(_, one)| number(one, "mjd")).fold(f64::INFINITY, f64::min);
    let mut found = Vec::new();
    for (index, one) in all {
        let key = one.get("number").and_then(Value::as_u64).unwrap_or(index as u64 + 1);
        let (Some(dm), Some(snr), Some(time_s)) =
            (number(one, "dm"), number(one, "snr"), number(one, "time_s"))
        else {
            continue;
        };
        let x = match number(one, "mjd").filter(|_| is_dated) {
            Some(mjd) => (mjd - first) * SECONDS_PER_DAY,
            None => time_s,
        };
        found.push((
            snr,
            Point { x, y: dm, size: 2.0 + snr.max(0.0).sqrt().min(9.0), name: key.to_string() },
        ));
    }
    if found.is_empty() {
        return Vec::new();
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let snrs: Vec<f64> = found.iter().map(|one| one.0).collect();
    let mut points: Vec<Point> = found.into_iter().map(|one| one.1).collect();
    points.iter_mut().skip(NAMED).for_each(|point| point.name.clear());
    let dms: Vec<f64> = points.iter().map(|point| point.y).collect();
    let high = dms.iter().copied().fold(10.0, f64::max);
    let label = if is_dated { format!("s from MJD {first:.6}") } else { "time (s)".to_owned() };
    let x = Axis::over(label, points.iter().map(|point| point.x));
    let plane = Plot {
        title: "Candidates by time and DM; numbers are those of the best".to_owned(),
        x,
        y: Axis::new("DM (pc/cm³)", -0.03 * high, 1.06 * high),
        what: What::Points { points, lines: Vec::new(), equal: false },
    };
    let threshold = whole.and_then(|whole| number(whole, "threshold_snr"));
    let least = threshold.or(snrs.last().map(|snr| snr.floor())).unwrap_or(0.0);
    let most = snrs.first().copied().unwrap_or(1.0);
    let dms = Plot::histogram("DM (pc/cm³)", &dms, [0.0, 1.02 * high]);
    vec![plane, Plot::histogram("S/N", &snrs, [least, (1.02 * most).max(1.5 * least)]), dms]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_without_numbers_are_left_out() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let list = [
            object(serde_json::json!({"dm": 50.0, "snr": 9.0, "time_s": 3.0})),
            object(serde_json::json!({"dm": null, "snr": 9.0, "time_s": 3.0})),
            object(serde_json::json!({"dm": 70.0, "snr": 12.0, "time_s": 1.0})),
        ];
        let plots = plots(list.iter(), None);
        let What::Points { points, .. } = &plots[0].what else { panic!("no points") };
        let named: Vec<_> = points.iter().map(|point| (point.y, point.name.as_str())).collect();
        assert_eq!(named, [(70.0, "3"), (50.0, "1")]);
        assert_eq!(plots.len(), 3);
        assert!(super::plots(list[1..2].iter(), None).is_empty());
    }
}
