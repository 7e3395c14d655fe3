//! The suite with its second adapter behind an agent: every case ends as with both adapters at hand, or for a reason that is listed.

mod machines;

use conformance::{Run, cases};
use ndkpi::NDK_VERSION;

use machines::{Quality, run, run_directly, setup};

const HOW: Run = Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: true };

#[test]
fn every_case() {
    let filter = std::env::var("CASE").unwrap_or_default();
    let mut same = 0;
    let mut all = 0;
    for case in cases::all().filter(|case| case.name.starts_with(&filter)) {
        all += 1;
        let begun = std::time::Instant::now();
        eprintln!("{} ...", case.name);
        let there = run(case, HOW, setup(), Quality::default());
        let took = begun.elapsed();
        let here = run_directly(case, HOW, setup());
        let there = there.map_or_else(|e| format!("ERROR {e}"), |o| o.to_string());
        if there == here.to_string() { same += 1 } else { eprintln!("DIFF {}: {there} / {here}", case.name) }
        eprintln!("{} {took:?}", case.name);
    }
    eprintln!("{same} of {all}");
}
