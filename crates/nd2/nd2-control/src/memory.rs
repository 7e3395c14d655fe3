//! Memory regions and windows.

use core::ptr::NonNull;

use engine::os::{Memory, Os};
use fallible::Arc;
use nd2::abi::{
    HRESULT, IID_IND2MemoryRegion, IID_IND2MemoryWindow, IND2AdapterVtbl, IND2MemoryRegionVtbl, OVERLAPPED,
};
use ndkpi::NtStatus;

use crate::{
    Call, Pages, Request, Server, Session, System,
    handles::{Kind, Object},
    objects::one,
    server::FILE,
    wire::{Handle, Register, Tokens, all, answer},
};

impl<S: System> Session<S> {
    /// `CreateRegion`.
    pub(crate) fn create_region(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter: Object<IND2AdapterVtbl> = self.object(one(request)?)?;
        let iid = IID_IND2MemoryRegion;
        // SAFETY: the adapter is held, the identifier and the place are valid, and every adapter has that file.
        let make = |out| unsafe { (adapter.table().CreateMemoryRegion)(adapter.as_ptr(), &raw const iid, FILE, out) };
        self.make(request, Kind::MemoryRegion, make)
    }

    /// `CreateWindow`.
    pub(crate) fn create_window(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter: Object<IND2AdapterVtbl> = self.object(one(request)?)?;
        let iid = IID_IND2MemoryWindow;
        // SAFETY: the adapter is held, and the identifier and the place are valid.
        let make = |out| unsafe { (adapter.table().CreateMemoryWindow)(adapter.as_ptr(), &raw const iid, out) };
        self.make(request, Kind::MemoryWindow, make)
    }

    /// `RegisterReadable`, `RegisterWritable`: the request stays until the registration has ended, and with it its pages locked.
    pub(crate) fn register(this: &Arc<Self>, request: S::Request, writable: bool) {
        let prepared = this.prepare(&request, writable);
        let (region, handle, flags, memory) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => return request.complete(status, 0),
        };
        let call = match Call::try_new(this, handle, 0, Some(memory.len() as u64)) {
            Ok(call) => call,
            Err(status) => {
                // What refers to the locked pages goes before the request.
                drop(memory);
                return request.complete(status, 0);
            }
        };
        if Call::begin(&call, request).is_err() {
            return;
        }
        let pages = Pages::new(call.clone());
        // SAFETY: the region is held.
        match unsafe { nd2::register_pages::<Server<S>>(region.as_ptr(), memory, flags, pages) } {
            Ok(registration) => call.registered(&registration),
            Err((status, pages)) => pages.refuse(status),
        }
    }

    /// What a registration needs, checked.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn prepare(
        &self,
        request: &S::Request,
        writable: bool,
    ) -> Result<(Object<IND2MemoryRegionVtbl>, u64, u32, <S::Os as Os>::Memory), NtStatus> {
        let input: &Register = all(request.input())?;
        let (handle, address, flags) = (input.region.get(), input.address.get(), input.flags.get());
        let region = self.object(handle)?;
        // Pages that are locked for reading may be shared with other processes, or not be writable at all.
        if nd2::writes(flags) && !writable {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok((region, handle, flags, request.locked(address)?))
    }

    /// `Registered`.
    pub(crate) fn registered(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let region: Object<IND2MemoryRegionVtbl> = self.object(all::<Handle>(input)?.object.get())?;
        let overlapped = NonNull::new(overlapped).ok_or(NtStatus::INVALID_PARAMETER)?;
        // SAFETY: the region is held, and the structure is a call that lives until it ends.
        Ok(unsafe { nd2::report_registered::<Server<S>>(region.as_ptr(), overlapped) })
    }

    /// `Deregister`.
    pub(crate) fn deregister(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let region: Object<IND2MemoryRegionVtbl> = self.object(all::<Handle>(input)?.object.get())?;
        // SAFETY: the region is held, and the structure is a call that lives until it ends.
        Ok(unsafe { (region.table().Deregister)(region.as_ptr(), overlapped) })
    }

    /// `Tokens`.
    pub(crate) fn tokens(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let region: Object<IND2MemoryRegionVtbl> = self.object(one(request)?)?;
        let [local, remote] = tokens_of(&region);
        answer(request.output(), &Tokens { local: local.into(), remote: remote.into() })
    }
}

/// The local and the remote token of a region; zeros if it is not registered.
fn tokens_of(region: &Object<IND2MemoryRegionVtbl>) -> [u32; 2] {
    [region.table().GetLocalToken, region.table().GetRemoteToken].map(|token| {
        // SAFETY: the region is held.
        unsafe { token(region.as_ptr()) }
    })
}
