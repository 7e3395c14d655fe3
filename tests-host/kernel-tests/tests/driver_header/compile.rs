//! `softndk.h` compiles as C and as C++, by its own instruction, with mingw-w64's DDK headers and stand-ins for what they lack
//! (`tests-host/header`), and means what the crate `control` means.
//!
//! Without the compilers there is nothing to check and the tests say so; with `SOFTNDK_REQUIRE_HEADER=1` that is a failure
//! (`cargo xtask header` installs them).

use std::{
    collections::BTreeSet,
    fs,
    mem::offset_of,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use control::{
    DEVICE_INTERFACE, GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, provider_device, test_device,
};
use ndkpi::{GUID, SOCKADDR_INET};
use object::{Object, ObjectSection, ObjectSymbol};

use crate::{between, header, path, read};

/// The C compiler and the C++ compiler, each with its language.
const COMPILERS: [[&str; 2]; 2] = [["x86_64-w64-mingw32-gcc", "-std=c11"], ["x86_64-w64-mingw32-g++", "-std=c++17"]];

/// The compilers that are there.
fn compilers() -> impl Iterator<Item = [&'static str; 2]> {
    COMPILERS.into_iter().filter(|[compiler, _]| {
        let found = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
        let required = std::env::var_os("SOFTNDK_REQUIRE_HEADER").is_some_and(|value| value == "1");
        assert!(found || !required, "{compiler} is missing; run cargo xtask header");
        if !found {
            println!("not checked, because there is no {compiler}");
        }
        found
    })
}

/// What is compiled: the consumer and what it includes, each as it is in the repository or changed.
struct Sources {
    name: &'static str,
    consumer: String,
    header: String,
    expected: String,
}

impl Sources {
    fn new(name: &'static str) -> Self {
        Self { name, consumer: read("tests-host/header/consumer.c"), header: header(), expected: expected() }
    }

    /// Returns the object file, or what the compiler says.
    fn compile(&self, [compiler, language]: [&str; 2]) -> Result<Vec<u8>, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver_header").join(self.name).join(compiler);
        fs::create_dir_all(&folder).expect("a folder");
        let file = |name: &str| folder.join(name);
        for (name, text) in
            [("consumer.c", &self.consumer), ("softndk.h", &self.header), ("expected.h", &self.expected)]
        {
            fs::write(file(name), text).expect("a file");
        }
        let output = Command::new(compiler)
            .args(["-x", if compiler.ends_with("++") { "c++" } else { "c" }, language])
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-o"])
            .arg(file("consumer.o"))
            .arg("-I")
            .arg(&folder)
            .arg("-I")
            .arg(path("tests-host/header/kit"))
            .arg("-isystem")
            .arg(ddk(compiler))
            .arg(file("consumer.c"))
            .output()
            .expect("the compiler runs");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(fs::read(file("consumer.o")).expect("an object file"))
    }
}

/// The folder of mingw-w64's DDK headers, which lies in one of those that the compiler searches.
fn ddk(compiler: &str) -> PathBuf {
    let mut command = Command::new(compiler);
    let output = command.args(["-v", "-E", "-x", "c", "-"]).stdin(Stdio::null()).output().expect("the compiler runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let folders = said.lines().filter_map(|line| line.strip_prefix(' ')).map(|folder| Path::new(folder).join("ddk"));
    folders.into_iter().find(|folder| folder.join("ntddk.h").exists()).expect("mingw-w64 has the DDK headers")
}

/// What the Rust crate says of a structure, as conditions in C.
macro_rules! layout {
    ($name:ident { $($member:literal = $field:ident),* $(,)? }) => {[
        format!("sizeof({}) == {}", stringify!($name), size_of::<$name>()),
        $(format!("FIELD_OFFSET({}, {}) == {}", stringify!($name), $member, offset_of!($name, $field)),)*
    ]};
}

/// Sizes, offsets and numbers of the Rust crates, as assertions in C.
fn expected() -> String {
    let interface = layout!(SOFTNDK_INTERFACE {
        "InterfaceHeader.Size" = Size,
        "InterfaceHeader.Version" = Version,
        "InterfaceHeader.Context" = Context,
        "InterfaceHeader.InterfaceReference" = InterfaceReference,
        "InterfaceHeader.InterfaceDereference" = InterfaceDereference,
        "AdapterContext" = AdapterContext,
        "OpenNdkAdapter" = OpenNdkAdapter,
        "CloseNdkAdapter" = CloseNdkAdapter,
        "QueryNdkAddresses" = QueryNdkAddresses,
    });
    let address = layout!(SOCKADDR_INET { "Ipv6" = Ipv6 });
    let version = format!("SOFTNDK_INTERFACE_VERSION == {SOFTNDK_INTERFACE_VERSION}");
    let codes = [
        (provider_device::QUERY_INFO, 0, "FILE_READ_DATA"),
        (provider_device::QUERY_COUNTERS, 1, "FILE_READ_DATA"),
        (provider_device::QUERY_CONNECTIONS, 2, "FILE_READ_DATA"),
        (provider_device::QUERY_SETTINGS, 3, "FILE_READ_DATA"),
        (provider_device::SET_SETTINGS, 4, "FILE_WRITE_DATA"),
        (provider_device::SET_FAULTS, 5, "FILE_WRITE_DATA"),
        (test_device::START, 0x20, "FILE_WRITE_DATA"),
        (test_device::QUERY_PROGRESS, 0x21, "FILE_READ_DATA"),
        (test_device::CANCEL, 0x22, "FILE_WRITE_DATA"),
        (test_device::QUERY_REPORT, 0x23, "FILE_READ_DATA"),
    ];
    let codes = codes.map(|(code, function, access)| {
        format!("CTL_CODE(FILE_DEVICE_NETWORK, 0x800 + {function}, METHOD_BUFFERED, {access}) == {code}")
    });
    let conditions = interface.into_iter().chain(address).chain([version]).chain(codes);
    conditions.map(|condition| format!("C_ASSERT({condition});")).collect::<Vec<_>>().join("\n")
}

/// The sixteen bytes of a GUID that an object file defines; `None` if it only refers to it.
fn guid(object: &[u8], name: &str) -> Option<[u8; 16]> {
    let file = object::File::parse(object).expect("an object file");
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).expect("the consumer uses the identifier");
    let section = file.section_by_index(symbol.section_index()?).expect("the section of a symbol");
    let at = usize::try_from(symbol.address() - section.address()).expect("an offset");
    Some(*section.data().expect("bytes")[at..].first_chunk().expect("sixteen bytes"))
}

/// A GUID as C lays it out.
fn bytes(guid: &GUID) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&guid.Data1.to_le_bytes());
    bytes[4..6].copy_from_slice(&guid.Data2.to_le_bytes());
    bytes[6..8].copy_from_slice(&guid.Data3.to_le_bytes());
    bytes[8..].copy_from_slice(&guid.Data4);
    bytes
}

#[test]
fn the_consumer_includes_what_the_header_says() {
    let header = header();
    let words =
        between(&header, "in this order:", "*/").split(|letter: char| !letter.is_alphanumeric() && letter != '.');
    // One of them stands there twice, the second time in a remark.
    let mut seen = BTreeSet::new();
    let told = words.filter(|word| word.strip_suffix(".h").is_some() && seen.insert(*word)).collect::<Vec<_>>();
    let consumer = read("tests-host/header/consumer.c");
    let lines = consumer.lines().filter_map(|line| line.strip_prefix("#include <"));
    let included = lines.filter_map(|line| line.strip_suffix('>')).collect::<Vec<_>>();
    assert_eq!(told, ["ndis.h", "ndisndk.h", "initguid.h"]);
    assert_eq!(included, [&told[..], &["softndk.h"]].concat());
    assert!(consumer.find("#define NDIS630").expect("a version") < consumer.find("#include").expect("includes"));
}

#[test]
fn it_compiles_and_means_the_same() {
    for compiler in compilers() {
        for version in ["NDIS630", "NDIS650", "NDIS680"] {
            let mut sources = Sources::new("right");
            sources.consumer = sources.consumer.replacen("NDIS630", version, 1);
            let object = sources.compile(compiler).unwrap_or_else(|said| panic!("{compiler:?}, {version}:\n{said}"));
            assert_eq!(guid(&object, "GUID_DEVINTERFACE_SOFTNDK"), Some(bytes(&DEVICE_INTERFACE)));
            assert_eq!(guid(&object, "GUID_SOFTNDK_INTERFACE"), Some(bytes(&GUID_SOFTNDK)));
        }
    }
}

#[test]
fn without_initguid_the_identifiers_are_not_defined() {
    for compiler in compilers() {
        let mut sources = Sources::new("without-initguid");
        change(&mut sources.consumer, "#include <initguid.h>\n", "");
        let object = sources.compile(compiler).expect("declarations suffice");
        assert_eq!(guid(&object, "GUID_DEVINTERFACE_SOFTNDK"), None);
        assert_eq!(guid(&object, "GUID_SOFTNDK_INTERFACE"), None);
    }
}

/// Replaces a text that is there.
fn change(text: &mut String, old: &str, new: &str) {
    assert!(text.contains(old), "`{old}` is there");
    *text = text.replacen(old, new, 1);
}

/// Which of the sources a mistake is made in.
#[derive(Clone, Copy)]
enum In {
    Consumer,
    Header,
}

/// Mistakes of a consumer against the instruction, and mistakes in the header: name, where, what stands there, what instead,
/// and a word that the compiler says.
const MISTAKES: [(&str, In, &str, &str, &str); 8] = [
    ("older-ndis", In::Consumer, "NDIS630", "NDIS620", "SOCKADDR_INET"),
    ("without-ndisndk", In::Consumer, "#include <ndisndk.h>\n", "", "OPEN_NDK_ADAPTER_HANDLER"),
    (
        "softndk-before-ndisndk",
        In::Consumer,
        "#include <ndisndk.h>\n#include <initguid.h>\n#include <softndk.h>\n",
        "#include <initguid.h>\n#include <softndk.h>\n#include <ndisndk.h>\n",
        "OPEN_NDK_ADAPTER_HANDLER",
    ),
    (
        "ndisndk-before-ndis",
        In::Consumer,
        "#include <ndis.h>\n#include <ndisndk.h>\n",
        "#include <ndisndk.h>\n#include <ndis.h>\n",
        "OPEN_NDK_ADAPTER_HANDLER",
    ),
    ("another-count", In::Header, "ULONG *Count", "USHORT *Count", "query"),
    (
        "handlers-exchanged",
        In::Header,
        "OPEN_NDK_ADAPTER_HANDLER OpenNdkAdapter",
        "CLOSE_NDK_ADAPTER_HANDLER OpenNdkAdapter",
        "open",
    ),
    (
        "a-field-more",
        In::Header,
        "    INTERFACE InterfaceHeader;",
        "    ULONG Size;\n    INTERFACE InterfaceHeader;",
        "C_ASSERT",
    ),
    ("another-version", In::Header, "SOFTNDK_INTERFACE_VERSION 1", "SOFTNDK_INTERFACE_VERSION 2", "C_ASSERT"),
];

#[test]
fn mistakes_do_not_compile() {
    for compiler in compilers() {
        for (name, place, old, new, word) in MISTAKES {
            let mut sources = Sources::new(name);
            change(
                match place {
                    In::Consumer => &mut sources.consumer,
                    In::Header => &mut sources.header,
                },
                old,
                new,
            );
            let said = sources.compile(compiler).expect_err(name);
            assert!(said.contains(word), "{name}, {compiler:?}: {word} in\n{said}");
        }
    }
}
