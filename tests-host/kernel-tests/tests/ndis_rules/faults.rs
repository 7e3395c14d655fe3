//! Everything of NDIS that can fail does, one after the other. The driver says so, leaves nothing behind, and still unloads.

use miniport::Handlers;
use ndkpi::{
    NDK_VERSION,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Kernel, Nic};

use crate::miniport;

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

fn use_it(nic: &Nic, receive: impl FnOnce() -> bool) {
    assert_eq!(nic.send(&[&[1; 60]]).wait(), [NDIS_STATUS_SUCCESS]);
    let received = receive();
    assert_eq!(nic.take_received().len(), usize::from(received), "a frame that has no memory is not indicated");
    match nic.open_ndk(VERSION) {
        Ok(opened) => nic.close_ndk(opened),
        Err(status) => assert_eq!(status, NDIS_STATUS_RESOURCES),
    }
}

fn scenario(kernel: &Kernel) {
    miniport::prepare(Handlers::default());
    let Ok(driver) = kernel.load("mini", miniport::driver_entry) else { return };
    match driver.add_nic(&[("Test", "42")]) {
        Ok(nic) => {
            use_it(&nic, || driver.run(|| miniport::receive(&[5; 60])));
            nic.remove();
        }
        Err(status) => assert_eq!(status, NDIS_STATUS_RESOURCES, "what can be refused is refused with this"),
    }
    driver.unload();
}

#[test]
fn each_call_of_ndis_fails_once() {
    let kernel = Kernel::seeded(1).preemption(0).start();
    let failures = kernel.fail_each(1.., || scenario(&kernel));
    // The registration, that of NDK, the configuration, a keyword, three kinds of attributes, a pool, a frame's block, its MDL and
    // its list, and what NDK opens.
    assert_eq!(failures + 1, 13, "what can fail, and the run in which nothing does");
}
