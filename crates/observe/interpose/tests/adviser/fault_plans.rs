//! Plans: as bytes, and what is wrong with those that are none.

use interpose::{
    Function,
    faults::{Delay, Kind, LONGEST_DELAY, MOST_RULES, PLAN_BYTES, Plan, Rule, Which, Wrong},
};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

/// A plan with something of everything.
fn plan() -> Plan {
    let rules = [
        Rule { function: Some(Function::CreateQp), consumer: Some(2), ..Rule::new(Kind::Refuse, Which::Nth(3)) },
        Rule {
            function: Some(Function::Connect),
            status: Some(NtStatus::HOST_UNREACHABLE),
            delay: Delay::Fixed(17),
            ..Rule::new(Kind::Fail, Which::Every(2))
        },
        Rule {
            object_type: Some(NDK_OBJECT_TYPE::CQ),
            object: Some(0),
            delay: Delay::Exponential(100, 5_000),
            ..Rule::new(Kind::Hold, Which::Chance(1_000_000))
        },
        Rule { delay: Delay::Uniform(1, LONGEST_DELAY), ..Rule::new(Kind::Late, Which::Chance(0)) },
    ];
    let seed = 0x0123_4567_89AB_CDEF;
    rules.into_iter().fold(Plan::new(seed), |plan, rule| plan.with(rule).expect("a rule"))
}

#[test]
fn a_plan_survives_the_way() {
    for plan in [Plan::default(), Plan::new(u64::MAX), plan()] {
        assert_eq!(Plan::from_bytes(&plan.to_bytes()), Ok(plan));
    }
}

#[test]
fn what_cannot_happen_is_refused() {
    let about = |kind, function| Rule { function: Some(function), ..Rule::new(kind, Which::Nth(1)) };
    for (rule, wrong) in [
        (about(Kind::Refuse, Function::Close), Wrong::Function),
        (about(Kind::Late, Function::Send), Wrong::Function),
        (Rule { status: Some(NtStatus::ACCESS_VIOLATION), ..about(Kind::Refuse, Function::CreatePd) }, Wrong::Status),
        (Rule { status: Some(NtStatus::SUCCESS), ..Rule::new(Kind::Refuse, Which::Nth(1)) }, Wrong::Status),
        (Rule { status: Some(NtStatus::CANCELLED), ..Rule::new(Kind::Late, Which::Nth(1)) }, Wrong::Status),
        (Rule { delay: Delay::Fixed(1), ..Rule::new(Kind::Refuse, Which::Nth(1)) }, Wrong::Delay),
        (Rule { delay: Delay::Uniform(2, 1), ..Rule::new(Kind::Late, Which::Nth(1)) }, Wrong::Delay),
        (Rule { delay: Delay::Fixed(LONGEST_DELAY + 1), ..Rule::new(Kind::Late, Which::Nth(1)) }, Wrong::Delay),
        (Rule::new(Kind::Late, Which::Every(0)), Wrong::Which),
        (Rule::new(Kind::Late, Which::Chance(1_000_001)), Wrong::Which),
    ] {
        assert_eq!(Plan::new(0).with(rule), Err(wrong), "{rule:?}");
        assert!(wrong.to_string().len() > 20);
    }
    let full =
        (0..MOST_RULES).fold(Plan::new(0), |plan, _| plan.with(Rule::new(Kind::Late, Which::Nth(1))).expect("room"));
    assert_eq!(full.with(Rule::new(Kind::Late, Which::Nth(1))), Err(Wrong::TooMany));
}

#[test]
fn bytes_of_another_length_or_version_are_no_plan() {
    let bytes = plan().to_bytes();
    for length in [0, 1, 15, 16, PLAN_BYTES - 1] {
        assert_eq!(Plan::from_bytes(&bytes[..length]), Err(Wrong::Bytes), "{length}");
    }
    assert_eq!(Plan::from_bytes(&[bytes.as_slice(), &[0]].concat()), Err(Wrong::Bytes));
    for (word, value) in [(0, 0), (0, 2), (1, 9), (1, u32::MAX), (1, 3), (1, 5)] {
        let mut bytes = bytes;
        bytes[4 * word..4 * word + 4].copy_from_slice(&u32::to_le_bytes(value));
        assert!(Plan::from_bytes(&bytes).is_err(), "word {word} is {value}");
    }
}

#[test]
fn whatever_the_bytes_are_they_are_a_plan_or_refused() {
    let mut number = 1_u64;
    let mut next = |below: usize| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(number >> 33).expect("31 bits") % below
    };
    let (mut plans, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = plan().to_bytes();
        for _ in 0..=next(3) {
            let place = next(PLAN_BYTES);
            bytes[place] =
                if next(2) == 0 { u8::try_from(next(256)).expect("a byte") } else { bytes[place] ^ 1 << next(8) };
        }
        match Plan::from_bytes(&bytes) {
            // What is taken is taken as it is.
            Ok(plan) => {
                plans += 1;
                assert_eq!(plan.to_bytes(), bytes);
                assert!(plan.rules().all(|rule| rule.check().is_ok()));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(plans > 1_000 && refused > 1_000, "{plans} plans, {refused} refused");
}

#[test]
fn delays_are_distributed_as_they_say() {
    let draws = |delay: Delay| {
        let mut number = 7_u64;
        (0..50_000)
            .map(|_| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // The upper half of such a number is the random one.
                delay.draw(number ^ number >> 32 ^ number << 32)
            })
            .collect::<Vec<_>>()
    };
    let mean = |draws: &[u64]| draws.iter().sum::<u64>() / draws.len() as u64;
    assert!(draws(Delay::Fixed(9)).iter().all(|draw| *draw == 9));
    let uniform = draws(Delay::Uniform(1_000, 3_000));
    assert!(uniform.iter().all(|draw| (1_000..=3_000).contains(draw)));
    assert!((1_950..=2_050).contains(&mean(&uniform)), "{}", mean(&uniform));
    let exponential = draws(Delay::Exponential(1_000, LONGEST_DELAY));
    assert!((950..=1_050).contains(&mean(&exponential)), "{}", mean(&exponential));
    // So many are above twice the mean: e^-2 of all.
    let above = exponential.iter().filter(|draw| **draw > 2_000).count();
    assert!((6_200..=7_400).contains(&above), "{above}");
    assert!(draws(Delay::Exponential(1_000, 1_500)).iter().all(|draw| *draw <= 1_500));
}
