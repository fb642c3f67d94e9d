//! Alerts and triggers of `live search`: commands, files, a coincidencer, and datagrams, the absurd ones too.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{code, done, entries, fails, recording, sidereal, stderr};
use crate::live::{LONG, Running, await_port, free_port, receiving};

/// Lines of JSON in a file.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Summary of the triggers of a run.
fn counts(folder: &Path) -> Value {
    let all = lines(&folder.join("live/triggers.ndjson"));
    let last = all.last().unwrap();
    assert_eq!(last["fate"], "summary");
    last["counts"].clone()
}

#[test]
fn a_burst_reaches_command_files_and_coincidencer() {
    let home = recording();
    let folder = home.path();
    script(&folder.join("hook.sh"), "cat >> \"$1\"; echo seen; echo more >&2");
    fs::write(folder.join("veto.csv"), "name,dm_min,dm_max\nelsewhere,400,500\n").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = server.local_addr().unwrap();
    let port = free_port();
    let (address, place_text) = (format!("spead://127.0.0.1:{port}"), place.to_string());
    let words = "--log-file log live search ADDRESS -o live --observations 1 --no-plots -q --trigger-snr 10 --trigger-dm 20:2000 \
                 --trigger-veto veto.csv --alerts alerts --alert-test --alert-radius 0.2 --coincidencer PLACE --on-event";
    let words = words.replace("ADDRESS", &address).replace("PLACE", &place_text);
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.push("./hook.sh events.ndjson");
    let running = Running::of(folder, &words);
    await_port(port);
    let coincidencer = thread::spawn(move || {
        let mut gulps = Vec::new();
        loop {
            let mut text = String::new();
            server.accept().unwrap().0.read_to_string(&mut text).unwrap();
            if text.is_empty() {
                return gulps;
            }
            gulps.push(text);
        }
    });
    done(folder, &format!("send a.fil {address} --rate 4 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // An empty connection ends the listener.
    drop(std::net::TcpStream::connect(place).unwrap());
    let gulps = coincidencer.join().unwrap();

    // The command had each message, in order.
    let events = lines(&folder.join("events.ndjson"));
    let of = |state: &str| events.iter().filter(|event| event["state"] == state).count();
    assert!(of("initial") == 1 && of("retraction") == 0, "{events:?}");
    let (first, last) = (&events[0], events.last().unwrap());
    assert!(first["state"] == "initial" && first["test"] == true && first["sequence"] == 1);
    assert!(last["final"] == true && last["sequence"] == events.len());
    let [dm, dm_error] = ["dm", "dm_error"].map(|key| last[key].as_f64().unwrap());
    assert!((dm - 60.0).abs() < 3.0 * dm_error && dm_error < 3.0, "{last}");
    assert!(events.iter().all(|event| event["id"] == first["id"]));
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(log.contains("seen more"), "{log}");

    // The final event is the final candidate.
    let found = lines(&folder.join("live/candidates.ndjson"));
    let is_best = |line: &&Value| line["state"] == "final" && line["snr"].as_f64() > Some(10.0);
    let best = found.iter().find(is_best).unwrap();
    let number = best["number"].as_u64().unwrap();
    assert!(first["id"].as_str().unwrap().ends_with(&format!("_{number:04}")));
    assert!((best["mjd"].as_f64().unwrap() - last["mjd"].as_f64().unwrap()).abs() < 1e-9);

    // Each message is a notice and a packet, and nothing else is in the folder.
    let names = entries(&folder.join("alerts"));
    assert_eq!(names.len(), 2 * events.len(), "{names:?}");
    let id = first["id"].as_str().unwrap();
    let text = fs::read_to_string(folder.join(format!("alerts/{id}.initial.json"))).unwrap();
    let notice: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&notice["alert_tense"], &notice["id"]), (&"test".into(), &first["id"]));
    let packet = fs::read_to_string(folder.join(format!("alerts/{id}.update.xml"))).unwrap();
    assert!(packet.contains("cite=\"supersedes\"") && packet.contains("role=\"test\""));

    // A gulp is its number, and lines of eight columns.
    let columns: Vec<Vec<&str>> = gulps
        .iter()
        .flat_map(|gulp| gulp.lines().skip(1))
        .map(|line| line.split('\t').collect())
        .collect();
    assert!(columns.iter().all(|columns| columns.len() == 8), "{columns:?}");
    let number = |text: &str| text.parse::<f64>().unwrap();
    let strong = columns.iter().find(|columns| number(columns[0]) > 10.0).unwrap();
    assert!((number(strong[6]) - 60.0).abs() < 3.0 && (number(strong[3]) - 1.5).abs() < 0.05);
    assert!((number(strong[2]) * 1e-3 - number(strong[3])).abs() < 2e-3, "{strong:?}");
    let heads: Vec<f64> = gulps.iter().map(|gulp| number(gulp.lines().next().unwrap())).collect();
    assert!(heads.windows(2).all(|two| two[0] < two[1]), "{heads:?}");

    // The search triggers itself, once.
    let own = lines(&folder.join("live/triggers.ndjson"));
    let accepted: Vec<&Value> = own.iter().filter(|line| line["fate"] == "accepted").collect();
    assert_eq!(accepted.len(), 1, "{own:?}");
    assert!(accepted[0]["source"] == "search" && accepted[0]["name"] == first["id"]);
    let counts = counts(folder);
    assert_eq!(counts["events"], 1);
    assert_eq!(
        (&counts["commands"][0], &counts["alerts"][0]),
        (&events.len().into(), &events.len().into())
    );
}

#[test]
fn vetoed_and_weak_candidates_are_no_events() {
    let home = recording();
    let folder = home.path();
    fs::write(folder.join("veto.csv"), "crab,50,70\n").unwrap();
    for (options, vetoed) in
        [("--trigger-veto veto.csv", 1), ("--trigger-dm 100:", 0), ("--trigger-most 0", 0)]
    {
        let words = format!(
            "live search ADDRESS -o live --observations 1 --no-plots -q --trigger-snr 10 --alerts alerts {options}"
        );
        let (running, address) = receiving(folder, &words);
        done(folder, &format!("send a.fil {address} --rate max -q"));
        let output = running.end();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let counts = counts(folder);
        assert_eq!(
            (&counts["events"], &counts["vetoed"]),
            (&0.into(), &vetoed.into()),
            "{options}"
        );
        assert_eq!(counts["beyond_hour"], u64::from(options.ends_with('0')));
        assert!(entries(&folder.join("alerts")).is_empty());
    }
}

#[test]
fn events_are_retracted_and_follow_each_other() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    // Of the noise above a low threshold, some turns out to belong to other candidates.
    let words = "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 6 --seed 3 \
                 --burst dm=160,time=1.5,width=0.004,snr=25 --burst dm=160,time=4.5,width=0.004,snr=15";
    done(folder, words);
    script(&folder.join("hook.sh"), "cat >> events.ndjson");
    let words = "live search ADDRESS -o live --observations 1 --no-plots -q --snr 4 --rfi none --trigger-snr 4 \
                 --trigger-most 1000 --on-event ./hook.sh";
    let (running, address) = receiving(folder, words);
    done(folder, &format!("send a.fil {address} --rate 4 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let events = lines(&folder.join("events.ndjson"));
    let mut known: HashMap<&str, Vec<&Value>> = HashMap::new();
    for event in &events {
        let own = known.entry(event["id"].as_str().unwrap()).or_default();
        own.push(event);
        assert_eq!(event["sequence"], own.len(), "{event}");
        let is_first = matches!(event["state"].as_str(), Some("initial" | "subsequent"));
        assert_eq!(is_first, own.len() == 1, "{event}");
        if event["state"] == "subsequent" {
            let earlier = known[event["follows"].as_str().unwrap()].last().unwrap();
            let of = |event: &Value, key: &str| event[key].as_f64().unwrap();
            let errors = of(event, "dm_error") + of(earlier, "dm_error");
            assert!((of(event, "dm") - of(earlier, "dm")).abs() <= errors, "{event} {earlier}");
        }
    }
    // The last message says what the last line of the candidate says.
    let mut ends = HashMap::new();
    for line in lines(&folder.join("live/candidates.ndjson")) {
        ends.insert(line["number"].as_u64().unwrap(), line["state"] == "retracted");
    }
    let mut retracted = 0;
    for (id, own) in &known {
        let number: u64 = id.rsplit('_').next().unwrap().parse().unwrap();
        let last = own.last().unwrap();
        assert!(last["final"] == true, "{last}");
        assert_eq!(last["state"] == "retraction", ends[&number], "{last}");
        retracted += usize::from(ends[&number]);
    }
    assert!(retracted > 0 && events.iter().any(|event| event["state"] == "subsequent"));
    assert_eq!(counts(folder)["events"], known.len());
}

#[test]
fn triggers_are_accepted_refused_or_limited_and_the_search_finds_the_same() {
    let home = recording();
    let folder = home.path();
    let port = free_port();
    let words = format!(
        "live search ADDRESS -o live --observations 1 --no-plots -q --triggers udp://:{port} --trigger-from 127.0.0.1 \
         --trigger-rate 30"
    );
    let (running, address) = receiving(folder, &words);
    await_port(port);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(("127.0.0.1", port)).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = now.as_secs();
    let good = [
        format!(r#"{{"name": "own", "unix": {now}.5, "dm": 350, "dm_error": 2, "test": true}}"#),
        r#"{"candname": "grex", "itime": 1500}"#.to_owned(),
        "1500-dsa110-".to_owned(),
        "12.5\t1500\t1500\t1.5\t2\t70\t60.2\t0\n\u{3}".to_owned(),
        format!(
            r#"{{"event_id": 42, "start_unix_seconds": {now}, "start_unix_nano": 5, "duration_nano": 1000, "dm": 60,
                "dm_error": 0.5, "file_path": "/etc/passwd"}}"#
        ),
    ];
    let absurd = [
        r#"{"name": "early", "unix": 0, "dm": 1}"#.to_owned(),
        format!(r#"{{"name": "dm", "unix": {now}, "dm": 1e9}}"#),
        format!(r#"{{"name": "late", "unix": {}, "dm": 1}}"#, now + 3600),
        format!(r#"{{"name": "../../x", "unix": {now}, "dm": 1}}"#),
        "9\t0\t1500\t1.5\t2\t70\tNaN\t0".to_owned(),
    ];
    let malformed = [r#"{"unix": NaN}"#, "\u{0}\u{1}", "{}"];
    for text in good.iter().chain(&absurd).map(String::as_str).chain(malformed) {
        sender.send(text.as_bytes()).unwrap();
    }
    sender.send(&[b' '; 5000]).unwrap();
    let foreign = UdpSocket::bind("127.0.0.2:0").unwrap();
    for _ in 0..10 {
        foreign.send_to(good[0].as_bytes(), ("127.0.0.1", port)).unwrap();
    }
    // The rate is regained, then a thousand in a second.
    sleep(Duration::from_millis(1100));
    for number in 0..1000 {
        let text = format!(r#"{{"name": "flood{number}", "unix": {now}, "dm": 350}}"#);
        sender.send(text.as_bytes()).unwrap();
    }
    done(folder, &format!("send a.fil {address} --rate max -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));

    let all = lines(&folder.join("live/triggers.ndjson"));
    let named = |name: &str| all.iter().find(|line| line["name"] == name).unwrap_or(&Value::Null);
    for name in ["own", "grex", "dsa110", "S1500", "42"] {
        assert_eq!(named(name)["fate"], "accepted", "{name}: {all:?}");
    }
    assert!(named("own")["test"] == true && named("own")["dm"] == 350.0);
    assert_eq!((&named("S1500")["dm"], &named("S1500")["width_s"]), (&60.2.into(), &0.004.into()));
    assert_eq!(named("42")["reference_mhz"], 400.0);
    // A trigger without a DM asks for the whole range of the search.
    assert_eq!(named("grex")["dm"], named("grex")["dm_error"]);
    let why = |name: &str| named(name)["why"].as_str().unwrap_or("").to_owned();
    assert!(why("early").contains("before the year 2000"), "{all:?}");
    assert!(why("dm").contains("the DM is 1000000000, not 0 to 10000"));
    assert!(why("late").contains("in the future, more than 10 s"));
    assert!(why("../../x").contains("the name must have"));
    assert!(all.iter().any(|line| line["why"] == "the DM is no finite number"));
    let counts = counts(folder);
    let count = |key: &str| counts[key].as_u64().unwrap();
    assert_eq!((count("received") + count("dropped_by_kernel"), count("foreign")), (1024, 10));
    assert_eq!((count("malformed"), count("out_of_range")), (4, 5));
    let flood = count("accepted") - good.len() as u64;
    assert!((25..100).contains(&flood), "{counts}");
    assert_eq!(count("beyond_rate") + flood + count("dropped_by_kernel"), 1000);
    let several: u64 = all.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert_eq!(several, 10 + count("beyond_rate") + count("dropped_by_kernel"));

    // None of them changed what the search found.
    done(folder, "search a.fil -o file -q --no-plots");
    let finals = lines(&folder.join("live/candidates.ndjson"));
    let finals = finals.iter().filter(|line| line["state"] == "final").count();
    let text = fs::read_to_string(folder.join("file/candidates.cand")).unwrap();
    assert_eq!(text.lines().count(), finals);
}

#[test]
fn a_command_that_hangs_delays_neither_the_search_nor_its_end() {
    let home = recording();
    let folder = home.path();
    script(&folder.join("hook.sh"), "echo $$ > pid; exec sleep 60");
    let words = "live search ADDRESS -o live --no-plots -q --trigger-snr 10 --on-event ./hook.sh";
    let (running, address) = receiving(folder, words);
    done(folder, &format!("send a.fil {address} --rate max -q"));
    let begin = Instant::now();
    while !folder.join("pid").exists() || !folder.join("live/candidates.ndjson").exists() {
        assert!(begin.elapsed() < LONG);
        sleep(Duration::from_millis(10));
    }
    let is_final = || {
        let text = fs::read_to_string(folder.join("live/candidates.ndjson")).unwrap();
        text.contains("\"final\"")
    };
    while !is_final() {
        assert!(begin.elapsed() < LONG, "the search waits for the command");
        sleep(Duration::from_millis(10));
    }
    let asked = Instant::now();
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let id = fs::read_to_string(folder.join("pid")).unwrap();
    assert!(!Path::new("/proc").join(id.trim()).exists(), "the command goes on");
    let counts = counts(folder);
    let [done, failed, left] = [0, 1, 2].map(|place| counts["commands"][place].as_u64().unwrap());
    assert!(done == 0 && failed == 1 && left > 0, "{counts}");
}

#[test]
fn mistakes_are_named_before_the_stream() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let place = format!("live search spead://127.0.0.1:{} -o live", free_port());
    for (options, expected) in [
        ("--on-event true", "--trigger-snr"),
        ("--trigger-snr 8 --on-event /no/such/program", "must be an executable file"),
        ("--trigger-snr 8 --on-event true --on-event-timeout 0", "--on-event-timeout"),
        ("--trigger-snr 8 --trigger-veto none.csv", "none.csv"),
        ("--trigger-snr 8 --trigger-dm 5", "expected LOWEST:HIGHEST"),
        ("--trigger-snr 8 --alerts a --alert-ivorn me", "--alert-ivorn"),
        ("--triggers udp://0.0.0.0:65432", "needs --trigger-from"),
        ("--triggers 127.0.0.1:65432", "expected udp://HOST:PORT"),
        ("--trigger-from 127.0.0.1", "--triggers"),
        ("--coincidencer http://a:1", "expected HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT"),
    ] {
        let output = sidereal(folder, &format!("{place} {options}"));
        assert!(matches!(code(&output), 1 | 2), "{options}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{options}: {}", stderr(&output));
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = sidereal(folder, &format!("{place} --triggers udp://:{port}"));
    fails(&output, 1, &["--triggers", "in use"]);
    let site = "[input]\naddress = \"spead://127.0.0.1:PORT\"\n[search]\ntrigger_snr = 8\non_event = \"no-such-program\"\n";
    fs::write(folder.join("site.toml"), site.replace("PORT", &free_port().to_string())).unwrap();
    fails(&sidereal(folder, "live check site.toml"), 2, &["--on-event", "executable"]);
}
