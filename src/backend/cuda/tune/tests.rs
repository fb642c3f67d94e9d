use super::*;

fn key() -> TuningKey {
    TuningKey {
        kernel: "tile.cu".to_owned(),
        kernel_hash: 7 << 100,
        device: "NVIDIA H200".to_owned(),
        driver: "13000 580.95".to_owned(),
        shape: "channels=1024 trials=3050".to_owned(),
    }
}

fn candidates() -> Vec<Choice> {
    [[64, 3], [128, 2]]
        .map(|values| Choice { name: format!("{values:?}"), values: values.to_vec() })
        .to_vec()
}

fn kept() -> (tempfile::TempDir, Folder) {
    let place = tempfile::tempdir().expect("a folder");
    let folder = Folder::open(place.path()).expect("it is ours");
    write_choice(Some(&folder), &key(), &candidates()[1], 1.25e-3).expect("room");
    (place, folder)
}

#[test]
fn a_choice_is_found_again() {
    let (_place, folder) = kept();
    let found = found(Some(&folder), &key(), &candidates()).expect("fresh");
    assert_eq!(found, Some(candidates()[1].clone()));
}

#[test]
fn what_was_never_measured_is_no_fault() {
    let (_place, folder) = kept();
    let other = TuningKey { shape: "channels=512".to_owned(), ..key() };
    assert_eq!(found(Some(&folder), &other, &candidates()), Ok(None));
    assert_eq!(found(None, &key(), &candidates()), Ok(None));
}

#[test]
fn a_stale_choice_is_not_used_and_says_why() {
    let (_place, folder) = kept();
    let why = |key: &TuningKey, candidates: &[Choice]| {
        found(Some(&folder), key, candidates).expect_err("stale")
    };
    let kernel = why(&TuningKey { kernel_hash: 8, ..key() }, &candidates());
    assert!(kernel.contains("version of the kernel"), "{kernel}");
    let driver = why(&TuningKey { driver: "13010".to_owned(), ..key() }, &candidates());
    assert!(driver.contains("another driver"), "{driver}");
    let choices = why(&key(), &candidates()[..1]);
    assert!(choices.contains("set of choices"), "{choices}");
}

#[test]
fn a_damaged_file_is_not_used() {
    let (_place, folder) = kept();
    let path = folder.path(&key().file());
    let whole = std::fs::read(&path).expect("it was kept");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        for damaged in [&bytes[..], &whole[..at]] {
            std::fs::write(&path, damaged).expect("room");
            let found = found(Some(&folder), &key(), &candidates());
            assert!(!matches!(found, Ok(Some(_))), "byte {at}: {found:?}");
        }
    }
}

#[test]
fn a_folder_that_can_not_be_had_is_an_error_of_storing() {
    let error = write_choice(None, &key(), &candidates()[0], 1.0).expect_err("no folder");
    assert!(error.to_string().contains("SIDEREAL_CACHE_DIR"), "{error}");
}

#[test]
fn a_file_holds_what_was_stored() {
    let stored = Stored { key: key(), values: vec![], seconds: 3e-5 };
    assert_eq!(Stored::parse(&stored.text()), Some(stored));
}

#[test]
fn the_best_has_the_shortest_median() {
    let measured = |index: usize, seconds: std::result::Result<(f64, f64), &str>| Measured {
        choice: candidates()[index].clone(),
        seconds: seconds.map_err(str::to_owned),
    };
    let all =
        vec![measured(0, Ok((1.0, 3.0))), measured(1, Ok((1.5, 2.0))), measured(0, Err("no"))];
    let tuned = Tuned { key: key(), measured: all };
    assert_eq!(tuned.best(), Some((&candidates()[1], 1.5)));
    let none = Tuned { key: key(), measured: vec![measured(0, Err("no"))] };
    assert_eq!(none.best(), None);
    assert!(store(&none).is_err());
}
