//! The command line as a user meets it: help, options, documents, provenance, logs.

mod cli;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod help;
mod options;
mod provenance;
mod service;
mod walkthrough;
