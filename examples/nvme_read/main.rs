//! A small NVMe over Fabrics host: connects to a controller by RDMA, identifies it, writes and reads blocks.
//!
//! `cargo run --example nvme_read`
//!
//! Without arguments the target is a small one in this program, over a segment in memory. With `--target` it is whatever answers there,
//! over VXLAN, such as Linux' `nvmet-rdma` on rxe: [docs/wire.md](../../docs/wire.md) has the commands of that side.
//!
//! Data moves as NVMe wants it: each command registers its memory by a fast registration (`NDKPI 7.4`), the controller reads or writes
//! that by RDMA, and its response is a send that invalidates the token (`NDKPI 7.6`).

mod args;
mod capsule;
mod controller;
mod queue;
mod target;

use std::{fs, net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use examples::station::Station;
use network::{Datagrams, Impairment, Segment, Vxlan, VxlanConfig, memory};
use pico_args::Arguments;

use crate::{
    args::{Args, Carrier, USAGE},
    controller::Controller,
    queue::Error,
    target::Target,
};

/// The port of NVMe over RDMA.
const PORT: u16 = 4420;

/// Opens the segment that the arguments name, and says how long packets on it are at most.
fn open(args: &Args, peer: SocketAddr) -> Result<(Arc<dyn Segment>, u16), Error> {
    let failed = |error: network::OpenError| Error::Wrong(error.to_string());
    Ok(match args.network {
        Carrier::Vxlan => {
            let config = VxlanConfig::new(args.vni, vec![peer]);
            let local = args.bind.unwrap_or(config.local);
            (Arc::new(Vxlan::open(&VxlanConfig { local, ..config }).map_err(failed)?), 1450)
        }
        Carrier::Dgram => {
            let local = args.bind.ok_or_else(|| Error::Wrong("--network dgram needs --bind IP:PORT".to_owned()))?;
            (Arc::new(Datagrams::open(local, peer).map_err(failed)?), 1500)
        }
    })
}

/// Connects, writes and reads.
fn transfer(station: &Station, to: SocketAddr, args: &Args) -> Result<(), Error> {
    let adapter = station.open().map_err(|status| Error::Ndk("the adapter", status))?;
    let from = (station.address(), 0).into();
    let mut controller = Controller::connect(&adapter, from, to, &args.nqn, args.namespace)?;
    println!("controller at {to}: {}", controller.description);
    println!("namespace {}: {} blocks of {} bytes", args.namespace, controller.blocks, controller.block);
    let file = |path: &Path, error: std::io::Error| Error::Wrong(format!("{}: {error}", path.display()));
    if let Some(path) = &args.write {
        let bytes = fs::read(path).map_err(|error| file(path, error))?;
        controller.write(args.first, &bytes)?;
        println!("{} bytes written from block {} on", bytes.len(), args.first);
    }
    let mut bytes = vec![0; controller.block as usize * args.blocks as usize];
    controller.read(args.first, &mut bytes)?;
    println!("{} bytes read from block {} on", bytes.len(), args.first);
    match &args.out {
        Some(path) => fs::write(path, &bytes).map_err(|error| file(path, error))?,
        None => println!("they begin with {:02x?}", &bytes[..bytes.len().min(16)]),
    }
    controller.finish()
}

fn run(args: &Args) -> Result<(), Error> {
    let failed = |status| Error::Ndk("an adapter on the segment", status);
    if let (Some(to), Some(peer)) = (args.target, args.peer) {
        let (segment, mtu) = open(args, peer)?;
        let station = Station::start(segment, args.local, args.prefix, mtu).map_err(failed)?;
        return transfer(&station, to, args);
    }
    let [near, far] = memory::pair(Impairment::default(), 1);
    let station = Station::start(Arc::new(near), args.local, args.prefix, 1500).map_err(failed)?;
    let other = Station::start(Arc::new(far), [10, 0, 0, 1].into(), 24, 1500).map_err(failed)?;
    let to = (other.address(), PORT).into();
    let target = Target::start(&other, to)?;
    transfer(&station, to, args)?;
    target.finish()
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_env();
    if arguments.contains(["-h", "--help"]) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let args = Args::parse(arguments).map_err(|error| Error::Wrong(format!("{error}; --help")));
    match args.and_then(|args| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn arguments(more: &[&str]) -> Args {
        Args::parse(Arguments::from_vec(more.iter().map(Into::into).collect())).expect("arguments")
    }

    /// A file of this test alone.
    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nvme_read-{}-{name}", std::process::id()))
    }

    #[test]
    fn it_runs() {
        run(&arguments(&[])).expect("a controller in this program");
    }

    /// More than one command takes, which is written, and read by another host.
    #[test]
    fn what_was_written_is_read() {
        let (from, to) = (scratch("from"), scratch("to"));
        let bytes: Vec<u8> = (0..300 * 512_u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
        fs::write(&from, &bytes).expect("a scratch file");
        let path = |path: &Path| path.to_str().expect("a name").to_owned();
        let args = ["--first", "7", "--blocks", "300", "--write", &path(&from), "--out", &path(&to)];
        run(&arguments(&args)).expect("written and read");
        let read = fs::read(&to).expect("what was read");
        for path in [from, to] {
            fs::remove_file(path).expect("a scratch file");
        }
        assert!(read == bytes, "other bytes came back");
    }

    #[test]
    fn blocks_that_there_are_not_are_refused() {
        let error = run(&arguments(&["--first", "1020"])).expect_err("a namespace of 1024 blocks");
        assert_eq!(error.to_string(), "4096 bytes from block 1020 on: the namespace has 1024 blocks of 512 bytes");
    }

    /// What the controller itself refuses: connect with an unknown name, a namespace that it does not have.
    #[test]
    fn the_controllers_statuses_are_told() {
        let error = run(&arguments(&["--nqn", "nqn.2014-08.org.example:other"])).expect_err("another subsystem");
        assert_eq!(error.to_string(), "connect: the controller answers status 0x82 of type 1");
        let error = run(&arguments(&["--namespace", "2"])).expect_err("another namespace");
        assert_eq!(error.to_string(), "identify: the controller answers status 0xb of type 0");
    }
}
