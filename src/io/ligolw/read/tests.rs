use std::io::Write;

use super::*;

const HEAD: &str = "<?xml version='1.0' encoding='utf-8'?>\n\
    <!DOCTYPE LIGO_LW SYSTEM \"http://ldas-sw.ligo.caltech.edu/doc/ligolwAPI/html/ligolw_dtd.txt\">\n";

/// A document with one table of three columns.
fn document(rows: &str) -> String {
    format!(
        "{HEAD}<LIGO_LW>\n<Table Name=\"sngl_inspiralgroup:sngl_inspiral:table\">\n\
         <Column Name=\"sngl_inspiralgroup:sngl_inspiral:ifo\" Type=\"lstring\"/>\n\
         <Column Name=\"sngl_inspiral:mass1\" Type=\"real_4\"></Column>\n\
         <Column Name=\"event_id\" Type=\"int_8s\"/>\n\
         <Stream Name=\"sngl_inspiral:table\" Type=\"Local\" Delimiter=\",\">{rows}</Stream>\n\
         </Table><Table Name=\"process:table\"/>\n</LIGO_LW>\n"
    )
}

fn read_bytes(bytes: &[u8], name: &str) -> Result<Table> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("bytes");
    read_table(file.path(), name)
}

fn read(rows: &str) -> Result<Table> {
    read_bytes(document(rows).as_bytes(), "sngl_inspiral")
}

fn why(result: Result<Table>) -> String {
    result.expect_err("a fault").to_string()
}

#[test]
fn columns_are_found_by_their_bare_names() {
    let table = read("\n\"H1\",1.5e1,7,\n\"L1\\\"&amp;&#65;\",-inf,-3\n").expect("a table");
    assert_eq!(table.rows, 2);
    assert_eq!(table.texts("ifo"), Some(vec!["H1", "L1\"&A"]));
    assert_eq!(table.column("mass1"), Some(&Values::Real(vec![15.0, f64::NEG_INFINITY])));
    assert_eq!(table.reals("event_id").expect("numbers"), [7.0, -3.0]);
    assert!(table.optional_reals("mass2").expect("none").is_none());
    assert!(table.reals("mass2").is_err() && table.reals("ifo").is_err());
    assert!(table.reals("mass1").unwrap_err().to_string().contains("row 1"));
}

#[test]
fn empty_streams_and_cells_are_read() {
    assert_eq!(read(" \n ").expect("a table").rows, 0);
    let table = read(",,1,\n\"\",2,").expect("a table");
    assert_eq!(table.column("event_id"), Some(&Values::Whole(vec![Some(1), None])));
    assert_eq!(table.column("ifo"), Some(&Values::Text(vec![None, Some(String::new())])));
}

#[test]
fn gzipped_files_are_read_and_cut_ones_are_not() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(document("\"H1\",1,2").as_bytes()).expect("in memory");
    let bytes = encoder.finish().expect("in memory");
    assert_eq!(read_bytes(&bytes, "sngl_inspiral").expect("a table").rows, 1);
    assert!(read_bytes(&bytes[..bytes.len() / 2], "sngl_inspiral").is_err());
    let text = document("\"H1\",1,2");
    for end in [0, 5, 100, text.len() / 2, text.len() - 12] {
        assert!(read_bytes(&text.as_bytes()[..end], "sngl_inspiral").is_err(), "{end}");
    }
}

#[test]
fn faults_name_file_column_row_and_byte() {
    let fault = why(read("\"H1\",1.5,7,\"L1\",heavy,8"));
    let byte = document("\"H1\",1.5,7,\"L1\",").len() - document("").len()
        + document("").find("</Stream>").expect("the stream's end");
    assert!(fault.contains("sngl_inspiral:mass1") && fault.contains("row 1"), "{fault}");
    assert!(fault.contains("\"heavy\"") && fault.contains(&format!("byte {byte})")), "{fault}");
    assert!(why(read("\"H1\"")).contains("1 of 3 cells"));
    assert!(why(read("\"H1\" x,1,2")).contains("closing quote"));
    assert!(why(read("\"H1\",1,2.5")).contains("whole number"));
    assert!(why(read("&bomb;")).contains("unknown"));
    assert!(why(read("<b/>")).contains("an element"));
    let bytes = document("");
    let none = why(read_bytes(bytes.as_bytes(), "coinc_event"));
    assert!(none.contains("there are sngl_inspiral, process"), "{none}");
    assert!(why(read_bytes(b"<x/>", "a")).contains("no LIGO_LW file"));
    assert!(read_table(Path::new("/nowhere/at/all.xml"), "a").is_err());
    let twice = bytes.replace("process:table", "sngl_inspiral:table");
    assert!(why(read_bytes(twice.as_bytes(), "sngl_inspiral")).contains("two tables"));
    let strange = bytes.replace("real_4", "complex_8");
    assert!(why(read_bytes(strange.as_bytes(), "sngl_inspiral")).contains("complex_8"));
}

#[test]
fn depth_has_a_limit() {
    let deep = "<LIGO_LW>".repeat(100);
    assert!(why(read_bytes(deep.as_bytes(), "a")).contains("deep"));
}

/// Makes a gzipped document with `piece` repeated `times` times in the stream.
fn packed(piece: &str, times: usize) -> Vec<u8> {
    let whole = document("|");
    let (before, after) = whole.split_once('|').expect("a stream");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(before.as_bytes()).expect("bytes");
    for _ in 0..times {
        gzip.write_all(piece.as_bytes()).expect("bytes");
    }
    gzip.write_all(after.as_bytes()).expect("bytes");
    gzip.finish().expect("bytes")
}

#[test]
fn a_small_file_that_becomes_large_is_refused() {
    let mib = |piece: &str| piece.repeat((1 << 20) / piece.len());
    let cells = why(read_bytes(&packed(&mib("H1,1,2,"), 64), "sngl_inspiral"));
    assert!(cells.contains("more than") && cells.contains("cells"), "{cells}");
    let text = why(read_bytes(&packed(&mib(" "), 64), "sngl_inspiral"));
    assert!(text.contains("compressed bytes become more than 100 times"), "{text}");
}

#[test]
fn characters_may_lie_across_pieces_of_text() {
    // Characters of three bytes, so that a piece of power-of-two length ends within one.
    let name = "\u{20ac}".repeat(100_000);
    let table = read(&format!("\"{name}\",1,2")).expect("a table");
    assert_eq!(table.texts("ifo"), Some(vec![name.as_str()]));
    let gzip = packed(&format!("\"{name}\",1,2,"), 3);
    let table = read_bytes(&gzip, "sngl_inspiral").expect("a table");
    assert_eq!(table.texts("ifo"), Some(vec![name.as_str(); 3]));
    let mut broken = document("\"\u{20ac}\",1,2").into_bytes();
    let place = broken.windows(3).position(|bytes| bytes == "\u{20ac}".as_bytes()).expect("a sign");
    broken.remove(place + 2);
    assert!(why(read_bytes(&broken, "sngl_inspiral")).contains("utf-8"));
}
