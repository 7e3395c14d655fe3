//! A controller of an NVMe subsystem, and one of its namespaces.

use std::net::SocketAddr;

use ndk::Adapter;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{
    capsule::{
        Command, ConnectData, Identify, IdentifyController, IdentifyNamespace, opcode,
        property::{CAP, CC, CSTS},
    },
    queue::{DATA, DEPTH, Data, Error, Queue},
};

/// Configuration: enabled, entries of 64 bytes in submission queues and of 16 in completion queues.
const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;
/// Configuration: shut down, in order.
const SHUT_DOWN: u32 = ENABLED | 1 << 14;
/// Status: ready.
const READY: u64 = 1;
/// Status: it has failed.
const FATAL: u64 = 2;
/// Bytes of an identify structure.
const IDENTIFY: usize = 4096;

/// The name of this host.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:50f7a4d1-0000-4000-8000-6e646b68f057";

/// A controller with an admin queue and one I/O queue.
pub struct Controller {
    admin: Queue,
    io: Queue,
    /// What it says of itself: model, serial number, firmware.
    pub description: String,
    namespace: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Blocks of the namespace.
    pub blocks: u64,
}

impl Controller {
    /// Connects to a namespace of a subsystem.
    pub fn connect(
        adapter: &Adapter,
        from: SocketAddr,
        to: SocketAddr,
        subsystem: &str,
        namespace: u32,
    ) -> Result<Self, Error> {
        let mut admin = Queue::connect(adapter, from, to, 0)?;
        let data = ConnectData::new(ConnectData::ANY, subsystem, HOST);
        let connected = admin.run("connect", Command::connect(0, DEPTH), Data::ToController(data.as_bytes()))?;
        let number = u16::try_from(connected & 0xFFFF).unwrap_or_default();
        enable(&mut admin)?;
        let mut bytes = [0; IDENTIFY];
        let mut identify = |admin: &mut Queue, what| {
            admin.run("identify", Command::identify(what), Data::ToHost(&mut bytes)).map(|_| bytes)
        };
        let bytes = identify(&mut admin, Identify::Controller)?;
        let description = match IdentifyController::ref_from_prefix(&bytes) {
            Ok((it, _)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches([' ', '\0']).to_owned();
                format!("{}, serial {}, firmware {}", text(&it.model), text(&it.serial), text(&it.firmware))
            }
            Err(_) => unreachable!("an identify structure is longer"),
        };
        let bytes = identify(&mut admin, Identify::Namespace(namespace))?;
        let (it, _) = IdentifyNamespace::ref_from_prefix(&bytes)
            .unwrap_or_else(|_| unreachable!("an identify structure is longer"));
        let unknown = || Error::Wrong(format!("namespace {namespace} has no blocks: is there one?"));
        let (block, blocks) = (it.block().ok_or_else(unknown)?, it.size.get());
        let mut io = Queue::connect(adapter, from, to, 1)?;
        let data = ConnectData::new(number, subsystem, HOST);
        io.run("connect the I/O queue", Command::connect(1, DEPTH), Data::ToController(data.as_bytes()))?;
        Ok(Self { admin, io, description, namespace, block, blocks })
    }

    /// Blocks of one command at most.
    fn most(&self) -> usize {
        (DATA / self.block) as usize
    }

    /// Refuses what is outside of the namespace.
    fn check(&self, first: u64, bytes: usize) -> Result<(), Error> {
        let (block, bytes) = (u64::from(self.block), bytes as u64);
        if bytes % block != 0 || first.checked_add(bytes / block).is_none_or(|end| end > self.blocks) {
            return Err(Error::Wrong(format!(
                "{bytes} bytes from block {first} on: the namespace has {} blocks of {block} bytes",
                self.blocks
            )));
        }
        Ok(())
    }

    /// Reads whole blocks from `first` on.
    pub fn read(&mut self, mut first: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(first, into.len())?;
        for part in into.chunks_mut(self.most() * self.block as usize) {
            let blocks = part.len() / self.block as usize;
            let command = Command::transfer(opcode::READ, self.namespace, first, small(blocks));
            self.io.run("read", command, Data::ToHost(part))?;
            first += blocks as u64;
        }
        Ok(())
    }

    /// Writes whole blocks from `first` on.
    pub fn write(&mut self, mut first: u64, from: &[u8]) -> Result<(), Error> {
        self.check(first, from.len())?;
        for part in from.chunks(self.most() * self.block as usize) {
            let blocks = part.len() / self.block as usize;
            let command = Command::transfer(opcode::WRITE, self.namespace, first, small(blocks));
            self.io.run("write", command, Data::ToController(part))?;
            first += blocks as u64;
        }
        Ok(())
    }

    /// Shuts the controller down.
    pub fn finish(mut self) -> Result<(), Error> {
        self.admin.run("shut down", Command::property_set(CC, SHUT_DOWN), Data::None).map(drop)
    }
}

/// Blocks of one command: [`DATA`] bytes are at most 128 of them.
fn small(blocks: usize) -> u16 {
    u16::try_from(blocks).unwrap_or_else(|_| unreachable!("a command has few blocks"))
}

/// Enables the controller and waits until it is ready, at most as long as it says that it takes.
fn enable(admin: &mut Queue) -> Result<(), Error> {
    let capabilities = admin.run("read the capabilities", Command::property_get(CAP, true), Data::None)?;
    admin.run("enable the controller", Command::property_set(CC, ENABLED), Data::None)?;
    // In units of half a second.
    let most = std::time::Duration::from_millis((capabilities >> 24 & 0xFF).max(1) * 500);
    let begun = std::time::Instant::now();
    loop {
        let status = admin.run("read the status", Command::property_get(CSTS, false), Data::None)?;
        if status & FATAL != 0 {
            return Err(Error::Wrong("the controller has failed".to_owned()));
        }
        if status & READY != 0 {
            return Ok(());
        }
        if begun.elapsed() > most {
            return Err(Error::Wrong(format!("the controller was not ready after {} ms", most.as_millis())));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
