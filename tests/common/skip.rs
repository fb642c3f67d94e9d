//! Skips a test with a message, or fails it if skipping is forbidden.

/// Reports on the standard error that a test cannot run here, and why.
///
/// # Panics
/// If the environment variable `SIDEREAL_REQUIRE`, a comma-separated list, names `what`.
pub(crate) fn skip(what: &str, why: &str) {
    let required = std::env::var("SIDEREAL_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|word| word == what),
        "SIDEREAL_REQUIRE asks for {what}, but {why}"
    );
    eprintln!("skipped: {why}");
}
