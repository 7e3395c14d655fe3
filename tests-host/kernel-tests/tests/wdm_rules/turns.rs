//! Whose turn it is: readers and writers of a resource or a push lock that wait for each other.

use std::sync::{Mutex, PoisonError};

use simulated_kernel::DuringRun;
use wdk_sys::{
    ERESOURCE, PERESOURCE, POOL_FLAG_NON_PAGED, PVOID,
    ntddk::{
        ExAcquireResourceExclusiveLite, ExAcquireResourceSharedLite, ExAllocatePool2, ExDeleteResourceLite,
        ExFreePoolWithTag, ExInitializeResourceLite, ExReleaseResourceLite, KeEnterCriticalRegion,
        KeLeaveCriticalRegion,
    },
};

use crate::asked::{call, join, sleep, tests, thread};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn ExAcquireSharedStarveExclusive(resource: PERESOURCE, wait: u8) -> u8;
    fn ExAcquireSharedWaitForExclusive(resource: PERESOURCE, wait: u8) -> u8;
    fn ExConvertExclusiveToSharedLite(resource: PERESOURCE);
    fn ExReinitializeResourceLite(resource: PERESOURCE) -> i32;
    fn ExGetExclusiveWaiterCount(resource: PERESOURCE) -> u32;
    fn ExGetSharedWaiterCount(resource: PERESOURCE) -> u32;
    fn ExInitializePushLock(lock: *mut u64);
    fn ExAcquirePushLockExclusiveEx(lock: *mut u64, flags: u32);
    fn ExAcquirePushLockSharedEx(lock: *mut u64, flags: u32);
    fn ExReleasePushLockExclusiveEx(lock: *mut u64, flags: u32);
    fn ExReleasePushLockSharedEx(lock: *mut u64, flags: u32);
}

const TAG: u32 = u32::from_ne_bytes(*b"Turn");

/// Who has had the lock, in order.
static ORDER: DuringRun<Mutex<String>> = DuringRun::new(Mutex::new(String::new()));

fn had(who: char) {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner).push(who);
}

/// Who has had it, from then on anew.
fn order() -> String {
    std::mem::take(&mut *ORDER.lock().unwrap_or_else(PoisonError::into_inner))
}

fn memory(size: usize) -> PVOID {
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size as u64, TAG))
}

/// A resource, which this thread may acquire.
fn resource() -> PERESOURCE {
    let place: PERESOURCE = memory(size_of::<ERESOURCE>()).cast();
    call!(ExInitializeResourceLite(place));
    call!(KeEnterCriticalRegion());
    place
}

fn end(place: PERESOURCE) {
    call!(KeLeaveCriticalRegion());
    call!(ExDeleteResourceLite(place));
    call!(ExFreePoolWithTag(place.cast(), TAG));
}

unsafe extern "C" fn reads(resource: PVOID) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquireResourceSharedLite(resource.cast(), 1));
    had('r');
    call!(ExReleaseResourceLite(resource.cast()));
    call!(KeLeaveCriticalRegion());
}

unsafe extern "C" fn writes(resource: PVOID) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquireResourceExclusiveLite(resource.cast(), 1));
    had('w');
    call!(ExReleaseResourceLite(resource.cast()));
    call!(KeLeaveCriticalRegion());
}

/// Reads at once if that is possible, and says how it went: before writers that wait, and behind them.
unsafe extern "C" fn tries(resource: PVOID) {
    call!(KeEnterCriticalRegion());
    for try_it in [ExAcquireSharedStarveExclusive, ExAcquireResourceSharedLite, ExAcquireSharedWaitForExclusive] {
        // SAFETY: the resource is there until the thread has ended.
        let is_acquired = unsafe { try_it(resource.cast(), 0) } != 0;
        had(if is_acquired { 'y' } else { 'n' });
        if is_acquired {
            call!(ExReleaseResourceLite(resource.cast()));
        }
    }
    call!(KeLeaveCriticalRegion());
}

unsafe extern "C" fn reads_push_lock(lock: PVOID) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquirePushLockSharedEx(lock.cast(), 0));
    had('r');
    call!(ExReleasePushLockSharedEx(lock.cast(), 0));
    call!(KeLeaveCriticalRegion());
}

unsafe extern "C" fn writes_push_lock(lock: PVOID) {
    call!(KeEnterCriticalRegion());
    call!(ExAcquirePushLockExclusiveEx(lock.cast(), 0));
    had('w');
    call!(ExReleasePushLockExclusiveEx(lock.cast(), 0));
    call!(KeLeaveCriticalRegion());
}

fn push_lock() -> *mut u64 {
    let lock = memory(256).cast();
    call!(ExInitializePushLock(lock));
    call!(KeEnterCriticalRegion());
    lock
}

tests! {
    a_reader_waits_behind_a_writer_that_waits by {
        let place = resource();
        call!(ExAcquireResourceSharedLite(place, 1));
        let writer = thread(writes, place.cast());
        sleep();
        assert_eq!((call!(ExGetExclusiveWaiterCount(place)), call!(ExGetSharedWaiterCount(place))), (1, 0));
        join(thread(tries, place.cast()));
        assert_eq!(order(), "ynn", "only who may let writers starve");
        assert_eq!(call!(ExAcquireResourceSharedLite(place, 0)), 1, "who reads may read again");
        assert_eq!(call!(ExAcquireSharedWaitForExclusive(place, 0)), 0, "but not so");
        call!(ExReleaseResourceLite(place));
        let reader = thread(reads, place.cast());
        sleep();
        assert_eq!((call!(ExGetExclusiveWaiterCount(place)), call!(ExGetSharedWaiterCount(place))), (1, 1));
        call!(ExReleaseResourceLite(place));
        join(writer);
        join(reader);
        assert_eq!(order(), "wr");
        assert_eq!(call!(ExReinitializeResourceLite(place)), 0);
        end(place);
    }
    readers_of_a_resource_come_first_when_its_writer_leaves by {
        let place = resource();
        call!(ExAcquireResourceExclusiveLite(place, 1));
        let others = [writes as unsafe extern "C" fn(PVOID), reads, writes, reads].map(|work| {
            let other = thread(work, place.cast());
            sleep();
            other
        });
        call!(ExReleaseResourceLite(place));
        for other in others {
            join(other);
        }
        assert_eq!(order(), "rrww");
        end(place);
    }
    readers_that_wait_share_with_a_writer_that_reads_from_now_on by {
        let place = resource();
        call!(ExAcquireResourceExclusiveLite(place, 1));
        let (reader, writer) = (thread(reads, place.cast()), thread(writes, place.cast()));
        sleep();
        call!(ExConvertExclusiveToSharedLite(place));
        join(reader);
        assert_eq!(order(), "r");
        call!(ExReleaseResourceLite(place));
        join(writer);
        assert_eq!(order(), "w");
        end(place);
    }
    threads_have_a_push_lock_in_the_order_in_which_they_come by {
        let lock = push_lock();
        call!(ExAcquirePushLockExclusiveEx(lock, 0));
        let others = [writes_push_lock as unsafe extern "C" fn(PVOID), reads_push_lock, reads_push_lock, writes_push_lock].map(|work| {
            let other = thread(work, lock.cast());
            sleep();
            other
        });
        call!(ExReleasePushLockExclusiveEx(lock, 0));
        for other in others {
            join(other);
        }
        assert_eq!(order(), "wrrw");
        call!(KeLeaveCriticalRegion());
        call!(ExFreePoolWithTag(lock.cast(), TAG));
    }

    a_reader_waits_for_one_behind_a_writer breaks Deadlock by {
        let place = resource();
        call!(ExAcquireResourceSharedLite(place, 1));
        thread(writes, place.cast());
        sleep();
        join(thread(reads, place.cast()));
    }
    a_reader_of_a_push_lock_waits_for_one_behind_a_writer breaks Deadlock by {
        let lock = push_lock();
        call!(ExAcquirePushLockSharedEx(lock, 0));
        thread(writes_push_lock, lock.cast());
        sleep();
        join(thread(reads_push_lock, lock.cast()));
    }
    a_reader_waits_for_the_writer_behind_it breaks Deadlock by {
        let place = resource();
        call!(ExAcquireResourceSharedLite(place, 1));
        thread(writes, place.cast());
        sleep();
        call!(ExAcquireSharedWaitForExclusive(place, 1));
    }
    a_resource_reinitialised_while_it_is_read breaks LockHeld by {
        let place = resource();
        call!(ExAcquireResourceSharedLite(place, 1));
        call!(ExReinitializeResourceLite(place));
    }
}
