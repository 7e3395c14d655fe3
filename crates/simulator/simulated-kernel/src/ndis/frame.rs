//! Net buffers and their lists: made for the protocols, and read.

use std::ffi::c_void;

use ndis::{
    Ieee8021QNetBufferListInfo, NDIS_STATUS, NET_BUFFER, NET_BUFFER_DATA_LENGTH, NET_BUFFER_LIST,
    NetBufferListCancelId, NetBufferListFrameType,
};
use ndkpi::{MDL as OPAQUE_MDL, NDIS_HANDLE, status::NDIS_STATUS_PENDING};
use wdk_bindings::{CSHORT, MDL, MDL_SOURCE_IS_NONPAGED_POOL, ULONG};

use crate::{
    context::NOBODY,
    ndis::structure::pointer,
    pool,
    report::bug_check,
    rule::Rule,
    state::State,
    tracked::{Kind, Object},
};

/// What protocols leave in the fields of a list that are theirs to write. No miniport means any of it.
const LEFT_FLAGS: u32 = 0x00D1_0000;
const LEFT_STATUS: NDIS_STATUS = ndis::NDIS_STATUS_FAILURE;
const LEFT_INFO: usize = 0xD1D1_D1D1_0000;

/// The tag of the protocols' frames.
const TAG: u32 = u32::from_ne_bytes(*b"NDfr");

/// Writes a net buffer that describes so many bytes of a chain.
///
/// # Safety
///
/// `place` is memory for one that nobody else uses, and the chain is one or null.
pub unsafe fn write_buffer(
    place: *mut NET_BUFFER,
    pool: NDIS_HANDLE,
    chain: *mut OPAQUE_MDL,
    offset: u32,
    length: usize,
) {
    let (current, inside) = walk(chain.cast(), offset as usize);
    let buffer = NET_BUFFER {
        Next: std::ptr::null_mut(),
        CurrentMdl: current.cast(),
        CurrentMdlOffset: u32::try_from(inside).unwrap_or(0),
        DataLength: NET_BUFFER_DATA_LENGTH { stDataLength: length },
        MdlChain: chain,
        DataOffset: offset,
        Padding: 0,
        ChecksumBias: 0,
        Reserved: 0,
        NdisPoolHandle: pool,
        NdisReserved: [std::ptr::null_mut(); 2],
        ProtocolReserved: [std::ptr::null_mut(); 6],
        MiniportReserved: [std::ptr::null_mut(); 4],
        DataPhysicalAddress: 0,
        SharedMemoryInfo: std::ptr::null_mut(),
    };
    // SAFETY: `place` is memory for a net buffer that nobody else uses (`# Safety`).
    unsafe { place.write(buffer) };
}

/// Writes a list with these net buffers.
///
/// # Safety
///
/// `place` is memory for one that nobody else uses.
pub unsafe fn write_list(place: *mut NET_BUFFER_LIST, pool: NDIS_HANDLE, first: *mut NET_BUFFER, context: *mut c_void) {
    let list = NET_BUFFER_LIST {
        Next: std::ptr::null_mut(),
        FirstNetBuffer: first,
        Context: context,
        ParentNetBufferList: std::ptr::null_mut(),
        NdisPoolHandle: pool,
        Padding: std::ptr::null_mut(),
        NdisReserved: [std::ptr::null_mut(); 2],
        ProtocolReserved: [std::ptr::null_mut(); 4],
        MiniportReserved: [std::ptr::null_mut(); 2],
        Scratch: std::ptr::null_mut(),
        SourceHandle: std::ptr::null_mut(),
        NblFlags: 0,
        ChildRefCount: 0,
        Flags: 0,
        Status: NDIS_STATUS::SUCCESS,
        NetBufferListInfo: [std::ptr::null_mut(); ndis::MaxNetBufferListInfo],
    };
    // SAFETY: `place` is memory for a list that nobody else uses (`# Safety`).
    unsafe { place.write(list) };
}

/// The MDL of a chain that a byte lies in, and where in it.
pub fn walk(mut mdl: *mut MDL, mut offset: usize) -> (*mut MDL, usize) {
    // SAFETY: null, or an MDL of the chain, which lives as long as the net buffer.
    while let Some(here) = unsafe { mdl.as_ref() } {
        let count = here.ByteCount as usize;
        if offset < count || here.Next.is_null() {
            break;
        }
        offset -= count;
        mdl = here.Next;
    }
    (mdl, offset)
}

/// The bytes of a frame.
pub fn length_of(buffer: &NET_BUFFER) -> usize {
    // SAFETY: every value of the union's numbers is one; drivers read and write the 32 bits.
    (unsafe { buffer.DataLength.DataLength }) as usize
}

/// Where the bytes of a frame lie.
pub fn pieces(buffer: &NET_BUFFER) -> Vec<(*mut u8, usize)> {
    let mut left = length_of(buffer);
    let (mut mdl, mut offset) = walk(buffer.MdlChain.cast(), buffer.DataOffset as usize);
    if mdl.addr() != buffer.CurrentMdl.addr() || offset != buffer.CurrentMdlOffset as usize {
        bug_check(Rule::NblNotOwned, format_args!("CurrentMdl and CurrentMdlOffset do not say what DataOffset says"));
    }
    let mut pieces = Vec::new();
    while left > 0 {
        // SAFETY: null, or an MDL of the chain, which lives as long as the net buffer.
        let Some(here) = (unsafe { mdl.as_ref() }) else {
            bug_check(Rule::BadMdl, format_args!("a frame is longer than its chain of MDLs by {left} bytes"));
        };
        let count = left.min((here.ByteCount as usize).saturating_sub(offset));
        if count > 0 {
            let start = here.MappedSystemVa.cast::<u8>().wrapping_add(offset);
            pool::check_live(start.addr(), format_args!("the bytes of a frame are in"));
            pieces.push((start, count));
        }
        (left, offset, mdl) = (left - count, 0, here.Next);
    }
    pieces
}

/// The bytes of a frame.
pub fn bytes_of(buffer: &NET_BUFFER) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length_of(buffer));
    for (start, length) in pieces(buffer) {
        // SAFETY: a piece of a chain's memory, which its owner does not change now.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
    }
    bytes
}

/// The lists of a chain. A list that is free breaks `rule`.
pub fn lists_of(state: &State, first: *mut NET_BUFFER_LIST, rule: Rule) -> Vec<*mut NET_BUFFER_LIST> {
    let (mut lists, mut list) = (Vec::new(), first);
    while !list.is_null() {
        if pool::is_live(list.addr()) == Some(false) {
            bug_check(rule, format_args!("the net buffer list at {list:p} is free"));
        }
        if lists.contains(&list) {
            bug_check(Rule::NblNotOwned, format_args!("a net buffer list is twice in one chain"));
        }
        state.check_list(list);
        lists.push(list);
        // SAFETY: a list of the chain.
        list = unsafe { (*list).Next };
    }
    lists
}

/// Links lists to each other in this order.
pub fn link(lists: &[*mut NET_BUFFER_LIST]) {
    for (index, &list) in lists.iter().enumerate() {
        let next = lists.get(index + 1).copied().unwrap_or(std::ptr::null_mut());
        // SAFETY: NDIS has the list, between whom it comes from and whom it goes to.
        unsafe { (*list).Next = next };
    }
}

/// The net buffers of a list.
pub fn buffers_of(list: *mut NET_BUFFER_LIST) -> Vec<NET_BUFFER> {
    // SAFETY: a list that somebody has handed over.
    let mut buffer = unsafe { (*list).FirstNetBuffer };
    let mut buffers = Vec::new();
    while !buffer.is_null() {
        // SAFETY: a net buffer of the list.
        let here = unsafe { buffer.read() };
        buffers.push(here);
        buffer = here.Next;
    }
    buffers
}

/// A number for what of a list the miniport must not change while it has it.
pub fn shape_of(list: *mut NET_BUFFER_LIST) -> u64 {
    let mut shape = 0xCBF2_9CE4_8422_2325_u64;
    let mut mix = |value: u64| shape = (shape ^ value).wrapping_mul(0x0100_0000_01B3);
    // SAFETY: a list that somebody has.
    mix(unsafe { (*list).FirstNetBuffer }.addr() as u64);
    for buffer in buffers_of(list) {
        mix(buffer.Next.addr() as u64);
        mix(buffer.MdlChain.addr() as u64);
        mix(u64::from(buffer.DataOffset));
        mix(length_of(&buffer) as u64);
        for byte in bytes_of(&buffer) {
            mix(u64::from(byte));
        }
    }
    shape
}

/// What lists carry beside their frames.
#[derive(Clone, Copy, Default)]
pub struct Oob {
    /// The identifier by which they can be cancelled.
    pub cancel: usize,
    /// `NDIS_NET_BUFFER_LIST_8021Q_INFO`.
    pub tag: usize,
}

impl State {
    /// A driver hands a list over: it may not be a copy of one.
    pub fn check_list(&self, list: *mut NET_BUFFER_LIST) {
        if !self.is_tracked(list.addr(), Kind::NetBufferList) {
            self.check_moved(list.addr(), Kind::NetBufferList);
        }
    }
}

/// How the bytes of a frame are laid out in memory: bytes before them, and where they are split.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub before: usize,
    pub pieces: usize,
}

fn block(size: usize) -> usize {
    pool::allocate(NOBODY, size.max(1), TAG, false)
        .unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("no memory for a frame")))
}

/// A chain of MDLs with these bytes.
fn chain(bytes: &[u8], layout: Layout) -> *mut MDL {
    let pieces = layout.pieces.clamp(1, bytes.len().max(1));
    let mut first: *mut MDL = std::ptr::null_mut();
    // From the end, so that each can point to the next one.
    for piece in (0..pieces).rev() {
        let part = &bytes[bytes.len() * piece / pieces..bytes.len() * (piece + 1) / pieces];
        let before = if piece == 0 { layout.before } else { 0 };
        let place = block(before + part.len());
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(place);
        // SAFETY: a new block with room for both.
        unsafe { start.wrapping_add(before).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        let offset = place % pool::PAGE;
        let mdl: *mut MDL = std::ptr::with_exposed_provenance_mut(block(size_of::<MDL>()));
        #[expect(clippy::cast_possible_truncation, reason = "a flag of sixteen bits")]
        let flags = (MDL_SOURCE_IS_NONPAGED_POOL as u16).cast_signed();
        let new = MDL {
            Next: first,
            Size: CSHORT::try_from(size_of::<MDL>()).unwrap_or(0),
            MdlFlags: flags,
            MappedSystemVa: start.cast(),
            StartVa: start.wrapping_sub(offset).cast(),
            ByteCount: ULONG::try_from(before + part.len()).unwrap_or(0),
            ByteOffset: ULONG::try_from(offset).unwrap_or(0),
            ..MDL::default()
        };
        // SAFETY: a new block of that size.
        unsafe { mdl.write(new) };
        first = mdl;
    }
    first
}

/// A list of the protocols with these frames.
pub fn make(state: &State, frames: &[&[u8]], layout: Layout, oob: Oob) -> *mut NET_BUFFER_LIST {
    let mut first: *mut NET_BUFFER = std::ptr::null_mut();
    for frame in frames.iter().rev() {
        let buffer: *mut NET_BUFFER = std::ptr::with_exposed_provenance_mut(block(size_of::<NET_BUFFER>()));
        let chain = chain(frame, layout).cast();
        let offset = u32::try_from(layout.before).unwrap_or(0);
        // SAFETY: a new block of that size, and a new chain.
        unsafe { write_buffer(buffer, std::ptr::null_mut(), chain, offset, frame.len()) };
        // SAFETY: the net buffer was just written.
        unsafe { (*buffer).Next = first };
        first = buffer;
    }
    let list: *mut NET_BUFFER_LIST = std::ptr::with_exposed_provenance_mut(block(size_of::<NET_BUFFER_LIST>()));
    // SAFETY: a new block of that size.
    unsafe { write_list(list, std::ptr::null_mut(), first, std::ptr::null_mut()) };
    state.track(list.expose_provenance(), NOBODY, Object::plain(Kind::NetBufferList));
    // SAFETY: the list was just written, and nobody else has it.
    let info = unsafe {
        (*list).Status = NDIS_STATUS_PENDING;
        &mut (*list).NetBufferListInfo
    };
    info[NetBufferListCancelId] = pointer(oob.cancel);
    info[Ieee8021QNetBufferListInfo] = pointer(oob.tag);
    // As protocols fill it in, for whoever is interested.
    info[NetBufferListFrameType] = pointer(0x0008);
    list
}

/// The protocols are done with a list: what they leave in it is theirs.
pub fn soil(list: *mut NET_BUFFER_LIST) {
    // SAFETY: the protocols have the list.
    let soiled = unsafe { &mut *list };
    soiled.NblFlags |= LEFT_FLAGS;
    soiled.Status = LEFT_STATUS;
    soiled.Scratch = pointer(LEFT_INFO);
    soiled.ProtocolReserved = [pointer(LEFT_INFO); 4];
    for (slot, info) in soiled.NetBufferListInfo.iter_mut().enumerate() {
        *info = pointer(LEFT_INFO + slot);
    }
}

/// A list is indicated: nothing may be in it of what the drivers above have left there.
pub fn check_clean(list: &NET_BUFFER_LIST) {
    let wrong = |what: &str| {
        bug_check(Rule::NblLeftover, format_args!("a list is indicated with what the drivers above had left in {what}"))
    };
    if list.NblFlags & LEFT_FLAGS != 0 {
        wrong("NblFlags");
    }
    if list.Status == LEFT_STATUS {
        wrong("Status");
    }
    let is_left = |(slot, info): (usize, &*mut c_void)| (info.addr() == LEFT_INFO + slot).then_some(slot);
    if let Some(slot) = list.NetBufferListInfo.iter().enumerate().find_map(is_left) {
        wrong(&format!("NetBufferListInfo[{slot}]"));
    }
}

/// Frees a list that [`make`] has made.
pub fn free(state: &State, list: *mut NET_BUFFER_LIST) {
    // SAFETY: a list of the protocols, which is back.
    let mut buffer = unsafe { (*list).FirstNetBuffer };
    while !buffer.is_null() {
        // SAFETY: a net buffer of the list.
        let here = unsafe { buffer.read() };
        let mut mdl: *mut MDL = here.MdlChain.cast();
        while !mdl.is_null() {
            // SAFETY: an MDL of the chain.
            let piece = unsafe { mdl.read() };
            pool::free(piece.MappedSystemVa.expose_provenance(), Some(TAG));
            pool::free(mdl.expose_provenance(), Some(TAG));
            mdl = piece.Next;
        }
        pool::free(buffer.expose_provenance(), Some(TAG));
        buffer = here.Next;
    }
    state.untrack_and_remember(list.addr(), Kind::NetBufferList, ", and completed since");
    pool::free(list.expose_provenance(), Some(TAG));
}
