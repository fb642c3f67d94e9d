//! Plots of a correlation from its visibilities: antennas, spectra, amplitude and phase of some baselines.

use num_complex::Complex;
use serde_json::Value;
use sidereal::geometry::{self, Array};
use sidereal::io::uvh5::{Reader, Station};
use sidereal::{Error, Result};

use super::folder::Document;
use super::plot::{Axis, Drawing, Image, Plot, Point, Series, What};
use crate::plots::colour::{Scale, quantiles};
use crate::plots::correlation::{self, Antenna, Correlation, Fringes, Quicklook, Shape};
use crate::plots::{duration, plural};

/// Most baselines that may be chosen.
const MOST: usize = 8;

/// Bytes of visibilities that are read; of longer files, integrations at even distances.
const READ_BYTES: u64 = 512 << 20;

/// Counts of a cell without flags, of which the samples of a row are parts.
const COUNTS: f32 = 1_048_576.0;

/// Most antennas that are drawn as lines, names of antennas in the map, points of a line, and cells along an axis.
const LINES: usize = 16;
const NAMES: usize = 60;
const POINTS: usize = 400;
const CELLS: usize = 256;

/// Delays on either side, in units of the inverse bandwidth.
const DELAYS: f64 = 40.0;

/// Names of products of the same polarization, by their numbers.
const PARALLEL: [(i64, &str); 4] = [(-5, "XX"), (-6, "YY"), (-1, "RR"), (-2, "LL")];

/// Checks that each chosen baseline, the names of two antennas (`A-B`), is in the file of one of the documents.
///
/// # Errors
/// [`Error::Parameter`] for one that is in none of the files that can be read.
pub(super) fn check_chosen(documents: &[&Document], chosen: &[String]) -> Result<()> {
    let (mut lacking, mut example) = (chosen.to_vec(), None);
    for document in documents {
        let Ok(whole) = open(document).and_then(|reader| whole(document, &reader)) else {
            continue;
        };
        lacking.retain(|name| place(&whole, name).is_none());
        example = example.or_else(|| whole.baselines.last().map(|(i, j)| whole.name(*i, *j)));
    }
    let (Some(name), Some(example)) = (lacking.first(), example) else { return Ok(()) };
    let rule = format!("expected two antennas of a correlated baseline, as in {example}");
    Err(Error::parameter("--baselines", name, rule))
}

/// Draws the file of a document with those of the chosen baselines that it has.
///
/// # Errors
/// Those of reading it.
pub(super) fn drawing(document: &Document, chosen: &[String]) -> Result<Drawing> {
    let reader = open(document)?;
    let (summary, whole) = (reader.summary(), whole(document, &reader)?);
    let crosses = match chosen {
        [] => whole.shown(),
        names => names.iter().filter_map(|name| place(&whole, name)).collect(),
    };
    let is_auto = |place: &usize| whole.baselines[*place].0 == whole.baselines[*place].1;
    let autos = (0..whole.baselines.len()).filter(is_auto);
    let rows: Vec<usize> = autos.chain(crosses.iter().copied()).collect();
    let products: Vec<(usize, &str)> = PARALLEL
        .iter()
        .filter_map(|(number, name)| {
            Some((summary.polarizations.iter().position(|other| other == number)?, *name))
        })
        .collect();
    let Some((first, _)) = products.first() else {
        let why = format!("{:?} found, expected XX, YY, RR or LL", summary.polarizations);
        return Err(Error::format(&summary.path, "Header/polarization_array", 0, why));
    };
    let last = products.last().map_or(*first, |last| last.0);
    let row_bytes = (whole.frequencies_hz.len() * summary.polarizations.len() * 12) as u64;
    let fits = (READ_BYTES / (row_bytes * rows.len() as u64).max(1)).max(1);
    let step = summary.integrations.div_ceil(fits).max(1);
    let shape = Shape {
        baselines: rows.iter().map(|row| whole.baselines[*row]).collect(),
        products: products.iter().map(|product| product.1.to_owned()).collect(),
        integrations: usize::try_from(summary.integrations.div_ceil(step)).unwrap_or(usize::MAX),
        ..whole
    };
    let pairs = products.len() * products.len();
    let channels = shape.frequencies_hz.len();
    let shown: Vec<usize> = (rows.len() - crosses.len()..rows.len()).collect();
    let mut looked = Quicklook::of(shape, &shown);
    let mut sums = vec![Complex::<f64>::default(); rows.len() * channels * pairs];
    let mut counts = vec![0_u64; rows.len() * channels];
    let polarizations = summary.polarizations.len();
    for integration in
        (0..summary.integrations).step_by(usize::try_from(step).unwrap_or(usize::MAX))
    {
        for (place, row) in rows.iter().enumerate() {
            let read = reader.row(integration, *row)?;
            for channel in 0..channels {
                let count =
                    (read.samples[channel * polarizations + first] * COUNTS).max(0.0).round();
                let cell = place * channels + channel;
                counts[cell] = count as u64;
                for (pair, product) in [(0, *first), (pairs - 1, last)] {
                    let value = read.visibilities[channel * polarizations + product];
                    let value = if value.is_finite() { value } else { Complex::default() };
                    let value = Complex::new(f64::from(value.re), f64::from(value.im));
                    sums[cell * pairs + pair] = value * f64::from(count);
                }
            }
        }
        looked.add(&sums, &counts);
    }
    let about = looked.finish(String::new(), String::new(), summary.duration_s);
    let skipped = match step {
        1 => String::new(),
        step => format!(" Of {step} integrations, one is read."),
    };
    let note = format!(
        "{}, {} in {}.{skipped}",
        plural(about.antennas.len(), "antenna"),
        plural(summary.integrations as usize, "integration"),
        duration(summary.duration_s),
    );
    let replaced =
        [correlation::LAYOUT, correlation::POWERS, correlation::FRINGES, correlation::WATERFALLS];
    let replaced = replaced.map(str::to_owned).to_vec();
    Ok(Drawing { note, plots: plots(&about), replaced })
}

/// Returns which antennas have data, according to the document.
fn alive(document: &Document, antennas: &[Station]) -> Vec<bool> {
    let missing = document.object.get("missing").and_then(Value::as_array);
    let missing: Vec<&str> = missing.into_iter().flatten().filter_map(Value::as_str).collect();
    antennas.iter().map(|antenna| !missing.contains(&antenna.name.as_str())).collect()
}

/// Opens the file of a document, which has the name of the file and `.json`.
fn open(document: &Document) -> Result<Reader> {
    Reader::open(&document.path.with_extension(""))
}

/// Returns the antennas, the channels and all baselines.
fn whole(document: &Document, reader: &Reader) -> Result<Shape> {
    Ok(Shape {
        baselines: reader.baselines().iter().map(|(i, j)| (*j, *i)).collect(),
        alive: alive(document, reader.antennas()),
        ..shape(reader)?
    })
}

/// Returns the place of a baseline by the names of its antennas, in either order.
fn place(shape: &Shape, name: &str) -> Option<usize> {
    let is_named = |i, j| shape.name(i, j) == name || shape.name(j, i) == name;
    shape.baselines.iter().position(|(i, j)| is_named(*i, *j))
}

/// Returns the antennas and the channels, without baselines.
fn shape(reader: &Reader) -> Result<Shape> {
    let summary = reader.summary();
    let location = geometry::Location {
        longitude_deg: summary.location.longitude_deg,
        latitude_deg: summary.location.latitude_deg,
        height_m: summary.location.height_m,
    };
    let reference = location.itrf_m()?;
    let antenna = |station: &Station| geometry::Antenna {
        name: station.name.clone(),
        number: station.number,
        itrf_m: std::array::from_fn(|k| reference[k] + station.itrf_offset_m[k]),
        diameter_m: None,
    };
    let antennas = reader.antennas().iter().map(antenna).collect();
    let array = Array::from_itrf(&summary.telescope, antennas, Some(reference))?;
    let places = (0..array.antennas.len()).map(|index| array.enu_m(index));
    let places: Vec<[f64; 3]> = places.collect::<Result<_>>()?;
    let own = |(antenna, [east_m, north_m, _]): (&geometry::Antenna, &[f64; 3])| Antenna {
        name: antenna.name.clone(),
        east_m: *east_m,
        north_m: *north_m,
    };
    Ok(Shape {
        antennas: array.antennas.iter().zip(&places).map(own).collect(),
        up_m: places.iter().map(|place| place[2]).collect(),
        frequencies_hz: summary.frequencies_hz.clone(),
        ..Shape::default()
    })
}

fn plots(about: &Correlation) -> Vec<Plot> {
    let mut all = powers(about);
    all.push(map(about));
    for fringes in &about.baselines {
        all.extend(spectra(about, fringes));
    }
    for fringes in &about.baselines {
        all.extend(waterfalls(about, fringes));
    }
    all
}

fn frequency_axis(about: &Correlation) -> Axis {
    let axis = about.frequency_axis();
    Axis::new("MHz", axis.from, axis.to)
}

/// Draws the powers of the antennas: lines, or an image of many of them.
fn powers(about: &Correlation) -> Vec<Plot> {
    let decibels = |power: f32| if power > 0.0 { 10.0 * power.log10() } else { f32::NAN };
    let (antennas, channels) = (about.antennas.len(), about.channels());
    let draw = |(product, powers): (&String, &[f32])| {
        let powers: Vec<f32> = powers.iter().copied().map(decibels).collect();
        let title = format!("Autocorrelations, {product}");
        if antennas > LINES {
            let Scale { low, high } = quantiles(&powers, 0.005, 0.999);
            let along = about.channels_along();
            let columns: Vec<Vec<f32>> = binned(along.len(), |places| {
                let of = |antenna: usize| {
                    let own = along[places.clone()].iter().flatten();
                    mean(own.map(|channel| powers[antenna * channels + channel]))
                };
                // The first antenna is at the top.
                (0..antennas).rev().map(of).collect()
            });
            let image = Image::new(
                columns.iter().map(Vec::as_slice),
                [low.into(), high.into()],
                "dB of 1 count²",
            );
            let y = Axis::new("antenna, in order", antennas as f64 + 0.5, 0.5);
            return Plot { title, x: frequency_axis(about), y, what: What::Image(image) };
        }
        let of = |(antenna, powers): (usize, &[f32])| {
            Series::line(about.antennas[antenna].name.clone(), antenna, joined(about, powers, 1.0))
        };
        let series: Vec<Series> =
            powers.chunks_exact(channels.max(1)).enumerate().map(of).collect();
        let y = Axis::over("dB of 1 count²", values(&series));
        Plot { title, x: frequency_axis(about), y, what: What::Lines { series } }
    };
    let each = about.powers.chunks_exact((antennas * channels).max(1));
    about.products.iter().zip(each).map(draw).collect()
}

fn values(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|one| one.points.iter().filter_map(|point| point.1))
}

/// Returns a line through means of groups of channels, divided by a unit, with a break at each gap.
fn joined(about: &Correlation, values: &[f32], unit: f64) -> Vec<(f64, Option<f64>)> {
    let mut points = Vec::new();
    for line in about.lines(values, POINTS) {
        if let Some((x, _)) = line.first().filter(|_| !points.is_empty()) {
            points.push((*x, None));
        }
        points.extend(line.into_iter().map(|(x, y)| (x, Some(y / unit))));
    }
    points
}

/// Returns what `of` makes of each of at most [`CELLS`] groups of consecutive things.
fn binned<T>(count: usize, of: impl FnMut(std::ops::Range<usize>) -> T) -> Vec<T> {
    let cells = count.clamp(1, CELLS);
    let range = |cell: usize| cell * count / cells..(cell + 1) * count / cells;
    (0..cells).map(range).map(of).collect()
}

fn mean(values: impl Iterator<Item = f32>) -> f32 {
    let finite = values.filter(|x| x.is_finite());
    let (sum, count) = finite.fold((0_f32, 0_u32), |(sum, count), x| (sum + x, count + 1));
    if count > 0 { sum / count as f32 } else { f32::NAN }
}

fn map(about: &Correlation) -> Plot {
    let antenna = |own: &Antenna| Point {
        x: own.east_m,
        y: own.north_m,
        size: 4.0,
        name: if about.antennas.len() > NAMES { String::new() } else { own.name.clone() },
    };
    let title = match about.baselines.len() {
        0 => "Antennas".to_owned(),
        _ => "Antennas; lines are the baselines below".to_owned(),
    };
    Plot {
        title,
        x: Axis::over("east (m)", about.antennas.iter().map(|own| own.east_m)),
        y: Axis::over("north (m)", about.antennas.iter().map(|own| own.north_m)),
        what: What::Points {
            points: about.antennas.iter().map(antenna).collect(),
            lines: about.baselines.iter().map(|own| [own.antennas.0, own.antennas.1]).collect(),
            equal: true,
        },
    }
}

/// Draws amplitude and phase by frequency, and the fringe by delay, of a baseline.
fn spectra(about: &Correlation, fringes: &Fringes) -> Vec<Plot> {
    let (title, channels) = (about.title(fringes), about.channels().max(1));
    let norms: Vec<f32> = fringes.spectrum.iter().map(|v| v.norm()).collect();
    let most = |values: &mut dyn Iterator<Item = f32>| {
        values.filter(|x| x.is_finite()).fold(0.0, f32::max)
    };
    let (unit, words) = correlation::scale(most(&mut norms.iter().copied()).into());
    let product = |index: usize| about.products.get(index).cloned().unwrap_or_default();
    let of = |(index, norms): (usize, &[f32])| {
        Series::line(product(index), index, joined(about, norms, unit))
    };
    let series: Vec<Series> = norms.chunks_exact(channels).enumerate().map(of).collect();
    let high = 1.1 * values(&series).fold(0.0, f64::max);
    let amplitude = Plot {
        title: format!("{title}: amplitude"),
        x: frequency_axis(about),
        y: Axis::new(format!("amplitude{words}"), 0.0, high),
        what: What::Lines { series },
    };
    let group = about.channels().div_ceil(POINTS).max(1);
    let dots = |(index, spectrum): (usize, &[Complex<f32>])| {
        let both = about.frequencies_mhz.chunks(group).zip(spectrum.chunks(group));
        let points = both.map(|(mhz, values)| {
            let sum: Complex<f32> = values.iter().filter(|value| value.is_finite()).sum();
            let middle = mhz.iter().sum::<f64>() / mhz.len() as f64;
            (middle, (sum.norm() > 0.0).then(|| f64::from(sum.arg().to_degrees())))
        });
        Series { dots: true, ..Series::line(product(index), index, points.collect()) }
    };
    let phase = Plot {
        title: format!("{title}: phase"),
        x: frequency_axis(about),
        y: Axis::new("phase (°)", -180.0, 180.0),
        what: What::Lines {
            series: fringes.spectrum.chunks_exact(channels).enumerate().map(dots).collect(),
        },
    };
    [Some(amplitude), Some(phase), delays(about, fringes, &title)].into_iter().flatten().collect()
}

/// Draws the fringe by delay about the strongest one; `None` without regular channels.
fn delays(about: &Correlation, fringes: &Fringes, title: &str) -> Option<Plot> {
    let count = fringes.lags.len() / about.products.len().max(1);
    let first = fringes.lags.get(..count).filter(|lags| !lags.is_empty())?;
    let (start, step) = fringes.delays_ns;
    let (peak, _) = first.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    let peak = start + peak as f64 * step;
    let axis = about.frequency_axis();
    // One delay cell is the inverse of the bandwidth.
    let half = (DELAYS * 1e3 / (axis.to - axis.from).abs()).min(start.abs());
    let centre = if peak.abs() < 0.7 * half { 0.0 } else { peak };
    let (unit, words) = correlation::scale(fringes.lags.iter().copied().fold(0.0, f32::max).into());
    let of = |(index, lags): (usize, &[f32])| {
        let shown: Vec<(f64, f64)> = lags
            .iter()
            .enumerate()
            .map(|(place, lag)| (start + place as f64 * step, f64::from(*lag) / unit))
            .filter(|(ns, _)| (ns - centre).abs() <= half)
            .collect();
        let group = shown.len().div_ceil(POINTS).max(1);
        let highest = |group: &[(f64, f64)]| {
            group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(x, y)| (x, Some(y)))
        };
        let name = about.products.get(index).cloned().unwrap_or_default();
        Series::line(name, index, shown.chunks(group).filter_map(highest).collect())
    };
    let series: Vec<Series> = fringes.lags.chunks_exact(count).enumerate().map(of).collect();
    let high = 1.1 * values(&series).fold(0.0, f64::max);
    Some(Plot {
        title: format!("{title}: fringe, strongest at {peak:.2} ns"),
        x: Axis::new("delay (ns)", centre - half, centre + half),
        y: Axis::new(format!("fringe{words}"), 0.0, high),
        what: What::Lines { series },
    })
}

/// Draws amplitude and phase of a baseline's first product by time and frequency.
fn waterfalls(about: &Correlation, fringes: &Fringes) -> [Plot; 2] {
    let title = about.title(fringes);
    let times = fringes.waterfall.len() / about.columns.max(1);
    // Columns group channels in order; cells are at even distances of the frequency axis.
    let along = about.channels_along();
    let channels = about.channels().max(1);
    let cell = |time: usize, places: std::ops::Range<usize>| {
        let values = along[places].iter().flatten().map(|channel| {
            fringes.waterfall[time * about.columns + channel * about.columns / channels]
        });
        let known = values.filter(|value| value.is_finite());
        let (sum, count) =
            known.fold((Complex::<f32>::default(), 0_u32), |(sum, count), v| (sum + v, count + 1));
        if count > 0 { sum / count as f32 } else { Complex::new(f32::NAN, f32::NAN) }
    };
    let columns: Vec<Vec<Complex<f32>>> =
        (0..times).map(|time| binned(along.len(), |places| cell(time, places))).collect();
    let made = |of: fn(&Complex<f32>) -> f32| -> Vec<Vec<f32>> {
        columns.iter().map(|column| column.iter().map(of).collect()).collect()
    };
    let (mut norms, phases) = (made(|v| v.norm()), made(|v| v.arg().to_degrees()));
    let high = f64::from(quantiles(&norms.concat(), 0.0, 0.995).high);
    let (unit, words) = correlation::scale(high);
    norms.iter_mut().flatten().for_each(|norm| *norm /= unit as f32);
    let norms = norms.iter().map(Vec::as_slice);
    let amplitude = Image::new(norms, [0.0, high / unit], format!("amplitude{words}"));
    let phase = Image::phases(phases.iter().map(Vec::as_slice));
    let product = about.products.first().map_or("", String::as_str);
    let plot = |what: &str, image: Image| Plot {
        title: format!("{title}: {what} of {product} by time"),
        x: Axis::new("s", 0.0, about.duration_s),
        y: frequency_axis(about),
        what: What::Image(image),
    };
    [plot("amplitude", amplitude), plot("phase", phase)]
}

/// Checks the number of chosen baselines.
///
/// # Errors
/// [`Error::Parameter`].
pub(super) fn check(chosen: &[String]) -> Result<()> {
    if chosen.len() > MOST {
        let rule = format!("at most {MOST} are drawn");
        return Err(Error::parameter("--baselines", chosen.len(), rule));
    }
    Ok(())
}
