//! The miniport's frames: sent ones are completed, received ones come out of its pool.

use std::ptr;

use ndis::{
    NDIS_STATUS, NDIS_STATUS_PAUSED, NET_BUFFER_LIST, NdisAllocateMdl, NdisAllocateNetBufferAndNetBufferList,
    NdisFreeMdl, NdisFreeNetBufferList, NdisMIndicateReceiveNetBufferLists, NdisMPauseComplete,
    NdisMSendNetBufferListsComplete,
};
use ndkpi::{MDL, status::NDIS_STATUS_SUCCESS};
use wdk_sys::{
    POOL_FLAG_NON_PAGED,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

use super::{TAG, with};

/// Completes a chain of lists.
pub fn complete(first: *mut NET_BUFFER_LIST) {
    let paused = with(|world| world.paused);
    complete_with(first, if paused { NDIS_STATUS_PAUSED } else { NDIS_STATUS_SUCCESS });
}

pub fn complete_with(first: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    let adapter = with(|world| world.adapter);
    let mut list = first;
    while !list.is_null() {
        // SAFETY: the miniport has the list.
        unsafe { (*list).Status = status };
        // SAFETY: the miniport has the list.
        list = unsafe { (*list).Next };
    }
    // SAFETY: the adapter is live, and the lists are the miniport's.
    unsafe { NdisMSendNetBufferListsComplete(adapter, first, 0) };
}

/// Makes a list with these bytes. Null if there is no memory.
pub fn make_list(bytes: &[u8]) -> *mut NET_BUFFER_LIST {
    let (adapter, pool) = with(|world| (world.adapter, world.pool));
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, bytes.len() as u64, TAG) };
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: a new block of as many bytes.
    unsafe { block.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let length = u32::try_from(bytes.len()).expect("a short frame");
    // SAFETY: the adapter and the block are live.
    let mdl = unsafe { NdisAllocateMdl(adapter, block, length) };
    if mdl.is_null() {
        // SAFETY: nobody else has the block.
        unsafe { ExFreePoolWithTag(block, TAG) };
        return ptr::null_mut();
    }
    // SAFETY: the pool is live, and the MDL describes the block.
    let list = unsafe { NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, mdl, 0, bytes.len()) };
    if list.is_null() {
        // SAFETY: nobody else has the MDL.
        unsafe { NdisFreeMdl(mdl) };
        // SAFETY: nor the block.
        unsafe { ExFreePoolWithTag(block, TAG) };
        return list;
    }
    // SAFETY: the list was just made.
    unsafe { (*list).SourceHandle = adapter };
    // SAFETY: as above; what the miniport needs to free the bytes is the miniport's to keep there.
    unsafe { (*list).MiniportReserved = [block, mdl.cast()] };
    list
}

/// Indicates a frame. Returns true if there was memory for it.
pub fn receive(bytes: &[u8]) -> bool {
    let list = make_list(bytes);
    if list.is_null() {
        return false;
    }
    with(|world| world.indicated += 1);
    indicate(list, 0);
    true
}

/// Indicates a list.
pub fn indicate(list: *mut NET_BUFFER_LIST, flags: u32) {
    let adapter = with(|world| world.adapter);
    // SAFETY: the adapter is live, and the list is the miniport's.
    unsafe { NdisMIndicateReceiveNetBufferLists(adapter, list, 0, 1, flags) };
}

/// Frees lists that have come back, and completes a pause that has waited for them.
pub fn free_returned(first: *mut NET_BUFFER_LIST) {
    let mut list = first;
    while !list.is_null() {
        // SAFETY: the miniport has the list.
        let next = unsafe { (*list).Next };
        free_list(list);
        with(|world| world.indicated -= 1);
        list = next;
    }
    let (adapter, over) = with(|world| {
        let over = world.pausing && world.indicated == 0;
        world.pausing &= !over;
        (world.adapter, over)
    });
    if over {
        // SAFETY: the adapter is live, and its pause pends.
        unsafe { NdisMPauseComplete(adapter) };
    }
}

/// Frees a list and its bytes.
pub fn free_list(list: *mut NET_BUFFER_LIST) {
    // SAFETY: the miniport has the list.
    let [block, mdl] = unsafe { (*list).MiniportReserved };
    // SAFETY: the miniport has the list.
    unsafe { NdisFreeNetBufferList(list) };
    // SAFETY: the list that the MDL was for is gone.
    unsafe { NdisFreeMdl(mdl.cast::<MDL>()) };
    // SAFETY: so is the MDL.
    unsafe { ExFreePoolWithTag(block, TAG) };
}
