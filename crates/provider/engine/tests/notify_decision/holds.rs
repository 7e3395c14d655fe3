//! What interrupt moderation holds back (NDKPI 7.1.6), where it meets the clock and other arms.

use engine::cq::{
    moderation::{Moderation, UNLIMITED},
    notify::{Action, ArmType, Class, Notify},
};

const NOTHING: Action = Action { queue: false, timer: None };
const DEPTH: u32 = 64;

fn moderation(interval: u32, count: u32) -> Moderation {
    Moderation::new(interval, count, DEPTH, 1).expect("a moderation with a limit")
}

/// A queue that is armed for anything, with a callback held back since the time `now`.
fn held(interval: u32, count: u32, now: u64) -> Notify {
    let mut notify = Notify::new(0);
    assert_eq!(notify.moderate(moderation(interval, count), false, 0), NOTHING, "nothing is held back yet");
    assert_eq!(notify.arm(ArmType::Any, 0), NOTHING);
    let action = notify.queued(Class::Plain, false);
    assert!(!action.queue, "held back");
    if let Some(micros) = action.timer {
        assert_eq!(micros, interval);
        notify.hold_for(now, micros);
    }
    notify
}

#[test]
fn a_timer_that_ran_too_early_is_set_again() {
    let mut notify = held(100, UNLIMITED, 1_000);
    // The kernel's timers follow a coarser clock than its time.
    assert_eq!(notify.timer_ran(1_099), Action { queue: false, timer: Some(1) }, "lost, the callback would never come");
    notify.hold_for(1_099, 1);
    assert!(notify.timer_ran(1_100).queue);
}

#[test]
fn an_expiry_meant_for_an_earlier_hold_does_not_end_a_later_one() {
    let mut notify = held(100, 2, 1_000);
    assert!(notify.queued(Class::Plain, false).queue, "the count ends the first hold; its timer is still set");
    assert!(notify.begin().is_some());
    assert!(!notify.end());
    assert_eq!(notify.arm(ArmType::Any, 2), NOTHING);
    assert_eq!(notify.queued(Class::Plain, false).timer, Some(100));
    notify.hold_for(1_050, 100);
    assert_eq!(notify.timer_ran(1_100), Action { queue: false, timer: Some(50) });
    assert!(notify.timer_ran(1_150).queue);
    assert_eq!(notify.timer_ran(1_200), NOTHING, "no hold, nothing to end");
}

#[test]
fn moderation_set_again_and_again_does_not_postpone_a_callback() {
    let mut notify = held(100, UNLIMITED, 1_000);
    for now in [1_030, 1_060, 1_090] {
        let left = u32::try_from(1_100 - now).expect("small");
        assert_eq!(notify.moderate(moderation(100, UNLIMITED), false, now), Action { queue: false, timer: Some(left) });
        notify.hold_for(now, left);
    }
    assert!(notify.moderate(moderation(100, UNLIMITED), false, 1_100).queue, "held back for the whole interval");
}

#[test]
fn the_entry_that_ends_a_hold_satisfies_a_second_arm_too() {
    for last in [Class::Failed, Class::Plain] {
        let mut notify = held(100, 2, 0);
        // The consumer takes the entry without having been called and arms again.
        assert_eq!(notify.arm(ArmType::Any, 1), NOTHING);
        assert!(notify.queued(last, false).queue, "{last:?} ends the hold");
        assert_eq!(notify.view().arm, None, "and both arms: else there would be a second callback for nothing");
        assert!(notify.begin().is_some());
        assert!(!notify.end());
        assert_eq!(notify.queued(Class::Failed, false), NOTHING, "no arm, no callback");
    }
}

#[test]
fn a_closed_queue_stays_unarmed() {
    let mut notify = Notify::new(0);
    assert_eq!(notify.moderate(moderation(100, UNLIMITED), false, 0), NOTHING);
    notify.close();
    assert_eq!(notify.arm(ArmType::Any, 0), NOTHING);
    assert_eq!(notify.queued(Class::Plain, false), NOTHING, "a timer set now would keep the queue from going away");
    assert_eq!(notify.queued(Class::Failed, false), NOTHING);
    assert_eq!(notify.begin(), None);
}

#[test]
fn counting_alone_sets_no_timer() {
    let mut notify = held(UNLIMITED, 3, 0);
    assert_eq!(notify.timer_ran(u64::MAX), NOTHING, "no timer was set for this");
    assert_eq!(notify.queued(Class::Plain, false), NOTHING);
    assert!(notify.queued(Class::Plain, false).queue, "the third");
}
