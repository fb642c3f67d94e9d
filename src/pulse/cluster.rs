//! Events to candidates.
