//! Background of accidental coincidences: events of the time slides, and the false-alarm rates they give.

/// Rate with its statistical uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Events per second.
    pub hz: f64,
    /// Standard deviation.
    pub sigma_hz: f64,
}

/// Events of all time slides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Background {
    /// Rankings, greatest first.
    pub rankings: Vec<f64>,
    /// Coincident time of all slides together, in seconds.
    pub time_s: f64,
    /// Number of slides.
    pub slides: usize,
    /// Number of the loudest zero-lag events, whose triggers were left out.
    pub left_out: usize,
}

impl Background {
    /// Counts the events at least as loud.
    pub fn louder(&self, ranking: f64) -> usize {
        self.rankings.partition_point(|other| *other >= ranking)
    }

    /// Returns the false-alarm rate of events at least as loud, `(1 + louder) / time`, and its standard deviation,
    /// `sqrt(1 + louder) / time`; `None` without background time.
    ///
    /// Without a louder event both are `1 / time`, and the rate is an upper limit.
    ///
    /// # Source
    /// Usman et al. 2016, Class. Quantum Grav. 33, 215004: the count includes the event itself.
    pub fn rate(&self, ranking: f64) -> Option<Rate> {
        let count = 1.0 + self.louder(ranking) as f64;
        (self.time_s > 0.0)
            .then(|| Rate { hz: count / self.time_s, sigma_hz: count.sqrt() / self.time_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_the_event_itself() {
        let background =
            Background { rankings: vec![9.0, 7.0, 7.0, 6.0], time_s: 50.0, slides: 5, left_out: 0 };
        assert_eq!(background.rate(10.0), Some(Rate { hz: 0.02, sigma_hz: 0.02 }));
        assert_eq!(background.rate(7.0), Some(Rate { hz: 0.08, sigma_hz: 0.04 }));
        assert_eq!(background.louder(1.0), 4);
        assert_eq!(Background::default().rate(5.0), None);
    }
}
