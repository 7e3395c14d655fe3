//! Which cases need more than NDKPI 1.1.

/// Those that need NDKPI 1.2 (Windows Server 2012 R2).
pub const SINCE_1_2: &[&str] = &[
    "results.kinds",
    "results.mixed-calls",
    "post.deferred-chain",
    "post.deferred-then-failure",
    "post.deferred-then-failure-of-another-kind",
    "post.every-flag-at-once",
    "flush.error-codes",
    "fast.completion-types",
    "fast.read-and-invalidate",
    "window.completion-type",
    "invalidate.by-the-peer",
    "invalidate.window-by-the-peer",
    "invalidate.before-the-receive-completes",
    "invalidate.before-the-callback",
    "invalidate.through-the-plain-call",
    "invalidate.type-of-the-sender",
    "invalidate.then-locally",
    "invalidate.bad-token",
    "invalidate.plain-region",
    "invalidate.token-of-another-domain",
    "invalidate.with-flags",
];

/// Those that need NDKPI 2.1 (Windows Server 2022).
pub const SINCE_2_1: &[&str] = &["results.error-code-is-zero-on-success", "connect.events-with-a-reason"];
