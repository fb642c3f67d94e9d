//! Table of measured chains: text, CSV and JSON from one list of cells.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sidereal::trace::Work;
use sidereal::{Error, Result};

use super::child::Shares;
use super::roofs::Best;
use crate::runner::{Csv, Document, Session, say};

/// Measured chain.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) device: String,
    /// Name of the file system of the inputs and products.
    pub(super) file_system: String,
    pub(super) piped: bool,
    pub(super) cold: bool,
    /// Wall times of the runs in seconds, in ascending order.
    pub(super) wall_s: Vec<f64>,
    /// Length of the data in seconds, if they have one.
    pub(super) data_s: Option<f64>,
    pub(super) input_bytes: u64,
    pub(super) product_bytes: u64,
    pub(super) shares: Shares,
    /// Wall time of the run with time stamps.
    pub(super) traced_wall_s: f64,
    pub(super) roofs: Roofs,
    /// Whether the product is right.
    pub(super) checked: bool,
}

/// Measured roofs of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roofs {
    pub(super) read: Best,
    pub(super) write: Best,
    /// Pipe of the input, if the input is piped.
    pub(super) pipe: Option<Best>,
    /// Copies between page-locked memory and the GPU, if there is one.
    pub(super) to_device: Option<Best>,
    pub(super) from_device: Option<Best>,
}

/// Part of a chain, and the seconds that it takes at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
}

impl Row {
    fn wall_s(&self) -> f64 {
        self.wall_s[self.wall_s.len() / 2]
    }

    /// Returns the seconds that each part takes alone.
    fn parts(&self) -> Vec<Part> {
        let Roofs { read, write, pipe, to_device, from_device } = self.roofs;
        let shares = &self.shares;
        let part = |name, seconds| Part { name, seconds };
        let mut parts = vec![match pipe {
            Some(pipe) => part("pipe", pipe.seconds(self.input_bytes)),
            None => part("read", read.seconds(self.input_bytes)),
        }];
        parts.push(part("write", write.seconds(self.product_bytes)));
        if let Some(bus) = to_device {
            parts.push(part("copy to device", bus.seconds(shares.bytes(Work::ToDevice))));
        }
        if let Some(bus) = from_device {
            parts.push(part("copy from device", bus.seconds(shares.bytes(Work::FromDevice))));
        }
        parts.push(match to_device {
            Some(_) => part("kernels", shares.busy_s(Work::Kernel)),
            None => part("compute", shares.busy_s(Work::Compute)),
        });
        parts
    }

    /// Returns the part that takes longest.
    fn roof(&self) -> Part {
        let longest = self.parts().into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        longest.unwrap_or(Part { name: "none", seconds: 0.0 })
    }

    /// Returns the cells, each with its column's name.
    fn cells(&self) -> Vec<(&'static str, Value)> {
        let busy = |work| Value::from(self.shares.busy_s(work));
        let rate = |best: Option<Best>| Value::from(best.map(|best| best.rate * 1e-9));
        let wall_s = self.wall_s();
        let roof = self.roof();
        let input = if self.piped { "pipe" } else { "file" };
        let start = if self.cold { "cold" } else { "warm" };
        vec![
            ("bench", "chains".into()),
            ("case", self.case.clone().into()),
            ("device", self.device.clone().into()),
            ("file_system", self.file_system.clone().into()),
            ("input", input.into()),
            ("start", start.into()),
            ("runs", self.wall_s.len().into()),
            ("wall_s", wall_s.into()),
            ("wall_min_s", self.wall_s[0].into()),
            ("wall_max_s", self.wall_s[self.wall_s.len() - 1].into()),
            ("real_time", self.data_s.map(|data_s| data_s / wall_s).into()),
            ("input_bytes", self.input_bytes.into()),
            ("product_bytes", self.product_bytes.into()),
            ("traced_wall_s", self.traced_wall_s.into()),
            ("start_up_s", self.shares.start_up_s.into()),
            ("kernels_s", busy(Work::Kernel)),
            ("to_device_s", busy(Work::ToDevice)),
            ("from_device_s", busy(Work::FromDevice)),
            ("read_s", busy(Work::Read)),
            ("write_s", busy(Work::Write)),
            ("compute_s", busy(Work::Compute)),
            ("compile_s", busy(Work::Compile)),
            ("draw_s", busy(Work::Draw)),
            ("any_s", self.shares.any_s.into()),
            ("read_roof_gb_s", rate(Some(self.roofs.read))),
            ("read_roof_threads", self.roofs.read.threads.into()),
            ("write_roof_gb_s", rate(Some(self.roofs.write))),
            ("write_roof_threads", self.roofs.write.threads.into()),
            ("pipe_roof_gb_s", rate(self.roofs.pipe)),
            ("to_device_roof_gb_s", rate(self.roofs.to_device)),
            ("from_device_roof_gb_s", rate(self.roofs.from_device)),
            ("roof", roof.name.into()),
            ("roof_s", roof.seconds.into()),
            ("fraction_of_roof", (roof.seconds / wall_s).into()),
            ("checked", self.checked.into()),
        ]
    }

    fn line(&self) -> String {
        let busy = |work| share(self.shares.busy_s(work));
        let (wall_s, roof) = (self.wall_s(), self.roof());
        let numbers = [
            share(wall_s),
            self.data_s.map_or_else(String::new, |data_s| format!("{:.1}", data_s / wall_s)),
            self.shares.start_up_s.map_or_else(String::new, share),
            busy(Work::Kernel),
            share(self.shares.busy_s(Work::ToDevice) + self.shares.busy_s(Work::FromDevice)),
            busy(Work::Read),
            busy(Work::Write),
            busy(Work::Compute),
            busy(Work::Compile),
            busy(Work::Draw),
            share(roof.seconds),
        ];
        let case = format!(
            "{}{}{}",
            self.case,
            if self.piped { ", pipe" } else { "" },
            if self.cold { ", cold" } else { "" }
        );
        let part = format!("{:.2} of {}", roof.seconds / wall_s, roof.name);
        line(&case, &numbers, &part)
    }
}

/// Formats seconds.
fn share(seconds: f64) -> String {
    format!("{seconds:.3}")
}

fn line(case: &str, numbers: &[String; 11], last: &str) -> String {
    let numbers: String = numbers.iter().map(|cell| format!("{cell:>9}")).collect();
    format!("{case:<58}{numbers}  {last}")
}

const HEADER: [&str; 11] = [
    "wall", "realtime", "start-up", "kernels", "copies", "read", "write", "compute", "compile",
    "draw", "roof",
];

/// Table in progress.
pub(super) struct Table<'a> {
    session: &'a Session<'a>,
    csv: Option<PathBuf>,
    rows: Vec<Row>,
    failed: Vec<String>,
}

impl<'a> Table<'a> {
    /// Begins a table; prints the description `about` and the header.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn new(session: &'a Session<'a>, csv: Option<&Path>, about: &str) -> Result<Self> {
        if session.talks() {
            say(about)?;
            say(&line("case", &HEADER.map(str::to_owned), "of roof"))?;
        }
        Ok(Self { session, csv: csv.map(Path::to_owned), rows: Vec::new(), failed: Vec::new() })
    }

    /// Adds a row, prints it and writes the CSV file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn push(&mut self, row: Row) -> Result<()> {
        if self.session.talks() {
            say(&row.line())?;
        }
        self.rows.push(row);
        self.write_csv()
    }

    /// Reports a chain that failed.
    pub(super) fn fail(&mut self, name: &str, error: &Error) {
        eprintln!("sidereal: {name}: {error}");
        self.failed.push(name.to_owned());
    }

    /// Prints the JSON document.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Unavailable`] if a chain failed or its product was wrong.
    pub(super) fn finish(self) -> Result<()> {
        if self.session.json {
            let object = |row: &Row| -> Value {
                let cells = row.cells().into_iter().map(|(name, cell)| (name.to_owned(), cell));
                Value::Object(cells.collect())
            };
            let lines = self.rows.iter().map(object).collect();
            self.session.caller.print(&Document::Lines(lines))?;
        }
        let unavailable = |name: &str, why: &str| {
            Err(Error::Unavailable { what: format!("the time of {name}"), why: why.to_owned() })
        };
        if let Some(first) = self.failed.first() {
            return unavailable(first, "it failed, and its error is above");
        }
        let wrong = self.rows.iter().find(|row| !row.checked);
        wrong.map_or(Ok(()), |row| unavailable(&row.case, "its product lacks what was put in"))
    }

    fn write_csv(&self) -> Result<()> {
        match &self.csv {
            Some(path) => Csv::of(self.rows.iter().map(Row::cells)).write(path),
            None => Ok(()),
        }
    }
}
