//! A machine with the driver loaded and two adapters.

use std::net::IpAddr;

use ndis::{
    NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST, NDIS_STATISTICS_INFO,
    NDIS_STATUS, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_STATISTICS,
};
use ndkpi::{NDK_VERSION, NtStatus};
use simulated_kernel::{Driver, Kernel, Nic, Value, wdk::NTSTATUS};

pub const VERSION: NDK_VERSION = NDK_VERSION::V2_1;

/// The addresses of the two ends.
pub const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 77, 11)), IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 77, 12))];

/// Their addresses of the other family.
pub const IPV6_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V6(std::net::Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 11)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 12)),
];

pub fn load(kernel: &Kernel) -> Result<Driver, NTSTATUS> {
    load_with(kernel, &[])
}

/// Loads the driver with these values in the registry.
pub fn load_with(kernel: &Kernel, parameters: &[(&str, Value)]) -> Result<Driver, NTSTATUS> {
    #[cfg(unix)]
    return {
        kernel.image("softndknic", &["softndknic", "driver_common", "interpose", "provider", "engine", "cable"]);
        kernel.load_with("softndknic", softndknic::driver_entry, parameters)
    };
    #[cfg(windows)]
    kernel.load_image("softndknic", crate::images::image("softndknic"), parameters)
}

/// Has the protocols want what they want of an Ethernet adapter.
pub fn bind(nic: &Nic) {
    let types = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_MULTICAST;
    assert_eq!(nic.set(OID_GEN_CURRENT_PACKET_FILTER, &types.to_le_bytes()).status, NDIS_STATUS::SUCCESS);
}

/// An adapter that protocols are bound to.
pub fn add(driver: &Driver, keywords: &[(&str, &str)]) -> Nic {
    let nic = driver.add_nic(keywords).expect("an adapter");
    bind(&nic);
    nic
}

/// Does something on a machine with the two ends of a cable, and takes everything away.
pub fn with_pair(kernel: &Kernel, keywords: &[(&str, &str)], work: impl FnOnce(&Nic, &Nic)) {
    let driver = load(kernel).expect("the driver loads");
    let (one, other) = (add(&driver, keywords), add(&driver, keywords));
    work(&one, &other);
    one.remove();
    other.remove();
    driver.unload();
}

/// Gives both ends their addresses, and waits until the driver knows them.
pub fn configure(kernel: &Kernel, nics: [&Nic; 2]) {
    for (end, nic) in nics.into_iter().enumerate() {
        configure_end(kernel, nic, end);
    }
    wait_for_addresses(kernel);
}

/// Waits until drivers know the addresses: their table is read by a work item, which a busy host may let wait.
pub fn wait_for_addresses(kernel: &Kernel) {
    const LONGEST: u64 = 60_000_000;
    kernel.sleep(5_000);
    assert!(kernel.wait_for_work_items(LONGEST), "a work item does not end");
}

/// Gives one end its addresses.
pub fn configure_end(kernel: &Kernel, nic: &Nic, end: usize) {
    kernel.network().add_address(nic.if_index(), ADDRESSES[end], 24);
    kernel.network().add_address(nic.if_index(), IPV6_ADDRESSES[end], 64);
}

/// What the adapter has counted.
pub fn statistics(nic: &Nic) -> NDIS_STATISTICS_INFO {
    let answer = nic.query(OID_GEN_STATISTICS, size_of::<NDIS_STATISTICS_INFO>());
    assert_eq!(answer.status, NDIS_STATUS::SUCCESS);
    // SAFETY: as many bytes as the structure has, all of which are numbers.
    unsafe { answer.bytes.as_ptr().cast::<NDIS_STATISTICS_INFO>().read_unaligned() }
}

/// A frame with that number from one end to the other, `length` bytes.
pub fn frame(from: &Nic, to: &Nic, number: u64, length: usize) -> Vec<u8> {
    let mut frame = to.mac();
    frame.extend(from.mac());
    frame.extend([0x88, 0xB5]);
    frame.extend(number.to_le_bytes());
    frame.resize(length, 0xA5);
    frame
}

/// The number of a frame.
#[cfg(unix)]
pub fn number(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[14..22].try_into().expect("eight bytes"))
}

/// Nothing but this may be said when something could not be had.
pub fn is_no_memory(status: NtStatus) -> bool {
    status == NtStatus::INSUFFICIENT_RESOURCES
}

/// How much slower a kernel's clock goes whose time-outs must not run out because the host is busy.
pub const PACE: u32 = 8;

/// Runs a test on a kernel of threads, with a slow clock, and on seeded ones with the seeds from 1 on.
pub fn on_both(seeds: u64, test: impl Fn(&Kernel)) {
    test(&Kernel::threads().pace(PACE).start());
    for seed in 1..=seeds {
        test(&Kernel::seeded(seed).start());
    }
}
