//! Every interleaving of a transfer with an end of a fast-registered region and an end of a window that is bound to it, each on a
//! thread of its own, checked by loom: when an end has completed nobody writes to the bytes any more that it covers.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p engine --test loom_invalidation --target-dir target/loom
//! ```

#![cfg(loom)]

#[allow(dead_code, reason = "nothing is deferred here")]
mod loom_os;

use engine::memory::{
    Access, Bind, Domain, FastRegister, MemoryLimits, MemoryTable, Region, RegionKind, Rights, Window,
};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Release},
    },
    thread,
};
use loom_os::{Byte, LoomOs, interleavings};

const BASE: u64 = 0x1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Window,
    Region,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Close,
    Invalidate,
}

/// Frees the byte when the object has been closed, if that ends the use of the byte.
struct Client {
    is_free: Arc<AtomicBool>,
    ends_use: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.ends_use {
            self.is_free.store(true, Release);
        }
    }
}

/// A registered byte with a window.
struct Stage {
    domain: fallible::Arc<Domain<LoomOs>>,
    region: fallible::Arc<Region<LoomOs>>,
    window: fallible::Arc<Window<LoomOs>>,
    is_free: Arc<AtomicBool>,
}

/// Returns true if a transfer that was found through `through` is over when an end of `object` completes.
fn covers(object: Object, through: Object) -> bool {
    object == Object::Region || through == Object::Window
}

impl Stage {
    fn new(acts: [Act; 2], through: Object) -> Self {
        let os = LoomOs::new();
        let limits = MemoryLimits { tokens: 4, mappings: 1, registration: 1, fast_register_pages: 1 };
        let table = MemoryTable::try_new(&os, limits).expect("memory");
        let domain = Domain::try_new(&table).expect("memory");
        let is_free = Arc::new(AtomicBool::new(false));
        let mapping = table.map(Byte { address: BASE, is_free: is_free.clone() }, ()).expect("memory");
        let pages: Vec<u64> = mapping.page_addresses().collect();
        let [for_window, for_region] = [(Object::Window, acts[0]), (Object::Region, acts[1])].map(|(object, act)| {
            Client { is_free: is_free.clone(), ends_use: act == Act::Close && covers(object, through) }
        });
        let region = Region::try_new_for(&domain, RegionKind::Fast, for_region).expect("memory");
        let window = Window::try_new_for(&domain, for_window).expect("memory");
        region.initialize_fast_register(1, true).expect("memory");
        let what = FastRegister { pages: &pages, first_byte: 0, length: 1, base: BASE, rights: Rights::REMOTE_WRITE };
        domain.commit(domain.prepare_fast_register(&region, &what).expect("room")).expect("not registered");
        let what = Bind { address: BASE, length: 1, rights: Rights::REMOTE_WRITE };
        domain.commit(domain.prepare_bind(&window, &region, &what).expect("room")).expect("not bound");
        Self { domain, region, window, is_free }
    }
}

/// An invalidation that asks once whether it has completed, and frees the byte then.
fn invalidate(domain: &Domain<LoomOs>, token: u32, is_free: &AtomicBool, ends_use: bool) {
    let transfers = domain.transfers(token);
    // A region is busy until its window is unbound.
    if domain.invalidate(token).is_ok() && transfers.are_over() && ends_use {
        is_free.store(true, Release);
    }
}

fn race(acts: [Act; 2], through: Object) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    let count = interleavings(&builder, move || {
        let Stage { domain, region, window, is_free } = Stage::new(acts, through);
        let token = if through == Object::Window { window.remote_token() } else { region.remote_token() };
        let (of_window, of_region) = (window.invalidation_token(), region.invalidation_token().expect("initialised"));
        let peer = {
            let domain = domain.clone();
            thread::spawn(move || {
                if let Ok(piece) = domain.resolve(token, BASE, 1, Access::RemoteWrite) {
                    piece.write(0, &[1]);
                }
            })
        };
        let other = {
            let (domain, is_free) = (domain.clone(), is_free.clone());
            // What is not closed is kept until all is over.
            thread::spawn(move || match acts[0] {
                Act::Close => None,
                Act::Invalidate => {
                    invalidate(&domain, of_window, &is_free, covers(Object::Window, through));
                    Some(window)
                }
            })
        };
        let region = match acts[1] {
            Act::Close => None,
            Act::Invalidate => {
                invalidate(&domain, of_region, &is_free, covers(Object::Region, through));
                Some(region)
            }
        };
        peer.join().expect("no panic");
        drop((other.join().expect("no panic"), region));
    });
    assert!(count > 4, "loom has found only {count} interleavings of {acts:?} through the {through:?}");
}

#[test]
fn no_end_completes_under_a_transfer() {
    for window in [Act::Close, Act::Invalidate] {
        for region in [Act::Close, Act::Invalidate] {
            for through in [Object::Window, Object::Region] {
                race([window, region], through);
            }
        }
    }
}
