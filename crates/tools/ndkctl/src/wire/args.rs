//! The arguments of `ndkctl wire`.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Subcommand, ValueEnum};
use ndk::host::WireConfig;
use network::Impairment;

use super::perftest::Test;
use crate::size::{parse_count, parse_seed, parse_size};

/// Where `rping -s` listens.
pub const PORT: u16 = 7174;

const CODES: &str = "\
Exit code: 0 for success, 1 for a failure without a code of its own, 2 for a wrong argument, 3 if nobody answers to ARP or neighbour
discovery, 4 if the connection is refused, 5 if the peer wants another MTU, 6 if the UDP port or the address is in use, 7 if a
privilege is missing, 8 if the peer does not answer any more, 9 if other bytes came, 130 after Ctrl-C. docs/wire.md has the Linux side.";

/// `ndkctl wire`.
#[derive(Clone, Debug, Args)]
pub struct WireArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WireCommand,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum WireCommand {
    /// Show what the wire would use, and what the peer answers
    Info(WireInfo),
    /// Answer `rping -c` and `ndkctl wire ping`, until Ctrl-C
    Serve(WireServe),
    /// Connect to `rping -s` or to `ndkctl wire serve`, and measure; data is compared
    Ping(WirePing),
}

/// What carries the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// VXLAN in a UDP socket; needs no privilege.
    Vxlan,
    /// One frame a datagram: QEMU's `-netdev dgram`.
    Dgram,
    /// A tap device (Linux, `CAP_NET_ADMIN`).
    Tap,
    /// A network interface (Linux, `CAP_NET_RAW`).
    Interface,
}

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The address.
    pub address: IpAddr,
    /// The prefix.
    pub prefix: u8,
}

fn parse_local(text: &str) -> Result<Local, String> {
    let wrong = || "an address with its prefix, for example 10.0.0.2/24 or fd00::2/64".to_owned();
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= most).ok_or_else(wrong)?;
    Ok(Local { address, prefix })
}

/// A host, perhaps with a port: a name or an address.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The address; port 0 if none was given.
    pub address: SocketAddr,
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(Peer { address: (ip, 0).into() });
    }
    let found = if text.contains(':') { text.to_socket_addrs() } else { (text, 0).to_socket_addrs() };
    let first = found.ok().and_then(|mut all| all.next());
    first.map(|address| Peer { address }).ok_or_else(|| "HOST or HOST:PORT, which must be known here".to_owned())
}

fn parse_target(text: &str) -> Result<SocketAddr, String> {
    let plain = text.parse::<IpAddr>().map(|ip| (ip, PORT).into());
    plain
        .or_else(|_| text.parse())
        .map_err(|_| format!("an address, perhaps with a port ({PORT}): 10.0.0.1, [fd00::1]:7174"))
}

fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> =
        text.split([':', '-']).map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2)).collect();
    let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
    mac.ok_or_else(|| "a MAC address of one station, for example 02:00:00:00:00:02".to_owned())
}

/// Parts in a million, from a percentage.
fn parse_percent(text: &str) -> Result<u32, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000000")]
    number
        .map(|number| (number * 10_000.0).round() as u32)
        .ok_or_else(|| "a percentage from 0 to 100: 1, 0.5".to_owned())
}

fn parse_micros(text: &str) -> Result<Duration, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number <= 10_000_000);
    number.map(Duration::from_micros).ok_or_else(|| "microseconds from 0 to 10000000".to_owned())
}

/// The wire.
#[derive(Clone, Debug, Args)]
pub struct Of {
    /// An address of this side with its network's prefix; up to eight
    #[arg(long, value_name = "IP/PREFIX", value_parser = parse_local, required = true)]
    pub local: Vec<Local>,
    /// Where frames go: the other end of VXLAN or of a datagram socket, several with VXLAN; port 4789 unless given
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_peer)]
    pub peer: Vec<Peer>,
    /// What carries the frames
    #[arg(long, value_enum, default_value = "vxlan", value_name = "KIND")]
    pub network: Carrier,
    /// The name of the tap device or of the network interface
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// The UDP socket of this side; without it port 4789 of all addresses
    #[arg(long, value_name = "IP:PORT")]
    pub bind: Option<SocketAddr>,
    /// VXLAN's network identifier, 0 to 16777215
    #[arg(long, default_value = "42", value_name = "VNI", value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub vni: u32,
    /// Bytes of the network's packets: 352 to 9000; without it 1450 in VXLAN, 1500 elsewhere
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(352..=9000))]
    pub mtu: Option<u16>,
    /// The MAC address of this side; without it one made from the first address
    #[arg(long, value_name = "MAC", value_parser = parse_mac)]
    pub mac: Option<[u8; 6]>,
    /// A router for addresses of other networks; one for each family
    #[arg(long, value_name = "IP")]
    pub gateway: Vec<IpAddr>,
    /// Seed of what happens to frames; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "1", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Percentage of frames that are lost, in each direction
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = parse_percent)]
    pub lose: u32,
    /// Percentage of frames that come twice
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = parse_percent)]
    pub double: u32,
    /// Percentage of frames with a wrong bit
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = parse_percent)]
    pub change: u32,
    /// Percentage of frames that come up to a millisecond late, after others
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = parse_percent)]
    pub late: u32,
    /// Microseconds that each frame takes more
    #[arg(long, default_value = "0", value_name = "MICROSECONDS", value_parser = parse_micros)]
    pub delay: Duration,
    /// Write what is sent and received to this file, for Wireshark
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub pcap: Option<PathBuf>,
    /// What happens at NDKPI and on the wire.
    #[command(flatten)]
    pub record: crate::record::Record,
    /// Seconds that a peer which has stopped is waited for
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub patience: u32,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

impl Of {
    /// What happens to frames.
    pub const fn impairment(&self) -> Impairment {
        Impairment {
            lost: self.lose,
            doubled: self.double,
            changed: self.change,
            late: self.late,
            lateness: Duration::from_millis(1),
            delay: self.delay,
        }
    }

    /// Bytes of the network's packets.
    pub fn network_mtu(&self) -> u16 {
        self.mtu.unwrap_or(if self.network == Carrier::Vxlan { 1450 } else { 1500 })
    }

    /// Packets of requests that go before an ACK. Where each frame is taken by itself that saves nothing, and a peer that waits for both of
    /// its completion queues on one channel, as perftest with `-e` does, needs to hear of its own request first.
    pub fn before_ack(&self) -> u8 {
        match self.network {
            Carrier::Vxlan | Carrier::Dgram => WireConfig::new(self.station()).before_ack,
            Carrier::Tap | Carrier::Interface => 0,
        }
    }

    /// The station's address. One that is made is administered locally.
    pub fn station(&self) -> [u8; 6] {
        self.mac.unwrap_or_else(|| match self.local[0].address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                [0x02, 0x53, a, b, c, d]
            }
            IpAddr::V6(address) => {
                let [.., a, b, c, d] = address.octets();
                [0x02, 0x56, a, b, c, d]
            }
        })
    }

    /// This side's address for a peer: of its family and network, or else of its family.
    pub fn beside(&self, peer: IpAddr) -> Option<IpAddr> {
        let mut family = self.local.iter().filter(|local| local.address.is_ipv4() == peer.is_ipv4());
        let near = family.clone().find(|local| is_beside(**local, peer));
        near.or_else(|| family.next()).map(|local| local.address)
    }
}

/// Returns true if an address is of the network of another.
pub fn is_beside(local: Local, peer: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let differs = bits(local.address) ^ bits(peer);
    local.address.is_ipv4() == peer.is_ipv4() && differs.leading_zeros() >= u32::from(local.prefix)
}

/// `ndkctl wire info`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CODES)]
pub struct WireInfo {
    /// A peer to ask: its address, perhaps with a port to connect to
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = parse_target)]
    pub target: Option<SocketAddr>,
    /// The wire.
    #[command(flatten)]
    pub of: Of,
}

/// `ndkctl wire serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CODES)]
pub struct WireServe {
    /// The port to listen on, of all addresses; without it 7174, 7471 with --ucmatose, or 18515 with --perftest
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Answer `ucmatose -s` instead, with messages of --size, --count of them; it connects to port 7471
    #[arg(long)]
    pub ucmatose: bool,
    /// Answer a program of perftest with -R instead, with the same --size (its -s) and --count (its -n); it connects to port 18515
    #[arg(long, value_enum, value_name = "TEST", conflicts_with = "ucmatose")]
    pub perftest: Option<Test>,
    /// With --ucmatose or --perftest: bytes of a message; without it 100
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<u32>,
    /// With --ucmatose or --perftest: messages; without it 10, or 1000 with --perftest. ucmatose has 1000 at most
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub count: Option<u32>,
    /// End after so many connections
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub connections: Option<u32>,
    /// The wire.
    #[command(flatten)]
    pub of: Of,
}

/// `ndkctl wire ping`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CODES)]
pub struct WirePing {
    /// Whom to connect to
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = parse_target)]
    pub target: SocketAddr,
    /// Bytes of a message, 1 to 16M; K and M are powers of 1024. rping takes up to 64K
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = parse_size, allow_negative_numbers = true)]
    pub size: u32,
    /// Messages of a connection, 1 to 100000000
    #[arg(long, default_value = "100", value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub count: u32,
    /// Connections, one after the other
    #[arg(long, default_value = "1", value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub connections: u32,
    /// Measure writes, against `ndkctl wire serve`
    #[arg(long, conflicts_with_all = ["read", "send", "ucmatose"])]
    pub write: bool,
    /// Measure reads, against `ndkctl wire serve`
    #[arg(long, conflicts_with_all = ["send", "ucmatose"])]
    pub read: bool,
    /// Measure sends, against `ndkctl wire serve`
    #[arg(long, conflicts_with = "ucmatose")]
    pub send: bool,
    /// Talk to a `ucmatose` that listens, on port 7471 mostly: it sends --count messages of --size, and gets as many
    #[arg(long)]
    pub ucmatose: bool,
    /// Measure with a program of perftest that listens with -R, on port 18515 mostly, with the same --size (its -s) and --count (its -n)
    #[arg(long, value_enum, value_name = "TEST", conflicts_with_all = ["read", "send", "write", "ucmatose"])]
    pub perftest: Option<Test>,
    /// Seconds in which a peer that is not there yet is asked again
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: u32,
    /// The wire.
    #[command(flatten)]
    pub of: Of,
}

#[cfg(test)]
mod tests {
    use super::{is_beside, parse_local, parse_mac, parse_peer, parse_percent, parse_target};

    #[test]
    fn addresses_are_read() {
        let local = parse_local("10.0.0.2/24").expect("an address");
        assert!(is_beside(local, [10, 0, 0, 99].into()) && !is_beside(local, [10, 0, 1, 2].into()));
        assert!(!is_beside(local, "fd00::1".parse().expect("an address")));
        let local = parse_local("fd00::2/64").expect("an address");
        assert!(is_beside(local, "fd00::ffff:1".parse().expect("an address")));
        assert!(is_beside(parse_local("10.0.0.2/0").expect("all"), [1, 2, 3, 4].into()));
        for text in ["10.0.0.2", "10.0.0.2/33", "fd00::2/129", "x/24", "/"] {
            assert!(parse_local(text).is_err_and(|words| words.contains("10.0.0.2/24")), "{text}");
        }
        assert_eq!(parse_target("10.0.0.1").expect("an address"), ([10, 0, 0, 1], 7174).into());
        assert_eq!(parse_target("[fd00::1]:18515").expect("an address").port(), 18515);
        assert_eq!(parse_target("fd00::1").expect("an address").port(), 7174);
        assert!(parse_target("host").is_err());
        assert_eq!(parse_peer("127.0.0.1").expect("an address").address.port(), 0);
        assert_eq!(parse_peer("[::1]:5000").expect("an address").address, "[::1]:5000".parse().expect("an address"));
        assert!(parse_peer("::1").is_ok_and(|peer| peer.address.is_ipv6()));
        assert!(parse_peer("127.0.0.1:99999").is_err());
    }

    #[test]
    fn stations_and_percentages_are_read() {
        assert_eq!(parse_mac("02:00:00:00:00:0a"), Ok([2, 0, 0, 0, 0, 10]));
        for text in
            ["", "01:00:00:00:00:00", "00:00:00:00:00:00", "02:00:00:00:00", "2:0:0:0:0:1", "02:00:00:00:00:01:02"]
        {
            assert!(parse_mac(text).is_err(), "{text}");
        }
        assert_eq!(
            (parse_percent("1"), parse_percent("0.5%"), parse_percent("100")),
            (Ok(10_000), Ok(5000), Ok(1_000_000))
        );
        for text in ["-1", "101", "x", "nan"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }
}
