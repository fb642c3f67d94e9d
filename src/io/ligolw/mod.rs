//! LIGO_LW: XML tables and series of gravitational-wave events and template banks.
//!
//! The reader supports tables of new files (`int_8s` ids) and old ones (`ilwd:char` ids), gzipped or not. The writer
//! stores events with all data needed for sky localization: [`write_events`].
//!
//! # Source
//! The LIGO Light-Weight XML format (LIGO-T990023) as igwn-ligolw 2.1.1 reads and writes it; ligo.skymap 2.5.4 for
//! the requirements of localization.

mod cells;
mod columns;
mod events;
mod read;
mod series;
mod sink;
mod table;
mod write;
mod xml;

pub use events::{DetectorRow, EventRow, EventsFile, PsdRow, SnrSeries, TemplateRow};
pub use read::read_table;
pub use table::{Column, Table, Values};
pub use write::write_events;
pub use xml::{MAX_XML_BYTES, is_ligolw};
