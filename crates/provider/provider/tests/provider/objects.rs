//! What the provider may do with the objects it has handed out (`NDKPI 7.10`).

use std::{ffi::c_void, ptr};

use conformance::{
    HELD, Verdict,
    client::{ALL_RIGHTS, FastRegistration, Options, Region, Remote, Session},
    fixture::{Pair, Plan},
    host::{HostPlatform, Setup},
};
use host::{HostOs, machine::Machine};
use ndkpi::{
    GROUP_AFFINITY, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, NDK_ADAPTER_INFO,
    NDK_CONNECTOR, NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_OBJECT_HEADER, NDK_PD, NDK_RESULT, NDK_SRQ, NDK_VERSION, NtStatus,
};
use provider::{CompletionMode, Config, Device};

unsafe extern "system" fn created(_: *mut c_void, _: NtStatus, _: *mut NDK_OBJECT_HEADER) {}
unsafe extern "system" fn closed(_: *mut c_void) {}
unsafe extern "system" fn notified(_: *mut c_void, _: NtStatus) {}

/// Does what the operating system's layer does: puts its own table in, and its own state into the reserved block. Returns
/// the provider's table.
macro_rules! scribble {
    ($object:expr) => {{
        let object = $object;
        // SAFETY: the object is open, and its header and table are the consumer's.
        let object = unsafe { &mut *object };
        object.Header.NdkReserved.rf = [ptr::without_provenance_mut(0xDEAD_BEEF); 4];
        let table = std::mem::replace(&mut object.Dispatch, ptr::dangling());
        // SAFETY: the provider's tables live as long as the program.
        unsafe { &*table }
    }};
}

//= bug 11
//= invariant 8
#[test]
fn the_provider_uses_neither_dispatch_nor_the_reserved_block() {
    let machine = Machine::threads().start();
    let device = Device::try_new(&HostOs::new(&machine), Config::default()).expect("memory");
    let adapter: *mut NDK_ADAPTER = Device::open(&device, NDK_VERSION::V2_0).expect("an adapter");
    let table = scribble!(adapter);

    let (mut info, mut size) = (NDK_ADAPTER_INFO::default(), 104);
    let query = table.NdkQueryAdapterInfo.expect("a full table");
    // SAFETY: the adapter is open, the information is as large as the size says.
    assert_eq!(unsafe { query(adapter, &raw mut info, &raw mut size) }, NtStatus::SUCCESS);
    assert_eq!(info.Version, NDK_VERSION::V2_1);

    let mut pd: *mut NDK_PD = ptr::null_mut();
    let create = table.NdkCreatePd.expect("a full table");
    // SAFETY: the adapter is open, the place is valid.
    assert_eq!(unsafe { create(adapter, Some(created), ptr::null_mut(), &raw mut pd) }, NtStatus::SUCCESS);
    let pd_table = scribble!(pd);

    let mut cq: *mut NDK_CQ = ptr::null_mut();
    let create = table.NdkCreateCq.expect("a full table");
    // SAFETY: the adapter is open, the place is valid, there is no affinity.
    let status = unsafe {
        create(adapter, 16, Some(notified), ptr::null_mut(), ptr::null(), Some(created), ptr::null_mut(), &raw mut cq)
    };
    assert_eq!(status, NtStatus::SUCCESS);
    let cq_table = scribble!(cq);
    let (arm, poll) = (cq_table.NdkArmCq.expect("a full table"), cq_table.NdkGetCqResults.expect("a full table"));
    // SAFETY: the queue is open, nobody else uses it.
    unsafe { arm(cq, NDK_CQ_NOTIFY_ANY) };
    let mut results = [NDK_RESULT::ZEROED; 2];
    // SAFETY: the queue is open, nobody else uses it, there is room for two results.
    assert_eq!(unsafe { poll(cq, results.as_mut_ptr(), 2) }, 0);

    let close_cq = cq_table.NdkCloseCq.expect("a full table");
    // SAFETY: the queue is open and not used after this.
    assert_eq!(unsafe { close_cq(cq.cast(), Some(closed), ptr::null_mut()) }, NtStatus::SUCCESS);
    let close_pd = pd_table.NdkClosePd.expect("a full table");
    // SAFETY: the domain is open and not used after this.
    assert_eq!(unsafe { close_pd(pd.cast(), Some(closed), ptr::null_mut()) }, NtStatus::SUCCESS);
    // SAFETY: the adapter is open and not used after this.
    unsafe { Device::<HostOs>::close(adapter) };
    drop(device);
    machine.shutdown();
}

/// Asks for the information with a buffer of `given` bytes. The status, the size that was stored, and how many bytes from the first
/// on were written.
fn ask(adapter: *mut NDK_ADAPTER, given: u32) -> (NtStatus, u32, usize) {
    const UNTOUCHED: u8 = 0xA5;
    // SAFETY: the adapter is open.
    let table = unsafe { (*adapter).Dispatch };
    // SAFETY: a table lives as long as the program.
    let query = unsafe { &*table }.NdkQueryAdapterInfo.expect("a full table");
    let mut buffer = [u64::from_ne_bytes([UNTOUCHED; 8]); 16];
    let mut size = given;
    // SAFETY: the adapter is open, and the buffer is larger than the size says.
    let status = unsafe { query(adapter, buffer.as_mut_ptr().cast::<NDK_ADAPTER_INFO>(), &raw mut size) };
    let bytes = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let written = bytes.iter().rposition(|&byte| byte != UNTOUCHED).map_or(0, |last| last + 1);
    (status, size, written)
}

#[test]
fn a_consumer_of_major_version_1_gets_the_information_that_its_headers_know() {
    const WHOLE: u32 = 0x68;
    const BEFORE_TECHNOLOGY: u32 = 0x60;
    let machine = Machine::threads().start();
    let device = Device::try_new(&HostOs::new(&machine), Config::default()).expect("memory");
    for (version, least) in [(NDK_VERSION::V1_1, BEFORE_TECHNOLOGY), (NDK_VERSION::V2_0, WHOLE)] {
        let adapter = Device::open(&device, version).expect("an adapter");
        for given in 0..least {
            assert_eq!(ask(adapter, given), (NtStatus::BUFFER_TOO_SMALL, WHOLE, 0), "{version}, {given} bytes");
        }
        for given in least..WHOLE {
            let exactly = BEFORE_TECHNOLOGY as usize;
            assert_eq!(
                ask(adapter, given),
                (NtStatus::SUCCESS, BEFORE_TECHNOLOGY, exactly),
                "{version}, {given} bytes"
            );
        }
        for given in WHOLE..0x78 {
            let (status, size, written) = ask(adapter, given);
            assert_eq!((status, size), (NtStatus::SUCCESS, WHOLE), "{version}, {given} bytes");
            // The last four bytes are padding.
            assert!((0x64..=0x68).contains(&written), "{version}, {given} bytes: {written} written");
        }
        // SAFETY: the adapter is open and not used after this.
        unsafe { Device::<HostOs>::close(adapter) };
    }
    drop(device);
    machine.shutdown();
}

#[test]
fn every_slot_of_every_table_is_filled() {
    let machine = Machine::threads().start();
    let device = Device::try_new(&HostOs::new(&machine), Config::default()).expect("memory");
    for version in [NDK_VERSION::V1_1, NDK_VERSION::V2_1] {
        let adapter = Device::open(&device, version).expect("an adapter");
        // SAFETY: the adapter is open.
        let table = unsafe { (*adapter).Dispatch };
        let slots = size_of::<ndkpi::NDK_ADAPTER_DISPATCH>() / size_of::<usize>();
        for slot in 0..slots {
            // SAFETY: a table is an array of pointers to functions.
            let place = unsafe { table.cast::<*const c_void>().add(slot) };
            // SAFETY: the place is in the table.
            assert!(!unsafe { place.read() }.is_null(), "slot {slot}");
        }
        // SAFETY: the adapter is open and not used after this.
        unsafe { Device::<HostOs>::close(adapter) };
    }
    drop(device);
    machine.shutdown();
}

/// Runs `work` on an open adapter with its table.
fn on_adapter(config: &Config, work: impl FnOnce(*mut NDK_ADAPTER, &NDK_ADAPTER_DISPATCH)) {
    let machine = Machine::threads().start();
    let device = Device::try_new(&HostOs::new(&machine), *config).expect("memory");
    let adapter = Device::open(&device, NDK_VERSION::V2_1).expect("an adapter");
    work(adapter, scribble!(adapter));
    // SAFETY: the adapter is open and not used after this.
    unsafe { Device::<HostOs>::close(adapter) };
    drop(device);
    machine.shutdown();
}

/// Closes an object with the function `close` of its table.
macro_rules! close {
    ($close:expr, $object:expr) => {{
        let close = $close.expect("a full table");
        // SAFETY: the object is open and not used after this.
        assert_eq!(unsafe { close($object.cast(), Some(closed), ptr::null_mut()) }, NtStatus::SUCCESS);
    }};
}

fn queue(adapter: *mut NDK_ADAPTER, table: &NDK_ADAPTER_DISPATCH) -> *mut NDK_CQ {
    let mut cq = ptr::null_mut();
    let create = table.NdkCreateCq.expect("a full table");
    // SAFETY: the adapter is open, the place is valid, there is no affinity.
    let status =
        unsafe { create(adapter, 16, None, ptr::null_mut(), ptr::null(), Some(created), ptr::null_mut(), &raw mut cq) };
    assert_eq!(status, NtStatus::SUCCESS);
    cq
}

fn domain(adapter: *mut NDK_ADAPTER, table: &NDK_ADAPTER_DISPATCH) -> *mut NDK_PD {
    let mut pd = ptr::null_mut();
    let create = table.NdkCreatePd.expect("a full table");
    // SAFETY: the adapter is open, the place is valid.
    assert_eq!(unsafe { create(adapter, Some(created), ptr::null_mut(), &raw mut pd) }, NtStatus::SUCCESS);
    pd
}

const INVALID: NtStatus = NtStatus::INVALID_PARAMETER;

#[test]
fn a_null_pointer_where_an_adapter_needs_one_is_an_invalid_parameter() {
    on_adapter(&Config::default(), |adapter, table| {
        let query = table.NdkQueryAdapterInfo.expect("a full table");
        // SAFETY: the adapter is open, and null is refused.
        assert_eq!(unsafe { query(adapter, ptr::null_mut(), ptr::null_mut()) }, INVALID);
        let build = table.NdkBuildLAM.expect("a full table");
        let (mut size, mut first) = (0, 0);
        for (size, first) in [(ptr::null_mut(), &raw mut first), (&raw mut size, ptr::null_mut())] {
            let (nothing, context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the adapter is open, and null is refused.
            let status = unsafe { build(adapter, nothing, 1, None, context, ptr::null_mut(), size, first) };
            assert_eq!(status, INVALID);
        }
        let release = table.NdkReleaseLAM.expect("a full table");
        // SAFETY: the adapter is open, and null is ignored.
        unsafe { release(adapter, ptr::null_mut()) };
        let cq = queue(adapter, table);
        let cq_table = scribble!(cq);
        let poll = cq_table.NdkGetCqResults.expect("a full table");
        // SAFETY: the queue is open, nobody else uses it, and nothing is written to null.
        assert_eq!(unsafe { poll(cq, ptr::null_mut(), 1) }, 0);
        close!(cq_table.NdkCloseCq, cq);
    });
}

#[test]
fn private_data_with_a_length_and_no_address_is_an_invalid_parameter() {
    on_adapter(&Config::default(), |adapter, table| {
        let mut connector: *mut NDK_CONNECTOR = ptr::null_mut();
        let create = table.NdkCreateConnector.expect("a full table");
        // SAFETY: the adapter is open, the place is valid.
        let status = unsafe { create(adapter, Some(created), ptr::null_mut(), &raw mut connector) };
        assert_eq!(status, NtStatus::SUCCESS);
        let table = scribble!(connector);
        let get = table.NdkGetConnectionData.expect("a full table");
        let (limit, data, mut room) = (ptr::null_mut(), ptr::null_mut(), 4);
        for length in [ptr::null_mut(), &raw mut room] {
            // SAFETY: the connector is open, the length is null or valid.
            assert_eq!(unsafe { get(connector, limit, limit, data, length) }, INVALID);
        }
        let reject = table.NdkReject.expect("a full table");
        // SAFETY: the connector is open, and null is refused.
        assert_eq!(unsafe { reject(connector, ptr::null(), 4) }, INVALID);
        close!(table.NdkCloseConnector, connector);
    });
}

#[test]
fn a_close_of_an_object_of_another_kind_closes_nothing() {
    on_adapter(&Config::default(), |adapter, table| {
        let (cq, pd) = (queue(adapter, table), domain(adapter, table));
        let (cq_table, pd_table) = (scribble!(cq), scribble!(pd));
        close!(pd_table.NdkClosePd, cq);
        let poll = cq_table.NdkGetCqResults.expect("a full table");
        let mut results = [NDK_RESULT::ZEROED];
        // SAFETY: the queue is open, nobody else uses it, there is room for a result.
        assert_eq!(unsafe { poll(cq, results.as_mut_ptr(), 1) }, 0);
        close!(cq_table.NdkCloseCq, cq);
        close!(pd_table.NdkClosePd, pd);
    });
}

#[test]
fn an_adapter_that_does_not_resize_queues_says_so() {
    let mut config = Config::default();
    config.info.AdapterFlags &= !NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED;
    on_adapter(&config, |adapter, table| {
        unsafe extern "system" fn done(_: *mut c_void, _: NtStatus) {}
        let cq = queue(adapter, table);
        let table = scribble!(cq);
        let resize = table.NdkResizeCq.expect("a full table");
        // SAFETY: the queue is open.
        assert_eq!(unsafe { resize(cq, 32, Some(done), ptr::null_mut()) }, NtStatus::NOT_SUPPORTED);
        close!(table.NdkCloseCq, cq);
    });
}

#[test]
fn a_shared_receive_queue_takes_any_affinity() {
    on_adapter(&Config::default(), |adapter, table| {
        let pd = domain(adapter, table);
        let table = scribble!(pd);
        let create = table.NdkCreateSrq.expect("a full table");
        for (group, mask) in [(0, 1), (7, usize::MAX)] {
            let affinity = GROUP_AFFINITY { Group: group, Mask: mask, ..GROUP_AFFINITY::default() };
            let (nothing, mut srq): (_, *mut NDK_SRQ) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the domain is open, the affinity and the place are valid.
            let status = unsafe {
                create(pd, 8, 1, 0, None, nothing, &raw const affinity, Some(created), nothing, &raw mut srq)
            };
            assert_eq!(status, NtStatus::SUCCESS);
            let table = scribble!(srq);
            close!(table.NdkCloseSrq, srq);
        }
        close!(table.NdkClosePd, pd);
    });
}

/// Runs `work` in a session of the suite's client.
fn in_session(work: impl for<'s> FnOnce(&'s Session<'s>) -> Verdict) {
    let platform = HostPlatform::start(Setup::default()).expect("a machine");
    let options = Options { name: "objects", version: NDK_VERSION::V2_1, seed: 1, hostile: true };
    assert_eq!(Session::with(&platform, &options, work), HELD);
    platform.finish().expect("nothing is left");
}

#[test]
fn a_fast_registration_of_bytes_without_pages_is_refused() {
    in_session(|session| {
        let pair = Pair::new(session)?;
        let mr = pair.a.pd.core().create_mr(true)?;
        mr.core().initialize(1, false)?.succeeds()?;
        let nothing = FastRegistration { pages: &[], offset: 0, length: 10, base: 0, flags: 0 };
        assert_eq!(pair.a.qp.fast_register(1, mr.core(), &nothing)?, INVALID);
        HELD
    });
}

#[test]
fn a_second_deregistration_under_load_is_refused() {
    const LENGTH: u32 = 1 << 20;
    in_session(|session| {
        let bytes = LENGTH as usize;
        let pair = Pair::with(session, &Plan { bytes, ..Plan::new() }, &Plan::new())?;
        let region = Region::new(pair.b.pd.core(), bytes, ALL_RIGHTS)?;
        region.buffer.fill(0, bytes, 0)?;
        pair.a.region.buffer.fill(0, bytes, 0xAA)?;
        let remote = Remote { address: region.address(0), token: region.remote() };
        for number in 0..16 {
            pair.a.write(number, 0, LENGTH, remote, 0)?;
        }
        session.platform().dwell(&|| region.buffer.holds(0, 0) != Ok(true));
        let first = region.mr.core().deregister()?;
        let second = region.mr.core().deregister()?.wait()?;
        assert_eq!(second, NtStatus::INVALID_DEVICE_STATE);
        first.succeeds()?;
        pair.a.initiated().take(16)?;
        session.settle();
        HELD
    });
}

//= bug 10
#[test]
fn a_completion_mode_says_when_requests_complete() {
    let machine = Machine::threads().start();
    let os = HostOs::new(&machine);
    let drawn = |mode, seed| -> Vec<String> {
        let config = Config { mode: CompletionMode::Inline, seed, ..Config::default() };
        let device = Device::try_new(&os, config).expect("memory");
        assert_eq!(format!("{:?}", device.completions().timing()), "Inline");
        device.completions().set_mode(mode);
        (0..300).map(|_| format!("{:?}", device.completions().timing())).collect()
    };
    for (mode, timing) in
        [(CompletionMode::Inline, "Inline"), (CompletionMode::Early, "Early"), (CompletionMode::Pending, "Later")]
    {
        assert!(drawn(mode, 1).iter().all(|drawn| drawn == timing), "{mode:?}");
    }
    let mixed = drawn(CompletionMode::Mixed, 1);
    for timing in ["Inline", "Early", "Later"] {
        let share = mixed.iter().filter(|drawn| *drawn == timing).count();
        assert!((60..=140).contains(&share), "{share} of 300 are {timing}");
    }
    assert_eq!(mixed, drawn(CompletionMode::Mixed, 1), "the seed determines them");
    assert_ne!(mixed, drawn(CompletionMode::Mixed, 2));
    machine.shutdown();
}
