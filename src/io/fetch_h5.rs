//! Candidates for FETCH, one HDF5 file each, with the names that `your` uses.
//!
//! Invariant: a file has its final name only when it is complete.
//!
//! # Source
//! `your` 0.6.7 (`candidate.py`, `save_h5`; `utils/plotter.py`) for names and axes, FETCH 0.2 (`data_sequence.py`)
//! for the input of its classifier.

use std::path::Path;

use hdf5_pure::{AttrValue, FileBuilder};

use crate::error::{Error, Result};
use crate::io::atomic;
use crate::view::check_length;

/// Edge length of both planes in pixels, as FETCH's models require.
pub const PIXELS: usize = 256;

/// Data set of spectra, which carries the texts.
const FREQ_TIME: &str = "data_freq_time";

/// Maximum bytes of a file that FETCH accepts.
const MAX_BYTES: u64 = 64 << 20;

/// A candidate with the two planes that FETCH classifies.
#[derive(Clone, Copy, Debug)]
pub struct FetchCandidate<'a> {
    /// Path of the recording.
    pub file: &'a Path,
    /// Name of the source on the sky, empty when unknown.
    pub source_name: &'a str,
    /// Detected dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Time of the pulse at the highest frequency, in seconds from the first sample's start.
    pub time_s: f64,
    /// Detected signal-to-noise ratio.
    pub snr: f64,
    /// Width of the pulse in samples of the recording.
    pub width: u32,
    /// 1 for a burst, 0 for interference, -1 if unknown.
    pub label: i32,
    /// Start of the recording, MJD.
    pub tstart_mjd: f64,
    /// Sampling time of the recording in seconds.
    pub tsamp_s: f64,
    /// Centre of the recording's channel 0 in MHz.
    pub fch1_mhz: f64,
    /// Step between channels in MHz.
    pub foff_mhz: f64,
    /// Number of channels of the recording.
    pub channels: usize,
    /// Number of times in the recording.
    pub times: u64,
    /// Dedispersed spectra around the pulse: axes time, channel; [`PIXELS`] each, highest frequency first.
    pub freq_time: &'a [f32],
    /// DM-time plane from DM 0 to twice the candidate's: axes dm, time; [`PIXELS`] each.
    pub dm_time: &'a [f32],
    /// Named texts, such as the file's provenance. They are attributes of `data_freq_time`, because `your_h5plotter`
    /// prints every root attribute into its picture.
    pub texts: &'a [(&'static str, String)],
}

impl FetchCandidate<'_> {
    /// Returns the name that `your` would give the file, without `.h5`.
    pub fn id(&self) -> String {
        format!(
            "cand_tstart_{:.12}_tcand_{:.7}_dm_{:.5}_snr_{:.5}",
            self.tstart_mjd, self.time_s, self.dm, self.snr
        )
    }
}

/// Writes a candidate's file; replaces an existing one.
///
/// | data set         | axes          | type | unit      |
/// |------------------|---------------|------|-----------|
/// | `data_freq_time` | time, channel | f32  | arbitrary |
/// | `data_dm_time`   | dm, time      | f32  | arbitrary |
///
/// # Errors
/// [`Error::Shape`] unless both planes are [`PIXELS`] x [`PIXELS`]; [`Error::Io`].
/// # Source
/// `your` 0.6.7, `Candidate.save_h5`.
pub fn write(path: &Path, candidate: &FetchCandidate<'_>) -> Result<()> {
    let bytes = encode(path, candidate)?;
    atomic::write(path, &bytes)
}

/// Reads texts of a candidate's file by their names; a missing one is empty.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] unless the file is a candidate's.
pub fn texts<const N: usize>(path: &Path, names: [&str; N]) -> Result<[String; N]> {
    let size = std::fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
    if size > MAX_BYTES {
        let why = format!(
            "found {size} bytes, expected at most {MAX_BYTES}: it is not a candidate for FETCH"
        );
        return Err(Error::format(path, "size", 0, why));
    }
    let fault = |error: hdf5_pure::Error| Error::format(path, FREQ_TIME, 0, error.to_string());
    let file = hdf5_pure::File::open(path).map_err(fault)?;
    let attributes = file.dataset(FREQ_TIME).and_then(|data| data.attrs()).map_err(fault)?;
    let text = |name: &str| attributes.get(name).and_then(AttrValue::as_str).unwrap_or_default();
    Ok(names.map(|name| text(name).to_owned()))
}

fn encode(path: &Path, candidate: &FetchCandidate<'_>) -> Result<Vec<u8>> {
    check_length("freq_time (time, channel)", PIXELS * PIXELS, candidate.freq_time.len())?;
    check_length("dm_time (dm, time)", PIXELS * PIXELS, candidate.dm_time.len())?;
    let mut builder = FileBuilder::new();
    for (name, value) in attributes(candidate) {
        builder.set_attr(name, value);
    }
    let planes = [
        (FREQ_TIME, candidate.freq_time, ["time", "frequency"]),
        ("data_dm_time", candidate.dm_time, ["dm", "time"]),
    ];
    for (name, values, axes) in planes {
        let labels = axes.map(String::from).to_vec();
        let dataset = builder.create_dataset(name);
        if name == FREQ_TIME {
            for (name, text) in candidate.texts {
                dataset.set_attr(name, AttrValue::VarLenString(text.clone()));
            }
        }
        dataset
            .with_f32_data(values)
            .with_shape(&[PIXELS as u64; 2])
            .with_chunks(&[64; 2])
            .with_deflate(6)
            .set_attr("DIMENSION_LABELS", AttrValue::VarLenStringArray(labels));
    }
    let fault = |error: hdf5_pure::Error| Error::format(path, "HDF5", 0, error.to_string());
    builder.finish().map_err(fault)
}

/// Returns the root attributes that `your` writes, as far as they are known here.
fn attributes(candidate: &FetchCandidate<'_>) -> Vec<(&'static str, AttrValue)> {
    let text = |value: String| AttrValue::VarLenString(value);
    let part = |part: Option<&std::ffi::OsStr>| {
        text(part.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    };
    let channels = AttrValue::I64(candidate.channels as i64);
    vec![
        ("cand_id", text(candidate.id())),
        ("tcand", AttrValue::F64(candidate.time_s)),
        ("dm", AttrValue::F64(candidate.dm)),
        // `your` writes -1 without an optimization.
        ("dm_opt", AttrValue::F64(-1.0)),
        ("snr", AttrValue::F64(candidate.snr)),
        ("snr_opt", AttrValue::F64(-1.0)),
        ("width", AttrValue::I64(i64::from(candidate.width))),
        ("label", AttrValue::I64(i64::from(candidate.label))),
        ("filename", part(Some(candidate.file.as_os_str()))),
        ("basename", part(candidate.file.file_stem())),
        ("source_name", text(candidate.source_name.to_string())),
        ("tstart", AttrValue::F64(candidate.tstart_mjd)),
        ("tsamp", AttrValue::F64(candidate.tsamp_s)),
        ("fch1", AttrValue::F64(candidate.fch1_mhz)),
        ("foff", AttrValue::F64(candidate.foff_mhz)),
        ("nchans", channels.clone()),
        ("nspectra", AttrValue::I64(candidate.times as i64)),
        ("native_tsamp", AttrValue::F64(candidate.tsamp_s)),
        ("native_foff", AttrValue::F64(candidate.foff_mhz)),
        ("native_nchans", channels),
        ("native_nspectra", AttrValue::I64(candidate.times as i64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate<'a>(freq_time: &'a [f32], dm_time: &'a [f32]) -> FetchCandidate<'a> {
        FetchCandidate {
            file: Path::new("/data/28.fil"),
            source_name: "FRB",
            dm: 475.284,
            time_s: 2.0288,
            snr: 16.8,
            width: 2,
            label: -1,
            tstart_mjd: 58682.5,
            tsamp_s: 1e-3,
            fch1_mhz: 1465.0,
            foff_mhz: -1.0,
            channels: 336,
            times: 5120,
            freq_time,
            dm_time,
            texts: &[],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("candidate.h5");
        let freq_time: Vec<f32> = (0..PIXELS * PIXELS).map(|i| (i % 977) as f32).collect();
        let dm_time: Vec<f32> = freq_time.iter().map(|x| -0.5 * x).collect();
        // Longer than an attribute in an object header may be.
        let made = [("provenance", "é".repeat(100_000)), ("run", "{}".to_owned())];
        let candidate = FetchCandidate { texts: &made, ..candidate(&freq_time, &dm_time) };
        write(&path, &candidate).unwrap();
        let read = texts(&path, ["provenance", "none", "run"]).unwrap();
        assert_eq!(read, [made[0].1.clone(), String::new(), made[1].1.clone()]);
        assert!(texts(Path::new("/dev/null"), ["run"]).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let file = hdf5_pure::File::open(&path).unwrap();
        let attributes = file.root().attrs().unwrap();
        let id = "cand_tstart_58682.500000000000_tcand_2.0288000_dm_475.28400_snr_16.80000";
        assert_eq!(attributes["cand_id"].as_str(), Some(id));
        assert_eq!(attributes["width"].as_i64(), Some(2));
        assert_eq!(attributes["basename"].as_str(), Some("28"));
        assert_eq!(file.dataset("data_freq_time").unwrap().read_f32().unwrap(), freq_time);
        assert_eq!(file.dataset("data_dm_time").unwrap().read_f32().unwrap(), dm_time);
        assert_eq!(file.dataset("data_dm_time").unwrap().shape().unwrap(), [256, 256]);
    }

    #[test]
    fn wrong_planes_and_missing_folders_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let plane = vec![0.0; PIXELS * PIXELS];
        let short = candidate(&plane, &plane[1..]);
        assert!(matches!(encode(Path::new("x"), &short), Err(Error::Shape { .. })));
        let path = folder.path().join("missing").join("candidate.h5");
        assert!(matches!(write(&path, &candidate(&plane, &plane)), Err(Error::Io { .. })));
    }
}
