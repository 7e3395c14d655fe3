//! Random numbers of a driver's own seed. Those of Windows remember more than the seed; these do not, so that a run repeats.

use wdk_bindings::ULONG;

use crate::routine::routine;

/// The next number of a linear congruential generator, below `MAXLONG`.
fn next(seed: *mut ULONG) -> ULONG {
    const PERIOD: u64 = 0x7FFF_FFFF;
    // SAFETY: the driver's seed, which lives until the call returns.
    let seed = unsafe { &mut *seed };
    let after = (u64::from(*seed) * 0x7FFF_FFED + 0x7FFF_FFC3) % PERIOD;
    *seed = ULONG::try_from(after).unwrap_or(0);
    *seed
}

#[unsafe(no_mangle)]
extern "C" fn RtlRandom(seed: *mut ULONG) -> ULONG {
    routine!("RtlRandom", APC_LEVEL, |_| next(seed))
}

#[unsafe(no_mangle)]
extern "C" fn RtlRandomEx(seed: *mut ULONG) -> ULONG {
    routine!("RtlRandomEx", APC_LEVEL, |_| next(seed))
}
