//! Searches of several beams or antennas: events over the beams (`--beams`, `--antennas`), and their incoherent sum (`--sum`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{
    code, document, done, entries, fails, json, recording, sidereal, skip, stderr,
};

/// Makes beam `number`: an own seed, a pulse that all beams have, and `own` pulses.
fn simulate(home: &Path, number: usize, own: &str) {
    let words = format!(
        "simulate burst b{number}.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4 --seed {number} \
         --position 12:{number:02}:00,+00:00:00 --burst dm=60,time=1,width=0.004,snr=25 {own}"
    );
    done(home, &words);
}

/// Five beams: a pulse in all of them; one in beams 1 and 2 and, at nearly the same time, one of another DM in beam 3.
fn beams() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    simulate(path, 0, "");
    simulate(path, 1, "--burst dm=150,time=2.5,width=0.004,snr=20");
    simulate(path, 2, "--burst dm=150,time=2.5,width=0.004,snr=14");
    simulate(path, 3, "--burst dm=300,time=2.51,width=0.004,snr=17");
    simulate(path, 4, "");
    begin_later(&path.join("b2.fil"), 37);
    home
}

/// Removes the first rows of a recording, and states the later start.
fn begin_later(path: &Path, rows: usize) {
    let whole = fs::read(path).unwrap();
    let after = |key: &str| {
        let found = whole.windows(key.len()).position(|word| word == key.as_bytes());
        found.unwrap() + key.len()
    };
    let (start, data) = (after("tstart"), after("HEADER_END"));
    let mjd = f64::from_le_bytes(whole[start..start + 8].try_into().unwrap());
    let mut bytes = whole[..data].to_vec();
    let later = mjd + rows as f64 * 1e-3 / 86_400.0;
    bytes[start..start + 8].copy_from_slice(&later.to_le_bytes());
    bytes.extend(&whole[data + 64 * rows..]);
    fs::write(path, bytes).unwrap();
}

const OPTIONS: &str = "--dm-max 400 --snr 8 --no-plots --reproducible";

/// Returns the events' origins and beams, best first, and checks their DM and time.
fn events(document: &Value, expected: &[(&str, &[u64], f64, f64)]) {
    let events = document["events"].as_array().unwrap();
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for (event, (origin, beams, dm, time_s)) in events.iter().zip(expected) {
        let number = |key: &str| event[key].as_f64().unwrap();
        let detections = event["detections"].as_array().unwrap().iter();
        let mut found: Vec<u64> = detections.map(|one| one["beam"].as_u64().unwrap()).collect();
        found.sort_unstable();
        assert_eq!((event["origin"].as_str().unwrap(), &*found), (*origin, *beams), "{event}");
        assert_eq!(number("in_beams") as usize, beams.len());
        let is_near = (number("dm") - dm).abs() < 5.0 && (number("time_s") - time_s).abs() < 6e-3;
        assert!(is_near, "{event}");
    }
}

#[test]
fn interference_is_in_many_beams_and_a_source_in_few() {
    let home = beams();
    let path = home.path();
    let words = format!("search b0.fil b1.fil b2.fil b3.fil b4.fil --beams {OPTIONS}");
    let told = json(path, &format!("{words} -o found"));
    let expected: [(&str, &[u64], f64, f64); 3] = [
        ("interference", &[0, 1, 2, 3, 4], 60.0, 1.0),
        ("source", &[1, 2], 150.0, 2.5),
        ("source", &[3], 300.0, 2.51),
    ];
    events(&told, &expected);
    assert_eq!(told, document(path, "found/summary.json"));
    assert_eq!(
        (&told["schema"], &told["max_beams"]),
        (&"sidereal/search-beams/1".into(), &2.into())
    );
    let names = ["b0_search", "b1_search", "b2_search", "b3_search", "b4_search"];
    let files = ["events.csv", "summary.json"];
    assert_eq!(
        entries(&path.join("found")),
        [&names[..], &files].concat().into_iter().map(String::from).collect()
    );

    // A beam has the candidates and the document of a search of it alone, and the line that the event names.
    done(path, &format!("search b2.fil -o alone {OPTIONS} -q"));
    for name in entries(&path.join("alone")) {
        let read = |folder: &str| fs::read_to_string(path.join(folder).join(&name)).unwrap();
        assert_eq!(read("alone"), read("found/b2_search"), "{name}");
    }
    let event = &told["events"][1];
    let detection = event["detections"].as_array().unwrap().iter().find(|one| one["beam"] == 2);
    let line = detection.unwrap()["candidate"].as_u64().unwrap() as usize;
    let candidate = &document(path, "alone/summary.json")["candidates"][line - 1];
    assert_eq!(candidate["snr"], detection.unwrap()["snr"]);
    let later =
        detection.unwrap()["time_s"].as_f64().unwrap() - candidate["time_s"].as_f64().unwrap();
    assert!((later - 0.037).abs() < 1e-5, "{later}");

    // The list does not depend on the order of the beams, and the run can be made again.
    let list = |folder: &str| fs::read_to_string(path.join(folder).join("events.csv")).unwrap();
    done(path, &format!("search b3.fil b0.fil b4.fil b2.fil b1.fil --beams {OPTIONS} -q -o other"));
    assert_eq!(list("other"), list("found"));
    assert_eq!(list("found").lines().count(), 4);
    done(path, "rerun found -o again --reproducible -q");
    assert_eq!(list("again"), list("found"));
    done(path, &format!("{words} -q -o found --overwrite"));

    let kept = json(path, &format!("{words} -o kept --drop-interference"));
    events(&kept, &expected[1..]);
    assert_eq!(kept["dropped"], 1);
    let all = json(path, &format!("{words} -o all --max-beams 5"));
    assert_eq!(all["events"][0]["origin"], "source");
}

#[test]
fn adjacent_beams_are_those_within_a_distance() {
    let home = beams();
    let path = home.path();
    // The positions of neighbours are a quarter of a degree apart.
    for (distance, origin) in [(0.3, "source"), (0.2, "unclear")] {
        let words =
            format!("search b0.fil b1.fil b2.fil b3.fil b4.fil --beams --adjacent {distance}");
        let told = json(path, &format!("{words} {OPTIONS} -o near{distance}"));
        assert_eq!(told["events"][1]["origin"], origin, "{distance}");
    }
}

#[test]
fn the_report_shows_the_events_first() {
    let home = beams();
    let path = home.path();
    done(
        path,
        "search b1.fil b2.fil b3.fil --beams --dm-max 400 --snr 8 -o found --max-plots 1 -q",
    );
    let page = fs::read_to_string(path.join("found/report.html")).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("search beams <small>") < at("b1_search/summary.json"));
    assert!(page.contains("interference") && page.contains("beam snrs"));
    done(path, "report found -o again.html");
    let text =
        done(path, "search b1.fil b2.fil b3.fil --beams --dm-max 400 --snr 8 -o text --no-plots");
    assert!(text.contains("Searched 3 beams") && text.contains("interference"), "{text}");
}

#[test]
fn beams_that_cannot_be_joined_are_refused() {
    let home = recording();
    let path = home.path();
    let simulate = |name: &str, more: &str| {
        done(
            path,
            &format!("simulate burst {name} -q --duration 2 --fch1 1500 --channels 64 {more}"),
        );
    };
    simulate("fine.fil", "--foff -4 --tsamp 5e-4");
    simulate("moved.fil", "--foff -3 --tsamp 1e-3");
    fs::copy(path.join("a.fil"), path.join("c.fil")).unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    fs::copy(path.join("a.fil"), path.join("sub/a.fil")).unwrap();
    for (words, expected, told) in [
        ("search a.fil --beams", 2, &["INPUT", "two or more", "FBH5 has one beam"][..]),
        ("search - --beams", 2, &["--beams", "for files"]),
        ("search a.fil ./a.fil --beams", 2, &["a.fil twice", "--beams takes each file once"]),
        ("search a.fil - --antennas", 2, &["--antennas", "for files"]),
        ("search a.fil sub/a.fil --beams", 2, &["would both be written there"]),
        ("search a.fil fine.fil --beams", 3, &["fine.fil: sampling time", "as in a.fil"]),
        ("search a.fil moved.fil --beams", 3, &["moved.fil: frequency of channel", "as in a.fil"]),
        ("search a.fil - --beams --resume", 2, &["--beams", "for files"]),
        ("search a.fil c.fil --beams --max-beams 0", 2, &["--max-beams"]),
        ("search a.fil c.fil --beams --adjacent 0", 2, &["--adjacent"]),
        ("search a.fil c.fil --beams --snr 0", 2, &["--snr"]),
        ("search a.fil c.fil --beams --each", 2, &["--each"]),
        ("search a.fil c.fil --max-beams 2", 2, &["--beams"]),
        ("search a.fil --sum", 2, &["INPUT", "two or more"]),
        ("search a.fil a.fil --sum", 2, &["a.fil twice"]),
        ("search a.fil fine.fil --sum", 3, &["fine.fil: sampling time"]),
        ("dedisperse a.fil - --sum --dm-max 10", 2, &["--sum", "for files"]),
        ("search a.fil missing.fil --beams", 1, &["missing.fil"]),
        ("live search spead://127.0.0.1:1 --antennas", 2, &["--antennas", "for files"]),
        ("live search spead://127.0.0.1:1 --sum", 2, &["--sum", "for files"]),
    ] {
        fails(&sidereal(path, words), expected, told);
        assert!(!entries(path).iter().any(|name| name.ends_with("_beams")), "{words}");
    }
}

#[test]
fn beams_of_different_length_are_searched_to_their_ends() {
    let home = beams();
    let path = home.path();
    let whole = fs::read(path.join("b1.fil")).unwrap();
    fs::write(path.join("b1.fil"), &whole[..whole.len() - 1800 * 64]).unwrap();
    let words = format!("search b1.fil b2.fil b3.fil --beams {OPTIONS}");
    let told = json(path, &format!("{words} -o found"));
    // The pulse at 2.5 s is after the end of the first.
    let expected: [(&str, &[u64], f64, f64); 3] = [
        ("interference", &[0, 1, 2], 60.0, 1.0),
        ("source", &[2], 300.0, 2.51),
        ("source", &[1], 150.0, 2.5),
    ];
    events(&told, &expected);
    // The sum has what all have.
    let sum = json(path, &format!("search b1.fil b2.fil b3.fil --sum {OPTIONS} -o sum"));
    let observation = &sum["observation"];
    assert!(
        (observation["tstart_mjd"].as_f64().unwrap() - 60_000.0 - 0.037 / 86_400.0).abs() < 1e-10
    );
    let candidates = sum["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1, "{candidates:?}");
    assert!(candidates[0]["snr"].as_f64().unwrap() > 30.0, "{candidates:?}");
}

#[test]
fn a_damaged_beam_leaves_no_folder_half_written() {
    let home = beams();
    let path = home.path();
    fs::write(path.join("b3.fil"), &fs::read(path.join("b3.fil")).unwrap()[..60]).unwrap();
    let output = sidereal(path, &format!("search b1.fil b3.fil --beams {OPTIONS} -o found"));
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(!path.join("found").exists());
}

/// Adds `days` to the start that a recording states.
fn postpone(path: &Path, days: f64) {
    let mut bytes = fs::read(path).unwrap();
    let key = b"tstart";
    let at = bytes.windows(key.len()).position(|word| word == key).unwrap() + key.len();
    let mjd = f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) + days;
    bytes[at..at + 8].copy_from_slice(&mjd.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn merged_searches_of_one_time_have_the_events_of_a_search_of_beams() {
    let home = beams();
    let path = home.path();
    let files = "b0.fil b1.fil b2.fil b3.fil b4.fil";
    done(path, &format!("search {files} --beams {OPTIONS} -q -o together"));
    // Another observation of beam 0, half a day later, and of two beams with other channels at the time of the first.
    fs::copy(path.join("b0.fil"), path.join("later.fil")).unwrap();
    postpone(&path.join("later.fil"), 0.5);
    done(
        path,
        "simulate burst other.fil -q --fch1 1500 --foff -4 --channels 32 --tsamp 1e-3 --duration 4",
    );
    for name in ["b3", "b0", "later", "other", "b4", "b1", "b2"] {
        done(path, &format!("search {name}.fil {OPTIONS} -q"));
    }
    let order = |names: [&str; 7]| names.map(|name| format!("{name}_search")).join(" ");
    let searches = order(["b3", "b0", "later", "other", "b4", "b1", "b2"]);
    let merged = json(path, &format!("merge {searches} --beams --reproducible -o merged"));
    let observations = merged["observations"].as_array().unwrap();
    let files_of = |observation: &Value| -> Vec<String> {
        let beams = observation["beams"].as_array().unwrap().iter();
        beams.map(|beam| beam["file"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(files_of(&observations[0]), files.split(' ').collect::<Vec<_>>());
    assert_eq!(files_of(&observations[1]), ["other.fil"]);
    assert_eq!(files_of(&observations[2]), ["later.fil"]);
    assert_eq!(
        (&observations[0]["max_beams"], &observations[0]["inputs"]),
        (&2.into(), &"beams".into())
    );

    let list = |folder: &str| fs::read_to_string(path.join(folder).join("events.csv")).unwrap();
    let (together, apart) = (list("together"), list("merged"));
    assert!(apart.lines().next().unwrap().starts_with("observation,event,origin,"), "{apart}");
    let first = apart.lines().filter_map(|line| line.strip_prefix("0,"));
    assert_eq!(first.collect::<Vec<_>>(), together.lines().skip(1).collect::<Vec<_>>());
    let of_later = apart.lines().filter(|line| line.starts_with("2,")).count();
    assert_eq!(of_later, 1, "{apart}");
    let page = fs::read_to_string(path.join("merged/report.html")).unwrap();
    assert!(page.contains("<h3>events</h3>") && page.contains("interference"));

    // Neither the order of the searches nor their number changes the events of an observation.
    let other = order(["later", "b2", "b1", "b4", "other", "b0", "b3"]);
    done(path, &format!("merge {other} --beams -q -o again"));
    assert_eq!(list("again"), apart);
    let kept = json(path, &format!("merge {searches} --beams --drop-interference -o kept"));
    assert_eq!(kept["observations"][0]["dropped"], 1);
    assert_eq!(
        kept["events"].as_array().unwrap().len(),
        merged["events"].as_array().unwrap().len() - 1
    );
    let alike = json(path, &format!("merge {searches} --antennas -o alike"));
    assert_eq!(
        (&alike["events"][0]["origin"], &alike["observations"][0]["max_beams"]),
        (&"source".into(), &Value::Null)
    );
    let plain = json(path, &format!("merge {searches} -o plain"));
    assert!(plain.get("events").is_none() && !path.join("plain/events.csv").exists());

    postpone(&path.join("later.fil"), -60_000.5);
    done(path, &format!("search later.fil {OPTIONS} -q -o undated"));
    for (words, expected, parts) in [
        ("merge b0_search undated --beams", 3, &["undated/summary.json", "tstart_mjd"][..]),
        ("merge b0_search b1_search --max-beams 2", 2, &["--beams"]),
        ("merge b0_search b1_search --beams --antennas", 2, &["--antennas"]),
        ("merge b0_search b1_search --beams --max-beams 0", 2, &["it must be 1 or more"]),
        ("merge b0_search b1_search --beams --adjacent 400", 2, &["at most 180"]),
    ] {
        fails(&sidereal(path, &format!("{words} -o none")), expected, parts);
        assert!(!path.join("none").exists());
    }
}

#[test]
fn the_antennas_of_one_recording_are_searched_apart() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    done(
        path,
        "simulate voltages v.raw -q --freq 150 --bandwidth 1 --coarse-channels 4 --duration 1.5 --seed 3 --antennas 3 \
         --pulse dm=20,time=0.3,width=0.002,snr=40",
    );
    let options = "--channels 16 --integrate 4 --dm-max 40 --snr 8 --no-plots --reproducible";
    let told = json(path, &format!("search v.raw --antennas {options} -o found"));
    let beams = told["beams"].as_array().unwrap();
    assert_eq!(beams.len(), 3);
    for (antenna, beam) in beams.iter().enumerate() {
        assert_eq!((&beam["file"], &beam["antenna"]), (&"v.raw".into(), &antenna.into()));
        assert_eq!(beam["folder"], format!("v_antenna{antenna}_search"));
        done(path, &format!("search v.raw --antenna {antenna} {options} -q -o alone{antenna}"));
        let read = |folder: &str| fs::read_to_string(path.join(folder)).unwrap();
        let list = read(&format!("alone{antenna}/candidates.csv"));
        assert_eq!(read(&format!("found/v_antenna{antenna}_search/candidates.csv")), list);
        let summary = |folder: &str| document(path, &format!("{folder}/summary.json"));
        let mut own = summary(&format!("found/v_antenna{antenna}_search"));
        let mut alone = summary(&format!("alone{antenna}"));
        for product in [&mut own, &mut alone] {
            // The order of the options that were given.
            let given = product["provenance"]["given"].as_array_mut().unwrap();
            given.sort_by_key(ToString::to_string);
        }
        assert_eq!(own, alone);
    }
    let best = &told["events"][0];
    assert_eq!((&best["origin"], &best["in_beams"]), (&"source".into(), &3.into()), "{best}");
    assert!((best["time_s"].as_f64().unwrap() - 0.3).abs() < 5e-3, "{best}");
    done(path, "rerun found/v_antenna1_search -o again --reproducible -q");
    for (words, parts) in [
        ("--antennas --antenna 1", &["one file with --antennas", "two or more"][..]),
        ("--beams --adjacent 1", &["v.raw, antenna 0", "position"]),
    ] {
        let output = sidereal(path, &format!("search v.raw {words} {options} -o none"));
        assert!(!output.status.success());
        for part in parts {
            assert!(stderr(&output).contains(part), "{}", stderr(&output));
        }
        assert!(!path.join("none").exists());
    }
}

/// The three antennas that recorded FRB 180417.
fn antennas() -> Option<[PathBuf; 3]> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    let path = |antenna: &str| data.join(format!("frb/FRB180417_askap_{antenna}.fil"));
    let all = ["28", "29", "34"].map(path);
    if all.iter().all(|path| path.is_file()) {
        return Some(all);
    }
    skip::skip("data", &format!("no recordings of three antennas in {}", data.display()));
    None
}

#[test]
fn three_antennas_see_one_burst_and_their_sum_has_their_signal() {
    let Some(antennas) = antennas() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    let names =
        |order: [usize; 3]| order.map(|index| antennas[index].display().to_string()).join(" ");
    let words = |order: [usize; 3]| format!("search {} --dm-max 1000 --no-plots", names(order));
    let told = json(path, &format!("{} --antennas -o found", words([0, 1, 2])));
    let best = &told["events"][0];
    assert_eq!((&best["origin"], &best["in_beams"]), (&"source".into(), &3.into()), "{best}");
    let number = |value: &Value| value.as_f64().unwrap();
    assert!((number(&best["dm"]) - 474.5).abs() < 3.0, "{best}");
    assert!((number(&best["time_s"]) - 2.0289).abs() < 3e-3, "{best}");
    let mut snrs = [0.0; 3];
    for detection in best["detections"].as_array().unwrap() {
        snrs[detection["beam"].as_u64().unwrap() as usize] = number(&detection["snr"]);
    }
    // Heimdall's, which estimates the noise in another way.
    for (snr, expected) in snrs.iter().zip([16.81, 18.7, 13.9]) {
        assert!((snr / expected - 1.0).abs() < 0.1, "{snrs:?}");
    }
    let combined = number(&best["combined_snr"]);
    let squares: f64 = snrs.iter().map(|snr| snr * snr).sum();
    assert!((combined / squares.sqrt() - 1.0).abs() < 1e-3, "{combined}");
    // No other event is in more than one antenna.
    let others = told["events"].as_array().unwrap()[1..].iter();
    assert!(
        others.clone().all(|event| event["origin"] == "unclear"),
        "{:?}",
        others.collect::<Vec<_>>()
    );

    let list = |folder: &str| fs::read_to_string(path.join(folder).join("events.csv")).unwrap();
    done(path, &format!("{} --antennas -q -o other", words([2, 0, 1])));
    assert_eq!(list("other"), list("found"));

    let sum = json(path, &format!("{} --sum -o sum", words([0, 1, 2])));
    let best = &sum["candidates"][0];
    assert!((number(&best["dm"]) - 474.5).abs() < 3.0, "{best}");
    assert!((number(&best["time_s"]) - 2.0289).abs() < 3e-3, "{best}");
    // The dedispersed noise of two antennas correlates by 0.245, 0.205 and 0.166 (measured with NumPy at DM 474), so that the sum
    // has less than the S/N of independent noise.
    let noise = (3.0 + 2.0 * (0.245 + 0.205 + 0.166_f64)).sqrt();
    let expected = snrs.iter().sum::<f64>() / noise;
    assert!((number(&best["snr"]) / expected - 1.0).abs() < 0.05, "{best}, {expected}");
}
