//! What pends: requests and sends that are cancelled, restarts, work items, and NDK that is disabled while somebody has it open.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use miniport::{Handlers, with};
use ndis::{
    NDIS_STATUS_REQUEST_ABORTED, NDIS_STATUS_SEND_ABORTED, NdisAllocateIoWorkItem, NdisFreeIoWorkItem,
    NdisMDirectOidRequestComplete, NdisMOidRequestComplete, NdisMRestartComplete, NdisQueueIoWorkItem,
    OID_GEN_VENDOR_ID,
};
use ndkpi::{
    NDIS_HANDLE, NDK_VERSION, NET_PNP_EVENT_CODE, NtStatus, OID_NDK_STATISTICS,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{DuringRun, Kernel, NdkEvent};

use crate::{lifecycle::run, miniport};

/// What a handler has left for later: an address. Each test runs a kernel, of which there is one at a time.
static LATER: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));

fn later<T>() -> *mut T {
    ptr::with_exposed_provenance_mut(LATER.swap(0, Relaxed))
}

fn keep<T>(address: *mut T) {
    LATER.store(address.expose_provenance(), Relaxed);
}

fn adapter() -> NDIS_HANDLE {
    with(|world| world.adapter)
}

#[test]
fn a_request_that_pends_is_completed_later() {
    let pend = |request| {
        keep(request);
        NDIS_STATUS_PENDING
    };
    run(Handlers { oid: pend, ..Handlers::default() }, |_, driver, nic| {
        let pending = nic.begin_query(OID_GEN_VENDOR_ID, 4);
        assert!(!pending.is_complete());
        driver.run(|| {
            let request = later();
            let status = miniport::answer(request);
            // SAFETY: the adapter is live, and the request is the miniport's.
            unsafe { NdisMOidRequestComplete(adapter(), request, status) };
        });
        assert_eq!(pending.wait().bytes, [7, 0, 0, 0]);
    });
}

#[test]
fn requests_that_pend_are_cancelled_also_by_a_removal() {
    let pend = |request| {
        keep(request);
        NDIS_STATUS_PENDING
    };
    let cancel = || {
        // SAFETY: the adapter is live, and the request is the miniport's.
        unsafe { NdisMOidRequestComplete(adapter(), later(), NDIS_STATUS_REQUEST_ABORTED) };
    };
    run(Handlers { oid: pend, cancel_oid: cancel, ..Handlers::default() }, |_, _, nic| {
        let pending = nic.begin_query(OID_GEN_VENDOR_ID, 4);
        pending.cancel();
        assert_eq!(pending.wait().status, NDIS_STATUS_REQUEST_ABORTED);
        assert!(!nic.begin_query(OID_GEN_VENDOR_ID, 4).is_complete(), "the removal cancels it");
    });
}

#[test]
fn direct_requests_pend_beside_each_other() {
    let pend = |request| {
        let (oid, _) = miniport::asked(request);
        if oid == OID_GEN_VENDOR_ID {
            return miniport::answer(request);
        }
        keep(request);
        NDIS_STATUS_PENDING
    };
    run(Handlers { oid: pend, ..Handlers::default() }, |_, driver, nic| {
        let pending = nic.begin_query_directly(OID_NDK_STATISTICS, 4);
        assert_eq!(nic.query_directly(OID_GEN_VENDOR_ID, 4).status, NDIS_STATUS_SUCCESS);
        driver.run(|| {
            // SAFETY: the adapter is live, and the request is the miniport's.
            unsafe { NdisMDirectOidRequestComplete(adapter(), later(), NDIS_STATUS_REQUEST_ABORTED) };
        });
        assert_eq!(pending.wait().status, NDIS_STATUS_REQUEST_ABORTED);
    });
}

#[test]
fn a_send_is_cancelled() {
    let cancel = || miniport::complete_with(later(), NDIS_STATUS_SEND_ABORTED);
    run(Handlers { send: keep, cancel_send: cancel, ..Handlers::default() }, |_, _, nic| {
        let sent = nic.send_cancellable(&[&[1; 60], &[2; 60]], 7);
        assert!(!sent.is_complete());
        nic.cancel_sends(7);
        assert_eq!(sent.wait(), [NDIS_STATUS_SEND_ABORTED; 2]);
    });
}

#[test]
fn a_restart_pends() {
    let restart = || {
        with(|world| world.paused = false);
        // SAFETY: the adapter is live, and its restart pends.
        unsafe { NdisMRestartComplete(adapter(), NDIS_STATUS_SUCCESS) };
        NDIS_STATUS_PENDING
    };
    run(Handlers { restart, ..Handlers::default() }, |_, driver, _| {
        assert!(driver.run(|| miniport::receive(&[1; 60])));
    });
}

/// Raises the event that NDK is disabled, and frees the work item that it runs in.
unsafe extern "system" fn disable(_: *mut c_void, item: NDIS_HANDLE) {
    assert_eq!(miniport::raise(NET_PNP_EVENT_CODE::NDK_DISABLE), NDIS_STATUS_SUCCESS);
    // SAFETY: the work item is not queued any more.
    unsafe { NdisFreeIoWorkItem(item) };
}

#[test]
fn ndk_is_disabled_by_a_work_item_when_its_consumers_have_closed() {
    let heard = Arc::new(AtomicUsize::new(0));
    run(Handlers::default(), |kernel: &Kernel, driver, nic| {
        let counter = heard.clone();
        let interface = nic.if_index();
        kernel.on_ndk(move |index, event| {
            assert_eq!(index, interface);
            counter.fetch_add(usize::from(event == NdkEvent::Disabled), Relaxed);
        });
        let version = NDK_VERSION { Major: 2, Minor: 0 };
        let opened = nic.open_ndk(version).expect("NDK is enabled");
        driver.run(|| {
            // SAFETY: the adapter is live.
            let item = unsafe { NdisAllocateIoWorkItem(adapter()) };
            // SAFETY: the work item was just made.
            unsafe { NdisQueueIoWorkItem(item, Some(disable), ptr::null_mut()) };
        });
        kernel.wait_until(|| heard.load(Relaxed) == 1);
        assert_eq!(nic.open_ndk(version), Err(NtStatus::NDIS_ADAPTER_NOT_READY));
        nic.close_ndk(opened);
        kernel.sleep(1000);
        assert!(!nic.is_ndk_enabled());
    });
}

/// A counter for frames that come from several threads.
#[test]
fn frames_come_back_while_others_are_received() {
    let kernel = Kernel::threads().start();
    miniport::prepare(Handlers::default());
    let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
    let nic = driver.add_nic(&[]).expect("the adapter starts");
    nic.keep_received(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for length in 0..200 {
                assert!(driver.run(|| miniport::receive(&[9; 300][..60 + length])));
            }
        });
        let mut given = 0;
        while given < 200 {
            given += nic.give_back();
        }
    });
    let received = nic.take_received();
    assert!(received.iter().enumerate().all(|(index, frame)| frame.len() == 60 + index));
    assert_eq!(received.len(), 200);
    nic.remove();
    driver.unload();
}
