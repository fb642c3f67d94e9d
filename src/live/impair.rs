//! Loss, delay and duplication of packets, as decided by a seed: the same packets in each run.
//!
//! Decisions about a packet depend on the seed, its number and the kind of decision alone, so that the same packets are lost
//! with and without delays.

use std::collections::VecDeque;

use crate::error::{Error, Result};

/// Longest delay in packets.
const MOST_SPAN: usize = 1 << 16;

/// Impairments of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Probability that a packet is lost: 0 to 1.
    pub loss: f64,
    /// Probability that a packet is delayed.
    pub reorder: f64,
    /// Most packets by which a packet is delayed.
    pub span: usize,
    /// Probability that a packet is sent twice.
    pub duplicate: f64,
    /// Seed of all decisions.
    pub seed: u64,
}

impl Default for Options {
    /// Makes options without impairments; delays would be of 1 to 16 packets.
    fn default() -> Self {
        Self { loss: 0.0, reorder: 0.0, span: 16, duplicate: 0.0, seed: 0 }
    }
}

impl Options {
    /// Returns whether packets pass as they are.
    pub fn is_none(&self) -> bool {
        self.loss == 0.0 && self.reorder == 0.0 && self.duplicate == 0.0
    }

    fn check(&self) -> Result<()> {
        let probabilities = [
            ("impair.loss", self.loss),
            ("impair.reorder", self.reorder),
            ("impair.duplicate", self.duplicate),
        ];
        for (name, probability) in probabilities {
            if !(0.0..=1.0).contains(&probability) {
                return Err(Error::parameter(name, probability, "it must be 0 to 1"));
            }
        }
        if !(1..=MOST_SPAN).contains(&self.span) {
            let rule = format!("it must be 1 to {MOST_SPAN} packets");
            return Err(Error::parameter("impair.span", self.span, rule));
        }
        Ok(())
    }
}

/// Packets by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub packets: u64,
    /// Packets among them that were lost.
    pub dropped: u64,
    /// Copies of packets that were held back.
    pub delayed: u64,
    /// Packets that were sent twice.
    pub duplicated: u64,
}

/// Kinds of decisions.
#[derive(Clone, Copy)]
enum Decision {
    Loss,
    Duplicate,
    Delay { copy: u64 },
    Span { copy: u64 },
}

impl Decision {
    fn number(self) -> u64 {
        match self {
            Self::Loss => 0,
            Self::Duplicate => 1,
            Self::Delay { copy } => 2 + copy,
            Self::Span { copy } => 4 + copy,
        }
    }
}

/// Impairs a stream of packets. Nothing is allocated for a packet once as many have been held back at a time as ever are.
#[derive(Clone, Debug)]
pub struct Impairer {
    options: Options,
    counts: Counts,
    /// Packets held back, by the number of packets that come before them.
    held: VecDeque<Vec<Vec<u8>>>,
    /// Buffers for packets to be held back.
    free: Vec<Vec<u8>>,
}

impl Impairer {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a probability or a span out of range.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        let waiting = if options.reorder > 0.0 { options.span + 1 } else { 1 };
        let held = (0..waiting).map(|_| Vec::new()).collect();
        Ok(Self { options, counts: Counts::default(), held, free: Vec::new() })
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Passes a packet, none or two copies of it, and those packets whose delay ends here, to `send`. Returns whether the
    /// packet is lost.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn pass(
        &mut self,
        packet: &[u8],
        send: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Options { loss, reorder, span, duplicate, .. } = self.options;
        let is_lost = self.is_drawn(Decision::Loss, loss);
        if is_lost {
            self.counts.dropped += 1;
        } else {
            let is_double = self.is_drawn(Decision::Duplicate, duplicate);
            self.counts.duplicated += u64::from(is_double);
            for copy in 0..=u64::from(is_double) {
                if self.is_drawn(Decision::Delay { copy }, reorder) {
                    let delay = 1 + (self.bits(Decision::Span { copy }) % span as u64) as usize;
                    let mut bytes = self.free.pop().unwrap_or_default();
                    bytes.clear();
                    bytes.extend_from_slice(packet);
                    self.held[delay].push(bytes);
                    self.counts.delayed += 1;
                } else {
                    send(packet)?;
                }
            }
        }
        self.counts.packets += 1;
        self.release(send)?;
        Ok(is_lost)
    }

    /// Passes all packets that are held back to `send`, in the order of their delays.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn finish(&mut self, send: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for _ in 0..self.held.len() {
            self.release(send)?;
        }
        Ok(())
    }

    /// Sends the packets whose delay has ended, and shortens that of the others by one packet.
    fn release(&mut self, send: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Some(due) = self.held.front_mut() else { return Ok(()) };
        for packet in due.iter() {
            send(packet)?;
        }
        self.free.append(due);
        self.held.rotate_left(1);
        Ok(())
    }

    fn is_drawn(&self, decision: Decision, probability: f64) -> bool {
        let uniform = (self.bits(decision) >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < probability
    }

    /// Returns pseudorandom bits for a decision about the current packet: two rounds of splitmix64.
    fn bits(&self, decision: Decision) -> u64 {
        let own = mixed(self.options.seed).wrapping_add(self.counts.packets.wrapping_mul(8));
        mixed(own.wrapping_add(decision.number()))
    }
}

/// Mixes bits as splitmix64 does.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Passed {
        sent: Vec<usize>,
        lost: Vec<usize>,
        counts: Counts,
    }

    /// Passes packets that hold their number.
    fn pass(options: Options, packets: usize) -> Passed {
        let mut impairer = Impairer::new(options).unwrap();
        let (mut sent, mut lost) = (Vec::new(), Vec::new());
        let mut send = |packet: &[u8]| {
            sent.push(usize::from_le_bytes(packet.try_into().unwrap()));
            Ok(())
        };
        for number in 0..packets {
            if impairer.pass(&number.to_le_bytes(), &mut send).unwrap() {
                lost.push(number);
            }
        }
        impairer.finish(&mut send).unwrap();
        Passed { sent, lost, counts: impairer.counts() }
    }

    #[test]
    fn without_impairments_packets_pass_in_order() {
        let passed = pass(Options::default(), 100);
        assert_eq!(passed.sent, (0..100).collect::<Vec<_>>());
        assert_eq!(passed.counts, Counts { packets: 100, ..Counts::default() });
    }

    #[test]
    fn every_packet_is_sent_as_often_as_the_counts_say() {
        let packets = 20_000;
        let options = Options { loss: 0.1, reorder: 0.2, span: 7, duplicate: 0.05, seed: 5 };
        let Passed { sent, lost, counts } = pass(options, packets);
        let mut copies = vec![0_u64; packets];
        sent.iter().for_each(|number| copies[*number] += 1);
        let absent: Vec<usize> = (0..packets).filter(|number| copies[*number] == 0).collect();
        assert_eq!(absent, lost);
        assert_eq!((counts.packets, counts.dropped), (packets as u64, lost.len() as u64));
        assert!(copies.iter().all(|copies| *copies <= 2));
        let doubles = copies.iter().filter(|copies| **copies == 2).count() as u64;
        assert_eq!(counts.duplicated, doubles);
        for (found, expected) in
            [(counts.dropped, 2000.0), (doubles, 900.0), (counts.delayed, 3780.0)]
        {
            let deviation = (found as f64 - expected) / expected.sqrt();
            assert!(deviation.abs() < 5.0, "{found}, expected {expected}");
        }
        assert_eq!(pass(options, packets).sent, sent, "the same seed decides the same");
        assert_ne!(pass(Options { seed: 6, ..options }, packets).sent, sent);
    }

    #[test]
    fn delays_are_within_their_span() {
        let options = Options { reorder: 0.3, span: 5, seed: 9, ..Options::default() };
        let Passed { sent, counts, .. } = pass(options, 5000);
        let mut longest = 0;
        for (place, number) in sent.iter().enumerate() {
            let overtaken = sent[..place].iter().filter(|other| *other > number).count();
            longest = longest.max(overtaken);
        }
        assert_eq!(longest, 5);
        let late = sent.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        assert!(late > 0 && late <= counts.delayed, "{late}, {counts:?}");
    }

    #[test]
    fn losses_do_not_depend_on_other_impairments() {
        let options = Options { loss: 0.2, seed: 3, ..Options::default() };
        let more = Options { reorder: 0.5, duplicate: 0.5, ..options };
        assert_eq!(pass(options, 1000).lost, pass(more, 1000).lost);
        assert_eq!(pass(Options { loss: 1.0, ..options }, 50).lost.len(), 50);
    }

    #[test]
    fn impossible_options_are_named() {
        let usual = Options::default();
        for (options, name) in [
            (Options { loss: 1.1, ..usual }, "loss"),
            (Options { loss: f64::NAN, ..usual }, "loss"),
            (Options { reorder: -0.1, ..usual }, "reorder"),
            (Options { duplicate: 2.0, ..usual }, "duplicate"),
            (Options { span: 0, ..usual }, "span"),
        ] {
            let error = Impairer::new(options).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
