//! Posting requests to a queue pair.
//!
//! The flags are not those of NDKPI (`NDSPI 5`): they are translated here.

use core::{ffi::c_void, slice};

use engine::{
    memory::{Bind, Rights},
    qp::{Flags, Payload, Qp, Sge, Work},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Engine, OverlappedOs,
    abi::{
        ND2_SGE,
        op_flags::{
            ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE,
            ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_SILENT_SUCCESS,
        },
    },
    adapter::AdapterCore,
    back_end::{self, Transfer},
    mr::MemoryRegion,
    mw::MemoryWindow,
    qp::QueuePair,
};

/// The engine's form of an SGE.
pub fn element(entry: &ND2_SGE) -> Sge {
    Sge { address: entry.Buffer.addr() as u64, length: entry.BufferLength, token: entry.MemoryRegionToken }
}

/// The bytes that an entry of an inline request names.
///
/// # Safety
///
/// The entry's address is valid for reading its length until the client's call returns.
const unsafe fn inline_bytes(entry: &ND2_SGE) -> &[u8] {
    if entry.Buffer.is_null() || entry.BufferLength == 0 {
        return &[];
    }
    // SAFETY: the address is not null and valid for reading (`# Safety`).
    unsafe { slice::from_raw_parts(entry.Buffer.cast_const().cast::<u8>(), entry.BufferLength as usize) }
}

fn flags_of(flags: u32) -> Flags {
    [
        (ND_OP_FLAG_SILENT_SUCCESS, Flags::SILENT_SUCCESS),
        (ND_OP_FLAG_READ_FENCE, Flags::READ_FENCE),
        (ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, Flags::SOLICIT),
    ]
    .into_iter()
    .filter_map(|(bit, flag)| (flags & bit != 0).then_some(flag))
    .collect()
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for QueuePair<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        self.adapter()
    }
}

impl<P: OverlappedOs> back_end::QueuePair<Engine<P>> for QueuePair<P> {
    fn flush(&self) -> Result<(), NtStatus> {
        self.flush();
        Ok(())
    }

    unsafe fn initiate(
        &self,
        context: *mut c_void,
        transfer: Transfer,
        list: &[ND2_SGE],
        flags: u32,
    ) -> Result<(), NtStatus> {
        let work = match transfer {
            Transfer::Send { invalidate } => Work::Send { invalidate },
            Transfer::Write { address, token } => Work::Write { address, token },
            Transfer::Read { address, token } => {
                if list.len() > self.adapter().device().config().info.MaxReadSge as usize {
                    return Err(NtStatus::DATA_OVERRUN);
                }
                Work::Read { address, token }
            }
        };
        let (context, how) = (context.expose_provenance(), flags_of(flags));
        let payload = if flags & ND_OP_FLAG_INLINE == 0 {
            Payload::Elements(list.iter().map(element))
        } else {
            Payload::Inline(list.iter().map(|entry| {
                // SAFETY: for an inline request the bytes are valid for reading (`# Safety` of the trait).
                unsafe { inline_bytes(entry) }
            }))
        };
        self.initiate(|qp, queue| Qp::post(qp, context, work, how, payload, queue))
    }

    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus> {
        let context = context.expose_provenance();
        self.receive(|qp, queue| Qp::post_receive(qp, context, list.iter().map(element), queue))
    }

    fn bind(
        &self,
        context: *mut c_void,
        region: &MemoryRegion<P>,
        window: &MemoryWindow<P>,
        (address, length): (u64, u64),
        flags: u32,
    ) -> Result<(), NtStatus> {
        let read = if flags & ND_OP_FLAG_ALLOW_READ == 0 { Rights::LOCAL_READ } else { Rights::REMOTE_READ };
        let write = if flags & ND_OP_FLAG_ALLOW_WRITE == 0 { Rights::LOCAL_READ } else { Rights::REMOTE_WRITE };
        let what = Bind { address, length, rights: read | write };
        let domain = self.adapter().domain();
        let work = || match domain.prepare_bind(window.window(), region.region(), &what) {
            // It is not registered: memory that is not valid.
            Err(NtStatus::INVALID_DEVICE_STATE) => Err(NtStatus::ACCESS_VIOLATION),
            prepared => prepared.map(Work::Bind),
        };
        let context = context.expose_provenance();
        self.initiate(|qp, queue| Qp::post_local(qp, context, flags_of(flags), work, queue))
    }

    fn invalidate(&self, context: *mut c_void, window: &MemoryWindow<P>, flags: u32) -> Result<(), NtStatus> {
        let work = Work::Invalidate { token: window.window().invalidation_token() };
        let context = context.expose_provenance();
        self.initiate(|qp, queue| Qp::post_local(qp, context, flags_of(flags), || Ok(work), queue))
    }
}
