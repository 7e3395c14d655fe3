//! Nothing but creation allocates: the machine must not stand in the way of a test that lets allocations fail.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use engine::os::{Dpc, Event, Os, Routine, SpinLock, Timer};
use fallible::Arc;
use host::{HostOs, machine::Machine};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counted for each thread.
struct Counting;

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Nothing;

impl Routine for Nothing {
    type Target = ();

    fn run(_: &Arc<()>) {}
}

#[test]
fn queueing_setting_locking_and_waiting_do_not_allocate() {
    // Without pre-emption: inside critical sections it starts threads of the machine, which have nothing to do with the calls here.
    for machine in [Machine::threads().start(), Machine::seeded(11).start()] {
        let os = HostOs::new(&machine);
        let dpcs: Vec<_> = (0..100).map(|index| os.dpc::<Nothing>(index % os.processors()).expect("memory")).collect();
        let timers: Vec<_> = (0..100).map(|_| os.timer::<Nothing>().expect("memory")).collect();
        let (outer, inner) = (os.lock(1_i8).expect("memory"), os.lock(1_i16).expect("memory"));
        let (event, target) = (os.event().expect("memory"), Arc::try_new(()).expect("memory"));
        // The order of the two locks is learnt once.
        outer.with(|_| inner.with(|_| ()));
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..3 {
            for (delay, timer) in (0..).zip(&timers) {
                timer.set(delay, &target);
            }
            for dpc in &dpcs {
                dpc.queue(&target);
            }
            outer.with(|_| inner.with(|_| ()));
            machine.flush();
            for timer in &timers {
                timer.cancel();
            }
        }
        event.set();
        event.wait();
        machine.flush();
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
        machine.shutdown();
    }
}
