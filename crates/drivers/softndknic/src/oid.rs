//! OID requests: the mandatory ones of a NIC, and the four of NDK. None of them pends, so there is nothing to cancel.

mod answer;
mod ndk;
mod statistics;

use core::slice;

use cable::MacAddress;
use fallible::Arc;
use kernel::wdf::size;
use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_INTERRUPT_MODERATION, NDIS_INTERRUPT_MODERATION_PARAMETERS,
    NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1, NDIS_LINK_PARAMETERS, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE,
    NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1, NDIS_STATUS, NDIS_STATUS_INVALID_DATA,
    NDIS_STATUS_MULTICAST_FULL, OID_802_3_CURRENT_ADDRESS, OID_802_3_MAXIMUM_LIST_SIZE, OID_802_3_MULTICAST_LIST,
    OID_802_3_PERMANENT_ADDRESS, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION, OID_GEN_LINK_PARAMETERS, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RCV_ERROR,
    OID_GEN_RCV_NO_BUFFER, OID_GEN_RCV_OK, OID_GEN_RECEIVE_BLOCK_SIZE, OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_STATISTICS, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_TRANSMIT_BUFFER_SPACE, OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION, OID_GEN_VENDOR_ID, OID_GEN_XMIT_ERROR, OID_GEN_XMIT_OK, OID_PNP_QUERY_POWER,
    OID_PNP_SET_POWER,
};
use ndkpi::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    status::{NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_NOT_SUPPORTED},
};

pub use self::statistics::STATISTICS;
use self::{answer::Answer, statistics::Totals};
use crate::{
    adapter::{Adapter, mac_of},
    filter::{self, MAX_MULTICAST},
    ndk::Ndk,
    receive::BUFFERS,
};

/// The OIDs that an adapter answers.
pub static SUPPORTED: [u32; 30] = [
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_RCV_OK,
    OID_GEN_XMIT_OK,
    OID_GEN_RCV_ERROR,
    OID_GEN_XMIT_ERROR,
    OID_GEN_RCV_NO_BUFFER,
    OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_TRANSMIT_BLOCK_SIZE,
    OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_STATISTICS,
    OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION,
    OID_GEN_VENDOR_ID,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_LINK_PARAMETERS,
    ndis::OID_GEN_SUPPORTED_LIST,
    ndis::OID_GEN_HARDWARE_STATUS,
    OID_802_3_PERMANENT_ADDRESS,
    OID_802_3_CURRENT_ADDRESS,
    OID_802_3_MULTICAST_LIST,
    OID_802_3_MAXIMUM_LIST_SIZE,
    OID_PNP_SET_POWER,
    OID_PNP_QUERY_POWER,
    OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    OID_NDK_CONNECTIONS,
    OID_NDK_LOCAL_ENDPOINTS,
];

/// What the vendor says of the adapter.
const DESCRIPTION: &[u8] = b"SoftNDK virtual NIC with RDMA\0";

/// No vendor's: the three bytes of one that has no address block, and a zero.
const VENDOR_ID: u32 = 0x00FF_FFFF;

/// Which handler a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// One at a time, at `PASSIVE_LEVEL`.
    Regular,
    /// Beside others, at `DISPATCH_LEVEL` or below.
    Direct,
}

/// Answers a request.
pub fn serve(adapter: &Arc<Adapter>, request: &mut NDIS_OID_REQUEST, path: Path) -> NDIS_STATUS {
    match request.RequestType {
        NDIS_REQUEST_TYPE::QUERY_INFORMATION | NDIS_REQUEST_TYPE::QUERY_STATISTICS => {
            // SAFETY: the type says which arm it is; every value of its fields is one.
            let query = unsafe { &mut request.DATA.QUERY_INFORMATION };
            let oid = query.Oid;
            // SAFETY: NDIS's buffer has as many bytes as it says.
            let mut answer = unsafe { Answer::new(query) };
            if path == Path::Direct && oid != OID_NDK_STATISTICS {
                return NDIS_STATUS_NOT_SUPPORTED;
            }
            query_value(adapter, oid, &mut answer)
        }
        NDIS_REQUEST_TYPE::SET_INFORMATION if path == Path::Regular => {
            // SAFETY: the type says which arm it is; every value of its fields is one.
            let set = unsafe { &mut request.DATA.SET_INFORMATION };
            let length = if set.InformationBuffer.is_null() { 0 } else { set.InformationBufferLength as usize };
            let bytes = if length == 0 {
                &[]
            } else {
                // SAFETY: not null, and NDIS's buffer has as many bytes as it says.
                unsafe { slice::from_raw_parts(set.InformationBuffer.cast_const().cast::<u8>(), length) }
            };
            match set_value(adapter, set.Oid, bytes) {
                Ok(read) => {
                    set.BytesRead = read;
                    NDIS_STATUS::SUCCESS
                }
                Err(Refused::Length(needed)) => {
                    set.BytesNeeded = needed;
                    NDIS_STATUS_INVALID_LENGTH
                }
                Err(Refused::Status(status)) => status,
            }
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

fn query_value(adapter: &Adapter, oid: u32, answer: &mut Answer<'_>) -> NDIS_STATUS {
    let frame = adapter.keywords().frame;
    match oid {
        ndis::OID_GEN_SUPPORTED_LIST => answer.values(&SUPPORTED),
        // Ready, which is zero.
        ndis::OID_GEN_HARDWARE_STATUS => answer.number(0),
        OID_GEN_MAXIMUM_TOTAL_SIZE
        | OID_GEN_RECEIVE_BLOCK_SIZE
        | OID_GEN_TRANSMIT_BLOCK_SIZE
        | OID_GEN_CURRENT_LOOKAHEAD => answer.number(frame),
        OID_GEN_RECEIVE_BUFFER_SPACE | OID_GEN_TRANSMIT_BUFFER_SPACE => answer.number(frame * u32::from(BUFFERS)),
        OID_GEN_XMIT_OK => answer.count(Totals::of(adapter).out_frames()),
        OID_GEN_RCV_OK => answer.count(Totals::of(adapter).in_frames()),
        OID_GEN_XMIT_ERROR => answer.count(adapter.sent().errors()),
        OID_GEN_RCV_ERROR => answer.count(adapter.received().errors()),
        OID_GEN_RCV_NO_BUFFER => answer.count(adapter.received().discards()),
        OID_GEN_STATISTICS => answer.structure(&Totals::of(adapter).information()),
        OID_GEN_VENDOR_DESCRIPTION => answer.bytes(DESCRIPTION),
        OID_GEN_VENDOR_DRIVER_VERSION => answer.number(1),
        OID_GEN_VENDOR_ID => answer.number(VENDOR_ID),
        OID_GEN_CURRENT_PACKET_FILTER => answer.number(adapter.filter().types),
        OID_GEN_INTERRUPT_MODERATION => answer.structure(&NDIS_INTERRUPT_MODERATION_PARAMETERS {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_DEFAULT,
                NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
                NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
            ),
            Flags: 0,
            InterruptModeration: NDIS_INTERRUPT_MODERATION::NOT_SUPPORTED,
        }),
        OID_802_3_PERMANENT_ADDRESS => answer.bytes(&mac_of(adapter.luid())),
        OID_802_3_CURRENT_ADDRESS => answer.bytes(adapter.mac()),
        OID_802_3_MULTICAST_LIST => answer.values(adapter.filter().multicast()),
        #[expect(clippy::cast_possible_truncation, reason = "32")]
        OID_802_3_MAXIMUM_LIST_SIZE => answer.number(MAX_MULTICAST as u32),
        OID_PNP_QUERY_POWER => NDIS_STATUS::SUCCESS,
        OID_NDK_STATISTICS => answer.structure(&ndk::statistics(adapter)),
        OID_NDK_CONNECTIONS => ndk::connections(adapter, answer),
        OID_NDK_LOCAL_ENDPOINTS => ndk::endpoints(adapter, answer),
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// Why a value was not set.
enum Refused {
    /// It has another length than so many bytes.
    Length(u32),
    Status(NDIS_STATUS),
}

/// The number that a value is.
///
/// # Errors
///
/// It is shorter.
fn number(bytes: &[u8]) -> Result<u32, Refused> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Refused::Length(4))
}

/// Sets a value. How many bytes of it were read.
fn set_value(adapter: &Arc<Adapter>, oid: u32, bytes: &[u8]) -> Result<u32, Refused> {
    match oid {
        OID_GEN_CURRENT_PACKET_FILTER => {
            let types = number(bytes)?;
            if types & !filter::SUPPORTED != 0 {
                return Err(Refused::Status(NDIS_STATUS_NOT_SUPPORTED));
            }
            adapter.change_filter(|filter| filter.types = types);
            Ok(4)
        }
        // Protocols see whole frames in any case.
        OID_GEN_CURRENT_LOOKAHEAD => match number(bytes)? {
            lookahead if lookahead <= adapter.keywords().frame => Ok(4),
            _ => Err(Refused::Status(NDIS_STATUS_INVALID_DATA)),
        },
        OID_802_3_MULTICAST_LIST => {
            let (addresses, rest) = bytes.as_chunks::<{ size_of::<MacAddress>() }>();
            if !rest.is_empty() {
                return Err(Refused::Length(6));
            }
            if !adapter.change_filter(|filter| filter.set_multicast(addresses)) {
                return Err(Refused::Status(NDIS_STATUS_MULTICAST_FULL));
            }
            Ok(u32::try_from(bytes.len()).unwrap_or(u32::MAX))
        }
        OID_PNP_SET_POWER => {
            let state = NDIS_DEVICE_POWER_STATE(number(bytes)?.cast_signed());
            if !(NDIS_DEVICE_POWER_STATE::D0..=NDIS_DEVICE_POWER_STATE::D3).contains(&state) {
                return Err(Refused::Status(NDIS_STATUS_INVALID_DATA));
            }
            adapter.set_power(state);
            Ok(4)
        }
        OID_NDK_SET_STATE => {
            let &[enable, ..] = bytes else { return Err(Refused::Length(1)) };
            Ndk::set(adapter, enable != 0);
            Ok(1)
        }
        // There is nothing to negotiate, and no interrupt to moderate.
        OID_GEN_LINK_PARAMETERS if bytes.len() < size_of::<NDIS_LINK_PARAMETERS>() => {
            Err(Refused::Length(size::<NDIS_LINK_PARAMETERS>()))
        }
        OID_GEN_INTERRUPT_MODERATION if bytes.len() < size_of::<NDIS_INTERRUPT_MODERATION_PARAMETERS>() => {
            Err(Refused::Length(size::<NDIS_INTERRUPT_MODERATION_PARAMETERS>()))
        }
        OID_GEN_LINK_PARAMETERS | OID_GEN_INTERRUPT_MODERATION => Err(Refused::Status(NDIS_STATUS_INVALID_DATA)),
        _ => Err(Refused::Status(NDIS_STATUS_NOT_SUPPORTED)),
    }
}
