//! Everything that can fail does, one after the other. The driver says so, leaves nothing behind, and still unloads.

use ndkpi::OID_NDK_SET_STATE;
use simulated_kernel::{Injection, Kernel, Nic};

use crate::machine::{VERSION, bind, configure, frame, is_no_memory, load};

/// Frames, NDK, addresses. What fails is refused with a status that says so.
fn use_it(kernel: &Kernel, one: &Nic, other: &Nic) {
    bind(one);
    bind(other);
    let bytes = frame(one, other, 1, 300);
    assert_eq!(one.send(&[&bytes, &bytes]).wait().len(), 2);
    configure(kernel, [one, other]);
    match one.open_ndk(VERSION) {
        Ok(adapter) => one.close_ndk(adapter),
        Err(status) => assert!(is_no_memory(status), "{status}"),
    }
    for enable in [0, 1] {
        let _ = one.set(OID_NDK_SET_STATE, &[enable]);
        kernel.sleep(2_000);
    }
    for address in crate::machine::ADDRESSES.into_iter().chain(crate::machine::IPV6_ADDRESSES) {
        kernel.network().remove_address(address);
    }
}

fn scenario(kernel: &Kernel) {
    let driver = match load(kernel) {
        Ok(driver) => driver,
        Err(status) => return assert!(is_no_memory(ndkpi::NtStatus(status)), "{status:#x}"),
    };
    let nics: Vec<_> = (0..2).map(|_| driver.add_nic(&[("CableDelay", "100")])).collect();
    if let [Ok(one), Ok(other)] = nics.as_slice() {
        use_it(kernel, one, other);
    }
    for nic in nics {
        match nic {
            Ok(nic) => nic.remove(),
            Err(status) => assert!(is_no_memory(status), "{status}"),
        }
    }
    driver.unload();
}

#[test]
fn each_thing_that_can_fail_from_load_to_unload_fails_once() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    // Thousands of buffers are alike: those at the beginning and the end of them are enough.
    let failures = kernel.fail_each((1..60).chain((60..).step_by(97)), || scenario(&kernel));
    assert!(failures > 70, "only {failures} things can fail");
    scenario(&kernel);
}

#[test]
fn each_call_site_fails_once() {
    let kernel = Kernel::threads().start();
    kernel.inject(Injection::EachSite);
    let mut sites = 0;
    loop {
        scenario(&kernel);
        let now = kernel.faults_injected();
        if now == sites {
            break;
        }
        sites = now;
    }
    assert!(sites > 40, "only {sites} call sites were reached");
    kernel.inject(Injection::None);
    scenario(&kernel);
}
