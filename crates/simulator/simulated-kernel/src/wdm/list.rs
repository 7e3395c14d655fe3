//! Lists that are changed in one call: under a spin lock, or sequenced ones, which need none.

use std::{iter, ptr, sync::Mutex};

use wdk_bindings::{LIST_ENTRY, PKSPIN_LOCK, PLIST_ENTRY, SLIST_HEADER};

use super::lock::{acquire, release};
use crate::{
    context, pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    tracked::{Kind, Object, check_memory_of},
};

/// Does something with a list while its lock is held.
fn locked<R>(state: &State, word: PKSPIN_LOCK, change: impl FnOnce() -> R) -> R {
    let before = acquire(state, word);
    let result = change();
    release(state, word, before);
    result
}

/// The links of an entry, whose neighbours lead to it.
pub fn read(entry: PLIST_ENTRY) -> LIST_ENTRY {
    // SAFETY: an entry of the driver's list, whose lock is held.
    let links = unsafe { entry.read() };
    for link in [links.Flink, links.Blink] {
        pool::check_live(link.addr(), format_args!("the list entry at {entry:p} leads to"));
    }
    // SAFETY: an entry of the list, and so are its neighbours.
    let (before_next, after_previous) = unsafe { ((*links.Flink).Blink, (*links.Blink).Flink) };
    if before_next != entry || after_previous != entry {
        // The neighbours agree where it is, and it knows them: its bytes were copied from there.
        if before_next == after_previous && links.Flink != entry && links.Blink != entry {
            let words =
                format_args!("the list entry at {entry:p} was linked at {before_next:p}, and is a copy of that");
            bug_check(Rule::MovedObject, words);
        }
        bug_check(Rule::BadArgument, format_args!("the list entry at {entry:p} is corrupt"));
    }
    links
}

/// Puts an entry between two that are neighbours.
pub fn put_between(entry: PLIST_ENTRY, previous: PLIST_ENTRY, next: PLIST_ENTRY) {
    // SAFETY: the driver's entry, which is in no list.
    unsafe { entry.write(LIST_ENTRY { Flink: next, Blink: previous }) };
    // SAFETY: an entry of the driver's list, whose lock is held.
    unsafe {
        (*previous).Flink = entry;
        (*next).Blink = entry;
    }
}

/// What the routines give back of a list that has been empty: nothing.
fn unless_empty(head: PLIST_ENTRY, entry: PLIST_ENTRY) -> PLIST_ENTRY {
    if entry == head { ptr::null_mut() } else { entry }
}

#[unsafe(no_mangle)]
extern "C" fn ExInterlockedInsertHeadList(head: PLIST_ENTRY, entry: PLIST_ENTRY, word: PKSPIN_LOCK) -> PLIST_ENTRY {
    routine!("ExInterlockedInsertHeadList", |state| locked(state, word, || {
        let first = read(head).Flink;
        put_between(entry, head, first);
        unless_empty(head, first)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ExInterlockedInsertTailList(head: PLIST_ENTRY, entry: PLIST_ENTRY, word: PKSPIN_LOCK) -> PLIST_ENTRY {
    routine!("ExInterlockedInsertTailList", |state| locked(state, word, || {
        let last = read(head).Blink;
        put_between(entry, last, head);
        unless_empty(head, last)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ExInterlockedRemoveHeadList(head: PLIST_ENTRY, word: PKSPIN_LOCK) -> PLIST_ENTRY {
    routine!("ExInterlockedRemoveHeadList", |state| locked(state, word, || {
        if read(head).Flink == head { ptr::null_mut() } else { take_first(head) }
    }))
}

/// Takes the first entry out of a list that has one.
pub fn take_first(head: PLIST_ENTRY) -> PLIST_ENTRY {
    let first = read(head).Flink;
    let next = read(first).Flink;
    // SAFETY: the head of the driver's list, which nobody else changes now, and an entry of it or the head.
    unsafe {
        (*head).Flink = next;
        (*next).Blink = head;
    }
    first
}

/// Takes the head out of a list that has entries, which stay linked to each other. The first of them.
pub fn unlink_head(head: PLIST_ENTRY) -> PLIST_ENTRY {
    let LIST_ENTRY { Flink: first, Blink: last } = read(head);
    // SAFETY: entries of the driver's list, which nobody else changes now.
    unsafe {
        (*first).Blink = last;
        (*last).Flink = first;
        head.write(LIST_ENTRY { Flink: head, Blink: head });
    }
    first
}

/// A list whose entries know the next one only. Null if there was none.
#[unsafe(no_mangle)]
extern "C" fn ExInterlockedPushEntryList(head: *mut Link, entry: *mut Link, word: PKSPIN_LOCK) -> *mut Link {
    routine!("ExInterlockedPushEntryList", DISPATCH_LEVEL, |state| locked(state, word, || {
        // SAFETY: the driver's list, whose lock is held, and its entry, which is in none.
        unsafe {
            let first = (*head).next;
            (*entry).next = first;
            (*head).next = entry;
            first
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ExInterlockedPopEntryList(head: *mut Link, word: PKSPIN_LOCK) -> *mut Link {
    routine!("ExInterlockedPopEntryList", DISPATCH_LEVEL, |state| locked(state, word, || {
        // SAFETY: the driver's list, whose lock is held.
        let first = unsafe { (*head).next };
        if !first.is_null() {
            pool::check_live(first.addr(), format_args!("the first entry of a list is in"));
            // SAFETY: as above; an entry of it.
            unsafe { (*head).next = (*first).next };
        }
        first
    }))
}

/// An entry of a sequenced list, or of one whose entries know the next one only.
#[repr(C)]
struct Link {
    next: *mut Self,
}

/// What Windows does by one instruction, with the list's two words.
static SEQUENCED: Mutex<()> = Mutex::new(());

/// A header and each entry are aligned to that, by the reference: the lowest bits of an address have another meaning.
const SEQUENCED_ALIGNMENT: usize = 16;

fn initialise(state: &State, list: *mut SLIST_HEADER) {
    let address = list.expose_provenance();
    state.track(address, context::caller(), Object::plain(Kind::SequencedList));
    // SAFETY: the driver's memory for a header, which is aligned and of which the first word is taken.
    unsafe { first_of(list).write(ptr::null_mut()) };
}

/// Where a header has the address of the first entry: in its second word.
const fn first_of(list: *mut SLIST_HEADER) -> *mut *mut Link {
    list.cast::<*mut Link>().wrapping_add(1)
}

/// Does something with a list that was initialised, and of which all entries are there. No other call of these routines is in it.
fn sequenced<R>(state: &State, list: *mut SLIST_HEADER, change: impl FnOnce(*mut *mut Link) -> R) -> R {
    state.find_sequenced_list(list.expose_provenance());
    let _alone = lock(&SEQUENCED);
    change(first_of(list))
}

/// The entries from this one on.
fn entries(first: *mut Link) -> impl Iterator<Item = *mut Link> {
    let present = |entry: *mut Link| {
        if !entry.is_null() {
            check_memory_of(entry.expose_provenance(), "entry of a sequenced list");
        }
        (!entry.is_null()).then_some(entry)
    };
    // SAFETY: an entry of the driver's list, in memory that is not free.
    iter::successors(present(first), move |entry| present(unsafe { entry.read() }.next))
}

fn push(state: &State, list: *mut SLIST_HEADER, entry: *mut Link) -> *mut Link {
    let address = entry.expose_provenance();
    if !address.is_multiple_of(SEQUENCED_ALIGNMENT) {
        let words = format_args!("the entry at {address:#x} is not aligned to {SEQUENCED_ALIGNMENT} bytes");
        bug_check(Rule::BadArgument, words);
    }
    check_memory_of(address, "entry of a sequenced list");
    sequenced(state, list, |first| {
        // SAFETY: the list was initialised, and nobody else is in it.
        let before = unsafe { first.read() };
        if entries(before).any(|other| other == entry) {
            bug_check(Rule::BadArgument, format_args!("the entry at {address:#x} is in the sequenced list already"));
        }
        // SAFETY: the driver's entry, which is in no list.
        unsafe {
            entry.write(Link { next: before });
            first.write(entry);
        }
        before
    })
}

/// Takes the first entry out, or all.
fn take(state: &State, list: *mut SLIST_HEADER, all: bool) -> *mut Link {
    sequenced(state, list, |first| {
        // SAFETY: the list was initialised, and nobody else is in it.
        let taken = unsafe { first.read() };
        let next = if all { None } else { entries(taken).nth(1) }.unwrap_or(ptr::null_mut());
        // SAFETY: the list was initialised, and nobody else is in it.
        unsafe { first.write(next) };
        taken
    })
}

#[unsafe(no_mangle)]
extern "C" fn InitializeSListHead(list: *mut SLIST_HEADER) {
    routine!("InitializeSListHead", HIGH_LEVEL, |state| initialise(state, list));
}

#[unsafe(no_mangle)]
extern "C" fn ExpInterlockedPushEntrySList(list: *mut SLIST_HEADER, entry: *mut Link) -> *mut Link {
    routine!("ExpInterlockedPushEntrySList", HIGH_LEVEL, |state| push(state, list, entry))
}

#[unsafe(no_mangle)]
extern "C" fn ExpInterlockedPopEntrySList(list: *mut SLIST_HEADER) -> *mut Link {
    routine!("ExpInterlockedPopEntrySList", HIGH_LEVEL, |state| take(state, list, false))
}

#[unsafe(no_mangle)]
extern "C" fn ExpInterlockedFlushSList(list: *mut SLIST_HEADER) -> *mut Link {
    routine!("ExpInterlockedFlushSList", HIGH_LEVEL, |state| take(state, list, true))
}

#[unsafe(no_mangle)]
extern "C" fn ExQueryDepthSList(list: *mut SLIST_HEADER) -> u16 {
    routine!("ExQueryDepthSList", DISPATCH_LEVEL, |state| sequenced(state, list, |first| {
        // SAFETY: the list was initialised, and nobody else is in it.
        let count = entries(unsafe { first.read() }).count();
        u16::try_from(count).unwrap_or(u16::MAX)
    }))
}
