//! Settings: the file, the variables after it, and what is said about mistakes.

use nd2::{CompletionPolicy, Resource, settings::Settings};

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
        ("", &[("SOFTND_INLINE_BYTES", "0")], "SOFTND_INLINE_BYTES: inline_bytes cannot be `0`; allowed: 1 to 65536"),
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
