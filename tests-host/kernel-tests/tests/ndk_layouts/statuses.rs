//! The status codes of the crate are those of the tables in `docs/reference`.

use std::collections::BTreeMap;
use std::fs;

use ndkpi::NtStatus;

/// The codes in the tables of a document: the name in one cell, the number in the one beside it.
fn documented(document: &str, number_comes_first: bool) -> BTreeMap<String, NtStatus> {
    let path = sources::root().join("docs/reference").join(document);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut codes = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        for pair in cells.windows(2) {
            let (name, number) = if number_comes_first { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
            let bits = number.strip_prefix("0x").map(|digits| u32::from_str_radix(&digits.replace('_', ""), 16));
            if let (true, Some(Ok(bits))) = (name.starts_with("STATUS_"), bits) {
                let earlier = codes.insert(name.to_owned(), NtStatus::from_bits(bits));
                assert_eq!(earlier, None, "{name} is twice in {document}");
            }
        }
    }
    codes
}

/// `STATUS_INVALID_PARAMETER_1` to `_10`, which the document gives as a range.
fn numbered_parameters() -> impl Iterator<Item = (String, NtStatus)> {
    (1..=10).map(|number| (format!("STATUS_INVALID_PARAMETER_{number}"), NtStatus::from_bits(0xC000_00EE + number)))
}

#[test]
fn every_status_of_the_reference_is_named_and_no_other() {
    let (kernel, user) = (documented("ndkpi.md", false), documented("ndspi.md", true));
    assert_eq!((kernel.len(), user.len()), (23, 34), "codes found in the tables");
    let mut all: BTreeMap<_, _> = kernel.into_iter().chain(user).chain(numbered_parameters()).collect();
    // Named in NDIS-NDK 8 without its number.
    all.insert("STATUS_NOINTERFACE".to_owned(), NtStatus::from_bits(0xC000_02B9));
    // Of a second bind, of which the reference says nothing (docs/decisions.md).
    all.insert("STATUS_ADDRESS_ALREADY_ASSOCIATED".to_owned(), NtStatus::from_bits(0xC000_0238));
    for (name, code) in &all {
        assert_eq!(code.name(), Some(name.as_str()));
    }
    let named = NtStatus::NAMED.iter().filter_map(|code| code.name()).filter(|name| name.starts_with("STATUS_"));
    assert!(named.clone().all(|name| all.contains_key(name)));
    assert_eq!(named.count(), all.len());
}
