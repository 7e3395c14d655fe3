//! Generic tables: elements in the order of the driver's own comparison, by splay trees or by AVL trees.
//!
//! Windows links the elements in memory that the driver allocates. Here the order is kept beside the table, by its address, and what would be
//! links stays zero: no driver looks at these. So an element that is freed while it is in a table is found out, and so are two threads
//! that use a table at the same time, unless neither of them changes it: a look-up in an AVL tree only reads, and drivers do several at once
//! under a lock that is shared. In a splay tree it moves what it finds to the root, as its page says.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use wdk_bindings::{BOOLEAN, PVOID, ULONG};

use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// What a comparison says (`RTL_GENERIC_COMPARE_RESULTS`).
const LESS: i32 = 0;
const GREATER: i32 = 1;
const EQUAL: i32 = 2;

type Compare = unsafe extern "C" fn(PVOID, PVOID, PVOID) -> i32;
type Allocate = unsafe extern "C" fn(PVOID, ULONG) -> PVOID;
type Free = unsafe extern "C" fn(PVOID, PVOID);

/// Where things are in the driver's structure and before an element, as the public headers have them.
struct Layout {
    name: &'static str,
    size: usize,
    /// The links before an element.
    header: usize,
    /// A pointer of the structure to itself, or to a part of it.
    own: usize,
    count: usize,
    compare: usize,
    /// Elements by number come as they were inserted; else in their order.
    as_inserted: bool,
    /// A look-up moves what it finds to the root.
    splays: bool,
}

static SPLAY: Layout = Layout {
    name: "RTL_GENERIC_TABLE",
    size: 72,
    header: 40,
    own: 8,
    count: 36,
    compare: 40,
    as_inserted: true,
    splays: true,
};
static AVL: Layout = Layout {
    name: "RTL_AVL_TABLE",
    size: 104,
    header: 32,
    own: 0,
    count: 44,
    compare: 72,
    as_inserted: false,
    splays: false,
};

/// A table.
#[derive(Clone)]
struct Table {
    owner: DriverId,
    /// The elements: where the memory of each begins.
    sorted: Vec<usize>,
    inserted: Vec<usize>,
    /// The one that an enumeration comes to next.
    next: usize,
    compare: Compare,
    allocate: Allocate,
    free: Free,
}

/// Tables by their address; `None` while somebody changes one. Who only reads one has it as well.
#[derive(Default)]
pub struct Tables(LiteMap<usize, Option<Arc<Table>>>);

impl Part for Mutex<Tables> {}

fn place(table: PVOID, offset: usize) -> *mut usize {
    table.cast::<u8>().wrapping_add(offset).cast()
}

fn initialize(state: &State, layout: &Layout, table: PVOID, routines: [Option<*const c_void>; 3], context: PVOID) {
    let [Some(compare), Some(allocate), Some(free)] = routines else {
        bug_check(Rule::BadArgument, format_args!("a generic table without its routines"));
    };
    pool::check_live(table.addr(), format_args!("the {} at {table:p} is in", layout.name));
    let own = table.addr() + layout.own;
    // SAFETY: the driver's structure, which has that size.
    unsafe { table.cast::<u8>().write_bytes(0, layout.size) };
    for (offset, value) in [(0, compare.addr()), (8, allocate.addr()), (16, free.addr()), (24, context.addr())] {
        // SAFETY: the driver's structure, which has that size.
        unsafe { place(table, layout.compare + offset).write(value) };
    }
    // SAFETY: as above. A list's head or the root of a tree that is empty leads to itself.
    unsafe { place(table, layout.own).write(own) };
    if layout.as_inserted {
        // SAFETY: as above: a head has two pointers.
        unsafe { place(table, layout.own + 8).write(own) };
    }
    // SAFETY: the driver's own routines, which have these types.
    let new = unsafe {
        Table {
            owner: context::caller(),
            sorted: Vec::new(),
            inserted: Vec::new(),
            next: 0,
            compare: std::mem::transmute::<*const c_void, Compare>(compare),
            allocate: std::mem::transmute::<*const c_void, Allocate>(allocate),
            free: std::mem::transmute::<*const c_void, Free>(free),
        }
    };
    state.locked::<Tables>().0.insert(table.addr(), Some(Arc::new(new)));
}

impl Table {
    /// Where an element with that value is, or would be.
    fn search(&self, layout: &Layout, table: PVOID, value: PVOID) -> Result<usize, usize> {
        self.sorted.binary_search_by(|&element| {
            let data = data(layout, element);
            let said = context::call(self.owner, "a routine that compares", || {
                // SAFETY: the driver's own routine, with its own table and value, and the data of an element that is there.
                unsafe { (self.compare)(table, value, data) }
            });
            match said {
                // What is asked for is less than the element.
                LESS => std::cmp::Ordering::Greater,
                GREATER => std::cmp::Ordering::Less,
                EQUAL => std::cmp::Ordering::Equal,
                other => bug_check(Rule::BadArgument, format_args!("a comparison of a generic table says {other}")),
            }
        })
    }
}

/// What the driver keeps in an element.
fn data(layout: &Layout, element: usize) -> PVOID {
    pool::check_live(element, format_args!("the element {element:#x} of an {} is in", layout.name));
    ptr::with_exposed_provenance_mut(element + layout.header)
}

/// Stops a driver of which two use a table where one has to be alone.
fn not_alone(layout: &Layout, table: PVOID) -> ! {
    bug_check(Rule::Unsynchronised, format_args!("the {} at {table:p} is used by two at the same time", layout.name))
}

/// Finds a table that was initialised, to have something done with what is kept of it.
fn found<R>(
    state: &State,
    layout: &Layout,
    table: PVOID,
    take: impl FnOnce(&mut Option<Arc<Table>>) -> Option<R>,
) -> R {
    pool::check_live(table.addr(), format_args!("the {} at {table:p} is in", layout.name));
    let taken = state.locked::<Tables>().0.get_mut(&table.addr()).map(take);
    match taken {
        Some(Some(taken)) => taken,
        Some(None) => not_alone(layout, table),
        None => {
            // SAFETY: the driver's structure; what lies there is a number.
            let leads_to = unsafe { place(table, layout.own).read() };
            if leads_to != 0 && leads_to != table.addr() + layout.own {
                let from = leads_to.wrapping_sub(layout.own);
                bug_check(
                    Rule::MovedObject,
                    format_args!("the {} at {table:p} was initialised at {from:#x}, and moved or copied", layout.name),
                );
            }
            bug_check(Rule::Uninitialised, format_args!("the {} at {table:p} was not initialised", layout.name));
        }
    }
}

/// Uses a table, which nobody else may do meanwhile.
fn with<R>(state: &State, layout: &Layout, table: PVOID, work: impl FnOnce(&mut Table) -> R) -> R {
    // Nobody gets it from here on. Whoever still reads has it, too: then it is not ours alone.
    let own = found(state, layout, table, Option::take);
    let Some(mut own) = Arc::into_inner(own) else { not_alone(layout, table) };
    state.preempt();
    let result = work(&mut own);
    let count = ULONG::try_from(own.sorted.len()).unwrap_or(ULONG::MAX);
    // SAFETY: the driver's structure.
    unsafe { place(table, layout.count).cast::<ULONG>().write(count) };
    state.locked::<Tables>().0.insert(table.addr(), Some(Arc::new(own)));
    result
}

/// Reads a table, which others may do meanwhile, and nobody may change.
fn reading<R>(state: &State, layout: &Layout, table: PVOID, work: impl FnOnce(&Table) -> R) -> R {
    let own = found(state, layout, table, |own| own.clone());
    state.preempt();
    let result = work(&own);
    // Who comes to change it finds it read or not: nothing between.
    let tables = state.locked::<Tables>();
    drop(own);
    drop(tables);
    result
}

fn insert(state: &State, layout: &Layout, table: PVOID, value: PVOID, size: ULONG, is_new: *mut BOOLEAN) -> PVOID {
    let (found, new) = with(state, layout, table, |own| {
        let at = match own.search(layout, table, value) {
            Ok(at) => return (data(layout, own.sorted[at]), false),
            Err(at) => at,
        };
        let bytes = size.saturating_add(ULONG::try_from(layout.header).unwrap_or(0));
        let memory = context::call(own.owner, "a routine that allocates", || {
            // SAFETY: the driver's own routine, with its own table.
            unsafe { (own.allocate)(table, bytes) }
        });
        if memory.is_null() {
            return (ptr::null_mut(), false);
        }
        // SAFETY: the driver's routine was asked for as many bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, layout.header) };
        let element = memory.expose_provenance();
        let data = data(layout, element);
        // SAFETY: as above; the value is the driver's, and has as many bytes.
        unsafe { data.cast::<u8>().copy_from(value.cast(), size as usize) };
        own.sorted.insert(at, element);
        own.inserted.push(element);
        (data, true)
    });
    if !is_new.is_null() {
        // SAFETY: not null, so the driver's place, which lives until the call returns.
        unsafe { is_new.write(new.into()) };
    }
    found
}

fn delete(state: &State, layout: &Layout, table: PVOID, value: PVOID) -> BOOLEAN {
    with(state, layout, table, |own| {
        let Ok(at) = own.search(layout, table, value) else { return 0 };
        let element = own.sorted.remove(at);
        own.inserted.retain(|&one| one != element);
        own.next -= usize::from(own.next > at);
        data(layout, element);
        context::call(own.owner, "a routine that frees", || {
            // SAFETY: the driver's own routine, with the memory that its own has allocated.
            unsafe { (own.free)(table, ptr::with_exposed_provenance_mut(element)) };
        });
        1
    })
}

fn look_up(state: &State, layout: &Layout, table: PVOID, value: PVOID) -> PVOID {
    let search =
        |own: &Table| own.search(layout, table, value).map_or(ptr::null_mut(), |at| data(layout, own.sorted[at]));
    if layout.splays { with(state, layout, table, |own| search(own)) } else { reading(state, layout, table, search) }
}

/// Of either tree the table remembers where it was, so that the next number is found sooner: this changes it.
fn element(state: &State, layout: &Layout, table: PVOID, number: ULONG) -> PVOID {
    with(state, layout, table, |own| {
        let elements = if layout.as_inserted { &own.inserted } else { &own.sorted };
        elements.get(number as usize).map_or(ptr::null_mut(), |&element| data(layout, element))
    })
}

fn count(state: &State, layout: &Layout, table: PVOID) -> ULONG {
    reading(state, layout, table, |own| ULONG::try_from(own.sorted.len()).unwrap_or(ULONG::MAX))
}

fn enumerate(state: &State, layout: &Layout, table: PVOID, restart: BOOLEAN) -> PVOID {
    with(state, layout, table, |own| {
        own.next = if restart == 0 { own.next } else { 0 };
        let Some(&element) = own.sorted.get(own.next) else { return ptr::null_mut() };
        own.next += 1;
        data(layout, element)
    })
}

/// The same by a key of the driver's: the element that was last, which is null at the beginning. The table stays as it is.
fn enumerate_by_key(state: &State, layout: &Layout, table: PVOID, key: *mut PVOID) -> PVOID {
    reading(state, layout, table, |own| {
        // SAFETY: the driver's place, which lives until the call returns.
        let last = unsafe { key.read() };
        let next = if last.is_null() {
            0
        } else {
            // An element that the driver has deleted since is in free memory.
            data(layout, last.addr());
            let Some(at) = own.sorted.iter().position(|&one| one == last.addr()) else { return ptr::null_mut() };
            at + 1
        };
        let Some(&element) = own.sorted.get(next) else { return ptr::null_mut() };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { key.write(ptr::with_exposed_provenance_mut(element)) };
        data(layout, element)
    })
}

macro_rules! tables {
    ($layout:ident: $initialize:ident, $insert:ident, $delete:ident, $look_up:ident, $element:ident, $count:ident, $is_empty:ident,
     $enumerate:ident, $by_key:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $initialize(
            table: PVOID,
            compare: Option<Compare>,
            allocate: Option<Allocate>,
            free: Option<Free>,
            context: PVOID,
        ) {
            routine!(stringify!($initialize), DISPATCH_LEVEL, |state| {
                let routines = [
                    compare.map(|routine| routine as *const c_void),
                    allocate.map(|routine| routine as *const c_void),
                    free.map(|routine| routine as *const c_void),
                ];
                initialize(state, &$layout, table, routines, context);
            });
        }

        #[unsafe(no_mangle)]
        extern "C" fn $insert(table: PVOID, value: PVOID, size: ULONG, is_new: *mut BOOLEAN) -> PVOID {
            routine!(stringify!($insert), DISPATCH_LEVEL, |state| insert(state, &$layout, table, value, size, is_new))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $delete(table: PVOID, value: PVOID) -> BOOLEAN {
            routine!(stringify!($delete), DISPATCH_LEVEL, |state| delete(state, &$layout, table, value))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $look_up(table: PVOID, value: PVOID) -> PVOID {
            routine!(stringify!($look_up), DISPATCH_LEVEL, |state| look_up(state, &$layout, table, value))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $element(table: PVOID, number: ULONG) -> PVOID {
            routine!(stringify!($element), DISPATCH_LEVEL, |state| element(state, &$layout, table, number))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $count(table: PVOID) -> ULONG {
            routine!(stringify!($count), DISPATCH_LEVEL, |state| count(state, &$layout, table))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $is_empty(table: PVOID) -> BOOLEAN {
            routine!(stringify!($is_empty), DISPATCH_LEVEL, |state| (count(state, &$layout, table) == 0).into())
        }

        #[unsafe(no_mangle)]
        extern "C" fn $enumerate(table: PVOID, restart: BOOLEAN) -> PVOID {
            routine!(stringify!($enumerate), DISPATCH_LEVEL, |state| enumerate(state, &$layout, table, restart))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $by_key(table: PVOID, key: *mut PVOID) -> PVOID {
            routine!(stringify!($by_key), DISPATCH_LEVEL, |state| enumerate_by_key(state, &$layout, table, key))
        }
    };
}

tables!(SPLAY: RtlInitializeGenericTable, RtlInsertElementGenericTable, RtlDeleteElementGenericTable,
    RtlLookupElementGenericTable, RtlGetElementGenericTable, RtlNumberGenericTableElements, RtlIsGenericTableEmpty,
    RtlEnumerateGenericTable, RtlEnumerateGenericTableWithoutSplaying);
tables!(AVL: RtlInitializeGenericTableAvl, RtlInsertElementGenericTableAvl, RtlDeleteElementGenericTableAvl,
    RtlLookupElementGenericTableAvl, RtlGetElementGenericTableAvl, RtlNumberGenericTableElementsAvl,
    RtlIsGenericTableEmptyAvl, RtlEnumerateGenericTableAvl, RtlEnumerateGenericTableWithoutSplayingAvl);
