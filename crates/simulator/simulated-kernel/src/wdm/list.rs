//! Lists that are changed under a spin lock in one call.

use std::ptr;

use wdk_bindings::{LIST_ENTRY, PKSPIN_LOCK, PLIST_ENTRY};

use super::{
    lock::{acquire, release},
    routine,
};
use crate::{kernel::State, pool, report::bug_check, rule::Rule};

/// Does something with a list while its lock is held.
fn locked<R>(state: &State, word: PKSPIN_LOCK, change: impl FnOnce() -> R) -> R {
    let before = acquire(state, word);
    let result = change();
    release(state, word, before);
    result
}

fn read(entry: PLIST_ENTRY) -> LIST_ENTRY {
    // SAFETY: an entry of the driver's list, whose lock is held.
    let links = unsafe { entry.read() };
    if [links.Flink, links.Blink].iter().any(|link| pool::is_live(link.addr()) == Some(false)) {
        bug_check(Rule::UseAfterFree, format_args!("the list entry at {entry:p} leads to memory that is free"));
    }
    // SAFETY: as above: its neighbours are entries of the list too.
    let before_next = unsafe { (*links.Flink).Blink };
    // SAFETY: as above.
    let after_previous = unsafe { (*links.Blink).Flink };
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
fn put_between(entry: PLIST_ENTRY, previous: PLIST_ENTRY, next: PLIST_ENTRY) {
    // SAFETY: the driver's entry, which is in no list.
    unsafe { entry.write(LIST_ENTRY { Flink: next, Blink: previous }) };
    // SAFETY: an entry of the driver's list, whose lock is held.
    unsafe { (*previous).Flink = entry };
    // SAFETY: as above.
    unsafe { (*next).Blink = entry };
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
        let first = read(head).Flink;
        if first == head {
            return ptr::null_mut();
        }
        let next = read(first).Flink;
        // SAFETY: the head of the driver's list, whose lock is held.
        unsafe { (*head).Flink = next };
        // SAFETY: an entry of it, or the head.
        unsafe { (*next).Blink = head };
        first
    }))
}
