//! Processors, as NDIS counts them: one group.

use wdk_bindings::{PKAFFINITY, PROCESSOR_NUMBER, ULONG, USHORT};

use super::structure::ndis_routine;
use crate::state::State;

fn here(state: &State) -> PROCESSOR_NUMBER {
    let number = u8::try_from(state.machine.current_processor()).unwrap_or(0);
    PROCESSOR_NUMBER { Group: 0, Number: number, Reserved: 0 }
}

#[unsafe(no_mangle)]
extern "system" fn NdisCurrentGroupAndProcessor() -> PROCESSOR_NUMBER {
    ndis_routine!("NdisCurrentGroupAndProcessor", HIGH_LEVEL, |state| here(state))
}

#[unsafe(no_mangle)]
extern "system" fn NdisMaxGroupCount() -> USHORT {
    ndis_routine!("NdisMaxGroupCount", HIGH_LEVEL, |_| 1)
}

#[unsafe(no_mangle)]
extern "system" fn NdisSystemProcessorCount() -> i8 {
    ndis_routine!("NdisSystemProcessorCount", HIGH_LEVEL, |state| {
        i8::try_from(state.machine.processors()).unwrap_or(i8::MAX)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisSystemActiveProcessorCount(mask: PKAFFINITY) -> ULONG {
    ndis_routine!("NdisSystemActiveProcessorCount", HIGH_LEVEL, |state| {
        if !mask.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { mask.write(crate::wdm::processor::all(state)) };
        }
        state.machine.processors()
    })
}
