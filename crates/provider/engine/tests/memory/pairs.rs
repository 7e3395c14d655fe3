//! Every pair of ends of a region and of a window that is bound to it, one after the other, under a transfer that was found
//! through either: none of them completes before the transfer has let go of what it ends (`NDKPI 7.4`, `7.6`, `7.9`).
//!
//! The pairs come from the tables below. A segment that is held is a transfer in progress.

use std::sync::Arc;

use engine::memory::{Access, Bind, FastRegister, Posted, Region, RegionKind, Released, Rights, Transfers, Window};
use ndkpi::NtStatus;

use super::{
    bytes::Buffer,
    world::{ALL, TestDomain, TestRegion, TestSegment, TestWindow, World, registered},
};

const BASE: u64 = 0x1000;
const LENGTH: u64 = 8192;
const REMOTE: Rights = Rights::REMOTE_READ.and(Rights::REMOTE_WRITE);

/// What is ended, and what a transfer was found through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Window,
    Region,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Close,
    Invalidate,
    InvalidateByPeer,
    /// Invalidates, and binds or registers something else.
    Rebind,
    Deregister,
}

const OBJECTS: [Object; 2] = [Object::Window, Object::Region];
const ACTS: [Act; 5] = [Act::Close, Act::Invalidate, Act::InvalidateByPeer, Act::Rebind, Act::Deregister];
const KINDS: [RegionKind; 2] = [RegionKind::Normal, RegionKind::Fast];
/// Fast-registered pages that follow each other, and that do not.
const ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

/// Returns true if there is such an end of such an object.
fn exists(kind: RegionKind, (object, act): (Object, Act)) -> bool {
    match (object, act) {
        (_, Act::Close) => true,
        (Object::Window, act) => act != Act::Deregister,
        (Object::Region, act) => (act == Act::Deregister) == (kind == RegionKind::Normal),
    }
}

/// Holds what the provider's object would hold: it is closed when all clones are gone.
struct Alive(#[expect(dead_code, reason = "held")] Arc<()>);

impl Released for Alive {
    fn released(&self) {}
}

/// An end that has begun, or is over or refused.
enum End {
    Finished(NtStatus),
    Closed(Arc<()>),
    Invalidated(Transfers),
    /// What was posted behind an invalidation: the same consumer's, in the same queue, or another one's that was refused.
    Rebound(Option<Transfers>, Posted),
    Deregistered(Arc<()>),
}

struct Stage {
    domain: TestDomain,
    pages: Vec<u64>,
    region: Option<TestRegion>,
    window: Option<TestWindow>,
    region_alive: Arc<()>,
    window_alive: Arc<()>,
    /// What the window is bound to next.
    spare: TestRegion,
    world: World,
}

impl Stage {
    fn new(kind: RegionKind, order: [usize; 2]) -> Self {
        let world = World::new();
        let domain = world.domain();
        let [region_alive, window_alive] = [(); 2].map(|()| Arc::new(()));
        let buffer = Buffer::new(BASE, 8192);
        let mapped: Vec<u64> = world.map(&buffer).page_addresses().collect();
        let pages = order.map(|page| mapped[page]).to_vec();
        let region = Region::try_new_for(&domain, kind, Alive(region_alive.clone())).expect("memory");
        let window = Window::try_new_for(&domain, Alive(window_alive.clone())).expect("memory");
        let spare = registered(&domain, &Buffer::new(BASE, 8192), ALL);
        let stage = Self {
            domain,
            pages,
            region: Some(region),
            window: Some(window),
            region_alive,
            window_alive,
            spare,
            world,
        };
        match kind {
            RegionKind::Normal => {
                stage.region().register(buffer.memory(), ALL, Alive(stage.region_alive.clone())).expect("memory");
            }
            RegionKind::Fast => {
                stage.region().initialize_fast_register(2, true).expect("memory");
                stage.domain.commit(stage.post_registration().expect("room")).expect("not registered");
            }
        }
        let posted = stage.post_bind(stage.region()).expect("room");
        stage.domain.commit(posted).expect("not bound");
        stage
    }

    fn region(&self) -> &TestRegion {
        self.region.as_ref().expect("open")
    }

    fn window(&self) -> &TestWindow {
        self.window.as_ref().expect("open")
    }

    fn is_open(&self, object: Object) -> bool {
        match object {
            Object::Window => self.window.is_some(),
            Object::Region => self.region.is_some(),
        }
    }

    fn post_registration(&self) -> Result<Posted, NtStatus> {
        let what = FastRegister { pages: &self.pages, first_byte: 0, length: LENGTH, base: BASE, rights: ALL };
        self.domain.prepare_fast_register(self.region(), &what)
    }

    fn post_bind(&self, region: &TestRegion) -> Result<Posted, NtStatus> {
        self.domain.prepare_bind(self.window(), region, &Bind { address: BASE, length: LENGTH, rights: REMOTE })
    }

    fn transfer(&self, through: Object) -> TestSegment {
        let token = match through {
            Object::Window => self.window().remote_token(),
            Object::Region => self.region().remote_token(),
        };
        let length = u32::try_from(LENGTH).expect("small");
        self.domain.resolve(token, BASE, length, Access::RemoteWrite).expect("in force")
    }

    /// The token that names the object itself, and the one for peers.
    fn tokens(&self, object: Object) -> [u32; 2] {
        match object {
            Object::Window => [self.window().invalidation_token(), self.window().remote_token()],
            Object::Region => {
                [self.region().invalidation_token().expect("for fast registration"), self.region().remote_token()]
            }
        }
    }

    fn begin(&mut self, (object, act): (Object, Act)) -> End {
        match act {
            Act::Close if object == Object::Window => {
                self.window = None;
                End::Closed(self.window_alive.clone())
            }
            Act::Close => {
                self.region = None;
                End::Closed(self.region_alive.clone())
            }
            Act::Invalidate => {
                let [token, _] = self.tokens(object);
                let transfers = self.domain.transfers(token);
                self.domain.invalidate(token).map_or_else(End::Finished, |()| End::Invalidated(transfers))
            }
            Act::InvalidateByPeer => {
                let [_, token] = self.tokens(object);
                let transfers = self.domain.transfers(token);
                self.domain.invalidate_remote(token).map_or_else(End::Finished, |()| End::Invalidated(transfers))
            }
            Act::Rebind => {
                let invalidated = match self.begin((object, Act::Invalidate)) {
                    End::Finished(NtStatus::DEVICE_BUSY) => return End::Finished(NtStatus::DEVICE_BUSY),
                    End::Invalidated(transfers) => Some(transfers),
                    _ => None,
                };
                let posted = match object {
                    Object::Window => self.post_bind(&self.spare),
                    Object::Region => self.post_registration(),
                };
                End::Rebound(invalidated, posted.expect("room"))
            }
            // The client of the registration goes with the last transfer; the region keeps its own.
            Act::Deregister => {
                self.region().deregister().map_or_else(End::Finished, |_| End::Deregistered(self.region_alive.clone()))
            }
        }
    }

    /// Returns true if the consumer is told now.
    fn is_complete(&self, end: &End) -> bool {
        match end {
            End::Finished(_) => true,
            // One is the stage's own, one the end's.
            End::Closed(alive) => Arc::strong_count(alive) == 2,
            End::Invalidated(transfers) => transfers.are_over(),
            End::Rebound(invalidated, posted) => {
                invalidated.as_ref().is_none_or(Transfers::are_over) && self.domain.may_commit(*posted)
            }
            // One is the region's.
            End::Deregistered(alive) => Arc::strong_count(alive) == 2 + usize::from(self.region.is_some()),
        }
    }
}

/// Returns true if the end of `object` has to wait for a transfer that was found through `through`.
fn waits(object: Object, through: Object) -> bool {
    object == Object::Region || through == Object::Window
}

fn check(kind: RegionKind, order: [usize; 2], acts: [(Object, Act); 2], through: Object) -> bool {
    let mut stage = Stage::new(kind, order);
    let transfer = stage.transfer(through);
    let (mut ends, mut waited) = (Vec::new(), false);
    for (object, act) in acts {
        if !stage.is_open(object) {
            // Nobody uses what he has closed.
            return false;
        }
        ends.push((object, act, stage.begin((object, act))));
        for (object, act, end) in &ends {
            // What another invalidation has made room for fails at once when the object has been closed.
            let fails = matches!(end, End::Rebound(None, _)) && !stage.is_open(*object);
            if fails || matches!(end, End::Finished(_)) {
                continue;
            }
            let has_to_wait = waits(*object, through);
            waited |= has_to_wait;
            assert!(
                !(has_to_wait && stage.is_complete(end)),
                "{kind:?} {acts:?}: {act:?} of the {object:?} completes while a transfer found through the {through:?} goes on"
            );
        }
    }
    transfer.write(0, &[1]);
    drop(transfer);
    // Invalidations complete, and what was posted behind them is carried out.
    for (object, act, end) in &mut ends {
        let is_complete = stage.is_complete(end);
        if let End::Rebound(_, posted) = end {
            let _ = stage.domain.commit(*posted);
        }
        if matches!(end, End::Rebound(..) | End::Invalidated(_)) {
            assert!(is_complete, "{kind:?} {acts:?}: {act:?} of the {object:?} waits for nothing");
            *end = End::Finished(NtStatus::SUCCESS);
        }
    }
    // A window that is bound keeps its region.
    stage.window = None;
    for (object, act, end) in &ends {
        assert!(stage.is_complete(end), "{kind:?} {acts:?}: {act:?} of the {object:?} never completes");
    }
    assert_eq!(stage.world.table.counts().windows, 0);
    waited
}

//= NDKPI 7.4.3
#[test]
fn no_end_of_a_region_or_its_window_completes_under_a_transfer_through_either() {
    let (mut pairs, mut waited) = (0, 0);
    for kind in KINDS {
        let ends = || OBJECTS.iter().flat_map(|&object| ACTS.map(|act| (object, act)));
        for order in ORDERS {
            for first in ends().filter(|end| exists(kind, *end)) {
                for second in ends().filter(|end| exists(kind, *end)) {
                    for through in OBJECTS {
                        pairs += 1;
                        waited += u32::from(check(kind, order, [first, second], through));
                    }
                }
            }
        }
    }
    // The ends of a window are four, those of a region two or four.
    assert_eq!(pairs, 2 * 2 * (6 * 6 + 8 * 8));
    assert!(waited > 200, "only {waited} of {pairs} pairs have waited for the transfer");
}
