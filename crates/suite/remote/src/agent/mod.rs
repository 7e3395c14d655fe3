//! The machine that carries calls out.

use alloc::boxed::Box;
use core::{
    cell::Cell,
    ffi::c_void,
    mem::ManuallyDrop,
    net::IpAddr,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use conformance::{Platform, platform::Family};
use fallible::Arc;
use ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_TYPE, NtStatus};
use zerocopy::IntoBytes;

use crate::{
    lock::{Guard, Lock},
    table::Table,
    wire::{ANSWER_TAIL, Carried, Event, Function, Happened, VERSION},
};

/// A slot of an open object's table, and the object.
macro_rules! slot {
    ($used:expr, $object:ident, $slot:ident) => {{
        let raw: *mut ndkpi::$object = $used.raw();
        // SAFETY: the object is open as long as it is used. The slot is in the table of every version; only the slot is read.
        let slot = unsafe { (*(*raw).Dispatch).$slot };
        (raw, slot.ok_or(Carried::Withheld)?)
    }};
}

mod call;
mod callbacks;
mod connecting;
mod creation;
mod ending;
mod memory;
mod object;
mod posts;
mod queue;
mod queues;

use self::{
    call::{Incoming, Reply},
    memory::{Lam, Memory},
    object::{Entry, Used},
    queue::{Node, Queue},
};

/// How long a call waits for events, in microseconds.
const EVENTS: u64 = 20_000;

/// What has a handle.
struct Tables {
    entries: Table<Arc<Entry>>,
    memories: Table<Arc<Memory>>,
    /// The bytes of `memories`.
    bytes: usize,
    lams: Table<Arc<Lam>>,
}

/// Carries calls out on an adapter of its platform.
pub struct Agent<'p> {
    platform: &'p dyn Platform,
    adapter: u32,
    tables: Lock<Tables>,
    /// In a box of its own, so that callbacks find it.
    queue: ManuallyDrop<Box<Queue>>,
    /// The wait for events is to end.
    woken: AtomicBool,
}

impl<'p> Agent<'p> {
    /// An agent for this adapter of the platform.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, or `STATUS_INVALID_PARAMETER` if there is no such adapter.
    pub fn try_new(platform: &'p dyn Platform, adapter: u32) -> Result<Self, NtStatus> {
        if adapter >= platform.adapters() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let tables = Tables { entries: Table::new(), memories: Table::new(), bytes: 0, lams: Table::new() };
        Ok(Self {
            platform,
            adapter,
            tables: Lock::new(tables),
            queue: ManuallyDrop::new(fallible::try_box(Queue::new())?),
            woken: AtomicBool::new(false),
        })
    }

    /// Carries a call out and returns the length of its answer. Any bytes get an answer; it fits if `answer` has
    /// [`MOST`](crate::MOST) bytes. Several threads at a time, at `PASSIVE_LEVEL`.
    pub fn answer(&self, call: &[u8], answer: &mut [u8]) -> usize {
        let Some(mut reply) = Reply::new(answer) else { return 0 };
        let call = Incoming::read(call).ok_or(Carried::Malformed);
        let outcome = call.and_then(|call| self.carry_out(&call, &mut reply));
        reply.finish(outcome)
    }

    fn carry_out(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let function = Function::from_number(call.head.function.get()).ok_or(Carried::Malformed)?;
        match function {
            Function::Hello => self.hello(call, reply),
            Function::Events => self.events(reply),
            Function::Wake => {
                self.woken.store(true, Release);
                Ok(NtStatus::SUCCESS)
            }
            Function::Settle => {
                self.platform.settle();
                reply.set(0, self.queue.count());
                Ok(NtStatus::SUCCESS)
            }
            Function::Allocate => self.allocate(call, reply),
            Function::Free => self.free(call),
            Function::Put => self.put(call),
            Function::Get => self.get(call, reply),
            Function::OpenAdapter => self.open_adapter(call, reply),
            Function::CloseAdapter => self.close_adapter(call, reply),
            Function::QueryAdapterInfo => self.query_adapter_info(call, reply),
            Function::QueryExtension => self.query_extension(call),
            Function::CreateCq => self.create_cq(call, reply),
            Function::CreatePd => self.create_pd(call, reply),
            Function::CreateSharedEndpoint => self.create_shared_endpoint(call, reply),
            Function::CreateConnector => self.create_connector(call, reply),
            Function::CreateListener => self.create_listener(call, reply),
            Function::BuildLam => self.build_lam(call, reply),
            Function::LamPages => self.lam_pages(call, reply),
            Function::ReleaseLam => self.release_lam(call),
            Function::Close => self.close_object(call),
            Function::CreateMr => self.create_mr(call, reply),
            Function::CreateMw => self.create_mw(call, reply),
            Function::CreateSrq => self.create_srq(call, reply),
            Function::CreateQp => self.create_qp(call, reply),
            Function::CreateQpWithSrq => self.create_qp_with_srq(call, reply),
            Function::PrivilegedToken => self.privileged_token(call, reply),
            Function::ResizeCq => self.resize_cq(call),
            Function::ArmCq => self.arm_cq(call),
            Function::Poll => self.poll(call, reply),
            Function::PollEx => self.poll_ex(call, reply),
            Function::Moderate => self.moderate(call),
            Function::Register => self.register(call),
            Function::Deregister => self.deregister(call),
            Function::InitializeFastRegister => self.initialize_fast_register(call),
            Function::RemoteToken => self.remote_token(call, reply),
            Function::LocalToken => self.local_token(call, reply),
            Function::ModifySrq => self.modify_srq(call),
            Function::SrqReceive => self.srq_receive(call),
            Function::Flush => self.flush(call),
            Function::Send => self.send(call),
            Function::SendAndInvalidate => self.send_and_invalidate(call),
            Function::Receive => self.receive(call),
            Function::Bind => self.bind(call),
            Function::FastRegister => self.fast_register(call),
            Function::Invalidate => self.invalidate(call),
            Function::Read => self.read(call),
            Function::Write => self.write(call),
            Function::Connect => self.connect(call),
            Function::ConnectWithSharedEndpoint => self.connect_with_shared_endpoint(call),
            Function::CompleteConnect => self.complete_connect(call),
            Function::CompleteConnectEx => self.complete_connect_ex(call),
            Function::Accept => self.accept(call),
            Function::AcceptEx => self.accept_ex(call),
            Function::Reject => self.reject(call),
            Function::ConnectionData => self.connection_data(call, reply),
            Function::LocalAddress => self.local_address(call, reply),
            Function::PeerAddress => self.peer_address(call, reply),
            Function::Disconnect => self.disconnect(call),
            Function::Listen => self.listen(call),
            Function::ControlConnectEvents => self.control_connect_events(call),
        }
    }

    fn queue_pointer(&self) -> *const Queue {
        &raw const **self.queue
    }

    fn tables(&self) -> Guard<'_, Tables> {
        self.tables.lock(self.platform)
    }

    /// Uses an object of a kind.
    fn object(&self, handle: u64, kind: NDK_OBJECT_TYPE) -> Result<Used, Carried> {
        let used = self.any_object(handle)?;
        if used.entry().kind() == kind { Ok(used) } else { Err(Carried::Stale) }
    }

    /// Uses an object of any kind.
    fn any_object(&self, handle: u64) -> Result<Used, Carried> {
        let entry = self.tables().entries.get(handle).cloned();
        Used::begin(entry.ok_or(Carried::Stale)?)
    }

    fn node(&self, happened: Happened, call: &Incoming<'_>) -> Result<Box<Node>, Carried> {
        Node::try_new(self.queue_pointer(), happened, call.head.cookie.get()).map_err(|_| Carried::NoMemory)
    }

    /// Makes a request. `value` goes with its completion.
    fn request(
        &self,
        call: &Incoming<'_>,
        value: u64,
        make: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
    ) -> Result<NtStatus, Carried> {
        let mut node = self.node(Happened::Requested, call)?;
        node.value = value;
        let node = Box::into_raw(node);
        let status = make(Some(callbacks::requested), node.cast());
        if status != NtStatus::PENDING {
            // SAFETY: a request that does not pend has no completion (`NDKPI 5.0`), so the node is still ours.
            drop(unsafe { Box::from_raw(node) });
        }
        Ok(status)
    }

    /// The words are the version of the protocol; answers the addresses of the adapter, IPv4 and IPv6.
    fn hello(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        reply.set(0, VERSION);
        if call.word(0) != VERSION {
            return Err(Carried::OtherVersion);
        }
        if !self.close() {
            return Err(Carried::Stuck);
        }
        self.woken.store(false, Release);
        let address = |family| self.platform.address(self.adapter, family);
        reply.set(1, self.queue.count());
        let mut known = 0_u64;
        let mut bytes = [0; 20];
        if let Some(IpAddr::V4(address)) = address(Family::V4) {
            known |= 1;
            bytes[..4].copy_from_slice(&address.octets());
        }
        if let Some(IpAddr::V6(address)) = address(Family::V6) {
            known |= 2;
            bytes[4..].copy_from_slice(&address.octets());
        }
        reply.set(2, known);
        reply.append(&bytes)?;
        Ok(NtStatus::SUCCESS)
    }

    /// Waits for events. Answers how many there were since the beginning with these, and how many were lost.
    fn events(&self, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let mut taken = self.queue.fetch(self.platform);
        let until = self.platform.now().saturating_add(EVENTS);
        let mut room = ANSWER_TAIL / size_of::<Event>();
        loop {
            while room > 0
                && let Some(node) = self.queue.next(&mut taken)
            {
                reply.append(self.fetched(&node).as_bytes())?;
                room -= 1;
            }
            let (now, found) = (self.platform.now(), room < ANSWER_TAIL / size_of::<Event>());
            if found || now >= until || self.woken.swap(false, AcqRel) {
                break;
            }
            let _ = self.platform.wait(until - now, &|| self.queue.has_news() || self.woken.load(Acquire));
        }
        reply.set(0, taken.count);
        reply.set(1, self.queue.take_lost());
        Ok(NtStatus::SUCCESS)
    }

    /// An event for the other machine; what it is about has its handle from now on, or has none any more.
    fn fetched(&self, node: &Node) -> Event {
        let status = Cell::new(node.status);
        let value = match node.happened {
            Happened::Created => {
                if !node.status.is_success() {
                    self.tables().entries.remove(node.value);
                }
                node.value
            }
            Happened::Requested => {
                if node.value != 0 {
                    self.lam_is_built(node.value, node.status);
                }
                node.value
            }
            Happened::Closed => {
                self.tables().entries.remove(node.value);
                0
            }
            Happened::Notified => 0,
            Happened::Connected => match self.adopt(node) {
                Ok(handle) => handle,
                Err(refused) => {
                    status.set(refused);
                    0
                }
            },
            Happened::Disconnected => node.value,
        };
        Event {
            happened: (node.happened as u32).into(),
            status: status.get().to_bits().into(),
            cookie: node.cookie.into(),
            value: value.into(),
        }
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if !self.close() {
            self.leave_behind();
            return;
        }
        // SAFETY: the queue is not used after this, and no callback that would use it comes any more.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
    }
}
