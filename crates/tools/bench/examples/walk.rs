//! One RDMA write of one element, with an armed completion queue, from the post to the callback: what `tools/walk.sh` follows.
//!
//!     walk direct|deferred

use std::process::ExitCode;

use bench::{
    kind::Kind,
    ndk::{Connection, Plan, Side},
};
use host::{
    HostOs,
    machine::{Irql, Machine, lower, raise},
};
use ndkpi::{NDK_RESULT_EX, NtStatus};

/// The script begins to count here, and ends in the callback.
#[inline(never)]
fn softndk_walk(here: &mut Side, there: &Side) {
    write(here, there);
}

/// As in a driver's own deferred call, the post is made at `DISPATCH_LEVEL`: what it queues runs when the level drops.
fn write(here: &mut Side, there: &Side) {
    let before = raise(Irql::DISPATCH_LEVEL);
    assert_eq!(here.write(there, 0, 64, 0), NtStatus::SUCCESS);
    lower(before);
}

fn main() -> ExitCode {
    let kind = match std::env::args().nth(1).as_deref() {
        Some("direct") => Kind::DIRECT,
        Some("deferred") => Kind::DEFERRED,
        _ => return ExitCode::FAILURE,
    };
    let machine = Machine::threads().processors(1).start();
    let os = HostOs::unwatched(&machine);
    let mut connection = Connection::new(&os, Plan { kind, depth: 64, bytes: 4096, inline: 0, steps: false });
    let [here, there] = &mut connection.sides;
    let on = machine.run_on(0);
    // The last one is followed: what is done once is done by then.
    for number in 0..=8 {
        let before = here.notifications();
        here.arm_initiated();
        if number < 8 {
            write(here, there);
        } else {
            softndk_walk(here, there);
        }
        assert_eq!(here.notifications(), before + 1, "one callback, before the post's thread goes on");
        assert_eq!(here.initiated(&mut [NDK_RESULT_EX::ZEROED; 1]), 1);
    }
    drop(on);
    connection.close();
    machine.flush();
    machine.shutdown();
    ExitCode::SUCCESS
}
