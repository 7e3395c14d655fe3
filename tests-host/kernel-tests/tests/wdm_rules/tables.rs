//! Generic tables, of splay trees and of AVL trees: the driver's comparison decides, and its routines allocate and free.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use simulated_kernel::{DuringRun, Rule, caught, irql};
use wdk_sys::{
    BOOLEAN, POOL_FLAG_NON_PAGED, PVOID, ULONG,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, KfRaiseIrql},
};

use crate::driver::does;

type Compare = unsafe extern "C" fn(PVOID, PVOID, PVOID) -> i32;
type Allocate = unsafe extern "C" fn(PVOID, ULONG) -> PVOID;
type Free = unsafe extern "C" fn(PVOID, PVOID);

const TAG: u32 = u32::from_ne_bytes(*b"Tabl");
/// Bytes before an element's data: `RTL_BALANCED_LINKS`, and what a splay tree has.
const LINKS: usize = 32;
const SPLAY_LINKS: usize = 40;

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them.
        unsafe { $name($($argument),*) }
    }};
}

/// Declares the routines of one kind of table. The kit declares them, the bindings leave them out.
macro_rules! kind {
    ($module:ident: $initialize:ident, $insert:ident, $delete:ident, $look_up:ident, $element:ident, $count:ident, $is_empty:ident,
     $enumerate:ident, $by_key:ident) => {
        mod $module {
            use super::*;

            unsafe extern "C" {
                pub fn $initialize(
                    table: PVOID,
                    compare: Option<Compare>,
                    allocate: Option<Allocate>,
                    free: Option<Free>,
                    context: PVOID,
                );
                pub fn $insert(table: PVOID, value: PVOID, size: ULONG, is_new: *mut BOOLEAN) -> PVOID;
                pub fn $delete(table: PVOID, value: PVOID) -> BOOLEAN;
                pub fn $look_up(table: PVOID, value: PVOID) -> PVOID;
                pub fn $element(table: PVOID, number: ULONG) -> PVOID;
                pub fn $count(table: PVOID) -> ULONG;
                pub fn $is_empty(table: PVOID) -> BOOLEAN;
                pub fn $enumerate(table: PVOID, restart: BOOLEAN) -> PVOID;
                pub fn $by_key(table: PVOID, key: *mut PVOID) -> PVOID;
            }

            /// The numbers in a table, by an enumeration with a key of the driver's.
            fn by_key(table: PVOID) -> Vec<u64> {
                let mut key = ptr::null_mut();
                let mut all = Vec::new();
                loop {
                    let next = call!($by_key(table, &raw mut key));
                    if next.is_null() {
                        return all;
                    }
                    all.push(number(next));
                }
            }

            pub fn works(by_number: &[u64]) {
                let mut table = [0_u64; 13];
                let table: PVOID = table.as_mut_ptr().cast();
                call!($initialize(table, Some(compare), Some(allocate), Some(free), ptr::null_mut()));
                assert_eq!(call!($is_empty(table)), 1);
                for mut value in [30_u64, 10, 20] {
                    let mut is_new = 7;
                    let made = call!($insert(table, (&raw mut value).cast(), 8, &raw mut is_new));
                    assert_eq!((number(made), is_new), (value, 1));
                    assert_ne!(made, (&raw mut value).cast(), "the value was copied");
                    let again = call!($insert(table, (&raw mut value).cast(), 8, &raw mut is_new));
                    assert_eq!((again, is_new), (made, 0), "there is one with that value");
                }
                assert_eq!((call!($count(table)), call!($is_empty(table))), (3, 0));
                assert_eq!(by_key(table), [10, 20, 30], "in the order of the comparison");
                let elements: Vec<u64> = (0..3).map(|index| number(call!($element(table, index)))).collect();
                assert_eq!(elements, by_number);
                assert!(call!($element(table, 3)).is_null());
                assert_eq!(
                    [1, 0, 0, 0].map(|restart| call!($enumerate(table, restart))).map(or_none),
                    [Some(10), Some(20), Some(30), None]
                );

                FAILS.store(1, SeqCst);
                let (mut value, mut is_new) = (15_u64, 7);
                assert!(call!($insert(table, (&raw mut value).cast(), 8, &raw mut is_new)).is_null());
                assert_eq!((is_new, call!($count(table))), (0, 3), "nothing was allocated");
                FAILS.store(0, SeqCst);

                let mut value = 20_u64;
                assert_eq!(number(call!($look_up(table, (&raw mut value).cast()))), 20);
                assert_eq!(call!($delete(table, (&raw mut value).cast())), 1);
                assert_eq!(call!($delete(table, (&raw mut value).cast())), 0, "it is gone");
                assert!(call!($look_up(table, (&raw mut value).cast())).is_null());
                assert_eq!(by_key(table), [10, 30]);
                for mut value in [10_u64, 30] {
                    assert_eq!(call!($delete(table, (&raw mut value).cast())), 1);
                }
                assert_eq!(call!($count(table)), 0);
            }
        }
    };
}

kind!(splay: RtlInitializeGenericTable, RtlInsertElementGenericTable, RtlDeleteElementGenericTable, RtlLookupElementGenericTable,
    RtlGetElementGenericTable, RtlNumberGenericTableElements, RtlIsGenericTableEmpty, RtlEnumerateGenericTable,
    RtlEnumerateGenericTableWithoutSplaying);
kind!(avl: RtlInitializeGenericTableAvl, RtlInsertElementGenericTableAvl, RtlDeleteElementGenericTableAvl,
    RtlLookupElementGenericTableAvl, RtlGetElementGenericTableAvl, RtlNumberGenericTableElementsAvl, RtlIsGenericTableEmptyAvl,
    RtlEnumerateGenericTableAvl, RtlEnumerateGenericTableWithoutSplayingAvl);

use avl::{
    RtlDeleteElementGenericTableAvl, RtlEnumerateGenericTableWithoutSplayingAvl, RtlGetElementGenericTableAvl,
    RtlInitializeGenericTableAvl, RtlInsertElementGenericTableAvl, RtlIsGenericTableEmptyAvl,
    RtlLookupElementGenericTableAvl, RtlNumberGenericTableElementsAvl,
};
use splay::{RtlInitializeGenericTable, RtlInsertElementGenericTable, RtlLookupElementGenericTable};

/// Whether allocations fail.
static FAILS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// What the next comparison does with a table, in the middle of another use of it: a function of its address, which is beside it. Zero:
/// nothing.
static USES: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
/// The table.
static USED: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

fn number(data: PVOID) -> u64 {
    assert!(!data.is_null());
    // SAFETY: the data of an element, which is a number.
    unsafe { data.cast::<u64>().read_unaligned() }
}

fn or_none(data: PVOID) -> Option<u64> {
    (!data.is_null()).then(|| number(data))
}

unsafe extern "C" fn compare(_: PVOID, one: PVOID, other: PVOID) -> i32 {
    let used = USED.swap(0, SeqCst);
    if used != 0 {
        let uses = ptr::with_exposed_provenance::<c_void>(USES.load(SeqCst));
        // SAFETY: the function that was stored before the table was, of this type.
        let uses = unsafe { std::mem::transmute::<*const c_void, fn(PVOID)>(uses) };
        uses(ptr::with_exposed_provenance_mut(used));
    }
    // `GenericLessThan`, `GenericGreaterThan`, `GenericEqual`.
    match number(one).cmp(&number(other)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Greater => 1,
        std::cmp::Ordering::Equal => 2,
    }
}

unsafe extern "C" fn allocate(_: PVOID, size: ULONG) -> PVOID {
    assert!([LINKS + 8, SPLAY_LINKS + 8].contains(&(size as usize)));
    assert_eq!(irql(), 0, "at the level of the caller");
    if FAILS.load(SeqCst) != 0 {
        return ptr::null_mut();
    }
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size.into(), TAG))
}

unsafe extern "C" fn free(_: PVOID, block: PVOID) {
    call!(ExFreePoolWithTag(block, TAG));
}

/// The next comparison does this with a table.
fn meanwhile(table: PVOID, uses: fn(PVOID)) {
    USES.store((uses as *const c_void).expose_provenance(), SeqCst);
    USED.store(table.expose_provenance(), SeqCst);
}

/// A table on the heap, so that it can be as wrong as the test wants.
fn table() -> PVOID {
    table_in(Box::leak(Box::new([0_u64; 13])))
}

fn table_in(memory: &mut [u64; 13]) -> PVOID {
    let table: PVOID = memory.as_mut_ptr().cast();
    call!(RtlInitializeGenericTableAvl(table, Some(compare), Some(allocate), Some(free), ptr::null_mut()));
    table
}

fn insert(table: PVOID, mut value: u64) -> PVOID {
    call!(RtlInsertElementGenericTableAvl(table, (&raw mut value).cast(), 8, ptr::null_mut()))
}

fn look_up(table: PVOID) {
    let mut value = 10_u64;
    assert_eq!(number(call!(RtlLookupElementGenericTableAvl(table, (&raw mut value).cast()))), 10);
}

/// Every way to read a table of AVL trees that leaves it as it is.
fn read(table: PVOID) {
    look_up(table);
    assert_eq!(call!(RtlNumberGenericTableElementsAvl(table)), 1);
    assert_eq!(call!(RtlIsGenericTableEmptyAvl(table)), 0);
    let mut key = ptr::null_mut();
    assert_eq!(number(call!(RtlEnumerateGenericTableWithoutSplayingAvl(table, &raw mut key))), 10);
}

/// A table of splay trees with 10 in it.
fn splay_table() -> PVOID {
    let table: PVOID = Box::leak(Box::new([0_u64; 13])).as_mut_ptr().cast();
    call!(RtlInitializeGenericTable(table, Some(compare), Some(allocate), Some(free), ptr::null_mut()));
    let mut value = 10_u64;
    call!(RtlInsertElementGenericTable(table, (&raw mut value).cast(), 8, ptr::null_mut()));
    table
}

fn look_up_splaying(table: PVOID) {
    let mut value = 10_u64;
    call!(RtlLookupElementGenericTable(table, (&raw mut value).cast()));
}

macro_rules! rules {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || does($work));
            }
        )+
    };
}

#[test]
fn a_table_has_each_value_once_and_in_order() {
    does(|_| {
        splay::works(&[30, 10, 20]);
        avl::works(&[10, 20, 30]);
    });
}

#[test]
fn a_table_that_does_not_splay_is_read_by_several_at_once() {
    does(|_| {
        let mut memory = [0_u64; 13];
        let table = table_in(&mut memory);
        insert(table, 10);
        meanwhile(table, read);
        look_up(table);
        assert_eq!(USED.load(SeqCst), 0, "it was read in the middle of a look-up");
        // Nobody reads it any more: it changes.
        insert(table, 20);
        for mut value in [10_u64, 20] {
            assert_eq!(call!(RtlDeleteElementGenericTableAvl(table, (&raw mut value).cast())), 1);
        }
    });
}

rules! {
    a_table_that_was_not_initialised breaks Uninitialised by |_| {
        let mut table = [0_u64; 13];
        call!(RtlNumberGenericTableElementsAvl(table.as_mut_ptr().cast()));
    };
    a_table_that_was_copied breaks MovedObject by |_| {
        let table = table();
        // SAFETY: a table has as many bytes.
        let mut copy = unsafe { table.cast::<[u64; 13]>().read() };
        call!(RtlNumberGenericTableElementsAvl(copy.as_mut_ptr().cast()));
    };
    a_table_without_its_routines breaks BadArgument by |_| {
        let mut table = [0_u64; 13];
        call!(RtlInitializeGenericTableAvl(table.as_mut_ptr().cast(), Some(compare), None, Some(free), ptr::null_mut()));
    };
    a_table_above_dispatch_level breaks IrqlTooHigh by |_| {
        let table = table();
        call!(KfRaiseIrql(3));
        call!(RtlNumberGenericTableElementsAvl(table));
    };
    an_element_that_is_freed_in_its_table breaks UseAfterFree by |_| {
        let table = table();
        let data = insert(table, 10);
        call!(ExFreePoolWithTag(data.wrapping_byte_sub(LINKS), TAG));
        insert(table, 20);
    };
    an_enumeration_that_goes_on_from_an_element_that_is_gone breaks UseAfterFree by |_| {
        let table = table();
        insert(table, 10);
        let mut key = ptr::null_mut();
        let mut first = number(call!(RtlEnumerateGenericTableWithoutSplayingAvl(table, &raw mut key)));
        call!(RtlDeleteElementGenericTableAvl(table, (&raw mut first).cast()));
        call!(RtlEnumerateGenericTableWithoutSplayingAvl(table, &raw mut key));
    };
    an_element_that_is_left breaks PoolLeak by |_| { insert(table(), 10); };
    a_table_that_its_own_comparison_uses breaks Unsynchronised by |_| {
        let table = table();
        insert(table, 10);
        meanwhile(table, |table| { call!(RtlNumberGenericTableElementsAvl(table)); });
        insert(table, 20);
    };
    a_table_that_is_searched_while_it_changes breaks Unsynchronised by |_| {
        let table = table();
        insert(table, 10);
        meanwhile(table, look_up);
        insert(table, 20);
    };
    a_table_that_changes_while_it_is_searched breaks Unsynchronised by |_| {
        let table = table();
        insert(table, 10);
        meanwhile(table, |table| { insert(table, 20); });
        look_up(table);
    };
    a_table_by_number_while_it_is_searched breaks Unsynchronised by |_| {
        let table = table();
        insert(table, 10);
        meanwhile(table, |table| { call!(RtlGetElementGenericTableAvl(table, 0)); });
        look_up(table);
    };
    a_table_that_splays_is_searched_by_two breaks Unsynchronised by |_| {
        let table = splay_table();
        meanwhile(table, look_up_splaying);
        look_up_splaying(table);
    };
}
