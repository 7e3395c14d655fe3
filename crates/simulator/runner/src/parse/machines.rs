//! A script of several machines.

use toml::{Spanned, Value};

use super::{Result, in_range, interface::prefix, name_of, one, problem, settings, world::World};
use crate::{
    raw,
    script::{Action, NetworkSettings, Node, Script},
};

/// Machines at most.
const MOST: usize = 8;

/// Microseconds that a datagram is under way at most.
const LONGEST_DELAY: i64 = 10_000_000;

/// Reads the machines. An image that stands outside of them is on each, and so are settings of the kernel if a machine has none of its own.
pub fn machines(raw: raw::Script, line: &dyn Fn(usize) -> usize) -> Result<Script> {
    let raw::Script { kernel, image, device, step, machine, network } = raw;
    let alone = device.first().map(|device| (device.span(), "device"));
    if let Some((at, what)) = alone.or_else(|| step.first().map(|step| (step.span(), "step"))) {
        return problem(
            at,
            format!("a `{what}` belongs to a machine: write [[machine.{what}]] behind its [[machine]]"),
        );
    }
    if let Some(more) = machine.get(MOST) {
        return problem(more.span(), format!("there are more than {MOST} machines"));
    }
    let mut script = Script::new(settings(None)?);
    script.network = network.map_or_else(|| Ok(NetworkSettings::default()), |network| between(&network))?;
    // Where the machines meet, as the first one has it.
    let mut first: Option<Vec<String>> = None;
    for raw in machine {
        let at = raw.span();
        let raw = raw.into_inner();
        let name = name_of(raw.name.as_ref(), at.clone())?;
        if script.machines.iter().any(|node| node.name == name) {
            return problem(at, format!("`name`: there is a machine `{name}` already"));
        }
        let mut addresses = Vec::new();
        for text in &raw.addresses {
            let address = prefix(text, "addresses", "192.0.2.1/24")?;
            let other = script.machines.iter().find(|node| node.addresses.iter().any(|(ip, _)| *ip == address.0));
            if let Some(other) = other {
                let words = format!("`addresses`: the machine `{}` has {} too", other.name, address.0);
                return problem(text.span(), words);
            }
            addresses.push(address);
        }
        let of_machine = raw::Script {
            kernel: raw.kernel.or_else(|| kernel.clone()),
            image: image.iter().cloned().chain(raw.image).collect(),
            device: raw.device,
            step: raw.step,
            machine: Vec::new(),
            network: None,
        };
        let node = Node { name, addresses, script: one(of_machine, line, World::of_many())? };
        if node.script.kernel.threads {
            let words = "`threads`: machines of one script have a seed, and take turns; real time they do not have";
            return problem(at, words);
        }
        let barriers = barriers(&node.script);
        let others = first.get_or_insert_with(|| barriers.clone());
        if *others != barriers {
            let words = format!(
                "the machine `{}` has the barriers {}, and `{}` has {}: each has to have the same, in the same order",
                node.name,
                listed(&barriers),
                script.machines[0].name,
                listed(others)
            );
            return problem(at, words);
        }
        script.machines.push(node);
    }
    Ok(script)
}

fn barriers(script: &Script) -> Vec<String> {
    let names = script.steps.iter().filter_map(|step| match &step.action {
        Action::Barrier(name) => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "(none)".to_owned() } else { format!("`{}`", names.join("`, `")) }
}

fn between(raw: &Spanned<raw::Network>) -> Result<NetworkSettings> {
    let raw = raw.get_ref();
    let mut network = NetworkSettings::default();
    if let Some(delay) = &raw.delay {
        network.delay = in_range(delay, "delay", 1, LONGEST_DELAY)?;
    }
    for (place, value, key) in [
        (&mut network.loss, &raw.loss, "loss"),
        (&mut network.double, &raw.double, "double"),
        (&mut network.reorder, &raw.reorder, "reorder"),
        (&mut network.corrupt, &raw.corrupt, "corrupt"),
    ] {
        if let Some(value) = value {
            *place = chance(value, key)?;
        }
    }
    Ok(network)
}

/// Percent, as a number in a million.
fn chance(value: &Spanned<Value>, key: &str) -> Result<u32> {
    let percent = match value.get_ref() {
        Value::Integer(whole) => i32::try_from(*whole).ok().map(f64::from),
        Value::Float(percent) => Some(*percent),
        _ => None,
    };
    let Some(percent) = percent.filter(|percent| (0.0..=100.0).contains(percent)) else {
        return problem(value.span(), format!("`{key}` is {}: percent, from 0 to 100", value.get_ref()));
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million, and not below zero"
    )]
    let in_a_million = (percent * 10_000.0).round() as u32;
    Ok(in_a_million)
}
