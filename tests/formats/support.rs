//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../common/mod.rs"]
pub(crate) mod common;
#[path = "../common/dada.rs"]
pub(crate) mod dada;
#[path = "../common/filterbank_rows.rs"]
pub(crate) mod filterbank_rows;
#[path = "../common/fits.rs"]
pub(crate) mod fits;
#[path = "../common/guppi.rs"]
pub(crate) mod guppi;
#[path = "../common/random.rs"]
pub(crate) mod random;
#[path = "../common/streams.rs"]
pub(crate) mod streams;
#[path = "../common/vdif_files.rs"]
pub(crate) mod vdif_files;
#[path = "../common/vlbi.rs"]
pub(crate) mod vlbi;
#[path = "../common/voltages.rs"]
pub(crate) mod voltages;
#[path = "../common/written.rs"]
pub(crate) mod written;
