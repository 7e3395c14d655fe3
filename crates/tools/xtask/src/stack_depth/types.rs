//! What an image with types has beside its code: the type of each target, names, and the traits of destructors.

use std::collections::{BTreeMap, BTreeSet};

use addr2line::Loader;
use anyhow::{Context as _, Result, anyhow, ensure};
use regex::Regex;

use super::{
    code::{Code, Site},
    image::Image,
    rules::Rules,
};

const DESTRUCTOR: &str = "core::ptr::drop_in_place::<";

/// The opcode `mov eax, imm32`, in which the compiler puts the type before a function.
const MOV_EAX: u8 = 0xB8;

type Names = BTreeMap<u32, BTreeSet<String>>;

pub struct Types {
    /// The targets of each type.
    targets: BTreeMap<u32, BTreeSet<u32>>,
    /// The type of all destructors.
    destructor: u32,
    /// The traits of each destructor: those of the tables that begin with it; `None` of a table that does not say.
    traits: BTreeMap<u32, BTreeSet<Option<String>>>,
}

impl Types {
    /// Reads the types, and gives the code its names.
    pub fn read(code: &mut Code) -> Result<Self> {
        let image = &code.image;
        let mut targets: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for target in &code.targets {
            let [opcode, kind @ ..] = image.bytes::<5>(target - 5)?;
            ensure!(
                opcode == MOV_EAX,
                "{}: {target:#x} has no type before it; build with cargo xtask stack-depth",
                image.path.display()
            );
            targets.entry(u32::from_le_bytes(kind)).or_default().insert(*target);
        }
        let names = names(image)?;
        let is_destructor =
            |target| names.get(target).is_some_and(|names| names.iter().any(|name| name.starts_with(DESTRUCTOR)));
        let kinds: Vec<_> = targets.iter().filter(|(_, group)| group.iter().any(is_destructor)).collect();
        let [(destructor, destructors)] = *kinds else {
            return Err(anyhow!(
                "{}: destructors have {} types, but one was expected",
                image.path.display(),
                kinds.len()
            ));
        };
        let (destructor, traits) = (*destructor, traits(image, &code.targets, destructors, &names));
        code.names = names;
        Ok(Self { targets, destructor, traits })
    }

    /// Adds the indirect calls to those of the code.
    pub fn connect(&self, code: &mut Code, rules: &mut Rules) -> Result<()> {
        let destroyed = self.objects_destroyed(code)?;
        for site in code.sites.clone() {
            let Some(kind) = site.kind else {
                // The compiler gives every indirect call a type, but not those of imported routines.
                if !code.keep_import.contains(&site.function) {
                    rules.complain(format!(
                        "no type at the indirect call {:#x} in {}",
                        site.address,
                        code.name(site.function)
                    ));
                }
                continue;
            };
            let of_kind = self.targets.get(&kind).into_iter().flatten().copied();
            let targets: Vec<_> = match destroyed.get(&site.address) {
                Some(of_object) => of_kind.filter(|target| self.may_destroy(*target, of_object.as_deref())).collect(),
                None => of_kind.collect(),
            };
            if targets.is_empty() {
                rules.leaves(&code.name(site.function));
            }
            for target in targets {
                if destroyed.contains_key(&site.address) || rules.allow(&code.names, site.function, target) {
                    code.add(site, target);
                }
            }
        }
        Ok(())
    }

    /// Whether a destructor can be that of an object with a trait. A table whose trait is not known could be of any.
    fn may_destroy(&self, destructor: u32, of_object: Option<&str>) -> bool {
        let Some(traits) = self.traits.get(&destructor) else { return true };
        of_object.is_none() || traits.iter().any(|one| one.is_none() || one.as_deref() == of_object)
    }

    /// For each call of a destructor: the trait of the object, `None` if that is not known.
    fn objects_destroyed(&self, code: &Code) -> Result<BTreeMap<u32, Option<String>>> {
        let path = &code.image.path;
        let read = |error| anyhow!("{}: {error}", path.display());
        let debug = Loader::new(path).map_err(|error| read(error.to_string()))?;
        let is_of_destructor = |site: &&Site| site.kind == Some(self.destructor);
        code.sites
            .iter()
            .filter(is_of_destructor)
            .map(|site| {
                let probe = code.image.base + u64::from(site.address);
                let mut frames = debug.find_frames(probe).map_err(|error| read(error.to_string()))?;
                // The innermost of the functions that were inlined there comes first.
                let inner = frames.next().map_err(|error| read(error.to_string()))?;
                let name = inner.and_then(|frame| Some(frame.function?.raw_name().ok()?.into_owned()));
                Ok((site.address, name.as_deref().and_then(trait_of_object)))
            })
            .collect()
    }
}

/// The names of functions, from the linker's map beside the image.
fn names(image: &Image) -> Result<Names> {
    let path = image.path.with_extension("map");
    let map = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let line = Regex::new(r"(?m)^ [0-9a-f]{4}:[0-9a-f]{8} +(\S+?)(?:\.llvm\.\d+)? +([0-9a-f]{16}) ")?;
    let mut names = Names::new();
    for found in line.captures_iter(&String::from_utf8_lossy(&map)) {
        let address = u64::from_str_radix(&found[2], 16)?;
        if let Some(Ok(address)) = address.checked_sub(image.base).map(u32::try_from) {
            names.entry(address).or_default().insert(format!("{:#}", rustc_demangle::demangle(&found[1])));
        }
    }
    Ok(names)
}

/// The traits of each destructor: those of the tables that begin with it. Then come size, alignment and functions.
fn traits(
    image: &Image,
    targets: &BTreeSet<u32>,
    destructors: &BTreeSet<u32>,
    names: &Names,
) -> BTreeMap<u32, BTreeSet<Option<String>>> {
    let mut traits: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let is_function = |word: &u32| targets.contains(word) && !destructors.contains(word);
    for part in &image.parts {
        let (words, _) = part.bytes.as_chunks::<8>();
        let address = |word: &[u8; 8]| {
            u64::from_le_bytes(*word).checked_sub(image.base).and_then(|word| u32::try_from(word).ok())
        };
        let words: Vec<_> = words.iter().map(|word| address(word).unwrap_or(0)).collect();
        for (index, destructor) in words.iter().enumerate().filter(|(_, word)| destructors.contains(word)) {
            let table: Vec<_> = words.iter().skip(index + 3).copied().take_while(is_function).collect();
            if !table.is_empty() {
                traits.entry(*destructor).or_default().insert(trait_of(*destructor, &table, names));
            }
        }
    }
    traits
}

/// The trait of the last of these functions that the type has. Those of the traits that it is made of come before.
fn trait_of(destructor: u32, table: &[u32], names: &Names) -> Option<String> {
    let kind = |name: &String| {
        let name = name.strip_prefix(DESTRUCTOR).unwrap_or(name);
        format!("<{} as ", name.strip_suffix('>').unwrap_or(name))
    };
    let kinds: Vec<_> = names.get(&destructor).into_iter().flatten().map(kind).collect();
    let of_function = |function: &u32| {
        let names = names.get(function).into_iter().flatten();
        let mut traits = names.flat_map(|name| kinds.iter().filter_map(|kind| name.strip_prefix(kind.as_str())));
        traits.find_map(|name| name.split(['<', '>']).next().filter(|name| !name.is_empty()))
    };
    table.iter().map_while(of_function).last().map(str::to_owned)
}

/// `Trait` of `drop_in_place<...dyn$<Trait, Others>...>`, as debug information has it.
fn trait_of_object(name: &str) -> Option<String> {
    let (_, of_object) = name.split_once("dyn$<")?;
    of_object.split(['<', '>', ',']).next().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[test]
fn a_table_has_the_trait_of_its_last_function() {
    let all = [
        (1, "core::ptr::drop_in_place::<a::T<u8>>"),
        (2, "<a::T<u8> as b::Base>::f"),
        (3, "<a::T<u8> as b::Trait<u8>>::g"),
        (4, "<a::Other as b::Else>::h"),
    ];
    let names: Names = all.into_iter().map(|(address, name)| (address, [name.to_owned()].into())).collect();
    assert_eq!(trait_of(1, &[2], &names).as_deref(), Some("b::Base"));
    assert_eq!(trait_of(1, &[2, 3, 4], &names).as_deref(), Some("b::Trait"));
    assert_eq!(trait_of(1, &[4, 3], &names), None);
    assert_eq!(trait_of_object("drop_in_place<dyn$<b::Trait<u8>,core::marker::Send> >").as_deref(), Some("b::Trait"));
    assert_eq!(trait_of_object("drop_in_place<a::T>"), None);
}
