//! The framework's memory objects, what a driver asks requests, queues and the framework itself for, and members that leave a collection.

use std::{
    panic::catch_unwind,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use simulated_kernel::{DuringRun, Pending, Rule, caught};
use testing::alone::in_a_process_of_its_own;
use wdk_sys::{
    _POOL_TYPE, _WDF_IO_QUEUE_STATE, _WDF_REQUEST_TYPE, NTSTATUS, PVOID, STATUS_BUFFER_TOO_SMALL, STATUS_CANCELLED,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, UNICODE_STRING,
    WDF_DRIVER_VERSION_AVAILABLE_PARAMS, WDF_REQUEST_PARAMETERS, WDFCOLLECTION, WDFMEMORY, WDFOBJECT, WDFQUEUE,
    WDFREQUEST, WDFREQUEST__, call_unsafe_wdf_function_binding,
};

use crate::{
    TAG, raise, rules,
    skeleton::{CODE, Loaded, Wrong, allocate, complete, default_queue, run, run_with},
    small_driver::size,
};

/// The request that the driver has.
static REQUEST: DuringRun<AtomicPtr<WDFREQUEST__>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

fn kept() -> WDFREQUEST {
    REQUEST.load(Relaxed)
}

/// Does `work` as the driver, when it has a device.
fn loads(work: fn(&Loaded)) {
    run(Wrong { load: work, ..Wrong::default() });
}

/// Does `work` as the driver when it has a request of three bytes with room for five, which it completes afterwards.
fn with_request(work: fn(WDFREQUEST)) {
    run_with(Wrong { control: |request, _| REQUEST.store(request, Relaxed), ..Wrong::default() }, |driver, file| {
        let pending: Pending = file.begin(CODE, &[1, 2, 3], 5);
        driver.run(|| {
            work(kept());
            complete(kept(), STATUS_SUCCESS, 5);
        });
        assert!(pending.wait().is_success());
    });
}

fn try_memory(pool: i32, bytes: usize) -> Result<(WDFMEMORY, PVOID), NTSTATUS> {
    let (mut memory, mut buffer) = (ptr::null_mut(), ptr::null_mut());
    let nobody = ptr::null_mut();
    // SAFETY: the places live until the call returns.
    let status = unsafe {
        call_unsafe_wdf_function_binding!(WdfMemoryCreate, nobody, pool, TAG, bytes, &raw mut memory, &raw mut buffer)
    };
    if status < 0 { Err(status) } else { Ok((memory, buffer)) }
}

fn memory(bytes: usize) -> WDFMEMORY {
    try_memory(_POOL_TYPE::NonPagedPoolNx, bytes).expect("memory").0
}

fn buffer_of(memory: WDFMEMORY) -> (PVOID, usize) {
    let mut length = 0;
    // SAFETY: the test's scenario; the place lives until the call returns.
    let buffer = unsafe { call_unsafe_wdf_function_binding!(WdfMemoryGetBuffer, memory, &raw mut length) };
    (buffer, length)
}

fn copy_in(memory: WDFMEMORY, offset: usize, bytes: &mut [u8]) -> NTSTATUS {
    let (from, count) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: as many bytes, which live until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfMemoryCopyFromBuffer, memory, offset, from, count) }
}

fn copy_out(memory: WDFMEMORY, offset: usize, bytes: &mut [u8]) -> NTSTATUS {
    let (to, count) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: as many bytes, which live until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfMemoryCopyToBuffer, memory, offset, to, count) }
}

fn delete<T>(object: *mut T) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, object.cast()) };
}

fn assign(memory: WDFMEMORY, buffer: &mut [u8]) -> NTSTATUS {
    let (place, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfMemoryAssignBuffer, memory, place, length) }
}

#[test]
fn a_memory_object_has_a_buffer_that_goes_with_it_and_copies_stay_inside() {
    loads(|_| {
        assert_eq!(try_memory(_POOL_TYPE::NonPagedPoolNx, 0), Err(STATUS_INVALID_PARAMETER));
        let (memory, buffer) = try_memory(_POOL_TYPE::NonPagedPoolNx, 8).expect("memory");
        assert_eq!(buffer_of(memory), (buffer, 8));
        assert_eq!(copy_in(memory, 2, &mut [7, 8, 9]), STATUS_SUCCESS);
        let mut out = [0; 3];
        assert_eq!((copy_out(memory, 2, &mut out), out), (STATUS_SUCCESS, [7, 8, 9]));
        assert_eq!(copy_out(memory, 6, &mut out), STATUS_BUFFER_TOO_SMALL, "the object has less");
        assert_eq!(copy_in(memory, 6, &mut out), STATUS_INVALID_BUFFER_SIZE, "the object has no room");
        assert_eq!(copy_in(memory, usize::MAX, &mut out), STATUS_INVALID_BUFFER_SIZE, "no sum runs over");
        assert_eq!(copy_in(memory, 0, &mut []), STATUS_INVALID_PARAMETER);
        delete(memory);
        // The other one goes with the driver.
        try_memory(_POOL_TYPE::PagedPool, 8).expect("memory that may be paged out");
    });
}

#[test]
fn a_memory_object_of_the_drivers_buffer_can_get_another_one() {
    loads(|_| {
        let (mut first, mut second, mut memory) = ([1_u8; 4], [2_u8; 6], ptr::null_mut());
        let nobody = ptr::null_mut();
        let (buffer, length) = (first.as_mut_ptr().cast(), first.len());
        // SAFETY: the buffer and the place live until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(WdfMemoryCreatePreallocated, nobody, buffer, length, &raw mut memory)
        };
        assert_eq!((status, buffer_of(memory)), (STATUS_SUCCESS, (buffer, 4)));
        assert_eq!(assign(memory, &mut []), STATUS_INVALID_PARAMETER);
        assert_eq!(assign(memory, &mut second), STATUS_SUCCESS);
        assert_eq!(buffer_of(memory), (second.as_mut_ptr().cast(), 6));
        delete(memory);
    });
}

fn input_of(request: WDFREQUEST) -> WDFMEMORY {
    let mut memory = ptr::null_mut();
    // SAFETY: the driver has the request, and the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfRequestRetrieveInputMemory, request, &raw mut memory) };
    assert_eq!(status, STATUS_SUCCESS);
    memory
}

fn output_of(request: WDFREQUEST) -> WDFMEMORY {
    let mut memory = ptr::null_mut();
    // SAFETY: the driver has the request, and the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfRequestRetrieveOutputMemory, request, &raw mut memory) };
    assert_eq!(status, STATUS_SUCCESS);
    memory
}

#[test]
fn a_request_has_a_memory_object_for_each_of_its_buffers() {
    with_request(|request| {
        let (input, output) = (input_of(request), output_of(request));
        assert_eq!((buffer_of(input).1, buffer_of(output).1), (3, 5));
        assert_eq!((input_of(request), output_of(request)), (input, output), "the same one each time");
        let mut bytes = [0; 3];
        assert_eq!((copy_out(input, 0, &mut bytes), bytes), (STATUS_SUCCESS, [1, 2, 3]));
        assert_eq!(copy_in(output, 0, &mut [9; 5]), STATUS_SUCCESS);
    });
}

#[test]
fn a_request_says_what_it_asks_for_and_where_it_comes_from() {
    with_request(|request| {
        let length = u16::try_from(size_of::<WDF_REQUEST_PARAMETERS>()).expect("a small structure");
        // SAFETY: numbers and pointers, for which zero is a value.
        let mut parameters: WDF_REQUEST_PARAMETERS = unsafe { std::mem::zeroed() };
        parameters.Size = length;
        // SAFETY: the driver has the request; the structure lives until the call returns.
        unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetParameters, request, &raw mut parameters) };
        assert_eq!(parameters.Type, _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl);
        // SAFETY: for this type the union holds this member.
        let control = unsafe { parameters.Parameters.DeviceIoControl };
        assert_eq!((control.InputBufferLength, control.OutputBufferLength, control.IoControlCode), (3, 5, CODE));
        // SAFETY: the driver has the request.
        let queue = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetIoQueue, request) };
        assert_eq!(queue, default_queue());
        // SAFETY: the driver has the request.
        assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetRequestorMode, request) }, 1);
        // SAFETY: the driver has the request.
        unsafe { call_unsafe_wdf_function_binding!(WdfRequestSetInformation, request, 4) };
        // SAFETY: the driver has the request.
        assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetInformation, request) }, 4);
    });
}

fn state_of(queue: WDFQUEUE) -> (i32, u32, u32) {
    let (mut waiting, mut delivered) = (0, 0);
    // SAFETY: the queue is live, and the places live until the call returns.
    let state =
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetState, queue, &raw mut waiting, &raw mut delivered) };
    (state, waiting, delivered)
}

fn stop(queue: WDFQUEUE) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStopSynchronously, queue) };
}

fn drain(queue: WDFQUEUE) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueDrainSynchronously, queue) };
}

#[test]
fn a_queue_says_what_it_does_and_how_many_requests_there_are() {
    use _WDF_IO_QUEUE_STATE as state;
    with_request(|_| {
        let (flags, waiting, delivered) = state_of(default_queue());
        assert_eq!((waiting, delivered), (0, 1));
        let expected =
            state::WdfIoQueueAcceptRequests | state::WdfIoQueueDispatchRequests | state::WdfIoQueueNoRequests;
        assert_eq!(flags, expected);
    });
    loads(|_| {
        stop(default_queue());
        let (flags, ..) = state_of(default_queue());
        assert_eq!(flags & state::WdfIoQueueDispatchRequests, 0, "it keeps what comes");
        // SAFETY: the queue is live.
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStart, default_queue()) };
        drain(default_queue());
        assert_eq!(state_of(default_queue()).0 & state::WdfIoQueueAcceptRequests, 0, "it refuses what comes");
        // SAFETY: the queue is live.
        unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueStart, default_queue()) };
    });
}

unsafe extern "C" fn cancelled(request: WDFREQUEST) {
    complete(request, STATUS_CANCELLED, 0);
}

fn mark(request: WDFREQUEST) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelable, request, Some(cancelled)) };
}

#[test]
fn a_request_that_was_cancelled_before_it_is_marked_goes_to_the_routine_at_once() {
    run_with(Wrong { control: |request, _| REQUEST.store(request, Relaxed), ..Wrong::default() }, |driver, file| {
        let pending: Pending = file.begin(CODE, &[1, 2, 3], 5);
        pending.cancel();
        assert!(!pending.is_complete(), "the driver has it, and could not be asked");
        driver.run(|| mark(kept()));
        assert_eq!(pending.wait().status, STATUS_CANCELLED);
    });
}

#[test]
fn the_framework_says_its_version() {
    loads(|loaded| {
        let available = |major, minor| {
            let mut asked = WDF_DRIVER_VERSION_AVAILABLE_PARAMS {
                Size: size::<WDF_DRIVER_VERSION_AVAILABLE_PARAMS>(),
                MajorVersion: major,
                MinorVersion: minor,
            };
            let driver = loaded.driver;
            // SAFETY: the driver is live, and the structure lives until the call returns.
            unsafe { call_unsafe_wdf_function_binding!(WdfDriverIsVersionAvailable, driver, &raw mut asked) != 0 }
        };
        assert!(available(1, 0) && available(1, 15));
        assert!(!available(1, 99) && !available(2, 0));

        let (mut string, nobody) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the place lives until the call returns; no text.
        let made = unsafe { call_unsafe_wdf_function_binding!(WdfStringCreate, ptr::null(), nobody, &raw mut string) };
        // SAFETY: driver and string are live.
        let said = unsafe { call_unsafe_wdf_function_binding!(WdfDriverRetrieveVersionString, loaded.driver, string) };
        assert_eq!((made, said), (STATUS_SUCCESS, STATUS_SUCCESS));
        let mut text = UNICODE_STRING::default();
        // SAFETY: the string is live, and the place lives until the call returns.
        unsafe { call_unsafe_wdf_function_binding!(WdfStringGetUnicodeString, string, &raw mut text) };
        let count = usize::from(text.Length / 2);
        // SAFETY: the string has as many units, and lives.
        let units = unsafe { std::slice::from_raw_parts(text.Buffer, count) };
        assert!(String::from_utf16_lossy(units).starts_with("Kernel Mode Driver Framework version 1."));

        // SAFETY: the queue is live.
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, default_queue()) };
        // SAFETY: the device is live.
        assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfDeviceGetDriver, device) }, loaded.driver);
    });
}

fn collection(members: &[WDFOBJECT]) -> WDFCOLLECTION {
    let (mut all, nobody) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the place lives until the call returns.
    let status = unsafe { call_unsafe_wdf_function_binding!(WdfCollectionCreate, nobody, &raw mut all) };
    assert_eq!(status, STATUS_SUCCESS);
    for &member in members {
        // SAFETY: collection and member are live.
        assert_eq!(unsafe { call_unsafe_wdf_function_binding!(WdfCollectionAdd, all, member) }, STATUS_SUCCESS);
    }
    all
}

fn ends(all: WDFCOLLECTION) -> [WDFOBJECT; 2] {
    // SAFETY: the collection is live.
    let first = unsafe { call_unsafe_wdf_function_binding!(WdfCollectionGetFirstItem, all) };
    // SAFETY: the collection is live.
    let last = unsafe { call_unsafe_wdf_function_binding!(WdfCollectionGetLastItem, all) };
    [first, last]
}

fn remove(all: WDFCOLLECTION, member: WDFOBJECT) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfCollectionRemove, all, member) };
}

fn remove_at(all: WDFCOLLECTION, index: u32) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfCollectionRemoveItem, all, index) };
}

#[test]
fn members_leave_a_collection_by_themselves_or_by_their_place() {
    loads(|_| {
        let members: [WDFOBJECT; 3] = [memory(8), memory(8), memory(8)].map(<*mut _>::cast);
        let all = collection(&members);
        assert_eq!(ends(all), [members[0], members[2]]);
        remove(all, members[0]);
        remove_at(all, 1);
        assert_eq!(ends(all), [members[1], members[1]]);
        remove_at(all, 0);
        assert_eq!(ends(all), [ptr::null_mut(), ptr::null_mut()]);
        // Each still has the reference of its creation.
        members.into_iter().for_each(delete);
    });
}

rules! {
    a_buffer_assigned_to_memory_that_has_its_own breaks BadHandle by |_| { assign(memory(8), &mut [0; 4]); };
    memory_that_is_something_else breaks BadHandle by |loaded| { buffer_of(loaded.driver.cast()); };
    a_buffer_written_after_its_memory_is_deleted breaks UseAfterFree by |_| {
        let memory = memory(8);
        let buffer = buffer_of(memory).0;
        delete(memory);
        // SAFETY: as wrong as the test wants it.
        unsafe { buffer.cast::<u8>().write(0x7A) };
    };
    paged_memory_created_at_dispatch_level breaks IrqlTooHigh by
        |_| { raise(2); let _ = try_memory(_POOL_TYPE::PagedPool, 8); };
    a_member_removed_that_is_not_there breaks BadArgument by
        |_| { let other: WDFOBJECT = memory(8).cast(); remove(collection(&[]), other); };
    a_place_removed_that_is_not_there breaks BadArgument by |_| { remove_at(collection(&[]), 0); };
    a_stop_that_waits_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); stop(default_queue()); };
    a_drain_of_a_queue_that_is_stopped breaks Deadlock by
        |_| { stop(default_queue()); drain(default_queue()); };
}

/// Tests that break a rule with a request.
macro_rules! with_a_request {
    ($($name:ident breaks $rule:ident by $control:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let test = concat!(module_path!(), "::", stringify!($name));
                caught(test, Rule::$rule, || {
                    run_with(Wrong { control: $control, ..Wrong::default() }, |_, file| {
                        let _answer = file.control(CODE, &[1, 2, 3], 5);
                    });
                });
            }
        )+
    };
}

with_a_request! {
    the_memory_of_a_request_that_a_driver_deletes breaks BadHandle by |request, _| delete(input_of(request));
    the_memory_of_a_request_after_its_completion breaks BadHandle by |request, _| {
        let memory = output_of(request);
        complete(request, STATUS_SUCCESS, 0);
        buffer_of(memory);
    };
    a_request_marked_twice breaks RequestCancelable by |request, _| { mark(request); mark(request); };
    a_stop_that_waits_for_the_request_of_its_caller breaks Deadlock by |_, _| stop(default_queue());
    a_drain_that_waits_for_the_request_of_its_caller breaks Deadlock by |_, _| drain(default_queue());
}

/// The test harness goes on behind a test that has failed, and the pool is that of the process.
#[test]
fn what_a_failed_test_has_left_is_not_the_next_driver_s_leak() {
    in_a_process_of_its_own("memory::what_a_failed_test_has_left_is_not_the_next_driver_s_leak", || {
        let failed = catch_unwind(|| {
            run_with(Wrong::default(), |driver, _| {
                driver.run(|| allocate(100));
                panic!("the test has failed");
            });
        });
        assert!(failed.is_err());
        run(Wrong::default());
    });
}
