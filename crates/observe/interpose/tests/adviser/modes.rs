//! What becomes of a finding: the mode, whom it names, and what is left out.

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use conformance::{
    Platform,
    host::{HostPlatform, Setup},
};
use host::HostOs;
use interpose::adviser::{Adviser, Finding, Mode, Report, Settings, Sink, Totals};
use ndkpi::*;
use provider::CompletionMode;

use crate::consumer::{Done, closed, created, ndk, notified};

/// What was done with findings, one after the other.
#[derive(Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

impl Steps {
    fn push(&self, step: String) {
        self.0.lock().expect("no panic").push(step);
    }
}

impl Sink for Steps {
    fn report(&self, report: &Report<'_>) {
        self.push(format!("report {}", report.finding));
        for (who, frames) in report.stacks() {
            self.push(format!("{who}: {}", host::names(frames).join(", ")));
        }
    }

    fn break_in(&self) {
        self.push("break".to_owned());
    }

    fn bugcheck(&self, report: &Report<'_>) {
        self.push(format!("bugcheck {}", report.finding));
    }
}

#[inline(never)]
fn who_creates(adapter: *mut NDK_ADAPTER) -> *mut NDK_CQ {
    let (mut cq, done) = (ptr::null_mut(), Done::new());
    let status = ndk!(
        adapter,
        NdkCreateCq(8, Some(notified), done.context(), ptr::null(), Some(created), done.context(), &raw mut cq)
    );
    assert_eq!(status, NtStatus::SUCCESS);
    std::hint::black_box(cq)
}

#[inline(never)]
fn who_arms(cq: *mut NDK_CQ, kind: u32) {
    ndk!(cq, NdkArmCq(kind));
    std::hint::black_box(cq);
}

/// A consumer that arms a queue for something unknown, twice, and for less than it is armed for. What was done about it, and how often
/// the two findings were counted.
fn misused(settings: Settings) -> (Vec<String>, [u32; 2]) {
    let platform =
        HostPlatform::start(Setup { completion: CompletionMode::Inline, ..Setup::default() }).expect("a machine");
    let provider = platform.open(0, NDK_VERSION::new(2, 0)).expect("an adapter");
    let steps = Arc::default();
    let sink = fallible::Arc::try_new(Steps(Arc::clone(&steps))).expect("memory");
    let totals = fallible::Arc::try_new(Totals::default()).expect("memory");
    let adviser = Adviser::new(platform.devices()[0].os().clone(), settings, sink, totals.clone());
    // SAFETY: the adapter was just opened.
    let adapter = unsafe { interpose::wrap(provider, adviser) }.expect("memory");
    let cq = who_creates(adapter);
    for kind in [77, 77, NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS] {
        who_arms(cq, kind);
    }
    let done = Done::new();
    let status = ndk!(cq, NdkCloseCq(Some(closed), done.context()));
    if status == NtStatus::PENDING {
        assert!(platform.wait(5_000_000, &|| done.count() > 0), "the close");
    }
    let close = |inner| {
        // SAFETY: the provider's adapter, which nobody uses any more.
        assert!(unsafe { platform.close(inner) }, "nothing is left");
    };
    // SAFETY: nothing of it is left, and it is not used after this.
    unsafe { interpose::close_through::<Adviser<HostOs, Steps>, _>(adapter, close) };
    platform.finish().expect("nothing is left");
    let steps = steps.lock().expect("no panic").clone();
    (steps, [Finding::UnknownArm, Finding::WeakerArm].map(|finding| totals.of(finding)))
}

fn without_stacks(steps: &[String]) -> Vec<&str> {
    steps.iter().map(String::as_str).filter(|step| !step.contains(" by: ")).collect()
}

#[test]
fn each_mode_does_what_it_says() {
    for (mode, expected) in [
        (Mode::Log, ["report SN0005", "report SN0004"].as_slice()),
        (Mode::Count, &[]),
        (Mode::Break, &["report SN0005", "break", "report SN0004", "break"]),
        (Mode::Bugcheck, &["report SN0005", "bugcheck SN0005", "report SN0004"]),
    ] {
        let (steps, counts) = misused(Settings { mode, ..Settings::default() });
        assert_eq!(without_stacks(&steps), expected, "{mode:?}");
        // Reported once for each object, and counted always.
        assert_eq!(counts, [2, 1], "{mode:?}");
    }
}

#[test]
fn advice_can_be_turned_off() {
    let (steps, counts) = misused(Settings { advice: false, ..Settings::default() });
    assert_eq!((without_stacks(&steps), counts), (vec!["report SN0005"], [2, 0]));
}

#[test]
fn a_report_says_who_created_the_object_and_who_made_the_call() {
    let (steps, _) = misused(Settings::default());
    let of = |who: &str| steps.iter().find(|step| step.starts_with(who)).expect("both are told").as_str();
    assert!(of("created by: ").contains("who_creates"), "{}", of("created by: "));
    assert!(of("called by: ").contains("who_arms"), "{}", of("called by: "));
}
