//! Ranks of a divided correlation that are threads of a test.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sidereal::pipeline::correlator::Exchange;
use sidereal::{Error, Result};

/// Time after which a rank counts as waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ranks in the threads of a process: a channel from each to each.
pub(crate) struct Connected {
    pub(crate) rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

impl Connected {
    /// Returns the exchanges of all ranks.
    pub(crate) fn all(ranks: usize) -> Vec<Self> {
        let mut all: Vec<Self> =
            (0..ranks).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..ranks {
            for to in 0..ranks {
                let (sender, receiver) = channel();
                all[from].to.push(sender);
                all[to].from.push(receiver);
            }
        }
        all
    }

    fn receive(&self, rank: usize) -> Result<Vec<u8>> {
        self.from[rank].recv_timeout(PATIENCE).map_err(|error| Error::Unavailable {
            what: format!("data of rank {rank} at rank {}", self.rank),
            why: error.to_string(),
        })
    }

    fn send(&self, rank: usize, bytes: &[u8]) {
        // A rank that has ended receives nothing.
        let _ = self.to[rank].send(bytes.to_vec());
    }
}

impl Exchange for Connected {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.to.len()
    }

    fn all_to_all(
        &mut self,
        mut send: &[u8],
        send_bytes: &[usize],
        mut receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        assert_eq!(send_bytes[self.rank], 0);
        for (rank, bytes) in send_bytes.iter().enumerate() {
            let (own, rest) = send.split_at(*bytes);
            send = rest;
            if rank != self.rank {
                self.send(rank, own);
            }
        }
        for (rank, bytes) in receive_bytes.iter().enumerate() {
            let (own, rest) = receive.split_at_mut(*bytes);
            receive = rest;
            if rank != self.rank {
                own.copy_from_slice(&self.receive(rank)?);
            }
        }
        assert!(send.is_empty() && receive.is_empty(), "bytes of no rank");
        Ok(())
    }

    fn least(&mut self, value: u64) -> Result<u64> {
        (0..self.ranks()).for_each(|rank| self.send(rank, &value.to_ne_bytes()));
        let values = (0..self.ranks()).map(|rank| self.receive(rank));
        let mut values =
            values.map(|own| own.map(|own| u64::from_ne_bytes(own.try_into().unwrap())));
        values.try_fold(u64::MAX, |least, own| own.map(|own| least.min(own)))
    }

    fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        self.send(0, &own);
        let all = (self.rank == 0).then(|| (0..self.ranks()).map(|rank| self.receive(rank)));
        all.map(Iterator::collect).transpose()
    }
}
