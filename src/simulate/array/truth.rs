//! What was put into an array's voltages.

/// Everything that a correlator could find.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayTruth {
    /// Mean of |x|^2 of each antenna in each polarization, as stored, in counts^2; 0 of a dead one.
    pub autocorrelations: Vec<Vec<f64>>,
    /// The sources, in the order in which the options gave them.
    pub sources: Vec<SourceTruth>,
}

/// A source, as the array receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTruth {
    /// Altitude above the array's horizon in the recording's middle, in degrees; not known where delays
    /// were given instead of a sky.
    pub altitude_deg: Option<f64>,
    /// Azimuth at that time, from north through east, in degrees.
    pub azimuth_deg: Option<f64>,
    /// Whether it is above the horizon then: otherwise nothing of it is received.
    pub received: bool,
    /// Delay at each antenna at the first sample's start, its cable's with it, in seconds: positive where
    /// the wave arrives later than at the array's reference point.
    pub delays_s: Vec<f64>,
    /// What it gives in each antenna and polarization, in counts: the mean of x_i conj(x_j) of two
    /// antennas is the product of theirs in counts^2, after the delay is taken out. In few bits this holds
    /// for correlations that are small.
    pub amplitudes: Vec<Vec<f64>>,
}
