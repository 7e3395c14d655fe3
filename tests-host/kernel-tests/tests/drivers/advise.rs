//! The adviser in front of the drivers' adapters: off by default, and on by the registry.

use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use simulated_kernel::{Kernel, Value};

use crate::{provider_interface::Interface, world::Provider};

/// The table of an adapter that is opened with this value of `Advise`, as it lies from a function of the driver on, and what the
/// provider answers to a creation without a completion. An image has another address each time it is loaded.
fn opened(kernel: &Kernel, advise: Option<u32>) -> (usize, NtStatus) {
    let parameters = advise.map(|number| ("Advise", Value::Number(number)));
    let provider = Provider::load_with(kernel, parameters.as_slice()).expect("the provider loads");
    let interface = Interface::of(&provider.device);
    let adapter: *mut NDK_ADAPTER = interface.open(NDK_VERSION::new(2, 0)).expect("an adapter");
    let mut out = std::ptr::null_mut();
    // SAFETY: the adapter is open.
    let table = unsafe { (*adapter).Dispatch };
    // SAFETY: as above; only the slot is read.
    let create = unsafe { (*table).NdkCreatePd }.expect("every slot is there");
    // SAFETY: the adapter is open, and the place for the object is there; without a completion it is refused.
    let status = unsafe { create(adapter, None, std::ptr::null_mut(), &raw mut out) };
    // SAFETY: the adapter was opened here, and is not used after this.
    unsafe { interface.close(adapter) };
    let driver = interface.raw().OpenNdkAdapter.expect("the provider can be opened") as usize;
    drop(interface);
    provider.unload();
    (table.addr().wrapping_sub(driver), status)
}

#[test]
fn an_adapter_is_behind_the_adviser_only_if_the_registry_says_so() {
    let kernel = Kernel::threads().start();
    let (plain, refused) = opened(&kernel, None);
    assert!(!refused.is_success());
    for number in [1, 2] {
        let (table, status) = opened(&kernel, Some(number));
        assert_ne!(table, plain, "Advise {number}: the tables are the provider's own");
        assert_eq!(status, refused, "Advise {number}");
    }
    // Off, and what is out of range.
    for number in [0, 5] {
        assert_eq!(opened(&kernel, Some(number)), (plain, refused), "Advise {number}");
    }
}

/// The stack of code of the driver, without the frames of `own` in front. Not in memory of the driver, which would be its leak.
#[cfg(unix)]
#[inline(never)]
fn who_calls(own: &[usize]) -> [usize; interpose::adviser::FRAMES] {
    let mut frames = [0; interpose::adviser::FRAMES];
    assert_eq!(kernel::callers(&mut frames, |frame| own.contains(&frame)), frames.len(), "a test is deep enough");
    std::hint::black_box(frames)
}

/// Runs `work` below so many frames.
#[cfg(unix)]
#[inline(never)]
fn below<T>(frames: usize, work: &dyn Fn() -> T) -> T {
    std::hint::black_box(if frames == 0 { work() } else { below(frames - 1, work) })
}

#[cfg(unix)]
#[test]
fn the_stack_of_a_driver_begins_with_who_calls_it() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let calls = |own: &[usize]| {
        below(interpose::adviser::FRAMES, &|| provider.driver.run(|| kernel::at_dispatch_level(|| who_calls(own))))
    };
    let all = calls(&[]);
    let names = host::names(&all);
    assert!(names.iter().any(|name| name.contains("who_calls")), "{names:?}");
    // What is left out is what is in front.
    assert_eq!(calls(&all[..2])[0], all[2]);
    assert_eq!(calls(&all[1..2])[0], all[0]);
    provider.unload();
}

#[cfg(unix)]
#[test]
fn each_number_of_the_registry_has_its_mode() {
    use driver_common::advise::Advise;
    use interpose::adviser::Mode;
    let modes = [Mode::Log, Mode::Count, Mode::Break, Mode::Bugcheck].map(Advise::On);
    let all = std::iter::once(Advise::Off).chain(modes).chain([Advise::Off]);
    for (number, advise) in (0..).zip(all) {
        assert_eq!(Advise::from_number(number), advise, "{number}");
    }
}
