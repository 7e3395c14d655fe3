//! Which adapters a recording needs: their addresses and limits.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use engine::connection::InterfaceAddress;
use interpose::{Function, Phase};
use ndkpi::{NDK_ADAPTER_INFO, NDK_VERSION};
use provider::{Config, device::MAX_ADDRESSES};
use recording::{Arguments, Recording};

use crate::addresses;

/// The adapters of a machine, at most.
const MOST: usize = 8;

/// The adapters that a recording was made with.
pub struct Adapters {
    /// The addresses of each device.
    pub devices: Vec<Vec<IpAddr>>,
    /// The device that an adapter of the recording was opened on.
    pub device_of: HashMap<u8, usize>,
    /// What the provider said of itself, if somebody asked.
    pub info: Option<NDK_ADAPTER_INFO>,
}

impl Adapters {
    /// Those of a recording.
    ///
    /// # Errors
    ///
    /// One line, if there are more than a machine has.
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let mut used: Vec<(u8, Vec<IpAddr>)> = Vec::new();
        let mut info = None;
        for record in &recording.records {
            if !used.iter().any(|(adapter, _)| *adapter == record.adapter) {
                used.push((record.adapter, Vec::new()));
            }
            let local = match &record.arguments {
                Arguments::Connect(connect)
                    if matches!(record.function, Function::Connect) && record.phase == Phase::Call =>
                {
                    Some(&connect.local)
                }
                Arguments::Listen { address } | Arguments::CreateSharedEndpoint { address } => Some(address),
                Arguments::QueryAdapterInfo { info: Some(said), .. } => {
                    info.get_or_insert(**said);
                    None
                }
                _ => None,
            };
            let local = local.and_then(|bytes| addresses::parse(&bytes.bytes)).map(|address| address.ip());
            let own = used.iter_mut().find(|(adapter, _)| *adapter == record.adapter);
            if let (Some(local), Some((_, addresses))) = (local.filter(can_be_local), own)
                && !addresses.contains(&local)
                && addresses.len() < MAX_ADDRESSES
            {
                addresses.push(local);
            }
        }
        let (mut devices, mut device_of) = (Vec::<Vec<IpAddr>>::new(), HashMap::new());
        for (adapter, addresses) in &used {
            let shares = |device: &Vec<IpAddr>| device.iter().any(|address| addresses.contains(address));
            let device = match devices.iter().position(shares) {
                Some(device) => device,
                None if addresses.is_empty() => 0,
                None => {
                    devices.push(Vec::new());
                    devices.len() - 1
                }
            };
            device_of.insert(*adapter, device);
            if let Some(device) = devices.get_mut(device) {
                for address in addresses {
                    if !device.contains(address) && device.len() < MAX_ADDRESSES {
                        device.push(*address);
                    }
                }
            }
        }
        if devices.is_empty() {
            devices.push(vec![Ipv4Addr::new(192, 0, 2, 1).into()]);
        }
        if devices.len() > MOST {
            return Err(format!("the recording has {} adapters, a replay {MOST} at most", devices.len()));
        }
        Ok(Self { devices, device_of, info })
    }

    /// Makes the configuration of the device with these usual addresses that of the recording: its addresses, and no limit above
    /// those that were recorded.
    pub fn adjust(&self, config: &mut Config, device: usize) {
        let Some(own) = self.devices.get(device) else { return };
        config.addresses = [None; MAX_ADDRESSES];
        for (place, address) in config.addresses.iter_mut().zip(own) {
            let prefix = if address.is_ipv4() { 24 } else { 64 };
            *place = Some(InterfaceAddress::new(*address, prefix));
        }
        let Some(said) = &self.info else { return };
        let info = &mut config.info;
        macro_rules! at_most {
            ($($field:ident),+ $(,)?) => { $(info.$field = info.$field.min(said.$field);)+ };
        }
        at_most!(MaxInitiatorRequestSge, MaxReceiveRequestSge, MaxReadRequestSge, MaxTransferLength);
        at_most!(MaxInlineDataSize, MaxInboundReadLimit, MaxOutboundReadLimit, MaxReceiveQueueDepth);
        at_most!(MaxInitiatorQueueDepth, MaxSrqDepth, MaxCqDepth, MaxCallerData, MaxCalleeData);
        info.AdapterFlags &= said.AdapterFlags;
        info.RdmaTechnology = said.RdmaTechnology;
    }

    /// The version to open adapters with.
    pub fn version(&self) -> NDK_VERSION {
        match &self.info {
            Some(info) if info.Version.Major == 1 => NDK_VERSION::new(1, 0),
            _ => NDK_VERSION::V2_0,
        }
    }
}

/// Returns true for an address that an adapter can have.
fn can_be_local(address: &IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}
