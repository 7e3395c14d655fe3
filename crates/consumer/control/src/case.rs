//! Runs of `ndktest` of one case of the suite.
//!
//! A program that has the suite run case by case knows at any moment which one is running, also if the machine is gone the next
//! moment. The code belongs to the control device of [`crate::test_device`]. An older driver answers it with
//! `STATUS_INVALID_DEVICE_REQUEST`.

use crate::{
    network::NAMES,
    wire::{WRITE, control_code, wire},
};

/// Takes a [`StartCase`] with three names behind it, and answers with a [`Begun`](crate::network::Begun).
/// `STATUS_DEVICE_BUSY` during a run, `STATUS_DEVICE_NOT_READY` without a provider.
pub const START_CASE: u32 = control_code(0x26, WRITE);

/// The maximum length of a case's name, in bytes.
pub const CASE: usize = 256;

wire! {
    /// Which case to run, and on what. Three names follow as UTF-8 text: the case's, and those of the interfaces as in
    /// [`StartOn`](crate::network::StartOn). Without an interface the case runs on `SoftNDK`.
    StartCase {
        /// Like [`Start::seed`](crate::test_device::Start::seed).
        seed: u64,
        /// Like [`Start::seconds`](crate::test_device::Start::seconds).
        seconds: u32,
        /// Like [`StartOn::hostile`](crate::network::StartOn::hostile). `SoftNDK` bears it anyway.
        hostile: u32,
        /// The major version of NDKPI to open the adapters with; 0 for the best.
        major: u32,
        /// The length of the case's name in bytes.
        case: u32,
        /// The length of the interface's name in bytes; 0 for `SoftNDK`.
        interface: u32,
        /// The length of the second interface's name in bytes; 0 for none.
        peer: u32,
    }
}

/// What a [`StartCase`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    /// The case.
    pub case: &'a str,
    /// The interface; empty for `SoftNDK`.
    pub interface: &'a str,
    /// The second interface; empty for none.
    pub peer: &'a str,
}

impl StartCase {
    /// The request and its names; `None` if it is malformed.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, Names<'_>)> {
        let (head, names) = bytes.split_at_checked(Self::BYTES)?;
        let head = Self::from_bytes(head)?;
        let split = |names: &'_ [u8], length: u32| -> Option<usize> {
            usize::try_from(length).ok().filter(|length| *length <= names.len())
        };
        let (case, names) = names.split_at_checked(split(names, head.case)?)?;
        let (interface, peer) = names.split_at_checked(split(names, head.interface)?)?;
        let whole = split(peer, head.peer)? == peer.len() && names.len() <= NAMES && case.len() <= CASE;
        let sound =
            head.hostile <= 1 && head.major <= 2 && !case.is_empty() && (!interface.is_empty() || peer.is_empty());
        if !whole || !sound {
            return None;
        }
        let text = |bytes| core::str::from_utf8(bytes).ok();
        Some((head, Names { case: text(case)?, interface: text(interface)?, peer: text(peer)? }))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::{CASE, Names, StartCase};

    fn request(names: Names<'_>) -> Vec<u8> {
        let length = |name: &str| u32::try_from(name.len()).expect("a short name");
        let Names { case, interface, peer } = names;
        let lengths = (length(case), length(interface), length(peer));
        let head =
            StartCase { case: lengths.0, interface: lengths.1, peer: lengths.2, seed: 7, ..StartCase::default() };
        [&head.to_bytes(), case.as_bytes(), interface.as_bytes(), peer.as_bytes()].concat()
    }

    #[test]
    fn three_names_come_behind_the_request() {
        for (case, interface, peer) in [("arm.any", "", ""), ("arm.any", "Ethernet 3", ""), ("a.b", "7", "192.0.2.7")] {
            let names = Names { case, interface, peer };
            let whole = request(names);
            let (head, parsed) = StartCase::parse(&whole).expect("a request");
            assert_eq!((head.seed, parsed), (7, names));
            assert_eq!(StartCase::parse(&whole[..whole.len() - 1]), None, "less than is said");
            assert_eq!(StartCase::parse(&[&whole[..], b"x"].concat()), None, "more than is said");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let long = "x".repeat(CASE + 1);
        for (case, interface, peer) in
            [("", "7", ""), ("a.b", "", "7"), (&long, "", ""), ("a.b", &"x".repeat(3000), "")]
        {
            assert_eq!(
                StartCase::parse(&request(Names { case, interface, peer })),
                None,
                "{case}, {interface}, {peer}"
            );
        }
        let good = request(Names { case: "a.b", interface: "", peer: "" });
        for (place, value) in [(12, 2), (16, 3), (StartCase::BYTES, 0xFF)] {
            let mut wrong = good.clone();
            wrong[place] = value;
            assert_eq!(StartCase::parse(&wrong), None, "byte {place}");
        }
        assert_eq!(StartCase::parse(&good[..StartCase::BYTES - 1]), None);
    }
}
