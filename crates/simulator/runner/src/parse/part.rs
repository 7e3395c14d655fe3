//! The parts of an input, and of what an output is compared with.

use toml::{Spanned, Value};

use super::{Result, nearest, no_device, problem};
use crate::{
    bytes::{Part, from_hex, socket_address},
    raw,
    script::Script,
};

/// Bytes of input or output at most.
pub const MOST_BYTES: usize = 1 << 20;

/// What a NIC is asked for.
const PROPERTIES: [&str; 2] = ["index", "luid"];

/// The kinds of parts.
const KINDS: [&str; 12] = ["u8", "u16", "u32", "u64", "be16", "be32", "text", "wide", "hex", "address", "zero", "any"];

/// The parts of an input or of what is expected.
pub fn parts(list: &Spanned<Vec<Spanned<raw::Part>>>, key: &str, script: &Script) -> Result<Vec<Part>> {
    let mut total = 0_usize;
    let mut parts = Vec::new();
    for raw in list.get_ref() {
        let words = format!("`{key}`: one of u8, u16, u32, u64, be16, be32, text, wide, hex, address, zero and any");
        let mut pairs = raw.get_ref().iter();
        let (Some((kind, value)), None) = (pairs.next(), pairs.next()) else { return problem(raw.span(), words) };
        let part = part(kind, value, script).or_else(|said| problem(raw.span(), format!("`{key}`: {said}")))?;
        if matches!(part, Part::Any(_)) && key == "input" {
            return problem(raw.span(), "`input`: `any` is for what is expected");
        }
        total = total.saturating_add(match &part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Property { width, .. } => *width,
            Part::Any(count) => *count,
        });
        if total > MOST_BYTES {
            return problem(raw.span(), format!("`{key}` has more than {MOST_BYTES} bytes"));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// One part: the kind and its value.
fn part(kind: &str, value: &Value, script: &Script) -> std::result::Result<Part, String> {
    let width = match kind {
        "u8" => Some(1),
        "u16" | "be16" => Some(2),
        "u32" | "be32" => Some(4),
        "u64" => Some(8),
        _ => None,
    };
    if let Some(width) = width {
        return number(kind, width, value, script);
    }
    let count = || {
        let count =
            value.as_integer().and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= MOST_BYTES);
        count.ok_or_else(|| format!("`{kind}` is {value}: how many bytes, at most {MOST_BYTES}"))
    };
    let text = || value.as_str().ok_or_else(|| format!("`{kind}` is {value}: a text"));
    Ok(match kind {
        "text" => Part::Bytes(text()?.as_bytes().to_vec()),
        "wide" => Part::Bytes(text()?.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        "hex" => {
            let hex = text()?;
            Part::Bytes(from_hex(hex).ok_or_else(|| format!("`hex` is `{hex}`: pairs of hexadecimal digits"))?)
        }
        "address" => {
            let address = text()?;
            let parsed = address.parse().map_err(|_| format!("`address` is `{address}`: such as `192.168.77.11:5445`"));
            Part::Bytes(socket_address(parsed?))
        }
        "zero" => Part::Bytes(vec![0; count()?]),
        "any" => Part::Any(count()?),
        other => return Err(format!("there is no kind `{other}`{}", nearest(other, KINDS))),
    })
}

/// A number, or `"device.property"`.
fn number(kind: &str, width: usize, value: &Value, script: &Script) -> std::result::Result<Part, String> {
    if let (Some(text), false) = (value.as_str(), kind.starts_with("be")) {
        let (device, property) =
            text.split_once('.').ok_or_else(|| format!("`{kind}` is `{text}`: a number or `device.index`"))?;
        if script.device(device).is_none() {
            return Err(no_device(device, script));
        }
        if !PROPERTIES.contains(&property) {
            let meant = nearest(property, PROPERTIES);
            return Err(format!(
                "a device has no `{property}`: only {}{meant}",
                PROPERTIES.map(|name| format!("`{name}`")).join(" and ")
            ));
        }
        return Ok(Part::Property { device: device.to_owned(), property: property.to_owned(), width });
    }
    let bits = 8 * width;
    let most = if bits == 64 { i64::MAX } else { (1_i64 << bits) - 1 };
    let number = value.as_integer().filter(|number| (0..=most).contains(number));
    let number = number.ok_or_else(|| format!("`{kind}` is {value}: a number from 0 to {most}"))?.cast_unsigned();
    let mut bytes = number.to_le_bytes()[..width].to_vec();
    if kind.starts_with("be") {
        bytes.reverse();
    }
    Ok(Part::Bytes(bytes))
}
