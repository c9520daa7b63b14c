//! The machine a benchmark runs on, and the median of its rounds.

#![allow(dead_code)] // every benchmark uses its part

use std::fs;

/// The version of the running kernel.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The model of the processor and how many there are.
pub(crate) fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    let model = models.first().unwrap_or(&"unknown");
    format!("{} x {model}", models.len())
}

/// The middle of `figures`.
pub(crate) fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The block device and the file system that `path` lies on.
pub(crate) fn device_of(path: &std::path::Path) -> String {
    let output = std::process::Command::new("findmnt")
        .args(["--noheadings", "--output", "SOURCE,FSTYPE", "--target"])
        .arg(path)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.split_whitespace().collect::<Vec<_>>().join(", ")
        }
        _ => "unknown".to_owned(),
    }
}
