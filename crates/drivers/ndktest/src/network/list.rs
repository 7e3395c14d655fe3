//! What interfaces there are, and what their NDK adapters say of themselves.

use alloc::{string::String, vec::Vec};
use core::{fmt::Write, mem::MaybeUninit};

use control::network::Interface;
use ndis::{IF_OPER_STATUS, MIB_IF_ROW2, MIB_IF_ROW2_FILTER_INTERFACE};
use ndkpi::{NDK_ADAPTER, NDK_ADAPTER_INFO, NtStatus};

use super::{Client, VERSIONS, choice, table};
use crate::room::Room;

/// The most bytes of text behind an [`Interface`].
const TEXT: usize = 4096;

/// The interface with that number, counted from zero, and its text: as the answer to
/// [`QUERY_INTERFACE`](control::network::QUERY_INTERFACE).
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`; what the IP helper says.
pub fn describe(number: u32) -> Result<Vec<u8>, NtStatus> {
    let interfaces = table::interfaces()?;
    let mut real =
        interfaces.rows().iter().filter(|row| row.InterfaceAndOperStatusFlags & MIB_IF_ROW2_FILTER_INTERFACE == 0);
    let Some(row) = real.nth(number as usize) else { return answer(&Interface::default(), "") };
    let mut interface = Interface {
        index: row.InterfaceIndex,
        up: u32::from(row.OperStatus == IF_OPER_STATUS::UP),
        speed: row.TransmitLinkSpeed,
        ..Interface::default()
    };
    match query(row.InterfaceIndex) {
        Ok(info) => fill(&mut interface, &info),
        Err(status) => interface.status = status.to_bits(),
    }
    answer(&interface, &text(row)?)
}

fn answer(interface: &Interface, text: &str) -> Result<Vec<u8>, NtStatus> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(Interface::BYTES + text.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    bytes.extend_from_slice(&interface.to_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(bytes)
}

/// The three lines: alias, description, addresses.
fn text(row: &MIB_IF_ROW2) -> Result<String, NtStatus> {
    let mut text = String::new();
    let mut room = Room::new(&mut text, TEXT);
    let written = (|| {
        for units in [&row.Alias, &row.Description] {
            let units = units.iter().copied().take_while(|unit| *unit != 0);
            for letter in char::decode_utf16(units) {
                let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
                room.write_char(if letter.is_control() { ' ' } else { letter })?;
            }
            room.write_char('\n')?;
        }
        // Without the table the interface has no addresses.
        if let Ok(rows) = table::addresses() {
            for (number, address) in choice::addresses(rows.rows(), row.InterfaceIndex).enumerate() {
                write!(room, "{}{address}", if number == 0 { "" } else { " " })?;
            }
        }
        room.write_char('\n')
    })();
    written.map(|()| text).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
}

/// Opens the adapter of an interface, asks what it can do, and closes it.
fn query(index: u32) -> Result<NDK_ADAPTER_INFO, NtStatus> {
    let client = Client::try_new()?;
    let mut last = NtStatus::NOT_SUPPORTED;
    for version in VERSIONS {
        match client.open(version, index) {
            Ok(adapter) => {
                // SAFETY: the adapter is open.
                let info = unsafe { info(adapter) };
                // SAFETY: it was opened here, and nothing was made of it.
                unsafe { client.close(adapter) };
                return info;
            }
            Err(status) => last = status,
        }
        if last != NtStatus::NDIS_BAD_VERSION {
            break;
        }
    }
    Err(last)
}

/// # Safety
///
/// The adapter is open.
unsafe fn info(adapter: *mut NDK_ADAPTER) -> Result<NDK_ADAPTER_INFO, NtStatus> {
    // SAFETY: the adapter is open (`# Safety`).
    let table = unsafe { (*adapter).Dispatch };
    // SAFETY: the slot is in the table of every version.
    let query = unsafe { (*table).NdkQueryAdapterInfo }.ok_or(NtStatus::NOT_SUPPORTED)?;
    // A provider with a version before 2.0 leaves the end as it is: zero.
    let mut info = MaybeUninit::new(NDK_ADAPTER_INFO::default());
    let mut size = u32::try_from(size_of::<NDK_ADAPTER_INFO>()).unwrap_or(0);
    // SAFETY: the adapter is open, and the place has the size that is said.
    let status = unsafe { query(adapter, info.as_mut_ptr(), &raw mut size) };
    // SAFETY: it was initialised, and every value of its numbers is one.
    status.ok().map(|()| unsafe { info.assume_init() })
}

const fn fill(interface: &mut Interface, info: &NDK_ADAPTER_INFO) {
    interface.major = info.Version.Major as u32;
    interface.minor = info.Version.Minor as u32;
    interface.technology = info.RdmaTechnology.0.cast_unsigned();
    interface.flags = info.AdapterFlags;
    interface.vendor = info.VendorId;
    interface.receive_depth = info.MaxReceiveQueueDepth;
    interface.initiator_depth = info.MaxInitiatorQueueDepth;
    interface.cq_depth = info.MaxCqDepth;
    interface.receive_sge = info.MaxReceiveRequestSge;
    interface.initiator_sge = info.MaxInitiatorRequestSge;
    interface.read_sge = info.MaxReadRequestSge;
    interface.inbound_reads = info.MaxInboundReadLimit;
    interface.outbound_reads = info.MaxOutboundReadLimit;
    interface.transfer = info.MaxTransferLength;
    interface.inline = info.MaxInlineDataSize;
    interface.caller_data = info.MaxCallerData;
    interface.callee_data = info.MaxCalleeData;
}
