//! A rule of a plan of faults in words: `late,function=NdkConnect,every=2,delay=100..2000`.

use std::fmt::Write;

use delay::{Delay, NotADelay};
use interpose::{
    Function,
    faults::{Kind, Rule, Which},
};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

/// The rule in words.
///
/// # Errors
///
/// What is wrong with the rule, and what is allowed.
pub fn parse(text: &str) -> Result<Rule, String> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let kind = Kind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.page().name).collect();
        format!("there is no fault `{name}`; they are {}", names.join(", "))
    })?;
    let mut rule = Rule::new(kind, Which::Every(1));
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not of the form KEY=VALUE"))?;
        match key {
            "function" => rule.function = Some(function(kind, value)?),
            "object" => (rule.object_type, rule.object) = object(value)?,
            "consumer" => {
                rule.consumer = Some(number(value).filter(|&consumer| consumer != 0).ok_or("consumer=1 is the first")?);
            }
            "nth" => rule.which = Which::Nth(number(value).filter(|&nth| nth != 0).ok_or("nth=1 is the first")?),
            "every" => rule.which = Which::Every(number(value).ok_or("every=2 is every second")?),
            "chance" => {
                rule.which = Which::Chance(number(value).ok_or("chance=1000 is one of a thousand: of a million")?);
            }
            "status" => rule.status = Some(status(kind, value)?),
            "delay" => {
                rule.delay = value.parse().map_err(|error: NotADelay| format!("delay={error}"))?;
            }
            _ => {
                let keys = "function, object, consumer, nth, every, chance, status, delay";
                return Err(format!("there is no `{key}`; there are {keys}"));
            }
        }
    }
    rule.check().map_err(|wrong| wrong.to_string())?;
    Ok(rule)
}

fn number(text: &str) -> Option<u32> {
    text.replace('_', "").parse().ok()
}

fn function(kind: Kind, name: &str) -> Result<Function, String> {
    let is_it = |function: &&Function| function.name().eq_ignore_ascii_case(name);
    let found = Function::ALL.iter().find(is_it).copied().filter(|&function| kind.happens_to(function));
    found.ok_or_else(|| {
        let those = Function::ALL.iter().filter(|&&function| kind.happens_to(function));
        let names: Vec<_> = those.map(|function| function.name()).collect();
        format!("`{}` does not happen to `{name}`, but to {}", kind.page().name, names.join(", "))
    })
}

/// `CQ`, or `CQ:3`.
fn object(text: &str) -> Result<(Option<NDK_OBJECT_TYPE>, Option<u32>), String> {
    let (name, of) = text.split_once(':').map_or((text, None), |(name, of)| (name, Some(of)));
    let is_it = |kind: &&NDK_OBJECT_TYPE| short(**kind).is_some_and(|short| short.eq_ignore_ascii_case(name));
    let kind = TYPES.iter().find(is_it).copied().ok_or_else(|| {
        let names: Vec<_> = TYPES.iter().filter_map(|kind| short(*kind)).collect();
        format!("there is no type `{name}`; they are {}", names.join(", "))
    })?;
    let of = of.map(|of| number(of).ok_or_else(|| format!("`{of}` is not the number of an object"))).transpose()?;
    Ok((Some(kind), of))
}

const TYPES: [NDK_OBJECT_TYPE; 10] = [
    NDK_OBJECT_TYPE::ADAPTER,
    NDK_OBJECT_TYPE::PD,
    NDK_OBJECT_TYPE::MR,
    NDK_OBJECT_TYPE::MW,
    NDK_OBJECT_TYPE::CQ,
    NDK_OBJECT_TYPE::SRQ,
    NDK_OBJECT_TYPE::QP,
    NDK_OBJECT_TYPE::CONNECTOR,
    NDK_OBJECT_TYPE::LISTENER,
    NDK_OBJECT_TYPE::SHARED_ENDPOINT,
];

fn short(kind: NDK_OBJECT_TYPE) -> Option<&'static str> {
    kind.name().and_then(|name| name.strip_prefix("NdkObjectType"))
}

fn status(kind: Kind, name: &str) -> Result<NtStatus, String> {
    let functions = || Function::ALL.iter().filter(|&&function| kind.happens_to(function));
    let mut statuses: Vec<_> = functions().flat_map(|&function| kind.statuses(function)).copied().collect();
    statuses.sort_by_key(|status| status.to_bits());
    statuses.dedup();
    let found = statuses.iter().find(|status| status.name().is_some_and(|known| known.eq_ignore_ascii_case(name)));
    found.copied().ok_or_else(|| {
        let names: Vec<_> = statuses.iter().filter_map(|status| status.name()).collect();
        format!("`{}` does not have `{name}`, but: {}", kind.page().name, names.join(", "))
    })
}

/// The rule as it is written.
pub fn shown(rule: &Rule) -> String {
    let mut text = rule.kind.page().name.to_owned();
    if let Some(function) = rule.function {
        let _ = write!(text, ",function={}", function.name());
    }
    if let Some(kind) = rule.object_type.and_then(short) {
        let _ = write!(text, ",object={kind}");
        if let Some(number) = rule.object {
            let _ = write!(text, ":{number}");
        }
    }
    if let Some(consumer) = rule.consumer {
        let _ = write!(text, ",consumer={consumer}");
    }
    let _ = match rule.which {
        Which::Nth(number) => write!(text, ",nth={number}"),
        Which::Every(number) => write!(text, ",every={number}"),
        Which::Chance(number) => write!(text, ",chance={number}"),
    };
    if let Some(status) = rule.status.and_then(NtStatus::name) {
        let _ = write!(text, ",status={status}");
    }
    if rule.delay != Delay::NONE {
        let _ = write!(text, ",delay={}", rule.delay);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{parse, shown};

    #[test]
    fn a_rule_is_shown_as_it_is_written() {
        for text in [
            "refuse,nth=3",
            "fail,function=NdkConnect,every=2,status=STATUS_HOST_UNREACHABLE,delay=50",
            "late,object=Qp:7,consumer=2,chance=1000,delay=100..2000",
            "event,every=1,delay=~200",
            "hold,object=Cq,every=10,delay=5000",
            "remove,function=NdkSend,nth=100",
        ] {
            assert_eq!(parse(text).map(|rule| shown(&rule)), Ok(text.to_owned()));
        }
        assert_eq!(parse("early").map(|rule| shown(&rule)), Ok("early,every=1".to_owned()));
    }

    #[test]
    fn what_is_no_rule_is_refused_in_one_line_that_says_what_there_is() {
        for (text, word) in [
            ("", "refuse, fail, late"),
            ("slow", "refuse, fail, late"),
            ("late,fast", "KEY=VALUE"),
            ("late,speed=3", "function, object"),
            ("refuse,function=NdkCloseObject", "NdkCreateCq"),
            ("late,object=Door", "Connector"),
            ("late,object=QP:x", "`x`"),
            ("late,consumer=0", "the first"),
            ("refuse,nth=0", "the first"),
            ("refuse,every=0", "count from 1"),
            ("refuse,chance=1000001", "million"),
            ("refuse,status=STATUS_PENDING", "STATUS_INSUFFICIENT_RESOURCES"),
            ("refuse,delay=5", "no delay"),
            ("late,delay=5..4", "wrong way round"),
            ("late,delay=10000001", "10 seconds"),
            ("late,delay=soon", "microseconds"),
        ] {
            let wrong = parse(text).expect_err(text);
            assert!(wrong.contains(word) && !wrong.contains('\n'), "{text}: {wrong}");
        }
    }
}
