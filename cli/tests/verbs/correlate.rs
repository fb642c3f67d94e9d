//! `correlate`: from antennas' voltages to visibilities, and what its options change.

use std::fs;
use std::path::Path;

use crate::common::array::{SOURCE, array, files};
use crate::common::{document, done, entries, json, sidereal, stderr};
use serde_json::Value;

const ALL: [&str; 4] = ["ant00", "ant01", "ant02", "ant03"];

fn correlate(more: &str) -> String {
    format!(
        "correlate {} --antennas array/antennas.csv --channels 32 --integration 0.05 {more}",
        files(&ALL)
    )
}

fn is_hdf5(path: &Path) -> bool {
    fs::read(path).unwrap().starts_with(b"\x89HDF\r\n\x1a\n")
}

#[test]
fn a_run_leaves_visibilities_a_document_and_pictures() {
    let home = array("");
    let told = json(home.path(), &correlate("-o a.uvh5"));
    assert!(is_hdf5(&home.path().join("a.uvh5")));
    assert_eq!(told, document(home.path(), "a.uvh5.json"));
    // 1 MHz in 32 channels: a spectrum every 32 us, the first after 8 x 32 samples.
    let expected = [
        ("file", "a.uvh5".into()),
        ("format", "UVH5".into()),
        ("source", "Spot".into()),
        ("telescope", "simulation".into()),
        ("channels", 32.into()),
        ("baselines", 10.into()),
        ("spectra", ((250_000 - 256) / 32 + 1).into()),
        ("integrations", 5.into()),
        ("average_channels", 1.into()),
        ("polarizations", vec!["XX", "YY", "XY", "YX"].into()),
        ("missing", Value::Array(Vec::new())),
    ];
    for (key, value) in expected {
        assert_eq!(told[key], value, "{key}");
    }
    let number = |path: &str| told.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let near = |path: &str, value: f64| {
        assert!((number(path) - value).abs() <= 1e-6 * value.abs(), "{path}: {}", number(path));
    };
    near("/tstart_mjd", 60_676.0);
    near("/channel_width_mhz", 1.0 / 32.0);
    near("/frequency_mhz/0", 149.5);
    near("/frequency_mhz/1", 150.5 - 1.0 / 32.0);
    near("/phase_centre/ra_deg", 140.0);
    near("/phase_centre/dec_deg", -20.0);
    assert!(number("/phase_centre/altitude_deg/0") > 45.0);
    assert!(number("/dut1_s").abs() < 0.9);
    assert!(number("/run/realtime_factor") > 0.0 && number("/run/elapsed_s") > 0.0);
    for step in ["read", "channelize", "align", "corner_turn", "correlate", "read_out", "write"] {
        assert!(number(&format!("/run/steps_s/{step}")) >= 0.0, "{step}");
    }
    let antennas = told["antennas"].as_array().unwrap();
    for (antenna, name) in antennas.iter().zip(ALL) {
        assert_eq!(antenna["name"], name);
        assert_eq!(antenna["file"], format!("array/{name}.dada"));
        assert_eq!(
            (antenna["masked"].as_f64(), antenna["limited"].as_f64()),
            (Some(0.0), Some(0.0))
        );
    }
    assert_eq!(antennas.len(), 4);
    assert_eq!(
        (&told["plots"], &told["report"]),
        (&Value::Array(Vec::new()), &"a.uvh5.html".into())
    );
    let expected = ["a.uvh5", "a.uvh5.html", "a.uvh5.json", "array"].map(str::to_owned);
    assert_eq!(entries(home.path()), expected.into());
    let page = fs::read_to_string(home.path().join("a.uvh5.html")).unwrap();
    assert!(page.contains("<title>a.uvh5: sidereal</title>") && page.contains(": fringe"));
    let told = json(home.path(), &correlate("-o b.uvh5 --plots pictures"));
    let pictures = ["array", "autocorrelations", "baselines", "waterfalls"];
    let plots: Vec<String> = pictures.iter().map(|name| format!("pictures/{name}.png")).collect();
    assert_eq!((&told["plots"], &told["report"]), (&Value::from(plots.clone()), &Value::Null));
    for plot in plots {
        assert!(fs::read(home.path().join(plot)).unwrap().starts_with(b"\x89PNG"));
    }
    assert!(!home.path().join("b.uvh5.html").exists());
    let info = json(home.path(), "info a.uvh5");
    for key in ["format", "telescope", "baselines", "integrations", "channels", "polarizations"] {
        assert_eq!(info[key], told[key], "{key}");
    }
    assert_eq!(info["antennas"], Value::from(ALL.to_vec()));
    assert_eq!(
        (&info["source"]["name"], &info["source"]["kind"]),
        (&"Spot".into(), &"sidereal".into())
    );
    let table = done(home.path(), "info a.uvh5");
    for words in ["UVH5 visibilities", "Spot, ", "4 with data of 4: ant00, ant01", "XX YY XY YX"] {
        assert!(table.contains(words), "{words} is not in: {table}");
    }
    crate::common::fails(&sidereal(home.path(), "info a.uvh5 --pol 0"), 2, &["--pol"]);
    crate::common::fails(&sidereal(home.path(), "info a.uvh5 --freq 100"), 2, &["--freq is given"]);
}

#[test]
fn the_summary_says_what_was_done() {
    let home = array("");
    let told = done(home.path(), &correlate("-o a.uvh5 --no-plots --no-progress --reproducible"));
    for words in [
        "of 4 antennas in",
        "samples/s per antenna",
        "x real time",
        "filter banks",
        "multiplication",
        "32 channels of each recorded one, 8 taps, hann, 8 bit; 0 % limited, 0 % masked",
        "Spot at RA 140°, Dec -20°, altitude",
        "UT1-UTC 0.04",
        "table of the IERS",
        "Wrote a.uvh5: 5 integrations of 50 ms, 10 baselines, 32 channels of 31.25 kHz, 149.5 to",
        "XX YY XY YX",
    ] {
        assert!(told.contains(words), "{words} is not in: {told}");
    }
    assert!(!told.contains("Pictures"));
    assert_eq!(done(home.path(), &correlate("-o b.uvh5 --no-plots -q --reproducible")), "");
    let same = |name: &str| fs::read(home.path().join(name)).unwrap();
    assert!(same("a.uvh5") == same("b.uvh5"));
    let gulped =
        done(home.path(), &correlate("-o c.uvh5 --no-plots -q --reproducible --gulp 100 -t 1"));
    assert_eq!(gulped, "");
    assert!(same("a.uvh5") == same("c.uvh5"), "gulp and threads change nothing");
}

#[test]
fn outputs_are_chosen() {
    let home = array("");
    let told = |more: &str| {
        json(home.path(), &correlate(&format!("--overwrite -o a.uvh5 --no-plots {more}")))
    };
    let drift = told("--drift");
    assert_eq!((&drift["source"], &drift["phase_centre"]), (&Value::Null, &Value::Null));
    let pairs = told("--baselines ant00-ant01,ant03-ant03");
    assert_eq!(pairs["baselines"], 2);
    assert_eq!(told("--baselines auto")["baselines"], 4);
    let wide = told("--average-channels 4");
    assert_eq!((&wide["channels"], &wide["channel_width_mhz"]), (&8.into(), &0.125.into()));
    assert_eq!(told("--time-range 0.1:0.2")["integrations"], 2);
    assert_eq!(told("--dut1 0.1")["dut1_from"], "--dut1");
    let named = told(&format!("--phase-centre {SOURCE} --source-name here"));
    assert_eq!(named["source"], "here");
    let elsewhere = told("--phase-centre 09:20:00,-20:30:00");
    assert_eq!(elsewhere["phase_centre"]["dec_deg"], -20.5);
    for bits in [4, 8, 32] {
        let made = &told(&format!("--nbits {bits}"))["spectra_made"];
        assert_eq!((&made["bits"], &made["gains"]), (&bits.into(), &"auto".into()));
    }
    let limited = told("--gains 1000");
    assert!(limited["antennas"][0]["limited"].as_f64().unwrap() > 0.5);
    fs::write(home.path().join("g.txt"), "polarization re im\nX 3 1\nY 4 0\n").unwrap();
    assert_eq!(told("--gains g.txt")["spectra_made"]["gains"], "from a file");
    let floats = told("--taps 4 --window hamming --nbits 32");
    assert_eq!(floats["spectra_made"]["window"], "hamming");
}

#[test]
fn recordings_are_found_by_name_header_and_order() {
    let home = array("");
    let owner = |words: &str| -> Vec<String> {
        let told = json(
            home.path(),
            &format!(
                "correlate {words} -o a.uvh5 --overwrite --no-plots --channels 32 --integration 0.05"
            ),
        );
        let antennas = told["antennas"].as_array().unwrap().clone();
        antennas.iter().map(|own| own["file"].as_str().unwrap().to_owned()).collect()
    };
    let file = |name: &str| format!("array/{name}.dada");
    let mixed = owner(&format!(
        "{} --antennas array/antennas.csv",
        files(&["ant03", "ant01", "ant00", "ant02"])
    ));
    assert_eq!(mixed, ALL.map(file));
    let given = "ant01=array/ant00.dada ant00=array/ant01.dada array/ant02.dada array/ant03.dada";
    let swapped = owner(&format!("{given} --antennas array/antennas.csv"));
    assert_eq!(swapped, ["ant01", "ant00", "ant02", "ant03"].map(file));
    // Names that do not match are assigned in order, with a note.
    let text = fs::read_to_string(home.path().join("array/antennas.csv")).unwrap();
    fs::write(home.path().join("other.csv"), text.replace("ant0", "s")).unwrap();
    let words = format!(
        "correlate {} -o a.uvh5 --overwrite --no-plots --antennas other.csv --channels 32 \
         --integration 0.05",
        files(&["ant02", "ant01", "ant00", "ant03"])
    );
    let output = sidereal(home.path(), &words);
    assert!(output.status.success() && stderr(&output).contains("in the order of other.csv"));
    let document = document(home.path(), "a.uvh5.json");
    assert_eq!(document["antennas"][0]["name"], "s0");
    assert_eq!(document["antennas"][0]["file"], "array/ant02.dada");
}

#[test]
fn missing_antennas_are_flagged_when_asked() {
    let home = array("--no-file ant01 --gap ant02,0.1,0.05");
    let words = format!(
        "correlate {} --antennas array/antennas.csv --channels 32 --integration 0.05 -o a.uvh5 \
         --missing flag",
        files(&["ant00", "ant02", "ant03"])
    );
    let output = sidereal(home.path(), &words);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("no recording of ant01; its visibilities are flagged"), "{told}");
    let told = document(home.path(), "a.uvh5.json");
    assert_eq!(told["missing"], Value::from(vec!["ant01"]));
    assert_eq!((&told["baselines"], told["antennas"].as_array().unwrap().len()), (&10.into(), 3));
}

#[test]
fn a_source_below_the_horizon_is_a_warning() {
    let home = array("");
    let words = correlate("--phase-centre 320,20 --no-plots -o a.uvh5");
    let output = sidereal(home.path(), &words);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("warning: the phase centre is below the horizon"));
    let altitude = document(home.path(), "a.uvh5.json")["phase_centre"]["altitude_deg"][0].clone();
    assert!(altitude.as_f64().unwrap() < 0.0);
}

#[test]
fn one_recording_may_have_several_antennas() {
    let home = array("");
    let voltages = "simulate voltages all.dada -q --freq 150 --bandwidth 1 --duration 0.2 --antennas 3 \
                    --coarse-channels 2 --telescope site";
    done(home.path(), voltages);
    let text = "# longitude_deg=21\n# latitude_deg=-30\n# height_m=1000\nname,east,north,up\n\
                a,0,0,0\nb,100,0,0\nc,0,70,0\n";
    fs::write(home.path().join("p.csv"), text).unwrap();
    let words = "--antennas p.csv --drift --channels 16 --integration 0.05 --no-plots -o a.uvh5";
    let told = json(home.path(), &format!("correlate all.dada {words}"));
    let names: Vec<&str> =
        told["antennas"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((&told["channels"], &told["baselines"]), (&32.into(), &6.into()));
    let told = json(home.path(), &format!("correlate c,a,b=all.dada {words} --overwrite"));
    assert_eq!(told["antennas"].as_array().unwrap().len(), 3);
}

#[test]
fn channelized_voltages_are_not_channelized_again() {
    let home = array("");
    for name in ALL {
        done(
            home.path(),
            &format!("channelize array/{name}.dada -q -o fine_{name}.dada --channels 16"),
        );
    }
    let inputs = ALL.map(|name| format!("{name}=fine_{name}.dada")).join(" ");
    let words = format!(
        "correlate {inputs} --antennas array/antennas.csv --integration 0.05 --no-plots -o a.uvh5 \
         --overwrite --phase-centre {SOURCE}"
    );
    let told = json(home.path(), &words);
    assert_eq!(told["channels"], 16);
    assert_eq!(told["spectra_made"]["channelized"], false);
    assert_eq!(told["spectra_made"]["taps"], Value::Null);
    let again = json(home.path(), &format!("{words} --channels 4"));
    assert_eq!(
        (&again["channels"], &again["spectra_made"]["channelized"]),
        (&64.into(), &true.into())
    );
    let recorded =
        format!("{} --channels 1", correlate("--no-plots -o b.uvh5").replace("--channels 32", ""));
    assert_eq!(json(home.path(), &recorded)["channels"], 1);
}

#[test]
fn a_trace_has_the_work_of_the_processor_and_of_the_reader() {
    let home = array("");
    let words = "-o a.uvh5 --no-plots -q --device cpu --gulp 500 --trace t.json";
    done(home.path(), &correlate(words));
    let trace = document(home.path(), "t.json");
    let events = trace["traceEvents"].as_array().unwrap();
    let lane = |event: &Value| event["tid"].as_u64().unwrap();
    for name in ["F-engine", "corner turn", "X-engine", "readout"] {
        let own: Vec<&Value> = events.iter().filter(|event| event["name"] == name).collect();
        assert!(!own.is_empty() && own.iter().all(|event| event["cat"] == "compute"), "{name}");
    }
    let reader = events.iter().find(|event| event["args"]["name"] == "reader").map(lane);
    let is_ahead = |event: &Value| event["cat"] == "read" && Some(lane(event)) == reader;
    assert!(events.iter().any(is_ahead));
}
