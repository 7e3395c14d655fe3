//! What each function of the crate promises. Interleavings are in `loom_arc`, allocations that fail in `tests-host`.

#![cfg(not(loom))]

use std::{
    collections::TryReserveError,
    panic::catch_unwind,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use fallible::{AllocError, Arc, UniqueArc, try_box, try_slice};
use ntstatus::NtStatus;

/// Counts its drops.
#[derive(Debug)]
struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn the_last_reference_drops_the_value_once() {
    let drops = AtomicUsize::new(0);
    let first = Arc::try_new(Counted(&drops)).expect("memory");
    let second = first.clone();
    assert_eq!(Arc::references_now(&first), 2);
    drop(first);
    assert_eq!((Arc::references_now(&second), drops.load(Relaxed)), (1, 0));
    drop(second);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn who_releases_last_has_the_value() {
    let drops = AtomicUsize::new(0);
    let first = Arc::try_new(Counted(&drops)).expect("memory");
    let second = first.clone();
    assert!(first.release().is_none());
    let last: UniqueArc<_> = second.release().expect("the last reference");
    assert_eq!(drops.load(Relaxed), 0);
    drop(last);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn references_are_equal_if_their_value_is_the_same_one() {
    let (one, other) = (Arc::try_new(1).expect("memory"), Arc::try_new(1).expect("memory"));
    assert!(Arc::ptr_eq(&one, &one.clone()));
    assert!(!Arc::ptr_eq(&one, &other));
    assert_eq!(format!("{one:?}"), "1");
}

#[test]
fn a_reference_is_sole_as_long_as_there_is_no_other() {
    let first = Arc::try_new(1).expect("memory");
    assert!(Arc::is_sole(&first));
    let second = first.clone();
    assert!(!Arc::is_sole(&first) && !Arc::is_sole(&second));
    drop(first);
    assert!(Arc::is_sole(&second));
}

#[test]
fn a_raw_reference_stays_counted() {
    let first = Arc::try_new([1, 2, 3]).expect("memory");
    let raw = Arc::into_raw(first.clone());
    assert_eq!(raw, Arc::as_ptr(&first));
    assert_eq!(Arc::references_now(&first), 2);
    // SAFETY: from `into_raw`, taken back once.
    let second = unsafe { Arc::from_raw(raw) };
    assert!(Arc::ptr_eq(&first, &second));
    drop(second);
    assert_eq!(Arc::references_now(&first), 1);
}

#[test]
fn a_unique_value_can_be_changed_and_keeps_its_place() {
    let mut only = Arc::try_new(String::from("a")).expect("memory").release().expect("the only reference");
    only.push('b');
    let raw = UniqueArc::into_raw(only);
    // SAFETY: from `into_raw`, taken back once.
    let only = unsafe { UniqueArc::from_raw(raw) };
    assert_eq!(*only, "ab");
}

#[test]
fn a_panic_of_a_value_that_is_dropped_is_the_callers() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let one = Arc::try_new(Panics).expect("memory");
    assert!(catch_unwind(move || drop(one)).is_err());
}

#[test]
fn boxes_and_slices_have_what_they_were_made_of() {
    assert_eq!(*try_box([7_u64; 3]).expect("memory"), [7; 3]);
    assert_eq!(*try_box(()).expect("no memory is needed"), ());
    assert_eq!(*try_slice(4, |index| index * index).expect("memory"), [0, 1, 4, 9]);
    assert_eq!(try_slice(3, |_| ()).expect("no memory is needed").len(), 3);
    assert!(try_slice(0, |index| index).expect("no memory is needed").is_empty());
    assert_eq!(try_slice(usize::MAX, |_| 0_u64).err(), Some(AllocError));
}

#[test]
fn no_memory_is_said_in_words() {
    assert_eq!(AllocError.to_string(), "out of memory");
    let refused: TryReserveError = Vec::<u8>::new().try_reserve(usize::MAX).expect_err("more than there is");
    assert_eq!(AllocError::from(refused), AllocError);
    assert_eq!(NtStatus::from(AllocError), NtStatus::INSUFFICIENT_RESOURCES);
}
