//! Choosing interfaces by index, local address or alias.

use alloc::vec::Vec;
use core::{
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
};

use control::network::Problem;
use ndis::{
    ConvertInterfaceAliasToLuid, ConvertInterfaceIndexToLuid, ConvertInterfaceLuidToIndex, GetBestRoute2,
    IF_MAX_STRING_SIZE, MIB_IPFORWARD_ROW2, MIB_UNICASTIPADDRESS_ROW, NET_IFINDEX, NET_LUID, NL_DAD_STATE,
};
use ndkpi::{NtStatus, SOCKADDR_INET};

use super::{ADDRESSES, Chosen, Refused, problem, table};

/// The interface with that index, local address or alias.
///
/// # Errors
///
/// There is none, or it has no address.
pub fn find(name: &str) -> Result<Chosen, Refused> {
    let rows = match table::addresses() {
        Ok(rows) => Some(rows),
        Err(NtStatus::INSUFFICIENT_RESOURCES | NtStatus::NO_MEMORY) => {
            return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
        }
        // No interface has an address.
        Err(_) => None,
    };
    let rows = rows.as_ref().map_or(&[][..], table::Table::rows);
    let address = name.parse::<IpAddr>().ok();
    let (index, luid) = match (name.parse::<NET_IFINDEX>(), address) {
        (Ok(index), _) => (index, by_index(index)?),
        (_, Some(address)) => by_address(rows, address)?,
        _ => by_alias(name)?,
    };
    let mut found = [None; ADDRESSES];
    let own = addresses(rows, index).filter(|one| Some(*one) != address);
    for (place, one) in found.iter_mut().zip(address.into_iter().chain(own)) {
        *place = Some(one);
    }
    if found[0].is_none() {
        return Err(problem(Problem::NoAddress, NtStatus::SUCCESS, index));
    }
    Ok(Chosen { luid, index, addresses: found })
}

/// The addresses of an interface that are preferred and can be connected to.
pub fn addresses(rows: &[MIB_UNICASTIPADDRESS_ROW], index: NET_IFINDEX) -> impl Iterator<Item = IpAddr> {
    rows.iter().filter(move |row| row.InterfaceIndex == index).filter_map(usable)
}

/// The address of a row, if it is in use. A link-local address of IPv6 needs a zone, which the suite's addresses do not have.
fn usable(row: &MIB_UNICASTIPADDRESS_ROW) -> Option<IpAddr> {
    let address = row.Address.to_socket_addr()?.ip();
    let local = match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    };
    (row.DadState == NL_DAD_STATE::PREFERRED && !local).then_some(address)
}

fn by_index(index: NET_IFINDEX) -> Result<NET_LUID, Refused> {
    let mut luid = NET_LUID::default();
    // SAFETY: at `PASSIVE_LEVEL`, and the place lives until the call returns.
    let status = unsafe { ConvertInterfaceIndexToLuid(index, &raw mut luid) };
    status.ok().map(|()| luid).map_err(|status| problem(Problem::UnknownInterface, status, 0))
}

fn by_address(rows: &[MIB_UNICASTIPADDRESS_ROW], address: IpAddr) -> Result<(NET_IFINDEX, NET_LUID), Refused> {
    let row = rows.iter().find(|row| usable(row) == Some(address));
    row.map(|row| (row.InterfaceIndex, row.InterfaceLuid))
        .ok_or_else(|| problem(Problem::UnknownAddress, NtStatus::SUCCESS, 0))
}

fn by_alias(alias: &str) -> Result<(NET_IFINDEX, NET_LUID), Refused> {
    let unknown = |status| problem(Problem::UnknownInterface, status, 0);
    let mut units = Vec::new();
    units.try_reserve_exact(alias.len() + 1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    units.extend(alias.encode_utf16());
    if units.len() > IF_MAX_STRING_SIZE || units.contains(&0) {
        return Err(unknown(NtStatus::INVALID_PARAMETER));
    }
    units.push(0);
    let (mut luid, mut index) = (NET_LUID::default(), 0);
    // SAFETY: at `PASSIVE_LEVEL`; the string ends with a zero, and the places live until the call returns.
    unsafe { ConvertInterfaceAliasToLuid(units.as_ptr(), &raw mut luid) }.ok().map_err(unknown)?;
    // SAFETY: at `PASSIVE_LEVEL`, and the places live until the call returns.
    unsafe { ConvertInterfaceLuidToIndex(&raw const luid, &raw mut index) }.ok().map_err(unknown)?;
    Ok((index, luid))
}

/// Two interfaces, with the addresses that can be reached from one to the other in front and the others left out.
///
/// # Errors
///
/// They are the same, or there is no route.
pub fn connect(one: Chosen, two: Chosen) -> Result<(Chosen, Chosen), Refused> {
    if one.index == two.index {
        return Err(problem(Problem::Same, NtStatus::SUCCESS, two.index).of_peer());
    }
    let (mut near, mut far) = ([None; ADDRESSES], [None; ADDRESSES]);
    let mut why = None;
    for (place, is_v4) in [true, false].into_iter().enumerate() {
        let of = |chosen: &Chosen| chosen.addresses.iter().flatten().find(|one| one.is_ipv4() == is_v4).copied();
        let (Some(from), Some(to)) = (of(&one), of(&two)) else { continue };
        match route(one.luid, from, to) {
            Ok(()) => (near[place], far[place]) = (Some(from), Some(to)),
            Err(status) => {
                why.get_or_insert(status);
            }
        }
    }
    if near.iter().all(Option::is_none) {
        let status = why.unwrap_or(NtStatus::NETWORK_UNREACHABLE);
        return Err(problem(Problem::NoRoute, status, two.index).of_peer());
    }
    Ok((Chosen { addresses: near, ..one }, Chosen { addresses: far, ..two }))
}

/// Checks that the machine has a route through the interface from one address to another.
fn route(luid: NET_LUID, from: IpAddr, to: IpAddr) -> Result<(), NtStatus> {
    let inet = |address| SOCKADDR_INET::from(SocketAddr::new(address, 0));
    let (mut luid, from, to) = (luid, inet(from), inet(to));
    let (mut route, mut source) = (MaybeUninit::<MIB_IPFORWARD_ROW2>::uninit(), SOCKADDR_INET::UNSPECIFIED);
    // SAFETY: at `PASSIVE_LEVEL`, and the places live until the call returns.
    let status = unsafe {
        GetBestRoute2(&raw mut luid, 0, &raw const from, &raw const to, 0, route.as_mut_ptr(), &raw mut source)
    };
    status.ok()
}
