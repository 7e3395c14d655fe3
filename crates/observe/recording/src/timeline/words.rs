//! Times, requests and arms in words.

use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED};

use crate::Arguments;

/// A time since the beginning.
pub fn time(ticks: u64) -> String {
    let (micros, tenths) = (ticks / 10, ticks % 10);
    if tenths == 0 { format!("{micros} us") } else { format!("{micros}.{tenths} us") }
}

/// What an arm asks for.
pub fn arm(kind: u32) -> &'static str {
    match kind {
        NDK_CQ_NOTIFY_ANY => "any completion",
        NDK_CQ_NOTIFY_ERRORS => "errors of the queue",
        NDK_CQ_NOTIFY_SOLICITED => "solicited completions",
        _ => "a type that does not exist",
    }
}

/// The short form of an arm's type.
pub fn arm_short(kind: u32) -> &'static str {
    match kind {
        NDK_CQ_NOTIFY_ANY => "any",
        NDK_CQ_NOTIFY_ERRORS => "errors",
        NDK_CQ_NOTIFY_SOLICITED => "solicited",
        _ => "?",
    }
}

/// What two arms are together: the one that asks for more (`NDKPI 7.1.4`).
pub fn merged(first: u32, second: u32) -> u32 {
    let strength = |kind: u32| match kind {
        NDK_CQ_NOTIFY_ERRORS => 1,
        NDK_CQ_NOTIFY_SOLICITED => 2,
        NDK_CQ_NOTIFY_ANY => 3,
        _ => 0,
    };
    if strength(second) > strength(first) { second } else { first }
}

/// The bytes and elements of a request.
pub fn request(arguments: &Arguments) -> String {
    let flags = |flags: u32| {
        const NAMES: [(u32, &str); 6] = [
            (0x001, "silent"),
            (0x002, "read fence"),
            (0x004, "solicits"),
            (0x040, "inline"),
            (0x100, "invalidates its first token"),
            (0x200, "deferred"),
        ];
        let named = NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| format!(", {name}"));
        named.collect::<String>()
    };
    match arguments {
        Arguments::Transfer { context, flags: given, given: count, elements, remote_address, remote_token } => {
            let bytes: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
            let remote = if *remote_token == 0 {
                String::new()
            } else {
                format!(", remote token {remote_token:#x} at {remote_address:#x}")
            };
            format!("context {context:#x}, {count} elements, {bytes} bytes{remote}{}", flags(*given))
        }
        Arguments::Bind { context, length, flags: given, .. } => {
            format!("context {context:#x}, {length} bytes{}", flags(given & 0x203))
        }
        Arguments::FastRegister { context, given: pages, length, flags: given, .. } => {
            format!("context {context:#x}, {pages} pages, {length} bytes{}", flags(given & 0x203))
        }
        Arguments::Invalidate { context, flags: given } => format!("context {context:#x}{}", flags(*given)),
        _ => String::new(),
    }
}

/// The context and the flags of a request.
pub const fn posted(arguments: &Arguments) -> Option<(u64, u32)> {
    match arguments {
        Arguments::Transfer { context, flags, .. }
        | Arguments::Bind { context, flags, .. }
        | Arguments::FastRegister { context, flags, .. }
        | Arguments::Invalidate { context, flags } => Some((*context, *flags)),
        _ => None,
    }
}
