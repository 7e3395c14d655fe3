//! Net buffers without their list, lists without net buffers, clones, the contexts of lists, and what NDIS says of processors and time.

use std::ptr;

use miniport::{Handlers, TAG};
use ndis::{
    NDIS_STATUS, NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS, NdisAllocateNetBufferAndNetBufferList,
    NdisAllocateNetBufferListPool, NdisFreeNetBufferList, NdisFreeNetBufferListPool, NdisGetDataBuffer,
};
use ndkpi::{
    MDL, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Rule, caught};
use wdk_sys::{LARGE_INTEGER, PROCESSOR_NUMBER};

use crate::{lifecycle::run, miniport, own::call};

/// `NET_BUFFER_POOL_PARAMETERS`.
#[repr(C)]
struct BufferPool {
    header: NDIS_OBJECT_HEADER,
    tag: u32,
    data: u32,
}

/// `NET_BUFFER_LIST_CONTEXT`, which the bytes follow.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Context {
    next: *mut Self,
    size: u16,
    offset: u16,
}

/// `NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS`.
const ORIGINAL: u32 = 2;

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisAllocateNetBufferPool(handle: NDIS_HANDLE, parameters: *const BufferPool) -> NDIS_HANDLE;
    fn NdisFreeNetBufferPool(pool: NDIS_HANDLE);
    fn NdisAllocateNetBuffer(pool: NDIS_HANDLE, chain: *mut MDL, offset: u32, length: usize) -> *mut NET_BUFFER;
    fn NdisFreeNetBuffer(buffer: *mut NET_BUFFER);
    fn NdisAllocateNetBufferList(pool: NDIS_HANDLE, size: u16, fill: u16) -> *mut NET_BUFFER_LIST;
    fn NdisAllocateNetBufferListContext(list: *mut NET_BUFFER_LIST, size: u16, fill: u16, tag: u32) -> NDIS_STATUS;
    fn NdisFreeNetBufferListContext(list: *mut NET_BUFFER_LIST, size: u16);
    fn NdisAllocateCloneNetBufferList(
        original: *mut NET_BUFFER_LIST,
        lists: NDIS_HANDLE,
        buffers: NDIS_HANDLE,
        flags: u32,
    ) -> *mut NET_BUFFER_LIST;
    fn NdisFreeCloneNetBufferList(clone: *mut NET_BUFFER_LIST, flags: u32);
    fn NdisAllocateMemoryWithTagPriority(handle: NDIS_HANDLE, length: u32, tag: u32, priority: i32) -> *mut u8;
    fn NdisFreeMemoryWithTag(block: *mut u8, tag: u32);
    fn NdisFreeMemoryWithTagPriority(handle: NDIS_HANDLE, block: *mut u8, tag: u32);
    fn NdisGetSystemUpTimeEx(place: *mut LARGE_INTEGER);
    fn NdisCurrentGroupAndProcessor() -> PROCESSOR_NUMBER;
    fn NdisMaxGroupCount() -> u16;
    fn NdisSystemProcessorCount() -> i8;
    fn NdisSystemActiveProcessorCount(mask: *mut u64) -> u32;
}

/// Has a miniport driver do something with its adapter's handle.
fn does(work: fn(NDIS_HANDLE)) {
    run(Handlers::default(), |_, driver, _| driver.run(|| work(miniport::with(|world| world.adapter))));
}

fn buffer_pool(adapter: NDIS_HANDLE) -> NDIS_HANDLE {
    let header = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_DEFAULT, Revision: 1, Size: 12 };
    let pool = call!(NdisAllocateNetBufferPool(adapter, &BufferPool { header, tag: TAG, data: 0 }));
    assert!(!pool.is_null());
    pool
}

/// A pool of lists with so many bytes of context, with a net buffer or without.
fn list_pool(adapter: NDIS_HANDLE, context: u16, buffers: bool) -> NDIS_HANDLE {
    let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
        Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
        ProtocolId: 0,
        fAllocateNetBuffer: buffers.into(),
        ContextSize: context,
        PoolTag: TAG,
        DataSize: 0,
    };
    let pool = call!(NdisAllocateNetBufferListPool(adapter, &raw const parameters));
    assert!(!pool.is_null());
    pool
}

/// The first context of a list: its size, and where the bytes begin that are in use.
fn context(list: *mut NET_BUFFER_LIST) -> Option<(u16, u16)> {
    // SAFETY: the driver's list.
    let place = unsafe { (*list).Context }.cast::<Context>();
    // SAFETY: null, or the list's first context.
    unsafe { place.as_ref() }.map(|context| (context.size, context.offset))
}

/// Writes to all bytes of a list's first context that are in use.
fn fill(list: *mut NET_BUFFER_LIST) {
    // SAFETY: the driver's list, which has a context.
    let place = unsafe { (*list).Context }.cast::<Context>();
    // SAFETY: the driver's list, which has a context.
    let Context { size, offset, .. } = unsafe { place.read() };
    let bytes = place.wrapping_add(1).cast::<u8>().wrapping_add(offset.into());
    // SAFETY: so many bytes follow the structure.
    unsafe { bytes.write_bytes(7, usize::from(size - offset)) };
}

/// The bytes of each net buffer of a list.
fn bytes(list: *mut NET_BUFFER_LIST) -> Vec<Vec<u8>> {
    // SAFETY: the driver's list.
    let mut buffer = unsafe { (*list).FirstNetBuffer };
    let mut all = Vec::new();
    while !buffer.is_null() {
        // SAFETY: a net buffer of the list, whose length is the arm that drivers read.
        let length = unsafe { (*buffer).DataLength.DataLength };
        let mut storage = vec![0; length as usize];
        let found = call!(NdisGetDataBuffer(buffer, length, storage.as_mut_ptr().cast(), 1, 0)).cast::<u8>();
        // SAFETY: the bytes of the net buffer, in one piece.
        all.push(unsafe { std::slice::from_raw_parts(found, length as usize) }.to_vec());
        // SAFETY: a net buffer of the list.
        buffer = unsafe { (*buffer).Next };
    }
    all
}

/// The chain of a list of one net buffer.
fn chain_of(list: *mut NET_BUFFER_LIST) -> *mut MDL {
    // SAFETY: the driver's list, which has a net buffer.
    unsafe { (*(*list).FirstNetBuffer).MdlChain }
}

#[test]
fn a_net_buffer_is_linked_to_a_list_that_has_none() {
    does(|adapter| {
        let whole = miniport::make_list(&[1, 2, 3, 4]);
        let (lists, buffers) = (list_pool(adapter, 0, false), buffer_pool(adapter));
        let list = call!(NdisAllocateNetBufferList(lists, 0, 0));
        assert!(bytes(list).is_empty());
        let buffer = call!(NdisAllocateNetBuffer(buffers, chain_of(whole), 1, 2));
        // SAFETY: the driver's list.
        unsafe { (*list).FirstNetBuffer = buffer };
        assert_eq!(bytes(list), [[2, 3]]);
        call!(NdisFreeNetBuffer(buffer));
        call!(NdisFreeNetBufferList(list));
        call!(NdisFreeNetBufferPool(buffers));
        call!(NdisFreeNetBufferListPool(lists));
        miniport::free_list(whole);
    });
}

#[test]
fn a_list_has_the_context_of_its_pool_and_more() {
    does(|adapter| {
        let pool = list_pool(adapter, 32, true);
        let make = |used, fill| call!(NdisAllocateNetBufferAndNetBufferList(pool, used, fill, ptr::null_mut(), 0, 0));
        let [plain, used, more] = [make(0, 0), make(32, 0), make(32, 16)];
        assert_eq!([context(plain), context(used), context(more)], [Some((32, 32)), Some((32, 0)), Some((48, 16))]);
        for list in [plain, used, more] {
            fill(list);
            call!(NdisFreeNetBufferList(list));
        }
        call!(NdisFreeNetBufferListPool(pool));
        let list = miniport::make_list(&[1]);
        assert_eq!(context(list), None);
        miniport::free_list(list);
    });
}

#[test]
fn a_context_is_taken_where_there_is_room_and_added_where_there_is_none() {
    does(|adapter| {
        let pool = list_pool(adapter, 32, true);
        let list = call!(NdisAllocateNetBufferAndNetBufferList(pool, 16, 0, ptr::null_mut(), 0, 0));
        let take = |size, fill| {
            assert_eq!(call!(NdisAllocateNetBufferListContext(list, size, fill, TAG)), NDIS_STATUS_SUCCESS);
        };
        take(16, 0);
        assert_eq!(context(list), Some((32, 0)));
        take(24, 8);
        assert_eq!(context(list), Some((32, 8)));
        fill(list);
        take(8, 0);
        assert_eq!(context(list), Some((32, 0)));
        call!(NdisFreeNetBufferListContext(list, 8));
        call!(NdisFreeNetBufferListContext(list, 24));
        assert_eq!(context(list), Some((32, 0)), "the added one is gone");
        call!(NdisFreeNetBufferListContext(list, 16));
        call!(NdisFreeNetBufferListContext(list, 16));
        assert_eq!(context(list), Some((32, 32)), "the pool's stays");
        call!(NdisFreeNetBufferList(list));
        call!(NdisFreeNetBufferListPool(pool));
    });
}

#[test]
fn a_clone_has_the_bytes_of_its_original() {
    does(|adapter| {
        let (lists, buffers) = (list_pool(adapter, 0, false), buffer_pool(adapter));
        let original = miniport::make_list(&[1, 2, 3, 4]);
        for (lists, buffers, flags) in
            [(lists, buffers, 0), (lists, ptr::null_mut(), ORIGINAL), (ptr::null_mut(), ptr::null_mut(), 0)]
        {
            let clone = call!(NdisAllocateCloneNetBufferList(original, lists, buffers, flags));
            assert_eq!(bytes(clone), [[1, 2, 3, 4]]);
            assert_eq!(chain_of(clone) == chain_of(original), flags == ORIGINAL);
            call!(NdisFreeCloneNetBufferList(clone, flags));
        }
        miniport::free_list(original);
        call!(NdisFreeNetBufferPool(buffers));
        call!(NdisFreeNetBufferListPool(lists));
    });
}

#[test]
fn without_memory_nothing_is_left_of_a_clone() {
    run(Handlers::default(), |kernel, driver, _| {
        let mut original = ptr::null_mut();
        driver.run(|| original = miniport::make_list(&[1, 2, 3, 4]));
        let failures = kernel.fail_each(1.., || {
            driver.run(|| {
                let clone = call!(NdisAllocateCloneNetBufferList(original, ptr::null_mut(), ptr::null_mut(), 0));
                assert_eq!(clone.is_null(), kernel.fault_happened());
                if !clone.is_null() {
                    call!(NdisFreeCloneNetBufferList(clone, 0));
                }
            });
        });
        assert_eq!(failures, 3, "the list, its net buffer and the MDL");
        driver.run(|| miniport::free_list(original));
    });
}

#[test]
fn without_memory_a_list_has_no_more_context_than_before() {
    run(Handlers::default(), |kernel, driver, _| {
        let mut list = ptr::null_mut();
        driver.run(|| list = miniport::make_list(&[1]));
        let failures = kernel.fail_each(1..=1, || {
            driver.run(|| {
                assert_eq!(call!(NdisAllocateNetBufferListContext(list, 16, 0, TAG)), NDIS_STATUS_RESOURCES);
            });
        });
        assert_eq!((failures, context(list)), (1, None));
        driver.run(|| miniport::free_list(list));
    });
}

#[test]
fn ndis_says_how_many_processors_there_are_and_how_late_it_is() {
    does(|adapter| {
        let (mut mask, mut time) = (0, LARGE_INTEGER { QuadPart: -1 });
        let count = call!(NdisSystemActiveProcessorCount(&raw mut mask));
        assert_eq!((mask.count_ones(), call!(NdisSystemProcessorCount())), (count, i8::try_from(count).expect("few")));
        assert_eq!(call!(NdisSystemActiveProcessorCount(ptr::null_mut())), count);
        assert_eq!(call!(NdisMaxGroupCount()), 1);
        let here = call!(NdisCurrentGroupAndProcessor());
        assert!(here.Group == 0 && u32::from(here.Number) < count);
        call!(NdisGetSystemUpTimeEx(&raw mut time));
        // SAFETY: the arm that has the whole number.
        assert!(unsafe { time.QuadPart } >= 0);
        for frees in
            [(|_, block| call!(NdisFreeMemoryWithTag(block, TAG))) as fn(NDIS_HANDLE, *mut u8), |adapter, block| {
                call!(NdisFreeMemoryWithTagPriority(adapter, block, TAG));
            }]
        {
            frees(adapter, call!(NdisAllocateMemoryWithTagPriority(adapter, 16, TAG, 0)));
        }
    });
}

wrong! {
    a_pool_of_net_buffers_that_is_left breaks PoolLeak by |adapter| { buffer_pool(adapter); };
    a_pool_of_net_buffers_without_a_tag breaks PoolTag by |adapter| {
        let header = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_DEFAULT, Revision: 1, Size: 12 };
        call!(NdisAllocateNetBufferPool(adapter, &BufferPool { header, tag: 0, data: 0 }));
    };
    a_pool_of_net_buffers_that_is_freed_while_one_is_in_use breaks NblPoolInUse by |adapter| {
        let pool = buffer_pool(adapter);
        call!(NdisAllocateNetBuffer(pool, ptr::null_mut(), 0, 0));
        call!(NdisFreeNetBufferPool(pool));
    };
    a_net_buffer_of_bytes_of_no_chain breaks BadArgument by |adapter| {
        call!(NdisAllocateNetBuffer(buffer_pool(adapter), ptr::null_mut(), 0, 4));
    };
    a_net_buffer_that_came_with_its_list_is_freed_by_itself breaks BadHandle by |_| {
        let list = miniport::make_list(&[1]);
        // SAFETY: the driver's list.
        call!(NdisFreeNetBuffer((*list).FirstNetBuffer));
    };
    a_context_that_is_left breaks PoolLeak by |_| {
        let list = miniport::make_list(&[1]);
        let _ = call!(NdisAllocateNetBufferListContext(list, 16, 0, TAG));
        miniport::free_list(list);
    };
    more_of_a_context_than_is_in_use breaks BadArgument by |_| {
        let list = miniport::make_list(&[1]);
        let _ = call!(NdisAllocateNetBufferListContext(list, 16, 16, TAG));
        call!(NdisFreeNetBufferListContext(list, 24));
    };
    a_context_of_a_list_that_has_none breaks BadArgument by |_| {
        call!(NdisFreeNetBufferListContext(miniport::make_list(&[1]), 8));
    };
    a_clone_that_is_freed_as_a_list breaks NblNotOwned by |_| {
        let original = miniport::make_list(&[1]);
        let clone = call!(NdisAllocateCloneNetBufferList(original, ptr::null_mut(), ptr::null_mut(), 0));
        call!(NdisFreeNetBufferList(clone));
    };
    a_list_that_is_freed_as_a_clone breaks NblNotOwned by |_| {
        call!(NdisFreeCloneNetBufferList(miniport::make_list(&[1]), 0));
    };
    a_clone_that_is_freed_with_other_flags breaks BadArgument by |_| {
        let original = miniport::make_list(&[1]);
        let clone = call!(NdisAllocateCloneNetBufferList(original, ptr::null_mut(), ptr::null_mut(), ORIGINAL));
        call!(NdisFreeCloneNetBufferList(clone, 0));
    };
    a_clone_that_is_left breaks PoolLeak by |_| {
        let original = miniport::make_list(&[1]);
        call!(NdisAllocateCloneNetBufferList(original, ptr::null_mut(), ptr::null_mut(), 0));
        miniport::free_list(original);
    };
    memory_that_is_freed_with_another_tag breaks PoolTag by |adapter| {
        let block = call!(NdisAllocateMemoryWithTagPriority(adapter, 16, TAG, 0));
        call!(NdisFreeMemoryWithTag(block, TAG + 1));
    };
}
