//! Searches and dedispersed series as a user meets them: documents, tables, parts, pipes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{
    code, document, done, entries, fails, json, keys, program, recording, sidereal, stderr,
};
use serde_json::Value;

#[test]
fn a_search_writes_what_the_table_says() {
    let home = recording();
    let words = "search a.fil -o out --fetch --singlepulse --list-absorbed";
    let summary = json(home.path(), words);
    let expected = [
        "candidates",
        "complete",
        "data_s",
        "dms",
        "file",
        "flagged_samples",
        "interference",
        "masked_channels",
        "observation",
        "plan",
        "provenance",
        "reason",
        "run",
        "schema",
        "threshold_snr",
    ];
    assert_eq!(keys(&summary), expected.into());
    assert_eq!((&summary["complete"], &summary["reason"]), (&true.into(), &Value::Null));
    assert_eq!(keys(&summary["dms"]), ["count", "max", "min"].into());
    let best = &summary["candidates"][0];
    let expected = ["band_fraction", "dm", "members", "mjd", "snr", "time_s", "width_s"];
    assert_eq!(keys(best), expected.into());
    assert_eq!(best["band_fraction"], 1.0);
    assert!((best["dm"].as_f64().unwrap() - 60.0).abs() < 5.0, "{best}");
    assert!((best["time_s"].as_f64().unwrap() - 1.5).abs() < 4e-3, "{best}");
    let out = home.path().join("out");
    assert_eq!(document(&out, "summary.json"), summary);
    let names = entries(&out);
    for name in ["candidates.cand", "candidates.csv", "candidates.singlepulse", "report.html"] {
        assert!(names.contains(name), "{names:?}");
    }
    let of_kind = |extension: &str| {
        let kind = |name: &&String| name.starts_with("candidate_") && name.ends_with(extension);
        names.iter().filter(kind).count()
    };
    let candidates = summary["candidates"].as_array().unwrap().len();
    assert_eq!((of_kind(".png"), of_kind(".h5")), (candidates, candidates));
    let line = fs::read_to_string(out.join("candidates.cand")).unwrap();
    assert_eq!(line.lines().next().unwrap().split('\t').count(), 9);
    // Each event that a candidate took has a line that names it.
    let absorbed = fs::read_to_string(out.join("absorbed.csv")).unwrap();
    let members = |c: &Value| c["members"].as_u64().unwrap();
    for (index, candidate) in summary["candidates"].as_array().unwrap().iter().enumerate() {
        let own = absorbed.lines().filter(|line| line.starts_with(&format!("{},", index + 1)));
        let snrs: Vec<f64> =
            own.map(|line| line.split(',').nth(7).unwrap().parse().unwrap()).collect();
        assert_eq!(snrs.len() as u64 + 1, members(candidate));
        assert!(snrs.iter().all(|snr| (6.0..=candidate["snr"].as_f64().unwrap()).contains(snr)));
    }
    assert!(members(best) > 1);
    let first = fs::read_to_string(out.join("candidates.csv")).unwrap();
    assert!(
        first.starts_with("file,snr,stime,width,dm,label,chan_mask_path,num_files,time_s,width_s")
    );
}

#[test]
fn a_burst_that_the_start_or_the_end_cuts_is_in_every_list() {
    let home = tempfile::tempdir().unwrap();
    done(
        home.path(),
        "simulate burst a.fil --fch1 1500 --foff -2.34375 --channels 128 --tsamp 256e-6 --duration 6 \
         --burst dm=300,time=-0.12,snr=60,width=0.004 --burst dm=250,time=5.87,snr=60,width=0.004",
    );
    let search = "search a.fil --dm-max 400 --rfi none";
    let summary = json(home.path(), &format!("{search} -o out --fetch --singlepulse"));
    let number = |value: &Value| value.as_f64().unwrap();
    let candidates = summary["candidates"].as_array().unwrap();
    let cut: Vec<_> = candidates.iter().filter(|c| number(&c["band_fraction"]) < 1.0).collect();
    assert_eq!(cut.len(), 2, "{candidates:?}");
    let find = |time: f64| cut.iter().find(|c| (number(&c["time_s"]) - time).abs() < 5e-3).unwrap();
    let (first, last) = (find(-0.12), find(5.87));
    for (candidate, fraction) in [(first, 0.51), (last, 0.57)] {
        let [band, snr] = ["band_fraction", "snr"].map(|key| number(&candidate[key]));
        assert!((band - fraction).abs() < 0.05, "{candidate}");
        assert!((snr / (60.0 * band.sqrt()) - 1.0).abs() < 0.15, "{candidate}");
    }
    assert!(number(&first["mjd"]) < number(&summary["observation"]["tstart_mjd"]));
    let out = home.path().join("out");
    let list = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let csv = list("candidates.csv");
    assert!(csv.lines().next().unwrap().ends_with(",barycentric_mjd,band_fraction"));
    let bands = csv.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().1);
    assert_eq!(bands.filter(|band| *band != "1.0000").count(), 2, "{csv}");
    let cand = list("candidates.cand");
    let samples: Vec<i64> =
        cand.lines().map(|line| line.split('\t').nth(1).unwrap().parse().unwrap()).collect();
    let sample = (number(&first["time_s"]) / 256e-6).floor() as i64;
    assert!(samples.contains(&sample) && sample < 0, "{cand}");
    let pictures = entries(&out).into_iter().filter(|name| name.starts_with("candidate_")).count();
    assert_eq!(pictures, 2 * candidates.len());
    for name in ["candidates.cand", "candidates.csv", "candidates.singlepulse"] {
        let drawn = json(home.path(), &format!("replot a.fil out/{name} -o drawn --overwrite"));
        assert_eq!(drawn["drawn"].as_array().unwrap().len(), candidates.len(), "{name}");
        assert!(drawn["drawn"].as_array().unwrap().iter().any(|c| number(&c["time_s"]) < 0.0));
    }
    let whole = json(home.path(), &format!("{search} -o whole --min-band 1"));
    let whole = whole["candidates"].as_array().unwrap().iter().map(|c| number(&c["time_s"]));
    let is_burst = |time: &f64| (time + 0.12).abs() < 0.01 || (time - 5.87).abs() < 0.01;
    assert_eq!(whole.filter(is_burst).count(), 0);
    fails(
        &sidereal(home.path(), &format!("{search} -o no --min-band 0")),
        2,
        &["--min-band", "0.01"],
    );
}

#[test]
fn parts_join_in_any_order_and_gaps_are_listed() {
    let home = recording();
    let whole = fs::read(home.path().join("a.fil")).unwrap();
    let (header, rows) = whole.split_at(whole.len() - 64 * 4000);
    let at = header.windows(6).position(|word| word == b"tstart").unwrap() + 6;
    let part = |name: &str, first: usize, end: usize| {
        let mut header = header.to_vec();
        let start = f64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let start = start + first as f64 * 1e-3 / 86400.0;
        header[at..at + 8].copy_from_slice(&start.to_le_bytes());
        let bytes = [&header, &rows[64 * first..64 * end]].concat();
        fs::write(home.path().join(name), bytes).unwrap();
    };
    part("1.fil", 0, 2500);
    part("2.fil", 2500, 4000);
    part("3.fil", 3000, 4000);
    let one = json(home.path(), "search a.fil -o a --no-plots");
    let two = json(home.path(), "search 2.fil 1.fil -o b --no-plots");
    assert_eq!(one["candidates"], two["candidates"]);
    assert_eq!(two["file"], "1.fil");
    let table = fs::read_to_string(home.path().join("b/candidates.csv")).unwrap();
    assert!(table.lines().nth(1).unwrap().starts_with("1.fil,"), "{table}");
    fails(&sidereal(home.path(), "search 1.fil 3.fil"), 3, &["500 samples", "--allow-gaps"]);
    for verb in ["search", "dedisperse"] {
        let words = format!("{verb} 1.fil 3.fil -o {verb} --allow-gaps --dm-max 50 --dm-step 5");
        let gaps = json(home.path(), &words)["gaps"].clone();
        assert_eq!(gaps.as_array().unwrap().len(), 1, "{verb}: {gaps}");
        assert_eq!((&gaps[0]["start_s"], &gaps[0]["length_s"]), (&2.5.into(), &0.5.into()));
    }
    // A quarter of the second window's 1.952 s is less than 0.5 s.
    part("4.fil", 2980, 4000);
    let short = json(home.path(), "search 1.fil 4.fil -o c --allow-gaps");
    assert_eq!(short["unsearched"], Value::Null);
    let output = sidereal(home.path(), "search 1.fil 3.fil -o d --allow-gaps --json");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unsearched = &found["unsearched"][0];
    assert_eq!((&unsearched["start_s"], &unsearched["length_s"]), (&2.048.into(), &1.952.into()));
    let told = stderr(&output);
    assert!(told.contains("1.9520 s were not searched, from 2.0480 s on"), "{told}");
}

#[test]
fn a_search_is_the_same_for_any_gulp_and_threads_and_from_a_pipe() {
    let home = recording();
    let found = |words: &str| {
        let summary = json(home.path(), words);
        (summary["candidates"].clone(), summary["dms"].clone())
    };
    let whole = found("search a.fil -o 1 --no-plots --snr 5");
    assert_eq!(whole, found("search a.fil -o 2 --no-plots --snr 5 --gulp 7 -t 1"));
    assert_eq!(whole, found("search a.fil -o 3 --no-plots --snr 5 --gulp 1000 -t 3"));
    let file = fs::File::open(home.path().join("a.fil")).unwrap();
    let piped = Command::new(program())
        .args(["search", "-", "-o", "4", "--json", "--snr", "5"])
        .current_dir(home.path())
        .stdin(Stdio::from(file))
        .output()
        .unwrap();
    assert_eq!(code(&piped), 0, "{}", stderr(&piped));
    let summary: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(whole, (summary["candidates"].clone(), summary["dms"].clone()));
    let names = entries(&home.path().join("4"));
    assert!(names.contains("report.html") && !names.contains("rows.tmp"), "{names:?}");
}

#[test]
fn channels_are_masked_by_the_files_of_other_programs() {
    let home = recording();
    let path = home.path();
    let file = |name: &str, text: &str| fs::write(path.join(name), text).unwrap();
    file("heimdall.txt", "-zap_chans 3 5 \\\n-zap_chans 60 60\n");
    file("presto.txt", "58:60,3\n");
    file("obs.bad_chans", "3 4 5 60 ");
    let flags: Vec<&str> =
        (0..64).map(|k| if [3, 4, 5, 60].contains(&k) { "0" } else { "1" }).collect();
    file("kill.txt", &flags.join("\n"));
    let words = "search a.fil --dm-max 100 --rfi none --no-plots";
    let expected = json(path, &format!("{words} -o list --zap-chans 3:5,60"));
    assert_eq!(expected["masked_channels"], serde_json::json!([3, 4, 5, 60]));
    let files = ["heimdall.txt", "presto:presto.txt", "obs.bad_chans", "kill.txt", "keep:kill.txt"];
    for (index, name) in files.iter().enumerate() {
        let found = json(path, &format!("{words} -o out{index} --zap-chans {name}"));
        for key in ["masked_channels", "candidates"] {
            assert_eq!(found[key], expected[key], "{name}");
        }
        let inputs = found["provenance"]["inputs"].to_string();
        let file = name.rsplit(':').next().unwrap();
        assert!(inputs.contains(file), "{inputs}");
    }
    json(path, "dedisperse a.fil -o d --dm-max 20 --dm-step 10 --zap-chans kill.txt");
    done(path, "replot a.fil list/candidates.cand -o r --zap-chans heimdall.txt -q");

    file("wrong.txt", "1\n2\n64\n");
    file("most.txt", &["1", "0", "0", "0"].repeat(16).join(" "));
    for (name, code, told) in [
        (
            "wrong.txt",
            3,
            "wrong.txt: line 3 (at byte 4): found \"64\", expected a channel from 0 to 63",
        ),
        ("most.txt", 3, "keep:most.txt if 0 masks"),
        ("a.fil", 3, "--rfi-mask takes masks"),
        ("none.txt", 2, "there is no file"),
        ("kill:none.txt", 1, "none.txt"),
        (".", 1, "directory"),
    ] {
        let output = sidereal(path, &format!("search a.fil -o bad --zap-chans {name}"));
        fails(&output, code, &[told]);
    }
}

#[test]
fn time_ranges_count_from_the_recordings_start() {
    let home = recording();
    let summary = json(home.path(), "search a.fil -o out --time-range 1:3");
    let time_s = summary["candidates"][0]["time_s"].as_f64().unwrap();
    assert!((time_s - 1.5).abs() < 4e-3, "{time_s}");
    let series = json(home.path(), "dedisperse a.fil --time-range 1: --dm-max 1 --dm-step 1");
    assert_eq!(series["start_s"], 1.0);
}

#[test]
fn series_are_written_in_each_format() {
    let home = recording();
    let run = |format: &str| {
        let words = "--dm-min 10 --dm-max 10.015 --dm-step 0.005 --overwrite -o series";
        json(home.path(), &format!("dedisperse a.fil --format {format} {words}"))
    };
    let document = run("npy");
    let expected = [
        "complete",
        "dms",
        "downsample",
        "flagged_samples",
        "masked_channels",
        "observation",
        "provenance",
        "reason",
        "run",
        "schema",
        "start_s",
        "times",
        "tsamp_s",
    ];
    assert_eq!(keys(&document), expected.into());
    assert_eq!(document["dms"].as_array().unwrap().len(), 4);
    let series = home.path().join("series");
    assert_eq!(entries(&series), ["dedispersed.json", "dedispersed.npy"].map(String::from).into());
    let times = document["times"][0].as_u64().unwrap() as usize;
    let bytes = fs::read(series.join("dedispersed.npy")).unwrap();
    assert_eq!(bytes.len(), 128 + 4 * 4 * times);
    run("dat");
    let names = entries(&series);
    assert_eq!(names.len(), 9);
    assert!(names.contains("a_DM10.000.dat") && names.contains("a_DM10.015.inf"), "{names:?}");
    let dat = fs::read(series.join("a_DM10.000.dat")).unwrap();
    assert_eq!(dat.len(), 4 * 4000, "a length that PRESTO takes");
    run("tim");
    assert_eq!(entries(&series).len(), 5);
    let told = json(home.path(), "info series/a_DM10.005.tim");
    assert_eq!((told["dm"].as_f64(), told["times"].as_u64()), (Some(10.005), Some(times as u64)));
    let words = "dedisperse a.fil -o traced -q --device cpu --dm-max 1 --dm-step 1 --trace t.json";
    done(home.path(), words);
    let trace: Value =
        serde_json::from_slice(&fs::read(home.path().join("t.json")).unwrap()).unwrap();
    let is_sum = |event: &Value| event["name"] == "dedisperse" && event["cat"] == "compute";
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(is_sum), "{trace}");
}

/// Values of a file of 32-bit floats behind its header.
fn floats(path: &Path, header: usize) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn series_of_presto_have_one_even_length_and_say_where_they_were_filled() {
    let home = recording();
    let words =
        "dedisperse a.fil --format dat --dm-min 340 --dm-max 360 --dm-step 1 --overwrite -o s";
    let told = json(home.path(), words);
    assert_eq!(told["numout"], 4000);
    let folder = home.path().join("s");
    let names: Vec<String> = entries(&folder).into_iter().filter(|n| n.ends_with("dat")).collect();
    assert_eq!(names.len(), 21, "340 and 360 are tried");
    assert!(names.contains(&"a_DM360.00.dat".to_string()));
    for (name, own) in names.iter().zip(told["times"].as_array().unwrap()) {
        let own = own.as_u64().unwrap() as usize;
        let values = floats(&folder.join(name), 0);
        assert_eq!(values.len(), 4000, "{name}");
        let sum: f64 = values[..own].iter().map(|value| f64::from(*value)).sum();
        let mean = (sum / own as f64) as f32;
        assert!(own < 4000 && values[own..].iter().all(|value| *value == mean), "{name}");
        let inf = fs::read_to_string(folder.join(name).with_extension("inf")).unwrap();
        assert!(inf.contains("=  4000  ") && inf.contains("(1 yes, 0 no)  =  1\n"), "{inf}");
        let pair = |number: u32, first: usize, last: usize| {
            format!(" On/Off bin pair #{number:3}                   =  {first:<11}, {last:<11}\n")
        };
        assert!(inf.contains(&pair(1, 0, own - 1)) && inf.contains(&pair(2, 3999, 3999)), "{inf}");
    }
    let shorter = json(home.path(), &format!("{words} --numout 1000"));
    assert_eq!(shorter["numout"], 1000);
    for name in &names {
        assert_eq!(floats(&folder.join(name), 0).len(), 1000);
        let inf = fs::read_to_string(folder.join(name).with_extension("inf")).unwrap();
        assert!(!inf.contains("On/Off"), "{inf}");
    }
    let binned = "dedisperse a.fil --format dat --ranges 0:10:5,10:30:5:4 -o t";
    let told = json(home.path(), binned);
    assert_eq!((&told[0]["numout"], &told[1]["numout"]), (&4000.into(), &1000.into()));
    for (words, why) in [("dat --numout 999", "even"), ("tim --numout 1000", "--format dat")] {
        let output = sidereal(home.path(), &format!("dedisperse a.fil -o u --format {words}"));
        fails(&output, 2, &["--numout", why]);
    }
}

#[test]
fn a_plane_ends_in_each_trials_own_mean() {
    let home = recording();
    let told = json(home.path(), "dedisperse a.fil -o s --dm-min 0 --dm-max 300 --dm-step 100");
    let plane = floats(&home.path().join("s/dedispersed.npy"), 128);
    let (dms, longest) = (4, plane.len() / 4);
    for dm in 0..dms {
        let own = told["times"][dm].as_u64().unwrap() as usize;
        assert!(dm == 0 || own < longest);
        // In Fortran order: all trials of the first time come first.
        let row: Vec<f32> = plane.iter().skip(dm).step_by(dms).copied().collect();
        let sum: f64 = row[..own].iter().map(|value| f64::from(*value)).sum();
        let mean = (sum / own as f64) as f32;
        assert!(mean > 1000.0 && row[own..].iter().all(|value| *value == mean), "trial {dm}");
    }
}

#[test]
fn a_simulation_says_where_it_points() {
    let home = recording();
    let words = "--channels 8 --tsamp 1e-3 --duration 1 --fch1 1500 --foff -1";
    let place = |name: &str| {
        let told = json(home.path(), &format!("info {name} --header"));
        (told["ra_deg"].as_f64().unwrap(), told["dec_deg"].as_f64().unwrap())
    };
    done(home.path(), &format!("simulate burst default.fil {words}"));
    assert_eq!(place("default.fil"), (180.0, 30.0), "neither is 0, which readers take for unknown");
    done(home.path(), &format!("simulate burst here.fil {words} --position 83.625,-22.5"));
    assert_eq!(place("here.fil"), (83.625, -22.5));
    let truth = document(home.path(), "here.fil.truth.json");
    assert_eq!((&truth["ra_deg"], &truth["dec_deg"]), (&83.625.into(), &(-22.5).into()));
}

#[test]
fn a_plan_of_several_ranges_gives_several_arrays() {
    let home = recording();
    let words = "dedisperse a.fil -o series --ranges 0:10:1,10:20:2:2";
    let documents = json(home.path(), words);
    assert_eq!(documents[1]["downsample"], 2);
    let expected =
        ["dedispersed.json", "dedispersed.npy", "dedispersed_2.json", "dedispersed_2.npy"];
    assert_eq!(entries(&home.path().join("series")), expected.map(String::from).into());
}

/// The real burst of ASKAP, where the recordings are at hand.
#[test]
fn the_burst_of_2018_april_17_is_found_in_both_formats() {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    if !data.join("frb").is_dir() {
        return crate::common::skip::skip("data", &format!("no recordings in {}", data.display()));
    }
    for (name, out) in [("FRB180417_askap_28.fil", "1"), ("FRB180417_askap_28.fits", "2")] {
        let home = tempfile::tempdir().unwrap();
        let path = data.join("frb").join(name);
        let words = format!("search {} -o {out}", path.display());
        let best = json(home.path(), &words)["candidates"][0].clone();
        assert!((best["dm"].as_f64().unwrap() - 475.0).abs() <= 3.0, "{best}");
        assert!((best["time_s"].as_f64().unwrap() - 2.0289).abs() <= 3e-3, "{best}");
        assert!(best["snr"].as_f64().unwrap() > 13.0, "{best}");
    }
}

#[test]
fn any_programs_candidates_are_drawn_again() {
    let home = recording();
    let folder = home.path();
    json(folder, "search a.fil -o found --singlepulse --png");
    let drawn = |out: &str| -> Vec<String> {
        entries(&folder.join(out)).into_iter().filter(|name| name.ends_with(".png")).collect()
    };
    let pictures = drawn("found");
    assert!(pictures.len() > 1 && pictures.contains(&"overview.png".to_string()), "{pictures:?}");
    assert!(!folder.join("found/report.html").exists());
    let told = json(folder, "replot a.fil found/candidates.csv -o again");
    assert_eq!((&told["complete"], &told["outside"]), (&true.into(), &0.into()));
    assert_eq!(drawn("again"), pictures);
    assert!(folder.join("again/replot.json").exists());
    for name in pictures.iter().filter(|name| name.starts_with("candidate_")) {
        // The list rounds times to a nanosecond, which moves a few points of a line by a part of a pixel.
        let bytes = |out: &str| fs::metadata(folder.join(out).join(name)).unwrap().len();
        let (ours, searchs) = (bytes("again"), bytes("found"));
        assert!(ours.abs_diff(searchs) < searchs / 100, "{name}: {ours} and {searchs} bytes");
    }
    for list in ["candidates.cand", "candidates.singlepulse"] {
        let told = json(folder, &format!("replot a.fil found/{list} -o again --overwrite"));
        assert_eq!(told["drawn"].as_array().unwrap().len(), pictures.len() - 1, "{list}");
        assert_eq!(drawn("again").len(), pictures.len(), "{list}");
    }
    // Heimdall's, with one that lies outside of the recording.
    let line = |snr: f64, time: f64| format!("{snr}\t100\t{time}\t2\t7\t60.0\t3\t99\t103\n");
    fs::write(folder.join("h.cand"), line(9.0, 1.5) + &line(25.0, 1.2) + &line(8.0, 77.0)).unwrap();
    let told = json(folder, "replot a.fil h.cand -o heimdall --snr 8.5 --max-plots 1");
    assert_eq!(
        (&told["listed"], &told["outside"], &told["below_snr"]),
        (&3.into(), &1.into(), &0.into())
    );
    assert_eq!(told["drawn"][0]["snr"], 25.0);
    assert_eq!(drawn("heimdall"), ["candidate_0001_DM60.00_1.200s.png", "overview.png"]);
    let before = entries(folder);
    fails(&sidereal(folder, "replot a.fil h.cand -o heimdall"), 2, &["heimdall", "--overwrite"]);
    fails(&sidereal(folder, "replot - h.cand -o new"), 2, &["INPUT", "pipe"]);
    fs::write(folder.join("bad.cand"), "7 1 1.5 x 1 60 1 1 1\n").unwrap();
    fails(&sidereal(folder, "replot a.fil bad.cand -o new"), 3, &["bad.cand", "line 1", "filter"]);
    fs::remove_file(folder.join("bad.cand")).unwrap();
    assert_eq!(entries(folder), before);
}

/// A search reports a pulsar's pulses in one line, with their period, in addition to their candidates.
#[test]
fn a_source_that_repeats_is_told_with_its_period() {
    let home = tempfile::tempdir().unwrap();
    let words = "simulate burst p.fil -q --fch1 1500 --foff -8 --channels 32 --tsamp 1e-3 --duration 60 \
                 --seed 3 --pulsar period=0.714519,dm=60,width=0.006,snr=12 \
                 --burst dm=20,time=12.3,width=0.004,snr=14";
    crate::common::done(home.path(), words);
    let summary = json(home.path(), "search p.fil -o out --dm-max 150 --no-plots");
    let sources = summary["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 1, "{sources:?}");
    let number = |key: &str| sources[0][key].as_f64().unwrap();
    assert!((number("period_s") - 0.714519).abs() < 2e-5, "{sources:?}");
    assert!((number("dm") - 60.0).abs() < 8.0 && number("pulses") >= 80.0, "{sources:?}");
    let shown = sidereal(home.path(), "search p.fil -o out2 --dm-max 150 --no-plots");
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("repeat each 0.7145"), "{text}");
}

/// A folder with 12 s of 128 channels in it (a.fil): a burst at DM 300 and 5 s, and pulses of no dispersion each second.
fn with_radar() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut words = "simulate burst a.fil -q --fch1 1500 --foff -2 --channels 128 --tsamp 1e-3 --duration 12 --seed 5 \
                     --burst dm=300,time=5.4,width=0.004,snr=20"
        .to_owned();
    for second in 1..12 {
        words += &format!(" --burst dm=0,time={second}.1,width=0.003,snr={}", 20 + 10 * second);
    }
    done(home.path(), &words);
    home
}

#[test]
fn interference_is_taken_away_by_default_and_it_is_said() {
    let home = with_radar();
    let folder = home.path();
    let summary = json(folder, "search a.fil -o auto --no-plots --dm-max 500");
    let rfi = &summary["interference"];
    assert_eq!(rfi["asked"], "auto");
    assert_eq!(rfi["broadband_signals"], 11, "{rfi}");
    assert!(rfi["done"][0].as_str().unwrap().contains("no dispersion"), "{rfi}");
    let candidates = summary["candidates"].as_array().unwrap();
    let dms: Vec<f64> = candidates.iter().map(|one| one["dm"].as_f64().unwrap()).collect();
    assert!((dms[0] - 300.0).abs() < 10.0 && dms.iter().all(|dm| *dm > 50.0), "{dms:?}");
    let said = done(folder, "search a.fil -o said --no-plots --dm-max 500 --gulp 300 --threads 3");
    assert!(said.contains("Interference (--rfi auto): 11 signals"), "{said}");
    let list = |name: &str| std::fs::read(folder.join(name).join("candidates.cand")).unwrap();
    assert!(list("auto") == list("said"), "gulps and threads");
}

#[test]
fn without_mitigation_rows_stay_and_a_storm_is_capped() {
    let home = with_radar();
    let folder = home.path();
    let all = json(folder, "search a.fil -o none --no-plots --dm-max 500 --rfi none");
    let same =
        json(folder, "search a.fil -o same --no-plots --dm-max 500 --rfi none --no-auto-mask");
    assert_eq!(all["candidates"], same["candidates"]);
    assert_eq!(all["interference"]["done"].as_array().unwrap().len(), 0);
    assert!(all["left_out"].is_null());
    let count = all["candidates"].as_array().unwrap().len();
    assert!(count > 8, "{count}");
    let words = "search a.fil --no-plots --dm-max 500 --rfi none --max-per-minute 3";
    let few = json(folder, &format!("{words} -o few"));
    assert_eq!(
        few["candidates"].as_array().unwrap()[..],
        all["candidates"].as_array().unwrap()[..3]
    );
    assert_eq!(few["left_out"]["candidates"], count - 3);
    let said = done(folder, &format!("{words} -o said"));
    assert!(said.contains(&format!("Left out {} candidates", count - 3)), "{said}");
    let wrong = sidereal(folder, "search a.fil -o x --rfi zap");
    assert_eq!(code(&wrong), 2);
    assert!(stderr(&wrong).contains("iqrm,bandpass,time"), "{}", stderr(&wrong));
}
