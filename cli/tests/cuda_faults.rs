//! Messages and results of runs on a GPU when caches, libraries, other processes or the device itself fail.
#![cfg(unix)]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{
    code, document, entries, fails, has_emulated_gpu, program, recording, stderr, stdout,
};
use tempfile::TempDir;

/// Returns a folder with a recording, a.fil, where the GPU is an emulated one.
fn emulated() -> Option<TempDir> {
    let home = recording();
    has_emulated_gpu(home.path()).then_some(home)
}

const DEDISPERSE: &str = "dedisperse a.fil --dm-min 40 --dm-max 80 --dm-step 1 --format npy --no-progress -q --device cuda";
const SEARCH: &str =
    "--dm-min 40 --dm-max 80 --dm-step 4 --no-plots --no-progress -q --device cuda";

fn command(home: &Path, words: &str, variables: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(program());
    command.args(words.split_whitespace()).current_dir(home).envs(variables.iter().copied());
    command
}

fn run(home: &Path, words: &str, variables: &[(&str, &Path)]) -> Output {
    command(home, words, variables).output().unwrap()
}

/// The series that a run writes, which must end well.
fn series(home: &Path, out: &str, variables: &[(&str, &Path)]) -> Vec<u8> {
    let done = run(home, &format!("{DEDISPERSE} -o {out}"), variables);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(stderr(&done), "");
    fs::read(home.join(out).join("dedispersed.npy")).unwrap()
}

/// The kernels that a cache holds.
fn kernels(cache: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "cubin")).collect()
}

#[test]
fn two_searches_share_a_gpu_and_a_cold_cache() {
    let Some(home) = emulated() else { return };
    let cache = home.path().join("cache");
    let begin = |out: &str| -> Child {
        let words = format!("search a.fil -o {out} {SEARCH}");
        command(home.path(), &words, &[("SIDEREAL_CACHE_DIR", &cache)]).spawn().unwrap()
    };
    let mut both = ["one", "two"].map(begin);
    assert!(both.iter_mut().all(|child| child.wait().unwrap().success()));
    let [one, two] =
        ["one", "two"].map(|out| fs::read(home.path().join(out).join("candidates.cand")).unwrap());
    assert_eq!(one, two);
    let summary = document(home.path(), "one/summary.json");
    assert_eq!(summary["candidates"].as_array().unwrap().len(), 1);
    assert_eq!(summary["run"]["device"], "cuda:0 Emulated sm_90");
    assert!(kernels(&cache).len() > 2);
    let left = entries(&cache);
    assert!(!left.iter().any(|name| name.ends_with(".part")), "{left:?}");
}

#[test]
fn a_cache_that_is_damaged_or_can_not_be_written_costs_time_only() {
    let Some(home) = emulated() else { return };
    let home = home.path();
    let cache = home.join("cache");
    let expected = series(home, "first", &[("SIDEREAL_CACHE_DIR", &cache)]);
    let whole = kernels(&cache);
    assert!(!whole.is_empty());
    for path in &whole {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(series(home, "damaged", &[("SIDEREAL_CACHE_DIR", &cache)]), expected);
    fs::write(home.join("file"), "").unwrap();
    // Nobody can write to /proc, not even root.
    for (out, place) in [("proc", Path::new("/proc")), ("file_there", &home.join("file"))] {
        assert_eq!(series(home, out, &[("SIDEREAL_CACHE_DIR", place)]), expected);
    }
}

#[test]
fn without_its_compiler_a_gpu_runs_what_was_compiled_before() {
    let Some(home) = emulated() else { return };
    let home = home.path();
    let (cache, libraries) = (home.join("cache"), home.join("libraries"));
    let expected = series(home, "first", &[("SIDEREAL_CACHE_DIR", &cache)]);
    fs::create_dir(&libraries).unwrap();
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let driver = std::env::split_paths(&paths).map(|folder| folder.join("libcuda.so.1"));
    let driver = driver.into_iter().find(|path| path.exists()).unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(&driver, libraries.join(name)).unwrap();
    }
    let with = |cache| [("SIDEREAL_CACHE_DIR", cache), ("LD_LIBRARY_PATH", libraries.as_path())];
    let devices = run(home, "devices --json", &with(&cache));
    if !String::from_utf8_lossy(&devices.stdout).contains("libnvrtc") {
        eprintln!("skipped: the system has an NVRTC of its own");
        return;
    }
    assert_eq!(series(home, "warm", &with(&cache)), expected);
    let other = run(home, &format!("{DEDISPERSE} -o other --zero-dm"), &with(&cache));
    fails(&other, 1, &["NVRTC", "compiled before", "clean.cu"]);
    let cold = run(home, &format!("{DEDISPERSE} -o cold"), &with(&home.join("none")));
    fails(&cold, 1, &["NVRTC", "pip install nvidia-cuda-nvrtc"]);
    assert!(!home.join("cold").exists() && !home.join("other").exists());
}

#[test]
fn little_memory_makes_small_blocks_or_one_clear_error() {
    let Some(home) = emulated() else { return };
    let home = home.path();
    let expected = series(home, "whole", &[]);
    let memory = |mebibytes| [("SIDEREAL_EMULATED_MEMORY_MIB", Path::new(mebibytes))];
    // Blocks of the usual size would need 43.
    for (out, mebibytes) in [("small", "40"), ("smaller", "4")] {
        assert_eq!(series(home, out, &memory(mebibytes)), expected, "{mebibytes} MiB");
    }
    let words = DEDISPERSE.replace("--dm-max 80", "--dm-max 4000");
    let none = run(home, &format!("{words} -o none"), &memory("1"));
    fails(&none, 1, &["MiB of memory on CUDA device 0", "are free"]);
    assert!(!home.join("none").exists());
}

#[test]
fn a_lost_device_says_how_far_series_are_whole() {
    let Some(home) = emulated() else { return };
    let words = format!("{DEDISPERSE} -o out --gulp 500");
    let lost = Path::new("cuLaunchKernel:9:719");
    let lost = run(home.path(), &words, &[("SIDEREAL_EMULATED_FAIL", lost)]);
    let words = ["cuLaunchKernel", "719", "whole up to time"];
    common::lost(home.path(), &lost, "dedispersed.json", &words);
}

#[test]
fn an_interrupt_in_the_middle_of_a_search_leaves_what_was_read() {
    let Some(home) = emulated() else { return };
    let mut expected = entries(home.path());
    expected.insert("out".to_owned());
    let words = format!("search - -o out --gulp 200 {SEARCH}");
    let mut searching = command(home.path(), &words, &[])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let data = fs::read(home.path().join("a.fil")).unwrap();
    let mut pipe = searching.stdin.take().unwrap();
    pipe.write_all(&data[..data.len() / 2]).unwrap();
    // The output folder is made once the header is read; only then is the handler surely there.
    while !entries(home.path()).iter().any(|name| name.contains("unfinished")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The pipe could hold all of it unread.
    while rustix::io::ioctl_fionread(&pipe).unwrap() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let id = searching.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    std::thread::sleep(std::time::Duration::from_millis(200));
    // The pipe may be closed already.
    let _ = pipe.write_all(&data[data.len() / 2..]);
    drop(pipe);
    let output = searching.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert_eq!(entries(home.path()), expected);
    assert_eq!(document(home.path(), "out/summary.json")["complete"], false);
}

/// The tuned choices in a cache, with what is in them; there must be nothing half-written beside them.
fn tuned(cache: &Path) -> Vec<(String, Vec<u8>)> {
    let names = entries(cache).into_iter();
    let names = names.filter(|name| name.contains(".tune"));
    let held = names.map(|name| (fs::read(cache.join(&name)).unwrap(), name));
    let held: Vec<(String, Vec<u8>)> = held.map(|(bytes, name)| (name, bytes)).collect();
    assert!(held.iter().all(|(name, _)| name.ends_with(".tune")), "{:?}", entries(cache));
    held
}

const TUNE: [&str; 2] = [
    "tune correlate --device cuda --antennas 20 --channels 3 --samples 70 -q",
    "tune spiir --device cuda --templates 3 --filters 30 --rates 2 --working-set 1 -q",
];

/// Tunes until the first kernel is compiled, which is then measured, interrupts, and gives how it ended.
fn interrupted(home: &Path, words: &str, cache: &Path) -> Output {
    if cache.exists() {
        kernels(cache).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    let variables = [("SIDEREAL_CACHE_DIR", cache)];
    let mut tuning = command(home, words, &variables);
    let mut tuning = tuning.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !cache.exists() || kernels(cache).is_empty() {
        assert!(tuning.try_wait().unwrap().is_none(), "it ended before it had a kernel: {words}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let id = tuning.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    tuning.wait_with_output().unwrap()
}

#[test]
fn an_interrupt_in_the_middle_of_tuning_keeps_what_was_there() {
    let Some(home) = emulated() else { return };
    for (words, cache) in TUNE.iter().zip(["correlate", "spiir"]) {
        let cache = home.path().join(cache);
        for kept in [false, true] {
            if kept {
                let whole = run(home.path(), words, &[("SIDEREAL_CACHE_DIR", &cache)]);
                assert!(whole.status.success(), "{}", stderr(&whole));
            }
            let before = if cache.exists() { tuned(&cache) } else { Vec::new() };
            assert_eq!(!before.is_empty(), kept, "{words}");
            let output = interrupted(home.path(), words, &cache);
            fails(&output, 130, &["stopped on request"]);
            assert_eq!(tuned(&cache), before, "{words}");
        }
    }
}

#[test]
fn a_full_disk_is_told_with_what_was_measured() {
    let Some(home) = emulated() else { return };
    let cache = home.path().join("cache");
    fs::create_dir(&cache).unwrap();
    // A small disk of its own, which only this shell and what it starts can see.
    let small = "mount -t tmpfs -o size=64k,mode=700 tmpfs cache";
    let shell = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["-rm", "sh", "-c", script]).current_dir(home.path());
        shell.env("SIDEREAL_CACHE_DIR", &cache).output()
    };
    if !shell(small).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small disk can't be mounted here");
        return;
    }
    let program = program();
    let full = "dd if=/dev/zero of=cache/fill bs=4096 count=64 2> /dev/null";
    let script = format!("{small}; {full}; {} {}; ", program.display(), TUNE[0]);
    let output = shell(&format!("{script} code=$?; ls -A cache; exit $code")).unwrap();
    let told = stderr(&output);
    assert_eq!(code(&output), 1, "{told}");
    let words = ["a place for tuned choices", ".tune", "No space left", "SIDEREAL_CACHE_DIR"];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    assert_eq!(stdout(&output), "fill\n");
    let output = shell(&script.replace("-q", "--json")).unwrap();
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(table[0]["stored"] == false && table[0]["best"].is_string(), "{table}");
}

/// Several GPUs give the lists of one; the one that fails is named, and what was found before is kept.
#[test]
fn several_gpus_give_the_lists_of_one() {
    let Some(home) = emulated() else { return };
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    let search = |out: &str, device: &str, more: &[(&str, &Path)]| {
        let trials = "--dm-min 0 --dm-max 80 --dm-step 0.25 --gulp 500 --no-plots --no-progress -q";
        let words = format!("search a.fil -o {out} {trials} --device {device}");
        run(home.path(), &words, &[&two, more].concat())
    };
    for (out, device) in [("one", "cuda:0"), ("two", "cuda:0,1"), ("all", "cuda:all")] {
        let done = search(out, device, &[]);
        assert!(done.status.success(), "{}", stderr(&done));
    }
    for name in ["candidates.cand", "candidates.csv"] {
        let list = |out: &str| fs::read_to_string(home.path().join(out).join(name)).unwrap();
        let one = list("one");
        assert!(one.lines().count() > 0);
        assert_eq!(list("two"), one);
        assert_eq!(list("all"), one);
    }
    // Without access to the first GPU's memory the second copies the rows from the host's.
    let apart = ("SIDEREAL_EMULATED_NO_PEER", Path::new("1"));
    let done = search("apart", "cuda:0,1", &[apart]);
    assert!(done.status.success(), "{}", stderr(&done));
    let list = |out: &str| fs::read(home.path().join(out).join("candidates.csv")).unwrap();
    assert_eq!(list("apart"), list("one"));
    let fault = ("SIDEREAL_EMULATED_FAIL", Path::new("cuMemcpyHtoDAsync_v2:10:719:1"));
    let failed = search("failed_copy", "cuda:0,1", &[apart, fault]);
    assert_eq!(code(&failed), 5, "{}", stderr(&failed));
    assert!(stderr(&failed).contains("CUDA device 1"), "{}", stderr(&failed));
    let fault = [("SIDEREAL_EMULATED_FAIL", Path::new("cuLaunchKernel:20:719:1"))];
    let failed = search("failed", "cuda:0,1", &fault);
    assert_ne!(code(&failed), 0);
    assert!(stderr(&failed).contains("CUDA device 1"), "{}", stderr(&failed));
    fails(&search("none", "cuda:0,2", &[]), 1, &["CUDA device 2", "devices 0 to 1"]);
    let refused = run(home.path(), "dedisperse a.fil --dm-max 9 --device cuda:0,1", &two);
    fails(&refused, 2, &["--device", "cuda:0,1", "search, correlate, channelize and spiir search"]);
}

/// Kernels and pipelines on several GPUs compute the bits of one.
#[test]
fn quick_benches_of_several_gpus_find_equal_results() {
    let Some(home) = emulated() else { return };
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    for only in ["X-engine", "filters", "correlate", "channelize", "default"] {
        let words = format!("bench gpus --quick --json --device cuda --only {only}");
        let output = run(home.path(), &words, &two);
        assert!(output.status.success(), "{only}: {}", stderr(&output));
        let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = table.as_array().unwrap();
        assert!(rows.len() >= 2 && rows.len().is_multiple_of(2), "{only}: {table}");
        for (row, device) in rows.iter().zip(["cuda:0 ", "cuda:0,1 "].into_iter().cycle()) {
            assert!(row["device"].as_str().unwrap().starts_with(device), "{row}");
            assert_eq!(row["checked"], true, "{row}");
            assert!(row["rate"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let more = run(home.path(), "bench gpus --quick --device cuda --numbers 1,3", &two);
    fails(&more, 2, &["--numbers", "is 3", "2 GPUs"]);
    let none = run(home.path(), "bench gpus --quick --device cpu", &two);
    fails(&none, 2, &["--device", "this measures GPUs"]);
}

#[test]
fn beams_on_several_gpus_have_the_products_of_one() {
    let Some(home) = emulated() else { return };
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    for beam in 0..3 {
        let words = format!(
            "simulate burst b{beam}.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 3 --seed {beam} \
             --burst dm=60,time=1,width=0.004,snr=2{beam}"
        );
        assert!(run(home.path(), &words, &[]).status.success());
    }
    let search = |out: &str, device: &str, more: &[(&str, &Path)]| {
        let words = format!(
            "search b0.fil b1.fil b2.fil --beams -o {out} --dm-max 80 --no-plots --reproducible -q --device {device}"
        );
        run(home.path(), &words, &[&two, more].concat())
    };
    for (out, device) in [("one", "cuda:0"), ("two", "cuda:0,1")] {
        let done = search(out, device, &[]);
        assert!(done.status.success(), "{}", stderr(&done));
    }
    let lists = [
        "events.csv",
        "b0_search/candidates.csv",
        "b1_search/candidates.csv",
        "b2_search/candidates.csv",
    ];
    for name in lists {
        let list = |out: &str| fs::read_to_string(home.path().join(out).join(name)).unwrap();
        assert!(list("one").lines().count() > 1, "{name}");
        assert_eq!(list("two"), list("one"), "{name}");
    }
    // The beam on the second GPU fails; those on the first are joined.
    let fault = [("SIDEREAL_EMULATED_FAIL", Path::new("cuLaunchKernel:5:719:1"))];
    let failed = search("failed", "cuda:0,1", &fault);
    assert_ne!(code(&failed), 0);
    assert!(stderr(&failed).contains("CUDA device 1"), "{}", stderr(&failed));
    let found = document(home.path(), "failed/summary.json");
    assert_eq!(found["complete"], false);
    let beams = found["beams"].as_array().unwrap();
    assert!((1..3).contains(&beams.len()), "{found}");
    for beam in beams {
        let folder = beam["folder"].as_str().unwrap();
        assert!(home.path().join("failed").join(folder).join("summary.json").is_file());
    }
    // Whichever GPU searches a beam now, it continues what another one has begun.
    for device in ["cuda:1", "cuda:0,1"] {
        let resumed = search("failed --resume", device, &fault[..usize::from(device == "cuda:1")]);
        assert_eq!(resumed.status.success(), device == "cuda:0,1", "{}", stderr(&resumed));
    }
    for name in lists {
        let list = |out: &str| fs::read_to_string(home.path().join(out).join(name)).unwrap();
        assert_eq!(list("failed"), list("one"), "{name}");
    }
}

/// Inputs with a GPU each have the products of one after another, and their documents are printed in the same order.
#[test]
fn each_input_has_a_gpu_of_its_own() {
    let Some(home) = emulated() else { return };
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    for number in 0..4 {
        // The first takes the longest.
        let words = format!(
            "simulate burst e{number}.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration {} --seed {number} \
             --burst dm=60,time=1,width=0.004,snr=2{number}",
            6 - number
        );
        assert!(run(home.path(), &words, &[]).status.success());
    }
    let inputs = "e0.fil e1.fil e2.fil e3.fil --each";
    let each = |verb: &str, out: &str, device: &str, more: &[(&str, &Path)]| {
        let words = format!(
            "{verb} {inputs} -o {out} --dm-max 80 --reproducible --json -q --device {device}"
        );
        run(home.path(), &words, &[&two, more].concat())
    };
    for (verb, options, names) in [
        ("search", "--no-plots", &["candidates.csv", "candidates.cand"][..]),
        ("dedisperse", "--dm-step 20", &["dedispersed.npy"]),
    ] {
        let verb_with = format!("{verb} {options}");
        let [one, two] = [("one", "cuda:0"), ("two", "cuda:0,1")].map(|(name, device)| {
            let out = format!("{verb}_{name}");
            let done = each(&verb_with, &out, device, &[]);
            assert!(done.status.success(), "{}", stderr(&done));
            let lines: Vec<serde_json::Value> = String::from_utf8(done.stdout)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(lines.len(), 4, "{verb} {device}");
            let files: Vec<Vec<u8>> = (0..4)
                .flat_map(|number| names.iter().map(move |name| (number, *name)))
                .map(|(number, name)| {
                    let suffix = if verb == "search" { "search" } else { "dedispersed" };
                    let folder = home.path().join(&out).join(format!("e{number}_{suffix}"));
                    fs::read(folder.join(name)).unwrap()
                })
                .collect();
            (lines, files)
        });
        assert!(one == two, "{verb}");
    }
    // Runs on the GPU that fails are reported with its number; those on the other are done.
    let fault = [("SIDEREAL_EMULATED_FAIL", Path::new("cuLaunchKernel:5:719:1"))];
    let failed = each("search --no-plots", "each_failed", "cuda:0,1", &fault);
    assert_eq!(code(&failed), 5, "{}", stderr(&failed));
    assert!(stderr(&failed).contains("CUDA device 1"), "{}", stderr(&failed));
    assert!(stderr(&failed).contains("of 4 done"), "{}", stderr(&failed));
    let kept = document(home.path(), "each_failed/e0_search/summary.json");
    assert_eq!(kept["complete"], true);
}

/// Antennas divided among GPUs give the visibilities of one; the GPU that fails, or to which copies fail, is named.
#[test]
fn several_gpus_give_the_visibilities_of_one() {
    let Some(home) = emulated() else { return };
    let simulated = "simulate array -o array -q --layout 3,300 --source 140,-20,200,Spot --sefd 100 --freq 150 \
                     --bandwidth 1 --seconds 0.02 --start 2025-01-01T00:00:00 --seed 5";
    assert!(run(home.path(), simulated, &[]).status.success());
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    let correlate = |out: &str, device: &str, more: &[(&str, &Path)]| {
        let words = format!(
            "correlate array/ant00.dada array/ant01.dada array/ant02.dada --antennas array/antennas.csv -o {out} --channels 32 \
             --integration 0.005 --gulp 100 --no-plots --no-progress -q --device {device}"
        );
        run(home.path(), &words, &[&two, more].concat())
    };
    for (out, device) in [("one.uvh5", "cuda:0"), ("two.uvh5", "cuda:0,1")] {
        let done = correlate(out, device, &[]);
        assert!(done.status.success(), "{}", stderr(&done));
    }
    let data = |name: &str| {
        let file = hdf5_pure::File::open(home.path().join(name)).unwrap();
        file.dataset("Data/visdata").unwrap().read_raw().unwrap()
    };
    assert_eq!(data("one.uvh5"), data("two.uvh5"));
    for fault in
        ["cuLaunchKernel:9:719:1", "cuMemcpy3DPeerAsync:2:719:1", "cuMemcpyHtoDAsync_v2:6:719:1"]
    {
        let failed =
            correlate("failed.uvh5", "cuda:0,1", &[("SIDEREAL_EMULATED_FAIL", Path::new(fault))]);
        assert_eq!(code(&failed), 5, "{fault}: {}", stderr(&failed));
        assert!(stderr(&failed).contains("CUDA device 1"), "{fault}: {}", stderr(&failed));
    }
}

/// Rows divided among GPUs make the files of one, also behind coherent dedispersion; the GPU that fails is named.
#[test]
fn several_gpus_make_the_spectra_of_one() {
    let Some(home) = emulated() else { return };
    let simulated = "simulate voltages v.raw -q --freq 400 --bandwidth 4 --duration 0.06 --seed 4";
    assert!(run(home.path(), simulated, &[]).status.success());
    let two = [("SIDEREAL_EMULATED_DEVICES", Path::new("2"))];
    let channelize = |out: &str, device: &str, dm: &str, more: &[(&str, &Path)]| {
        let options = "--channels 16 --taps 4 --no-progress -q --overwrite";
        let words = format!("channelize v.raw -o {out} {options} --device {device} {dm}");
        run(home.path(), &words, &[&two, more].concat())
    };
    for dm in ["", "--coherent-dm 2"] {
        for name in ["fil", "dada"] {
            let out = format!("spectra.{name}");
            let [one, two] = ["cuda:0", "cuda:0,1"].map(|device| {
                let done = channelize(&out, device, dm, &[]);
                assert!(done.status.success(), "{}", stderr(&done));
                assert_eq!(stderr(&done), "", "{name} {device} {dm}");
                fs::read(home.path().join(&out)).unwrap()
            });
            assert!(one == two, "{name} {dm}");
        }
        let fault = [("SIDEREAL_EMULATED_FAIL", Path::new("cuLaunchKernel:1:719:1"))];
        let failed = channelize("failed.fil", "cuda:0,1", dm, &fault);
        assert_eq!(code(&failed), 5, "{}", stderr(&failed));
        assert!(stderr(&failed).contains("CUDA device 1"), "{}", stderr(&failed));
    }
}
