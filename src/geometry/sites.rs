//! Positions of radio telescopes.

/// Telescope names found in recordings, without spaces and hyphens, and the position in the ITRF, in m.
///
/// # Source
/// The observatories of PINT and Tempo2, as of 2026. Positions are accurate to tens of metres.
const SITES: &[(&[&str], [f64; 3])] = &[
    (&["arecibo", "ao"], [2_390_487.08, -5_564_731.357, 1_994_720.633]),
    (&["askap"], [-2_556_088.476, 5_097_405.971, -2_848_428.398]),
    (&["ata", "hcro"], [-2_524_263.18, -4_123_529.78, 4_147_966.36]),
    (&["atca", "narrabri"], [-4_752_329.7, 2_790_505.934, -3_200_483.747]),
    (&["chime"], [-2_059_166.313, -3_621_302.972, 4_814_304.113]),
    (&["effelsberg", "eff"], [4_033_947.146, 486_990.898, 4_900_431.067]),
    (&["fast"], [-1_668_557.0, 5_506_838.0, 2_744_934.0]),
    (&["gbt", "greenbank"], [882_589.289, -4_924_872.368, 3_943_729.418]),
    (&["gmrt", "ugmrt"], [1_656_342.3, 5_797_947.77, 2_073_243.16]),
    (&["hobart"], [-3_950_077.96, 2_522_377.31, -4_311_667.52]),
    (&["jodrell", "lovell", "jb"], [3_822_625.769, -154_105.255, 5_086_486.256]),
    (&["kat7"], [5_109_943.105, 2_003_650.736, -3_239_908.32]),
    (&["lofar"], [3_826_577.462, 461_022.624, 5_064_892.526]),
    (&["lwa", "lwa1"], [-1_602_196.6, -5_042_313.47, 3_553_971.51]),
    (&["lwasv"], [-1_531_155.544, -5_045_324.305, 3_579_583.895]),
    (&["meerkat", "mk"], [5_109_360.133, 2_006_852.586, -3_238_948.127]),
    (&["molonglo", "most", "utmost"], [-4_483_311.64, 2_648_815.92, -3_671_909.31]),
    (&["mwa"], [-2_559_454.08, 5_095_372.14, -2_849_057.18]),
    (&["nancay", "ncy"], [4_324_165.81, 165_927.11, 4_670_132.83]),
    (&["northerncross"], [4_461_242.882, 919_559.835, 4_449_633.22]),
    (&["ooty", "ort"], [1_442_712.95, 6_087_044.73, 1_251_052.35]),
    (&["parkes", "murriyang", "pks"], [-4_554_231.5, 2_816_759.1, -3_454_036.3]),
    (&["srt"], [4_865_182.766, 791_922.689, 4_035_137.174]),
    (&["vla", "jvla"], [-1_601_192.0, -5_041_981.4, 3_554_871.4]),
    (&["wsrt", "westerbork"], [3_828_445.659, 445_223.6, 5_064_921.568]),
];

/// Returns a telescope's position in the ITRF, in m, by its name in a recording; ignores case, spaces and hyphens.
pub fn site_itrf_m(telescope: &str) -> Option<[f64; 3]> {
    let letters = telescope.chars().filter(|letter| letter.is_alphanumeric());
    let name: String = letters.flat_map(char::to_lowercase).collect();
    SITES.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Location;

    #[test]
    fn sites_stand_on_the_earth() {
        for (names, place) in SITES {
            let location = Location::from_itrf(*place).unwrap();
            assert!((-100.0..3000.0).contains(&location.height_m), "{names:?} {location:?}");
        }
        let parkes = Location::from_itrf(site_itrf_m("PARKES").unwrap()).unwrap();
        assert!((parkes.longitude_deg - 148.2635).abs() < 0.001, "{parkes:?}");
        assert!((parkes.latitude_deg + 32.9984).abs() < 0.001, "{parkes:?}");
        assert_eq!(site_itrf_m("KAT-7"), site_itrf_m("kat 7"));
        assert_eq!(site_itrf_m("Fake"), None);
        assert_eq!(site_itrf_m(""), None);
    }
}
