//! The headers compile, together and in the order of the kit's, and what they declare has the layouts and values of the facts.

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{facts, path};

/// A compiler, its target and how it is told of it.
struct Compiler {
    program: &'static str,
    arguments: &'static [&'static str],
}

/// The one that mingw-w64 is made for, and that of the kit's target. The latter's own headers are not to be had here, so it has
/// mingw-w64's too, which are for compilers that call themselves GNU's.
const COMPILERS: [Compiler; 3] = [
    Compiler { program: "x86_64-w64-mingw32-gcc", arguments: &["-std=c11"] },
    Compiler { program: "clang", arguments: &["-target", "x86_64-pc-windows-gnu", "-std=c11"] },
    Compiler {
        program: "clang",
        arguments: &["-target", "x86_64-pc-windows-msvc", "-std=c11", "-fms-extensions", "-fgnuc-version=4.2.1"],
    },
];

/// The folder of mingw-w64's headers, as Debian has it.
const MINGW: &str = "/usr/share/mingw-w64/include";

/// The headers that the facts have to agree with.
const HEADERS: [&str; 5] = ["ndkinfo.h", "ndkpi.h", "wsk.h", "wskndk.h", "ws2ipdef.h"];

/// The compilers that are there.
fn compilers() -> impl Iterator<Item = &'static Compiler> {
    COMPILERS.iter().filter(|compiler| {
        let runs = Command::new(compiler.program).arg("--version").output().is_ok_and(|output| output.status.success());
        let found = runs && PathBuf::from(MINGW).join("ddk/ntddk.h").exists();
        let required = std::env::var_os("SOFTNDK_REQUIRE_HEADER").is_some_and(|value| value == "1");
        assert!(found || !required, "{} or mingw-w64's headers are missing; run cargo xtask header", compiler.program);
        if !found {
            println!("not checked, because {} or mingw-w64's headers are missing", compiler.program);
        }
        found
    })
}

/// Compiles a text that may include the headers. What the compiler says, if it does not like it.
fn compile(compiler: &Compiler, name: &str, text: &str) -> Result<(), String> {
    let target = compiler.arguments.get(1).copied().unwrap_or("mingw");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ndkpi_header").join(compiler.program).join(target);
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, text).expect("a file");
    let output = Command::new(compiler.program)
        .args(compiler.arguments)
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(path("crates/abi/ndkpi/include"))
        .args(["-isystem", &format!("{MINGW}/ddk"), "-isystem", MINGW])
        .arg(&file)
        .output()
        .expect("the compiler runs");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

const INCLUDES: &str = "#include <ntddk.h>\n#include <wsk.h>\n#include <ndkpi.h>\n#include <wskndk.h>\n";

/// Conditions that hold in the kit's headers.
fn conditions(facts: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let ours = |fact: &Value| fact["header"].as_str().is_some_and(|header| HEADERS.contains(&header));
    let sections = |name: &str| facts[name].as_object().expect("a section").clone();
    // NDKPI 2.1 added two slots at the end of this table; no other structure grew.
    let grown = |name: &str| if name == "NDK_CONNECTOR_DISPATCH" { 0x10 } else { 0 };
    for (name, fact) in sections("types").iter().filter(|(_, fact)| ours(fact)) {
        all.push(format!("sizeof({name}) == {}", fact["size"].as_u64().expect("a size") + grown(name)));
        all.push(format!("_Alignof({name}) == {}", fact["align"]));
        for field in fact["fields"].as_array().expect("fields") {
            let member = field["name"].as_str().expect("a name");
            all.push(format!("FIELD_OFFSET({name}, {member}) == {}", field["offset"]));
        }
    }
    for (name, values) in sections("enums").iter().filter(|(name, _)| name.starts_with("NDK_")) {
        all.push(format!("sizeof({name}) == 4"));
        all.extend(values.as_object().expect("values").iter().map(|(name, value)| format!("{name} == {value}")));
    }
    for (name, fact) in sections("constants").iter().filter(|(_, fact)| ours(fact)) {
        all.push(format!("({name}) == {}", fact["value"]));
    }
    for (name, _) in sections("functions").iter().filter(|(name, fact)| ours(fact) && !name.ends_with("_EX")) {
        all.push(format!("sizeof({name}) == 8"));
    }
    all.push("FIELD_OFFSET(NDK_RESULT_EX, ProviderErrorCode) == 0x1C".to_owned());
    all.push("FIELD_OFFSET(NDK_CONNECTOR_DISPATCH, NdkCompleteConnectEx) == 0x58".to_owned());
    all.push("FIELD_OFFSET(NDK_CONNECTOR_DISPATCH, NdkAcceptEx) == 0x60".to_owned());
    all
}

#[test]
fn layouts_and_values_are_those_of_the_kits_headers() {
    let conditions = conditions(&facts());
    assert!(conditions.len() > 350, "{} conditions", conditions.len());
    for compiler in compilers() {
        let mut text = INCLUDES.to_owned();
        for condition in &conditions {
            writeln!(text, "_Static_assert({condition}, \"{}\");", condition.replace('"', "'")).expect("a text grows");
        }
        compile(compiler, "layouts", &text)
            .unwrap_or_else(|said| panic!("{} {:?}:\n{said}", compiler.program, compiler.arguments));
    }
}

#[test]
fn a_condition_that_does_not_hold_does_not_compile() {
    for compiler in compilers() {
        for condition in ["sizeof(NDK_SGE) == 24", "FIELD_OFFSET(NDK_SGE, Length) == 4", "NdkObjectTypeCq == 4"] {
            let text = format!("{INCLUDES}_Static_assert({condition}, \"wrong\");\n");
            let said = compile(compiler, "wrong", &text).expect_err(condition);
            assert!(said.contains("wrong"), "{condition}: {said}");
        }
    }
}

#[test]
fn they_may_be_included_in_any_order_of_their_own_and_twice() {
    for compiler in compilers() {
        for order in [["wsk.h", "ndkpi.h", "wskndk.h"], ["ndkpi.h", "wsk.h", "wskndk.h"]] {
            // What others write: ndkpi.h before wsk.h.
            let lines =
                order.iter().chain(&order).map(|name| format!("#include <{name}>\n")).collect::<Vec<_>>().concat();
            let text = format!("#include <ntddk.h>\n{lines}NDK_QP *Qp;\n");
            compile(compiler, "order", &text).unwrap_or_else(|said| panic!("{} {order:?}:\n{said}", compiler.program));
        }
    }
}
