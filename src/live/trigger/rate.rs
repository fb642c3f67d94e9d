//! Limit on the rate of triggers, for each sender.

use std::net::IpAddr;
use std::time::Instant;

/// Most senders that are remembered; the one that was silent longest makes place for another.
const SENDERS: usize = 64;

/// Token buckets: a sender may send `burst` triggers at once, and `per_s` triggers a second from then on.
///
/// Allocates nothing after [`RateLimit::new`].
#[derive(Debug)]
pub struct RateLimit {
    per_s: f64,
    burst: f64,
    buckets: Vec<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    sender: IpAddr,
    tokens: f64,
    last: Instant,
}

impl RateLimit {
    /// Makes a limit of `per_s` triggers a second, and of one or more at once.
    pub fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst: burst.max(1.0), buckets: Vec::with_capacity(SENDERS) }
    }

    /// Counts a trigger; returns whether the sender may send it.
    pub fn admit(&mut self, sender: IpAddr, now: Instant) -> bool {
        let place = match self.buckets.iter().position(|bucket| bucket.sender == sender) {
            Some(place) => place,
            None => self.remember(sender, now),
        };
        let Some(bucket) = self.buckets.get_mut(place) else { return false };
        let since_s = now.saturating_duration_since(bucket.last).as_secs_f64();
        bucket.tokens = (bucket.tokens + since_s * self.per_s).min(self.burst);
        bucket.last = bucket.last.max(now);
        let is_admitted = bucket.tokens >= 1.0;
        if is_admitted {
            bucket.tokens -= 1.0;
        }
        is_admitted
    }

    /// Returns the place of a new sender's bucket.
    fn remember(&mut self, sender: IpAddr, now: Instant) -> usize {
        let bucket = Bucket { sender, tokens: self.burst, last: now };
        if self.buckets.len() < SENDERS {
            self.buckets.push(bucket);
            return self.buckets.len() - 1;
        }
        let oldest = self.buckets.iter().enumerate().min_by_key(|(_, bucket)| bucket.last);
        let place = oldest.map_or(0, |(place, _)| place);
        self.buckets[place] = bucket;
        place
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sender_has_its_burst_and_then_its_rate() {
        let mut limit = RateLimit::new(10.0, 5.0);
        let begin = Instant::now();
        let one = IpAddr::from(Ipv4Addr::LOCALHOST);
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let admitted = |limit: &mut RateLimit, sender, ms| {
            (0..1000).filter(|_| limit.admit(sender, at(ms))).count()
        };
        assert_eq!(admitted(&mut limit, one, 0), 5);
        assert_eq!(admitted(&mut limit, one, 250), 2);
        assert_eq!(admitted(&mut limit, one, 60_000), 5);
        assert_eq!(admitted(&mut limit, IpAddr::from([10, 0, 0, 1]), 60_000), 5);
        // Others do not make it forget a sender that goes on: 10 triggers a second for 255 ms.
        let mut count = 0;
        for host in 0..255 {
            let now = at(60_001 + u64::from(host));
            assert!(limit.admit(IpAddr::from([10, 0, 1, host]), now));
            count += usize::from(limit.admit(one, now));
        }
        assert!(count <= 3, "{count}");
        assert!(limit.buckets.len() == SENDERS && limit.buckets.capacity() == SENDERS);
    }
}
