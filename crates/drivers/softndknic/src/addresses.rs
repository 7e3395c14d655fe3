//! The addresses of an adapter: those that Windows has on its interface and prefers. `NdkListen` and `NdkConnect` accept these and
//! refuse others.
//!
//! An address that goes takes its listeners along: nobody finds them any more, and nothing new begins there. Connections that
//! have it go on. One that is tentative again has not gone: so Windows has the addresses of an interface that has lost its link, as
//! that of an adapter that sleeps, and prefers them when the link is back.

use alloc::boxed::Box;
use core::{
    ffi::c_void,
    net::SocketAddr,
    ptr, slice,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Release},
    },
};

use driver_common::trace;
use engine::connection::InterfaceAddress;
use fallible::{Arc, try_box};
use kernel::WaitLock;
use ndis::{
    AF_UNSPEC, CancelMibChangeNotify2, FreeMibTable, GetUnicastIpAddressTable, MIB_NOTIFICATION_TYPE,
    MIB_UNICASTIPADDRESS_ROW, NL_DAD_STATE, NotifyUnicastIpAddressChange,
};
use ndkpi::{NDIS_HANDLE, NtStatus};

use crate::{
    adapter::Adapter,
    work::{Job, Work},
};

/// Addresses of an interface that are used at most.
pub const MAX_ADDRESSES: usize = 16;

/// Addresses, the first ones in use.
type List = [Option<InterfaceAddress>; MAX_ADDRESSES];

/// The addresses of one adapter.
pub struct Addresses {
    /// What the provider has.
    known: WaitLock<Box<List>>,
    /// The registration for changes; null without one.
    registration: AtomicPtr<c_void>,
    work: Work,
}

impl Addresses {
    /// No addresses yet.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until [`Addresses::end`] has returned or the result is dropped.
    #[inline(never)]
    pub unsafe fn try_new(adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        let known = try_box([None; MAX_ADDRESSES]).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(Self {
            known: WaitLock::try_new(known)?,
            registration: AtomicPtr::new(ptr::null_mut()),
            // SAFETY: the adapter lives until `end` has returned or the result is dropped, which closes the work (`# Safety`).
            work: unsafe { Work::try_new(adapter) }?,
        })
    }

    /// Follows the interface's addresses from now on. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn begin(adapter: &Arc<Adapter>) -> Result<(), NtStatus> {
        let mut registration = ptr::null_mut();
        let context = Arc::as_ptr(adapter).cast_mut().cast();
        // SAFETY: the adapter lives until the registration is cancelled, by `end`; the place lives until the call returns. The
        // first notification comes at once, and has the table be read.
        let status =
            unsafe { NotifyUnicastIpAddressChange(AF_UNSPEC, Some(changed), context, 1, &raw mut registration) };
        adapter.addresses().registration.store(registration, Release);
        // The IP helper has several words for it; NDIS wants its own.
        if status.is_success() { Ok(()) } else { Err(NtStatus::INSUFFICIENT_RESOURCES) }
    }

    /// Follows them no more. `PASSIVE_LEVEL`, no lock held: waits for notifications and work that go on.
    pub fn end(&self) {
        let registration = self.registration.swap(ptr::null_mut(), AcqRel);
        if !registration.is_null() {
            // SAFETY: the registration is ours, and cancelled once.
            let _ = unsafe { CancelMibChangeNotify2(registration) };
        }
        self.work.close();
    }
}

/// At an IRQL that is not documented, so all it does is to ask for work.
unsafe extern "system" fn changed(
    context: *mut c_void,
    _row: *mut MIB_UNICASTIPADDRESS_ROW,
    _kind: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: the adapter, which is counted until the registration is cancelled; this reference is not dropped.
    let adapter = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(context.cast_const().cast::<Adapter>()) });
    Work::request::<Read>(&adapter);
}

/// The interface's addresses in the table of the machine: those that Windows prefers, and those that are tentative.
///
/// # Errors
///
/// What the IP helper says.
fn read(adapter: &Adapter) -> Result<(List, List), NtStatus> {
    let mut table = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
    if !status.is_success() || table.is_null() {
        return Err(status);
    }
    // SAFETY: the table is ours until it is freed.
    let count = (unsafe { (*table).NumEntries }) as usize;
    // SAFETY: as above; no reference to the one row that the type has.
    let rows = unsafe { &raw const (*table).Table }.cast::<MIB_UNICASTIPADDRESS_ROW>();
    // SAFETY: the table has as many rows as it says.
    let rows = unsafe { slice::from_raw_parts(rows, count) };
    let address = |row: &MIB_UNICASTIPADDRESS_ROW| {
        let address = row.Address.to_socket_addr()?;
        let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
        Some(InterfaceAddress::new(address.ip(), row.OnLinkPrefixLength).in_scope(scope))
    };
    let in_state = |state| {
        let own = rows.iter().filter(|row| row.InterfaceLuid == adapter.luid() && row.DadState == state);
        let mut list = [None; MAX_ADDRESSES];
        let mut places = list.iter_mut();
        for address in own.filter_map(address) {
            match places.next() {
                Some(place) => *place = Some(address),
                None => trace::address_left_out(adapter.number(), address.address, NtStatus::INSUFFICIENT_RESOURCES),
            }
        }
        list
    };
    let lists = (in_state(NL_DAD_STATE::PREFERRED), in_state(NL_DAD_STATE::TENTATIVE));
    // SAFETY: the table is ours, and not used again.
    unsafe { FreeMibTable(table.cast_const().cast()) };
    Ok(lists)
}

/// Reads the table and tells the provider what is new in it, and what is gone.
struct Read;

impl Job for Read {
    fn work(adapter: &Adapter) -> Option<&Work> {
        Some(&adapter.addresses().work)
    }

    fn run(adapter: &Arc<Adapter>) {
        // Without memory for the table the addresses stay as they are, until the next change.
        let Ok((now, tentative)) = read(adapter) else { return };
        let port = adapter.provider().port();
        adapter.addresses().known.with(|known| {
            for place in known.iter_mut() {
                if let Some(old) =
                    place.take_if(|old| ![&now, &tentative].iter().any(|list| list.contains(&Some(*old))))
                {
                    port.remove_address(old.address);
                    trace::address(adapter.number(), old.address, false);
                }
            }
            for new in now.into_iter().flatten() {
                if known.contains(&Some(new)) {
                    continue;
                }
                // One that the adapter at the other end of the cable has, or for which there is no memory, is tried again at the
                // next change.
                let Some(place) = known.iter_mut().find(|place| place.is_none()) else { continue };
                match port.add_address(new) {
                    Ok(()) => {
                        *place = Some(new);
                        trace::address(adapter.number(), new.address, true);
                    }
                    Err(status) => trace::address_left_out(adapter.number(), new.address, status),
                }
            }
        });
    }
}
