//! Priority and virtual LAN of a frame (IEEE 802.1Q): four bytes behind the addresses, or a word beside the frame.

use crate::frame::{HEADER_BYTES, TAG_BYTES};

/// What a tag begins with, in the place of the frame's type.
const PROTOCOL: [u8; 2] = [0x81, 0x00];

/// Priority, canonical format indicator and identifier of the virtual LAN: the tag control information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(u16);

impl Tag {
    /// No priority, no virtual LAN.
    pub const NONE: Self = Self(0);

    /// A tag of these parts, of which the lower 3 and 12 bits count.
    #[must_use]
    pub const fn new(priority: u16, is_not_canonical: bool, vlan: u16) -> Self {
        Self((priority & 7) << 13 | (is_not_canonical as u16) << 12 | vlan & 0xFFF)
    }

    /// The tag of these sixteen bits.
    #[must_use]
    pub const fn from_control(control: u16) -> Self {
        Self(control)
    }

    /// Its sixteen bits.
    #[must_use]
    pub const fn control(self) -> u16 {
        self.0
    }

    /// The tag in the first bytes of a frame, if it has one.
    #[must_use]
    pub fn of_header(header: &[u8; HEADER_BYTES + TAG_BYTES]) -> Option<Self> {
        (header[12..14] == PROTOCOL).then(|| Self(u16::from_be_bytes([header[14], header[15]])))
    }

    /// The bytes of a tag in a frame.
    #[must_use]
    pub const fn bytes(self) -> [u8; TAG_BYTES] {
        let [high, low] = self.0.to_be_bytes();
        [PROTOCOL[0], PROTOCOL[1], high, low]
    }

    /// The priority, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u16 {
        self.0 >> 13
    }

    /// The canonical format indicator.
    #[must_use]
    pub const fn is_not_canonical(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// The identifier of the virtual LAN; 0 for none.
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.0 & 0xFFF
    }

    /// Returns true if a frame needs no tag for it: neither a priority nor a virtual LAN.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.priority() == 0 && self.vlan() == 0
    }
}

/// What of a tag goes beside a frame (`*PriorityVLANTag`). Nothing: tags stay in the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tagging {
    /// Nothing.
    None,
    /// The priority.
    Priority,
    /// The virtual LAN.
    Vlan,
    /// Both.
    #[default]
    Both,
}

impl Tagging {
    /// The value of the keyword.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Priority,
            2 => Self::Vlan,
            3 => Self::Both,
            _ => return None,
        })
    }

    /// Returns true if anything of a tag goes beside a frame, whose tag is taken out.
    #[must_use]
    pub const fn is_any(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if the priority goes beside a frame.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::Priority | Self::Both)
    }

    /// Returns true if the virtual LAN goes beside a frame.
    #[must_use]
    pub const fn has_vlan(self) -> bool {
        matches!(self, Self::Vlan | Self::Both)
    }

    /// What of a tag goes beside a frame.
    #[must_use]
    pub const fn carried(self, tag: Tag) -> Tag {
        let priority = if self.has_priority() { tag.priority() } else { 0 };
        let vlan = if self.has_vlan() { tag.vlan() } else { 0 };
        Tag::new(priority, self.is_any() && tag.is_not_canonical(), vlan)
    }
}

#[cfg(test)]
mod tests {
    use super::{Tag, Tagging};

    #[test]
    fn a_tag_is_the_same_in_a_frame_and_beside_it() {
        let tag = Tag::new(5, true, 0x123);
        assert_eq!(tag.bytes(), [0x81, 0, 0xB1, 0x23]);
        assert_eq!((tag.priority(), tag.is_not_canonical(), tag.vlan()), (5, true, 0x123));
        assert!(!Tag::new(7, false, 0xFFF).is_not_canonical());
        let mut header = [0; 18];
        assert_eq!(Tag::of_header(&header), None);
        header[12..16].copy_from_slice(&tag.bytes());
        assert_eq!(Tag::of_header(&header), Some(tag));
        assert_eq!(Tag::from_control(tag.control()), tag);
        assert!(Tag::NONE.is_none() && Tag::new(0, true, 0).is_none());
        assert!(!Tag::new(1, false, 0).is_none() && !Tag::new(0, false, 1).is_none());
    }

    #[test]
    fn an_adapter_carries_what_its_keyword_says() {
        let tag = Tag::new(5, true, 0x123);
        let carried = [0, 1, 2, 3].map(|number| Tagging::from_number(number).expect("a value").carried(tag));
        assert_eq!(carried, [Tag::NONE, Tag::new(5, true, 0), Tag::new(0, true, 0x123), tag]);
        assert_eq!(Tagging::from_number(4), None);
    }
}
