//! Scripts: what is right becomes steps, what is wrong one line that names line and key.

use std::path::PathBuf;

use ntstatus::NtStatus;
use runner::{
    Script, parse,
    script::{Action, Asks, DeviceKind, RegistryValue},
};

/// A script with everything.
const WHOLE: &str = r#"
[kernel]
processors = 2
preemption = 30

[[image]]
name = "nic"
file = "softndknic.sys"
[image.registry]
CompletionMode = 1

[[image]]
name = "consumer"
[image.registry]
Long = 0x1_0000_0000
Text = "a"
Texts = ["a", "b"]
Bytes = { hex = "00 ff" }

[[device]]
name = "nic0"
image = "nic"
kind = "nic"
keywords = { "*NetworkDirect" = 1 }
addresses = ["192.168.77.11/24", "fd00::11/64"]
index = 15
luid = 0x6_0080_0F00_0000
alias = "Ethernet 3"
mac = "02-00-00-00-00-11"
routes = ["10.1.0.0/16"]

[[step]]
do = "load"
image = "nic"

[[step]]
do = "start"
device = "nic0"

[[step]]
do = "load"
image = "consumer"

[[step]]
do = "open"
file = "f"
link = '\DosDevices\NdkConsumer'

[[step]]
do = "ioctl"
file = "f"
code = 0x22e000
input = [{ u32 = "nic0.index" }, { be16 = 5445 }, { zero = 2 }, { hex = "0a" }, { wide = "a" }]
output = 16
expect = [{ u32 = 3 }, { any = 12 }]

[[step]]
do = "begin"
request = "r"
file = "f"
code = 0x22e000

[[step]]
do = "cancel"
request = "r"

[[step]]
do = "wait"
request = "r"
status = "STATUS_CANCELLED"

[[step]]
do = "power"
device = "nic0"
state = "D3"

[[step]]
do = "sleep"
microseconds = 50

[[step]]
do = "surprise-remove"
device = "nic0"
"#;

fn words(script: &Script) -> Vec<String> {
    script.steps.iter().map(|step| step.action.words()).map(|(action, name)| format!("{action} {name}")).collect()
}

#[test]
fn a_script_becomes_steps_and_ends_with_what_is_left() {
    let script = parse(WHOLE).expect("a script");
    let mut steps = words(&script);
    // An ioctl is a request with a name of its own.
    assert!(steps[4].starts_with("begin ioctl@") && steps[5].starts_with("wait ioctl@"), "{steps:?}");
    steps.drain(4..6);
    let expected = [
        "load nic",
        "start nic0",
        "load consumer",
        "open f",
        "begin r",
        "cancel r",
        "wait r",
        "power nic0",
        "sleep ",
        "surprise-remove nic0",
        "close f",
        "unload consumer",
        "unload nic",
    ];
    assert_eq!(steps, expected);
    assert_eq!((script.kernel.processors, script.kernel.preemption), (2, 30));
    let cancelled = script.steps.iter().find(|step| step.status == NtStatus::CANCELLED).expect("a step");
    assert!(matches!(&cancelled.action, Action::Wait { request, output: None } if request == "r"));
    let line = WHOLE.lines().position(|line| line.contains("wait")).expect("it is there");
    assert_eq!(cancelled.line, line, "the line before it, `[[step]]`, counted from 1");
}

#[test]
fn datagrams_travel_in_memory_unless_a_script_with_threads_says_otherwise() {
    assert!(!parse(WHOLE).expect("a script").kernel.host_datagrams);
    let text = WHOLE.replacen("processors = 2", "threads = true\ndatagrams = \"host\"", 1);
    assert!(parse(&text).expect("a script").kernel.host_datagrams);
}

#[test]
fn an_interface_is_as_the_script_says() {
    let device = &parse(WHOLE).expect("a script").devices[0];
    let interface = &device.interface;
    assert_eq!((interface.index, interface.luid), (Some(15), Some(0x6_0080_0F00_0000)));
    assert_eq!((interface.alias.as_deref(), interface.mac), (Some("Ethernet 3"), Some([2, 0, 0, 0, 0, 0x11])));
    assert_eq!(interface.routes, [("10.1.0.0".parse().expect("an address"), 16)]);
    assert!(
        device.keywords.contains(&("NetworkAddress".to_owned(), "020000000011".to_owned())),
        "{:?}",
        device.keywords
    );
}

#[test]
fn two_interfaces_of_a_machine_have_nothing_in_common() {
    let head = "[[image]]\nname = \"x\"\n";
    let device =
        |name: &str, key: &str| format!("[[device]]\nname = \"{name}\"\nimage = \"x\"\nkind = \"nic\"\n{key}\n");
    for key in ["index = 5", "alias = \"a\"", "mac = \"02-00-00-00-00-11\"", "luid = 0x6_0080_0F00_0000"] {
        let text = format!("{head}{}{}", device("one", key), device("two", key));
        let said = parse(&text).expect_err(key).to_string();
        let name = key.split(' ').next().expect("a key");
        assert_eq!(said, format!("line 8: `{name}`: the device `one` has the same"));
    }
}

#[test]
fn values_of_the_registry_have_their_types() {
    let script = parse(WHOLE).expect("a script");
    let registry = script.images.iter().flat_map(|image| &image.registry);
    let value = |name: &str| registry.clone().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    assert_eq!(value("CompletionMode"), Some(RegistryValue::Number(1)));
    assert_eq!(value("Long"), Some(RegistryValue::Long(1 << 32)));
    assert_eq!(value("Text"), Some(RegistryValue::Text("a".to_owned())));
    assert_eq!(value("Texts"), Some(RegistryValue::Texts(vec!["a".to_owned(), "b".to_owned()])));
    assert_eq!(value("Bytes"), Some(RegistryValue::Binary(vec![0, 0xFF])));
    assert_eq!((script.images[0].service.as_str(), script.images[1].service.as_str()), ("softndknic", "consumer"));
}

/// Mistakes: what stands there, what instead, what the line has to begin with that the error names, and a word of the error.
const MISTAKES: [[&str; 4]; 40] = [
    ["CompletionMode = 1", "CompletonMode = 1", "CompletonMode", "did you mean `CompletionMode`?"],
    ["\"*NetworkDirect\" = 1", "\"*NetworkDirct\" = 1", "keywords", "did you mean `*NetworkDirect`?"],
    ["processors = 2", "processors = 0", "processors", "`processors` is 0"],
    ["processors = 2", "processor = 2", "processor", "processor"],
    ["processors = 2", "datagrams = \"radio\"", "datagrams", "`datagrams` is `radio`: `memory` or `host`"],
    ["processors = 2", "datagrams = \"host\"", "datagrams", "needs `threads = true`"],
    ["processors = 2", "processors = \"two\"", "processors", "`processors`: "],
    ["name = \"nic\"", "name = \"a b\"", "name", "`name` is `a b`"],
    ["name = \"consumer\"", "name = \"nic\"", "[[image]]", "there is an image `nic` already"],
    ["CompletionMode = 1", "CompletionMode = -1", "CompletionMode", "`registry.CompletionMode`"],
    ["Bytes = { hex = \"00 ff\" }", "Bytes = { hex = \"0\" }", "Bytes", "`registry.Bytes`"],
    ["image = \"nic\"\nkind", "image = \"other\"\nkind", "image", "there is no image `other`"],
    ["kind = \"nic\"", "kind = \"pci\"", "kind", "`kind` is `pci`: `pnp` or `nic`"],
    ["192.168.77.11/24", "192.168.77.11/33", "addresses", "192.168.77.11/33"],
    ["do = \"load\"", "do = \"laod\"", "do", "`do` is `laod`: load, "],
    ["device = \"nic0\"\n\n[[step]]\ndo = \"load\"", "\n\n[[step]]\ndo = \"load\"", "[[step]]", "`device` is missing"],
    ["file = \"f\"\ncode", "file = \"g\"\ncode", "[[step]]", "`g` is not open"],
    ["code = 0x22e000", "code = 0x1_0000_0000", "code", "`code`"],
    ["nic0.index", "nic1.index", "input", "there is no device `nic1`"],
    ["nic0.index", "nic0.size", "input", "only `index` and `luid`"],
    ["{ be16 = 5445 }", "{ be16 = 65536 }", "input", "`be16` is 65536"],
    ["{ zero = 2 }", "{ any = 2 }", "input", "`any`"],
    ["{ zero = 2 }", "{ zero = 2, u8 = 1 }", "input", "one of u8"],
    ["{ zero = 2 }", "{ zero = 9999999 }", "input", "`zero`"],
    ["output = 16", "output = -1", "output", "`output`"],
    ["do = \"cancel\"", "do = \"cancel\"\ncode = 1", "code", "`code` means nothing for `cancel`"],
    ["do = \"cancel\"\nrequest = \"r\"", "do = \"cancel\"\nrequest = \"q\"", "[[step]]", "`q` was not begun"],
    ["STATUS_CANCELLED", "CANCELLED", "status", "`status` is"],
    ["processors = 2", "procesors = 2", "procesors", "did you mean `processors`?"],
    [
        "image = \"consumer\"",
        "image = \"consumr\"",
        "[[step]]",
        "there is no image `consumr`; did you mean `consumer`?",
    ],
    ["nic0.index", "nic0.indx", "input", "only `index` and `luid`; did you mean `index`?"],
    ["{ zero = 2 }", "{ zeros = 2 }", "input", "there is no kind `zeros`; did you mean `zero`?"],
    ["index = 15", "index = 0", "index", "`index` is 0"],
    ["alias = \"Ethernet 3\"", "alias = \"\"", "alias", "`alias` is ``: 1 to 256 characters"],
    ["luid = 0x6_0080_0F00_0000", "luid = 15", "luid", "`luid` is 0xf: such as 0x0006"],
    ["mac = \"02-00-00-00-00-11\"", "mac = \"03-00-00-00-00-11\"", "mac", "`mac` is `03-00-00-00-00-11`: such as"],
    ["mac = \"02-00-00-00-00-11\"", "mac = \"02-00-00-00-00\"", "mac", "`mac` is"],
    ["10.1.0.0/16", "10.1.0.0", "routes", "`routes`: `10.1.0.0` is not like `10.1.0.0/16`"],
    ["\"*NetworkDirect\" = 1", "NetworkAddress = \"x\"", "[[device]]", "`mac` is the keyword `NetworkAddress`"],
    ["state = \"D3\"", "state = \"D5\"", "state", "`state` is `D5`: D0, D1, D2 or D3"],
];

#[test]
fn what_is_wrong_is_one_line_with_its_place_and_key() {
    for [old, new, place, word] in MISTAKES {
        assert!(WHOLE.contains(old), "`{old}` is there");
        let text = WHOLE.replacen(old, new, 1);
        let error = parse(&text).expect_err(new);
        let said = error.to_string();
        assert!(said.contains(word), "{new}: `{word}` in `{said}`");
        assert!(said.starts_with("line ") && !said.contains('\n'), "{said}");
        let line = text.lines().nth(error.line - 1).expect("a line of the script");
        assert!(line.starts_with(place), "{new}: {said}, which is `{line}`");
    }
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_runs() {
    for (text, word) in [
        ("[[step]]\ndo = \"load\"\nimage = \"x\"", "there is no image `x`"),
        ("[[image]]\nname = \"x\"\n[[step]]\ndo = \"unload\"\nimage = \"x\"", "`x` is not loaded"),
        (
            "[[image]]\nname = \"x\"\n[[device]]\nname = \"d\"\nimage = \"x\"\n[[step]]\ndo = \"start\"\ndevice = \"d\"",
            "is not loaded",
        ),
        (
            "[[image]]\nname = \"x\"\n[[device]]\nname = \"d\"\nimage = \"x\"\nkind = \"pnp\"\naddresses = [\"::1/128\"]",
            "for devices of the kind `nic`",
        ),
        ("[[step]]\ndo = \"close\"\nfile = \"f\"\nstatus = 1", "`status`: `close` has none"),
        (
            "[[image]]\nname = \"x\"\n[[device]]\nname = \"d\"\nimage = \"x\"\nkind = \"pnp\"\n[[step]]\ndo = \"load\"\nimage = \"x\"\n\
             [[step]]\ndo = \"start\"\ndevice = \"d\"\n[[step]]\ndo = \"send-frame\"\ndevice = \"d\"\ninput = []",
            "`d` is no NIC",
        ),
        ("[[step]]\ndo = \"receive-frame\"\ndevice = \"d\"", "`expect` is missing"),
        ("[[step]]\n", "`do` is missing"),
        ("x = ", "line 1"),
    ] {
        let said = parse(text).expect_err(text).to_string();
        assert!(said.contains(word), "`{word}` in `{said}`");
    }
}

/// An image with a device, which is open.
const OPEN: &str = r#"
[[image]]
name = "x"
[[device]]
name = "d"
image = "x"
[[step]]
do = "load"
image = "x"
[[step]]
do = "start"
device = "d"
[[step]]
do = "open"
file = "f"
link = "d.interface"
[[step]]
"#;

/// What the fourth step of a script begins, and the words of the next one.
fn begun(step: &str) -> (Asks, usize, String) {
    let script = parse(&format!("{OPEN}{step}")).expect(step);
    let Action::Begin { asks, code: 0, output, .. } = &script.steps[3].action else {
        panic!("{:?}", script.steps[3]);
    };
    (*asks, *output, script.steps[4].action.words().0.to_owned())
}

#[test]
fn a_read_or_write_begins_at_its_offset() {
    let begins = |step: &str| {
        let script = parse(&format!("{OPEN}{step}")).expect(step);
        let Action::Begin { offset, .. } = script.steps[3].action else { panic!("{:?}", script.steps[3]) };
        offset
    };
    assert_eq!(begins("do = \"read\"\nfile = \"f\"\noutput = 1\noffset = 4096"), 4096);
    assert_eq!(begins("do = \"write\"\nfile = \"f\"\ninput = [{ u8 = 7 }]\noffset = 0x1_0000_0000"), 1 << 32);
    assert_eq!(begins("do = \"write\"\nfile = \"f\"\ninput = [{ u8 = 7 }]"), 0);
}

#[test]
fn a_device_has_filters_whose_images_are_loaded_before_it_is_started() {
    let images = "[[image]]\nname = \"x\"\n[[image]]\nname = \"y\"\n";
    let load = |image: &str| format!("[[step]]\ndo = \"load\"\nimage = \"{image}\"\n");
    let device = |keys: &str| format!("[[device]]\nname = \"d\"\nimage = \"x\"\n{keys}\n");
    let start = "[[step]]\ndo = \"start\"\ndevice = \"d\"\n";
    let (x, y) = (load("x"), load("y"));
    let filtered = device("filters = [\"y\"]");
    let script = parse(&format!("{images}{filtered}{x}{y}{start}")).expect("a script");
    assert_eq!(script.devices[0].filters, ["y"]);
    let unload = "[[step]]\ndo = \"unload\"\nimage = \"y\"\n";
    for (text, word) in [
        (format!("{images}{filtered}{x}{start}"), "the image `y` of `d` is not loaded"),
        (format!("{images}{filtered}{x}{y}{start}{unload}"), "`y` has the device `d`"),
        (format!("{images}{}", device("filters = [\"z\"]")), "`filters`: there is no image `z`"),
        (format!("{images}{}", device("kind = \"nic\"\nfilters = [\"y\"]")), "`filters`: drivers above a NIC"),
    ] {
        let said = parse(&text).expect_err(&text).to_string();
        assert!(said.contains(word), "`{word}` in `{said}`");
    }
}

#[test]
fn reads_and_writes_are_requests_without_a_code() {
    let read = begun("do = \"read\"\nfile = \"f\"\noutput = 3\nexpect = [{ hex = \"01 02 03\" }]");
    assert_eq!(read, (Asks::Read, 3, "wait".to_owned()));
    let write = begun("do = \"write\"\nfile = \"f\"\ninput = [{ u8 = 7 }]");
    assert_eq!(write, (Asks::Write, 0, "wait".to_owned()));
    // Such a one is cancelled and waited for at the end.
    let begun = begun("do = \"begin-read\"\nrequest = \"r\"\nfile = \"f\"\noutput = 0");
    assert_eq!(begun, (Asks::Read, 0, "cancel".to_owned()));
    for (step, word) in [
        ("do = \"read\"\nfile = \"f\"", "`output` is missing"),
        ("do = \"write\"\nfile = \"f\"", "`input` is missing"),
        ("do = \"read\"\nfile = \"f\"\noutput = 1\ncode = 1", "`code` means nothing for `read`"),
        ("do = \"ioctl\"\nfile = \"f\"\ncode = 1\noffset = 1", "`offset` means nothing for `ioctl`"),
        ("do = \"read\"\nfile = \"f\"\noutput = 1\noffset = -1", "`offset`"),
        ("do = \"read\"\nfile = \"f\"\noutput = 1\ninput = [{ u8 = 1 }]", "`input` means nothing for `read`"),
        ("do = \"write\"\nfile = \"f\"\noutput = 1\ninput = [{ u8 = 1 }]", "`output` means nothing for `write`"),
        ("do = \"begin-write\"\nfile = \"f\"\ninput = [{ u8 = 1 }]", "`request` is missing"),
        ("do = \"open\"\nfile = \"g\"\nlink = \"e.interface\"", "`link`: there is no device `e`"),
        ("do = \"open\"\nfile = \"g\"\nlink = 'l'\npath = ''", "`path` is empty"),
        ("do = \"close\"\nfile = \"f\"\npath = 'p'", "`path` means nothing for `close`"),
    ] {
        let said = parse(&format!("{OPEN}{step}")).expect_err(step).to_string();
        assert!(said.contains(word), "`{word}` in `{said}`");
    }
}

/// What a program does with sockets, and what a script leaves of them.
#[test]
fn sockets_that_a_script_leaves_are_closed_at_its_end() {
    let of = |lines: &[&str]| {
        let text = format!("step = [\n{{ {} }},\n]", lines.join(" },\n{ "));
        parse(&text).map(|script| words(&script).split_off(lines.len())).map_err(|error| error.to_string())
    };
    let connect = "do = \"connect\", socket = \"c\", to = \"10.0.0.1:7\"";
    let (listen, bind) =
        ("do = \"listen\", socket = \"l\", at = \"[::]:7\"", "do = \"bind\", socket = \"d\", at = \"0.0.0.0:0\"");
    let accept = "do = \"accept\", socket = \"s\", listener = \"l\"";
    let left = |words: &[&str]| Ok(words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&[listen, connect, accept, bind]), left(&["close d", "close s", "close c", "close l"]));
    assert_eq!(of(&[connect, "do = \"abort\", socket = \"c\"", listen, "do = \"close\", socket = \"l\""]), left(&[]));
    assert_eq!(of(&[&format!("{connect}, status = \"STATUS_CONNECTION_REFUSED\"")]), left(&[]));
    assert_eq!(
        of(&[connect, "do = \"end\", socket = \"c\", status = \"STATUS_CONNECTION_RESET\""]),
        left(&["close c"])
    );
    for (lines, word) in [
        (vec!["do = \"connect\", socket = \"c\""], "`to` is missing: such as"),
        (vec!["do = \"connect\", socket = \"c\", to = \"10.0.0.1\""], "`to` is `10.0.0.1`: such as `10.0.0.1:445`"),
        (vec!["do = \"connect\", socket = \"c\", to = \"10.0.0.1:0\""], "nobody has the port 0"),
        (vec![connect, connect], "there is a socket `c` already"),
        (
            vec![connect, "do = \"receive\", socket = \"c\""],
            "`expect` is missing: what has to come, and [] for the end",
        ),
        (vec![connect, "do = \"send\", socket = \"c\""], "`input` is missing"),
        (vec![connect, "do = \"send\", socket = \"d\", input = []"], "there is no socket `d`"),
        (
            vec![connect, "do = \"send\", socket = \"c\", input = [], to = \"10.0.0.1:7\""],
            "`c` is a stream, and has to be for datagrams",
        ),
        (vec![bind, "do = \"send\", socket = \"d\", input = []"], "`d` is for datagrams, and has to be a stream"),
        (vec![bind, "do = \"receive\", socket = \"d\", status = 0xC000020D"], "receiving one cannot fail"),
        (vec![connect, "do = \"accept\", socket = \"s\", listener = \"c\""], "`listener`: `c` is a stream"),
        (
            vec![connect, "do = \"end\", socket = \"c\"", "do = \"send\", socket = \"c\", input = []"],
            "`c` is a stream that has ended",
        ),
        (vec![listen, &format!("{accept}, status = 1")], "`status`: `accept` has none"),
        (vec![listen, "do = \"close\", socket = \"l\", at = \"10.0.0.1:7\""], "`at` means nothing for `close`"),
        (vec!["do = \"unplug\""], "a cable is between machines"),
    ] {
        let said = of(&lines).expect_err(word);
        assert!(said.contains(word) && said.starts_with("line "), "`{word}` in `{said}`");
    }
}

/// Where the host carries what drivers send, programs are on its loopback.
#[test]
fn programs_over_the_host_are_at_its_loopback() {
    let script = |address: &str, key: &str| {
        let step = format!("{{ do = \"{key}\", socket = \"c\", {address} }}");
        parse(&format!("step = [{step}]\n[kernel]\nthreads = true\ndatagrams = \"host\"\n"))
    };
    for (address, key) in
        [("to = \"127.0.0.1:7\"", "connect"), ("at = \"0.0.0.0:7\"", "listen"), ("at = \"[::1]:7\"", "bind")]
    {
        assert!(script(address, key).is_ok(), "{address}");
    }
    for (address, key) in
        [("to = \"10.0.0.1:7\"", "connect"), ("to = \"0.0.0.0:7\"", "connect"), ("at = \"10.0.0.1:7\"", "bind")]
    {
        let said = script(address, key).expect_err(address).to_string();
        assert!(said.contains("with `datagrams = \"host\"` drivers and programs are at 127.0.0.1"), "{said}");
    }
}

#[test]
fn a_file_on_a_device_has_a_path() {
    for (path, wanted) in [("", ""), ("\npath = 'a\\b.txt'", r"\a\b.txt"), ("\npath = '\\a'", r"\a")] {
        let script = parse(&format!("{OPEN}do = \"open\"\nfile = \"g\"\nlink = '\\DosDevices\\L'{path}")).expect(path);
        let opened = script.steps.iter().rev().find_map(|step| match &step.action {
            Action::Open { link, path, .. } => Some((link.as_str(), path.as_str())),
            _ => None,
        });
        assert_eq!(opened, Some((r"\DosDevices\L", wanted)));
    }
}

/// What a script leaves, in the order in which a program that ends leaves it: its requests are cancelled before its files are closed.
#[test]
fn requests_that_a_script_leaves_are_cancelled_at_its_end() {
    let begin = "do = \"begin-read\"\nrequest = \"r\"\nfile = \"f\"\noutput = 4";
    let left = |more: &str| {
        let script = parse(&format!("{OPEN}{begin}{more}")).expect(more);
        words(&script).split_off(4)
    };
    assert_eq!(left(""), ["cancel r", "wait r", "close f", "remove d", "unload x"]);
    assert_eq!(
        left("\n[[step]]\ndo = \"cancel\"\nrequest = \"r\"")[1..],
        ["wait r", "close f", "remove d", "unload x"]
    );
    assert_eq!(left("\n[[step]]\ndo = \"close\"\nfile = \"f\"")[1..], ["cancel r", "wait r", "remove d", "unload x"]);
    assert_eq!(left("\n[[step]]\ndo = \"wait\"\nrequest = \"r\"")[1..], ["close f", "remove d", "unload x"]);
}

#[test]
fn no_text_makes_the_parser_panic() {
    // Every beginning of the script, and the script with each byte taken out.
    for end in (0..WHOLE.len()).filter(|&end| WHOLE.is_char_boundary(end)) {
        let _ = parse(&WHOLE[..end]);
        let _ = parse(&format!("{}{}", &WHOLE[..end], &WHOLE[end + 1..]));
    }
}

#[test]
fn without_a_script_images_are_loaded_started_removed_and_unloaded() {
    let script = Script::default_for(&[PathBuf::from("a/x.sys"), PathBuf::from("b/x.sys")]);
    let steps =
        ["load x", "start x-0", "load x-2", "start x-2-0", "remove x-2-0", "unload x-2", "remove x-0", "unload x"];
    assert_eq!(words(&script), steps);
    assert!(script.devices.iter().all(|device| device.kind == DeviceKind::Registered));
    assert_eq!((script.images[0].service.as_str(), script.images[1].service.as_str()), ("x", "x"));
}

/// Two machines with an image of both, and one of its own.
const MACHINES: &str = r#"
[network]
delay = 20
loss = 1
double = 0.5

[kernel]
processors = 2

[[image]]
name = "both"

[[machine]]
name = "one"
addresses = ["192.0.2.1/24"]
[machine.kernel]
processors = 3
[[machine.image]]
name = "own"
[[machine.step]]
do = "load"
image = "own"
[[machine.step]]
do = "barrier"
name = "there"

[[machine]]
name = "two"
addresses = ["192.0.2.2/24"]
[[machine.step]]
do = "load"
image = "both"
[[machine.step]]
do = "barrier"
name = "there"
"#;

#[test]
fn machines_have_what_is_theirs_and_what_is_everybodys() {
    let script = parse(MACHINES).expect("a script");
    assert!(script.images.is_empty() && script.steps.is_empty());
    assert_eq!((script.network.delay, script.network.loss, script.network.double), (20, 10_000, 5_000));
    let [one, two] = &script.machines[..] else { panic!("two machines") };
    let names = |script: &Script| script.images.iter().map(|image| image.name.clone()).collect::<Vec<_>>();
    assert_eq!((one.script.kernel.processors, names(&one.script)), (3, vec!["both".to_owned(), "own".to_owned()]));
    assert_eq!((two.script.kernel.processors, names(&two.script)), (2, vec!["both".to_owned()]));
    assert_eq!(one.addresses, [("192.0.2.1".parse().expect("an address"), 24)]);
    let actions: Vec<_> = one.script.steps.iter().map(|step| step.action.words()).collect();
    assert_eq!(actions, [("load", "own"), ("barrier", "there"), ("unload", "own")]);
    assert_eq!(script.all_images().count(), 3);
}

#[test]
fn what_machines_cannot_have_is_refused() {
    for (before, after, line, words) in [
        ("name = \"two\"", "name = \"one\"", 27, "there is a machine `one` already"),
        ("192.0.2.2/24", "192.0.2.1/24", 29, "the machine `one` has 192.0.2.1 too"),
        ("processors = 3", "threads = true", 13, "`threads`"),
        ("loss = 1", "loss = 101", 4, "`loss` is 101: percent"),
        ("loss = 1", "lost = 1", 4, "lost"),
        ("delay = 20", "delay = 0", 3, "`delay` is 0"),
        (
            "image = \"both\"\n[[machine.step]]\ndo = \"barrier\"\nname = \"there\"",
            "image = \"both\"",
            27,
            "the barriers (none)",
        ),
        ("do = \"barrier\"\nname = \"there\"\n\n", "do = \"barrier\"\n\n", 23, "`name` is missing"),
        (
            "do = \"load\"\nimage = \"own\"",
            "do = \"barrier\"\nname = \"there\"",
            23,
            "was at the barrier `there` before",
        ),
        ("[[image]]", "[[device]]\nname = \"d\"\nimage = \"both\"\n[[image]]", 10, "[[machine.device]]"),
        ("image = \"own\"\n", "image = \"awn\"\n", 20, "there is no image `awn`"),
    ] {
        let text = MACHINES.replacen(before, after, 1);
        let refused = parse(&text).expect_err(after);
        assert!(refused.line == line && refused.words.contains(words), "{after}: {refused}");
    }
    for (text, words) in [
        ("[network]\ndelay = 1\n", "`network` is between machines"),
        ("[[step]]\ndo = \"barrier\"\nname = \"x\"\n", "a barrier is between machines"),
    ] {
        let refused = parse(text).expect_err(text);
        assert!(refused.words.contains(words), "{refused}");
    }
}

/// A device with hardware, and an interrupt of it.
const HARDWARE: &str = r#"
[[image]]
name = "card"

[[device]]
name = "card0"
image = "card"
kind = "pnp"
memory = [256, 65536]
interrupts = 2

[[step]]
do = "load"
image = "card"

[[step]]
do = "start"
device = "card0"

[[step]]
do = "interrupt"
device = "card0"
message = 1
"#;

#[test]
fn a_device_may_have_memory_and_interrupts() {
    let script = parse(HARDWARE).expect("a script");
    let resources = &script.device("card0").expect("it is there").resources;
    assert_eq!((&resources.memory[..], resources.interrupts), (&[256, 65536][..], 2));
    assert_eq!(script.steps[2].action, Action::Interrupt("card0".to_owned(), 1));

    let refused = |from: &str, to: &str| parse(&HARDWARE.replace(from, to)).expect_err("no script").to_string();
    assert!(refused("[256,", "[0,").contains("`memory` is 0"));
    assert!(refused("kind = \"pnp\"", "").contains("are for devices of the kind `pnp`"));
    assert!(refused("do = \"interrupt\"", "do = \"restart\"").contains("`message` means nothing for `restart`"));
}
