//! Polls, as a layer is to hear of them.
//!
//! A replay takes completions one at a time, because no more may be taken than were then. What a consumer has learned from its poll is
//! something else: a poll that comes back with less than it had room for has seen the end of the queue, also one that found nothing. So
//! each recorded poll ends with a look that has no room, and takes nothing. Hooks hear of that as of the poll that was recorded: with as
//! much room as was left then.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use interpose::{Args, Event, Function, Hooks, Misuse, ObjectId, ObjectRef, Results, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NtStatus};

/// The room that was left in the poll that is repeated.
pub type Left = Arc<AtomicU32>;

/// Hooks that hear of polls as they were recorded.
pub struct AsRecorded<H> {
    pub hooks: H,
    pub left: Left,
}

impl<H: Hooks> Hooks for AsRecorded<H> {
    type Os = H::Os;
    type State = H::State;
    type Call = H::Call;
    const LISTENS: bool = H::LISTENS;
    const INTERFERES: bool = H::INTERFERES;
    const NUMBERS_ALL: bool = H::NUMBERS_ALL;
    const KEPT: usize = H::KEPT;

    fn os(&self) -> &H::Os {
        self.hooks.os()
    }

    fn adapter(&self, info: &NDK_ADAPTER_INFO) -> Result<H::State, NtStatus> {
        self.hooks.adapter(info)
    }

    fn object(&self, event: &Event<'_, H::State>, id: ObjectId) -> Result<H::State, NtStatus> {
        self.hooks.object(event, id)
    }

    fn event(&self, event: &Event<'_, H::State>, call: &mut H::Call) -> Verdict {
        self.hooks.event(event, call)
    }

    fn data_path(&self, event: &Event<'_, H::State>, call: &mut H::Call) -> Verdict {
        let room = self.left.load(Relaxed);
        let args = match event.args {
            Args::GetCqResults { room: 0, results } => Args::GetCqResults { room, results },
            Args::GetCqResultsEx { room: 0, results } => Args::GetCqResultsEx { room, results },
            other => other,
        };
        self.hooks.data_path(&Event { args, ..*event }, call)
    }

    fn delay(&self, function: Function, object: ObjectRef<'_, H::State>) -> u64 {
        self.hooks.delay(function, object)
    }

    fn results(&self, cq: ObjectRef<'_, H::State>, results: Results<'_>) {
        self.hooks.results(cq, results);
    }

    fn broken(&self, cq: ObjectRef<'_, H::State>) -> Option<u32> {
        self.hooks.broken(cq)
    }

    fn misuse(&self, function: Function, object: ObjectRef<'_, H::State>, wanted: NDK_OBJECT_TYPE, why: Misuse) {
        self.hooks.misuse(function, object, wanted, why);
    }
}
