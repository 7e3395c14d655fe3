//! Calls that nobody should make: whatever comes, the agent answers, and can close what is left.

use std::sync::{Mutex, PoisonError};

use conformance::{cases, host::HostPlatform};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use remote::{Agent, MOST};

use crate::{
    HOW,
    machines::{Quality, run, setup},
};

/// The calls of some cases.
fn heard() -> Vec<Vec<u8>> {
    static HEARD: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let quality = Quality { heard: Some(&HEARD), ..Quality::default() };
    let themes = ["access", "connect", "fast-register", "logical", "resize", "rdma", "srq", "window"];
    for theme in themes {
        for case in cases::all().filter(|case| case.theme() == theme).take(3) {
            run(case, HOW, setup(), quality).expect("nothing is left");
        }
    }
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Changes a call, or makes one up.
fn changed(call: &[u8], random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut call = call.to_vec();
    for _ in 0..random.next_u32() % 3 {
        let place = random.next_u32() as usize % call.len();
        match random.next_u32() % 5 {
            0 => call[place] = random.next_u32().to_le_bytes()[0],
            1 => call[place] ^= 1 << (random.next_u32() % 8),
            // A whole word: the arguments begin after 24 bytes of the head.
            2 => {
                let values = [0, 1, 4096, u64::from(u32::MAX), u64::MAX, 1 << 32, 1 << 63];
                let value = values[random.next_u32() as usize % values.len()];
                if let Some(word) = call.get_mut(place / 8 * 8..place / 8 * 8 + 8) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            3 => call.truncate(place.max(1)),
            _ => call.push(random.next_u32().to_le_bytes()[1]),
        }
    }
    if random.next_u32().is_multiple_of(50) {
        call = vec![0; random.next_u32() as usize % MOST];
        random.fill_bytes(&mut call);
    }
    call
}

#[test]
fn any_bytes_get_an_answer_and_everything_can_be_closed_after_that() {
    let heard = heard();
    assert!(heard.len() > 500, "{} calls", heard.len());
    for seed in 0..12 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let platform = HostPlatform::start(setup()).expect("a machine");
        {
            let agent = Agent::try_new(&platform, 1).expect("an agent");
            let mut answer = [0; MOST];
            let first = random.next_u32() as usize % heard.len();
            for call in heard[first..].iter().take(400) {
                let length = agent.answer(&changed(call, &mut random), &mut answer);
                assert!((8..=MOST).contains(&length), "an answer of {length} bytes");
            }
            assert_eq!(agent.answer(&[], &mut answer[..4]), 0, "there is no room for an answer");
            assert!(agent.close(), "seed {seed}: something stays open");
        }
        assert_eq!(platform.take_panic(), None, "seed {seed}");
        platform.finish().unwrap_or_else(|left| panic!("seed {seed}: {left}"));
    }
}

/// A call with one word.
fn call_of(function: u32, word: u64) -> Vec<u8> {
    let mut call = vec![0; 96];
    call[..4].copy_from_slice(&function.to_le_bytes());
    call[24..32].copy_from_slice(&word.to_le_bytes());
    call
}

const HELLO: u32 = 0;
const OPEN_ADAPTER: u32 = 8;
/// How an answer begins: it was carried out, or the version of the protocol is another one.
const CARRIED_OUT: [u8; 4] = 0_u32.to_le_bytes();
const OTHER_VERSION: [u8; 4] = 5_u32.to_le_bytes();

#[test]
fn a_greeting_of_another_version_is_refused() {
    let platform = HostPlatform::start(setup()).expect("a machine");
    let agent = Agent::try_new(&platform, 1).expect("an agent");
    let mut answer = [0; MOST];
    for (version, expected) in [(0, OTHER_VERSION), (1, CARRIED_OUT), (2, OTHER_VERSION)] {
        agent.answer(&call_of(HELLO, version), &mut answer);
        assert_eq!(answer[..4], expected, "version {version}");
    }
}

#[test]
fn a_greeting_closes_what_the_one_before_has_left() {
    let platform = HostPlatform::start(setup()).expect("a machine");
    let agent = Agent::try_new(&platform, 1).expect("an agent");
    let mut answer = [0; MOST];
    let references = || fallible::Arc::references_now(&platform.devices()[1]);
    let before = references();
    agent.answer(&call_of(OPEN_ADAPTER, 2 << 16), &mut answer);
    assert_eq!(answer[..4], CARRIED_OUT);
    assert!(references() > before, "the adapter is open");
    agent.answer(&call_of(HELLO, 1), &mut answer);
    assert_eq!((&answer[..4], references()), (&CARRIED_OUT[..], before));
}
