//! Moving bytes: messages, inline data, and receives that are too small (`NDKPI 7.3`).

use ndkpi::NtStatus;

use crate::{
    case::{Case, HELD, Verdict},
    client::Session,
    fixture::{Pair, Plan, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "transfer.bytes-arrive",
        "NDKPI 7.3",
        "Sends messages of 1 byte to 8 KiB, at odd addresses, to odd addresses.",
        "The receiver has the bytes, and those around them are as they were.",
        bytes_arrive,
    ),
    Case::new(
        "transfer.elements-of-different-sizes",
        "NDKPI 7.3",
        "Sends from 3, 2 and 1 elements into 1, 2 and 4 elements of other sizes, some of them empty.",
        "The bytes arrive one after the other.",
        elements_of_different_sizes,
    ),
    Case::new(
        "transfer.large",
        "NDKPI 7.3",
        "Sends, writes and reads a megabyte and some bytes.",
        "The bytes arrive.",
        large,
    ),
    Case::new(
        "transfer.large-beside-small",
        "NDKPI 7.3",
        "Writes megabytes over one connection while another one carries small sends.",
        "All complete with the right bytes.",
        large_beside_small,
    ),
    Case::new(
        "transfer.receive-exactly-as-long",
        "NDKPI 7.3",
        "Sends a message that fills its receive exactly.",
        "Both succeed.",
        receive_exactly_as_long,
    ),
    //= NDKPI 7.3.11
    Case::new(
        "transfer.receive-too-small",
        "NDKPI 7.3",
        "Sends a message that is one byte longer than its receive.",
        "Both requests fail, the receive with STATUS_BUFFER_OVERFLOW; no byte lies behind the receive's elements.",
        receive_too_small,
    ),
    Case::new(
        "transfer.after-a-failure",
        "NDKPI 7.2",
        "Breaks a connection by a send that is too long, with more requests posted on both sides.",
        "None of them succeeds.",
        after_a_failure,
    ),
    //= NDKPI 7.3.7
    Case::new(
        "transfer.inline-is-taken-at-once",
        "NDKPI 7.3",
        "Overwrites inline data as soon as the post has returned.",
        "The message has the bytes as they were.",
        inline_is_taken_at_once,
    ),
    Case::new(
        "transfer.inline-limit",
        "NDKPI 7.3",
        "Sends inline data that is as long as the queue pair allows, and one byte longer.",
        "The first arrives; the second is not posted. Open: the status.",
        inline_limit,
    ),
    //= NDKPI 7.3.7
    Case::new(
        "transfer.inline-lifts-the-element-limit",
        "NDKPI 7.3",
        "Sends inline data in more pieces than the queue pair allows elements.",
        "It is posted and arrives.",
        inline_lifts_the_element_limit,
    ),
    Case::new("transfer.inline-write", "NDKPI 8 #3", "Writes inline data.", "It arrives.", inline_write),
    Case::new(
        "transfer.inline-of-nothing",
        "NDKPI 7.3",
        "Sends inline data of no bytes.",
        "A message of no bytes arrives.",
        inline_of_nothing,
    ),
    Case::new(
        "transfer.both-directions",
        "NDKPI 7.2",
        "Sends in both directions of one connection at the same time.",
        "Everything arrives, in order.",
        both_directions,
    ),
    //= NDKPI 7.2.7
    Case::new(
        "transfer.receives-come-late",
        "NDKPI 7.2",
        "Sends before the peer has posted receives.",
        "Open: whether the sends wait. If they do, all arrive in order.",
        receives_come_late,
    ),
];

fn bytes_arrive(s: &Session<'_>) -> Verdict {
    let plan = Plan { bytes: 32 << 10, ..Plan::new() };
    let pair = Pair::with(s, &plan, &plan)?;
    for (seed, length) in (1_u8..).zip([1_usize, 2, 3, 7, 63, 64, 65, 255, 511, 1023, 4095, 4096, 4097, 8191, 8192]) {
        let (from, to) = (usize::from(seed) * 3 + 1, usize::from(seed) * 5 + 2);
        pair.a.region.buffer.fill_pattern(from, length, seed)?;
        pair.b.region.buffer.fill(0, 32 << 10, 0xEE)?;
        let size = u32::try_from(length).unwrap_or(0);
        pair.b.receive(1, to as isize, size + 100)?;
        pair.a.send(1, from as isize, size, 0)?;
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, size, "bytes received");
        pair.b.region.buffer.has_pattern(to, length, seed)?;
        pair.b.region.buffer.is_filled(0, to, 0xEE)?;
        pair.b.region.buffer.is_filled(to + length, (32 << 10) - to - length, 0xEE)?;
    }
    HELD
}

fn elements_of_different_sizes(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let shapes: [(&[u32], &[u32]); 5] = [
        (&[100, 200, 300], &[600]),
        (&[600], &[1, 598, 1]),
        (&[1, 599], &[300, 0, 300, 50]),
        (&[0, 600, 0], &[599, 0, 1]),
        (&[150, 150, 150, 150], &[200, 200, 200]),
    ];
    let info = s.info()?;
    let (most, most_of_receive) = (info.MaxInitiatorRequestSge as usize, info.MaxReceiveRequestSge as usize);
    for (seed, (from, to)) in (1_u8..).zip(shapes) {
        // Of an adapter with fewer elements the shapes are looked at that it can have.
        if from.len() > most || to.len() > most_of_receive {
            continue;
        }
        pair.a.region.buffer.fill_pattern(0, 600, seed)?;
        pair.b.region.buffer.fill(0, 8192, 0)?;
        // The elements of a side follow each other, so the bytes do as well.
        let mut lists = [[pair.a.region.element(0, 0); 4], [pair.b.region.element(0, 0); 4]];
        for (side, (list, sizes)) in lists.iter_mut().zip([from, to]).enumerate() {
            let region = if side == 0 { &pair.a.region } else { &pair.b.region };
            let mut at = 0;
            for (element, size) in list.iter_mut().zip(sizes) {
                *element = region.element(at, *size);
                at += *size as isize;
            }
        }
        posted("NdkReceive", pair.b.qp.receive(1, &lists[1][..to.len()])?)?;
        posted("NdkSend", pair.a.qp.send(1, &lists[0][..from.len()], 0)?)?;
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, 600, "bytes received");
        pair.b.region.buffer.has_pattern(0, 600, seed)?;
        pair.b.region.buffer.is_filled(600, 1000, 0)?;
    }
    HELD
}

fn large(s: &Session<'_>) -> Verdict {
    const LENGTH: usize = (1 << 20) + 123;
    let size = u32::try_from(LENGTH).unwrap_or(0);
    if s.info()?.MaxTransferLength < size {
        skip!("MaxTransferLength is {}", s.info()?.MaxTransferLength);
    }
    let plan = Plan { bytes: LENGTH, ..Plan::new() };
    let pair = Pair::with(s, &plan, &plan)?;
    let (from, to) = (pair.a.region.buffer, pair.b.region.buffer);
    from.fill_pattern(0, LENGTH, 1)?;
    pair.b.receive(1, 0, size)?;
    pair.a.send(1, 0, size, 0)?;
    pair.a.initiator_done(1)?;
    pair.b.receive_done(1)?;
    to.has_pattern(0, LENGTH, 1)?;
    from.fill_pattern(0, LENGTH, 2)?;
    pair.a.write(2, 0, size, pair.b.remote(0), 0)?;
    pair.a.initiator_done(2)?;
    to.has_pattern(0, LENGTH, 2)?;
    to.fill_pattern(0, LENGTH, 3)?;
    pair.a.read(3, 0, size, pair.b.remote(0), 0)?;
    pair.a.initiator_done(3)?;
    from.has_pattern(0, LENGTH, 3)?;
    HELD
}

fn large_beside_small(s: &Session<'_>) -> Verdict {
    const LENGTH: usize = 1 << 20;
    let size = u32::try_from(LENGTH).unwrap_or(0).min(s.info()?.MaxTransferLength);
    let plan = Plan { bytes: LENGTH, ..Plan::new() };
    let (large, small) = (Pair::with(s, &plan, &plan)?, Pair::new(s)?);
    large.a.region.buffer.fill_pattern(0, LENGTH, 7)?;
    for number in 0..8 {
        large.a.write(number, 0, size, large.b.remote(0), 0)?;
    }
    for number in 0..50 {
        small.deliver(number, false)?;
        small.b.receive_done(number)?;
    }
    for number in 0..8 {
        large.a.initiator_done(number)?;
    }
    large.b.region.buffer.has_pattern(0, size as usize, 7)?;
    HELD
}

fn receive_exactly_as_long(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for length in [1, 100, 4096] {
        pair.b.receive(1, 0, length)?;
        pair.a.send(1, 0, length, 0)?;
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, length, "bytes received");
    }
    HELD
}

fn receive_too_small(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 8192, 0xEE)?;
    pair.b.receive(1, 100, 64)?;
    pair.a.send(2, 0, 65, 0)?;
    let received = pair.b.receive_cq.take_one()?;
    ensure_eq!(received.status, NtStatus::BUFFER_OVERFLOW, "status of the receive");
    let sent = pair.a.initiated().take_one()?;
    ensure!(!sent.status.is_success(), "the send of a message that is too long succeeded");
    pair.b.region.buffer.is_filled(0, 100, 0xEE)?;
    pair.b.region.buffer.is_filled(164, 8192 - 164, 0xEE)?;
    HELD
}

fn after_a_failure(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..4 {
        pair.b.receive(number, 0, 64)?;
        pair.a.receive(number, 0, 64)?;
    }
    pair.a.send(0, 0, 65, 0)?;
    for number in 1..4 {
        // The connection may be broken already: then they are not posted.
        let _ = pair.a.qp.send(number, &[pair.a.region.element(0, 16)], 0)?;
    }
    s.settle();
    let _ = pair.b.qp.send(9, &[pair.b.region.element(0, 16)], 0)?;
    pair.a.qp.flush()?;
    pair.b.qp.flush()?;
    s.settle();
    for cq in [pair.a.initiated(), pair.b.initiated(), pair.a.receive_cq.core(), pair.b.receive_cq.core()] {
        for done in cq.poll(16)? {
            ensure!(!done.status.is_success(), "a request of a broken connection succeeded: {done:?}");
        }
    }
    HELD
}

fn inline_is_taken_at_once(s: &Session<'_>) -> Verdict {
    s.need_inline(40)?;
    let pair = Pair::new(s)?;
    for round in 0..50_u8 {
        pair.b.receive(1, 0, 64)?;
        let mut bytes = [round; 40];
        posted("NdkSend", pair.a.qp.send_inline(1, &[&bytes], 0)?)?;
        bytes.fill(0xFF);
        let _ = core::hint::black_box(&mut bytes);
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, 40, "bytes received");
        pair.b.region.buffer.is_filled(0, 40, round)?;
    }
    HELD
}

fn inline_limit(s: &Session<'_>) -> Verdict {
    let limit = s.info()?.MaxInlineDataSize.min(64) as usize;
    if limit == 0 {
        skip!("MaxInlineDataSize is 0");
    }
    let pair = Pair::new(s)?;
    let bytes = [0x5A; 65];
    pair.b.receive(1, 0, 128)?;
    posted("NdkSend", pair.a.qp.send_inline(1, &[&bytes[..limit]], 0)?)?;
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes as usize, limit, "bytes received");
    let status = pair.a.qp.send_inline(2, &[&bytes[..=limit]], 0)?;
    ensure!(!status.is_success(), "{} inline bytes were posted to a queue pair for {limit}", limit + 1);
    pair.deliver(3, false)?;
    pair.b.receive_done(3)?;
    observed!("inline data that is too long gets {status}")
}

fn inline_lifts_the_element_limit(s: &Session<'_>) -> Verdict {
    s.need_inline(30)?;
    let mut plan = Plan::new();
    plan.sizes.initiator_sge = 1;
    let pair = Pair::with(s, &plan, &Plan::new())?;
    pair.a.region.buffer.fill_pattern(0, 30, 4)?;
    let mut bytes = [0; 30];
    pair.a.region.buffer.read(0, &mut bytes)?;
    let pieces: [&[u8]; 10] = core::array::from_fn(|index| &bytes[index * 3..index * 3 + 3]);
    pair.b.receive(1, 0, 64)?;
    posted("NdkSend", pair.a.qp.send_inline(1, &pieces, 0)?)?;
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes, 30, "bytes received");
    pair.b.region.buffer.has_pattern(0, 30, 4)?;
    HELD
}

fn inline_write(s: &Session<'_>) -> Verdict {
    s.need_inline(20)?;
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 100, 0xEE)?;
    posted("NdkWrite", pair.a.qp.write_inline(1, &[&[1; 8], &[1; 12]], pair.b.remote(10), 0)?)?;
    pair.a.initiator_done(1)?;
    pair.b.region.buffer.is_filled(10, 20, 1)?;
    pair.b.region.buffer.is_filled(0, 10, 0xEE)?;
    pair.b.region.buffer.is_filled(30, 70, 0xEE)?;
    HELD
}

fn inline_of_nothing(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 64)?;
    posted("NdkSend", pair.a.qp.send_inline(1, &[&[]], 0)?)?;
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes, 0, "bytes received");
    HELD
}

fn both_directions(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for _ in 0..20 {
        for number in 0..10 {
            pair.a.receive(number, 4096, 64)?;
            pair.b.receive(number, 4096, 64)?;
        }
        for number in 0..10 {
            pair.a.send(number, 0, number as u32, 0)?;
            pair.b.send(number, 0, 60 - number as u32, 0)?;
        }
        for number in 0..10 {
            pair.a.initiator_done(number)?;
            pair.b.initiator_done(number)?;
            ensure_eq!(pair.b.receive_done(number)?.bytes, number as u32, "bytes received by the passive side");
            ensure_eq!(pair.a.receive_done(number)?.bytes, 60 - number as u32, "bytes received by the active side");
        }
    }
    HELD
}

fn receives_come_late(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..5 {
        pair.a.send_unready(number, 0, 1 + number as u32, 0)?;
    }
    s.settle();
    let early = pair.a.initiated().poll(5)?;
    if let Some(done) = early.first() {
        return observed!("the first send completes with {}", done.status);
    }
    for number in 0..5 {
        pair.b.receive(number, 0, 64)?;
    }
    for number in 0..5 {
        pair.a.initiator_done(number)?;
        ensure_eq!(pair.b.receive_done(number)?.bytes, 1 + number as u32, "bytes received");
    }
    observed!("the sends wait")
}
