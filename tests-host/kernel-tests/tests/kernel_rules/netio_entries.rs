//! The IP helper: single entries, the table of routes, changes of routes, identifiers and masks.

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::{Mutex, PoisonError},
};

use ndis::{
    AF_UNSPEC, CancelMibChangeNotify2, FreeMibTable, MIB_IF_ROW2, MIB_IF_TABLE2, MIB_IPFORWARD_ROW2,
    MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_LUID,
};
use ndkpi::{AF_INET, AF_INET6, GUID, NtStatus, SOCKADDR_INET};
use simulated_kernel::{DuringRun, NewInterface, Rule, caught};

use crate::netio::with_network;

/// `MIB_IPINTERFACE_ROW`, of which the tests look at these fields.
#[derive(Clone, Copy)]
#[repr(C)]
struct InterfaceRow {
    family: u16,
    luid: NET_LUID,
    index: u32,
    others: [u8; 132],
    mtu: u32,
    connected: u8,
    rest: [u8; 11],
}

const _: () = assert!(size_of::<InterfaceRow>() == 168 && std::mem::offset_of!(InterfaceRow, mtu) == 152);

/// `MIB_IPFORWARD_TABLE2`, whose rows follow.
#[repr(C, align(8))]
struct RouteTable {
    count: u32,
}

type RouteCallback = unsafe extern "C" fn(*mut c_void, *const MIB_IPFORWARD_ROW2, MIB_NOTIFICATION_TYPE);

unsafe extern "C" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn GetUnicastIpAddressEntry(row: *mut MIB_UNICASTIPADDRESS_ROW) -> NtStatus;
    fn InitializeUnicastIpAddressEntry(row: *mut MIB_UNICASTIPADDRESS_ROW);
    fn GetIpInterfaceEntry(row: *mut InterfaceRow) -> NtStatus;
    fn InitializeIpInterfaceEntry(row: *mut InterfaceRow);
    fn GetIpForwardTable2(family: u16, table: *mut *mut RouteTable) -> NtStatus;
    fn NotifyRouteChange2(
        family: u16,
        callback: Option<RouteCallback>,
        context: *mut c_void,
        initial: u8,
        handle: *mut *mut c_void,
    ) -> NtStatus;
    fn ConvertInterfaceLuidToGuid(luid: *const NET_LUID, guid: *mut GUID) -> NtStatus;
    fn ConvertInterfaceGuidToLuid(guid: *const GUID, luid: *mut NET_LUID) -> NtStatus;
    fn ConvertLengthToIpv4Mask(length: u32, mask: *mut u32) -> NtStatus;
    fn ConvertIpv4MaskToLength(mask: u32, length: *mut u8) -> NtStatus;
    fn GetIfEntry2Ex(level: i32, row: *mut MIB_IF_ROW2) -> NtStatus;
    fn GetIfTable2Ex(level: i32, table: *mut *mut MIB_IF_TABLE2) -> NtStatus;
}

/// Nothing has what was asked for.
const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0225);

/// A call of the stack that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and the callbacks as long as the program.
        unsafe { $name($($argument),*) }
    }};
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 168, 1, last])
}

fn inet(address: IpAddr) -> SOCKADDR_INET {
    SocketAddr::new(address, 0).into()
}

fn empty_address() -> MIB_UNICASTIPADDRESS_ROW {
    let mut row = MaybeUninit::uninit();
    call!(InitializeUnicastIpAddressEntry(row.as_mut_ptr()));
    // SAFETY: just initialised.
    unsafe { row.assume_init() }
}

fn empty_interface() -> InterfaceRow {
    let mut row = MaybeUninit::uninit();
    call!(InitializeIpInterfaceEntry(row.as_mut_ptr()));
    // SAFETY: just initialised.
    unsafe { row.assume_init() }
}

/// Where the routes of a family lead: the prefix, its length and the interface.
fn routes(family: u16) -> Result<Vec<(IpAddr, u8, u32)>, NtStatus> {
    let mut table = ptr::null_mut();
    call!(GetIpForwardTable2(family, &raw mut table)).ok()?;
    // SAFETY: the stack's table, which is freed below.
    let count = unsafe { (*table).count } as usize;
    // SAFETY: as many rows follow.
    let rows = unsafe { std::slice::from_raw_parts(table.wrapping_add(1).cast::<MIB_IPFORWARD_ROW2>(), count) };
    let routes = rows.iter().map(place_of).collect();
    call!(FreeMibTable(table.cast()));
    Ok(routes)
}

fn place_of(row: &MIB_IPFORWARD_ROW2) -> (IpAddr, u8, u32) {
    let prefix = row.DestinationPrefix.Prefix.to_socket_addr().expect("an address").ip();
    (prefix, row.DestinationPrefix.PrefixLength, row.InterfaceIndex)
}

#[test]
fn the_entry_of_an_address_says_what_the_table_says() {
    with_network(|_, driver, [one, two]| {
        driver.run(|| {
            let mut row = empty_address();
            assert_eq!((row.OnLinkPrefixLength, row.ValidLifetime), (255, u32::MAX), "as the reference has it");
            (row.Address, row.InterfaceIndex) = (inet(address(11)), one);
            assert_eq!(call!(GetUnicastIpAddressEntry(&raw mut row)), NtStatus::SUCCESS);
            assert_eq!((row.OnLinkPrefixLength, row.Address), (24, inet(address(11))));
            row.InterfaceLuid = NET_LUID::default();
            row.InterfaceIndex = two;
            assert_eq!(call!(GetUnicastIpAddressEntry(&raw mut row)), NOT_FOUND);
            row.InterfaceIndex = 0;
            assert_eq!(call!(GetUnicastIpAddressEntry(&raw mut row)), NtStatus::INVALID_PARAMETER);
        });
    });
}

#[test]
fn the_entry_of_an_interface_has_its_largest_packet() {
    with_network(|network, driver, [one, _]| {
        network.describe(one, &NewInterface { mtu: 9000, ..NewInterface::ethernet("Ethernet 3") });
        driver.run(|| {
            let mut row = InterfaceRow { family: AF_INET, index: one, ..empty_interface() };
            row.luid = NET_LUID::default();
            assert_eq!(call!(GetIpInterfaceEntry(&raw mut row)), NtStatus::SUCCESS);
            assert_eq!((row.mtu, row.connected, row.index), (9000, 1, one));
            assert_ne!(row.luid, NET_LUID::default());
            // The identifier comes first.
            row.index = 9_999;
            assert_eq!((call!(GetIpInterfaceEntry(&raw mut row)), row.index), (NtStatus::SUCCESS, one));
            row.family = AF_UNSPEC;
            assert_eq!(call!(GetIpInterfaceEntry(&raw mut row)), NtStatus::INVALID_PARAMETER);
            (row.family, row.luid, row.index) = (AF_INET6, NET_LUID::default(), 9_999);
            assert_eq!(call!(GetIpInterfaceEntry(&raw mut row)), NOT_FOUND);
        });
    });
}

#[test]
fn the_table_of_routes_has_those_that_addresses_bring_and_those_that_were_added() {
    with_network(|network, driver, [one, two]| {
        network.add_route(IpAddr::from([10, 0, 0, 0]), 8, two, 5);
        driver.run(|| {
            let found = routes(AF_INET).expect("a table");
            assert_eq!(
                found,
                [
                    (IpAddr::from([10, 0, 0, 0]), 8, two),
                    (address(0), 24, one),
                    (address(11), 32, one),
                    (address(0), 24, two),
                    (address(12), 32, two)
                ]
            );
            assert_eq!(routes(AF_INET6), Err(NOT_FOUND));
            assert_eq!(routes(99), Err(NtStatus::INVALID_PARAMETER));
        });
    });
}

/// What a callback is told: of what, and which route.
type Heard = (MIB_NOTIFICATION_TYPE, Option<(IpAddr, u8, u32)>);

/// What the callback was told, and how often. No vector: it would be the driver's.
static HEARD: DuringRun<Mutex<(usize, [Option<Heard>; 16])>> = DuringRun::new(Mutex::new((0, [None; 16])));
static HANDLE: DuringRun<Mutex<usize>> = DuringRun::new(Mutex::new(0));

unsafe extern "C" fn hear(_: *mut c_void, row: *const MIB_IPFORWARD_ROW2, kind: MIB_NOTIFICATION_TYPE) {
    // SAFETY: null or a row that lives until the call returns.
    let row = unsafe { row.as_ref() }.map(place_of);
    let (count, all) = &mut *HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    all[*count] = Some((kind, row));
    *count += 1;
}

fn listen() {
    let mut handle = ptr::null_mut();
    assert_eq!(call!(NotifyRouteChange2(AF_INET, Some(hear), ptr::null_mut(), 1, &raw mut handle)), NtStatus::SUCCESS);
    *HANDLE.lock().unwrap_or_else(PoisonError::into_inner) = handle.expose_provenance();
}

fn cancel() {
    let handle = *HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(call!(CancelMibChangeNotify2(ptr::with_exposed_provenance_mut(handle))), NtStatus::SUCCESS);
}

#[test]
fn who_listens_hears_of_routes_that_come_and_go() {
    with_network(|network, driver, [one, _]| {
        driver.run(listen);
        network.add_route(IpAddr::from([10, 0, 0, 0]), 8, one, 5);
        network.add_address(one, address(31), 24);
        network.remove_address(address(31));
        network.remove_interface(one);
        driver.run(cancel);
        network.add_address(network.add_interface(&NewInterface::ethernet("Third")).0, address(41), 24);
        let heard: Vec<Heard> = HEARD.lock().unwrap_or_else(PoisonError::into_inner).1.into_iter().flatten().collect();
        let (came, went) = (MIB_NOTIFICATION_TYPE::ADD_INSTANCE, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
        let ten = (IpAddr::from([10, 0, 0, 0]), 8, one);
        let expected = [
            (MIB_NOTIFICATION_TYPE::INITIAL, None),
            (came, Some(ten)),
            (came, Some((address(0), 24, one))),
            (came, Some((address(31), 32, one))),
            (went, Some((address(0), 24, one))),
            (went, Some((address(31), 32, one))),
            (went, Some((address(0), 24, one))),
            (went, Some((address(11), 32, one))),
            (went, Some(ten)),
        ];
        assert_eq!(heard, expected);
    });
}

#[test]
fn who_still_listens_for_routes_at_the_unload() {
    caught(concat!(module_path!(), "::who_still_listens_for_routes_at_the_unload"), Rule::ReferenceLeak, || {
        with_network(|_, driver, _| driver.run(listen));
    });
}

#[test]
fn an_identifier_leads_to_the_interface_and_back() {
    with_network(|_, driver, [one, _]| {
        driver.run(|| {
            let mut row = InterfaceRow { family: AF_INET, luid: NET_LUID::default(), index: one, ..empty_interface() };
            assert_eq!(call!(GetIpInterfaceEntry(&raw mut row)), NtStatus::SUCCESS);
            let (mut guid, mut luid) = (GUID::default(), NET_LUID::default());
            assert_eq!(call!(ConvertInterfaceLuidToGuid(&raw const row.luid, &raw mut guid)), NtStatus::SUCCESS);
            assert_eq!(call!(ConvertInterfaceGuidToLuid(&raw const guid, &raw mut luid)), NtStatus::SUCCESS);
            assert_eq!(luid, row.luid);
            guid.Data2 += 1;
            let unknown = NET_LUID { Value: 7 };
            assert_eq!(call!(ConvertInterfaceGuidToLuid(&raw const guid, &raw mut luid)), NtStatus::INVALID_PARAMETER);
            assert_eq!(
                call!(ConvertInterfaceLuidToGuid(&raw const unknown, &raw mut guid)),
                NtStatus::INVALID_PARAMETER
            );
        });
    });
}

#[test]
fn the_length_of_a_mask_leads_to_it_and_back() {
    with_network(|_, driver, _| {
        driver.run(|| {
            for (length, bytes) in [(0, [0; 4]), (20, [255, 255, 240, 0]), (32, [255; 4])] {
                let (mut mask, mut back) = (7, 7);
                assert_eq!(call!(ConvertLengthToIpv4Mask(length, &raw mut mask)), NtStatus::SUCCESS);
                assert_eq!(mask.to_ne_bytes(), bytes);
                assert_eq!(call!(ConvertIpv4MaskToLength(mask, &raw mut back)), NtStatus::SUCCESS);
                assert_eq!(u32::from(back), length);
            }
            let (mut mask, mut length) = (0, 0);
            assert_eq!(call!(ConvertLengthToIpv4Mask(33, &raw mut mask)), NtStatus::INVALID_PARAMETER);
            let holes = u32::from_ne_bytes([255, 0, 255, 0]);
            assert_eq!(call!(ConvertIpv4MaskToLength(holes, &raw mut length)), NtStatus::INVALID_PARAMETER);
        });
    });
}

#[test]
fn a_level_of_detail_changes_nothing_of_an_interface() {
    with_network(|_, driver, [one, _]| {
        driver.run(|| {
            for level in [0, 2] {
                let mut row = MaybeUninit::<MIB_IF_ROW2>::zeroed();
                // SAFETY: the structure's bytes are there.
                unsafe { (*row.as_mut_ptr()).InterfaceIndex = one };
                assert_eq!(call!(GetIfEntry2Ex(level, row.as_mut_ptr())), NtStatus::SUCCESS);
                // SAFETY: the stack has filled it.
                assert_eq!(unsafe { (*row.as_ptr()).Mtu }, 1500);
            }
            for level in 0..3 {
                let mut table = ptr::null_mut();
                assert_eq!(call!(GetIfTable2Ex(level, &raw mut table)), NtStatus::SUCCESS);
                // SAFETY: the stack's table.
                assert_eq!(unsafe { (*table).NumEntries }, 2);
                call!(FreeMibTable(table.cast()));
            }
            let (mut row, mut table) = (MaybeUninit::<MIB_IF_ROW2>::zeroed(), ptr::null_mut());
            assert_eq!(
                call!(GetIfEntry2Ex(1, row.as_mut_ptr())),
                NtStatus::INVALID_PARAMETER,
                "raw is of a table only"
            );
            assert_eq!(call!(GetIfTable2Ex(3, &raw mut table)), NtStatus::INVALID_PARAMETER);
        });
    });
}
