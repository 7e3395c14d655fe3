//! The entries, byte by byte, and what installing, removing and listing do with a catalogue.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use ndkpi::GUID;
use softnd::catalogue::{Entry, Family, Version, WinsockCatalogue, WinsockError, install, list, uninstall};

/// The entries of one catalogue, each with its provider and the path of its library.
type Catalogue = Vec<(GUID, PathBuf, Entry)>;

/// A catalogue of each size, and files.
#[derive(Default)]
struct StandIn {
    catalogues: RefCell<BTreeMap<u8, Catalogue>>,
    files: RefCell<Vec<PathBuf>>,
    /// Nobody may change anything.
    read_only: bool,
    /// The catalogue takes so many providers.
    most: Option<usize>,
}

impl WinsockCatalogue for StandIn {
    fn entries(&self, bits: u8) -> Result<Vec<Entry>, WinsockError> {
        let catalogues = self.catalogues.borrow();
        Ok(catalogues.get(&bits).into_iter().flatten().map(|(.., entry)| entry.clone()).collect())
    }

    fn path(&self, bits: u8, provider: &GUID) -> Result<PathBuf, WinsockError> {
        let catalogues = self.catalogues.borrow();
        let found = catalogues.get(&bits).into_iter().flatten().find(|(own, ..)| own == provider);
        found.map(|(_, path, _)| path.clone()).ok_or(WinsockError(10022))
    }

    fn add(&self, provider: &GUID, path: &Path, entries: &[Entry], both: bool) -> Result<(), WinsockError> {
        let mut catalogues = self.catalogues.borrow_mut();
        let providers = catalogues.get(&64).map_or(0, Vec::len) / 2;
        if self.most.is_some_and(|most| providers >= most) {
            return Err(WinsockError::NO_RECOVERY);
        }
        for bits in if both { &[64, 32][..] } else { &[64] } {
            let list = catalogues.entry(*bits).or_default();
            list.extend(entries.iter().map(|entry| (*provider, path.to_owned(), entry.clone())));
        }
        Ok(())
    }

    fn remove(&self, bits: u8, provider: &GUID) -> Result<(), WinsockError> {
        if self.read_only {
            return Err(WinsockError::ACCESS);
        }
        let mut catalogues = self.catalogues.borrow_mut();
        let list = catalogues.entry(bits).or_default();
        let before = list.len();
        list.retain(|(own, ..)| own != provider);
        if list.len() < before { Ok(()) } else { Err(WinsockError(10022)) }
    }

    fn directory(&self, bits: u8) -> PathBuf {
        Path::new("/windows").join(if bits == 64 { "System32" } else { "SysWOW64" })
    }

    fn copy(&self, _: &Path, to: &Path) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.files.borrow_mut().push(to.to_owned());
        Ok(())
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files.borrow_mut();
        let place = files.iter().position(|file| file == path).ok_or(io::ErrorKind::NotFound)?;
        files.remove(place);
        Ok(())
    }
}

#[test]
fn an_entry_has_the_bytes_of_the_structure() {
    let entry = Entry::of(Version::Two, Family::V6);
    let mut wanted = vec![0; 628];
    let numbers: [(usize, u32); 10] = [
        (0x00, 0x8E),        // dwServiceFlags1
        (0x10, 0x14),        // dwProviderFlags
        (0x28, 1),           // ProtocolChain.ChainLen
        (0x48, 0x2_0000),    // iVersion
        (0x4C, 23),          // iAddressFamily
        (0x50, 28),          // iMaxSockAddr
        (0x54, 16),          // iMinSockAddr
        (0x58, 0xFFFF_FFFF), // iSocketType
        (0x6C, 0xFFFF_FFFF), // dwMessageSize
        (0x14, 0x0E6A_5D4C), // ProviderId, its first part
    ];
    for (place, number) in numbers {
        wanted[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    wanted[0x18..0x24].copy_from_slice(&[0xB7, 0x93, 0x28, 0x4F, 0x8A, 0x61, 0x5C, 0x0D, 0x71, 0xE2, 0xB9, 0x02]);
    for (index, unit) in "SoftNDK NetworkDirect 2 [IPv6]".encode_utf16().enumerate() {
        wanted[0x74 + 2 * index..0x76 + 2 * index].copy_from_slice(&unit.to_le_bytes());
    }
    assert_eq!(entry.bytes()[..], wanted[..]);
    assert_eq!(entry.provider(), Version::Two.provider());
}

#[test]
fn programs_take_the_entries_for_network_direct_and_no_others() {
    for version in Version::ALL {
        for family in Family::ALL {
            let entry = Entry::of(version, family);
            assert!(entry.is_network_direct(), "{entry:?}");
            assert_eq!((entry.version(), entry.family()), (Some(version), Some(family)));
        }
    }
    assert!(!Entry::EMPTY.is_network_direct());
    assert_ne!(Version::One.provider(), Version::Two.provider(), "a provider for each version");
}

#[test]
fn installing_registers_both_versions_and_removing_leaves_nothing() {
    let system = StandIn::default();
    let done = install(&system, Path::new("softnd.dll"), Some(Path::new("softnd32.dll"))).expect("installed");
    assert_eq!(done.len(), 4, "{done:#?}");
    let listed = list(&system).expect("a list");
    assert_eq!(listed.len(), 8, "two versions, two families, two sizes");
    for one in &listed {
        assert!(one.own);
        // For programs of 32 bits the system puts SysWOW64 in its place.
        assert_eq!(one.path, Path::new("/windows/System32/softnd.dll").display().to_string());
    }
    let again = install(&system, Path::new("softnd.dll"), None).expect_err("twice");
    assert!(again.starts_with("already installed: "), "{again}");
    let undone = uninstall(&system).expect("removed");
    assert_eq!(undone.len(), 6, "{undone:#?}");
    assert_eq!(list(&system).expect("a list"), []);
    assert_eq!(system.files.borrow()[..], [] as [PathBuf; 0]);
    assert_eq!(uninstall(&system).expect_err("twice"), "not installed: `ndkctl nd2 list` shows what is");
}

#[test]
fn without_a_library_of_32_bits_programs_of_32_bits_find_no_broken_entry() {
    let system = StandIn::default();
    install(&system, Path::new("softnd.dll"), None).expect("installed");
    assert!(list(&system).expect("a list").iter().all(|one| one.bits == 64));
    uninstall(&system).expect("removed");
    assert_eq!(list(&system).expect("a list"), []);
}

#[test]
fn who_is_not_an_administrator_is_told_so() {
    let system = StandIn { read_only: true, ..StandIn::default() };
    let error = install(&system, Path::new("softnd.dll"), None).expect_err("not allowed");
    assert!(error.ends_with("not allowed: run it as administrator"), "{error}");
    let system = StandIn::default();
    install(&system, Path::new("softnd.dll"), None).expect("installed");
    let system = StandIn { read_only: true, ..system };
    let error = uninstall(&system).expect_err("not allowed");
    assert_eq!(error, "removing version 2, 64 bits: not allowed: run it as administrator");
}

#[test]
fn an_installation_that_fails_half_way_is_undone() {
    let system = StandIn { most: Some(1), ..StandIn::default() };
    let error = install(&system, Path::new("softnd.dll"), Some(Path::new("softnd32.dll"))).expect_err("refused");
    assert!(error.starts_with("registering version 1: refused"), "{error}");
    assert_eq!(list(&system).expect("a list"), []);
    assert_eq!(system.files.borrow()[..], [] as [PathBuf; 0]);
}

#[test]
fn providers_of_others_are_listed_and_stay() {
    let system = StandIn::default();
    let other = GUID::from_u128(7);
    let entries = [Entry::of(Version::Two, Family::V4), Entry::EMPTY];
    system.add(&other, Path::new("/windows/System32/other.dll"), &entries, false).expect("added");
    // The entry says who it belongs to.
    let listed = list(&system).expect("a list");
    assert_eq!(listed.len(), 1, "an entry that is not of NetworkDirect is left out");
}
