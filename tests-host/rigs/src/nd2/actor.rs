//! Processes that send control codes with anything in them, and end in between.

use nd2_control::wire::{KEY, LINK_NAME, VERSION, Verb};
use simulated_kernel::{Kernel, Process, wdk::STATUS_PENDING};

use super::{
    program::{Input, address, of},
    reader::Reader,
    world::World,
};

/// What decides what is sent: random numbers from a seed (`xorshift64*`), or a fuzzer's bytes, and zeros behind them.
pub struct Random<'b> {
    seed: u64,
    bytes: Option<&'b [u8]>,
}

impl<'b> Random<'b> {
    pub const fn seeded(seed: u64) -> Self {
        Self { seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), bytes: None }
    }

    pub const fn of(bytes: &'b [u8]) -> Self {
        Self { seed: 0, bytes: Some(bytes) }
    }

    /// A fuzzer's bytes are at their end.
    pub const fn is_over(&self) -> bool {
        matches!(self.bytes, Some([]))
    }

    /// The next number, of which so many bytes are asked for.
    fn number(&mut self, width: usize) -> u64 {
        if let Some(bytes) = &mut self.bytes {
            let (first, rest) = bytes.split_at(width.min(bytes.len()));
            *bytes = rest;
            let mut number = [0; 8];
            number[..first.len()].copy_from_slice(first);
            return u64::from_le_bytes(number);
        }
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn next(&mut self) -> u64 {
        self.number(8)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let width = if bound <= 256 { 1 } else { 2 };
        usize::try_from(self.number(width) % bound as u64).expect("a small number")
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// What stands in an input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// A handle of what that verb makes.
    Made(Verb),
    /// An address, a context, an adapter's number: 64 bits.
    Long,
    /// A size, a type, a number of something: 32 bits, mostly small.
    Small,
    /// A socket's address.
    Address,
    /// Elements of a request.
    Elements,
    /// Some bytes.
    Bytes,
}

/// What a verb wants.
pub fn shape(verb: Verb) -> Vec<Field> {
    use Field::{Address, Bytes, Elements, Long, Made, Small};
    let (adapter, queue, region) = (Made(Verb::Open), Made(Verb::CreateCompletionQueue), Made(Verb::CreateRegion));
    let (qp, srq, window) =
        (Made(Verb::CreateQueuePair), Made(Verb::CreateSharedReceiveQueue), Made(Verb::CreateWindow));
    let (connector, listener) = (Made(Verb::CreateConnector), Made(Verb::CreateListener));
    match verb {
        Verb::Begin | Verb::Join => vec![Small, Long, Long],
        Verb::Addresses => vec![],
        Verb::Open => vec![Long],
        Verb::Query | Verb::CreateRegion | Verb::CreateWindow | Verb::CreateConnector | Verb::CreateListener => {
            vec![adapter]
        }
        Verb::CreateCompletionQueue => vec![adapter, Small, Small, Long],
        Verb::Affinity | Verb::Results | Verb::Close | Verb::Cancel => vec![queue],
        Verb::Resize | Verb::Notify => vec![queue, Small],
        Verb::RegisterReadable | Verb::RegisterWritable => vec![region, Long, Small],
        Verb::Registered | Verb::Deregister | Verb::Tokens => vec![region],
        Verb::WindowToken => vec![window],
        Verb::CreateSharedReceiveQueue => vec![adapter, Small, Small, Small, Small, Long],
        Verb::Modify => vec![srq, Small, Small],
        Verb::NotifyShared => vec![srq],
        Verb::ReceiveShared => vec![srq, Long, Elements],
        Verb::CreateQueuePair => vec![adapter, queue, queue, Long, Small, Small, Small, Small, Small],
        Verb::CreateQueuePairWithShared => vec![adapter, queue, queue, srq, Long, Small, Small, Small],
        Verb::Flush => vec![qp],
        Verb::Send => vec![qp, Long, Small, Elements],
        Verb::Receive => vec![qp, Long, Elements],
        Verb::Bind => vec![qp, Long, region, window, Long, Long, Small],
        Verb::Invalidate => vec![qp, Long, window, Small],
        Verb::Read | Verb::Write => vec![qp, Long, Long, Small, Small, Elements],
        Verb::SendAndInvalidate => vec![qp, Long, Small, Small, Elements],
        Verb::BindConnector => vec![connector, Address],
        Verb::Connect => vec![connector, qp, Small, Small, Address, Bytes],
        Verb::Accept => vec![connector, qp, Small, Small, Bytes],
        Verb::Reject => vec![connector, Bytes],
        Verb::CompleteConnect
        | Verb::ReadLimits
        | Verb::PrivateData
        | Verb::LocalAddress
        | Verb::PeerAddress
        | Verb::NotifyDisconnect
        | Verb::Disconnect => vec![connector],
        Verb::BindListener => vec![listener, Address],
        Verb::Listen => vec![listener, Small],
        Verb::GetConnectionRequest => vec![listener, connector],
    }
}

/// A process and the handles it was given.
pub struct Actor {
    pub process: Process,
    /// With the verb that has made each.
    handles: Vec<(Verb, u64)>,
    memory: u64,
}

impl Actor {
    pub fn new(kernel: &Kernel, number: u8) -> Self {
        let process = kernel.process();
        let file = process.open(LINK_NAME).expect("the device");
        let begun = file.control(Verb::Begin.code(), &Input::default().u32(VERSION).bytes(&[number; KEY]).0, 0);
        assert!(begun.is_success());
        let memory = process.allocate(8192, true);
        let mut actor = Self { process, handles: Vec::new(), memory };
        let opened = actor.process.begin(&file, Verb::Open.code(), &of(1).0, 8).wait();
        actor.learn(Verb::Open, &opened.bytes);
        actor
    }

    fn learn(&mut self, verb: Verb, answer: &[u8]) {
        if let Ok(handle) = Reader::new(answer).u64() {
            // Queue pairs of either verb are queue pairs.
            let verb = if verb == Verb::CreateQueuePairWithShared { Verb::CreateQueuePair } else { verb };
            self.handles.push((verb, handle));
        }
    }

    /// A handle of what a verb makes, mostly.
    fn handle(&self, verb: Verb, random: &mut Random<'_>) -> u64 {
        let fitting: Vec<_> = self.handles.iter().filter(|(of, _)| *of == verb || random.one_in(12)).collect();
        if fitting.is_empty() || random.one_in(30) { random.next() % 3 } else { fitting[random.below(fitting.len())].1 }
    }

    fn long(&self, random: &mut Random<'_>) -> u64 {
        match random.below(6) {
            0 => 0,
            1 => random.next(),
            2 => 1 << random.below(64),
            _ => self.memory + random.next() % 8192,
        }
    }

    /// An input that may well be accepted.
    fn input(&self, verb: Verb, random: &mut Random<'_>) -> Input {
        let small = |random: &mut Random<'_>| {
            let number = if random.one_in(9) { random.next() } else { random.next() % 9 };
            u32::try_from(number & 0xFFFF_FFFF).expect("32 bits")
        };
        let mut input = Input::default();
        for field in shape(verb) {
            input = match field {
                Field::Made(by) if matches!(verb, Verb::Close | Verb::Cancel) => {
                    let any = self.handles[random.below(self.handles.len())];
                    input.u64(if any.0 == Verb::Open { self.handle(by, random) } else { any.1 })
                }
                Field::Made(by) => input.u64(self.handle(by, random)),
                Field::Long if verb == Verb::Open => input.u64(random.next() % 3),
                Field::Long => input.u64(self.long(random)),
                Field::Small => input.u32(small(random)),
                Field::Address => {
                    let port = 7000 + u16::try_from(random.below(3)).expect("a small number");
                    input.bytes(&address(1, if random.one_in(3) { 0 } else { port }))
                }
                Field::Elements => {
                    let elements = (0..random.below(4)).map(|_| (self.long(random), small(random), small(random)));
                    let elements: Vec<_> = elements.collect();
                    super::program::elements(input, &elements)
                }
                Field::Bytes => {
                    let length = random.below(40);
                    input.bytes(&vec![0xAB; length])
                }
            };
        }
        if random.one_in(15) && !input.0.is_empty() {
            let at = random.below(input.0.len());
            input.0[at] ^= 1 << random.below(8);
        }
        if random.one_in(20) {
            let length = random.below(input.0.len() + 1);
            input.0.truncate(length);
        }
        input
    }

    /// Returns the verb if it was carried out.
    pub fn step(&mut self, random: &mut Random<'_>) -> Option<Verb> {
        let verb = Verb::ALL[random.below(Verb::ALL.len())];
        let code = if random.one_in(20) { verb.code() ^ 1 << random.below(32) } else { verb.code() };
        let input = self.input(verb, random);
        let output = [0, 8, 28, 1024, 1024, 1024][random.below(6)];
        let file = self.process.first_file().ok()?;
        let sent = if matches!(code % 4, 1 | 2) {
            let range = (self.memory + random.next() % 8192, random.below(9000));
            self.process.begin_direct(&file, code, &input.0, range)
        } else {
            Ok(self.process.begin(&file, code, &input.0, output))
        };
        let sent = sent.ok()?;
        if sent.is_complete() {
            let answer = sent.wait();
            assert_ne!(answer.status, STATUS_PENDING);
            assert!(answer.bytes.len() <= output, "{verb:?}: {} bytes for {output}", answer.bytes.len());
            if answer.is_success() && format!("{verb:?}").starts_with("Create") && verb.code() == code {
                self.learn(verb, &answer.bytes);
            }
            return answer.is_success().then(|| Verb::from_code(code))?;
        }
        if random.one_in(4) {
            sent.cancel();
        }
        Verb::from_code(code)
    }
}

/// Some processes send what `random` says, and end in between. Returns the verbs that were carried out. Nothing may be left of them:
/// the kernel looks.
pub fn life(seed: u64, steps: usize, random: &mut Random<'_>) -> Vec<Verb> {
    let mut reached = Vec::new();
    let world = World::seeded(seed, 1);
    let mut actors: Vec<_> = (1..4).map(|number| Actor::new(&world.kernel, number)).collect();
    for _ in 0..steps {
        if random.is_over() {
            break;
        }
        let one = random.below(actors.len());
        reached.extend(actors[one].step(random));
        if random.one_in(90) && actors.len() > 1 {
            actors.swap_remove(random.below(actors.len())).process.kill();
        }
    }
    drop(actors);
    world.end();
    reached
}
