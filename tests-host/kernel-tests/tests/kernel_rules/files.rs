//! Files of a framework device, by their names, and the reads that wait when they are closed.

use simulated_kernel::{Builder, Driver, Kernel, Rule, caught};
use wdk_sys::{
    STATUS_CANCELLED, STATUS_DEVICE_NOT_READY, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, WDFQUEUE,
    call_unsafe_wdf_function_binding,
};

use crate::{lower, raise, skeleton::complete};
use rigs::mailbox::{LINK, Like, RIGHT, entry, forward, kept, level, name_of, prepare, reads, steps};

/// Loads the driver, lets `work` use it, and unloads it. What has happened is asked inside of `work`: behind it, another test may have begun.
fn with(like: Like, work: impl FnOnce(&Kernel, &Driver)) {
    on(Kernel::seeded(1).preemption(0), like, work);
}

fn on(kernel: Builder, like: Like, work: impl FnOnce(&Kernel, &Driver)) {
    let kernel = kernel.start();
    prepare(like);
    let driver = kernel.load("mailbox", entry).expect("the driver loads");
    work(&kernel, &driver);
    driver.unload();
}

fn path(below: &str) -> String {
    format!("{LINK}{below}")
}

#[test]
fn a_file_is_opened_by_the_name_behind_the_link() {
    with(RIGHT, |kernel, _| {
        for name in ["", r"\box\a.txt", r"\box\b.txt"] {
            drop(kernel.open(&path(name)).expect(name));
            assert_eq!(steps(), "olg", "{name}");
        }
        // The link is compared without regard to case, the name is the driver's.
        for name in [r"\box", r"\", r"\box\a.txt\b", r"\BOX\A.TXT"] {
            assert_eq!(kernel.open(&path(name)).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND), "{name}");
            assert_eq!(steps(), "", "{name}: a file that was not created has no end");
        }
        assert!(kernel.open(&path(r"\box\a.txt").to_uppercase().replace(r"\BOX\A.TXT", r"\box\a.txt")).is_ok());
        assert_eq!(kernel.open(r"\DosDevices\Mail\box").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(steps(), "olg");
    });
}

#[test]
fn a_driver_that_wants_no_file_objects_hears_of_files_all_the_same() {
    with(Like { without_objects: true, ..RIGHT }, |kernel, _| {
        drop(kernel.open(&path(r"\anything")).expect("the driver does not look"));
        assert_eq!(steps(), "olg");
    });
}

#[test]
fn what_is_written_goes_to_the_read_that_waits_longest() {
    with(RIGHT, |kernel, _| {
        let [a, b] = [r"\box\a.txt", r"\box\b.txt"].map(|name| kernel.open(&path(name)).expect("a file"));
        assert_eq!(b.begin_write(&[1]).wait().status, STATUS_DEVICE_NOT_READY);
        let (first, second) = (a.begin_read(4), a.begin_read(4));
        let written = b.begin_write(&[1, 2, 3]).wait();
        assert_eq!(written.status, STATUS_SUCCESS);
        assert!(first.is_complete() && !second.is_complete());
        let answer = first.wait();
        assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![1, 2, 3]));
        second.cancel();
        assert_eq!(second.wait().status, STATUS_CANCELLED);
        assert_eq!(steps(), "oorrc");
        drop((a, b));
        assert_eq!(steps(), "lglg");
    });
}

#[test]
fn reads_that_wait_in_a_queue_are_cancelled_when_their_file_is_closed() {
    for seed in 0..20 {
        on(Kernel::seeded(seed), RIGHT, |kernel, _| {
            let [a, b] = [r"\box\a.txt", r"\box\b.txt"].map(|name| kernel.open(&path(name)).expect("a file"));
            let (of_a, of_b) = (a.begin_read(4), b.begin_read(4));
            drop(a);
            assert_eq!(of_a.wait().status, STATUS_CANCELLED);
            assert!(!of_b.is_complete(), "it came by another file");
            assert_eq!(steps(), "oorrlcg", "seed {seed}: the cleanup comes first, the close last");
            assert_eq!(b.begin_write(&[5]).wait().status, STATUS_SUCCESS, "the read of the file that is open waits");
            assert_eq!(of_b.wait().bytes, [5]);
        });
    }
}

#[test]
fn what_the_driver_has_never_had_is_cancelled_without_a_word() {
    with(Like { presents_nothing: true, ..RIGHT }, |kernel, _| {
        let file = kernel.open(LINK).expect("the device");
        let (one, two) = (file.begin_read(4), file.begin_read(4));
        one.cancel();
        assert_eq!(one.wait().status, STATUS_CANCELLED);
        drop(file);
        assert_eq!(two.wait().status, STATUS_CANCELLED);
        assert_eq!(steps(), "olg");
    });
}

#[test]
fn a_file_is_there_until_its_last_request_is_complete() {
    for seed in 0..20 {
        on(Kernel::seeded(seed), Like { keeps: true, ..RIGHT }, |kernel, driver| {
            let file = kernel.open(LINK).expect("the device");
            let pending = file.begin_read(4);
            drop(file);
            assert_eq!(steps(), "orl", "seed {seed}: the driver has the request, and the file is not gone");
            driver.run(|| {
                let before = raise(2);
                complete(kept(), STATUS_SUCCESS, 0);
                lower(before);
            });
            assert_eq!(pending.wait().status, STATUS_SUCCESS);
            assert!(kernel.wait_for_work_items(1_000_000));
            assert_eq!((steps().as_str(), level()), ("g", 0), "at PASSIVE_LEVEL, whatever has completed the request");
        });
    }
}

/// Completes what it keeps when the file is closed, as a driver does that has cancelled it itself.
#[test]
fn a_request_that_ends_in_the_cleanup_is_before_the_close() {
    let ends = Like { keeps: true, cleanup: |_| complete(kept(), STATUS_CANCELLED, 0), ..RIGHT };
    with(ends, |kernel, _| {
        let file = kernel.open(LINK).expect("the device");
        let pending = file.begin_read(4);
        drop(file);
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        assert_eq!(steps(), "orlg");
    });
}

#[test]
fn a_cancelled_read_that_comes_to_a_queue_is_cancelled_there() {
    with(Like { keeps: true, ..RIGHT }, |kernel, driver| {
        let file = kernel.open(LINK).expect("the device");
        let pending = file.begin_read(4);
        pending.cancel();
        assert!(!pending.is_complete(), "the driver has it, and has no routine for it");
        driver.run(|| assert_eq!(forward(kept()), STATUS_SUCCESS));
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
        assert_eq!(steps(), "orc");
    });
}

fn purge(queue: WDFQUEUE) {
    // SAFETY: the queue is live.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueuePurge, queue, None, std::ptr::null_mut()) };
}

#[test]
fn a_purge_cancels_what_waits_and_the_driver_hears_of_it_at_passive_level() {
    for level_of_purge in [0, 2] {
        with(RIGHT, |kernel, driver| {
            let file = kernel.open(LINK).expect("the device");
            let (one, two) = (file.begin_read(4), file.begin_read(4));
            driver.run(|| {
                let before = raise(level_of_purge);
                purge(reads());
                lower(before);
            });
            assert_eq!([one.wait().status, two.wait().status], [STATUS_CANCELLED; 2]);
            assert_eq!((steps().as_str(), level()), ("orrcc", 0));
        });
    }
}

macro_rules! wrong {
    ($($name:ident breaks $rule:ident by $like:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with($like, |kernel, _| {
                    let file = kernel.open(LINK).expect("the device");
                    let pending = file.begin_read(4);
                    pending.cancel();
                    let _ = pending.wait();
                }));
            }
        )+
    };
}

wrong! {
    a_name_that_is_asked_for_when_the_file_is_there breaks BadArgument by
        Like { cleanup: |file| { name_of(file); }, ..RIGHT };
    a_name_that_is_asked_for_at_dispatch_level breaks IrqlTooHigh by
        Like { created: |file| { raise(2); name_of(file); }, ..RIGHT };
    a_cancelled_read_that_is_put_into_a_queue_again breaks RequestCancelable by
        Like { cancelled: |request, _| { let _ = forward(request); }, ..RIGHT };
    a_cancelled_read_that_is_never_completed breaks RequestNeverCompleted by
        Like { cancelled: |_, _| (), ..RIGHT };
    a_cancelled_read_that_is_completed_twice breaks RequestCompletedTwice by
        Like { cancelled: |request, _| {
            complete(request, STATUS_CANCELLED, 0);
            complete(request, STATUS_CANCELLED, 0);
        }, ..RIGHT };
}
