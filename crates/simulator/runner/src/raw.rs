//! A script as TOML has it: everything optional, with the place where it stands.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Script {
    pub kernel: Option<Kernel>,
    #[serde(default)]
    pub image: Vec<Spanned<Image>>,
    #[serde(default)]
    pub device: Vec<Spanned<Device>>,
    #[serde(default)]
    pub step: Vec<Spanned<Step>>,
    #[serde(default)]
    pub machine: Vec<Spanned<Machine>>,
    pub network: Option<Spanned<Network>>,
}

/// One of several machines: what a script has, and what it is called.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Machine {
    pub name: Option<Spanned<String>>,
    #[serde(default)]
    pub addresses: Vec<Spanned<String>>,
    pub kernel: Option<Kernel>,
    #[serde(default)]
    pub image: Vec<Spanned<Image>>,
    #[serde(default)]
    pub device: Vec<Spanned<Device>>,
    #[serde(default)]
    pub step: Vec<Spanned<Step>>,
}

/// The network between machines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    pub delay: Option<Spanned<i64>>,
    pub loss: Option<Spanned<Value>>,
    pub double: Option<Spanned<Value>>,
    pub reorder: Option<Spanned<Value>>,
    pub corrupt: Option<Spanned<Value>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    pub processors: Option<Spanned<i64>>,
    pub preemption: Option<Spanned<i64>>,
    pub threads: Option<bool>,
    pub datagrams: Option<Spanned<String>>,
    pub files: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Image {
    pub name: Option<Spanned<String>>,
    pub file: Option<Spanned<String>>,
    pub service: Option<Spanned<String>>,
    #[serde(default)]
    pub registry: BTreeMap<String, Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Device {
    pub name: Option<Spanned<String>>,
    pub image: Option<Spanned<String>>,
    pub kind: Option<Spanned<String>>,
    #[serde(default)]
    pub filters: Vec<Spanned<String>>,
    #[serde(default)]
    pub keywords: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub addresses: Vec<Spanned<String>>,
    pub index: Option<Spanned<i64>>,
    pub luid: Option<Spanned<i64>>,
    pub alias: Option<Spanned<String>>,
    pub mac: Option<Spanned<String>>,
    #[serde(default)]
    pub routes: Vec<Spanned<String>>,
    #[serde(default)]
    pub memory: Vec<Spanned<i64>>,
    pub interrupts: Option<Spanned<i64>>,
}

impl Device {
    /// Returns true if it has what only a NIC has.
    pub fn is_of_nic(&self) -> bool {
        let has_place = self.index.is_some() || self.luid.is_some() || self.alias.is_some() || self.mac.is_some();
        has_place || !(self.keywords.is_empty() && self.addresses.is_empty() && self.routes.is_empty())
    }
}

/// Every key that a step can have, whatever it does.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Step {
    #[serde(rename = "do")]
    pub action: Option<Spanned<String>>,
    pub image: Option<Spanned<String>>,
    pub device: Option<Spanned<String>>,
    pub file: Option<Spanned<String>>,
    pub link: Option<Spanned<String>>,
    pub path: Option<Spanned<String>>,
    pub request: Option<Spanned<String>>,
    pub code: Option<Spanned<i64>>,
    pub input: Option<Spanned<Vec<Spanned<Part>>>>,
    pub output: Option<Spanned<i64>>,
    pub offset: Option<Spanned<i64>>,
    pub expect: Option<Spanned<Vec<Spanned<Part>>>>,
    pub status: Option<Spanned<Value>>,
    pub state: Option<Spanned<String>>,
    pub message: Option<Spanned<i64>>,
    pub microseconds: Option<Spanned<i64>>,
    pub name: Option<Spanned<String>>,
    pub socket: Option<Spanned<String>>,
    pub listener: Option<Spanned<String>>,
    pub at: Option<Spanned<String>>,
    pub from: Option<Spanned<String>>,
    pub to: Option<Spanned<String>>,
}

/// A part of an input: exactly one key.
pub type Part = BTreeMap<String, Value>;
