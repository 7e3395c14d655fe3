//! From TOML to a [`Script`].
//!
//! What cannot be done is refused before anything runs: a name that is not there, a device of an image that is not loaded, a request
//! that nobody sent.

mod interface;
mod known;
mod machines;
mod nearest;
mod part;
mod registry;
mod socket;
mod step;
mod world;

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::{Spanned, Value};

pub use self::registry::add_registry;
use self::{
    interface::{interface, prefix},
    nearest::{nearest, nearest_key},
    step::Keys,
    world::World,
};
use crate::{
    bytes::from_hex,
    raw,
    script::{Device, DeviceKind, Image, RegistryValue, Resources, Script, Settings, Step, service_of},
};

/// Why a text is no script: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, with the key, and what would be right.
    pub words: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.words)
    }
}

impl std::error::Error for ScriptError {}

type Result<T> = std::result::Result<T, Problem>;

/// An error with its place in the text.
struct Problem {
    at: Range<usize>,
    words: String,
}

fn problem<T>(at: Range<usize>, words: impl Into<String>) -> Result<T> {
    Err(Problem { at, words: words.into() })
}

/// Reads a script.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse(text: &str) -> std::result::Result<Script, ScriptError> {
    let raw: raw::Script = toml::from_str(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        let words = error.message().replace('\n', " ");
        let words = format!("{words}{}", nearest_key(&words));
        // Of a value of another type the message says all but the key.
        let key = text.lines().nth(line - 1).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let words = match key {
            Some(key) if !words.contains('`') => format!("`{key}`: {words}"),
            _ => words,
        };
        ScriptError { line, words }
    })?;
    script(raw, &|at| line_of(text, at))
        .map_err(|problem| ScriptError { line: line_of(text, problem.at.start), words: problem.words })
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

fn script(raw: raw::Script, line: &dyn Fn(usize) -> usize) -> Result<Script> {
    if !raw.machine.is_empty() {
        return machines::machines(raw, line);
    }
    if let Some(network) = raw.network {
        return problem(network.span(), "`network` is between machines, and the script has no `machine`");
    }
    one(raw, line, World::default())
}

/// What is done on one machine.
fn one(raw: raw::Script, line: &dyn Fn(usize) -> usize, mut world: World) -> Result<Script> {
    let folder = raw.kernel.as_ref().and_then(|kernel| kernel.files.clone()).map(PathBuf::from);
    let mut script = Script { folder, ..Script::new(settings(raw.kernel)?) };
    for raw in raw.image {
        let image = image(&raw)?;
        if script.image(&image.name).is_some() {
            return problem(raw.span(), format!("`name`: there is an image `{}` already", image.name));
        }
        script.images.push(image);
    }
    for raw in raw.device {
        let device = device(&raw, &script)?;
        if script.device(&device.name).is_some() {
            return problem(raw.span(), format!("`name`: there is a device `{}` already", device.name));
        }
        if let Some((key, other)) = device.interface.shared_with(&script.devices) {
            return problem(raw.span(), format!("`{key}`: the device `{other}` has the same"));
        }
        script.devices.push(device);
    }
    for raw in raw.step {
        let (at, number) = (raw.span(), line(raw.span().start));
        for (action, status) in Keys(raw).actions(&script)? {
            world.check(&script, &action, status).or_else(|words| problem(at.clone(), words))?;
            script.steps.push(Step { line: number, action, status });
        }
    }
    script.finish();
    Ok(script)
}

fn settings(raw: Option<raw::Kernel>) -> Result<Settings> {
    let mut settings = Settings::default();
    let Some(raw) = raw else { return Ok(settings) };
    if let Some(count) = raw.processors {
        settings.processors = in_range(&count, "processors", 1, 64)?;
    }
    if let Some(percent) = raw.preemption {
        settings.preemption = in_range(&percent, "preemption", 0, 100)?;
    }
    settings.threads = raw.threads.unwrap_or(settings.threads);
    if let Some(datagrams) = raw.datagrams {
        settings.host_datagrams = match datagrams.get_ref().as_str() {
            "memory" => false,
            "host" if settings.threads => true,
            "host" => return problem(datagrams.span(), "`datagrams`: the host's network needs `threads = true`"),
            other => {
                return problem(datagrams.span(), format!("`datagrams` is `{other}`: `memory` or `host`"));
            }
        };
    }
    Ok(settings)
}

/// The number, if it lies between two.
fn in_range<N: TryFrom<i64>>(value: &Spanned<i64>, key: &str, least: i64, most: i64) -> Result<N> {
    let number = *value.get_ref();
    let fits = (least..=most).contains(&number);
    match N::try_from(number) {
        Ok(number) if fits => Ok(number),
        _ => problem(value.span(), format!("`{key}` is {number}: a number from {least} to {most}")),
    }
}

fn name_of(name: Option<&Spanned<String>>, at: Range<usize>) -> Result<String> {
    let Some(name) = name else { return problem(at, "`name` is missing") };
    let text = name.get_ref();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if text.is_empty() || !text.chars().all(fits) {
        return problem(name.span(), format!("`name` is `{text}`: letters, digits, `-` and `_`"));
    }
    Ok(text.clone())
}

fn image(raw: &Spanned<raw::Image>) -> Result<Image> {
    let (at, raw) = (raw.span(), raw.get_ref());
    let name = name_of(raw.name.as_ref(), at)?;
    let file = raw.file.as_ref().map_or_else(|| PathBuf::from(&name), |file| PathBuf::from(file.get_ref()));
    let service = raw.service.as_ref().map_or_else(|| service_of(&file), |service| service.get_ref().clone());
    let registry = raw.registry.iter().map(|(key, value)| {
        if let Some(words) = known::no_parameter(&file, key) {
            return problem(value.span(), words);
        }
        Ok((key.clone(), registry_value(key, value)?))
    });
    let registry = registry.collect::<Result<_>>()?;
    Ok(Image { name, file, service, registry, ioctls: Vec::new() })
}

/// Numbers are `REG_DWORD`, or `REG_QWORD` if they are too large; texts `REG_SZ`; arrays of texts `REG_MULTI_SZ`.
fn registry_value(key: &str, value: &Spanned<Value>) -> Result<RegistryValue> {
    let wrong = || {
        let words = "a number, a text, an array of texts, { qword = 1 } or { hex = \"00 01\" }";
        problem(value.span(), format!("`registry.{key}`: {words}"))
    };
    match value.get_ref() {
        Value::Integer(number) => match (u32::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => Ok(RegistryValue::Number(number)),
            (_, Ok(number)) => Ok(RegistryValue::Long(number)),
            _ => wrong(),
        },
        Value::String(text) => Ok(RegistryValue::Text(text.clone())),
        Value::Array(texts) => {
            let texts: Option<Vec<_>> = texts.iter().map(|text| text.as_str().map(str::to_owned)).collect();
            texts.map_or_else(wrong, |texts| Ok(RegistryValue::Texts(texts)))
        }
        Value::Table(table) if table.len() == 1 => match (table.get("qword"), table.get("hex")) {
            (Some(Value::Integer(number)), _) => {
                u64::try_from(*number).map_or_else(|_| wrong(), |number| Ok(RegistryValue::Long(number)))
            }
            (_, Some(Value::String(hex))) => from_hex(hex).map_or_else(wrong, |bytes| Ok(RegistryValue::Binary(bytes))),
            _ => wrong(),
        },
        _ => wrong(),
    }
}

fn device(raw: &Spanned<raw::Device>, script: &Script) -> Result<Device> {
    let (at, raw) = (raw.span(), raw.get_ref());
    let name = name_of(raw.name.as_ref(), at.clone())?;
    let Some(image) = &raw.image else { return problem(at, "`image` is missing") };
    let Some(of) = script.image(image.get_ref()) else {
        return problem(image.span(), format!("`image`: {}", no_image(image.get_ref(), script)));
    };
    let kind = match raw.kind.as_ref().map(|kind| (kind.span(), kind.get_ref().as_str())) {
        None => DeviceKind::Registered,
        Some((_, "pnp")) => DeviceKind::PnP,
        Some((_, "nic")) => DeviceKind::Nic,
        Some((at, other)) => return problem(at, format!("`kind` is `{other}`: `pnp` or `nic`")),
    };
    if kind == DeviceKind::PnP && raw.is_of_nic() {
        return problem(at, "`keywords`, `addresses` and what else an interface has are for devices of the kind `nic`");
    }
    let keywords = raw.keywords.iter().map(|(key, value)| match (known::no_keyword(&of.file, key), value.get_ref()) {
        (Some(words), _) => problem(value.span(), words),
        (None, Value::String(text)) => Ok((key.clone(), text.clone())),
        (None, Value::Integer(number)) => Ok((key.clone(), number.to_string())),
        _ => problem(value.span(), format!("`keywords.{key}`: a text or a number")),
    });
    let mut keywords: Vec<(String, String)> = keywords.collect::<Result<_>>()?;
    let interface = interface(raw)?;
    if let Some(mac) = interface.mac {
        // That is how Windows has it.
        const KEYWORD: &str = "NetworkAddress";
        if keywords.iter().any(|(key, _)| key.eq_ignore_ascii_case(KEYWORD)) {
            return problem(at, format!("`mac` is the keyword `{KEYWORD}`, which is among the `keywords` too"));
        }
        keywords.push((KEYWORD.to_owned(), mac.map(|byte| format!("{byte:02X}")).concat()));
    }
    let addresses = raw.addresses.iter().map(|address| prefix(address, "addresses", "192.168.77.11/24"));
    let addresses = addresses.collect::<Result<_>>()?;
    let filters = raw.filters.iter().map(|filter| match script.image(filter.get_ref()) {
        _ if kind == DeviceKind::Nic => problem(filter.span(), "`filters`: drivers above a NIC are filters of NDIS"),
        Some(_) => Ok(filter.get_ref().clone()),
        None => problem(filter.span(), format!("`filters`: {}", no_image(filter.get_ref(), script))),
    });
    let filters = filters.collect::<Result<_>>()?;
    let resources = resources(raw, kind)?;
    Ok(Device { name, image: image.get_ref().clone(), filters, kind, keywords, addresses, interface, resources })
}

/// What the bus gives a device: up to as many messages as a function of PCI has.
fn resources(raw: &raw::Device, kind: DeviceKind) -> Result<Resources> {
    const MOST_MEMORY: i64 = 16 << 20;
    const MOST_INTERRUPTS: i64 = 2048;
    let at = raw.memory.first().or(raw.interrupts.as_ref()).map(Spanned::span);
    if let Some(at) = at.filter(|_| kind != DeviceKind::PnP) {
        return problem(at, "`memory` and `interrupts` are for devices of the kind `pnp`");
    }
    let memory = raw.memory.iter().map(|length| in_range(length, "memory", 1, MOST_MEMORY));
    let interrupts = raw.interrupts.as_ref();
    let interrupts = interrupts.map_or(Ok(0), |count| in_range(count, "interrupts", 0, MOST_INTERRUPTS))?;
    Ok(Resources { memory: memory.collect::<Result<_>>()?, interrupts })
}

/// There is no such image.
fn no_image(name: &str, script: &Script) -> String {
    format!("there is no image `{name}`{}", nearest(name, script.images.iter().map(|image| image.name.as_str())))
}

/// There is no such device.
fn no_device(name: &str, script: &Script) -> String {
    format!("there is no device `{name}`{}", nearest(name, script.devices.iter().map(|device| device.name.as_str())))
}

/// Reads the script of a file. A relative file of an image is relative to the script's folder.
///
/// # Errors
///
/// One line that begins with the path.
pub fn read(path: &Path) -> std::result::Result<Script, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut script = parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    for image in script.all_images_mut() {
        image.file = folder.join(&image.file);
    }
    for one in std::iter::once(&mut script.folder).chain(script.machines.iter_mut().map(|node| &mut node.script.folder))
    {
        *one = one.as_ref().map(|one| folder.join(one));
    }
    Ok(script)
}
