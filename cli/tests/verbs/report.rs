//! `report`: one HTML file of a folder, in which every text is escaped.

use std::fs;

use crate::common::{done, fails, recording, renamed, sidereal, stderr};

#[test]
fn a_report_has_lists_and_pictures_and_no_markup_of_headers() {
    let home = recording();
    let folder = home.path();
    renamed(folder, "evil.fil", "<script>alert(1)</script>\u{1b}[31m");
    done(folder, "search evil.fil -o found -q --dm-max 200");
    let told = stderr(&sidereal(folder, "report found"));
    assert!(told.contains("found/report.html: ") && told.contains("KiB"), "{told}");
    let html = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{1b}[31m"));
    assert!(!html.contains("<script>alert") && !html.contains('\u{1b}'));
    let pictures = html.matches("<img src=\"data:image/png;base64,iVBOR").count();
    let names = fs::read_dir(folder.join("found")).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| name.to_string_lossy().ends_with(".png")).count();
    assert!(files >= 2 && pictures == files, "{pictures} {files}");
    assert!(html.contains("<a href=\"#p1\">picture</a>") && html.contains("<h3>candidates</h3>"));
    // Nothing is loaded from elsewhere.
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));

    fails(&sidereal(folder, "report found"), 2, &["report.html", "--overwrite"]);
    done(folder, "report found --overwrite --embed 0 -q");
    let linked = fs::read_to_string(folder.join("found/report.html")).unwrap();
    assert!(!linked.contains("data:image/png") && linked.contains("<img src=\"overview.png\""));
    assert!(linked.len() < html.len());
    // The report is a file of the search's folder, which another search may replace.
    done(folder, "search evil.fil -o found -q --dm-max 200 --overwrite");
    assert!(!folder.join("found/report.html").exists());
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
