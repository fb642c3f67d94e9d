//! The ring of voltages in real time: the thread that reads the stream asks for no memory, whether triggers come or not.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sidereal::Result;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, Sweep, VoltageHeader, VoltageSource};
use sidereal::pipeline::dump::{Dumps, Memory, Options, Request, tap};
use sidereal::pipeline::voltage::VoltageFormat;
use sidereal::units::{DM_CONSTANT, Epoch};
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

#[path = "common/counting.rs"]
mod counting;

/// Allocator that also counts the requests of each thread.
struct OfThread;

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    OWN.with(|own| own.set(own.get() + 1));
}

// SAFETY: every request is passed on unchanged.
unsafe impl GlobalAlloc for OfThread {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { counting::Counting.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { counting::Counting.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { counting::Counting.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: OfThread = OfThread;

/// Endless stream, of which each read loses some samples.
struct Stream(VoltageHeader);

impl VoltageSource for Stream {
    fn header(&self) -> &VoltageHeader {
        &self.0
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = block.capacity();
        block.rows_mut().for_each(|row| row.fill(3));
        block.flags_mut().clear();
        block.flags_mut().push(Flag { streams: 0..4, start: 5, times: 20 });
        block.set_times(times)?;
        // Half of the samples' time, so that a busy machine lets the keeper give chunks back.
        thread::sleep(Duration::from_millis(4));
        Ok(times)
    }

    fn is_live(&self) -> bool {
        true
    }
}

fn begin(folder: &std::path::Path) -> (Box<dyn VoltageSource>, Dumps) {
    let centres = (0..16).map(|channel| 1.3e9 + 1e5 * f64::from(channel)).collect();
    let mut header = VoltageHeader::new(centres, 1e-5, VoltageEncoding::Complex8);
    header.polarizations = 2;
    header.start = Epoch::new(60_000, 0.0);
    let (folder, memory) = (folder.to_owned(), Memory::default());
    memory.prepare(&header, 0.5, &Threads::new(2)).unwrap();
    let options = Options {
        ring_s: 0.5,
        format: VoltageFormat::Dada,
        quota: None,
        name: Arc::new(move |start: Epoch| folder.join(format!("{:.6}", start.seconds))),
        space: Arc::new(|| None),
        listener: Arc::new(|_| {}),
        memory,
        ready: Arc::new(|_| {}),
    };
    let (source, tap) = tap(Box::new(Stream(header)));
    (source, tap.begin(&options, Threads::new(2)).unwrap())
}

#[test]
fn the_thread_that_reads_the_stream_asks_for_no_memory() {
    let own = || OWN.with(Cell::get);
    let before = own();
    drop(vec![0_u8; 64]);
    assert!(own() > before, "the counter counts");
    let folder = tempfile::tempdir().unwrap();
    let (mut source, dumps) = begin(folder.path());
    let mut block = source.header().block(777);
    // The ring is full, and all threads wait.
    let read = || assert_eq!(source.read(&mut block).unwrap(), 777);
    counting::assert_quiet("reads without triggers", 400, 200, read);

    // Triggers come from another thread, each round a trigger; reports and files are the business of others.
    let mut position = 600 * 777_u64;
    let (times, ask) = (777, &dumps);
    let [mut requests, mut asked] = [0; 2];
    for round in 0..100_u64 {
        let first_s = (position - 2 * times) as f64 * 1e-5;
        let (name, times_s) = (format!("t{round}"), [first_s, first_s + 0.005]);
        let sweep = Sweep { dms: [0.0, 10.0], times_s, dm_constant: DM_CONSTANT };
        let request = Request { name, sweep, priority: 0 };
        let before = own();
        // The trigger itself is moved, not copied.
        let taken = ask.request(request);
        asked += own() - before;
        assert!(taken.is_ok(), "{taken:?}");
        let before = own();
        (0..3).for_each(|_| assert_eq!(source.read(&mut block).unwrap(), 777));
        requests += own() - before;
        position += 3 * times;
    }
    assert_eq!((requests, asked), (0, 0), "reads and requests while dumps are made");
    assert_eq!(dumps.missed(), 0);
    dumps.end();
    let begin = Instant::now();
    while !dumps.are_over() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    dumps.finish();
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 10, "dumps were made");
}
