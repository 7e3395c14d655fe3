//! What the program is told.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use pico_args::Arguments;

use crate::{PORT, target::SUBSYSTEM};

pub const USAGE: &str = "\
nvme_read [OPTIONS]

  --target IP[:PORT]   the controller's address; without it there is a small target in this program
  --nqn NQN            the subsystem's qualified name [default: that of the small target]
  --namespace NUMBER   the namespace [default: 1]
  --first BLOCK        the first block [default: 0]
  --blocks COUNT       how many blocks are read [default: 8]
  --write FILE         write the contents of this file first, from the first block on; its size must be whole blocks
  --out FILE           write what was read to this file
  --local IP           this side's address in the network [default: 10.0.0.2]
  --prefix BITS        the length of the network's prefix [default: 24]
  --peer IP:PORT       where the frames go: the other end of the VXLAN, or of the datagrams
  --bind IP:PORT       this side's UDP socket [default for vxlan: its port, of all addresses]
  --network KIND       what carries the frames: vxlan, or dgram, one frame a datagram as QEMU does [default: vxlan]
  --vni VNI            VXLAN's network identifier [default: 42]
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// VXLAN in a UDP socket.
    Vxlan,
    /// One frame a datagram: QEMU's `-netdev dgram`.
    Dgram,
}

#[derive(Debug)]
pub struct Args {
    pub target: Option<SocketAddr>,
    pub nqn: String,
    pub namespace: u32,
    pub first: u64,
    pub blocks: u32,
    pub write: Option<PathBuf>,
    pub out: Option<PathBuf>,
    pub local: IpAddr,
    pub prefix: u8,
    pub peer: Option<SocketAddr>,
    pub bind: Option<SocketAddr>,
    pub network: Carrier,
    pub vni: u32,
}

fn target(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|address| (address, PORT).into());
    address
        .or_else(|_| text.parse())
        .map_err(|_| "an address, perhaps with a port: 10.0.0.1, [fd00::1]:4420".to_owned())
}

fn carrier(text: &str) -> Result<Carrier, String> {
    match text {
        "vxlan" => Ok(Carrier::Vxlan),
        "dgram" => Ok(Carrier::Dgram),
        _ => Err("vxlan or dgram".to_owned()),
    }
}

impl Args {
    /// # Errors
    ///
    /// What is wrong with the arguments.
    pub fn parse(mut from: Arguments) -> Result<Self, Box<dyn std::error::Error>> {
        let path = |text: &std::ffi::OsStr| Ok::<_, Infallible>(PathBuf::from(text));
        let args = Self {
            target: from.opt_value_from_fn("--target", target)?,
            nqn: from.opt_value_from_str("--nqn")?.unwrap_or_else(|| SUBSYSTEM.to_owned()),
            namespace: from.opt_value_from_str("--namespace")?.unwrap_or(1),
            first: from.opt_value_from_str("--first")?.unwrap_or(0),
            blocks: from.opt_value_from_str("--blocks")?.unwrap_or(8),
            write: from.opt_value_from_os_str("--write", path)?,
            out: from.opt_value_from_os_str("--out", path)?,
            local: from.opt_value_from_str("--local")?.unwrap_or_else(|| [10, 0, 0, 2].into()),
            prefix: from.opt_value_from_str("--prefix")?.unwrap_or(24),
            peer: from.opt_value_from_str("--peer")?,
            bind: from.opt_value_from_str("--bind")?,
            network: from.opt_value_from_fn("--network", carrier)?.unwrap_or(Carrier::Vxlan),
            vni: from.opt_value_from_str("--vni")?.unwrap_or(42),
        };
        let rest = from.finish();
        if !rest.is_empty() {
            return Err(format!("what is {rest:?}?").into());
        }
        if args.target.is_some() && args.peer.is_none() {
            return Err("--target needs --peer: where the frames go".into());
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        let words = words.iter().map(Into::into).collect();
        Args::parse(Arguments::from_vec(words)).expect_err("wrong arguments").to_string()
    }

    #[test]
    fn wrong_arguments_are_refused_and_say_what_is_right() {
        assert_eq!(refused(&["--target", "10.0.0.1"]), "--target needs --peer: where the frames go");
        assert_eq!(refused(&["--frist", "7"]), r#"what is ["--frist", "7"]?"#);
        assert!(refused(&["--network", "tcp"]).contains("vxlan or dgram"));
        assert!(refused(&["--target", "here", "--peer", "10.0.0.1:4789"]).contains("perhaps with a port"));
    }

    #[test]
    fn the_port_of_a_target_is_nvmes_unless_it_says_another() {
        assert_eq!(target("10.0.0.1"), Ok(([10, 0, 0, 1], PORT).into()));
        assert_eq!(target("10.0.0.1:7"), Ok(([10, 0, 0, 1], 7).into()));
    }
}
