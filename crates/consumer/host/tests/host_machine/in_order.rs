//! `IN_ORDER_DMA_SUPPORTED` (`NDKPI 2.6`): the last byte of what lands in memory never changes before an earlier one.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

use engine::os::Memory;
use host::{HostMemory, PinnedBuffer};

const LENGTH: usize = 64 << 10;
const ROUNDS: u8 = 60;

fn register(buffer: &PinnedBuffer) -> HostMemory {
    // SAFETY: the buffer outlives what is registered here: both are of one function.
    unsafe { HostMemory::from_mdl(buffer.mdl(), LENGTH) }.expect("contiguous")
}

/// Writes `LENGTH` bytes over and over while another thread waits for the last one, and looks at the others then.
fn last_byte_is_last(pieces: [usize; 2], sink_above: bool) {
    let buffers = [0, 1].map(|index| PinnedBuffer::split(LENGTH, pieces[index]).expect("memory"));
    let [mut sink, mut source] = buffers.each_ref();
    // Which of two is above the other is chance.
    if (sink.address(0) > source.address(0)) != sink_above {
        (sink, source) = (source, sink);
    }
    let (to, from) = (register(sink), register(source));
    let (round, is_over) = (AtomicU8::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            let mut bytes = vec![0; LENGTH];
            let mut seen = 0;
            while !is_over.load(SeqCst) {
                to.read(LENGTH - 1, &mut byte);
                if byte[0] == seen {
                    std::hint::spin_loop();
                    continue;
                }
                to.read(0, &mut bytes);
                // The next round does not begin before this one was looked at.
                let wrong = bytes.iter().position(|other| *other != byte[0]);
                is_over.fetch_or(wrong.is_some(), SeqCst);
                assert_eq!(wrong, None, "{pieces:?}, the sink above: {sink_above}: an earlier byte changes later");
                seen = byte[0];
                round.store(seen, SeqCst);
            }
        });
        for value in 1..=ROUNDS {
            from.write(0, &vec![value; LENGTH]);
            to.copy_from(0, &from, 0, LENGTH);
            while round.load(SeqCst) != value && !is_over.load(SeqCst) {
                std::thread::yield_now();
            }
        }
        is_over.store(true, SeqCst);
    });
}

//= NDKPI 2.6
#[test]
fn the_last_byte_changes_last() {
    for pieces in [[LENGTH, LENGTH], [4096, 4096], [4096, LENGTH], [LENGTH, 4096], [1000, 4096]] {
        for sink_above in [false, true] {
            last_byte_is_last(pieces, sink_above);
        }
    }
}
