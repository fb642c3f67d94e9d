//! `ring`: makes, shows, repairs and removes rings.

use std::time::Duration;

use sidereal::live::ring::{Key, Reader, Writer};

use crate::common::{done, fails, json, sidereal};

/// A key that no other process's tests have, `at` apart.
pub(crate) fn key(at: u32) -> Key {
    Key::new(0x6d0a_0002 + (std::process::id() % 0x7ff) * 32 + 2 * at).unwrap()
}

#[test]
fn a_ring_is_made_shown_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let (folder, key) = (home.path(), key(0));
    let words = format!("ring create -k {key} -n 3 -b 2KiB -r 2 -a 8192 --header-blocks 5");
    let text = done(folder, &words);
    assert!(text.contains("3 blocks of 2048 bytes") && text.contains("reader 1"), "{text}");
    fails(&sidereal(folder, &words), 2, &["--key", "exists"]);
    let limit = Duration::from_secs(10);
    let mut writer = Writer::attach(key, limit).unwrap();
    let reader = Reader::attach(key, limit).unwrap();
    assert!(writer.begin(b"HDR_SIZE 8192\n", limit).unwrap());
    assert_eq!(writer.write(&[0; 5000], limit).unwrap(), 5000);
    let found = json(folder, &format!("ring show -k {key}"));
    assert_eq!(found["schema"], "sidereal/ring/1");
    assert_eq!(found["key"], key.to_string());
    let (headers, data) = (&found["headers"], &found["data"]);
    assert_eq!((&headers["blocks"], &headers["block_bytes"]), (&5.into(), &8192.into()));
    assert_eq!((&data["blocks"], &data["block_bytes"]), (&3.into(), &2048.into()));
    let own = u64::from(std::process::id());
    assert_eq!(data["writer"]["process"], own);
    assert_eq!(
        (&data["writer"]["blocks"], &data["writer"]["in_transfer"]),
        (&2.into(), &true.into())
    );
    assert_eq!(
        (&data["readers"][0]["process"], &data["readers"][0]["full"]),
        (&own.into(), &2.into())
    );
    assert_eq!(data["readers"][1]["attached"], false);
    assert_eq!(data["processes"], 2);
    let text = done(folder, &format!("ring show -k {key}"));
    assert!(
        text.contains(&format!("process {own}; in a transfer, 0 transfers and 2 blocks")),
        "{text}"
    );
    fails(
        &sidereal(folder, &format!("ring destroy -k {key}")),
        1,
        &[&format!("process {own}"), "--force"],
    );
    drop((writer, reader));
    assert_eq!(done(folder, &format!("ring repair -k {key}")), "nothing to repair\n");
    assert_eq!(json(folder, &format!("ring destroy -k {key}"))["key"], key.to_string());
    for verb in ["show", "destroy", "repair"] {
        fails(
            &sidereal(folder, &format!("ring {verb} -k {key}")),
            1,
            &[&key.to_string(), "create the ring"],
        );
    }
}

#[test]
fn what_waits_for_nobody_is_discarded() {
    let home = tempfile::tempdir().unwrap();
    let (folder, key) = (home.path(), key(1));
    done(folder, &format!("ring create -k {key} -n 4 -b 100 -q"));
    let limit = Duration::from_secs(10);
    let mut writer = Writer::attach(key, limit).unwrap();
    assert!(writer.begin(b"HDR_SIZE 4096\n", limit).unwrap());
    assert_eq!(writer.write(&[0; 250], limit).unwrap(), 250);
    assert!(writer.end(limit).unwrap());
    let found = json(folder, &format!("ring repair -k {key} --discard"));
    assert_eq!(found["schema"], "sidereal/ring-repair/1");
    assert_eq!((&found["discarded_bytes"], &found["blocks_put_back"]), (&250.into(), &0.into()));
    drop(writer);
    done(folder, &format!("ring destroy -k {key} --force"));
}

#[test]
fn wrong_sizes_and_keys_are_wrong_use() {
    let home = tempfile::tempdir().unwrap();
    for (words, expected) in [
        ("create -k xyz", "hexadecimal"),
        ("create -k 10000", "0000"),
        ("create -k 6d0b0002 -n 0", "--blocks is 0"),
        ("create -k 6d0b0002 -r 9", "--readers is 9"),
        ("create -k 6d0b0002 -b 0", "--block-bytes"),
    ] {
        fails(&sidereal(home.path(), &format!("ring {words}")), 2, &[expected]);
    }
}
