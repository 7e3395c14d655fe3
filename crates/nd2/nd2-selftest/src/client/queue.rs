//! Queues and queue pairs.

use std::{ffi::c_void, ptr};

use nd2::abi::{HRESULT, KAFFINITY, ND_RESULT, ND2_RESULT, ND2_SGE};

use super::{Client, Qp, Queue, Queue1, Region, Srq, Window};

impl Queue {
    /// `GetNotifyAffinity`.
    pub fn affinity(&self) -> Result<(u16, KAFFINITY), HRESULT> {
        let (mut group, mut affinity) = (u16::MAX, 0);
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { (self.table().GetNotifyAffinity)(self.as_ptr(), &raw mut group, &raw mut affinity) };
        if result == HRESULT::ND_SUCCESS { Ok((group, affinity)) } else { Err(result) }
    }

    /// `GetNotifyAffinity` with these pointers, one of them null.
    pub fn affinity_into(&self, group: *mut u16, affinity: *mut KAFFINITY) -> HRESULT {
        // SAFETY: the object is held, and the pointers are valid or null.
        unsafe { (self.table().GetNotifyAffinity)(self.as_ptr(), group, affinity) }
    }

    /// `Resize`.
    pub fn resize(&self, depth: u32) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Resize)(self.as_ptr(), depth) }
    }

    /// `Notify`.
    pub fn notify(&self, kind: u32, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().Notify)(self.as_ptr(), kind, request.as_ptr()) }
    }

    /// `GetResults`, up to `most`.
    pub fn results(&self, most: u32) -> Vec<ND2_RESULT> {
        let mut results = vec![ND2_RESULT::default(); most as usize];
        // SAFETY: the object is held, and the array has as many places.
        let count = unsafe { (self.table().GetResults)(self.as_ptr(), results.as_mut_ptr(), most) };
        results.truncate(count as usize);
        results
    }
}

impl Queue1 {
    /// `Resize`.
    pub fn resize(&self, entries: usize) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Resize)(self.as_ptr(), entries) }
    }

    /// `Notify`.
    pub fn notify(&self, kind: u32, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().Notify)(self.as_ptr(), kind, request.as_ptr()) }
    }

    /// `GetResults`, up to `most`.
    pub fn results(&self, most: usize) -> Vec<*mut ND_RESULT> {
        let mut results = vec![ptr::null_mut(); most];
        // SAFETY: the object is held, and the array has as many places.
        let count = unsafe { (self.table().GetResults)(self.as_ptr(), results.as_mut_ptr(), most) };
        results.truncate(count);
        results
    }

    /// `CancelOverlappedRequests`.
    pub fn cancel(&self) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().base.CancelOverlappedRequests)(self.as_ptr()) }
    }

    /// `GetOverlappedResult`, with the byte count.
    pub fn outcome(&self, request: &Client, wait: bool) -> (HRESULT, usize) {
        let mut bytes = usize::MAX;
        let (table, wait) = (&self.table().base, i32::from(wait));
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { (table.GetOverlappedResult)(self.as_ptr(), request.as_ptr(), &raw mut bytes, wait) };
        (result, bytes)
    }
}

impl Srq {
    /// `Receive`.
    pub fn receive(&self, context: usize, list: &[ND2_SGE]) -> HRESULT {
        let context = ptr::without_provenance_mut(context);
        let count = u32::try_from(list.len()).expect("a short list");
        // SAFETY: the object is held, and the list has as many entries.
        unsafe { (self.table().Receive)(self.as_ptr(), context, list.as_ptr(), count) }
    }

    /// `Notify`.
    pub fn notify(&self, request: &Client) -> HRESULT {
        // SAFETY: the object is held, and the structure lives until the request has ended.
        unsafe { (self.table().Notify)(self.as_ptr(), request.as_ptr()) }
    }

    /// `Modify`.
    pub fn modify(&self, depth: u32, threshold: u32) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Modify)(self.as_ptr(), depth, threshold) }
    }

    /// `GetNotifyAffinity`.
    pub fn affinity(&self) -> Result<(u16, KAFFINITY), HRESULT> {
        let (mut group, mut affinity) = (u16::MAX, 0);
        // SAFETY: the object is held, and the pointers are valid.
        let result = unsafe { (self.table().GetNotifyAffinity)(self.as_ptr(), &raw mut group, &raw mut affinity) };
        if result == HRESULT::ND_SUCCESS { Ok((group, affinity)) } else { Err(result) }
    }
}

const fn context(value: usize) -> *mut c_void {
    ptr::without_provenance_mut(value)
}

fn parts(list: &[ND2_SGE]) -> (*const ND2_SGE, u32) {
    let start = if list.is_empty() { ptr::null() } else { list.as_ptr() };
    (start, u32::try_from(list.len()).expect("a short list"))
}

impl Qp {
    /// `Flush`.
    pub fn flush(&self) -> HRESULT {
        // SAFETY: the object is held.
        unsafe { (self.table().Flush)(self.as_ptr()) }
    }

    /// `Send`.
    pub fn send(&self, request: usize, list: &[ND2_SGE], flags: u32) -> HRESULT {
        let (list, count) = parts(list);
        // SAFETY: the object is held, and the list has as many entries.
        unsafe { (self.table().Send)(self.as_ptr(), context(request), list, count, flags) }
    }

    /// `Receive`.
    pub fn receive(&self, request: usize, list: &[ND2_SGE]) -> HRESULT {
        self.receive_at(context(request), list)
    }

    /// `Receive` with a pointer as its context.
    pub fn receive_at(&self, request: *mut c_void, list: &[ND2_SGE]) -> HRESULT {
        let (list, count) = parts(list);
        // SAFETY: the object is held, and the list has as many entries.
        unsafe { (self.table().Receive)(self.as_ptr(), request, list, count) }
    }

    /// `Read`.
    pub fn read(&self, request: usize, list: &[ND2_SGE], address: u64, token: u32, flags: u32) -> HRESULT {
        let (list, count) = parts(list);
        // SAFETY: the object is held, and the list has as many entries.
        unsafe { (self.table().Read)(self.as_ptr(), context(request), list, count, address, token, flags) }
    }

    /// `Write`.
    pub fn write(&self, request: usize, list: &[ND2_SGE], address: u64, token: u32, flags: u32) -> HRESULT {
        let (list, count) = parts(list);
        // SAFETY: the object is held, and the list has as many entries.
        unsafe { (self.table().Write)(self.as_ptr(), context(request), list, count, address, token, flags) }
    }

    /// `Bind`.
    pub fn bind(&self, request: usize, region: &Region, window: &Window, place: (u64, usize), flags: u32) -> HRESULT {
        let (region, window) = (region.as_ptr(), window.as_ptr());
        let buffer = ptr::without_provenance(usize::try_from(place.0).expect("an address"));
        // SAFETY: the objects are held.
        unsafe { (self.table().Bind)(self.as_ptr(), context(request), region, window, buffer, place.1, flags) }
    }

    /// `Invalidate`.
    pub fn invalidate(&self, request: usize, window: &Window, flags: u32) -> HRESULT {
        // SAFETY: the objects are held.
        unsafe { (self.table().Invalidate)(self.as_ptr(), context(request), window.as_ptr(), flags) }
    }
}
