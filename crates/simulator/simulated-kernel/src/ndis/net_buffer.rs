//! Net buffers by themselves, out of pools of their own: a driver links them to a list that has none.

use std::sync::Mutex;

use litemap::LiteMap;
use ndis::NET_BUFFER;
use ndkpi::{MDL, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};

use super::{
    frame,
    owner::Owner,
    pool::{Bytes, check_bytes},
    structure::{ndis_routine, pointer, read},
};
use crate::{
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// `NET_BUFFER_POOL_PARAMETERS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parameters {
    header: NDIS_OBJECT_HEADER,
    tag: u32,
    data: u32,
}

const HEADER: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_DEFAULT, Revision: 1, Size: 12 };
const _: () = assert!(size_of::<Parameters>() == HEADER.Size as usize);

/// A pool of net buffers.
struct Pool {
    owner: Owner,
    tag: u32,
    buffers: usize,
}

/// Pools of net buffers, and the pool of each net buffer by its address.
#[derive(Default)]
pub struct BufferPools {
    by_handle: LiteMap<usize, Pool>,
    buffers: LiteMap<usize, usize>,
}

impl Part for Mutex<BufferPools> {}

impl BufferPools {
    /// Nothing may be left of those that `of` recognises.
    pub fn check_nothing_left(&self, of: impl Fn(Owner) -> bool, name: &str) {
        if let Some(pool) = self.by_handle.values().find(|pool| of(pool.owner)) {
            bug_check(Rule::PoolLeak, format_args!("{name} left a pool with {} net buffers in use", pool.buffers));
        }
    }

    fn pool(&mut self, handle: usize) -> &mut Pool {
        self.by_handle.get_mut(&handle).unwrap_or_else(|| {
            bug_check(Rule::BadHandle, format_args!("{handle:#x} is no pool of net buffers, or was one"))
        })
    }
}

/// A new net buffer out of a pool. `None` if there is no memory.
pub fn make(state: &State, handle: usize, bytes: Bytes) -> Option<*mut NET_BUFFER> {
    let (owner, tag) = {
        let mut pools = state.locked::<BufferPools>();
        let pool = pools.pool(handle);
        (pool.owner.driver, pool.tag)
    };
    if state.strikes() {
        return None;
    }
    let place = pool::allocate(owner, size_of::<NET_BUFFER>(), tag, true)?;
    let buffer: *mut NET_BUFFER = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: a new block of that size; the driver's chain.
    unsafe { frame::write_buffer(buffer, pointer(handle), bytes.chain, bytes.offset, bytes.length) };
    let mut pools = state.locked::<BufferPools>();
    pools.pool(handle).buffers += 1;
    pools.buffers.insert(place, handle);
    Some(buffer)
}

/// Frees a net buffer that [`make`] has made.
pub fn free(state: &State, buffer: *mut NET_BUFFER) {
    let mut pools = state.locked::<BufferPools>();
    let Some(handle) = pools.buffers.remove(&buffer.addr()) else {
        drop(pools);
        let words = "is no net buffer out of a pool of net buffers, or was one";
        bug_check(Rule::BadHandle, format_args!("{buffer:p} {words}"));
    };
    let pool = pools.pool(handle);
    pool.buffers -= 1;
    let tag = pool.tag;
    drop(pools);
    pool::free(buffer.expose_provenance(), Some(tag));
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateNetBufferPool(handle: NDIS_HANDLE, parameters: *const Parameters) -> NDIS_HANDLE {
    ndis_routine!("NdisAllocateNetBufferPool", DISPATCH_LEVEL, |state| {
        let owner = state.owner_of(handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let parameters = unsafe { read(parameters, HEADER, "NET_BUFFER_POOL_PARAMETERS") };
        if parameters.tag == 0 {
            bug_check(Rule::PoolTag, format_args!("a pool of net buffers without a tag"));
        }
        if parameters.data != 0 {
            bug_check(Rule::NotSimulated, format_args!("a pool of net buffers that come with data"));
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let handle = state.new_handle();
        state.locked::<BufferPools>().by_handle.insert(handle, Pool { owner, tag: parameters.tag, buffers: 0 });
        pointer(handle)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeNetBufferPool(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFreeNetBufferPool", DISPATCH_LEVEL, |state| {
        let mut pools = state.locked::<BufferPools>();
        let buffers = pools.pool(handle.addr()).buffers;
        if buffers > 0 {
            drop(pools);
            bug_check(Rule::NblPoolInUse, format_args!("a pool is freed with {buffers} net buffers in use"));
        }
        pools.by_handle.remove(&handle.addr());
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateNetBuffer(
    handle: NDIS_HANDLE,
    chain: *mut MDL,
    offset: u32,
    length: usize,
) -> *mut NET_BUFFER {
    ndis_routine!("NdisAllocateNetBuffer", DISPATCH_LEVEL, |state| {
        let bytes = Bytes { chain, offset, length };
        check_bytes(bytes);
        make(state, handle.addr(), bytes).unwrap_or(std::ptr::null_mut())
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeNetBuffer(buffer: *mut NET_BUFFER) {
    ndis_routine!("NdisFreeNetBuffer", DISPATCH_LEVEL, |state| free(state, buffer));
}
