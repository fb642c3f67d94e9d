//! Runs cases one after another: measures each beside its roof and its baseline, prints it, writes the CSV file and the
//! JSON document.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::{atomic, csv_cell, printable};
use sidereal::{Error, Result};

/// Settings of a run.
pub struct Session<'a> {
    /// Backend to measure.
    pub backend: Backend,
    /// Number of threads; 0 is one per core.
    pub threads: usize,
    /// Whether a JSON document takes the place of text on standard output.
    pub json: bool,
    /// Whether nothing but errors is printed.
    pub quiet: bool,
    /// Program that runs the benchmark.
    pub caller: &'a dyn Caller,
}

/// Program that runs a benchmark.
pub trait Caller {
    /// Prints a JSON document with its provenance on standard output.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn print(&self, document: &Document) -> Result<()>;

    /// Fails if the user asked to stop.
    ///
    /// # Errors
    /// [`Error::stopped`].
    fn check_interrupt(&self) -> Result<()>;

    /// Returns whether the program can exchange data with others that `mpirun` starts.
    fn has_ranks(&self) -> bool;

    /// Has a folder removed if the program is ended by a signal during the lifetime of the value.
    fn hold(&self, folder: &Path) -> Box<dyn std::any::Any>;
}

/// JSON document of a benchmark, without provenance.
#[derive(Clone, Debug)]
pub enum Document {
    /// Array of measured rates.
    Rows(Vec<Row>),
    /// Array of a campaign's results.
    Lines(Vec<Value>),
    /// Array of scores of recordings with interference.
    Scores(Vec<Score>),
    /// Single object.
    One(Value),
}

/// Element of a benchmark's JSON document: the document is an array of them, each with its provenance.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only the schema is made of it")]
pub enum Line {
    Rate(Row),
    /// Line of an injection campaign.
    Campaign {
        bench: String,
        #[serde(flatten)]
        values: serde_json::Map<String, Value>,
    },
}

/// Score of a search of one recording with interference.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    /// Bursts with at most half of their duration in a dropout, and the number of those found.
    pub(crate) injected: usize,
    pub(crate) found: usize,
    /// Median of found over injected S/N.
    pub(crate) snr_ratio: f64,
    /// Bursts with more than half of their duration in a dropout, and the number of those found.
    pub(crate) lost: usize,
    pub(crate) lost_found: usize,
    /// Further candidates of found bursts, besides the best.
    pub(crate) repeated: usize,
    /// Candidates of no burst with S/N of at least 6.5, per hour.
    pub(crate) false_per_hour: f64,
    pub(crate) realtime_factor: f64,
}

/// Result of one measured case.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Name of the benchmark, for example `dedisperse`.
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    /// Name of the backend.
    pub(crate) device: String,
    /// Best rate of all runs.
    pub(crate) rate: f64,
    pub(crate) unit: &'static str,
    /// Roof, measured between the runs.
    pub(crate) roof: f64,
    pub(crate) roof_unit: &'static str,
    pub(crate) fraction_of_roof: f64,
    /// Baseline, measured between the runs, in the unit of the rate.
    pub(crate) baseline: f64,
    pub(crate) ratio_to_baseline: f64,
    /// Whether the outputs equal the baseline's.
    pub(crate) checked: bool,
    /// Median rate of all runs.
    #[serde(skip)]
    pub(crate) median: f64,
    /// Rate of the last half of `--sustained`, if the case was measured so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sustained: Option<f64>,
}

/// Rates of a case in one unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Best and median rate of all runs.
    pub(crate) best: f64,
    pub(crate) median: f64,
    /// Best rate of the roof and of the baseline or the peer; a baseline of 0 was not measured.
    pub(crate) roof: f64,
    pub(crate) baseline: f64,
    /// Rate of the last half of `--sustained`, if that was measured.
    pub(crate) sustained: Option<f64>,
}

impl Rates {
    /// Calls `roof`, `baseline` and `ours` in turn, each of which returns a rate, for at least `rounds` rounds and
    /// `seconds` seconds.
    pub(crate) fn alternate<S>(
        state: &mut S,
        rounds: usize,
        seconds: f64,
        mut roof: impl FnMut(&mut S) -> Result<f64>,
        mut baseline: impl FnMut(&mut S) -> Result<f64>,
        mut ours: impl FnMut(&mut S) -> Result<f64>,
    ) -> Result<Self> {
        let (mut roofs, mut baselines, mut rates) = (0.0_f64, 0.0_f64, Vec::new());
        let start = Instant::now();
        while rates.len() < rounds || start.elapsed().as_secs_f64() < seconds {
            roofs = roofs.max(roof(state)?);
            baselines = baselines.max(baseline(state)?);
            rates.push(ours(state)?);
        }
        Ok(Self::of(rates, roofs, baselines))
    }

    /// Returns the best and the median of several rates.
    pub(crate) fn of(mut rates: Vec<f64>, roof: f64, baseline: f64) -> Self {
        rates.sort_by(f64::total_cmp);
        let best = rates.last().copied().unwrap_or(0.0);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        Self { best, median, roof, baseline, sustained: None }
    }

    /// Returns the rates of a rate that was measured once.
    pub(crate) fn once(rate: f64, roof: f64, baseline: f64) -> Self {
        Self { best: rate, median: rate, roof, baseline, sustained: None }
    }

    /// Returns the rates of `work` per call from the seconds of calls, smallest first.
    pub(crate) fn of_seconds(work: f64, seconds: &[f64], roof: f64, baseline: f64) -> Self {
        let best = work / seconds.first().copied().unwrap_or(f64::INFINITY);
        let median = work / sidereal::backend::cuda::measure::median(seconds);
        Self { best, median, roof, baseline, sustained: None }
    }

    /// Adds the rate of `work` per call from the seconds of a sustained call, if that was measured.
    pub(crate) fn lasting(self, work: f64, sustained_s: Option<f64>) -> Self {
        Self { sustained: sustained_s.map(|seconds| work / seconds), ..self }
    }

    /// Converts all rates to another unit.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        let Self { best, median, roof, baseline, sustained } = self;
        Self {
            best: best * factor,
            median: median * factor,
            roof: roof * factor,
            baseline: baseline * factor,
            sustained: sustained.map(|rate| rate * factor),
        }
    }

    /// Makes the row of a case.
    pub(crate) fn row(
        self,
        bench: &'static str,
        case: impl Into<String>,
        backend: &Backend,
        unit: &'static str,
        checked: bool,
    ) -> Row {
        let Self { best, median, roof, baseline, sustained } = self;
        Row {
            bench,
            case: case.into(),
            device: backend.name(),
            rate: best,
            unit,
            roof,
            roof_unit: unit,
            fraction_of_roof: best / roof,
            baseline,
            ratio_to_baseline: if baseline == 0.0 { 0.0 } else { best / baseline },
            checked,
            median,
            sustained,
        }
    }
}

impl Row {
    /// Returns the row with a unit or a description of its own for the roof.
    pub(crate) fn beside(self, roof_unit: &'static str) -> Self {
        Self { roof_unit, ..self }
    }

    /// Returns the cells of [`COLUMNS`].
    fn csv_cells(&self) -> [String; COLUMNS.len()] {
        let number = |value: f64| format!("{value:.4}");
        [
            Csv::text(self.bench),
            Csv::text(&self.case),
            Csv::text(&self.device),
            number(self.rate),
            Csv::text(self.unit),
            number(self.roof),
            Csv::text(self.roof_unit),
            number(self.fraction_of_roof),
            number(self.baseline),
            number(self.ratio_to_baseline),
            self.checked.to_string(),
            number(self.median),
            self.sustained.map_or_else(String::new, number),
        ]
    }

    fn cells(&self) -> [String; 10] {
        [
            self.case.clone(),
            self.device.clone(),
            number(self.rate),
            number(self.median),
            number(self.roof),
            format!("{:.2}", self.fraction_of_roof),
            number(self.baseline),
            format!("{:.1}", self.ratio_to_baseline),
            if self.checked { "yes" } else { "NO" }.to_owned(),
            self.sustained.map_or_else(String::new, number),
        ]
    }
}

const HEADER: [&str; 10] = [
    "case",
    "device",
    "rate",
    "median",
    "roof",
    "of roof",
    "baseline",
    "ratio",
    "checked",
    "sustained",
];

/// Formats a value with about three digits.
fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { 2 - usize::from(value.abs() >= 10.0) };
    format!("{value:.decimals$}")
}

fn line(cells: &[String; 10]) -> String {
    let [case, device, numbers @ ..] = cells;
    let numbers: String = numbers.iter().map(|cell| format!("{cell:>10}")).collect();
    let line = format!("{case:<44}{device:<16}{numbers}");
    line.trim_end().to_owned()
}

/// Case with a name, by which `--only` selects it.
pub(crate) trait Named {
    fn name(&self) -> &str;
}

/// Options of a run on a GPU.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct OnGpu {
    /// On a GPU: few cases on small data, to test that everything works; the rates mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// On a GPU: also repeat each case for this long, and report the rate of the last half.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) sustained: Option<f64>,
}

/// Parses a length of time: 0.001 to 3600 s.
fn seconds(text: &str) -> std::result::Result<f64, String> {
    let found = text.parse().ok().filter(|seconds| (1e-3..=3600.0).contains(seconds));
    found.ok_or_else(|| format!("found {text}, expected 0.001 to 3600 seconds"))
}

impl Session<'_> {
    /// Returns whether text is printed on standard output.
    pub(crate) fn talks(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Returns the value of `--device` for the backend.
    pub(crate) fn device(&self) -> String {
        match &self.backend {
            Backend::Cuda(device, _) => format!("cuda:{}", device.ordinal()),
            _ => "cpu".to_owned(),
        }
    }

    /// Checks the backend and the least number of seconds for each case.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(crate) fn check(&self, seconds: f64) -> Result<()> {
        if matches!(self.backend, Backend::Reference) {
            let rule = "the reference is too slow to be measured; leave --device out";
            return Err(Error::parameter("--device", "reference", rule));
        }
        if !seconds.is_finite() || seconds < 0.0 {
            let rule = "it must be finite and not negative";
            return Err(Error::parameter("--seconds", seconds, rule));
        }
        Ok(())
    }
}

/// Results of an injection campaign: the lines of the JSON document, the text of the terminal, and the cells of the
/// Markdown table.
pub(crate) struct Report {
    pub(crate) lines: Vec<Value>,
    pub(crate) text: String,
    pub(crate) heads: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Report {
    /// Prints the results, and writes the table as Markdown.
    pub(crate) fn show(self, session: &Session<'_>, markdown: Option<&Path>) -> Result<()> {
        if session.json {
            session.caller.print(&Document::Lines(self.lines))?;
        } else if !session.quiet {
            say(&self.text)?;
        }
        let Some(path) = markdown else { return Ok(()) };
        let mut table = format!("| {} |\n", self.heads.join(" | "));
        table += &format!("|{}\n", "---:|".repeat(self.heads.len()));
        for row in &self.rows {
            table += &format!("| {} |\n", row.join(" | "));
        }
        atomic::write(path, table.as_bytes())
    }
}

/// Returns a quantile of sorted times; infinite if there are none.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((fraction * last as f64).round() as usize).copied().unwrap_or(f64::INFINITY)
}

/// Runs the cases of a campaign in parallel, each on its own thread.
///
/// # Errors
/// The first of the cases' errors.
pub(crate) fn in_parallel<T: Send>(
    threads: usize,
    cases: usize,
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = Threads::new(threads);
    let mut outcomes: Vec<Option<Result<T>>> = (0..cases).map(|_| None).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut outcomes, 1, |(), index, outcome| {
        outcome[0] = Some(run(index));
    });
    outcomes.into_iter().flatten().collect()
}

/// Returns the cases whose names contain `only`.
///
/// # Errors
/// [`Error::Parameter`] when there are none.
pub(crate) fn select<C: Named>(mut cases: Vec<C>, only: Option<&str>) -> Result<Vec<C>> {
    if let Some(part) = only {
        cases.retain(|case| case.name().contains(part));
        if cases.is_empty() {
            return Err(no_case(Some(part)));
        }
    }
    Ok(cases)
}

/// Returns the error of an `--only` that no case fulfils.
pub(crate) fn no_case(only: Option<&str>) -> Error {
    Error::parameter("--only", only.unwrap_or_default(), "no case's name contains it")
}

/// Benchmark in progress, and the table of its rows.
pub(crate) struct Run<'a> {
    pub(crate) session: &'a Session<'a>,
    csv: Option<PathBuf>,
    rows: Vec<Row>,
    /// Whether each row is printed when it is measured.
    pub(crate) shown: bool,
    /// Whether a case that fails is reported, and the others are measured.
    continues: bool,
    cases: usize,
    failed: Vec<String>,
}

impl<'a> Run<'a> {
    /// Begins a benchmark; prints the description `about` and the table's header.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new(session: &'a Session<'a>, csv: Option<&Path>, about: &str) -> Result<Self> {
        let run = Self { shown: session.talks(), ..Self::hidden(session, csv) };
        if run.shown {
            say(about)?;
            say(&line(&HEADER.map(str::to_owned)))?;
        }
        Ok(run)
    }

    /// Begins a benchmark that prints its own table: rows go to the JSON document and the CSV file only.
    pub(crate) fn hidden(session: &'a Session<'a>, csv: Option<&Path>) -> Self {
        let csv = csv.map(Path::to_owned);
        let (rows, failed) = (Vec::new(), Vec::new());
        Self { session, csv, rows, shown: false, continues: false, cases: 0, failed }
    }

    /// Reports a case that fails, and goes on with the others.
    pub(crate) fn continuing(self) -> Self {
        Self { continues: true, ..self }
    }

    /// Measures all cases in order.
    pub(crate) fn each<C: Named>(
        &mut self,
        cases: &[C],
        mut measure: impl FnMut(&C) -> Result<Row>,
    ) -> Result<()> {
        cases.iter().try_for_each(|case| self.case(case.name(), || Ok(vec![measure(case)?])))
    }

    /// Measures one case, which may have several rows.
    pub(crate) fn case(
        &mut self,
        name: &str,
        measure: impl FnOnce() -> Result<Vec<Row>>,
    ) -> Result<()> {
        self.cases += 1;
        match measure() {
            Ok(rows) => rows.into_iter().try_for_each(|row| self.push(row)),
            Err(error) if self.continues => {
                eprintln!("sidereal: {name}: {error}");
                self.failed.push(name.to_owned());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a row, prints it and writes it at once: a table takes minutes and may be interrupted.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::stopped`] when the user asked to stop.
    pub(crate) fn push(&mut self, row: Row) -> Result<()> {
        if self.shown {
            say(&line(&row.cells()))?;
        }
        self.rows.push(row);
        self.write_csv()?;
        self.session.caller.check_interrupt()
    }

    /// Returns the number of cases so far.
    pub(crate) fn cases(&self) -> usize {
        self.cases
    }

    /// Returns the names of the cases that failed; [`Run::finish`] ignores them then.
    pub(crate) fn take_failed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failed)
    }

    /// Ends the benchmark: prints the JSON document and writes the CSV file.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when a case failed or an output was wrong, because the rate of a wrong result means
    /// nothing.
    pub(crate) fn finish(self) -> Result<()> {
        if self.session.json {
            self.session.caller.print(&Document::Rows(self.rows.clone()))?;
        }
        self.write_csv()?;
        let unavailable = |what, why| Err(Error::Unavailable { what, why });
        if let Some(first) = self.failed.first() {
            let what = format!("the rate of {} of {} cases", self.failed.len(), self.cases);
            return unavailable(what, format!("{first} failed first, and its error is above"));
        }
        self.rows.iter().find(|row| !row.checked).map_or(Ok(()), |row| {
            let what = format!("the rate of {}", row.case);
            unavailable(what, "its output differs from the plain loop's".to_owned())
        })
    }

    fn write_csv(&self) -> Result<()> {
        let Some(path) = &self.csv else { return Ok(()) };
        let mut csv = Csv::new(COLUMNS);
        for row in &self.rows {
            csv.line(row.csv_cells());
        }
        csv.write(path)
    }
}

/// Columns of a CSV file of rates.
const COLUMNS: [&str; 13] = [
    "bench",
    "case",
    "device",
    "rate",
    "unit",
    "roof",
    "roof_unit",
    "fraction_of_roof",
    "baseline",
    "ratio_to_baseline",
    "checked",
    "median",
    "sustained",
];

/// CSV file in the making (RFC 4180).
pub(crate) struct Csv {
    text: String,
    columns: usize,
}

impl Csv {
    /// Begins a file with the names of its columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = &'static str>) -> Self {
        let names: Vec<&str> = columns.into_iter().collect();
        Self { text: names.join(",") + "\n", columns: names.len() }
    }

    /// Makes a file of rows of named cells, numbers with four decimals; all rows have the same columns.
    pub(crate) fn of(rows: impl IntoIterator<Item = Vec<(&'static str, Value)>>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let names: Vec<&'static str> =
            rows.peek().into_iter().flatten().map(|(name, _)| *name).collect();
        let mut csv = Self::new(names);
        for row in rows {
            csv.line(row.into_iter().map(|(_, cell)| match cell {
                Value::Null => String::new(),
                Value::String(text) => Self::text(&text),
                Value::Number(number) if number.is_f64() => {
                    format!("{:.4}", number.as_f64().unwrap_or(f64::NAN))
                }
                other => other.to_string(),
            }));
        }
        csv
    }

    /// Formats a cell of text, quoted where necessary.
    pub(crate) fn text(text: &str) -> String {
        csv_cell(text)
    }

    /// Appends a line of formatted cells, one for each column.
    ///
    /// # Panics
    /// If there are fewer or more cells than columns.
    pub(crate) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns, "a line has a cell for each column");
        self.text += &cells.join(",");
        self.text.push('\n');
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        atomic::write(path, self.text.as_bytes())
    }
}

/// Prints lines of text on standard output.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn say(words: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let words = printable(words);
    let written = output.write_all(words.as_bytes()).and_then(|()| output.write_all(b"\n"));
    written.and_then(|()| output.flush()).map_err(|error| Error::io("standard output", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a CSV line into cells, as RFC 4180 says.
    fn cells(line: &str) -> Vec<String> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            let last = cells.len() - 1;
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    cells[last].push('"');
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                other => cells[last].push(other),
            }
        }
        cells
    }

    #[test]
    fn a_table_has_all_columns_whatever_its_texts_hold() {
        let backend = Backend::best(1);
        let rates = Rates::once(2.0, 4.0, 1.0).lasting(3.0, Some(2.0));
        let unit = "x real time by the bus, or \"resident\"";
        let case = "8-bit, 64 channels";
        let row = rates.row("telescopes", case, &backend, "x real time", true).beside(unit);
        let mut csv = Csv::new(COLUMNS);
        csv.line(row.csv_cells());
        csv.line(Row { sustained: None, ..row }.csv_cells());
        let lines: Vec<&str> = csv.text.lines().collect();
        assert_eq!(cells(lines[0]), COLUMNS);
        for (line, sustained) in [(lines[1], "1.5000"), (lines[2], "")] {
            let found = cells(line);
            assert_eq!(found.len(), COLUMNS.len(), "{line}");
            assert_eq!([&found[1], &found[6], &found[12]], [case, unit, sustained]);
            assert_eq!((found[3].as_str(), found[7].as_str()), ("2.0000", "0.5000"));
        }
    }

    #[test]
    #[should_panic(expected = "a cell for each column")]
    fn a_line_that_lacks_a_cell_is_refused() {
        Csv::new(["a", "b"]).line(["1".to_owned()]);
    }
}
