//! Reads several files of one observation as one stream.
//!
//! Invariant: row `t` of the stream lies `t` sampling times after its start, within half a sample of the files' start
//! times; rows that were not recorded are filled only on request.

use super::{FilterbankHeader, FilterbankSource, Gap};
use crate::error::{Error, Result};
use crate::math::RunningMedian;
use crate::units::SECONDS_PER_DAY;

/// Joins consecutively recorded files, given in any order.
///
/// A file may start up to half a sample before or after the end of the previous one. If it starts later and
/// `allow_gaps` is set, the missing rows are filled with each channel's median over the last 1024 rows (the lower
/// middle value of an even number). [`FilterbankSource::gaps`] lists them together with the gaps that a file fills
/// itself. A single file is returned unchanged.
///
/// # Errors
/// [`Error::Format`] naming both files and either the field in which they differ (band, encoding, polarizations,
/// sampling time) or the number of samples between them or in their overlap; [`Error::Parameter`] for no file.
pub fn join(
    mut sources: Vec<Box<dyn FilterbankSource>>,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    match sources.len() {
        0 => Err(Error::parameter("input files", 0, "there must be at least one")),
        1 => Ok(sources.remove(0)),
        _ => {
            sources.sort_by(|a, b| a.header().tstart_mjd.total_cmp(&b.header().tstart_mjd));
            Ok(Box::new(Observation::new(sources, allow_gaps)?))
        }
    }
}

struct Piece {
    source: Box<dyn FilterbankSource>,
    times: u64,
    /// Number of rows to fill before the piece.
    gap: u64,
}

struct Observation {
    header: FilterbankHeader,
    pieces: Vec<Piece>,
    gaps: Vec<Gap>,
    current: usize,
    /// Rows of the current piece returned so far, the preceding gap included.
    row: u64,
    median: RunningMedian,
    /// Row that fills the current gap.
    filling: Option<Vec<u8>>,
    cut: Option<String>,
    warnings: Vec<String>,
}

impl Observation {
    fn new(sources: Vec<Box<dyn FilterbankSource>>, allow_gaps: bool) -> Result<Self> {
        let mut header = sources[0].header().clone();
        let mut gaps = sources[0].gaps().to_vec();
        let mut missing = vec![0];
        let mut end = length(&header)?;
        for pair in sources.windows(2) {
            let (before, after) = (pair[0].header(), pair[1].header());
            check_same(before, after)?;
            let gap = gap(before, after)?;
            if gap > 0 && !allow_gaps {
                let why = format!(
                    "it starts {gap} samples ({} s) after the end of {}; `allow_gaps` fills them",
                    gap as f64 * before.tsamp_s,
                    before.path.display()
                );
                return Err(Error::format(&after.path, "tstart", 0, why));
            }
            if gap > 0 {
                gaps.push(Gap { start_time: end, times: gap });
            }
            let start = end.saturating_add(gap);
            gaps.extend(pair[1].gaps().iter().map(|inside| shifted(*inside, start)));
            end = start.saturating_add(length(after)?);
            missing.push(gap);
        }
        header.times = Some(end);
        let cuts: Vec<&str> = sources.iter().filter_map(|source| source.cut()).collect();
        let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
        let warnings = sources.iter().flat_map(|source| source.warnings().to_vec()).collect();
        let median = RunningMedian::dense(header.encoding, header.channels());
        let pieces = sources.into_iter().zip(missing).map(|(source, gap)| {
            let times = source.header().times.unwrap_or(0);
            Piece { source, times, gap }
        });
        let pieces = pieces.collect();
        Ok(Self { header, pieces, gaps, current: 0, row: 0, median, filling: None, cut, warnings })
    }

    /// Returns whether the median of the current rows is needed for a later gap.
    fn has_gap_ahead(&self) -> bool {
        self.pieces[self.current + 1..].iter().any(|piece| piece.gap > 0)
    }

    /// Fills `rows` with rows of the current gap; returns their number.
    fn fill(&mut self, rows: &mut [u8]) -> usize {
        let row_bytes = self.header.row_bytes();
        let left = self.pieces[self.current].gap - self.row;
        let times = left.min((rows.len() / row_bytes) as u64) as usize;
        let filling = self.filling.get_or_insert_with(|| self.median.row());
        for row in rows[..times * row_bytes].chunks_exact_mut(row_bytes) {
            row.copy_from_slice(filling);
        }
        times
    }

    /// Reads rows of the current piece.
    fn read_piece(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let piece = &mut self.pieces[self.current];
        let left = piece.gap + piece.times - self.row;
        let wanted = left.min((rows.len() / row_bytes) as u64) as usize;
        let read = piece.source.read(&mut rows[..wanted * row_bytes])?;
        if read < wanted {
            return Err(ended_early(piece, self.row + read as u64));
        }
        if self.has_gap_ahead() {
            self.median.observe_rows(self.row, &rows[..read * row_bytes]);
        }
        Ok(read)
    }

    /// Advances past exhausted pieces; returns `false` at the end of the observation.
    fn advance(&mut self) -> bool {
        while self.current < self.pieces.len() {
            let piece = &self.pieces[self.current];
            if self.row < piece.gap + piece.times {
                return true;
            }
            self.current += 1;
            self.row = 0;
            self.filling = None;
        }
        false
    }
}

impl FilterbankSource for Observation {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = self.header.times_in(rows)?;
        let mut done = 0;
        while done < asked && self.advance() {
            let rest = &mut rows[done * row_bytes..];
            let times = if self.row < self.pieces[self.current].gap {
                self.fill(rest)
            } else {
                self.read_piece(rest)?
            };
            self.row += times as u64;
            done += times;
        }
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut done = 0;
        while done < times && self.advance() {
            let asked = times - done;
            let is_gap = self.row < self.pieces[self.current].gap;
            let passed = if is_gap {
                asked.min(self.pieces[self.current].gap - self.row)
            } else if self.has_gap_ahead() {
                // Read the rows before a gap also in a skip, because their median fills it.
                let row_bytes = self.header.row_bytes();
                let rows = asked.min(((1 << 20) / row_bytes as u64).max(1)) as usize;
                let mut scratch = vec![0; rows * row_bytes];
                self.read_piece(&mut scratch)? as u64
            } else {
                let piece = &mut self.pieces[self.current];
                let wanted = asked.min(piece.gap + piece.times - self.row);
                let passed = piece.source.skip(wanted)?;
                if passed < wanted {
                    return Err(ended_early(piece, self.row + passed));
                }
                passed
            };
            self.row += passed;
            done += passed;
        }
        Ok(done)
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Converts a file's gap to the observation's row numbers; the file begins at row `start`.
fn shifted(gap: Gap, start: u64) -> Gap {
    Gap { start_time: gap.start_time.saturating_add(start), ..gap }
}

fn ended_early(piece: &Piece, row: u64) -> Error {
    let why = format!("the data ended after {} rows, expected {}", row - piece.gap, piece.times);
    Error::format(&piece.source.header().path, "data", 0, why)
}

/// Returns the rows of a file to be joined.
fn length(header: &FilterbankHeader) -> Result<u64> {
    header.times.ok_or_else(|| {
        let why = "its length is not known beforehand, so that it can't be joined with other files";
        Error::format(&header.path, "data", 0, why)
    })
}

/// Checks that two recordings have the same channels and sampling time.
///
/// # Errors
/// [`Error::Format`] naming both files and the field in which they differ.
pub fn check_same_sampling(first: &FilterbankHeader, second: &FilterbankHeader) -> Result<()> {
    if first.channels() != second.channels() {
        let (found, expected) = (second.channels(), first.channels());
        return differ([first, second], "channels", found.to_string(), expected.to_string());
    }
    if (first.tsamp_s - second.tsamp_s).abs() > 1e-9 * first.tsamp_s {
        let seconds = |tsamp: f64| format!("{tsamp} s");
        let (found, expected) = (seconds(second.tsamp_s), seconds(first.tsamp_s));
        return differ([first, second], "sampling time", found, expected);
    }
    let tolerance = 1e-3 * first.band.channel_width_hz();
    let centres = first.band.centres_hz().iter().zip(second.band.centres_hz());
    let apart = centres.enumerate().find(|(_, (a, b))| (**a - **b).abs() > tolerance);
    if let Some((channel, (a, b))) = apart {
        let field = format!("frequency of channel {channel}");
        let (found, expected) = (format!("{} MHz", b / 1e6), format!("{} MHz", a / 1e6));
        return differ([first, second], &field, found, expected);
    }
    Ok(())
}

/// Checks that two files agree in their common properties.
fn check_same(first: &FilterbankHeader, second: &FilterbankHeader) -> Result<()> {
    check_same_sampling(first, second)?;
    if first.encoding != second.encoding || first.recorded_bits != second.recorded_bits {
        let name = |header: &FilterbankHeader| {
            format!("{:?} (recorded with {} bit)", header.encoding, header.recorded_bits)
        };
        return differ([first, second], "encoding", name(second), name(first));
    }
    if first.recorded_polarizations != second.recorded_polarizations {
        let (found, expected) = (second.recorded_polarizations, first.recorded_polarizations);
        return differ([first, second], "polarizations", found.to_string(), expected.to_string());
    }
    Ok(())
}

/// Returns the error of a second header that differs from the first.
fn differ(
    [first, second]: [&FilterbankHeader; 2],
    field: &str,
    found: String,
    expected: String,
) -> Result<()> {
    let why = format!("found {found}, expected {expected} as in {}", first.path.display());
    Err(Error::format(&second.path, field, 0, why))
}

/// Returns the number of samples missing between two files.
fn gap(before: &FilterbankHeader, after: &FilterbankHeader) -> Result<u64> {
    let fault = |why: String| Err(Error::format(&after.path, "tstart", 0, why));
    let path = before.path.display();
    let (first, second) = (before.tstart_mjd, after.tstart_mjd);
    if second <= first {
        return fault(format!("it and {path} start at the same time, MJD {first}"));
    }
    let apart = (second - first) * SECONDS_PER_DAY / before.tsamp_s;
    let missing = apart - length(before)? as f64;
    if missing < -0.5 {
        return fault(format!("it starts {:.1} samples before the end of {path}", -missing));
    }
    if missing <= 0.5 {
        return Ok(0);
    }
    // Floats are exact for integers up to about 9e15, which exceeds years of samples.
    if missing > 9e15 {
        return fault(format!("it starts {missing:e} samples after the end of {path}"));
    }
    Ok(missing.round() as u64)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, SECONDS_PER_DAY};

    /// In-memory source with rows of 4 bytes.
    struct Memory {
        header: FilterbankHeader,
        rows: Vec<u8>,
        at: usize,
        gaps: Vec<Gap>,
    }

    impl FilterbankSource for Memory {
        fn header(&self) -> &FilterbankHeader {
            &self.header
        }
        fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
            let bytes = rows.len().min(self.rows.len() - self.at);
            rows[..bytes].copy_from_slice(&self.rows[self.at..self.at + bytes]);
            self.at += bytes;
            Ok(bytes / 4)
        }
        fn skip(&mut self, times: u64) -> Result<u64> {
            let bytes = (4 * times as usize).min(self.rows.len() - self.at);
            self.at += bytes;
            Ok((bytes / 4) as u64)
        }
        fn gaps(&self) -> &[Gap] {
            &self.gaps
        }
    }

    /// Makes a file that starts at sample `start`, with ascending row values.
    fn file(name: &str, start: f64, times: usize) -> Memory {
        let tsamp_s = 1e-3;
        let header = FilterbankHeader {
            path: PathBuf::from(name),
            format: "memory",
            source_name: String::new(),
            telescope: String::new(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 59000.0 + start * tsamp_s / SECONDS_PER_DAY,
            tsamp_s,
            band: Band::uniform(1500.0, -1.0, 4).unwrap(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 1,
            times: Some(times as u64),
        };
        let rows = (0..times).flat_map(|t| [(start as usize + t) as u8; 4]).collect();
        Memory { header, rows, at: 0, gaps: Vec::new() }
    }

    fn joined(files: Vec<Memory>, allow_gaps: bool) -> Result<Box<dyn FilterbankSource>> {
        let boxed = files.into_iter().map(|file| Box::new(file) as Box<dyn FilterbankSource>);
        join(boxed.collect(), allow_gaps)
    }

    fn message(files: Vec<Memory>) -> String {
        match joined(files, false) {
            Ok(_) => panic!("joined"),
            Err(error) => error.to_string(),
        }
    }

    fn read_all(source: &mut dyn FilterbankSource, gulp: usize) -> Vec<u8> {
        let mut rows = Vec::new();
        let mut buffer = vec![0; 4 * gulp];
        loop {
            let times = source.read(&mut buffer).unwrap();
            rows.extend(buffer[..4 * times].iter().step_by(4));
            if times < gulp {
                return rows;
            }
        }
    }

    #[test]
    fn files_within_half_a_sample_are_one() {
        for slip in [-0.45, 0.0, 0.45] {
            let files = vec![file("a", 0.0, 10), file("b", 10.0 + slip, 20), file("c", 30.0, 5)];
            let mut source = joined(files, false).unwrap();
            assert_eq!(source.header().times, Some(35));
            assert!(source.gaps().is_empty());
            assert_eq!(read_all(source.as_mut(), 7).len(), 35);
        }
    }

    #[test]
    fn files_are_put_in_order_of_time() {
        let files = vec![file("b", 10.0, 20), file("c", 30.0, 5), file("a", 0.0, 10)];
        let mut source = joined(files, false).unwrap();
        assert_eq!(source.header().path, PathBuf::from("a"));
        assert_eq!(read_all(source.as_mut(), 7), (0..35).collect::<Vec<u8>>());
    }

    #[test]
    fn what_does_not_fit_names_both_files_and_the_field() {
        let gap = message(vec![file("a.fil", 0.0, 10), file("b.fil", 12.0, 10)]);
        assert!(gap.contains("a.fil") && gap.contains("b.fil"), "{gap}");
        assert!(gap.contains("2 samples") && gap.contains("`allow_gaps`"), "{gap}");
        let overlap = message(vec![file("a.fil", 0.0, 10), file("b.fil", 9.0, 10)]);
        assert!(overlap.contains("before the end of a.fil"), "{overlap}");
        let twice = message(vec![file("a.fil", 0.0, 10), file("b.fil", 0.0, 10)]);
        assert!(twice.contains("start at the same time"), "{twice}");
        type Change = fn(&mut FilterbankHeader);
        let changes: [(&str, Change); 4] = [
            ("sampling time", |h| h.tsamp_s = 2e-3),
            ("encoding", |h| h.encoding = Encoding::I8),
            ("channels", |h| h.band = Band::uniform(1500.0, -1.0, 8).unwrap()),
            ("frequency of channel 0", |h| h.band = Band::uniform(1500.5, -1.0, 4).unwrap()),
        ];
        for (field, change) in changes {
            let mut second = file("b.fil", 10.0, 10);
            change(&mut second.header);
            let text = message(vec![file("a.fil", 0.0, 10), second]);
            assert!(
                text.contains(field) && text.contains("a.fil") && text.contains("b.fil"),
                "{text}"
            );
        }
        assert!(joined(Vec::new(), false).is_err());
        let mut pipe = file("-", 0.0, 10);
        pipe.header.times = None;
        assert!(message(vec![pipe, file("b", 10.0, 10)]).contains("length is not known"));
    }

    #[test]
    fn gaps_hold_the_median_whatever_the_gulp() {
        let files =
            || vec![file("a", 0.0, 10), file("b", 13.0, 4), file("c", 17.0, 3), file("d", 22.0, 2)];
        let gaps = [Gap { start_time: 10, times: 3 }, Gap { start_time: 20, times: 2 }];
        // Lower median of 0..=9, then of those and 13..=19.
        let expected =
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4, 4, 4, 13, 14, 15, 16, 17, 18, 19, 8, 8, 22, 23];
        for gulp in [1, 2, 3, 5, 11, 100] {
            let mut source = joined(files(), true).unwrap();
            assert_eq!(source.gaps(), gaps);
            assert_eq!(source.header().times, Some(24));
            assert_eq!(read_all(source.as_mut(), gulp), expected, "{gulp}");
        }
        for skipped in 0..30u64 {
            let mut source = joined(files(), true).unwrap();
            assert_eq!(source.skip(skipped).unwrap(), skipped.min(24));
            assert_eq!(read_all(source.as_mut(), 4), expected[(skipped as usize).min(24)..]);
        }
    }

    #[test]
    fn gaps_inside_a_file_are_passed_on_at_their_place() {
        let mut files = vec![file("a", 0.0, 10), file("b", 13.0, 4), file("c", 17.0, 3)];
        for (file, start_time) in files.iter_mut().zip([4, 1, 2]) {
            file.gaps.push(Gap { start_time, times: 1 });
        }
        let source = joined(files, true).unwrap();
        let found: Vec<_> = source.gaps().iter().map(|gap| (gap.start_time, gap.times)).collect();
        assert_eq!(found, [(4, 1), (10, 3), (14, 1), (19, 1)]);
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_an_error() {
        let mut short = file("a", 0.0, 10);
        short.rows.truncate(20);
        let mut source = joined(vec![short, file("b", 10.0, 10)], false).unwrap();
        let error = source.read(&mut [0; 40]).unwrap_err().to_string();
        assert!(error.contains("after 5 rows"), "{error}");
    }
}
