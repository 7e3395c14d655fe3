//! The two ends of the cable as network interfaces.

use std::net::Ipv4Addr;

use crate::{Choice, Device, Fault, Interface, Machine, NIC, Plan, Step, Wanted, describe::Why, machine::Result, plan};

/// What the two ends are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Their names.
    pub names: [String; 2],
    /// Their addresses.
    pub addresses: [Ipv4Addr; 2],
    /// The bits of the network that both addresses are in.
    pub bits: u8,
    /// Route each address through the opposite end.
    pub routes: bool,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            names: ["SoftNDK 1", "SoftNDK 2"].map(str::to_owned),
            addresses: [Ipv4Addr::new(192, 168, 77, 11), Ipv4Addr::new(192, 168, 77, 12)],
            bits: 24,
            routes: true,
        }
    }
}

impl Pair {
    /// What is wrong with it, in words.
    fn wrong(&self) -> Option<String> {
        let ([one, other], mask) = (self.addresses, u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0));
        if one == other {
            return Some(format!("both ends have the address {one}"));
        }
        if (one.to_bits() ^ other.to_bits()) & mask != 0 {
            return Some(format!("{one} and {other} are not in one network of {} bits", self.bits));
        }
        let unusable = |address: &&Ipv4Addr| {
            address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast()
        };
        if let Some(address) = self.addresses.iter().find(unusable) {
            return Some(format!("{address} is no address for an interface"));
        }
        if same_name(&self.names[0], &self.names[1]) {
            return Some("both ends have one name".to_owned());
        }
        let empty = self.names.iter().any(|name| name.trim().is_empty());
        empty.then(|| "an end has no name".to_owned())
    }
}

/// Names of interfaces differ by more than the case of their letters.
pub fn same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// The devices that are the two ends: one that has the name of an end is that end, whatever its number; the others follow in the order
/// of theirs.
pub fn ends(machine: &impl Machine, devices: &[Device], names: &[String; 2]) -> Result<[Option<Device>; 2]> {
    let mut free: Vec<_> = devices.iter().filter(|device| device.interface.is_some()).cloned().collect();
    let mut chosen = [None, None];
    for (end, name) in chosen.iter_mut().zip(names) {
        let holder = machine.named(name)?;
        let place = free.iter().position(|device| holder.is_some() && device.interface == holder);
        *end = place.map(|place| free.remove(place));
    }
    let mut free = free.into_iter();
    Ok(chosen.map(|end| end.or_else(|| free.next())))
}

/// What has this one machine look like two: two virtual NICs on one cable, named, with an address each.
///
/// Without `wanted` the driver has to be installed. The addresses, neighbours and routes last until the interface goes or the machine
/// restarts: that is how the IP Helper's calls are.
///
/// # Errors
///
/// The machine could not be looked at.
pub fn pair(machine: &impl Machine, wanted: Option<&Wanted>, pair: &Pair) -> core::result::Result<Plan, Fault> {
    let mut plan = Plan::default();
    match wanted {
        Some(wanted) => plan = plan::install(machine, wanted)?,
        None => plan::elevation(&machine.facts()?, &mut plan),
    }
    if let Some(wrong) = pair.wrong() {
        plan.refusals.push(Why::new(wrong, "--names and --addresses choose others"));
    }
    let devices = machine.devices(&NIC)?;
    if wanted.is_none() && devices.len() < 2 {
        let count = devices.len();
        plan.refusals.push(Why::new(
            format!("there are {count} virtual NICs instead of two"),
            "--package names the folder of the driver's package",
        ));
    }
    let chosen = ends(machine, &devices, &pair.names)?;
    for (name, end) in pair.names.iter().zip(&chosen) {
        let own = end.as_ref().and_then(|device| device.interface.as_ref());
        if let Some(holder) = machine.named(name)?.filter(|holder| Some(holder) != own) {
            plan.refusals.push(Why::new(
                format!("another interface is called `{name}` ({holder})"),
                "--names chooses other names",
            ));
        }
    }
    // What the package does to the devices may take all of it away.
    let touched = plan.steps.iter().any(|step| matches!(step, Step::Bind { package } if package.driver == &NIC));
    let mut there = [None, None];
    if !touched {
        for (place, device) in there.iter_mut().zip(&chosen) {
            if let Some(guid) = device.as_ref().and_then(|device| device.interface.as_deref()) {
                *place = machine.interface(guid)?;
            }
        }
    }
    let mut steps = Vec::new();
    for end in 0..2 {
        steps.extend(of_end(machine, pair, &there, end)?);
    }
    if !steps.is_empty() {
        steps.insert(0, Step::AwaitEnds { names: pair.names.clone() });
    }
    // What has been replaced is forgotten last.
    let forget = plan.steps.iter().position(|step| matches!(step, Step::Forget { .. })).unwrap_or(plan.steps.len());
    plan.steps.splice(forget..forget, steps);
    Ok(plan)
}

/// What an end lacks: everything, if it is not there.
fn of_end(machine: &impl Machine, pair: &Pair, there: &[Option<Interface>; 2], end: usize) -> Result<Vec<Step>> {
    let (address, peer) = (pair.addresses[end], pair.addresses[1 - end]);
    let own = there[end].as_ref();
    let mut steps = Vec::new();
    if !own.is_some_and(|own| same_name(&own.alias, &pair.names[end])) {
        steps.push(Step::Rename { end, name: pair.names[end].clone() });
    }
    if !own.is_some_and(|own| own.addresses.contains(&address)) {
        if own.is_none_or(|own| own.dad_transmits != 0) {
            steps.push(Step::QuietDad { end });
        }
        steps.push(Step::Address { end, address, bits: pair.bits });
    }
    if pair.routes {
        let known = match (own, &there[1 - end]) {
            (Some(own), Some(other)) => machine.neighbour(own.luid, peer)? == Some(other.mac),
            _ => false,
        };
        if !known {
            steps.push(Step::Neighbour { end, address: peer });
        }
        let routed = match own {
            Some(own) => machine.routed(own.luid, peer)?,
            None => false,
        };
        if !routed {
            steps.push(Step::Route { end, address: peer });
        }
    }
    Ok(steps)
}

/// Both ends of the cable, for the driver's plan.
impl Choice {
    /// The two ends of a cable.
    pub const PAIR: Self = Self { driver: &NIC, devices: 2 };
}
