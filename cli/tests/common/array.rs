//! Simulated recordings of an array.

use tempfile::TempDir;

use super::done;

/// Position of the source of [`array`].
pub(crate) const SOURCE: &str = "140,-20";

/// A folder with `array/`: four antennas, 0.25 s of 1 MHz at 150 MHz that see a strong source, as `more`
/// says.
pub(crate) fn array(more: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let words = format!(
        "simulate array -o array -q --layout 4,300 --source {SOURCE},200,Spot --sefd 100 --freq 150 \
         --bandwidth 1 --seconds 0.25 --start 2025-01-01T00:00:00 --seed 5 {more}"
    );
    done(home.path(), &words);
    home
}

/// The recordings of antennas, by their names' numbers.
pub(crate) fn files(antennas: &[&str]) -> String {
    antennas.iter().map(|name| format!("array/{name}.dada ")).collect()
}
