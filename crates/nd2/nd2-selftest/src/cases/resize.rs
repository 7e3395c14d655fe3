//! `IND2CompletionQueue::Resize`.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use nd2::abi::{HRESULT, IID_IND2Adapter, ND2_ADAPTER_INFO, adapter_flags::ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED};

use crate::{
    Case, Failure, Schedule, World,
    case::{holds, is, ok},
    stream::{Stream, made},
};

pub const CASES: &[Case] = &[
    Case::new("resize.changes_the_number_of_results", "Resize, summary; remarks 2.1", changes),
    Case::new("resize.success", "Resize, return value 1", changes),
    Case::new("resize.invalid_parameter", "Resize, return value 3", invalid),
    Case::new("resize.device_removed", "Resize, return value 4", removed),
    Case::new("resize.flag_says_supported", "Resize, return value 5", flag),
    Case::new("resize.not_supported", "Resize, return value 5", not_supported),
    Case::new("resize.limits_come_from_query", "Resize, remarks 1", invalid),
    Case::new("resize.below_the_results_is_an_overflow", "Resize, remarks 2.2", below),
    Case::new("resize.loses_nothing", "Resize, remarks 3.1", loses_nothing),
    Case::new("resize.needs_no_quiet", "Resize, remarks 3.2", under_load),
];

fn limits(world: &World) -> Result<ND2_ADAPTER_INFO, Failure> {
    let mut info = ND2_ADAPTER_INFO { InfoVersion: 1, ..Default::default() };
    let mut length = 0x60;
    ok("Query", world.adapter.info(Some(&mut info), &mut length))?;
    Ok(info)
}

fn changes(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 2)?;
    ok("Resize to 4", stream.queue.resize(4))?;
    let numbers = [stream.deliver()?, stream.deliver()?, stream.deliver()?, stream.deliver()?];
    stream.takes(&numbers)?;
    ok("Resize to 1", stream.queue.resize(1))?;
    let number = stream.deliver()?;
    stream.takes(&[number])?;
    Ok("4 results in a queue made for 2, then made for 1".into())
}

fn invalid(world: &World) -> Result<String, Failure> {
    let most = limits(world)?.MaxCompletionQueueDepth;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    is("above the limit", queue.resize(most + 1), HRESULT::ND_INVALID_PARAMETER)?;
    is("zero", queue.resize(0), HRESULT::ND_INVALID_PARAMETER)?;
    ok("the limit", queue.resize(most))?;
    Ok(format!("ND_INVALID_PARAMETER above {most}"))
}

fn removed(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    world.remove(0);
    is("Resize", queue.resize(16), HRESULT::ND_DEVICE_REMOVED)?;
    Ok("ND_DEVICE_REMOVED".into())
}

fn flag(world: &World) -> Result<String, Failure> {
    let flags = limits(world)?.AdapterFlags;
    holds("the flag is set", flags & ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED != 0)?;
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    ok("Resize", queue.resize(9))?;
    Ok("the flag is set, and the method works".into())
}

fn not_supported(world: &World) -> Result<String, Failure> {
    let other = made("the other adapter", world.provider.open(&IID_IND2Adapter, 2))?;
    let mut info = ND2_ADAPTER_INFO { InfoVersion: 1, ..Default::default() };
    ok("Query", other.info(Some(&mut info), &mut 0x60))?;
    holds("the flag is not set", info.AdapterFlags & ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED == 0)?;
    let file = made("its file", other.file())?;
    let queue = made("its queue", other.queue(file, 8, 0))?;
    is("Resize", queue.resize(9), HRESULT::ND_NOT_SUPPORTED)?;
    let queue = made("its queue of version 1", other.queue1(file, 8))?;
    is("Resize", queue.resize(9), HRESULT::ND_NOT_SUPPORTED)?;
    Ok("ND_NOT_SUPPORTED from an adapter without the flag".into())
}

fn below(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 4)?;
    let numbers = [stream.deliver()?, stream.deliver()?, stream.deliver()?];
    is("Resize to 2", stream.queue.resize(2), HRESULT::ND_BUFFER_OVERFLOW)?;
    // Unchanged: there is room for one more, as before.
    let last = stream.deliver()?;
    stream.takes(&[numbers[0], numbers[1], numbers[2], last])?;
    ok("Resize to 2 when empty", stream.queue.resize(2))?;
    Ok("ND_BUFFER_OVERFLOW with 3 results, the queue unchanged".into())
}

fn loses_nothing(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 4)?;
    let mut numbers = Vec::new();
    for depth in [8, 5, 16, 6, 64] {
        numbers.push(stream.deliver()?);
        numbers.push(stream.deliver()?);
        let taken = stream.queue.results(1);
        is("the first", taken.first().map(|result| result.RequestContext.addr()), Some(numbers.remove(0)))?;
        ok("Resize", stream.queue.resize(depth))?;
    }
    stream.takes(&numbers)?;
    Ok("5 resizes with results in the queue, in order and complete".into())
}

fn under_load(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 64)?;
    let threads = world.schedule() == Schedule::Threads;
    let total = if threads { 400 } else { 60 };
    let (done, resizes) = (AtomicBool::new(false), AtomicU32::new(0));
    let (queue, over, count) = (&stream.queue, &done, &resizes);
    let resize = |depth| {
        count.fetch_add(1, Ordering::Relaxed);
        ok("Resize, never below what is queued", queue.resize(depth))
    };
    let numbers = thread::scope(|scope| {
        let worker = threads.then(|| {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    [128, 64, 256, 100].into_iter().try_for_each(resize)?;
                    thread::yield_now();
                }
                Ok::<_, Failure>(())
            })
        });
        let load = || {
            if threads {
                world.until("the first resize", || count.load(Ordering::Relaxed) > 0)?;
            }
            let mut numbers = Vec::new();
            for step in 0..total {
                let posted = stream.deliver()?;
                if !threads {
                    resize(if step % 2 == 0 { 64 } else { 16 })?;
                }
                let taken = stream.queue.results(4);
                numbers.extend(taken.iter().map(|result| result.RequestContext.addr()));
                is("the newest", numbers.last().copied(), Some(posted))?;
            }
            Ok::<_, Failure>(numbers)
        };
        let numbers = load();
        done.store(true, Ordering::Relaxed);
        worker
            .map_or(Ok(Ok(())), thread::ScopedJoinHandle::join)
            .map_err(|_| Failure::new("a thread has panicked"))??;
        numbers
    })?;
    is("all results, in order", numbers, (1..=total).collect())?;
    Ok(format!("{total} messages, {} resizes", resizes.load(Ordering::Relaxed)))
}
