//! What a fuzzer does with both drivers: bytes are read as a row of requests, and anything may be in them.
//!
//! Each row has a life of the drivers to itself, from load to unload, so that whatever it leaves behind is found.

use control::{SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, network, provider_device, test_device};
use simulated_kernel::{Device, File, Kernel, wdk::GUID};

use crate::{
    bytes::Bytes,
    world::{Consumer, Provider, consumer_control, provider_control},
};

/// Requests of one row at most.
const LONGEST: usize = 200;

const CODES: [u32; 14] = [
    provider_device::QUERY_INFO,
    provider_device::QUERY_COUNTERS,
    provider_device::QUERY_CONNECTIONS,
    provider_device::QUERY_SETTINGS,
    provider_device::SET_SETTINGS,
    provider_device::SET_FAULTS,
    provider_device::SET_FAULT_PLAN,
    provider_device::QUERY_FAULT_PLAN,
    test_device::START,
    test_device::QUERY_PROGRESS,
    test_device::CANCEL,
    test_device::QUERY_REPORT,
    network::START_ON,
    network::QUERY_INTERFACE,
];

/// Sends control codes to both control devices.
pub fn control_codes(bytes: &[u8]) {
    let kernel = Kernel::seeded(1).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let files = [provider_control(&kernel), consumer_control(&kernel)];
    let mut bytes = Bytes(bytes);
    for _ in 0..LONGEST {
        if bytes.is_over() {
            break;
        }
        request(&mut bytes, &files);
    }
    drop(files);
    consumer.unload();
    provider.unload();
}

/// A byte says to whom and which code, one more how many bytes go in, two how many may come out.
fn request(bytes: &mut Bytes<'_>, files: &[File; 2]) {
    let choice = bytes.next();
    let file = &files[usize::from(choice & 1)];
    let known = CODES[usize::from(choice >> 4) % CODES.len()];
    let code = match choice >> 1 & 7 {
        // Any code, or one that is nearly known.
        0 => u32::from(bytes.word()) << 16 | u32::from(bytes.word()),
        1 => known ^ 1 << (bytes.next() % 32),
        _ => known,
    };
    let length = usize::from(bytes.next() % 80);
    let input = bytes.take(length);
    let output = usize::from(bytes.word() % 8192);
    let answer = file.control(code, &input, output);
    assert!(answer.bytes.len() <= output, "{} bytes for {output}", answer.bytes.len());
    assert_ne!(answer.status, simulated_kernel::wdk::STATUS_PENDING);
}

/// Queries the provider's device for interfaces, with any size and version.
pub fn query_interface(bytes: &[u8]) {
    let kernel = Kernel::seeded(1).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let mut bytes = Bytes(bytes);
    for _ in 0..LONGEST {
        if bytes.is_over() {
            break;
        }
        query(&mut bytes, &provider.device);
    }
    provider.unload();
}

/// A byte says what is wrong about the identifier, one the size, two the version.
fn query(bytes: &mut Bytes<'_>, device: &Device) {
    let right = control::GUID_SOFTNDK;
    let mut kind = GUID { Data1: right.Data1, Data2: right.Data2, Data3: right.Data3, Data4: right.Data4 };
    match bytes.next() {
        change @ 1..=64 => kind.Data4[usize::from(change - 1) / 8] ^= 1 << ((change - 1) % 8),
        65..=80 => kind.Data1 = u32::from(bytes.word()) << 16 | u32::from(bytes.word()),
        _ => {}
    }
    let size = u16::from(bytes.next());
    // Most versions are small.
    let version = bytes.word();
    let version = if version < 0xF000 { version % 4 } else { version };
    let mut place = [SOFTNDK_INTERFACE::EMPTY; 4];
    assert!(size_of_val(&place) >= usize::from(size));
    // SAFETY: the place has room for as many bytes (seen above).
    let answer = unsafe { device.query_interface(&kind, place.as_mut_ptr().cast(), size, version) };
    let is_right = (kind.Data1, kind.Data4) == (right.Data1, right.Data4);
    let should =
        is_right && usize::from(size) >= size_of::<SOFTNDK_INTERFACE>() && version >= SOFTNDK_INTERFACE_VERSION;
    assert_eq!(answer.is_ok(), should, "size {size}, version {version}");
    if answer.is_ok() {
        assert_eq!(place[0].Version, SOFTNDK_INTERFACE_VERSION, "whatever was asked for");
        let dereference = place[0].InterfaceDereference.expect("an interface is counted");
        // SAFETY: the interface's own routine and context, for the user that the query has counted.
        unsafe { dereference(place[0].Context) };
    }
}
