//! Registrations, windows, rights and tokens.

use super::{Edit, Mistake};

const MR_ENTRY: &str = "engine/src/memory/mr_entry.rs";
const MEMORY: &str = "engine/src/memory/mod.rs";
const DOMAIN: &str = "engine/src/memory/domain.rs";
const REGION: &str = "engine/src/memory/region.rs";
const PINNED: &str = "engine/src/memory/pinned.rs";
const PROGRESS: &str = "engine/src/qp/progress.rs";
const USES: &str = "engine/src/memory/uses.rs";
const ENTRY: &str = "engine/src/memory/entry.rs";

/// These mistakes.
pub const ALL: &[Mistake] = &[
    Mistake {
        name: "RangeOffByOneAbove",
        about: "A range may end one byte behind its registration.",
        cases: &[
            "access.local-range",
            "access.remote-range",
            "fast.range",
            "window.range",
            "protection.outside-remote",
        ],
        edits: &[Edit::wrong(
            MR_ENTRY,
            "«»(length <= left).then_some(offset)",
            "/* Not really behind the registration: that would be a fault of the test. */ \
             if offset > 0 && length == left + 1 { return Some(offset - 1); }",
        )],
    },
    Mistake {
        name: "RangeOffByOneBelow",
        about: "A range may begin one byte before its registration.",
        cases: &[
            "access.local-range",
            "access.remote-range",
            "fast.range",
            "window.range",
            "protection.outside-remote",
        ],
        edits: &[Edit::wrong(
            MR_ENTRY,
            "«»let offset = address.checked_sub(self.base)?;",
            "if address.checked_add(1) == Some(self.base) && length <= self.length { return Some(0); }",
        )],
    },
    Mistake {
        name: "RightsNotChecked",
        about: "Rights are not checked.",
        cases: &["protection.local-write", "protection.remote-rights", "fast.rights", "window.rights"],
        edits: &[Edit::wrong(MR_ENTRY, "«named && self.rights.allow(access)»", "named")],
    },
    Mistake {
        name: "ReadSinkRequired",
        about: "A read does not put its data where only local write is granted.",
        cases: &["protection.read-sink"],
        edits: &[Edit::wrong(MEMORY, "«self.rules.read_sink_required»", "true")],
    },
    Mistake {
        name: "LocalWriteIsRemoteWrite",
        about: "Local write is taken for remote write, which is two bits.",
        cases: &["protection.remote-rights", "fast.rights"],
        edits: &[Edit::wrong(
            MR_ENTRY,
            "«named && self.rights.allow(access)»",
            "{ \
                 let allowed = access == Access::RemoteWrite && self.rights.contain(Rights::LOCAL_WRITE); \
                 named && (allowed || self.rights.allow(access)) \
             }",
        )],
    },
    Mistake {
        name: "DomainNotChecked",
        about: "Tokens of other protection domains are taken.",
        cases: &["access.local-token-of-another-domain", "access.remote-token-of-another-domain"],
        edits: &[Edit::wrong(DOMAIN, "if «entry.domain != self.privileged» {", "false")],
    },
    Mistake {
        name: "PrivilegedTokenIsRemote",
        about: "Peers may use the privileged token.",
        cases: &["logical.never-remote"],
        edits: &[Edit::wrong(DOMAIN, "if token == self.privileged { if «access.is_remote()» {", "false")],
    },
    Mistake {
        name: "TokenAfterInvalidate",
        about: "A token stays valid after its invalidation.",
        cases: &["fast.invalidated-token", "window.invalidated-token"],
        edits: &[Edit::wrong(
            DOMAIN,
            "«»let binding = self.with_own(token, |object| match object { Object::Fast(Some(fast)) => fast.end(",
            "if !by_peer { return Ok(()); }",
        )],
    },
    Mistake {
        name: "TokenAfterDeregister",
        about: "A token stays valid after the deregistration.",
        cases: &["protection.stale-local", "protection.stale-remote"],
        edits: &[Edit::wrong(
            REGION,
            "«»let (token, mut busy) = (self.token.load(Ordering::Acquire), false);",
            "return Ok(Release::Done);",
        )],
    },
    Mistake {
        name: "DeregisterDoesNotWait",
        about: "A deregistration completes while transfers use the bytes.",
        cases: &["registration.deregistered-under-load"],
        edits: &[Edit::wrong(PINNED, "return «Release::Pending»;", "Release::Done")],
    },
    Mistake {
        name: "InvalidateDoesNotWait",
        about: "An invalidation completes while transfers use the bytes.",
        cases: &["fast.invalidated-under-load"],
        edits: &[Edit::wrong(PROGRESS, "Ok(«current.invalidated.as_ref().is_none_or(Transfers::are_over)»)", "true")],
    },
    Mistake {
        name: "CloseDoesNotWait",
        about: "The close of a fast-registered region or of a window completes while transfers use the bytes.",
        cases: &["fast.closed-under-load"],
        edits: &[Edit::wrong(USES, "Use { _client: «client.clone()» }", "Client::try_new(())?")],
    },
    Mistake {
        name: "WindowForgetsRegion",
        about: "A transfer through a window holds the window, and not the fast-registered region that it is bound to.",
        cases: &["window.region-closed-under-load"],
        edits: &[Edit::wrong(
            ENTRY,
            "«(grant, UsesOf { object: Some(&window.uses), region })»",
            "(grant, UsesOf { object: Some(&window.uses), region: None })",
        )],
    },
];
