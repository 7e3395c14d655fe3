//! Why something fails: everything that the conformance suite is refused, and every request of it that fails, has a reason of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
};

use conformance::{
    Run, cases,
    host::{Harness, Interposed, Scheduler, Setup},
};
use host::HostOs;
use interpose::{Args, Event, Function, Outcome, Phase, Verdict};
use ndkpi::{NDK_OPERATION_TYPE, NDK_RESULT_EX, NtStatus};
use provider::{About, CompletionMode, Profile, Reason};
use testing::on_event::OnEvent;

/// What has failed: a call or its completion by the name of the function, a work request by its kind; and a case that it failed in.
#[derive(Default)]
struct Failures {
    calls: BTreeMap<(&'static str, u32), &'static str>,
    requests: BTreeMap<(i32, u32), &'static str>,
    /// What was wrong with a result.
    wrong: BTreeSet<String>,
}

impl Failures {
    /// Notes what an event of a case says.
    fn note(&mut self, case: &'static str, event: &Event<'_, ()>) {
        let is_end =
            matches!(event.phase, Phase::Return | Phase::Callback) && event.function < Function::CqNotification;
        match (event.outcome, event.args) {
            (Outcome::Status(status), _) if is_end && !status.is_success() => {
                self.calls.insert((event.function.name(), status.to_bits()), case);
            }
            (_, Args::GetCqResultsEx { results, .. }) => {
                for result in results {
                    self.note_result(case, result);
                }
            }
            _ => {}
        }
    }

    fn note_result(&mut self, case: &'static str, result: &NDK_RESULT_EX) {
        let code = result.ProviderErrorCode;
        let reason = Reason::of_request(result.Type, result.Status);
        if result.Status.is_success() {
            if code != 0 {
                self.wrong.insert(format!("{case}: a success with the code {code}"));
            }
            return;
        }
        self.requests.insert((result.Type.0, result.Status.to_bits()), case);
        if reason.is_none_or(|reason| u32::from(reason.number()) != code) {
            self.wrong.insert(format!("{case}: {:?} {} has the code {code}", result.Type, result.Status));
        }
    }
}

/// Runs the suite, and notes what fails in it.
fn run(profile: Profile, completion: CompletionMode, seen: &Arc<Mutex<Failures>>) {
    let newest = *profile.versions().iter().max().expect("it has a version");
    for case in cases::all() {
        let setup = Setup {
            scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
            tokens: Some(1 << 12),
            completion,
            profile,
            ..Setup::default()
        };
        let kept = seen.clone();
        let harness = Harness::new(setup).with_layer(Arc::new(move |platform| {
            let kept = kept.clone();
            let make = move |os: &HostOs| {
                let kept = kept.clone();
                OnEvent::new(os, move |event| {
                    kept.lock().expect("no panic").note(case.name, event);
                    Verdict::Forward
                })
            };
            Box::new(Interposed::new(platform, Box::new(make)))
        }));
        let outcome = harness.run(case, Run { version: newest, seed: 5, hostile: true }).outcome;
        assert!(!outcome.is_bad(), "{profile:?}, {}: {outcome}", case.name);
    }
}

/// What has failed in the suite, which is run once.
fn seen() -> MutexGuard<'static, Failures> {
    static SEEN: LazyLock<Arc<Mutex<Failures>>> = LazyLock::new(|| {
        let seen: Arc<Mutex<Failures>> = Arc::default();
        thread::scope(|scope| {
            for (profile, completion) in [
                (Profile::Own, CompletionMode::Mixed),
                (Profile::Own, CompletionMode::Inline),
                (Profile::Small, CompletionMode::Pending),
                (Profile::Iwarp, CompletionMode::Mixed),
            ] {
                let seen = &seen;
                scope.spawn(move || run(profile, completion, seen));
            }
        });
        seen
    });
    // One test that fails says nothing of the others.
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn whatever_fails_in_the_suite_has_a_reason() {
    let seen = seen();
    let mut missing: Vec<_> = seen.wrong.iter().cloned().collect();
    for (&(function, status), case) in &seen.calls {
        let status = NtStatus::from_bits(status);
        if Reason::of_call(function, status).is_none() {
            missing.push(format!("{function} {status} ({case})"));
        }
    }
    for (&(kind, status), case) in &seen.requests {
        let (kind, status) = (NDK_OPERATION_TYPE(kind), NtStatus::from_bits(status));
        if Reason::of_request(kind, status).is_none() {
            missing.push(format!("{kind:?} {status} ({case})"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Failures of the table that no case of the suite meets: memory that runs out, overlaps of calls on threads, adapters that go, and
/// functions that fail as others do which it does call so. A failure that a case meets one day is taken out, so that it stays met.
const ELSEWHERE: &[(u16, &[&str])] = &[
    (
        1,
        &[
            "NdkOperationTypeBind",
            "NdkOperationTypeFastRegister",
            "NdkOperationTypeInvalidate",
            "NdkOperationTypeRead",
            "NdkOperationTypeReceiveAndInvalidate",
        ],
    ),
    (2, &["NdkOperationTypeReceiveAndInvalidate"]),
    (3, &["NdkOperationTypeReceiveAndInvalidate"]),
    (7, &["NdkOperationTypeRead", "NdkOperationTypeWrite"]),
    (10, &["NdkOperationTypeRead"]),
    (11, &["NdkOperationTypeBind", "NdkOperationTypeFastRegister"]),
    (13, &["NdkOperationTypeInvalidate", "NdkOperationTypeRead"]),
    (14, &["NdkOperationTypeReceive", "NdkOperationTypeReceiveAndInvalidate"]),
    (21, &["NdkBind", "NdkFastRegister", "NdkInvalidate", "NdkRead", "NdkSendAndInvalidate", "NdkWrite"]),
    (23, &["NdkRead", "NdkSendAndInvalidate"]),
    (24, &["NdkSrqReceive"]),
    (25, &["NdkSendAndInvalidate"]),
    (27, &["NdkSendAndInvalidate"]),
    (28, &["NdkSrqReceive"]),
    (29, &["NdkSendAndInvalidate", "NdkWrite"]),
    (34, &["NdkBind"]),
    (35, &["NdkBind"]),
    (37, &["NdkInvalidate", "NdkRead", "NdkSend", "NdkSendAndInvalidate", "NdkWrite"]),
    (38, &["NdkReceive", "NdkSrqReceive"]),
    (40, &["NdkBind", "NdkFastRegister"]),
    (
        50,
        &[
            "NdkCreateConnector",
            "NdkCreateCq",
            "NdkCreateListener",
            "NdkCreateMr",
            "NdkCreateMw",
            "NdkCreatePd",
            "NdkCreateQp",
            "NdkCreateQpWithSrq",
            "NdkCreateSrq",
        ],
    ),
    (
        51,
        &[
            "NdkAccept",
            "NdkAcceptEx",
            "NdkBuildLAM",
            "NdkConnect",
            "NdkConnectWithSharedEndpoint",
            "NdkControlCqInterruptModeration",
            "NdkCreateSharedEndpoint",
            "NdkInitializeFastRegisterMr",
            "NdkListen",
            "NdkModifySrq",
            "NdkRegisterMr",
            "NdkReject",
            "NdkResizeCq",
        ],
    ),
    (53, &["NdkCreateConnector", "NdkCreateListener", "NdkCreateMr", "NdkCreateMw", "NdkCreatePd"]),
    (57, &["NdkResizeCq"]),
    (66, &["NdkDeregisterMr", "NdkInitializeFastRegisterMr"]),
    (70, &["NdkQueryAdapterInfo"]),
    (72, &["NdkQueryExtension"]),
    (73, &["NdkAcceptEx", "NdkCompleteConnectEx", "NdkSendAndInvalidate"]),
    (80, &["NdkConnectWithSharedEndpoint"]),
    (81, &["NdkConnectWithSharedEndpoint"]),
    (82, &["NdkConnectWithSharedEndpoint"]),
    (83, &["NdkConnectWithSharedEndpoint"]),
    (84, &["NdkConnect", "NdkConnectWithSharedEndpoint"]),
    (85, &["NdkConnectWithSharedEndpoint"]),
    (86, &["NdkConnectWithSharedEndpoint"]),
    (87, &["NdkConnectWithSharedEndpoint"]),
    (88, &["NdkConnectWithSharedEndpoint"]),
    (92, &["NdkConnect", "NdkCreateSharedEndpoint", "NdkListen"]),
    (95, &["NdkAcceptEx", "NdkCompleteConnectEx"]),
    (96, &["NdkAcceptEx"]),
    (97, &["NdkAcceptEx", "NdkCompleteConnectEx"]),
    (98, &["NdkAcceptEx", "NdkCompleteConnect", "NdkCompleteConnectEx"]),
    (99, &["NdkAcceptEx"]),
    (100, &["NdkAcceptEx", "NdkCompleteConnect", "NdkCompleteConnectEx"]),
    (101, &["NdkAccept", "NdkAcceptEx"]),
    (103, &["NdkReject"]),
    (106, &["NdkDisconnect"]),
    (108, &["NdkDisconnect"]),
    (
        111,
        &[
            "NdkGetLocalAddress",
            "NdkGetLocalAddress (listener)",
            "NdkGetLocalAddress (shared endpoint)",
            "NdkGetPeerAddress",
        ],
    ),
    (114, &["NdkGetConnectionData"]),
    (115, &["NdkAccept", "NdkAcceptEx", "NdkConnect", "NdkConnectWithSharedEndpoint"]),
    (116, &["NdkGetLocalAddress (listener)"]),
    (118, &["NdkReject"]),
    (119, &["NdkConnect", "NdkConnectWithSharedEndpoint"]),
    (120, &["NdkConnectWithSharedEndpoint"]),
    (121, &["NdkDisconnect"]),
];

#[test]
fn each_reason_is_one_that_the_suite_meets_or_that_the_list_names() {
    let seen = seen();
    let mut wrong = Vec::new();
    for reason in Reason::ALL {
        let status = reason.status.to_bits();
        let unmet: BTreeSet<String> = match reason.about {
            About::Calls(functions) => functions
                .iter()
                .filter(|name| !seen.calls.contains_key(&(**name, status)))
                .map(|name| (*name).to_owned())
                .collect(),
            About::Requests(kinds) => kinds
                .iter()
                .filter(|kind| !seen.requests.contains_key(&(kind.0, status)))
                .map(|kind| format!("{kind:?}"))
                .collect(),
            // The suite has no wire here: `wire_engine` meets them.
            About::Wire(_) | About::Rejections(_) => continue,
        };
        let listed =
            ELSEWHERE.iter().find(|(number, _)| *number == reason.number()).map_or(&[][..], |(_, names)| names);
        if unmet != listed.iter().map(|name| (*name).to_owned()).collect() {
            wrong.push(format!("    ({}, &{unmet:?}),", reason.number()));
        }
    }
    assert!(wrong.is_empty(), "not met:\n{}", wrong.join("\n"));
}

#[test]
fn numbers_are_given_once_and_in_order() {
    let numbers: Vec<_> = Reason::ALL.iter().map(Reason::number).collect();
    assert!(numbers.is_sorted_by(|before, after| before < after), "{numbers:?}");
    for reason in Reason::ALL {
        assert_eq!(Reason::from_number(reason.number()).map(Reason::number), Some(reason.number()));
        assert!(
            reason.what.len() > 20
                && !reason.fix.is_empty()
                && ["ND", "RoCEv2 "].iter().any(|sheet| reason.section.starts_with(sheet)),
            "{reason}"
        );
        assert!(!reason.status.is_success(), "{reason}");
        assert_eq!(reason.to_string(), format!("SR{:04}", reason.number()));
    }
    assert!(Reason::from_number(0).is_none());
}

#[test]
fn a_failure_has_one_reason_at_most() {
    let mut seen = BTreeSet::new();
    for reason in Reason::ALL {
        let what: Vec<_> = match reason.about {
            About::Calls(functions) => functions.iter().map(|&name| name.to_owned()).collect(),
            About::Requests(kinds) => kinds.iter().map(|kind| format!("{kind:?}")).collect(),
            // Beside those of the same status: the cause decides, or what the peer says.
            About::Wire(_) | About::Rejections(_) => continue,
        };
        if let About::Requests(kinds) = reason.about {
            for &kind in kinds {
                let found = [reason.status, NtStatus::SUCCESS].map(|status| Reason::of_request(kind, status));
                assert_eq!(found.map(|found| found.map(Reason::number)), [Some(reason.number()), None], "{kind:?}");
            }
        }
        for name in what {
            if let About::Calls(_) = reason.about {
                let is_known = Function::ALL.iter().any(|function| function.name() == name);
                assert!(is_known, "{reason}: there is no function {name}");
            }
            if let About::Calls(_) = reason.about {
                let found = Reason::of_call(&name, reason.status).map(Reason::number);
                assert_eq!(found, Some(reason.number()), "{name} {}", reason.status);
                assert!(
                    Reason::of_call(&name, NtStatus::SUCCESS).is_none() && Reason::of_call("", reason.status).is_none()
                );
            }
            assert!(seen.insert((name.clone(), reason.status.to_bits())), "{reason}: {name} {}", reason.status);
        }
    }
}

#[test]
fn the_engine_answers_with_no_status_that_the_table_does_not_have() {
    // What is written as a failure anywhere in the provider and its engine is the status of some reason.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/provider");
    let mut stack = vec![root.join("provider/src"), root.join("engine/src")];
    let known: BTreeSet<_> = Reason::ALL.iter().filter_map(|reason| reason.status.name()).collect();
    // Of notifications and internal: no call or request ends with these.
    let others = ["STATUS_SUCCESS", "STATUS_PENDING", "STATUS_INTERNAL_ERROR", "STATUS_NDIS_BAD_VERSION"];
    let mut unknown = BTreeSet::new();
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(path.read_dir().expect("a directory").map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        for (place, _) in text.match_indices("NtStatus::") {
            let rest = &text[place + "NtStatus::".len()..];
            let end = rest.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_').unwrap_or(rest.len());
            let name = format!("STATUS_{}", &rest[..end]);
            let is_constant = end > 1 && NtStatus::NAMED.iter().any(|status| status.name() == Some(name.as_str()));
            if is_constant && !known.contains(name.as_str()) && !others.contains(&name.as_str()) {
                unknown.insert(format!("{name} in {}", path.display()));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
