//! Pools of net buffer lists, the lists, and what describes their bytes.

use std::{ffi::c_void, sync::Mutex};

use litemap::LiteMap;
use ndis::{NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS};
use ndkpi::{MDL, NDIS_HANDLE};

use super::{
    frame,
    list_context::{self, ListContext},
    owner::Owner,
    structure::{ndis_routine, pointer, read},
};
use crate::{
    context::{self, DriverId, NOBODY},
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    tracked::{Kind, Object},
    wdm::mdl,
};

/// The tag of lists and their net buffers that have none of a driver.
const TAG: u32 = u32::from_ne_bytes(*b"NDnb");

/// A pool of net buffer lists.
struct Pool {
    owner: Owner,
    parameters: NET_BUFFER_LIST_POOL_PARAMETERS,
    lists: usize,
    /// NDIS's own, for a driver that clones without one.
    is_of_ndis: bool,
}

/// The bytes that a net buffer describes: a chain, where in it, and how many.
#[derive(Clone, Copy)]
pub struct Bytes {
    pub chain: *mut MDL,
    pub offset: u32,
    pub length: usize,
}

/// Who has a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListOwner {
    /// With whom it belongs to.
    Home,
    /// With the miniport of this adapter, to be sent: part of this send.
    Sent { adapter: usize, send: usize },
    /// With the miniport of this adapter, to be sent for that binding.
    SentBy { adapter: usize, binding: usize },
    /// On its way down from the module that it belongs to.
    SentOf { module: usize },
    /// With the protocols above this adapter.
    Indicated { adapter: usize },
    /// On its way up from the module that it belongs to.
    IndicatedOf { module: usize },
}

/// Who has a list that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The end of its way: the miniport, or the protocols of the test.
    End,
    /// A module of a filter, which passes it on or back.
    Module(usize),
    /// The protocol of that binding.
    Binding(usize),
}

/// A list that somebody has.
pub struct List {
    /// The pool of a driver; `None` for lists of the protocols.
    pool: Option<usize>,
    /// It is a clone of another one.
    is_clone: bool,
    pub place: ListOwner,
    pub holder: Holder,
    /// Whoever has it must leave it as it is, and has it until the call returns.
    pub lent: bool,
    /// What it must look like when it comes back from whom: adapters and modules by their handles, the last one has it.
    shapes: Vec<(usize, u64)>,
}

impl List {
    const fn new(pool: Option<usize>, place: ListOwner) -> Self {
        Self { pool, is_clone: false, place, holder: Holder::End, lent: false, shapes: Vec::new() }
    }

    /// It is with whom it belongs to.
    pub fn is_home(&mut self) {
        (self.place, self.holder) = (ListOwner::Home, Holder::End);
        self.shapes.clear();
    }

    /// It looks like that as it is given to an adapter or a module.
    pub fn give(&mut self, to: usize, shape: u64) {
        self.shapes.push((to, shape));
    }

    /// What it looked like when it was given to an adapter or a module, from which it comes back.
    pub fn take(&mut self, from: usize) -> Option<u64> {
        let at = self.shapes.iter().rposition(|&(to, _)| to == from)?;
        let shape = self.shapes[at].1;
        self.shapes.truncate(at);
        Some(shape)
    }

    /// It is on its way down.
    pub const fn goes_down(&self) -> bool {
        matches!(self.place, ListOwner::Sent { .. } | ListOwner::SentBy { .. } | ListOwner::SentOf { .. })
    }

    /// It is on its way up, or was.
    pub const fn goes_up(&self) -> bool {
        matches!(self.place, ListOwner::Indicated { .. } | ListOwner::IndicatedOf { .. })
    }

    /// Whether a module has it, or it is on its way and belongs to the module.
    fn is_of(&self, module: usize) -> bool {
        let own = [ListOwner::SentOf { module }, ListOwner::IndicatedOf { module }];
        self.holder == Holder::Module(module) || own.contains(&self.place)
    }
}

/// Pools, and the lists by their address.
#[derive(Default)]
pub struct Pools {
    by_handle: LiteMap<usize, Pool>,
    lists: LiteMap<usize, List>,
    /// MDLs that drivers have allocated here.
    mdls: LiteMap<usize, Owner>,
}

impl Part for Mutex<Pools> {}

impl Pools {
    /// Nothing may be left of those that `of` recognises.
    pub fn check_nothing_left(&self, of: impl Fn(Owner) -> bool, name: &str) {
        let is_left = |pool: &&Pool| of(pool.owner) && (!pool.is_of_ndis || pool.lists > 0);
        if let Some(pool) = self.by_handle.values().find(is_left) {
            let lists = pool.lists;
            bug_check(Rule::PoolLeak, format_args!("{name} left a pool with {lists} net buffer lists in use"));
        }
        let mdls = self.mdls.values().filter(|&&owner| of(owner)).count();
        if mdls > 0 {
            bug_check(Rule::PoolLeak, format_args!("{name} left {mdls} MDLs of NDIS"));
        }
    }

    /// The list at that address.
    pub fn list(&mut self, address: usize) -> &mut List {
        self.lists.get_mut(&address).unwrap_or_else(|| {
            bug_check(Rule::NblNotOwned, format_args!("there is no net buffer list at {address:#x}, or it is free"))
        })
    }

    /// A list of the protocols that is at a miniport.
    pub fn send(&mut self, address: usize, adapter: usize, send: usize) {
        self.lists.insert(address, List::new(None, ListOwner::Sent { adapter, send }));
    }

    /// Whether the list is out of a pool of the driver, and at home.
    pub fn is_own(&mut self, address: usize, driver: DriverId) -> bool {
        let pool = self.list(address).pool.and_then(|pool| self.by_handle.get(&pool));
        let is_own = pool.is_some_and(|pool| pool.owner.driver == driver);
        is_own && self.list(address).place == ListOwner::Home
    }

    /// A protocol gives a list of its own to the miniport below a binding.
    pub fn send_by(&mut self, address: usize, driver: DriverId, adapter: usize, binding: usize) {
        let is_own = self.is_own(address, driver);
        let list = self.list(address);
        if !is_own {
            bug_check(Rule::NblNotOwned, format_args!("a list is sent that others have: {:?}", list.place));
        }
        list.place = ListOwner::SentBy { adapter, binding };
    }

    /// The lists that a module has, or that are its own and on their way, by their addresses.
    pub fn of_module(&self, module: usize) -> Vec<usize> {
        self.lists.iter().filter(|(_, list)| list.is_of(module)).map(|(&address, _)| address).collect()
    }

    /// It has come back.
    pub fn forget(&mut self, address: usize) {
        self.lists.remove(&address);
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisAllocateNetBufferListPool(
    handle: NDIS_HANDLE,
    parameters: *const NET_BUFFER_LIST_POOL_PARAMETERS,
) -> NDIS_HANDLE {
    ndis_routine!("NdisAllocateNetBufferListPool", DISPATCH_LEVEL, |state| {
        let owner = state.owner_of(handle);
        let expected = NET_BUFFER_LIST_POOL_PARAMETERS::HEADER;
        // SAFETY: the driver's structure, which lives until the call returns.
        let parameters = unsafe { read(parameters, expected, "NET_BUFFER_LIST_POOL_PARAMETERS") };
        if parameters.PoolTag == 0 {
            bug_check(Rule::PoolTag, format_args!("a pool of net buffer lists without a tag"));
        }
        // A protocol says which one it is, and a miniport that it is none.
        let is_odd = parameters.ProtocolId != ndis::NDIS_PROTOCOL_ID_DEFAULT && !state.is_protocol(owner.handle);
        if is_odd || !parameters.ContextSize.is_multiple_of(16) {
            bug_check(Rule::BadArgument, format_args!("{parameters:?}"));
        }
        if parameters.DataSize != 0 {
            bug_check(Rule::NotSimulated, format_args!("a pool of net buffer lists that come with data"));
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let pool = state.new_handle();
        state.locked::<Pools>().by_handle.insert(pool, Pool { owner, parameters, lists: 0, is_of_ndis: false });
        pointer(pool)
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisFreeNetBufferListPool(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFreeNetBufferListPool", DISPATCH_LEVEL, |state| {
        let Some(pool) = state.locked::<Pools>().by_handle.remove(&handle.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no pool of net buffer lists, or was one"));
        };
        if pool.lists > 0 {
            bug_check(Rule::NblPoolInUse, format_args!("a pool is freed with {} net buffer lists in use", pool.lists));
        }
    });
}

/// The pool with that handle.
fn with_pool<R>(state: &State, handle: NDIS_HANDLE, work: impl FnOnce(&mut Pool) -> R) -> R {
    let mut pools = state.locked::<Pools>();
    let Some(pool) = pools.by_handle.get_mut(&handle.addr()) else {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no pool of net buffer lists, or was one"));
    };
    work(pool)
}

/// Ends the test if a net buffer is to describe bytes of no chain.
pub fn check_bytes(Bytes { chain, offset, length }: Bytes) {
    if chain.is_null() && (offset != 0 || length != 0) {
        bug_check(Rule::BadArgument, format_args!("{length} bytes at {offset} of no MDL"));
    }
}

/// The pool of NDIS's own from which the calling driver gets lists.
pub fn of_ndis(state: &State) -> usize {
    let driver = context::caller();
    let mut pools = state.locked::<Pools>();
    let mut all = pools.by_handle.iter();
    let found = all.find_map(|(&handle, pool)| (pool.is_of_ndis && pool.owner.driver == driver).then_some(handle));
    found.unwrap_or_else(|| {
        let handle = state.new_handle();
        let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
            Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
            ProtocolId: ndis::NDIS_PROTOCOL_ID_DEFAULT,
            fAllocateNetBuffer: 0,
            ContextSize: 0,
            PoolTag: TAG,
            DataSize: 0,
        };
        let owner = Owner { driver, handle };
        pools.by_handle.insert(handle, Pool { owner, parameters, lists: 0, is_of_ndis: true });
        handle
    })
}

/// A net buffer of the calling driver's that is out of no pool. `None` if there is no memory.
pub fn loose_buffer(state: &State, tag: u32, bytes: Bytes) -> Option<*mut NET_BUFFER> {
    let size = size_of::<NET_BUFFER>();
    let place = if state.strikes() { None } else { pool::allocate(context::caller(), size, tag, true) }?;
    let buffer: *mut NET_BUFFER = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: a new block of that size; the chain is one or null.
    unsafe { frame::write_buffer(buffer, std::ptr::null_mut(), bytes.chain, bytes.offset, bytes.length) };
    Some(buffer)
}

/// A new list out of a pool, at home: with a context of so many bytes in use and as many to spare, and with a net buffer if it has bytes.
/// `None` if there is no memory.
pub fn new_list(
    state: &State,
    pool: usize,
    (used, back_fill): (u16, u16),
    bytes: Option<Bytes>,
) -> Option<*mut NET_BUFFER_LIST> {
    let (owner, parameters) = with_pool(state, pointer(pool), |pool| (pool.owner, pool.parameters));
    // The pool's own size is what a list has at least.
    let room = used.checked_add(back_fill).map(|room| room.max(parameters.ContextSize));
    let Some(room) = room.filter(|_| used.is_multiple_of(16) && back_fill.is_multiple_of(16)) else {
        bug_check(Rule::BadArgument, format_args!("a context of {used} and {back_fill} bytes"));
    };
    if state.strikes() {
        return None;
    }
    let context = if room == 0 { 0 } else { list_context::HEADER + usize::from(room) };
    let buffer = if bytes.is_some() { size_of::<NET_BUFFER>() } else { 0 };
    let size = size_of::<NET_BUFFER_LIST>() + buffer + context;
    let place = pool::allocate(owner.driver, size, parameters.PoolTag, true)?;
    let list: *mut NET_BUFFER_LIST = std::ptr::with_exposed_provenance_mut(place);
    let (mut first, mut start) = (std::ptr::null_mut(), std::ptr::null_mut::<ListContext>());
    if let Some(bytes) = bytes {
        first = list.wrapping_add(1).cast::<NET_BUFFER>();
        // SAFETY: a new block with room for it behind the list; the chain is one or null.
        unsafe { frame::write_buffer(first, pointer(pool), bytes.chain, bytes.offset, bytes.length) };
    }
    if room > 0 {
        start = list.wrapping_add(1).wrapping_byte_add(buffer).cast();
        // SAFETY: a new block with room for it behind the list and the net buffer.
        unsafe { list_context::write(start, std::ptr::null_mut(), room, used) };
    }
    // SAFETY: a new block, which begins with the list.
    unsafe { frame::write_list(list, pointer(pool), first, start.cast()) };
    state.track(place, NOBODY, Object::plain(Kind::NetBufferList));
    let mut pools = state.locked::<Pools>();
    if let Some(pool) = pools.by_handle.get_mut(&pool) {
        pool.lists += 1;
    }
    pools.lists.insert(place, List::new(Some(pool), ListOwner::Home));
    Some(list)
}

/// A list is a clone of another one.
pub fn mark_clone(state: &State, list: *mut NET_BUFFER_LIST) {
    state.locked::<Pools>().list(list.addr()).is_clone = true;
}

/// Ends the test unless a list is with whom it belongs to, and no protocol's of the test.
pub fn check_home(state: &State, list: *mut NET_BUFFER_LIST) {
    state.check_list(list);
    let mut pools = state.locked::<Pools>();
    let entry = pools.list(list.addr());
    if entry.pool.is_none() {
        bug_check(Rule::NblNotOwned, format_args!("a miniport frees a net buffer list of a protocol"));
    }
    let place = entry.place.clone();
    if place != ListOwner::Home {
        bug_check(Rule::NblNotOwned, format_args!("a net buffer list is freed that others have: {place:?}"));
    }
}

/// Frees a list that [`new_list`] has made.
pub fn free_list(state: &State, list: *mut NET_BUFFER_LIST) {
    check_home(state, list);
    state.check_no_context(list.addr());
    let mut pools = state.locked::<Pools>();
    let pool = pools.lists.remove(&list.addr()).and_then(|list| list.pool);
    let tag = pool.and_then(|pool| pools.by_handle.get_mut(&pool)).map_or(TAG, |pool| {
        pool.lists -= 1;
        pool.parameters.PoolTag
    });
    drop(pools);
    state.untrack_and_remember(list.addr(), Kind::NetBufferList, ", and freed since");
    pool::free(list.expose_provenance(), Some(tag));
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisAllocateNetBufferAndNetBufferList(
    handle: NDIS_HANDLE,
    context_size: u16,
    back_fill: u16,
    chain: *mut MDL,
    offset: u32,
    length: usize,
) -> *mut NET_BUFFER_LIST {
    ndis_routine!("NdisAllocateNetBufferAndNetBufferList", DISPATCH_LEVEL, |state| {
        if with_pool(state, handle, |pool| pool.parameters.fAllocateNetBuffer) == 0 {
            bug_check(Rule::BadArgument, format_args!("a net buffer out of a pool whose lists have none"));
        }
        let bytes = Bytes { chain, offset, length };
        check_bytes(bytes);
        let list = new_list(state, handle.addr(), (context_size, back_fill), Some(bytes));
        list.unwrap_or(std::ptr::null_mut())
    })
}

/// Without a net buffer: a pool whose lists have one, with data, is not simulated.
#[unsafe(no_mangle)]
extern "system" fn NdisAllocateNetBufferList(
    handle: NDIS_HANDLE,
    context_size: u16,
    back_fill: u16,
) -> *mut NET_BUFFER_LIST {
    ndis_routine!("NdisAllocateNetBufferList", DISPATCH_LEVEL, |state| {
        new_list(state, handle.addr(), (context_size, back_fill), None).unwrap_or(std::ptr::null_mut())
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisFreeNetBufferList(list: *mut NET_BUFFER_LIST) {
    ndis_routine!("NdisFreeNetBufferList", DISPATCH_LEVEL, |state| {
        if state.locked::<Pools>().list(list.addr()).is_clone {
            let words = "a clone is freed that is NdisFreeCloneNetBufferList's to free, with its net buffers";
            bug_check(Rule::NblNotOwned, format_args!("{words}"));
        }
        free_list(state, list);
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisAllocateMdl(handle: NDIS_HANDLE, address: *mut c_void, length: u32) -> *mut MDL {
    ndis_routine!("NdisAllocateMdl", DISPATCH_LEVEL, |state| {
        let owner = state.owner_of(handle);
        let Some(mdl) = mdl::allocate(state, owner.driver, address, length) else { return std::ptr::null_mut() };
        mdl::build(state, mdl);
        state.locked::<Pools>().mdls.insert(mdl.addr(), owner);
        mdl.cast()
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisFreeMdl(mdl: *mut MDL) {
    ndis_routine!("NdisFreeMdl", DISPATCH_LEVEL, |state| {
        if state.locked::<Pools>().mdls.remove(&mdl.addr()).is_none() {
            bug_check(Rule::BadMdl, format_args!("{mdl:p} is no MDL of NdisAllocateMdl, or was one"));
        }
        mdl::free(state, mdl.cast());
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisGetDataBuffer(
    buffer: *mut NET_BUFFER,
    needed: u32,
    storage: *mut c_void,
    multiple: u32,
    offset: u32,
) -> *mut c_void {
    ndis_routine!("NdisGetDataBuffer", DISPATCH_LEVEL, |_| {
        if !multiple.is_power_of_two() || offset >= multiple {
            bug_check(Rule::BadArgument, format_args!("an alignment of {multiple} with the offset {offset}"));
        }
        // SAFETY: the driver's net buffer, or that of a list that it has.
        let net_buffer = unsafe { buffer.read() };
        let needed = needed as usize;
        if needed == 0 || needed > frame::length_of(&net_buffer) {
            return std::ptr::null_mut();
        }
        let first = frame::pieces(&net_buffer).into_iter().next();
        if let Some((start, length)) = first {
            let address = start.addr();
            if length >= needed && address % multiple as usize == offset as usize {
                return start.cast();
            }
        }
        if storage.is_null() {
            return std::ptr::null_mut();
        }
        let bytes = frame::bytes_of(&net_buffer);
        let target = storage.cast::<u8>();
        // SAFETY: the driver's storage has room for as many bytes as it asks for.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), needed) };
        storage
    })
}
