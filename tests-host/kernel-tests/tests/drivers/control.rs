//! The control devices: every length is checked, and every request is answered once.

use control::{
    SOFTNDK_INTERFACE_VERSION,
    provider_device::{self, Faults, Info, NicMode, Settings},
    test_device::{self, Progress, State},
};
use ndkpi::{NDK_VERSION, NtStatus};
use simulated_kernel::{
    Kernel, Value,
    wdk::{STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER},
};

use crate::{
    provider_interface::Interface,
    world::{Consumer, Provider, consumer_control, provider_control},
};

#[test]
fn the_provider_says_what_it_is() {
    let kernel = Kernel::threads().processors(3).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let file = provider_control(&kernel);
    let answer = file.control(provider_device::QUERY_INFO, &[], Info::BYTES);
    assert!(answer.is_success(), "{answer:?}");
    let info = Info::from_bytes(&answer.bytes).expect("an answer of the right size");
    assert_eq!((info.adapters, info.open_adapters, info.processors, info.reserved), (1, 0, 3, 0));
    assert_eq!((info.interface_version, info.ndk_version), (u32::from(SOFTNDK_INTERFACE_VERSION), 0x0002_0001));
    let version = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u32>().expect("a number"));
    assert_eq!(
        info.driver_version,
        version.fold(0, |before, part| before << 10 | part),
        "the workspace has one version"
    );
    drop(file);
    provider.unload();
}

#[test]
fn settings_out_of_range_change_nothing() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let file = provider_control(&kernel);
    let settings = || file.control(provider_device::QUERY_SETTINGS, &[], Settings::BYTES).bytes;
    let before = settings();
    let right = Settings { completion_mode: 3, moderation_granularity: 77, nic_mode: NicMode::Direct as u32 };
    for wrong in [
        Settings { completion_mode: 4, ..right },
        Settings { moderation_granularity: 0, ..right },
        Settings { nic_mode: 2, ..right },
    ] {
        assert_eq!(file.control(provider_device::SET_SETTINGS, &wrong.to_bytes(), 0).status, STATUS_INVALID_PARAMETER);
        assert_eq!(settings(), before, "{wrong:?}");
    }
    assert!(file.control(provider_device::SET_SETTINGS, &right.to_bytes(), 0).is_success());
    assert_eq!(settings(), right.to_bytes());
    drop(file);
    provider.unload();
}

#[test]
fn the_engine_of_the_registry_is_in_force_unless_it_is_out_of_range() {
    let kernel = Kernel::threads().start();
    for (parameter, nic) in [(None, NicMode::Deferred), (Some(1), NicMode::Direct), (Some(2), NicMode::Deferred)] {
        let parameters = parameter.map(|number| ("NicMode", Value::Number(number)));
        let provider = Provider::load_with(&kernel, parameters.as_slice()).expect("the provider loads");
        let file = provider_control(&kernel);
        let answer = file.control(provider_device::QUERY_SETTINGS, &[], Settings::BYTES);
        let settings = Settings::from_bytes(&answer.bytes).expect("an answer of the right size");
        assert_eq!(settings.nic_mode, nic as u32, "{parameter:?}");
        drop(file);
        provider.unload();
    }
}

#[test]
fn an_adapter_is_limited_like_the_profile_of_the_registry() {
    let kernel = Kernel::threads().start();
    for (profile, versions) in [(0, [true, true]), (4, [false, true]), (5, [false, true]), (6, [true, true])] {
        let parameters = [("Profile", Value::Number(profile))];
        let provider = Provider::load_with(&kernel, &parameters).expect("the provider loads");
        let interface = Interface::of(&provider.device);
        for (major, is_there) in [2, 1].into_iter().zip(versions) {
            let opened = interface.open(NDK_VERSION::new(major, 0));
            assert_eq!(opened.is_ok(), is_there, "profile {profile}, NDKPI {major}");
            if let Ok(adapter) = opened {
                // SAFETY: it was just opened, and is not used again.
                unsafe { interface.close(adapter) };
            }
        }
        drop(interface);
        provider.unload();
    }
}

#[test]
fn short_buffers_and_unknown_codes_are_refused() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let (ours, theirs) = (provider_control(&kernel), consumer_control(&kernel));
    for (file, code, input, output, status) in [
        (&ours, provider_device::QUERY_INFO, 0, Info::BYTES - 1, STATUS_BUFFER_TOO_SMALL),
        (&ours, provider_device::QUERY_INFO, 0, 0, STATUS_BUFFER_TOO_SMALL),
        (&ours, provider_device::QUERY_COUNTERS, 0, 239, STATUS_BUFFER_TOO_SMALL),
        (&ours, provider_device::SET_SETTINGS, Settings::BYTES - 1, 0, STATUS_BUFFER_TOO_SMALL),
        (&ours, provider_device::SET_SETTINGS, Settings::BYTES + 1, 0, STATUS_INVALID_PARAMETER),
        (&ours, provider_device::SET_FAULTS, Faults::BYTES - 1, 0, STATUS_BUFFER_TOO_SMALL),
        (&ours, provider_device::SET_FAULTS, Faults::BYTES + 1, 0, STATUS_INVALID_PARAMETER),
        (&ours, provider_device::QUERY_INFO + 0x400, 64, 64, STATUS_INVALID_DEVICE_REQUEST),
        (&theirs, test_device::START, 0, 0, STATUS_BUFFER_TOO_SMALL),
        (&theirs, test_device::START, 17, 0, STATUS_INVALID_PARAMETER),
        (&theirs, test_device::QUERY_PROGRESS, 0, Progress::BYTES - 1, STATUS_BUFFER_TOO_SMALL),
        (&theirs, test_device::QUERY_REPORT, 1, 64, STATUS_BUFFER_TOO_SMALL),
        (&theirs, 0, 64, 64, STATUS_INVALID_DEVICE_REQUEST),
    ] {
        // The images are those of users, who cannot ask for failures.
        let for_tests = cfg!(windows) && code == provider_device::SET_FAULTS;
        let status = if for_tests { NtStatus::NOT_SUPPORTED.0 } else { status };
        let answer = file.control(code, &vec![0xFF; input], output);
        assert_eq!((answer.status, answer.bytes.len()), (status, 0), "code {code:#x}, {input} in, {output} out");
    }
    let answer = theirs.control(test_device::QUERY_PROGRESS, &[], Progress::BYTES);
    let progress = Progress::from_bytes(&answer.bytes).expect("a progress");
    assert_ne!(progress.state, State::Running as u32);
    drop((ours, theirs));
    consumer.unload();
    provider.unload();
}
