//! Contents of an event file, and their constraints.

use std::path::Path;

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::ligolw::xml::{Field, Sink, real};
use crate::math::PowerSpectrum;
use crate::strain::Binary;
use crate::units::Gps;

/// Events and the data needed for their sky localization.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventsFile {
    /// Version of the search program.
    pub version: String,
    /// Description of the search, one line.
    pub comment: String,
    /// The program's options: `("--snr", "4")`.
    pub parameters: Vec<(String, String)>,
    /// Start and end of the searched time.
    pub span: Option<(Gps, Gps)>,
    /// The events.
    pub events: Vec<EventRow>,
    /// Power spectrum of each detector in an event.
    pub psds: Vec<PsdRow>,
}

/// An event: coincident triggers of several detectors.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Event time: that of the loudest detector, or another representative one.
    pub gps: Gps,
    /// `sqrt(sum snr^2)`.
    pub network_snr: f64,
    /// False-alarm rate of events of this rank and above, in Hz, when known.
    pub far_hz: Option<f64>,
    /// Template of the event.
    pub template: TemplateRow,
    /// Triggers of its detectors, at least one.
    pub detectors: Vec<DetectorRow>,
}

/// Template of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateRow {
    /// Its name, for messages.
    pub name: String,
    /// Masses and spins, when known; localization requires them.
    pub binary: Option<Binary>,
    /// Length in seconds.
    pub duration_s: Option<f64>,
    /// Highest frequency in Hz.
    pub f_final_hz: Option<f64>,
}

/// Trigger of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// Event time at this detector.
    pub gps: Gps,
    /// Signal-to-noise ratio `|z|`.
    pub snr: f64,
    /// Phase `arg z` in radians, with PyCBC's sign.
    pub phase: f64,
    /// The autocorrelation veto, about 1 for a signal.
    pub xi2: Option<f64>,
    /// Effective distance: that of an optimally located and oriented source with this signal-to-noise ratio, in Mpc.
    pub effective_distance_mpc: Option<f64>,
    /// Squared signal-to-noise ratio of the template at 1 Mpc.
    pub sigmasq: Option<f64>,
    /// Complex signal-to-noise ratio time series around the trigger.
    pub snr_series: Option<SnrSeries>,
}

/// Complex signal-to-noise ratios around a trigger.
///
/// BAYESTAR requires an odd number of samples, the middle one within a sample of the trigger's time, and the same
/// rate and number of samples in all detectors of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct SnrSeries {
    /// Event time of the first sample: its output time plus the template's `peak_offset_s`, so that the series peaks
    /// at [`DetectorRow::gps`].
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// `z` in sidereal's convention, which is PyCBC's.
    pub samples: Vec<Complex<f32>>,
}

/// Power spectrum of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct PsdRow {
    /// `H1`, `L1`, `V1`, `K1`.
    pub ifo: String,
    /// One-sided, in 1/Hz (strain is dimensionless).
    pub psd: PowerSpectrum,
}

impl EventRow {
    /// Returns the detectors' names, sorted and separated by commas.
    fn ifos(&self) -> String {
        let mut names: Vec<&str> = self.detectors.iter().map(|own| own.ifo.as_str()).collect();
        names.sort_unstable();
        names.join(",")
    }

    fn check(&self) -> Result<()> {
        if self.detectors.is_empty() {
            return Err(Error::parameter("detectors of an event", 0, "it has at least 1"));
        }
        for (index, own) in self.detectors.iter().enumerate() {
            if self.detectors[..index].iter().any(|other| other.ifo == own.ifo) {
                let rule = "an event has each detector once";
                return Err(Error::parameter("detector of an event", &own.ifo, rule));
            }
        }
        let all: Vec<&SnrSeries> =
            self.detectors.iter().filter_map(|own| own.snr_series.as_ref()).collect();
        for (own, series) in
            self.detectors.iter().filter_map(|own| own.snr_series.as_ref().map(|s| (own, s)))
        {
            let same = (all[0].rate_hz, all[0].samples.len());
            if (series.rate_hz, series.samples.len()) != same {
                let found = format!("{} samples at {} Hz", series.samples.len(), series.rate_hz);
                let rule = format!("all of an event have {} at {} Hz", same.1, same.0);
                return Err(Error::parameter("series of SNR", found, rule));
            }
            series.check(own)?;
        }
        Ok(())
    }
}

impl SnrSeries {
    fn check(&self, own: &DetectorRow) -> Result<()> {
        if self.rate_hz == 0 || self.samples.len().is_multiple_of(2) {
            let found = format!("{} samples at {} Hz", self.samples.len(), self.rate_hz);
            let rule = format!("it needs an odd number and a rate ({})", own.ifo);
            return Err(Error::parameter("series of SNR", found, rule));
        }
        let middle = self.start.plus_samples((self.samples.len() / 2) as i64, self.rate_hz);
        let shift = middle.seconds_since(own.gps);
        if shift.abs() * f64::from(self.rate_hz) > 1.0 {
            let rule = format!("it must lie within a sample of the trigger of {}", own.ifo);
            return Err(Error::parameter("middle of a series of SNR (s)", shift, rule));
        }
        Ok(())
    }
}

const PROGRAM: &str = "sidereal";

/// Process id of the search.
const SEARCH_PROCESS: i64 = 0;

/// Process id that coincidences reference: from its program name, ligo.skymap infers the sign of phases.
const PHASE_PROCESS: i64 = 1;

/// Program name for our sign of phases: `z` is PyCBC's matched filter in amplitude and phase.
const PHASE_PROGRAM: &str = "pycbc";

/// Nanoseconds in a second.
const NS_PER_S: i64 = 1_000_000_000;

const HEAD: &str = "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE LIGO_LW SYSTEM \
    \"http://ldas-sw.ligo.caltech.edu/doc/ligolwAPI/html/ligolw_dtd.txt\">";

/// Writes events as LIGO_LW XML, compressed if the name ends in `.gz`.
///
/// Tables: process, process_params, time_slide, coinc_definer, coinc_event, coinc_event_map, coinc_inspiral,
/// sngl_inspiral, with `int_8s` ids. Each signal-to-noise ratio series is a COMPLEX8TimeSeries with its trigger's
/// `event_id`; power spectra are REAL8FrequencySeries in an element named `psd`. The option `--reference-psd` of the
/// search's process names the file itself, where BAYESTAR looks for the spectra.
///
/// Phases and series have PyCBC's sign. ligo.skymap infers the sign from the name of the program that made a
/// coincidence, and rejects unknown names. Coincidences therefore belong to a second process named `pycbc`, whose
/// comment explains this.
///
/// `chisq` is xi-squared with `chisq_dof` 1; `combined_far` is in Hz; `eff_distance` is in Mpc. An unknown value is
/// an empty cell, or 0 in integer columns, because gwpy does not accept empty integers.
///
/// # Errors
/// [`Error::Parameter`] for an event without detectors or with a repeated one, a series that BAYESTAR would reject
/// (see [`SnrSeries`](super::SnrSeries)), or times beyond 32 bits of seconds; [`Error::Io`].
/// # Source
/// ligo.skymap 2.5.4 (`io/events/ligolw.py`, `bayestar/__init__.py`) and lal 7.7.1 (`series.py`) as the readers.
pub fn write_events(path: &Path, file: &EventsFile) -> Result<()> {
    for event in &file.events {
        event.check()?;
        let moments = event.detectors.iter().map(|own| own.gps).chain([event.gps]);
        for moment in moments.chain(file.span.into_iter().flat_map(|(from, to)| [from, to])) {
            if i32::try_from(moment.ns.div_euclid(NS_PER_S)).is_err() {
                let rule = "GPS seconds have 32 bits in LIGO_LW";
                return Err(Error::parameter("time (GPS)", moment.s(), rule));
            }
        }
    }
    let mut sink = Sink::create(path)?;
    sink.line(HEAD)?;
    sink.element("LIGO_LW", &[], |sink| {
        processes(sink, path, file)?;
        coincidences(sink, file)?;
        triggers(sink, file)?;
        for (id, own) in detectors(file).enumerate() {
            if let Some(series) = &own.snr_series {
                snr(sink, series, id as i64)?;
            }
        }
        sink.element("LIGO_LW", &[("Name", "psd")], |sink| {
            file.psds.iter().try_for_each(|row| psd(sink, row))
        })
    })?;
    sink.finish()
}

/// Iterates over the triggers of all events; a trigger's index is its `event_id`.
fn detectors(file: &EventsFile) -> impl Iterator<Item = &DetectorRow> {
    file.events.iter().flat_map(|event| &event.detectors)
}

/// Returns the distinct names of all detectors, sorted.
fn ifos(file: &EventsFile) -> Vec<&str> {
    let psds = file.psds.iter().map(|row| row.ifo.as_str());
    let mut names: Vec<&str> = detectors(file).map(|own| own.ifo.as_str()).chain(psds).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns whole GPS seconds and the remaining nanoseconds.
fn split(moment: Gps) -> [Field; 2] {
    [moment.ns.div_euclid(NS_PER_S).into(), moment.ns.rem_euclid(NS_PER_S).into()]
}

fn processes(sink: &mut Sink, path: &Path, file: &EventsFile) -> Result<()> {
    let process = |id: i64, program: &str, comment: &str| {
        let span = file.span.map_or([Field::Empty, Field::Empty], |(from, to)| {
            [from, to].map(|end| end.ns.div_euclid(NS_PER_S).into())
        });
        let [start, end] = span;
        vec![
            id.into(),
            program.into(),
            file.version.as_str().into(),
            comment.into(),
            ifos(file).join(",").into(),
            start,
            end,
        ]
    };
    let why = "no program of its own: complex SNR and phases of sidereal have the sign of pycbc's";
    let rows = [
        process(SEARCH_PROCESS, PROGRAM, &file.comment),
        process(PHASE_PROCESS, PHASE_PROGRAM, why),
    ];
    sink.table("process", PROCESS, rows)?;
    // Readers also look for a bare name next to the file.
    let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let own = ("--reference-psd".to_owned(), own);
    let parameters = file.parameters.iter().filter(|(name, _)| *name != own.0);
    let rows = parameters.chain([&own]).map(|(name, value)| {
        let text = [PROGRAM, name.as_str(), "lstring", value.as_str()];
        [Field::from(SEARCH_PROCESS)].into_iter().chain(text.map(Field::from)).collect()
    });
    sink.table("process_params", PROCESS_PARAMS, rows)
}

fn coincidences(sink: &mut Sink, file: &EventsFile) -> Result<()> {
    let slide = |ifo: &str| vec![SEARCH_PROCESS.into(), 0.into(), ifo.into(), 0.0.into()];
    sink.table("time_slide", TIME_SLIDE, ifos(file).into_iter().map(slide))?;
    let definer = vec![
        0.into(),
        "inspiral".into(),
        0.into(),
        "sngl_inspiral<-->sngl_inspiral coincidences".into(),
    ];
    sink.table("coinc_definer", COINC_DEFINER, [definer])?;
    let numbered = || file.events.iter().enumerate().map(|(id, event)| (id as i64, event));
    let rows = numbered().map(|(id, event)| {
        vec![
            PHASE_PROCESS.into(),
            id.into(),
            0.into(),
            0.into(),
            event.ifos().into(),
            (event.detectors.len() as i64).into(),
            Field::Empty,
        ]
    });
    sink.table("coinc_event", COINC_EVENT, rows)?;
    let members = numbered().flat_map(|(id, event)| event.detectors.iter().map(move |_| id));
    let rows = members
        .zip(0_i64..)
        .map(|(coincidence, event)| vec![coincidence.into(), "sngl_inspiral".into(), event.into()]);
    sink.table("coinc_event_map", COINC_EVENT_MAP, rows)?;
    sink.table("coinc_inspiral", COINC_INSPIRAL, numbered().map(|(id, event)| inspiral(id, event)))
}

fn inspiral(id: i64, event: &EventRow) -> Vec<Field> {
    let [seconds, ns] = split(event.gps);
    let binary = event.template.binary;
    vec![
        id.into(),
        event.ifos().into(),
        seconds,
        ns,
        event.network_snr.into(),
        event.far_hz.into(),
        Field::Empty,
        binary.map(|own| own.total_mass_msun()).into(),
        binary.map(|own| own.chirp_mass_msun()).into(),
        event.template.duration_s.into(),
    ]
}

fn triggers(sink: &mut Sink, file: &EventsFile) -> Result<()> {
    let pairs =
        file.events.iter().flat_map(|event| event.detectors.iter().map(move |d| (event, d)));
    let rows = pairs.zip(0_i64..).map(|((event, own), id)| trigger(id, event, own));
    sink.table("sngl_inspiral", SNGL_INSPIRAL, rows)
}

fn trigger(id: i64, event: &EventRow, own: &DetectorRow) -> Vec<Field> {
    let template = &event.template;
    let of_binary = |number: fn(&crate::strain::Binary) -> f64| -> Field {
        template.binary.as_ref().map(number).into()
    };
    let [seconds, ns] = split(own.gps);
    vec![
        SEARCH_PROCESS.into(),
        id.into(),
        own.ifo.as_str().into(),
        "spiir".into(),
        seconds,
        ns,
        own.snr.into(),
        own.phase.into(),
        own.xi2.into(),
        own.xi2.map(|_| 1).into(),
        own.effective_distance_mpc.into(),
        own.sigmasq.into(),
        template.duration_s.into(),
        template.f_final_hz.into(),
        of_binary(|binary| binary.mass1_msun),
        of_binary(|binary| binary.mass2_msun),
        of_binary(|binary| binary.chirp_mass_msun()),
        of_binary(|binary| binary.total_mass_msun()),
        of_binary(|binary| {
            binary.mass1_msun * binary.mass2_msun / binary.total_mass_msun().powi(2)
        }),
        of_binary(|_| 0.0),
        of_binary(|_| 0.0),
        of_binary(|binary| binary.spin1z),
        of_binary(|_| 0.0),
        of_binary(|_| 0.0),
        of_binary(|binary| binary.spin2z),
    ]
}

// Columns of the tables: names and types.
const PROCESS: &str = "\
    process_id int_8s, program lstring, version lstring, comment lstring, ifos lstring, \
    start_time int_4s, end_time int_4s, is_online int_4s, jobid int_4s, unix_procid int_4s, \
    cvs_entry_time int_4s, cvs_repository lstring, domain lstring, node lstring, \
    username lstring";

const PROCESS_PARAMS: &str = "\
    process:process_id int_8s, program lstring, param lstring, type lstring, value lstring";

const TIME_SLIDE: &str = "\
    process:process_id int_8s, time_slide_id int_8s, instrument lstring, offset real_8";

const COINC_DEFINER: &str = "\
    coinc_def_id int_8s, search lstring, search_coinc_type int_4u, description lstring";

const COINC_EVENT: &str = "\
    process:process_id int_8s, coinc_event_id int_8s, coinc_definer:coinc_def_id int_8s, \
    time_slide:time_slide_id int_8s, instruments lstring, nevents int_4u, likelihood real_8";

const COINC_EVENT_MAP: &str = "\
    coinc_event:coinc_event_id int_8s, table_name char_v, event_id int_8s";

const COINC_INSPIRAL: &str = "\
    coinc_event:coinc_event_id int_8s, ifos lstring, end_time int_4s, end_time_ns int_4s, \
    snr real_8, combined_far real_8, false_alarm_rate real_8, mass real_8, mchirp real_8, \
    minimum_duration real_8";

/// Programs require all columns; those from `channel` on are empty.
const SNGL_INSPIRAL: &str = "\
    process:process_id int_8s, event_id int_8s, ifo lstring, search lstring, end_time int_4s, \
    end_time_ns int_4s, snr real_4, coa_phase real_4, chisq real_4, chisq_dof int_4s, \
    eff_distance real_4, sigmasq real_8, template_duration real_8, f_final real_4, mass1 real_4, \
    mass2 real_4, mchirp real_4, mtotal real_4, eta real_4, spin1x real_4, spin1y real_4, \
    spin1z real_4, spin2x real_4, spin2y real_4, spin2z real_4, \
    channel lstring, end_time_gmst real_8, impulse_time int_4s, impulse_time_ns int_4s, \
    event_duration real_8, amplitude real_4, tau0 real_4, tau2 real_4, tau3 real_4, tau4 real_4, \
    tau5 real_4, ttotal real_4, psi0 real_4, psi3 real_4, alpha real_4, alpha1 real_4, \
    alpha2 real_4, alpha3 real_4, alpha4 real_4, alpha5 real_4, alpha6 real_4, beta real_4, \
    kappa real_4, chi real_4, bank_chisq real_4, bank_chisq_dof int_4s, cont_chisq real_4, \
    cont_chisq_dof int_4s, rsqveto_duration real_4, Gamma0 real_4, Gamma1 real_4, Gamma2 real_4, \
    Gamma3 real_4, Gamma4 real_4, Gamma5 real_4, Gamma6 real_4, Gamma7 real_4, Gamma8 real_4, \
    Gamma9 real_4";

/// Formats GPS seconds with nine decimals.
fn gps(moment: Gps) -> String {
    let sign = if moment.ns < 0 { "-" } else { "" };
    let ns = moment.ns.unsigned_abs();
    const UNIT: u64 = NS_PER_S as u64;
    format!("{sign}{}.{:09}", ns / UNIT, ns % UNIT)
}

/// An array of numbers along an axis.
struct Series<'a> {
    name: &'a str,
    unit: &'a str,
    axis: &'a str,
    axis_unit: &'a str,
    /// Names of the numbers of a row.
    values: &'a str,
    /// Numbers per row.
    columns: usize,
    /// Step of the axis.
    step: f64,
}

/// Writes the complex signal-to-noise ratio series of the trigger with this id.
fn snr(sink: &mut Sink, series: &SnrSeries, event_id: i64) -> Result<()> {
    let step = 1.0 / f64::from(series.rate_hz);
    let array = Series {
        name: "snr:array",
        unit: "",
        axis: "Time",
        axis_unit: "s",
        values: "Time,Real,Imaginary",
        columns: 3,
        step,
    };
    sink.element("LIGO_LW", &[("Name", "COMPLEX8TimeSeries")], |sink| {
        head(sink, series.start)?;
        let row = |(place, z): (usize, &num_complex::Complex<f32>)| {
            format!("{} {} {}", real(place as f64 * step), z.re, z.im)
        };
        let rows = series.samples.iter().enumerate().map(row);
        array.write(sink, rows)?;
        let id = [("Name", "event_id:param"), ("Type", "int_8s")];
        sink.value("Param", &id, &event_id.to_string())
    })
}

/// Writes the power spectrum of a detector.
fn psd(sink: &mut Sink, row: &PsdRow) -> Result<()> {
    let step = row.psd.spacing_hz();
    let array = Series {
        name: "psd:array",
        unit: "s strain^2",
        axis: "Frequency",
        axis_unit: "s^-1",
        values: "Frequency,Real",
        columns: 2,
        step,
    };
    sink.element("LIGO_LW", &[("Name", "REAL8FrequencySeries")], |sink| {
        head(sink, Gps::default())?;
        let line = |(bin, density): (usize, &f64)| {
            format!("{} {}", real(bin as f64 * step), real(*density))
        };
        let rows = row.psd.densities().iter().enumerate().map(line);
        array.write(sink, rows)?;
        sink.value("Param", &[("Name", "instrument:param"), ("Type", "lstring")], &row.ifo)
    })
}

fn head(sink: &mut Sink, epoch: Gps) -> Result<()> {
    sink.value("Time", &[("Type", "GPS"), ("Name", "epoch")], &gps(epoch))?;
    sink.value("Param", &[("Name", "f0:param"), ("Type", "real_8"), ("Unit", "s^-1")], "0")
}

impl Series<'_> {
    fn write(&self, sink: &mut Sink, rows: impl ExactSizeIterator<Item = String>) -> Result<()> {
        let head = [("Type", "real_8"), ("Name", self.name), ("Unit", self.unit)];
        sink.element("Array", &head, |sink| {
            let scale = real(self.step);
            let places =
                [("Name", self.axis), ("Unit", self.axis_unit), ("Start", "0"), ("Scale", &scale)];
            sink.value("Dim", &places, &rows.len().to_string())?;
            sink.value("Dim", &[("Name", self.values)], &self.columns.to_string())?;
            sink.element("Stream", &[("Type", "Local"), ("Delimiter", " ")], |sink| {
                // Numbers need a delimiter also across a line end.
                let mut rows = rows.peekable();
                while let Some(row) = rows.next() {
                    let end = if rows.peek().is_some() { " " } else { "" };
                    sink.line(&(row + end))?;
                }
                Ok(())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PsdRow, SnrSeries, TemplateRow, Values, is_ligolw, read_table};
    use super::*;
    use crate::math::PowerSpectrum;
    use crate::strain::Binary;
    use num_complex::Complex;

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(gps(Gps { ns: 1_126_259_462_000_000_411 }), "1126259462.000000411");
        assert_eq!(gps(Gps { ns: -1_500_000_000 }), "-1.500000000");
    }

    fn detector(ifo: &str, ns: i64) -> DetectorRow {
        let gps = Gps { ns };
        let samples = (0..5).map(|k| Complex::new(k as f32, -0.25)).collect();
        let snr_series =
            Some(SnrSeries { start: gps.plus_samples(-2, 4096), rate_hz: 4096, samples });
        DetectorRow {
            ifo: ifo.to_owned(),
            gps,
            snr: 18.5,
            phase: -1.25,
            xi2: Some(0.9),
            effective_distance_mpc: None,
            sigmasq: Some(1e6),
            snr_series,
        }
    }

    fn file() -> EventsFile {
        let psd = PowerSpectrum::new(0.25, vec![1e-46, 2e-46, f64::INFINITY]).expect("a spectrum");
        EventsFile {
            version: "0.1.0".to_owned(),
            comment: "a \"comment\" & more <here>".to_owned(),
            parameters: vec![("--snr".to_owned(), "4".to_owned())],
            span: Some((Gps::from_s(1126259446.0), Gps::from_s(1126259478.0))),
            events: vec![EventRow {
                gps: Gps { ns: 1_126_259_462_423_600_000 },
                network_snr: 23.0,
                far_hz: Some(1e-9),
                template: TemplateRow {
                    name: "36+29".to_owned(),
                    binary: Some(Binary { spin1z: 0.5, ..Binary::of_masses(36.0, 29.0) }),
                    duration_s: Some(1.5),
                    f_final_hz: None,
                },
                detectors: vec![
                    detector("L1", 1_126_259_462_416_500_000),
                    detector("H1", 1_126_259_462_423_600_001),
                ],
            }],
            psds: vec![PsdRow { ifo: "H1".to_owned(), psd }],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["events.xml", "events.xml.gz"] {
            let path = folder.path().join(name);
            write_events(&path, &file()).expect("a file");
            assert!(is_ligolw(&path));
            let table = read_table(&path, "sngl_inspiral").expect("a table");
            assert_eq!(table.texts("ifo"), Some(vec!["L1", "H1"]));
            assert_eq!(table.reals("end_time_ns").expect("times"), [416_500_000.0, 423_600_001.0]);
            assert_eq!(table.reals("spin1z").expect("spins"), [0.5, 0.5]);
            let empty = |number: &f64| number.is_nan();
            assert!(
                matches!(table.column("f_final"), Some(Values::Real(cells)) if cells.iter().all(empty))
            );
            assert!(table.reals("f_final").is_err());
            let map = read_table(&path, "coinc_event_map").expect("a table");
            assert_eq!(map.reals("event_id").expect("ids"), [0.0, 1.0]);
            let process = read_table(&path, "process").expect("a table");
            assert_eq!(process.texts("program"), Some(vec!["sidereal", "pycbc"]));
            assert_eq!(process.texts("comment").expect("texts")[0], file().comment);
            let parameters = read_table(&path, "process_params").expect("a table");
            assert_eq!(parameters.texts("value"), Some(vec!["4", name]));
        }
        let bytes = std::fs::read(folder.path().join("events.xml.gz")).expect("bytes");
        assert!(bytes.starts_with(&[0x1f, 0x8b]));
    }

    #[test]
    fn no_events_make_a_file_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("none.xml");
        write_events(&path, &EventsFile::default()).expect("a file");
        assert_eq!(read_table(&path, "sngl_inspiral").expect("a table").rows, 0);
    }

    #[test]
    fn events_that_can_not_be_localized_are_refused() {
        let refused = |change: fn(&mut EventRow)| {
            let mut file = file();
            change(&mut file.events[0]);
            let folder = tempfile::tempdir().expect("a folder");
            let error = write_events(&folder.path().join("x.xml"), &file).expect_err("a fault");
            assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
            error.to_string()
        };
        assert!(refused(|event| event.detectors.clear()).contains("at least 1"));
        assert!(refused(|event| event.detectors[1].ifo = "L1".to_owned()).contains("once"));
        let longer = refused(|event| {
            if let Some(own) = &mut event.detectors[1].snr_series {
                own.samples.extend([Complex::default(); 2]);
            }
        });
        assert!(longer.contains("7 samples") && longer.contains("5 at 4096"), "{longer}");
        let late = refused(|event| event.detectors[1].gps = event.gps.plus_s(1e-3));
        assert!(late.contains("within a sample"), "{late}");
        assert!(refused(|event| event.gps = Gps { ns: i64::MAX }).contains("32 bits"));
    }
}
