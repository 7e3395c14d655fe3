//! The connections that the provider lists for programs.

use control::{
    client::TestDriver,
    provider_device::QUERY_CONNECTIONS,
    test_device::{Kind, Start},
};
use ndkpi::{NDIS_NDK_CONNECTIONS_REVISION_1, NDIS_OBJECT_TYPE_DEFAULT};
use simulated_kernel::{
    Kernel,
    wdk::{STATUS_BUFFER_OVERFLOW, STATUS_SUCCESS},
};

use crate::{
    client::ToKernel,
    world::{Consumer, Provider, consumer_control, provider_control},
};

/// Bytes of `NDIS_NDK_CONNECTIONS` before its entries.
const HEADER: usize = 16;
/// Bytes of `NDIS_NDK_CONNECTION_ENTRY`, and of an address in it.
const ENTRY: usize = 64;
const ADDRESS: usize = 28;

#[test]
fn both_sides_of_a_connection_are_listed() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let file = provider_control(&kernel);
    let driver = TestDriver::new(ToKernel(consumer_control(&kernel)));
    let none = file.control(QUERY_CONNECTIONS, &[], 4096);
    assert_eq!((none.status, none.bytes.len(), none.bytes[8]), (STATUS_SUCCESS, HEADER, 0));

    driver.start(&Start { kind: Kind::Performance as u32, seconds: 3600, seed: 1 }).expect("it starts");
    let listed = || file.control(QUERY_CONNECTIONS, &[], 4096).bytes;
    kernel.wait_until(|| listed().len() == HEADER + 2 * ENTRY);
    let bytes = listed();
    assert_eq!(bytes[..2], [NDIS_OBJECT_TYPE_DEFAULT, NDIS_NDK_CONNECTIONS_REVISION_1]);
    assert_eq!(usize::from(u16::from_le_bytes([bytes[2], bytes[3]])), bytes.len());
    assert_eq!(bytes[8..12], 2_u32.to_le_bytes(), "so many entries");
    let [one, other] = [0, 1].map(|index| &bytes[HEADER + index * ENTRY..][..ENTRY]);
    assert_ne!(one[..ADDRESS], other[..ADDRESS]);
    assert_eq!(one[..ADDRESS], other[ADDRESS..2 * ADDRESS], "the local address of one is the other's remote one");
    assert_eq!(one[ADDRESS..2 * ADDRESS], other[..ADDRESS]);
    assert_eq!((&one[2 * ADDRESS..], &other[2 * ADDRESS..]), (&[0; 8][..], &[0; 8][..]), "of the kernel");

    let cut = file.control(QUERY_CONNECTIONS, &[], HEADER);
    assert_eq!((cut.status, &cut.bytes[..]), (STATUS_BUFFER_OVERFLOW, &bytes[..HEADER]), "a warning, with the count");

    driver.cancel().expect("it is cancelled");
    drop((driver, file));
    consumer.unload();
    provider.unload();
}
