//! Registered bytes.

use std::ptr;

use engine::os::Memory;
use host::{HostMdl, HostMemory, PinnedBuffer};
use ndkpi::NtStatus;

/// Registers the first `length` bytes of `buffer`. The buffers of these tests outlive what is registered.
fn register(buffer: &PinnedBuffer, length: usize) -> Result<HostMemory, NtStatus> {
    // SAFETY: the chain is that of a buffer that lives as long as the test, and its bytes are only copied.
    unsafe { HostMemory::from_mdl(buffer.mdl(), length) }
}

fn register_chain(mdl: *const HostMdl, length: usize) -> Option<NtStatus> {
    // SAFETY: the chain is valid; that the bytes are not does not matter, for the result is dropped unused.
    unsafe { HostMemory::from_mdl(mdl, length) }.err()
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).expect("small")).collect()
}

#[test]
fn memory_is_the_bytes_of_the_chain() {
    for piece in [10_000, 4_096, 1_000, 7] {
        let buffer = PinnedBuffer::split(10_000, piece).expect("memory");
        let memory = register(&buffer, 10_000).expect("contiguous");
        assert_eq!((memory.base(), memory.len(), memory.is_empty()), (buffer.address(0), 10_000, false));
        let bytes = numbered(10_000);
        memory.write(0, &bytes);
        assert_eq!(buffer.bytes(0, 10_000), bytes);
        for (offset, length) in [(0, 10_000), (1, 9_999), (4_095, 2), (6, 8), (9_999, 1), (0, 0), (10_000, 0)] {
            let mut read = vec![0; length];
            memory.read(offset, &mut read);
            assert_eq!(read, bytes[offset..offset + length], "{piece}: {offset}+{length}");
        }
        memory.write(4_000, &[0xFF; 500]);
        assert_eq!(buffer.bytes(3_999, 502)[1..501], [0xFF; 500]);
        assert_eq!(buffer.bytes(3_999, 1), bytes[3_999..4_000]);
    }
}

#[test]
fn memory_may_be_shorter_than_the_chain_but_not_longer() {
    let buffer = PinnedBuffer::split(100, 30).expect("memory");
    for length in [1, 29, 30, 31, 99, 100] {
        assert_eq!(register(&buffer, length).map(|memory| memory.len()), Ok(length));
    }
    assert_eq!(register(&buffer, 101).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(register(&buffer, usize::MAX).err(), Some(NtStatus::INVALID_PARAMETER));
}

#[test]
fn memory_of_no_bytes_is_refused() {
    let buffer = PinnedBuffer::new(100).expect("memory");
    assert_eq!(register(&buffer, 0).err(), Some(NtStatus::INVALID_PARAMETER));
    let empty = PinnedBuffer::new(0).expect("memory");
    assert!(empty.is_empty());
    assert_eq!(register(&empty, 0).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(register(&empty, 1).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(register_chain(ptr::null(), 1), Some(NtStatus::INVALID_PARAMETER));
}

#[test]
fn empty_pieces_are_skipped() {
    let buffer = PinnedBuffer::with_pieces(50, &[0, 20, 0, 0, 30, 0]).expect("memory");
    let memory = register(&buffer, 50).expect("contiguous");
    assert_eq!(memory.base(), buffer.address(0));
    memory.write(15, &[9; 10]);
    assert_eq!(buffer.bytes(15, 10), [9; 10]);
}

#[test]
fn discontiguous_chain_is_refused() {
    let buffer = PinnedBuffer::discontiguous(4 * 4_096).expect("memory");
    assert_eq!(register(&buffer, 4_097).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(register(&buffer, 100).err(), Some(NtStatus::INVALID_PARAMETER), "the whole chain counts");
}

#[test]
fn chain_arithmetic_does_not_wrap_around() {
    let at = ptr::without_provenance_mut;
    let mut last = HostMdl { next: ptr::null_mut(), address: at(8), length: 8 };
    // Ends at the end of the address space, and then some: 16 bytes too many lead back to address 8.
    let wraps = HostMdl { next: &raw mut last, address: at(usize::MAX - 15), length: 24 };
    assert_eq!(register_chain(&raw const wraps, 8), Some(NtStatus::INVALID_PARAMETER));
    let huge = HostMdl { next: ptr::null_mut(), address: at(1), length: usize::MAX };
    assert_eq!(register_chain(&raw const huge, 1), Some(NtStatus::INVALID_PARAMETER));
    let null = HostMdl { next: ptr::null_mut(), address: ptr::null_mut(), length: 8 };
    assert_eq!(register_chain(&raw const null, 8), Some(NtStatus::INVALID_PARAMETER));
}

#[test]
fn chain_without_end_is_refused() {
    let mut byte = 0_u8;
    let mut circle = [HostMdl { next: ptr::null_mut(), address: &raw mut byte, length: 0 }];
    circle[0].next = circle.as_mut_ptr();
    assert_eq!(register_chain(circle.as_ptr(), 1), Some(NtStatus::INVALID_PARAMETER));
}

#[test]
fn pieces_outside_of_a_buffer_are_refused() {
    assert_eq!(PinnedBuffer::with_pieces(10, &[5, 6]).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(PinnedBuffer::with_pieces(10, &[5, usize::MAX]).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(PinnedBuffer::with_pieces(10, &[]).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(PinnedBuffer::split(10, 0).err(), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(PinnedBuffer::new(usize::MAX).err(), Some(NtStatus::INVALID_PARAMETER));
}

#[test]
fn an_access_outside_of_the_range_panics() {
    let (short, long) = (PinnedBuffer::new(100).expect("memory"), PinnedBuffer::new(200).expect("memory"));
    let (small, large) = (register(&short, 100).expect("memory"), register(&long, 200).expect("memory"));
    let panics = |work: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let message = caught.expect_err("outside").downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("of a memory range of"), "{message}");
    };
    panics(&|| small.read(101, &mut []));
    panics(&|| small.read(99, &mut [0; 2]));
    panics(&|| small.read(usize::MAX, &mut [0; 2]));
    panics(&|| small.write(usize::MAX, &[0; 1]));
    panics(&|| small.write(50, &[0; 51]));
    panics(&|| small.copy_from(0, &large, 0, 101));
    panics(&|| large.copy_from(0, &small, 0, 101));
    panics(&|| large.copy_from(0, &small, usize::MAX, 2));
    panics(&|| large.copy_from(usize::MAX - 1, &small, 0, 2));
}

#[test]
fn copies_between_ranges_of_any_pieces() {
    for (to_piece, from_piece) in [(500, 500), (500, 7), (13, 500), (13, 7), (7, 7)] {
        let to = PinnedBuffer::split(500, to_piece).expect("memory");
        let from = PinnedBuffer::split(500, from_piece).expect("memory");
        let (sink, source) = (register(&to, 500).expect("memory"), register(&from, 500).expect("memory"));
        from.write(0, &numbered(500));
        for (offset, from_offset, length) in [(0, 0, 500), (1, 0, 499), (0, 499, 1), (250, 13, 100), (500, 500, 0)] {
            to.fill(0xEE);
            sink.copy_from(offset, &source, from_offset, length);
            let mut expected = vec![0xEE; 500];
            expected[offset..offset + length].copy_from_slice(&numbered(500)[from_offset..from_offset + length]);
            assert_eq!(to.bytes(0, 500), expected, "{to_piece} {from_piece}: {offset} {from_offset} {length}");
        }
    }
}

#[test]
fn copies_inside_one_range_may_overlap() {
    for piece in [300, 64, 7] {
        let buffer = PinnedBuffer::split(300, piece).expect("memory");
        // Registered twice: the engine may see the same bytes through two regions.
        let (one, other) = (register(&buffer, 300).expect("memory"), register(&buffer, 250).expect("memory"));
        for (offset, from_offset, length) in [(10, 0, 200), (0, 10, 200), (5, 5, 100), (100, 93, 150), (93, 100, 150)] {
            buffer.write(0, &numbered(300));
            one.copy_from(offset, &other, from_offset, length);
            let mut expected = numbered(300);
            expected.copy_within(from_offset..from_offset + length, offset);
            assert_eq!(buffer.bytes(0, 300), expected, "{piece}: {offset} {from_offset} {length}");
        }
    }
}
