//! Whose turn it is with a seed: what is ready goes first, and time passes only as far as nobody keeps it.

use std::{
    collections::BTreeSet,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use simulated_kernel::{
    Builder, DuringRun, Kernel, Rule, caught,
    lockstep::{Exchange, Grant, Report},
    object_attributes,
};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, KDPC, KEVENT, KTIMER, LARGE_INTEGER, PVOID,
    ntddk::{
        KeDelayExecutionThread, KeInitializeDpc, KeInitializeEvent, KeInitializeTimer, KeInsertQueueDpc,
        KeQuerySystemTimePrecise, KeQueryUnbiasedInterruptTime, KeReadStateTimer, KeSetEvent, KeSetTimer,
        KeWaitForSingleObject, PsCreateSystemThread, ZwClose,
    },
};

use crate::skeleton::{Wrong, allocate, keep, run_in};

type Ran = (usize, u64);

/// What ran, with its time in microseconds. An array: what a driver's routine allocates is the driver's.
static RAN: DuringRun<Mutex<[Option<Ran>; 2]>> = DuringRun::new(Mutex::new([None; 2]));

const CALL: usize = 1;
const TIMER: usize = 2;

/// Microseconds since the start, as a driver is told.
fn now() -> u64 {
    // SAFETY: the routine has no conditions.
    unsafe { KeQueryUnbiasedInterruptTime() / 10 }
}

fn interval(microseconds: i64) -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: -10 * microseconds }
}

fn sleep(microseconds: i64) {
    let mut interval = interval(microseconds);
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

unsafe extern "C" fn note(_: *mut KDPC, context: PVOID, _: PVOID, _: PVOID) {
    let mut ran = RAN.lock().expect("nobody panics");
    *ran.iter_mut().find(|ran| ran.is_none()).expect("each runs once") = Some((context.addr(), now()));
}

/// Sets the event that is its context.
unsafe extern "C" fn set(_: *mut KDPC, context: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: an event that lives as long as the driver.
    unsafe { KeSetEvent(context.cast(), 0, 0) };
}

type Routine = unsafe extern "C" fn(*mut KDPC, PVOID, PVOID, PVOID);

fn new_dpc(routine: Routine, context: PVOID) -> *mut KDPC {
    let dpc = keep(allocate(size_of::<KDPC>())).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeDpc(dpc, Some(routine), context) };
    dpc
}

fn new_timer() -> *mut KTIMER {
    let timer = keep(allocate(size_of::<KTIMER>())).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeTimer(timer) };
    timer
}

fn set_timer(microseconds: i64, dpc: *mut KDPC) {
    let timer = new_timer();
    // SAFETY: both are initialised, and live as long as the driver.
    unsafe { KeSetTimer(timer, interval(microseconds), dpc) };
}

fn start(routine: unsafe extern "C" fn(PVOID)) {
    let mut attributes = object_attributes();
    let (mut handle, none) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the structures live until the call returns.
    let status = unsafe {
        PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, none, ptr::null_mut(), Some(routine), none)
    };
    assert_eq!(status, 0);
    // SAFETY: the handle was just opened.
    let _ = unsafe { ZwClose(handle) };
}

/// Does `work` as the driver, in a kernel with that seed.
fn with_seed(seed: u64, work: impl FnOnce(&Kernel)) {
    with(Kernel::seeded(seed), work);
}

fn with(kernel: Builder, work: impl FnOnce(&Kernel)) {
    let kernel = kernel.start();
    run_in(&kernel, Wrong::default(), |driver, _| driver.run(|| work(&kernel)));
}

/// When the call was queued.
static QUEUED: DuringRun<AtomicU64> = DuringRun::new(AtomicU64::new(0));

/// Queues the DPC that is its context.
unsafe extern "C" fn queue(_: *mut KDPC, context: PVOID, _: PVOID, _: PVOID) {
    QUEUED.store(now(), SeqCst);
    // SAFETY: a DPC that lives as long as the driver.
    unsafe { KeInsertQueueDpc(context.cast(), ptr::null_mut(), ptr::null_mut()) };
}

/// A timer's DPC queues a call, and so long after the first another timer is due: which of the two ran first, and how long after the call was
/// queued.
fn a_call_and_a_timer(seed: u64, microseconds: i64) -> [(usize, u64); 2] {
    const FIRST: i64 = 1_000;
    let (mut both, mut queued) = ([None; 2], 0);
    with_seed(seed, |_| {
        *RAN.lock().expect("nobody panics") = [None; 2];
        let call = new_dpc(note, ptr::without_provenance_mut(CALL));
        set_timer(FIRST, new_dpc(queue, call.cast()));
        set_timer(FIRST + microseconds, new_dpc(note, ptr::without_provenance_mut(TIMER)));
        // Much longer: time passes in steps of a part of what is left.
        sleep(5_000_000);
        (both, queued) = (*RAN.lock().expect("nobody panics"), QUEUED.load(SeqCst));
    });
    both.map(|ran| {
        let (what, time) = ran.expect("both have run");
        (what, time.saturating_sub(queued))
    })
}

#[test]
fn a_dpc_that_waits_runs_before_time_goes_far() {
    for seed in 0..100 {
        let ran = a_call_and_a_timer(seed, 20_000);
        assert!(ran[0].0 == CALL && ran[0].1 < 1_500, "seed {seed}: {ran:?}");
    }
}

/// What a call has seen of a timer: nothing yet, that it was set, or that it had fired.
static SEEN: AtomicU64 = AtomicU64::new(NOTHING);

const NOTHING: u64 = 0;
const SET: u64 = 1;
const FIRED: u64 = 2;

/// Looks at the timer that is its context.
unsafe extern "C" fn look(_: *mut KDPC, context: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: a timer that lives as long as the driver.
    let has_fired = unsafe { KeReadStateTimer(context.cast()) } != 0;
    SEEN.store(if has_fired { FIRED } else { SET }, SeqCst);
}

/// Which of the two goes first is nobody's promise. A DPC waits for those before it, and for code at its level and above; a timer knows
/// nothing of that.
#[test]
fn a_timer_may_fire_before_a_dpc_that_waits() {
    let seen = |seed| {
        SEEN.store(NOTHING, SeqCst);
        with_seed(seed, |_| {
            let timer = new_timer();
            let call = new_dpc(look, timer.cast());
            // SAFETY: the timer is initialised, and lives as long as the driver.
            unsafe { KeSetTimer(timer, interval(20), ptr::null_mut()) };
            // SAFETY: the DPC is initialised, and lives as long as the driver.
            unsafe { KeInsertQueueDpc(call, ptr::null_mut(), ptr::null_mut()) };
            while SEEN.load(SeqCst) == NOTHING {
                now();
            }
            sleep(1_000);
        });
        SEEN.load(SeqCst)
    };
    let both: BTreeSet<u64> = (0..300).map(seen).collect();
    assert_eq!(both, BTreeSet::from([SET, FIRED]), "each of the two comes first with some seed");
}

#[test]
fn who_is_woken_goes_on_before_time_goes_far() {
    for seed in 0..100 {
        with_seed(seed, |_| {
            let event: *mut KEVENT = keep(allocate(size_of::<KEVENT>())).cast();
            // SAFETY: a new block.
            unsafe { KeInitializeEvent(event, _EVENT_TYPE::NotificationEvent, 0) };
            set_timer(1_000, new_dpc(set, event.cast()));
            let (started, mut longest) = (now(), interval(5_000_000));
            // SAFETY: at PASSIVE_LEVEL; event and number live until the call returns.
            let status =
                unsafe { KeWaitForSingleObject(event.cast(), _KWAIT_REASON::Executive, 0, 0, &raw mut longest) };
            let took = now() - started;
            assert!(status == 0 && (1_000..3_000).contains(&took), "seed {seed}: {status:#x} after {took} us");
        });
    }
}

/// The date, in microseconds.
fn date() -> u64 {
    let mut date = LARGE_INTEGER::default();
    // SAFETY: a place that lives until the call returns.
    unsafe { KeQuerySystemTimePrecise(&raw mut date) };
    // SAFETY: every value of the union's numbers is one.
    unsafe { date.QuadPart }.cast_unsigned() / 10
}

#[test]
fn a_question_for_the_time_takes_a_microsecond_and_no_more() {
    const QUESTIONS: u64 = 1_000;
    with(Kernel::seeded(1).preemption(0), |kernel| {
        let (before, first) = (kernel.now(), now());
        for _ in 1..QUESTIONS {
            now();
        }
        assert_eq!(now() - first, QUESTIONS, "nobody else takes any time");
        let passed = kernel.now() - before;
        assert!((QUESTIONS - 50..QUESTIONS + 50).contains(&passed), "the machine's clock follows: {passed} us");
        // The clock of the date is the same one.
        let (interrupt, day) = (now(), date());
        for _ in 0..QUESTIONS {
            date();
        }
        assert_eq!((date() - day, now() - interrupt), (QUESTIONS + 1, QUESTIONS + 3));
    });
}

#[test]
fn no_wait_is_shorter_by_the_clock_that_a_driver_reads() {
    for seed in 0..50 {
        with_seed(seed, |_| {
            for questions in 0..70 {
                for _ in 0..questions {
                    now();
                }
                let before = now();
                sleep(100);
                let took = now() - before;
                assert!(took >= 100, "seed {seed}: 100 us took {took}");
                let due = date() + 100;
                let mut until = LARGE_INTEGER { QuadPart: (10 * due).cast_signed() };
                // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
                let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut until) };
                let date = date();
                assert!(date >= due, "seed {seed}: it is {} us too early", due - date);
            }
        });
    }
}

/// When the sleeper was to wake, and when it did.
static WAKES: DuringRun<AtomicU64> = DuringRun::new(AtomicU64::new(0));
static WOKE: DuringRun<AtomicU64> = DuringRun::new(AtomicU64::new(0));

unsafe extern "C" fn sleep_a_millisecond(_: PVOID) {
    WAKES.store(now() + 1_000, SeqCst);
    sleep(1_000);
    WOKE.store(now(), SeqCst);
}

#[test]
fn a_sleeper_gets_its_turn_while_another_polls_the_clock() {
    for seed in 0..20 {
        with_seed(seed, |kernel| {
            WOKE.store(0, SeqCst);
            start(sleep_a_millisecond);
            let end = now() + 50_000;
            while now() < end {}
            let late = WOKE.load(SeqCst).checked_sub(WAKES.load(SeqCst));
            assert!(late.is_some_and(|late| late < 10_000), "seed {seed}: {late:?} us late");
            kernel.wait_until(|| WOKE.load(SeqCst) != 0);
        });
    }
}

/// How long a thread may not get its turn, and what is longer.
const LIMIT: Duration = Duration::from_secs(2);
const LONGER: Duration = Duration::from_secs(5);

/// Another machine that takes its time before it answers.
struct Slow;

impl Exchange for Slow {
    fn exchange(&mut self, _: Report) -> Option<Grant> {
        thread::sleep(LONGER);
        Some(Grant::default())
    }
}

static ENDED: DuringRun<AtomicBool> = DuringRun::new(AtomicBool::new(false));

unsafe extern "C" fn sleep_for_a_while(_: PVOID) {
    sleep(10_000);
    ENDED.store(true, SeqCst);
}

#[test]
fn the_time_of_another_machine_is_nobodys_turn() {
    let kernel = Kernel::seeded(1).preemption(0).turn_limit(LIMIT).start();
    run_in(&kernel, Wrong::default(), |driver, _| {
        driver.run(|| {
            start(sleep_for_a_while);
            sleep(1_000);
        });
        let started = Instant::now();
        kernel.network().join(Box::new(Slow));
        kernel.wait_until(|| ENDED.load(SeqCst));
        assert!(started.elapsed() > LONGER, "the other machine was waited for");
    });
}

unsafe extern "C" fn compute(_: PVOID) {
    // What a driver's loop without an end would do.
    let started = Instant::now();
    while started.elapsed() < LONGER {
        std::hint::spin_loop();
    }
}

#[test]
fn a_thread_that_never_lets_another_one_go_on_hangs() {
    caught("kernel_rules::turns::a_thread_that_never_lets_another_one_go_on_hangs", Rule::Hang, || {
        with(Kernel::seeded(1).preemption(0).turn_limit(LIMIT), |_| {
            start(compute);
            sleep(1_000);
        });
    });
}
