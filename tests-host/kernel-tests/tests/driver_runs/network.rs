//! Runs over Winsock Kernel: `SoftNDK`'s adapters behind network interfaces, opened by index, alias or address.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use control::{
    GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION,
    case::{Names, StartCase},
    client::{Event, Refusal, TestDriver},
    interface::SOFTNDK_INTERFACE_SIZE,
    network::{Begun, Problem, Reason, StartOn},
    test_device::{Kind, Progress, Start, State},
};
use ndkpi::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_RDMA_TECHNOLOGY, NDK_VERSION, NtStatus, SOCKADDR_INET};
use simulated_kernel::{Device, Identity, Injection, Kernel, NdkProvider, Network, NewInterface, wdk::GUID};
use testing::alone::{in_a_process_of_its_own, in_processes_of_their_own};

use crate::{
    client::ToKernel,
    world::{Consumer, Provider, consumer_control},
};

/// The private interface of an adapter of `SoftNDK`, as that what answers on a network interface.
struct Behind {
    interface: SOFTNDK_INTERFACE,
    softndk: Identity,
    opened: AtomicU32,
}

// SAFETY: the provider's functions may be called on any thread.
unsafe impl Send for Behind {}
// SAFETY: as for `Send`, several at a time.
unsafe impl Sync for Behind {}

impl Behind {
    fn new(device: &Device, softndk: Identity) -> Arc<Self> {
        let kind = GUID_SOFTNDK;
        let kind = GUID { Data1: kind.Data1, Data2: kind.Data2, Data3: kind.Data3, Data4: kind.Data4 };
        let mut interface = SOFTNDK_INTERFACE::EMPTY;
        let place = (&raw mut interface).cast();
        // SAFETY: the place has the size that is said.
        let answer = unsafe { device.query_interface(&kind, place, SOFTNDK_INTERFACE_SIZE, SOFTNDK_INTERFACE_VERSION) };
        assert_eq!(answer, Ok(()));
        Arc::new(Self { interface, softndk, opened: AtomicU32::new(0) })
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let (mut room, mut count) = ([SOCKADDR_INET::UNSPECIFIED; 8], 8);
        let query = self.interface.QueryNdkAddresses.expect("a function");
        // SAFETY: the interface's own function and context, and an array of the length that is said.
        let status = unsafe { query(self.interface.AdapterContext, room.as_mut_ptr(), &raw mut count) };
        assert_eq!(status, NtStatus::SUCCESS);
        let addresses = room.iter().take(count as usize).filter_map(SOCKADDR_INET::to_socket_addr);
        addresses.map(|address| address.ip()).collect()
    }
}

impl NdkProvider for Behind {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, ..Default::default() };
        let mut adapter = std::ptr::null_mut();
        let open = self.interface.OpenNdkAdapter.expect("a function");
        let (context, place) = (self.interface.AdapterContext, &raw mut adapter);
        // SAFETY: the interface's own function and context, and structures that live until the call returns.
        let status = self.softndk.run(|| unsafe { open(context, &raw const parameters, place) });
        status.ok()?;
        self.opened.fetch_add(1, SeqCst);
        Ok(adapter)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let close = self.interface.CloseNdkAdapter.expect("a function");
        // SAFETY: the interface's own function and context; it opened the adapter, which is not used again (`# Safety` of the trait).
        self.softndk.run(|| unsafe { close(self.interface.AdapterContext, adapter) });
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let dereference = self.interface.InterfaceDereference.expect("an interface is counted");
        // SAFETY: the interface's own routine and context, for the user that the query has counted.
        self.softndk.run(|| unsafe { dereference(self.interface.Context) });
    }
}

/// A machine with "Ethernet 3" and "Ethernet 4", which have NDK, "Wi-Fi", which has not, and "Spare", which has no address.
struct World<'k> {
    kernel: &'k Kernel,
    network: Network,
    driver: TestDriver<ToKernel>,
    indices: [u32; 4],
    behind: [Arc<Behind>; 2],
}

const NAMES: [&str; 4] = ["Ethernet 3", "Ethernet 4", "Wi-Fi", "Spare"];

fn with_world(kernel: &Kernel, work: impl FnOnce(&World<'_>)) {
    let provider = Provider::load(kernel).expect("the provider loads");
    let second = provider.driver.add_device().expect("one more adapter");
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let network = kernel.network();
    let indices = NAMES.map(|name| network.add_interface(&NewInterface::ethernet(name)).0);
    let behind = [&provider.device, &second].map(|device| Behind::new(device, provider.driver.identity()));
    for (index, behind) in indices.into_iter().zip(&behind) {
        network.set_ndk(index, Some(behind.clone()));
        for address in behind.addresses() {
            network.add_address(index, address, if address.is_ipv4() { 24 } else { 64 });
        }
    }
    network.add_address(indices[2], IpAddr::from([198, 51, 100, 7]), 24);
    network.set_ndk(indices[3], Some(behind[0].clone()));
    let world = World { kernel, network, driver: TestDriver::new(ToKernel(consumer_control(kernel))), indices, behind };
    work(&world);
    assert_eq!(world.network.open_ndk_adapters(), 0);
    let World { driver, behind, network, indices, .. } = world;
    for index in indices {
        network.remove_interface(index);
    }
    drop((driver, behind));
    consumer.unload();
    assert!(second.remove().is_ok(), "the adapter is removed");
    provider.unload();
}

/// The suite, against a provider that bears everything.
fn suite(seed: u64) -> StartOn {
    StartOn { kind: Kind::Conformance as u32, seconds: 600, seed, hostile: 1, ..StartOn::default() }
}

impl World<'_> {
    /// Waits until the run is over. How far it came, and how its cases ended.
    fn finish(&self, mut each: impl FnMut(usize)) -> (Progress, Vec<(String, String)>) {
        let mut steps = Vec::new();
        let last = self.driver.watch(
            || self.kernel.sleep(2_000),
            || false,
            |event| {
                if let Event::Step(line) = event {
                    steps.push((line.name.to_owned(), line.outcome.to_owned()));
                    each(steps.len());
                }
            },
        );
        (last.expect("the driver is there"), steps)
    }

    fn begin(&self, interface: &str, peer: &str) -> Begun {
        self.driver.start_on(&suite(5), interface, peer).expect("an answer")
    }
}

#[test]
fn the_suite_counts_the_same_over_winsock_as_over_the_private_interface() {
    let run = |part| {
        let mut lines = Vec::new();
        with_world(&Kernel::seeded(7).start(), |world| {
            if part == 0 {
                let start = Start { kind: Kind::Conformance as u32, seconds: 600, seed: 5 };
                world.driver.start(&start).expect("it starts");
            } else {
                let begun = world.begin("Ethernet 3", "Ethernet 4");
                assert_eq!(begun, Begun { index: world.indices[0], ..Begun::default() });
            }
            let (last, cases) = world.finish(|_| ());
            assert_eq!((last.state, last.reason, last.failed), (State::Finished as u32, Reason::None as u32, 0));
            let were_opened = world.behind.iter().map(|behind| behind.opened.load(SeqCst) > 0);
            assert!(were_opened.eq([part == 1; 2]), "Winsock Kernel opens both adapters, the private interface none");
            lines.push(format!("{:?}", (last.total, last.passed)));
            lines.extend(cases.iter().map(|(name, outcome)| format!("{name}: {outcome}")));
        });
        lines
    };
    in_processes_of_their_own(
        "network::the_suite_counts_the_same_over_winsock_as_over_the_private_interface",
        run,
        |[private, over]| assert_eq!(over, private, "each case ends as it did"),
    );
}

#[test]
fn the_suite_passes_over_one_interface() {
    in_a_process_of_its_own("network::the_suite_passes_over_one_interface", || {
        with_world(&Kernel::seeded(8).start(), |world| {
            let begun = world.begin("Ethernet 3", "");
            assert_eq!(begun.problem, Problem::None as u32);
            let (last, _) = world.finish(|_| ());
            assert_eq!((last.state, last.failed), (State::Finished as u32, 0));
            assert_eq!(world.behind[1].opened.load(SeqCst), 0, "the other adapter is left alone");
        });
    });
}

#[test]
fn an_interface_is_chosen_by_index_alias_or_address() {
    with_world(&Kernel::threads().start(), |world| {
        let index = world.indices[1].to_string();
        let address = world.behind[1].addresses()[0].to_string();
        for name in [&index, &address, "Ethernet 4", "ETHERNET 4"] {
            let begun = world.begin(name, "");
            assert_eq!(begun, Begun { index: world.indices[1], ..Begun::default() }, "{name}");
            assert_eq!(world.driver.start_on(&suite(5), name, ""), Err(Refusal::Busy), "one run at a time");
            world.driver.cancel().expect("the driver is there");
            world.finish(|_| ());
        }
    });
}

#[test]
fn what_is_wrong_with_an_interface_is_said() {
    with_world(&Kernel::threads().start(), |world| {
        let [three, four, wifi, spare] = world.indices;
        let spare_name = spare.to_string();
        let problem = |problem, peer: bool, index| (problem as u32, u32::from(peer), index);
        for (interface, peer, expected) in [
            ("Ethernet 9", "", problem(Problem::UnknownInterface, false, 0)),
            ("4095", "", problem(Problem::UnknownInterface, false, 0)),
            (&"x".repeat(300), "", problem(Problem::UnknownInterface, false, 0)),
            ("203.0.113.1", "", problem(Problem::UnknownAddress, false, 0)),
            ("Wi-Fi", "", problem(Problem::NoNdk, false, wifi)),
            (&spare_name, "", problem(Problem::NoAddress, false, spare)),
            ("Ethernet 3", "Ethernet 9", problem(Problem::UnknownInterface, true, 0)),
            ("Ethernet 3", "Ethernet 3", problem(Problem::Same, true, three)),
            ("Ethernet 3", "Wi-Fi", problem(Problem::NoRoute, true, wifi)),
        ] {
            let begun = world.begin(interface, peer);
            assert_eq!((begun.problem, begun.peer, begun.index), expected, "{interface}, {peer}");
        }
        // With a route the peer is found, and has no NDK.
        world.network.add_route(IpAddr::from([198, 51, 100, 0]), 24, three, 1);
        let begun = world.begin("Ethernet 3", "Wi-Fi");
        assert_eq!((begun.problem, begun.status), (Problem::NoNdk as u32, NtStatus::NOT_SUPPORTED.to_bits()));
        world.network.set_ndk(four, None);
        assert_eq!(world.begin("Ethernet 4", "").problem, Problem::NoNdk as u32);
        world.network.set_wsk_ready(false);
        let begun = world.begin("Ethernet 3", "");
        assert_eq!((begun.problem, begun.status), (Problem::NoWinsock as u32, NtStatus::DEVICE_NOT_READY.to_bits()));
        world.network.set_wsk_ready(true);
        let progress = world.driver.progress().expect("the driver is there");
        assert_eq!(progress.state, State::Idle as u32, "no run was begun");
        assert_eq!(world.driver.start_on(&StartOn { seconds: 0, ..suite(5) }, "Ethernet 3", ""), Err(Refusal::Invalid));
    });
}

#[test]
fn one_case_runs_alone_on_softndk_and_over_an_interface() {
    with_world(&Kernel::threads().start(), |world| {
        let start = |case, interface, major| {
            let how = StartCase { seed: 5, seconds: 600, hostile: 1, major, ..StartCase::default() };
            world.driver.start_case(&how, Names { case, interface, peer: "" })
        };
        // What came with NDKPI 2.1 is skipped on an adapter that is open with 1.
        let case = "connect.events-with-a-reason";
        for (interface, index) in [("", 0), ("Ethernet 3", world.indices[0])] {
            for (major, outcome) in [(0, "passed"), (1, "skipped"), (2, "passed")] {
                assert_eq!(start(case, interface, major), Ok(Begun { index, ..Begun::default() }));
                let (last, steps) = world.finish(|_| ());
                assert_eq!((last.state, last.done, last.total), (State::Finished as u32, 1, 1), "{interface}, {major}");
                assert_eq!(steps, [(case.to_owned(), outcome.to_owned())], "{interface}, {major}");
            }
        }
        for (case, interface, problem) in
            [("no.such-case", "", Problem::UnknownCase), ("no.such-case", "Ethernet 3", Problem::UnknownCase)]
        {
            assert_eq!(start(case, interface, 0).expect("an answer").problem, problem as u32);
        }
        assert_eq!(start(case, "Ethernet 9", 0).expect("an answer").problem, Problem::UnknownInterface as u32);
        assert_eq!(start("", "", 0), Err(Refusal::Invalid));
        assert_eq!(start(case, "", 3), Err(Refusal::Invalid));
    });
}

#[test]
fn a_run_ends_when_an_address_of_it_goes() {
    with_world(&Kernel::threads().start(), |world| {
        assert_eq!(world.begin("Ethernet 3", "Ethernet 4").problem, Problem::None as u32);
        let other = IpAddr::from([198, 51, 100, 7]);
        let (last, steps) = world.finish(|done| match done {
            5 => world.network.remove_address(other),
            20 => world.network.remove_address(world.behind[1].addresses()[0]),
            _ => {}
        });
        assert_eq!((last.state, last.reason), (State::Cancelled as u32, Reason::AddressGone as u32));
        assert!(steps.len() >= 20, "an address of nobody's does not end it: {}", steps.len());
        assert_eq!(last.failed, 0, "no case is blamed: {steps:?}");
    });
}

#[test]
fn a_run_ends_when_the_adapter_does_not_open_any_more() {
    with_world(&Kernel::threads().start(), |world| {
        assert_eq!(world.begin("Ethernet 3", "").problem, Problem::None as u32);
        let (last, steps) = world.finish(|done| {
            if done == 10 {
                world.network.set_ndk(world.indices[0], None);
            }
        });
        assert_eq!((last.state, last.reason), (State::Cancelled as u32, Reason::AdapterGone as u32));
        assert_eq!(last.failed, 0, "no case is blamed: {steps:?}");
    });
}

#[test]
fn interfaces_are_listed_with_what_their_adapters_say() {
    with_world(&Kernel::threads().start(), |world| {
        world.network.set_up(world.indices[2], false);
        let all = world.driver.interfaces().expect("a list");
        assert_eq!(all.iter().map(|one| one.alias.as_str()).collect::<Vec<_>>(), NAMES);
        assert_eq!(all.iter().map(|one| one.facts.index).collect::<Vec<_>>(), world.indices);
        assert_eq!(all.iter().map(|one| one.facts.up).collect::<Vec<_>>(), [1, 1, 0, 1]);
        let first = &all[0];
        assert_eq!(first.addresses, world.behind[0].addresses());
        assert_eq!((first.facts.status, first.facts.major, first.facts.minor), (0, 2, 1));
        assert_eq!(first.facts.speed, 100_000_000_000);
        assert!(first.facts.technology < NDK_RDMA_TECHNOLOGY::MAX.0.cast_unsigned() && first.facts.caller_data > 0);
        assert_eq!(all[2].facts.status, NtStatus::NOT_SUPPORTED.to_bits());
    });
}

#[test]
fn each_thing_that_can_fail_when_a_run_begins_leaves_nothing_behind() {
    with_world(&Kernel::threads().start(), |world| {
        for number in 1.. {
            world.kernel.inject(Injection::Nth(number));
            let begun = world.driver.start_on(&suite(5), "Ethernet 3", "Ethernet 4");
            let (happened, count) = (world.kernel.fault_happened(), world.kernel.counted_faults());
            world.kernel.inject(Injection::None);
            if matches!(begun, Ok(Begun { problem: 0, .. })) {
                world.driver.cancel().expect("the driver is there");
                world.finish(|_| ());
                // The run itself does what can fail as soon as it has begun.
                if !happened || number > 60 {
                    assert!(number > 8, "something can fail: {count}");
                    break;
                }
            }
        }
    });
}
