//! The limits that the adapter states are there to be used: as many objects, as deep, as long.

use std::{ffi::c_void, ptr};

use conformance::host::{HostPinned, HostPlatform, Setup};
use conformance::{
    HELD,
    client::{Cq, Options, Qp, QpSizes, Session},
    fixture::{Pair, Plan},
    platform::{PinnedMemory, Shape},
};
use host::{HostOs, machine::Machine};
use ndkpi::{NDK_ADAPTER, NDK_MR, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_OBJECT_HEADER, NDK_PD, NDK_VERSION, NtStatus};
use provider::{Config, Device};

/// A session on SoftNDK's provider with its default limits.
fn session(work: impl for<'s> FnOnce(&'s Session<'s>) -> conformance::Verdict) {
    let platform = HostPlatform::start(Setup { adapters: 1, patience: 60_000_000, ..Setup::default() });
    let platform = platform.expect("memory");
    let options = Options { name: "limits", version: NDK_VERSION::V2_0, seed: 1, hostile: false };
    assert_eq!(Session::with(&platform, &options, work), HELD);
    platform.finish().expect("nothing is left");
}

#[test]
fn sixteen_thousand_queue_pairs_and_no_more() {
    session(|s| {
        let adapter = s.adapter()?;
        let (cq, pd) = (adapter.create_cq(4, None)?, adapter.create_pd()?);
        let sizes = QpSizes { receive_depth: 1, initiator_depth: 1, receive_sge: 1, initiator_sge: 1, inline: 0 };
        let create = || pd.core().try_create_qp(cq.core(), cq.core(), 0, sizes);
        let mut all: Vec<Qp<'_>> = Vec::new();
        for number in 0..16 << 10 {
            all.push(create()?.unwrap_or_else(|status| panic!("queue pair {number}: {status}")));
        }
        assert_eq!(create()?.err(), Some(NtStatus::INSUFFICIENT_RESOURCES), "one more");
        drop(all.pop());
        let again = || create().is_ok_and(|created| created.is_ok());
        s.wait("room for one more", again)?;
        assert_eq!(all.len(), (16 << 10) - 1);
        HELD
    });
}

#[test]
fn sixty_four_thousand_completion_queues_and_no_more() {
    session(|s| {
        let adapter = s.adapter()?;
        let mut all: Vec<Cq<'_>> = Vec::new();
        for number in 0..64 << 10 {
            let cq = adapter.try_create_cq(1, None, None)?;
            all.push(cq.unwrap_or_else(|status| panic!("completion queue {number}: {status}")));
        }
        assert_eq!(adapter.try_create_cq(1, None, None)?.err(), Some(NtStatus::INSUFFICIENT_RESOURCES), "one more");
        assert_eq!(all.len(), 64 << 10);
        HELD
    });
}

#[test]
fn the_deepest_queues_with_the_most_elements() {
    session(|s| {
        let (adapter, info) = (s.adapter()?, *s.info()?);
        assert_eq!(
            (info.MaxCqDepth, info.MaxReceiveQueueDepth, info.MaxInitiatorQueueDepth),
            (1 << 20, 16 << 10, 16 << 10)
        );
        assert_eq!((info.MaxReceiveRequestSge, info.MaxInitiatorRequestSge, info.MaxReadRequestSge), (16, 16, 16));
        let plan = Plan {
            sizes: QpSizes {
                receive_depth: 16 << 10,
                initiator_depth: 16 << 10,
                receive_sge: 16,
                initiator_sge: 16,
                inline: info.MaxInlineDataSize,
            },
            depths: [1 << 20, 1 << 20],
            ..Plan::new()
        };
        let pair = Pair::with(s, &plan, &plan)?;
        // All places of both queues are used at once.
        let list = [pair.b.region.element(0, 16); 16];
        for context in 0..16 << 10 {
            assert_eq!(pair.b.qp.receive(context, &list)?, NtStatus::SUCCESS, "receive {context}");
        }
        let list = [pair.a.region.element(0, 16); 16];
        for context in 0..16 << 10 {
            assert_eq!(pair.a.qp.send(context, &list, 0)?, NtStatus::SUCCESS, "send {context}");
        }
        for (context, done) in pair.b.receive_cq.take(16 << 10)?.iter().enumerate() {
            assert_eq!((done.status, done.request, done.bytes), (NtStatus::SUCCESS, context, 256));
        }
        assert_eq!(pair.a.initiated().take(16 << 10)?.len(), 16 << 10);
        drop(adapter.create_cq(info.MaxCqDepth, None)?);
        HELD
    });
}

#[test]
fn a_message_of_a_gibibyte() {
    const PART: u32 = 64 << 20;
    session(|s| {
        assert_eq!(s.info()?.MaxTransferLength, 1 << 30);
        let sizes = QpSizes { receive_sge: 16, initiator_sge: 16, ..Plan::new().sizes };
        let plan = Plan { sizes, bytes: PART as usize, ..Plan::new() };
        let pair = Pair::with(s, &plan, &plan)?;
        pair.a.region.buffer.fill_pattern(0, 1 << 20, 7)?;
        // Sixteen times the same bytes: the message is as long, but the memory need not be.
        assert_eq!(pair.b.qp.receive(1, &[pair.b.region.element(0, PART); 16])?, NtStatus::SUCCESS);
        assert_eq!(pair.a.qp.send(2, &[pair.a.region.element(0, PART); 16], 0)?, NtStatus::SUCCESS);
        pair.a.initiator_done(2)?;
        assert_eq!(pair.b.receive_done(1)?.bytes, 1 << 30);
        pair.b.region.buffer.has_pattern(0, 1 << 20, 7)?;
        HELD
    });
}

unsafe extern "system" fn created(_: *mut c_void, _: NtStatus, _: *mut NDK_OBJECT_HEADER) {}
unsafe extern "system" fn requested(_: *mut c_void, _: NtStatus) {}
unsafe extern "system" fn closed(_: *mut c_void) {}

/// The table of an object.
macro_rules! table {
    ($object:expr) => {{
        // SAFETY: the object is open.
        let table = unsafe { (*$object).Dispatch };
        // SAFETY: the provider's tables live as long as the program.
        unsafe { &*table }
    }};
}

const REGIONS: usize = 1 << 20;

#[test]
fn a_million_memory_regions() {
    let machine = Machine::threads().start();
    let device = Device::try_new(&HostOs::new(&machine), Config::default()).expect("memory");
    let adapter: *mut NDK_ADAPTER = Device::open(&device, NDK_VERSION::V2_0).expect("an adapter");
    let mut pd: *mut NDK_PD = ptr::null_mut();
    let create = table!(adapter).NdkCreatePd.expect("a full table");
    // SAFETY: the adapter is open, the place is valid.
    assert_eq!(unsafe { create(adapter, Some(created), ptr::null_mut(), &raw mut pd) }, NtStatus::SUCCESS);
    let bytes = HostPinned::new(Shape::Whole, 4096).expect("memory");
    let create = table!(pd).NdkCreateMr.expect("a full table");
    let (mut all, mut tokens) = (Vec::with_capacity(REGIONS), Vec::with_capacity(REGIONS));
    for number in 0..REGIONS {
        let mut mr: *mut NDK_MR = ptr::null_mut();
        // SAFETY: the domain is open, the place is valid.
        let status = unsafe { create(pd, 0, Some(created), ptr::null_mut(), &raw mut mr) };
        assert_eq!(status, NtStatus::SUCCESS, "region {number}");
        let register = table!(mr).NdkRegisterMr.expect("a full table");
        let flags = NDK_MR_FLAG_ALLOW_REMOTE_READ;
        // SAFETY: the region is open, the MDL describes memory that outlives the registration.
        let status = unsafe { register(mr, bytes.mdl(), 4096, flags, Some(requested), ptr::null_mut()) };
        assert_eq!(status, NtStatus::SUCCESS, "region {number}");
        let token = table!(mr).NdkGetRemoteTokenFromMr.expect("a full table");
        // SAFETY: the region is open.
        tokens.push(unsafe { token(mr) });
        all.push(mr);
    }
    let counts = device.memory().counts();
    assert_eq!(counts.regions as usize, REGIONS);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), REGIONS, "every region has a token of its own");
    for mr in all {
        let close = table!(mr).NdkCloseMr.expect("a full table");
        // SAFETY: the region is open and not used after this.
        assert_eq!(unsafe { close(mr.cast(), Some(closed), ptr::null_mut()) }, NtStatus::SUCCESS);
    }
    let close = table!(pd).NdkClosePd.expect("a full table");
    // SAFETY: the domain is open and not used after this.
    assert_eq!(unsafe { close(pd.cast(), Some(closed), ptr::null_mut()) }, NtStatus::SUCCESS);
    // SAFETY: the adapter is open and not used after this.
    unsafe { Device::<HostOs>::close(adapter) };
    drop(device);
    machine.shutdown();
}
