//! Writes events and series from a text description, and prints tables of LIGO_LW files.
//!
//!     cargo run --release --example gravitational -- events DESCRIPTION OUTPUT.xml
//!     cargo run --release --example gravitational -- series DESCRIPTION OUTPUT.h5
//!     cargo run --release --example gravitational -- table FILE.xml NAME
//!
//! DESCRIPTION has lines of words, each a key and its values:
//!
//! | key         | values                                                                                  |
//! |-------------|-----------------------------------------------------------------------------------------|
//! | `parameter` | name and value of an option                                                             |
//! | `event`     | GPS (ns), network SNR, false alarms (Hz), two masses, two spins, length (s), end (Hz)   |
//! | `detector`  | of the last event: name, GPS (ns), SNR, phase, xi-squared, effective distance, sigma^2  |
//! | `snr`       | of the last detector: start (ns), rate (Hz), file of complex f32                        |
//! | `psd`       | detector, spacing (Hz), file of f64                                                     |
//! | `strain`    | detector, start (ns), rate (Hz), latency (s), file of f32: its whitened strain          |
//! | `ratios`    | of the last strain: template, offset of its peak (s), file of complex f32               |
//!
//! Files are little endian. A table is printed as lines of words with tabs between.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use num_complex::Complex;
use sidereal::io::ligolw::{
    DetectorRow, EventRow, EventsFile, PsdRow, SnrSeries, TemplateRow, Values, read_table,
    write_events,
};
use sidereal::io::series_h5::{DetectorSeries, SeriesFile, TemplateSeries, Writer};
use sidereal::math::PowerSpectrum;
use sidereal::strain::Binary;
use sidereal::units::Gps;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["events", description, output] => events(description, Path::new(output)),
        ["series", description, output] => series(description, Path::new(output)),
        ["table", file, name] => table(Path::new(file), name),
        _ => {
            eprintln!("usage: gravitational events|series DESCRIPTION OUTPUT, or table FILE NAME");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gravitational: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The values of one line.
struct Line<'a> {
    key: &'a str,
    values: Vec<&'a str>,
}

impl Line<'_> {
    fn text(&self, place: usize) -> Outcome<&str> {
        let found = self.values.get(place).copied();
        found.ok_or_else(|| format!("{} needs more than {place} values", self.key).into())
    }

    fn number<T: FromStr>(&self, place: usize) -> Outcome<T> {
        let text = self.text(place)?;
        text.parse().map_err(|_| format!("{}: {text:?} is no number", self.key).into())
    }

    fn gps(&self, place: usize) -> Outcome<Gps> {
        Ok(Gps { ns: self.number(place)? })
    }

    fn floats(&self, place: usize) -> Outcome<Vec<f32>> {
        let bytes = std::fs::read(self.text(place)?)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
    }

    fn complex(&self, place: usize) -> Outcome<Vec<Complex<f32>>> {
        let floats = self.floats(place)?;
        Ok(floats.as_chunks::<2>().0.iter().map(|[re, im]| Complex::new(*re, *im)).collect())
    }
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Line { key: words.next()?, values: words.collect() })
    })
}

fn events(description: &str, output: &Path) -> Outcome {
    let text = std::fs::read_to_string(description)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut file = EventsFile { version, ..EventsFile::default() };
    for line in lines(&text) {
        match line.key {
            "parameter" => {
                file.parameters.push((line.text(0)?.to_owned(), line.text(1)?.to_owned()));
            }
            "event" => file.events.push(event(&line)?),
            "detector" => {
                let event = file.events.last_mut().ok_or("no event before the detector")?;
                event.detectors.push(detector(&line)?);
            }
            "snr" => {
                let event = file.events.last_mut().ok_or("no event before the series")?;
                let own = event.detectors.last_mut().ok_or("no detector before the series")?;
                own.snr_series = Some(SnrSeries {
                    start: line.gps(0)?,
                    rate_hz: line.number(1)?,
                    samples: line.complex(2)?,
                });
            }
            "psd" => {
                let bytes = std::fs::read(line.text(2)?)?;
                let densities =
                    bytes.as_chunks::<8>().0.iter().map(|chunk| f64::from_le_bytes(*chunk));
                let psd = PowerSpectrum::new(line.number(1)?, densities.collect())?;
                file.psds.push(PsdRow { ifo: line.text(0)?.to_owned(), psd });
            }
            other => return Err(format!("unknown key {other:?}").into()),
        }
    }
    Ok(write_events(output, &file)?)
}

fn event(line: &Line<'_>) -> Outcome<EventRow> {
    let binary = Binary {
        mass1_msun: line.number(3)?,
        mass2_msun: line.number(4)?,
        spin1z: line.number(5)?,
        spin2z: line.number(6)?,
    };
    let template = TemplateRow {
        name: "described".to_owned(),
        binary: Some(binary),
        duration_s: Some(line.number(7)?),
        f_final_hz: Some(line.number(8)?),
    };
    Ok(EventRow {
        gps: line.gps(0)?,
        network_snr: line.number(1)?,
        far_hz: Some(line.number(2)?),
        template,
        detectors: Vec::new(),
    })
}

fn detector(line: &Line<'_>) -> Outcome<DetectorRow> {
    Ok(DetectorRow {
        ifo: line.text(0)?.to_owned(),
        gps: line.gps(1)?,
        snr: line.number(2)?,
        phase: line.number(3)?,
        xi2: Some(line.number(4)?),
        effective_distance_mpc: Some(line.number(5)?),
        sigmasq: Some(line.number(6)?),
        snr_series: None,
    })
}

/// Whitened strain and ratios of each detector.
type Samples = Vec<(Vec<f32>, Vec<Vec<Complex<f32>>>)>;

fn series(description: &str, output: &Path) -> Outcome {
    let text = std::fs::read_to_string(description)?;
    let mut file = SeriesFile::default();
    let mut samples: Samples = Vec::new();
    for line in lines(&text) {
        match line.key {
            "strain" => {
                let strain = line.floats(4)?;
                file.detectors.push(DetectorSeries {
                    detector: line.text(0)?.to_owned(),
                    start: line.gps(1)?,
                    rate_hz: line.number(2)?,
                    samples: strain.len() as u64,
                    latency_s: line.number(3)?,
                    templates: Vec::new(),
                    whitened: true,
                });
                samples.push((strain, Vec::new()));
            }
            "ratios" => {
                let own = file.detectors.last_mut().ok_or("no strain before the ratios")?;
                let (name, peak_offset_s) = (line.text(0)?.to_owned(), line.number(1)?);
                own.templates.push(TemplateSeries { name, peak_offset_s });
                samples.last_mut().ok_or("no strain before the ratios")?.1.push(line.complex(2)?);
            }
            other => return Err(format!("unknown key {other:?}").into()),
        }
    }
    let mut writer = Writer::create(output, file)?;
    for (detector, (strain, ratios)) in samples.iter().enumerate() {
        // Writes in blocks, like a stream.
        for block in strain.chunks(1000) {
            writer.whitened(detector, block, &vec![true; block.len()])?;
        }
        let times = ratios.first().map_or(0, Vec::len);
        for start in (0..times).step_by(700) {
            let stride = 700.min(times - start);
            let rows = ratios.iter().flat_map(|row| row[start..start + stride].iter().copied());
            writer.snr(detector, &rows.collect::<Vec<_>>(), stride, stride)?;
        }
    }
    Ok(writer.finish()?)
}

fn table(file: &Path, name: &str) -> Outcome {
    let table = read_table(file, name)?;
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let mut text = names.join("\t") + "\n";
    for row in 0..table.rows {
        let cell = |values: &Values| match values {
            Values::Text(cells) => cells[row].clone().unwrap_or_default(),
            Values::Whole(cells) => cells[row].map(|cell| cell.to_string()).unwrap_or_default(),
            Values::Real(cells) => cells[row].to_string(),
        };
        let cells: Vec<String> = table.columns.iter().map(|column| cell(&column.values)).collect();
        text.push_str(&(cells.join("\t") + "\n"));
    }
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
