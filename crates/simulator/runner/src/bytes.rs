//! Input of a control code, and what its output is compared with.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A part of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A property of a device, as the low bytes of a number.
    Property {
        /// The name of the device.
        device: String,
        /// What of it: `index` or `luid`.
        property: String,
        /// How many bytes.
        width: usize,
    },
    /// So many bytes, whatever they are. Only in what an output is compared with.
    Any(usize),
}

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template(pub Vec<Part>);

/// What an output is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern(pub Vec<Part>);

/// The bytes of the parts, each with true if it counts. `property` tells numbers of devices.
fn bytes(parts: &[Part], property: &mut dyn FnMut(&str, &str) -> Option<u64>) -> Result<Vec<(u8, bool)>, String> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend(bytes.iter().map(|&byte| (byte, true))),
            Part::Any(count) => all.extend(std::iter::repeat_n((0, false), *count)),
            Part::Property { device, property: name, width } => {
                let value = property(device, name).ok_or_else(|| format!("`{device}` has no `{name}` now"))?;
                all.extend(value.to_le_bytes().iter().take(*width).map(|&byte| (byte, true)));
            }
        }
    }
    Ok(all)
}

impl Template {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// A sentence, if a device does not have a property.
    pub fn bytes(&self, mut property: impl FnMut(&str, &str) -> Option<u64>) -> Result<Vec<u8>, String> {
        Ok(bytes(&self.0, &mut property)?.into_iter().map(|(byte, _)| byte).collect())
    }
}

impl Pattern {
    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        let lengths = self.0.iter().map(|part| match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Property { width, .. } => *width,
            Part::Any(count) => *count,
        });
        lengths.sum()
    }

    /// Compares.
    ///
    /// # Errors
    ///
    /// A sentence that says what differs.
    pub fn check(&self, seen: &[u8], mut property: impl FnMut(&str, &str) -> Option<u64>) -> Result<(), String> {
        let wanted = bytes(&self.0, &mut property)?;
        if wanted.len() != seen.len() {
            return Err(format!("{} bytes instead of {}", seen.len(), wanted.len()));
        }
        let different = wanted.iter().zip(seen).position(|(&(byte, counts), &seen)| counts && byte != seen);
        different.map_or(Ok(()), |at| Err(format!("byte {at} is {:#04x} instead of {:#04x}", seen[at], wanted[at].0)))
    }
}

/// `SOCKADDR_INET`: 28 bytes.
#[must_use]
pub fn socket_address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(2_u16.to_le_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes.extend(23_u16.to_le_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_le_bytes());
        }
    }
    bytes.resize(28, 0);
    bytes
}

/// Pairs of hexadecimal digits, with spaces anywhere between them.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        if text.starts_with('+') { None } else { u8::from_str_radix(text, 16).ok() }
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::{Part, Pattern, Template, from_hex, socket_address};

    #[test]
    fn an_input_has_its_parts_one_after_the_other() {
        let index = Part::Property { device: "nic".to_owned(), property: "index".to_owned(), width: 4 };
        let template = Template(vec![Part::Bytes(vec![1]), index, Part::Bytes(vec![2])]);
        let bytes = template.bytes(|device, name| (device == "nic" && name == "index").then_some(0x0102));
        assert_eq!(bytes, Ok(vec![1, 2, 1, 0, 0, 2]));
        assert_eq!(template.bytes(|_, _| None), Err("`nic` has no `index` now".to_owned()));
    }

    #[test]
    fn an_output_is_compared_but_for_what_does_not_count() {
        let pattern = Pattern(vec![Part::Bytes(vec![1, 2]), Part::Any(2), Part::Bytes(vec![5])]);
        assert_eq!(pattern.check(&[1, 2, 9, 9, 5], |_, _| None), Ok(()));
        let said = pattern.check(&[1, 2, 9, 9, 6], |_, _| None);
        assert_eq!(said, Err("byte 4 is 0x06 instead of 0x05".to_owned()));
        assert_eq!(pattern.check(&[1], |_, _| None), Err("1 bytes instead of 5".to_owned()));
    }

    #[test]
    fn hexadecimal_digits_come_in_pairs() {
        assert_eq!(from_hex("00 fF\n1 2"), Some(vec![0, 0xFF, 0x12]));
        assert_eq!([from_hex("0"), from_hex("0g"), from_hex("+1"), from_hex("é")], [const { None }; 4]);
    }

    #[test]
    fn an_address_is_laid_out_as_in_c() {
        let v4 = socket_address("192.0.2.1:5445".parse().expect("an address"));
        assert_eq!((&v4[..8], v4.len()), (&[2, 0, 0x15, 0x45, 192, 0, 2, 1][..], 28));
        let v6 = socket_address("[fe80::1%7]:1".parse().expect("an address"));
        assert_eq!((v6[0], v6[8], v6[23], v6[24]), (23, 0xFE, 1, 7));
    }
}
