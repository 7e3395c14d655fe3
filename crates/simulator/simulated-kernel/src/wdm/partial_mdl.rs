//! MDLs that describe a part of another one: `IoBuildPartialMdl`.
//!
//! One that is built of a source which is mapped has the source's mapping. Otherwise it may get one of its own, which has to be gone
//! before the pages of the source are.

use wdk_bindings::{MDL, PVOID, ULONG};

use super::mdl::{FLAG_LOCKED, FLAG_MAPPED, FLAG_NON_PAGED, FLAG_OWN_MAPPING, FLAG_PARTIAL, Mdls, flags};
use crate::{pool, report::bug_check, routine::routine, rule::Rule, state::State};

impl State {
    /// The pages of an MDL are given back, or the MDL itself is: no partial one may have a mapping of them, and none gets one later.
    pub(super) fn source_ends(&self, source: *mut MDL, how: &str) {
        let parts: Vec<usize> = {
            let mdls = self.locked::<Mdls>();
            mdls.partial.iter().filter(|&(_, &of)| of == source.addr()).map(|(&part, _)| part).collect()
        };
        for part in parts {
            // SAFETY: a partial MDL that is known, which its driver does not change meanwhile.
            if *unsafe { flags(std::ptr::with_exposed_provenance_mut(part)) } & FLAG_OWN_MAPPING != 0 {
                let words = "while the partial MDL of it is mapped that is at";
                bug_check(Rule::BadMdl, format_args!("an MDL is {how} {words} {part:#x}"));
            }
            self.locked::<Mdls>().partial.remove(&part);
        }
    }

    /// Ends the test if the source of a partial MDL is gone.
    pub(super) fn check_source(&self, part: *mut MDL) {
        if !self.locked::<Mdls>().partial.contains_key(&part.addr()) {
            let words = "of which the source has been unlocked or freed";
            bug_check(Rule::BadMdl, format_args!("a partial MDL is mapped {words}"));
        }
    }
}

/// The bytes that a target is to describe: where they begin, and how many there are.
fn part_of(source: &MDL, address: usize, length: usize) -> (usize, usize) {
    let start = source.StartVa.addr() + source.ByteOffset as usize;
    let end = start + source.ByteCount as usize;
    let length = if length == 0 { end.saturating_sub(address) } else { length };
    let is_inside = address >= start && length > 0 && address.checked_add(length).is_some_and(|last| last <= end);
    if !is_inside {
        let words = "are not among those of the source, from";
        bug_check(Rule::BadMdl, format_args!("{length} bytes from {address:#x} {words} {start:#x} to {end:#x}"));
    }
    (address, length)
}

/// Ends the test if a target cannot describe so many pages now.
fn check_target(target: &MDL, pages: usize) {
    let room = usize::try_from(target.Size).unwrap_or(0).saturating_sub(size_of::<MDL>()) / size_of::<u64>();
    if pages > room {
        bug_check(Rule::BadMdl, format_args!("{pages} pages for a partial MDL that has room for {room}"));
    }
    if target.MdlFlags & FLAG_OWN_MAPPING != 0 {
        let words = "without MmPrepareMdlForReuse: its mapping would be lost";
        bug_check(Rule::BadMdl, format_args!("a partial MDL that is mapped is built again {words}"));
    }
    if target.MdlFlags & FLAG_LOCKED != 0 {
        bug_check(Rule::BadMdl, format_args!("a partial MDL is built in one that has locked pages of its own"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoBuildPartialMdl(source: *mut MDL, target: *mut MDL, address: PVOID, length: ULONG) {
    routine!("IoBuildPartialMdl", DISPATCH_LEVEL, |state| {
        state.known_or_own(source);
        state.known_or_own(target);
        // SAFETY: a known MDL, whose driver does not change it meanwhile.
        let described = unsafe { source.read() };
        if described.MdlFlags & (FLAG_LOCKED | FLAG_NON_PAGED | FLAG_PARTIAL) == 0 {
            bug_check(Rule::BadMdl, format_args!("a part of an MDL whose pages are not locked"));
        }
        let (start, length) = part_of(&described, address.addr(), length as usize);
        let offset = start % pool::PAGE;
        // SAFETY: a known MDL, which the driver is just building.
        let part = unsafe { &mut *target };
        check_target(part, (offset + length).div_ceil(pool::PAGE));
        let from_start = start - (described.StartVa.addr() + described.ByteOffset as usize);
        let shared = described.MdlFlags & (FLAG_NON_PAGED | FLAG_MAPPED);
        part.MdlFlags = (part.MdlFlags & !(FLAG_NON_PAGED | FLAG_MAPPED)) | FLAG_PARTIAL | shared;
        part.StartVa = address.wrapping_byte_sub(offset);
        part.ByteOffset = ULONG::try_from(offset).unwrap_or(0);
        part.ByteCount = ULONG::try_from(length).unwrap_or(0);
        part.MappedSystemVa = described.MappedSystemVa.wrapping_byte_add(from_start);
        state.locked::<Mdls>().partial.insert(target.addr(), source.addr());
    });
}
