//! The adviser: hooks that tell a consumer which of its duties it has broken.
//!
//! Every check is one of [`Finding`]. A report names the object, who created it, what was called, what was seen, and the page of
//! the finding says what to do instead. Each finding is reported once for each object, and counted always.
//!
//! What cannot be known for certain is not reported: requests whose contexts are not distinct, for example, are not told apart,
//! and nothing is said of their memory then (`docs/adviser.md`).
//!
//! # Memory
//!
//! Each object has a node. A queue has a place of 32 bytes for each request of its depth, rounded up to a power of two; the adapter has
//! a table of tokens, with two places for each region. All of it is allocated when an object is created.

mod call;
mod connection;
mod cq;
mod findings;
mod follow;
mod life;
mod memory;
mod node;
mod post;
mod queue;
mod report;
mod tokens;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use engine::os::Os;
use fallible::Arc;
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_OPERATION_TYPE, NtStatus};

use crate::{Event, Function, Hooks, InterposeOs, Misuse, ObjectId, ObjectRef, Outcome, Phase, Verdict};

use node::body;

pub use findings::{Finding, Page, Severity};
pub use follow::{MOST_ANTECEDENTS, Step};
pub use node::{FRAMES, Node};
pub use post::Post;
pub use report::{Report, Seen};

/// What is done with a finding. In every mode it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is reported.
    #[default]
    Log,
    /// It is only counted.
    Count,
    /// It is reported, and the debugger is entered.
    Break,
    /// It is reported, and the machine stops with the documented code if it is a duty ([`Severity::Duty`]).
    Bugcheck,
}

/// How the adviser works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What is done with a finding.
    pub mode: Mode,
    /// [`Severity::Advice`] is reported too.
    pub advice: bool,
    /// How long a callback at `DISPATCH_LEVEL` may take, in units of 100 nanoseconds; 0 if time says nothing, as on a host.
    pub longest_callback: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { mode: Mode::Log, advice: true, longest_callback: 10_000 }
    }
}

/// Who hears of findings.
pub trait Sink: Send + Sync + 'static {
    /// A finding. At `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn report(&self, report: &Report<'_>);

    /// A call, or what it began, has failed, which need not be anybody's mistake. At `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn failed(&self, function: Function, object: ObjectId, status: NtStatus) {
        let _ = (function, object, status);
    }

    /// A work request has failed, other than by a flush, as a poll of this completion queue says. `kind` is `None` where the result
    /// does not say.
    fn request_failed(&self, kind: Option<NDK_OPERATION_TYPE>, cq: ObjectId, status: NtStatus) {
        let _ = (kind, cq, status);
    }

    /// Returns true if [`Sink::follow`] is to be called: it costs a walk of the stack for each call that may pend.
    fn follows(&self) -> bool {
        false
    }

    /// A step towards something that a consumer may wait for. At `IRQL <= DISPATCH_LEVEL`, with no lock held.
    fn follow(&self, step: &Step<'_>) {
        let _ = step;
    }

    /// Enters the debugger.
    fn break_in(&self) {}

    /// Stops the machine. A sink that cannot does nothing.
    fn bugcheck(&self, report: &Report<'_>) {
        let _ = report;
    }
}

/// How often each finding was made.
#[derive(Debug)]
pub struct Totals([AtomicU32; Finding::ALL.len()]);

impl Default for Totals {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; Finding::ALL.len()])
    }
}

impl Totals {
    /// How often this one.
    #[must_use]
    pub fn of(&self, finding: Finding) -> u32 {
        self.0.get(usize::from(finding.number()) - 1).map_or(0, |count| count.load(Relaxed))
    }

    fn count(&self, finding: Finding) {
        if let Some(count) = self.0.get(usize::from(finding.number()) - 1) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Those that were made at all.
    pub fn made(&self) -> impl Iterator<Item = (Finding, u32)> {
        Finding::ALL.iter().map(|&finding| (finding, self.of(finding))).filter(|&(_, count)| count > 0)
    }
}

/// The hooks of the adviser.
pub struct Adviser<O: InterposeOs, S: Sink> {
    os: O,
    settings: Settings,
    sink: Arc<S>,
    totals: Arc<Totals>,
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// An adviser. Several may have the same sink and totals.
    pub const fn new(os: O, settings: Settings, sink: Arc<S>, totals: Arc<Totals>) -> Self {
        Self { os, settings, sink, totals }
    }
}

/// What the adviser keeps of an object.
pub type State<O> = Arc<Node<O>>;

/// The lock of an operating system.
type Lock<O, T> = <O as Os>::Lock<T>;

impl<O: InterposeOs, S: Sink> Hooks for Adviser<O, S> {
    type Os = O;
    type State = State<O>;
    type Call = Post;
    const NUMBERS_ALL: bool = false;
    const PAIRS: bool = true;
    const KEPT: usize = 64;

    fn os(&self) -> &O {
        &self.os
    }

    fn adapter(&self, info: &NDK_ADAPTER_INFO) -> Result<State<O>, NtStatus> {
        Arc::try_new(Node::adapter(&self.os, info)?).map_err(Into::into)
    }

    fn object(&self, event: &Event<'_, State<O>>, id: ObjectId) -> Result<State<O>, NtStatus> {
        let node = Node::object(&self.os, event, id)?;
        Arc::try_new(node).map_err(Into::into)
    }

    fn event(&self, event: &Event<'_, State<O>>, _: &mut Post) -> Verdict {
        self.other_event(event);
        Verdict::Forward
    }

    #[inline(always)]
    fn data_path(&self, event: &Event<'_, State<O>>, post: &mut Post) -> Verdict {
        match (event.phase == Phase::Call, event.function.is_post()) {
            (true, is_post) => {
                self.check_place(event);
                if is_post {
                    *post = self.post_begins(event);
                } else {
                    self.cq_call_begins(event);
                }
            }
            (false, true) => self.post_ends(event, *post),
            (false, false) => {
                self.polled(event);
                Self::cq_call_ends(event);
            }
        }
        Verdict::Forward
    }

    fn misuse(&self, function: Function, object: ObjectRef<'_, State<O>>, wanted: NDK_OBJECT_TYPE, why: Misuse) {
        let finding = match why {
            Misuse::WrongKind => Finding::WrongKind,
            Misuse::Closed => Finding::UseAfterClose,
        };
        let wanted = wanted.name().unwrap_or("any object");
        self.found(finding, object.state, function, format_args!("{} called where {wanted} is wanted", object.id));
    }
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// What is not a post, arm or poll.
    fn other_event(&self, event: &Event<'_, State<O>>) {
        self.follow(event);
        let is_end =
            matches!(event.phase, Phase::Return | Phase::Callback) && event.function < Function::CqNotification;
        if is_end && !event.outcome.status().is_success() {
            self.failed(event.function, event.object.id, event.outcome.status());
        }
        match event.phase {
            Phase::Call => {
                self.check_call(event);
                self.begins(event);
            }
            Phase::Return => {
                Self::ends(event);
                self.completed(event, true);
            }
            Phase::Callback => {
                self.completed(event, false);
                self.callback(event);
            }
            Phase::CallbackReturn => self.callback_returned(event),
        }
    }

    /// A call, or what it began, has failed.
    #[cold]
    fn failed(&self, function: Function, object: ObjectId, status: NtStatus) {
        self.sink.failed(function, object, status);
    }

    /// A request has failed, as a poll says.
    #[cold]
    fn request_failed(&self, cq: ObjectId, kind: Option<NDK_OPERATION_TYPE>, status: NtStatus) {
        if status != NtStatus::CANCELLED {
            self.sink.request_failed(kind, cq, status);
        }
    }

    /// A call begins.
    fn begins(&self, event: &Event<'_, State<O>>) {
        match event.function {
            Function::Close | Function::CloseAdapter => self.close_begins(event),
            Function::ResizeCq | Function::ControlCqInterruptModeration => self.cq_control(event),
            Function::Flush => {
                self.chain_must_have_ended(event);
                if let Some(qp) = body!(event.object.state, Qp) {
                    qp.mark_over();
                }
            }
            Function::RegisterMr | Function::DeregisterMr | Function::InitializeFastRegisterMr => {
                self.region_call(event);
            }
            Function::ModifySrq => Self::srq_modified(event),
            Function::ReleaseLam => self.release_mapping(event),
            Function::Connect
            | Function::ConnectWithSharedEndpoint
            | Function::CompleteConnect
            | Function::CompleteConnectEx
            | Function::Accept
            | Function::AcceptEx
            | Function::Reject
            | Function::Disconnect => self.connector_call(event),
            _ => {}
        }
    }

    /// The provider has returned from a call.
    fn ends(event: &Event<'_, State<O>>) {
        match event.function {
            Function::GetRemoteTokenFromMr => Self::learn_remote_token(event),
            Function::GetLocalTokenFromMr | Function::GetPrivilegedMemoryRegionToken => Self::learn_token(event),
            Function::Reject => Self::rejected(event),
            _ => {}
        }
    }

    /// What a call has begun is at its end, if it does not pend: in the call, or by its completion.
    fn completed(&self, event: &Event<'_, State<O>>, in_call: bool) {
        Self::opened(event);
        if in_call && event.outcome == Outcome::Status(NtStatus::PENDING) {
            self.pends(event);
            return;
        }
        Self::context_ends(event);
        match event.function {
            Function::RegisterMr | Function::DeregisterMr | Function::InitializeFastRegisterMr => {
                Self::region_done(event);
            }
            Function::BuildLam => Self::mapping_built(event),
            Function::Connect
            | Function::ConnectWithSharedEndpoint
            | Function::CompleteConnect
            | Function::CompleteConnectEx
            | Function::Accept
            | Function::AcceptEx
            | Function::Disconnect => Self::connector_done(event),
            Function::CreateQp | Function::CreateQpWithSrq | Function::CreateSrq => Self::attach(event),
            Function::CreateMr => Self::region_made(event),
            Function::ResizeCq => Self::resized(event),
            Function::Close => Self::closed(event),
            _ => {}
        }
    }
}
