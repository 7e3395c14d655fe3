//! The decision to notify, which `engine::cq::notify` makes as a pure function, compared with an oracle that was written from
//! the text of NDKPI 7.1.3 to 7.1.7 and 7.1.10: every case of small queues, and every short history.

#![cfg(not(loom))]

mod histories;
mod holds;
mod shortcut;

use engine::{
    NtStatus,
    cq::{
        CqeOutcome, Operation,
        notify::{ArmType, Class, Notify, View, newer, satisfied},
    },
};

use ArmType::{Any, Errors, Solicited};
use testing::arms::{MERGES, merged};

/// The ordinals from which the cases count: the usual start, and those where the numbers wrap around.
fn starts() -> impl Iterator<Item = u64> {
    let around = |middle: u64| (0..6).map(move |step| middle.wrapping_sub(step));
    around(0).chain(around(1 << 63)).chain(around(1 << 32)).chain([7])
}

const ARMS: [ArmType; 3] = [Errors, Solicited, Any];
const CLASSES: [Class; 3] = [Class::Plain, Class::Solicited, Class::Failed];

/// What satisfies what (the table in NDKPI 7.1.5).
const fn matches(arm: ArmType, class: Class) -> bool {
    match (arm, class) {
        (Any, _) | (Solicited, Class::Solicited | Class::Failed) => true,
        (Solicited, Class::Plain) | (Errors, _) => false,
    }
}

//= NDKPI 7.1.5
#[test]
fn every_small_case_is_decided_as_the_text_says() {
    let mut cases = 0_u32;
    for start in starts() {
        for newest in 0..=4_u64 {
            for newest_solicited in 0..=newest {
                for taken in 0..=newest {
                    for last_callback in 0..=newest {
                        for arm in [None, Some(Errors), Some(Solicited), Some(Any)] {
                            for failure_to_report in [false, true] {
                                let at = |ordinal: u64| start.wrapping_add(ordinal);
                                let view = View {
                                    arm,
                                    newest: at(newest),
                                    newest_solicited: at(newest_solicited),
                                    taken: at(taken),
                                    last_callback: at(last_callback),
                                    failure_to_report,
                                };
                                // Entries that are there and came after the last callback. What those before the
                                // newest solicited one were, makes no difference: try both.
                                for older in [Class::Plain, Class::Solicited] {
                                    let class = |entry: u64| match entry.cmp(&newest_solicited) {
                                        std::cmp::Ordering::Less => older,
                                        std::cmp::Ordering::Equal => Class::Solicited,
                                        std::cmp::Ordering::Greater => Class::Plain,
                                    };
                                    let mut new = (1..=newest).filter(|&entry| entry > taken && entry > last_callback);
                                    let expected = arm.is_some_and(|arm| {
                                        failure_to_report || new.any(|entry| matches(arm, class(entry)))
                                    });
                                    assert_eq!(satisfied(&view), expected, "{view:?} from {start}, older {older:?}");
                                    cases += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cases, 19 * 16 * (1 + 8 + 27 + 64 + 125), "every case was tried");
}

#[test]
fn ordinals_compare_across_the_wrap_around() {
    for start in starts() {
        for this in 0..8_u64 {
            for that in 0..8_u64 {
                assert_eq!(newer(start.wrapping_add(this), start.wrapping_add(that)), this > that, "{start}");
            }
        }
    }
    assert!(newer(i64::MAX as u64, 0));
    assert!(!newer(1 << 63, 0), "half the numbers away is not newer");
}

//= NDKPI 7.1.4
#[test]
fn arms_merge_as_in_the_table() {
    for (first, second, result) in MERGES {
        assert_eq!(ArmType::merge(Some(first), second), result, "{first:?} then {second:?}");
    }
    for arm in ARMS {
        assert_eq!(ArmType::merge(None, arm), arm, "an unarmed queue takes the arm as it is");
    }
}

//= NDKPI 7.1.4
#[test]
fn three_arms_merge_in_any_grouping() {
    for a in ARMS {
        for b in ARMS {
            for c in ARMS {
                let expected = merged(Some(merged(Some(a), b)), c);
                assert_eq!(expected, merged(Some(a), merged(Some(b), c)), "the table itself");
                assert_eq!(ArmType::merge(Some(ArmType::merge(Some(a), b)), c), expected);
                let strongest = [Any, Solicited, Errors].into_iter().find(|arm| [a, b, c].contains(arm));
                assert_eq!(Some(expected), strongest, "an arm is only ever strengthened");
            }
        }
    }
}

#[test]
fn merged_arms_stand_in_the_queue() {
    for (first, second, result) in MERGES {
        let mut notify = Notify::new(0);
        assert!(!notify.arm(first, 0).queue);
        assert!(!notify.arm(second, 0).queue);
        assert_eq!(notify.view().arm, Some(result), "{first:?} then {second:?}");
    }
}

#[test]
fn each_arm_is_satisfied_by_its_classes_only() {
    for arm in ARMS {
        for class in CLASSES {
            let mut armed_before = Notify::new(0);
            assert!(!armed_before.arm(arm, 0).queue, "nothing is there yet");
            assert_eq!(armed_before.queued(class, false).queue, matches(arm, class), "{arm:?}, then {class:?}");

            let mut armed_after = Notify::new(0);
            assert!(!armed_after.queued(class, false).queue, "a new queue is not armed");
            assert_eq!(armed_after.arm(arm, 0).queue, matches(arm, class), "{class:?}, then {arm:?}");
            let stands = armed_after.view().arm;
            assert_eq!(stands, (!matches(arm, class)).then_some(arm), "an arm stands until it is satisfied");
        }
    }
}

#[test]
fn arm_types_have_the_values_of_the_header() {
    assert_eq!(ArmType::from_value(0), Some(Errors));
    assert_eq!(ArmType::from_value(1), Some(Any));
    assert_eq!(ArmType::from_value(2), Some(Solicited));
}

//= NDKPI 7.1.4
#[test]
fn unknown_arm_types_are_none() {
    let bits = (0..32).map(|bit| 1_u32 << bit).filter(|&value| value > 2);
    for value in (3..=0x1_0000).chain(bits).chain([u32::MAX, u32::MAX - 1, 0x8000_0001]) {
        assert_eq!(ArmType::from_value(value), None, "{value:#x}");
    }
}

#[test]
fn entries_without_marks_are_plain_and_no_others() {
    for operation in [Operation::Receive, Operation::Send, Operation::Write] {
        for status in [NtStatus::SUCCESS, NtStatus::PENDING, NtStatus::BUFFER_OVERFLOW, NtStatus::CANCELLED] {
            for solicited in [false, true] {
                let outcome = CqeOutcome::new(operation, status).soliciting(solicited);
                let expected = status.is_success() && !solicited;
                assert_eq!(Class::of(outcome) == Class::Plain, expected, "{outcome:?}");
                assert_eq!(outcome.is_plain(), expected, "{outcome:?}");
            }
        }
    }
}
