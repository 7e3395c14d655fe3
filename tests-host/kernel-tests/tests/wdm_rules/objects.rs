//! What the crate `kernel` makes of the kernel's objects, as code of a driver.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use kernel::{
    Bound, Buffered, KernelRuntime, NonPaged, Rundown, Thread, WaitLock, at_dispatch_level, irp, unicode, wide,
};
use ndk::Runtime;
use ndkpi::NtStatus;
use simulated_kernel::Kernel;
use wdk_sys::{
    LARGE_INTEGER,
    ntddk::{KeDelayExecutionThread, KeGetCurrentProcessorNumberEx},
};

use crate::driver::{self, CODE, Parts, run};

/// Runs `work` as code of a driver, which may leave nothing behind.
fn in_a_driver(work: impl FnOnce()) {
    run(Parts::default(), |_, driver, _| driver.run(work));
}

fn sleep(microseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -microseconds * 10 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

#[test]
fn a_part_of_memory_is_described_only_if_it_is_in_it() {
    in_a_driver(|| {
        let mut memory = NonPaged::try_new(16, u32::from_ne_bytes(*b"Test")).expect("memory");
        for (begin, length) in [(0, 16), (8, 8), (16, 0), (15, 1)] {
            assert_eq!(memory.describe(begin, length), Ok(()), "{length} bytes from {begin}");
        }
        for (begin, length) in [(0, 17), (8, 9), (16, 1), (17, 0), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(memory.describe(begin, length), Err(NtStatus::INVALID_PARAMETER), "{length} bytes from {begin}");
        }
    });
}

#[test]
fn a_thread_is_on_its_processor_as_long_as_it_is_bound() {
    let kernel = Kernel::threads().processors(3).start();
    driver::prepare(Parts::default());
    let loaded = kernel.load("plain", driver::entry).expect("the driver loads");
    loaded.run(|| {
        // SAFETY: a null pointer says that only the index is wanted.
        let processor = || unsafe { KeGetCurrentProcessorNumberEx(std::ptr::null_mut()) };
        let bound = Bound::to(2).expect("a processor");
        assert_eq!(processor(), 2);
        let inner = Bound::to(1).expect("a processor");
        assert_eq!(processor(), 1);
        drop(inner);
        assert_eq!(processor(), 2, "where it was bound before");
        drop(bound);
        assert!(Bound::to(3).is_none());
    });
    loaded.unload();
}

#[test]
fn code_knows_its_irql() {
    in_a_driver(|| {
        assert_eq!((kernel::irql(), at_dispatch_level(kernel::irql), kernel::irql()), (0, 2, 0));
    });
}

#[test]
fn a_gate_that_is_shut_waits_for_those_inside_and_lets_nobody_in() {
    in_a_driver(|| {
        let gate = Arc::new(Rundown::try_new().expect("memory"));
        let has_left = Arc::new(AtomicBool::new(false));
        gate.enter().expect("it is open").keep();
        let (inside, left) = (gate.clone(), has_left.clone());
        let thread = Thread::try_spawn(move || {
            sleep(3_000);
            left.store(true, SeqCst);
            inside.leave();
        });
        gate.shut();
        assert!(has_left.load(SeqCst), "somebody was inside");
        assert!(gate.enter().is_none());
        drop(thread.expect("a thread"));
    });
}

#[test]
fn an_event_that_is_cleared_is_waited_for() {
    in_a_driver(|| {
        let event = Runtime::event(&KernelRuntime::new(|_| ())).expect("memory");
        assert!(!event.wait_for(0));
        event.set();
        assert!(event.wait_for(0) && event.wait_for(0), "as long as nobody clears it");
        event.clear();
        assert!(!event.wait_for(0));
    });
}

#[test]
fn one_thread_at_a_time_holds_a_lock() {
    in_a_driver(|| {
        let lock = Arc::new(WaitLock::try_new(0).expect("memory"));
        let inside = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (lock, inside) = (lock.clone(), inside.clone());
                Thread::try_spawn(move || {
                    for _ in 0..5 {
                        lock.with(|count| {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            sleep(100);
                            inside.fetch_sub(1, SeqCst);
                            *count += 1;
                        });
                    }
                })
                .expect("a thread")
            })
            .collect();
        drop(threads);
        assert_eq!(lock.with(|count| *count), 15);
    });
}

#[test]
fn strings_have_one_unit_for_each_character_and_whole_units() {
    assert_eq!(wide::<4>("ndk9"), [0x6E, 0x64, 0x6B, 0x39]);
    let units = vec![0x41; 40_000];
    assert_eq!((unicode(&units[..3]).Length, unicode(&units[..3]).MaximumLength), (6, 6));
    assert_eq!(unicode(&units).Length, u16::MAX - 1, "cut");
}

#[test]
fn a_request_that_nobody_completes_fails() {
    // SAFETY: the driver's dispatch routine was called with the request, and completes it here only.
    let control = |_, request| unsafe { irp::dispatch(request, |asked| drop(asked)) };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 8).status, NtStatus::INTERNAL_ERROR.0);
    });
}

#[test]
fn an_answer_that_is_cut_says_so() {
    // SAFETY: the driver's dispatch routine was called with the request, and completes it here only.
    let control = |_, request| unsafe {
        irp::dispatch(request, |asked| match asked {
            irp::Asked::Control(_, request) => request.answer_cut(b"four"),
            other => drop(other),
        })
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        for (room, status, bytes) in [
            (0, NtStatus::BUFFER_TOO_SMALL, &b""[..]),
            (3, NtStatus::BUFFER_OVERFLOW, b"fou"),
            (4, NtStatus::SUCCESS, b"four"),
            (5, NtStatus::SUCCESS, b"four"),
        ] {
            let answer = file.control(CODE, &[], room);
            assert_eq!((answer.status, &answer.bytes[..]), (status.0, bytes), "room for {room}");
        }
    });
}
