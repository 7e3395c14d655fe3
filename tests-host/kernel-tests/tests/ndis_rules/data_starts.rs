//! Where the bytes of a net buffer begin: retreats and advances.

use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use miniport::{Handlers, TAG};
use ndis::{NDIS_STATUS, NDIS_STATUS_FAILURE, NET_BUFFER, NET_BUFFER_LIST, NdisGetDataBuffer};
use ndkpi::status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS};
use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    MDL, POOL_FLAG_NON_PAGED,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, KeLowerIrql, KfRaiseIrql,
        MmBuildMdlForNonPagedPool,
    },
};

use crate::{lifecycle::run, miniport, own::call};

type AllocateMdl = unsafe extern "system" fn(*mut u32) -> *mut MDL;
type FreeMdl = unsafe extern "system" fn(*mut MDL);

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisRetreatNetBufferDataStart(
        buffer: *mut NET_BUFFER,
        delta: u32,
        fill: u32,
        allocate: Option<AllocateMdl>,
    ) -> NDIS_STATUS;
    fn NdisAdvanceNetBufferDataStart(buffer: *mut NET_BUFFER, delta: u32, frees: u8, free: Option<FreeMdl>);
    fn NdisRetreatNetBufferListDataStart(
        list: *mut NET_BUFFER_LIST,
        delta: u32,
        fill: u32,
        allocate: Option<AllocateMdl>,
        free: Option<FreeMdl>,
    ) -> NDIS_STATUS;
    fn NdisAdvanceNetBufferListDataStart(list: *mut NET_BUFFER_LIST, delta: u32, frees: u8, free: Option<FreeMdl>);
}

/// How many MDLs the driver has made, and how many it has freed.
static MADE: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
static FREED: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

/// An MDL with so many bytes of its own.
fn make(size: u32) -> *mut MDL {
    let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, u64::from(size), TAG));
    let mdl = call!(IoAllocateMdl(block, size, 0, 0, ptr::null_mut()));
    call!(MmBuildMdlForNonPagedPool(mdl));
    mdl
}

unsafe extern "system" fn allocate(size: *mut u32) -> *mut MDL {
    MADE.fetch_add(1, SeqCst);
    // SAFETY: NDIS's number.
    make(unsafe { size.read() })
}

unsafe extern "system" fn allocate_once(size: *mut u32) -> *mut MDL {
    if MADE.fetch_add(1, SeqCst) > 0 {
        return ptr::null_mut();
    }
    // SAFETY: NDIS's number.
    make(unsafe { size.read() })
}

unsafe extern "system" fn allocate_too_little(size: *mut u32) -> *mut MDL {
    // SAFETY: NDIS's number.
    make(unsafe { size.read() } - 1)
}

unsafe extern "system" fn allocate_without_memory(size: *mut u32) -> *mut MDL {
    // SAFETY: NDIS's number.
    let size = unsafe { size.read() };
    let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, u64::from(size), TAG));
    call!(IoAllocateMdl(block, size, 0, 0, ptr::null_mut()))
}

unsafe extern "system" fn free(mdl: *mut MDL) {
    FREED.fetch_add(1, SeqCst);
    // SAFETY: an MDL of `make`.
    let block = unsafe { (*mdl).MappedSystemVa };
    call!(IoFreeMdl(mdl));
    call!(ExFreePoolWithTag(block, TAG));
}

/// Has a miniport driver do something with a list of 60 bytes.
fn does(work: fn(*mut NET_BUFFER_LIST, *mut NET_BUFFER)) {
    run(Handlers::default(), |_, driver, _| {
        MADE.store(0, SeqCst);
        FREED.store(0, SeqCst);
        driver.run(|| {
            let list = miniport::make_list(&[9; 60]);
            work(list, first_of(list));
            miniport::free_list(list);
        });
    });
}

fn first_of(list: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER {
    // SAFETY: the driver's list, which has a net buffer.
    unsafe { (*list).FirstNetBuffer }
}

/// `DataOffset`, `DataLength`, `CurrentMdlOffset`, and whether the bytes begin in the first MDL.
fn start(buffer: *mut NET_BUFFER) -> (u32, u32, u32, bool) {
    // SAFETY: the driver's net buffer.
    let buffer = unsafe { buffer.read() };
    // SAFETY: every value of the union's numbers is one.
    let length = unsafe { buffer.DataLength.DataLength };
    (buffer.DataOffset, length, buffer.CurrentMdlOffset, ptr::eq(buffer.CurrentMdl, buffer.MdlChain))
}

fn retreat(buffer: *mut NET_BUFFER, delta: u32, fill: u32, allocate: Option<AllocateMdl>) {
    assert_eq!(call!(NdisRetreatNetBufferDataStart(buffer, delta, fill, allocate)), NDIS_STATUS_SUCCESS);
}

fn advance(buffer: *mut NET_BUFFER, delta: u32, frees: bool, free: Option<FreeMdl>) {
    call!(NdisAdvanceNetBufferDataStart(buffer, delta, frees.into(), free));
}

#[test]
fn a_header_is_skipped_and_taken_back_where_it_lies() {
    does(|_, buffer| {
        advance(buffer, 14, false, None);
        assert_eq!(start(buffer), (14, 46, 14, true));
        retreat(buffer, 10, 0, Some(allocate));
        assert_eq!(start(buffer), (4, 56, 4, true));
        advance(buffer, 10, true, Some(free));
        retreat(buffer, 14, 0, None);
        assert_eq!(start(buffer), (0, 60, 0, true));
        assert_eq!([MADE.load(SeqCst), FREED.load(SeqCst)], [0, 0], "there was room");
    });
}

#[test]
fn a_retreat_without_room_adds_memory_that_the_advance_frees() {
    does(|_, buffer| {
        // SAFETY: the driver's net buffer.
        let before = unsafe { (*buffer).MdlChain };
        advance(buffer, 6, false, None);
        let raised = call!(KfRaiseIrql(2));
        retreat(buffer, 14, 2, None);
        let (offset, length, inside, is_first) = start(buffer);
        assert_eq!((length, inside, is_first), (68, offset, true), "the bytes begin in the new MDL");
        assert_eq!(offset, 8, "what was free, and what was asked for in front");
        let mut storage = [0_u8; 68];
        let bytes = call!(NdisGetDataBuffer(buffer, 68, storage.as_mut_ptr().cast(), 1, 0));
        assert!(ptr::eq(bytes.cast(), storage.as_ptr()), "they lie in two pieces");
        assert_eq!(storage[14..], [9; 54]);
        advance(buffer, 4, true, None);
        assert_eq!(start(buffer), (12, 64, 12, true), "some of the new memory is in use");
        advance(buffer, 10, true, None);
        call!(KeLowerIrql(raised));
        assert_eq!(start(buffer), (6, 54, 6, true));
        // SAFETY: the driver's net buffer.
        assert!(ptr::eq(unsafe { (*buffer).MdlChain }, before), "as it was");
        retreat(buffer, 6, 0, None);
    });
}

#[test]
fn what_an_advance_leaves_is_there_for_the_next_retreat() {
    does(|_, buffer| {
        retreat(buffer, 8, 0, Some(allocate));
        advance(buffer, 8, false, Some(free));
        assert_eq!(start(buffer), (8, 60, 0, false), "the bytes begin in the second MDL");
        retreat(buffer, 8, 0, Some(allocate));
        assert_eq!((start(buffer), MADE.load(SeqCst)), ((0, 68, 0, true), 1));
        advance(buffer, 8, true, Some(free));
        assert_eq!((start(buffer), FREED.load(SeqCst)), ((0, 60, 0, true), 1));
    });
}

#[test]
fn a_retreat_that_fails_changes_nothing() {
    does(|_, buffer| {
        assert_eq!(call!(NdisRetreatNetBufferDataStart(buffer, u32::MAX, 0, None)), NDIS_STATUS_FAILURE);
        assert_eq!(call!(NdisRetreatNetBufferDataStart(buffer, 8, u32::MAX, None)), NDIS_STATUS_FAILURE);
        MADE.store(1, SeqCst);
        let status = call!(NdisRetreatNetBufferDataStart(buffer, 8, 0, Some(allocate_once)));
        assert_eq!((status, start(buffer)), (NDIS_STATUS_RESOURCES, (0, 60, 0, true)));
    });
}

#[test]
fn the_net_buffers_of_a_list_go_together() {
    does(|list, first| {
        let other = miniport::make_list(&[7; 40]);
        let second = first_of(other);
        // SAFETY: both net buffers are the driver's.
        unsafe { (*first).Next = second };
        let retreat =
            |allocate: AllocateMdl| call!(NdisRetreatNetBufferListDataStart(list, 8, 0, Some(allocate), Some(free)));
        assert_eq!(retreat(allocate), NDIS_STATUS_SUCCESS);
        assert_eq!([start(first), start(second)], [(0, 68, 0, true), (0, 48, 0, true)]);
        call!(NdisAdvanceNetBufferListDataStart(list, 8, 1, Some(free)));
        let both = [(0, 60, 0, true), (0, 40, 0, true)];
        assert_eq!(([start(first), start(second)], FREED.load(SeqCst)), (both, 2));
        MADE.store(0, SeqCst);
        assert_eq!(retreat(allocate_once), NDIS_STATUS_RESOURCES);
        assert_eq!(([start(first), start(second)], FREED.load(SeqCst)), (both, 3), "the first is as it was");
        // SAFETY: both net buffers are the driver's.
        unsafe { (*first).Next = ptr::null_mut() };
        miniport::free_list(other);
    });
}

wrong! {
    an_advance_beyond_the_bytes breaks BadArgument by |_, buffer| advance(buffer, 61, false, None);
    an_advance_that_frees_what_nobody_has_claimed breaks BadArgument by |_, buffer| advance(buffer, 14, true, None);
    an_advance_that_frees_more_than_was_claimed breaks BadArgument by |_, buffer| {
        retreat(buffer, 8, 0, None);
        advance(buffer, 9, true, None);
    };
    an_advance_without_a_net_buffer breaks BadArgument by |_, _| advance(ptr::null_mut(), 8, false, None);
    a_retreat_of_no_list breaks BadArgument by |_, _| {
        let _ = call!(NdisRetreatNetBufferListDataStart(ptr::null_mut(), 8, 0, None, None));
    };
    a_retreat_of_a_list_that_is_free breaks UseAfterFree by |_, _| {
        let list = miniport::make_list(&[1; 20]);
        miniport::free_list(list);
        let _ = call!(NdisRetreatNetBufferListDataStart(list, 8, 0, None, None));
    };
    a_retreat_of_a_net_buffer_that_is_free breaks UseAfterFree by |_, _| {
        let list = miniport::make_list(&[1; 20]);
        let buffer = first_of(list);
        miniport::free_list(list);
        retreat(buffer, 8, 0, None);
    };
    a_retreat_above_dispatch_level breaks IrqlTooHigh by |_, buffer| {
        call!(KfRaiseIrql(5));
        retreat(buffer, 8, 0, None);
    };
    an_mdl_of_the_driver_that_is_freed_without_its_function breaks BadMdl by |_, buffer| {
        retreat(buffer, 8, 0, Some(allocate));
        advance(buffer, 8, true, None);
    };
    an_mdl_with_too_few_bytes breaks BadMdl by |_, buffer| retreat(buffer, 8, 0, Some(allocate_too_little));
    an_mdl_that_is_not_built breaks BadMdl by |_, buffer| retreat(buffer, 8, 0, Some(allocate_without_memory));
    memory_of_a_retreat_that_is_left breaks PoolLeak by |_, buffer| {
        retreat(buffer, 8, 0, None);
        advance(buffer, 8, false, None);
    };
}
