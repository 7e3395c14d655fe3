//! The images of the drivers, as `cargo xtask drivers` makes them: what Windows asks of a driver, and what it should not
//! have.
//!
//! Without images there is nothing to check and the tests say so; with `SOFTNDK_REQUIRE_DRIVERS=1` that is a failure. Debug
//! images are checked if they are there.

mod locks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use object::{
    LittleEndian as LE, Object, ObjectSection,
    pe::{
        IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG, IMAGE_DIRECTORY_ENTRY_RESOURCE, IMAGE_DIRECTORY_ENTRY_SECURITY,
        IMAGE_DIRECTORY_ENTRY_TLS, IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE, IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY,
        IMAGE_DLLCHARACTERISTICS_GUARD_CF, IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA,
        IMAGE_DLLCHARACTERISTICS_NX_COMPAT, IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64, IMAGE_REL_BASED_DIR64,
        IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_MEM_WRITE, IMAGE_SUBSYSTEM_NATIVE, ImageLoadConfigDirectory64,
        ImageNtHeaders64, Machine,
    },
    read::pe::{ImageOptionalHeader, Import, PeFile64},
};
use serde_json::Value;
use sources::root;

use self::locks::{Found, Routine};

/// The newest Windows that an import may need. The INF files say the same (`driver_inf`), and the README.
const NEWEST: &str = "Windows 10, version 2004";

/// Windows versions in the words of the documentation, oldest first. The empty one: the page says nothing, which it does for
/// routines that were always there.
const VERSIONS: [&str; 11] = [
    "",
    "Windows 2000",
    "Windows XP",
    "Windows Server 2003",
    "Windows Vista",
    "Windows 7",
    "Windows 8",
    "Windows 8.1",
    "Windows 10",
    NEWEST,
    "later",
];

/// More would be a surprise. The consumer has the whole conformance suite in it, which grows.
const MOST_BYTES: usize = 2 << 20;
/// The same with debug assertions.
const MOST_DEBUG_BYTES: usize = 4 << 20;

fn json(name: &str) -> Value {
    let path = sources::root().join("tests-host/facts").join(name);
    serde_json::from_str(&fs::read_to_string(path).expect("the facts are in the repository")).expect("they are JSON")
}

/// A driver's image and what it should be.
#[derive(Clone)]
struct Image {
    name: String,
    driver: &'static str,
    is_debug: bool,
    machine: Machine,
    bytes: Vec<u8>,
}

fn images() -> Vec<Image> {
    let mut found = Vec::new();
    for (directory, machine) in [
        ("x86_64", IMAGE_FILE_MACHINE_AMD64),
        ("aarch64", IMAGE_FILE_MACHINE_ARM64),
        ("debug/x86_64", IMAGE_FILE_MACHINE_AMD64),
        ("debug/aarch64", IMAGE_FILE_MACHINE_ARM64),
    ] {
        for driver in ["softndk", "softndknic", "ndktest"] {
            let path = root().join("target/drivers").join(directory).join(driver).with_extension("sys");
            let is_debug = directory.starts_with("debug");
            match fs::read(&path) {
                Ok(bytes) => {
                    found.push(Image { name: format!("{directory}/{driver}.sys"), driver, is_debug, machine, bytes });
                }
                Err(_) if is_debug || machine == IMAGE_FILE_MACHINE_ARM64 => {}
                Err(error) if std::env::var_os("SOFTNDK_REQUIRE_DRIVERS").is_some_and(|value| value == "1") => {
                    panic!("{}: {error}; run cargo xtask drivers", path.display());
                }
                Err(_) => {
                    println!("not checked, because it was not built by cargo xtask drivers: {}", path.display());
                }
            }
        }
    }
    found
}

/// Runs a check on every image. It returns what is wrong.
fn each(check: impl Fn(&Image, &PeFile64<'_>) -> Vec<String>) {
    for image in images() {
        let file = PeFile64::parse(image.bytes.as_slice()).expect("a PE image of 64 bits");
        let problems = check(&image, &file);
        assert!(problems.is_empty(), "{}: {}", image.name, problems.join("; "));
    }
}

fn unless(right: bool, problem: impl Into<String>) -> Option<String> {
    (!right).then(|| problem.into())
}

/// The headers: what kind of image this is, and which protections it asks for.
fn headers(image: &Image, file: &PeFile64<'_>) -> Vec<String> {
    let optional = &file.nt_headers().optional_header;
    let characteristics = optional.dll_characteristics();
    let wanted = [
        (IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE, "no dynamic base"),
        (IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA, "no high-entropy address"),
        (IMAGE_DLLCHARACTERISTICS_NX_COMPAT, "not NX compatible"),
        (IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY, "no integrity check"),
        (IMAGE_DLLCHARACTERISTICS_GUARD_CF, "no Control Flow Guard"),
    ];
    let mut problems =
        wanted.iter().filter_map(|&(bit, problem)| unless(characteristics.contains(bit), problem)).collect::<Vec<_>>();
    problems.extend(unless(file.nt_headers().file_header.machine.get(LE) == image.machine, "another machine"));
    problems.extend(unless(optional.subsystem() == IMAGE_SUBSYSTEM_NATIVE, "not of the native subsystem"));
    problems.extend(unless(optional.major_subsystem_version() == 10, "not for Windows 10"));
    let entry = u64::from(optional.address_of_entry_point());
    problems.extend(unless(entry != 0 && is_code(file, entry), "the entry point is not in code"));
    let most = if image.is_debug { MOST_DEBUG_BYTES } else { MOST_BYTES };
    problems.extend(unless(image.bytes.len() <= most, format!("{} bytes", image.bytes.len())));
    problems.extend(unless(optional.check_sum() == check_sum(&image.bytes), "the checksum is wrong"));
    for (directory, name) in
        [(IMAGE_DIRECTORY_ENTRY_TLS, "thread-local storage"), (IMAGE_DIRECTORY_ENTRY_RESOURCE, "resources")]
    {
        problems.extend(unless(file.data_directory(directory).is_none(), name));
    }
    problems
}

/// The checksum of an image: the sum of its 16-bit words with the carries added again, without the field for it, and the
/// length.
fn check_sum(bytes: &[u8]) -> u32 {
    let header = u32::from_le_bytes(bytes[0x3C..0x40].try_into().expect("four bytes")) as usize;
    let field = header + 4 + 20 + 64;
    let words = bytes.chunks(2).enumerate().filter(|(index, _)| !(field..field + 4).contains(&(2 * index)));
    let sum = words.fold(0_u32, |sum, (_, word)| {
        let sum = sum + u32::from(word[0]) + (u32::from(*word.get(1).unwrap_or(&0)) << 8);
        (sum & 0xFFFF) + (sum >> 16)
    });
    (sum & 0xFFFF) + u32::try_from(bytes.len()).expect("a small file")
}

/// Returns true if the relative address is in an executable section.
fn is_code(file: &PeFile64<'_>, address: u64) -> bool {
    file.section_table().iter().any(|section| {
        let start = u64::from(section.virtual_address.get(LE));
        let executable = section.characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE);
        executable && (start..start + u64::from(section.virtual_size.get(LE))).contains(&address)
    })
}

/// No memory of the image may be written and executed (HVCI refuses such a driver).
fn sections(_: &Image, file: &PeFile64<'_>) -> Vec<String> {
    let both = IMAGE_SCN_MEM_EXECUTE | IMAGE_SCN_MEM_WRITE;
    let wrong = file.section_table().iter().filter(|section| section.characteristics.get(LE).contains(both));
    let mut problems =
        wrong.map(|section| format!("{:?} can be written and executed", section.raw_name())).collect::<Vec<_>>();
    let alignment = file.nt_headers().optional_header.section_alignment();
    problems.extend(unless(alignment % 4096 == 0, "sections do not begin on pages"));
    problems
}

/// Every import is a documented routine, old enough for the oldest Windows that the driver is for.
fn imports(image: &Image, file: &PeFile64<'_>) -> Vec<String> {
    let (documented, facts, network) = (json("ddi.json"), json("wdk-facts.json"), json("ndis-facts.json"));
    let declared = json("declared.json");
    let arch = if image.machine == IMAGE_FILE_MACHINE_ARM64 { "aarch64" } else { "x86_64" };
    let mut problems = Vec::new();
    let mut newest = BTreeMap::<usize, Vec<String>>::new();
    for import in file.imports().expect("an import table") {
        let import = import.expect("an import");
        let (library, name) = (text(import.library()), text(import.name().name().unwrap_or(b"an ordinal")));
        if library == "WDFLDR.SYS" {
            // What binds a driver to the framework, since its first version.
            problems.extend(unless(["WdfVersionBind", "WdfVersionUnbind"].contains(&name.as_str()), name));
            continue;
        }
        // What is newer than the kit of the facts is declared from the documentation.
        let is_declared = declared[&name][arch] == "function" || facts["functions"][&name]["not_in_kit"] == true;
        problems
            .extend(unless(is_declared, format!("the kit declares no {name} for {arch}: {}", declared[&name][arch])));
        if library == "ndis.sys" || library == "netio.sys" {
            // Of NDIS 6 and of Windows Vista, and so older than the oldest Windows that the drivers are for.
            let function = &network["functions"][&name];
            let is_of_ndis = ["ndis.h", "ndisNDK.h"].contains(&function["header"].as_str().unwrap_or_default());
            problems.extend(unless(function["inline"] == false, format!("{name} is no function that is exported")));
            problems.extend(unless(is_of_ndis == (library == "ndis.sys"), format!("{name} from {library}")));
            problems.extend(unless(image.driver != "softndk", format!("softndk uses {name}")));
            continue;
        }
        let known = facts["functions"][&name]["dll"].as_str().unwrap_or("ntoskrnl.exe");
        problems.extend(unless(known == library, format!("{name} from {library}")));
        match documented[&name]["introduced"].as_str() {
            Some(introduced) => {
                let age = VERSIONS.iter().position(|version| *version == introduced);
                newest.entry(age.expect("a known version")).or_default().push(name);
            }
            None => problems.push(format!("{name} is not documented")),
        }
    }
    let (&age, names) = newest.last_key_value().expect("imports");
    println!(
        "{}: {} imports; {} for {}",
        image.name,
        newest.values().map(Vec::len).sum::<usize>(),
        VERSIONS[age],
        names.join(", ")
    );
    problems.extend(unless(VERSIONS[age] == NEWEST, format!("the oldest Windows is {}", VERSIONS[age])));
    problems
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Nobody calls a driver by name. What is exported is what has a fixed name for the linker, all of which rustc exports.
fn exports(_: &Image, file: &PeFile64<'_>) -> Vec<String> {
    const FIXED: [&str; 6] = [
        "DriverEntry",
        "FxDriverEntry",
        "WdfDriverGlobals",
        "WdfDriverMiniportUnloadOverride",
        "WdfFunctions",
        "_fltused",
    ];
    let exports = file.exports().expect("an export table");
    let names = exports.map(|export| text(export.expect("an export").name().name().unwrap_or(b"an ordinal")));
    names.filter(|name| !FIXED.contains(&name.as_str())).collect()
}

/// A pointer in the image, as a relative address.
fn pointer(file: &PeFile64<'_>, address: u64) -> Option<u64> {
    let base = file.relative_address_base();
    let section = file
        .sections()
        .find(|section| (section.address()..section.address() + section.size()).contains(&(base + address)))?;
    let bytes = section.data_range(base + address, 8).ok()??;
    u64::from_le_bytes(bytes.try_into().ok()?).checked_sub(base)
}

/// The functions that Control Flow Guard lets through, as relative addresses in order.
fn call_targets(file: &PeFile64<'_>, config: &ImageLoadConfigDirectory64) -> Option<Vec<u64>> {
    let count = usize::try_from(config.guard_cf_function_count.get(LE)).ok()?;
    // The upper four bits of the flags say by how many bytes an entry is longer than the address.
    let stride = 4 + (config.guard_flags.get(LE).0 >> 28) as usize;
    let start = config.guard_cf_function_table.get(LE);
    let section =
        file.sections().find(|section| (section.address()..section.address() + section.size()).contains(&start))?;
    let bytes = section.data_range(start, (count * stride) as u64).ok()??;
    let entries = bytes.chunks_exact(stride).map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
    Some(entries.map(u64::from).collect())
}

/// Control Flow Guard: the load configuration is complete, the table of call targets is in order, and every pointer to code
/// that stands in the image's data is in it. A consumer's or the system's call to a function that is not would end in a
/// bugcheck.
fn guard(_: &Image, file: &PeFile64<'_>) -> Vec<String> {
    /// `IMAGE_GUARD_CF_INSTRUMENTED` and `IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT`.
    const FLAGS: u32 = 0x100 | 0x400;
    let directory = file.data_directory(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
    let bytes = directory.and_then(|directory| directory.data(file.data(), &file.section_table()).ok());
    let Some(bytes) = bytes.filter(|bytes| bytes.len() >= 0x94) else {
        return vec!["no load configuration".to_owned()];
    };
    let mut padded = [0; size_of::<ImageLoadConfigDirectory64>()];
    let length = bytes.len().min(padded.len());
    padded[..length].copy_from_slice(&bytes[..length]);
    let (config, _) = object::pod::from_bytes::<ImageLoadConfigDirectory64>(&padded).expect("bytes of its size");

    let base = file.relative_address_base();
    let mut problems = Vec::new();
    problems.extend(unless(
        config.guard_flags.get(LE).0 & FLAGS == FLAGS,
        format!("guard flags {:#x}", config.guard_flags.get(LE).0),
    ));
    let routines = [&config.guard_cf_check_function_pointer, &config.guard_cf_dispatch_function_pointer];
    for (name, place) in ["check", "dispatch"].iter().zip(routines) {
        let target = place.get(LE).checked_sub(base).and_then(|address| pointer(file, address));
        problems.extend(unless(target.is_some_and(|target| is_code(file, target)), format!("no {name} routine")));
    }
    let Some(targets) = call_targets(file, config) else {
        problems.push("no table of call targets".to_owned());
        return problems;
    };
    problems.extend(unless(
        targets.len() > 1 && targets.is_sorted(),
        format!("{} call targets, sorted or not", targets.len()),
    ));
    problems.extend(
        targets.iter().filter(|&&target| !is_code(file, target)).map(|target| format!("{target:#x} is not code")),
    );

    let guard_routines = routines.map(|place| pointer(file, place.get(LE).wrapping_sub(base)));
    let targets = targets.into_iter().collect::<BTreeSet<_>>();
    let mut checked = 0;
    let relocations = file.data_directories().relocation_blocks(file.data(), &file.section_table());
    let mut relocations = relocations.expect("relocations").expect("a driver has some");
    while let Some(block) = relocations.next().expect("a block") {
        for relocation in block {
            problems.extend(unless(relocation.typ == IMAGE_REL_BASED_DIR64, format!("relocation {}", relocation.typ)));
            let target = pointer(file, u64::from(relocation.virtual_address));
            let Some(target) = target.filter(|&target| is_code(file, target)) else { continue };
            checked += 1;
            let known = targets.contains(&target) || guard_routines.contains(&Some(target));
            problems.extend(unless(known, format!("{target:#x} is pointed to and is not a call target")));
        }
    }
    problems.extend(unless(checked > 2, format!("only {checked} pointers to code")));
    problems
}

/// Functions are described for the unwinder, so that a debugger can walk the stack.
fn unwinding(_: &Image, file: &PeFile64<'_>) -> Vec<String> {
    let there = file.section_by_name(".pdata").is_some_and(|section| section.size() > 0);
    unless(there, "no unwind information").into_iter().collect()
}

/// No function takes much of a kernel stack, which has 24 KiB for everybody on it.
fn stack_frames(image: &Image, file: &PeFile64<'_>) -> Vec<String> {
    /// More than any function has now. Beyond a page the compiler would have to probe the stack, which a debug image does not do
    /// either.
    const MOST: [(&str, bool, u32); 6] = [
        ("softndk", false, 2304),
        ("softndknic", false, 2304),
        ("ndktest", false, 3072),
        ("softndk", true, 4095),
        ("softndknic", true, 4095),
        ("ndktest", true, 4095),
    ];
    if image.machine != IMAGE_FILE_MACHINE_AMD64 {
        // AArch64 describes frames in another way.
        return Vec::new();
    }
    let table = file.section_by_name(".pdata").and_then(|section| section.data().ok()).unwrap_or_default();
    let mut largest = (0, 0);
    for entry in table.chunks_exact(12) {
        let [begin, _, description] =
            [0, 4, 8].map(|at| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes")));
        largest = largest.max((frame(file, description), begin));
    }
    let (size, function) = largest;
    println!("{}: the largest stack frame has {size} bytes", image.name);
    let own = |limit: &&(&str, bool, u32)| (limit.0, limit.1) == (image.driver, image.is_debug);
    let most = MOST.iter().find(own).map_or(0, |limit| limit.2);
    unless(
        size > 0 && size <= most,
        format!("the function at {function:#x} takes {size} bytes of stack, more than {most}"),
    )
    .into_iter()
    .collect()
}

/// The bytes that a function takes from the stack besides its pushes: the sum of the allocations in its unwind codes.
fn frame(file: &PeFile64<'_>, description: u32) -> u32 {
    let at = |offset: u32| {
        let address = file.relative_address_base() + u64::from(description + offset);
        let section =
            file.sections().find(|section| (section.address()..section.address() + section.size()).contains(&address));
        let bytes =
            section.and_then(|section| section.data_range(address, 2).ok().flatten()).expect("unwind information");
        u32::from(u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    };
    let count = at(2) & 0xFF;
    let (mut size, mut index) = (0, 0);
    while index < count {
        let code = |ahead: u32| at(4 + 2 * (index + ahead));
        let (operation, information) = (code(0) >> 8 & 0xF, code(0) >> 12);
        index += match (operation, information) {
            // UWOP_ALLOC_LARGE: by eights in one code, or by ones in two.
            (1, 0) => {
                size += 8 * code(1);
                2
            }
            (1, _) => {
                size += code(1) | code(2) << 16;
                3
            }
            // UWOP_ALLOC_SMALL.
            (2, _) => {
                size += 8 * information + 8;
                1
            }
            // UWOP_SAVE_NONVOL, UWOP_SAVE_XMM128, and their far variants.
            (4 | 8, _) => 2,
            (5 | 9, _) => 3,
            _ => 1,
        };
    }
    size
}

/// The pointers through which an image calls the routines of queued spin locks, by their relative addresses.
fn lock_routines(file: &PeFile64<'_>) -> BTreeMap<u64, Routine> {
    let mut found = BTreeMap::new();
    let table = file.import_table().expect("an import table").expect("a driver has imports");
    let mut descriptors = table.descriptors().expect("descriptors");
    while let Some(descriptor) = descriptors.next().expect("a descriptor") {
        let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE)).expect("names");
        let mut place = u64::from(descriptor.first_thunk.get(LE));
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>().expect("a name") {
            if let Ok(Import::Name(_, name)) = table.import::<ImageNtHeaders64>(thunk) {
                found.extend(Routine::named(&text(name)).map(|routine| (place, routine)));
            }
            place += 8;
        }
    }
    found
}

/// The functions of an image, by the relative addresses of their first byte and behind their last one.
fn functions(file: &PeFile64<'_>) -> Vec<(u32, u32)> {
    let words = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let table = file.section_by_name(".pdata").and_then(|section| section.data().ok()).unwrap_or_default();
    if file.nt_headers().file_header.machine.get(LE) == IMAGE_FILE_MACHINE_AMD64 {
        return table.chunks_exact(12).map(|entry| (words(entry, 0), words(entry, 4))).collect();
    }
    // AArch64 has the number of instructions: in the entry itself, or in what the entry points to.
    let length = |description: u32| match description & 3 {
        0 => {
            let bytes = bytes_at(file, u64::from(description), 4).expect("unwind information");
            words(bytes, 0) & 0x3_FFFF
        }
        _ => description >> 2 & 0x7FF,
    };
    table.chunks_exact(8).map(|entry| (words(entry, 0), words(entry, 0) + 4 * length(words(entry, 4)))).collect()
}

/// Bytes of an image, from a relative address.
fn bytes_at<'file>(file: &PeFile64<'file>, address: u64, size: u64) -> Option<&'file [u8]> {
    let address = file.relative_address_base() + address;
    file.sections().find_map(|section| section.data_range(address, size).ok().flatten())
}

/// The acquisitions and releases of queued spin locks in the code of an image, by relative addresses.
fn lock_calls(file: &PeFile64<'_>) -> Found {
    let routines = lock_routines(file);
    let follow = match file.nt_headers().file_header.machine.get(LE) {
        IMAGE_FILE_MACHINE_AMD64 => locks::follow_x86_64,
        _ => locks::follow_aarch64,
    };
    let mut found = Found::default();
    for (begin, end) in functions(file) {
        let code = bytes_at(file, u64::from(begin), u64::from(end - begin)).expect("code");
        found.add(follow(code, u64::from(begin), &routines));
    }
    found
}

/// A queued spin lock is released with the handle that acquired it.
fn lock_handles(image: &Image, file: &PeFile64<'_>) -> Vec<String> {
    /// Each driver releases locks in so many places, at least.
    const LEAST: [(&str, usize); 3] = [("softndk", 100), ("softndknic", 100), ("ndktest", 1)];
    let found = lock_calls(file);
    let counts = [&found.acquired, &found.released, &found.elsewhere, &found.unknown].map(BTreeSet::len);
    println!(
        "{}: {} acquisitions and {} releases of queued locks with the handle that acquired them; {} releases with another place of \
         the frame, {} calls that could not be followed",
        image.name, counts[0], counts[1], counts[2], counts[3]
    );
    let least = LEAST.iter().find(|least| least.0 == image.driver).map_or(0, |least| least.1);
    let mut problems = Vec::new();
    problems.extend(unless(counts[1] >= least, format!("only {} releases were found", counts[1])));
    let releases = counts[1] + counts[2];
    problems.extend(unless(
        found.elsewhere.is_empty(),
        format!(
            "{} of {releases} releases with another handle, the first at {:#x?}",
            counts[2],
            found.elsewhere.first()
        ),
    ));
    // A function that is not inlined gets the address of a handle that lies in its caller's frame. In a debug image, which nobody
    // installs, most are like that.
    if !image.is_debug {
        problems.extend(found.unknown.iter().map(|place| format!("the handle at {place:#x} could not be followed")));
    }
    problems
}

/// Nothing in the image tells where it was built.
fn paths(image: &Image, _: &PeFile64<'_>) -> Vec<String> {
    let root = fs::canonicalize(root()).expect("the repository");
    let home = std::env::var("HOME").or_else(|_| std::env::var("USERPROFILE")).unwrap_or_default();
    let places = [root.display().to_string(), home];
    let places = places.iter().filter(|place| place.len() > 4);
    let found = places.filter(|place| image.bytes.windows(place.len()).any(|bytes| bytes == place.as_bytes()));
    found.map(|place| format!("has the path {place}")).collect()
}

/// What `ndkctl run --imports` says of it: the functions of the framework that its code asks for, all of which the simulated one has. Decoded
/// for x86-64 only.
fn framework(image: &Image, _: &PeFile64<'_>) -> Vec<String> {
    /// `WdfDriverCreate`, which no driver of the framework does without.
    const DRIVER_CREATE: u32 = 116;
    if image.machine != IMAGE_FILE_MACHINE_AMD64 {
        return Vec::new();
    }
    let parsed = image_loader::Image::parse(&image.bytes).expect("an image that the simulated kernel loads");
    let Some(framework) = parsed.framework() else {
        return vec!["what it binds to the framework with is not seen".into()];
    };
    let mut problems: Vec<_> = framework
        .called
        .keys()
        .filter_map(|&index| {
            let (name, simulated) =
                image_loader::framework::find(index).unwrap_or(("a function without a name", false));
            unless(simulated, format!("calls {name} ({index}), which is not simulated"))
        })
        .collect();
    problems.extend(unless(framework.called.contains_key(&DRIVER_CREATE), "no call of WdfDriverCreate is seen"));
    problems.extend(framework.unclear.iter().map(|place| format!("what is called at {place:#x} is not seen")));
    problems
}

#[test]
fn headers_are_those_of_a_driver() {
    each(headers);
}

#[test]
fn no_section_can_be_written_and_executed() {
    each(sections);
}

#[test]
fn a_queued_lock_is_released_with_the_handle_that_acquired_it() {
    each(lock_handles);
}

#[test]
fn every_import_is_documented_and_old_enough() {
    each(imports);
}

#[test]
fn the_functions_of_the_framework_that_it_calls_are_seen_and_simulated() {
    each(framework);
}

#[test]
fn nothing_is_exported_but_what_the_linker_names() {
    each(exports);
}

#[test]
fn control_flow_guard_knows_every_function_that_is_pointed_to() {
    each(guard);
}

#[test]
fn functions_can_be_unwound() {
    each(unwinding);
}

#[test]
fn stack_frames_are_small() {
    each(stack_frames);
}

#[test]
fn no_path_of_the_building_machine_is_in_the_image() {
    each(paths);
}

#[test]
fn the_image_is_signed() {
    each(|_, file| {
        let signed = file.data_directory(IMAGE_DIRECTORY_ENTRY_SECURITY).is_some_and(|entry| entry.size.get(LE) > 0);
        unless(signed, "no signature; build without --no-sign").into_iter().collect()
    });
}

/// One release of a good image, with the place beside the handle.
#[test]
fn a_release_with_another_place_of_the_frame_is_found() {
    /// `lea rcx, [rsp + one byte]`.
    const FIRST_ARGUMENT: [u8; 4] = [0x48, 0x8D, 0x4C, 0x24];
    for image in images() {
        let file = PeFile64::parse(image.bytes.as_slice()).expect("a PE image");
        let offset_of = |address: u64| {
            let section = file.section_table().iter().find(|section| {
                let start = u64::from(section.virtual_address.get(LE));
                (start..start + u64::from(section.virtual_size.get(LE))).contains(&address)
            })?;
            let inside = address - u64::from(section.virtual_address.get(LE));
            usize::try_from(inside).ok().map(|inside| section.pointer_to_raw_data.get(LE) as usize + inside)
        };
        // The argument right before the call: where in the image its distance from the stack pointer is, and eight in it.
        let calls = lock_calls(&file).released;
        let place = calls.iter().find_map(|&call| {
            let call = offset_of(call)?;
            if image.machine == IMAGE_FILE_MACHINE_AMD64 {
                let place = call.checked_sub(5)?;
                return image.bytes[place..].starts_with(&FIRST_ARGUMENT).then_some((place + 4, 8));
            }
            // `add x0, sp, #number`, with the number from bit 10 on.
            let word = u32::from_le_bytes(image.bytes[call.checked_sub(4)?..call].try_into().ok()?);
            (word & 0xFFC0_03FF == 0x9100_03E0).then_some((call - 3, 8 << 2))
        });
        // The consumer has a few locks only, and no release may be like that.
        assert!(place.is_some() || image.driver == "ndktest", "{}: no release has its argument in front", image.name);
        let Some((place, eight)) = place else { continue };
        let mut wrong = image.clone();
        wrong.bytes[place] ^= eight;
        let file = PeFile64::parse(wrong.bytes.as_slice()).expect("a PE image");
        assert!(!lock_handles(&wrong, &file).is_empty(), "{}: it is not noticed", image.name);
    }
}

/// Each change of a good image must be noticed.
#[test]
fn a_wrong_image_is_found() {
    type Check = fn(&Image, &PeFile64<'_>) -> Vec<String>;
    for image in images() {
        let header = u32::from_le_bytes(image.bytes[0x3C..0x40].try_into().expect("four bytes")) as usize;
        let optional = header + 24;
        let file = PeFile64::parse(image.bytes.as_slice()).expect("a PE image");
        let section = optional + usize::from(file.nt_headers().file_header.size_of_optional_header.get(LE));
        let import = image.bytes.windows(16).position(|bytes| bytes.starts_with(b"KeBugCheckEx\0")).expect("an import");
        let changes: [(&str, Check, usize, u8); 6] = [
            ("another subsystem", headers, optional + 68, 2),
            ("no protections", headers, optional + 70, 0),
            ("a changed byte and the old checksum", headers, section + 8, 0xFF),
            ("a section that can be written and executed", sections, section + 39, 0xE0),
            ("an import that nobody knows", imports, import, b'X'),
            ("no load configuration", guard, optional + 112 + 8 * IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG + 5, 0),
        ];
        for (what, check, place, value) in changes {
            let mut wrong = image.clone();
            wrong.bytes[place] = value;
            let noticed = PeFile64::parse(wrong.bytes.as_slice()).map_or(true, |file| !check(&wrong, &file).is_empty());
            assert!(noticed, "{}: {what} is not noticed", image.name);
        }
    }
}
