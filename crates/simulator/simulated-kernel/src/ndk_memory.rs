//! Memory that consumers of NDK have lent to a provider: by a region that is registered, or a mapping that is built.
//!
//! `softndk` and `softndknic` write an event at each beginning and end (`provider::NdkOs`), with the adviser or without. In between the
//! memory may not be freed and its pages not be unlocked (`NDKPI 7.4`, `NDKPI 7.5`). Whether the MDL of a region has to stay is documented
//! nowhere; it has to here, as `NDKPI 7.4.1` advises. That of a mapping need not.

use std::{ops::Range, ptr, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::MDL;

use crate::{
    findings::Field,
    ndk_steps::Fields,
    platform,
    report::bug_check,
    rule::Rule,
    state::{Part, State, Watch, lock},
};

/// More MDLs than that have no chain: it has no end, which is the provider's to find.
const MOST: usize = 1 << 12;

/// The users, by what the provider says of them: an object or a device, and the number of a mapping.
#[derive(Default)]
pub struct NdkMemory(LiteMap<(u64, u64), Lent>);

/// What one user has.
struct Lent {
    is_mapping: bool,
    /// Where the MDLs of the chain are.
    mdls: Vec<usize>,
    /// The bytes that they describe, and where the chain has more, no more than were lent.
    pieces: Vec<Range<usize>>,
    /// Who lent it, in images.
    place: String,
}

impl Lent {
    /// What an event says.
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let number = |name| usize::try_from(fields.number(name)?).ok();
        let is_mapping = fields.number("IsMapping")? != 0;
        Some(Self::of(number("Mdl")?, number("Length")?, is_mapping, fields.places("Caller")))
    }

    /// So many bytes of a chain.
    fn of(mut next: usize, mut left: usize, is_mapping: bool, place: String) -> Self {
        let (mut mdls, mut pieces) = (Vec::new(), Vec::new());
        while left > 0 && mdls.len() < MOST && platform::peek(next).is_some() {
            // SAFETY: the provider has just read this MDL of the consumer's, and the memory is there.
            let mdl = unsafe { ptr::with_exposed_provenance::<MDL>(next).read_unaligned() };
            let start = mdl.StartVa.addr() + mdl.ByteOffset as usize;
            let here = left.min(mdl.ByteCount as usize);
            mdls.push(next);
            pieces.push(start..start + here);
            left -= here;
            next = mdl.Next.addr();
        }
        Self { is_mapping, mdls, pieces, place }
    }

    /// What it is, for a message.
    fn in_words(&self) -> String {
        let (what, how) = if self.is_mapping { ("mapping", "built") } else { ("region", "registered") };
        let place = if self.place.is_empty() { String::new() } else { format!(" ({how} at {})", self.place) };
        format!("a {what}{place}")
    }

    /// What has to be done first.
    const fn first(&self) -> &'static str {
        if self.is_mapping { "before the mapping is released" } else { "before the region is deregistered or closed" }
    }

    /// What of it is in a range.
    fn in_range(&self, range: &Range<usize>) -> Option<&'static str> {
        let overlaps = |start, end| start < range.end && range.start < end;
        if self.pieces.iter().any(|piece| overlaps(piece.start, piece.end)) {
            return Some("memory");
        }
        let has_mdl = !self.is_mapping && self.mdls.iter().any(|&mdl| overlaps(mdl, mdl + size_of::<MDL>()));
        has_mdl.then_some("an MDL")
    }
}

impl Part for Mutex<NdkMemory> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<NdkMemory> {
    fn memory_is_to_go(&self, freed: &Range<usize>) {
        let words = lock(self).0.values().find_map(|lent| {
            let what = lent.in_range(freed)?;
            Some(format!("{what} of {} is freed at {:#x} {}", lent.in_words(), freed.start, lent.first()))
        });
        if let Some(words) = words {
            bug_check(Rule::NdkMemoryInUse, format_args!("{words}"));
        }
    }
}

impl State {
    /// An event of a provider was written. Those of others are left alone.
    pub fn hear_of_memory(&self, name: &str, fields: &[(String, Field)]) {
        let fields = Fields(fields);
        let key = || Some((fields.number("Key")?, fields.number("Mapping")?));
        match name {
            "NdkBorrowed" => {
                if let (Some(key), Some(lent)) = (key(), Lent::read(&fields)) {
                    self.locked::<NdkMemory>().0.insert(key, lent);
                }
            }
            "NdkGivenBack" => {
                if let Some(key) = key() {
                    self.locked::<NdkMemory>().0.remove(&key);
                }
            }
            _ => {}
        }
    }

    /// The pages of an MDL are about to be unlocked or freed.
    pub fn check_lent_mdl(&self, mdl: usize, how: &str) {
        let words =
            self.locked::<NdkMemory>().0.values().find(|lent| lent.mdls.contains(&mdl)).map(|lent| {
                format!("the pages of the MDL at {mdl:#x} of {} are {how} {}", lent.in_words(), lent.first())
            });
        if let Some(words) = words {
            bug_check(Rule::NdkMemoryInUse, format_args!("{words}"));
        }
    }
}
