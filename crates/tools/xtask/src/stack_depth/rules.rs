//! What types do not say: tools/stack-depth.toml.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use fancy_regex::Regex;
use serde::Deserialize;

use super::{code::Code, depths::Limits};

type Names = BTreeSet<String>;

/// What a name has to look like.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Pattern(Regex);

impl TryFrom<String> for Pattern {
    type Error = Box<fancy_regex::Error>;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(Regex::new(&text)?))
    }
}

impl Pattern {
    /// A pattern that gives up has not matched: then a rule is not needed, or a call has no reason, and that is said.
    fn is_in(&self, name: &str) -> bool {
        self.0.is_match(name).unwrap_or(false)
    }

    /// What several functions became does what each of them does: all names have to match.
    fn is_in_all(&self, names: Option<&Names>) -> bool {
        names.is_some_and(|names| !names.is_empty() && names.iter().all(|name| self.is_in(name)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    layer: Vec<Layer>,
    callbacks: Callbacks,
    leaves: Vec<Leaves>,
    never: Vec<Never>,
    most: Vec<Most>,
}

/// The layers in front of an adapter, the innermost first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    calls: Pattern,
    functions: Pattern,
    #[serde(skip)]
    uses: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Callbacks {
    functions: Pattern,
}

/// Calls that leave the image.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leaves {
    functions: Pattern,
    #[serde(rename = "reason")]
    _reason: String,
    #[serde(skip)]
    uses: usize,
}

/// Calls that are never made.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Never {
    #[serde(default)]
    indirect: bool,
    from: Pattern,
    to: Pattern,
    #[serde(rename = "reason")]
    _reason: String,
    #[serde(skip)]
    uses: usize,
}

/// Functions that are on a path at most so often, each of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Most {
    functions: Vec<Pattern>,
    times: u8,
    #[serde(rename = "reason")]
    _reason: String,
}

pub struct Rules {
    text: Text,
    /// The limits that were needed.
    limits_used: BTreeSet<usize>,
    complaints: Vec<String>,
}

impl Rules {
    pub fn new(text: &str) -> Result<Self> {
        Ok(Self { text: toml::from_str(text)?, limits_used: BTreeSet::new(), complaints: Vec::new() })
    }

    pub fn complain(&mut self, text: String) {
        if !self.complaints.contains(&text) {
            self.complaints.push(text);
        }
    }

    /// What was complained of, and the rules that were not needed.
    pub fn complaints(self) -> Vec<String> {
        let mut all = self.complaints;
        let text = &self.text;
        let layers = text.layer.iter().map(|rule| ("layer", &rule.functions, rule.uses));
        let leaves = text.leaves.iter().map(|rule| ("leaves", &rule.functions, rule.uses));
        let nevers = text.never.iter().map(|rule| ("never", &rule.from, rule.uses));
        let used = |limit| usize::from(self.limits_used.contains(&limit));
        let most = limits(text).enumerate().map(|(limit, (pattern, _))| ("most", pattern, used(limit)));
        for (kind, pattern, _) in layers.chain(leaves).chain(nevers).chain(most).filter(|(.., uses)| *uses == 0) {
            all.push(format!("[[{kind}]] of '{}' is not needed", pattern.0.as_str()));
        }
        all
    }

    /// A call in the function of this name has no target in the image.
    pub fn leaves(&mut self, name: &str) {
        match self.text.leaves.iter_mut().find(|rule| rule.functions.is_in(name)) {
            Some(rule) => rule.uses += 1,
            None => self.complain(format!(
                "nothing in the image has the type of a call in {name}; if it leaves the image, add it to [[leaves]]"
            )),
        }
    }

    /// Says which circles no rule breaks, and notes the rules that broke others.
    pub fn broke(&mut self, code: &Code, used: &BTreeSet<usize>, unbroken: &[(usize, Vec<u32>)]) {
        self.limits_used.extend(used);
        for (functions, circle) in unbroken {
            let names: Vec<_> = circle.iter().map(|member| code.name(*member)).collect();
            self.complain(format!(
                "no rule breaks the circles of {functions} functions, for example this one:\n    {}",
                names.join("\n    ")
            ));
        }
    }

    /// False if this function does not call that one indirectly, although it has the type.
    pub fn allow(&mut self, names: &BTreeMap<u32, Names>, function: u32, target: u32) -> bool {
        let (names, called) = (names.get(&function), names.get(&target));
        let layers = &mut self.text.layer;
        let here = layers.iter().rposition(|rule| rule.calls.is_in_all(names));
        let there = layers.iter().rposition(|rule| rule.functions.is_in_all(called));
        if let (Some(here), Some(there)) = (here, there) {
            let is_callback = self.text.callbacks.functions.is_in_all(called);
            if if is_callback { here >= there } else { here <= there } {
                layers[there].uses += 1;
                return false;
            }
        }
        let mut nevers = self.text.never.iter_mut().filter(|rule| rule.indirect);
        let never = nevers.find(|rule| rule.from.is_in_all(names) && rule.to.is_in_all(called));
        never.map(|rule| rule.uses += 1).is_none()
    }

    /// Takes out what destructors never do.
    pub fn cut(&mut self, code: &mut Code) {
        let functions: Vec<_> = code.graph.own.keys().copied().collect();
        for rule in self.text.never.iter_mut().filter(|rule| !rule.indirect) {
            let of = |pattern: &Pattern| {
                functions
                    .iter()
                    .copied()
                    .filter(|function| pattern.is_in_all(code.names.get(function)))
                    .collect::<BTreeSet<_>>()
            };
            let (from, to) = (of(&rule.from), of(&rule.to));
            rule.uses += from.into_iter().map(|function| code.graph.cut(function, &to)).sum::<usize>();
        }
    }

    /// The functions that can be only so often on a path.
    pub fn limits(&self, code: &Code) -> Limits {
        let mut all = Limits::default();
        for (limit, (pattern, times)) in limits(&self.text).enumerate() {
            all.times.push(times);
            for function in code.graph.own.keys().filter(|function| pattern.is_in_all(code.names.get(function))) {
                all.of.entry(*function).or_insert(limit);
            }
        }
        all
    }
}

/// A limit of several functions is one of each of them.
fn limits(text: &Text) -> impl Iterator<Item = (&Pattern, u8)> {
    text.most.iter().flat_map(|rule| rule.functions.iter().map(|pattern| (pattern, rule.times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        layer = [{ calls = "inner::", functions = "^inner::" }, { calls = "outer::", functions = "^outer::" }]
        callbacks = { functions = "::called_back$" }
        leaves = [{ functions = "^driver::", reason = "" }]
        never = [{ indirect = true, from = "^(?!thread)", to = "^work$", reason = "" }]
        most = [{ functions = ["^drop", "^other"], times = 2, reason = "" }]
    "#;

    fn names(all: &[&str]) -> BTreeMap<u32, Names> {
        (0..).zip(all).map(|(function, name)| (function, [(*name).to_owned()].into())).collect()
    }

    #[test]
    fn layers_call_inwards_and_call_back_outwards() {
        let names =
            names(&["inner::a", "outer::b", "inner::called_back", "outer::called_back", "thread", "work", "other"]);
        let mut rules = Rules::new(TEXT).expect("rules");
        let mut allow = |from, to| rules.allow(&names, from, to);
        assert!(allow(1, 0), "the outer layer calls the inner one");
        assert!(!allow(0, 1) && !allow(0, 0));
        assert!(allow(0, 3), "the inner layer calls the outer one back");
        assert!(!allow(1, 2) && !allow(1, 3));
        assert!(allow(4, 5) && !allow(6, 5) && allow(6, 0));
        assert!(allow(0, 9), "of a function without a name nothing is known");
    }

    #[test]
    fn every_rule_must_be_needed() {
        let mut rules = Rules::new(TEXT).expect("rules");
        rules.leaves("driver::entry");
        rules.leaves("engine::call");
        rules.leaves("engine::call");
        rules.limits_used.insert(1);
        let complaints = rules.complaints();
        assert!(complaints[0].starts_with("nothing in the image has the type of a call in engine::call;"));
        let expected =
            ["layer]] of '^inner::'", "layer]] of '^outer::'", "never]] of '^(?!thread)'", "most]] of '^drop'"]
                .map(|rule| format!("[[{rule} is not needed"));
        assert_eq!(complaints[1..], expected);
        assert!(Rules::new(&TEXT.replace("^drop", "(")).is_err());
    }
}
