//! Bytes that nobody has agreed to, at the port of the driver's wire.

use rigs::any_datagrams::{Reached, exercise};

#[test]
fn bytes_of_a_fuzzer_reach_the_connection_and_break_nothing() {
    let mut reached = Reached::default();
    for seed in 1..9_u32 {
        let bytes: Vec<u8> =
            (0..300_u32).map(|number| ((number + 1) * seed).wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
        reached.add(exercise(&bytes));
    }
    for seed in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/datagrams")).expect("the seeds") {
        reached.add(exercise(&std::fs::read(seed.expect("a file").path()).expect("its bytes")));
    }
    // Else this would say nothing.
    assert!(
        reached.datagrams > 80 && reached.frames > 40 && reached.taken_apart > 20 && reached.for_the_connection > 10,
        "{reached:?}"
    );
}
