//! Search of recorded voltages on a GPU: voltages are copied in, and rows never leave the device.
//!
//! A gulp of voltages is read and copied while the previous one is channelized and searched. Rows that the host has
//! already computed (for the automatic mask, or to fill a gap at the very start) are sent before any voltages.

mod reading;

use super::super::cleaning::Cleaning;
use super::super::options::Part;
use super::super::range::RangeSearch;
use super::super::voltage::{DeviceRows, VoltageFilterbank};
use super::device::{Need, ROW_BYTES, SLOTS, Stage, with_progress};
use super::step::Step;
use crate::backend::cuda::{Device, UploadRing};
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::single_pulse::Clusterer;
use reading::{Content, Gulp, Reading};

/// Returns the recording whose voltages a search on `device` can read directly; none if the search must take rows
/// from the host:
/// - for a source that is not a voltage recording, or whose rows are also used elsewhere;
/// - if the filter bank does not run on the search's device, as requested by the user;
/// - for several products per channel, which reading refuses.
pub(super) fn recorded<'a>(
    source: &'a mut dyn FilterbankSource,
    device: &Device,
) -> Option<&'a mut VoltageFilterbank> {
    let filterbank = of(source)?;
    let is_here = filterbank.device() == Some(device);
    (is_here && filterbank.products() == 1).then_some(filterbank)
}

fn of(source: &mut dyn FilterbankSource) -> Option<&mut VoltageFilterbank> {
    source.as_any()?.downcast_mut()
}

/// Buffers and the stream of a search of voltages on one device.
pub(super) struct VoltageWork {
    stage: Stage,
    uploads: UploadRing,
    rows: DeviceRows,
    reading: Reading,
    /// Content of the gulp being copied.
    present: Content,
    /// Error of reading the gulp after it.
    failed: Option<Error>,
    has_begun: bool,
    /// Rows of the gulps enqueued.
    queued: u64,
    /// Rows whose search has finished: those of all gulps before the last one enqueued.
    whole: u64,
}

impl VoltageWork {
    /// Allocates buffers for gulps of about `asked` rows (0 selects automatically); stores the latest `edge_rows`
    /// rows.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when memory is too short for any gulp; [`Error::Device`] when the driver refuses.
    pub(super) fn new(
        device: &Device,
        filterbank: &VoltageFilterbank,
        (cleaning, part): (&Cleaning, Part),
        ranges: &[RangeSearch],
        (asked, edge_rows): (usize, usize),
    ) -> Result<Self> {
        let header: &FilterbankHeader = filterbank.header();
        let voltage_row = Gulp::row_bytes(filterbank.plan());
        let made = header.row_bytes() + filterbank.unjoined_row_bytes();
        let need = Need::new(header, cleaning, ranges).of_voltages(voltage_row, made);
        let rows = need.gulp(device, asked, part.times, (SLOTS, ROW_BYTES))?;
        let gulp = Gulp::new(filterbank.plan(), header.row_bytes(), rows);
        let mut stage = Stage::new(device, cleaning, ranges, gulp.rows)?;
        stage.retain_tail(device, cleaning, (edge_rows, header.row_bytes()))?;
        Ok(Self {
            stage,
            uploads: UploadRing::new(device, gulp.bytes, SLOTS)?,
            rows: DeviceRows::new(device, filterbank, gulp.rows)?,
            reading: Reading::new(gulp),
            present: Content::End,
            failed: None,
            has_begun: false,
            queued: 0,
            whole: 0,
        })
    }

    /// Searches the gulp that was copied last, while the next one is read and copied; returns its rows, none at the
    /// end.
    fn take(
        &mut self,
        filterbank: &mut VoltageFilterbank,
        cleaning: &mut Cleaning,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<Option<usize>> {
        let (reader, cleaner) = cleaning.parts();
        if !self.has_begun {
            self.has_begun = true;
            self.present = self.reading.next(reader, filterbank, self.uploads.current())?;
        }
        let Self { stage, uploads, rows, reading, .. } = self;
        let present = self.present;
        if matches!(present, Content::End) {
            return self.failed.take().map_or(Ok(None), Err);
        }
        let (input, mut later) = uploads.acquire(stage.stream())?;
        let next = later.next().expect("there are two slots at least");
        let (searched, next) = std::thread::scope(|scope| match present {
            Content::Voltages(pieces) => {
                let (unread, making) = filterbank.split();
                let reading = scope.spawn(|| reading.voltages(unread, next));
                let made = rows.make(making, (input, pieces.layouts()), stage.stream());
                let searched = made.and_then(|times| {
                    if times > 0 {
                        stage.run((rows.rows(), times), cleaner, ranges, clusterer)?;
                    }
                    Ok(times)
                });
                (searched, reading.join())
            }
            Content::Rows(times) => {
                let reading = scope.spawn(|| reading.next(reader, filterbank, next));
                let searched = stage.run((input, times), cleaner, ranges, clusterer);
                (searched.map(|()| times), reading.join())
            }
            Content::End => (Ok(0), Ok(Ok(Content::End))),
        });
        let times = searched?;
        drop(later);
        uploads.release(stage.stream())?;
        self.present = match next.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(next) => next,
            Err(error) => {
                self.failed = Some(error);
                Content::End
            }
        };
        self.whole = self.queued;
        self.queued += times as u64;
        Ok(Some(times))
    }
}

impl Step for VoltageWork {
    fn step(
        &mut self,
        source: &mut dyn FilterbankSource,
        cleaning: &mut Cleaning,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize> {
        let Some(filterbank) = of(source) else {
            let rule = "the search began with a recording of voltages";
            return Err(Error::parameter("source", "another one", rule));
        };
        loop {
            let taken = self.take(filterbank, cleaning, ranges, clusterer);
            match taken.map_err(|error| with_progress(error, self.whole))? {
                // Too few voltages for a row.
                Some(0) => {}
                Some(times) => return Ok(times),
                None => return Ok(0),
            }
        }
    }

    fn finish(
        &mut self,
        times: u64,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize> {
        let finished = self.stage.finish(times, ranges, clusterer);
        finished.map_err(|error| with_progress(error, self.whole))
    }

    fn tail(&mut self) -> Result<Vec<u8>> {
        self.stage.tail().map_err(|error| with_progress(error, self.whole))
    }
}
