//! LIGO_LW: the XML of tables and series in which gravitational-wave events and template banks are kept.
//!
//! Read are tables, of new files (`int_8s` ids) and of old ones (`ilwd:char` ids), gzipped or not.
//!
//! # Source
//! The LIGO Light-Weight XML format (LIGO-T990023) as igwn-ligolw 2.1.1 reads and writes it.

mod cells;
mod read;
mod table;
mod xml;

pub use read::read_table;
pub use table::{Column, Table, Values};
pub use xml::{MAX_XML_BYTES, is_ligolw};
