//! Input and output formats: valid, truncated and damaged files, and files of other programs.

mod cut_inputs;
mod dada;
mod dada_spoilt;
mod dada_written;
mod fbh5;
mod filterbanks;
mod fits_hdf5;
mod guppi;
mod guppi_spoilt;
mod guppi_written;
mod gwf;
mod mark5b;
mod odd_inputs;
mod strain;
mod support;
mod templates;
mod time_jumps;
mod uvh5;
mod vdif;
mod vdif_spoilt;
