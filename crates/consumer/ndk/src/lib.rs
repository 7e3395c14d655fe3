//! A safe wrapper of NDKPI for consumers: typed objects that close themselves, requests that may pend, closures as callbacks, and
//! scatter/gather elements that borrow their region.
//!
//! It works with any [`NDK_ADAPTER`](ndkpi::NDK_ADAPTER), SoftNDK's or a vendor's, in a driver, and with the feature `host` also
//! in a program. References such as `NDKPI 7.9` are sections of `docs/reference/ndkpi.md`.
//!
//! # What it takes care of
//!
//! | rule of NDKPI | in this crate |
//! |---|---|
//! | A create, connect or close may pend, complete inline, or complete before its function returns (`NDKPI 5.0`) | Creates wait. Other requests return a [`Pending`], to wait for or to continue from. Contexts are reference-counted, never on a stack |
//! | Every object is closed, once, and not during a call on it (`NDKPI 7.9`) | A drop closes the object without waiting, [`Close`] can be waited for, and [`Adapter`] waits for all |
//! | Memory stays pinned until its region is closed (`NDKPI 7.4`) | [`Mr`] owns the memory and frees it when the close has completed, so no request can outlive its buffer |
//! | One poll or arm at a time on a completion queue (`NDKPI 7.1.2`) | They take `&mut` [`Cq`]; a callback gets a [`Poller`], and not before [`Cq::notify`] has armed |
//! | One post at a time on a queue (`NDKPI 7.3`) | [`Initiator`], [`Receiver`] and [`Srq`] post by `&mut` |
//! | Completions from before an arm may not cause a callback (`NDKPI 7.1.5`) | [`Cq::wait`] arms, polls once more, and then waits; [`Cq::notify`] arms, and calls the handler if some may be left |
//! | Connections are established in steps (`NDKPI 7.7`) | Each step is a type: [`Connector`], [`Offered`], [`Incoming`], [`Connection`] |
//! | Newer functions need a newer version (`NDKPI 1`) | They return `STATUS_NOT_SUPPORTED`; [`Cq::poll`] works with 1.1 |
//!
//! What it leaves to you: making queues deep enough (`NDKPI 7.1.10`); the protocol with the peer; dropping a region only after
//! its requests have completed (`NDKPI 7.4`; if you do not, they fail); and breaking reference cycles: a handler that owns a
//! queue pair of its own completion queue lives until its [`Notified`] is dropped.
//!
//! Not wrapped: shared endpoints, the privileged token, the disconnect reason of 2.1, and extensions. Use the types in [`ndkpi`]
//! for those.
//!
//! # Example
//!
#![cfg_attr(feature = "host", doc = "```")]
#![cfg_attr(not(feature = "host"), doc = "```ignore")]
//! use ndk::{Access, Completion, Flags, Notify, Offer, QpSizes, host::Loopback};
//! use std::sync::mpsc;
//!
//! # fn main() -> Result<(), ndk::NtStatus> {
//! let machine = Loopback::start(1)?;
//! let adapter = machine.open(0)?;
//!
//! // Memory that the adapter can access, a completion queue, and two queue pairs.
//! let pd = adapter.create_pd()?;
//! let mut mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
//! let mut cq = adapter.create_cq(64)?;
//! let mut near = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
//! let mut far = pd.create_qp(&cq, &cq, QpSizes::default(), 2)?;
//!
//! // Connect them: the passive side accepts the request that the listener hands out.
//! let (send, incoming) = mpsc::channel();
//! let listener = adapter.listen(machine.address(0, 0), move |incoming| drop(send.send(incoming)))?;
//! let connector = adapter.create_connector()?;
//! let to = listener.local_address()?;
//! let connecting = connector.connect(&near, machine.address(0, 0), to, &Offer::default())?;
//! let accepting = incoming.recv().expect("a connection").accept(&far, &Offer::default(), || ())?;
//! let active = connecting.wait()?.complete(|| ())?.wait()?;
//! let passive = accepting.wait()?;
//!
//! // A receive, a send, and their completions.
//! mr.write(0, b"hello")?;
//! far.receiver.receive(7, &[mr.sge(100, 5)?])?;
//! near.initiator.send(8, &[mr.sge(0, 5)?], Flags::empty())?;
//! let mut results = [Completion::EMPTY; 8];
//! let mut seen = Vec::new();
//! while seen.len() < 2 {
//!     let done = cq.wait(&mut results, Notify::Any)?;
//!     seen.extend(done.iter().map(|one| (one.context(), one.status())));
//! }
//! seen.sort();
//! assert_eq!(seen, [(7, ndk::NtStatus::SUCCESS), (8, ndk::NtStatus::SUCCESS)]);
//! let mut bytes = [0; 5];
//! mr.read(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! # drop((active, passive));
//! # Ok(())
//! # }
//! ```
//!
//! # What does not compile
//!
//! An element that outlives its region:
//!
//! ```compile_fail,E0505
//! # fn example(mr: ndk::Mr, qp: &mut ndk::Initiator) -> Result<(), ndk::NtStatus> {
//! let element = mr.sge(0, 64)?;
//! drop(mr); // The memory could be freed.
//! qp.send(1, &[element], ndk::Flags::empty())
//! # }
//! ```
//!
//! Two posts at a time on one queue (`NDKPI 7.3`):
//!
//! ```compile_fail,E0499
//! # fn example(qp: &mut ndk::Qp) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| qp.initiator.send_inline(1, b"a", ndk::Flags::empty()));
//!     scope.spawn(|| qp.initiator.send_inline(2, b"b", ndk::Flags::empty()));
//! });
//! # }
//! ```
//!
//! Posting to the two queues of a queue pair at the same time is allowed, and compiles:
//!
//! ```
//! # fn example(qp: &mut ndk::Qp) {
//! let ndk::Qp { initiator, receiver } = qp;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| initiator.send_inline(1, b"a", ndk::Flags::empty()));
//!     scope.spawn(|| receiver.receive(2, &[]));
//! });
//! # }
//! ```
//!
//! A poll concurrent with the callback (`NDKPI 7.1.2`): a handler takes over the queue.
//!
//! ```compile_fail,E0382
//! # fn example(mut cq: ndk::Cq) -> Result<(), ndk::NtStatus> {
//! let notified = cq.notify(ndk::Notify::Any, |_poller, _status| ())?;
//! cq.poll(&mut [ndk::Completion::EMPTY]);
//! # Ok(())
//! # }
//! ```
//!
//! Keeping the poller after the callback:
//!
//! ```compile_fail
//! # fn example(cq: ndk::Cq) -> Result<(), ndk::NtStatus> {
//! let mut kept = None;
//! let notified = cq.notify(ndk::Notify::Any, move |poller, _status| kept = Some(poller))?;
//! # Ok(())
//! # }
//! ```
//!
//! Disconnecting before the connect is completed, and using a connector twice (`NDKPI 7.7.1`):
//!
//! ```compile_fail,E0599
//! # fn example(offered: ndk::Offered) {
//! offered.disconnect();
//! # }
//! ```
//! ```compile_fail,E0382
//! # fn example(incoming: ndk::Incoming, qp: &ndk::Qp) -> Result<(), ndk::NtStatus> {
//! let accepting = incoming.accept(qp, &ndk::Offer::default(), || ())?;
//! incoming.reject(b"no")
//! # }
//! ```
//!
//! A handler that borrows from the stack frame that installs it, because it may run later:
//!
//! ```compile_fail,E0373
//! # fn example(cq: ndk::Cq) -> Result<ndk::Notified, ndk::NtStatus> {
//! let count = std::sync::atomic::AtomicU32::new(0);
//! cq.notify(ndk::Notify::Any, |_poller, _status| drop(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
//! # }
//! ```

#![no_std]

extern crate alloc;
#[cfg(feature = "host")]
extern crate std;

mod acceptor;
mod adapter;
mod close;
mod completion;
mod connector;
mod cq;
mod fast;
mod flags;
#[cfg(feature = "host")]
pub mod host;
mod listener;
mod mr;
mod mw;
mod object;
mod once;
mod os;
mod pd;
mod qp;
mod request;
mod sge;
mod srq;
mod waiters;

pub use acceptor::Acceptor;
pub use adapter::Adapter;
pub use close::Close;
pub use completion::{Completion, Operation};
pub use connector::{Connection, ConnectionData, Connector, Incoming, Offer, Offered};
pub use cq::{CompletionQueue, Cq, Notified, Notify, Poller};
pub use fast::{FastMr, Mapping};
pub use flags::{Access, Flags};
pub use listener::Listener;
pub use mr::Mr;
pub use mw::Mw;
pub use ndkpi::{NDK_VERSION, NtStatus};
pub use os::{Event, PinnedMemory, Runtime};
pub use pd::Pd;
pub use qp::{Initiator, Invalidate, Qp, QpSizes, QueuePair, Receiver};
pub use request::Pending;
pub use sge::{LocalToken, Remote, RemoteToken, Sge};
pub use srq::Srq;
