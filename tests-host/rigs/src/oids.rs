//! Any OID requests, with anything in them: each is answered, and none says more than there was room for.

use simulated_kernel::Kernel;

use crate::{bytes::Bytes, machine::with_pair};

/// Requests of one row at most.
const LONGEST: usize = 200;

/// Sends OID requests to the two ends of a cable. One life of the driver.
pub fn exercise(bytes: &[u8]) {
    with_pair(&Kernel::seeded(1).start(), &[], |one, other| {
        let mut bytes = Bytes(bytes);
        for _ in 0..LONGEST {
            if bytes.is_over() {
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
            let value = bytes.take(length);
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
