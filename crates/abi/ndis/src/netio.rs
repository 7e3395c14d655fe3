//! The IP helper of the kernel: names of interfaces, addresses and routes.

use core::ffi::c_void;

use ndkpi::{BOOLEAN, NtStatus, SOCKADDR_INET};

use crate::{NET_IFINDEX, layout, open_enum};

/// Both address families.
pub const AF_UNSPEC: u16 = 0;

/// The identifier of a network interface, which stays the same as long as the interface is installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct NET_LUID {
    /// All of it: 24 bits reserved, 24 bits of index, 16 bits of interface type.
    pub Value: u64,
}

layout!(NET_LUID: size 0x08, align 8, { Value @ 0x00 });

impl NET_LUID {
    /// The type of the interface, 6 for Ethernet.
    #[must_use]
    pub const fn interface_type(self) -> u16 {
        (self.Value >> 48) as u16
    }

    /// The index of the interface among those of its type. Not a [`NET_IFINDEX`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "24 bits are cut out")]
    pub const fn index(self) -> u32 {
        (self.Value >> 24) as u32 & 0x00FF_FFFF
    }
}

open_enum! {
    /// Where duplicate address detection stands.
    NL_DAD_STATE {
        /// The address is not valid.
        INVALID = 0, "IpDadStateInvalid";
        /// Detection runs.
        TENTATIVE = 1, "IpDadStateTentative";
        /// Another machine has the address.
        DUPLICATE = 2, "IpDadStateDuplicate";
        /// Valid, but not for new connections.
        DEPRECATED = 3, "IpDadStateDeprecated";
        /// In use.
        PREFERRED = 4, "IpDadStatePreferred";
    }
}

open_enum! {
    /// What happened to a row of a table.
    MIB_NOTIFICATION_TYPE {
        /// Its parameters changed.
        PARAMETER = 0, "MibParameterNotification";
        /// It was added.
        ADD_INSTANCE = 1, "MibAddInstance";
        /// It was deleted.
        DELETE_INSTANCE = 2, "MibDeleteInstance";
        /// Nothing: the registration works.
        INITIAL = 3, "MibInitialNotification";
    }
}

/// A unicast address of an interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_UNICASTIPADDRESS_ROW {
    /// The address.
    pub Address: SOCKADDR_INET,
    /// The interface.
    pub InterfaceLuid: NET_LUID,
    /// Its index.
    pub InterfaceIndex: NET_IFINDEX,
    /// Where the prefix is from (`NL_PREFIX_ORIGIN`).
    pub PrefixOrigin: i32,
    /// Where the rest is from (`NL_SUFFIX_ORIGIN`).
    pub SuffixOrigin: i32,
    /// Seconds for which it is valid.
    pub ValidLifetime: u32,
    /// Seconds for which it is preferred.
    pub PreferredLifetime: u32,
    /// Bits of the prefix on the link.
    pub OnLinkPrefixLength: u8,
    /// True if it is not chosen as a source.
    pub SkipAsSource: BOOLEAN,
    /// Where duplicate address detection stands: only preferred addresses are used.
    pub DadState: NL_DAD_STATE,
    /// The scope.
    pub ScopeId: u32,
    /// When it was made, in units of 100 nanoseconds.
    pub CreationTimeStamp: i64,
}

layout!(MIB_UNICASTIPADDRESS_ROW: size 0x50, align 8, {
    Address @ 0x00,
    InterfaceLuid @ 0x20,
    InterfaceIndex @ 0x28,
    PrefixOrigin @ 0x2C,
    SuffixOrigin @ 0x30,
    ValidLifetime @ 0x34,
    PreferredLifetime @ 0x38,
    OnLinkPrefixLength @ 0x3C,
    SkipAsSource @ 0x3D,
    DadState @ 0x40,
    ScopeId @ 0x44,
    CreationTimeStamp @ 0x48,
});

/// The unicast addresses of the machine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_UNICASTIPADDRESS_TABLE {
    /// How many rows there are.
    pub NumEntries: u32,
    /// The first of them.
    pub Table: [MIB_UNICASTIPADDRESS_ROW; 1],
}

layout!(MIB_UNICASTIPADDRESS_TABLE: size 0x58, align 8, { NumEntries @ 0x00, Table @ 0x08 });

/// A prefix of addresses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IP_ADDRESS_PREFIX {
    /// An address with the prefix.
    pub Prefix: SOCKADDR_INET,
    /// Its bits.
    pub PrefixLength: u8,
}

layout!(IP_ADDRESS_PREFIX: size 0x20, align 4, { Prefix @ 0x00, PrefixLength @ 0x1C });

/// A route.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_IPFORWARD_ROW2 {
    /// The interface.
    pub InterfaceLuid: NET_LUID,
    /// Its index.
    pub InterfaceIndex: NET_IFINDEX,
    /// Where it leads.
    pub DestinationPrefix: IP_ADDRESS_PREFIX,
    /// The next router; unspecified on the link itself.
    pub NextHop: SOCKADDR_INET,
    /// Bits of the site's prefix.
    pub SitePrefixLength: u8,
    /// Seconds for which it is valid.
    pub ValidLifetime: u32,
    /// Seconds for which it is preferred.
    pub PreferredLifetime: u32,
    /// What it costs.
    pub Metric: u32,
    /// Who made it (`NL_ROUTE_PROTOCOL`).
    pub Protocol: i32,
    /// True if it leads to this machine.
    pub Loopback: BOOLEAN,
    /// True if addresses of the prefix are configured by themselves.
    pub AutoconfigureAddress: BOOLEAN,
    /// True if routers publish it.
    pub Publish: BOOLEAN,
    /// True if it does not age.
    pub Immortal: BOOLEAN,
    /// Seconds since it was made.
    pub Age: u32,
    /// Where it is from (`NL_ROUTE_ORIGIN`).
    pub Origin: i32,
}

layout!(MIB_IPFORWARD_ROW2: size 0x68, align 8, {
    InterfaceLuid @ 0x00,
    InterfaceIndex @ 0x08,
    DestinationPrefix @ 0x0C,
    NextHop @ 0x2C,
    SitePrefixLength @ 0x48,
    ValidLifetime @ 0x4C,
    PreferredLifetime @ 0x50,
    Metric @ 0x54,
    Protocol @ 0x58,
    Loopback @ 0x5C,
    AutoconfigureAddress @ 0x5D,
    Publish @ 0x5E,
    Immortal @ 0x5F,
    Age @ 0x60,
    Origin @ 0x64,
});

/// Hears of changes of addresses. The level it runs at is not documented, so it takes no lock that a canceller holds, and
/// does no more than queue work.
pub type PUNICAST_IPADDRESS_CHANGE_CALLBACK = unsafe extern "system" fn(
    CallerContext: *mut c_void,
    Row: *mut MIB_UNICASTIPADDRESS_ROW,
    NotificationType: MIB_NOTIFICATION_TYPE,
);

#[cfg_attr(windows, link(name = "netio.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// The identifier of the interface that people call by this name. IRQL: `PASSIVE_LEVEL`.
    pub fn ConvertInterfaceAliasToLuid(InterfaceAlias: *const u16, InterfaceLuid: *mut NET_LUID) -> NtStatus;

    /// The identifier of the interface with this index. IRQL: `PASSIVE_LEVEL`.
    pub fn ConvertInterfaceIndexToLuid(InterfaceIndex: NET_IFINDEX, InterfaceLuid: *mut NET_LUID) -> NtStatus;

    /// The index of the interface with this identifier. IRQL: `PASSIVE_LEVEL`.
    pub fn ConvertInterfaceLuidToIndex(InterfaceLuid: *const NET_LUID, InterfaceIndex: *mut NET_IFINDEX) -> NtStatus;

    /// The name of the interface with this identifier; `Length` is in units. IRQL: `PASSIVE_LEVEL`.
    pub fn ConvertInterfaceLuidToAlias(
        InterfaceLuid: *const NET_LUID,
        InterfaceAlias: *mut u16,
        Length: usize,
    ) -> NtStatus;

    /// The route to an address, and the source address that goes with it. IRQL: `PASSIVE_LEVEL`.
    pub fn GetBestRoute2(
        InterfaceLuid: *mut NET_LUID,
        InterfaceIndex: NET_IFINDEX,
        SourceAddress: *const SOCKADDR_INET,
        DestinationAddress: *const SOCKADDR_INET,
        AddressSortOptions: u32,
        BestRoute: *mut MIB_IPFORWARD_ROW2,
        BestSourceAddress: *mut SOCKADDR_INET,
    ) -> NtStatus;

    /// The unicast addresses of the machine, to be freed by [`FreeMibTable`]. IRQL: `PASSIVE_LEVEL`.
    pub fn GetUnicastIpAddressTable(Family: u16, Table: *mut *mut MIB_UNICASTIPADDRESS_TABLE) -> NtStatus;

    /// Frees a table. IRQL: `PASSIVE_LEVEL`.
    pub fn FreeMibTable(Memory: *const c_void);

    /// Registers for changes of unicast addresses. IRQL: `PASSIVE_LEVEL`.
    pub fn NotifyUnicastIpAddressChange(
        Family: u16,
        Callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
        CallerContext: *mut c_void,
        InitialNotification: BOOLEAN,
        NotificationHandle: *mut *mut c_void,
    ) -> NtStatus;

    /// Ends a registration; waits for callbacks that run, so never under a lock that they take. IRQL: `PASSIVE_LEVEL`.
    pub fn CancelMibChangeNotify2(NotificationHandle: *mut c_void) -> NtStatus;
}
