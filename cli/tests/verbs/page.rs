//! `live ... --page`: the page's numbers are those of the sender, and requests that must be refused are.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ChildStderr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::live::{LONG, Running, await_port, free_port};
use crate::common::array::{SOURCE, array, files};
use crate::common::{done, fails, json, recording, renamed, sidereal};

/// A run with a page, and what it still prints on standard error.
struct Paged {
    running: Running,
    stderr: BufReader<ChildStderr>,
    /// Address of the page: `127.0.0.1:PORT`.
    page: String,
    /// Address of the stream.
    stream: String,
    token: String,
}

impl Paged {
    /// Starts a verb of `live` with output in the folder `out`.
    fn start(folder: &Path, verb: &str, options: &str) -> Self {
        let ports = [free_port()];
        let stream = format!("spead://127.0.0.1:{}", ports[0]);
        Self::begin(folder, &format!("live {verb} {stream} -o out {options}"), &ports)
    }

    /// Starts `live` and waits until it receives on all ports.
    fn begin(folder: &Path, words: &str, ports: &[u16]) -> Self {
        let stream = format!("spead://127.0.0.1:{}", ports[0]);
        let mut running = Running::start(folder, &format!("{words} --page 127.0.0.1:0"));
        let mut stderr = BufReader::new(running.child().stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let page = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let page = page.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        assert!(line.contains("(token in out/page-token)"), "{line}");
        ports.iter().copied().for_each(await_port);
        let token = fs::read_to_string(folder.join("out/page-token")).unwrap().trim().to_owned();
        Self { running, stderr, page, stream, token }
    }

    /// Sends a request with the lines of a header and a body; returns the status and the answer.
    fn ask(&self, request: &str, header: &str, body: &str) -> (u16, String) {
        let host = if header.contains("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.page)
        };
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\n{host}{header}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let answer = exchange(&self.page, text.as_bytes());
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.unwrap_or_else(|| panic!("no status: {answer}")), answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), "", "")
    }

    /// The body of a document.
    fn json(&self, path: &str) -> Value {
        let (code, answer) = self.get(path);
        assert_eq!(code, 200, "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// Waits until the status says something.
    fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let status = self.json("/status");
            if is_so(&status) {
                return status;
            }
            assert!(begin.elapsed() < LONG, "{what}: {status}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Asks the run to stop; returns the time that it took and what it printed.
    fn stop(mut self) -> (Duration, String) {
        let begin = Instant::now();
        self.running.signal(Signal::TERM);
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).unwrap();
        self.running.child().wait().unwrap();
        (begin.elapsed(), told)
    }
}

/// Sends bytes and returns the answer until the connection ends.
pub(crate) fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    // The server may answer, and close, before it has read everything.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The value of a sample of /metrics.
fn metric(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).trim().parse().unwrap()
}

#[test]
fn numbers_are_those_of_the_sender_and_candidates_can_be_labelled() {
    let home = recording();
    let folder = home.path();
    let paged = Paged::start(folder, "search", "--dm-max 2000");
    assert_eq!(paged.get("/healthz").0, 200);
    let words = format!(
        "send a.fil {} --rate 8 --heap-times 16 --loss 0.05 --duplicate 0.05 --seed 3",
        paged.stream
    );
    let sent = json(folder, &words);
    let status = paged.wait("an observation ends", |status| status["observations"] == 1);
    let number = |key: &str| sent[key].as_u64().unwrap();
    let stream = &status["streams"][0];
    let (headers, twice, lost) =
        (number("header_packets"), number("duplicated"), number("dropped"));
    let samples = number("packets") - headers - twice;
    assert!(twice > 0 && lost > 0, "{sent}");
    assert_eq!(stream["received"], samples, "{stream}");
    assert_eq!((&stream["duplicate"], &stream["missing_blocks"]), (&twice.into(), &lost.into()));
    assert_eq!((&stream["state"], &stream["dropped_by_kernel"]), (&"waiting".into(), &0.into()));
    assert_eq!(stream["sources"][0]["received"], samples);
    assert!(status["stages"].as_array().unwrap().iter().any(|stage| stage["name"] == "dedisperse"));
    let metrics = paged.get("/metrics").1;
    for (outcome, count) in [("received", samples), ("duplicate", twice), ("late", 0)] {
        let labels = format!("{{stream=\"{}\",source=\"0\",outcome=\"{outcome}\"}}", paged.stream);
        assert_eq!(
            metric(&metrics, &format!("sidereal_packets_total{labels}")),
            count as f64,
            "{outcome}"
        );
    }
    let labels = format!("{{stream=\"{}\",source=\"0\"}}", paged.stream);
    assert_eq!(metric(&metrics, &format!("sidereal_missing_blocks_total{labels}")), lost as f64);

    let found = paged.json("/candidates");
    let all = found["candidates"].as_array().unwrap();
    let best = all.iter().find(|one| one["state"] == "final" && one["url"].is_string());
    let best = best.unwrap_or_else(|| panic!("no picture: {found}"));
    assert!((best["dm"].as_f64().unwrap() - 60.0).abs() < 5.0, "{best}");
    let finals = all.iter().filter(|one| one["state"] == "final").count();
    assert_eq!(metric(&metrics, "sidereal_candidates_total{state=\"final\"}"), finals as f64);
    let (code, png) = paged.get(best["url"].as_str().unwrap());
    assert!(code == 200 && png.contains("content-type: image/png") && png.contains("PNG"));

    let body = serde_json::json!({
        "observation": best["observation"], "number": best["number"], "label": "astrophysical", "name": "A. \"B\""
    });
    let body = body.to_string();
    assert_eq!(paged.ask("POST /label", "", &body).0, 401);
    assert_eq!(paged.ask("POST /label", &paged.bearer(), &body).0, 204);
    // The cookie of a login does the same.
    let (code, answer) = paged.ask("POST /login", "", &paged.token);
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(code == 204 && cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(paged.ask("POST /label", &cookie, &body.replace("astrophysical", "noise")).0, 204);
    let kept = fs::read_to_string(folder.join("out/labels.ndjson")).unwrap();
    let lines: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let labels = |list: &[Value]| -> Vec<String> {
        list.iter().map(|one| one["label"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(labels(&lines), ["astrophysical", "noise"]);
    assert_eq!((&lines[0]["name"], &lines[0]["number"]), (&"A. \"B\"".into(), &best["number"]));
    assert!(lines[0]["labelled_unix_s"].as_f64().unwrap() > 1.7e9);
    assert_eq!(
        labels(paged.json("/candidates")["labels"].as_array().unwrap()),
        ["astrophysical", "noise"]
    );

    for (name, document) in
        [("live-status", paged.json("/status")), ("live-candidates", paged.json("/candidates"))]
    {
        let schema: Value = serde_json::from_str(&done(folder, &format!("schema {name}"))).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<String> =
            validator.iter_errors(&document).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
    let (_, told) = paged.stop();
    assert!(!told.contains("panicked"), "{told}");
    // The next run shows the candidates and labels of this one.
    let again = Paged::start(folder, "search", "--no-plots");
    let shown = again.json("/candidates");
    assert_eq!(labels(shown["labels"].as_array().unwrap()), ["astrophysical", "noise"]);
    assert!(shown["candidates"].as_array().unwrap().iter().any(|one| one["url"] == best["url"]));
}

#[test]
fn a_correlation_shows_chosen_baselines() {
    let home = array("");
    let folder = home.path();
    let names = ["ant00", "ant01", "ant02"];
    let ports = names.map(|_| free_port());
    let address = |antenna: usize| format!("spead://127.0.0.1:{}", ports[antenna]);
    let mut words = format!(
        "live correlate -o out --antennas array/antennas.csv --channels 64 --integration 0.01 --phase-centre {SOURCE} --missing flag -q \
         --log-file log"
    );
    for (antenna, name) in names.iter().enumerate() {
        words += &format!(" {name}={}", address(antenna));
    }
    let unknown = sidereal(folder, &format!("{words} --page 0 --page-baselines ant00-ant09"));
    fails(&unknown, 2, &["--page-baselines", "ant00-ant09", "two antennas"]);
    let words = words.replace("-q --log-file log", "");
    let paged =
        Paged::begin(folder, &format!("{words} --page-baselines ant00-ant02,ant02-ant00"), &ports);
    let senders: Vec<Running> = (0..names.len())
        .map(|antenna| {
            let (file, address) = (files(&[names[antenna]]), address(antenna));
            Running::start(folder, &format!("send {file} {address} --rate 1 -q"))
        })
        .collect();
    senders.into_iter().for_each(|sender| drop(sender.end()));
    let status = paged.wait("an observation ends", |status| status["observations"] == 1);
    assert_eq!(status["streams"].as_array().unwrap().len(), 3);
    assert!(status["rows"]["none"].as_str().unwrap().contains("live search"), "{status}");
    let mut socket = BufReader::new(TcpStream::connect(&paged.page).unwrap());
    socket.get_ref().set_read_timeout(Some(LONG)).unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", paged.page);
    socket.get_mut().write_all(request.as_bytes()).unwrap();
    let mut lines = socket.lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: hello"));
    let line = lines.next().unwrap();
    let hello: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    let shown = hello["visibilities"].as_array().unwrap();
    assert!(shown.len() > 20, "{}", shown.len());
    for line in shown {
        let [one, other] = [0, 1].map(|at| &line["baselines"][at]);
        assert_eq!((&one["name"], &other["name"]), (&"ant00-ant02".into(), &"ant02-ant00".into()));
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
        assert!(number(one, "amplitude") > 0.0 && one["amplitude"] == other["amplitude"]);
        assert_eq!(number(one, "phase_deg"), -number(other, "phase_deg"));
        // A strong source in the phase centre.
        assert!(number(one, "phase_deg").abs() < 30.0, "{line}");
    }
}

#[test]
fn what_must_be_refused_is() {
    let home = recording();
    let folder = home.path();
    let paged = Paged::start(folder, "record", "");
    let own = format!("Origin: http://{}\r\n", paged.page);
    let bearer = paged.bearer();
    let label = r#"{"observation": "o", "number": 1, "label": "noise"}"#;
    let huge = "x".repeat(1 << 20);
    let header = format!("X-Long: {}\r\n", "y".repeat(1 << 17));
    let with = |other: &str| format!("{other}{bearer}");
    for (request, header, body, expected) in [
        ("GET /status", own.clone(), "", 200),
        ("GET /status", "Host: evil.example\r\n".into(), "", 421),
        ("GET /healthz", "Host: evil.example\r\n".into(), "", 421),
        ("GET /status", "Host: localhost\r\nHost: evil.example\r\n".into(), "", 421),
        ("GET /events", "Origin: http://evil.example\r\n".into(), "", 403),
        ("POST /label", with("Origin: null\r\n"), label, 403),
        ("POST /label", with("Origin: https://evil.example\r\n"), label, 403),
        ("POST /label", String::new(), label, 401),
        (
            "POST /label",
            "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n".into(),
            label,
            401,
        ),
        ("POST /label", "Cookie: sidereal-1=\r\n".into(), label, 401),
        ("POST /label?token=x", String::new(), label, 401),
        ("POST /login", String::new(), "0123456789abcdef0123456789abcdef", 401),
        ("POST /label", bearer.clone(), label, 404),
        ("POST /label", bearer.clone(), "{}", 400),
        ("POST /label", bearer.clone(), "not JSON", 400),
        ("POST /label", bearer.clone(), &huge, 413),
        ("POST /login", String::new(), &huge, 413),
        ("GET /status", header, "", 431),
        ("POST /status", bearer.clone(), "", 405),
        ("GET /label", String::new(), "", 405),
        ("GET /nothing", String::new(), "", 404),
        ("GET /pictures/2026-01-01/../../page-token", String::new(), "", 404),
        ("GET /pictures/../page-token", String::new(), "", 404),
        ("GET /pictures/2026-01-01/..%2F..%2Fpage-token", String::new(), "", 404),
        ("GET /pictures/2026-01-01/%2e%2e%2fpage-token.png", String::new(), "", 404),
        ("GET /assets/../page-token", String::new(), "", 404),
    ] {
        let (code, answer) = paged.ask(request, &header, body);
        assert_eq!(code, expected, "{request} {}\n{answer}", &header[..header.len().min(80)]);
        assert!(!answer.contains(&paged.token), "{answer}");
    }
    // Nonsense ends its own connection only.
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET /\r\n\r\n", b"\0\0\0\0\r\n\r\n", b""]
    {
        let mut socket = TcpStream::connect(&paged.page).unwrap();
        socket.write_all(bytes).unwrap();
    }
    let (code, answer) = paged.get("/");
    assert!(
        code == 200 && answer.contains("content-security-policy: default-src 'none'"),
        "{answer}"
    );
    assert!(!folder.join("out/labels.ndjson").exists());
    let mode = folder.join("out/page-token").metadata().unwrap().permissions().mode();
    assert_eq!((mode & 0o777, paged.token.len()), (0o600, 32));
}

#[test]
fn texts_of_headers_are_harmless() {
    let home = recording();
    let folder = home.path();
    renamed(folder, "evil.fil", "<script>alert(1)</script>\u{1b}[31m");
    let paged = Paged::start(folder, "search", "--no-plots");
    let mut sender = Running::start(folder, &format!("send evil.fil {} -q", paged.stream));
    let status =
        paged.wait("an observation", |status| status["streams"][0]["observation"].is_object());
    sender.child().kill().unwrap();
    let source = status["streams"][0]["observation"]["source"].as_str().unwrap();
    assert!(source.starts_with("<script>") && !source.contains('\u{1b}'), "{source}");
    for path in ["/", "/metrics", "/healthz"] {
        assert!(!paged.get(path).1.contains("<script>alert"), "{path}");
    }
}

#[test]
fn a_run_ends_at_once_while_clients_read_events() {
    let home = recording();
    let paged = Paged::start(home.path(), "search", "");
    let mut clients: Vec<BufReader<TcpStream>> = (0..5)
        .map(|_| {
            let mut socket = TcpStream::connect(&paged.page).unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", paged.page);
            socket.write_all(request.as_bytes()).unwrap();
            BufReader::new(socket)
        })
        .collect();
    for client in &mut clients {
        let mut line = String::new();
        while !line.starts_with("event: status") {
            line.clear();
            assert!(client.read_line(&mut line).unwrap() > 0);
        }
    }
    let (took, told) = paged.stop();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn options_of_the_page_are_checked() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let live = |options: &str| {
        sidereal(folder, &format!("live record spead://127.0.0.1:0 -o out {options}"))
    };
    fails(&live("--page telescope.example"), 2, &["expected an IP address, a port, or both"]);
    fails(&live("--page-host telescope.example"), 2, &["--page-host", "it needs --page"]);
    fails(&live("--page 0 --page-host a:1"), 2, &["--page-host", "without a port"]);
    fs::write(folder.join("token"), "short").unwrap();
    fails(
        &live("--page 0 --page-token token"),
        3,
        &["token", "found 5 bytes, expected one word of 16"],
    );
    fails(&live("--page 0 --page-token missing"), 1, &["missing"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fails(&live(&format!("--page {address}")), 1, &["--page", "in use"]);
    assert!(!folder.join("out").exists());
}

#[test]
fn a_trigger_that_comes_to_the_page_is_dumped_and_listed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words =
        "simulate voltages a.dada --freq 300 --bandwidth 2 --pols 1 --duration 6 --seed 5 -q";
    done(folder, words);
    let options = "--channels 16 --integrate 8 --dm-max 50 --no-plots --rfi none --dump-ring 4";
    let paged = Paged::start(folder, "search", options);
    let words = format!("send a.dada {} --rate 1 -q", paged.stream);
    let _sender = Running::start(folder, &words);
    paged.wait("an observation", |status| status["streams"][0]["observation"].is_object());
    let body = |seconds: f64| {
        let mjd = 60_000.0 + seconds / 86_400.0;
        format!("{{\"name\": \"manual\", \"mjd\": {mjd:.9}, \"dm\": 10, \"width_s\": 0.01}}")
    };
    let (code, answer) = paged.ask("POST /trigger", "", &body(1.0));
    assert_eq!(code, 401, "{answer}");
    let (code, answer) = paged.ask("POST /trigger", &paged.bearer(), "{\"dm\": 1}");
    assert_eq!(code, 400, "{answer}");
    let (code, answer) = paged.ask("POST /trigger", &paged.bearer(), &body(1.0));
    assert_eq!(code, 202, "{answer}");
    paged.wait("a dump", |status| status["dumps"]["done"] == 1);
    let dumps = paged.json("/dumps");
    assert_eq!(dumps[0]["triggers"][0], "manual", "{dumps}");
    assert!(Path::new(dumps[0]["file"].as_str().unwrap()).starts_with("out/dumps"), "{dumps}");
    let (_, metrics) = paged.get("/metrics");
    assert_eq!(metric(&metrics, "sidereal_dumps{state=\"done\"}"), 1.0);
}
