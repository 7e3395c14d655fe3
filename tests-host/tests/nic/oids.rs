//! Any OID requests, with anything in them: each is answered, and none says more than there was room for.

use simulated_kernel::Kernel;

use crate::machine::with_pair;

/// Requests of one row at most.
const LONGEST: usize = 200;

/// Bytes to be read. When there are no more, zeros come.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), self.next()])
    }
}

/// Sends OID requests to the two ends of a cable. One life of the driver.
pub fn exercise(bytes: &[u8]) {
    with_pair(&Kernel::seeded(1).start(), &[], |one, other| {
        let mut bytes = Bytes(bytes);
        for _ in 0..LONGEST {
            if bytes.0.is_empty() {
                break;
            }
            let choice = bytes.next();
            let nic = if choice & 1 == 0 { one } else { other };
            let known = softndknic::oid::SUPPORTED[usize::from(bytes.next()) % softndknic::oid::SUPPORTED.len()];
            let oid = match choice >> 4 {
                0 => u32::from(bytes.word()) << 16 | u32::from(bytes.word()),
                1 => known ^ 1 << (bytes.next() % 32),
                _ => known,
            };
            let room = usize::from(bytes.word() % 4096);
            let length = usize::from(bytes.next());
            let value: Vec<u8> = (0..length).map(|_| bytes.next()).collect();
            let answer = match choice >> 1 & 7 {
                0..=2 => nic.query(oid, room),
                3..=5 => nic.set(oid, &value),
                6 => nic.method(oid, &value, room),
                _ => nic.query_directly(oid, room),
            };
            assert!(answer.bytes.len() <= room.max(length), "{oid:#x}: {} bytes for {room}", answer.bytes.len());
        }
    });
}

#[test]
fn any_request_is_answered() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..20 {
        let row = (0..1000).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        });
        exercise(&row.collect::<Vec<_>>());
    }
}
