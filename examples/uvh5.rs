//! Writes visibilities from a text description as UVH5.
//!
//!     cargo run --release --example uvh5 -- DESCRIPTION SUMS OUTPUT
//!
//! DESCRIPTION has lines of words, each a key and its values:
//!
//! | key           | values                                                                          |
//! |---------------|---------------------------------------------------------------------------------|
//! | `telescope`   | name, instrument                                                                |
//! | `location`    | east longitude and latitude in degrees, height in metres                        |
//! | `antenna`     | name, number, offset from the location in ITRF x, y, z (m); diameter (m) if known |
//! | `mount`       | `alt-az`, `equatorial`, `x-y`, `fixed`, `phased`, `other`                       |
//! | `frequencies` | first and step in Hz, channels                                                  |
//! | `feeds`       | `linear`, `circular`, `x`, `y`, `r`, `l`; angle of X in degrees                 |
//! | `source`      | name, right ascension and declination in degrees; a name alone for a drift scan |
//! | `baseline`    | indices of two antennas, the higher first; all baselines if no line has one     |
//! | `timing`      | integration in seconds, UT1 - UTC in seconds, full count                        |
//! | `reference`   | date, sidereal time at Greenwich at its beginning in degrees                    |
//! | `keyword`     | name, `text`, `integer` or `float`, value                                       |
//! | `announce`    | maximum number of integrations (default: the number of `integration` lines)     |
//! | `history`     | any words                                                                       |
//! | `integration` | its middle (MJD day, seconds), sidereal time, apparent right ascension and declination, frame angle (degrees) |
//!
//! SUMS has, for each integration, u, v, w (antenna, axis; f64), sums (baseline, channel, pair; complex
//! f64) and counts (baseline, channel; u64), little endian.

use std::error::Error;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use num_complex::Complex;
use sidereal::io::uvh5::{
    Antenna, Feed, Feeds, Header, Integration, Keyword, Location, Mount, PhaseCentre, Pointing,
    ReferenceDay, Writer,
};
use sidereal::units::Epoch;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.as_slice() {
        [description, sums, output] => write(description, sums, output),
        _ => {
            eprintln!("usage: uvh5 DESCRIPTION SUMS OUTPUT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uvh5: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(description: &str, sums: &str, output: &str) -> Outcome {
    let (header, full_count, times) = parse(&fs::read_to_string(description)?)?;
    let mut data = Cursor::new(fs::read(sums)?);
    let spectra = header.baselines.len() * header.channels();
    let (antennas, pairs) = (header.antennas.len(), header.pairs());
    let mut writer = Writer::create(Path::new(output), header)?;
    for [day, seconds, lst_deg, ra_deg, dec_deg, frame_angle_deg] in times {
        let mut number = || {
            let mut bytes = [0; 8];
            data.read_exact(&mut bytes).map(|()| bytes)
        };
        let mut float = || number().map(f64::from_le_bytes);
        let uvw: Vec<f64> = (0..antennas * 3).map(|_| float()).collect::<Result<_, _>>()?;
        let sums: Vec<Complex<f64>> = (0..spectra * pairs)
            .map(|_| Ok::<_, std::io::Error>(Complex::new(float()?, float()?)))
            .collect::<Result<_, _>>()?;
        let counts: Vec<u64> =
            (0..spectra).map(|_| number().map(u64::from_le_bytes)).collect::<Result<_, _>>()?;
        writer.write(Integration {
            centre: Epoch::new(day as i64, seconds),
            day_s: 86_400.0,
            lst_deg,
            pointing: Pointing { ra_deg, dec_deg, frame_angle_deg },
            uvw_m: uvw.as_chunks().0,
            sums: &sums,
            counts: &counts,
            full_count,
        })?;
    }
    Ok(writer.finish()?)
}

/// The values of one line.
struct Values<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Values<'a> {
    fn word(&mut self) -> Outcome<&'a str> {
        self.0.next().ok_or_else(|| "a value is missing".into())
    }

    fn number<T: FromStr<Err: Error + 'static>>(&mut self) -> Outcome<T> {
        Ok(self.word()?.parse()?)
    }

    fn rest(self) -> String {
        self.0.collect::<Vec<_>>().join(" ")
    }
}

/// The header, the full count and the integrations' times.
fn parse(text: &str) -> Outcome<(Header, u64, Vec<[f64; 6]>)> {
    let mut header = Header {
        telescope: String::new(),
        instrument: String::new(),
        location: Location { longitude_deg: 0.0, latitude_deg: 0.0, height_m: 0.0 },
        antennas: Vec::new(),
        mount: Mount::Other,
        frequencies_hz: Vec::new(),
        channel_width_hz: 0.0,
        feeds: Feeds::Linear,
        feed_angle_deg: 90.0,
        phase_centre: PhaseCentre::Drift { name: String::new() },
        baselines: Vec::new(),
        integration_s: 0.0,
        integrations: 0,
        dut1_s: 0.0,
        reference_day: None,
        history: String::new(),
        keywords: Vec::new(),
    };
    let (mut full_count, mut times) = (1, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let mut values = Values(line.split_whitespace());
        let Ok(key) = values.word() else { continue };
        let read = match key {
            "integration" => (0..6)
                .map(|_| values.number())
                .collect::<Outcome<Vec<f64>>>()
                .map(|numbers| times.extend(numbers.first_chunk::<6>())),
            "timing" => read_timing(&mut header, &mut full_count, values),
            _ => read_line(&mut header, key, values),
        };
        read.map_err(|error| format!("line {}, {key}: {error}", number + 1))?;
    }
    header.integrations = header.integrations.max(times.len());
    if header.baselines.is_empty() {
        let antennas = header.antennas.len();
        header.baselines = (0..antennas).flat_map(|i| (0..=i).map(move |j| (i, j))).collect();
    }
    Ok((header, full_count, times))
}

fn read_timing(header: &mut Header, full_count: &mut u64, mut values: Values<'_>) -> Outcome {
    (header.integration_s, header.dut1_s) = (values.number()?, values.number()?);
    *full_count = values.number()?;
    Ok(())
}

fn read_line(header: &mut Header, key: &str, mut values: Values<'_>) -> Outcome {
    match key {
        "telescope" => {
            (header.telescope, header.instrument) = (values.number()?, values.number()?);
        }
        "location" => {
            header.location = Location {
                longitude_deg: values.number()?,
                latitude_deg: values.number()?,
                height_m: values.number()?,
            };
        }
        "antenna" => header.antennas.push(Antenna {
            name: values.number()?,
            number: values.number()?,
            itrf_offset_m: [values.number()?, values.number()?, values.number()?],
            diameter_m: values.number().ok(),
        }),
        "mount" => {
            use Mount::{AltAz, Equatorial, Fixed, Other, Phased, XY};
            let word = values.word()?;
            let mut all = [AltAz, Equatorial, XY, Fixed, Phased, Other].into_iter();
            header.mount = all.find(|mount| mount.name() == word).ok_or("no such mount")?;
        }
        "frequencies" => {
            let (first, step, channels): (f64, f64, usize) =
                (values.number()?, values.number()?, values.number()?);
            header.frequencies_hz = (0..channels).map(|c| first + c as f64 * step).collect();
            header.channel_width_hz = step.abs();
        }
        "feeds" => {
            header.feeds = match values.word()? {
                "linear" => Feeds::Linear,
                "circular" => Feeds::Circular,
                "x" => Feeds::One(Feed::X),
                "y" => Feeds::One(Feed::Y),
                "r" => Feeds::One(Feed::R),
                "l" => Feeds::One(Feed::L),
                _ => return Err("no such feeds".into()),
            };
            header.feed_angle_deg = values.number()?;
        }
        "source" => {
            let name: String = values.number()?;
            header.phase_centre = match values.number() {
                Ok(ra_deg) => PhaseCentre::Sidereal { name, ra_deg, dec_deg: values.number()? },
                Err(_) => PhaseCentre::Drift { name },
            };
        }
        "baseline" => header.baselines.push((values.number()?, values.number()?)),
        "reference" => {
            header.reference_day =
                Some(ReferenceDay { date: values.number()?, gst0_deg: values.number()? });
        }
        "keyword" => {
            let name = values.number()?;
            let value = match values.word()? {
                "integer" => Keyword::Integer(values.number()?),
                "float" => Keyword::Float(values.number()?),
                _ => Keyword::Text(values.rest()),
            };
            header.keywords.push((name, value));
        }
        "history" => header.history = values.rest(),
        "announce" => header.integrations = values.number()?,
        _ => return Err("no such key".into()),
    }
    Ok(())
}
