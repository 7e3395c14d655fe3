//! `ndkctl wire info`.

use std::{
    net::IpAddr,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use host::say;
use ndk::Offer;
use roce::mtu::Mtu;
use serde::Serialize;

use super::{
    args::{WireInfo, is_beside},
    fault::Fault,
    line::{End, Line, READS, open_segment},
    perf::DEPTH,
    probe::Asker,
};
use crate::output::{duration, labelled, print_json};

#[derive(Serialize)]
struct InfoJson {
    segment: String,
    mac: String,
    addresses: Vec<String>,
    network_mtu: u16,
    path_mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<PeerJson>,
}

#[derive(Serialize)]
struct PeerJson {
    address: String,
    /// Of the peer, or of the router before it.
    mac: String,
    neighbour_microseconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    echo_microseconds: Option<f64>,
    /// Whether a packet of the network's MTU is answered; not there if a small one is not either.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_packets: Option<bool>,
    /// "accepts", "refuses" or "silent".
    connection_manager: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_microseconds: Option<f64>,
    answer: String,
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs the command.
pub fn run(args: &WireInfo, interrupted: &AtomicBool) -> Result<(), Fault> {
    let of = &args.of;
    let (segment, capture) = open_segment(of)?;
    let mut info = InfoJson {
        segment: segment.describe(),
        mac: text(of.station()),
        addresses: of.local.iter().map(|local| format!("{}/{}", local.address, local.prefix)).collect(),
        network_mtu: of.network_mtu(),
        path_mtu: Mtu::of_network(of.network_mtu().into()).bytes(),
        peer: None,
    };
    let Some(target) = args.target else { return show(args, &info) };
    let address = of.beside(target.ip()).ok_or_else(|| Fault::NoRoute(target.ip()))?;
    let beside = of.local.iter().any(|local| is_beside(*local, target.ip()));
    let gateway = of.gateway.iter().find(|gateway| gateway.is_ipv4() == target.is_ipv4()).copied();
    let near: IpAddr = if beside { target.ip() } else { gateway.ok_or_else(|| Fault::NoRoute(target.ip()))? };
    let failed = |error: std::io::Error| Fault::Other(format!("{}: {error}", segment.describe()));
    let asker = Asker { segment: &*segment, mac: of.station(), address };
    let Some((mac, took)) = asker.station(near).map_err(failed)? else {
        show(args, &info)?;
        return Err(Fault::NoNeighbour(near));
    };
    let small = asker.echo(mac, target.ip(), 100).map_err(failed)?;
    let whole = match small {
        Some(_) => Some(asker.echo(mac, target.ip(), of.network_mtu().into()).map_err(failed)?.is_some()),
        None => None,
    };
    let line = Line::on(of, interrupted, segment, capture)?;
    let (manager, connect, answer) = ask(&line, target)?;
    line.finish()?;
    info.peer = Some(PeerJson {
        address: target.to_string(),
        mac: text(mac),
        neighbour_microseconds: micros(took),
        echo_microseconds: small.map(micros),
        whole_packets: whole,
        connection_manager: manager,
        connect_microseconds: connect.map(micros),
        answer,
    });
    show(args, &info)
}

/// Asks the peer's connection manager for a connection, and ends it.
fn ask(line: &Line<'_>, target: std::net::SocketAddr) -> Result<(&'static str, Option<Duration>, String), Fault> {
    let mut end = End::new(line, DEPTH)?;
    end.post_messages()?;
    let offer = Offer { inbound_reads: READS, outbound_reads: READS, private_data: b"" };
    let begun = Instant::now();
    let connected = line.connect(&end.qp, target, &offer, &end.gone);
    let took = begun.elapsed();
    Ok(match connected {
        Ok((connection, _)) => {
            // The peer may have ended it already.
            let _ = connection.disconnect().and_then(ndk::Pending::wait);
            ("accepts", Some(took), "it accepts connections on this port".to_owned())
        }
        Err(fault @ (Fault::Refused(_) | Fault::OtherMtu(_))) => ("refuses", Some(took), fault.to_string()),
        Err(fault @ Fault::Silent(_)) => ("silent", None, fault.to_string()),
        Err(fault) => return Err(fault),
    })
}

fn show(args: &WireInfo, info: &InfoJson) -> Result<(), Fault> {
    if args.of.json {
        return print_json(info).map_err(Fault::Other);
    }
    let mtu = format!("{} bytes a packet on the network, {} of data a RoCE packet", info.network_mtu, info.path_mtu);
    let addresses = info.addresses.join(", ");
    let mut rows =
        vec![("segment", info.segment.clone()), ("station", info.mac.clone()), ("addresses", addresses), ("MTU", mtu)];
    if let Some(peer) = &info.peer {
        let time = |micros: f64| duration(Duration::from_secs_f64(micros / 1e6));
        rows.push((
            "peer",
            format!("{} at {}, which answered after {}", peer.address, peer.mac, time(peer.neighbour_microseconds)),
        ));
        let echo = match (peer.echo_microseconds, peer.whole_packets) {
            (None, _) => "no answer to ICMP echo (SoftNDK gives none): the path MTU is not known".to_owned(),
            (Some(took), Some(true)) => {
                format!("answered after {}; packets of {} bytes arrive", time(took), info.network_mtu)
            }
            (Some(took), _) => format!(
                "answered after {}, but not one of {} bytes: give a smaller --mtu, or the peer's interface and the network between a \
                 larger MTU",
                time(took),
                info.network_mtu
            ),
        };
        rows.push(("echo", echo));
        let took = peer.connect_microseconds.map_or_else(String::new, |took| format!(" (after {})", time(took)));
        rows.push(("RoCE", format!("{}{took}", peer.answer)));
    }
    let rows: Vec<_> = rows.iter().map(|(label, text)| (*label, &text[..])).collect();
    say!("{}", labelled(0, &rows).trim_end());
    Ok(())
}
