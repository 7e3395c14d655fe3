//! What an INF says of its package.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Processor;

/// The version of a package (`DriverVer`). Windows compares the dates first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Year, month and day.
    pub date: (u16, u8, u8),
    /// The four numbers behind it.
    pub number: [u16; 4],
}

impl Version {
    /// Reads `01/31/2026,0.1.0.0`. Numbers at the end may be missing.
    fn parse(text: &str) -> Option<Self> {
        let (date, number) = text.split_once(',').unwrap_or((text, ""));
        let mut date = date.trim().split(['/', '-']);
        let (month, day, year) = (date.next()?, date.next()?, date.next()?);
        let mut parts = [0; 4];
        let number = number.trim();
        if !number.is_empty() {
            let mut places = parts.iter_mut();
            for part in number.split('.') {
                *places.next()? = part.trim().parse().ok()?;
            }
        }
        let date = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
        Some(Self { date, number: parts })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([first, second, third, fourth], (year, month, day)) = (self.number, self.date);
        write!(f, "{first}.{second}.{third}.{fourth} of {year}-{month:02}-{day:02}")
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What an INF says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inf {
    /// `DriverVer`.
    pub version: Version,
    /// `CatalogFile`.
    pub catalog: Option<String>,
    /// The processors that it has models for.
    pub processors: Vec<Processor>,
    /// `Class`.
    pub class: String,
    /// `ClassGuid`, without braces.
    pub class_guid: String,
    /// The hardware identifiers of its models.
    pub hardware_ids: Vec<String>,
}

/// The text of a file: UTF-16 with a mark, or UTF-8 with or without one.
fn text(bytes: &[u8]) -> Option<String> {
    match bytes {
        [0xFF, 0xFE, rest @ ..] => {
            let units = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes.to_vec()).ok(),
    }
}

impl Inf {
    /// Reads an INF.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = text(bytes).ok_or("it is not a text")?;
        let lines = || {
            let mut section = String::new();
            text.lines().filter_map(move |line| {
                let line = line.split(';').next().unwrap_or_default().trim();
                if let Some(name) = line.strip_prefix('[') {
                    section = name.trim_end_matches(']').trim().to_lowercase();
                    return None;
                }
                let (key, value) = line.split_once('=')?;
                Some((section.clone(), key.trim().to_lowercase(), value.trim().trim_matches('"').to_owned()))
            })
        };
        let mut found = Self::default();
        let (mut version, mut models) = (None, Vec::new());
        for (section, key, value) in lines() {
            match (section.as_str(), key.as_str()) {
                ("version", "driverver") => {
                    version = Some(Version::parse(&value).ok_or_else(|| format!("DriverVer = {value}"))?);
                }
                ("version", "class") => found.class = value,
                ("version", "classguid") => value.trim_matches(['{', '}']).clone_into(&mut found.class_guid),
                ("version", key) if key.starts_with("catalogfile") => found.catalog = Some(value),
                ("manufacturer", _) => {
                    let mut parts = value.split(',').map(str::trim);
                    let name = parts.next().unwrap_or_default().to_lowercase();
                    for decoration in parts.map(str::to_lowercase) {
                        found.processors.extend(Processor::of_decoration(&decoration));
                        models.push(format!("{name}.{decoration}"));
                    }
                }
                _ => {}
            }
        }
        let ids = lines().filter(|(section, ..)| models.contains(section));
        found.hardware_ids = ids.filter_map(|(.., value)| Some(value.split_once(',')?.1.trim().to_owned())).collect();
        found.version = version.ok_or("it has no DriverVer")?;
        if found.hardware_ids.is_empty() {
            return Err("it has no models".to_owned());
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Inf, Version};
    use crate::{Driver, Processor};

    fn stamped(inx: &str) -> String {
        inx.replace("$ARCH$", "amd64").replace("01/01/2026,0.1.0.0", "11/26/2026,20.41.7.915")
    }

    #[test]
    fn the_infs_of_the_drivers_say_what_the_table_of_the_drivers_says() {
        let infs = [
            include_str!("../../../../driver.inx"),
            include_str!("../../../drivers/softndknic/softndknic.inx"),
            include_str!("../../../drivers/ndktest/ndktest.inx"),
        ];
        for (driver, inx) in Driver::ALL.into_iter().zip(infs) {
            let inf = Inf::parse(stamped(inx).as_bytes()).expect("an INF");
            assert_eq!(inf.hardware_ids, [driver.hardware_id]);
            assert_eq!(inf.catalog.as_deref(), Some(format!("{}.cat", driver.name).as_str()));
            assert_eq!(inf.class, driver.class);
            let guid = u128::from_str_radix(&inf.class_guid.replace('-', ""), 16).expect("a GUID");
            assert_eq!(guid, driver.class_guid);
            assert_eq!(inf.processors, [Processor::Amd64]);
            assert_eq!(inf.version, Version { date: (2026, 11, 26), number: [20, 41, 7, 915] });
            assert!(inx.contains(&format!("AddService = {},", driver.name)));
        }
    }

    #[test]
    fn an_inf_may_be_utf_16() {
        let text = stamped(include_str!("../../../../driver.inx"));
        let wide: Vec<u8> = std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(Inf::parse(&wide), Inf::parse(text.as_bytes()));
        let marked = [&[0xEF, 0xBB, 0xBF], text.as_bytes()].concat();
        assert_eq!(Inf::parse(&marked), Inf::parse(text.as_bytes()));
    }

    #[test]
    fn windows_compares_dates_before_numbers() {
        let version = |text| Version::parse(text).expect("a version");
        assert!(version("01/02/2026,0.1.0.0") > version("12/31/2025,9.0.0.0"));
        assert!(version("01/02/2026,0.10.0.0") > version("01/02/2026,0.9.0.0"));
        assert_eq!(version("1/2/2026"), version("01/02/2026,0.0.0.0"));
        assert_eq!(Version::parse("yesterday"), None);
        assert_eq!(Version::parse("01/02/2026,1.2.3.4.5"), None);
    }

    #[test]
    fn an_inf_that_says_too_little_is_refused() {
        assert!(Inf::parse(b"[Version]\nDriverVer = 01/01/2026,1.0.0.0\n").is_err());
        assert!(Inf::parse(b"[Manufacturer]\nA = B,NTamd64\n[B.NTamd64]\nC = D,Root\\E\n").is_err());
        assert!(Inf::parse(&[0xC0, 0xC1]).is_err());
    }
}
