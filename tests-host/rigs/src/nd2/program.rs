//! A program that speaks in control codes, without any library between: what the driver has to expect.

use std::{
    cell::Cell,
    panic::resume_unwind,
    sync::{Arc, Weak},
};

use nd2_control::wire::{ADDRESS, ELEMENT, KEY, LINK_NAME, RESULT, VERSION, Verb};
use simulated_kernel::{
    Answer, File, Kernel, Pending, Process,
    wdk::{NTSTATUS, STATUS_SUCCESS},
};

use super::reader::Reader;

/// An input.
#[derive(Clone, Default)]
pub struct Input(pub Vec<u8>);

impl Input {
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// An input that is one handle.
pub fn of(handle: u64) -> Input {
    Input::default().u64(handle)
}

/// The IPv4 address of an adapter, as the driver gives it, with a port.
pub fn address(adapter: u8, port: u16) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[..2].copy_from_slice(&ndkpi::AF_INET.to_le_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[192, 0, 2, adapter]);
    bytes
}

/// A program. Its first field is what ends it.
pub struct Program {
    pub process: Process,
    file: Weak<File>,
    /// Calls that it makes before it is to be killed.
    pub left: Cell<Option<u32>>,
}

/// What unwinds a program that is to be killed.
pub struct Killed;

impl Program {
    /// Starts one, which says who it is by a key made of `number`.
    pub fn start(kernel: &Kernel, number: u8) -> Self {
        Self::start_in(kernel.process(), number)
    }

    /// Starts one in this process.
    pub fn start_in(process: Process, number: u8) -> Self {
        let file = process.open(LINK_NAME).expect("the device is there");
        let program = Self { process, file: Arc::downgrade(&file), left: Cell::new(None) };
        drop(file);
        assert_eq!(program.enter(Verb::Begin, number), STATUS_SUCCESS);
        program
    }

    /// Its first file.
    pub fn file(&self) -> Arc<File> {
        self.file.upgrade().expect("the process has it open")
    }

    /// One more call, or the end.
    fn count(&self) {
        match self.left.get() {
            None => {}
            Some(0) => resume_unwind(Box::new(Killed)),
            Some(left) => self.left.set(Some(left - 1)),
        }
    }

    /// Says who it is, or whom it belongs to.
    pub fn enter(&self, verb: Verb, number: u8) -> NTSTATUS {
        self.call(verb, &Input::default().u32(VERSION).bytes(&[number; KEY]), 0).status
    }

    /// Sends a verb and waits for its answer.
    pub fn call(&self, verb: Verb, input: &Input, output: usize) -> Answer {
        self.begin(verb, input, output).wait()
    }

    /// Sends a verb.
    pub fn begin(&self, verb: Verb, input: &Input, output: usize) -> Pending {
        self.count();
        self.process.begin(&self.file(), verb.code(), &input.0, output)
    }

    /// Sends a verb that has to succeed, and gives its answer.
    #[track_caller]
    pub fn ask(&self, verb: Verb, input: &Input, output: usize) -> Vec<u8> {
        let answer = self.call(verb, input, output);
        assert_eq!(answer.status, STATUS_SUCCESS, "{verb:?}: {:#x}", answer.status);
        answer.bytes
    }

    /// Sends a verb that has to succeed and answers with a handle.
    #[track_caller]
    pub fn make(&self, verb: Verb, input: &Input) -> u64 {
        Reader::new(&self.ask(verb, input, 8)).u64().expect("a handle")
    }

    pub fn open(&self, adapter: u64) -> u64 {
        self.make(Verb::Open, &of(adapter))
    }

    pub fn queue(&self, adapter: u64) -> u64 {
        self.make(Verb::CreateCompletionQueue, &of(adapter).u32(64).u32(0).u64(0))
    }

    pub fn qp(&self, adapter: u64, queue: u64, context: u64) -> u64 {
        let input = of(adapter).u64(queue).u64(queue).u64(context);
        self.make(Verb::CreateQueuePair, &input.u32(16).u32(16).u32(4).u32(4).u32(64))
    }

    /// Registers memory of its own, and gives the region and its two tokens. The request stays.
    pub fn region(&self, adapter: u64, at: u64, length: usize, flags: u32) -> Region {
        let region = self.make(Verb::CreateRegion, &of(adapter));
        let request = self.register(region, at, length, flags).expect("memory of its own");
        assert!(!request.is_complete(), "{:?}", request.wait());
        let tokens = self.ask(Verb::Tokens, &of(region), 8);
        let mut tokens = Reader::new(&tokens);
        let (local, remote) = (tokens.u32().expect("a token"), tokens.u32().expect("a token"));
        Region { handle: region, local, remote, request }
    }

    pub fn register(&self, region: u64, at: u64, length: usize, flags: u32) -> Result<Pending, NTSTATUS> {
        let input = of(region).u64(at).u32(flags);
        let code = Verb::RegisterWritable.code();
        self.count();
        self.process.begin_direct(&self.file(), code, &input.0, (at, length))
    }

    pub fn results(&self, queue: u64, most: usize) -> Vec<Result_> {
        let bytes = self.ask(Verb::Results, &of(queue), most * RESULT);
        let parse = |bytes| {
            let mut bytes = Reader::new(bytes);
            let mut half = || bytes.u32().expect("a result");
            let (status, count) = (half().cast_signed(), half());
            let mut whole = || bytes.u64().expect("a result");
            Result_ { status, bytes: count, qp: whole(), request: whole() }
        };
        bytes.chunks_exact(RESULT).map(parse).collect()
    }

    pub fn receive(&self, qp: u64, context: u64, list: &[Element]) {
        self.ask(Verb::Receive, &elements(of(qp).u64(context), list), 0);
    }

    pub fn send(&self, qp: u64, context: u64, list: &[Element]) {
        self.ask(Verb::Send, &elements(of(qp).u64(context).u32(0), list), 0);
    }

    pub fn rdma(&self, verb: Verb, qp: u64, context: u64, (at, token): (u64, u32), list: &[Element]) {
        self.ask(verb, &elements(of(qp).u64(context).u64(at).u32(token).u32(0), list), 0);
    }
}

/// A registration.
pub struct Region {
    pub handle: u64,
    pub local: u32,
    pub remote: u32,
    pub request: Pending,
}

/// Address, length, token.
pub type Element = (u64, u32, u32);

pub fn elements(mut input: Input, list: &[Element]) -> Input {
    let before = input.0.len();
    for (at, length, token) in list {
        input = input.u64(*at).u32(*length).u32(*token);
    }
    assert_eq!(input.0.len() - before, list.len() * ELEMENT);
    input
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Result_ {
    pub status: NTSTATUS,
    pub bytes: u32,
    pub qp: u64,
    pub request: u64,
}

/// A program with an adapter, a queue, a queue pair and a connector.
pub struct Side<'p> {
    pub program: &'p Program,
    pub adapter: u64,
    pub queue: u64,
    pub qp: u64,
    pub connector: u64,
}

impl<'p> Side<'p> {
    pub fn new(program: &'p Program, number: u8, adapter: u8) -> Self {
        let adapter = program.open(adapter.into());
        let queue = program.queue(adapter);
        let qp = program.qp(adapter, queue, number.into());
        let connector = program.make(Verb::CreateConnector, &of(adapter));
        Self { program, adapter, queue, qp, connector }
    }

    /// Waits for one result.
    pub fn result(&self, kernel: &Kernel) -> Result_ {
        let mut found = Vec::new();
        kernel.wait_until(|| {
            found = self.program.results(self.queue, 1);
            !found.is_empty()
        });
        found[0]
    }
}

/// Connects two programs: the second one listens at port 7000 of adapter 2, or of the only one.
pub fn connect(active: &Side<'_>, passive: &Side<'_>, adapter: u8) -> u64 {
    let at = address(adapter, 7000);
    let listener = passive.program.make(Verb::CreateListener, &of(passive.adapter));
    passive.program.ask(Verb::BindListener, &of(listener).bytes(&at), 0);
    passive.program.ask(Verb::Listen, &of(listener).u32(0), 0);
    let arrives = passive.program.begin(Verb::GetConnectionRequest, &of(listener).u64(passive.connector), 0);
    let to = of(active.connector).u64(active.qp).u32(4).u32(4).bytes(&at).bytes(b"hello");
    let connects = active.program.begin(Verb::Connect, &to, 0);
    assert_eq!(arrives.wait().status, STATUS_SUCCESS);
    assert_eq!(passive.program.ask(Verb::PrivateData, &of(passive.connector), 1024)[..5], *b"hello");
    let accept = of(passive.connector).u64(passive.qp).u32(4).u32(4);
    let accepts = passive.program.begin(Verb::Accept, &accept, 0);
    assert_eq!(connects.wait().status, STATUS_SUCCESS);
    active.program.ask(Verb::CompleteConnect, &of(active.connector), 0);
    assert_eq!(accepts.wait().status, STATUS_SUCCESS);
    listener
}
