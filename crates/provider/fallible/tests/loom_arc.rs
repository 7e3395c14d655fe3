//! Every interleaving of references that are cloned and given back, checked by loom.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p fallible --test loom_arc --target-dir target/loom
//! ```

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Cells that each thread writes before it gives its reference back, and a count of drops.
struct Value {
    cells: [UnsafeCell<u32>; 2],
    drops: Arc<AtomicUsize>,
}

impl Value {
    fn new(drops: &Arc<AtomicUsize>) -> Self {
        Self { cells: [UnsafeCell::new(0), UnsafeCell::new(0)], drops: drops.clone() }
    }

    fn write(&self, index: usize) {
        self.cells[index].with_mut(|cell| {
            // SAFETY: each cell is written by one thread, and read by who has the last reference; loom checks that.
            unsafe { *cell = 7 };
        });
    }

    fn read(&self, index: usize) -> u32 {
        // SAFETY: as for `write`.
        self.cells[index].with(|cell| unsafe { *cell })
    }
}

// SAFETY: the cells are used by one thread at a time, which is what the test checks.
unsafe impl Sync for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Relaxed);
    }
}

#[test]
fn exactly_one_release_gives_the_value_and_sees_what_the_others_did() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let first = fallible::Arc::try_new(Value::new(&drops)).expect("memory");
        let second = first.clone();
        let other = thread::spawn(move || {
            second.write(0);
            second.release().map(|value| (value.read(0), value.read(1)))
        });
        first.write(1);
        let ours = first.release().map(|value| (value.read(0), value.read(1)));
        let theirs = other.join().expect("no panic");
        assert!(ours.is_some() != theirs.is_some(), "{ours:?}, {theirs:?}");
        assert_eq!(ours.or(theirs), Some((7, 7)));
        assert_eq!(drops.load(Relaxed), 1);
    });
}

#[test]
fn a_reference_cloned_by_another_thread_keeps_the_value() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let first = fallible::Arc::try_new(Value::new(&drops)).expect("memory");
        let second = first.clone();
        let other = thread::spawn(move || {
            let third = second.clone();
            drop(second);
            third.write(0);
            third
        });
        drop(first);
        let third = other.join().expect("no panic");
        assert_eq!(drops.load(Relaxed), 0);
        assert_eq!(third.read(0), 7);
        assert!(third.release().is_some());
        assert_eq!(drops.load(Relaxed), 1);
    });
}

#[test]
fn a_reference_kept_as_a_raw_pointer_is_counted() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let first = fallible::Arc::try_new(Value::new(&drops)).expect("memory");
        let raw = fallible::Arc::into_raw(first.clone()) as usize;
        let other = thread::spawn(move || {
            let pointer = raw as *const Value;
            // SAFETY: the pointer is from `into_raw` of the same type and taken back once.
            let second = unsafe { fallible::Arc::from_raw(pointer) };
            second.write(0);
            second.release().is_some()
        });
        first.write(1);
        let ours = first.release().is_some();
        assert!(ours != other.join().expect("no panic"));
        assert_eq!(drops.load(Relaxed), 1);
    });
}
