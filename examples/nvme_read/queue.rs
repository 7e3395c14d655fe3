//! A queue of NVMe: a queue pair, capsules, and memory for data.

use std::{fmt, net::SocketAddr};

use ndk::{Access, Adapter, Completion, Connection, Cq, FastMr, Flags, Mr, Notify, NtStatus, Offer, Pd, Qp, QpSizes};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::capsule::{COMMAND, Command, ConnectionRequest, RESPONSE, Response, Sgl};

/// Commands that a queue has room for: what NVMe over Fabrics gives an admin queue. One at a time is used here.
pub const DEPTH: u16 = 32;
/// Bytes of data of one command at most.
pub const DATA: u32 = 64 << 10;
/// How long a response is waited for, in microseconds.
const PATIENCE: u64 = 10_000_000;

/// Contexts of requests.
const REGISTER: usize = 1;
const SEND: usize = 2;
const INVALIDATE: usize = 3;

/// Why something does not work.
#[derive(Debug)]
pub enum Error {
    /// The adapter's status.
    Ndk(&'static str, NtStatus),
    /// The controller's status of a command: its type and code.
    Command(&'static str, u16),
    /// What must not be.
    Wrong(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ndk(what, status) => write!(f, "{what}: {status}"),
            Self::Command(what, status) => {
                write!(f, "{what}: the controller answers status {:#x} of type {}", status & 0xFF, status >> 8 & 7)
            }
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

/// Which way the data of a command goes.
pub enum Data<'a> {
    None,
    ToController(&'a [u8]),
    ToHost(&'a mut [u8]),
}

/// A connected queue. Its parts close in this order; what is under way then is flushed.
pub struct Queue {
    _connection: Connection,
    qp: Qp,
    sends: Cq,
    receives: Cq,
    responses: Mr,
    data: FastMr,
    next: u16,
    _pd: Pd,
}

impl Queue {
    /// Connects queue `number` of the controller at `to`.
    pub fn connect(adapter: &Adapter, from: SocketAddr, to: SocketAddr, number: u16) -> Result<Self, Error> {
        let failed = |what| move |status| Error::Ndk(what, status);
        let pd = adapter.create_pd().map_err(failed("a protection domain"))?;
        let cq = || adapter.create_cq(u32::from(DEPTH) * 3).map_err(failed("a completion queue"));
        let (sends, receives) = (cq()?, cq()?);
        let memory = |bytes| adapter.memory(bytes).map_err(failed("memory"));
        let responses = pd.register(memory(RESPONSE as usize * usize::from(DEPTH))?, Access::LOCAL_WRITE);
        let responses = responses.map_err(failed("memory for responses"))?;
        let mapping = adapter.map(memory(DATA as usize)?).map_err(failed("memory for data"))?;
        let data = pd.create_fast_mr(mapping, true).map_err(failed("a region for fast registration"))?;
        let depth = u32::from(DEPTH);
        // A capsule is inline, so that no memory of it has to be registered.
        let sizes = QpSizes { receives: depth, requests: 3 * depth, inline: COMMAND, ..QpSizes::default() };
        let mut qp = pd.create_qp(&receives, &sends, sizes, 0).map_err(failed("a queue pair"))?;
        // Before the connection is there: the controller may answer at once.
        for slot in 0..usize::from(DEPTH) {
            post(&mut qp, &responses, slot)?;
        }
        let request = ConnectionRequest::new(number, DEPTH);
        // The controller reads what is written to it: as many reads at a time as NDKPI's providers have at least.
        let offer = Offer { inbound_reads: 16, outbound_reads: 1, private_data: request.as_bytes() };
        let connector = adapter.create_connector().map_err(failed("a connector"))?;
        let connecting = connector.connect(&qp, from, to, &offer).map_err(failed("connect"))?;
        let offered = connecting.wait().map_err(failed("connect"))?;
        let completing = offered.complete(|| ()).map_err(failed("complete the connect"))?;
        let connection = completing.wait().map_err(failed("complete the connect"))?;
        Ok(Self { _connection: connection, qp, sends, receives, responses, data, next: 0, _pd: pd })
    }

    /// Sends a command and waits for its response: the result.
    pub fn run(&mut self, what: &'static str, mut command: Command, data: Data<'_>) -> Result<u64, Error> {
        let failed = |status| Error::Ndk(what, status);
        self.next = self.next.wrapping_add(1);
        command.id = self.next.into();
        let token = match &data {
            Data::None => None,
            Data::ToController(bytes) => {
                self.data.write(0, bytes).map_err(failed)?;
                Some((bytes.len(), Access::REMOTE_READ))
            }
            Data::ToHost(bytes) => Some((bytes.len(), Access::LOCAL_WRITE | Access::REMOTE_WRITE)),
        };
        let token = token
            .map(|(length, access)| {
                // The registration holds for the capsule, which is posted behind it (NDKPI 7.4).
                let initiator = &mut self.qp.initiator;
                initiator.fast_register(REGISTER, &self.data, (0, length), access, Flags::SILENT)?;
                let remote = self.data.remote(0)?;
                let length = u32::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
                command.data = Sgl::new(remote.address, length, remote.token.to_bits());
                Ok(remote.token)
            })
            .transpose()
            .map_err(failed)?;
        self.qp.initiator.send_inline(SEND, command.as_bytes(), Flags::empty()).map_err(failed)?;
        let (response, invalidated) = self.response(what)?;
        if response.id != command.id {
            return Err(Error::Wrong(format!("{what}: a response to command {}", response.id)));
        }
        // The controller may have read the capsule only now; its completion says that the slot is free.
        self.completed(what, SEND)?;
        if let Some(token) = token {
            match invalidated {
                // The controller's response has ended the registration.
                Some(given) if given == token => {}
                Some(given) => {
                    return Err(Error::Wrong(format!("{what}: token {:#x} was invalidated", given.to_bits())));
                }
                // It may leave that to the host.
                None => {
                    self.qp.initiator.invalidate(INVALIDATE, &self.data, Flags::empty()).map_err(failed)?;
                    self.completed(what, INVALIDATE)?;
                }
            }
        }
        if response.status() != 0 {
            return Err(Error::Command(what, response.status()));
        }
        if let Data::ToHost(bytes) = data {
            self.data.read(0, bytes).map_err(failed)?;
        }
        Ok(response.result.get())
    }

    /// Waits for a response, and posts its receive again. The token that it has invalidated is there too.
    fn response(&mut self, what: &'static str) -> Result<(Response, Option<ndk::RemoteToken>), Error> {
        let failed = |status| Error::Ndk(what, status);
        let done = next(what, &mut self.receives)?;
        let slot = done.ok().map_err(failed)?;
        if done.bytes() != RESPONSE {
            return Err(Error::Wrong(format!("{what}: a response of {} bytes", done.bytes())));
        }
        let mut bytes = [0; RESPONSE as usize];
        self.responses.read(slot * RESPONSE as usize, &mut bytes).map_err(failed)?;
        post(&mut self.qp, &self.responses, slot)?;
        let response = Response::read_from_bytes(&bytes).unwrap_or_default();
        Ok((response, done.invalidated()))
    }

    /// Waits for the completion of a request.
    fn completed(&mut self, what: &'static str, request: usize) -> Result<(), Error> {
        let done = next(what, &mut self.sends)?.ok().map_err(|status| Error::Ndk(what, status))?;
        if done == request { Ok(()) } else { Err(Error::Wrong(format!("{what}: request {done} has completed"))) }
    }
}

/// Posts the receive of a response.
fn post(qp: &mut Qp, responses: &Mr, slot: usize) -> Result<(), Error> {
    let posted = responses.sge(slot * RESPONSE as usize, RESPONSE).and_then(|sge| qp.receiver.receive(slot, &[sge]));
    posted.map_err(|status| Error::Ndk("a receive", status))
}

/// The next completion.
fn next(what: &'static str, cq: &mut Cq) -> Result<Completion, Error> {
    let mut room = [Completion::EMPTY];
    match cq.wait_for(&mut room, Notify::Any, PATIENCE).map_err(|status| Error::Ndk(what, status))? {
        [done] => Ok(*done),
        _ => Err(Error::Wrong(format!("{what}: no answer"))),
    }
}
