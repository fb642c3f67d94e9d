//! Recordings and streams that other ranks read: their headers, which all ranks check.
//!
//! Invariant: a header that was shared gives the same correlation as the header itself. Fields that no correlation uses
//! (format, beam, sweep) are left out.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::io::voltages::{FilterGeometry, VoltageHeader, VoltageSource};
use crate::pipeline::exchange::Ranks;
use crate::state::{Saved, Saving};
use crate::units::Epoch;
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Most bytes of a text, and most texts of a recording.
const MAX_TEXT: usize = 1 << 20;

/// Most recorded channels, and most recordings.
const MAX_COUNT: usize = 1 << 24;

/// Recording or stream that another rank reads. It has a header and no samples.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteRecording {
    header: VoltageHeader,
    cut: Option<String>,
    warnings: Vec<String>,
    is_live: bool,
}

impl VoltageSource for RemoteRecording {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, _: &mut VoltageBlock) -> Result<usize> {
        Ok(0)
    }

    fn is_live(&self) -> bool {
        self.is_live
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl RemoteRecording {
    /// Shares the headers of recordings, of which each rank has opened some; the list has the same length at all ranks. Returns
    /// all of them.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a recording that no rank has opened; [`Error::Unavailable`] that names a rank that has
    /// failed; errors of the exchange.
    pub fn share(
        opened: &[Option<Box<dyn VoltageSource>>],
        ranks: &mut Ranks,
    ) -> Result<Vec<Self>> {
        let own: Vec<(usize, Self)> = (0..)
            .zip(opened)
            .filter_map(|(place, source)| Some((place, Self::of(source.as_deref()?))))
            .collect();
        let mut saving = Saving::default();
        saving.number(own.len() as u64);
        for (place, recording) in &own {
            saving.number(*place as u64);
            recording.save(&mut saving);
        }
        let mut all: Vec<Option<Self>> = vec![None; opened.len()];
        for (rank, bytes) in ranks.share(Ok(saving.finish()))?.iter().enumerate() {
            let path = PathBuf::from(format!("headers of rank {rank}"));
            let mut saved = Saved::new(&path, 0, bytes)?;
            for _ in 0..saved.at_most(MAX_COUNT)? {
                let place = saved.at_most(opened.len().saturating_sub(1))?;
                let recording = Self::load(&mut saved)?;
                all[place].get_or_insert(recording);
            }
            saved.end()?;
        }
        let lacking = all.iter().filter(|own| own.is_none()).count();
        let rule = "each must be opened by a rank";
        let all: Option<Vec<Self>> = all.into_iter().collect();
        all.ok_or_else(|| Error::parameter("recordings that no rank has opened", lacking, rule))
    }

    fn of(source: &dyn VoltageSource) -> Self {
        Self {
            header: source.header().clone(),
            cut: source.cut().map(str::to_owned),
            warnings: source.warnings().to_vec(),
            is_live: source.is_live(),
        }
    }

    fn save(&self, to: &mut Saving) {
        let header = &self.header;
        for text in [&header.path.to_string_lossy(), &*header.source_name, &header.telescope] {
            to.bytes(text.as_bytes());
        }
        let known = [header.ra_deg, header.dec_deg];
        to.flags(known.iter().map(Option::is_some));
        to.f64s(known.map(Option::unwrap_or_default).iter());
        to.signed(header.start.day);
        to.f64s([header.start.seconds, header.tsamp_s, header.scale].iter());
        to.f64s(header.centres_hz.iter());
        let encoding = VoltageEncoding::ALL.iter().position(|own| *own == header.encoding);
        for number in [
            encoding.unwrap_or_default(),
            header.recorded_bits,
            header.antennas,
            header.polarizations,
        ] {
            to.number(number as u64);
        }
        let circular = header.circular;
        let flags =
            [header.lower_sideband, circular.is_some(), circular == Some(true), self.is_live];
        to.flags(flags.into_iter());
        to.maybe(header.times);
        to.maybe(header.filter.as_ref().map(|own| own.channels as u64));
        if let Some(FilterGeometry { taps, window, oversampling: (p, q), .. }) = &header.filter {
            [taps, p, q].into_iter().for_each(|number| to.number(*number as u64));
            to.bytes(window.as_bytes());
        }
        to.flags([self.cut.is_some()].into_iter());
        let texts: Vec<&String> = self.cut.iter().chain(&self.warnings).collect();
        to.number(texts.len() as u64);
        texts.into_iter().for_each(|text| to.bytes(text.as_bytes()));
    }

    fn load(from: &mut Saved<'_>) -> Result<Self> {
        let mut text = || from.text(MAX_TEXT);
        let [path, source_name, telescope] = [text()?, text()?, text()?];
        let [has_ra, has_dec] = from.flag_array()?;
        let [ra_deg, dec_deg] = from.f64_array()?;
        let day = from.signed()?;
        let [seconds, tsamp_s, scale] = from.f64_array()?;
        let centres_hz = from.f64s(MAX_COUNT)?;
        let encoding = VoltageEncoding::ALL[from.at_most(VoltageEncoding::ALL.len() - 1)?];
        let mut number = || from.number().map(|number| number as usize);
        let [recorded_bits, antennas, polarizations] = [number()?, number()?, number()?];
        let [lower_sideband, is_stated, is_circular, is_live] = from.flag_array()?;
        let times = from.maybe()?;
        let filter = from.maybe()?.map(|channels| filter(channels as usize, from)).transpose()?;
        let [is_cut] = from.flag_array()?;
        let count = from.at_most(MAX_TEXT)?;
        let mut texts =
            (0..count).map(|_| from.text(MAX_TEXT)).collect::<Result<Vec<_>>>()?.into_iter();
        let cut = if is_cut { texts.next() } else { None };
        let header = VoltageHeader {
            path: path.into(),
            source_name,
            telescope,
            ra_deg: has_ra.then_some(ra_deg),
            dec_deg: has_dec.then_some(dec_deg),
            start: Epoch { day, seconds },
            lower_sideband,
            scale,
            recorded_bits,
            antennas,
            polarizations,
            circular: is_stated.then_some(is_circular),
            times,
            filter,
            ..VoltageHeader::new(centres_hz, tsamp_s, encoding)
        };
        Ok(Self { header, cut, warnings: texts.collect(), is_live })
    }
}

fn filter(channels: usize, from: &mut Saved<'_>) -> Result<FilterGeometry> {
    let mut number = || from.number().map(|number| number as usize);
    let [taps, p, q] = [number()?, number()?, number()?];
    Ok(FilterGeometry { channels, taps, window: from.text(MAX_TEXT)?, oversampling: (p, q) })
}

/// Returns the rank of each correlated antenna, by ascending array number: that of the recording which has it.
/// `readers` has the rank of each recording, `antennas` the array numbers in the order of the recordings, `each` the number
/// of antennas of each recording.
///
/// # Errors
/// [`Error::Parameter`] for another number of ranks than recordings, and unless the antennas of each rank follow each
/// other in the array, after those of the ranks before it.
pub(super) fn owners(readers: &[usize], each: &[usize], antennas: &[usize]) -> Result<Vec<usize>> {
    if readers.len() != each.len() {
        let rule = format!("there are {} recordings", each.len());
        return Err(Error::parameter("ranks of recordings", readers.len(), rule));
    }
    let ranks = readers.iter().zip(each).flat_map(|(rank, each)| std::iter::repeat_n(*rank, *each));
    let mut owners: Vec<(usize, usize)> = antennas.iter().copied().zip(ranks).collect();
    owners.sort_unstable();
    let owners: Vec<usize> = owners.into_iter().map(|(_, rank)| rank).collect();
    match owners.is_sorted() {
        true => Ok(owners),
        false => {
            let rule = "the antennas of each rank must follow each other in the array";
            Err(Error::parameter("order of the streams", "not that of their antennas", rule))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(recording: &RemoteRecording) {
        let mut saving = Saving::default();
        recording.save(&mut saving);
        let bytes = saving.finish();
        let mut saved = Saved::new(Path::new("headers"), 0, &bytes).unwrap();
        assert_eq!(RemoteRecording::load(&mut saved).unwrap(), *recording);
        saved.end().unwrap();
        // Bytes that end early are an error.
        for length in (0..bytes.len() - 8).step_by(3) {
            let short = Saving::sealed(bytes[..length].to_vec());
            let mut saved = Saved::new(Path::new("headers"), 0, &short).unwrap();
            assert!(RemoteRecording::load(&mut saved).is_err(), "{length}");
        }
    }

    #[test]
    fn headers_arrive_as_they_are() {
        let minimal = VoltageHeader::new(vec![1.4e9], 1e-6, VoltageEncoding::Real10);
        let (cut, warnings) = (None, Vec::new());
        check(&RemoteRecording { header: minimal.clone(), cut, warnings, is_live: true });
        let header = VoltageHeader {
            path: "a/b.dada".into(),
            source_name: "Hydra A".into(),
            telescope: "mk01".into(),
            ra_deg: Some(139.5),
            dec_deg: Some(-12.1),
            start: Epoch { day: -3, seconds: 0.1 + 0.2 },
            lower_sideband: true,
            scale: -0.3,
            recorded_bits: 4,
            antennas: 3,
            polarizations: 2,
            circular: Some(false),
            times: Some(1 << 59),
            filter: Some(FilterGeometry {
                channels: 64,
                taps: 8,
                window: "hann".into(),
                oversampling: (32, 27),
            }),
            ..VoltageHeader::new(vec![1e9, 0.9e9], 1e-6, VoltageEncoding::Complex4)
        };
        let (cut, warnings) = (Some("half a block".into()), vec!["odd".into(), String::new()]);
        check(&RemoteRecording { header, cut, warnings, is_live: false });
    }

    #[test]
    fn antennas_of_a_rank_follow_each_other() {
        assert_eq!(owners(&[0, 1, 1], &[2, 1, 1], &[0, 1, 5, 3]).unwrap(), [0, 0, 1, 1]);
        assert_eq!(owners(&[1, 0], &[1, 1], &[4, 2]).unwrap(), [0, 1]);
        assert!(owners(&[0, 1], &[1, 1], &[4, 2]).unwrap_err().to_string().contains("order"));
        assert!(owners(&[0, 1], &[2, 1], &[1, 3, 2]).is_err());
        assert!(owners(&[0], &[1, 1], &[1, 2]).is_err());
    }
}
