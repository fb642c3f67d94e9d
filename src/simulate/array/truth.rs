//! Ground truth of an array simulation.

/// Quantities that a correlator can measure.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayTruth {
    /// Mean of |x|^2 of each antenna in each polarization, as stored, in counts^2; 0 for a dead antenna.
    pub autocorrelations: Vec<Vec<f64>>,
    /// Sources, in the order of the options.
    pub sources: Vec<SourceTruth>,
}

/// Source as received by the array.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTruth {
    /// Altitude above the array's horizon in the middle of the recording, in degrees; `None` if the caller gave the
    /// delays.
    pub altitude_deg: Option<f64>,
    /// Azimuth at that time, from north through east, in degrees.
    pub azimuth_deg: Option<f64>,
    /// Whether it is above the horizon at that time; otherwise it is not received.
    pub received: bool,
    /// Delay at each antenna at the start of the first sample, including its cable, in seconds: positive if the wave
    /// arrives later than at the array's reference point.
    pub delays_s: Vec<f64>,
    /// Amplitude in each antenna and polarization, in counts. After removal of the delay, the mean of x_i conj(x_j)
    /// of two antennas is the product of their amplitudes in counts^2; with few bits this holds for small
    /// correlations.
    pub amplitudes: Vec<Vec<f64>>,
}
