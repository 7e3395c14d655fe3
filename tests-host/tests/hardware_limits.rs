//! The suite on providers that are limited as hardware is: what does not apply is skipped with its reason, the rest adapts,
//! and nothing fails for being hardware.
//!
//! The limits are those of the provider itself, which enforces what it says: fewer elements, little private data, no
//! connections of an adapter with itself. That a read needs the read sink right is a mistake in SoftNDK, which says that it
//! does not, and no mistake in an adapter that says it does.

use std::sync::Arc;

use conformance::{
    Case, Outcome, Platform, Run, Tally, cases,
    host::{Harness, HostPlatform, Layer, Scheduler, Setup},
    platform::{Family, PinnedMemory, Place, Shape, Task},
};
use engine::fault::{self, Fault};
use ndkpi::{
    NDK_ADAPTER, NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION,
    NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE, NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED as IN_ORDER,
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED as MULTI_ENGINE,
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY,
    NDK_VERSION, NtStatus,
};
use provider::Config;

/// A kind of hardware.
#[derive(Clone, Copy)]
struct Hardware {
    /// The newest version that it has; it has no other major version.
    version: NDK_VERSION,
    /// How many of its ports the suite gets.
    ports: u8,
    /// True if a read needs the read sink right.
    sink_required: bool,
    /// What it says of itself.
    limit: fn(&mut NDK_ADAPTER_INFO),
}

/// iWARP as it came with Windows Server 2012 R2: NDKPI 1.2, two ports, no connections with itself, read sinks.
const IWARP: Hardware = Hardware {
    version: NDK_VERSION::V1_2,
    ports: 2,
    sink_required: true,
    limit: |info| {
        info.RdmaTechnology = NDK_RDMA_TECHNOLOGY::IWARP;
        info.AdapterFlags &= !(LOOPBACK | SINK_NOT_REQUIRED | MODERATION | RESIZE | MULTI_ENGINE);
        (info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxReadRequestSge) = (3, 3, 1);
        (info.MaxCallerData, info.MaxCalleeData) = (512, 512);
        (info.MaxInboundReadLimit, info.MaxOutboundReadLimit) = (32, 32);
        info.MaxSrqDepth = 0;
    },
};

/// RoCE v2 on one port: NDKPI 2.1, 56 bytes of private data in a connect, small limits.
const ROCE: Hardware = Hardware {
    version: NDK_VERSION::V2_1,
    ports: 1,
    sink_required: false,
    limit: |info| {
        info.RdmaTechnology = NDK_RDMA_TECHNOLOGY::ROCE_V2;
        info.AdapterFlags &= !(LOCAL_INVALIDATE | IN_ORDER);
        (info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxReadRequestSge) = (3, 3, 3);
        (info.MaxCallerData, info.MaxCalleeData) = (56, 148);
        (info.MaxInboundReadLimit, info.MaxOutboundReadLimit) = (16, 16);
        (info.MaxReceiveQueueDepth, info.MaxInitiatorQueueDepth, info.MaxCqDepth) = (4096, 4096, 65_535);
        info.MaxInlineDataSize = 0;
    },
};

/// InfiniBand on one port that refuses connections with itself.
const INFINIBAND: Hardware = Hardware {
    version: NDK_VERSION::V1_2,
    ports: 1,
    sink_required: false,
    limit: |info| {
        info.RdmaTechnology = NDK_RDMA_TECHNOLOGY::INFINIBAND;
        info.AdapterFlags &= !LOOPBACK;
        (info.MaxCallerData, info.MaxCalleeData) = (56, 148);
    },
};

/// An adapter that says that it has NDKPI 1.1, so that no slot that came later is looked at.
const FIRST: Hardware = Hardware { version: NDK_VERSION::V1_1, ports: 1, sink_required: false, limit: |_| () };

/// A platform whose adapters are hardware.
struct Limited {
    platform: HostPlatform,
    hardware: Hardware,
}

impl Platform for Limited {
    fn adapters(&self) -> u32 {
        self.platform.adapters()
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        version.negotiate(&[self.hardware.version])?;
        let opened = self.platform.open(adapter, version)?;
        if self.hardware.version == NDK_VERSION::V1_1 {
            // SAFETY: the adapter was just opened, and nobody else knows it. The provider does not look at its header again.
            unsafe { (*opened).Header.Version = NDK_VERSION::V1_1 };
        }
        Ok(opened)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.platform.close(adapter) }
    }

    fn address(&self, adapter: u32, family: Family) -> Option<std::net::IpAddr> {
        self.platform.address(adapter, family)
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.platform.memory(shape, length)
    }

    fn now(&self) -> u64 {
        self.platform.now()
    }

    fn patience(&self) -> u64 {
        self.platform.patience()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        self.platform.wait(limit, until)
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        self.platform.dwell(until)
    }

    fn settle(&self) {
        self.platform.settle();
    }

    fn sleep(&self, micros: u64) {
        self.platform.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        self.platform.raised(work);
    }

    fn place(&self) -> Place {
        self.platform.place()
    }

    fn processors(&self) -> u32 {
        self.platform.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        self.platform.run(tasks)
    }

    fn inspect_callback(&self) -> Result<(), &'static str> {
        self.platform.inspect_callback()
    }
}

fn platform(hardware: Hardware) -> Limited {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 3, preemption: 10 },
        tokens: Some(1 << 12),
        adapters: hardware.ports,
        ..Setup::default()
    };
    let adjust = |config: &mut Config| {
        config.info.Version = hardware.version;
        (hardware.limit)(&mut config.info);
    };
    Limited { platform: HostPlatform::start_with(setup, adjust).expect("a machine"), hardware }
}

/// The suite, without what a correct consumer never does.
fn run(hardware: Hardware) -> Vec<(&'static Case, Outcome)> {
    let layer: Layer = Arc::new(move |_| Box::new(platform(hardware)));
    // The harness's own machine has nothing to do.
    let harness = Harness::new(Setup { adapters: 1, processors: Some(1), ..Setup::default() }).with_layer(layer);
    let how = Run { version: NDK_VERSION::new(hardware.version.Major, 0), seed: 1, hostile: false };
    if hardware.sink_required {
        fault::set(Some(Fault::ReadSinkRequired));
    }
    let outcomes = cases::all().map(|case| (case, harness.run(case, how).outcome)).collect();
    fault::set(None);
    outcomes
}

/// Nothing has failed, what was skipped says why, and so many at least were not skipped.
fn judge(name: &str, outcomes: &[(&'static Case, Outcome)], at_least: u32) {
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for (case, outcome) in outcomes {
        tally.count(outcome);
        if outcome.is_failure() {
            failed.push(format!("{}: {outcome}", case.name));
        }
        if let Outcome::Skipped(why) = outcome {
            assert!(!why.as_str().is_empty(), "{name}: {}", case.name);
            println!("{name}: {}: {}", case.name, why.as_str());
        }
    }
    println!("{name}: {tally}");
    assert!(failed.is_empty(), "{name}:\n{}", failed.join("\n"));
    assert!(tally.passed + tally.observed >= at_least, "{name}: {tally}");
}

fn reason<'a>(outcomes: &'a [(&'static Case, Outcome)], name: &str) -> &'a str {
    let found = outcomes.iter().find(|(case, _)| case.name == name);
    match found {
        Some((_, Outcome::Skipped(why))) => why.as_str(),
        other => panic!("{name} should be skipped: {other:?}"),
    }
}

/// One test, because the read sink is switched for the whole program.
#[test]
fn nothing_fails_for_being_hardware() {
    let [iwarp, roce, infiniband, first] = [IWARP, ROCE, INFINIBAND, FIRST].map(run);
    judge("iWARP, 1.2, two ports", &iwarp, 200);
    assert!(reason(&iwarp, "srq.notification").contains("no shared receive queues"));
    assert!(reason(&iwarp, "moderation.count-alone").contains("CQ_INTERRUPT_MODERATION"));
    assert!(reason(&iwarp, "results.error-code-is-zero-on-success").contains("this came with 2.1"));

    judge("RoCE v2, 2.1, one port", &roce, 200);
    assert!(reason(&roce, "transfer.inline-is-taken-at-once").contains("MaxInlineDataSize is 0"));

    judge("InfiniBand, 1.2, one port without loopback", &infiniband, 40);
    assert!(reason(&infiniband, "connect.private-data").contains("cannot connect to itself"));

    // What the document says of versions.
    assert_eq!(since(&iwarp, "2.1"), cases::SINCE_2_1, "cases that need NDKPI 2.1");
    assert_eq!(since(&first, "1.2"), cases::SINCE_1_2, "cases that need NDKPI 1.2");
}

/// The cases that were skipped because what they are about came with that version.
fn since(outcomes: &[(&'static Case, Outcome)], version: &str) -> Vec<&'static str> {
    let words = format!("came with {version}");
    let skipped = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Skipped(why) if why.as_str().contains(&words)));
    skipped.map(|(case, _)| case.name).collect()
}
