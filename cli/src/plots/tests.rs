use super::*;
use sidereal::pipeline::cutout::{Cutout, Options, cutout};

struct Raw {
    header: sidereal::io::FilterbankHeader,
    bytes: Vec<u8>,
    place: usize,
}
impl sidereal::io::FilterbankSource for Raw {
    fn header(&self) -> &sidereal::io::FilterbankHeader {
        &self.header
    }
    fn read(&mut self, rows: &mut [u8]) -> sidereal::Result<usize> {
        let n = rows.len().min(self.bytes.len() - self.place);
        rows[..n].copy_from_slice(&self.bytes[self.place..][..n]);
        self.place += n;
        Ok(n / self.header.row_bytes())
    }
    fn skip(&mut self, times: u64) -> sidereal::Result<u64> {
        self.place += times as usize * self.header.row_bytes();
        Ok(times)
    }
}

#[test]
fn look_at_frb() {
    let bytes = std::fs::read("/work/shared/data/frb/FRB180417_askap_28.fil").unwrap();
    let end = bytes.windows(10).position(|w| w == b"HEADER_END").unwrap() + 10;
    let header = sidereal::io::FilterbankHeader {
        path: "x".into(),
        format: "x",
        source_name: String::new(),
        telescope: String::new(),
        ra_deg: None,
        dec_deg: None,
        tstart_mjd: 0.0,
        tsamp_s: 0.00126646875,
        band: sidereal::units::Band::uniform(1464.0, -1.0, 336).unwrap(),
        encoding: sidereal::sample::Encoding::U8,
        recorded_bits: 8,
        recorded_polarizations: 1,
        times: None,
    };
    let mut source = Raw { header, bytes: bytes[end..].to_vec(), place: 0 };
    let sweep = sidereal::units::dispersion_delay_s(1.0, 1129e6, 1464e6, 4148.808);
    let options = Options::plot(475.2, 2.0289, 0.00253, sweep);
    let cut = cutout(&mut source, &options).unwrap();
    candidate(
        std::path::Path::new("/tmp/frb.png"),
        &cut,
        &Candidate {
            file: "FRB180417_askap_28.fil",
            target: "FRB180417 · ASKAP · 1296.5 MHz, 336 channels",
            rank: "candidate 1 of 3".into(),
            dm: 475.2,
            time_s: 2.0289,
            snr: 14.13,
            width_s: 0.00253,
            mjd: Some(58225.6374234),
        },
    )
    .unwrap();
    let points = (0..60)
        .map(|i| {
            let u = (i * 7919 % 101) as f64 / 101.0;
            Point {
                time_s: (i * 37 % 60) as f64 / 60.0 * 6.4,
                dm: u * 2000.0,
                snr: 6.0 + 20.0 * u.powi(6) + 0.1 * i as f64 % 3.0,
            }
        })
        .collect();
    overview(
        std::path::Path::new("/tmp/over.png"),
        &Overview {
            file: "FRB180417_askap_28.fil",
            target: "ASKAP",
            span_s: (0.0, 6.48),
            dms: (0.0, 2000.0),
            snr: 6.0,
            points,
        },
    )
    .unwrap();
}
