//! The least of a read or write: the copy, and the atomic operations around it.
//!
//! - *The queue pair.* Its requests are carried out one after the other (`NDKPI 7.2`), while posts, the NIC's DPC and
//!   the end of the connection may come on any processor: somebody has to own it.
//! - *The two tokens.* Either may be invalidated or deregistered on another processor at any time, and when that has completed
//!   nobody may touch the bytes (`NDKPI 7.5`, `7.6`): what they stand for has to be held during the copy. Both can lie in one
//!   cache, which is owned for itself: whoever ends a registration may own a queue pair already, and cannot wait for another.
//! - *The completion.* Other queue pairs complete in the same queue, and the consumer takes it out of there (`NDKPI 7.1`): an
//!   entry goes through a queue whose producers exclude each other, as in [`queue`](super::queue). Not through `rtrb`, which is
//!   made for any number of entries: with a power of two it takes one instruction to find a place, and all of it 2 % less.
//! - *The calls.* A consumer posts and polls by functions of a table (`NDKPI 4`), with a list of elements and an array of results
//!   in memory, and what it names has to be compared with what there is.
//!
//! The first three are each an atomic exchange and a store with release, on a line of its own that nobody else wants. Whether
//! they could be one is a matter of who pays: one exchange that says "this processor is at work" would do for all, and every
//! deregistration would have to wait for all processors. So there is a row for one exchange as well.

use std::{
    hint::black_box,
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use engine::{cq::Cqe, qp::Sge};
use host::{
    HostOs,
    machine::{Arguments, Irql, PlainDpc, lower, raise},
};
use ndkpi::{NDK_OPERATION_TYPE, NDK_RESULT_EX, NtStatus};
use provider::extended_result;

use crate::{
    distance::Line,
    measure::alone,
    rows::entry::{Reader, completion},
};

/// Entries of the completion queue: a power of two.
const DEPTH: usize = 64;

fn acquire(line: &Line) {
    // Not `assert_eq`, for which the value would be stored.
    assert!(line.swap(1, Acquire) == 0, "nobody else is here");
}

fn release(line: &Line) {
    line.store(0, Release);
}

/// The least of a completion queue, for one thread: what producers do who exclude each other, and what a consumer does.
struct Queue {
    lock: Line,
    is_armed: AtomicBool,
    /// What producers know, under the lock: the next entry's number, and the consumer's when it was last looked at.
    tail: u64,
    seen_head: u64,
    entries: Box<[Cqe; DEPTH]>,
    /// The producers' number for the consumer.
    published: Line,
    /// What the consumer knows.
    head: u64,
    seen_tail: u64,
    /// The consumer's number for the producers.
    taken: Line,
}

impl Queue {
    fn new() -> Self {
        Self {
            lock: Line::default(),
            is_armed: AtomicBool::new(false),
            tail: 0,
            seen_head: 0,
            entries: Box::new(std::array::from_fn(completion)),
            published: Line::default(),
            head: 0,
            seen_tail: 0,
            taken: Line::default(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the depth")]
    const fn place(number: u64) -> usize {
        (number % DEPTH as u64) as usize
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a bound has no calls but those it is about")]
    fn push(&mut self, entry: Cqe) {
        while self.lock.swap(1, Acquire) != 0 {}
        if self.tail - self.seen_head == DEPTH as u64 {
            self.seen_head = self.taken.load(Acquire);
        }
        assert!(self.tail - self.seen_head < DEPTH as u64, "the queue is full");
        self.entries[Self::place(self.tail)] = entry;
        self.tail += 1;
        self.published.store(self.tail, Release);
        let is_armed = self.is_armed.load(Relaxed);
        self.lock.store(0, Release);
        assert!(!is_armed, "nobody waits");
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `push`")]
    fn take(&mut self) -> Option<Cqe> {
        if self.head == self.seen_tail {
            self.seen_tail = self.published.load(Acquire);
            if self.head == self.seen_tail {
                return None;
            }
        }
        let entry = self.entries[Self::place(self.head)];
        self.head += 1;
        self.taken.store(self.head, Release);
        Some(entry)
    }
}

/// Lets `copy` happen `count` times, each with one thing owned.
pub fn owning_one(count: usize, mut copy: impl FnMut()) -> impl FnMut() -> f64 {
    let processor = Line::default();
    move || {
        alone(count, || {
            for _ in 0..count {
                acquire(&processor);
                copy();
                release(&processor);
            }
        })
    }
}

/// Lets `copy` happen `count` times, each with the queue pair and the translations owned, and a completion put in and taken out.
pub fn completed(count: usize, mut copy: impl FnMut()) -> impl FnMut() -> f64 {
    let [qp, translations]: [Line; 2] = Default::default();
    let mut queue = Queue::new();
    move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                [&qp, &translations].into_iter().for_each(acquire);
                copy();
                release(&translations);
                queue.push(completion(number));
                release(&qp);
                queue.take().into_iter().for_each(|entry| reader.read(&extended_result(&entry)));
            }
            reader.check(count);
        })
    }
}

/// What a post and a poll work on.
struct Called<F> {
    qp: Line,
    translations: Line,
    /// What the consumer's element may name.
    here: Sge,
    /// The same for the peer's bytes.
    there: Sge,
    queue: Queue,
    copy: F,
}

/// Returns true if `wanted` lies in what is registered.
fn is_in(wanted: &Sge, registered: &Sge) -> bool {
    let end = wanted.address.wrapping_sub(registered.address).checked_add(wanted.length.into());
    wanted.token == registered.token && end.is_some_and(|end| end <= registered.length.into())
}

type Post<F> = fn(&mut Called<F>, usize, &[Sge], (u64, u32), u32) -> NtStatus;
type Poll<F> = fn(&mut Called<F>, &mut [NDK_RESULT_EX]) -> usize;

impl<F: FnMut()> Called<F> {
    fn post(&mut self, context: usize, list: &[Sge], (address, token): (u64, u32), flags: u32) -> NtStatus {
        let [element] = list else { return NtStatus::INVALID_PARAMETER };
        let remote = Sge { address, length: element.length, token };
        [&self.qp, &self.translations].into_iter().for_each(acquire);
        if flags != 0 || !is_in(element, &self.here) || !is_in(&remote, &self.there) {
            return NtStatus::ACCESS_VIOLATION;
        }
        (self.copy)();
        release(&self.translations);
        self.queue.push(completion(context));
        release(&self.qp);
        NtStatus::SUCCESS
    }

    fn poll(&mut self, results: &mut [NDK_RESULT_EX]) -> usize {
        let mut taken = 0;
        for result in results {
            let Some(entry) = self.queue.take() else { break };
            result.Status = entry.outcome.status();
            result.BytesTransferred = entry.received.bytes();
            result.QPContext = ptr::without_provenance_mut(entry.qp_context);
            result.RequestContext = ptr::without_provenance_mut(entry.request_context);
            result.Type = NDK_OPERATION_TYPE::WRITE;
            result.ProviderErrorCode = 0;
            result.TypeSpecificCompletionOutput = entry.received.invalidated_token() as usize;
            taken += 1;
        }
        taken
    }
}

/// The tokens of the consumer and of its peer.
const TOKENS: [u32; 2] = [0x1001, 0x1002];
/// Where their bytes begin.
const BASE: u64 = 1 << 20;

impl<F> Called<F> {
    fn new(copy: F) -> Self {
        let [here, there] = TOKENS.map(|token| Sge { address: BASE, length: 1 << 20, token });
        let [qp, translations]: [Line; 2] = Default::default();
        Self { qp, translations, here, there, queue: Queue::new(), copy }
    }
}

/// The list of a request, and the peer's place.
const fn request(number: usize, length: u32) -> ([Sge; 1], (u64, u32)) {
    let address = BASE + number as u64 % 64;
    ([Sge { address, length, token: TOKENS[0] }], (address, TOKENS[1]))
}

/// Polls the completion of a request.
fn complete<F>(called: &mut Called<F>, poll: Poll<F>) {
    let mut results = [NDK_RESULT_EX::ZEROED; 1];
    assert_eq!(poll(called, black_box(&mut results)), 1, "it has completed");
    assert!(results[0].Status.is_success());
}

/// [`completed`], posted and polled by calls whose targets nobody knows before. `copy` copies `length` bytes.
pub fn called<F: FnMut()>(count: usize, length: u32, copy: F) -> impl FnMut() -> f64 {
    let mut called = Called::new(copy);
    move || {
        let (post, poll) = black_box((Called::post as Post<F>, Called::poll as Poll<F>));
        alone(count, || {
            for number in 0..count {
                let (list, remote) = request(number, length);
                assert_eq!(post(&mut called, number, black_box(&list), remote, 0), NtStatus::SUCCESS);
                complete(&mut called, poll);
            }
        })
    }
}

/// A post that leaves its request to a DPC.
struct Deferred<F> {
    called: Called<F>,
    /// The request: a context, the consumer's element, the peer's place, flags.
    posted: Option<(usize, Sge, (u64, u32), u32)>,
    dpc: PlainDpc,
}

type PostDeferred<F> = fn(&mut Deferred<F>, usize, &[Sge], (u64, u32), u32) -> NtStatus;

impl<F: FnMut()> Deferred<F> {
    fn post(&mut self, context: usize, list: &[Sge], remote: (u64, u32), flags: u32) -> NtStatus {
        let [element] = list else { return NtStatus::INVALID_PARAMETER };
        self.posted = Some((context, *element, remote, flags));
        let target = ptr::from_mut(self).cast();
        self.dpc.queue_unraised_with(|| Arguments { first: target, second: ptr::null_mut() });
        NtStatus::SUCCESS
    }

    /// The routine of the call.
    fn run(arguments: Arguments) {
        // SAFETY: the argument is the value that has posted, on this thread, and whose post has returned: the call runs when the level
        // drops, and its poster does nothing else meanwhile.
        let this = unsafe { &mut *arguments.first.cast::<Self>() };
        let (context, element, remote, flags) = this.posted.take().expect("what was posted");
        assert_eq!(this.called.post(context, &[element], remote, flags), NtStatus::SUCCESS);
    }
}

/// [`called`], where the post queues a DPC at `DISPATCH_LEVEL`, which does the rest when the level drops.
pub fn deferred<F: FnMut()>(os: &HostOs, count: usize, length: u32, copy: F) -> impl FnMut() -> f64 {
    let dpc = PlainDpc::try_new(os.machine(), "copy", Deferred::<F>::run).expect("memory");
    dpc.set_target(Some(0));
    let mut deferred = Box::new(Deferred { called: Called::new(copy), posted: None, dpc });
    move || {
        let (post, poll) = black_box((Deferred::post as PostDeferred<F>, Called::poll as Poll<F>));
        let on = os.machine().run_on(0);
        let time = alone(count, || {
            for number in 0..count {
                let before = raise(Irql::DISPATCH_LEVEL);
                let (list, remote) = request(number, length);
                assert_eq!(post(&mut deferred, number, black_box(&list), remote, 0), NtStatus::SUCCESS);
                lower(before);
                complete(&mut deferred.called, poll);
            }
        });
        drop(on);
        time
    }
}
