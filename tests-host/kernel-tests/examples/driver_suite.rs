//! How long the conformance suite takes through both drivers, in the simulated kernel, and on the host's provider, in turn:
//! a line with the nanoseconds of both for each round.
//!
//!     cargo run --release -p kernel-tests --example driver_suite -- 3
//!
//! `ndkctl bench` runs it if it was built. It is a program of its own because the simulated kernel brings its own allocator.

#[cfg(not(unix))]
fn main() {
    eprintln!("there is no simulated kernel on this system");
    std::process::exit(1);
}

#[cfg(unix)]
fn main() {
    let rounds = std::env::args().nth(1).map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    for _ in 0..rounds {
        println!("{} {}", imp::through_drivers().as_nanos(), imp::on_host().as_nanos());
    }
}

#[cfg(unix)]
mod imp {
    use std::time::{Duration, Instant};

    use conformance::host::{Harness, Setup};
    use conformance::{Run, cases};
    use control::test_device::{self, Kind, Progress, Start, State};
    use ndkpi::NDK_VERSION;
    use simulated_kernel::{Device, Driver, File, Kernel};

    /// Of all runs.
    const SEED: u64 = 1;

    /// Loads a driver and gives it a device. The macro takes the type that the drivers' crates give to their entry.
    macro_rules! load {
        ($kernel:expr, $name:literal, $entry:path) => {{
            let driver = $kernel.load($name, $entry).expect("the driver loads");
            let device = driver.add_device().expect("the driver takes its device");
            (driver, device)
        }};
    }

    fn unload((driver, device): (Driver, Device)) {
        assert!(device.remove().is_ok(), "the device is removed");
        driver.unload();
    }

    fn progress(file: &File) -> Progress {
        let answer = file.control(test_device::QUERY_PROGRESS, &[], Progress::BYTES);
        assert!(answer.is_success(), "{answer:?}");
        Progress::from_bytes(&answer.bytes).expect("a progress")
    }

    /// The suite from `ndktest` through `softndk`.
    pub fn through_drivers() -> Duration {
        let kernel = Kernel::threads().start();
        let provider = load!(kernel, "softndk", softndk::driver_entry);
        let consumer = load!(kernel, "ndktest", ndktest::driver_entry);
        let file = kernel.open(test_device::LINK_NAME).expect("the consumer has a control device");
        let started = Instant::now();
        let start = Start { kind: Kind::Conformance as u32, seconds: 600, seed: SEED };
        assert!(file.control(test_device::START, &start.to_bytes(), 0).is_success(), "the run starts");
        let last = loop {
            let now = progress(&file);
            if now.state != State::Running as u32 {
                break now;
            }
            kernel.sleep(2_000);
        };
        let took = started.elapsed();
        assert_eq!((last.state, last.failed), (State::Finished as u32, 0), "a case has failed");
        drop(file);
        unload(consumer);
        unload(provider);
        took
    }

    /// The suite on the provider itself, on a machine of threads.
    pub fn on_host() -> Duration {
        let harness = Harness::new(Setup::default());
        let how = Run { version: NDK_VERSION::V2_1, seed: SEED, hostile: true };
        let started = Instant::now();
        for case in cases::all() {
            let outcome = harness.run(case, how).outcome;
            assert!(!outcome.is_bad(), "{}: {}", case.name, outcome.text());
        }
        started.elapsed()
    }
}
