//! What the provider may do with the objects it has handed out (`NDKPI 7.10`).

use std::{ffi::c_void, ptr};

use host::{HostOs, machine::Machine};
use ndkpi::{
    NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_OBJECT_HEADER, NDK_PD, NDK_RESULT, NDK_VERSION,
    NtStatus,
};
use provider::{Config, Device};

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
