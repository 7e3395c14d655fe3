//! What a queue pair has cached of the registrations it uses is gone with them, and changes nothing else (`NDKPI 7.4`).

use engine::{
    memory::{Release, Rights},
    nic::NicMode,
    qp::{Qp, Work},
};
use ndkpi::NtStatus;
use testing::qp_fixture::{MoreBytes, Net, PARAMETERS, PLAIN, TestQp, all, on_busy_nics, on_nics};

/// As many requests as it takes until what they name is cached, and one more.
const OFTEN: usize = 4;
/// Copied with the tokens locked, and with references.
const LENGTHS: [u32; 2] = [8, 5000];

/// Writes and reads until what both name is cached.
fn use_often(net: &Net, a: &TestQp, here: &MoreBytes, there: &MoreBytes, length: u32) {
    let bytes = vec![3; length as usize];
    here.buffer().write(0, &bytes);
    there.buffer().write(0, &vec![0; length as usize]);
    for context in 0..OFTEN {
        a.post(context, there.write_to(0), PLAIN, &[here.sge(0, length)]).expect("a write");
        net.settle();
    }
    here.buffer().write(0, &vec![0; length as usize]);
    for context in 0..OFTEN {
        a.post(OFTEN + context, there.read_from(0), PLAIN, &[here.sge(0, length)]).expect("a read");
        net.settle();
    }
    assert_eq!(a.sent(), all(0..2 * OFTEN, NtStatus::SUCCESS));
    assert_eq!(there.buffer().bytes(0, length as usize), bytes, "written");
    assert_eq!(here.buffer().bytes(0, length as usize), bytes, "read");
}

//= NDKPI 7.4.3
#[test]
fn a_registration_that_has_ended_is_not_found_by_who_has_used_it_often() {
    on_nics(|net| {
        for length in LENGTHS {
            for is_here in [true, false] {
                let (a, b) = net.pair();
                let (here, there) = (a.more_bytes(8192), b.more_bytes(8192));
                use_often(net, &a, &here, &there, length);
                assert_eq!(a.qp().cached_tokens(), [here.sge(0, 8).token, remote_token(&there)].map(Some));
                let (element, work) = (here.sge(0, length), there.write_to(0));
                let ended = if is_here { &here } else { &there };
                assert_eq!(ended.deregister(), Ok(Release::Done), "nobody uses the bytes any more");
                assert_eq!(ended.references(), 1, "nobody keeps them");
                a.post(9, work, PLAIN, &[element]).expect("a write");
                net.settle();
                let expected = if is_here { NtStatus::ACCESS_VIOLATION } else { NtStatus::REMOTE_RESOURCES };
                assert_eq!(a.sent(), all([9], expected), "{length} bytes");
            }
        }
    });
}

#[test]
fn bytes_that_are_registered_again_are_found_by_their_new_tokens_only() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let (here, there) = (a.more_bytes(64), b.more_bytes(64));
        use_often(net, &a, &here, &there, 8);
        let before = there.write_to(0);
        assert_eq!(there.deregister(), Ok(Release::Done));
        there.register().expect("it was deregistered");
        use_often(net, &a, &here, &there, 8);
        a.post(9, before, PLAIN, &[here.sge(0, 8)]).expect("a write");
        net.settle();
        assert_eq!(a.sent(), all([9], NtStatus::REMOTE_RESOURCES));
    });
}

#[test]
fn all_queue_pairs_that_use_a_registration_lose_it() {
    on_nics(|net| {
        for is_here in [true, false] {
            let (a, b) = net.pair();
            let others = [net.pair_beside(&a, &b), net.pair_beside(&a, &b)];
            let (here, there) = (a.more_bytes(64), b.more_bytes(64));
            let pairs = [&(a, b), &others[0], &others[1]];
            for _ in 0..2 {
                for (a, _) in pairs {
                    use_often(net, a, &here, &there, 8);
                }
            }
            let (element, work) = (here.sge(0, 8), there.write_to(0));
            let (ended, expected) =
                if is_here { (&here, NtStatus::ACCESS_VIOLATION) } else { (&there, NtStatus::REMOTE_RESOURCES) };
            assert_eq!(ended.deregister(), Ok(Release::Done));
            assert_eq!(ended.references(), 1);
            for (a, _) in pairs {
                a.post(9, work, PLAIN, &[element]).expect("a write");
                net.settle();
                assert_eq!(a.sent(), all([9], expected));
            }
        }
    });
}

#[test]
fn one_region_on_both_sides_is_cached_and_lost_as_two_are() {
    on_nics(|net| {
        let (first, _) = net.pair();
        let (a, _b) = net.pair_beside(&first, &first);
        let (both, other) = (first.more_bytes(64), first.more_bytes(64));
        let copy = |context, here: &MoreBytes, there: &MoreBytes| {
            for _ in 0..OFTEN {
                a.post(context, there.write_to(32), PLAIN, &[here.sge(0, 8)]).expect("a write");
                net.settle();
                assert_eq!(a.sent(), all([context], NtStatus::SUCCESS));
            }
        };
        copy(0, &both, &both);
        // One of the two sides goes on to another registration.
        copy(1, &other, &both);
        copy(2, &both, &both);
        copy(3, &both, &other);
        let (element, work) = (both.sge(0, 8), other.write_to(0));
        assert_eq!(both.deregister(), Ok(Release::Done));
        assert_eq!(both.references(), 1);
        a.post(9, work, PLAIN, &[element]).expect("a write");
        net.settle();
        assert_eq!(a.sent(), all([9], NtStatus::ACCESS_VIOLATION));
    });
}

#[test]
fn a_queue_pair_goes_from_one_registration_to_the_next_and_back() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let here: Vec<_> = (0..3).map(|_| a.more_bytes(64)).collect();
        let there: Vec<_> = (0..3).map(|_| b.more_bytes(64)).collect();
        for round in 0..3 {
            for number in 0..3 {
                use_often(net, &a, &here[number], &there[(number + round) % 3], 8);
            }
        }
        for bytes in here.iter().chain(&there).skip(1) {
            assert_eq!(bytes.deregister(), Ok(Release::Done));
            assert_eq!(bytes.references(), 1);
        }
    });
}

#[test]
fn one_queue_pair_caches_a_registration_and_when_it_is_closed_another_can() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let (other, _peer) = net.pair_beside(&a, &b);
        let (here, there) = (a.more_bytes(64), b.more_bytes(64));
        let tokens = [here.sge(0, 8).token, remote_token(&there)].map(Some);
        use_often(net, &a, &here, &there, 8);
        use_often(net, &other, &here, &there, 8);
        assert_eq!((a.qp().cached_tokens(), other.qp().cached_tokens()), (tokens, [None; 2]));
        a.close();
        net.settle();
        // It tries again after some time.
        for _ in 0..8 {
            use_often(net, &other, &here, &there, 8);
        }
        assert_eq!((a.qp().cached_tokens(), other.qp().cached_tokens()), ([None; 2], tokens));
        for bytes in [&here, &there] {
            assert_eq!(bytes.deregister(), Ok(Release::Done));
            assert_eq!(bytes.references(), 1);
        }
        assert_eq!(other.qp().cached_tokens(), [None; 2]);
    });
}

/// Two joined queue pairs on two adapters, which number their regions alike, and another two beside them.
fn between_two_adapters(test: impl Fn(&Net, [&TestQp; 2], [&MoreBytes; 2], [&TestQp; 2])) {
    on_nics(|net| {
        for mode in [NicMode::Deferred, NicMode::Direct] {
            let far = Net::new(net.machine(), mode);
            let (a, b) = (net.qp(PARAMETERS), far.qp(PARAMETERS));
            let (other, peer) = (net.qp_beside(&a), far.qp_beside(&b));
            Qp::link(a.qp(), b.qp()).expect("both are new");
            Qp::link(other.qp(), peer.qp()).expect("both are new");
            let (here, there) = (a.more_bytes(64), b.more_bytes(64));
            use_often(net, &a, &here, &there, 8);
            assert_eq!(a.qp().cached_tokens(), [here.sge(0, 8).token, remote_token(&there)].map(Some));
            test(net, [&a, &b], [&here, &there], [&other, &peer]);
            net.settle();
        }
    });
}

//= NDKPI 7.4.3
#[test]
fn a_queue_pair_that_is_closed_lets_others_cache_the_registrations_of_both_adapters() {
    between_two_adapters(|net, [a, _], [here, there], [other, _]| {
        a.close();
        net.settle();
        // It tries again after some time.
        for _ in 0..8 {
            use_often(net, other, here, there, 8);
        }
        assert_eq!(other.qp().cached_tokens(), [here.sge(0, 8).token, remote_token(there)].map(Some));
    });
}

#[test]
fn the_end_of_a_registration_takes_nothing_of_another_adapter_out_of_a_cache() {
    between_two_adapters(|_, [a, _], [here, there], _| {
        assert_eq!(here.deregister(), Ok(Release::Done));
        assert_eq!(a.qp().cached_tokens(), [None, Some(remote_token(there))]);
        assert_eq!((here.references(), there.references()), (1, 2));
        assert_eq!(there.deregister(), Ok(Release::Done));
        assert_eq!((a.qp().cached_tokens(), there.references()), ([None; 2], 1));
    });
}

#[test]
fn what_is_used_once_is_not_cached() {
    on_nics(|net| {
        let (a, b) = net.pair();
        for _ in 0..4 {
            let (here, there) = (a.more_bytes(64), b.more_bytes(64));
            a.post(0, there.write_to(0), PLAIN, &[here.sge(0, 8)]).expect("a write");
            net.settle();
            assert_eq!(a.sent(), all([0], NtStatus::SUCCESS));
            assert_eq!(a.qp().cached_tokens(), [None; 2]);
        }
    });
}

fn remote_token(bytes: &MoreBytes) -> u32 {
    let Work::Write { token, .. } = bytes.write_to(0) else { unreachable!("a write") };
    token
}

#[test]
fn a_region_that_goes_away_while_it_is_cached_lets_go_of_its_bytes() {
    on_busy_nics(|net| {
        let (a, b) = net.pair();
        let here = a.more_bytes(64);
        for _ in 0..3 {
            let there = b.more_bytes(64);
            use_often(net, &a, &here, &there, 8);
            let gone = there.into_witness();
            assert!(gone(), "its bytes are free");
        }
    });
}

//= NDKPI 7.4.3
#[test]
fn a_cached_translation_allows_no_more_than_was_granted() {
    on_nics(|net| {
        let write_only = Rights::REMOTE_WRITE;
        for wrong in 0..3 {
            let (a, b) = net.pair();
            let (here, there) = (a.more_bytes(64), b.more_bytes_with(64, write_only));
            for context in 0..OFTEN {
                a.post(context, there.write_to(0), PLAIN, &[here.sge(0, 8)]).expect("a write");
                net.settle();
            }
            assert_eq!(a.sent(), all(0..OFTEN, NtStatus::SUCCESS));
            let (work, element, expected) = match wrong {
                0 => (there.read_from(0), here.sge(0, 8), NtStatus::REMOTE_RESOURCES),
                1 => (there.write_to(57), here.sge(0, 8), NtStatus::REMOTE_RESOURCES),
                _ => (there.write_to(0), here.sge(57, 8), NtStatus::ACCESS_VIOLATION),
            };
            a.post(9, work, PLAIN, &[element]).expect("a request");
            net.settle();
            assert_eq!(a.sent(), all([9], expected), "request {wrong}");
        }
    });
}

/// A read or write, what is granted on both sides, and what becomes of it.
struct Copied {
    name: &'static str,
    /// All that is granted on the side of the poster, and on the peer's.
    rights: [Rights; 2],
    is_write: bool,
    expected: NtStatus,
}

const COPIES: [Copied; 6] = [
    Copied {
        name: "a write from bytes that may not be written",
        rights: [Rights::LOCAL_READ, Rights::REMOTE_WRITE],
        is_write: true,
        expected: NtStatus::SUCCESS,
    },
    Copied {
        name: "a write to bytes that a peer may only read",
        rights: [Rights::LOCAL_READ, Rights::REMOTE_READ],
        is_write: true,
        expected: NtStatus::REMOTE_RESOURCES,
    },
    Copied {
        name: "a read of bytes that a peer may only read",
        rights: [Rights::LOCAL_WRITE, Rights::REMOTE_READ],
        is_write: false,
        expected: NtStatus::SUCCESS,
    },
    Copied {
        name: "a read of bytes that a peer may only write",
        rights: [Rights::LOCAL_WRITE, Rights::REMOTE_WRITE],
        is_write: false,
        expected: NtStatus::REMOTE_RESOURCES,
    },
    Copied {
        name: "a read into the sink of reads",
        rights: [Rights::READ_SINK, Rights::REMOTE_READ],
        is_write: false,
        expected: NtStatus::SUCCESS,
    },
    Copied {
        name: "a read into bytes that may not be written",
        rights: [Rights::LOCAL_READ, Rights::REMOTE_READ],
        is_write: false,
        expected: NtStatus::ACCESS_VIOLATION,
    },
];

#[test]
fn a_read_and_a_write_ask_for_the_right_they_need_of_either_side() {
    on_nics(|net| {
        for Copied { name, rights: [mine, theirs], is_write, expected } in COPIES {
            let (a, b) = net.pair();
            let (here, there) = (a.more_bytes_with(64, mine), b.more_bytes_with(64, theirs));
            let (from, to) = if is_write { (&here, &there) } else { (&there, &here) };
            from.buffer().write(0, &[7; 8]);
            let work = if is_write { there.write_to(0) } else { there.read_from(0) };
            // What is allowed is cached then, too.
            let times = if expected == NtStatus::SUCCESS { OFTEN } else { 1 };
            for context in 0..times {
                a.post(context, work, PLAIN, &[here.sge(0, 8)]).expect("a request");
                net.settle();
            }
            assert_eq!(a.sent(), all(0..times, expected), "{name}");
            let is_done = expected == NtStatus::SUCCESS;
            assert_eq!(to.buffer().bytes(0, 8), [if is_done { 7 } else { 0 }; 8], "{name}");
            let cached = [here.sge(0, 8).token, remote_token(&there)].map(|token| is_done.then_some(token));
            assert_eq!(a.qp().cached_tokens(), cached, "{name}");
        }
    });
}

#[test]
fn what_takes_long_is_copied_without_the_cache() {
    const MOST: u32 = 256 << 10;
    on_nics(|net| {
        let (a, b) = net.pair();
        let (here, there) = (a.more_bytes(MOST as usize + 1), b.more_bytes(MOST as usize + 1));
        for (length, is_cached) in [(MOST + 1, false), (MOST, true)] {
            for context in 0..OFTEN {
                a.post(context, there.write_to(0), PLAIN, &[here.sge(0, length)]).expect("a write");
                net.settle();
            }
            assert_eq!(a.sent(), all(0..OFTEN, NtStatus::SUCCESS));
            let cached = [here.sge(0, 8).token, remote_token(&there)].map(|token| is_cached.then_some(token));
            assert_eq!(a.qp().cached_tokens(), cached, "{length} bytes");
        }
    });
}

#[test]
fn what_is_cached_is_of_no_use_to_a_request_that_is_wrong_on_both_sides() {
    on_nics(|net| {
        let (a, b) = net.pair();
        let here = a.more_bytes_with(64, Rights::LOCAL_READ);
        let there = b.more_bytes_with(64, Rights::REMOTE_WRITE);
        for wrong_token in [false, true] {
            let (a, _b) = net.pair_beside(&a, &b);
            here.buffer().write(0, &[0; 8]);
            for context in 0..OFTEN {
                a.post(context, there.write_to(0), PLAIN, &[here.sge(0, 8)]).expect("a write");
                net.settle();
            }
            assert_eq!(a.sent(), all(0..OFTEN, NtStatus::SUCCESS));
            here.buffer().write(0, &[7; 8]);
            let (mut element, mut work) = (here.sge(0, 8), there.read_from(0));
            if wrong_token {
                let Work::Write { address, token } = there.write_to(0) else { panic!("a write") };
                (element.token, work) = (element.token ^ 1 << 8, Work::Write { address, token: token ^ 1 << 8 });
            }
            a.post(9, work, PLAIN, &[element]).expect("a request");
            net.settle();
            assert_eq!(a.sent(), all([9], NtStatus::ACCESS_VIOLATION), "wrong tokens: {wrong_token}");
            assert_eq!((here.buffer().bytes(0, 8), there.buffer().bytes(0, 8)), (vec![7; 8], vec![0; 8]));
        }
    });
}
