//! A small target, so that the example runs on any machine: one subsystem with a namespace of 1024 blocks in memory.
//!
//! It answers one command at a time of each queue, and what the host of this example asks only. Linux has a whole one.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
};

use examples::station::Station;
use ndk::{
    Access, Adapter, Completion, Flags, Incoming, Listener, Notify, NtStatus, Offer, QpSizes, Remote, RemoteToken,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{
    capsule::{
        COMMAND, Command, ConnectData, IdentifyController, IdentifyNamespace, RESPONSE, Response, fabrics, opcode,
        property::{CAP, CC, CSTS},
    },
    queue::{DATA, DEPTH, Error},
};

/// The name of the subsystem.
pub const SUBSYSTEM: &str = "nqn.2014-08.org.softndk:memory";
/// Blocks of the namespace.
const BLOCKS: usize = 1024;
/// The power of two that is the size of a block.
const EXPONENT: u8 = 9;
/// The one controller.
const CONTROLLER: u16 = 1;
/// How often the end is looked for, in microseconds.
const LOOK: u64 = 10_000;

/// Statuses: the type and the code.
mod status {
    pub const SUCCESS: u16 = 0;
    pub const INVALID_OPCODE: u16 = 0x001;
    pub const INVALID_FIELD: u16 = 0x002;
    pub const INVALID_NAMESPACE: u16 = 0x00B;
    pub const OUT_OF_RANGE: u16 = 0x080;
    /// Of connect: its data names another subsystem or controller.
    pub const CONNECT_INVALID: u16 = 0x182;
}

/// What the queues share.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    enabled: AtomicBool,
    ends: AtomicBool,
}

impl Disk {
    /// The bytes of so many blocks from `first` on.
    fn range(first: u64, blocks: u64) -> Option<core::ops::Range<usize>> {
        let end = first.checked_add(blocks).filter(|end| *end <= BLOCKS as u64)?;
        let at = |block: u64| usize::try_from(block << EXPONENT).ok();
        Some(at(first)?..at(end)?)
    }
}

/// A target that listens.
pub struct Target {
    disk: Arc<Disk>,
    listener: Listener,
    thread: JoinHandle<Result<(), Error>>,
}

impl Target {
    /// Listens at an address of a station.
    pub fn start(station: &Station, at: SocketAddr) -> Result<Self, Error> {
        let failed = |status| Error::Ndk("the target", status);
        let adapter = station.open().map_err(failed)?;
        let disk = Arc::new(Disk {
            bytes: Mutex::new(vec![0; BLOCKS << EXPONENT]),
            enabled: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        });
        let (ask, asked) = mpsc::channel();
        let listener = adapter.listen(at, move |incoming| drop(ask.send(incoming))).map_err(failed)?;
        let shared = disk.clone();
        let thread = thread::spawn(move || accept(&adapter, &asked, &shared));
        Ok(Self { disk, listener, thread })
    }

    /// Ends it.
    pub fn finish(self) -> Result<(), Error> {
        self.disk.ends.store(true, Release);
        drop(self.listener);
        self.thread.join().unwrap_or_else(|_| Err(Error::Wrong("the target has panicked".to_owned())))
    }
}

/// Serves each connection by a thread, until the listener has gone.
fn accept(adapter: &Adapter, asked: &Receiver<Incoming>, disk: &Arc<Disk>) -> Result<(), Error> {
    thread::scope(|scope| {
        let mut queues = Vec::new();
        for incoming in asked {
            queues.push(scope.spawn(move || serve(adapter, incoming, disk)));
        }
        queues.into_iter().try_for_each(|queue| {
            let ended = queue.join().unwrap_or(Err(NtStatus::UNSUCCESSFUL));
            ended.map_err(|status| Error::Ndk("a queue of the target", status))
        })
    })
}

/// Serves a queue, until the host has disconnected.
fn serve(adapter: &Adapter, incoming: Incoming, disk: &Disk) -> Result<(), NtStatus> {
    let pd = adapter.create_pd()?;
    let depth = u32::from(DEPTH);
    let (mut receives, mut sends) = (adapter.create_cq(depth * 2)?, adapter.create_cq(depth * 2)?);
    let commands = pd.register(adapter.memory(COMMAND as usize * usize::from(DEPTH))?, Access::LOCAL_WRITE)?;
    let mut data = pd.register(adapter.memory(DATA as usize)?, Access::LOCAL_WRITE | Access::READ_SINK)?;
    let mut answers = pd.register(adapter.memory(RESPONSE as usize)?, Access::LOCAL_WRITE)?;
    let sizes = QpSizes { receives: depth, requests: depth, ..QpSizes::default() };
    let mut qp = pd.create_qp(&receives, &sends, sizes, 0)?;
    for slot in 0..usize::from(DEPTH) {
        qp.receiver.receive(slot, &[commands.sge(slot * COMMAND as usize, COMMAND)?])?;
    }
    let gone = Arc::new(AtomicBool::new(false));
    let over = gone.clone();
    let offer = Offer { inbound_reads: 1, outbound_reads: 16, private_data: &[0; 32] };
    let _connection = incoming.accept(&qp, &offer, move || over.store(true, Release))?.wait()?;
    let mut room = [Completion::EMPTY];
    loop {
        let slot = match receives.wait_for(&mut room, Notify::Any, LOOK)? {
            [done] => match done.ok() {
                Ok(slot) => slot,
                // Flushed: the host has gone.
                Err(_) => return Ok(()),
            },
            _ if gone.load(Acquire) || disk.ends.load(Acquire) => return Ok(()),
            _ => continue,
        };
        let mut bytes = [0; COMMAND as usize];
        commands.read(slot * COMMAND as usize, &mut bytes)?;
        qp.receiver.receive(slot, &[commands.sge(slot * COMMAND as usize, COMMAND)?])?;
        let Ok(command) = Command::read_from_bytes(&bytes) else { unreachable!("any bytes are one") };
        let token = RemoteToken::from_bits(command.data.key.get());
        let place = Remote { address: command.data.address.get(), token };
        let length = command.data.length();
        let room_used = length.min(DATA);
        let mut answer = answer(disk, &command);
        if let Ok(Answer { from_host: true, .. }) = answer {
            qp.initiator.read(0, &[data.sge(0, room_used)?], place, Flags::empty())?;
            sends.wait(&mut room, Notify::Any)?[0].ok()?;
            let mut bytes = vec![0; length as usize];
            data.read(0, &mut bytes)?;
            answer = take(disk, &command, &bytes);
        }
        let (result, status, to_host) = match answer {
            Ok(Answer { result, to_host, .. }) => (result, status::SUCCESS, to_host),
            Err(status) => (0, status, Vec::new()),
        };
        if !to_host.is_empty() {
            data.write(0, &to_host)?;
            // In order before the response, so nobody has to wait for it.
            qp.initiator.write(0, &[data.sge(0, room_used)?], place, Flags::SILENT)?;
        }
        answers.write(0, Response::new(command.id, result, status).as_bytes())?;
        let response = [answers.sge(0, RESPONSE)?];
        if length == 0 {
            qp.initiator.send(0, &response, Flags::empty())?;
        } else {
            qp.initiator.send_and_invalidate(0, &response, token, Flags::empty())?;
        }
        match sends.wait(&mut room, Notify::Any)?[0].ok() {
            Ok(_) => {}
            Err(_) if gone.load(Acquire) || disk.ends.load(Acquire) => return Ok(()),
            Err(status) => return Err(status),
        }
    }
}

/// The outcome of a command.
#[derive(Default)]
struct Answer {
    result: u64,
    /// Its data, for the host's memory.
    to_host: Vec<u8>,
    /// Its data is to be read from the host's memory first.
    from_host: bool,
}

/// What a command without data of the host does, or the status of what is refused.
fn answer(disk: &Disk, command: &Command) -> Result<Answer, u16> {
    let field = command.specific.map(zerocopy::little_endian::U32::get);
    let wants = command.data.length() as usize;
    if wants > DATA as usize {
        return Err(status::INVALID_FIELD);
    }
    let to_host = |mut bytes: Vec<u8>| {
        bytes.resize(wants, 0);
        Ok(Answer { to_host: bytes, ..Answer::default() })
    };
    let from_host = Ok(Answer { from_host: true, ..Answer::default() });
    let result = |result| Ok(Answer { result, ..Answer::default() });
    match (command.opcode, command.namespace.get()) {
        (opcode::FABRICS, kind) => match (u8::try_from(kind), field[1]) {
            (Ok(fabrics::CONNECT), _) if wants == size_of::<ConnectData>() => from_host,
            // Up to 128 entries, ready within half a second.
            (Ok(fabrics::PROPERTY_GET), CAP) => result(127 | 1 << 24 | 1 << 37),
            (Ok(fabrics::PROPERTY_GET), CSTS) => result(disk.enabled.load(Acquire).into()),
            (Ok(fabrics::PROPERTY_SET), CC) => {
                disk.enabled.store(field[2] & 1 != 0, Release);
                result(0)
            }
            _ => Err(status::INVALID_FIELD),
        },
        (opcode::IDENTIFY, _) if field[0] == 1 => {
            let it = IdentifyController::new(
                *b"1                   ",
                *b"SoftNDK example target                  ",
                *b"1       ",
            );
            to_host(it.as_bytes().to_vec())
        }
        (_, namespace) if namespace != 1 => Err(status::INVALID_NAMESPACE),
        (opcode::IDENTIFY, _) => to_host(IdentifyNamespace::new(BLOCKS as u64, EXPONENT).as_bytes().to_vec()),
        (opcode::READ, _) => {
            let range = blocks(&field, wants)?;
            to_host(disk.bytes.lock().unwrap_or_else(PoisonError::into_inner)[range].to_vec())
        }
        (opcode::WRITE, _) => blocks(&field, wants).and(from_host),
        _ => Err(status::INVALID_OPCODE),
    }
}

/// The bytes of a transfer, which the host's memory must have room for exactly.
fn blocks(field: &[u32; 6], wants: usize) -> Result<core::ops::Range<usize>, u16> {
    let first = u64::from(field[0]) | u64::from(field[1]) << 32;
    let range = Disk::range(first, u64::from(field[2] & 0xFFFF) + 1).ok_or(status::OUT_OF_RANGE)?;
    if range.len() == wants { Ok(range) } else { Err(status::INVALID_FIELD) }
}

/// What a command does with data of the host.
fn take(disk: &Disk, command: &Command, bytes: &[u8]) -> Result<Answer, u16> {
    if command.opcode == opcode::WRITE {
        let range = blocks(&command.specific.map(zerocopy::little_endian::U32::get), bytes.len())?;
        disk.bytes.lock().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(bytes);
        return Ok(Answer::default());
    }
    let Ok(data) = ConnectData::ref_from_bytes(bytes) else { return Err(status::INVALID_FIELD) };
    let queue = command.specific[0].get() >> 16;
    let right = if queue == 0 { ConnectData::ANY } else { CONTROLLER };
    if data.subsystem() != SUBSYSTEM.as_bytes() || data.controller.get() != right {
        return Err(status::CONNECT_INVALID);
    }
    Ok(Answer { result: CONTROLLER.into(), ..Answer::default() })
}
