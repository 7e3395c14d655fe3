//! Getting completions (`NDKPI 3.5`, `3.6`, `7.1.8`, `7.1.9`).

use alloc::vec::Vec;

use ndkpi::{NDK_OP_FLAG_SILENT_SUCCESS, NDK_OPERATION_TYPE as Type, NDK_VERSION, NtStatus};

use crate::{
    case::{Case, HELD, Verdict},
    client::Session,
    fixture::{Pair, Plan, QP_A, QP_B, is_success},
};

pub const CASES: &[Case] = &[
    Case::new("results.empty", "NDKPI 5.4", "Gets results of an empty queue.", "0.", empty),
    Case::new(
        "results.none-asked",
        "NDKPI 5.4",
        "Gets no results, with nResults 0, from a queue that has some.",
        "0, and nothing is removed.",
        none_asked,
    ),
    Case::new(
        "results.fewer-than-there-are",
        "NDKPI 7.1.8",
        "Gets seven completions in steps of 1, 2 and 4.",
        "Each call gives as many as it asks for, in order.",
        fewer_than_there_are,
    ),
    Case::new(
        "results.more-than-there-are",
        "NDKPI 7.1.8",
        "Asks for sixteen completions when there are five.",
        "5, then 0.",
        more_than_there_are,
    ),
    Case::new(
        "results.contexts",
        "NDKPI 3.5",
        "Completes sends and receives with contexts that use all bits.",
        "Each completion carries the contexts of its queue pair and its request.",
        contexts,
    ),
    Case::new(
        "results.kinds",
        "NDKPI 2.2",
        "Completes a send, a receive, a write and a read.",
        "Each completion has the type of its request.",
        kinds,
    ),
    Case::new(
        "results.bytes-received",
        "NDKPI 3.5",
        "Receives messages of 0, 1, 15, 16, 17 and 4096 bytes into larger buffers.",
        "BytesTransferred of the receive is the length of the message.",
        bytes_received,
    ),
    Case::new(
        "results.error-code-is-zero-on-success",
        "NDKPI 3.6",
        "Completes sends, receives, reads and writes.",
        "ProviderErrorCode is 0.",
        error_code_is_zero_on_success,
    ),
    Case::new(
        "results.order-of-receives",
        "NDKPI 7.1.8",
        "Posts receives and sends in rounds of random length.",
        "Receives complete in the order of posting, with the messages in the order of sending.",
        order_of_receives,
    ),
    Case::new(
        "results.order-of-initiator-requests",
        "NDKPI 7.1.8",
        "Posts sends, writes and reads of random lengths in one queue, some of them silent.",
        "They complete in the order of posting.",
        order_of_initiator_requests,
    ),
    //= NDKPI 7.1.9
    Case::new(
        "results.mixed-calls",
        "NDKPI 7.1.9",
        "Gets completions by NdkGetCqResults and NdkGetCqResultsEx in turn.",
        "Both take from the same queue: every completion comes once, in order.",
        mixed_calls,
    ),
    Case::new(
        "results.after-the-queue-pair-is-closed",
        "NDKPI 7.1.8",
        "Lets receives complete, closes the queue pair, then polls.",
        "Open: whether the entries are still there. If they are, they carry their contexts.",
        after_the_queue_pair_is_closed,
    ),
];

fn empty(s: &Session<'_>) -> Verdict {
    let cq = s.adapter()?.create_cq(8, None)?;
    for _ in 0..3 {
        ensure_eq!(cq.poll_plain(8, |_| {})?, 0, "NdkGetCqResults of an empty queue");
        ensure_eq!(cq.poll(8)?.len(), 0, "NdkGetCqResultsEx of an empty queue");
    }
    HELD
}

fn none_asked(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    pair.deliver(1, false)?;
    s.settle();
    ensure_eq!(cq.poll_plain(0, |_| {})?, 0, "NdkGetCqResults for no results");
    ensure_eq!(cq.poll(0)?.len(), 0, "NdkGetCqResultsEx for no results");
    pair.b.receive_done(1)?;
    HELD
}

fn fewer_than_there_are(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..7 {
        pair.deliver(number, false)?;
    }
    s.settle();
    let mut all = Vec::new();
    for count in [1, 2, 4] {
        ensure_eq!(pair.b.receive_cq.poll_into(count, &mut all)?, count, "results of a call for {count}");
    }
    for (number, done) in all.iter().enumerate() {
        is_success(done, number)?;
    }
    ensure_eq!(pair.b.receive_cq.poll(1)?.len(), 0, "results of the call after the last");
    HELD
}

fn more_than_there_are(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..5 {
        pair.deliver(number, false)?;
    }
    s.settle();
    ensure_eq!(pair.b.receive_cq.poll(16)?.len(), 5, "results of a call for 16 when there are 5");
    ensure_eq!(pair.b.receive_cq.poll(16)?.len(), 0, "results of the call after that");
    HELD
}

fn contexts(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for context in [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678_9ABC_DEF0, usize::MAX] {
        pair.deliver(context, false)?;
        let done = pair.b.receive_done(context)?;
        ensure_eq!(done.qp, QP_B, "context of the receiving queue pair");
        pair.a.receive(!context, 0, 64)?;
        pair.b.send(!context, 0, 16, 0)?;
        ensure_eq!(pair.b.initiator_done(!context)?.qp, QP_B, "context of the sending queue pair");
        ensure_eq!(pair.a.receive_done(!context)?.qp, QP_A, "context of the receiving queue pair");
    }
    HELD
}

fn kinds(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 64)?;
    pair.a.send(1, 0, 16, 0)?;
    ensure_eq!(pair.a.initiator_done(1)?.kind, Some(Type::SEND), "type of a send");
    ensure_eq!(pair.b.receive_done(1)?.kind, Some(Type::RECEIVE), "type of a receive");
    pair.a.write(2, 0, 16, pair.b.remote(0), 0)?;
    ensure_eq!(pair.a.initiator_done(2)?.kind, Some(Type::WRITE), "type of a write");
    pair.a.read(3, 0, 16, pair.b.remote(0), 0)?;
    ensure_eq!(pair.a.initiator_done(3)?.kind, Some(Type::READ), "type of a read");
    HELD
}

fn bytes_received(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for length in [0, 1, 15, 16, 17, 4096] {
        pair.b.receive(1, 0, 8192)?;
        pair.a.send(1, 0, length, 0)?;
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, length, "BytesTransferred of a message of {length} bytes");
    }
    HELD
}

fn error_code_is_zero_on_success(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V2_1)?;
    let pair = Pair::new(s)?;
    pair.deliver(1, true)?;
    ensure_eq!(pair.b.receive_done(1)?.error, Some(0), "ProviderErrorCode of a receive");
    pair.a.write(2, 0, 16, pair.b.remote(0), 0)?;
    ensure_eq!(pair.a.initiator_done(2)?.error, Some(0), "ProviderErrorCode of a write");
    pair.a.read(3, 0, 16, pair.b.remote(0), 0)?;
    ensure_eq!(pair.a.initiator_done(3)?.error, Some(0), "ProviderErrorCode of a read");
    HELD
}

fn order_of_receives(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mut random = s.random();
    let mut number = 0;
    for _ in 0..40 {
        let count = 1 + random.below(15) as usize;
        for request in number..number + count {
            pair.b.receive(request, 0, 256)?;
        }
        for request in number..number + count {
            // The length tells the messages apart.
            pair.a.send(request, 0, (request % 251) as u32, 0)?;
        }
        pair.a.initiated().take(count)?;
        for (request, done) in (number..).zip(pair.b.receive_cq.take(count)?) {
            is_success(&done, request)?;
            ensure_eq!(done.bytes as usize, request % 251, "length of message {request}");
        }
        number += count;
    }
    HELD
}

fn order_of_initiator_requests(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mut random = s.random();
    let mut number = 0;
    for _ in 0..40 {
        let count = 1 + random.below(15) as usize;
        let mut signalled = Vec::new();
        if signalled.try_reserve(count).is_err() {
            inconclusive!("no memory for the case");
        }
        let mut receives = 0;
        for request in number..number + count {
            let length = random.below(4096);
            let last = request + 1 == number + count;
            let flags = if random.chance(30) && !last { NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
            match random.below(3) {
                0 => {
                    pair.b.receive(request, 4096, 4096)?;
                    receives += 1;
                    pair.a.send(request, 0, length, flags)?;
                }
                1 => pair.a.write(request, 0, length, pair.b.remote(0), flags)?,
                _ => pair.a.read(request, 4096, length, pair.b.remote(0), flags)?,
            }
            if flags == 0 {
                signalled.push(request);
            }
        }
        for (request, done) in signalled.iter().zip(pair.a.initiated().take(signalled.len())?) {
            is_success(&done, *request)?;
        }
        pair.b.receive_cq.take(receives)?;
        number += count;
    }
    HELD
}

fn mixed_calls(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    for number in 0..16 {
        pair.deliver(number, number % 2 == 0)?;
    }
    s.settle();
    let mut all = Vec::new();
    if all.try_reserve(16).is_err() {
        inconclusive!("no memory for the case");
    }
    for count in [1, 2, 3, 2] {
        ensure_eq!(cq.poll_plain(count, |done| all.push(done))?, count, "results of NdkGetCqResults");
        ensure_eq!(cq.poll_into(count, &mut all)?, count, "results of NdkGetCqResultsEx");
    }
    for (number, done) in all.iter().enumerate() {
        is_success(done, number)?;
        ensure_eq!(done.bytes, 16, "BytesTransferred");
    }
    cq.stays_empty()?;
    HELD
}

fn after_the_queue_pair_is_closed(s: &Session<'_>) -> Verdict {
    let plan = Plan::new();
    let pair = Pair::with(s, &plan, &plan)?;
    for number in 0..3 {
        pair.deliver(number, false)?;
    }
    s.settle();
    let Pair { link, a, b } = pair;
    link.b.close()?;
    b.qp.close()?;
    let left = b.receive_cq.poll(16)?;
    for (number, done) in left.iter().enumerate() {
        ensure!(done.status == NtStatus::SUCCESS && done.request == number, "completion {number} is {done:?}");
        ensure_eq!(done.qp, QP_B, "context of the closed queue pair");
    }
    drop((link.a, a));
    observed!("{} of 3 entries are still there", left.len())
}
