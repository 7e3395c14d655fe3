//! A thread that drives its adapter on a wire.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use host::machine::Machine;
use ndk::{
    Access, Adapter, Completion, Cq, Flags, Mr, Notify, NtStatus, Offer, Qp, QpSizes,
    host::{Cable, Config, InterfaceAddress, WireConfig, Wired, at_dispatch, drives, rest},
};

const PATIENCE: u64 = 20_000_000;

/// Frames that left with one call, and on which thread.
type Left = (ThreadId, usize);

/// Leads into a channel.
struct Out {
    frames: Mutex<Sender<Vec<u8>>>,
    left: Arc<Mutex<Vec<Left>>>,
}

impl Cable for Out {
    fn send(&self, frame: &[u8]) {
        // Nobody is there any more: the frame is lost.
        let _ = self.frames.lock().expect("no panic").send(frame.to_vec());
    }

    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        let count = frames.map(|frame| self.send(frame)).count();
        self.left.lock().expect("no panic").push((thread::current().id(), count));
    }
}

/// An adapter, and what is at its end of the wire.
struct Side {
    wired: Wired,
    frames: Receiver<Vec<u8>>,
    left: Arc<Mutex<Vec<Left>>>,
    address: SocketAddr,
}

fn sides(unwatched: bool) -> [Side; 2] {
    let [(to_far, at_far), (to_near, at_near)] = [mpsc::channel(), mpsc::channel()];
    let side = |number: u8, to, frames| {
        let address = Ipv4Addr::new(192, 0, 2, number);
        let mut config = Config { addresses: [None; _], ..Config::default() };
        config.addresses[0] = Some(InterfaceAddress::new(address.into(), 24));
        let wire = WireConfig::new([2, 0, 0, 0, 0, number]);
        let left = Arc::<Mutex<Vec<Left>>>::default();
        let cable = Box::new(Out { frames: Mutex::new(to), left: left.clone() });
        let machine = Machine::threads().processors(1).start();
        let start = if unwatched { Wired::unwatched } else { Wired::with };
        let wired = start(machine, config, wire, cable).expect("an adapter on a wire");
        Side { wired, frames, left, address: (address, 0).into() }
    };
    [side(1, to_far, at_near), side(2, to_near, at_far)]
}

/// What brings frames in from a channel.
fn source(frames: &Receiver<Vec<u8>>, patience: Duration, take: &mut dyn FnMut(&[u8])) -> usize {
    let Ok(first) = frames.recv_timeout(patience) else { return 0 };
    take(&first);
    1 + frames.try_iter().map(|frame| take(&frame)).count()
}

struct End {
    qp: Qp,
    sends: Cq,
    receives: Cq,
    mr: Mr,
}

impl End {
    fn new(adapter: &Adapter) -> Result<Self, NtStatus> {
        let pd = adapter.create_pd()?;
        let mr = pd.register(adapter.memory(64)?, Access::LOCAL_WRITE)?;
        let [sends, receives] = [adapter.create_cq(64)?, adapter.create_cq(64)?];
        let qp = pd.create_qp(&receives, &sends, QpSizes::default(), 0)?;
        Ok(Self { qp, sends, receives, mr })
    }

    fn receive(&mut self) {
        let element = [self.mr.sge(32, 8).expect("in the region")];
        at_dispatch(|| self.qp.receiver.receive(0, &element)).expect("a receive");
    }

    fn send(&mut self) {
        let element = [self.mr.sge(0, 8).expect("in the region")];
        at_dispatch(|| self.qp.initiator.send(0, &element, Flags::empty())).expect("a send");
    }
}

fn wait(cq: &mut Cq) {
    let mut place = [Completion::EMPTY];
    let done = cq.wait_for(&mut place, Notify::Any, PATIENCE).expect("a notification");
    done.first().expect("a request completes").ok().expect("a request succeeds");
}

/// Two threads that drive send each other so many messages. What left from the first one's adapter meanwhile, and its thread.
fn ping_pong(unwatched: bool, count: usize) -> (ThreadId, Vec<Left>) {
    let [near, far] = sides(unwatched);
    let Side { wired, frames, left, address } = near;
    thread::scope(|scope| {
        let (send_end, ends) = mpsc::channel::<(Adapter, End)>();
        // The channels belong to their threads; frames of the connect are brought in by them too.
        let far_address = far.address;
        let (adapter, far_adapter) = (wired.open().expect("an adapter"), far.wired.open().expect("an adapter"));
        let acceptor = far_adapter.acceptor(far_address).expect("a listener");
        let (end, far_end) = (End::new(&adapter).expect("an end"), End::new(&far_adapter).expect("an end"));
        let (stop, stopped) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel::<()>();
        let far_wired = &far.wired;
        let far_frames = far.frames;
        let answers = scope.spawn(move || {
            let driver =
                far_wired.drive(Duration::from_micros(50), move |patience, take| source(&far_frames, patience, take));
            // Until the connection is there.
            let (far_adapter, mut end) = loop {
                rest(Duration::from_millis(1));
                if let Ok(end) = ends.try_recv() {
                    break end;
                }
            };
            for _ in 0..count {
                wait(&mut end.receives);
                end.receive();
                end.send();
                wait(&mut end.sends);
            }
            done.send(()).expect("the other thread is there");
            while stopped.try_recv().is_err() {
                rest(Duration::from_millis(1));
            }
            drop((end, far_adapter, driver));
        });
        assert!(!drives());
        let driver = wired.drive(Duration::from_micros(50), move |patience, take| source(&frames, patience, take));
        assert!(drives());
        let offer = Offer::default();
        let connected = acceptor.connect((&adapter, address), &end.qp, &far_end.qp, &offer, PATIENCE);
        let connections = connected.expect("a connection");
        let (mut end, mut far_end) = (end, far_end);
        far_end.receive();
        send_end.send((far_adapter, far_end)).expect("the thread is there");
        left.lock().expect("no panic").clear();
        for _ in 0..count {
            end.receive();
            end.send();
            wait(&mut end.receives);
            wait(&mut end.sends);
        }
        let seen = std::mem::take(&mut *left.lock().expect("no panic"));
        // The other side waits for the answer to its last message.
        while is_done.try_recv().is_err() {
            assert!(!answers.is_finished(), "the other thread is there");
            rest(Duration::from_millis(1));
        }
        drop(connections);
        drop(acceptor);
        stop.send(()).expect("the thread is there");
        while !answers.is_finished() {
            rest(Duration::from_millis(1));
        }
        drop((end, adapter, driver));
        assert!(!drives());
        (thread::current().id(), seen)
    })
}

#[test]
fn frames_leave_on_the_thread_that_drives_and_answers_go_with_its_next_request() {
    const COUNT: usize = 200;
    for unwatched in [false, true] {
        let (thread, left) = ping_pong(unwatched, COUNT);
        // Now and then the wire's timer finds something to do before the thread does.
        let here = left.iter().filter(|(other, _)| *other == thread).count();
        assert!(here * 10 > left.len() * 9, "{here} of {} calls on this thread", left.len());
        let frames: usize = left.iter().map(|(_, count)| count).sum();
        // A message each, and the answer to each of the peer's but the last.
        assert!(frames >= 2 * COUNT - 1, "{frames} frames");
        let together = left.iter().filter(|(_, count)| *count == 2).count();
        assert!(together > COUNT / 2, "{together} answers of {COUNT} have left with a message: {left:?}");
    }
}
