//! A session: an open adapter, and everything that is to be known about what a case does on it.

use alloc::boxed::Box;
use core::{
    fmt::{self, Write as _},
    mem::{self, ManuallyDrop},
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use fallible::try_box;
use ndkpi::{NDK_ADAPTER_INFO, NDK_VERSION, NtStatus};

use super::{
    adapter::{Adapter, AdapterCore},
    arena::Arena,
    cq::{CqCore, Hook},
    lam::Mapping,
    life::{Kind, Life},
};
use crate::{
    case::{Check, Stop, Verdict},
    platform::{Family, Platform},
    random::Random,
    text::Text,
};

/// More wrong things than this are only counted.
const MOST_FAULTS: u32 = 4;

/// The options of a session.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Names the session: others get other random numbers.
    pub name: &'a str,
    /// The version to ask for.
    pub version: NDK_VERSION,
    /// Determines the random numbers.
    pub seed: u64,
    /// True if the provider may be given what a correct consumer never gives, such as null pointers. A provider that
    /// does not look may crash.
    pub hostile: bool,
}

/// Something that went wrong without a case looking for it.
struct Fault {
    text: Text,
    older: *mut Self,
}

// SAFETY: `older` is a fault of the same session.
unsafe impl Send for Fault {}
// SAFETY: a fault is not changed once it is in the list.
unsafe impl Sync for Fault {}

/// An open adapter and all that was made on it.
///
/// Every callback and every close is watched, whatever a case is about: two callbacks of one completion queue at a time, a
/// callback of an unarmed or closed queue, a completion that comes twice or not at all, a close that completes before
/// those of its successors ([`NDKPI 7.9`](crate)) are *faults*, and a case with faults has failed.
pub struct Session<'p> {
    platform: &'p dyn Platform,
    version: NDK_VERSION,
    random: Random,
    hostile: bool,
    arena: Arena,
    faults: AtomicPtr<Fault>,
    fault_count: AtomicU32,
    adapters: [AtomicPtr<AdapterCore>; 2],
    /// The newest of the places for mappings.
    mappings: AtomicPtr<()>,
    /// Objects that are not closed, by [`Kind`].
    open: [AtomicU32; Kind::COUNT],
    /// Requests and closes whose callback has not come.
    awaited: AtomicU32,
    /// Callbacks that run.
    callbacks: AtomicU32,
    /// Requests that have completed, by [`CompletionKind`].
    completions: [AtomicU32; 3],
}

/// How a request completed (`NDKPI 5.0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// The function returned the outcome.
    Inline,
    /// The callback had run when the function returned.
    Early,
    /// The callback came after that.
    Later,
}

impl<'p> Session<'p> {
    /// Opens the first adapter, runs `work` on it, closes what is left, and returns the verdict.
    ///
    /// The session is lent to `work` only, so that nothing that callbacks refer to can be gone before the adapter is closed.
    ///
    /// # Errors
    ///
    /// What `work` stopped with, or what opening and closing the adapter showed.
    pub fn with(
        platform: &dyn Platform,
        options: &Options<'_>,
        work: impl for<'s> FnOnce(&'s Session<'s>) -> Verdict,
    ) -> Verdict {
        let session = Session::new(platform, options)?;
        let verdict = session.adapter().map(drop).and_then(|()| work(&session));
        let verdict = match verdict {
            // What a case has not seen because it was ended early says nothing.
            Err(Stop::Failed(_) | Stop::Inconclusive(_)) if platform.cancelled() => {
                Err(Stop::skipped(format_args!("cancelled")))
            }
            verdict => verdict,
        };
        let ended = session.end();
        let faults = session.describe_faults();
        if ended {
            drop(ManuallyDrop::into_inner(session));
        }
        match (verdict, faults) {
            (verdict, None) => verdict,
            (Err(Stop::Failed(seen)), Some(faults)) => Err(Stop::failed(format_args!("{seen}; also: {faults}"))),
            (_, Some(faults)) => Err(Stop::Failed(faults)),
        }
    }

    /// A session that is dropped only if its owner says so: callbacks that are still to come need it.
    fn new(platform: &'p dyn Platform, options: &Options<'_>) -> Check<ManuallyDrop<Box<Self>>> {
        let session = Session {
            platform,
            version: options.version,
            random: Random::new(options.seed, options.name),
            hostile: options.hostile,
            arena: Arena::new(),
            faults: AtomicPtr::new(ptr::null_mut()),
            fault_count: AtomicU32::new(0),
            adapters: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            mappings: AtomicPtr::new(ptr::null_mut()),
            open: [const { AtomicU32::new(0) }; Kind::COUNT],
            awaited: AtomicU32::new(0),
            callbacks: AtomicU32::new(0),
            completions: [const { AtomicU32::new(0) }; 3],
        };
        try_box(session).map(ManuallyDrop::new).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))
    }

    /// Waits for what is still open, and closes the adapters. `false` if something never comes to an end: the session must
    /// stay then.
    fn end(&self) -> bool {
        if let Some(faults) = self.describe_faults() {
            // In case that what follows does not come to its end.
            self.platform.log(format_args!("fault: {faults}"));
        }
        let closed = self.platform.wait(self.platform.patience(), &|| self.nothing_open());
        if !closed {
            self.fault(format_args!("never closed or completed: {}", self.describe_open()));
            return false;
        }
        self.release_mappings();
        for adapter in &self.adapters {
            let Some(core) = load(adapter) else { continue };
            // SAFETY: the adapter came from `open`, and nothing that descends from it is left to use it.
            if !unsafe { self.platform.close(core.raw()) } {
                self.fault(format_args!("the close of the adapter does not return (NDKPI 7.9)"));
                return false;
            }
        }
        let running = self.callbacks.load(Acquire);
        if running != 0 {
            self.fault(format_args!("the adapter's close returned while a callback ran (NDKPI 7.9.5)"));
            return self.platform.wait(self.platform.patience(), &|| self.callbacks.load(Acquire) == 0);
        }
        true
    }

    /// Releases mappings that the case has not released.
    fn release_mappings(&self) {
        let mut mapping: *mut Mapping<'_> = self.mappings.load(Acquire).cast();
        // SAFETY: the pointer is null or to a mapping that this session keeps.
        while let Some(found) = unsafe { mapping.as_ref() } {
            found.release_at_last();
            mapping = found.older().load(Relaxed);
        }
    }

    fn nothing_open(&self) -> bool {
        self.awaited.load(Acquire) == 0 && self.open.iter().all(|open| open.load(Acquire) == 0)
    }

    fn describe_open(&self) -> Text {
        let mut text = Text::default();
        for (kind, open) in Kind::ALL.iter().zip(&self.open) {
            let count = open.load(Relaxed);
            if count != 0 {
                let _ = write!(text, "{count} {kind:?}, ");
            }
        }
        let _ = write!(text, "{} callbacks awaited", self.awaited.load(Relaxed));
        text
    }

    fn describe_faults(&self) -> Option<Text> {
        let mut text = Text::default();
        let mut fault = self.faults.load(Acquire);
        if fault.is_null() {
            return None;
        }
        // SAFETY: the pointer is null or to a fault of this session, which lives as long as the session.
        while let Some(found) = unsafe { fault.as_ref() } {
            let separator = if text.as_str().is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{}", found.text);
            fault = found.older;
        }
        let count = self.fault_count.load(Relaxed);
        if count > MOST_FAULTS {
            let _ = write!(text, "; and {} more", count - MOST_FAULTS);
        }
        Some(text)
    }
}

fn load(adapter: &AtomicPtr<AdapterCore>) -> Option<&AdapterCore> {
    // SAFETY: the pointer is null or to a value in the arena of the session, which outlives the borrow of its field.
    unsafe { adapter.load(Acquire).as_ref() }
}

impl<'s> Session<'s> {
    /// The first adapter.
    ///
    /// # Errors
    ///
    /// It could not be opened.
    pub fn adapter(&'s self) -> Check<Adapter<'s>> {
        self.adapter_number(0)
    }

    /// The adapter for the other end of a connection: that of the other machine if there is one, the first if it can connect to
    /// itself, else the second.
    ///
    /// # Errors
    ///
    /// Skips the case if there is neither.
    pub fn peer_adapter(&'s self) -> Check<Adapter<'s>> {
        let first = self.adapter()?;
        if self.platform.peer().is_none() && first.has(ndkpi::NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED) {
            return Ok(first);
        }
        if self.platform.adapters() < 2 {
            skip!("the adapter cannot connect to itself, and there is no second one");
        }
        self.adapter_number(self.second())
    }

    /// The second adapter.
    ///
    /// # Errors
    ///
    /// Skips the case if there is none.
    pub fn second_adapter(&'s self) -> Check<Adapter<'s>> {
        if self.platform.adapters() < 2 {
            skip!("there is one adapter only");
        }
        self.adapter_number(self.second())
    }

    /// The number of the second adapter.
    fn second(&self) -> u32 {
        self.platform.peer().unwrap_or(1)
    }

    fn adapter_number(&'s self, number: u32) -> Check<Adapter<'s>> {
        let place = &self.adapters[usize::from(number != 0)];
        if let Some(core) = load(place) {
            return Ok(Adapter::new(self, core));
        }
        let raw = self
            .platform
            .open(number, self.version)
            .map_err(|status| Stop::inconclusive(format_args!("open of adapter {number}: {status}")))?;
        let core = AdapterCore::new(raw, number).and_then(|core| self.keep(core)).inspect_err(|_| {
            if !raw.is_null() {
                // SAFETY: the adapter was just opened, nobody knows it, and nothing was made on it.
                let _ = unsafe { self.platform.close(raw) };
            }
        })?;
        let ours = ptr::from_ref(core).cast_mut();
        if place.compare_exchange(ptr::null_mut(), ours, AcqRel, Acquire).is_err() {
            // Another task of the case was faster.
            // SAFETY: the adapter was just opened, only this task knows it, and nothing was made on it.
            if !unsafe { self.platform.close(raw) } {
                fail!("the close of an adapter without objects does not return (NDKPI 7.9)");
            }
        }
        Ok(Adapter::new(self, load(place).unwrap_or(core)))
    }

    /// The platform.
    #[must_use]
    pub const fn platform(&self) -> &'s dyn Platform {
        self.platform
    }

    /// The first adapter's information.
    ///
    /// # Errors
    ///
    /// It could not be opened.
    pub fn info(&'s self) -> Check<&'s NDK_ADAPTER_INFO> {
        Ok(self.adapter()?.info())
    }

    /// The version in force.
    ///
    /// # Errors
    ///
    /// The adapter could not be opened.
    pub fn version(&'s self) -> Check<NDK_VERSION> {
        Ok(self.adapter()?.version())
    }

    /// The requested version.
    #[must_use]
    pub const fn asked(&self) -> NDK_VERSION {
        self.version
    }

    /// Skips the case unless the first adapter has the flag.
    ///
    /// # Errors
    ///
    /// The reason to skip.
    pub fn need_flag(&'s self, flag: u32, name: &str) -> Check {
        if !self.adapter()?.has(flag) {
            skip!("the adapter does not have the flag {name}");
        }
        Ok(())
    }

    /// Skips the case unless requests can carry so many inline bytes.
    ///
    /// # Errors
    ///
    /// The reason to skip.
    pub fn need_inline(&'s self, bytes: u32) -> Check {
        let most = self.info()?.MaxInlineDataSize;
        if most < bytes {
            skip!("MaxInlineDataSize is {most}");
        }
        Ok(())
    }

    /// How many elements a request of either queue may have, but no more than `most`.
    ///
    /// # Errors
    ///
    /// No adapter can be opened.
    pub fn elements(&'s self, most: usize) -> Check<usize> {
        let info = self.info()?;
        Ok((info.MaxInitiatorRequestSge.min(info.MaxReceiveRequestSge) as usize).clamp(1, most))
    }

    /// Skips the case unless the provider may be given what a correct consumer never gives.
    ///
    /// # Errors
    ///
    /// The reason to skip.
    pub fn need_hostile(&self) -> Check {
        if !self.hostile {
            skip!("a consumer must not do this, and a provider that trusts it may crash");
        }
        Ok(())
    }

    /// Skips the case if the other end is on another machine: what the case does is between objects of one machine.
    ///
    /// # Errors
    ///
    /// The reason to skip.
    pub fn need_one_machine(&self) -> Check {
        if self.platform.peer().is_some() {
            skip!("the adapters are on two machines, and the case gives objects of the one to the other");
        }
        Ok(())
    }

    /// Skips the case unless the version in force is at least this.
    ///
    /// # Errors
    ///
    /// The reason to skip.
    pub fn need_version(&'s self, version: NDK_VERSION) -> Check {
        let got = self.version()?;
        if got < version {
            skip!("the version in force is {got}, this came with {version}");
        }
        Ok(())
    }

    /// An address of an adapter, with a port.
    ///
    /// # Errors
    ///
    /// Skips the case if the adapter has none of this family.
    pub fn address(&self, adapter: u32, family: Family, port: u16) -> Check<SocketAddr> {
        let address: Option<IpAddr> = self.platform.address(adapter, family);
        match address {
            Some(address) => Ok(SocketAddr::new(address, port)),
            None => skip!("adapter {adapter} has no address of the family {family:?}"),
        }
    }

    /// The random numbers of the case.
    #[must_use]
    pub fn random(&self) -> Random {
        self.random.clone()
    }

    /// Keeps a value until the adapter is closed.
    ///
    /// # Errors
    ///
    /// The case is inconclusive if there is no memory.
    pub fn keep<T: Send + Sync + 's>(&'s self, value: T) -> Check<&'s T> {
        self.arena.keep(value).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))
    }

    /// Keeps what is to be done in the notification callback of a completion queue.
    ///
    /// # Errors
    ///
    /// The case is inconclusive if there is no memory.
    pub fn hook(&'s self, work: impl Fn(&'s CqCore<'s>, NtStatus) -> Check + Send + Sync + 's) -> Check<Hook<'s>> {
        Ok(self.keep(work)?)
    }

    /// Keeps a value that needs a clean-up until the adapter is closed.
    ///
    /// # Errors
    ///
    /// The case is inconclusive if there is no memory.
    pub fn own<T: Send + Sync + 'static>(&'s self, value: T) -> Check<&'s T> {
        self.arena.own(value).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))
    }

    /// Waits for what must happen.
    ///
    /// # Errors
    ///
    /// It did not happen in time.
    pub fn wait(&self, what: &str, until: impl Fn() -> bool) -> Check {
        self.wait_for(format_args!("{what}"), until)
    }

    /// Like [`Session::wait`], with words that are put together only on failure.
    ///
    /// # Errors
    ///
    /// It did not happen in time.
    pub fn wait_for(&self, what: fmt::Arguments<'_>, until: impl Fn() -> bool) -> Check {
        let limit = self.platform.patience();
        if self.platform.wait(limit, &|| until() || self.platform.cancelled()) {
            if self.platform.cancelled() {
                skip!("cancelled");
            }
            return Ok(());
        }
        fail!("waited {} ms for {what}", limit / 1000)
    }

    /// Waits until everything that was begun has ended.
    pub fn settle(&self) {
        self.platform.settle();
    }

    /// Notes something wrong that no rule of the case is about. At any `IRQL <= DISPATCH_LEVEL`: callbacks do.
    pub fn fault(&self, what: fmt::Arguments<'_>) {
        if self.fault_count.fetch_add(1, Relaxed) >= MOST_FAULTS {
            return;
        }
        let Ok(fault) = try_box(Fault { text: Text::new(what), older: ptr::null_mut() }) else { return };
        let fault = Box::into_raw(fault);
        let mut newest = self.faults.load(Relaxed);
        loop {
            // SAFETY: the fault is not in the list yet: nobody else knows it.
            unsafe { (*fault).older = newest };
            match self.faults.compare_exchange_weak(newest, fault, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(changed) => newest = changed,
            }
        }
    }

    /// Notes a place for a mapping, to be released at the end if it was built and is not released by then.
    pub(super) fn remember(&'s self, mapping: &'s Mapping<'s>) {
        let new: *mut () = ptr::from_ref(mapping).cast_mut().cast();
        let mut newest = self.mappings.load(Relaxed);
        loop {
            mapping.older().store(newest.cast(), Relaxed);
            match self.mappings.compare_exchange_weak(newest, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(changed) => newest = changed,
            }
        }
    }

    /// Notes how a step inside a callback went. In a case that is ended early callbacks find the case already leaving.
    pub fn note(&self, result: Check) {
        match result {
            Ok(()) | Err(Stop::Skipped(_) | Stop::Inconclusive(_)) => {}
            Err(Stop::Failed(_)) if self.platform.cancelled() => {}
            Err(Stop::Failed(seen)) => self.fault(format_args!("in a callback: {seen}")),
        }
    }

    /// Returns how many requests have completed like this.
    #[must_use]
    pub fn completions_of(&self, kind: CompletionKind) -> u32 {
        self.completions[kind as usize].load(Relaxed)
    }

    pub(super) fn count_completion(&self, kind: CompletionKind) {
        self.completions[kind as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn opened(&self, kind: Kind) {
        self.open[kind as usize].fetch_add(1, AcqRel);
    }

    pub(super) fn closed(&self, kind: Kind) {
        self.open[kind as usize].fetch_sub(1, AcqRel);
    }

    /// One more callback has to come, or one that had to come has.
    pub(super) fn await_callback(&self, comes: bool) {
        if comes {
            self.awaited.fetch_add(1, AcqRel);
        } else {
            self.awaited.fetch_sub(1, AcqRel);
        }
    }

    /// A callback of `life` begins; it ends when the result is dropped.
    pub(super) fn enter_callback<'l>(&'l self, life: Option<&'l Life<'s>>) -> Running<'l, 's> {
        self.callbacks.fetch_add(1, AcqRel);
        if let Some(life) = life {
            life.callback_begins();
        }
        if let Err(wrong) = self.platform.inspect_callback() {
            self.fault(format_args!("a callback was made where none may be: {wrong}"));
        }
        Running { session: self, life }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut fault = mem::replace(self.faults.get_mut(), ptr::null_mut());
        while !fault.is_null() {
            // SAFETY: the fault came from a box, is in no other list, and is freed once.
            let found = unsafe { Box::from_raw(fault) };
            fault = found.older;
        }
    }
}

/// A callback that runs.
pub struct Running<'l, 's> {
    session: &'l Session<'s>,
    life: Option<&'l Life<'s>>,
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        if let Some(life) = self.life {
            life.callback_ends();
        }
        self.session.callbacks.fetch_sub(1, AcqRel);
    }
}
