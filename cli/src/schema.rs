//! `sidereal schema`: prints the JSON Schema of the documents that verbs write.

use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use sidereal::Result;

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
use crate::page;
use crate::provenance::Product;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::{alerts, live, ring, send};
use crate::{
    bench, channelize, convert, correlate, dedisperse, demo, info, jobs, json, plan, replot,
    search, simulate, spiir,
};

/// Name of a document, and function that makes its schema.
type Entry = (&'static str, fn() -> Schema);

/// Every document in or beside a product, or printed with --json.
const DOCUMENTS: &[Entry] = &[
    ("search", of::<search::Summary>),
    ("search-beams", of::<search::BeamsDocument>),
    ("dedisperse", of::<dedisperse::Document<'static>>),
    ("replot", of::<replot::Document>),
    ("channelize", of::<channelize::Document>),
    ("correlate", of::<correlate::Document>),
    ("simulate-array", of::<simulate::array::Document>),
    ("simulate-burst", of::<simulate::burst::Document>),
    ("simulate-strain", of::<simulate::strain::Document>),
    ("simulate-voltages", of::<simulate::voltages::Document>),
    ("spiir-bank", of::<spiir::BankDocument>),
    ("spiir-filter", of::<spiir::FilterDocument>),
    ("spiir-search", of::<spiir::SearchDocument>),
    ("convert", of::<convert::Document>),
    ("info", of::<info::Examined>),
    ("plan", of::<plan::Document>),
    ("plan-jobs", of::<jobs::PlanDocument>),
    ("task", line::<jobs::Task>),
    ("task-failure", line::<jobs::Failure>),
    ("task-status", of::<jobs::StatusDocument>),
    ("merge", of::<jobs::MergeDocument>),
    ("demo", of::<demo::Document<'static>>),
    ("bench", of::<sidereal_bench::Line>),
    ("bench-table", of::<bench::TableDocument>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-record", of::<live::RecordDocument>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-candidate", line::<search::CandidateLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
    ("live-status", of::<page::Status>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
    ("live-candidates", of::<page::Candidates>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
    ("live-label", line::<page::LabelLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-dump", of::<search::DumpLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-trigger", of::<alerts::TriggerLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-event", of::<alerts::Event>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-spiir", of::<spiir::LiveDocument>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-spiir-event", line::<spiir::EventLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-spiir-alert", line::<spiir::Alert>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("live-spiir-gap", line::<spiir::GapLine>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("ring", of::<ring::Document>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("ring-destroy", of::<ring::DestroyDocument>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("ring-repair", of::<ring::RepairDocument>),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ("send", of::<send::Document>),
];

/// Print the JSON Schema of a document; without a name, list the names.
///
/// Covers the documents written beside products or printed with --json. `info` of several files and `bench` print an
/// array of such documents.
///
/// The key `schema` of each document has its name and version: sidereal/search/1. Lines of lists have no such key (live-candidate,
/// live-label, live-spiir-event, live-spiir-alert, live-spiir-gap). The version rises when a key is
/// removed or changes its meaning; keys may be added at any time.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  sidereal schema\n  sidereal schema search > search.schema.json"
)]
pub(crate) struct Arguments {
    /// Name of the document, as in its key `schema`.
    #[arg(value_name = "NAME", value_parser = names())]
    name: Option<String>,
}

fn names() -> Vec<&'static str> {
    DOCUMENTS.iter().map(|(name, _)| *name).collect()
}

fn of<T: JsonSchema>() -> Schema {
    line::<Product<T>>()
}

/// Makes the schema of a document that has neither a name nor a provenance: a line of a list.
fn line<T: JsonSchema>() -> Schema {
    // Schema of serialized documents: keys that may be absent are not required.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.name {
        None => json::say(&names().join("\n")),
        Some(asked) => {
            let found = DOCUMENTS.iter().find(|(name, _)| name == asked);
            found.map_or(Ok(()), |(_, schema)| json::print(&schema()))
        }
    }
}
