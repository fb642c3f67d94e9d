//! The verbs with `--device cuda`, on whatever device is there: a real one, or the emulator of
//! `tests/cuda_on_host`.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{document, done, fails, gpu, json, program, sidereal, stderr, strain};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with 3 s of 32 channels in it, and one burst at DM 60 and 1.5 s; none without a GPU.
fn burst() -> Option<(TempDir, String)> {
    let folder = TempDir::new().unwrap();
    let name = gpu(folder.path())?;
    let words = "simulate burst burst.fil --duration 3 --fch1 1500 --foff -4 --channels 32 \
                 --tsamp 0.001 --burst dm=60,time=1.5,width=0.004,snr=25 -q";
    done(folder.path(), words);
    Some((folder, name))
}

const TRIALS: &str = "--dm-min 0 --dm-max 120 --dm-step 8 --no-progress -q";

fn with(folder: &Path, words: &str, variable: (&str, &str)) -> Output {
    Command::new(program())
        .args(words.split_whitespace())
        .env(variable.0, variable.1)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Returns the parts of a summary that describe the sky.
fn sky(summary: &Value) -> [&Value; 3] {
    [&summary["dms"], &summary["masked_channels"], &summary["candidates"]]
}

#[test]
fn a_search_writes_what_the_processor_writes() {
    let Some((folder, _)) = burst() else { return };
    let folder = folder.path();
    let search = |device: &str| {
        let options = "--no-plots --baseline 1 --max-width 0.03";
        let words = format!("search burst.fil -o {device} --device {device} {options} {TRIALS}");
        done(folder, &words);
        document(folder, &format!("{device}/summary.json"))
    };
    let (cuda, cpu) = (search("cuda"), search("cpu"));
    assert_eq!(sky(&cuda), sky(&cpu));
    assert!(cuda["candidates"][0]["snr"].as_f64().unwrap() > 15.0, "{cuda}");
    let candidates =
        |device: &str| std::fs::read(folder.join(device).join("candidates.cand")).unwrap();
    assert_eq!(candidates("cuda"), candidates("cpu"));
}

/// The device has the next gulp of rows or voltages queued when the host collects the events of the present one.
#[test]
fn the_next_gulp_is_dedispersed_before_the_last_one_is_collected() {
    let Some((folder, _)) = burst() else { return };
    let folder = folder.path();
    let rows = "burst long.fil --duration 10 --fch1 1500 --foff -4 --channels 32 --tsamp 0.001";
    let voltages = "voltages v.raw --freq 430 --bandwidth 1 --coarse-channels 2 --duration 3";
    for words in [rows, voltages] {
        done(folder, &format!("simulate {words} -q"));
    }
    for (input, gulp) in [("long.fil", 300), ("v.raw --channels 16 --integrate 8", 400)] {
        let options = "--no-plots --device cuda --rfi none --baseline 0.05 --max-width 0.01";
        let words = format!(
            "search {input} -o traced --overwrite {options} --gulp {gulp} --trace t.json {TRIALS}"
        );
        done(folder, &words);
        let trace = document(folder, "t.json");
        let mut kernels: Vec<(f64, &str)> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["cat"] == "kernel")
            .map(|event| (event["ts"].as_f64().unwrap(), event["name"].as_str().unwrap()))
            .collect();
        kernels.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The host enqueues `carry` after it has collected the events of `sweep`; `turn` is the start of dedispersion.
        let (mut is_ahead, mut gulps, mut ahead) = (false, 0, 0);
        for (_, name) in &kernels {
            match *name {
                "sweep" => is_ahead = false,
                "turn" => is_ahead = true,
                "carry" => (gulps, ahead) = (gulps + 1, ahead + usize::from(is_ahead)),
                _ => {}
            }
        }
        assert!(gulps > 2 && ahead > 0, "{input}: {ahead} of {gulps}, {kernels:?}");
    }
}

#[test]
fn a_search_fits_into_little_memory() {
    let Some((folder, _)) = burst() else { return };
    let folder = folder.path();
    let search = |out: &str, more: &str| {
        let options = "--no-plots --device cuda --dm-max 500 --no-progress -q";
        done(folder, &format!("search burst.fil -o {out} {options} {more}"));
        std::fs::read(folder.join(out).join("candidates.cand")).unwrap()
    };
    assert_eq!(search("little", "--memory 24M"), search("much", ""));
    let words = "search burst.fil -o no --device cuda --dm-max 500 --memory 100K";
    let refused = common::sidereal(folder, words);
    fails(&refused, 1, &["CUDA device", "are free"]);
}

#[test]
fn dedispersed_series_are_the_processors() {
    let Some((folder, _)) = burst() else { return };
    let folder = folder.path();
    let series = |device: &str| {
        let options = "--format npy --device";
        done(folder, &format!("dedisperse burst.fil -o {device} {options} {device} {TRIALS}"));
        std::fs::read(folder.join(device).join("dedispersed.npy")).unwrap()
    };
    let (cuda, cpu) = (series("cuda"), series("cpu"));
    assert!(cuda.len() > 16 * 4 * 2500, "{} bytes", cuda.len());
    assert_eq!(cuda, cpu);
}

#[test]
fn channelized_voltages_are_the_processors_within_rounding() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    if gpu(folder).is_none() {
        return;
    }
    done(
        folder,
        "simulate voltages v.raw --duration 0.002 --bandwidth 8 --freq 1400 --overwrite -q",
    );
    let spectra = |device: &str| {
        let options = "--channels 64 --taps 4 --integrate 8 --nbits 32 -q --no-progress --device";
        done(folder, &format!("channelize v.raw -o {device}.fil {options} {device}"));
        let bytes = std::fs::read(folder.join(format!("{device}.fil"))).unwrap();
        // Headers may differ in the file's name; the last rows stand at the end.
        let floats = bytes.rchunks_exact(4).take(64 * 16);
        floats.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<f32>>()
    };
    let (cuda, cpu) = (spectra("cuda"), spectra("cpu"));
    assert_eq!(cuda.len(), 64 * 16);
    let peak = cpu.iter().fold(0f32, |peak, x| peak.max(x.abs()));
    assert!(peak > 0.0);
    for (cuda, cpu) in cuda.iter().zip(&cpu) {
        assert!((cuda - cpu).abs() <= 2e-5 * peak, "{cuda} {cpu}");
    }
}

#[test]
fn too_little_memory_makes_small_gulps_or_one_clear_error() {
    let Some((folder, name)) = burst() else { return };
    if !name.contains("Emulated") {
        eprintln!("skipped: only the emulator's memory can be chosen");
        return;
    }
    let memory = |mib| ("SIDEREAL_EMULATED_MEMORY_MIB", mib);
    let words = format!("search burst.fil -o out --overwrite --no-plots --device cuda {TRIALS}");
    let none = with(folder.path(), &words, memory("0"));
    fails(&none, 1, &["MiB", "memory"]);
    let some = with(folder.path(), &words, memory("2"));
    assert!(some.status.success(), "{}", stderr(&some));
}

#[test]
fn a_lost_device_says_how_far_the_search_is_whole() {
    let Some((folder, name)) = burst() else { return };
    if !name.contains("Emulated") {
        eprintln!("skipped: only the emulator can lose its device on request");
        return;
    }
    let words = format!("search burst.fil -o out --gulp 400 --no-plots --device cuda {TRIALS}");
    let lost = with(folder.path(), &words, ("SIDEREAL_EMULATED_FAIL", "cuLaunchKernel:12:719"));
    common::lost(folder.path(), &lost, "summary.json", &["719", "searched completely"]);
}

/// A folder with 0.6 s of voltages in it, of four recorded channels and both polarizations, with a pulse at DM 5 and a
/// gap; none without a GPU.
fn voltages() -> Option<(TempDir, String)> {
    let folder = TempDir::new().unwrap();
    let name = gpu(folder.path())?;
    let words = "simulate voltages v.dada --freq 150 --bandwidth 1 --coarse-channels 4 --duration 0.6 \
                 --pulse dm=5,time=0.2,width=0.002,snr=40 --gap start=0.45,duration=0.03 -q";
    done(folder.path(), words);
    Some((folder, name))
}

const VOLTAGES: &str = "search v.dada --channels 16 --integrate 4 --no-plots --baseline 0.1 \
                        --max-width 0.02 --dm-min 0 --dm-max 10 --dm-step 1 --no-progress -q";

#[test]
fn a_search_of_voltages_writes_what_the_processor_writes() {
    let Some((folder, _)) = voltages() else { return };
    let folder = folder.path();
    let search = |device: &str, more: &str| {
        done(folder, &format!("{VOLTAGES} -o {device} --overwrite --device {device} {more}"));
        document(folder, &format!("{device}/summary.json"))
    };
    for more in ["", "--gulp 150 --no-auto-mask --zero-dm", "--time-range 0.1:0.55 --gulp 99"] {
        let (cuda, cpu) = (search("cuda", more), search("cpu", more));
        assert_eq!(sky(&cuda)[..2], sky(&cpu)[..2], "{more}");
        assert_eq!(cuda["gaps"], cpu["gaps"], "{more}");
        let lists = [&cuda, &cpu].map(|summary| summary["candidates"].as_array().unwrap());
        assert_eq!(lists[0].len(), lists[1].len(), "{more}");
        let best = lists.map(|list| &list[0]);
        assert_eq!(best[0]["dm"], 5.0, "{more}");
        for (cuda, cpu) in lists[0].iter().zip(lists[1]) {
            assert_eq!((&cuda["dm"], &cuda["time_s"]), (&cpu["dm"], &cpu["time_s"]), "{more}");
            let ratio = cuda["snr"].as_f64().unwrap() / cpu["snr"].as_f64().unwrap();
            assert!((ratio - 1.0).abs() < 2e-3, "{more} {cuda} {cpu}");
        }
    }
}

#[test]
fn faults_on_the_way_of_voltages_are_told() {
    let Some((folder, name)) = voltages() else { return };
    if !name.contains("Emulated") {
        eprintln!(
            "skipped: only the emulator's memory can be chosen, and its device lost on request"
        );
        return;
    }
    let words = format!("{VOLTAGES} -o out --device cuda --gulp 200 --rfi none");
    let none = with(folder.path(), &words, ("SIDEREAL_EMULATED_MEMORY_MIB", "1"));
    fails(&none, 1, &["MiB", "memory"]);
    let lost = with(folder.path(), &words, ("SIDEREAL_EMULATED_FAIL", "cuLaunchKernel:150:719"));
    common::lost(folder.path(), &lost, "summary.json", &["719", "searched completely"]);
}

#[test]
fn quick_benches_find_all_outputs_right() {
    let folder = TempDir::new().unwrap();
    if gpu(folder.path()).is_none() {
        return;
    }
    for bench in ["channelize", "correlate", "spiir --table filters --table rates"] {
        let table = json(folder.path(), &format!("bench {bench} --quick --device cuda"));
        let rows = table.as_array().unwrap();
        assert!(rows.len() > 3, "{table}");
        assert!(rows.iter().all(|row| row["checked"] == true), "{table}");
        assert!(rows.iter().all(|row| row["rate"].as_f64().unwrap() > 0.0), "{table}");
    }
    let table = json(folder.path(), "bench spiir --table filters --quick --device cuda");
    let names: Vec<&Value> = table.as_array().unwrap().iter().map(|row| &row["case"]).collect();
    assert!(names.iter().any(|name| name.as_str().unwrap().contains("of chirps")), "{table}");
}

#[cfg(unix)]
#[test]
fn a_quick_bench_needs_no_other_program() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    if gpu(folder.path()).is_none() {
        return;
    }
    let (fake, mark) = (folder.path().join("nvidia-smi"), folder.path().join("asked"));
    std::fs::write(&fake, format!("#!/bin/sh\ntouch '{}'\nexit 9\n", mark.display())).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&paths));
    let paths = std::env::join_paths(paths).unwrap();
    let words = "bench correlate --quick --device cuda --json --only sustained";
    let output = with(folder.path(), words, ("PATH", paths.to_str().unwrap()));
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["case"]).collect();
    assert_eq!(names, ["40 antennas, 8 bit, sustained"]);
    assert!(!mark.exists());
}

#[test]
fn visibilities_of_an_array_are_made_on_the_gpu() {
    let home = TempDir::new().unwrap();
    let folder = home.path();
    let Some(name) = gpu(folder) else { return };
    let words = "simulate array -o array -q --layout 3,300 --source 140,-20,200,Spot --sefd 100 --freq 150 \
                 --bandwidth 1 --seconds 0.02 --start 2025-01-01T00:00:00 --seed 5";
    done(folder, words);
    let correlate = |device: &str| {
        let words = format!(
            "correlate array/ant00.dada array/ant01.dada array/ant02.dada --antennas array/antennas.csv \
             --channels 32 --integration 0.005 --no-plots --no-progress -q -o {device}.uvh5 --device {device}"
        );
        done(folder, &words);
        document(folder, &format!("{device}.uvh5.json"))
    };
    let (mut cuda, mut cpu) = (correlate("cuda"), correlate("cpu"));
    assert_eq!(cuda["run"]["device"], name);
    assert_eq!(cuda["spectra_made"]["on_device"], true);
    assert_eq!(cpu["run"]["device"], "cpu");
    // Limited samples may differ where a value lies at the middle between two integers.
    let limited = |told: &Value| told["antennas"][1]["limited"].as_f64().unwrap();
    assert!((limited(&cuda) - limited(&cpu)).abs() < 1e-3);
    for told in [&mut cuda, &mut cpu] {
        let all = told.as_object_mut().unwrap();
        let own = ["run", "file", "antennas"];
        own.iter().for_each(|key| drop(all.remove(*key)));
        all["spectra_made"].as_object_mut().unwrap().remove("on_device");
    }
    assert_eq!(cuda, cpu);
    let bytes =
        |device: &str| std::fs::metadata(folder.join(format!("{device}.uvh5"))).unwrap().len();
    assert_eq!(bytes("cuda"), bytes("cpu"));
}

#[test]
fn binaries_are_searched_and_filtered_on_where_a_run_was_interrupted() {
    let home = strain::home(1024, 40, |_, _| {});
    let folder = home.path();
    let Some(name) = gpu(folder) else { return };
    let files = "H1=h1.npy L1=l1.npy --rate 1024 --start 1400000000 --device cuda";
    // So few samples at once that a signal comes in the middle.
    let gulp = if name.contains("Emulated") { 100 } else { 1 };
    let words = format!(
        "spiir search {files} --reproducible --templates binaries.csv --f-low 40 --lowest-rate 256 --threshold 3.5 --no-plots \
         --slides 3 --gulp {gulp}"
    );
    done(folder, &format!("{words} -o whole"));
    let expected = strain::found(&folder.join("whole"));
    assert!(expected.0["detectors"][0]["triggers"].as_u64().unwrap() > 5, "{}", expected.0);
    let words = format!("{words} -o out");
    let kept = |folder: &Path| fs::read(folder.join("checkpoint")).ok();
    let mut child = strain::start(folder, &words);
    let ended = strain::interrupt(&mut child, folder, |at| kept(at).is_some(), Signal::INT);
    // A fast device may be done before the signal comes.
    if ended == Some(130) {
        assert_eq!(document(folder, "out/events.json")["complete"], false);
        let other = words.replace("--device cuda", "--device cpu");
        fails(&sidereal(folder, &format!("{other} --resume")), 2, &["device", "not on cpu"]);
        let before = kept(&folder.join("out"));
        assert!(before.as_ref().is_some_and(|bytes| bytes.len() > 10_000));
        let mut child = strain::start(folder, &format!("{words} --resume"));
        let is_later = |at: &Path| kept(at).is_some_and(|now| Some(now) != before);
        strain::interrupt(&mut child, folder, is_later, Signal::KILL);
        // It was killed before its end, as nearly always.
        if !folder.join("out").exists() {
            done(folder, &format!("{words} --resume -q"));
        }
    }
    assert!(strain::found(&folder.join("out")) == expected);

    done(folder, "spiir bank binaries.csv -o bank.h5 --rate 1024 --f-low 40 --lowest-rate 256 -q");
    let words = format!("spiir filter {files} --bank bank.h5 -q --reproducible");
    done(folder, &format!("{words} -o whole.h5"));
    let words = format!("{words} -o out.h5");
    let mut child = strain::start(folder, &words);
    let has_series = |_: &Path| true;
    let ended = strain::interrupt(&mut child, folder, has_series, Signal::INT);
    if ended == Some(130) {
        done(folder, &format!("{words} --resume"));
    }
    assert!(fs::read(folder.join("out.h5")).unwrap() == fs::read(folder.join("whole.h5")).unwrap());
}

/// Compiled kernels in a cache.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn cubins(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "cubin")).count()
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn kernels_of_a_described_stream_are_compiled_before_its_socket_opens() {
    use std::net::UdpSocket;
    use std::process::Stdio;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    let home = TempDir::new().unwrap();
    let folder = home.path();
    if gpu(folder).is_none() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let site = format!(
        "[input]\naddress = \"udp://127.0.0.1:{free}\"\npreset = \"snap\"\nantennas = 1\nchannels = 256\n\
         first_channel = 512\ncentre_hz = 1400e6\nbandwidth_hz = 64e6\ntsamp_s = 4e-6\nidle_s = 1\n\n\
         [input.time]\nsync = 2026-01-01T00:00:00Z\nallow_expired_leap_seconds = true\n"
    );
    fs::write(folder.join("site.toml"), site).unwrap();
    let positions = "# longitude_deg=21.4\n# latitude_deg=-30.7\n# height_m=1000\nname,east,north,up\na,0,0,0\n";
    fs::write(folder.join("a.csv"), positions).unwrap();
    let verbs = [
        "live search site.toml -o found --observations 1 --channels 4 --integrate 8 --dm-max 10 --rfi none --no-plots --device cuda",
        "live correlate site.toml -o vis --observations 1 --channels 4 --antennas a.csv --phase-centre 83.6,22 --integration 0.002 --device cuda",
    ];
    for words in verbs {
        let cache = folder.join(words.split_whitespace().nth(1).unwrap());
        let mut child = Command::new(program())
            .args(words.split_whitespace())
            .env("SIDEREAL_CACHE_DIR", &cache)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let place = format!("0100007F:{free:04X} ");
        let begin = Instant::now();
        while !fs::read_to_string("/proc/net/udp").unwrap().contains(&place) {
            if child.try_wait().unwrap().is_some() || begin.elapsed().as_secs() > 120 {
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                panic!("{words}: no socket opens: {}, {}", output.status, stderr(&output));
            }
            sleep(Duration::from_millis(5));
        }
        let before = cubins(&cache);
        for block in 0..150_u64 {
            let mut packet = vec![1, 0, 1, 0, 2, 0, 0, 0];
            packet.extend_from_slice(&(1_750_000 + 16 * block).to_be_bytes());
            packet.extend((0..8192).map(|at| (at * 37 + block as usize * 11) as u8));
            socket.send_to(&packet, ("127.0.0.1", free)).unwrap();
            sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let after = cubins(&cache);
        assert!(
            before > 1 && before == after,
            "{words}: {before} compiled before the stream, {after} in all"
        );
    }
}
