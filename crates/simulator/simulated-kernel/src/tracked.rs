//! The kernel's objects that live in a driver's memory, by their address and kind.
//!
//! Windows links such a structure, waits on it or finds it again by its address, so it stays where it was initialised. The structures
//! are opaque to drivers: what they stand for is kept here, and where Windows has a pointer of a structure to itself there is one
//! too, the seal. It tells a copy from a structure that was never initialised, and says of what it is one. A structure whose memory is
//! freed, or whose function has returned, is forgotten, after a look whether that was allowed.

use std::{
    any::{Any, type_name},
    collections::{BTreeMap, VecDeque},
    mem::offset_of,
    ops::Range,
    sync::{Arc, Mutex},
};

use ndis::{NET_BUFFER_LIST, WSK_REGISTRATION};
use wdk_bindings::{
    _DISPATCHER_HEADER, _GENERAL_LOOKASIDE_POOL, ERESOURCE, EX_RUNDOWN_REF, IO_CSQ, IO_REMOVE_LOCK,
    IO_REMOVE_LOCK_COMMON_BLOCK, IRP, KDEVICE_QUEUE, KDPC, KEVENT, KSEMAPHORE, KTIMER, LIST_ENTRY, LOOKASIDE_LIST_EX,
    MDL, SLIST_HEADER, WORK_QUEUE_ITEM,
};

use crate::{
    paged, platform, pool,
    report::bug_check,
    rule::Rule,
    running::DriverId,
    sites::Site,
    stack,
    state::{Part, State, Watch},
};

/// Which kind of structure one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    CacheAwareRundown,
    CancelSafeQueue,
    DeviceQueue,
    Dpc,
    Event,
    Irp,
    Lookaside,
    Mdl,
    Mutex,
    NetBufferList,
    /// An MDL in memory of the driver's own.
    OwnMdl,
    PushLock,
    Queue,
    Registration,
    RemoveLock,
    Resource,
    Rundown,
    Semaphore,
    SequencedList,
    Timer,
    WorkItem,
}

/// The first in order.
const FIRST: Kind = Kind::CacheAwareRundown;
/// Bytes of a `KQUEUE`.
const QUEUE: usize = 64;
/// Bytes of a `KMUTANT`, which the bindings do not show.
const MUTANT: usize = 56;
/// Bytes of run-down protection with a count for each processor. On Windows they depend on the machine.
pub const CACHE_AWARE_BYTES: usize = 128;
/// No structure has more bytes.
const LARGEST: usize = 512;

impl Kind {
    /// What can be waited for and lies in a driver's memory.
    pub const WAITABLE: [Self; 4] = [Self::Event, Self::Timer, Self::Semaphore, Self::Mutex];

    pub const fn name(self) -> &'static str {
        match self {
            Self::CacheAwareRundown => "run-down protection for each processor",
            Self::CancelSafeQueue => "cancel-safe queue",
            Self::DeviceQueue => "device queue",
            Self::Dpc => "DPC",
            Self::Event => "event",
            Self::Irp => "IRP",
            Self::Lookaside => "lookaside list",
            Self::Mdl | Self::OwnMdl => "MDL",
            Self::Mutex => "mutex",
            Self::NetBufferList => "net buffer list",
            Self::PushLock => "push lock",
            Self::Queue => "queue of the kernel",
            Self::Registration => "registration with Winsock Kernel",
            Self::RemoveLock => "remove lock",
            Self::Resource => "resource",
            Self::Rundown => "run-down protection",
            Self::Semaphore => "semaphore",
            Self::SequencedList => "sequenced list",
            Self::Timer => "timer",
            Self::WorkItem => "work item",
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::CacheAwareRundown => CACHE_AWARE_BYTES,
            Self::CancelSafeQueue => size_of::<IO_CSQ>(),
            Self::DeviceQueue => size_of::<KDEVICE_QUEUE>(),
            Self::Dpc => size_of::<KDPC>(),
            Self::Event => size_of::<KEVENT>(),
            Self::Irp => size_of::<IRP>(),
            // The older kinds begin with the same fields, and have others behind them.
            Self::Lookaside => size_of::<_GENERAL_LOOKASIDE_POOL>(),
            Self::Mdl | Self::OwnMdl => size_of::<MDL>(),
            Self::Mutex => MUTANT,
            Self::NetBufferList => size_of::<NET_BUFFER_LIST>(),
            Self::PushLock => size_of::<usize>(),
            Self::Queue => QUEUE,
            Self::Registration => size_of::<WSK_REGISTRATION>(),
            Self::RemoveLock => size_of::<IO_REMOVE_LOCK>(),
            Self::Resource => size_of::<ERESOURCE>(),
            Self::Rundown => size_of::<EX_RUNDOWN_REF>(),
            Self::Semaphore => size_of::<KSEMAPHORE>(),
            Self::SequencedList => size_of::<SLIST_HEADER>(),
            Self::Timer => size_of::<KTIMER>(),
            Self::WorkItem => size_of::<WORK_QUEUE_ITEM>(),
        }
    }

    /// The alignment that the reference asks for.
    const fn alignment(self) -> usize {
        match self {
            Self::Lookaside | Self::SequencedList => 16,
            Self::Mutex | Self::PushLock | Self::Resource | Self::Rundown => 8,
            _ => 1,
        }
    }

    /// The offset of the word that points to itself, and how many there are: two of a list's head. Where Windows has none, it is a
    /// field that is the system's.
    const fn seal(self) -> (usize, usize) {
        const HEADER: usize = offset_of!(_DISPATCHER_HEADER, WaitListHead);
        match self {
            Self::CancelSafeQueue => (offset_of!(IO_CSQ, ReservePointer), 1),
            Self::DeviceQueue => (offset_of!(KDEVICE_QUEUE, DeviceListHead), 2),
            Self::Dpc => (offset_of!(KDPC, DpcData), 1),
            Self::Event | Self::Mutex | Self::Queue | Self::Semaphore | Self::Timer => (HEADER, 2),
            Self::Irp => (offset_of!(IRP, ThreadListEntry), 2),
            Self::Lookaside => (offset_of!(LOOKASIDE_LIST_EX, L) + offset_of!(_GENERAL_LOOKASIDE_POOL, ListEntry), 2),
            Self::Mdl | Self::OwnMdl => (offset_of!(MDL, Process), 1),
            Self::NetBufferList => (offset_of!(NET_BUFFER_LIST, NdisReserved), 1),
            Self::Registration => (offset_of!(WSK_REGISTRATION, ReservedRegistrationContext), 1),
            Self::RemoveLock => (offset_of!(IO_REMOVE_LOCK_COMMON_BLOCK, RemoveEvent) + HEADER, 2),
            Self::Resource => (offset_of!(ERESOURCE, SystemResourcesList), 2),
            Self::CacheAwareRundown | Self::PushLock | Self::Rundown | Self::SequencedList => (0, 1),
            Self::WorkItem => (offset_of!(WORK_QUEUE_ITEM, List), 1),
        }
    }
}

/// What a structure of some kinds stands for, beside its bytes.
pub trait Structure: Any + Send + Sync {
    /// The rule that freeing it now would break.
    fn rule_if_freed(&self) -> Option<Rule> {
        None
    }

    /// The rule that initialising it now would break.
    fn rule_if_initialised(&self) -> Option<Rule> {
        self.rule_if_freed()
    }

    /// Returns true if a wait for it would end at once.
    fn is_signalled(&self) -> bool {
        false
    }

    /// Returns true if a wait for it ends now, and takes what that takes.
    fn try_wait(&self) -> bool {
        bug_check(Rule::BadArgument, format_args!("a wait for something that cannot be waited for"))
    }
}

/// An initialised structure.
#[derive(Clone)]
pub struct Object {
    kind: Kind,
    /// What it stands for; `None` if all there is to it is kept elsewhere.
    stands_for: Option<Arc<dyn Structure>>,
}

struct Entry {
    owner: DriverId,
    object: Object,
    /// Where it was initialised.
    site: Site,
    /// It lies on a stack: of the thread that initialised it.
    on_stack: bool,
    /// It lay on the stack of a function that has returned.
    gone: bool,
}

/// What is known of a structure that is not there any more.
struct Past {
    site: Site,
    how: &'static str,
}

/// All of them.
#[derive(Default)]
pub struct Tracked {
    objects: BTreeMap<(usize, Kind), Entry>,
    past: BTreeMap<(usize, Kind), Past>,
    /// In the order in which they went.
    order: VecDeque<(usize, Kind)>,
}

impl Object {
    /// A structure that stands for something.
    pub fn new(kind: Kind, structure: impl Structure) -> Self {
        Self { kind, stands_for: Some(Arc::new(structure)) }
    }

    /// A structure of which all there is to it is kept elsewhere.
    pub const fn plain(kind: Kind) -> Self {
        Self { kind, stands_for: None }
    }

    /// Returns true if a wait for it would end at once.
    pub fn is_signalled(&self) -> bool {
        self.stands_for.as_ref().is_some_and(|structure| structure.is_signalled())
    }

    /// The rule that freeing it now would break.
    fn rule_if_freed(&self) -> Option<Rule> {
        match self.kind {
            // These are in lists of the system until they are deleted.
            Kind::Resource | Kind::Lookaside | Kind::Registration => Some(Rule::ReferenceLeak),
            // These are the system's own, and there is a routine that frees them.
            Kind::Irp => Some(Rule::IrpFreed),
            Kind::Mdl => Some(Rule::BadMdl),
            Kind::NetBufferList => Some(Rule::NblNotOwned),
            Kind::WorkItem => Some(Rule::WorkItemQueued),
            _ => self.stands_for.as_ref()?.rule_if_freed(),
        }
    }

    /// The rule that initialising it now would break.
    fn rule_if_initialised(&self) -> Option<Rule> {
        match self.kind {
            Kind::Resource | Kind::Lookaside | Kind::Registration => Some(Rule::Uninitialised),
            _ => self
                .stands_for
                .as_ref()
                .map_or_else(|| self.rule_if_freed(), |structure| structure.rule_if_initialised()),
        }
    }
}

impl Part for Mutex<Tracked> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<Tracked> {
    fn memory_is_gone(&self, state: &State, range: &Range<usize>) {
        state.forget_range(range.start, range.len());
    }

    fn stack_is_gone(&self, state: &State, addresses: &[usize]) {
        state.stack_objects_are_gone(addresses);
    }
}

impl Tracked {
    /// So many structures that are gone are remembered.
    const REMEMBERED: usize = 1024;

    fn remember(&mut self, key: (usize, Kind), site: Site, how: &'static str) {
        if self.past.insert(key, Past { site, how }).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > Self::REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
    }

    /// Those of which a part lies in these bytes.
    fn in_range(&self, address: usize, size: usize) -> Vec<(usize, Kind)> {
        let near = (address.saturating_sub(LARGEST), FIRST)..(address.saturating_add(size), FIRST);
        let keys = self.objects.range(near).map(|(&key, _)| key);
        keys.filter(|&(place, kind)| place + kind.size() > address).collect()
    }
}

impl State {
    /// A structure was initialised.
    pub fn track(&self, address: usize, owner: DriverId, object: Object) {
        let kind = object.kind;
        check_memory(address, kind);
        if !address.is_multiple_of(kind.alignment()) {
            let (name, alignment) = (kind.name(), kind.alignment());
            bug_check(
                Rule::BadArgument,
                format_args!("the {name} at {address:#x} is not aligned to {alignment} bytes"),
            );
        }
        let site = if kind == Kind::NetBufferList { Site::default() } else { Site::here() };
        let mut tracked = self.locked::<Tracked>();
        let mut before = Vec::new();
        for key in tracked.in_range(address, kind.size()) {
            let Some(entry) = tracked.objects.remove(&key) else { continue };
            // Of an event that is initialised again the dispatcher says more.
            let is_event_again = key == (address, Kind::Event);
            let waited = (!is_event_again && self.dispatcher.is_waited_for(key.0)).then_some(Rule::Uninitialised);
            if let Some(rule) = entry.object.rule_if_initialised().or(waited).filter(|_| !entry.gone) {
                drop(tracked);
                let (name, place) = (key.1.name(), key.0);
                let what =
                    if key == (address, kind) { "initialised again" } else { "overwritten by another structure" };
                bug_check(
                    rule,
                    format_args!(
                        "the {name} at {place:#x} is {what} while it is in use; it was initialised{}",
                        entry.site
                    ),
                );
            }
            before.push(entry);
        }
        tracked.past.remove(&(address, kind));
        tracked
            .objects
            .insert((address, kind), Entry { owner, object, site, on_stack: stack::note(address), gone: false });
        drop(tracked);
        drop(before);
        seal(address, kind);
    }

    /// Objects on a stack whose functions have returned.
    fn stack_objects_are_gone(&self, addresses: &[usize]) {
        let mut tracked = self.locked::<Tracked>();
        for &address in addresses {
            for (&(place, kind), entry) in tracked.objects.range_mut((address, FIRST)..(address + 1, FIRST)) {
                entry.gone = true;
                let waited = self.dispatcher.is_waited_for(place).then_some(Rule::StackObject);
                if let Some(rule) = entry.object.rule_if_freed().or(waited) {
                    let (name, site) = (kind.name(), entry.site.clone());
                    drop(tracked);
                    bug_check(
                        rule,
                        format_args!(
                            "the {name} at {place:#x} is in use and lay on the stack of a function that has returned; it was \
                             initialised{site}"
                        ),
                    );
                }
            }
        }
    }

    /// The structure of that kind at that address, if there is one already, and not on the stack of a function that has returned.
    pub fn tracked(&self, address: usize, kind: Kind) -> Option<Object> {
        let tracked = self.locked::<Tracked>();
        tracked.objects.get(&(address, kind)).filter(|entry| !entry.gone).map(|entry| entry.object.clone())
    }

    /// Returns true if a structure of that kind was initialised there and is not gone.
    pub fn is_tracked(&self, address: usize, kind: Kind) -> bool {
        self.locked::<Tracked>().objects.get(&(address, kind)).is_some_and(|entry| !entry.gone)
    }

    /// What the structure of that kind at that address stands for.
    pub fn find(&self, address: usize, kind: Kind) -> Object {
        self.find_one_of(address, &[kind], kind.name())
    }

    /// The sequenced list at that address must be there. A lookaside list begins with one, which the kit's inline functions change.
    pub fn find_sequenced_list(&self, address: usize) {
        self.find_one_of(address, &[Kind::SequencedList, Kind::Lookaside], Kind::SequencedList.name());
    }

    /// What the structure of that kind at that address stands for.
    pub fn structure<T: Structure>(&self, address: usize, kind: Kind) -> Arc<T> {
        let structure = self.find(address, kind).stands_for.and_then(|structure| {
            let structure: Arc<dyn Any + Send + Sync> = structure;
            structure.downcast().ok()
        });
        structure.unwrap_or_else(|| unreachable!("a {} that is no {}", kind.name(), type_name::<T>()))
    }

    /// What can be waited for at that address, in a driver's memory.
    pub fn find_waitable(&self, address: usize) -> Arc<dyn Structure> {
        let found = self.find_one_of(address, &Kind::WAITABLE, "object to wait for");
        found.stands_for.unwrap_or_else(|| unreachable!("what can be waited for is more than its bytes"))
    }

    fn find_one_of(&self, address: usize, kinds: &[Kind], what: &str) -> Object {
        if kinds == [Kind::PushLock] {
            check_memory(address, Kind::PushLock);
        } else {
            check_memory_of(address, what);
        }
        let found = {
            let tracked = self.locked::<Tracked>();
            let entry = kinds.iter().find_map(|&kind| Some((kind, tracked.objects.get(&(address, kind))?)));
            entry.map(|(kind, entry)| (kind, entry.object.clone(), entry.gone, entry.gone.then(|| entry.site.clone())))
        };
        let Some((kind, object, gone, site)) = found else {
            for &kind in kinds {
                self.check_moved(address, kind);
            }
            self.unknown(address, what)
        };
        if gone {
            let (name, site) = (kind.name(), site.unwrap_or_default());
            let words = "lay on the stack of a function that has returned; it was initialised";
            bug_check(Rule::StackObject, format_args!("the {name} at {address:#x} {words}{site}"));
        }
        let (offset, _) = kind.seal();
        let place: *const usize = std::ptr::with_exposed_provenance(address + offset);
        // SAFETY: the structure was initialised there, and its memory was not given back.
        if unsafe { place.read_unaligned() } != address + offset {
            self.overwritten(address, kind);
        }
        object
    }

    /// Ends the test if what lies there is a copy of a structure that was initialised elsewhere.
    pub fn check_moved(&self, address: usize, kind: Kind) {
        let (offset, _) = kind.seal();
        let Some(origin) = platform::peek(address + offset).and_then(|word| word.checked_sub(offset)) else { return };
        if origin != address {
            self.check_origin(address, origin, kind);
        }
    }

    /// Ends the test if a structure of that kind was initialised at `origin`, of which a driver uses a copy at `address`.
    pub fn check_origin(&self, address: usize, origin: usize, kind: Kind) {
        let (site, how) = {
            let tracked = self.locked::<Tracked>();
            let live = tracked.objects.get(&(origin, kind)).map(|entry| {
                let how = if entry.gone { ", on the stack of a function that has returned" } else { "" };
                (entry.site.clone(), how)
            });
            let past = tracked.past.get(&(origin, kind)).map(|past| (past.site.clone(), past.how));
            match live.or(past) {
                Some(known) => known,
                None => return,
            }
        };
        let (name, here) = (kind.name(), Site::of_use());
        bug_check(
            Rule::MovedObject,
            format_args!(
                "the {name} at {address:#x} is a copy: it was initialised at {origin:#x}{how}{site}, and is used at {address:#x}{here}"
            ),
        );
    }

    /// The bytes of a structure are not those that its initialisation wrote.
    fn overwritten(&self, address: usize, kind: Kind) -> ! {
        self.check_moved(address, kind);
        let entry =
            self.locked::<Tracked>().objects.get(&(address, kind)).map(|entry| (entry.site.clone(), entry.on_stack));
        let (site, on_stack) = entry.unwrap_or_default();
        // Its function may have returned without a word to the kernel, into a function that calls deeper and writes there.
        let (rule, place) = if on_stack { (Rule::StackObject, " on the stack") } else { (Rule::Uninitialised, "") };
        let name = kind.name();
        bug_check(
            rule,
            format_args!("the {name} at {address:#x}{place} was overwritten after it was initialised{site}"),
        )
    }

    fn unknown(&self, address: usize, what: &str) -> ! {
        let other = {
            let tracked = self.locked::<Tracked>();
            let mut there = tracked.objects.range((address, FIRST)..(address + 1, FIRST));
            there.next().map(|(&(_, kind), entry)| (kind, entry.site.clone()))
        };
        if let Some((kind, site)) = other {
            let words = format_args!("the {what} at {address:#x} is a {}, which was initialised{site}", kind.name());
            bug_check(Rule::Uninitialised, words);
        }
        bug_check(Rule::Uninitialised, format_args!("the {what} at {address:#x} was not initialised there"))
    }

    /// A structure is given up, and its memory may be used for anything.
    pub fn untrack(&self, address: usize, kind: Kind) {
        let gone = self.locked::<Tracked>().objects.remove(&(address, kind));
        drop(gone);
    }

    /// As [`State::untrack`], but copies that are still about are told of their origin.
    pub fn untrack_and_remember(&self, address: usize, kind: Kind, how: &'static str) {
        let mut tracked = self.locked::<Tracked>();
        let gone = tracked.objects.remove(&(address, kind));
        if let Some(entry) = &gone {
            tracked.remember((address, kind), entry.site.clone(), how);
        }
        drop(tracked);
        drop(gone);
    }

    /// The memory of so many bytes is free.
    fn forget_range(&self, address: usize, size: usize) {
        let mut gone = Vec::new();
        let mut tracked = self.locked::<Tracked>();
        if tracked.objects.is_empty() {
            return;
        }
        while let Some((&key, entry)) = tracked.objects.range((address, FIRST)..(address + size, FIRST)).next() {
            let waited = self.dispatcher.is_waited_for(key.0).then_some(Rule::UseAfterFree);
            if let Some(rule) = entry.object.rule_if_freed().or(waited) {
                let (name, site, offset) = (key.1.name(), entry.site.clone(), key.0 - address);
                let use_of = if waited.is_some() { "a thread waits for it" } else { "it is in use" };
                drop(tracked);
                bug_check(
                    rule,
                    format_args!(
                        "a {name} in a block that is freed, at offset {offset}: {use_of}; it was initialised{site}"
                    ),
                );
            }
            if let Some(entry) = tracked.objects.remove(&key) {
                tracked.remember(key, entry.site.clone(), ", in memory that is free now");
                gone.push(entry);
            }
        }
        drop(tracked);
        drop(gone);
    }

    /// A driver was unloaded: nothing in its image or elsewhere may be queued or set.
    pub fn forget_driver(&self, owner: DriverId, name: &str) {
        let mut tracked = self.locked::<Tracked>();
        let keys: Vec<_> =
            tracked.objects.iter().filter(|(_, entry)| entry.owner == owner).map(|(&key, _)| key).collect();
        let gone: Vec<Entry> = keys.iter().filter_map(|key| tracked.objects.remove(key)).collect();
        drop(tracked);
        for entry in &gone {
            let rule = match entry.object.rule_if_freed() {
                Some(Rule::DpcFreedWhileQueued) => Rule::DpcAtUnload,
                Some(Rule::TimerFreedWhileSet) => Rule::TimerAtUnload,
                // Of run-down protection nobody can be left to use it, and nothing of the system's knows it.
                Some(Rule::RundownInUse) | None => continue,
                Some(rule) => rule,
            };
            let (kind, site) = (entry.object.kind.name(), &entry.site);
            bug_check(rule, format_args!("a {kind} of driver {name} is left at its unload; it was initialised{site}"));
        }
        drop(gone);
    }
}

/// Has a structure that was initialised point to itself.
pub fn seal(address: usize, kind: Kind) {
    let (offset, words) = kind.seal();
    let first = address + offset;
    for word in 0..words {
        let place: *mut usize = std::ptr::with_exposed_provenance_mut(first + word * size_of::<usize>());
        // SAFETY: memory for a structure of this kind, in which the field is the system's.
        unsafe { place.write_unaligned(first) };
    }
}

/// A structure may not be in free memory, nor, except for a push lock, in memory that can be paged out.
fn check_memory(address: usize, kind: Kind) {
    if kind == Kind::PushLock {
        // Its waiters wait in memory of the system's, so that it may be paged out.
        check_is_live(address, kind.name());
    } else {
        check_memory_of(address, kind.name());
    }
}

fn check_is_live(address: usize, what: &str) {
    pool::check_live(address, format_args!("the {what} at {address:#x} is in"));
}

pub fn check_memory_of(address: usize, what: &str) {
    check_is_live(address, what);
    if paged::contains(address) {
        bug_check(Rule::PagedAtDispatch, format_args!("the {what} at {address:#x} is in pageable memory"));
    }
}

const _: () = {
    let (mut index, all) = (0, [Kind::Irp, Kind::NetBufferList, Kind::Lookaside, Kind::Resource, Kind::RemoveLock]);
    while index < all.len() {
        assert!(all[index].size() <= LARGEST, "the search for neighbours looks far enough");
        index += 1;
    }
    assert!(size_of::<LIST_ENTRY>() == 2 * size_of::<usize>(), "the head of a list has two words");
};
