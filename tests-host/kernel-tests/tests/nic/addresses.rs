//! The addresses of an adapter are those of its interface.

use std::{
    ffi::c_void,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicPtr, Ordering::SeqCst},
    },
};

use ndis::NL_DAD_STATE;
use ndkpi::{NDK_ADAPTER, NDK_CONNECTOR, NDK_OBJECT_HEADER, NtStatus, SOCKADDR_INET};
use simulated_kernel::{Kernel, Nic};

use crate::machine::{ADDRESSES, VERSION, configure, with_pair};

unsafe extern "system" fn connected(_: *mut c_void, _: *mut NDK_CONNECTOR) {}
unsafe extern "system" fn closed(_: *mut c_void) {}

/// What comes of a request, in the call or later. The place lives until it has come.
#[derive(Default)]
struct Answer {
    status: Mutex<Option<NtStatus>>,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

unsafe extern "system" fn created(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the context is an answer that lives until this has stored its status.
    let answer = unsafe { &*context.cast::<Answer>() };
    answer.object.store(object, SeqCst);
    *answer.status.lock().expect("no panic") = Some(status);
}

unsafe extern "system" fn completed(context: *mut c_void, status: NtStatus) {
    // SAFETY: as for `created`.
    let answer = unsafe { &*context.cast::<Answer>() };
    *answer.status.lock().expect("no panic") = Some(status);
}

impl Answer {
    fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The status, when it has come.
    fn wait(&self, kernel: &Kernel, status: NtStatus) -> NtStatus {
        if status != NtStatus::PENDING {
            return status;
        }
        kernel.wait_until(|| self.status.lock().expect("no panic").is_some());
        self.status.lock().expect("no panic").take().expect("it has come")
    }
}

/// Listens there on the adapter, and closes the listener. What the provider says.
fn listens(kernel: &Kernel, nic: &Nic, address: IpAddr) -> NtStatus {
    listens_at(kernel, nic, SocketAddr::new(address, 7))
}

/// As [`listens`], at a port, and in a zone if the address has one.
fn listens_at(kernel: &Kernel, nic: &Nic, address: SocketAddr) -> NtStatus {
    let adapter: *mut NDK_ADAPTER = nic.open_ndk(VERSION).expect("it opens");
    // SAFETY: the adapter is open.
    let table = unsafe { (*adapter).Dispatch };
    // SAFETY: its table, which is that of its version, lives as long.
    let table = unsafe { &*table };
    let (mut listener, none, answer) = (ptr::null_mut(), ptr::null_mut(), Answer::default());
    let create = table.NdkCreateListener.expect("a function");
    // SAFETY: the adapter's own function; callbacks that may be called at any time, and an answer that is waited for.
    let status = unsafe { create(adapter, Some(connected), none, Some(created), answer.context(), &raw mut listener) };
    let pended = status == NtStatus::PENDING;
    assert_eq!(answer.wait(kernel, status), NtStatus::SUCCESS);
    if pended {
        listener = answer.object.load(SeqCst).cast();
    }
    // SAFETY: the listener is open.
    let table = unsafe { (*listener).Dispatch };
    // SAFETY: its table lives as long.
    let table = unsafe { &*table };
    let address = SOCKADDR_INET::from(address);
    let listen = table.NdkListen.expect("a function");
    // SAFETY: the listener's own function, an address that lives until it returns, and an answer that is waited for.
    let status = unsafe { listen(listener, address.as_ptr(), address.length(), Some(completed), answer.context()) };
    let status = answer.wait(kernel, status);
    let close = table.NdkCloseListener.expect("a function");
    // SAFETY: the listener's own function; it is not used again.
    let over = unsafe { close(listener.cast(), Some(closed), none) };
    assert!(over.is_success());
    nic.close_ndk(adapter);
    status
}

#[test]
fn an_adapter_listens_at_its_interfaces_preferred_addresses_and_nowhere_else() {
    // Its time is not the host's, on which five milliseconds can be too short for a work item.
    let kernel = Kernel::seeded(1).start();
    with_pair(&kernel, &[], |one, other| {
        let network = kernel.network();
        assert_eq!(listens(&kernel, one, ADDRESSES[0]), NtStatus::INVALID_ADDRESS, "nobody has it yet");
        configure(&kernel, [one, other]);
        assert_eq!(listens(&kernel, one, ADDRESSES[0]), NtStatus::SUCCESS);
        assert_eq!(listens(&kernel, other, ADDRESSES[1]), NtStatus::SUCCESS);
        assert_eq!(listens(&kernel, one, ADDRESSES[1]), NtStatus::INVALID_ADDRESS, "the other end's");
        assert_eq!(listens(&kernel, one, "0.0.0.0".parse().expect("an address")), NtStatus::INVALID_ADDRESS);

        let late: IpAddr = "fd00::77".parse().expect("an address");
        network.add_address_in(one.if_index(), late, 64, NL_DAD_STATE::TENTATIVE);
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, one, late), NtStatus::INVALID_ADDRESS, "detection runs");
        network.set_dad_state(late, NL_DAD_STATE::PREFERRED);
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, one, late), NtStatus::SUCCESS);
        network.set_dad_state(late, NL_DAD_STATE::DEPRECATED);
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, one, late), NtStatus::INVALID_ADDRESS);
        network.remove_address(ADDRESSES[0]);
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, one, ADDRESSES[0]), NtStatus::INVALID_ADDRESS);
        // An address may go to the other end.
        network.add_address(other.if_index(), ADDRESSES[0], 24);
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, other, ADDRESSES[0]), NtStatus::SUCCESS);
    });
}

/// A cable is a link with addresses of its own; a link-local address is in the zone of its interface.
#[test]
fn the_same_address_is_on_each_cable() {
    const LOCAL: Ipv6Addr = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1);
    for address in [IpAddr::V6(LOCAL), IpAddr::from([10, 0, 0, 1])] {
        let kernel = Kernel::seeded(1).start();
        let driver = crate::machine::load(&kernel).expect("it loads");
        let nics = [(); 4].map(|()| crate::machine::add(&driver, &[]));
        for nic in [&nics[0], &nics[2]] {
            kernel.network().add_address(nic.if_index(), address, 8);
        }
        kernel.sleep(5_000);
        let answers = nics.each_ref().map(|nic| listens(&kernel, nic, address));
        let (has, has_not) = (NtStatus::SUCCESS, NtStatus::INVALID_ADDRESS);
        assert_eq!(answers, [has, has_not, has, has_not], "{address}");
        if address == LOCAL {
            for (zone, answer) in [(&nics[0], has), (&nics[2], has_not)] {
                let at = SocketAddrV6::new(LOCAL, 7, 0, zone.if_index());
                assert_eq!(listens_at(&kernel, &nics[0], at.into()), answer);
            }
        }
        // One cable goes, and the other one keeps its address.
        let [first, second, third, fourth] = nics;
        first.remove();
        second.remove();
        kernel.sleep(5_000);
        assert_eq!(listens(&kernel, &third, address), has);
        third.remove();
        fourth.remove();
        driver.unload();
    }
}

#[test]
fn addresses_change_while_consumers_listen_and_the_adapter_goes() {
    for seed in 1..8 {
        let kernel = Kernel::seeded(seed).start();
        let driver = crate::machine::load(&kernel).expect("it loads");
        let (one, other) = (crate::machine::add(&driver, &[]), crate::machine::add(&driver, &[]));
        configure(&kernel, [&one, &other]);
        let network = kernel.network();
        for round in 0..20_u8 {
            let more = IpAddr::from([10, 0, round, 1]);
            network.add_address(one.if_index(), more, 8);
            let status = listens(&kernel, &one, more);
            assert!([NtStatus::SUCCESS, NtStatus::INVALID_ADDRESS].contains(&status), "{status}");
            if round % 2 == 0 {
                network.remove_address(more);
            }
        }
        one.surprise_remove();
        assert_eq!(listens(&kernel, &other, ADDRESSES[1]), NtStatus::SUCCESS);
        other.remove();
        driver.unload();
    }
}
