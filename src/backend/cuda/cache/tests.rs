use super::*;

const SOURCE: Source =
    Source { name: "a.cu", text: "a", includes: &[("b.cuh", "b")], defines: vec![] };

fn code(bytes: &[u8]) -> impl FnOnce() -> Result<Vec<u8>> {
    || Ok(bytes.to_vec())
}

fn never() -> Result<Vec<u8>> {
    panic!("compiled though it is there")
}

#[test]
fn a_kernel_is_compiled_once_a_process_and_once_a_folder() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(Some(place.path()), MOST_BYTES);
    let first = cache.get(7, code(b"machine")).expect("made");
    assert!(!first.is_stored);
    assert!(Arc::ptr_eq(&first.code, &cache.get(7, never).expect("kept").code));
    assert_eq!(*cache.get(8, code(b"other")).expect("made").code, b"other");
    let next = Cache::new(Some(place.path()), MOST_BYTES).get(7, never).expect("on disk");
    assert!(next.is_stored && *next.code == b"machine");
}

#[test]
fn threads_that_want_the_same_kernel_wait_for_one() {
    let cache = Cache::new(None, MOST_BYTES);
    let count = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let make = || {
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Ok(vec![1])
                };
                cache.get(1, make).expect("made")
            });
        }
    });
    assert_eq!(count.into_inner(), 1);
}

#[test]
fn a_damaged_entry_is_compiled_again() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join(name(7));
    let fresh = || Cache::new(Some(place.path()), MOST_BYTES);
    fresh().get(7, code(b"machine")).expect("made");
    let whole = std::fs::read(&path).expect("stored");
    assert_eq!(whole.len(), HEADER_BYTES + 7);
    let mut damaged: Vec<Vec<u8>> = (0..whole.len())
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        })
        .collect();
    damaged.extend((0..whole.len()).map(|length| whole[..length].to_vec()));
    damaged.push([whole.as_slice(), &[0]].concat());
    damaged.push(encode(8, b"another's"));
    for bytes in damaged {
        std::fs::write(&path, &bytes).expect("room");
        let cubin = fresh().get(7, code(b"again")).expect("made");
        assert!(!cubin.is_stored && *cubin.code == b"again", "{bytes:?}");
        assert_eq!(std::fs::read(&path).expect("stored"), encode(7, b"again"));
    }
}

#[test]
fn an_entry_that_the_driver_refuses_is_compiled_again_once() {
    let place = tempfile::tempdir().expect("a folder");
    Cache::new(Some(place.path()), MOST_BYTES).get(7, code(b"wrong")).expect("made");
    let cache = Cache::new(Some(place.path()), MOST_BYTES);
    assert!(cache.get(7, never).expect("stored").is_stored);
    assert_eq!(*cache.make(7, code(b"right")).expect("made").code, b"right");
    assert_eq!(*cache.make(7, never).expect("made here").code, b"right");
    assert_eq!(*cache.get(7, never).expect("made here").code, b"right");
}

#[test]
fn without_a_folder_kernels_are_compiled_all_the_same() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("room");
    let gone = place.path().join("gone");
    let removed = Cache::new(Some(&gone), MOST_BYTES);
    std::fs::remove_dir(&gone).expect("it was made");
    // Even root cannot write to /proc.
    for cache in [
        Cache::new(None, 1),
        Cache::new(Some(&file), 1),
        Cache::new(Some(Path::new("/proc")), 1),
        removed,
    ] {
        assert_eq!(*cache.get(7, code(b"machine")).expect("made").code, b"machine");
    }
}

#[test]
fn a_failed_compilation_is_an_error_and_leaves_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(Some(place.path()), MOST_BYTES);
    let refused = || Err(Error::Unavailable { what: String::new(), why: String::new() });
    assert!(cache.get(7, refused).is_err());
    assert_eq!(std::fs::read_dir(place.path()).expect("it is there").count(), 0);
    assert_eq!(*cache.get(7, code(b"now")).expect("made").code, b"now");
}

#[test]
fn the_folder_keeps_to_its_size() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(Some(place.path()), 1000);
    for key in 0..20 {
        cache.get(key, code(&[0; 200])).expect("made");
    }
    let bytes: u64 = std::fs::read_dir(place.path())
        .expect("it is there")
        .map(|entry| entry.and_then(|entry| entry.metadata()).expect("it is there").len())
        .sum();
    assert!((1..=1000).contains(&bytes), "{bytes}");
}

#[test]
fn the_key_holds_all_that_decides_the_code() {
    let base = key(&SOURCE, "sm_90a", (13, 0));
    let changed = [
        key(&Source { text: "b", ..SOURCE }, "sm_90a", (13, 0)),
        key(&Source { name: "b.cu", ..SOURCE }, "sm_90a", (13, 0)),
        key(&Source { includes: &[("b.cuh", "c")], ..SOURCE }, "sm_90a", (13, 0)),
        key(&Source { includes: &[], ..SOURCE }, "sm_90a", (13, 0)),
        key(&Source { defines: vec![("A", "1".to_owned())], ..SOURCE }, "sm_90a", (13, 0)),
        key(&SOURCE, "sm_90", (13, 0)),
        key(&SOURCE, "sm_90a", (13, 1)),
    ];
    for (index, other) in changed.iter().enumerate() {
        assert_ne!(base, *other, "{index}");
    }
    assert_eq!(base, key(&SOURCE.clone(), "sm_90a", (13, 0)));
}

#[test]
fn without_its_compiler_a_kernel_is_found_again_or_told_to_be_missing() {
    let place = tempfile::tempdir().expect("a folder");
    let fresh = || Cache::new(Some(place.path()), MOST_BYTES);
    let gone = || Error::Unavailable { what: "compiling".to_owned(), why: "it is gone".to_owned() };
    let find = |source: &Source| fresh().without_compiler(source, "sm_90a", gone());
    assert!(find(&SOURCE).is_err() && fresh().compiler().is_none());
    fresh().get(key(&SOURCE, "sm_90a", (13, 0)), code(b"machine")).expect("made");
    let compiler = Compiler { version: (13, 0), known: vec![80, 90] };
    fresh().remember(&compiler);
    assert_eq!(fresh().compiler(), Some(compiler));
    assert_eq!(*find(&SOURCE).expect("kept").code, b"machine");
    let error = find(&Source { name: "b.cu", ..SOURCE }).expect_err("never made").to_string();
    assert!(error.contains("it is gone") && error.contains("b.cu"), "{error}");
    for damaged in ["", "13", "13.x", "-1.0"] {
        std::fs::write(place.path().join(COMPILER), damaged).expect("room");
        assert!(fresh().compiler().is_none() && find(&SOURCE).is_err(), "{damaged}");
    }
}

#[test]
fn known_hashes() {
    let hash = |text: &str| Hash::new().bytes(text.as_bytes()).value();
    assert_eq!(hash(""), START);
    assert_eq!(hash("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    assert_eq!(hash("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
}

#[test]
fn texts_do_not_run_into_each_other() {
    assert_ne!(Hash::new().text("ab").text("c"), Hash::new().text("a").text("bc"));
}
