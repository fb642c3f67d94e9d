//! Data sets with one row per baseline and integration, and the mapping of a baseline to a row.

use num_complex::Complex;

use super::header::{Antenna, Header};

/// A data set with one row per baseline and integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    Time,
    SiderealTime,
    IntegrationTime,
    Antenna1,
    Antenna2,
    Uvw,
    PhaseCentre,
    PointingRa,
    PointingDec,
    PointingAngle,
    Visibilities,
    Samples,
    Flags,
}

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    I32,
    F32,
    F64,
    /// Two f32, `r` and `i`.
    Complex,
    /// A boolean enum, as h5py writes it.
    Bool,
}

impl Element {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I32 | Self::F32 => 4,
            Self::F64 | Self::Complex => 8,
        }
    }
}

impl Rows {
    /// All data sets, in file order.
    pub(super) const ALL: [Self; 13] = [
        Self::Time,
        Self::SiderealTime,
        Self::IntegrationTime,
        Self::Antenna1,
        Self::Antenna2,
        Self::Uvw,
        Self::PhaseCentre,
        Self::PointingRa,
        Self::PointingDec,
        Self::PointingAngle,
        Self::Visibilities,
        Self::Samples,
        Self::Flags,
    ];

    /// Returns its name in its group.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Time => "time_array",
            Self::SiderealTime => "lst_array",
            Self::IntegrationTime => "integration_time",
            Self::Antenna1 => "ant_1_array",
            Self::Antenna2 => "ant_2_array",
            Self::Uvw => "uvw_array",
            Self::PhaseCentre => "phase_center_id_array",
            Self::PointingRa => "phase_center_app_ra",
            Self::PointingDec => "phase_center_app_dec",
            Self::PointingAngle => "phase_center_frame_pa",
            Self::Visibilities => "visdata",
            Self::Samples => "nsamples",
            Self::Flags => "flags",
        }
    }

    /// Returns whether it is in the group `Data` instead of `Header`.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::Visibilities | Self::Samples | Self::Flags)
    }

    /// Returns its path in the file.
    pub(super) fn path(self) -> String {
        format!("{}/{}", if self.is_data() { "Data" } else { "Header" }, self.name())
    }

    /// Returns its number of axes, the row axis included.
    pub(super) fn rank(self) -> usize {
        match self {
            Self::Uvw => 2,
            _ if self.is_data() => 3,
            _ => 1,
        }
    }

    pub(super) fn element(self) -> Element {
        match self {
            Self::Antenna1 | Self::Antenna2 | Self::PhaseCentre => Element::I32,
            Self::Visibilities => Element::Complex,
            Self::Samples => Element::F32,
            Self::Flags => Element::Bool,
            _ => Element::F64,
        }
    }

    /// Returns the lengths of its axes after the row axis.
    pub(super) fn row_axes(self, header: &Header) -> Vec<u64> {
        match self {
            Self::Uvw => vec![3],
            _ if self.is_data() => vec![header.channels() as u64, header.pairs() as u64],
            _ => Vec::new(),
        }
    }

    /// Returns the bytes of one row.
    pub(super) fn row_bytes(self, header: &Header) -> u64 {
        self.row_axes(header).iter().product::<u64>() * self.element().bytes() as u64
    }
}

/// A baseline as stored: the antenna with the lower number first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) antenna_1: usize,
    pub(super) antenna_2: usize,
    pub(super) number_1: i32,
    pub(super) number_2: i32,
    /// Indices of the pairs of `V_ij` in the file's order XX, YY, XY, YX.
    pairs: [usize; 4],
    conjugate: bool,
}

impl Row {
    /// Maps baseline (i, j) of checked antennas to its row.
    ///
    /// The file stores `<conj(x_1) x_2>`. With j first that is `V_ij`, and its XY is `conj(X_j) Y_i`: our YX. With i
    /// first it is the conjugate, and its XY is `conj(X_i) Y_j`: our XY.
    pub(super) fn new(antennas: &[Antenna], (i, j): (usize, usize)) -> Self {
        let conjugate = antennas[i].number < antennas[j].number;
        let (first, second) = if conjugate { (i, j) } else { (j, i) };
        let pairs = if conjugate { [0, 3, 1, 2] } else { [0, 3, 2, 1] };
        Self {
            antenna_1: first,
            antenna_2: second,
            // `Header::check` has bounded the numbers to 0 to 2^31 - 1.
            number_1: antennas[first].number as i32,
            number_2: antennas[second].number as i32,
            pairs,
            conjugate,
        }
    }

    /// Appends the means of one channel: the sums of all pairs divided by the count of valid samples.
    pub(super) fn visibilities(&self, sums: &[Complex<f64>], count: u64, bytes: &mut Vec<u8>) {
        let scale = if count == 0 { 0.0 } else { 1.0 / count as f64 };
        let is_power = self.antenna_1 == self.antenna_2;
        for (place, pair) in self.pairs.iter().take(sums.len()).enumerate() {
            // Scaling by 0 would not turn an infinite sum into 0.
            let sum = if count == 0 { Complex::default() } else { sums[*pair] };
            let mean = if self.conjugate { sum.conj() } else { sum } * scale;
            // The two parallel pairs of an autocorrelation are powers: drop the imaginary rounding residue.
            let imaginary = if is_power && place < 2 { 0.0 } else { mean.im };
            bytes.extend_from_slice(&(mean.re as f32).to_le_bytes());
            bytes.extend_from_slice(&(imaginary as f32).to_le_bytes());
        }
    }
}
