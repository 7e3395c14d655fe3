//! An adapter's memory on a machine of the host, with buffers whose addresses the test chooses.

use engine::{
    memory::{
        Access, Bind, Domain, FastRegister, FastTokens, Mapping, MemoryLimits, MemoryRules, MemoryTable, Posted,
        Region, RegionKind, Rights, Segment, Window,
    },
    os::Os,
};
use fallible::Arc;
use host::{HostLock, HostOs, machine::Machine};
use ndkpi::NtStatus;

use super::bytes::{Buffer, TestMemory};

/// [`HostOs`], but for the bytes.
#[derive(Clone)]
pub struct TestOs(HostOs);

impl Os for TestOs {
    type Lock<T: Send + 'static> = HostLock<T>;
    type Memory = TestMemory;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<HostLock<T>, NtStatus> {
        self.0.lock(value)
    }

    host::from_host_os!();
}

pub type TestDomain = Arc<Domain<TestOs>>;
pub type TestRegion = Arc<Region<TestOs>>;
pub type TestWindow = Arc<Window<TestOs>>;
pub type TestSegment = Segment<TestOs>;

pub const VIOLATION: NtStatus = NtStatus::ACCESS_VIOLATION;

/// All accesses.
pub const ACCESSES: [Access; 5] =
    [Access::LocalRead, Access::LocalWrite, Access::ReadSink, Access::RemoteRead, Access::RemoteWrite];

/// All rights.
pub const ALL: Rights = Rights::REMOTE_READ.and(Rights::REMOTE_WRITE).and(Rights::READ_SINK);

/// Limits for tests that are not about limits: tables of this size are made quickly.
pub const SMALL: MemoryLimits = MemoryLimits { tokens: 4000, mappings: 4000, ..MemoryLimits::MAX };

pub struct World {
    pub os: TestOs,
    pub table: Arc<MemoryTable<TestOs>>,
    _machine: Machine,
}

impl World {
    pub fn new() -> Self {
        Self::with_limits(SMALL)
    }

    pub fn with_limits(limits: MemoryLimits) -> Self {
        Self::with(limits, MemoryRules::default())
    }

    /// An adapter whose fast registrations have new remote tokens.
    pub fn rotating() -> Self {
        Self::with(SMALL, MemoryRules { fast_tokens: FastTokens::Rotating, ..MemoryRules::default() })
    }

    /// An adapter that does not say `RDMA_READ_SINK_NOT_REQUIRED`.
    pub fn with_read_sinks() -> Self {
        Self::with(SMALL, MemoryRules { read_sink_required: true, ..MemoryRules::default() })
    }

    pub fn with(limits: MemoryLimits, rules: MemoryRules) -> Self {
        let machine = Machine::seeded(1).start();
        let os = TestOs(HostOs::new(&machine));
        let table = MemoryTable::try_new_with(&os, limits, rules).expect("memory");
        Self { table, os, _machine: machine }
    }

    pub fn domain(&self) -> TestDomain {
        Domain::try_new(&self.table).expect("memory")
    }

    pub fn map(&self, buffer: &Buffer) -> Mapping {
        self.table.map(buffer.memory(), buffer.client()).expect("memory")
    }
}

pub fn region(domain: &TestDomain) -> TestRegion {
    Region::try_new(domain, RegionKind::Normal).expect("memory")
}

/// A region with `buffer` registered.
pub fn registered(domain: &TestDomain, buffer: &Buffer, rights: Rights) -> TestRegion {
    let region = region(domain);
    register(&region, buffer, rights).expect("memory");
    region
}

pub fn register(region: &TestRegion, buffer: &Buffer, rights: Rights) -> Result<(), NtStatus> {
    region.register(buffer.memory(), rights, buffer.client())
}

/// A region for fast registrations of up to 16 pages, remote access included.
pub fn fast(domain: &TestDomain) -> TestRegion {
    let region = Region::try_new(domain, RegionKind::Fast).expect("memory");
    region.initialize_fast_register(16, true).expect("memory");
    region
}

pub fn window(domain: &TestDomain) -> TestWindow {
    Window::try_new(domain).expect("memory")
}

/// Carries out what was posted at once.
pub fn carry_out(domain: &TestDomain, posted: Result<Posted, NtStatus>) -> Result<(), NtStatus> {
    domain.commit(posted?)
}

/// Registers the pages of a mapping, under addresses from `base` on.
pub fn fast_register(
    domain: &TestDomain,
    region: &TestRegion,
    pages: &[u64],
    base: u64,
    length: u64,
    rights: Rights,
) -> Result<(), NtStatus> {
    let first_byte = u32::try_from(base % 4096).expect("a remainder");
    carry_out(domain, domain.prepare_fast_register(region, &FastRegister { pages, first_byte, length, base, rights }))
}

pub fn bind(
    domain: &TestDomain,
    window: &TestWindow,
    region: &TestRegion,
    address: u64,
    length: u64,
    rights: Rights,
) -> Result<(), NtStatus> {
    carry_out(domain, domain.prepare_bind(window, region, &Bind { address, length, rights }))
}

/// Why bytes cannot be used; success if they can.
pub fn refusal(domain: &TestDomain, token: u32, address: u64, length: u32, access: Access) -> NtStatus {
    domain.resolve(token, address, length, access).map(drop).into()
}

/// The token that is for `access`.
pub fn token_for(region: &TestRegion, access: Access) -> u32 {
    if access.is_remote() { region.remote_token() } else { region.local_token() }
}

pub fn read(segment: &TestSegment) -> Vec<u8> {
    let mut bytes = vec![0; segment.len()];
    segment.read(0, &mut bytes);
    bytes
}
