//! The control device: the same codes as of `softndk`, for who administers the machine.

use std::sync::Arc;

use control::{
    client::{ProviderDriver, Refusal},
    provider_device::{
        CompletionMode, FAULT_PLAN_ANSWER_BYTES, NIC_LINK_NAME, QUERY_FAULT_PLAN, QUERY_INFO, Recording, SDDL,
        SET_FAULT_PLAN, Settings,
    },
};
use interpose::{
    Function,
    faults::{Kind, Plan, Rule, Which},
};
use kernel::KernelRuntime;
use ndk::{Adapter, NtStatus};
use simulated_kernel::{
    Driver, IoFile, Kernel, Nic,
    wdk::{STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER},
};

use crate::{
    codes, faulty,
    machine::{ADDRESSES, VERSION, add, configure, load, with_pair},
    rows,
    transport::ToNic,
};

fn open(kernel: &Kernel) -> IoFile {
    kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device")
}

#[test]
fn the_device_is_there_from_the_first_adapter_to_the_last_and_as_long_as_it_is_open() {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    assert!(kernel.open_device(NIC_LINK_NAME).is_err());
    let (one, other) = (add(&driver, &[]), add(&driver, &[]));
    assert_eq!(kernel.access(NIC_LINK_NAME).as_deref(), Some(SDDL), "the system and administrators");
    one.remove();
    let file = ProviderDriver::new(ToNic(open(&kernel)));
    assert_eq!(file.info().expect("an answer").adapters, 1);
    other.remove();
    assert_eq!(file.info().expect("a program keeps it").adapters, 0);
    // An adapter that comes meanwhile has the same device.
    let again = add(&driver, &[]);
    assert_eq!(file.info().expect("an answer").adapters, 1);
    again.remove();
    drop(file);
    assert!(kernel.open_device(NIC_LINK_NAME).is_err());
    driver.unload();
}

#[test]
fn a_program_asks_and_sets_what_it_does_of_the_other_driver() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, _| {
        let program = ProviderDriver::new(ToNic(open(&kernel)));
        let info = program.info().expect("an answer");
        assert_eq!((info.adapters, info.open_adapters), (2, 0));
        let adapter = one.open_ndk(VERSION).expect("it opens");
        assert_eq!(program.info().expect("an answer").open_adapters, 1);
        one.close_ndk(adapter);
        let before = program.settings().expect("settings");
        assert_eq!(before.completion_mode, CompletionMode::Mixed as u32, "the default");
        let wanted = Settings { completion_mode: CompletionMode::Early as u32, ..before };
        program.set(&wanted).expect("a setting");
        assert_eq!(program.settings(), Ok(wanted));
        assert_eq!(program.set(&Settings { completion_mode: 4, ..before }), Err(Refusal::Invalid));
        assert_eq!(program.settings(), Ok(wanted), "nothing has changed");
        assert_eq!(program.counters().expect("counters").Connect, 0);
        assert!(program.connections().expect("a list").is_empty());
    });
}

#[test]
fn short_buffers_unknown_codes_and_files_on_the_device_are_refused() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |_, _| {
        let below = kernel.open_device(&format!(r"{NIC_LINK_NAME}\file"));
        assert_eq!(below.err(), Some(STATUS_INVALID_DEVICE_REQUEST), "there are no files on it");
        let file = open(&kernel);
        for (code, input, output, status) in [
            (QUERY_INFO, 0, 31, STATUS_BUFFER_TOO_SMALL),
            (QUERY_INFO, 0, 0, STATUS_BUFFER_TOO_SMALL),
            (SET_FAULT_PLAN, 399, 0, STATUS_BUFFER_TOO_SMALL),
            (SET_FAULT_PLAN, 401, 0, STATUS_INVALID_PARAMETER),
            (QUERY_FAULT_PLAN, 0, FAULT_PLAN_ANSWER_BYTES - 1, STATUS_BUFFER_TOO_SMALL),
            (QUERY_INFO + 0x400, 64, 64, STATUS_INVALID_DEVICE_REQUEST),
        ] {
            let answer = file.control(code, &vec![0xFF; input], output);
            assert_eq!((answer.status, answer.bytes.len()), (status, 0), "code {code:#x}, {input} in, {output} out");
        }
    });
}

#[test]
fn any_control_code_is_answered() {
    rows::each("control_codes", |bytes| {
        let kernel = Kernel::seeded(1).start();
        with_pair(&kernel, &[], |_, _| {
            let file = open(&kernel);
            codes::send(bytes, &codes::PROVIDER, |_, code, input, output| file.control(code, input, output));
        });
    });
}

/// A consumer uses an adapter of the driver. How that went.
pub fn use_it(driver: &Driver, nic: &Arc<Nic>) -> Result<(), NtStatus> {
    let raw = nic.open_ndk(VERSION)?;
    driver.run(|| {
        let theirs = nic.clone();
        let os = Box::new(KernelRuntime::new(move |adapter| theirs.close_ndk(adapter)));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
        faulty::use_it(&adapter, ADDRESSES[0])
    })
}

/// A machine with the driver, two ends of a cable, and a program that has the control device open.
fn on_a_machine(kernel: &Kernel, work: impl FnOnce(&Driver, &Arc<Nic>, &ProviderDriver<ToNic>)) {
    let driver = load(kernel).expect("it loads");
    let (one, other) = (Arc::new(add(&driver, &[])), add(&driver, &[]));
    configure(kernel, [&one, &other]);
    let program = ProviderDriver::new(ToNic(open(kernel)));
    work(&driver, &one, &program);
    drop(program);
    let one = Arc::into_inner(one).expect("nobody has it open");
    // What NDIS does with an adapter that has failed.
    if one.has_failed() {
        one.surprise_remove();
    } else {
        one.remove();
    }
    other.remove();
    // Looks for memory, timers and DPCs that are left.
    driver.unload();
}

#[test]
fn each_fault_is_seen_by_a_consumer() {
    for (rule, statuses) in faulty::faults() {
        on_a_machine(&Kernel::seeded(5).start(), |driver, nic, program| {
            let plan = Plan::new(1).with(rule).expect("a rule");
            program.set_fault_plan(&plan.to_bytes()).expect("a plan");
            let outcome = use_it(driver, nic);
            let (_, counts) = program.fault_plan().expect("an answer");
            faulty::check(rule, statuses, outcome, counts[0][1]);
            assert_eq!(nic.has_failed(), rule.kind == Kind::Remove, "plug and play is told of what was pulled");
            if rule.kind == Kind::Remove {
                assert_eq!(nic.open_ndk(VERSION), Err(NtStatus::NDIS_ADAPTER_NOT_READY));
            }
        });
    }
}

#[test]
fn faults_are_off_until_somebody_asks_for_them() {
    on_a_machine(&Kernel::seeded(5).start(), |driver, nic, program| {
        assert_eq!(use_it(driver, nic), Ok(()));
        let rule = Rule { function: Some(Function::CreateCq), ..Rule::new(Kind::Refuse, Which::Nth(1)) };
        let plan = Plan::new(1).with(rule).expect("a rule");
        program.set_fault_plan(&plan.to_bytes()).expect("a plan");
        assert_eq!(use_it(driver, nic), Err(NtStatus::INSUFFICIENT_RESOURCES));
        program.set_fault_plan(&Plan::new(0).to_bytes()).expect("no plan");
        assert_eq!(use_it(driver, nic), Ok(()));
    });
}

#[test]
fn what_a_consumer_does_is_recorded_while_it_is_wanted() {
    on_a_machine(&Kernel::seeded(5).start(), |driver, nic, program| {
        assert_eq!(use_it(driver, nic), Ok(()));
        assert_eq!(program.recording().expect("an answer").slots, 0);
        program.record(&Recording { slots: 1 << 12, keep: 0 }).expect("a recording");
        assert_eq!(use_it(driver, nic), Ok(()));
        program.record(&Recording { slots: 0, keep: 0 }).expect("its end");
        let state = program.recording().expect("an answer");
        let slots = program.recorded(&state).expect("slots");
        let file = recording::file(state.first..state.end, &slots, state.lost, state.processors);
        let recording = recording::Recording::read(&file).expect("a recording");
        assert_eq!(recording.lost, 0);
        for function in [Function::CreateQp, Function::Connect, Function::Send, Function::Close] {
            assert!(recording.records.iter().any(|record| record.function == function), "{function:?}");
        }
    });
}
