//! Searches for compact binaries: banks, whitening, triggers, coincidence.

mod bank;
mod coincidence;
mod resumed;
mod science;
mod science_events;
mod science_noise;
mod search;
mod support;
mod template_bank;
mod triggers;
mod whiten;
