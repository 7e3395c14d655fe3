//! The arguments of a call, as they were recorded.

use interpose::Function;
use ndkpi::{GUID, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION, NtStatus};
use recorder::format::{HAS_ELEMENT, tag};

use crate::Outcome;

/// A scatter/gather element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Virtual or logical, by the token.
    pub address: u64,
    /// In bytes.
    pub length: u32,
    /// The token.
    pub token: u32,
}

/// A completion that a poll has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How the request ended.
    pub status: NtStatus,
    /// Bytes of a receive.
    pub bytes: u32,
    /// The context of the queue pair.
    pub qp_context: u64,
    /// The context of the request.
    pub request_context: u64,
    /// Its type (`NDKPI 2.2`); 0 if the poll did not ask for it.
    pub kind: u32,
    /// The provider's error code.
    pub error: u32,
    /// What the type of the request adds.
    pub output: u64,
}

impl Completion {
    /// Returns true for a receive, as far as the type is known.
    #[must_use]
    pub const fn is_receive(&self) -> bool {
        self.kind & 1 == 1
    }
}

/// Bytes of which some may not be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// How many there were.
    pub length: u64,
    /// Those that are kept.
    pub bytes: Vec<u8>,
}

/// A buffer with an in/out length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutBytes {
    /// Where it was; 0: nowhere.
    pub buffer: u64,
    /// The length, if there was one.
    pub length: Option<u32>,
    /// What the provider has stored.
    pub stored: Private,
}

/// What a queue pair was created with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's parameters")]
pub struct QpSizes {
    pub context: u64,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sge: u32,
    pub initiator_sge: u32,
    pub inline_data: u32,
}

/// What a connect, an accept, a reject or a completion of a connect carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's parameters")]
pub struct Connect {
    pub inbound_reads: u32,
    pub outbound_reads: u32,
    pub private_data_length: u32,
    pub has_disconnect_event: bool,
    pub local: Private,
    pub remote: Private,
    pub private_data: Private,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's parameters, as in the crate interpose")]
pub enum Arguments {
    None,
    QueryExtension { id: GUID, version: NDK_VERSION },
    QueryAdapterInfo { out: OutBytes, info: Option<Box<NDK_ADAPTER_INFO>> },
    CreateCq { depth: u32, has_notification: bool, context: u64, mask: u64, group: Option<u16> },
    CreateSharedEndpoint { address: Private },
    CreateListener { has_event: bool, context: u64 },
    BuildLam { base: u64, length: u64, mapping: u64, size: Option<u32> },
    ReleaseLam { mapping: u64, pages: Vec<u64> },
    ResizeCq { depth: u32 },
    ArmCq { kind: u32 },
    GetCqResults { room: u32, extended: bool, results: Vec<Completion> },
    Moderation { interval: u32, count: u32 },
    Transfer { context: u64, remote_address: u64, remote_token: u32, flags: u32, given: u32, elements: Vec<Element> },
    Bind { context: u64, address: u64, length: u64, flags: u32 },
    FastRegister { context: u64, first_byte: u32, flags: u32, length: u64, base: u64, given: u32, pages: Vec<u64> },
    Invalidate { context: u64, flags: u32 },
    ModifySrq { depth: u32, threshold: u32 },
    CreateMr { fast_register: bool },
    CreateSrq { depth: u32, max_sge: u32, threshold: u32, has_notification: bool, context: u64 },
    CreateQp(QpSizes),
    RegisterMr { base: u64, length: u64, flags: u32 },
    InitializeFastRegisterMr { pages: u32, remote_access: bool },
    Address { out: OutBytes },
    Connect(Connect),
    GetConnectionData { inbound: Option<u32>, outbound: Option<u32>, out: OutBytes },
    Listen { address: Private },
    ControlConnectEvents { pause: bool },
    Event { context: u64, reason: u32 },
}

/// A number that a consumer may have left out.
struct Maybe(Option<u32>);

/// Takes words, as long as there are some.
struct Words<'w>(&'w [u64]);

impl Words<'_> {
    fn one(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn two(&mut self) -> Option<(u32, u32)> {
        self.one().map(|word| (low(word), low(word >> 32)))
    }

    fn number(&mut self) -> Option<u32> {
        self.two().map(|(low, _)| low)
    }

    fn flag(&mut self) -> Option<bool> {
        self.one().map(|word| word != 0)
    }

    /// A number that may not have been there; `None` if there is no word for it.
    fn optional(&mut self) -> Option<Maybe> {
        self.two().map(|(value, there)| Maybe((there != 0).then_some(value)))
    }

    fn bytes(&mut self) -> Option<Private> {
        let length = self.one()?;
        let kept = usize::try_from(length).unwrap_or(usize::MAX).min(recorder::format::MOST_BYTES);
        let words = (0..kept.div_ceil(8)).map(|_| self.one()).collect::<Option<Vec<_>>>()?;
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.truncate(kept);
        Some(Private { length, bytes })
    }

    fn out(&mut self, has_bytes: bool) -> Option<OutBytes> {
        let (buffer, length) = (self.one()?, self.optional()?.0);
        let stored = if has_bytes { self.bytes()? } else { Private::default() };
        Some(OutBytes { buffer, length, stored })
    }

    /// The given number and those that are kept.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<(u32, Vec<T>)> {
        let (given, kept) = self.two()?;
        // However many it says: no more than there are words for.
        let kept = (kept as usize).min(self.0.len());
        let elements = (0..kept).map(|_| element(self)).collect::<Option<Vec<_>>>()?;
        Some((given, elements))
    }

    fn pages(&mut self) -> Option<(u32, Vec<u64>)> {
        self.list(Self::one)
    }

    fn element(&mut self) -> Option<Element> {
        let address = self.one()?;
        let (length, token) = self.two()?;
        Some(Element { address, length, token })
    }

    fn taken(&mut self) -> Option<Completion> {
        let (status, bytes) = self.two()?;
        let (qp_context, request_context) = (self.one()?, self.one()?);
        let (kind, error) = self.two()?;
        let output = self.one()?;
        let status = NtStatus(status.cast_signed());
        Some(Completion { status, bytes, qp_context, request_context, kind, error, output })
    }

    fn info(&mut self) -> Option<Box<NDK_ADAPTER_INFO>> {
        let mut info = NDK_ADAPTER_INFO::default();
        let version;
        (version, info.VendorId) = self.two()?;
        info.Version = NDK_VERSION::new(half(version >> 16), half(version));
        (info.DeviceId, info.FRMRPageCount) = self.two()?;
        info.MaxRegistrationSize = usize::try_from(self.one()?).unwrap_or(usize::MAX);
        info.MaxWindowSize = usize::try_from(self.one()?).unwrap_or(usize::MAX);
        (info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge) = self.two()?;
        (info.MaxReadRequestSge, info.MaxTransferLength) = self.two()?;
        (info.MaxInlineDataSize, info.MaxInboundReadLimit) = self.two()?;
        (info.MaxOutboundReadLimit, info.MaxReceiveQueueDepth) = self.two()?;
        (info.MaxInitiatorQueueDepth, info.MaxSrqDepth) = self.two()?;
        (info.MaxCqDepth, info.LargeRequestThreshold) = self.two()?;
        (info.MaxCallerData, info.MaxCalleeData) = self.two()?;
        let technology;
        (info.AdapterFlags, technology) = self.two()?;
        info.RdmaTechnology = NDK_RDMA_TECHNOLOGY(technology.cast_signed());
        Some(Box::new(info))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of a word")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of a number")]
const fn half(number: u32) -> u16 {
    number as u16
}

impl Arguments {
    /// Reads the arguments of a short record: the words and extra bits of its first slot, and the words behind it. `None` if there are too
    /// few words, or no such kind.
    pub(crate) fn read_short(
        kind: u8,
        function: Function,
        outcome: Outcome,
        ([first, second, third], extra): ([u64; 3], u16),
        words: &[u64],
    ) -> Option<Self> {
        Some(match kind {
            tag::SHORT_TRANSFER => {
                let mut words = Words(words);
                let (remote_address, remote_token) = (words.one().unwrap_or(0), words.number().unwrap_or(0));
                let element = Element { address: second, length: low(third), token: low(third >> 32) };
                let has_element = extra & HAS_ELEMENT != 0;
                Self::Transfer {
                    context: first,
                    remote_address,
                    remote_token,
                    flags: (extra & !HAS_ELEMENT).into(),
                    given: has_element.into(),
                    elements: if has_element { vec![element] } else { Vec::new() },
                }
            }
            tag::SHORT_POLL => {
                let Outcome::Count(count) = outcome else { return None };
                let words = [&[second, third], words].concat();
                // However many it says: no more than there are words for.
                let results = words.as_chunks().0.get(..count as usize)?;
                let taken = |&[request_context, more]: &[u64; 2]| Completion {
                    status: NtStatus::SUCCESS,
                    bytes: low(more),
                    qp_context: first,
                    request_context,
                    kind: low(more >> 32),
                    error: 0,
                    output: 0,
                };
                let extended = function == Function::GetCqResultsEx;
                Self::GetCqResults { room: extra.into(), extended, results: results.iter().map(taken).collect() }
            }
            tag::SHORT_ARM => Self::ArmCq { kind: low(first) },
            _ => return None,
        })
    }

    /// Reads the arguments of this kind; `None` if there are too few words, or no such kind.
    pub(crate) fn read(kind: u8, words: &[u64]) -> Option<Self> {
        let mut words = Words(words);
        let words = &mut words;
        Some(match kind {
            tag::NONE => Self::None,
            tag::QUERY_EXTENSION => {
                let ((first, second), fourth, (major, minor)) = (words.two()?, words.one()?, words.two()?);
                let id =
                    GUID { Data1: first, Data2: half(second >> 16), Data3: half(second), Data4: fourth.to_le_bytes() };
                Self::QueryExtension { id, version: NDK_VERSION::new(half(major), half(minor)) }
            }
            tag::QUERY_ADAPTER_INFO => {
                let (out, there) = (words.out(false)?, words.flag()?);
                Self::QueryAdapterInfo { out, info: if there { Some(words.info()?) } else { None } }
            }
            tag::CREATE_CQ => {
                let ((depth, notifies), context, mask) = (words.two()?, words.one()?, words.one()?);
                let group = words.optional()?.0.map(half);
                Self::CreateCq { depth, has_notification: notifies != 0, context, mask, group }
            }
            tag::CREATE_SHARED_ENDPOINT => Self::CreateSharedEndpoint { address: words.bytes()? },
            tag::CREATE_LISTENER => Self::CreateListener { has_event: words.flag()?, context: words.one()? },
            tag::BUILD_LAM => Self::BuildLam {
                base: words.one()?,
                length: words.one()?,
                mapping: words.one()?,
                size: words.optional()?.0,
            },
            tag::RELEASE_LAM => Self::ReleaseLam { mapping: words.one()?, pages: words.pages()?.1 },
            tag::RESIZE_CQ => Self::ResizeCq { depth: words.number()? },
            tag::ARM_CQ => Self::ArmCq { kind: words.number()? },
            tag::GET_CQ_RESULTS | tag::GET_CQ_RESULTS_EX => {
                let (room, results) = words.list(Words::taken)?;
                Self::GetCqResults { room, extended: kind == tag::GET_CQ_RESULTS_EX, results }
            }
            tag::MODERATION => {
                let (interval, count) = words.two()?;
                Self::Moderation { interval, count }
            }
            _ => return Self::read_request(kind, words),
        })
    }

    fn read_request(kind: u8, words: &mut Words<'_>) -> Option<Self> {
        Some(match kind {
            tag::TRANSFER => {
                let (context, remote_address, (remote_token, flags)) = (words.one()?, words.one()?, words.two()?);
                let (given, elements) = words.list(Words::element)?;
                Self::Transfer { context, remote_address, remote_token, flags, given, elements }
            }
            tag::BIND => Self::Bind {
                context: words.one()?,
                address: words.one()?,
                length: words.one()?,
                flags: words.number()?,
            },
            tag::FAST_REGISTER => {
                let (context, (first_byte, flags)) = (words.one()?, words.two()?);
                let (length, base, (given, pages)) = (words.one()?, words.one()?, words.pages()?);
                Self::FastRegister { context, first_byte, flags, length, base, given, pages }
            }
            tag::INVALIDATE => Self::Invalidate { context: words.one()?, flags: words.number()? },
            tag::MODIFY_SRQ => {
                let (depth, threshold) = words.two()?;
                Self::ModifySrq { depth, threshold }
            }
            tag::CREATE_MR => Self::CreateMr { fast_register: words.flag()? },
            tag::CREATE_SRQ => {
                let ((depth, max_sge), (threshold, notifies)) = (words.two()?, words.two()?);
                let context = words.one()?;
                Self::CreateSrq { depth, max_sge, threshold, has_notification: notifies != 0, context }
            }
            tag::CREATE_QP => {
                let context = words.one()?;
                let ((receive_depth, initiator_depth), (receive_sge, initiator_sge)) = (words.two()?, words.two()?);
                let inline_data = words.number()?;
                Self::CreateQp(QpSizes {
                    context,
                    receive_depth,
                    initiator_depth,
                    receive_sge,
                    initiator_sge,
                    inline_data,
                })
            }
            tag::REGISTER_MR => Self::RegisterMr { base: words.one()?, length: words.one()?, flags: words.number()? },
            tag::INITIALIZE_FAST_REGISTER_MR => {
                let (pages, remote) = words.two()?;
                Self::InitializeFastRegisterMr { pages, remote_access: remote != 0 }
            }
            tag::ADDRESS => Self::Address { out: words.out(true)? },
            tag::CONNECT => {
                let (inbound_reads, outbound_reads) = words.two()?;
                let (private_data_length, told) = words.two()?;
                let (local, remote, private_data) = (words.bytes()?, words.bytes()?, words.bytes()?);
                let has_disconnect_event = told != 0;
                Self::Connect(Connect {
                    inbound_reads,
                    outbound_reads,
                    private_data_length,
                    has_disconnect_event,
                    local,
                    remote,
                    private_data,
                })
            }
            tag::GET_CONNECTION_DATA => Self::GetConnectionData {
                inbound: words.optional()?.0,
                outbound: words.optional()?.0,
                out: words.out(true)?,
            },
            tag::LISTEN => Self::Listen { address: words.bytes()? },
            tag::CONTROL_CONNECT_EVENTS => Self::ControlConnectEvents { pause: words.flag()? },
            tag::EVENT => Self::Event { context: words.one()?, reason: words.number()? },
            _ => return None,
        })
    }
}
