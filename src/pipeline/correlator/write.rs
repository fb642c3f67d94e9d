//! Output of integrations to a UVH5 file.

use std::path::Path;
use std::time::Instant;

use super::options::{ArrayHeader, CorrelateOptions, Gains, Integration, PhaseCentre};
use super::{ArrayCorrelator, Summary};
use crate::correlate::Precision;
use crate::error::{Error, Result};
use crate::geometry::{Direction, Location, Sky, day_length_s};
use crate::io::uvh5;
use crate::io::uvh5::{Feed, Feeds, Keyword, Mount, Pointing, Writer};
use crate::pipeline::burst::Status;
use crate::pipeline::overlap::overlapped;
use crate::pipeline::run::Ending;
use crate::trace::{self, Work};

/// Shortest integration in seconds whose time a file resolves: Julian dates are 40 us apart, and the last integration
/// may be shorter.
const MIN_INTEGRATION_S: f64 = 2e-4;

/// Integrations in memory: one is written while the next is summed.
const INTEGRATIONS: usize = 2;

/// File metadata that the correlation does not determine.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    /// Name of the telescope; if empty, the array's name.
    pub telescope: String,
    /// Name of the instrument.
    pub instrument: String,
    /// Antenna mount.
    pub mount: Mount,
    /// Angle of the receptor X from north through east in degrees.
    pub feed_angle_deg: f64,
    /// Origin of the voltages and parameters of the correlation; one or more lines.
    pub history: String,
}

impl Default for Labels {
    /// Returns labels with X pointing east and an unknown mount.
    fn default() -> Self {
        Self {
            telescope: String::new(),
            instrument: "sidereal".into(),
            mount: Mount::Other,
            feed_angle_deg: 90.0,
            history: String::new(),
        }
    }
}

/// Report of a written file.
#[derive(Clone, Debug)]
pub struct WriteReport {
    /// Summary of the correlation.
    pub summary: Summary,
    /// Seconds spent writing.
    pub write_s: f64,
    /// Total seconds.
    pub elapsed_s: f64,
    /// File size in bytes.
    pub bytes: u64,
    /// End state of the run. The file holds all earlier integrations; a run stopped before its first integration
    /// leaves no file.
    pub ending: Ending,
}

/// Writes all integrations of the current part ([`ArrayCorrelator::begin_part`]) to a UVH5 file. There is no file without
/// integrations.
///
/// For a tracked source, phases are zero in its direction, and u, v, w are in its frame; otherwise the data are a
/// drift scan's, and u, v, w are east, north, up. `observe` receives each integration and the progress, and stops the
/// run by returning false. A stop, a read error, a device failure or a full disk truncates the file: it holds the
/// earlier integrations with the same bits as a complete run. If the source also ends within an integration, its
/// spectra so far are written if they can be; an integration completed after the stop is discarded.
///
/// # Errors
/// [`Error::Parameter`] when the recordings do not state their start, or for values that UVH5 does not allow; any
/// error before the first integration, except a stop.
pub fn write_uvh5(
    correlator: &mut ArrayCorrelator,
    path: &Path,
    labels: &Labels,
    observe: &mut dyn FnMut(&Integration, &Status) -> bool,
) -> Result<WriteReport> {
    let begin = Instant::now();
    let header = correlator.part_header()?;
    let first = correlator.part.spectrum;
    let sky = known(correlator, &header)?.clone();
    let file = file_header(&header, labels)?;
    if file.integration_s < MIN_INTEGRATION_S {
        let rule = format!(
            "times of visibilities are Julian dates, whose numbers are 40 us apart: at least {MIN_INTEGRATION_S} s"
        );
        return Err(Error::parameter("integration_s", file.integration_s, rule));
    }
    let mut writer = Writer::create(path, file)?;
    let place = Place {
        location: header.array.location()?,
        sky,
        direction: correlator.direction(),
        full_count: header.full_count(),
        integration_spectra: header.integration_spectra,
    };
    let (mut write_s, mut end) = (0.0, first);
    let mut integrations: [_; INTEGRATIONS] = std::array::from_fn(|_| Integration::new());
    let mut goes_on = true;
    let sum =
        |integration: &mut Integration| correlator.next_integration(integration).map(usize::from);
    let ending = overlapped(&mut integrations, sum, |integration, _| {
        // After a stop, only an incomplete integration is still written.
        if !goes_on && place.is_whole(integration) {
            return Ok(false);
        }
        let start = Instant::now();
        let span = trace::span(Work::Write, "integration");
        let written = place.put(&mut writer, integration);
        drop(span);
        write_s += start.elapsed().as_secs_f64();
        written?;
        end = integration.first + integration.spectra;
        let spectra = end - first;
        let status = Status {
            times: spectra,
            total: Some(header.spectra),
            data_s: spectra as f64 * header.spectrum_s,
            elapsed_s: begin.elapsed().as_secs_f64(),
        };
        goes_on = goes_on && observe(integration, &status);
        Ok(goes_on)
    });
    let ending = ending.unwrap_or_else(Ending::after).with_cut(correlator.cut().as_deref());
    let found = writer.integrations() > 0;
    let ending = ending.or_error(found)?;
    let (integrations, bytes) = (writer.integrations() as u64, writer.bytes());
    if found {
        let start = Instant::now();
        writer.finish()?;
        write_s += start.elapsed().as_secs_f64();
    }
    // The thread may have summed one more than was written.
    let summary = Summary { integrations, ..correlator.summary_of(end) };
    let elapsed_s = begin.elapsed().as_secs_f64();
    Ok(WriteReport { summary, write_s, elapsed_s, bytes, ending })
}

fn known<'a>(correlator: &'a ArrayCorrelator, header: &ArrayHeader) -> Result<&'a Sky> {
    correlator.sky().ok_or_else(|| {
        let rule = "the recordings don't say it, and a file of visibilities has their time";
        Error::parameter("start (MJD)", header.start.day, rule)
    })
}

/// Geometry of the integrations' phases, and the number of spectra in a complete one.
struct Place {
    location: Location,
    sky: Sky,
    direction: Option<Direction>,
    full_count: u64,
    integration_spectra: u64,
}

impl Place {
    /// Returns whether an integration has all its spectra.
    fn is_whole(&self, integration: &Integration) -> bool {
        integration.spectra >= self.integration_spectra
    }

    /// Appends an integration.
    fn put(&self, writer: &mut Writer, integration: &Integration) -> Result<()> {
        let (centre, sky) = (integration.centre, &self.sky);
        let lst_deg = sky.local_sidereal_time_rad(centre)?.to_degrees();
        let (pointing, uvw_m) = match self.direction {
            Some(direction) => {
                let apparent = sky.apparent(direction, centre)?;
                let pointing = Pointing {
                    ra_deg: apparent.ra_deg,
                    dec_deg: apparent.dec_deg,
                    frame_angle_deg: apparent.position_angle_deg,
                };
                (pointing, sky.uvw_m(direction, centre)?)
            }
            None => {
                let dec_deg = self.location.latitude_deg;
                (Pointing { ra_deg: lst_deg, dec_deg, frame_angle_deg: 0.0 }, sky.enu_m())
            }
        };
        writer.write(uvh5::Integration {
            centre,
            day_s: day_length_s(centre.day)?,
            lst_deg,
            pointing,
            uvw_m: &uvw_m,
            sums: &integration.sums,
            counts: &integration.counts,
            full_count: self.full_count,
        })
    }
}

fn file_header(header: &ArrayHeader, labels: &Labels) -> Result<uvh5::Header> {
    let array = &header.array;
    let place = array.location()?;
    let antenna = |own: &crate::geometry::Antenna| uvh5::Antenna {
        name: own.name.clone(),
        number: own.number,
        itrf_offset_m: std::array::from_fn(|k| own.itrf_m[k] - array.reference_itrf_m[k]),
        diameter_m: own.diameter_m,
    };
    let names = [&labels.telescope, &array.name];
    let telescope = names.into_iter().find(|name| !name.is_empty());
    let integrations = usize::try_from(header.integrations).unwrap_or(usize::MAX);
    Ok(uvh5::Header {
        telescope: telescope.map_or("unknown", |name| name).to_owned(),
        instrument: labels.instrument.clone(),
        location: uvh5::Location {
            longitude_deg: place.longitude_deg,
            latitude_deg: place.latitude_deg,
            height_m: place.height_m,
        },
        antennas: array.antennas.iter().map(antenna).collect(),
        mount: labels.mount,
        frequencies_hz: header.frequencies_hz.clone(),
        channel_width_hz: header.channel_width_hz,
        feeds: match (header.polarizations, header.circular) {
            (2, false) => Feeds::Linear,
            (2, true) => Feeds::Circular,
            (_, false) => Feeds::One(Feed::X),
            (_, true) => Feeds::One(Feed::R),
        },
        feed_angle_deg: labels.feed_angle_deg,
        phase_centre: match &header.phase_centre {
            PhaseCentre::Sidereal { ra_deg, dec_deg, name } => uvh5::PhaseCentre::Sidereal {
                name: if name.is_empty() { "source".into() } else { name.clone() },
                ra_deg: *ra_deg,
                dec_deg: *dec_deg,
            },
            PhaseCentre::Drift => uvh5::PhaseCentre::Drift { name: "drift".into() },
        },
        baselines: header.baselines.clone(),
        integration_s: header.integration_s(),
        integrations,
        dut1_s: header.dut1_s,
        reference_day: None,
        history: labels.history.clone(),
        keywords: keywords(header),
    })
}

/// Returns the parameters of the filter bank as file keywords.
fn keywords(header: &ArrayHeader) -> Vec<(String, Keyword)> {
    let bank = &header.bank;
    let whole = |number: usize| Keyword::Integer(number as i64);
    let mut all = vec![
        ("nbits", whole(bank.nbits)),
        ("avgchans", whole(header.average_channels)),
        ("spectra", Keyword::Integer(header.integration_spectra as i64)),
        ("asrec", whole(usize::from(bank.as_recorded))),
        ("samprate", Keyword::Float(bank.sample_rate_hz)),
    ];
    if bank.channelized_here {
        all.push(("channels", whole(bank.channels)));
        all.push(("taps", whole(bank.taps)));
        all.push(("window", Keyword::Text(bank.window.clone())));
    }
    all.into_iter().map(|(name, keyword)| (name.to_owned(), keyword)).collect()
}

/// Returns one line for the file's history: the requested parameters.
pub fn history(header: &ArrayHeader, options: &CorrelateOptions) -> String {
    let bank = &header.bank;
    let spectra = match bank.channelized_here {
        true => format!("{} channels, {} taps, {}", bank.channels, bank.taps, bank.window),
        false => "channels as recorded".to_owned(),
    };
    let gains = match &options.gains {
        Gains::Auto if bank.as_recorded || bank.nbits == 32 => "no gains".to_owned(),
        Gains::Auto => "automatic gains, divided out of the visibilities".to_owned(),
        Gains::Fixed(gain) => format!("gain {gain}, divided out of the visibilities"),
        Gains::Table(gains) => format!("{} gains, which stay", gains.len()),
    };
    let centre = match &header.phase_centre {
        PhaseCentre::Sidereal { ra_deg, dec_deg, .. } => {
            format!("tracking RA {ra_deg} Dec {dec_deg} deg (ICRS)")
        }
        PhaseCentre::Drift => "drift".to_owned(),
    };
    let rounded = match bank.precision {
        Precision::F32 => String::new(),
        precision => format!(" multiplied as {precision}"),
    };
    format!(
        "Correlated by sidereal {}: {spectra}, {} bits{rounded}, {gains}, {centre}, UT1-UTC {:.7} s.",
        env!("CARGO_PKG_VERSION"),
        bank.nbits,
        header.dut1_s,
    )
}
