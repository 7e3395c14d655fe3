//! `IND2CompletionQueue::GetNotifyAffinity`.

use std::ptr;

use nd2::abi::HRESULT;

use crate::{
    Case, Failure, World,
    case::{holds, is},
    stream::made,
};

pub const CASES: &[Case] = &[
    Case::new("affinity.is_the_one_asked_for", "GetNotifyAffinity, summary", asked_for),
    Case::new("affinity.group_is_zero_without_groups", "GetNotifyAffinity, parameters 1", asked_for),
    Case::new("affinity.is_a_bitmap", "GetNotifyAffinity, parameters 2", bitmap),
    Case::new("affinity.success", "GetNotifyAffinity, return value 1", asked_for),
    Case::new("affinity.invalid_parameter", "GetNotifyAffinity, return value 3", invalid),
    Case::new("affinity.device_removed", "GetNotifyAffinity, return value 4", removed),
    Case::new("affinity.is_told_when_not_asked_for", "GetNotifyAffinity, implementation notes 1", told),
    Case::new("affinity.unknown_processors_are_ignored", "GetNotifyAffinity, implementation notes 1", unknown),
];

fn asked_for(world: &World) -> Result<String, Failure> {
    for mask in [1, 2] {
        let queue = made("the queue", world.adapter.queue(world.file, 8, mask))?;
        is("group and affinity", queue.affinity(), Ok((0, mask)))?;
    }
    Ok("group 0 and the processor asked for".into())
}

fn bitmap(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 3))?;
    let (_, mask) = made("GetNotifyAffinity", queue.affinity())?;
    holds("one of the two processors", mask == 1 || mask == 2)?;
    Ok(format!("of processors 0 and 1: {mask:#b}"))
}

fn invalid(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let (mut group, mut mask) = (7, 7);
    is("no group", queue.affinity_into(ptr::null_mut(), &raw mut mask), HRESULT::ND_INVALID_PARAMETER)?;
    is("no affinity", queue.affinity_into(&raw mut group, ptr::null_mut()), HRESULT::ND_INVALID_PARAMETER)?;
    is("what was left alone", (group, mask), (7, 7))?;
    Ok("ND_INVALID_PARAMETER for either null pointer".into())
}

fn removed(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    world.remove(0);
    is("GetNotifyAffinity", queue.affinity(), Err(HRESULT::ND_DEVICE_REMOVED))?;
    Ok("ND_DEVICE_REMOVED".into())
}

fn told(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let (group, mask) = made("GetNotifyAffinity", queue.affinity())?;
    is("group", group, 0)?;
    is("processors", mask.count_ones(), 1)?;
    Ok(format!("{mask:#b}, where 0 was asked for"))
}

fn unknown(world: &World) -> Result<String, Failure> {
    // No host's machine has this processor.
    let queue = made("the queue", world.adapter.queue(world.file, 8, 1 << 63))?;
    let (_, mask) = made("GetNotifyAffinity", queue.affinity())?;
    holds("another processor", mask != 1 << 63)?;
    Ok(format!("{mask:#b}"))
}
