//! Executes a tile's program: builds rows and sums them into trials, in running sums that stay in registers.
//!
//! Invariant: no running sum overflows while it takes no more rows than the shape's segment.
#![allow(unsafe_code)]

use super::super::plan::Lane;
use super::program::{FAN_IN, Pass, Shape};
use crate::backend::vector::{Vector, levels};

/// Byte view of the history that rows are built from.
#[derive(Clone, Copy)]
pub(super) struct History {
    pub(super) data: *const u8,
    /// Elements between rows.
    pub(super) stride: usize,
    /// Elements after which a row wraps around.
    pub(super) capacity: usize,
    /// Position of the tile's first output time.
    pub(super) position: usize,
}

// SAFETY: the history is only read while the pointer is shared.
unsafe impl Sync for History {}

/// Output of a trial's sums.
pub(super) struct Target<'a> {
    /// Consecutive rows, i32 or f32.
    pub(super) rows: &'a mut [u32],
    pub(super) stride: usize,
    pub(super) column: usize,
    pub(super) times: usize,
    /// Bias added to each sum.
    pub(super) bias: u32,
    pub(super) float: bool,
}

levels!(
    pass,
    body,
    (shape: &Shape, pass: &Pass, history: History, scratch: *mut u8, target: &mut Target<'_>, first: bool)
);

/// Runs one pass over one tile of times; `first` overwrites the target, later passes add to it.
///
/// # Safety
/// `pass` was compiled with `shape` for this history, `scratch` holds `pass.bytes` and 512 spare bytes, and history
/// rows are readable for the mirror's length after any position.
#[inline(always)]
unsafe fn body<V: Vector>(
    shape: &Shape,
    pass: &Pass,
    history: History,
    scratch: *mut u8,
    target: &mut Target<'_>,
    first: bool,
) {
    let last = shape.levels.last().map_or(Lane::U8, |rows| rows.lane);
    for dm in 0..pass.dms() {
        for next in pass.builds_of(dm) {
            let times = target.times + next.extra;
            // SAFETY: the program's offsets lie in the scratch, its shifts in the history.
            unsafe {
                let to = scratch.add(next.place);
                let mut from = [scratch.cast_const(); FAN_IN];
                for (from, source) in from.iter_mut().zip(next.words.chunks_exact(2)) {
                    *from = match next.level {
                        0 => history.at(source, shape.input.bytes()),
                        _ => scratch.add(source[0] as usize),
                    };
                }
                let (source, sum) = (shape.source(next.level), shape.levels[next.level].lane);
                build::<V>(source, sum, to, &from[..next.sources], times);
            }
        }
        let places = &pass.places[dm * pass.groups..(dm + 1) * pass.groups];
        let row = &mut target.rows[dm * target.stride + target.column..][..target.times];
        let write = Write { bias: target.bias, float: target.float, first };
        // SAFETY: as above; the row is a slice of the target.
        unsafe {
            match last {
                Lane::U8 => sum::<V, Bytes<V>, 4>(scratch, places, shape.segment, row, write),
                Lane::U16 if !shape.wide() => {
                    sum::<V, Words<V>, 8>(scratch, places, shape.segment, row, write);
                }
                Lane::U16 => sum::<V, Wide<V>, 4>(scratch, places, 0xffff, row, write),
                Lane::U32 => sum::<V, Doubles<V>, 8>(scratch, places, usize::MAX, row, write),
                Lane::F32 => sum::<V, Floats<V>, 8>(scratch, places, usize::MAX, row, write),
            }
        }
    }
}

impl History {
    /// Returns the same history with the position of another tile.
    pub(super) fn moved_to(&self, position: usize) -> Self {
        Self { position, ..*self }
    }

    #[inline(always)]
    unsafe fn at(&self, source: &[u32], lane_bytes: usize) -> *const u8 {
        let mut position = self.position + source[1] as usize;
        if position >= self.capacity {
            position -= self.capacity;
        }
        // SAFETY: the row and position lie in the history.
        unsafe { self.data.add((source[0] as usize * self.stride + position) * lane_bytes) }
    }
}

/// Addition of rows of one type into a row of the same or the next wider type.
trait Adder<V> {
    /// Bytes of an element of a source, and of the sum.
    const FROM: usize;
    const TO: usize;
    unsafe fn load(from: *const u8) -> V;
    unsafe fn add(a: V, b: V) -> V;
}

macro_rules! adder {
    ($name:ident, $from:literal, $to:literal, $load:ident, $add:ident) => {
        struct $name;
        impl<V: Vector> Adder<V> for $name {
            const FROM: usize = $from;
            const TO: usize = $to;
            #[inline(always)]
            unsafe fn load(from: *const u8) -> V {
                // SAFETY: guaranteed by the caller.
                unsafe { V::$load(from) }
            }
            #[inline(always)]
            unsafe fn add(a: V, b: V) -> V {
                // SAFETY: guaranteed by the caller.
                unsafe { a.$add(b) }
            }
        }
    };
}

adder!(From8To8, 1, 1, load, add_8);
adder!(From8To16, 1, 2, widen_8_to_16, add_16);
adder!(From16To16, 2, 2, load, add_16);
adder!(From16To32, 2, 4, widen_16_to_32, add_32);
adder!(From32To32, 4, 4, load, add_32);
adder!(FromF32, 4, 4, load, add);

/// Sums source rows over `times` elements.
#[inline(always)]
unsafe fn build<V: Vector>(source: Lane, sum: Lane, to: *mut u8, from: &[*const u8], times: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (source, sum) {
            (Lane::U8, Lane::U8) => add_rows::<V, From8To8>(to, from, times),
            (Lane::U8, _) => add_rows::<V, From8To16>(to, from, times),
            (Lane::U16, Lane::U16) => add_rows::<V, From16To16>(to, from, times),
            (Lane::U16, _) => add_rows::<V, From16To32>(to, from, times),
            (Lane::U32, _) => add_rows::<V, From32To32>(to, from, times),
            (Lane::F32, _) => add_rows::<V, FromF32>(to, from, times),
        }
    }
}

#[inline(always)]
unsafe fn add_rows<V: Vector, A: Adder<V>>(to: *mut u8, from: &[*const u8], times: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match *from {
            [a] => add_some::<V, A, 1>(to, [a], times),
            [a, b] => add_some::<V, A, 2>(to, [a, b], times),
            [a, b, c] => add_some::<V, A, 3>(to, [a, b, c], times),
            [a, b, c, d, ..] => add_some::<V, A, 4>(to, [a, b, c, d], times),
            [] => {}
        }
    }
}

#[inline(always)]
unsafe fn add_some<V: Vector, A: Adder<V>, const N: usize>(
    to: *mut u8,
    from: [*const u8; N],
    times: usize,
) {
    let step = 128;
    for done in (0..times * A::TO).step_by(step) {
        for k in 0..step / V::BYTES {
            // SAFETY: rows have 128 spare bytes at their end.
            unsafe {
                let done = done + k * V::BYTES;
                let at = done / A::TO * A::FROM;
                let mut sum = A::load(from[0].add(at));
                for source in &from[1..] {
                    sum = A::add(sum, A::load(source.add(at)));
                }
                sum.store(to.add(done));
            }
        }
    }
}

/// Mode of writing sums.
#[derive(Clone, Copy)]
struct Write {
    bias: u32,
    float: bool,
    first: bool,
}

/// Largest number of elements summed in registers at once.
const MAX_ELEMENTS: usize = 256;

/// Buffer for the end of a row that is shorter than one register block.
#[repr(align(64))]
struct Tail([u32; MAX_ELEMENTS]);

/// Sums a trial's rows: `ACCUMULATORS` vectors of times at once, `segment` rows per write.
#[inline(always)]
unsafe fn sum<V: Vector, R: Running<V>, const ACCUMULATORS: usize>(
    scratch: *const u8,
    places: &[u32],
    segment: usize,
    output: &mut [u32],
    write: Write,
) {
    let step = R::ELEMENTS * ACCUMULATORS;
    let mut from = scratch;
    let mut chunks = output.chunks_exact_mut(step);
    for output in &mut chunks {
        // SAFETY: the offsets and the vectors after them lie in the scratch.
        unsafe {
            sum_chunk::<V, R, ACCUMULATORS>(from, places, segment, output.as_mut_ptr(), write);
            from = from.add(ACCUMULATORS * V::BYTES);
        }
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        let mut tail = Tail([0; MAX_ELEMENTS]);
        tail.0[..rest.len()].copy_from_slice(rest);
        // SAFETY: as above; the tail holds `step` elements.
        unsafe {
            sum_chunk::<V, R, ACCUMULATORS>(from, places, segment, tail.0.as_mut_ptr(), write);
        }
        rest.copy_from_slice(&tail.0[..rest.len()]);
    }
}

#[inline(always)]
unsafe fn sum_chunk<V: Vector, R: Running<V>, const ACCUMULATORS: usize>(
    scratch: *const u8,
    places: &[u32],
    segment: usize,
    output: *mut u32,
    mut write: Write,
) {
    for places in places.chunks(segment) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut running = [R::zero(); ACCUMULATORS];
            for place in places {
                let row = scratch.add(*place as usize);
                for (k, running) in running.iter_mut().enumerate() {
                    *running = running.add(row.add(k * V::BYTES));
                }
            }
            for (k, running) in running.iter().enumerate() {
                let to = output.add(k * R::ELEMENTS);
                let parts = running.spread();
                for (part, sums) in parts.iter().take(R::PARTS).enumerate() {
                    write.put(to.add(part * V::BYTES / 4), *sums);
                }
            }
        }
        write.first = false;
    }
}

impl Write {
    /// Writes or adds one vector of sums.
    #[inline(always)]
    unsafe fn put<V: Vector>(self, to: *mut u32, sums: V) {
        let to = to.cast::<u8>();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let sums = match (self.first, self.float) {
                (true, true) => sums,
                (true, false) => V::splat_32(self.bias).add_32(sums),
                (false, false) => V::load(to).add_32(sums),
                (false, true) => V::load(to).add(sums),
            };
            sums.store(to);
        }
    }
}

/// Running sums in one or two registers.
trait Running<V>: Copy {
    /// Elements of a row in one vector.
    const ELEMENTS: usize;
    unsafe fn zero() -> Self;
    unsafe fn add(self, from: *const u8) -> Self;
    /// Returns the sums as 32-bit elements in order: the first [`PARTS`](Self::PARTS) vectors.
    unsafe fn spread(self) -> [V; 4];
    /// Number of vectors of 32-bit elements.
    const PARTS: usize;
}

/// Defines sums of elements of `$bytes` bytes in elements twice as wide: `high` sums the upper halves, `low` whole
/// elements modulo the wider type's range.
macro_rules! halves {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $parts:literal, $add:ident, $sub:ident, $down:ident, $up:ident,
     $interleave:ident, |$first:ident, $second:ident| $spread:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name<V> {
            low: V,
            high: V,
        }

        impl<V: Vector> Running<V> for $name<V> {
            const ELEMENTS: usize = V::BYTES / $bytes;
            const PARTS: usize = $parts;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller promises the level, here and below.
                unsafe { Self { low: V::splat_32(0), high: V::splat_32(0) } }
            }
            #[inline(always)]
            unsafe fn add(self, from: *const u8) -> Self {
                // SAFETY: as above.
                unsafe {
                    let row = V::load(from);
                    Self { low: self.low.$add(row), high: self.high.$add(row.$down()) }
                }
            }
            #[inline(always)]
            unsafe fn spread(self) -> [V; 4] {
                // SAFETY: as above.
                unsafe {
                    let even = self.low.$sub(self.high.$up());
                    let ($first, $second) = even.$interleave(self.high);
                    $spread
                }
            }
        }
    };
}

halves!(
    /// Sums of bytes in 16-bit words.
    Bytes, 1, 4, add_16, sub_16, high_8, up_8, interleave_16,
    |first, second| {
        let ((a, b), (c, d)) = (first.halves_16(), second.halves_16());
        [a, b, c, d]
    }
);
halves!(
    /// Sums of 16-bit words as halves of 32-bit words.
    Wide, 2, 2, add_32, sub_32, high_16, up_16, interleave, |a, b| [a, b, b, b]
);

/// Defines sums of elements of `$bytes` bytes in elements of the same type.
macro_rules! same {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $parts:literal, $add:ident, |$sums:ident| $spread:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name<V>(V);

        impl<V: Vector> Running<V> for $name<V> {
            const ELEMENTS: usize = V::BYTES / $bytes;
            const PARTS: usize = $parts;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller promises the level, here and below.
                unsafe { Self(V::splat_32(0)) }
            }
            #[inline(always)]
            unsafe fn add(self, from: *const u8) -> Self {
                // SAFETY: as above.
                unsafe { Self(self.0.$add(V::load(from))) }
            }
            #[inline(always)]
            unsafe fn spread(self) -> [V; 4] {
                let $sums = self.0;
                $spread
            }
        }
    };
}

same!(
    /// Sums of 16-bit words within 16 bits.
    Words, 2, 2, add_16,
    |sums| {
        // SAFETY: as above.
        let (a, b) = unsafe { sums.halves_16() };
        [a, b, b, b]
    }
);
same!(
    /// Sums of 32-bit words.
    Doubles, 4, 1, add_32, |sums| [sums; 4]
);
same!(
    /// Sums of floats.
    Floats, 4, 1, add, |sums| [sums; 4]
);
