//! Each call of Windows fails once, in each way: then the machine is as before, or the report says exactly what is left.

use std::collections::BTreeSet;

use install::{Done, Driver, Failed, Left, Pair, uninstall};

use crate::{
    Failing, Manners, Model, both, carry_out, certificate, installed, model::difference, nic, try_install, try_pair,
    unplanned, with,
};

type Doing = fn(&Model) -> Result<Done, Failed>;

fn install_new(model: &Model) -> Result<Done, Failed> {
    try_install(model, &both(2, 20))
}

fn install_rebuilt(model: &Model) -> Result<Done, Failed> {
    try_install(model, &both(1, 30))
}

fn uninstall_all(model: &Model) -> Result<Done, Failed> {
    carry_out(model, &uninstall(model, &Driver::ALL, Some(&certificate())).map_err(|fault| unplanned(&fault))?)
}

fn pair_new(model: &Model) -> Result<Done, Failed> {
    try_pair(model, Some(&nic(1, 50)), &Pair::default())
}

fn pair_again(model: &Model) -> Result<Done, Failed> {
    try_pair(model, None, &Pair::default())
}

fn pair_rebuilt(model: &Model) -> Result<Done, Failed> {
    try_pair(model, Some(&nic(1, 70)), &Pair::default())
}

fn pair_newer(model: &Model) -> Result<Done, Failed> {
    try_pair(model, Some(&nic(2, 60)), &Pair::default())
}

/// Machines, and what is done on each.
fn all() -> Vec<(&'static str, Model, Doing)> {
    let pair = || {
        let model = Model::default();
        pair_new(&model).expect("a pair");
        model
    };
    let late = Manners { late: true, slow_stack: true, ..Manners::default() };
    // One of the two is trusted already, and a device of an earlier try has no driver.
    let half = || {
        let model = Model::default();
        install::Machine::trust(&model, install::Store::Root, &certificate()).expect("it is trusted");
        install::Machine::create_device(&model, &install::PROVIDER).expect("a device");
        model
    };
    vec![
        ("a fresh machine", Model::default(), install_new),
        ("a machine with half of it", half(), install_new),
        ("devices that are listed late", with(late.clone(), None), install_new),
        ("an older package", installed(&both(1, 10)), install_new),
        ("a rebuilt package", installed(&both(1, 10)), install_rebuilt),
        (
            "an upgrade that needs a restart",
            with(Manners { restart: true, ..Manners::default() }, Some(&both(1, 10))),
            install_new,
        ),
        ("all of it taken away", installed(&both(1, 10)), uninstall_all),
        ("a pair on a fresh machine", Model::default(), pair_new),
        ("a pair whose ends come late", with(late, None), pair_new),
        ("a pair of NICs that are there", installed(&nic(1, 50)), pair_again),
        ("a pair whose driver is rebuilt", pair(), pair_rebuilt),
        ("a pair whose driver is newer", pair(), pair_newer),
        ("a pair taken away", pair(), uninstall_all),
    ]
}

fn unknown(left: &Left) -> bool {
    matches!(left, Left::Unknown(_))
}

fn of_interface(left: &Left) -> bool {
    use Left::{Address, Dad, Name, Neighbour, Route};
    matches!(left, Name(_) | Dad(_) | Address(_) | Neighbour(_) | Route(_))
}

/// Runs it with one failure after another. What is reported is what differs.
fn each(failing: fn(usize) -> Failing, exactly: bool) {
    let mut failures = 0;
    for (what, machine, doing) in all() {
        let calls = {
            let model = machine.again(Failing::Never);
            doing(&model).unwrap_or_else(|failed| panic!("{what}: {failed}"));
            model.calls.borrow().len()
        };
        assert!(calls > 10, "{what}: {calls} calls");
        for number in 0..calls {
            let model = machine.again(failing(number));
            let before = model.state.borrow().clone();
            let ended = doing(&model);
            let call = model.calls.borrow()[number];
            let differs = difference(&before, &model.state.borrow());
            match ended {
                Err(failed) => {
                    failures += 1;
                    let left: BTreeSet<_> = failed.left.iter().cloned().collect();
                    assert_eq!(left.len(), failed.left.len(), "{what}, call {number} ({call}): {left:?}");
                    // Of an interface that was made anew and has lost everything, what was set on the way does not matter.
                    let lost = left.iter().any(|left| matches!(left, Left::Interface(_)));
                    let settles = |left: &Left| !lost || !of_interface(left);
                    let left: BTreeSet<_> = left.into_iter().filter(settles).collect();
                    let differs: BTreeSet<_> = differs.into_iter().filter(settles).collect();
                    if exactly || !left.iter().any(unknown) {
                        assert_eq!(left, differs, "{what}, call {number} ({call}): {failed}");
                    }
                }
                // Some calls may fail: a copy that is not deleted, a replaced package that stays and is named.
                Ok(done) => {
                    let named = done.left.iter().any(|left| matches!(left, Left::Package(_)));
                    assert!(
                        call == "drop_kept" || named || matches!(model.failing.get(), Failing::After(_)),
                        "{what}, call {number} ({call}) was not noticed: {done:?}"
                    );
                }
            }
        }
    }
    assert!(failures > 200, "{failures} failures");
}

#[test]
fn a_call_that_fails_leaves_the_machine_as_it_was_or_is_said_to_have_not() {
    each(Failing::Before, true);
}

#[test]
fn a_call_that_fails_after_it_has_done_its_work_is_undone_too() {
    each(Failing::After, true);
}

#[test]
fn when_nothing_works_any_more_the_report_says_what_is_unknown() {
    each(Failing::From, false);
}

#[test]
fn when_nothing_can_be_changed_any_more_the_report_says_exactly_what_is_left() {
    each(Failing::ChangesFrom, true);
}

/// Of a machine without the drivers nothing is left, whichever call fails.
#[test]
fn a_first_install_that_fails_leaves_nothing() {
    let calls = {
        let model = Model::default();
        install_new(&model).expect("it is installed");
        model.calls.borrow().len()
    };
    for failing in [Failing::Before, Failing::After] {
        for number in 0..calls {
            let model = Model::default().again(failing(number));
            let before = model.state.borrow().clone();
            if let Err(failed) = install_new(&model) {
                assert_eq!(
                    (failed.left, difference(&before, &model.state.borrow())),
                    (vec![], BTreeSet::new()),
                    "{number}"
                );
            }
        }
    }
}

#[test]
fn an_install_that_is_interrupted_is_undone() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let wanted = both(1, 10);
    let steps = {
        let model = Model::default();
        crate::bring(&model, &wanted);
        install::install(&model, &wanted).expect("a plan").steps.len()
    };
    for when in 1..steps {
        let model = Model::default();
        crate::bring(&model, &wanted);
        let plan = install::install(&model, &wanted).expect("a plan");
        let (flag, mut seen) = (AtomicBool::new(false), 0);
        let options = install::Options { interrupted: Some(&flag), ..install::Options::default() };
        let failed = plan.run(&model, options, &mut |_| {
            seen += 1;
            flag.store(seen > when, Relaxed);
        });
        let failed = failed.expect_err("it is interrupted");
        assert_eq!((failed.reason.as_str(), failed.left), ("interrupted", vec![]));
        assert_eq!(difference(&install_state(), &model.state.borrow()), BTreeSet::new());
    }
}

fn install_state() -> crate::model::State {
    crate::model::State::default()
}
