//! Winsock Kernel: clients, the provider, and adapters opened by the index of their interface.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use ndis::{
    WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_INFINITE_WAIT, WSK_NO_WAIT, WSK_PROVIDER_NPI, WSK_REGISTRATION,
    WSK_VERSION_1_0, WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus, WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH};
use simulated_kernel::{Kernel, NdkProvider, Rule, caught};

use crate::{
    netio::{breaks, with_network},
    raise,
    skeleton::{Wrong, allocate, keep, run_in},
};

/// Nothing has what was asked for.
const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0225);

/// An NDK provider that only opens and closes.
#[derive(Default)]
struct Stub {
    opened: AtomicU32,
    closed: AtomicU32,
}

impl NdkProvider for Stub {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        if version.Major == 0 {
            return Err(NtStatus::NDIS_BAD_VERSION);
        }
        if version.Major == 9 {
            return Err(NtStatus::NDIS_ADAPTER_NOT_READY);
        }
        let number = self.opened.fetch_add(1, Relaxed) + 1;
        Ok(ptr::without_provenance_mut(number as usize * 0x1000))
    }

    unsafe fn close(&self, _: *mut NDK_ADAPTER) {
        self.closed.fetch_add(1, Relaxed);
    }
}

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// A client that is registered.
pub fn register() -> *mut WSK_REGISTRATION {
    register_at(keep(allocate(size_of::<WSK_REGISTRATION>())).cast())
}

fn register_at(registration: *mut WSK_REGISTRATION) -> *mut WSK_REGISTRATION {
    let npi = WSK_CLIENT_NPI { ClientContext: ptr::null_mut(), Dispatch: &raw const DISPATCH };
    // SAFETY: the registration lives as long as the driver.
    let status = unsafe { WskRegister(&raw const npi, registration) };
    assert_eq!(status, NtStatus::SUCCESS);
    registration
}

pub fn capture(registration: *mut WSK_REGISTRATION, timeout: u32) -> Result<WSK_PROVIDER_NPI, NtStatus> {
    let mut npi = WSK_PROVIDER_NPI { Client: ptr::null_mut(), Dispatch: ptr::null() };
    // SAFETY: the test's scenario, right or wrong; the place lives until the call returns.
    unsafe { WskCaptureProviderNPI(registration, timeout, &raw mut npi) }.ok().map(|()| npi)
}

pub fn release(registration: *mut WSK_REGISTRATION) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { WskReleaseProviderNPI(registration) };
}

pub fn deregister(registration: *mut WSK_REGISTRATION) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { WskDeregister(registration) };
}

/// Asks for NDK's functions with room for so many bytes.
fn functions(npi: &WSK_PROVIDER_NPI, room: usize) -> Result<WSK_PROVIDER_NDK_DISPATCH, NtStatus> {
    let mut table = WSK_PROVIDER_NDK_DISPATCH::default();
    // SAFETY: the table is static.
    let control = unsafe { (*npi.Dispatch).WskControlClient }.expect("a function");
    let none = ptr::null_mut();
    // SAFETY: the test's scenario, right or wrong; the place is as large as is said, or larger.
    let status = unsafe {
        control(
            npi.Client,
            WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
            0,
            ptr::null_mut(),
            room,
            (&raw mut table).cast(),
            ptr::null_mut(),
            none,
        )
    };
    status.ok().map(|()| table)
}

/// A client with the provider captured, and NDK's functions.
struct Client {
    registration: *mut WSK_REGISTRATION,
    npi: WSK_PROVIDER_NPI,
    table: WSK_PROVIDER_NDK_DISPATCH,
}

fn client() -> Client {
    let registration = register();
    let npi = capture(registration, WSK_NO_WAIT).expect("the provider");
    let table = functions(&npi, size_of::<WSK_PROVIDER_NDK_DISPATCH>()).expect("the table");
    Client { registration, npi, table }
}

impl Client {
    fn open(&self, version: NDK_VERSION, index: u32) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let mut adapter = ptr::null_mut();
        let open = self.table.WskOpenNdkAdapter.expect("a function");
        // SAFETY: the test's scenario, right or wrong; the place lives until the call returns.
        unsafe { open(self.npi.Client, version, index, &raw mut adapter) }.ok().map(|()| adapter)
    }

    fn close(&self, adapter: *mut NDK_ADAPTER) {
        let close = self.table.WskCloseNdkAdapter.expect("a function");
        // SAFETY: the test's scenario, right or wrong.
        unsafe { close(self.npi.Client, adapter) };
    }

    fn end(self) {
        release(self.registration);
        deregister(self.registration);
    }
}

#[test]
fn a_client_opens_adapters_by_index_and_the_status_passes_through() {
    with_network(|network, driver, [one, two]| {
        let stub = Arc::new(Stub::default());
        network.set_ndk(one, Some(stub.clone()));
        let (short, statuses) = driver.run(|| {
            let client = client();
            let short = functions(&client.npi, 8).err();
            let adapter = client.open(NDK_VERSION::V2_1, one).expect("an adapter");
            let refused = [
                client.open(NDK_VERSION::new(0, 1), one),
                client.open(NDK_VERSION::new(9, 0), one),
                client.open(NDK_VERSION::V2_1, two),
                client.open(NDK_VERSION::V2_1, 99),
            ];
            client.close(adapter);
            client.end();
            (short, refused.map(Result::err))
        });
        assert_eq!(short, Some(NtStatus::INVALID_PARAMETER), "the table has sixteen bytes");
        let expected =
            [NtStatus::NDIS_BAD_VERSION, NtStatus::NDIS_ADAPTER_NOT_READY, NtStatus::NOT_SUPPORTED, NOT_FOUND];
        assert_eq!(statuses, expected.map(Some));
        assert_eq!((stub.opened.load(Relaxed), stub.closed.load(Relaxed)), (1, 1));
        assert_eq!(network.open_ndk_adapters(), 0);
    });
}

#[test]
fn a_capture_waits_as_long_as_it_says() {
    with_network(|network, driver, _| {
        network.set_wsk_ready(false);
        let registration = driver.run(|| register().expose_provenance());
        let at = |timeout| driver.run(|| capture(ptr::with_exposed_provenance_mut(registration), timeout).err());
        assert_eq!(at(WSK_NO_WAIT), Some(NtStatus::DEVICE_NOT_READY));
        assert_eq!(at(20), Some(NtStatus::DEVICE_NOT_READY), "after twenty milliseconds");
        network.set_wsk_ready(true);
        assert_eq!(at(20), None);
        driver.run(|| {
            release(ptr::with_exposed_provenance_mut(registration));
            deregister(ptr::with_exposed_provenance_mut(registration));
        });
    });
}

/// A server's thread may lose the race with its unload: it is told no, and has done nothing wrong.
#[test]
fn a_capture_after_the_deregistration_is_refused() {
    with_network(|_, driver, _| {
        let place = driver.run(|| {
            let registration = register();
            deregister(registration);
            assert_eq!(capture(registration, WSK_INFINITE_WAIT).err(), Some(NtStatus::DEVICE_NOT_READY));
            assert_eq!(capture(registration, WSK_NO_WAIT).err(), Some(NtStatus::DEVICE_NOT_READY));
            registration.expose_provenance()
        });
        // The same memory is registered once more, and is as good as new.
        driver.run(|| {
            let registration = register_at(ptr::with_exposed_provenance_mut(place));
            assert!(capture(registration, WSK_NO_WAIT).is_ok());
            release(registration);
            deregister(registration);
        });
    });
}

#[test]
fn a_capture_that_waits_ends_with_the_deregistration() {
    // Two threads that run at the same time: whichever is first.
    let kernel = Kernel::threads().processors(2).start();
    run_in(&kernel, Wrong::default(), |driver, _| {
        let network = kernel.network();
        network.set_wsk_ready(false);
        let registration = driver.run(|| register().expose_provenance());
        let refused = std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                driver.run(|| capture(ptr::with_exposed_provenance_mut(registration), WSK_INFINITE_WAIT).err())
            });
            driver.run(|| deregister(ptr::with_exposed_provenance_mut(registration)));
            waits.join().expect("it does not panic")
        });
        assert_eq!(refused, Some(NtStatus::DEVICE_NOT_READY));
        network.set_wsk_ready(true);
    });
}

/// What a client does wrong, with an adapter of "Ethernet 3" to open.
fn wrong(work: fn(u32)) -> impl FnOnce(&simulated_kernel::Network, &simulated_kernel::Driver, [u32; 2]) {
    move |network, driver, [one, _]| {
        network.set_ndk(one, Some(Arc::new(Stub::default())));
        driver.run(|| work(one));
    }
}

fn opened(index: u32) -> (Client, *mut NDK_ADAPTER) {
    let client = client();
    let adapter = client.open(NDK_VERSION::V2_1, index).expect("an adapter");
    (client, adapter)
}

breaks! {
    a_provider_released_with_adapters_open breaks WskAdaptersOpen by wrong(|index| opened(index).0.end());
    a_client_deregistered_without_release breaks WskNotReleased by wrong(|_| deregister(client().registration));
    a_provider_never_released breaks ReferenceLeak by wrong(|_| { client(); });
    a_client_never_deregistered breaks ReferenceLeak by wrong(|_| { register(); });
    a_provider_released_twice breaks ReferenceUnderflow by wrong(|_| {
        let client = client();
        release(client.registration);
        release(client.registration);
    });
    an_open_after_the_release breaks BadHandle by wrong(|index| {
        let client = client();
        release(client.registration);
        let _ = client.open(NDK_VERSION::V2_1, index);
    });
    a_control_code_after_the_release breaks BadHandle by wrong(|_| {
        let client = client();
        release(client.registration);
        let _ = functions(&client.npi, 16);
    });
    a_close_of_no_adapter breaks BadHandle by wrong(|_| client().close(ptr::without_provenance_mut(0x7000)));
    a_close_twice breaks BadHandle by wrong(|index| {
        let (client, adapter) = opened(index);
        client.close(adapter);
        client.close(adapter);
    });
    a_registration_that_was_copied breaks MovedObject by wrong(|_| {
        let copy = keep(allocate(size_of::<WSK_REGISTRATION>())).cast();
        // SAFETY: both are memory for one.
        unsafe { register().copy_to(copy, 1) };
        deregister(copy);
    });
    a_registration_freed_while_registered breaks ReferenceLeak by wrong(|_| {
        let place: *mut WSK_REGISTRATION = allocate(size_of::<WSK_REGISTRATION>()).cast();
        register_at(place);
        // SAFETY: as wrong as the test wants it.
        unsafe { wdk_sys::ntddk::ExFreePoolWithTag(place.cast(), crate::TAG) };
    });
    a_capture_after_the_registration_was_overwritten breaks BadHandle by wrong(|_| {
        let registration = register();
        deregister(registration);
        // SAFETY: the driver's memory, as wrong as the test wants it.
        unsafe { registration.cast::<u8>().write_bytes(0, size_of::<WSK_REGISTRATION>()) };
        let _ = capture(registration, WSK_NO_WAIT);
    });
    a_second_deregistration breaks BadHandle by wrong(|_| {
        let registration = register();
        deregister(registration);
        deregister(registration);
    });
    a_registration_that_is_none breaks BadHandle by wrong(|_| deregister(keep(allocate(64)).cast()));
    a_register_at_dispatch_level breaks IrqlTooHigh by wrong(|_| { raise(2); register(); });
    a_deregister_at_dispatch_level breaks IrqlTooHigh by wrong(|_| { let one = register(); raise(2); deregister(one); });
    a_capture_that_may_wait_at_dispatch_level breaks IrqlTooHigh by
        wrong(|_| { let one = register(); raise(2); let _ = capture(one, 20); });
    a_release_above_dispatch_level breaks IrqlTooHigh by wrong(|_| { let one = client(); raise(3); release(one.registration); });
    an_open_at_dispatch_level breaks IrqlTooHigh by
        wrong(|index| { let one = client(); raise(2); let _ = one.open(NDK_VERSION::V2_1, index); });
    a_close_at_dispatch_level breaks IrqlTooHigh by
        wrong(|index| { let (client, adapter) = opened(index); raise(2); client.close(adapter); });
}
