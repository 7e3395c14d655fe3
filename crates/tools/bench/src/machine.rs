//! What figures were taken on, without anything that names the machine.

use std::{
    env::consts::{ARCH, OS},
    fs,
    process::Command,
    thread,
};

/// Lines that say on which machine, and beside which versions of other programs, figures were taken.
#[must_use]
pub fn description() -> Vec<String> {
    let cores = thread::available_parallelism().map_or_else(|_| "?".to_owned(), |count| count.to_string());
    let model = processor("model name").unwrap_or_else(|| "unknown".to_owned());
    let is_virtual = processor("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let virtually = if is_virtual { ", of a virtual machine" } else { "" };
    let mut lines = vec![format!("processor: {model}, {cores} logical processors{virtually}")];
    let caches: Vec<_> = (0..8).map_while(cache).collect();
    if !caches.is_empty() {
        lines.push(format!("caches: {}", caches.join(", ")));
    }
    lines.push(format!("system: {OS}, {ARCH}"));
    for (what, program, argument) in [("UCX", "ucx_info", "-v"), ("libfabric", "fi_info", "--version")] {
        lines.push(format!("{what}: {}", version(program, argument).unwrap_or_else(|| "not installed".to_owned())));
    }
    lines
}

/// A property of the first processor, where the system tells.
fn processor(property: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(property))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// A cache of the first processor.
fn cache(index: u32) -> Option<String> {
    let property = |name| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok();
    let (level, kind, size) = (property("level")?, property("type")?, property("size")?);
    Some(format!("L{} {} {}", level.trim(), kind.trim().to_lowercase(), size.trim()))
}

/// What a program says of its version: the first number with a dot.
fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.split_whitespace().find(is_version).map(ToOwned::to_owned)
}
