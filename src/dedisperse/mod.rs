//! Dedispersion: dispersed channels into one time series for each trial dispersion measure.

pub mod dm_plan;
