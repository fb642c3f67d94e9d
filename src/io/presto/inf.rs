//! PRESTO's `.inf` header: one line per field, with a label and a value.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, sexagesimal};
use crate::units::HZ_PER_MHZ;

/// Contents of a `.inf` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inf {
    /// Base name of the files, without suffix.
    pub name: String,
    /// Name of the telescope.
    pub telescope: String,
    /// Name of the backend.
    pub instrument: String,
    /// Name of the source.
    pub source_name: String,
    /// Right ascension in degrees (J2000), when known.
    pub ra_deg: Option<f64>,
    /// Declination in degrees (J2000), when known.
    pub dec_deg: Option<f64>,
    /// Observer.
    pub observer: String,
    /// Start of the first sample, MJD (UTC, or barycentric); 0 when unknown.
    pub epoch_mjd: f64,
    /// Whether times are barycentric.
    pub is_barycentred: bool,
    /// Number of samples.
    pub bins: u64,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// First and last bin of each valid interval; empty if all are valid.
    pub on_off: Vec<(u64, u64)>,
    /// Band of the observation: Radio (also if empty), IR, Optical, UV, X-ray or Gamma.
    pub waveband: String,
    /// Diameter of the beam or the field of view, in arcseconds.
    pub beam_arcsec: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Centre of the lowest channel in MHz.
    pub lowest_mhz: f64,
    /// Width of the band in MHz.
    pub bandwidth_mhz: f64,
    /// Number of channels.
    pub channels: u64,
    /// Width of a channel in MHz.
    pub channel_width_mhz: f64,
    /// Central photon energy in keV, for X-rays and gamma rays.
    pub energy_kev: f64,
    /// Width of the energy band in keV.
    pub energy_band_kev: f64,
    /// Name of the photometric filter, from infrared to ultraviolet.
    pub filter: String,
    /// Central wavelength of the filter in nm.
    pub wavelength_nm: f64,
    /// Width of the filter in nm.
    pub wavelength_band_nm: f64,
    /// Analyst.
    pub analyst: String,
    /// Whether the orbit of a binary pulsar was removed from the times.
    pub is_deorbited: bool,
    /// Notes, one line each.
    pub notes: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Name,
    Telescope,
    Instrument,
    Source,
    Ra,
    Dec,
    Observer,
    Epoch,
    Barycentred,
    Bins,
    Width,
    Breaks,
    OnOff,
    ObservationType,
    Beam,
    FieldOfView,
    Dm,
    Lowest,
    Bandwidth,
    Channels,
    ChannelWidth,
    Energy,
    EnergyBand,
    Filter,
    Wavelength,
    WavelengthBand,
    Analyst,
    Deorbited,
}

/// Label of each line in PRESTO's order, in two parts. Only the first part is the same in all programs and versions;
/// PRESTO's Python (`infodata.py`) identifies lines by it.
const LABELS: &[(Key, &str, &str)] = &[
    (Key::Name, "Data file name", " without suffix"),
    (Key::Telescope, "Telescope", " used"),
    (Key::Instrument, "Instrument", " used"),
    (Key::Source, "Object being", " observed"),
    (Key::Ra, "J2000 Right", " Ascension (hh:mm:ss.ssss)"),
    (Key::Dec, "J2000 Declination", "     (dd:mm:ss.ssss)"),
    (Key::Observer, "Data observed", " by"),
    (Key::Epoch, "Epoch", " of observation (MJD)"),
    (Key::Barycentred, "Barycentered?", "           (1 yes, 0 no)"),
    (Key::Bins, "Number of bins", " in the time series"),
    (Key::Width, "Width of", " each time series bin (sec)"),
    (Key::Breaks, "Any breaks", " in the data? (1 yes, 0 no)"),
    (Key::OnOff, "On/Off bin", " pair"),
    (Key::ObservationType, "Type of", " observation (EM band)"),
    (Key::Beam, "Beam diameter", " (arcsec)"),
    (Key::Dm, "Dispersion measure", " (cm-3 pc)"),
    (Key::Lowest, "Central freq", " of low channel (MHz)"),
    (Key::Bandwidth, "Total bandwidth", " (MHz)"),
    (Key::Channels, "Number of channels", ""),
    (Key::ChannelWidth, "Channel bandwidth", " (MHz)"),
    (Key::Filter, "Photometric filter", " used"),
    (Key::FieldOfView, "Field-of-view diameter", " (arcsec)"),
    (Key::Energy, "Central energy", " (kev)"),
    (Key::EnergyBand, "Energy bandpass", " (kev)"),
    (Key::Wavelength, "Central wavelength", " (nm)"),
    (Key::WavelengthBand, "Bandpass", " (nm)"),
    (Key::Analyst, "Data analyzed", " by"),
    (Key::Deorbited, "Orbit removed?", "          (1=yes, 0=no)"),
];

/// Bands known to PRESTO.
const WAVEBANDS: [&str; 6] = ["Radio", "IR", "Optical", "UV", "X-ray", "Gamma"];

/// Column of a line's `=`.
const EQUALS_COLUMN: usize = 40;
/// Maximum bytes of a header.
const MAX_BYTES: u64 = 1 << 20;

impl Inf {
    /// Makes the header of a dedispersed series from its sampling time, its dispersion measure and the recording's
    /// header. The writer sets the name and the number of bins.
    pub fn new(header: &FilterbankHeader, dm: f64, tsamp_s: f64) -> Self {
        let band = &header.band;
        Self {
            telescope: header.telescope.clone(),
            instrument: "Unknown".into(),
            source_name: header.source_name.clone(),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            observer: "Unknown".into(),
            epoch_mjd: header.tstart_mjd,
            tsamp_s,
            dm,
            lowest_mhz: band.lowest_hz() / HZ_PER_MHZ,
            bandwidth_mhz: band.bandwidth_hz() / HZ_PER_MHZ,
            channels: band.channels() as u64,
            channel_width_mhz: band.channel_width_hz() / HZ_PER_MHZ,
            analyst: "sidereal".into(),
            notes: format!("Dedispersed from {}", header.path.display()),
            ..Self::default()
        }
    }

    /// Reads a `.inf` file.
    ///
    /// # Errors
    /// As [`Inf::parse`], and [`Error::Io`].
    pub fn read(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let length = fs::metadata(path).map_err(io)?.len();
        if length > MAX_BYTES {
            let why = format!("found {length} bytes, expected a header of at most {MAX_BYTES}");
            return Err(Error::format(path, "header", 0, why));
        }
        let bytes = fs::read(path).map_err(io)?;
        Self::parse(&String::from_utf8_lossy(&bytes), path)
    }

    /// Parses the text of a `.inf` file; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Format`] for a line without `=`, an unknown label or band, an invalid number, or a missing sampling
    /// time.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut inf = Self::default();
        let mut at = 0;
        let mut lines = text.split_inclusive('\n');
        for line in lines.by_ref() {
            if line.trim().starts_with("Any additional notes") {
                break;
            }
            if !line.trim().is_empty() {
                let (key, label, value) = split(line, path, at)?;
                let fault = |why| Error::format(path, label, at, why);
                inf.set(key, value).map_err(fault)?;
            }
            at += line.len() as u64;
        }
        inf.notes = lines.map(str::trim).collect::<Vec<_>>().join("\n").trim().to_string();
        if !(inf.tsamp_s > 0.0 && inf.tsamp_s.is_finite()) {
            let why = format!("found {} s, expected more than 0", inf.tsamp_s);
            return Err(Error::format(path, "Width of each time series bin (sec)", at, why));
        }
        Ok(inf)
    }

    fn set(&mut self, key: Key, value: &str) -> std::result::Result<(), String> {
        match key {
            Key::Name => self.name = value.into(),
            Key::Telescope => self.telescope = value.into(),
            Key::Instrument => self.instrument = value.into(),
            Key::Source => self.source_name = value.into(),
            Key::Observer => self.observer = value.into(),
            Key::Analyst => self.analyst = value.into(),
            Key::Ra => self.ra_deg = sexagesimal::parse(value).map(|hours| hours * 15.0),
            Key::Dec => self.dec_deg = sexagesimal::parse(value),
            Key::Epoch => self.epoch_mjd = number(value)?,
            Key::Barycentred => self.is_barycentred = count(value)? != 0,
            Key::Bins => self.bins = count(value)?,
            Key::Width => self.tsamp_s = number(value)?,
            // The on/off pairs that follow define the breaks.
            Key::Breaks => drop(count(value)?),
            Key::OnOff => {
                let pair = value.split_once(',').ok_or("expected two bins with a comma between")?;
                self.on_off.push((count(pair.0)?, count(pair.1)?));
            }
            Key::ObservationType if WAVEBANDS.contains(&value) => self.waveband = value.into(),
            Key::ObservationType => {
                return Err(format!("found {value}, expected one of {}", WAVEBANDS.join(", ")));
            }
            Key::Beam | Key::FieldOfView => self.beam_arcsec = number(value)?,
            Key::Dm => self.dm = number(value)?,
            Key::Lowest => self.lowest_mhz = number(value)?,
            Key::Bandwidth => self.bandwidth_mhz = number(value)?,
            Key::Channels => self.channels = count(value)?,
            Key::ChannelWidth => self.channel_width_mhz = number(value)?,
            Key::Energy => self.energy_kev = number(value)?,
            Key::EnergyBand => self.energy_band_kev = number(value)?,
            Key::Filter => self.filter = value.into(),
            Key::Wavelength => self.wavelength_nm = number(value)?,
            Key::WavelengthBand => self.wavelength_band_nm = number(value)?,
            Key::Deorbited => self.is_deorbited = count(value)? != 0,
        }
        Ok(())
    }

    /// Returns whether a header of this band contains the line.
    fn has(&self, key: Key) -> bool {
        let is_radio = matches!(self.waveband.as_str(), "" | "Radio");
        let is_high_energy = matches!(self.waveband.as_str(), "X-ray" | "Gamma");
        match key {
            Key::Beam | Key::Dm | Key::Lowest | Key::Bandwidth => is_radio,
            Key::Channels | Key::ChannelWidth => is_radio,
            Key::FieldOfView => !is_radio,
            Key::Energy | Key::EnergyBand => is_high_energy,
            Key::Filter | Key::Wavelength | Key::WavelengthBand => !is_radio && !is_high_energy,
            Key::Deorbited => self.is_deorbited,
            _ => true,
        }
    }

    fn value(&self, key: Key) -> String {
        let angle = |angle: Option<f64>| sexagesimal::format(angle.unwrap_or(0.0));
        match key {
            Key::Name => text(&self.name),
            Key::Telescope => text(&self.telescope),
            Key::Instrument => text(&self.instrument),
            Key::Source => text(&self.source_name),
            Key::Observer => text(&self.observer),
            Key::Analyst => text(&self.analyst),
            Key::Ra => angle(self.ra_deg.map(|degrees| degrees / 15.0)),
            Key::Dec => angle(self.dec_deg),
            Key::Epoch => format!("{:.15}", self.epoch_mjd),
            Key::Barycentred => u8::from(self.is_barycentred).to_string(),
            Key::Bins => format!("{:<11}", self.bins),
            Key::Width => self.tsamp_s.to_string(),
            Key::Breaks => u8::from(self.on_off.len() > 1).to_string(),
            // `Display` writes these, one line per pair.
            Key::OnOff => String::new(),
            Key::ObservationType if self.waveband.is_empty() => "Radio".into(),
            Key::ObservationType => text(&self.waveband),
            Key::Beam => format!("{:.0}", self.beam_arcsec),
            Key::FieldOfView => self.beam_arcsec.to_string(),
            Key::Energy => self.energy_kev.to_string(),
            Key::EnergyBand => self.energy_band_kev.to_string(),
            Key::Filter => text(&self.filter),
            Key::Wavelength => self.wavelength_nm.to_string(),
            Key::WavelengthBand => self.wavelength_band_nm.to_string(),
            Key::Deorbited => u8::from(self.is_deorbited).to_string(),
            Key::Dm => self.dm.to_string(),
            Key::Lowest => digits12(self.lowest_mhz),
            Key::Bandwidth => digits12(self.bandwidth_mhz),
            Key::Channels => self.channels.to_string(),
            Key::ChannelWidth => digits12(self.channel_width_mhz),
        }
    }
}

impl fmt::Display for Inf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, first, rest) in LABELS.iter().filter(|(key, ..)| self.has(*key)) {
            let label = format!("{first}{rest}");
            if *key != Key::OnOff {
                writeln!(f, " {label:<39}=  {}", self.value(*key))?;
            } else if self.on_off.len() > 1 {
                for (index, (first, last)) in self.on_off.iter().enumerate() {
                    let label = format!("{label} #{:3}", index + 1);
                    writeln!(f, " {label:<39}=  {first:<11}, {last:<11}")?;
                }
            }
        }
        writeln!(f, " Any additional notes:")?;
        // PRESTO reads at most 500 bytes of notes, in lines of less than 100.
        for line in self.notes.lines().take(4) {
            writeln!(f, "    {}", text(line))?;
        }
        writeln!(f)
    }
}

/// Splits a line into key, label and value as PRESTO does: the value follows column 40, or the line's last `=`.
fn split<'a>(line: &'a str, path: &Path, at: u64) -> Result<(Key, &'a str, &'a str)> {
    let equals = match line.as_bytes().get(EQUALS_COLUMN) {
        Some(b'=') => Some(EQUALS_COLUMN),
        _ => line.rfind('='),
    };
    let Some(equals) = equals else {
        let why = format!("found {:?}, expected a label, = and a value", line.trim());
        return Err(Error::format(path, "line", at, why));
    };
    let (label, value) = (line[..equals].trim(), line[equals + 1..].trim());
    let known = LABELS.iter().find(|(_, known, _)| {
        let words = known.split_whitespace().count();
        label.split_whitespace().take(words).eq(known.split_whitespace())
    });
    match known {
        Some((key, ..)) => Ok((*key, label, value)),
        None => {
            let why = format!("unknown label {label:?} of the value {value:?}");
            Err(Error::format(path, "label", at, why))
        }
    }
}

/// PRESTO stores texts in 100 bytes.
const MAX_TEXT: usize = 90;

/// Parses a finite number.
fn number(value: &str) -> std::result::Result<f64, String> {
    match value.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("found {value:?}, expected a number")),
    }
}

/// Parses a non-negative integer.
fn count(value: &str) -> std::result::Result<u64, String> {
    // Older writers format counts as floats: 131072.0.
    let whole = value.trim().trim_end_matches('0').trim_end_matches('.');
    let exact = value.trim().parse::<u64>().ok();
    exact
        .or_else(|| value.contains('.').then(|| whole.parse().ok()).flatten())
        .ok_or_else(|| format!("found {value:?}, expected a whole number"))
}

/// Formats one line of at most [`MAX_TEXT`] bytes, `Unknown` if empty, because PRESTO stops at an empty value.
fn text(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default().trim();
    let line = crate::io::printable(line);
    let mut end = line.len().min(MAX_TEXT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 { "Unknown".into() } else { line[..end].into() }
}

/// Formats twelve significant digits without trailing zeros, as PRESTO writes frequencies.
fn digits12(value: f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Inf {
        Inf {
            name: "x_DM10.00".into(),
            telescope: "GBT".into(),
            instrument: "VEGAS".into(),
            source_name: "J1807-0847".into(),
            ra_deg: Some(271.908),
            dec_deg: Some(-8.795),
            observer: "A. Person".into(),
            epoch_mjd: 59313.25,
            bins: 131_072,
            tsamp_s: 0.000_163_84,
            on_off: vec![(0, 99), (1000, 131_071)],
            beam_arcsec: 234_000.0,
            dm: 112.3802,
            lowest_mhz: 720.78125,
            bandwidth_mhz: 200.0,
            channels: 256,
            channel_width_mhz: 0.78125,
            waveband: "Radio".into(),
            analyst: "sidereal".into(),
            notes: "first note\nsecond = note".into(),
            ..Inf::default()
        }
    }

    fn parse(text: &str) -> Result<Inf> {
        Inf::parse(text, Path::new("x.inf"))
    }

    #[test]
    fn a_header_goes_round() {
        let inf = full();
        let read = parse(&inf.to_string()).unwrap();
        assert!((read.ra_deg.unwrap() - inf.ra_deg.unwrap()).abs() < 1e-6);
        assert!((read.dec_deg.unwrap() - inf.dec_deg.unwrap()).abs() < 1e-6);
        assert_eq!(Inf { ra_deg: inf.ra_deg, dec_deg: inf.dec_deg, ..read }, inf);
    }

    #[test]
    fn lines_are_as_presto_writes_them() {
        let text = full().to_string();
        assert!(text.starts_with(" Data file name without suffix          =  x_DM10.00\n"));
        assert!(text.contains(" J2000 Declination     (dd:mm:ss.ssss)  =  -08:47:42.0000\n"));
        assert!(text.contains(" Number of bins in the time series      =  131072     \n"));
        assert!(text.contains(" Width of each time series bin (sec)    =  0.00016384\n"));
        assert!(
            text.contains(" On/Off bin pair #  1                   =  0          , 99         \n")
        );
        for line in text.lines().take_while(|line| !line.contains("notes")) {
            assert_eq!(line.as_bytes()[EQUALS_COLUMN], b'=', "{line}");
        }
    }

    /// Header as PRESTO's Python writes it (`infodata.to_file`): another text in parentheses, no observer or band,
    /// and an additional line.
    const FROM_PYTHON: &str = "\
 Data file name without suffix          =  GBT_Lband_PSR_DM62.00
 Telescope used                         =  GBT
 Instrument used                        =  BCPM1
 Object being observed                  =  Mystery_PSR
 J2000 Right Ascension (hh:mm:ss.ssss)  =  16:43:38.1000
 J2000 Declination     (dd:mm:ss.ssss)  =  -12:24:58.7000
 Epoch of observation (MJD)             =  53010.484826388892543
 Barycentered?           (1=yes, 0=no)  =  1
 Number of bins in the time series      =  537600     
 Width of each time series bin (sec)    =  7.2e-05
 Any breaks in the data? (1 yes, 0 no)  =  1
 On/Off bin pair #  1                   =  0          , 530399     
 On/Off bin pair #  2                   =  537599     , 537599     
 Dispersion measure (cm-3 pc)           =  62
 Central freq of low channel (Mhz)      =  1352.5
 Total bandwidth (Mhz)                  =  96
 Number of channels                     =  96
 Channel bandwidth (Mhz)                =  1
 Data analyzed by                       =  ransom
 Orbit removed?          (1=yes, 0=no)  =  1
 Any additional notes:
    Input filterbank samples have 4 bits.
";

    #[test]
    fn a_header_of_prestos_python_is_read() {
        let inf = parse(FROM_PYTHON).unwrap();
        assert!(inf.is_barycentred && inf.is_deorbited);
        assert_eq!((inf.bins, inf.tsamp_s, inf.dm), (537_600, 7.2e-5, 62.0));
        assert_eq!(inf.on_off, [(0, 530_399), (537_599, 537_599)]);
        assert_eq!((inf.lowest_mhz, inf.bandwidth_mhz, inf.channels), (1352.5, 96.0, 96));
        assert_eq!(inf.notes, "Input filterbank samples have 4 bits.");
        let again = parse(&inf.to_string()).unwrap();
        assert_eq!(again, Inf { waveband: "Radio".into(), observer: "Unknown".into(), ..inf });
    }

    #[test]
    fn headers_of_other_bands_are_read() {
        let radio = full().to_string();
        let (before, after) = radio.split_once(" Beam diameter").unwrap();
        let (_, analyst) = after.split_once(" Data analyzed").unwrap();
        let with = |band: &str, lines: &str| {
            let text = format!("{before}{lines} Data analyzed{analyst}");
            parse(&text.replacen("=  Radio", &format!("=  {band}"), 1)).unwrap()
        };
        let field = " Field-of-view diameter (arcsec)        =  3.50\n";
        let x_ray = with(
            "X-ray",
            &format!(
                "{field} Central energy (kev)                   =  6.5\n \
                 Energy bandpass (kev)                  =  9.0\n"
            ),
        );
        assert_eq!((x_ray.energy_kev, x_ray.energy_band_kev, x_ray.beam_arcsec), (6.5, 9.0, 3.5));
        let optical = with(
            "Optical",
            &format!(
                " Photometric filter used                =  Clear\n{field} \
                 Central wavelength (nm)                =  550.0\n \
                 Bandpass (nm)                          =  200.0\n"
            ),
        );
        assert_eq!((optical.wavelength_nm, optical.wavelength_band_nm), (550.0, 200.0));
        assert_eq!((optical.filter.as_str(), optical.waveband.as_str()), ("Clear", "Optical"));
        for inf in [x_ray, optical] {
            assert_eq!(parse(&inf.to_string()).unwrap(), inf);
            assert!(!inf.to_string().contains("Dispersion"));
        }
    }

    #[test]
    fn bad_lines_are_named_with_their_place() {
        let good = full().to_string();
        let cases = [
            ("=  0.00016384", "=  -1", "Width"),
            ("=  0.00016384", "=  NaN", "Width"),
            ("=  131072     ", "=  many", "Number of bins"),
            ("=  256", "=  -4", "Number of channels"),
            ("=  Radio", "=  Sound", "Type of observation"),
            ("Telescope used  ", "Colour of paint ", "Colour"),
            ("=  112.3802", "   112.3802", "expected a label"),
        ];
        for (from, to, named) in cases {
            assert!(good.contains(from), "{from}");
            let error = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("x.inf"), "{error}");
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn counts_may_be_written_as_floats() {
        assert_eq!(count("1310.0"), Ok(1310));
        assert_eq!(count("1310"), Ok(1310));
        assert!(count("13.5").is_err() && count("").is_err() && count(".").is_err());
    }
}
