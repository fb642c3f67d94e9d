//! Pipelines: each joins a source, stages and a sink.
//!
//! Invariant: the only modules that use both files and stages.

pub mod beams;
pub mod burst;
pub mod cbc;
mod cleaning;
pub mod correlator;
pub mod cutout;
pub mod detections;
pub mod dump;
mod exchange;
mod flagged;
mod gulps;
mod options;
mod overlap;
mod range;
pub mod recent;
mod run;
pub mod series;
mod summed;
pub mod voltage;

pub use exchange::{EarlyEnd, Exchange, ExchangeRates, MAX_RANKS, Ranks, part};
pub use overlap::overlapped;
pub use run::{Ending, Status};
pub use summed::Summed;

use crate::backend::cuda::{Extent, Variant, kernels};
use crate::error::{Error, Result};
use crate::geometry::{Antenna, Array, Location};
use crate::io::antennas::{AntennaRow, AntennaTable, Place, PositionFrame};

/// Returns every kernel file with the name of its module; `./check` compiles them on machines without a GPU.
pub fn kernel_table(extent: Extent) -> Vec<(&'static str, Variant)> {
    let modules = [
        ("align", crate::delay::kernels(extent)),
        ("backend", kernels(extent)),
        ("channelize", crate::channelize::kernels(extent)),
        ("clean", crate::clean::kernels(extent)),
        ("coherent", crate::coherent::kernels(extent)),
        ("correlate", crate::correlate::kernels(extent)),
        ("dedisperse", crate::dedisperse::kernels(extent)),
        ("pulse", crate::single_pulse::kernels(extent)),
        ("spiir", crate::spiir::kernels(extent)),
        ("triggers", crate::spiir::trigger::kernels(extent)),
    ];
    let named = modules
        .into_iter()
        .flat_map(|(module, variants)| variants.into_iter().map(move |variant| (module, variant)));
    named.collect()
}

/// Converts a table to an array in the table's order; `reference` overrides the table's reference location.
///
/// Without either location, the reference point of an ITRF table is the mean of its antennas. The array takes its
/// name from the table's telescope, else from the file name.
///
/// # Errors
/// [`Error::Format`] for east-north-up positions without a location, and as [`Array::from_itrf`] and
/// [`Location::itrf_m`].
pub fn array(table: &AntennaTable, reference: Option<Location>) -> Result<Array> {
    let location = |place: Place| {
        let Place { longitude_deg, latitude_deg, height_m } = place;
        Location { longitude_deg, latitude_deg, height_m }
    };
    let place = reference.or(table.place.map(location));
    let antenna = |row: &AntennaRow| {
        let itrf_m = match (table.frame, place) {
            (PositionFrame::Itrf, _) => row.position_m,
            (PositionFrame::EastNorthUp, Some(place)) => place.itrf_of_enu_m(row.position_m)?,
            (PositionFrame::EastNorthUp, None) => return Err(nowhere(table)),
        };
        let AntennaRow { name, number, diameter_m, .. } = row.clone();
        Ok(Antenna { name, number, itrf_m, diameter_m })
    };
    let antennas = table.rows.iter().map(antenna).collect::<Result<Vec<_>>>()?;
    let stem = || table.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = if table.telescope.is_empty() { stem() } else { table.telescope.clone() };
    Array::from_itrf(&name, antennas, place.map(|place| place.itrf_m()).transpose()?)
}

fn nowhere(table: &AntennaTable) -> Error {
    let why = "positions east, north and up need the place that they are measured from: lines \
               \"# longitude_deg=\", \"# latitude_deg=\" and \"# height_m=\"";
    Error::format(&table.path, "place", 0, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::antennas::parse;

    #[test]
    fn a_table_becomes_an_array() {
        let enu = "name,east,north,up,diameter\na,0,0,0,\nb,100,0,0,25\n";
        let bare = parse(enu, "x/site.csv".as_ref()).unwrap();
        assert!(array(&bare, None).unwrap_err().to_string().contains("# longitude_deg="));
        let place = "# longitude_deg=90\n# latitude_deg=0\n# height_m=100\n";
        let table = parse(&format!("{place}{enu}"), "x/site.csv".as_ref()).unwrap();
        let found = array(&table, None).unwrap();
        assert_eq!((found.name.as_str(), found.antennas[1].diameter_m), ("site", Some(25.0)));
        let expected = [-100.0, 6_378_237.0, 0.0];
        let near = |a: &[f64; 3], b: &[f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near(&found.antennas[1].itrf_m, &expected), "{found:?}");
        assert!(near(&found.reference_itrf_m, &found.antennas[0].itrf_m));

        let given = Location { longitude_deg: 0.0, latitude_deg: 0.0, height_m: 0.0 };
        let moved = array(&table, Some(given)).unwrap();
        assert!(near(&moved.antennas[1].itrf_m, &[6_378_137.0, 100.0, 0.0]), "{moved:?}");
    }
}
