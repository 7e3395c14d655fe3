//! The calls of the recording, made here: adapters, protection domains, memory, completion queues, closes.

use std::sync::Arc;

use interpose::Function;
use ndkpi::{
    GROUP_AFFINITY, NDK_ADAPTER, NDK_CQ, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_PD, NDK_SRQ, NtStatus,
};
use recording::{Arguments, Outcome, QpSizes, Record};

use crate::{
    answers::{Events, Ongoing, closed, notified},
    player::{Answer, Player},
};

/// The function in a slot of an object's table.
macro_rules! slot {
    ($object:expr, $slot:ident) => {{
        let object = $object;
        // SAFETY: the object is open: `Objects` has only such. An open object's table; the slot is in those of every version.
        unsafe { (*(*object).Dispatch).$slot }
    }};
}
pub(crate) use slot;

/// An object of the recording, or the call is left out.
macro_rules! object {
    ($player:expr, $record:expr, $number:expr, $type:ty) => {
        match $player.objects.get::<$type>($number) {
            Some(object) => object,
            None => return Ok($player.leave_out($record, "the object is not there, is closed, or is of another type")),
        }
    };
}
pub(crate) use object;

/// A function of the object's table, or the call is left out.
macro_rules! function {
    ($player:expr, $record:expr, $object:expr, $slot:ident) => {
        match $crate::calls::slot!($object, $slot) {
            Some(function) => function,
            None => return Ok($player.leave_out($record, "the provider does not have the function")),
        }
    };
}
pub(crate) use function;

/// Closes an object; `None` if its type cannot be closed so.
pub fn close(kind: NDK_OBJECT_TYPE, raw: *mut NDK_OBJECT_HEADER) -> Option<Arc<Ongoing>> {
    macro_rules! of {
        ($($kind:ident: $type:ty, $slot:ident;)+) => {
            match kind {
                $(NDK_OBJECT_TYPE::$kind => slot!(raw.cast::<$type>(), $slot),)+
                _ => None,
            }
        };
    }
    let function = of! {
        CQ: NDK_CQ, NdkCloseCq;
        PD: NDK_PD, NdkClosePd;
        MR: NDK_MR, NdkCloseMr;
        MW: NDK_MW, NdkCloseMw;
        SRQ: NDK_SRQ, NdkCloseSrq;
        QP: ndkpi::NDK_QP, NdkCloseQp;
        CONNECTOR: ndkpi::NDK_CONNECTOR, NdkCloseConnector;
        LISTENER: ndkpi::NDK_LISTENER, NdkCloseListener;
        SHARED_ENDPOINT: ndkpi::NDK_SHARED_ENDPOINT, NdkCloseSharedEndpoint;
    }?;
    let ongoing = Arc::new(Ongoing::default());
    let context = Ongoing::context(&ongoing);
    // SAFETY: the object is open and not used again.
    let status = unsafe { function(raw, Some(closed), context) };
    if status != NtStatus::PENDING {
        // SAFETY: the provider has not pended, so it does not call back: the reference is taken back once.
        unsafe { Ongoing::of(context) }.finish(status, std::ptr::null_mut());
    }
    Some(ongoing)
}

/// A number as the context of a callback or request: nobody follows it.
pub const fn context(number: u64) -> *mut std::ffi::c_void {
    #[expect(clippy::cast_possible_truncation, reason = "NDKPI exists on 64-bit systems")]
    std::ptr::without_provenance_mut(number as usize)
}

/// What a call returns here: an answer, or the reason to end the replay.
pub type Made = Result<Answer, String>;

impl Player<'_> {
    /// Makes a call of the recording.
    pub fn make(&mut self, record: &Record) -> Made {
        match record.function {
            Function::CreateCq
            | Function::CreatePd
            | Function::BuildLam
            | Function::ReleaseLam
            | Function::QueryExtension
            | Function::QueryAdapterInfo
            | Function::CloseAdapter => self.on_adapter(record),
            Function::CreateMr
            | Function::CreateMw
            | Function::CreateSrq
            | Function::CreateQp
            | Function::CreateQpWithSrq
            | Function::GetPrivilegedMemoryRegionToken => self.on_pd(record),
            Function::RegisterMr
            | Function::DeregisterMr
            | Function::InitializeFastRegisterMr
            | Function::GetRemoteTokenFromMr
            | Function::GetLocalTokenFromMr
            | Function::GetRemoteTokenFromMw => self.on_memory(record),
            Function::ResizeCq
            | Function::ArmCq
            | Function::GetCqResults
            | Function::GetCqResultsEx
            | Function::ControlCqInterruptModeration => self.on_cq(record),
            Function::Flush
            | Function::Send
            | Function::Receive
            | Function::Bind
            | Function::FastRegister
            | Function::Invalidate
            | Function::Read
            | Function::Write
            | Function::SendAndInvalidate
            | Function::ModifySrq
            | Function::SrqReceive => self.post(record),
            Function::Close => Ok(self.close(record)),
            _ => self.connect_call(record),
        }
    }

    fn close(&mut self, record: &Record) -> Answer {
        let Some((kind, raw)) = self.objects.any(record.object) else {
            return self.leave_out(record, "the object is not there, or is closed");
        };
        self.objects.close(record.object);
        let closing = close(kind, raw).map(Answer::Request);
        closing.unwrap_or_else(|| self.leave_out(record, "such an object is not closed like this"))
    }

    fn adapter(&self, record: &Record) -> Option<*mut NDK_ADAPTER> {
        self.adapters.get(&record.adapter).copied()
    }

    fn on_adapter(&mut self, record: &Record) -> Made {
        let Some(adapter) = self.adapter(record) else { return Ok(self.leave_out(record, "there is no such adapter")) };
        Ok(match &record.arguments {
            Arguments::CreateCq { depth, has_notification, mask, group, .. } => {
                let function = function!(self, record, adapter, NdkCreateCq);
                let events = self.objects.new_events();
                self.expected.insert((record.adapter, record.call), events.clone());
                let mask = usize::try_from(*mask).unwrap_or(0);
                let affinity =
                    group.map(|group| GROUP_AFFINITY { Mask: mask, Group: group, ..GROUP_AFFINITY::default() });
                let place = affinity.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                let callback = has_notification.then_some(notified as _);
                Self::create(record, |completion, context, out| {
                    let own = Events::context(&events);
                    // SAFETY: an open adapter; callbacks whose contexts live as long as the replay; places that live until the
                    // call returns.
                    unsafe { function(adapter, *depth, callback, own, place, completion, context, out) }
                })
            }
            Arguments::BuildLam { base, length, mapping, size } => {
                let function = function!(self, record, adapter, NdkBuildLAM);
                let (mdl, _) = self.memory.buffer(*base, *length)?;
                let mut bytes = size.unwrap_or(0);
                let room = self.memory.mapping(record.adapter, *mapping, bytes, record.ordinal);
                self.building.insert((record.adapter, record.call), *mapping);
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                // The size and the first byte are stored before the call returns.
                let size = if size.is_some() { &raw mut bytes } else { std::ptr::null_mut() };
                let mut first_byte = 0;
                let first = &raw mut first_byte;
                Self::request(record, |completion, context| {
                    // SAFETY: an open adapter, a description that lives as long as the replay, room as large as is said for as
                    // long as the mapping is not released, and places that live until the call returns, which is when this provider
                    // stores them.
                    unsafe { function(adapter, mdl, length, completion, context, room, size, first) }
                })
            }
            Arguments::ReleaseLam { mapping, .. } => {
                let function = function!(self, record, adapter, NdkReleaseLAM);
                let Some(room) = self.memory.mapped_at(record.adapter, *mapping) else {
                    return Ok(self.leave_out(record, "nothing is mapped there"));
                };
                // SAFETY: an open adapter, and a mapping that was built and not released.
                unsafe { function(adapter, room) };
                self.memory.release(record.adapter, *mapping);
                Answer::Nothing
            }
            _ if record.function == Function::CreatePd => {
                let function = function!(self, record, adapter, NdkCreatePd);
                Self::create(record, |completion, context, out| {
                    // SAFETY: an open adapter, and a place that lives until the call returns.
                    unsafe { function(adapter, completion, context, out) }
                })
            }
            // Nothing that a replay compares: another provider says something else of itself. Adapters are closed at the end.
            _ => Answer::Nothing,
        })
    }

    fn on_pd(&mut self, record: &Record) -> Made {
        let pd = object!(self, record, record.object, NDK_PD);
        Ok(match &record.arguments {
            Arguments::CreateMr { fast_register } => {
                let function = function!(self, record, pd, NdkCreateMr);
                let fast = u8::from(*fast_register);
                Self::create(record, |completion, context, out| {
                    // SAFETY: an open domain, and a place that lives until the call returns.
                    unsafe { function(pd, fast, completion, context, out) }
                })
            }
            Arguments::CreateSrq { depth, max_sge, threshold, has_notification, .. } => {
                let function = function!(self, record, pd, NdkCreateSrq);
                let events = self.objects.new_events();
                self.expected.insert((record.adapter, record.call), events.clone());
                let callback = has_notification.then_some(notified as _);
                let none = std::ptr::null();
                Self::create(record, |completion, context, out| {
                    let own = Events::context(&events);
                    // SAFETY: an open domain; callbacks whose contexts live as long as the replay; a place that lives until the
                    // call returns.
                    unsafe { function(pd, *depth, *max_sge, *threshold, callback, own, none, completion, context, out) }
                })
            }
            Arguments::CreateQp(sizes) => return self.create_qp(record, pd, sizes),
            _ if record.function == Function::CreateMw => {
                let function = function!(self, record, pd, NdkCreateMw);
                Self::create(record, |completion, context, out| {
                    // SAFETY: an open domain, and a place that lives until the call returns.
                    unsafe { function(pd, completion, context, out) }
                })
            }
            _ => {
                let function = function!(self, record, pd, NdkGetPrivilegedMemoryRegionToken);
                let mut token = 0;
                // SAFETY: an open domain, and a place that lives until the call returns.
                unsafe { function(pd, &raw mut token) };
                Answer::Token(token)
            }
        })
    }

    fn create_qp(&mut self, record: &Record, pd: *mut NDK_PD, sizes: &QpSizes) -> Made {
        let receives = object!(self, record, record.related[0], NDK_CQ);
        let initiates = object!(self, record, record.related[1], NDK_CQ);
        let QpSizes { receive_depth, initiator_depth, receive_sge, initiator_sge, inline_data, .. } = *sizes;
        let own = context(sizes.context);
        if record.function == Function::CreateQpWithSrq {
            let srq = object!(self, record, record.related[2], NDK_SRQ);
            let function = function!(self, record, pd, NdkCreateQpWithSrq);
            return Ok(Self::create(record, |completion, context, out| {
                // SAFETY: open objects, and a place that lives until the call returns.
                unsafe {
                    function(
                        pd,
                        receives,
                        initiates,
                        srq,
                        own,
                        initiator_depth,
                        initiator_sge,
                        inline_data,
                        completion,
                        context,
                        out,
                    )
                }
            }));
        }
        let function = function!(self, record, pd, NdkCreateQp);
        Ok(Self::create(record, |completion, context, out| {
            // SAFETY: open objects, and a place that lives until the call returns.
            unsafe {
                function(
                    pd,
                    receives,
                    initiates,
                    own,
                    receive_depth,
                    initiator_depth,
                    receive_sge,
                    initiator_sge,
                    inline_data,
                    completion,
                    context,
                    out,
                )
            }
        }))
    }

    fn on_memory(&mut self, record: &Record) -> Made {
        if record.function == Function::GetRemoteTokenFromMw {
            let mw = object!(self, record, record.object, NDK_MW);
            let function = function!(self, record, mw, NdkGetRemoteTokenFromMw);
            // SAFETY: an open window.
            return Ok(Answer::Token(unsafe { function(mw) }));
        }
        let mr = object!(self, record, record.object, NDK_MR);
        Ok(match (record.function, &record.arguments) {
            (_, Arguments::RegisterMr { base, length, flags }) => {
                let function = function!(self, record, mr, NdkRegisterMr);
                let (mdl, delta) = self.memory.buffer(*base, *length)?;
                self.memory.set_delta(record.object, delta);
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                Self::request(record, |completion, context| {
                    // SAFETY: an open region, and a description and bytes that live as long as the replay.
                    unsafe { function(mr, mdl, length, *flags, completion, context) }
                })
            }
            (_, Arguments::InitializeFastRegisterMr { pages, remote_access }) => {
                let function = function!(self, record, mr, NdkInitializeFastRegisterMr);
                let (pages, remote) = (*pages, u8::from(*remote_access));
                Self::request(record, |completion, context| {
                    // SAFETY: an open region.
                    unsafe { function(mr, pages, remote, completion, context) }
                })
            }
            (Function::DeregisterMr, _) => {
                let function = function!(self, record, mr, NdkDeregisterMr);
                Self::request(record, |completion, context| {
                    // SAFETY: an open region.
                    unsafe { function(mr, completion, context) }
                })
            }
            (Function::GetRemoteTokenFromMr, _) => {
                let function = function!(self, record, mr, NdkGetRemoteTokenFromMr);
                // SAFETY: an open region.
                Answer::Token(unsafe { function(mr) })
            }
            _ => {
                let function = function!(self, record, mr, NdkGetLocalTokenFromMr);
                // SAFETY: an open region.
                Answer::Token(unsafe { function(mr) })
            }
        })
    }

    fn on_cq(&mut self, record: &Record) -> Made {
        let cq = object!(self, record, record.object, NDK_CQ);
        Ok(match &record.arguments {
            Arguments::ResizeCq { depth } => {
                let function = function!(self, record, cq, NdkResizeCq);
                Self::request(record, |completion, context| {
                    // SAFETY: an open queue.
                    unsafe { function(cq, *depth, completion, context) }
                })
            }
            Arguments::ArmCq { kind } => {
                let function = function!(self, record, cq, NdkArmCq);
                // SAFETY: an open queue, on which no other call runs.
                unsafe { function(cq, *kind) };
                Answer::Nothing
            }
            Arguments::Moderation { interval, count } => {
                let function = function!(self, record, cq, NdkControlCqInterruptModeration);
                // SAFETY: an open queue.
                Answer::Status(unsafe { function(cq, *interval, *count) })
            }
            // Completions are taken when the poll has returned: then it is known how many.
            _ => Answer::Nothing,
        })
    }

    /// A token was recorded: it is this one here.
    pub fn token(&mut self, record: &Record, here: u32) {
        let Outcome::Token(recorded) = record.outcome else { return };
        if record.function == Function::GetPrivilegedMemoryRegionToken {
            self.memory.learn_privileged(record.adapter, recorded, here);
        } else {
            self.memory.learn(record.adapter, recorded, here, record.object);
        }
        if (recorded == 0) != (here == 0) {
            self.differ(record, format!("recorded the token {recorded:#x}, here {here:#x}"));
        }
    }

    /// A mapping was built in the recording, and here.
    pub fn mapped(&mut self, record: &Record) {
        if let Some(mapping) = self.building.remove(&(record.adapter, record.call)) {
            self.memory.mapped(record.adapter, mapping);
        }
    }
}
