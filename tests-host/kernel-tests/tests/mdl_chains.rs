//! What a registration asks of a chain of MDLs, on the host's descriptors and on the kernel's MDLs: one answer.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

use std::ptr;

use engine::os::Memory;
use host::{HostMdl, HostMemory};
use ndkpi::NtStatus;
// Its routines are what the driver is linked with.
use driver_common::os::KernelMemory;
use simulated_kernel as _;
use wdk_sys::{MDL, MDL_MAPPED_TO_SYSTEM_VA};

const PAGE: usize = 4096;

/// A chain over one buffer: of each MDL the offset and the length of its bytes, and which one the last leads to, if any.
struct Shape<'s> {
    pieces: &'s [(usize, usize)],
    circle: Option<usize>,
}

fn host(shape: &Shape<'_>, bytes: *mut u8, length: usize) -> Result<(u64, usize), NtStatus> {
    let describe = |&(offset, length): &(usize, usize)| HostMdl {
        next: ptr::null_mut(),
        address: bytes.wrapping_add(offset),
        length,
    };
    let mut chain: Vec<HostMdl> = shape.pieces.iter().map(describe).collect();
    for index in 0..chain.len() {
        chain[index].next = following(shape, index).map_or(ptr::null_mut(), |next| &raw mut chain[next]);
    }
    let first = chain.first().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a chain and bytes that live until the end of the test.
    let memory = unsafe { HostMemory::from_mdl(first, length) };
    memory.map(|memory| (memory.base(), memory.len()))
}

#[expect(clippy::cast_possible_truncation, reason = "small numbers, and a flag")]
fn kernel(shape: &Shape<'_>, bytes: *mut u8, length: usize) -> Result<(u64, usize), NtStatus> {
    let describe = |&(offset, length): &(usize, usize)| {
        let address = bytes.wrapping_add(offset);
        MDL {
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA as i16,
            MappedSystemVa: address.cast(),
            StartVa: address.map_addr(|address| address & !(PAGE - 1)).cast(),
            ByteOffset: (address.addr() % PAGE) as u32,
            ByteCount: length as u32,
            ..MDL::default()
        }
    };
    let mut chain: Vec<MDL> = shape.pieces.iter().map(describe).collect();
    for index in 0..chain.len() {
        chain[index].Next = following(shape, index).map_or(ptr::null_mut(), |next| &raw mut chain[next]);
    }
    let first = chain.first_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: a chain and bytes that live until the end of the test, mapped where they are.
    let memory = unsafe { KernelMemory::from_mdl(first, length) };
    memory.map(|memory| (memory.base(), memory.len()))
}

fn following(shape: &Shape<'_>, index: usize) -> Option<usize> {
    if index + 1 < shape.pieces.len() { Some(index + 1) } else { shape.circle }
}

/// A name, the MDLs, where the last one leads to, the length asked for, and why it is refused, if it is.
type Case = (&'static str, &'static [(usize, usize)], Option<usize>, usize, Option<NtStatus>);

//= NDKPI 7.4.1
#[test]
fn a_chain_is_contiguous_to_its_end_long_enough_and_no_circle_on_both() {
    const INVALID: Option<NtStatus> = Some(NtStatus::INVALID_PARAMETER);
    let cases: &[Case] = &[
        ("a circle without bytes", &[(0, 0), (0, 0)], Some(0), 10, INVALID),
        ("a circle without bytes behind what is asked for", &[(0, 10), (10, 0), (10, 0)], Some(1), 10, INVALID),
        ("a circle with bytes", &[(0, 10), (10, 10)], Some(0), 30, INVALID),
        ("one MDL", &[(100, 50)], None, 50, None),
        ("a part of one MDL", &[(100, 50)], None, 20, None),
        ("three MDLs", &[(0, 10), (10, 3), (13, 7000)], None, 7013, None),
        ("MDLs behind what is asked for", &[(0, 10), (10, 3), (13, 7000)], None, 5, None),
        ("an MDL without bytes in the middle", &[(0, 10), (10, 0), (10, 20)], None, 30, None),
        ("an MDL without bytes in front", &[(0, 0), (0, 10)], None, 10, None),
        ("no chain", &[], None, 10, INVALID),
        ("no bytes", &[(0, 10)], None, 0, INVALID),
        ("too few bytes", &[(0, 10), (10, 10)], None, 21, INVALID),
        ("a gap", &[(0, 10), (11, 10)], None, 20, INVALID),
        ("a gap behind what is asked for", &[(0, 10), (11, 10)], None, 10, INVALID),
        ("an overlap", &[(0, 10), (9, 10)], None, 15, INVALID),
        ("an MDL without bytes elsewhere", &[(0, 10), (50, 0), (10, 10)], None, 20, INVALID),
    ];
    let mut buffer = vec![0_u8; 4 * PAGE];
    let bytes = buffer.as_mut_ptr();
    for &(name, pieces, circle, length, refused) in cases {
        let shape = Shape { pieces, circle };
        let begin = pieces.first().map_or(0, |&(offset, _)| bytes.wrapping_add(offset).addr() as u64);
        let expected = refused.map_or(Ok((begin, length)), Err);
        assert_eq!(host(&shape, bytes, length), expected, "{name}, on the host");
        assert_eq!(kernel(&shape, bytes, length), expected, "{name}, in the kernel");
    }
}

//= NDKPI 7.4.1
#[test]
fn a_chain_may_have_as_many_mdls_as_the_limit_says_and_no_more() {
    let mut buffer = vec![0_u8; provider::chain::LONGEST + 1];
    for (count, fits) in [(provider::chain::LONGEST, true), (provider::chain::LONGEST + 1, false)] {
        let pieces: Vec<(usize, usize)> = (0..count).map(|offset| (offset, 1)).collect();
        let shape = Shape { pieces: &pieces, circle: None };
        let bytes = buffer.as_mut_ptr();
        assert_eq!(host(&shape, bytes, count).is_ok(), fits, "{count} on the host");
        assert_eq!(kernel(&shape, bytes, count).is_ok(), fits, "{count} in the kernel");
    }
}
