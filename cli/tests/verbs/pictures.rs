//! Pictures of candidates: rows as they were searched, and what was left out of them.

use std::fs;
use std::path::Path;

use crate::common::{code, document, done, entries, fails, json, on_full_disk, sidereal, stderr};

/// Place of the waterfall in a picture: left, top, right, bottom.
const WATERFALL: [usize; 4] = [122, 342, 758, 913];

/// A picture's pixels.
struct Pixels {
    width: usize,
    rgb: Vec<u8>,
}

impl Pixels {
    fn read(path: &Path) -> Self {
        let file = std::io::BufReader::new(fs::File::open(path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!((info.color_type, info.width, info.height), (png::ColorType::Rgb, 1600, 1000));
        Self { width: info.width as usize, rgb }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        let start = 3 * (y * self.width + x);
        [self.rgb[start], self.rgb[start + 1], self.rgb[start + 2]]
    }

    /// The part of a rectangle's pixels that differ clearly.
    fn differing(&self, other: &Self, [left, top, right, bottom]: [usize; 4]) -> f64 {
        let mut count = 0;
        for y in top..bottom {
            for x in left..right {
                let (a, b) = (self.at(x, y), other.at(x, y));
                count += usize::from(a.iter().zip(b).any(|(a, b)| a.abs_diff(b) > 12));
            }
        }
        count as f64 / ((right - left) * (bottom - top)) as f64
    }

    /// Rows right of the waterfall that are marked red.
    fn marked(&self) -> Vec<usize> {
        let is_red = |[r, g, b]: [u8; 3]| r > 180 && g < 100 && b < 80;
        (WATERFALL[1]..WATERFALL[3]).filter(|y| is_red(self.at(768, *y))).collect()
    }
}

/// The only picture of a candidate in a folder.
fn picture(folder: &Path) -> Pixels {
    let names = entries(folder);
    let mut candidates = names.iter().filter(|name| name.starts_with("candidate_"));
    Pixels::read(&folder.join(candidates.next().unwrap()))
}

#[test]
fn pictures_show_the_rows_as_they_were_searched() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    // Impulses over the whole band through a rippled bandpass, one each third of a second.
    done(
        path,
        "simulate burst a.fil -q --fch1 1500 --foff -2 --channels 128 --tsamp 1e-3 --duration 12 --seed 9 \
         --bandpass rippled --rfi-broad 3 --rfi-broad-snr 150 --burst dm=150,time=6,width=0.01,snr=60",
    );
    let options = "--dm-min 100 --dm-max 200 --snr 30 --max-plots 1 --zap-chans 40:47";
    let found = json(path, &format!("search a.fil -o s {options}"));
    assert!(found["interference"]["broadband_spectra"].as_u64() > Some(0), "{found}");
    assert_eq!(found["candidates"].as_array().map(Vec::len), Some(1));
    let searched = picture(&path.join("s"));

    // Heimdall's list of the same candidate.
    let one = &found["candidates"][0];
    let number = |key: &str| one[key].as_f64().unwrap();
    let [dm, time_s, width_s] = ["dm", "time_s", "width_s"].map(number);
    let filter = (width_s / 1e-3).log2().round();
    let line = format!("60\t{:.0}\t{time_s}\t{filter}\t0\t{dm}\t1\t0\t1\n", time_s / 1e-3);
    fs::write(path.join("h.cand"), line).unwrap();
    let replot = |out: &str, more: &str| {
        done(path, &format!("replot a.fil h.cand -o {out} -q --zap-chans 40:47 {more}"));
        picture(&path.join(out))
    };
    let (auto, none) = (replot("auto", ""), replot("none", "--rfi none"));
    assert_eq!(document(path, "auto/replot.json")["rfi"], "auto");
    assert!(auto.differing(&none, WATERFALL) > 0.1, "impulses are in one of the two");
    assert_eq!(auto.differing(&replot("same", "--rfi auto"), [0, 0, 1600, 1000]), 0.0);
    // The other rows of the mask are those of the search: its summary says which channels it left out, and how.
    done(path, "replot a.fil s/candidates.csv -o again -q");
    let again = picture(&path.join("again"));
    assert!(again.differing(&searched, [0, 0, 1600, 1000]) < 0.001);
    let told = document(path, "again/replot.json");
    assert_eq!(told["masked_channels"], found["masked_channels"]);
    assert!(replot("zero", "--rfi none --zero-dm").differing(&none, WATERFALL) > 0.1);
    let zero = replot("both", "--rfi auto --zero-dm");
    assert!(zero.differing(&auto, WATERFALL) > 0.01);

    // Channels 40 to 47 of 128 are marked, from the top.
    let height = (WATERFALL[3] - WATERFALL[1]) as f64;
    let inside = |y: &&usize| {
        let channel = (**y - WATERFALL[1]) as f64 / height * 128.0;
        (40.5..47.5).contains(&channel)
    };
    let marked = searched.marked();
    assert!(marked.iter().filter(inside).count() > 25, "{marked:?}");
    let unmarked = replot("whole", "--rfi none");
    assert_eq!(unmarked.marked(), none.marked());
    fails(&sidereal(path, "replot a.fil h.cand -o mask --rfi-mask none.mask"), 1, &["none.mask"]);
}

#[test]
fn the_beam_is_told() {
    let home = crate::common::recording();
    let path = home.path();
    let info = json(path, "info a.fil --header");
    assert!(info["beam"].is_null(), "one of one");
    let mut bytes = fs::read(path.join("a.fil")).unwrap();
    for (name, value) in [("ibeam", 3i32), ("nbeams", 13)] {
        let found = bytes.windows(name.len()).position(|word| word == name.as_bytes());
        let at = found.unwrap() + name.len();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    fs::write(path.join("a.fil"), bytes).unwrap();
    let beam = serde_json::json!({"number": 3, "of": 13});
    assert_eq!(json(path, "info a.fil --header")["beam"], beam);
    assert!(done(path, "info a.fil --header").contains("3 of 13"));
    let found = json(path, "search a.fil -o s --dm-max 100");
    assert_eq!(found["observation"]["beam"], beam);
}

/// Makes 12 s of 128 channels with impulses over the whole band and a burst every second.
fn busy(path: &Path) {
    let burst = |at: usize| format!(" --burst dm={},time={at}.3,width=0.006,snr=30", 90 + 7 * at);
    let bursts: String = (1..11).map(burst).collect();
    done(
        path,
        &format!(
            "simulate burst a.fil -q --fch1 1500 --foff -2 --channels 128 --tsamp 1e-3 --duration 12 --seed 9 \
             --bandpass rippled --rfi-broad 3 --rfi-broad-snr 150{bursts}"
        ),
    );
}

#[test]
fn threads_draw_the_same_pictures() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    busy(path);
    // Rows as recorded; cleaned from the search's record of what it removed; and all cleaned anew.
    for (name, options) in [
        ("none", "search a.fil --dm-max 200 --snr 12 --fetch --rfi none"),
        ("auto", "search a.fil --dm-max 200 --snr 12 --fetch --zero-dm --time-range 1.5:"),
        ("list", "replot a.fil auto1/candidates.csv --rfi auto --zero-dm"),
    ] {
        let folder = |threads: usize| {
            let out = format!("{name}{threads}");
            done(path, &format!("{options} -o {out} -q -t {threads} --reproducible"));
            path.join(out)
        };
        let (one, three) = (folder(1), folder(3));
        let names = entries(&one);
        assert!(names.iter().filter(|name| name.ends_with(".png")).count() > 6, "{names:?}");
        assert_eq!(names, entries(&three));
        for file in names.iter().filter(|name| name.ends_with(".png") || name.ends_with(".h5")) {
            assert!(
                fs::read(one.join(file)).unwrap() == fs::read(three.join(file)).unwrap(),
                "{file}"
            );
        }
    }
    let found = document(path, "auto1/summary.json");
    assert!(found["interference"]["broadband_spectra"].as_u64() > Some(0), "{found}");
}

#[test]
fn a_full_disk_is_one_error_and_leaves_no_picture() {
    let home = tempfile::tempdir().unwrap();
    busy(home.path());
    let words = "search a.fil -o disk/out --dm-max 200 --snr 4 --max-per-minute 0 -t 3 --no-sync";
    let begun = "find disk -name 'candidate_*.png' | grep -q .";
    let Some(output) = on_full_disk(home.path(), words, begun) else { return };
    let told = stderr(&output);
    assert_eq!(code(&output), 4, "{told}");
    assert_eq!(told.matches(".png").count(), 1, "{told}");
    let names = entries(&home.path().join("copy/out"));
    assert!(names.contains("candidates.csv"), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with(".png")), "{names:?}");
    let found = document(home.path(), "copy/out/summary.json");
    assert_eq!(found["complete"], false);
    assert!(found["reason"].as_str().unwrap().contains(".png"), "{found}");
}
