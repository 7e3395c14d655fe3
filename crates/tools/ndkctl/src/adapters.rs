//! `ndkctl adapters`: the network interfaces of the machine and their NDK capabilities.

use std::net::IpAddr;

use conformance::{
    client::Adapter,
    host::{HostPlatform, Setup},
    platform::{Family, Platform as _},
};
use control::{client::NetworkInterface, network::Interface};
use host::{note, say};
use ndkpi::{NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION, NtStatus};
use serde_json::{Value, json};

use crate::{
    End,
    args::Adapters,
    driver,
    info::flags,
    output::{align_right, bytes, print_json, print_table, table},
};

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &Adapters) -> Result<End, String> {
    let all = if cfg!(windows) {
        driver::interfaces(&driver::open()?)?
    } else {
        note!("ndkctl adapters: interfaces have NDK on Windows only; these are the adapters of this program");
        own()?
    };
    if args.json {
        print_json(&all.iter().map(as_json).collect::<Vec<_>>())?;
    } else {
        print(&all);
    }
    Ok(End::Good)
}

/// The adapters that this program has without a driver, as interfaces.
fn own() -> Result<Vec<NetworkInterface>, String> {
    let platform = HostPlatform::start(Setup::default()).map_err(|status| format!("no machine: {status}"))?;
    let describe = |number: u32| {
        let (_, info) = Adapter::glimpse(&platform, number, NDK_VERSION::V2_0)
            .map_err(|stop| format!("{stop:?}"))?
            .map_err(|status| format!("adapter {number}: {status}"))?;
        let addresses = [Family::V4, Family::V6].into_iter().filter_map(|family| platform.address(number, family));
        Ok(NetworkInterface {
            facts: Interface { index: number, ..facts(&info) },
            alias: format!("adapter {number}"),
            description: "SoftNDK on the host".to_owned(),
            addresses: addresses.collect(),
        })
    };
    let all = (0..platform.adapters()).map(describe).collect::<Result<_, String>>();
    platform.finish()?;
    all
}

/// What an adapter reports of itself, in the form in which a driver passes it on.
fn facts(info: &NDK_ADAPTER_INFO) -> Interface {
    Interface {
        up: 1,
        major: info.Version.Major.into(),
        minor: info.Version.Minor.into(),
        technology: info.RdmaTechnology.0.cast_unsigned(),
        flags: info.AdapterFlags,
        vendor: info.VendorId,
        receive_depth: info.MaxReceiveQueueDepth,
        initiator_depth: info.MaxInitiatorQueueDepth,
        cq_depth: info.MaxCqDepth,
        receive_sge: info.MaxReceiveRequestSge,
        initiator_sge: info.MaxInitiatorRequestSge,
        read_sge: info.MaxReadRequestSge,
        inbound_reads: info.MaxInboundReadLimit,
        outbound_reads: info.MaxOutboundReadLimit,
        transfer: info.MaxTransferLength,
        inline: info.MaxInlineDataSize,
        caller_data: info.MaxCallerData,
        callee_data: info.MaxCalleeData,
        ..Interface::default()
    }
}

/// The name of a technology.
pub fn technology(number: u32) -> String {
    match NDK_RDMA_TECHNOLOGY(number.cast_signed()) {
        NDK_RDMA_TECHNOLOGY::UNDEFINED => "undefined".to_owned(),
        NDK_RDMA_TECHNOLOGY::IWARP => "iWARP".to_owned(),
        NDK_RDMA_TECHNOLOGY::INFINIBAND => "InfiniBand".to_owned(),
        NDK_RDMA_TECHNOLOGY::ROCE => "RoCE".to_owned(),
        NDK_RDMA_TECHNOLOGY::ROCE_V2 => "RoCEv2".to_owned(),
        other => format!("{}", other.0),
    }
}

/// A speed in a suitable unit.
fn speed(bits: u64) -> String {
    match bits {
        0 | u64::MAX => "-".to_owned(),
        1_000_000_000.. => format!("{} Gb/s", bits / 1_000_000_000),
        _ => format!("{} Mb/s", bits / 1_000_000),
    }
}

/// The NDK column of an interface: the adapter's limits, or why it has no NDK.
fn ndk(facts: &Interface) -> String {
    if facts.status == 0 {
        let Interface { receive_sge, initiator_sge, read_sge, caller_data, callee_data, .. } = facts;
        let Interface { receive_depth, initiator_depth, inbound_reads, outbound_reads, .. } = facts;
        return format!(
            "depths {receive_depth}/{initiator_depth}, elements {receive_sge}/{initiator_sge}/{read_sge}, reads \
             {inbound_reads}/{outbound_reads}, private data {caller_data}/{callee_data}, transfers up to {}",
            bytes(facts.transfer.into())
        );
    }
    match NtStatus::from_bits(facts.status) {
        NtStatus::NDIS_ADAPTER_NOT_READY => "disabled (Enable-NetAdapterRdma)".to_owned(),
        status => format!("none ({status})"),
    }
}

fn print(all: &[NetworkInterface]) {
    let mut list = table(&["index", "interface", "state", "speed", "addresses", "NDKPI", "technology", "NDK"]);
    for NetworkInterface { facts, alias, addresses, .. } in all {
        let has = facts.status == 0;
        let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
        list.add_row([
            facts.index.to_string(),
            alias.clone(),
            if facts.up == 0 { "down" } else { "up" }.to_owned(),
            speed(facts.speed),
            if addresses.is_empty() { "-".to_owned() } else { addresses.join(" ") },
            if has { format!("{}.{}", facts.major, facts.minor) } else { "-".to_owned() },
            if has { technology(facts.technology) } else { "-".to_owned() },
            ndk(facts),
        ]);
    }
    align_right(&mut list, 0);
    print_table(&list);
    let capable = all.iter().filter(|one| one.facts.status == 0).count();
    say!("{} interfaces, {capable} with NDK", all.len());
}

fn as_json(interface: &NetworkInterface) -> Value {
    let NetworkInterface { facts, alias, description, addresses } = interface;
    let ndk = if facts.status == 0 {
        json!({
            "version": format!("{}.{}", facts.major, facts.minor),
            "technology": technology(facts.technology),
            "flags": flags(facts.flags),
            "VendorId": facts.vendor,
            "MaxReceiveQueueDepth": facts.receive_depth,
            "MaxInitiatorQueueDepth": facts.initiator_depth,
            "MaxCqDepth": facts.cq_depth,
            "MaxReceiveRequestSge": facts.receive_sge,
            "MaxInitiatorRequestSge": facts.initiator_sge,
            "MaxReadRequestSge": facts.read_sge,
            "MaxInboundReadLimit": facts.inbound_reads,
            "MaxOutboundReadLimit": facts.outbound_reads,
            "MaxTransferLength": facts.transfer,
            "MaxInlineDataSize": facts.inline,
            "MaxCallerData": facts.caller_data,
            "MaxCalleeData": facts.callee_data,
        })
    } else {
        Value::Null
    };
    json!({
        "index": facts.index,
        "alias": alias,
        "description": description,
        "up": facts.up != 0,
        "bits_per_second": facts.speed,
        "addresses": addresses,
        "status": NtStatus::from_bits(facts.status).to_string(),
        "ndk": ndk,
    })
}

#[cfg(test)]
mod tests {
    use control::{client::NetworkInterface, network::Interface};
    use ndkpi::NtStatus;

    use super::{as_json, ndk, own, speed, technology};

    #[test]
    fn this_program_has_adapters_of_its_own() {
        let all = own().expect("adapters");
        assert!(!all.is_empty());
        assert!(all.iter().all(|one| one.facts.status == 0 && !one.addresses.is_empty()), "{all:?}");
        assert_eq!((all[0].facts.major, all[0].facts.minor), (2, 1));
    }

    #[test]
    fn an_interface_without_ndk_says_why() {
        let without = |status: NtStatus| Interface { status: status.to_bits(), ..Interface::default() };
        assert_eq!(ndk(&without(NtStatus::NOT_SUPPORTED)), "none (STATUS_NOT_SUPPORTED)");
        assert_eq!(ndk(&without(NtStatus::NDIS_ADAPTER_NOT_READY)), "disabled (Enable-NetAdapterRdma)");
        let interface = NetworkInterface {
            facts: without(NtStatus::NOT_SUPPORTED),
            alias: "Wi-Fi".to_owned(),
            description: String::new(),
            addresses: Vec::new(),
        };
        assert!(as_json(&interface)["ndk"].is_null());
    }

    #[test]
    fn technologies_and_speeds_have_names() {
        assert_eq!([1, 2, 3, 4, 9].map(technology), ["iWARP", "InfiniBand", "RoCE", "RoCEv2", "9"]);
        assert_eq!([0, 100_000_000, 100_000_000_000].map(speed), ["-", "100 Mb/s", "100 Gb/s"]);
    }
}
