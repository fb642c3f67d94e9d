//! NVIDIA GPUs: properties, copy rates, and missing libraries.

use std::fmt::Write as _;

use serde::Serialize;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{self, Status};

/// Libraries that GPUs need.
#[derive(Serialize)]
pub(super) struct Libraries {
    /// CUDA version of the driver.
    driver: Option<String>,
    nvrtc: Option<String>,
    cufft: Option<String>,
    /// Missing libraries, and what to install; empty if none is missing.
    missing: Vec<String>,
}

/// Properties of a GPU.
#[derive(Serialize)]
pub(super) struct Gpu {
    capability: String,
    /// Architecture that its kernels are compiled for.
    architecture: String,
    /// Notes for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    multiprocessors: usize,
    memory_bytes: usize,
    memory_free_bytes: usize,
    /// Bytes per second read and written in device memory, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_device_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_device_bytes_per_s: Option<f64>,
}

impl Libraries {
    /// Finds the libraries of this machine.
    pub(super) fn find() -> Self {
        let Status { driver, nvrtc, cufft, .. } = cuda::status();
        let missing = [driver.as_ref().err(), nvrtc.as_ref().err(), cufft.as_ref().err()];
        let missing = missing.into_iter().flatten().cloned().collect();
        Self {
            driver: driver
                .ok()
                .map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            nvrtc: nvrtc.ok().map(|(major, minor)| format!("{major}.{minor}")),
            cufft: cufft.ok().map(|version| format!("{}.{}", version / 1000, version % 1000 / 100)),
            missing,
        }
    }

    /// Formats one line: the versions, or the missing libraries.
    pub(super) fn text(&self) -> String {
        if self.driver.is_none() {
            // Without a GPU the other libraries are useless.
            return format!("not used: {}", self.missing[0]);
        }
        let part = |name: &str, version: &Option<String>| {
            version.as_ref().map(|version| format!("{name} {version}"))
        };
        let found =
            [part("driver", &self.driver), part("NVRTC", &self.nvrtc), part("cuFFT", &self.cufft)];
        let found: Vec<String> = found.into_iter().flatten().collect();
        [&[found.join(", ")], self.missing.as_slice()].concat().join("; ")
    }
}

impl Gpu {
    /// Returns the properties of a backend's GPU; measures its rates if requested and possible.
    pub(super) fn of(backend: &Backend, measure: bool) -> Result<Option<Self>> {
        let Backend::Cuda(device, _) = backend else { return Ok(None) };
        let can_measure = measure && cuda::nvrtc().is_ok();
        let memory_free_bytes = device.free_bytes()?;
        let rates = can_measure.then(|| device.rates()).transpose()?;
        let properties = device.properties();
        let (major, minor) = properties.capability;
        Ok(Some(Self {
            capability: format!("{major}.{minor}"),
            architecture: device.architecture(),
            notes: device.take_notes(),
            multiprocessors: properties.multiprocessors,
            memory_bytes: properties.memory_bytes,
            memory_free_bytes,
            copy_bytes_per_s: rates.map(|rates| rates.copy),
            to_device_bytes_per_s: rates.map(|rates| rates.to_device),
            from_device_bytes_per_s: rates.map(|rates| rates.from_device),
        }))
    }

    fn row(&self) -> String {
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        let memory = format!("{:.1} of {:.1}", gib(self.memory_free_bytes), gib(self.memory_bytes));
        let mut row = format!("{:>11}{:>9}{memory:>20}", self.capability, self.multiprocessors);
        let rates =
            [self.copy_bytes_per_s, self.to_device_bytes_per_s, self.from_device_bytes_per_s];
        for rate in rates.into_iter().flatten() {
            let _ = write!(row, "{:>11.1}", rate / 1e9);
        }
        row
    }
}

/// Formats one line per GPU under a heading; empty without GPUs.
pub(super) fn table(gpus: &[(&String, &Gpu)]) -> String {
    let Some((_, first)) = gpus.first() else { return String::new() };
    let measured = first.copy_bytes_per_s.is_some();
    let rates = if measured { "  copy GB/s      to it    from it" } else { "" };
    let mut text = format!("\n{:<30}capability  multip.  GiB of memory free{rates}\n", "GPU");
    for (name, gpu) in gpus {
        let _ = writeln!(text, "{name:<29}{}", gpu.row());
    }
    for note in gpus.iter().flat_map(|(_, gpu)| &gpu.notes) {
        let _ = writeln!(text, "\nNote: {note}.");
    }
    if measured {
        text.push_str(
            "\nGB/s: its own memory, read and written; page-locked memory of the host.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries(driver: Option<&str>, nvrtc: Option<&str>, missing: &[&str]) -> Libraries {
        Libraries {
            driver: driver.map(str::to_owned),
            nvrtc: nvrtc.map(str::to_owned),
            cufft: Some("12.0".to_owned()),
            missing: missing.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn one_line_says_what_is_there_or_missing() {
        let all = libraries(Some("13.0"), Some("13.0"), &[]);
        assert_eq!(all.text(), "driver 13.0, NVRTC 13.0, cuFFT 12.0");
        let without = libraries(Some("13.0"), None, &["NVRTC is missing"]);
        assert_eq!(without.text(), "driver 13.0, cuFFT 12.0; NVRTC is missing");
        let none = libraries(None, None, &["no driver", "NVRTC is missing"]);
        assert_eq!(none.text(), "not used: no driver");
    }

    #[test]
    fn rows_stand_under_their_headings() {
        let gpu = Gpu {
            capability: "9.0".to_owned(),
            architecture: "sm_90a".to_owned(),
            notes: vec!["it is newer".to_owned()],
            multiprocessors: 132,
            memory_bytes: 140 << 30,
            memory_free_bytes: 139 << 30,
            copy_bytes_per_s: Some(4.0e12),
            to_device_bytes_per_s: Some(55.0e9),
            from_device_bytes_per_s: Some(54.0e9),
        };
        let name = "cuda:0 NVIDIA H200".to_owned();
        let text = table(&[(&name, &gpu)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].len(), lines[2].len(), "{text}");
        assert!(lines[2].contains("139.0 of 140.0") && lines[2].contains("4000.0"), "{text}");
        assert!(text.contains("\nNote: it is newer.\n"), "{text}");
        assert_eq!(table(&[]), "");
    }
}
