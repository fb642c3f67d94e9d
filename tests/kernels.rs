//! Every kernel is in the table that is compiled without a GPU.

use std::collections::BTreeSet;
use std::path::Path;

use sidereal::backend::cuda::{Extent, Variant};
use sidereal::pipeline::kernel_table;

/// Limit of the number of cubins that `./check` compiles.
const MOST_CUBINS: usize = 240;

/// The names of files below `folder` that end with `end`.
fn names(folder: &Path, end: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(names(&path, end));
        } else if name.ends_with(end) {
            found.insert(name);
        }
    }
    found
}

#[test]
fn every_kernel_file_stands_in_the_table() {
    let files = names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), ".cu");
    assert!(!files.is_empty());
    for extent in [Extent::Representative, Extent::All] {
        let mut table = kernel_table(extent);
        let include = |variant: &Variant| variant.source.includes.iter().map(|file| file.0);
        let named: BTreeSet<String> = table
            .iter_mut()
            .flat_map(|(_, variant)| std::iter::once(variant.source.name).chain(include(variant)))
            .map(|name| name.rsplit('/').next().unwrap_or(name).to_owned())
            .collect();
        let missing: Vec<&String> = files.difference(&named).collect();
        assert!(missing.is_empty(), "{missing:?} are not compiled by the check of {extent:?}");
    }
}

#[test]
fn the_table_is_short_enough_for_every_check() {
    let cubins: usize = kernel_table(Extent::Representative)
        .iter()
        .map(|(_, variant)| variant.architectures.len())
        .sum();
    assert!((1..=MOST_CUBINS).contains(&cubins), "{cubins} cubins");
}

#[test]
fn no_variant_is_compiled_twice() {
    for extent in [Extent::Representative, Extent::All] {
        let table = kernel_table(extent);
        for (index, (room, variant)) in table.iter().enumerate() {
            let is_new = table[..index].iter().all(|other| other.1.source != variant.source);
            assert!(is_new, "{room}: {:?}", variant.source.defines);
        }
    }
}
