//! Single bits of bitmaps. What else there is for them are plain functions of Windows' own library.

use wdk_bindings::{BOOLEAN, ULONG};

use crate::{report::bug_check, routine::routine, rule::Rule};

/// `RTL_BITMAP`: how many bits there are, and where.
#[repr(C)]
pub struct Bitmap {
    size: ULONG,
    words: *mut ULONG,
}

/// The word with a bit, and the bit in it.
fn word_of(bitmap: *const Bitmap, bit: ULONG, what: &str) -> (*mut ULONG, ULONG) {
    // SAFETY: the driver's structure, which lives until the call returns.
    let (size, words) = unsafe { ((*bitmap).size, (*bitmap).words) };
    if bit >= size {
        bug_check(Rule::BadArgument, format_args!("{what} of bit {bit} of a bitmap that has {size}"));
    }
    (words.wrapping_add(bit as usize / 32), 1 << (bit % 32))
}

#[unsafe(no_mangle)]
extern "C" fn RtlSetBit(bitmap: *mut Bitmap, bit: ULONG) {
    routine!("RtlSetBit", HIGH_LEVEL, |_| {
        let (word, bit) = word_of(bitmap, bit, "RtlSetBit");
        // SAFETY: a word of the driver's bitmap, whose size says that it is there; nobody else changes it meanwhile.
        unsafe { word.write(word.read() | bit) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn RtlClearBit(bitmap: *mut Bitmap, bit: ULONG) {
    routine!("RtlClearBit", HIGH_LEVEL, |_| {
        let (word, bit) = word_of(bitmap, bit, "RtlClearBit");
        // SAFETY: as for `RtlSetBit`.
        unsafe { word.write(word.read() & !bit) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn RtlTestBit(bitmap: *const Bitmap, bit: ULONG) -> BOOLEAN {
    routine!("RtlTestBit", HIGH_LEVEL, |_| {
        let (word, bit) = word_of(bitmap, bit, "RtlTestBit");
        // SAFETY: a word of the driver's bitmap, whose size says that it is there.
        BOOLEAN::from(unsafe { word.read() } & bit != 0)
    })
}
