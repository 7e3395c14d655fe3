//! Settings: the file, the variables after it, and what is said about mistakes.

use engine::nic::NotReady;
use nd2::{
    CompletionPolicy, Resource,
    abi::adapter_flags::{ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED},
};
use softnd::settings::Settings;

fn load(file: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
    let variable = |name: &str| {
        let named = variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        named.or_else(|| (name == "SOFTND_CONFIG" && !file.is_empty()).then(|| "file".to_owned()))
    };
    Settings::load(variable, |path| {
        assert_eq!(path, "file");
        Ok(file.to_owned())
    })
}

#[test]
fn every_setting_is_shown_and_can_be_set_to_what_is_shown() {
    let mut settings = load("", &[]).expect("settings");
    for name in Settings::names() {
        let value = settings.get(name).unwrap_or_else(|| panic!("{name} is not shown"));
        settings.set(name, &value).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(settings.get(name), Some(value));
    }
    assert_eq!(settings.get("nothing"), None);
}

#[test]
fn variables_come_after_the_file() {
    let file = "# a small adapter\nqueue_pairs = 4 # no more\n\ncompletion = inline\naddresses = 10.0.0.1, fd00::1\n";
    let settings = load(file, &[("SOFTND_QUEUE_PAIRS", "5"), ("SOFTND_BACKLOG", "7")]).expect("settings");
    assert_eq!(settings.config.limits.get(Resource::QueuePairs), 5);
    assert_eq!((settings.config.policy, settings.config.max_backlog), (CompletionPolicy::Inline, 7));
    assert_eq!(settings.get("addresses").as_deref(), Some("10.0.0.1,fd00::1"));
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_is_allowed() {
    for (file, variables, words) in [
        ("queue_pears = 4", &[][..], "file, line 1: there is no setting `queue_pears`; there are backend"),
        ("\nqueue_pairs = many", &[], "file, line 2: queue_pairs cannot be `many`; allowed: a number"),
        ("backlog", &[], "file, line 1: a line is `name = value`"),
        ("", &[("SOFTND_COMPLETION", "later")], "SOFTND_COMPLETION: completion cannot be `later`; allowed: pending"),
        ("", &[("SOFTND_BACKLOG", "0")], "SOFTND_BACKLOG: backlog cannot be `0`; allowed: 1 to 1048576"),
        (
            "",
            &[("SOFTND_PROFILE", "large")],
            "SOFTND_PROFILE: profile cannot be `large`; allowed: own, rocev2-connectx, iwarp,",
        ),
        ("request_delay = soon", &[], "file, line 1: request_delay cannot be `soon`; allowed: 100, 100..500 or ~200"),
        ("request_delay = 5..1", &[], "file, line 1: request_delay cannot be `5..1`; allowed: at most 10 seconds"),
        (
            "",
            &[("SOFTND_ADDRESSES", "here")],
            "SOFTND_ADDRESSES: addresses cannot be `here`; allowed: `auto`, or IP addresses",
        ),
    ] {
        let error = load(file, variables).expect_err("a mistake");
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_profile_is_what_the_other_settings_begin_with() {
    let own = load("", &[]).expect("settings").config;
    assert_eq!(load("profile = own", &[]).expect("settings").config.info, own.info);
    for (profile, shown) in [
        ("rocev2-connectx", [("inbound_reads", "16"), ("caller_data", "56"), ("inline_bytes", "0")]),
        ("iwarp", [("read_elements", "1"), ("shared_receive_queue_depth", "0"), ("inbound_reads", "32")]),
        ("small", [("initiator_elements", "3"), ("completion_queue_depth", "4096"), ("inbound_reads", "2")]),
        ("minimum", [("receive_elements", "1"), ("receive_queue_depth", "256"), ("callee_data", "148")]),
    ] {
        // A line before it, and a variable: both come after it.
        let file = format!("outbound_reads = 1\nprofile = {profile}\n");
        let settings = load(&file, &[("SOFTND_BACKLOG", "9")]).expect("settings");
        assert_eq!(settings.get("profile").as_deref(), Some(profile));
        for (name, value) in shown.into_iter().chain([("outbound_reads", "1"), ("backlog", "9")]) {
            assert_eq!(settings.get(name).as_deref(), Some(value), "{name} of {profile}");
        }
    }
    let iwarp = load("profile = iwarp", &[]).expect("settings").config;
    assert!(iwarp.read_sink_required && !own.read_sink_required);
    assert_eq!(
        iwarp.info.AdapterFlags,
        ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED | ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED
    );
    // What such a NIC does with a message that meets no receive, and with the order of completions.
    let roce = load("profile = rocev2-connectx", &[]).expect("settings").config;
    assert!(matches!(roce.not_ready, NotReady::Retry { retries: 6, .. }), "{:?}", roce.not_ready);
    assert_eq!((own.not_ready, iwarp.not_ready), (NotReady::Wait, NotReady::End));
    assert_eq!([own, roce, iwarp].map(|config| config.initiator_delay > 0), [false, true, true]);
    let variable = load("profile = iwarp", &[("SOFTND_PROFILE", "small")]).expect("settings");
    assert_eq!(variable.profile.name(), "small", "the variable comes after the file");
}
