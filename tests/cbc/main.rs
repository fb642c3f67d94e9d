//! Searches for compact binaries: banks, whitening, triggers, coincidence.

#[path = "../common/binaries.rs"]
mod binaries;
#[path = "../common/cbc.rs"]
mod chirps;
#[path = "../common/coincident.rs"]
mod coincident;
#[allow(dead_code)]
#[path = "../common/coloured.rs"]
mod coloured;
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/ranks.rs"]
mod connected;
#[path = "../common/random.rs"]
mod random;
#[allow(dead_code)]
#[path = "../common/whitened.rs"]
mod whitened;

mod background;
mod bank;
mod coincidence;
mod ranks;
mod resumed;
mod science;
mod science_events;
mod science_noise;
mod search;
mod template_bank;
mod triggers;
mod whiten;
