//! `--device`, `devices` and `tune`: what a machine has, and what is said of what it lacks.

#[allow(unused)]
mod common;

use std::path::Path;

use common::{done, fails, json, recording, sidereal, stderr};

/// GPUs of this machine, and whether kernels can be compiled for them.
fn gpus(folder: &Path) -> (usize, bool) {
    let document = json(folder, "devices");
    let devices = document["devices"].as_array().unwrap();
    let gpus = devices.iter().filter(|device| device["kind"] == "cuda").count();
    (gpus, !document["cuda"]["nvrtc"].is_null())
}

#[test]
fn a_device_that_is_none_is_wrong_use() {
    let home = recording();
    for device in ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:1"] {
        let output = sidereal(home.path(), &format!("search a.fil --device {device}"));
        fails(&output, 2, &["--device", "cuda:1"]);
    }
}

#[test]
fn a_gpu_that_is_not_there_is_told() {
    let home = recording();
    let (gpus, has_nvrtc) = gpus(home.path());
    let words = ["search a.fil", "dedisperse a.fil", "tune channelize"];
    for words in words {
        let output = sidereal(home.path(), &format!("{words} --device cuda:99"));
        let told = match gpus {
            0 => "finds no GPU|driver",
            1 => "this machine has one device, number 0",
            _ => "this machine has devices 0 to",
        };
        fails(&output, 1, &["not available"]);
        assert!(told.split('|').any(|told| stderr(&output).contains(told)), "{}", stderr(&output));
        if gpus > 0 && !has_nvrtc {
            let output = sidereal(home.path(), &format!("{words} --device cuda"));
            fails(&output, 1, &["NVRTC", "pip install nvidia-cuda-nvrtc"]);
        }
    }
    assert_eq!(common::entries(home.path()).len(), 2);
}

#[test]
fn verbs_without_kernels_for_gpus_say_so() {
    let home = recording();
    for words in [
        "info a.fil",
        "plan a.fil",
        "simulate burst b.fil --telescope askap --dm 5",
        "bench correlate --turn",
    ] {
        let output = sidereal(home.path(), &format!("{words} --device cuda"));
        fails(&output, 2, &["--device", "no kernels for a GPU"]);
        assert!(!home.path().join("b.fil").exists());
    }
}

#[test]
fn small_recordings_stay_on_the_processor() {
    let home = recording();
    for verb in ["search", "dedisperse"] {
        let words = format!("{verb} a.fil -o {verb} -v --dm-max 200");
        let output = sidereal(home.path(), &words);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("on cpu"), "{}", stderr(&output));
    }
}

#[test]
fn devices_tell_what_is_there_and_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let document = json(home.path(), "devices");
    let cuda = &document["cuda"];
    let missing = cuda["missing"].as_array().unwrap();
    let parts = ["driver", "nvrtc", "cufft"];
    assert_eq!(missing.len(), parts.iter().filter(|part| cuda[**part].is_null()).count());
    let text = done(home.path(), "devices");
    let line = text.lines().find(|line| line.starts_with("CUDA ")).unwrap();
    let gpus = document["devices"].as_array().unwrap().iter().filter(|one| one["kind"] == "cuda");
    for gpu in gpus.clone() {
        assert!(gpu["memory_free_bytes"].as_u64() <= gpu["memory_bytes"].as_u64());
        assert!(gpu["multiprocessors"].as_u64().unwrap() > 0);
        assert!(text.contains(gpu["name"].as_str().unwrap()), "{text}");
    }
    match gpus.count() {
        0 => assert!(line.contains("not used: ") && line.contains(missing[0].as_str().unwrap())),
        _ => assert!(line.contains("driver"), "{line}"),
    }
}

#[test]
fn only_gpus_are_tuned() {
    let home = tempfile::tempdir().unwrap();
    for device in ["cpu", "reference"] {
        let output = sidereal(home.path(), &format!("tune channelize --device {device}"));
        fails(&output, 2, &["--device", "GPU"]);
    }
}

#[test]
fn help_documents_the_exit_codes() {
    let home = tempfile::tempdir().unwrap();
    let help = done(home.path(), "--help");
    for line in ["2  wrong use", "3  damaged input", "4  full disk", "5  a GPU", "130  interrupted"]
    {
        assert!(help.contains(line), "{line} is not in:\n{help}");
    }
}
