//! Faults that an adapter makes because its settings ask for them.

use nd2::{Faults, abi::HRESULT};
use nd2_selftest::{BackEnd, Options, Schedule, World, run};
use softnd::settings::Settings;

fn world(faults: Faults, back_end: BackEnd) -> World {
    let options = Options { schedule: Schedule::Seeded(1, 0), faults, back_end, ..Options::default() };
    World::with(&options).expect("a world")
}

#[test]
fn every_nth_object_is_refused() {
    for back_end in [BackEnd::Process, BackEnd::Codes] {
        let world = world(Faults { refuse_every: 3, ..Faults::default() }, back_end);
        let made: Vec<_> = (0..9).map(|_| world.adapter.queue(world.file, 8, 0).err()).collect();
        let refused = Some(HRESULT::ND_NO_MEMORY);
        assert_eq!(made, [None, None, refused, None, None, refused, None, None, refused]);
        world.end().expect("nothing is left of what was refused");
    }
}

#[test]
fn a_connection_breaks_after_so_many_requests() {
    // The streams of these cases send more than one message.
    for back_end in [BackEnd::Process, BackEnd::Codes] {
        let faults = Faults { disconnect_after: 1, ..Faults::default() };
        let options = Options { filter: Some("results.initiator_requests_in_order"), back_end, ..Options::default() };
        assert!(run(&options).iter().all(|row| row.outcome.is_pass()), "without the fault");
        let rows = run(&Options { faults, schedule: Schedule::Seeded(2, 0), ..options });
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.outcome.is_pass()), "with it");
    }
}

#[test]
fn the_settings_ask_for_faults() {
    let mut settings = Settings::default();
    assert_eq!(settings.config.faults, Faults::default(), "none if nobody asks");
    settings.set("refuse_every", "7").expect("a number");
    settings.set("disconnect_after", "100").expect("a number");
    assert_eq!(settings.config.faults, Faults { refuse_every: 7, disconnect_after: 100, ..Faults::default() });
    settings.set("refuse_every", "0").expect("never");
    assert_eq!(settings.config.faults.refuse_every, 0);
    let error = settings.set("disconnect_after", "soon").expect_err("no number");
    assert_eq!(error, "disconnect_after cannot be `soon`; allowed: 0 to 4294967295");
}
