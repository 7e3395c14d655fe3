//! The words of a record.

use interpose::{Args, ConnectArgs, List, OutArgs, QpArgs};
use ndkpi::{NDK_ADAPTER_INFO, NDK_LOGICAL_ADDRESS, NDK_RESULT, NDK_RESULT_EX, NDK_SGE};

use crate::{
    format::{MOST_BYTES, MOST_ELEMENTS, MOST_PAGES, MOST_RESULTS, tag},
    ring::Writer,
};

/// Takes words: to count them, or to write them.
pub trait Sink {
    /// The next word.
    fn put(&mut self, value: u64);
}

/// Counts words.
#[derive(Default)]
struct Count(usize);

impl Sink for Count {
    #[inline]
    fn put(&mut self, _: u64) {
        self.0 += 1;
    }
}

impl Sink for Writer<'_> {
    #[inline]
    fn put(&mut self, value: u64) {
        Writer::put(self, value);
    }
}

const fn two(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// A number that may not be there: bit 32 says that it is.
const fn optional(value: Option<u32>) -> u64 {
    match value {
        Some(value) => two(value, 1),
        None => 0,
    }
}

/// The number of bytes that there are, and as many as are kept.
fn bytes(sink: &mut impl Sink, bytes: &[u8]) {
    sink.put(bytes.len() as u64);
    for chunk in bytes[..bytes.len().min(MOST_BYTES)].chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sink.put(u64::from_le_bytes(word));
    }
}

fn out(sink: &mut impl Sink, out: OutArgs) {
    sink.put(out.buffer as u64);
    sink.put(optional(out.length));
}

/// The number that the consumer gave, how many are kept, and those.
fn elements(sink: &mut impl Sink, list: &List<'_, NDK_SGE>) {
    let kept = &list.elements()[..list.elements().len().min(MOST_ELEMENTS)];
    sink.put(count(list.count(), kept.len()));
    for element in kept {
        sink.put(element.logical_address().to_bits());
        sink.put(two(element.Length, element.MemoryRegionToken));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "how many are kept has a limit far below")]
const fn count(given: u32, kept: usize) -> u64 {
    two(given, kept as u32)
}

/// How many there are, how many are kept, and those.
fn pages(sink: &mut impl Sink, given: u32, pages: &[NDK_LOGICAL_ADDRESS]) {
    let kept = &pages[..pages.len().min(MOST_PAGES)];
    sink.put(count(given, kept.len()));
    for page in kept {
        sink.put(page.to_bits());
    }
}

fn results<T>(sink: &mut impl Sink, room: u32, results: &[T], fields: impl Fn(&T) -> [u64; 5]) {
    let kept = &results[..results.len().min(MOST_RESULTS)];
    sink.put(count(room, kept.len()));
    kept.iter().flat_map(fields).for_each(|word| sink.put(word));
}

fn result(result: &NDK_RESULT) -> [u64; 5] {
    let NDK_RESULT { Status, BytesTransferred, QPContext, RequestContext } = *result;
    [two(Status.0.cast_unsigned(), BytesTransferred), QPContext.addr() as u64, RequestContext.addr() as u64, 0, 0]
}

fn result_ex(result: &NDK_RESULT_EX) -> [u64; 5] {
    let NDK_RESULT_EX {
        Status,
        BytesTransferred,
        QPContext,
        RequestContext,
        Type,
        ProviderErrorCode,
        TypeSpecificCompletionOutput,
    } = *result;
    [
        two(Status.0.cast_unsigned(), BytesTransferred),
        QPContext.addr() as u64,
        RequestContext.addr() as u64,
        two(Type.0.cast_unsigned(), ProviderErrorCode),
        TypeSpecificCompletionOutput as u64,
    ]
}

fn adapter_info(sink: &mut impl Sink, info: &NDK_ADAPTER_INFO) {
    sink.put(two(u32::from(info.Version.Major) << 16 | u32::from(info.Version.Minor), info.VendorId));
    sink.put(two(info.DeviceId, info.FRMRPageCount));
    sink.put(info.MaxRegistrationSize as u64);
    sink.put(info.MaxWindowSize as u64);
    sink.put(two(info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge));
    sink.put(two(info.MaxReadRequestSge, info.MaxTransferLength));
    sink.put(two(info.MaxInlineDataSize, info.MaxInboundReadLimit));
    sink.put(two(info.MaxOutboundReadLimit, info.MaxReceiveQueueDepth));
    sink.put(two(info.MaxInitiatorQueueDepth, info.MaxSrqDepth));
    sink.put(two(info.MaxCqDepth, info.LargeRequestThreshold));
    sink.put(two(info.MaxCallerData, info.MaxCalleeData));
    sink.put(two(info.AdapterFlags, info.RdmaTechnology.0.cast_unsigned()));
}

fn connect(sink: &mut impl Sink, args: &ConnectArgs<'_>) {
    sink.put(two(args.inbound_reads, args.outbound_reads));
    sink.put(two(args.private_data_length, args.has_disconnect_event.into()));
    bytes(sink, args.local);
    bytes(sink, args.remote);
    bytes(sink, args.private_data);
}

fn qp(sink: &mut impl Sink, args: &QpArgs) {
    sink.put(args.context as u64);
    sink.put(two(args.receive_depth, args.initiator_depth));
    sink.put(two(args.receive_sge, args.initiator_sge));
    sink.put(args.inline_data.into());
}

/// What the arguments point to.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The address of the buffer that an MDL describes.
    pub base: u64,
    /// The pages of a mapping.
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    /// What the provider has stored in a buffer.
    pub bytes: &'a [u8],
}

/// Which arguments these are, and how many words [`encode`] gives of them.
pub fn length(args: &Args<'_>, beside: &Beside<'_>) -> (u8, usize) {
    let mut words = Count::default();
    (encode(args, beside, &mut words), words.0)
}

/// Gives the words of the arguments to `sink`. Returns which arguments they are.
pub fn encode(args: &Args<'_>, beside: &Beside<'_>, sink: &mut impl Sink) -> u8 {
    match *args {
        Args::None => return tag::NONE,
        Args::QueryExtension { id, version } => {
            let id = id.unwrap_or_default();
            sink.put(two(id.Data1, u32::from(id.Data2) << 16 | u32::from(id.Data3)));
            sink.put(u64::from_le_bytes(id.Data4));
            sink.put(two(version.Major.into(), version.Minor.into()));
            return tag::QUERY_EXTENSION;
        }
        Args::QueryAdapterInfo { out: given, info } => {
            out(sink, given);
            sink.put(info.is_some().into());
            if let Some(info) = info {
                adapter_info(sink, info);
            }
            return tag::QUERY_ADAPTER_INFO;
        }
        Args::Connect(ref args) => {
            connect(sink, args);
            return tag::CONNECT;
        }
        Args::CreateQp(ref args) => {
            qp(sink, args);
            return tag::CREATE_QP;
        }
        _ => {}
    }
    encode_more(args, beside, sink)
}

fn encode_more(args: &Args<'_>, beside: &Beside<'_>, sink: &mut impl Sink) -> u8 {
    match *args {
        Args::CreateCq { depth, has_notification, context, affinity, .. } => {
            sink.put(two(depth, has_notification.into()));
            sink.put(context as u64);
            sink.put(affinity.map_or(0, |affinity| affinity.Mask as u64));
            sink.put(optional(affinity.map(|affinity| affinity.Group.into())));
            tag::CREATE_CQ
        }
        Args::CreateSharedEndpoint { address } => {
            bytes(sink, address);
            tag::CREATE_SHARED_ENDPOINT
        }
        Args::CreateListener { has_event, context } => {
            sink.put(has_event.into());
            sink.put(context as u64);
            tag::CREATE_LISTENER
        }
        Args::BuildLam { length, mapping, size, .. } => {
            sink.put(beside.base);
            sink.put(length as u64);
            sink.put(mapping as u64);
            sink.put(optional(size));
            tag::BUILD_LAM
        }
        Args::ReleaseLam { mapping, .. } => {
            sink.put(mapping as u64);
            let given = u32::try_from(beside.pages.len()).unwrap_or(u32::MAX);
            pages(sink, given, beside.pages);
            tag::RELEASE_LAM
        }
        Args::ResizeCq { depth } => {
            sink.put(depth.into());
            tag::RESIZE_CQ
        }
        Args::ArmCq { kind } => {
            sink.put(kind.into());
            tag::ARM_CQ
        }
        Args::GetCqResults { room, results: list } => {
            results(sink, room, list, result);
            tag::GET_CQ_RESULTS
        }
        Args::GetCqResultsEx { room, results: list } => {
            results(sink, room, list, result_ex);
            tag::GET_CQ_RESULTS_EX
        }
        Args::Moderation { interval, count } => {
            sink.put(two(interval, count));
            tag::MODERATION
        }
        Args::Transfer { context, ref sgl, flags, remote_address, remote_token } => {
            sink.put(context as u64);
            sink.put(remote_address);
            sink.put(two(remote_token, flags));
            elements(sink, sgl);
            tag::TRANSFER
        }
        Args::Bind { context, address, length, flags } => {
            sink.put(context as u64);
            sink.put(address as u64);
            sink.put(length as u64);
            sink.put(flags.into());
            tag::BIND
        }
        Args::FastRegister { context, pages: ref list, first_byte, length, base: address, flags } => {
            sink.put(context as u64);
            sink.put(two(first_byte, flags));
            sink.put(length as u64);
            sink.put(address as u64);
            pages(sink, list.count(), list.elements());
            tag::FAST_REGISTER
        }
        Args::Invalidate { context, flags } => {
            sink.put(context as u64);
            sink.put(flags.into());
            tag::INVALIDATE
        }
        _ => encode_rest(args, beside, sink),
    }
}

fn encode_rest(args: &Args<'_>, beside: &Beside<'_>, sink: &mut impl Sink) -> u8 {
    match *args {
        Args::ModifySrq { depth, threshold } => {
            sink.put(two(depth, threshold));
            tag::MODIFY_SRQ
        }
        Args::CreateMr { fast_register } => {
            sink.put(fast_register.into());
            tag::CREATE_MR
        }
        Args::CreateSrq { depth, max_sge, threshold, has_notification, context } => {
            sink.put(two(depth, max_sge));
            sink.put(two(threshold, has_notification.into()));
            sink.put(context as u64);
            tag::CREATE_SRQ
        }
        Args::RegisterMr { length, flags, .. } => {
            sink.put(beside.base);
            sink.put(length as u64);
            sink.put(flags.into());
            tag::REGISTER_MR
        }
        Args::InitializeFastRegisterMr { pages, remote_access } => {
            sink.put(two(pages, remote_access.into()));
            tag::INITIALIZE_FAST_REGISTER_MR
        }
        Args::Address { out: given } => {
            out(sink, given);
            bytes(sink, beside.bytes);
            tag::ADDRESS
        }
        Args::GetConnectionData { inbound, outbound, out: given } => {
            sink.put(optional(inbound));
            sink.put(optional(outbound));
            out(sink, given);
            bytes(sink, beside.bytes);
            tag::GET_CONNECTION_DATA
        }
        Args::Listen { address } => {
            bytes(sink, address);
            tag::LISTEN
        }
        Args::ControlConnectEvents { pause } => {
            sink.put(pause.into());
            tag::CONTROL_CONNECT_EVENTS
        }
        Args::Event { context, reason } => {
            sink.put(context as u64);
            sink.put(reason.into());
            tag::EVENT
        }
        _ => tag::NONE,
    }
}
