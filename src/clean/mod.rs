//! Cleaning.
