//! Miniport drivers that are wrong on purpose: each breaks one rule, and the simulated kernel catches it.

use std::ptr;

use miniport::{Handlers, with};
use ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_SHUTDOWN_ACTION, NET_BUFFER_LIST, NdisAllocateIoWorkItem, NdisAllocateMdl,
    NdisAllocateNetBufferAndNetBufferList, NdisCloseConfiguration, NdisFreeIoWorkItem, NdisFreeNetBufferList,
    NdisMOidRequestComplete, NdisMPauseComplete, NdisMRestartComplete, NdisMSendNetBufferListsComplete,
    NdisQueueIoWorkItem, OID_GEN_VENDOR_ID,
};
use ndkpi::{
    NDIS_HANDLE, NDK_OBJECT_TYPE, NDK_VERSION, NET_PNP_EVENT_CODE, OID_NDK_SET_STATE, OID_NDK_STATISTICS,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Driver, Kernel, Nic, Rule, caught};
use wdk_sys::{
    KSPIN_LOCK, POOL_FLAG_NON_PAGED,
    ntddk::{ExAllocatePool2, KeAcquireSpinLockRaiseToDpc, KeInitializeSpinLock, KeReleaseSpinLock, KfRaiseIrql},
};

use crate::{lifecycle::run, miniport};

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

/// Each test has a driver whose handlers are right but for those that are named, and what is done with its adapter.
macro_rules! wrong {
    ($($name:ident breaks $rule:ident by { $($handler:ident: $value:expr),* } in $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || {
                    #[allow(clippy::needless_update, reason = "a scenario without a handler of its own")]
                    let handlers = Handlers { $($handler: $value,)* ..Handlers::default() };
                    run(handlers, $work);
                });
            }
        )+
    };
}

/// What is done with an adapter that breaks a rule at its beginning or end.
const fn nothing(_: &Kernel, _: &Driver, _: &Nic) {}

fn send(_: &Kernel, _: &Driver, nic: &Nic) {
    let statuses = nic.send(&[&[1; 60]]).wait();
    assert_eq!(statuses.len(), 1);
}

fn sleep(nic: &Nic) {
    assert_eq!(nic.set_power(ndis::NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS_SUCCESS);
}

fn query(_: &Kernel, _: &Driver, nic: &Nic) {
    assert_eq!(nic.query(OID_GEN_VENDOR_ID, 4).status, NDIS_STATUS_SUCCESS);
}

fn receive(_: &Kernel, driver: &Driver, _: &Nic) {
    driver.run(|| miniport::receive(&[1; 60]));
}

fn pause_with_a_list_out(_: &Kernel, driver: &Driver, nic: &Nic) {
    nic.keep_received(true);
    driver.run(|| miniport::receive(&[1; 60]));
    nic.pause();
}

wrong! {
    // Frames to send.
    a_send_completed_twice breaks NblCompletedTwice by { send: complete_twice } in send;
    a_send_never_completed breaks NblNeverCompleted by { send: |_| () } in send;
    a_received_list_completed_as_sent breaks NblCompletedTwice by {} in |_, driver, _| driver.run(|| {
        miniport::complete(miniport::make_list(&[1; 60]));
    });
    a_sent_list_that_is_freed breaks NblNotOwned by { send: free } in send;
    a_sent_list_that_comes_back_changed breaks NblNotOwned by { send: complete_changed } in send;
    a_copy_of_a_sent_list_completed breaks MovedObject by { send: |list| miniport::complete(copy_of(list)) } in send;
    a_copy_of_a_list_indicated breaks MovedObject by {} in |_, driver, _| driver.run(|| {
        miniport::indicate(copy_of(miniport::make_list(&[1; 60])), 0);
    });
    a_send_that_pends_at_its_completion breaks BadArgument by
        { send: |list| miniport::complete_with(list, NDIS_STATUS_PENDING) } in send;
    a_send_whose_status_is_not_said breaks BadArgument by { send: complete_as_it_came } in send;
    a_send_while_paused breaks SentWhilePaused by
        { send: |list| miniport::complete_with(list, NDIS_STATUS_SUCCESS) } in |kernel, driver, nic| {
            nic.pause();
            send(kernel, driver, nic);
        };
    a_send_handler_that_stays_at_dispatch_level breaks IrqlNotRestored by { send: raise_and_complete } in send;

    // Frames received.
    a_receive_while_paused breaks ReceivedWhilePaused by {} in |kernel, driver, nic| {
        nic.pause();
        receive(kernel, driver, nic);
    };
    a_list_indicated_twice breaks NblNotOwned by {} in |_, driver, nic| {
        nic.keep_received(true);
        driver.run(|| {
            let list = miniport::make_list(&[1; 60]);
            miniport::indicate(list, 0);
            miniport::indicate(list, 0);
        });
    };
    a_list_freed_while_the_protocols_have_it breaks NblNotOwned by {} in |_, driver, nic| {
        nic.keep_received(true);
        driver.run(|| {
            let list = miniport::make_list(&[1; 60]);
            miniport::indicate(list, 0);
            miniport::free_list(list);
        });
    };
    a_list_without_its_source breaks BadHandle by {} in |_, driver, _| driver.run(|| {
        let list = miniport::make_list(&[1; 60]);
        // SAFETY: the list was just made.
        unsafe { (*list).SourceHandle = ptr::null_mut() };
        miniport::indicate(list, 0);
    });
    an_indication_that_lies_about_its_level breaks BadArgument by {} in |_, driver, _| driver.run(|| {
        miniport::indicate(miniport::make_list(&[1; 60]), NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
    });
    an_indication_with_a_lock_held breaks LockHeld by {} in |_, driver, _| driver.run(|| {
        with_a_lock(|| {
            miniport::receive(&[1; 60]);
        });
    });

    a_list_indicated_again_as_it_came_back breaks NblLeftover by { returned: |list| miniport::indicate(list, 0) } in receive;
    a_list_with_a_tag_that_nobody_was_told_of breaks BadArgument by {} in |_, driver, _| driver.run(|| {
        let list = miniport::make_list(&[1; 60]);
        // SAFETY: the list was just made.
        unsafe { (*list).NetBufferListInfo[ndis::Ieee8021QNetBufferListInfo] = ptr::without_provenance_mut(5) };
        miniport::indicate(list, 0);
    });

    // Power.
    a_receive_in_low_power breaks ReceivedInLowPower by { attributes: miniport::set_attributes_without_pause } in
        |kernel, driver, nic| {
            sleep(nic);
            receive(kernel, driver, nic);
        };
    a_send_in_low_power breaks SentInLowPower by { attributes: miniport::set_attributes_without_pause } in
        |kernel, driver, nic| {
            sleep(nic);
            send(kernel, driver, nic);
        };
    a_sleep_with_sends_out breaks LowPowerTooEarly by
        { attributes: miniport::set_attributes_without_pause, send: |_| () } in |_, _, nic| {
            let sent = nic.send(&[&[1; 60]]);
            sleep(nic);
            assert!(!sent.is_complete());
        };
    a_state_of_power_that_is_refused breaks OidAnswer by
        { oid: |_| ndis::NDIS_STATUS_FAILURE } in |_, _, nic| sleep(nic);

    // Pauses.
    a_pause_with_sends_out breaks PauseTooEarly by { send: |_| () } in |_, _, nic| {
        let sent = nic.send(&[&[1; 60]]);
        nic.pause();
        assert!(!sent.is_complete());
    };
    a_pause_with_receives_out breaks PauseTooEarly by { pause: pause_at_once } in pause_with_a_list_out;
    a_pause_that_is_never_completed breaks PauseNeverCompleted by { pause: || NDIS_STATUS_PENDING } in nothing;
    a_pause_that_fails breaks BadArgument by { pause: || ndis::NDIS_STATUS_FAILURE } in nothing;
    a_pause_completed_twice breaks PauseTooEarly by { pause: complete_pause_and_succeed } in nothing;
    a_restart_completed_as_pending breaks BadArgument by { restart: restart_as_pending } in nothing;
    a_pause_completed_that_was_not_begun breaks PauseTooEarly by {} in |_, driver, _| driver.run(complete_pause);

    // Requests.
    a_request_that_pends_and_must_not breaks OidPended by { oid: |_| NDIS_STATUS_PENDING } in |_, _, nic| {
        let answer = nic.set(OID_NDK_SET_STATE, &[1]);
        assert_eq!(answer.status, NDIS_STATUS_SUCCESS);
    };
    a_synchronous_request_that_pends breaks OidPended by { oid: |_| NDIS_STATUS_PENDING } in
        |_, _, nic| assert_eq!(nic.query_synchronously(OID_NDK_STATISTICS, 4).needed, 0);
    a_request_completed_twice breaks OidCompletedTwice by { oid: complete_and_answer } in query;
    a_request_never_completed breaks OidNeverCompleted by { oid: |_| NDIS_STATUS_PENDING } in query;
    a_request_left_at_the_removal breaks OidNeverCompleted by { oid: |_| NDIS_STATUS_PENDING } in |_, _, nic| {
        assert!(!nic.begin_query(OID_GEN_VENDOR_ID, 4).is_complete());
    };
    a_request_answered_with_too_many_bytes breaks OidAnswer by { oid: answer_too_much } in query;
    a_method_answered_with_as_many_bytes_as_it_was_given breaks OidAnswer by { oid: answer_method_too_much } in
        |_, _, nic| assert_eq!(nic.method(OID_GEN_VENDOR_ID, &[0; 8], 4).status, NDIS_STATUS_SUCCESS);
    a_request_that_is_too_short_and_needs_nothing breaks OidAnswer by
        { oid: |_| ndkpi::status::NDIS_STATUS_BUFFER_TOO_SHORT } in query;
    a_write_beyond_the_buffer_of_a_request breaks Overrun by { oid: overrun } in query;
    an_event_of_ndk_in_a_request breaks PnpEventInOid by { oid: raise_and_answer } in query;
    an_event_of_ndk_while_a_request_pends breaks PnpEventInOid by { oid: |_| NDIS_STATUS_PENDING } in
        |_, driver, nic| {
            let pending = nic.begin_query(OID_GEN_VENDOR_ID, 4);
            driver.run(|| assert_eq!(miniport::raise(NET_PNP_EVENT_CODE::NDK_DISABLE), NDIS_STATUS_SUCCESS));
            assert!(!pending.is_complete());
        };
    a_configuration_opened_at_dispatch_level breaks IrqlTooHigh by { oid: open_configuration_and_answer } in
        |_, _, nic| assert_eq!(nic.query_directly(OID_NDK_STATISTICS, 4).status, NDIS_STATUS_SUCCESS);

    // Attributes, and what is registered.
    general_attributes_before_registration breaks AttributeOrder by { attributes: miniport::set_general } in nothing;
    general_attributes_twice breaks AttributeOrder by { attributes: general_twice } in nothing;
    no_general_attributes breaks AttributeOrder by { attributes: miniport::set_registration } in nothing;
    no_attributes_of_ndk breaks AttributeOrder by { attributes: without_ndk } in nothing;
    attributes_of_ndk_without_a_provider breaks AttributeOrder by { set_options: |_| NDIS_STATUS_SUCCESS } in nothing;
    attributes_after_the_initialisation breaks NdisPlace by {} in |_, driver, _| driver.run(|| {
        let _ = miniport::set_general(with(|world| world.adapter));
    });
    attributes_of_an_older_revision breaks NdisHeader by { attributes: old_general } in nothing;
    attributes_with_a_group_address breaks BadArgument by { attributes: group_address } in nothing;
    attributes_for_packets_of_ip_with_an_address breaks BadArgument by { attributes: address_of_ip } in nothing;
    characteristics_of_an_older_revision breaks NdisHeader by
        { characteristics: |characteristics| characteristics.Header.Revision = 2 } in nothing;
    characteristics_of_another_size breaks NdisHeader by
        { characteristics: |characteristics| characteristics.Header.Size -= 8 } in nothing;
    no_pause_handler breaks NdisHandler by
        { characteristics: |characteristics| characteristics.PauseHandler = None } in nothing;
    direct_requests_that_cannot_be_cancelled breaks NdisHandler by
        { characteristics: |characteristics| characteristics.CancelDirectOidRequestHandler = None } in nothing;
    optional_handlers_outside_of_set_options breaks NdisPlace by
        { initialise: |_| { let _ = miniport::register_ndk(with(|world| world.driver)); } } in nothing;
    a_driver_that_stays_registered breaks ReferenceLeak by { deregisters: false } in nothing;

    // What an adapter leaves behind.
    a_configuration_left_open breaks ReferenceLeak by
        { initialise: |handle| assert!(miniport::open_configuration(handle).is_some()) } in nothing;
    a_configuration_read_after_it_is_closed breaks BadHandle by { initialise: read_closed_configuration } in nothing;
    a_net_buffer_with_bytes_and_no_mdl breaks BadArgument by { initialise: make_a_list_without_an_mdl } in nothing;
    a_pool_left_behind breaks PoolLeak by { halt: || with(|world| world.pool = ptr::null_mut()) } in nothing;
    a_pool_freed_with_lists_in_use breaks NblPoolInUse by
        { halt: || assert!(!miniport::make_list(&[1; 60]).is_null()) } in nothing;
    an_mdl_left_behind breaks PoolLeak by { initialise: leak_mdl } in nothing;
    a_work_item_left_behind breaks ReferenceLeak by
        { initialise: |handle| assert!(!allocate_work_item(handle).is_null()) } in nothing;
    a_work_item_queued_twice breaks WorkItemQueued by { initialise: queue_twice } in nothing;
    a_work_item_freed_while_it_is_queued breaks WorkItemQueued by { initialise: free_queued } in nothing;

    // Levels and locks.
    a_status_indicated_at_a_bug_check breaks IrqlTooHigh by
        { shut_down: || miniport::indicate_status(with(|world| world.adapter)) } in
        |_, _, nic| nic.shut_down(NDIS_SHUTDOWN_ACTION::BUG_CHECK);
    a_status_indicated_with_a_lock_held breaks LockHeld by {} in |_, driver, _| driver.run(|| {
        with_a_lock(|| miniport::indicate_status(with(|world| world.adapter)));
    });

    // NDK.
    an_adapter_of_ndk_open_at_the_halt breaks NdkOpenAtHalt by {} in
        |_, _, nic| assert!(nic.open_ndk(VERSION).is_ok());
    an_adapter_of_ndk_opened_while_disabled breaks NdkNotEnabled by { open: open_always } in |_, driver, nic| {
        driver.run(|| assert_eq!(miniport::raise(NET_PNP_EVENT_CODE::NDK_DISABLE), NDIS_STATUS_SUCCESS));
        assert!(nic.open_ndk(VERSION).is_ok());
    };
    an_adapter_of_ndk_that_is_none breaks NdkAdapter by { open: |_| NDIS_STATUS_SUCCESS } in
        |_, _, nic| assert!(nic.open_ndk(VERSION).is_ok());
    an_adapter_of_ndk_of_another_type breaks NdkAdapter by { open: open_a_cq } in
        |_, _, nic| assert!(nic.open_ndk(VERSION).is_ok());
    an_event_of_ndk_with_an_adapter_open breaks Deadlock by {} in |_, driver, nic| {
        assert!(nic.open_ndk(VERSION).is_ok());
        driver.run(|| assert_eq!(miniport::raise(NET_PNP_EVENT_CODE::NDK_DISABLE), NDIS_STATUS_SUCCESS));
    };
}

#[test]
fn a_status_indicated_after_the_halt() {
    let name = concat!(module_path!(), "::a_status_indicated_after_the_halt");
    caught(name, Rule::AdapterHalted, || {
        let kernel = Kernel::seeded(1).start();
        miniport::prepare(Handlers::default());
        let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
        driver.add_nic(&[]).expect("the adapter starts").remove();
        driver.run(|| miniport::indicate_status(with(|world| world.adapter)));
    });
}

fn complete_twice(list: *mut NET_BUFFER_LIST) {
    miniport::complete(list);
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisMSendNetBufferListsComplete(with(|world| world.adapter), list, 0) };
}

fn free(list: *mut NET_BUFFER_LIST) {
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisFreeNetBufferList(list) };
}

/// The bytes of a list at another place.
fn copy_of(list: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER_LIST {
    // SAFETY: the miniport has the list.
    Box::leak(Box::new(unsafe { list.read() }))
}

fn complete_changed(list: *mut NET_BUFFER_LIST) {
    // SAFETY: the miniport has the list.
    unsafe { (*list).FirstNetBuffer = ptr::null_mut() };
    miniport::complete(list);
}

fn complete_as_it_came(list: *mut NET_BUFFER_LIST) {
    let adapter = with(|world| world.adapter);
    // SAFETY: the adapter is live, and the list is the miniport's.
    unsafe { NdisMSendNetBufferListsComplete(adapter, list, 0) };
}

fn make_a_list_without_an_mdl(_: NDIS_HANDLE) {
    let pool = with(|world| world.pool);
    // SAFETY: as wrong as the test wants it.
    let list = unsafe { NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, ptr::null_mut(), 0, 60) };
    assert!(list.is_null());
}

fn raise_and_complete(list: *mut NET_BUFFER_LIST) {
    // SAFETY: as wrong as the test wants it.
    unsafe { KfRaiseIrql(2) };
    miniport::complete(list);
}

fn with_a_lock(work: impl FnOnce()) {
    let mut lock: KSPIN_LOCK = 0;
    // SAFETY: a lock that lives until it is released.
    unsafe { KeInitializeSpinLock(&raw mut lock) };
    // SAFETY: a lock that lives until it is released.
    let before = unsafe { KeAcquireSpinLockRaiseToDpc(&raw mut lock) };
    work();
    // SAFETY: a lock that lives until it is released.
    unsafe { KeReleaseSpinLock(&raw mut lock, before) };
}

fn pause_at_once() -> ndis::NDIS_STATUS {
    with(|world| world.paused = true);
    NDIS_STATUS_SUCCESS
}

fn restart_as_pending() -> ndis::NDIS_STATUS {
    let adapter = with(|world| world.adapter);
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisMRestartComplete(adapter, NDIS_STATUS_PENDING) };
    NDIS_STATUS_PENDING
}

fn complete_pause() {
    let adapter = with(|world| world.adapter);
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisMPauseComplete(adapter) };
}

fn complete_pause_and_succeed() -> ndis::NDIS_STATUS {
    complete_pause();
    NDIS_STATUS_SUCCESS
}

fn complete_and_answer(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    let adapter = with(|world| world.adapter);
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisMOidRequestComplete(adapter, request, NDIS_STATUS_SUCCESS) };
    NDIS_STATUS_SUCCESS
}

fn answer_too_much(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    // SAFETY: NDIS's own request.
    let data = unsafe { &mut (*request).DATA };
    // SAFETY: the request is a query.
    unsafe { &mut data.QUERY_INFORMATION }.BytesWritten = 5;
    NDIS_STATUS_SUCCESS
}

fn answer_method_too_much(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    // SAFETY: NDIS's own request.
    let data = unsafe { &mut (*request).DATA };
    // SAFETY: the request is a method.
    let method = unsafe { &mut data.METHOD_INFORMATION };
    method.BytesWritten = method.InputBufferLength;
    NDIS_STATUS_SUCCESS
}

fn overrun(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    // SAFETY: NDIS's own request.
    let data = unsafe { &(*request).DATA };
    // SAFETY: the request is a query.
    let buffer = unsafe { data.QUERY_INFORMATION }.InformationBuffer;
    // SAFETY: as wrong as the test wants it: the bytes behind the buffer guard it.
    unsafe { buffer.cast::<u8>().wrapping_add(4).write(0) };
    miniport::answer(request)
}

fn raise_and_answer(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    let _ = miniport::raise(NET_PNP_EVENT_CODE::NDK_DISABLE);
    miniport::answer(request)
}

fn open_configuration_and_answer(request: *mut ndis::NDIS_OID_REQUEST) -> ndis::NDIS_STATUS {
    let _ = miniport::read_keyword(with(|world| world.adapter));
    miniport::answer(request)
}

fn general_twice(handle: NDIS_HANDLE) -> ndis::NDIS_STATUS {
    let _ = miniport::set_registration(handle);
    let _ = miniport::set_general(handle);
    miniport::set_general(handle)
}

fn without_ndk(handle: NDIS_HANDLE) -> ndis::NDIS_STATUS {
    let _ = miniport::set_registration(handle);
    miniport::set_general(handle)
}

fn old_general(handle: NDIS_HANDLE) -> ndis::NDIS_STATUS {
    let _ = miniport::set_registration(handle);
    let mut attributes = miniport::general();
    attributes.Header.Revision = 1;
    miniport::report(handle, &attributes)
}

fn group_address(handle: NDIS_HANDLE) -> ndis::NDIS_STATUS {
    let _ = miniport::set_registration(handle);
    let mut attributes = miniport::general();
    attributes.CurrentMacAddress[0] |= 1;
    miniport::report(handle, &attributes)
}

fn address_of_ip(handle: NDIS_HANDLE) -> ndis::NDIS_STATUS {
    let _ = miniport::set_registration(handle);
    let mut attributes = miniport::general_for_ip();
    attributes.MacAddressLength = 6;
    miniport::report(handle, &attributes)
}

fn read_closed_configuration(handle: NDIS_HANDLE) {
    let configuration = miniport::open_configuration(handle).expect("it opens");
    // SAFETY: the configuration is open.
    unsafe { NdisCloseConfiguration(configuration) };
    let _ = miniport::read_number(configuration);
}

fn leak_mdl(handle: NDIS_HANDLE) {
    // SAFETY: an allocation like any other.
    let block = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, 60, miniport::TAG) };
    // SAFETY: the adapter and the block are live.
    assert!(!unsafe { NdisAllocateMdl(handle, block, 60) }.is_null());
}

fn allocate_work_item(handle: NDIS_HANDLE) -> NDIS_HANDLE {
    // SAFETY: the adapter is live.
    unsafe { NdisAllocateIoWorkItem(handle) }
}

unsafe extern "system" fn do_nothing(_: *mut std::ffi::c_void, _: NDIS_HANDLE) {}

fn queue(item: NDIS_HANDLE) {
    // SAFETY: the work item is live.
    unsafe { NdisQueueIoWorkItem(item, Some(do_nothing), ptr::null_mut()) };
}

fn queue_twice(handle: NDIS_HANDLE) {
    let item = allocate_work_item(handle);
    queue(item);
    queue(item);
}

fn free_queued(handle: NDIS_HANDLE) {
    let item = allocate_work_item(handle);
    queue(item);
    // SAFETY: as wrong as the test wants it.
    unsafe { NdisFreeIoWorkItem(item) };
}

fn open_always(place: *mut *mut ndkpi::NDK_ADAPTER) -> ndis::NDIS_STATUS {
    // SAFETY: NDIS's place, which lives until the call returns.
    unsafe { place.write(miniport::make_adapter(NDK_OBJECT_TYPE::ADAPTER)) };
    NDIS_STATUS_SUCCESS
}

fn open_a_cq(place: *mut *mut ndkpi::NDK_ADAPTER) -> ndis::NDIS_STATUS {
    // SAFETY: NDIS's place, which lives until the call returns.
    unsafe { place.write(miniport::make_adapter(NDK_OBJECT_TYPE::CQ)) };
    NDIS_STATUS_SUCCESS
}
