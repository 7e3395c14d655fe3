//! The shortcut for plain entries (`Notify::ignores_plain`), compared with the rule in every state that a queue of two entries
//! can reach.

use std::collections::HashSet;

use engine::cq::{
    moderation::Moderation,
    notify::{Action, Class, CqFailure, Notify, View, satisfied},
};

use super::{ARMS, CLASSES};

/// Ordinals wrap around with the second entry.
const FIRST: u64 = u64::MAX - 1;

/// A queue, and the ordinal of the newest entry that its consumer has taken.
type State = (Notify, u64);

/// What can happen to a queue.
fn after((notify, taken): &State) -> Vec<State> {
    let newest = notify.view().newest;
    let mut states = vec![(notify.clone(), newest)];
    let mut step = |step: &dyn Fn(&mut Notify)| {
        let mut next = notify.clone();
        step(&mut next);
        states.push((next, *taken));
    };
    if newest.wrapping_sub(FIRST) < 2 && notify.failure().is_none() {
        for class in CLASSES {
            for full in [false, true] {
                step(&|notify| {
                    if let Some(micros) = notify.queued(class, full).timer {
                        notify.hold_for(0, micros);
                    }
                });
            }
        }
    }
    for kind in ARMS {
        step(&|notify| {
            let _ = notify.arm(kind, *taken);
        });
    }
    for (interval, count) in [(0, 0), (u32::MAX, 2), (5, 3)] {
        let moderation = Moderation::new(interval, count, 9, 1).expect("a limit");
        step(&|notify| {
            if let Some(micros) = notify.moderate(moderation, false, 3).timer {
                notify.hold_for(3, micros);
            }
        });
    }
    step(&|notify| {
        let _ = notify.fail(CqFailure::Overrun);
    });
    step(&|notify| {
        let _ = notify.timer_ran(100);
    });
    step(&Notify::close);
    // A callback that did not begin does not end.
    let mut begun = notify.clone();
    if begun.begin().is_some() {
        states.push((begun.clone(), *taken));
        let _ = begun.end();
        states.push((begun, *taken));
    }
    states
}

#[test]
fn plain_entries_that_are_ignored_have_no_consequence() {
    let mut known = HashSet::from([(Notify::new(FIRST), FIRST)]);
    let mut waiting: Vec<State> = known.iter().cloned().collect();
    let (mut ignoring, mut satisfying) = (0_u32, 0_u32);
    while let Some(state) = waiting.pop() {
        let before = &state.0;
        let next = before.view().newest.wrapping_add(1);
        let is_satisfying = satisfied(&View { newest: next, ..before.view() });
        satisfying += u32::from(is_satisfying);
        // A queue that has failed takes no entries.
        if before.ignores_plain() && before.failure().is_none() {
            assert!(!is_satisfying || satisfied(&before.view()), "{before:?}");
            for full in [false, true] {
                let (mut shortcut, mut decided) = (before.clone(), before.clone());
                shortcut.ignored_up_to(next);
                assert_eq!(decided.queued(Class::Plain, full), Action::default(), "{before:?}");
                assert_eq!(shortcut, decided, "{before:?}");
            }
            ignoring += 1;
        }
        waiting.extend(after(&state).into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(ignoring > 500 && satisfying > 500, "{} states: {ignoring} ignore, {satisfying} satisfy", known.len());
}
