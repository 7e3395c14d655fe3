//! Chains of requests, some of which the peer does not see.

use conformance::{
    Check, Platform as _, Stop,
    client::{Buffer, FastRegistration, Mapping, Mr, PAGE, Session},
    fixture::{Pair, Plan, Side, is_done, posted},
    host::{HostPlatform, Impairments},
};
use ndkpi::{
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_OP_FLAG_DEFER as DEFER,
    NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE as INVALIDATE_SINK, NDK_OP_FLAG_RDMA_READ_SINK as READ_SINK,
    NDK_OP_FLAG_READ_FENCE as READ_FENCE, NDK_SGE, NtStatus,
};

use super::{CLEAN, SEEDED, counters, on_cable, run};

/// A region of the active side, and a page for it.
pub struct Fast<'s> {
    pub mr: Mr<'s>,
    pub buffer: &'s Buffer,
    mapping: &'s Mapping<'s>,
}

impl<'s> Fast<'s> {
    pub fn new(s: &'s Session<'s>, pair: &Pair<'s>) -> Check<Self> {
        let mr = pair.a.pd.core().create_mr(true)?;
        mr.core().initialize(1, false)?.succeeds()?;
        let buffer = Buffer::new(s, PAGE)?;
        let (pending, mapping) = s.adapter()?.build_lam(buffer, PAGE, 2)?;
        match pending.wait()? {
            NtStatus::SUCCESS => Ok(Self { mr, buffer, mapping }),
            status => Err(Stop::status("NdkBuildLAM", status)),
        }
    }

    pub fn register(&self, pair: &Pair<'_>, context: usize) -> Check {
        self.register_with(pair, context, LOCAL_WRITE)
    }

    fn register_with(&self, pair: &Pair<'_>, context: usize, flags: u32) -> Check {
        let what = FastRegistration {
            pages: self.mapping.pages()?,
            offset: self.mapping.offset(),
            length: PAGE,
            base: self.buffer.address(0),
            flags,
        };
        posted("NdkFastRegister", pair.a.qp.fast_register(context, self.mr.core(), &what)?)
    }

    /// Writes the page to the peer.
    pub fn write(&self, pair: &Pair<'_>, context: usize, to: isize) -> Check {
        let element = self.buffer.element(0, 4096, self.mr.local_token()?);
        posted("NdkWrite", pair.a.qp.write(context, &[element], pair.b.remote(to), 0)?)
    }
}

/// Frames that A has sent until nothing moves any more.
fn sent(s: &Session<'_>, platform: &HostPlatform) -> u64 {
    s.settle();
    counters(platform, 0).packets_sent
}

/// Waits until A has sent so many packets. None of them is answered: the registration among the requests must not wait for that.
fn go_out(s: &Session<'_>, platform: &HostPlatform, packets: u64) {
    while counters(platform, 0).packets_sent < packets {
        assert_eq!(counters(platform, 0).timeouts, 0, "the registration waits for what is before it");
        s.settle();
    }
}

#[test]
fn a_fast_registration_waits_for_no_answer() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        let fast = Fast::new(s, &pair)?;
        platform.pull_cable();
        let before = sent(s, platform);
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        fast.register(&pair, 3)?;
        fast.write(&pair, 4, 0)?;
        // Nothing was answered, and all of it is on its way: a packet of the first write, four of the second.
        go_out(s, platform, before + 5);
        is_done(&pair.a.initiated().take_one()?, 2, NtStatus::IO_TIMEOUT)?;
        is_done(&pair.a.initiated().take_one()?, 3, NtStatus::CANCELLED)?;
        is_done(&pair.a.initiated().take_one()?, 4, NtStatus::CANCELLED)?;
        conformance::HELD
    });
}

#[test]
fn chains_of_fast_registrations_arrive() {
    for (seed, impairments) in (0..).zip([CLEAN, Impairments::all(20)]) {
        let setup = conformance::host::Setup { seed, ..on_cable(SEEDED, impairments) };
        run(setup, |s, _| {
            let plan = Plan { bytes: 8 * PAGE, ..Plan::new() };
            let pair = Pair::with(s, &plan, &plan)?;
            let regions = (0..8).map(|_| Fast::new(s, &pair)).collect::<Check<Vec<_>>>()?;
            for (index, fast) in (0_u8..).zip(&regions) {
                fast.buffer.fill(0, PAGE, 0x40 + index)?;
                fast.register(&pair, 2 * usize::from(index))?;
                fast.write(&pair, 2 * usize::from(index) + 1, PAGE.cast_signed() * isize::from(index))?;
            }
            for context in 0..16 {
                pair.a.initiator_done(context)?;
            }
            for index in 0..8_u8 {
                pair.b.region.buffer.is_filled(PAGE * usize::from(index), PAGE, 0x40 + index)?;
            }
            conformance::HELD
        });
    }
}

#[test]
fn a_registration_that_fails_does_so_in_its_turn() {
    run(on_cable(SEEDED, CLEAN), |s, _| {
        let pair = Pair::new(s)?;
        let fast = Fast::new(s, &pair)?;
        fast.register(&pair, 1)?;
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        // It is registered.
        fast.register(&pair, 3)?;
        pair.a.write(4, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.a.initiator_done(2)?;
        is_done(&pair.a.initiated().take_one()?, 3, NtStatus::INVALID_DEVICE_REQUEST)?;
        is_done(&pair.a.initiated().take_one()?, 4, NtStatus::CANCELLED)?;
        pair.link.a.core().wait_disconnect()?;
        conformance::HELD
    });
}

#[test]
fn a_fenced_registration_waits_for_the_reads_before_it() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        let fast = Fast::new(s, &pair)?;
        platform.pull_cable();
        let before = sent(s, platform);
        pair.a.read(2, 0, 64, pair.b.remote(0), 0)?;
        fast.register_with(&pair, 3, LOCAL_WRITE | READ_FENCE)?;
        pair.a.write(4, 0, 64, pair.b.remote(0), 0)?;
        // The read goes out and is not answered; nothing behind it goes, up to its end.
        is_done(&pair.a.initiated().take_one()?, 2, NtStatus::IO_TIMEOUT)?;
        is_done(&pair.a.initiated().take_one()?, 3, NtStatus::CANCELLED)?;
        is_done(&pair.a.initiated().take_one()?, 4, NtStatus::CANCELLED)?;
        let counted = counters(platform, 0);
        // The read, its repetitions, and what leaves with the connection; beside them only the station of the peer is asked for.
        let reads = 1 + counted.timeouts - 1;
        assert!(counted.packets_sent - before - reads <= 2, "{counted:?}");
        conformance::HELD
    });
}

/// Looks that a registration, with a fence or without, and what uses it go out behind what `before` posts, a packet that is not answered.
fn goes_out_behind(flags: u32, before: impl Fn(&Pair<'_>, &Fast<'_>) -> Check) {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        let [other, fast] = [Fast::new(s, &pair)?, Fast::new(s, &pair)?];
        other.register_with(&pair, 1, LOCAL_WRITE | READ_SINK)?;
        pair.a.initiator_done(1)?;
        platform.pull_cable();
        let sent_before = sent(s, platform);
        before(&pair, &other)?;
        fast.register_with(&pair, 8, LOCAL_WRITE | flags)?;
        fast.write(&pair, 9, 0)?;
        go_out(s, platform, sent_before + 5);
        conformance::HELD
    });
}

#[test]
fn a_fence_waits_for_reads_only() {
    goes_out_behind(READ_FENCE, |pair, _| pair.a.write(2, 0, 64, pair.b.remote(0), 0));
}

#[test]
fn a_registration_without_a_fence_waits_for_no_read() {
    goes_out_behind(0, |pair, _| pair.a.read(2, 0, 64, pair.b.remote(0), 0));
}

#[test]
fn a_registration_waits_for_no_end_of_another_region() {
    goes_out_behind(0, |pair, other| read(pair, 2, other, INVALIDATE_SINK));
    goes_out_behind(0, |pair, other| {
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        posted("NdkInvalidate", pair.a.qp.invalidate_mr(3, other.mr.core(), 0)?)
    });
}

/// A read into the region, which it invalidates with `INVALIDATE_SINK`.
fn read(pair: &Pair<'_>, context: usize, fast: &Fast<'_>, flags: u32) -> Check {
    let sink = [fast.buffer.element(0, 64, fast.mr.local_token()?)];
    posted("NdkRead", pair.a.qp.read(context, &sink, pair.b.remote(0), flags)?)
}

#[test]
fn a_registration_of_a_region_waits_for_the_read_that_invalidates_it() {
    run(on_cable(SEEDED, CLEAN), |s, _| {
        let pair = Pair::new(s)?;
        let fast = Fast::new(s, &pair)?;
        pair.b.region.buffer.fill(0, PAGE, 0x5A)?;
        for context in (0..40).step_by(4) {
            fast.buffer.fill(0, PAGE, 0)?;
            fast.register_with(&pair, context, LOCAL_WRITE | READ_SINK)?;
            read(&pair, context + 1, &fast, INVALIDATE_SINK)?;
            // It is free again only then.
            fast.register(&pair, context + 2)?;
            posted("NdkInvalidate", pair.a.qp.invalidate_mr(context + 3, fast.mr.core(), 0)?)?;
            for done in context..context + 4 {
                pair.a.initiator_done(done)?;
            }
            fast.buffer.is_filled(0, 64, 0x5A)?;
        }
        conformance::HELD
    });
}

#[test]
fn what_uses_the_memory_of_a_read_waits_for_one_that_invalidates_it_and_for_no_other() {
    for invalidates in [false, true] {
        run(on_cable(SEEDED, CLEAN), |s, platform| {
            let pair = Pair::new(s)?;
            let fast = Fast::new(s, &pair)?;
            fast.register_with(&pair, 1, LOCAL_WRITE | READ_SINK)?;
            pair.a.initiator_done(1)?;
            platform.pull_cable();
            let before = sent(s, platform);
            read(&pair, 2, &fast, if invalidates { INVALIDATE_SINK } else { 0 })?;
            fast.write(&pair, 3, 0)?;
            while counters(platform, 0).timeouts == 0 {
                s.settle();
            }
            // The read, and the four packets of a write that has not waited; what is sent again comes later.
            let went = counters(platform, 0).packets_sent - before;
            assert_eq!(went >= 5, !invalidates, "{went} packets, by a read that invalidates: {invalidates}");
            is_done(&pair.a.initiated().take_one()?, 2, NtStatus::IO_TIMEOUT)?;
            is_done(&pair.a.initiated().take_one()?, 3, NtStatus::CANCELLED)?;
            conformance::HELD
        });
    }
}

#[test]
fn a_message_that_found_no_receive_goes_again_when_the_peer_said() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        pair.a.send_unready(2, 0, 64, 0)?;
        while counters(platform, 0).rnr_naks_received == 0 {
            s.settle();
        }
        pair.b.receive(3, 0, 64)?;
        let begun = platform.now();
        pair.b.receive_done(3)?;
        pair.a.initiator_done(2)?;
        // The time of an RNR NAK is a millisecond or two. Other things wake the wire too, much later.
        let took = platform.now() - begun;
        assert!(took < 10_000, "{took} us of the machine's time");
        assert_eq!(counters(platform, 0).timeouts, 0);
        conformance::HELD
    });
}

/// Bytes of a request, and those of its elements if it has several.
const BYTES: u8 = 64;
const PARTS: [u8; 4] = [1, 20, 33, 10];

/// The bytes of a request at `offset` of a side's region, in one element or in several.
fn elements(side: &Side<'_>, offset: isize, several: bool) -> Vec<NDK_SGE> {
    let parts: &[u8] = if several { &PARTS } else { &[BYTES] };
    let begins = parts.iter().scan(offset, |next, part| Some(std::mem::replace(next, *next + isize::from(*part))));
    begins.zip(parts).map(|(begin, part)| side.region.element(begin, (*part).into())).collect()
}

#[test]
fn each_request_on_its_way_has_elements_and_inline_bytes_of_its_own() {
    const REQUESTS: u8 = 12;
    for impairments in [CLEAN, Impairments::all(20)] {
        run(on_cable(SEEDED, impairments), |s, _| {
            let Pair { a, b, .. } = &Pair::new(s)?;
            for round in 0..8 {
                let of = |request: u8| (usize::from(request) * 256, isize::from(request) * 256, round * 16 + request);
                // All of them are on their way at once.
                let defer = |request| if request + 1 < REQUESTS { DEFER } else { 0 };
                for request in 0..REQUESTS {
                    let (at, offset, seed) = of(request);
                    a.region.buffer.fill_pattern(at, usize::from(BYTES), seed)?;
                    let to = b.remote(offset);
                    let status = if request % 3 == 1 {
                        let mut bytes = [0; BYTES as usize];
                        a.region.buffer.read(at, &mut bytes)?;
                        a.qp.write_inline(request.into(), &[&bytes], to, defer(request))?
                    } else {
                        a.qp.write(request.into(), &elements(a, offset, request % 3 == 0), to, defer(request))?
                    };
                    posted("NdkWrite", status)?;
                }
                for request in 0..REQUESTS {
                    a.initiator_done(request.into())?;
                }
                for request in 0..REQUESTS {
                    let (at, _, seed) = of(request);
                    b.region.buffer.has_pattern(at, usize::from(BYTES), seed)?;
                    b.region.buffer.fill_pattern(at, usize::from(BYTES), !seed)?;
                }
                for request in 0..REQUESTS {
                    let (_, offset, _) = of(request);
                    let list = elements(a, offset, request % 2 == 0);
                    posted("NdkRead", a.qp.read(request.into(), &list, b.remote(offset), defer(request))?)?;
                }
                for request in 0..REQUESTS {
                    a.initiator_done(request.into())?;
                    let (at, _, seed) = of(request);
                    a.region.buffer.has_pattern(at, usize::from(BYTES), !seed)?;
                }
            }
            conformance::HELD
        });
    }
}
