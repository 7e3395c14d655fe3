//! Places in images, as findings name them: `consumer.sys+0x1234`.

use crate::report::ImageOffset;

/// The places that a text names, each once, in their order. `images` are the names that images have there.
pub fn places<'images>(text: &str, images: impl IntoIterator<Item = &'images str>) -> Vec<ImageOffset> {
    let mut found = Vec::new();
    for image in images {
        for (at, _) in text.match_indices(image) {
            // Not the end of a longer name.
            let stands_alone = !text[..at].ends_with(|before: char| before.is_alphanumeric() || "-_.".contains(before));
            let offset = text[at + image.len()..].strip_prefix("+0x").and_then(offset);
            if let Some(offset) = offset.filter(|_| stands_alone) {
                found.push((at, image, offset, text[..at].ends_with("called from ")));
            }
        }
    }
    found.sort_unstable();
    let mut places: Vec<ImageOffset> = Vec::new();
    for (_, image, offset, is_return) in found {
        if !places.iter().any(|place| place.image == image && place.offset == offset) {
            places.push(ImageOffset {
                image: image.to_owned(),
                offset,
                is_return,
                function: None,
                file: None,
                line: None,
            });
        }
    }
    places
}

/// The hexadecimal number at the beginning of a text.
fn offset(text: &str) -> Option<u32> {
    let end = text.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(text.len());
    u32::from_str_radix(&text[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn each_place_is_found_once_and_in_order() {
        let text =
            "called from consumer.sys+0x1f, nic.sys+0x20\n  consumer.sys+0x1f\n  my-consumer.sys+0x30\n  nic.sys+0xzz";
        let found: Vec<_> = places(text, ["nic.sys", "consumer.sys"]).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["consumer.sys+0x1f", "nic.sys+0x20"]);
        let returns: Vec<_> = places(text, ["nic.sys", "consumer.sys"]).iter().map(|place| place.is_return).collect();
        assert_eq!(returns, [true, false]);
        assert!(places("consumer.sys+0x123456789", ["consumer.sys"]).is_empty(), "no image is that large");
    }
}
