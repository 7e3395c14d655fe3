//! Registrations by handle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use nd2::abi::{HRESULT, IND2MemoryRegionVtbl, ND_MR_HANDLE, OVERLAPPED};

use crate::version1::held::ComRef;

/// A region of version 2.
pub type Region = Arc<ComRef<IND2MemoryRegionVtbl>>;

/// What a request that is outstanding does with a region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Registers,
    Deregisters,
}

/// The registrations of an adapter.
///
/// A handle is a number that is never used twice, so a client that uses one for too long names nothing.
#[derive(Default)]
pub struct Regions {
    /// The last handle, and the regions.
    all: RwLock<(usize, HashMap<usize, Region>)>,
    /// Requests whose end the client has not heard of yet, by the address of their structures.
    requests: Mutex<HashMap<usize, (usize, Request)>>,
}

impl Regions {
    fn read(&self) -> RwLockReadGuard<'_, (usize, HashMap<usize, Region>)> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, (usize, HashMap<usize, Region>)> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a region a handle.
    pub fn add(&self, region: Region) -> ND_MR_HANDLE {
        let mut all = self.write();
        all.0 += 1;
        let handle = all.0;
        all.1.insert(handle, region);
        ND_MR_HANDLE(handle)
    }

    /// The region with a handle.
    pub fn get(&self, handle: ND_MR_HANDLE) -> Option<Region> {
        self.read().1.get(&handle.0).cloned()
    }

    /// The local token of a region; zero, which is no token, if there is no such region.
    pub fn token(&self, handle: ND_MR_HANDLE) -> u32 {
        self.get(handle).map_or(0, |region| {
            // SAFETY: the region is held.
            unsafe { (region.table().GetLocalToken)(region.as_ptr()) }
        })
    }

    pub fn remove(&self, handle: ND_MR_HANDLE) {
        // Dropped after the lock is released.
        let removed = self.write().1.remove(&handle.0);
        drop(removed);
    }

    /// Every region.
    pub fn list(&self) -> Vec<Region> {
        self.read().1.values().cloned().collect()
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, HashMap<usize, (usize, Request)>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A registration is asked for with this structure.
    pub fn registers(&self, handle: ND_MR_HANDLE, overlapped: *mut OVERLAPPED) {
        self.begins(handle, overlapped, Request::Registers);
    }

    /// The end of a registration is asked for with this structure.
    pub fn deregisters(&self, handle: ND_MR_HANDLE, overlapped: *mut OVERLAPPED) {
        self.begins(handle, overlapped, Request::Deregisters);
    }

    fn begins(&self, handle: ND_MR_HANDLE, overlapped: *mut OVERLAPPED, request: Request) {
        // A request before it with the same structure has ended, and nobody asked how.
        let before = self.requests().insert(overlapped.addr(), (handle.0, request));
        if let Some((handle, Request::Deregisters)) = before {
            self.forget_if_over(ND_MR_HANDLE(handle));
        }
    }

    fn forget_if_over(&self, handle: ND_MR_HANDLE) {
        if self.token(handle) == 0 {
            self.remove(handle);
        }
    }

    /// A request has ended in this way.
    pub fn ended(&self, overlapped: *mut OVERLAPPED, result: HRESULT) {
        let ended = self.requests().remove(&overlapped.addr());
        match ended {
            Some((handle, Request::Registers)) if result != HRESULT::ND_SUCCESS => self.remove(ND_MR_HANDLE(handle)),
            Some((handle, Request::Deregisters)) if result == HRESULT::ND_SUCCESS => self.remove(ND_MR_HANDLE(handle)),
            _ => {}
        }
    }
}
