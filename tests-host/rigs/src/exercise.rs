//! What a fuzzer does with both drivers: bytes are read as a row of requests, and anything may be in them.
//!
//! Each row has a life of the drivers to itself, from load to unload, so that whatever it leaves behind is found.

use control::{SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, case, network, test_device};
use simulated_kernel::{Device, Kernel, wdk::GUID};

use crate::{
    bytes::Bytes,
    codes,
    world::{Consumer, Provider, consumer_control, provider_control},
};

/// Requests of one row at most.
const LONGEST: usize = 200;

/// Those of the consumer's control device.
const CONSUMER: [u32; 7] = [
    test_device::START,
    test_device::QUERY_PROGRESS,
    test_device::CANCEL,
    test_device::QUERY_REPORT,
    network::START_ON,
    case::START_CASE,
    network::QUERY_INTERFACE,
];

/// Sends control codes to both control devices.
pub fn control_codes(bytes: &[u8]) {
    let kernel = Kernel::seeded(1).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let files = [provider_control(&kernel), consumer_control(&kernel)];
    let known = [codes::PROVIDER.as_slice(), &CONSUMER].concat();
    codes::send(bytes, &known, |to_consumer, code, input, output| {
        files[usize::from(to_consumer)].control(code, input, output)
    });
    drop(files);
    consumer.unload();
    provider.unload();
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
