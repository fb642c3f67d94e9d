//! All fuzz targets in one program; `SIDEREAL_FUZZ_TARGET` names the one that runs.
#![no_main]

use std::sync::OnceLock;

use bodies::{Body, TARGETS};

static BODY: OnceLock<Body> = OnceLock::new();

fn chosen() -> Body {
    let name = std::env::var("SIDEREAL_FUZZ_TARGET").unwrap_or_default();
    let Some((_, body)) = TARGETS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("SIDEREAL_FUZZ_TARGET is {name:?}, expected one of {}", names.join(" "));
        std::process::exit(2);
    };
    *body
}

libfuzzer_sys::fuzz_target!(
    init: {
        BODY.get_or_init(chosen);
    },
    |bytes: &[u8]| {
        let _ = BODY.get_or_init(chosen)(bytes);
    }
);
