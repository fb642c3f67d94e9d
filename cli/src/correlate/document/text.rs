//! Report lines of a correlation: time of its steps, its spectra, and the sky.

use super::{Document, GIVEN, Made, Steps};
use crate::plots::short;

impl Document {
    /// Formats each step's share of the time.
    pub(super) fn shares(&self) -> String {
        let Steps {
            read_s,
            channelize_s,
            align_s,
            corner_turn_s,
            correlate_s,
            read_out_s,
            write_s,
        } = self.steps;
        let steps = [
            ("reading", read_s),
            ("filter banks", channelize_s),
            ("alignment", align_s),
            ("corner turn", corner_turn_s),
            ("multiplication", correlate_s),
            ("reading out", read_out_s),
            ("writing", write_s),
        ];
        let all: f64 = steps.iter().map(|step| step.1).sum();
        let share = |(name, seconds): &(&str, f64)| {
            format!("{name} {} %", (100.0 * seconds / all.max(1e-12)).round())
        };
        steps.iter().map(share).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn made(&self) -> String {
        let Made { channelized, channels_of_each, taps, window, bits, .. } = &self.spectra_made;
        let bits = if *bits == 32 { "floats".to_owned() } else { format!("{bits} bit") };
        match (channelized, taps, window) {
            (true, Some(taps), Some(window)) => format!(
                "{channels_of_each} channels of each recorded one, {taps} taps, {window}, {bits}"
            ),
            _ => format!("recorded channels as they are, {bits}"),
        }
    }

    pub(super) fn sky(&self) -> String {
        let from = match self.dut1_from.split_once(": ") {
            _ if self.dut1_from == GIVEN => GIVEN,
            Some((file, _)) if !file.starts_with("IERS") => file,
            _ => "table of the IERS",
        };
        let dut1 = format!("UT1-UTC {} s ({from})", short(self.dut1_s, 5));
        let (Some(source), Some(centre)) = (&self.source, &self.phase_centre) else {
            return format!("drift, no source is followed; {dut1}");
        };
        let altitude = centre.altitude_deg.map_or_else(String::new, |[start, end]| {
            format!(", altitude {start:.1}° to {end:.1}°")
        });
        let (ra, dec) = (short(centre.ra_deg, 8), short(centre.dec_deg, 8));
        format!("{source} at RA {ra}°, Dec {dec}°{altitude}; {dut1}")
    }
}
