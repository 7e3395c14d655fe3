//! Run-down protection, with one count (`EX_RUNDOWN_REF`) or one for each processor (`EX_RUNDOWN_REF_CACHE_AWARE`). The second has the
//! same rules. It is opaque, and most drivers have the system allocate it.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use litemap::LiteMap;
use wdk_bindings::{BOOLEAN, EX_RUNDOWN_REF, POOL_TYPE, SIZE_T, ULONG};

use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    sites::Site,
    state::{Part, State},
    tracked::{CACHE_AWARE_BYTES, Kind, Object, Structure},
    waiting,
};

/// Set when nobody may come in.
const SHUT: u64 = 1;
/// One who is inside.
const ONE: u64 = 2;
/// A structure of those bytes, in memory of the system's or of a driver's.
#[repr(C, align(16))]
pub struct CacheAware([u8; CACHE_AWARE_BYTES]);

/// Run-down protection, of both kinds: twice the number of those inside, plus one when it is shut.
#[derive(Default)]
struct Rundown {
    state: AtomicU64,
}

impl Structure for Rundown {
    fn rule_if_freed(&self) -> Option<Rule> {
        self.is_held().then_some(Rule::RundownInUse)
    }

    fn rule_if_initialised(&self) -> Option<Rule> {
        self.is_held().then_some(Rule::Uninitialised)
    }
}

/// Those that the system has allocated, by address: whose they are, and where they were allocated. Their memory is never freed, so that
/// a late use is told from one of something else.
#[derive(Default)]
pub struct Rundowns(LiteMap<usize, (DriverId, Site)>);

impl Part for Mutex<Rundowns> {}

impl Rundown {
    /// Somebody is inside.
    fn is_held(&self) -> bool {
        self.state.load(Acquire) >= ONE
    }

    fn enter(&self, state: &State, count: ULONG) -> BOOLEAN {
        let enter = |word: u64| (word & SHUT == 0).then_some(word + ONE * u64::from(count));
        let entered = self.state.fetch_update(AcqRel, Acquire, enter).is_ok();
        state.preempt();
        BOOLEAN::from(entered)
    }

    fn leave(&self, state: &State, count: ULONG) {
        let leave = |word: u64| word.checked_sub(ONE * u64::from(count));
        if self.state.fetch_update(AcqRel, Acquire, leave).is_err() {
            bug_check(Rule::RundownUnderflow, format_args!("run-down protection released once too often"));
        }
        state.dispatcher.signal();
        state.preempt();
    }

    fn wait(&self, state: &Arc<State>, what: &'static str) {
        self.state.fetch_or(SHUT, Release);
        waiting::until(state, None, what, || self.state.load(Acquire) == SHUT);
    }

    fn begin_again(&self) {
        if self.state.swap(0, AcqRel) != SHUT {
            bug_check(Rule::BadArgument, format_args!("run-down protection initialised again before it has run down"));
        }
    }

    fn complete(&self) {
        let before = self.state.swap(SHUT, AcqRel);
        if before >= ONE {
            bug_check(
                Rule::RundownInUse,
                format_args!("run-down protection is said to have run down, and somebody is inside"),
            );
        }
        if before != SHUT {
            let words = format_args!("run-down protection is said to have run down, and nobody has waited for that");
            bug_check(Rule::BadArgument, words);
        }
    }
}

fn plain(state: &State, place: *mut EX_RUNDOWN_REF) -> Arc<Rundown> {
    state.structure(place.expose_provenance(), Kind::Rundown)
}

fn by_processor(state: &State, place: *mut CacheAware) -> Arc<Rundown> {
    state.structure(place.expose_provenance(), Kind::CacheAwareRundown)
}

impl State {
    /// A driver was unloaded: what it has allocated has to be freed.
    pub fn check_rundowns(&self, driver: DriverId, name: &str) {
        let left =
            self.locked::<Rundowns>().0.values().find_map(|(owner, site)| (*owner == driver).then(|| site.clone()));
        if let Some(site) = left {
            let words =
                format_args!("run-down protection of driver {name} is left at its unload; it was allocated{site}");
            bug_check(Rule::ReferenceLeak, words);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExInitializeRundownProtection", |state| {
        state.track(place.expose_provenance(), context::caller(), Object::new(Kind::Rundown, Rundown::default()));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExAllocateCacheAwareRundownProtection(_kind: POOL_TYPE, tag: ULONG) -> *mut CacheAware {
    routine!("ExAllocateCacheAwareRundownProtection", APC_LEVEL, |state| {
        if tag == 0 {
            bug_check(Rule::PoolTag, format_args!("ExAllocateCacheAwareRundownProtection without a tag"));
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let (owner, site) = (state.calling_driver(), Site::here());
        let memory = Box::into_raw(Box::new(CacheAware([0; CACHE_AWARE_BYTES])));
        state.track(memory.expose_provenance(), owner, Object::new(Kind::CacheAwareRundown, Rundown::default()));
        state.locked::<Rundowns>().0.insert(memory.addr(), (owner, site));
        memory
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExFreeCacheAwareRundownProtection(place: *mut CacheAware) {
    routine!("ExFreeCacheAwareRundownProtection", APC_LEVEL, |state| {
        let known = state.locked::<Rundowns>().0.remove(&place.addr());
        if known.is_none() {
            bug_check(Rule::BadFree, format_args!("{place:p} is no run-down protection that the system has allocated"));
        }
        if by_processor(state, place).is_held() {
            bug_check(Rule::RundownInUse, format_args!("run-down protection is freed, and somebody is inside"));
        }
        state.untrack_and_remember(place.addr(), Kind::CacheAwareRundown, ", and freed since");
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExSizeOfRundownProtectionCacheAware() -> SIZE_T {
    routine!("ExSizeOfRundownProtectionCacheAware", APC_LEVEL, |_| CACHE_AWARE_BYTES as SIZE_T)
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeRundownProtectionCacheAware(place: *mut CacheAware, size: SIZE_T) {
    routine!("ExInitializeRundownProtectionCacheAware", APC_LEVEL, |state| {
        if size < CACHE_AWARE_BYTES as SIZE_T {
            let words = format_args!("run-down protection for each processor in {size} bytes");
            bug_check(Rule::BadArgument, words);
        }
        state.track(
            place.expose_provenance(),
            context::caller(),
            Object::new(Kind::CacheAwareRundown, Rundown::default()),
        );
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExReInitializeRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExReInitializeRundownProtection", |state| plain(state, place).begin_again());
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireRundownProtection(place: *mut EX_RUNDOWN_REF) -> BOOLEAN {
    routine!("ExAcquireRundownProtection", |state| plain(state, place).enter(state, 1))
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireRundownProtectionEx(place: *mut EX_RUNDOWN_REF, count: ULONG) -> BOOLEAN {
    routine!("ExAcquireRundownProtectionEx", DISPATCH_LEVEL, |state| plain(state, place).enter(state, count))
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseRundownProtection(place: *mut EX_RUNDOWN_REF) {
    routine!("ExReleaseRundownProtection", |state| plain(state, place).leave(state, 1));
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseRundownProtectionEx(place: *mut EX_RUNDOWN_REF, count: ULONG) {
    routine!("ExReleaseRundownProtectionEx", DISPATCH_LEVEL, |state| plain(state, place).leave(state, count));
}

#[unsafe(no_mangle)]
extern "C" fn ExRundownCompleted(place: *mut EX_RUNDOWN_REF) {
    routine!("ExRundownCompleted", APC_LEVEL, |state| plain(state, place).complete());
}

#[unsafe(no_mangle)]
extern "C" fn ExWaitForRundownProtectionRelease(place: *mut EX_RUNDOWN_REF) {
    routine!("ExWaitForRundownProtectionRelease", |state| plain(state, place)
        .wait(state, "ExWaitForRundownProtectionRelease"));
}

#[unsafe(no_mangle)]
extern "C" fn ExReInitializeRundownProtectionCacheAware(place: *mut CacheAware) {
    routine!("ExReInitializeRundownProtectionCacheAware", APC_LEVEL, |state| by_processor(state, place).begin_again());
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireRundownProtectionCacheAware(place: *mut CacheAware) -> BOOLEAN {
    routine!("ExAcquireRundownProtectionCacheAware", DISPATCH_LEVEL, |state| by_processor(state, place).enter(state, 1))
}

#[unsafe(no_mangle)]
extern "C" fn ExAcquireRundownProtectionCacheAwareEx(place: *mut CacheAware, count: ULONG) -> BOOLEAN {
    routine!("ExAcquireRundownProtectionCacheAwareEx", DISPATCH_LEVEL, |state| by_processor(state, place)
        .enter(state, count))
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseRundownProtectionCacheAware(place: *mut CacheAware) {
    routine!("ExReleaseRundownProtectionCacheAware", DISPATCH_LEVEL, |state| by_processor(state, place)
        .leave(state, 1));
}

#[unsafe(no_mangle)]
extern "C" fn ExReleaseRundownProtectionCacheAwareEx(place: *mut CacheAware, count: ULONG) {
    routine!("ExReleaseRundownProtectionCacheAwareEx", DISPATCH_LEVEL, |state| by_processor(state, place)
        .leave(state, count));
}

#[unsafe(no_mangle)]
extern "C" fn ExRundownCompletedCacheAware(place: *mut CacheAware) {
    routine!("ExRundownCompletedCacheAware", APC_LEVEL, |state| by_processor(state, place).complete());
}

#[unsafe(no_mangle)]
extern "C" fn ExWaitForRundownProtectionReleaseCacheAware(place: *mut CacheAware) {
    routine!("ExWaitForRundownProtectionReleaseCacheAware", APC_LEVEL, |state| by_processor(state, place)
        .wait(state, "ExWaitForRundownProtectionReleaseCacheAware"));
}
