//! `report`: one HTML file of a folder, in which every text is escaped.

use std::fs;

use serde_json::Value;

use crate::common::{array, document, done, fails, recording, renamed, sidereal, stderr};

#[test]
fn a_report_has_lists_and_pictures_and_no_markup_of_headers() {
    let home = recording();
    let folder = home.path();
    renamed(folder, "evil.fil", "<script>alert(1)</script>\u{1b}[31m");
    done(folder, "search evil.fil -o found -q --dm-max 200");
    let html = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(html.contains("<title>evil.fil: sidereal</title>"));
    fails(&sidereal(folder, "report found"), 2, &["report.html", "--overwrite"]);
    let told = stderr(&sidereal(folder, "report found --overwrite"));
    assert!(told.contains("found/report.html: ") && told.contains("KiB"), "{told}");
    // The verb `report` makes the same, but for the title and its own time.
    let again = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(again.contains("<title>found: sidereal</title>"));
    let content = |html: &str| {
        let (_, rest) = html.split_once("<main").unwrap();
        rest.split_once("</main>").unwrap().0.to_owned()
    };
    assert!(content(&again) == content(&html));
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{1b}[31m"));
    assert!(!html.contains("<script>alert") && !html.contains('\u{1b}'));
    let pictures = html.matches("<img src=\"data:image/png;base64,iVBOR").count();
    let names = fs::read_dir(folder.join("found")).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| name.to_string_lossy().ends_with(".png")).count();
    assert!(files >= 1 && pictures == files, "{pictures} {files}");
    assert!(html.contains("<a href=\"#p1\">picture</a>") && html.contains("<h3>candidates</h3>"));
    // Nothing is loaded from elsewhere.
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));

    done(folder, "report found --overwrite --embed 0 -q");
    let linked = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(!linked.contains("data:image/png") && linked.contains("<img src=\"candidate_0001_"));
    assert!(linked.len() < html.len());
    // The report is a file of the search's folder, which another search may replace.
    done(folder, "search evil.fil -o found -q --dm-max 200 --overwrite --no-plots");
    assert!(!folder.join("found/report.html").exists());
}

/// Returns the data of the plots of a report, with their captions.
fn plots(html: &str) -> Vec<(String, Value)> {
    let within = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    let figures = html.split("<figure class=\"drawn\">").skip(1);
    let one = |figure: &str| {
        let data = within(figure, "<script type=\"application/json\">", "</script>");
        let caption = within(figure, "<figcaption>", "</figcaption>");
        (caption, serde_json::from_str(&data).unwrap())
    };
    figures.map(one).collect()
}

#[test]
fn a_search_without_plots_has_those_of_its_candidates() {
    let home = recording();
    let folder = home.path();
    done(folder, "search a.fil -o found -q --dm-max 200 --no-plots");
    done(folder, "report found -q");
    let html = fs::read_to_string(folder.join("found/report.html")).unwrap();
    let plots = plots(&html);
    let captions: Vec<&str> = plots.iter().map(|plot| plot.0.as_str()).collect();
    assert!(captions[0].starts_with("Candidates by time and DM"), "{captions:?}");
    assert_eq!(captions[1..], ["Candidates by S/N", "Candidates by DM (pc/cm³)"]);
    let summary = document(folder, "found/summary.json");
    let candidates = summary["candidates"].as_array().unwrap();
    assert!(!candidates.is_empty());
    let counts =
        plots[1].1["counts"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), candidates.len() as u64);
    let best = &plots[0].1["points"][0];
    assert_eq!(
        (best["y"].as_f64(), best["name"].as_str()),
        (candidates[0]["dm"].as_f64(), Some("1"))
    );
    assert!(html.contains("sidereal replot a.fil found/candidates.cand -o found/pictures"));
    assert!(!html.contains("<img "));
    // Pictures that are drawn later are those of the candidates.
    done(folder, "replot a.fil found/candidates.cand -o found/pictures -q");
    done(folder, "report found -q --overwrite");
    let html = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(
        html.contains("<img ")
            && html.contains(">picture</a>")
            && !html.contains("sidereal replot")
    );
}

#[test]
fn a_correlation_has_its_antennas_and_the_chosen_baselines() {
    let home = array::array("");
    let folder = home.path();
    let files = array::files(&["ant00", "ant01", "ant02", "ant03"]);
    let words = "--antennas array/antennas.csv --channels 8 --integration 0.05 -q";
    done(folder, &format!("correlate {files} -o sky.uvh5 {words} --no-plots"));
    done(folder, "report . -o page.html -q --baselines ant02-ant00");
    let html = fs::read_to_string(folder.join("page.html")).unwrap();
    let plots = plots(&html);
    let captions: Vec<&str> = plots.iter().map(|plot| plot.0.as_str()).collect();
    let has = |words: &str| captions.iter().filter(|caption| caption.contains(words)).count();
    assert!(has("Autocorrelations") >= 1 && has("Antennas") == 1, "{captions:?}");
    for what in [": amplitude", ": phase", ": fringe"] {
        assert_eq!(has(what), if what == ": fringe" { 1 } else { 2 }, "{what} of {captions:?}");
    }
    assert_eq!(has("ant00 – ant02"), 5);
    let map = &plots.iter().find(|plot| plot.0.starts_with("Antennas")).unwrap().1;
    assert_eq!(
        (map["points"].as_array().unwrap().len(), &map["lines"][0]),
        (4, &serde_json::json!([0, 2]))
    );
    // A point source at the phase centre has phase 0 in each channel.
    let phase = &plots.iter().find(|plot| plot.0.ends_with(": phase")).unwrap().1;
    let phases: Vec<f64> = phase["series"][0]["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point[1].as_f64().unwrap())
        .collect();
    assert_eq!(
        phases.len(),
        document(folder, "sky.uvh5.json")["channels"].as_u64().unwrap() as usize
    );
    let near = phases.iter().filter(|phase| phase.abs() < 20.0).count();
    assert!(4 * near >= 3 * phases.len(), "{phases:?}");

    // A correlation without a chosen baseline is drawn with the others that it has.
    let pair = array::files(&["ant00", "ant01"]);
    let positions = fs::read_to_string(folder.join("array/antennas.csv")).unwrap();
    let own = |line: &&str| !line.contains("ant02") && !line.contains("ant03");
    let two: Vec<&str> = positions.lines().filter(own).collect();
    fs::write(folder.join("pair.csv"), two.join("\n")).unwrap();
    let words = "--antennas pair.csv --channels 8 --integration 0.05 -q";
    done(folder, &format!("correlate {pair} -o pair.uvh5 {words} --no-plots"));
    done(folder, "report . -o both.html -q --baselines ant02-ant00,ant00-ant01");
    let both = self::plots(&fs::read_to_string(folder.join("both.html")).unwrap());
    let amplitudes = |name: &str| {
        let is_own = |caption: &str| caption.contains(name) && caption.contains(": amplitude");
        both.iter().filter(|plot| is_own(&plot.0)).count()
    };
    assert_eq!([amplitudes("ant00 – ant02"), amplitudes("ant00 – ant01")], [2, 4]);
    fs::remove_file(folder.join("pair.uvh5.json")).unwrap();

    let page = "report . -o other.html";
    fails(
        &sidereal(folder, &format!("{page} --baselines ant00-x")),
        2,
        &["--baselines", "ant00-x"],
    );
    let many = ["ant00-ant01"; 9].join(",");
    fails(&sidereal(folder, &format!("{page} --baselines {many}")), 2, &["at most 8"]);
    // Without the visibilities there is the document.
    fs::write(folder.join("sky.uvh5"), "no HDF5").unwrap();
    let told = stderr(&sidereal(folder, page));
    assert!(told.contains("sky.uvh5.json has no plots of its own"), "{told}");
    assert!(!fs::read_to_string(folder.join("other.html")).unwrap().contains("class=\"drawn\""));
}

#[test]
fn folders_without_products_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fails(&sidereal(folder, "report missing"), 1, &["missing"]);
    fs::write(folder.join("other.json"), "{\"schema\": \"sidereal/info/1\"}").unwrap();
    fails(&sidereal(folder, "report ."), 3, &["neither candidates.ndjson nor a document"]);
    fs::write(folder.join("candidates.ndjson"), "{}\nnonsense\n{}\n").unwrap();
    fails(&sidereal(folder, "report ."), 3, &["candidates.ndjson", "line 2"]);
}
