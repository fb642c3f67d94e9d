//! Work on buffers by two threads at the same time: one fills them, the other one uses them.
//!
//! Invariant: buffers are used in the order in which they are filled, and no others are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::scope;

use super::run::Ending;
use crate::error::Result;

/// Fills buffers on a new thread while this one uses those filled before; returns the reason for the end.
///
/// `fill` returns the number of elements that it has put into a buffer; 0 ends the data. `take` receives each buffer
/// with this number and stops the run by returning false; buffers that are filled by then still follow, and what `take`
/// returns for them has no effect. An error of `fill` comes after all buffers before it.
///
/// # Errors
/// Errors of `take`; buffers filled by then are not used.
pub fn overlapped<B: Send>(
    buffers: &mut [B],
    mut fill: impl FnMut(&mut B) -> Result<usize> + Send,
    mut take: impl FnMut(&mut B, usize) -> Result<bool>,
) -> Result<Ending> {
    let (empty, spare) = sync_channel(buffers.len());
    let (filled, used) = sync_channel(buffers.len());
    for buffer in buffers {
        let _ = empty.send(buffer);
    }
    let is_stopped = AtomicBool::new(false);
    let goes_on = || !is_stopped.load(Ordering::Relaxed);
    scope(|scope| {
        scope.spawn(move || {
            for buffer in spare.into_iter().take_while(|_| goes_on()) {
                let result = fill(buffer);
                let is_last = !matches!(result, Ok(1..));
                if filled.send((buffer, result)).is_err() || is_last {
                    break;
                }
            }
        });
        // An error drops both channels, and with them the thread's last reason to go on.
        let empty = empty;
        for (buffer, result) in used {
            match result {
                Ok(0) => break,
                Ok(elements) if take(buffer, elements)? => {}
                Ok(_) => is_stopped.store(true, Ordering::Relaxed),
                Err(fault) if goes_on() => return Ok(Ending::after(fault)),
                Err(_) => break,
            }
            // The thread has ended after the last buffer.
            let _ = empty.send(buffer);
        }
        Ok(if goes_on() { Ending::Complete } else { Ending::Stopped })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn fault() -> Error {
        Error::io("a.fil", std::io::ErrorKind::Other.into())
    }

    /// Returns a function that fills buffers with 0, 1, 2, ... up to `end`, and then ends with `last`.
    fn counting(end: u32, last: fn() -> Result<usize>) -> impl FnMut(&mut u32) -> Result<usize> {
        let mut next = 0;
        move |buffer| {
            if next == end {
                return last();
            }
            *buffer = next;
            next += 1;
            Ok(1)
        }
    }

    #[test]
    fn buffers_come_in_order_before_the_end_or_the_error() {
        for count in 1..4 {
            let mut buffers = vec![0; count];
            for (last, is_complete) in
                [((|| Ok(0)) as fn() -> Result<usize>, true), (|| Err(fault()), false)]
            {
                let mut found = Vec::new();
                let ending = overlapped(&mut buffers, counting(100, last), |buffer, _| {
                    found.push(*buffer);
                    Ok(true)
                });
                assert_eq!(found, (0..100).collect::<Vec<u32>>());
                assert_eq!(ending.unwrap().is_complete(), is_complete);
            }
        }
    }

    #[test]
    fn a_stop_ends_the_filling_but_loses_no_buffer() {
        let (mut filled, mut found) = (0, Vec::new());
        let mut fill = counting(1000, || Ok(0));
        let fill = |buffer: &mut u32| {
            filled += 1;
            fill(buffer)
        };
        let ending = overlapped(&mut [0; 3], fill, |buffer, _| {
            found.push(*buffer);
            Ok(*buffer != 5)
        });
        assert!(matches!(ending, Ok(Ending::Stopped)));
        assert!(found.len() >= 6 && found.len() <= 9, "{found:?}");
        assert_eq!(found, (0..filled).collect::<Vec<u32>>());
    }

    #[test]
    fn an_error_of_use_ends_both_sides() {
        let ending = overlapped(&mut [0; 2], counting(u32::MAX, || Ok(0)), |buffer, _| {
            if *buffer == 7 { Err(fault()) } else { Ok(true) }
        });
        assert!(ending.unwrap_err().to_string().contains("a.fil"));
    }
}
