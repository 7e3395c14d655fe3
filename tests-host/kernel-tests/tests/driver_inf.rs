//! The INF sources of the drivers: what `infverif` would check first, and what has to agree with the rest of the project.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use engine::memory::MemoryLimits;
use sources::root;

/// An INF file: sections with their lines, each a key and its values. A line without `=` has an empty key.
struct Inf {
    sections: BTreeMap<String, Vec<(String, Vec<String>)>>,
}

impl Inf {
    fn read(path: &str) -> Self {
        Self::parse(&fs::read_to_string(root().join(path)).expect("the INF source is in the repository"))
    }

    fn parse(text: &str) -> Self {
        let mut sections = BTreeMap::<_, Vec<_>>::new();
        let mut current = None;
        for line in text.lines().map(without_comment).filter(|line| !line.is_empty()) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                assert!(!sections.contains_key(name), "the section [{name}] is there twice");
                sections.insert(name.to_owned(), Vec::new());
                current = Some(name.to_owned());
                continue;
            }
            let section = current.as_ref().expect("a line stands in a section");
            let (key, values) = match split_outside_quotes(line, '=').as_slice() {
                [only] => (String::new(), only.clone()),
                [key, value] => (key.clone(), value.clone()),
                more => panic!("{} parts in {line:?}", more.len()),
            };
            let entry = (key, split_outside_quotes(&values, ','));
            sections.get_mut(section).expect("inserted above").push(entry);
        }
        Self { sections }
    }

    fn section(&self, name: &str) -> &[(String, Vec<String>)] {
        self.sections.get(name).unwrap_or_else(|| panic!("no section [{name}]"))
    }

    /// The values of a directive that a section must have once.
    fn values(&self, section: &str, key: &str) -> &[String] {
        let mut found = self.section(section).iter().filter(|(name, _)| name == key);
        let values = found.next().unwrap_or_else(|| panic!("no {key} in [{section}]"));
        assert!(found.next().is_none(), "{key} is there twice in [{section}]");
        &values.1
    }

    fn value(&self, section: &str, key: &str) -> &str {
        match self.values(section, key) {
            [value] => value,
            values => panic!("{key} in [{section}] has {} values", values.len()),
        }
    }
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.find(|character| {
        quoted ^= character == '"';
        character == ';' && !quoted
    });
    line[..end.unwrap_or(line.len())].trim()
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<String> {
    let mut quoted = false;
    text.split(|character| {
        quoted ^= character == '"';
        character == separator && !quoted
    })
    .map(|part| part.trim().to_owned())
    .collect()
}

/// What differs between the drivers.
struct Driver {
    source: &'static str,
    name: &'static str,
    device: &'static str,
    prefix: &'static str,
    class: &'static str,
}

const DRIVERS: [Driver; 3] = [
    Driver { source: "driver.inx", name: "softndk", device: r"Root\SoftNDK", prefix: "SoftNDK", class: "SoftNDK" },
    Driver {
        source: "crates/drivers/ndktest/ndktest.inx",
        name: "ndktest",
        device: r"Root\NdkTest",
        prefix: "NdkTest",
        class: "SoftNDK",
    },
    Driver {
        source: "crates/drivers/softndknic/softndknic.inx",
        name: "softndknic",
        device: r"Root\SoftNdkNic",
        prefix: "SoftNdkNic",
        class: "Net",
    },
];

fn each(check: impl Fn(&Driver, &Inf)) {
    for driver in &DRIVERS {
        check(driver, &Inf::read(driver.source));
    }
}

#[test]
fn the_version_section_is_complete() {
    each(|driver, inf| {
        assert_eq!(inf.value("Version", "Signature"), "\"$WINDOWS NT$\"");
        assert_eq!(inf.value("Version", "CatalogFile"), format!("{}.cat", driver.name));
        assert_eq!(inf.value("Version", "PnpLockdown"), "1");
        assert_eq!(inf.values("Version", "DriverVer").len(), 2, "date and version, which stampinf replaces");
        assert_eq!(inf.value("Version", "Class"), driver.class);
    });
    let guids = DRIVERS.each_ref().map(|driver| Inf::read(driver.source).value("Version", "ClassGuid").to_owned());
    assert_eq!(guids[0], guids[1], "the two devices with control devices are of one class");
    assert_eq!(guids[0].len(), 38);
    assert_eq!(guids[2], "{4d36e972-e325-11ce-bfc1-08002be10318}", "the system's class of network adapters");
}

#[test]
fn files_stay_in_the_driver_store() {
    each(|driver, inf| {
        let file = format!("{}.sys", driver.name);
        assert_eq!(inf.value("DestinationDirs", "DefaultDestDir"), "13");
        assert_eq!(inf.values("SourceDisksFiles", &file)[0], "1");
        let service = format!("{}_Service", driver.prefix);
        assert_eq!(inf.value(&service, "ServiceBinary"), format!(r"%13%\{file}"));
        let files = inf.value(&format!("{}_Device.NT", driver.prefix), "CopyFiles");
        assert_eq!(inf.section(files), [(String::new(), vec![file])]);
    });
}

#[test]
fn the_service_is_a_kernel_driver_started_on_demand() {
    each(|driver, inf| {
        let services = inf.values(&format!("{}_Device.NT.Services", driver.prefix), "AddService");
        let service = format!("{}_Service", driver.prefix);
        assert_eq!(services, [driver.name, "0x00000002", &service], "the device's function driver");
        for (key, value) in [("ServiceType", "1"), ("StartType", "3"), ("ErrorControl", "1")] {
            assert_eq!(inf.value(&service, key), value, "{key}");
        }
    });
}

#[test]
fn the_framework_version_is_that_of_the_binary() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace's manifest");
    assert!(manifest.contains("kmdf-version-major = 1\n") && manifest.contains("target-kmdf-version-minor = 15\n"));
    let stub = fs::read_to_string(root().join("xbuild/wdk-sys/src/entry.rs")).expect("the cross-build's entry point");
    assert!(stub.contains("major: 1, minor: 15, build: 0"), "the version that a cross-built driver binds to");
    each(|driver, inf| {
        let wdf = inf.values(&format!("{}_Device.NT.Wdf", driver.prefix), "KmdfService");
        assert_eq!(wdf[0], driver.name);
        assert_eq!(inf.value(&wdf[1], "KmdfLibraryVersion"), "$KMDFVERSION$", "stamped from the manifest");
    });
}

#[test]
fn the_oldest_windows_is_the_one_that_the_imports_need() {
    each(|driver, inf| {
        let manufacturer = inf.values("Manufacturer", "%Provider%");
        // Windows 10 version 2004; the test `driver_pe` shows that an import needs it.
        assert_eq!(manufacturer, ["SoftNDK", "NT$ARCH$.10.0...19041"]);
        let models = format!("{}.{}", manufacturer[0], manufacturer[1]);
        let device = format!("{}_Device", driver.prefix);
        assert_eq!(inf.values(&models, "%DeviceDescription%"), [device.as_str(), driver.device]);
    });
}

#[test]
fn only_administrators_can_open_the_devices() {
    // The class of network adapters is the system's own.
    for driver in DRIVERS.iter().filter(|driver| driver.class == "SoftNDK") {
        let inf = Inf::read(driver.source);
        let class = inf.value("ClassInstall32", "AddReg");
        let security = inf.section(class).iter().find(|(_, values)| values[2] == "Security").expect("a descriptor");
        assert_eq!(security.1[4].trim_matches('"'), control::provider_device::SDDL);
    }
    assert_eq!(control::provider_device::SDDL, control::test_device::SDDL);
}

/// Sections that Windows looks for by name; all others are named by a directive.
fn is_well_known(section: &str) -> bool {
    let names =
        ["Version", "ClassInstall32", "SourceDisksNames", "SourceDisksFiles", "DestinationDirs", "Manufacturer"];
    names.contains(&section) || section == "Strings"
}

#[test]
fn every_section_and_string_that_is_named_exists_and_every_one_that_exists_is_named() {
    each(|driver, inf| {
        let text = fs::read_to_string(root().join(driver.source)).expect("read before");
        let code = text.lines().map(without_comment).collect::<Vec<_>>().join("\n");
        let strings = inf.section("Strings").iter().map(|(key, _)| key.as_str()).collect::<BTreeSet<_>>();
        let used =
            code.split('%').skip(1).step_by(2).filter(|name| name.parse::<u32>().is_err()).collect::<BTreeSet<_>>();
        assert_eq!(strings, used, "{}", driver.source);

        let mut named = BTreeSet::from([format!("SoftNDK.{}", inf.values("Manufacturer", "%Provider%")[1])]);
        let device = format!("{}_Device.NT", driver.prefix);
        named.extend(["", ".Services", ".Wdf"].map(|suffix| format!("{device}{suffix}")));
        for (key, values) in inf.sections.values().flatten() {
            match key.as_str() {
                "AddReg" | "CopyFiles" => named.extend(values.iter().cloned()),
                "AddService" => named.extend(values.get(2).cloned()),
                "KmdfService" => named.extend(values.get(1).cloned()),
                _ => {}
            }
        }
        let there = inf.sections.keys().filter(|name| !is_well_known(name)).cloned().collect::<BTreeSet<_>>();
        assert_eq!(there, named, "{}", driver.source);
    });
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

#[test]
fn registry_parameters_are_those_of_the_documentation_and_of_the_driver() {
    let inf = Inf::read("driver.inx");
    let parameters = inf.section(inf.value("SoftNDK_Service", "AddReg"));
    let documentation = fs::read_to_string(root().join("docs/registry.md")).expect("docs/registry.md");
    let source =
        fs::read_to_string(root().join("crates/drivers/driver-common/src/settings.rs")).expect("the driver's settings");
    for (_, values) in parameters {
        let [key, subkey, name, flags, default] = values.as_slice() else { panic!("{values:?}") };
        assert_eq!((key.as_str(), subkey.as_str()), ("HKR", "Parameters"), "{name}");
        assert_eq!(flags, "0x00010003", "{name}: a number, and what is there already is kept");
        let row = documentation.lines().find(|line| line.starts_with(&format!("| `{name}` ")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/registry.md"));
        let cells = row.split('|').map(str::trim).collect::<Vec<_>>();
        assert_eq!(cells[2], "REG_DWORD", "{name}");
        assert_eq!(cells[3], default, "{name}: the default");
        let (least, most) = cells[4].split_once(" to ").expect("a range");
        let (least, most, default) = (number(least), number(most), number(default));
        assert!((least..=most).contains(&default), "{name}: the default is out of its range");
        if name == "MaxTokens" {
            assert_eq!(most, MemoryLimits::MAX.tokens, "{name}: as many as the engine has");
        }
        assert!(source.contains(&format!("wide(\"{name}\")")), "{name} is not read by the driver");
    }
    // And the list of addresses, which has no default.
    assert_eq!(source.matches("wide(\"").count(), parameters.len() + 1, "the driver reads others");
    assert_eq!(documentation.matches("| REG_").count(), parameters.len(), "others are documented");
}

#[test]
fn a_comment_and_a_separator_in_quotes_are_text() {
    let inf = Inf::parse("[S]\na = \"x;y,z\" ; comment\nb,c\n");
    assert_eq!(inf.value("S", "a"), "\"x;y,z\"");
    assert_eq!(inf.section("S")[1].1, ["b", "c"]);
}

/// What `cargo xtask drivers` has made of the sources, as `stampinf` would. Without packages there is nothing to look at.
#[test]
fn the_packages_are_stamped() {
    for (directory, architecture) in [("x86_64", "amd64"), ("aarch64", "arm64")] {
        for driver in &DRIVERS {
            let path = format!("target/drivers/{directory}/{}.inf", driver.name);
            if !root().join(&path).exists() {
                println!("not checked, because it was not built by cargo xtask drivers: {path}");
                continue;
            }
            let inf = Inf::read(&path);
            let manufacturer = inf.values("Manufacturer", "%Provider%");
            let models = format!("NT{architecture}.10.0...19041");
            assert_eq!(manufacturer, ["SoftNDK", &models], "{path}");
            assert_eq!(inf.section(&format!("SoftNDK.{models}")).len(), 1, "{path}");
            let wdf = inf.values(&format!("{}_Device.NT.Wdf", driver.prefix), "KmdfService");
            assert_eq!(inf.value(&wdf[1], "KmdfLibraryVersion"), "1.15", "{path}");
            let [date, version] = inf.values("Version", "DriverVer") else { panic!("{path}: a date and a version") };
            assert!(date.split('/').map(str::len).eq([2, 2, 4]), "{path}: {date}");
            assert_eq!(version.split('.').count(), 4, "{path}: {version}");
        }
    }
}

/// The keywords of the NIC: name, and what the INF says of each, by property. The values of an enumeration are in `Enum`.
fn keywords(inf: &Inf) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let mut keywords = BTreeMap::<String, BTreeMap<String, Vec<String>>>::new();
    for (_, values) in inf.section("SoftNdkNic_Keywords") {
        let [key, place, name, flags, value] = values.as_slice() else { panic!("{values:?}") };
        assert_eq!((key.as_str(), flags.as_str()), ("HKR", "0"), "a text below the adapter's key");
        let place = place.strip_prefix(r"Ndi\Params\").expect("a keyword");
        let (keyword, property) =
            place.strip_suffix(r"\Enum").map_or((place, name.as_str()), |keyword| (keyword, "Enum"));
        let value = if property == "Enum" { name } else { value };
        let properties = keywords.entry(keyword.to_owned()).or_default();
        properties.entry(property.to_owned()).or_default().push(value.trim_matches('"').to_owned());
    }
    keywords
}

#[test]
fn the_nic_is_virtual_ethernet_that_windows_looks_for_ndk_on() {
    let inf = Inf::read("crates/drivers/softndknic/softndknic.inx");
    let device = "SoftNdkNic_Device.NT";
    // The same three as the driver reports, in `crates/drivers/softndknic/src/attributes.rs`.
    for (key, value) in
        [("*IfType", "6"), ("*MediaType", "0"), ("*PhysicalMediaType", "14"), ("Characteristics", "0x81")]
    {
        assert_eq!(inf.value(device, key), value, "{key}");
    }
    let bound = |place: &str, name: &str| {
        let mut found = inf.section("SoftNdkNic_Binding").iter().filter(|(_, values)| values[1..3] == [place, name]);
        found.next().unwrap_or_else(|| panic!("no {name}")).1[4].trim_matches('"').to_owned()
    };
    assert_eq!(bound("Ndi", "Service"), "softndknic");
    assert_eq!(bound(r"Ndi\Interfaces", "UpperRange"), "ndis5");
    assert_eq!(bound(r"Ndi\Interfaces", "LowerRange"), "ethernet");
}

#[test]
fn the_keywords_of_the_nic_are_those_of_the_documentation_and_of_the_driver() {
    let keywords = keywords(&Inf::read("crates/drivers/softndknic/softndknic.inx"));
    let documentation = fs::read_to_string(root().join("docs/registry.md")).expect("docs/registry.md");
    let source = fs::read_to_string(root().join("crates/drivers/softndknic/src/configuration.rs"))
        .expect("the driver's keywords");
    for (name, properties) in &keywords {
        let one = |property: &str| match properties.get(property).map(Vec::as_slice) {
            Some([value]) => value.as_str(),
            other => panic!("{name} has {other:?} as its {property}"),
        };
        assert!(one("ParamDesc").starts_with('%'), "{name}: a name in words");
        let row = documentation.lines().find(|line| line.starts_with(&format!("| `{name}` ")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in docs/registry.md"));
        // Texts: how long they may be.
        let texts =
            [("NetworkAddress", 12), ("WirePeer", cable::peers::LONGEST), ("WireLocal", cable::peers::LONGEST_ADDRESS)];
        if let Some((_, length)) = texts.iter().find(|(text, _)| text == name) {
            assert_eq!((one("Type"), one("Optional")), ("edit", "1"), "{name}");
            assert_eq!(one("LimitText"), length.to_string(), "{name}");
            // NDIS reads the hardware address by itself.
            assert_eq!(source.contains(&format!("wide(\"{name}\")")), name.starts_with("Wire"), "{name} is read");
            continue;
        }
        let cells = row.split('|').map(str::trim).collect::<Vec<_>>();
        assert_eq!(cells[2], one("Default"), "{name}: the default");
        let default = number(one("Default"));
        let range = if one("Type") == "enum" {
            let values = properties["Enum"].iter().map(|value| number(value)).collect::<Vec<_>>();
            assert!(values.contains(&default), "{name}: the default is no value");
            (values[0], values[values.len() - 1])
        } else {
            assert_eq!((one("Type"), one("Step")), ("int", "1"), "{name}");
            (number(one("Min")), number(one("Max")))
        };
        assert!((range.0..=range.1).contains(&default), "{name}: the default is out of its range");
        assert_eq!(cells[3], format!("{} to {}", range.0, range.1), "{name}: the range");
        // The driver has the same range and default, written with separators or as a constant of Rust.
        let line = source.replace('_', "").replace("\n    ", " ");
        let read = line.split("Number<").find(|text| text.contains(&format!("wide(\"{name}\")"))).expect("it is read");
        let most = if range.1 == i32::MAX.cast_unsigned() {
            "i32::MAX.castunsigned()".to_owned()
        } else {
            range.1.to_string()
        };
        let expected = format!("range: {}..={most}, default: {default}", range.0);
        assert!(read.contains(&expected), "{name}: {expected} in {read}");
    }
    assert_eq!(source.matches("wide(\"").count(), keywords.len() - 1, "the driver reads others");
    let needed = [
        "*NetworkDirect",
        "*NetworkDirectTechnology",
        "*NetworkDirectRoCEFrameSize",
        "*JumboPacket",
        "*PriorityVLANTag",
    ];
    for needed in needed {
        assert!(keywords.contains_key(needed), "{needed}");
    }
    let technologies = &keywords["*NetworkDirectTechnology"]["Enum"];
    assert_eq!(technologies, &["1", "3", "4"], "those of Ethernet: InfiniBand has another medium");
}
