//! The fields of an event that describes itself: the format of `TraceLogging`, as far as drivers here write it.
//!
//! The description is a size, tags, the event's name, and for each field its name and type; the values follow in the order of the fields.

use crate::findings::Field;

/// Types of fields, without what is said of how to show them.
mod kind {
    pub const I8: u8 = 3;
    pub const U8: u8 = 4;
    pub const I16: u8 = 5;
    pub const U16: u8 = 6;
    pub const I32: u8 = 7;
    pub const U32: u8 = 8;
    pub const I64: u8 = 9;
    pub const U64: u8 = 10;
    pub const BOOL32: u8 = 13;
    pub const HEX32: u8 = 20;
    pub const HEX64: u8 = 21;
    /// Counted text, of bytes.
    pub const STR8: u8 = 23;
}

/// The fields are a list, whose count comes first.
const COUNTED: u8 = 0x40;
/// A fixed count, or a type of the provider's own.
const OTHER_COUNTS: u8 = 0x20;
/// Another byte follows.
const CHAIN: u8 = 0x80;

/// Bytes, from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    /// A number of up to eight bytes, the low one first.
    fn number(&mut self, width: usize) -> Option<u64> {
        Some(self.take(width)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// Text up to its zero.
    fn name(&mut self) -> Option<String> {
        let length = self.0.iter().position(|&byte| byte == 0)?;
        let name = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.byte()?;
        Some(name)
    }

    /// Goes past tags, of which each byte but the last has its highest bit set.
    fn skip_tags(&mut self) -> Option<()> {
        while self.byte()? & CHAIN != 0 {}
        Some(())
    }
}

/// The name of an event, and its fields as far as their types are known. `None` if that is no description.
pub fn read(description: &[u8], values: &[u8]) -> Option<(String, Vec<(String, Field)>)> {
    let (mut description, mut values) = (Bytes(description), Bytes(values));
    description.number(2)?;
    description.skip_tags()?;
    let event = description.name()?;
    let mut fields = Vec::new();
    while let Some((name, value)) = field(&mut description, &mut values) {
        fields.push((name, value));
    }
    Some((event, fields))
}

fn field(description: &mut Bytes<'_>, values: &mut Bytes<'_>) -> Option<(String, Field)> {
    let name = description.name()?;
    let first = description.byte()?;
    if first & CHAIN != 0 && description.byte()? & CHAIN != 0 {
        description.skip_tags()?;
    }
    let kind = first & 0x1F;
    let value = match first & (COUNTED | OTHER_COUNTS) {
        0 if kind == kind::STR8 => {
            let length = usize::try_from(values.number(2)?).ok()?;
            Field::Text(String::from_utf8_lossy(values.take(length)?).into_owned())
        }
        0 => Field::Number(values.number(width(kind)?)?),
        COUNTED => {
            let (count, width) = (values.number(2)?, width(kind)?);
            Field::Numbers((0..count).map(|_| values.number(width)).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some((name, value))
}

/// Bytes of a number.
const fn width(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::I8 | kind::U8 => 1,
        kind::I16 | kind::U16 => 2,
        kind::I32 | kind::U32 | kind::BOOL32 | kind::HEX32 => 4,
        kind::I64 | kind::U64 | kind::HEX64 => 8,
        _ => return None,
    })
}
