//! Input and output formats: valid, truncated and damaged files, and files of other programs.

mod dada;
mod damaged;
mod fbh5;
mod filterbanks;
mod fits_hdf5;
mod guppi;
mod gwf;
mod mark5b;
mod strain;
mod support;
mod templates;
mod time_jumps;
mod uvh5;
mod vdif;
mod vdif_written;
