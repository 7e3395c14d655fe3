//! Chains of requests, some of which the peer does not see.

use conformance::{
    Check, Stop,
    client::{Buffer, FastRegistration, Mapping, Mr, PAGE, Session},
    fixture::{Pair, Plan, is_done, posted},
    host::Impairments,
};
use ndkpi::{NDK_OP_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_OP_FLAG_READ_FENCE as READ_FENCE, NtStatus};

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
fn sent(s: &Session<'_>, platform: &conformance::host::HostPlatform) -> u64 {
    s.settle();
    counters(platform, 0).packets_sent
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
        while counters(platform, 0).packets_sent < before + 5 {
            assert_eq!(counters(platform, 0).timeouts, 0, "the registration waits for the write before it");
            s.settle();
        }
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
