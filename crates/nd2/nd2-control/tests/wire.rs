//! The structures have the bytes that their verbs' documentation says: programs and drivers of different builds meet.

use nd2_control::wire::{
    Accept, Access, AdapterAddress, AdapterInfo, Bind, BindAddress, Completion, Connect, CreateCompletionQueue,
    CreateQueuePair, CreateQueuePairWithShared, CreateSharedReceiveQueue, Element, GetConnectionRequest, Handle,
    Invalidate, Listen, Modify, Notify, Post, Processors, Reads, Register, Resize, Send, SendAndInvalidate, Token,
    Tokens, Word, all, answer, begin,
};
use ndkpi::NtStatus;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Numbers of these widths in a row, little-endian: the first is 1, the second 2, and so on.
fn row(widths: &[usize]) -> Vec<u8> {
    widths.iter().zip(1_u64..).flat_map(|(width, number)| number.to_le_bytes().into_iter().take(*width)).collect()
}

/// The bytes are read as the structure, whose fields are numbered in the order of their declaration, and written again.
#[track_caller]
fn is<T>(bytes: &[u8], numbered: &T)
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + PartialEq + std::fmt::Debug,
{
    assert_eq!(all::<T>(bytes), Ok(numbered));
    assert_eq!(numbered.as_bytes(), bytes);
    let mut room = vec![0xEE; bytes.len() + 1];
    assert_eq!(answer(&mut room, numbered), Ok(bytes.len()));
    assert_eq!(&room[..bytes.len()], bytes);
    // Neither shorter nor longer.
    assert_eq!(all::<T>(&room), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(all::<T>(&bytes[1..]), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(begin::<T>(&room), Ok((numbered, &[0xEE][..])));
    assert_eq!(answer(&mut room[2..], numbered), Err(NtStatus::BUFFER_TOO_SMALL));
}

const PROCESSORS: [usize; 2] = [4, 8];

#[test]
fn objects_and_queues() {
    is(&row(&[8]), &Handle { object: 1.into() });
    is(&row(&[8, 4, 4, 8]), &CreateCompletionQueue { adapter: 1.into(), depth: 2.into(), processors: processors(3) });
    is(&row(&PROCESSORS), &processors(1));
    is(&row(&[8, 4]), &Resize { queue: 1.into(), depth: 2.into() });
    is(&row(&[8, 4]), &Notify { queue: 1.into(), kind: 2.into() });
    is(&row(&[8, 4, 4]), &Modify { queue: 1.into(), depth: 2.into(), threshold: 3.into() });
    is(
        &row(&[8, 4, 4, 4, 4, 8]),
        &CreateSharedReceiveQueue {
            adapter: 1.into(),
            depth: 2.into(),
            elements: 3.into(),
            threshold: 4.into(),
            processors: processors(5),
        },
    );
    is(
        &row(&[4, 4, 8, 8, 4]),
        &Completion {
            status: 1.into(),
            bytes: 2.into(),
            queue_pair_context: 3.into(),
            request_context: 4.into(),
            kind: 5.into(),
        },
    );
}

fn processors(first: u32) -> Processors {
    Processors { group: first.into(), affinity: u64::from(first + 1).into() }
}

#[test]
fn what_an_adapter_says() {
    let widths = [&[4, 2, 2, 8, 8, 8][..], &[4; 16]].concat();
    let bytes = row(&widths);
    assert_eq!(bytes.len(), 96);
    is(
        &bytes,
        &AdapterInfo {
            info_version: 1.into(),
            vendor_id: 2.into(),
            device_id: 3.into(),
            adapter_id: 4.into(),
            max_registration_size: 5.into(),
            max_window_size: 6.into(),
            max_initiator_sge: 7.into(),
            max_receive_sge: 8.into(),
            max_read_sge: 9.into(),
            max_transfer_length: 10.into(),
            max_inline_data_size: 11.into(),
            max_inbound_read_limit: 12.into(),
            max_outbound_read_limit: 13.into(),
            max_receive_queue_depth: 14.into(),
            max_initiator_queue_depth: 15.into(),
            max_shared_receive_queue_depth: 16.into(),
            max_completion_queue_depth: 17.into(),
            inline_request_threshold: 18.into(),
            large_request_threshold: 19.into(),
            max_caller_data: 20.into(),
            max_callee_data: 21.into(),
            adapter_flags: 22.into(),
        },
    );
    let address = [7; 28];
    is(&[&row(&[8])[..], &address].concat(), &AdapterAddress { adapter: 1.into(), address });
    is(&[&row(&[4])[..], &[7; 16]].concat(), &Word { version: 1.into(), key: [7; 16] });
}

#[test]
fn memory() {
    is(&row(&[8, 8, 4]), &Register { region: 1.into(), address: 2.into(), flags: 3.into() });
    is(&row(&[4, 4]), &Tokens { local: 1.into(), remote: 2.into() });
    is(&row(&[4]), &Token { remote: 1.into() });
}

#[test]
fn queue_pairs_and_their_requests() {
    is(
        &row(&[8, 8, 8, 8, 4, 4, 4, 4, 4]),
        &CreateQueuePair {
            adapter: 1.into(),
            receive_queue: 2.into(),
            initiator_queue: 3.into(),
            context: 4.into(),
            receive_depth: 5.into(),
            initiator_depth: 6.into(),
            receive_elements: 7.into(),
            initiator_elements: 8.into(),
            inline_bytes: 9.into(),
        },
    );
    is(
        &row(&[8, 8, 8, 8, 8, 4, 4, 4]),
        &CreateQueuePairWithShared {
            adapter: 1.into(),
            receive_queue: 2.into(),
            initiator_queue: 3.into(),
            shared: 4.into(),
            context: 5.into(),
            initiator_depth: 6.into(),
            initiator_elements: 7.into(),
            inline_bytes: 8.into(),
        },
    );
    let post = Post { queue: 1.into(), context: 2.into() };
    is(&row(&[8, 8]), &post);
    is(&row(&[8, 8, 4]), &Send { post, flags: 3.into() });
    is(&row(&[8, 8, 4, 4]), &SendAndInvalidate { post, token: 3.into(), flags: 4.into() });
    is(&row(&[8, 8, 8, 4, 4]), &Access { post, address: 3.into(), token: 4.into(), flags: 5.into() });
    is(&row(&[8, 4, 4]), &Element { address: 1.into(), length: 2.into(), token: 3.into() });
    is(
        &row(&[8, 8, 8, 8, 8, 8, 4]),
        &Bind { post, region: 3.into(), window: 4.into(), address: 5.into(), length: 6.into(), flags: 7.into() },
    );
    is(&row(&[8, 8, 8, 4]), &Invalidate { post, window: 3.into(), flags: 4.into() });
}

#[test]
fn connections() {
    let address = [7; 28];
    let reads = Reads { inbound: 3.into(), outbound: 4.into() };
    let accept = Accept { connector: 1.into(), queue_pair: 2.into(), reads };
    is(&row(&[8, 8, 4, 4]), &accept);
    is(&[&row(&[8, 8, 4, 4])[..], &address].concat(), &Connect { accept, address });
    is(&[&row(&[8])[..], &address].concat(), &BindAddress { object: 1.into(), address });
    is(&row(&[4, 4]), &Reads { inbound: 1.into(), outbound: 2.into() });
    is(&row(&[8, 4]), &Listen { listener: 1.into(), backlog: 2.into() });
    is(&row(&[8, 8]), &GetConnectionRequest { listener: 1.into(), connector: 2.into() });
}
