//! The IP helper: names, tables, routes and changes of addresses.

use std::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use ndis::{
    AF_UNSPEC, CancelMibChangeNotify2, ConvertInterfaceAliasToLuid, ConvertInterfaceIndexToLuid,
    ConvertInterfaceLuidToAlias, ConvertInterfaceLuidToIndex, FreeMibTable, GetBestRoute2, GetIfEntry2, GetIfTable2,
    GetUnicastIpAddressTable, MIB_IF_ROW2, MIB_IPFORWARD_ROW2, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW,
    MIB_UNICASTIPADDRESS_TABLE, NET_LUID, NL_DAD_STATE, NotifyUnicastIpAddressChange,
};
use ndkpi::{AF_INET, NtStatus, SOCKADDR_INET};
use simulated_kernel::{Driver, DuringRun, Kernel, Network, NewInterface, Rule, caught, irql, object_attributes};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, KEVENT, LARGE_INTEGER, PVOID,
    ntddk::{
        KeDelayExecutionThread, KeInitializeEvent, KeSetEvent, KeWaitForSingleObject, PsCreateSystemThread, ZwClose,
    },
};

use crate::{
    raise,
    skeleton::{Wrong, allocate, keep, run_in},
};

/// Nothing has what was asked for.
const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0225);

/// A machine with two interfaces, "Ethernet 3" and "Ethernet 4", with an address each in one network, and a driver.
pub fn with_network(work: impl FnOnce(&Network, &Driver, [u32; 2])) {
    let limit = Duration::from_secs(2);
    let kernel = Kernel::seeded(1).preemption(0).hang_limit(limit).dispatch_limit(limit).start();
    let network = kernel.network();
    let [one, two] = ["Ethernet 3", "Ethernet 4"].map(|name| network.add_interface(&NewInterface::ethernet(name)).0);
    network.add_address(one, address(11), 24);
    network.add_address(two, address(12), 24);
    run_in(&kernel, Wrong::default(), |driver, _| work(&network, driver, [one, two]));
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 168, 1, last])
}

fn inet(address: IpAddr) -> SOCKADDR_INET {
    SocketAddr::new(address, 0).into()
}

fn luid_of(alias: &str) -> Result<NET_LUID, NtStatus> {
    let alias: Vec<u16> = alias.encode_utf16().chain([0]).collect();
    let mut luid = NET_LUID::default();
    // SAFETY: the string ends with a zero, and the place lives until the call returns.
    unsafe { ConvertInterfaceAliasToLuid(alias.as_ptr(), &raw mut luid) }.ok().map(|()| luid)
}

fn index_of(luid: NET_LUID) -> Result<u32, NtStatus> {
    let mut index = 0;
    // SAFETY: the places live until the call returns.
    unsafe { ConvertInterfaceLuidToIndex(&raw const luid, &raw mut index) }.ok().map(|()| index)
}

fn alias_of(luid: NET_LUID) -> Result<String, NtStatus> {
    let mut units = [0; 257];
    // SAFETY: the places live until the call returns.
    let status = unsafe { ConvertInterfaceLuidToAlias(&raw const luid, units.as_mut_ptr(), units.len()) };
    let length = units.iter().position(|unit| *unit == 0).unwrap_or(0);
    status.ok().map(|()| String::from_utf16_lossy(&units[..length]))
}

#[test]
fn what_is_not_there_has_no_identifier_and_no_index() {
    with_network(|_, driver, _| {
        driver.run(|| {
            let mut luid = NET_LUID { Value: 7 };
            // SAFETY: the place lives until the call returns.
            let status = unsafe { ConvertInterfaceIndexToLuid(9_999, &raw mut luid) };
            assert_eq!((status.is_success(), luid), (false, NET_LUID::default()));
            let (unknown, mut index) = (NET_LUID { Value: 7 }, 7);
            // SAFETY: the places live until the call returns.
            let status = unsafe { ConvertInterfaceLuidToIndex(&raw const unknown, &raw mut index) };
            assert_eq!((status.is_success(), index), (false, 0));
        });
    });
}

#[test]
fn a_name_leads_to_an_identifier_and_that_to_an_index() {
    with_network(|_, driver, [one, _]| {
        let (found, alias, unknown) = driver.run(|| {
            let luid = luid_of("ethernet 3");
            (luid.and_then(index_of), luid.and_then(alias_of), luid_of("Ethernet 9"))
        });
        assert_eq!((found, alias.as_deref()), (Ok(one), Ok("Ethernet 3")));
        assert_eq!(unknown, Err(NtStatus::INVALID_PARAMETER));
    });
}

/// The rows that a driver reads, and whether it could free the table.
fn addresses(family: u16) -> Result<Vec<(SOCKADDR_INET, u32, NL_DAD_STATE)>, NtStatus> {
    let mut table = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    unsafe { GetUnicastIpAddressTable(family, &raw mut table) }.ok()?;
    // SAFETY: the table is the stack's, and is freed below.
    let rows = unsafe { rows_of(table) };
    let copies = rows.iter().map(|row| (row.Address, row.InterfaceIndex, row.DadState)).collect();
    // SAFETY: the table is not used any more.
    unsafe { FreeMibTable(table.cast()) };
    Ok(copies)
}

/// # Safety
///
/// The table is one of the stack that was not freed.
unsafe fn rows_of<'table>(table: *const MIB_UNICASTIPADDRESS_TABLE) -> &'table [MIB_UNICASTIPADDRESS_ROW] {
    // SAFETY: a table of the stack that was not freed (`# Safety`).
    let count = unsafe { (*table).NumEntries };
    // SAFETY: as above; only the address is taken.
    let first = unsafe { &raw const (*table).Table };
    // SAFETY: the table has as many rows as it says.
    unsafe { std::slice::from_raw_parts(first.cast(), count as usize) }
}

#[test]
fn a_table_has_the_addresses_of_its_family() {
    with_network(|network, driver, [one, two]| {
        network.add_address_in(two, IpAddr::from([0xFE80, 0, 0, 0, 0, 0, 0, 1]), 64, NL_DAD_STATE::TENTATIVE);
        let (all, six) = driver.run(|| (addresses(AF_UNSPEC), addresses(ndkpi::AF_INET6)));
        let all = all.expect("a table");
        let mine: Vec<_> = all.iter().map(|(_, index, state)| (*index, *state)).collect();
        assert_eq!(
            mine,
            [(one, NL_DAD_STATE::PREFERRED), (two, NL_DAD_STATE::PREFERRED), (two, NL_DAD_STATE::TENTATIVE)]
        );
        assert_eq!(all[0].0.to_socket_addr().map(|address| address.ip()), Some(address(11)));
        assert_eq!(six.expect("a table").len(), 1);
        drop(all);
    });
}

#[test]
fn the_table_of_interfaces_has_names_and_speeds() {
    with_network(|network, driver, [one, two]| {
        network.set_up(two, false);
        let (listed, entry, unknown) = driver.run(|| {
            let mut table = ptr::null_mut();
            // SAFETY: the place lives until the call returns.
            let status = unsafe { GetIfTable2(&raw mut table) };
            assert_eq!(status, NtStatus::SUCCESS);
            // SAFETY: the table is the stack's, and is freed below.
            let count = unsafe { (*table).NumEntries };
            // SAFETY: as above; there is one row at least.
            let first: MIB_IF_ROW2 = unsafe { (*table).Table[0] };
            // SAFETY: the table is not used any more.
            unsafe { FreeMibTable(table.cast()) };
            let entry = |index| {
                let mut row = MIB_IF_ROW2 { InterfaceIndex: index, InterfaceLuid: NET_LUID::default(), ..first };
                // SAFETY: the row lives until the call returns.
                unsafe { GetIfEntry2(&raw mut row) }.ok().map(|()| (row.InterfaceIndex, row.OperStatus.0))
            };
            ((count, first.InterfaceIndex, first.TransmitLinkSpeed), entry(two), entry(99))
        });
        assert_eq!(listed, (2, one, 100_000_000_000));
        assert_eq!((entry, unknown), (Ok((two, 2)), Err(NOT_FOUND)));
    });
}

/// Through which interface, and from which address, the machine reaches another.
fn route(luid: Option<NET_LUID>, to: IpAddr) -> Result<(u32, Option<IpAddr>), NtStatus> {
    let (to, mut source) = (inet(to), SOCKADDR_INET::UNSPECIFIED);
    let mut row = std::mem::MaybeUninit::<MIB_IPFORWARD_ROW2>::zeroed();
    let mut luid = luid;
    let through = luid.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the places live until the call returns.
    let status = unsafe { GetBestRoute2(through, 0, ptr::null(), &raw const to, 0, row.as_mut_ptr(), &raw mut source) };
    status.ok()?;
    // SAFETY: every field is a number, for which zeros are a value; the call has filled them in.
    let row = unsafe { row.assume_init() };
    Ok((row.InterfaceIndex, source.to_socket_addr().map(|address| address.ip())))
}

#[test]
fn the_longest_prefix_decides_and_then_the_metric() {
    with_network(|network, driver, [one, two]| {
        let routes =
            |to| driver.run(|| (route(None, to), luid_of("Ethernet 4").and_then(|luid| route(Some(luid), to))));
        let on_two = Ok((two, Some(address(12))));
        assert_eq!(routes(address(77)), (Ok((one, Some(address(11)))), on_two), "the network of both");
        assert_eq!(routes(address(11)).0, Ok((one, Some(address(11)))), "the address of an interface");
        // What makes one machine look like two: the way to each address leads out through the other interface.
        network.add_route(address(11), 32, two, 0);
        assert_eq!(routes(address(11)), (on_two, on_two));
        let none = Err(NtStatus::NETWORK_UNREACHABLE);
        assert_eq!(routes(IpAddr::from([10, 1, 1, 1])), (none, none));
    });
}

/// What callbacks have seen: how many of each kind, and how many were raised.
static SEEN: DuringRun<[AtomicU32; 4]> = DuringRun::new([const { AtomicU32::new(0) }; 4]);
static RAISED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

unsafe extern "system" fn count(_: *mut c_void, row: *mut MIB_UNICASTIPADDRESS_ROW, kind: MIB_NOTIFICATION_TYPE) {
    SEEN[usize::try_from(kind.0).unwrap_or(0)].fetch_add(1, Relaxed);
    RAISED.fetch_add(u32::from(irql() == 2), Relaxed);
    assert_eq!(row.is_null(), kind == MIB_NOTIFICATION_TYPE::INITIAL, "only the first has no row");
}

fn listen(
    callback: unsafe extern "system" fn(*mut c_void, *mut MIB_UNICASTIPADDRESS_ROW, MIB_NOTIFICATION_TYPE),
    initial: bool,
) -> *mut c_void {
    let mut handle = ptr::null_mut();
    // SAFETY: the callback lives as long as the program, and the place until the call returns.
    let status = unsafe {
        NotifyUnicastIpAddressChange(AF_UNSPEC, Some(callback), ptr::null_mut(), initial.into(), &raw mut handle)
    };
    assert_eq!(status, NtStatus::SUCCESS);
    handle
}

fn cancel(handle: *mut c_void) {
    // SAFETY: the test's scenario, right or wrong.
    let _ = unsafe { CancelMibChangeNotify2(handle) };
}

#[test]
fn who_listens_hears_of_each_change_until_it_cancels() {
    with_network(|network, driver, [one, _]| {
        let handle = AtomicPtr::new(ptr::null_mut());
        driver.run(|| handle.store(listen(count, true), Relaxed));
        network.add_address(one, address(31), 24);
        network.set_dad_state(address(31), NL_DAD_STATE::DEPRECATED);
        network.remove_address(address(31));
        driver.run(|| cancel(handle.load(Relaxed)));
        network.remove_interface(one);
        assert_eq!(SEEN.each_ref().map(|count| count.load(Relaxed)), [1, 1, 1, 1]);
        assert_eq!(RAISED.load(Relaxed), 2, "of four callbacks two run at DISPATCH_LEVEL");
    });
}

unsafe extern "C" {
    /// `crates/abi/ndis` has what the drivers here import.
    fn NotifyIpInterfaceChange(
        family: u16,
        callback: Option<unsafe extern "C" fn(*mut c_void, *const InterfaceRow, MIB_NOTIFICATION_TYPE)>,
        context: *mut c_void,
        initial: u8,
        handle: *mut *mut c_void,
    ) -> NtStatus;
}

/// The fields of `MIB_IPINTERFACE_ROW` that a notification fills in.
#[repr(C)]
struct InterfaceRow {
    family: u16,
    luid: NET_LUID,
    index: u32,
}

static INTERFACES: DuringRun<[AtomicU32; 4]> = DuringRun::new([const { AtomicU32::new(0) }; 4]);

unsafe extern "C" fn count_interfaces(context: *mut c_void, row: *const InterfaceRow, kind: MIB_NOTIFICATION_TYPE) {
    assert!(context.is_null());
    let number = usize::try_from(kind.0).expect("a kind");
    INTERFACES[number].fetch_add(1, Relaxed);
    assert_eq!(row.is_null(), kind == MIB_NOTIFICATION_TYPE::INITIAL, "only the first has no row");
    // SAFETY: null or a row that lives until the call returns.
    if let Some(row) = unsafe { row.as_ref() } {
        assert_eq!((row.family, row.index != 0, row.luid.Value != 0), (AF_INET, true, true));
    }
}

#[test]
fn who_listens_hears_of_interfaces_and_not_of_addresses() {
    with_network(|network, driver, [one, _]| {
        let handle = AtomicPtr::new(ptr::null_mut());
        driver.run(|| {
            let (mut place, nobody) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the callback lives as long as the program, and the place until the call returns.
            let status = unsafe { NotifyIpInterfaceChange(AF_INET, Some(count_interfaces), nobody, 1, &raw mut place) };
            assert_eq!(status, NtStatus::SUCCESS);
            handle.store(place, Relaxed);
        });
        network.add_address(one, address(31), 24);
        network.set_up(one, false);
        network.set_up(one, false);
        let (index, _) = network.add_interface(&NewInterface::ethernet("Third"));
        network.remove_interface(index);
        driver.run(|| cancel(handle.load(Relaxed)));
        network.set_up(one, true);
        // One each: a change, an arrival, a departure, and the first.
        assert_eq!(INTERFACES.each_ref().map(|count| count.load(Relaxed)), [1; 4]);
    });
}

/// An event that a driver uses as a lock, and which the canceller holds.
static LOCK: DuringRun<AtomicPtr<KEVENT>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static HANDLE: DuringRun<AtomicPtr<c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static HELD: DuringRun<AtomicBool> = DuringRun::new(AtomicBool::new(false));
static CALLED: DuringRun<AtomicBool> = DuringRun::new(AtomicBool::new(false));

fn acquire() {
    let lock = LOCK.load(SeqCst).cast();
    // SAFETY: the event is initialised and lives as long as the driver.
    let _ = unsafe { KeWaitForSingleObject(lock, _KWAIT_REASON::Executive, 0, 0, ptr::null_mut()) };
}

fn release() {
    // SAFETY: as in `acquire`.
    unsafe { KeSetEvent(LOCK.load(SeqCst), 0, 0) };
}

unsafe extern "system" fn lock_in_callback(_: *mut c_void, _: *mut MIB_UNICASTIPADDRESS_ROW, _: MIB_NOTIFICATION_TYPE) {
    CALLED.store(true, SeqCst);
    acquire();
    release();
}

unsafe extern "C" fn cancel_with_the_lock(_: PVOID) {
    acquire();
    HELD.store(true, SeqCst);
    while !CALLED.load(SeqCst) {
        let mut interval = LARGE_INTEGER { QuadPart: -10_000 };
        // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
        let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
    }
    cancel(HANDLE.load(SeqCst));
    release();
}

fn start_canceller() {
    let lock: *mut KEVENT = keep(allocate(size_of::<KEVENT>())).cast();
    // SAFETY: a new block.
    unsafe { KeInitializeEvent(lock, _EVENT_TYPE::SynchronizationEvent, 1) };
    LOCK.store(lock, SeqCst);
    HANDLE.store(listen(lock_in_callback, false), SeqCst);
    let mut attributes = object_attributes();
    let (mut handle, none) = (ptr::null_mut(), ptr::null_mut());
    let routine = Some(cancel_with_the_lock as unsafe extern "C" fn(PVOID));
    // SAFETY: the structures live until the call returns.
    let status =
        unsafe { PsCreateSystemThread(&raw mut handle, 0, &raw mut attributes, none, ptr::null_mut(), routine, none) };
    assert_eq!(status, 0);
    // SAFETY: the handle was just opened.
    let _ = unsafe { ZwClose(handle) };
}

#[test]
fn a_callback_that_takes_a_lock_held_over_the_cancellation() {
    caught("kernel_rules::netio::a_callback_that_takes_a_lock_held_over_the_cancellation", Rule::Deadlock, || {
        let limit = Duration::from_secs(2);
        let kernel = Kernel::seeded(1).preemption(0).hang_limit(limit).start();
        let network = kernel.network();
        let (index, _) = network.add_interface(&NewInterface::ethernet("Ethernet 3"));
        run_in(&kernel, Wrong::default(), |driver, _| {
            driver.run(start_canceller);
            kernel.wait_until(|| HELD.load(SeqCst));
            network.add_address(index, address(31), 24);
        });
    });
}

unsafe extern "system" fn wait_in_callback(_: *mut c_void, _: *mut MIB_UNICASTIPADDRESS_ROW, _: MIB_NOTIFICATION_TYPE) {
    let mut interval = LARGE_INTEGER { QuadPart: -10_000 };
    // SAFETY: the test's scenario, which is wrong.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

unsafe extern "system" fn cancel_itself(_: *mut c_void, _: *mut MIB_UNICASTIPADDRESS_ROW, _: MIB_NOTIFICATION_TYPE) {
    cancel(HANDLE.load(SeqCst));
}

/// Tests that break a rule, each named after what it does.
macro_rules! breaks {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with_network($work));
            }
        )+
    };
}
pub(crate) use breaks;

/// A table that the driver has.
fn table() -> *mut c_void {
    let mut table = ptr::null_mut();
    // SAFETY: the place lives until the call returns.
    let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
    assert_eq!(status, NtStatus::SUCCESS);
    table.cast()
}

fn free(table: *mut c_void) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { FreeMibTable(table) };
}

breaks! {
    a_table_that_is_never_freed breaks PoolLeak by |_, driver, _| { driver.run(table); };
    a_table_freed_twice breaks DoubleFree by |_, driver, _| driver.run(|| { let table = table(); free(table); free(table); });
    a_table_that_is_none breaks BadFree by |_, driver, _| driver.run(|| free(ptr::without_provenance_mut(64)));
    a_table_at_dispatch_level breaks IrqlTooHigh by |_, driver, _| driver.run(|| { raise(2); table(); });
    a_free_at_dispatch_level breaks IrqlTooHigh by |_, driver, _| driver.run(|| { let table = table(); raise(2); free(table); });
    a_name_at_dispatch_level breaks IrqlTooHigh by |_, driver, _| driver.run(|| { raise(2); let _ = luid_of("Ethernet 3"); });
    an_index_at_dispatch_level breaks IrqlTooHigh by
        |_, driver, _| driver.run(|| { raise(2); let _ = index_of(NET_LUID::default()); });
    an_alias_at_dispatch_level breaks IrqlTooHigh by
        |_, driver, _| driver.run(|| { raise(2); let _ = alias_of(NET_LUID::default()); });
    a_route_at_dispatch_level breaks IrqlTooHigh by |_, driver, _| driver.run(|| { raise(2); let _ = route(None, address(1)); });
    a_registration_at_dispatch_level breaks IrqlTooHigh by |_, driver, _| driver.run(|| { raise(2); listen(count, false); });
    a_cancellation_at_dispatch_level breaks IrqlTooHigh by
        |_, driver, _| driver.run(|| { let handle = listen(count, false); raise(2); cancel(handle); });
    a_cancellation_of_nothing breaks BadHandle by |_, driver, _| driver.run(|| cancel(ptr::without_provenance_mut(64)));
    a_registration_left breaks ReferenceLeak by |_, driver, _| { driver.run(|| listen(count, false)); };
    a_callback_that_cancels_its_own_registration breaks Deadlock by |network, driver, [one, _]| {
        driver.run(|| HANDLE.store(listen(cancel_itself, false), SeqCst));
        network.add_address(one, address(31), 24);
    };
    a_callback_that_waits breaks IrqlTooHigh by |network, driver, [one, _]| {
        driver.run(|| listen(wait_in_callback, false));
        network.add_address(one, address(31), 24);
        network.add_address(one, address(32), 24);
    };
}
