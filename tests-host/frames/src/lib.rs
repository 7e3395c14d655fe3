//! Any bytes as frames, against a live connection. `cargo xtask fuzz` has libFuzzer choose them.

use conformance::{
    HELD,
    client::{Buffer, Options, Session},
    fixture::Pair,
    host::{HostPlatform, Impairments, Scheduler, Setup},
};
use engine::wire::Wire;
use ndkpi::{
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE,
    NDK_VERSION,
};
use roce::wire::icrc;

/// How far frames came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    /// All of them.
    pub frames: u64,
    /// Those whose ICRC was right.
    pub taken_apart: u64,
    /// Those that a queue pair looked at.
    pub for_the_connection: u64,
}

impl Reached {
    /// Adds those of another exercise.
    pub const fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.taken_apart += other.taken_apart;
        self.for_the_connection += other.for_the_connection;
    }
}

/// Bytes of the memory that peers may not write.
const LENGTH: usize = 4096;

/// Makes frames of `bytes` and feeds the passive side with them.
///
/// # Panics
///
/// If a byte has changed that no peer may write, or the machine is not as it should be.
#[must_use]
pub fn exercise(bytes: &[u8]) -> Reached {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 7, preemption: 0 },
        tokens: Some(64),
        without: LOOPBACK,
        wire: Some(Impairments::default()),
        ..Setup::default()
    };
    let platform = HostPlatform::start(setup).expect("a machine");
    let options = Options { name: "any-frames", version: NDK_VERSION::V2_1, seed: 1, hostile: true };
    let mut reached = Reached::default();
    let verdict = Session::with(&platform, &options, |s| {
        let pair = Pair::new(s)?;
        let (nobodys, local) = (Buffer::new(s, LENGTH)?, Buffer::new(s, LENGTH)?);
        let mr = pair.b.pd.core().create_mr(false)?;
        mr.core().register(local, LENGTH, LOCAL_WRITE)?.succeeds()?;
        nobodys.fill(0, LENGTH, 0xC3)?;
        local.fill(0, LENGTH, 0x3C)?;
        // One of each kind is there to be changed: a write of A, an ACK of B.
        pair.b.receive(1, 0, 64)?;
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(2)?;
        let wire = platform.devices()[1].wire().expect("a wire");
        let before = wire.counters();
        let mut rest = bytes;
        while let [kind, more @ ..] = rest {
            let length = usize::from(kind >> 2).min(more.len());
            let (now, later) = more.split_at(length);
            rest = later;
            let mut frame = platform.last_frame(0);
            let behind = frame.len().saturating_sub(4);
            match kind & 3 {
                // Bytes, and nothing else.
                0 => now.clone_into(&mut frame),
                // The frame with bytes changed behind the addresses, and perhaps a right ICRC.
                kind => {
                    for change in now.chunks_exact(2) {
                        let at = 42 + usize::from(change[0]) % (frame.len() - 42);
                        frame[at] = change[1];
                    }
                    if kind > 1
                        && let Some(value) = icrc::of(&frame[14..behind])
                    {
                        frame[behind..].copy_from_slice(&value);
                    }
                }
            }
            Wire::receive(&wire, &frame);
            reached.frames += 1;
        }
        s.settle();
        let after = wire.counters();
        let seen = |counter: fn(&engine::wire::Counters) -> u64| counter(&after) - counter(&before);
        let came = seen(|it| it.frames_received);
        reached.taken_apart = came - seen(|it| it.wrong_icrc) - seen(|it| it.malformed) - seen(|it| it.not_for_us);
        reached.for_the_connection = reached.taken_apart
            - seen(|it| it.unknown_queue_pair)
            - seen(|it| it.wrong_p_key)
            - seen(|it| it.wrong_q_key);
        nobodys.is_filled(0, LENGTH, 0xC3)?;
        local.is_filled(0, LENGTH, 0x3C)?;
        HELD
    });
    assert_eq!(verdict, HELD);
    assert_eq!(platform.take_panic(), None);
    platform.finish().expect("nothing is left");
    reached
}
