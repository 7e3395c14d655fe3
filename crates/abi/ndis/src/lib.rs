//! The part of NDIS 6.80, Winsock Kernel and the IP helper that an RDMA miniport and a kernel consumer need: structures,
//! constants, handler types and imported routines, and nothing else.
//!
//! # What is here
//!
//! | Module | Contents |
//! |---|---|
//! | [`driver`] | registration of a miniport driver, its handlers |
//! | [`adapter`] | attributes of an adapter, initialisation, pause, restart, plug and play |
//! | [`oid`] | OID requests and the structures of the mandatory ones |
//! | [`indication`] | status indications |
//! | [`net_buffer`] | frames: net buffers, net buffer lists, their pools |
//! | [`configuration`] | keywords of the adapter in the registry |
//! | [`device`] | control devices and work items |
//! | [`wsk`] | Winsock Kernel: clients, and how a consumer reaches NDK |
//! | [`wsk_socket`] | Winsock Kernel: datagram sockets |
//! | [`wsk_stream`] | Winsock Kernel: sockets that listen or are connected, and names |
//! | [`interface`] | the table of interfaces |
//! | [`netio`] | names of interfaces, addresses and routes |
//!
//! What speaks of NDK itself is in `ndkpi`. Names are those of C. Sizes and offsets are asserted when the crate is compiled
//! and compared with those of the headers in `tests-host/kernel-tests/tests/ndis_layouts.rs`, as are prototypes and values.
//!
//! # Linking
//!
//! On Windows targets the routines are imported from `ndis.sys` and `netio.sys` without an import library. Elsewhere they
//! are only declared: whoever links supplies them, as the simulated kernel does.
//!
//! # Example
//!
//! ```
//! use ndis::{NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NET_LUID};
//!
//! let characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS::for_ndis_6_80();
//! assert_eq!(characteristics.Header.Size, 160);
//! assert!(characteristics.InitializeHandlerEx.is_none(), "the driver fills in its handlers");
//!
//! assert_eq!(NET_LUID { Value: 0x0006_0080_0100_0000 }.interface_type(), 6);
//! ```

#![no_std]
#![expect(
    non_camel_case_types,
    non_snake_case,
    reason = "types, fields and routines have their names of C, by which their readers know them"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("NDIS is described here for 64-bit Windows only");

use ndkpi::{header, layout, opaque, open_enum};

pub mod adapter;
pub mod configuration;
pub mod device;
pub mod driver;
pub mod indication;
pub mod interface;
pub mod net_buffer;
pub mod netio;
pub mod oid;
pub mod wsk;
pub mod wsk_socket;
pub mod wsk_stream;

pub use adapter::*;
pub use configuration::*;
pub use device::*;
pub use driver::*;
pub use indication::*;
pub use interface::*;
pub use net_buffer::*;
pub use netio::*;
pub use oid::*;
pub use wsk::*;
pub use wsk_socket::*;
pub use wsk_stream::*;

/// A port of an adapter; 0 is the default port.
pub type NDIS_PORT_NUMBER = u32;
/// The number of a network interface on this machine. It can change at a restart; the [`NET_LUID`] does not.
pub type NET_IFINDEX = u32;
/// A result of NDIS: the same numbers as an `NTSTATUS`.
pub type NDIS_STATUS = ndkpi::NtStatus;

/// What the driver's handler cannot do in the state it is in: sends of a paused miniport.
pub const NDIS_STATUS_PAUSED: NDIS_STATUS = NDIS_STATUS::from_bits(0xC023_002A);
/// The request failed.
pub const NDIS_STATUS_FAILURE: NDIS_STATUS = NDIS_STATUS::from_bits(0xC000_0001);
/// The value of a set request is not one that the OID allows.
pub const NDIS_STATUS_INVALID_DATA: NDIS_STATUS = NDIS_STATUS::from_bits(0xC001_0015);
/// The request was cancelled.
pub const NDIS_STATUS_REQUEST_ABORTED: NDIS_STATUS = NDIS_STATUS::from_bits(0xC001_000C);
/// The send was cancelled.
pub const NDIS_STATUS_SEND_ABORTED: NDIS_STATUS = NDIS_STATUS::from_bits(0xC023_000C);
/// The structure has a revision that the driver does not know.
pub const NDIS_STATUS_UNSUPPORTED_REVISION: NDIS_STATUS = NDIS_STATUS::from_bits(0xC023_002C);
/// More multicast addresses than the adapter can filter.
pub const NDIS_STATUS_MULTICAST_FULL: NDIS_STATUS = NDIS_STATUS::from_bits(0xC001_0009);
/// The adapter is in a low power state.
pub const NDIS_STATUS_LOW_POWER_STATE: NDIS_STATUS = NDIS_STATUS::from_bits(0xC023_002F);
/// There is no such interface.
pub const NDIS_STATUS_INTERFACE_NOT_FOUND: NDIS_STATUS = NDIS_STATUS::from_bits(0xC023_002B);

opaque! {
    /// A driver object of the I/O manager, whose layout belongs to WDM.
    DRIVER_OBJECT
}

opaque! {
    /// A device object of the I/O manager, whose layout belongs to WDM.
    DEVICE_OBJECT
}

opaque! {
    /// An I/O request packet, whose layout belongs to WDM.
    IRP
}

/// A counted string of UTF-16 units (`NDIS_STRING`, `UNICODE_STRING`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_STRING {
    /// Bytes in use.
    pub Length: u16,
    /// Bytes of the buffer.
    pub MaximumLength: u16,
    /// The units; need not end with a zero.
    pub Buffer: *mut u16,
}

layout!(NDIS_STRING: size 0x10, align 8, { Length @ 0x00, MaximumLength @ 0x02, Buffer @ 0x08 });
