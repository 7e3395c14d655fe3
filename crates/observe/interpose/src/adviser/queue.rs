//! The requests in flight of one queue, in bounded memory and without a lock.
//!
//! Who posts writes at one end: one at a time (`NDKPI 7.2`). Who polls the completion queue takes at the other: one at a time, with
//! the lock of the list there. So each end has one writer, and none of them waits for the other.

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use crossbeam_utils::CachePadded;
use fallible::{try_box, try_slice};
use ndkpi::{NDK_RESULT, NDK_SGE, NtStatus};

/// The tokens of a request that are remembered.
pub const TOKENS: usize = 4;

/// More requests than this are not followed on one queue.
const MOST: u32 = 1 << 16;

/// The low bits say how many tokens there are.
const COUNT: u32 = 0xF;
/// A success leaves no completion.
pub const SILENT: u32 = 1 << 4;
/// It is a read.
pub const READ: u32 = 1 << 5;
/// It is counted against the depth of the completion queue.
pub const COUNTED: u32 = 1 << 6;
/// Taken already, out of order (of a shared receive queue).
const TAKEN: u32 = 1 << 7;
/// The provider has refused it, and others have come behind it.
const VOID: u32 = 1 << 8;

/// A request in flight.
#[derive(Default)]
struct Slot {
    /// The context that the consumer gave.
    context: AtomicUsize,
    /// The local tokens of its elements.
    tokens: [AtomicU32; TOKENS],
    about: AtomicU32,
}

impl Slot {
    /// It is a request in flight with this context.
    fn is_there(&self, context: usize) -> bool {
        self.about.load(Relaxed) & (TAKEN | VOID) == 0 && self.context.load(Relaxed) == context
    }
}

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// The context of the queue pair.
    pub qp_context: usize,
    /// The context of the request.
    pub context: usize,
    /// If it was a receive, where the result says so.
    pub is_receive: Option<bool>,
    /// It is no success.
    pub has_failed: bool,
}

impl Completed {
    /// Of a result; the older kind does not say if it was a receive.
    pub fn new(result: &NDK_RESULT, is_receive: Option<bool>) -> Self {
        Self {
            qp_context: result.QPContext.addr(),
            context: result.RequestContext.addr(),
            is_receive,
            has_failed: !result.Status.is_success(),
        }
    }
}

/// Requests at the head of a queue that end together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    requests: u64,
    reads: u32,
    /// So many of them are [`COUNTED`].
    pub counted: u32,
}

impl Ended {
    const fn add(&mut self, about: u32) {
        self.requests += 1;
        self.reads += (about & READ != 0) as u32;
        self.counted += (about & COUNTED != 0) as u32;
    }
}

/// A request that was added, for its post to take back: its number, and above that what it is.
#[derive(Clone, Copy, Debug)]
pub struct Posted(u64);

impl Posted {
    const ABOUT_SHIFT: u32 = 48;

    const fn new(number: u64, about: u32) -> Self {
        Self(number | (about as u64) << Self::ABOUT_SHIFT)
    }

    const fn number(self) -> u64 {
        self.0 & ((1 << Self::ABOUT_SHIFT) - 1)
    }

    const fn is(self, kind: u32) -> bool {
        self.0 >> Self::ABOUT_SHIFT & kind as u64 != 0
    }

    /// It is [`COUNTED`].
    pub const fn is_counted(self) -> bool {
        self.is(COUNTED)
    }
}

/// One end of a queue.
#[derive(Default)]
struct End {
    /// Requests that have passed it.
    requests: AtomicU64,
    /// Reads among them.
    reads: AtomicU32,
}

/// What who posts writes.
#[derive(Default)]
struct Posts {
    end: End,
    /// The post that runs; 0 for none.
    running: AtomicU64,
    /// The last request was deferred.
    is_chained: AtomicBool,
}

/// The requests in flight, the oldest first.
pub struct Queue {
    slots: Box<[Slot]>,
    depth: u64,
    /// Completions could not be told apart: nothing is certain any more.
    is_blurred: AtomicBool,
    /// Written by who posts.
    posts: CachePadded<Posts>,
    /// Written by who polls.
    ended: CachePadded<End>,
}

impl Queue {
    /// For `depth` requests.
    pub fn try_new(depth: u32) -> Result<Box<Self>, NtStatus> {
        let (depth, is_too_deep) = (depth.min(MOST), depth > MOST);
        let slots = try_slice(depth.max(1).next_power_of_two() as usize, |_| Slot::default())?;
        try_box(Self {
            slots,
            depth: depth.into(),
            is_blurred: AtomicBool::new(is_too_deep),
            posts: CachePadded::default(),
            ended: CachePadded::default(),
        })
        .map_err(Into::into)
    }

    /// How many requests it is for.
    pub const fn depth(&self) -> u64 {
        self.depth
    }

    /// Returns true if completions could not be told apart.
    pub fn is_blurred(&self) -> bool {
        self.is_blurred.load(Relaxed)
    }

    /// Completions cannot be told apart.
    pub fn blur(&self) {
        self.is_blurred.store(true, Relaxed);
    }

    /// A post begins, with this number. Returns that of another one that runs; 0 for none.
    ///
    /// Two that begin in the same moment may miss each other: an exchange would cost each post more than all other checks.
    #[inline(always)]
    pub fn begin_post(&self, call: u64) -> u64 {
        let before = self.posts.running.load(Relaxed);
        self.posts.running.store(call, Relaxed);
        before
    }

    /// The post with this number has returned. If another one has begun meanwhile, this is not the one to end.
    #[inline(always)]
    pub fn end_post(&self, call: u64) {
        if self.posts.running.load(Relaxed) == call {
            self.posts.running.store(0, Relaxed);
        }
    }

    /// The number of the post that runs; 0 for none.
    pub fn running_post(&self) -> u64 {
        self.posts.running.load(SeqCst)
    }

    /// The last request was deferred, or was not.
    #[inline(always)]
    pub fn set_chained(&self, is_chained: bool) {
        self.posts.is_chained.store(is_chained, Relaxed);
    }

    /// Returns true if the last request was deferred, once.
    pub fn take_chain(&self) -> bool {
        self.posts.is_chained.swap(false, SeqCst)
    }

    /// The numbers of the requests in flight.
    fn numbers(&self) -> core::ops::Range<u64> {
        let first = self.ended.requests.load(Acquire);
        first..self.posts.end.requests.load(Acquire)
    }

    /// How many are in flight.
    pub fn len(&self) -> u64 {
        let numbers = self.numbers();
        numbers.end.saturating_sub(numbers.start)
    }

    /// Reads in flight.
    pub fn reads(&self) -> u32 {
        self.posts.end.reads.load(Relaxed).saturating_sub(self.ended.reads.load(Relaxed))
    }

    fn slot(&self, number: u64) -> &Slot {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder of a division by a length")]
        let index = (number & (self.slots.len() as u64 - 1)) as usize;
        &self.slots[index]
    }

    /// Adds a request: its context, what it is ([`SILENT`], [`READ`], [`COUNTED`]), and its elements. `None` if there is no place. For
    /// who posts.
    #[inline(always)]
    pub fn push(&self, context: usize, kind: u32, elements: &[NDK_SGE]) -> Option<Posted> {
        let number = self.posts.end.requests.load(Relaxed);
        if number.wrapping_sub(self.ended.requests.load(Acquire)) >= self.depth {
            return None;
        }
        let slot = self.slot(number);
        let mut about = kind;
        for (place, element) in slot.tokens.iter().zip(elements) {
            place.store(element.MemoryRegionToken, Relaxed);
            about += 1;
        }
        slot.context.store(context, Relaxed);
        slot.about.store(about, Relaxed);
        if about & READ != 0 {
            self.posts.end.reads.store(self.posts.end.reads.load(Relaxed).wrapping_add(1), Relaxed);
        }
        self.posts.end.requests.store(number + 1, Release);
        Some(Posted::new(number, about))
    }

    /// Takes back a request that the provider has refused. For who posts.
    pub fn take_back(&self, posted: Posted) {
        let number = posted.number();
        if self.ended.requests.load(Acquire) > number {
            return;
        }
        if posted.is(READ) {
            self.posts.end.reads.store(self.posts.end.reads.load(Relaxed).wrapping_sub(1), Relaxed);
        }
        if self.posts.end.requests.load(Relaxed) == number + 1 {
            self.posts.end.requests.store(number, Release);
        } else {
            self.slot(number).about.store(VOID, Relaxed);
        }
    }

    /// The requests that end with this completion: its own, and the silent ones before it. `None` if that cannot be, or if several could
    /// be meant. For who polls.
    pub fn ends_with(&self, done: &Completed) -> Option<Ended> {
        let mut ended = Ended::default();
        for number in self.numbers() {
            let slot = self.slot(number);
            let about = slot.about.load(Relaxed);
            ended.add(about);
            // It has succeeded without a completion, if at all: this one is another's of the same context.
            let is_another = about & VOID != 0 || about & SILENT != 0 && !done.has_failed;
            if !is_another && slot.context.load(Relaxed) == done.context {
                // A silent one that has this context may as well have succeeded, and the failure be that of a later one.
                let is_one = about & SILENT == 0 || !self.may_end_later(number + 1, done.context);
                return is_one.then_some(ended);
            }
            if about & (SILENT | VOID) == 0 {
                return None;
            }
        }
        None
    }

    /// Returns true if a completion with this context may be that of a request from `number` on, as far as no other completion has to come
    /// first.
    fn may_end_later(&self, number: u64, context: usize) -> bool {
        for number in number..self.numbers().end {
            let slot = self.slot(number);
            let about = slot.about.load(Relaxed);
            if about & VOID == 0 && slot.context.load(Relaxed) == context {
                return true;
            }
            if about & (SILENT | VOID) == 0 {
                return false;
            }
        }
        false
    }

    /// Takes requests out at the head. For who polls.
    pub fn end(&self, ended: Ended) {
        let End { requests, reads } = &*self.ended;
        if ended.reads != 0 {
            reads.store(reads.load(Relaxed).wrapping_add(ended.reads), Relaxed);
        }
        requests.store(requests.load(Relaxed) + ended.requests, Release);
    }

    /// Takes the oldest request if it is silent: whoever has filled the queue behind it knows that it has ended. With the lock of who
    /// polls.
    pub fn end_silent(&self) -> Option<Ended> {
        let oldest = self.numbers().next()?;
        let about = self.slot(oldest).about.load(Relaxed);
        if about & (SILENT | VOID) == 0 {
            return None;
        }
        let mut ended = Ended::default();
        ended.add(about);
        self.end(ended);
        Some(ended)
    }

    /// Takes all requests out. With the lock of who polls.
    pub fn end_all(&self) -> Ended {
        let mut ended = Ended::default();
        self.numbers().for_each(|number| ended.add(self.slot(number).about.load(Relaxed)));
        self.end(ended);
        ended
    }

    /// Returns true if a request with this context is in flight, wherever it is. For who polls.
    pub fn has(&self, context: usize) -> bool {
        self.numbers().any(|number| self.slot(number).is_there(context))
    }

    /// Takes the oldest request with this context, wherever it is. `false` if there is none. For who polls.
    pub fn end_any(&self, context: usize) -> bool {
        let Some(slot) = self.numbers().map(|number| self.slot(number)).find(|slot| slot.is_there(context)) else {
            return false;
        };
        slot.about.store(slot.about.load(Relaxed) | TAKEN, Relaxed);
        let mut ended = Ended::default();
        for about in self.numbers().map(|number| self.slot(number).about.load(Relaxed)) {
            if about & (TAKEN | VOID) == 0 {
                break;
            }
            ended.add(about);
        }
        self.end(ended);
        true
    }

    /// Returns true if a completion may come, as far as is known.
    pub fn may_complete(&self) -> bool {
        self.is_blurred() || self.numbers().any(|number| self.slot(number).about.load(Relaxed) & (SILENT | VOID) == 0)
    }

    /// Requests in flight of which a completion will tell.
    pub fn signalled(&self) -> usize {
        self.numbers().filter(|&number| self.slot(number).about.load(Relaxed) & (SILENT | VOID) == 0).count()
    }

    /// Elements of requests in flight that name this token.
    pub fn elements_of(&self, token: u32) -> usize {
        let of = |number| {
            let slot = self.slot(number);
            let about = slot.about.load(Relaxed);
            let count = if about & (TAKEN | VOID) == 0 { (about & COUNT) as usize } else { 0 };
            let found = slot.tokens.iter().take(count).filter(|there| there.load(Relaxed) == token).count();
            // Meanwhile it may have ended, and the slot be another's.
            fence(Acquire);
            if self.ended.requests.load(Relaxed) > number { 0 } else { found }
        };
        self.numbers().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use ndkpi::NDK_SGE;

    use super::{COUNTED, Completed, Queue, READ, SILENT};

    fn elements<const N: usize>(tokens: [u32; N]) -> [NDK_SGE; N] {
        tokens.map(|token| NDK_SGE::new(core::ptr::null_mut(), 1, token))
    }

    const fn done(context: usize, has_failed: bool) -> Completed {
        Completed { qp_context: 0, context, is_receive: None, has_failed }
    }

    #[test]
    fn silent_requests_end_with_the_next_completion() {
        let queue = Queue::try_new(3).expect("memory");
        for (context, kind) in [(1, SILENT | COUNTED), (2, SILENT | READ), (2, COUNTED)] {
            assert!(queue.push(context, kind, &elements([7, 8])).is_some());
        }
        assert!(queue.push(9, 0, &[]).is_none(), "it is for three");
        assert_eq!((queue.len(), queue.reads(), queue.signalled(), queue.elements_of(8)), (3, 1, 1, 3));
        assert!(queue.ends_with(&done(3, false)).is_none());
        let ended = queue.ends_with(&done(2, false)).expect("the last one");
        assert_eq!(ended.counted, 2);
        queue.end(ended);
        assert_eq!((queue.len(), queue.reads(), queue.elements_of(8)), (0, 0, 0));
    }

    #[test]
    fn a_refused_request_with_others_behind_it_is_passed_over() {
        let queue = Queue::try_new(4).expect("memory");
        let refused = queue.push(1, READ, &elements([5])).expect("a place");
        assert!(queue.push(1, 0, &elements([5])).is_some());
        queue.take_back(refused);
        assert_eq!((queue.len(), queue.reads(), queue.elements_of(5)), (2, 0, 1));
        queue.end(queue.ends_with(&done(1, false)).expect("the other one"));
        assert_eq!(queue.len(), 0);
        let refused = queue.push(1, 0, &[]).expect("a place");
        queue.take_back(refused);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn those_of_a_shared_queue_end_in_any_order() {
        let queue = Queue::try_new(4).expect("memory");
        (1..=3).for_each(|context| assert!(queue.push(context, 0, &elements([6])).is_some()));
        assert!(queue.has(2) && queue.end_any(2) && !queue.has(2) && !queue.end_any(2));
        assert_eq!((queue.len(), queue.elements_of(6)), (3, 2));
        assert!(queue.end_any(1));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_failure_that_a_silent_request_and_a_later_one_may_mean_is_no_ones() {
        let queue = Queue::try_new(4).expect("memory");
        for (context, kind) in [(1, SILENT), (2, SILENT), (1, 0), (2, 0)] {
            assert!(queue.push(context, kind, &[]).is_some());
        }
        assert!(queue.ends_with(&done(1, true)).is_none(), "the first or the third");
        assert!(queue.ends_with(&done(1, false)).is_some(), "a success is not that of a silent one");
        queue.end(queue.ends_with(&done(2, true)).expect("the fourth completes after the third"));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_queue_that_is_deeper_than_what_is_followed_is_not_followed() {
        assert!(Queue::try_new(super::MOST + 1).expect("memory").is_blurred());
        assert!(!Queue::try_new(super::MOST).expect("memory").is_blurred());
    }
}
