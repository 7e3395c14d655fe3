//! What a restart tells each driver of a stack of those below it: a list of attributes, which filters may change.

use std::{ffi::c_void, sync::Arc};

use ndkpi::{NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};

use super::adapter::Adapter;
use crate::{context::NOBODY, pool, state::lock};

/// The tag of attributes.
const TAG: u32 = u32::from_ne_bytes(*b"NDra");
/// `OID_GEN_MINIPORT_RESTART_ATTRIBUTES`.
const GENERAL: u32 = 0x0001_021D;
/// The bytes of the first revision.
const GENERAL_SIZE: u16 = 84;

/// `NDIS_RESTART_ATTRIBUTES` as it begins; its data is behind it.
#[repr(C)]
struct Head {
    next: *mut Self,
    oid: u32,
    length: u32,
}

/// `NDIS_RESTART_GENERAL_ATTRIBUTES` of the first revision.
#[repr(C)]
struct General {
    header: NDIS_OBJECT_HEADER,
    mtu: u32,
    /// Of sending and of receiving, at most.
    speeds: [u64; 2],
    lookahead: u32,
    mac_options: u32,
    packet_filters: u32,
    multicast: u32,
    scaling: *const c_void,
    access: u32,
    flags: u32,
    connection: u32,
    statistics: u32,
    data_back_fill: u32,
    context_back_fill: u32,
    oids: *const u32,
    oids_length: u32,
}

// The fields of the DDI reference in their order, as C lays them out.
const _: () = {
    assert!(size_of::<Head>() == 16, "the data begins where memory for anything may");
    assert!(std::mem::offset_of!(General, oids_length) + 4 == GENERAL_SIZE as usize, "the last field");
};

/// The attributes of one restart, in blocks that a filter may free, with those that it adds.
pub struct Attributes {
    first: *mut Head,
    /// What the attributes point to.
    _oids: Arc<[u32]>,
}

impl Attributes {
    /// Those of an adapter. None if there is no memory.
    pub fn of(adapter: &Adapter) -> Self {
        let changing = lock(&adapter.changing);
        let Some(general) = changing.attributes.general.as_ref() else {
            return Self { first: std::ptr::null_mut(), _oids: Arc::default() };
        };
        let oids: Arc<[u32]> = general.oids.as_slice().into();
        let block = pool::allocate(NOBODY, size_of::<Head>() + size_of::<General>(), TAG, false);
        let first: *mut Head = block.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut);
        if !first.is_null() {
            let head = Head { next: std::ptr::null_mut(), oid: GENERAL, length: u32::from(GENERAL_SIZE) };
            let data = General {
                header: NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, 1, GENERAL_SIZE),
                mtu: general.mtu,
                speeds: [general.link_speed; 2],
                lookahead: general.mtu,
                mac_options: general.mac_options,
                packet_filters: super::bind::FILTERS,
                multicast: super::bind::ADDRESSES,
                scaling: std::ptr::null(),
                access: 2,
                flags: 0,
                connection: 1,
                statistics: 0,
                data_back_fill: 0,
                context_back_fill: 0,
                oids: oids.as_ptr(),
                oids_length: u32::try_from(size_of_val(&*oids)).unwrap_or(0),
            };
            // SAFETY: a new block with room for both.
            unsafe {
                first.write(head);
                first.add(1).cast::<General>().write(data);
            }
        }
        Self { first, _oids: oids }
    }

    /// The list as a driver has it.
    pub const fn first(&self) -> *mut c_void {
        self.first.cast()
    }

    /// The list as a filter left it.
    pub const fn set_first(&mut self, first: *mut c_void) {
        self.first = first.cast();
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        while !self.first.is_null() {
            // SAFETY: a block of the list, which is freed after it is read.
            let next = unsafe { (*self.first).next };
            pool::free(self.first.expose_provenance(), None);
            self.first = next;
        }
    }
}
