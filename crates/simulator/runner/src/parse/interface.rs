//! What a script says of the network interface of a NIC.

use std::net::IpAddr;

use toml::Spanned;

use super::{Result, in_range, problem};
use crate::{
    raw,
    script::{Interface, Prefix},
};

/// Where the type of an interface stands in an identifier (`IfType` of `NET_LUID`), and that of Ethernet. Below it is an index of 24 bits, and
/// below that 24 bits that are zero.
const TYPE_SHIFT: u32 = 48;
const ETHERNET: u64 = 6;
const RESERVED: u64 = (1 << 24) - 1;

/// Characters of an alias at most, without its zero.
const LONGEST_ALIAS: usize = 256;

/// The interface of a device.
pub fn interface(raw: &raw::Device) -> Result<Interface> {
    let index = raw.index.as_ref().map(|index| in_range(index, "index", 1, 0x00FF_FFFE)).transpose()?;
    let luid = raw.luid.as_ref().map(luid).transpose()?;
    let alias = raw.alias.as_ref().map(alias).transpose()?;
    let mac = raw.mac.as_ref().map(mac).transpose()?;
    let routes = raw.routes.iter().map(|route| prefix(route, "routes", "10.1.0.0/16")).collect::<Result<_>>()?;
    Ok(Interface { index, luid, alias, mac, routes })
}

/// An address with the length of its prefix.
pub fn prefix(text: &Spanned<String>, key: &str, like: &str) -> Result<Prefix> {
    let parsed = text.get_ref().split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.parse::<u8>().ok().filter(|length| *length <= most)?;
        Some((address, length))
    });
    let words = || format!("`{key}`: `{}` is not like `{like}`", text.get_ref());
    parsed.map_or_else(|| problem(text.span(), words()), Ok)
}

fn luid(number: &Spanned<i64>) -> Result<u64> {
    let luid = number.get_ref().cast_unsigned();
    if luid >> TYPE_SHIFT == ETHERNET && luid & RESERVED == 0 {
        return Ok(luid);
    }
    let words = format!(
        "`luid` is {luid:#x}: such as 0x0006_0080_1000_0000, whose first 16 bits are Ethernet and last 24 zero"
    );
    problem(number.span(), words)
}

fn alias(text: &Spanned<String>) -> Result<String> {
    let alias = text.get_ref();
    if alias.is_empty() || alias.encode_utf16().count() > LONGEST_ALIAS || alias.contains('\0') {
        return problem(text.span(), format!("`alias` is `{alias}`: 1 to {LONGEST_ALIAS} characters"));
    }
    Ok(alias.clone())
}

fn mac(text: &Spanned<String>) -> Result<[u8; 6]> {
    let parts =
        text.get_ref().split(['-', ':']).map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2));
    let bytes: Option<Vec<u8>> = parts.collect();
    match bytes.as_deref().map(<[u8; 6]>::try_from) {
        // The lowest bit of the first byte is that of groups.
        Some(Ok(mac)) if mac[0] & 1 == 0 => Ok(mac),
        _ => {
            problem(text.span(), format!("`mac` is `{}`: such as `02-00-00-00-00-11`, of one station", text.get_ref()))
        }
    }
}
