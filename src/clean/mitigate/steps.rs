//! Steps of mitigation, as options name them, and counts of what they changed.

/// Treatment of broadband signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bandpass {
    /// Keeps them.
    #[default]
    Off,
    /// Subtracts them from spectra that are outliers.
    Outliers,
    /// Subtracts them from every spectrum.
    Always,
}

/// Steps of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Masks channels that are outliers in a block.
    pub iqrm: bool,
    /// Subtracts broadband signals.
    pub bandpass: Bandpass,
    /// Replaces dropouts and corrects gain steps.
    pub time: bool,
}

/// Statistics of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mitigated {
    /// Steps applied.
    pub steps: Steps,
    /// Rows of a block; the last one may have fewer.
    pub block_rows: usize,
    /// Rows; `cells` excludes channels that are masked throughout.
    pub rows: u64,
    /// Samples of those rows.
    pub cells: u64,
    /// Samples in outlier channels.
    pub masked_cells: u64,
    /// Spectra whose broadband part was subtracted.
    pub broadband_rows: u64,
    /// Runs of such spectra.
    pub broadband_runs: u64,
    /// Spectra lost to dropouts.
    pub lost_rows: u64,
    /// Runs of such spectra.
    pub lost_runs: u64,
    /// Spectra corrected for a level change.
    pub followed_rows: u64,
    /// Largest relative change of the level that was corrected.
    pub largest_change: f64,
}

/// Requested mitigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rfi {
    /// All steps, where the data show interference.
    Auto,
    /// No steps.
    None,
    /// The named steps.
    Named(Steps),
}

impl Rfi {
    /// Parses `auto`, `none`, or comma-separated names of steps.
    ///
    /// # Errors
    /// The reason, for other words.
    pub fn parse(words: &str) -> Result<Self, String> {
        match words.trim() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let mut steps = Steps::default();
        for word in words.split(',') {
            match word.trim() {
                "iqrm" => steps.iqrm = true,
                "bandpass" => steps.bandpass = Bandpass::Always,
                "time" => steps.time = true,
                other => {
                    return Err(format!(
                        "\"{other}\" is none; write auto, none, or some of iqrm,bandpass,time"
                    ));
                }
            }
        }
        Ok(Self::Named(steps))
    }

    /// Returns the steps of the mitigation.
    pub fn steps(self) -> Option<Steps> {
        match self {
            Self::Auto => Some(Steps { iqrm: true, bandpass: Bandpass::Outliers, time: true }),
            Self::None => None,
            Self::Named(steps) => Some(steps),
        }
    }

    /// Returns whether channels with outlying statistics are masked for the whole recording.
    pub fn has_mask(self) -> bool {
        self.steps().is_some_and(|steps| steps.iqrm)
    }

    /// Returns the same mitigation without channel masks from the data's statistics.
    pub fn without_masks(self) -> Self {
        let steps = self.steps().map(|steps| Steps { iqrm: false, ..steps });
        steps.map_or(Self::None, Self::Named)
    }
}

impl std::fmt::Display for Rfi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Named(steps) => f.write_str(&steps.names().join(",")),
        }
    }
}

impl Steps {
    /// Returns the names of the steps.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.iqrm, "iqrm"),
            (self.bandpass != Bandpass::Off, "bandpass"),
            (self.time, "time"),
        ];
        all.into_iter().filter_map(|(is_on, name)| is_on.then_some(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_by_name() {
        assert_eq!(Rfi::parse("auto"), Ok(Rfi::Auto));
        assert_eq!(Rfi::parse("none").map(Rfi::steps), Ok(None));
        let named = Rfi::parse("time, bandpass").unwrap();
        assert_eq!(named.to_string(), "bandpass,time");
        assert!(!named.has_mask() && Rfi::Auto.has_mask());
        assert_eq!(Rfi::Auto.without_masks().to_string(), "bandpass,time");
        for bad in ["", "zap", "auto,time", "iqrm,"] {
            assert!(Rfi::parse(bad).unwrap_err().contains("iqrm,bandpass,time"), "{bad}");
        }
    }
}
