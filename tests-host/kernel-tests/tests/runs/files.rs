//! Files of a device, and reads that pend, as scripts have them.

use crate::{file, run};

/// A driver whose reads wait until somebody writes (`rigs::mailbox`).
const MAILBOX: &str = r#"
[[image]]
name = "mailbox"

[[step]]
do = "load"
image = "mailbox"

[[step]]
do = "open"
file = "a"
link = '\DosDevices\Mailbox'
path = 'box\a.txt'

[[step]]
do = "open"
file = "b"
link = '\??\Mailbox\box\b.txt'

[[step]]
do = "open"
file = "none"
link = '\DosDevices\Mailbox'
path = 'box\c.txt'
status = 0xC0000034

[[step]]
do = "write"
file = "b"
input = [{ u8 = 1 }]
status = 0xC00000A3

[[step]]
do = "begin-read"
request = "first"
file = "a"
output = 8

[[step]]
do = "begin-read"
request = "second"
file = "a"
output = 8

[[step]]
do = "begin-read"
request = "third"
file = "b"
output = 8

[[step]]
do = "begin-write"
request = "written"
file = "b"
input = [{ text = "word" }]

[[step]]
do = "wait"
request = "first"
expect = [{ text = "word" }]

[[step]]
do = "wait"
request = "written"

[[step]]
do = "cancel"
request = "second"

[[step]]
do = "wait"
request = "second"
status = "STATUS_CANCELLED"

[[step]]
do = "close"
file = "b"

[[step]]
do = "wait"
request = "third"
status = "STATUS_CANCELLED"

[[step]]
do = "begin-read"
request = "left"
file = "a"
output = 8
"#;

#[test]
fn a_script_opens_files_of_a_device_and_its_reads_pend() {
    let results = run(&file("mailbox.toml", MAILBOX), "1..10", "");
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
}

#[test]
fn a_read_that_nobody_answers_is_not_complete() {
    // What is waited for without a cancellation has to end by itself.
    let waits = format!("{MAILBOX}\n[[step]]\ndo = \"wait\"\nrequest = \"left\"\n");
    let results = run(&file("mailbox-waits.toml", &waits), "1", "");
    let (_, finding) = results.findings().next().expect("a finding");
    assert_eq!(finding.rule, "request-never-completed", "{}", finding.words);
}
