//! Jobs of many files: `plan-jobs`, `run-task`, and their state.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{
    code, document, done, entries, fails, program, recording, renamed, sidereal, stderr, stdout,
};

/// Makes four recordings, of which the third is cut within its header, and their manifest.
fn archive() -> tempfile::TempDir {
    let home = recording();
    let path = home.path();
    renamed(path, "b.fil", "OTHER");
    fs::write(path.join("c.fil"), &fs::read(path.join("a.fil")).unwrap()[..60]).unwrap();
    renamed(path, "d e.fil", "THIRD");
    fs::write(path.join("m"), "a.fil\n# none\nb.fil\n\nc.fil\nd e.fil\n").unwrap();
    home
}

fn tasks(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path.join("tasks.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn status(path: &Path) -> Value {
    let output = sidereal(path, "run-task tasks.jsonl --status --json");
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(code(&output), i32::from(found["done"] != found["tasks"]), "{}", stderr(&output));
    found
}

/// Checks that two folders have the same files, bit for bit.
fn same(a: &Path, b: &Path) {
    assert_eq!(entries(a), entries(b));
    for name in entries(a) {
        assert!(fs::read(a.join(&name)).unwrap() == fs::read(b.join(&name)).unwrap(), "{name}");
    }
}

#[test]
fn tasks_make_the_products_of_one_process_and_what_is_done_is_skipped() {
    let home = archive();
    let path = home.path();
    let options = "--dm-max 100 --reproducible";
    let planned = done(path, &format!("plan-jobs m --results found -- search {options}"));
    assert!(planned.contains("4 tasks, 4 runs") && planned.contains("1 run without"), "{planned}");
    let planned = tasks(path);
    assert_eq!(planned.len(), 4);
    for (number, task) in planned.iter().enumerate() {
        assert_eq!((&task["task"], &task["verb"]), (&json!(number), &json!("search")));
    }
    let bytes = fs::metadata(path.join("a.fil")).unwrap().len();
    assert_eq!(planned[0]["runs"][0]["inputs"], json!([{"file": "a.fil", "bytes": bytes}]));
    assert!(planned[0]["estimate"]["core_s"].as_f64().unwrap() > 0.0, "{}", planned[0]);
    assert_eq!(planned[2]["estimate"]["core_s"], Value::Null);

    assert_eq!(status(path)["missing"], json!([0, 1, 2, 3]));
    assert_eq!(status(path)["array"], "0-3");
    done(path, "run-task tasks.jsonl 0");
    fails(&sidereal(path, "run-task tasks.jsonl 2 -q"), 3, &["c.fil"]);
    let found = status(path);
    assert_eq!((&found["done"], &found["missing"]), (&json!(1), &json!([1, 3])));
    assert_eq!(found["array"], "1-3");
    let failure = &found["failed"][0];
    assert_eq!((&failure["task"], &failure["runs"][0]["exit_code"]), (&json!(2), &json!(3)));
    assert!(failure["runs"][0]["error"].as_str().unwrap().contains("c.fil"), "{failure}");
    assert_eq!(document(&path.join("found/failed"), "c_search.json")["runs"], failure["runs"]);
    let shown = stdout(&sidereal(path, "run-task tasks.jsonl --status"));
    for word in
        ["1 of 4 tasks done, 1 failed, 2 missing", "task 2: found/c_search: ", "--array=1-3"]
    {
        assert!(shown.contains(word), "{shown}");
    }

    // Another list with the same folder of results keeps its own records.
    done(path, "plan-jobs m --results found -o other.jsonl -q -- dedisperse --dm-max 10");
    fails(&sidereal(path, "run-task other.jsonl 2 -q"), 3, &["c.fil"]);
    assert_eq!(status(path)["failed"][0], *failure);

    // The schedulers have the number; the other tasks run from anywhere.
    let job = path.join("job");
    fs::write(&job, "ClusterId = 17\nProcId = 3\nArgs = \"x\"\n").unwrap();
    for (name, value) in [("SLURM_ARRAY_TASK_ID", "1"), ("_CONDOR_JOB_AD", job.to_str().unwrap())] {
        let list = path.join("tasks.jsonl");
        let mut command = Command::new(program());
        command.arg("run-task").arg(list).current_dir("/").env(name, value);
        assert!(command.output().unwrap().status.success());
    }
    assert_eq!(status(path)["array"], "2");
    // The file is mended: the failure's record goes, and the planned size is that of the damaged one.
    fs::copy(path.join("b.fil"), path.join("c.fil")).unwrap();
    fails(&sidereal(path, "run-task tasks.jsonl 2 -q"), 3, &["expected 60 as planned"]);
    done(path, &format!("plan-jobs m --results found --overwrite -- search {options}"));
    done(path, "run-task tasks.jsonl 2 -q");
    let found = status(path);
    assert_eq!((&found["done"], &found["array"]), (&json!(4), &json!("")));
    assert!(!path.join("found/failed/c_search.json").exists());

    let inputs = ["a.fil", "b.fil", "c.fil", "d e.fil"];
    let mut each = Command::new(program());
    each.arg("search").args(inputs).args(["--each", "-o", "each", "-q"]);
    each.args(options.split(' ')).current_dir(path);
    assert!(each.status().unwrap().success());
    for name in ["a_search", "b_search", "c_search", "d e_search"] {
        same(&path.join("found").join(name), &path.join("each").join(name));
    }

    let before =
        fs::metadata(path.join("found/a_search/summary.json")).unwrap().modified().unwrap();
    let again = sidereal(path, "run-task tasks.jsonl 0");
    assert!(again.status.success() && stderr(&again).contains("is done already"));
    let after = fs::metadata(path.join("found/a_search/summary.json")).unwrap().modified().unwrap();
    assert_eq!(before, after);
}

#[test]
fn grouped_runs_are_a_task_and_a_bad_one_ends_no_other() {
    let home = archive();
    let path = home.path();
    done(path, "plan-jobs m --group-minutes 5 -q -- search --dm-max 100 --no-plots");
    let planned = tasks(path);
    let runs: Vec<_> = planned.iter().map(|task| task["runs"].as_array().unwrap().len()).collect();
    assert_eq!(runs, [2, 1, 1], "the one without an estimate is alone");
    let sum = |task: &Value| {
        let runs = task["runs"].as_array().unwrap().iter();
        runs.map(|run| run["estimate"]["core_s"].as_f64().unwrap()).sum::<f64>()
    };
    assert_eq!(planned[0]["estimate"]["core_s"].as_f64().unwrap(), sum(&planned[0]));
    fs::remove_file(path.join("a.fil")).unwrap();
    let output = sidereal(path, "run-task tasks.jsonl 0 -q");
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("1 of 2 done, 1 failed"), "{}", stderr(&output));
    assert_eq!(entries(&path.join("results")), ["b_search", "failed"].map(String::from).into());
    let failed = document(&path.join("results/failed"), "a_search.json");
    assert_eq!(failed["runs"].as_array().unwrap().len(), 1);
    assert_eq!(failed["schema"], "sidereal/task-failure/1");
}

#[test]
fn bad_manifests_are_refused_before_anything_is_written() {
    let home = archive();
    let path = home.path();
    fs::create_dir(path.join("sub")).unwrap();
    fs::copy(path.join("a.fil"), path.join("sub/a.fil")).unwrap();
    for (name, text) in [
        ("missing", "a.fil\nx.fil\n{\"inputs\": [\"y.fil\", \"z.fil\"]}\n"),
        ("empty", "# none\n\n"),
        ("twice", "a.fil\nsub/a.fil\n"),
        ("same", "a.fil\n{\"inputs\": [\"b.fil\"], \"output\": \"a_search/x\"}\n"),
        ("json", "{\"inputs\": [\"a.fil\"], \"option\": []}\n"),
        (
            "snr",
            "a.fil\n{\"inputs\": [\"a.fil\"], \"output\": \"x\", \"options\": [\"--snr\", \"no\"]}\n",
        ),
        ("open", "a.fil\n{\"inputs\": [\n"),
        ("each", "{\"inputs\": [\"a.fil\"], \"options\": [\"--each\"]}\n"),
    ] {
        fs::write(path.join(name), text).unwrap();
    }
    let before = entries(path);
    for (words, expected, parts) in [
        (
            "missing -- search",
            3,
            &["missing: line 2: inputs", "found 3 missing", "x.fil", "line 3"][..],
        ),
        ("empty -- search", 3, &["empty: manifest", "found no run", "expected a line"]),
        ("twice -- search", 3, &["twice: line 2: output", "product of twice, line 1"]),
        ("same -- search", 3, &["same: line 2: output", "results/a_search/x"]),
        ("json -- search", 3, &["json: line 1: JSON", "unknown field `option`"]),
        ("snr -- search", 3, &["snr: line 2: options", "--snr"]),
        ("open -- search", 3, &["open: line 2: JSON", "EOF while parsing"]),
        ("each -- search", 3, &["each: line 1: options", "each line of the manifest"]),
        ("a.fil -- search", 3, &["a.fil: line ", "not UTF-8"]),
        ("sub -- search", 1, &["sub: "]),
        ("nothing -- search", 1, &["nothing: "]),
        ("m -- sarch", 2, &["sarch", "a task runs one of search, dedisperse"]),
        ("m -- live search", 2, &["live search", "a task runs one of"]),
        ("m -- search --dm-mux 3", 2, &["--dm-mux"]),
        ("m -- search b.fil", 2, &["1 inputs of its own"]),
        ("m -- search --each", 2, &["each line of the manifest"]),
        ("m -- search -o x", 2, &["--results"]),
        ("m -- search --dm-min 9 --dm-max 3", 2, &["--dm-max"]),
        ("m -- convert", 2, &["--to must name"]),
        ("m --group-minutes 0 -- search", 2, &["--group-minutes", "0.01"]),
        ("m -o m --overwrite -- search", 2, &["m", "is read"]),
        ("m -o none/tasks.jsonl -- search", 1, &["none"]),
        ("m", 2, &["<COMMAND>"]),
        ("-- search", 2, &["MANIFEST"]),
    ] {
        fails(&sidereal(path, &format!("plan-jobs {words}")), expected, parts);
        assert_eq!(entries(path), before, "{words}");
    }
    done(path, "plan-jobs m -q -- search");
    fails(&sidereal(path, "plan-jobs m -- search"), 2, &["tasks.jsonl", "--overwrite"]);
}

#[test]
fn bad_tasks_are_refused() {
    let home = archive();
    let path = home.path();
    done(path, "plan-jobs m -q -- search --dm-max 100 --no-plots");
    fs::write(path.join("zeros"), [0xff; 9]).unwrap();
    for (words, expected, parts) in [
        ("tasks.jsonl", 2, &["number is not given", "SLURM_ARRAY_TASK_ID"][..]),
        ("tasks.jsonl 9", 2, &["number is 9", "tasks 0 to 3"]),
        ("tasks.jsonl x", 2, &["'x'"]),
        ("nothing 0", 1, &["nothing"]),
        ("m 0", 3, &["m: line 1: task", "plan-jobs"]),
        ("m --status", 3, &["m: line 1: task"]),
        ("a.fil 0", 3, &["a.fil: line 1: task"]),
        ("zeros 0", 3, &["zeros: line 1: text", "not UTF-8"]),
        ("tasks.jsonl 0 --status", 2, &["cannot be used with"]),
    ] {
        fails(&sidereal(path, &format!("run-task {words}")), expected, parts);
    }
    for (name, value, parts) in [
        ("SLURM_ARRAY_TASK_ID", "1-3", &["SLURM_ARRAY_TASK_ID is 1-3"]),
        ("_CONDOR_JOB_AD", "m", &["_CONDOR_JOB_AD is without ProcId"]),
    ] {
        let mut command = Command::new(program());
        command.args(["run-task", "tasks.jsonl"]).current_dir(path).env(name, value);
        fails(&command.output().unwrap(), 2, parts);
    }

    // Another version, and a product of another command.
    let text = fs::read_to_string(path.join("tasks.jsonl")).unwrap();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version));
    fs::write(path.join("old.jsonl"), text.replace(&version, "\"version\":\"0.1.0\"")).unwrap();
    fails(&sidereal(path, "run-task old.jsonl 0"), 2, &["0.1.0", "plan the jobs again"]);
    let record = document(&path.join("results/failed"), "a_search.json");
    assert!(record["runs"][0]["error"].as_str().unwrap().contains("0.1.0"), "{record}");
    fs::remove_file(path.join("results/failed/a_search.json")).unwrap();
    done(path, "search a.fil -o results/a_search --dm-max 50 --no-plots -q");
    let before = fs::read(path.join("results/a_search/summary.json")).unwrap();
    fails(
        &sidereal(path, "run-task tasks.jsonl 0 -q"),
        2,
        &["results/a_search", "dm-max is 50, expected 100", "another --results"],
    );
    assert!(fs::read(path.join("results/a_search/summary.json")).unwrap() == before);
    assert_eq!(status(path)["failed"][0]["task"], 0);
}

/// Makes a recording whose search takes seconds, and its task.
fn long() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    let words = "simulate burst a.fil -q --fch1 1500 --foff -0.5 --channels 512 --tsamp 256e-6 --duration 20 \
                 --seed 3 --burst dm=60,time=1.5,width=0.004,snr=25";
    done(path, words);
    fs::write(path.join("m"), "a.fil\n").unwrap();
    done(path, "plan-jobs m -q -- search --dm-max 1500 --no-plots --reproducible -t 1 --gulp 2048");
    home
}

fn begin(path: &Path) -> Child {
    let mut command = Command::new(program());
    command.args(["run-task", "tasks.jsonl", "0"]).current_dir(path);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Waits until an unfinished product appears.
fn wait_for_begin(path: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    let is_begun = || {
        let results = path.join("results");
        results.exists() && entries(&results).iter().any(|name| name.contains(".unfinished-"))
    };
    while !is_begun() {
        assert!(Instant::now() < end, "no run began");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_task_runs_again_and_a_stopped_one_goes_on() {
    let home = long();
    let path = home.path();
    let mut killed = begin(path);
    wait_for_begin(path);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(status(path)["missing"], json!([0]));

    let mut stopped = begin(path);
    let mut stderr = BufReader::new(stopped.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("task 0, 1 of 1: results/a_search"), "{said}");
    std::thread::sleep(Duration::from_millis(100));
    let pid = stopped.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    stderr.read_to_string(&mut said).unwrap();
    let end = stopped.wait().unwrap().code();
    let found = status(path);
    if end == Some(130) {
        assert_eq!(found["array"], "0", "{said}");
        assert_eq!(found["failed"][0]["runs"][0]["exit_code"], 130, "{found}");
    } else {
        // It was faster than the signal.
        assert_eq!((end, &found["done"]), (Some(0), &json!(1)), "{said}");
    }
    done(path, "run-task tasks.jsonl 0 -q");
    assert_eq!(status(path)["done"], 1);
    done(path, "search a.fil -o alone --dm-max 1500 --no-plots --reproducible -t 1 -q --gulp 2048");
    same(&path.join("results/a_search"), &path.join("alone"));
    assert!(!path.join("results/failed/a_search.json").exists());
}

#[test]
fn two_processes_of_one_task_make_one_product() {
    let home = long();
    let path = home.path();
    let first = begin(path);
    wait_for_begin(path);
    let second = finish(begin(path));
    let first = finish(first);
    assert_eq!(code(&first), 0, "{}", stderr(&first));
    // The second found the first at work, or its product.
    let said = stderr(&second);
    match code(&second) {
        0 => assert!(said.contains("is done already"), "{said}"),
        end => assert!(end == 1 && said.contains("another run"), "{end}: {said}"),
    }
    let found = status(path);
    assert_eq!((&found["done"], &found["failed"]), (&json!(1), &json!([])));
    assert_eq!(entries(&path.join("results")), ["a_search"].map(String::from).into());
}

#[test]
fn a_recording_that_is_cut_short_is_searched_once() {
    let home = recording();
    let path = home.path();
    let whole = fs::read(path.join("a.fil")).unwrap();
    fs::write(path.join("cut.fil"), &whole[..whole.len() - 100]).unwrap();
    fs::write(path.join("m"), "a.fil\ncut.fil\n").unwrap();
    done(path, "plan-jobs m --group-minutes 1 -q -- search --dm-max 100 --no-plots");
    done(path, "run-task tasks.jsonl 0 -q");
    let found = status(path);
    let summary = document(&path.join("results/cut_search"), "summary.json");
    assert_eq!(summary["complete"], false, "{summary}");
    assert_eq!((&found["done"], &found["cut"]), (&json!(1), &json!([0])));
    let again = sidereal(path, "run-task tasks.jsonl 0");
    assert_eq!(stderr(&again).matches("is done already").count(), 2, "{}", stderr(&again));
    assert_eq!(status(path)["cut"], json!([0]));
}

#[test]
fn every_verb_of_a_task_is_planned_and_run() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    done(path, "simulate voltages v.raw -q --freq 400 --bandwidth 4 --duration 0.02 --seed 4");
    done(
        path,
        "simulate array -o array -q --layout 3,300 --source 140,-20,200,Spot --sefd 100 --freq 150 --bandwidth 1 \
         --seconds 0.25 --start 2025-01-01T00:00:00 --seed 5",
    );
    done(path, "simulate strain n.hdf5 -q --length 4 --rate 1024 --start 1000000000");
    let strain = entries(path).into_iter().find(|name| name.ends_with(".hdf5")).unwrap();
    fs::write(path.join("strain"), format!("{strain}\n")).unwrap();
    fs::write(path.join("voltages"), "v.raw\n").unwrap();
    let inputs = json!({"inputs": ["ant00.dada", "ant01=ant01.dada", "ant02.dada"]});
    fs::write(path.join("array/m"), inputs.to_string()).unwrap();
    let stem = strain.trim_end_matches(".hdf5");
    for (words, product) in [
        ("voltages -- channelize --channels 16", "v.fil".to_owned()),
        ("voltages -- channelize --channels 16 --format dada", "v.dada".to_owned()),
        ("voltages -- search --channels 16 --dm-max 10 --no-plots", "v_search".to_owned()),
        ("voltages -- dedisperse --channels 16 --dm-max 10", "v_dedispersed".to_owned()),
        (
            "array/m -- correlate --antennas array/antennas.csv --channels 16 --integration 0.05 --no-plots",
            "ant00.uvh5".to_owned(),
        ),
        ("strain -- convert --to gwf", format!("{stem}.gwf")),
    ] {
        done(path, &format!("plan-jobs {words}").replacen(" -- ", " -q --overwrite -- ", 1));
        assert_eq!(status(path)["missing"], json!([0]), "{words}");
        done(path, "run-task tasks.jsonl 0 -q");
        assert!(path.join("results").join(&product).exists(), "{product}");
        assert_eq!(status(path)["done"], 1, "{words}");
        let again = sidereal(path, "run-task tasks.jsonl 0");
        assert!(stderr(&again).contains("is done already"), "{}", stderr(&again));
    }
}

#[test]
fn searches_are_merged_into_one_list_and_one_report() {
    let home = archive();
    let path = home.path();
    done(path, "plan-jobs m --results found -q -- search --dm-max 100 --no-plots --reproducible");
    for task in [0, 1] {
        done(path, &format!("run-task tasks.jsonl {task} -q"));
    }
    fails(&sidereal(path, "run-task tasks.jsonl 2 -q"), 3, &["c.fil"]);
    let before = entries(path);
    fails(
        &sidereal(path, "merge tasks.jsonl"),
        2,
        &["1 failed and 1 task missing (sidereal run-task tasks.jsonl --status)", "--partial"],
    );
    for (words, expected, parts) in [
        ("merge nothing", 1, &["nothing"][..]),
        ("merge found", 3, &["found no summary.json"]),
        ("merge m", 3, &["m: line 1: task"]),
        ("merge found/a_search found/a_search", 2, &["found/a_search", "given twice"]),
        ("merge", 2, &["TASKS|FOLDER"]),
    ] {
        fails(&sidereal(path, words), expected, parts);
        assert_eq!(entries(path), before, "{words}");
    }

    done(path, "merge tasks.jsonl --partial --reproducible");
    let merged = document(&path.join("merged"), "merged.json");
    assert_eq!(
        (&merged["complete"], &merged["schema"]),
        (&json!(false), &json!("sidereal/merge/1"))
    );
    assert_eq!(merged["undone"][0]["failed"][0]["task"], 2);
    assert_eq!(merged["undone"][0]["missing"], json!([3]));
    let names: Vec<_> = merged["products"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&names[0]["product"], &names[1]["file"]),
        (&json!("found/a_search"), &json!("b.fil"))
    );
    let lists = ["a", "b"].map(|name| {
        let list = path.join(format!("found/{name}_search/candidates.csv"));
        let rows = fs::read_to_string(list).unwrap();
        rows.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    });
    let all = fs::read_to_string(path.join("merged/candidates.csv")).unwrap();
    let rows: Vec<&str> = all.lines().skip(1).collect();
    assert!(
        lists.iter().all(|list| !list.is_empty()) && rows.len() == lists.concat().len(),
        "{all}"
    );
    assert_eq!(merged["candidates"], rows.len());
    for (row, own) in rows.iter().zip(lists.concat()) {
        assert!(row.starts_with(&format!("{own},found/")), "{row}");
    }
    let lines = fs::read_to_string(path.join("merged/candidates.ndjson")).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["number"], &last["file"]), (&json!(rows.len()), &json!("b.fil")));
    assert!(
        fs::read_to_string(path.join("merged/report.html")).unwrap().contains("found/b_search")
    );

    // Folders give the same list as their tasks, from any folder.
    done(path, "merge found/a_search found/b_search -o folders -q");
    assert_eq!(fs::read_to_string(path.join("folders/candidates.csv")).unwrap(), all);
    assert_eq!(document(&path.join("folders"), "merged.json")["complete"], true);
    fails(&sidereal(path, "merge tasks.jsonl --partial"), 2, &["merged", "--overwrite"]);
    let list = path.join("found/b_search/candidates.csv");
    fs::write(&list, fs::read_to_string(&list).unwrap().lines().next().unwrap()).unwrap();
    fails(
        &sidereal(path, "merge found/b_search -o none"),
        3,
        &["found 0 candidates", "as in summary.json"],
    );
    assert!(!path.join("none").exists());
}
