//! Where a thread runs, as drivers say it that know of no groups; and nodes, of which there is one.

use std::ptr;

use wdk_sys::{
    GROUP_AFFINITY, KAFFINITY, NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, USHORT,
    ntddk::{
        KeGetCurrentProcessorNumberEx, KeLowerIrql, KeQueryActiveProcessorCountEx, KeQueryActiveProcessors, KfRaiseIrql,
    },
};

use crate::asked::{call, tests};

unsafe extern "C" {
    // The kit declares them, the bindings leave them out.
    fn KeSetSystemAffinityThread(mask: KAFFINITY);
    fn KeSetSystemAffinityThreadEx(mask: KAFFINITY) -> KAFFINITY;
    fn KeRevertToUserAffinityThread();
    fn KeRevertToUserAffinityThreadEx(mask: KAFFINITY);
    fn KeQueryHighestNodeNumber() -> USHORT;
    fn KeGetCurrentNodeNumber() -> USHORT;
    fn KeQueryNodeActiveAffinity(node: USHORT, affinity: *mut GROUP_AFFINITY, count: *mut USHORT);
    fn KeQueryNodeActiveAffinity2(
        node: USHORT,
        affinities: *mut GROUP_AFFINITY,
        room: USHORT,
        required: *mut USHORT,
    ) -> NTSTATUS;
    fn KeQueryMaximumGroupCount() -> USHORT;
    fn KeQueryNodeMaximumProcessorCount(node: USHORT) -> USHORT;
}

fn here() -> u32 {
    call!(KeGetCurrentProcessorNumberEx(ptr::null_mut()))
}

tests! {
    a_thread_is_bound_and_bound_again_and_given_back by {
        let first = call!(KeSetSystemAffinityThreadEx(0b10));
        assert_eq!((first, here()), (0, 1), "it was bound to none");
        let second = call!(KeSetSystemAffinityThreadEx(0b100));
        assert_eq!((second, here()), (0b10, 2));
        call!(KeRevertToUserAffinityThreadEx(second));
        assert_eq!(here(), 1);
        call!(KeSetSystemAffinityThread(0b1000));
        assert_eq!(here(), 3);
        call!(KeRevertToUserAffinityThreadEx(first));
        assert_eq!(call!(KeSetSystemAffinityThreadEx(1)), 0, "it was given back");
        call!(KeRevertToUserAffinityThread());
        assert_eq!(call!(KeSetSystemAffinityThreadEx(1)), 0, "and again");
        call!(KeRevertToUserAffinityThread());
    }
    processors_that_are_not_there_change_nothing by {
        let before = call!(KeSetSystemAffinityThreadEx(0b10));
        let too_many = call!(KeQueryActiveProcessors()) + 1;
        for wrong in [0, too_many, too_many | 1] {
            call!(KeSetSystemAffinityThread(wrong));
            call!(KeSetSystemAffinityThreadEx(wrong));
            assert_eq!(here(), 1);
        }
        call!(KeRevertToUserAffinityThreadEx(too_many));
        assert_eq!(here(), 1);
        call!(KeRevertToUserAffinityThreadEx(before));
    }
    there_is_one_node by {
        let before = call!(KfRaiseIrql(15));
        assert_eq!([call!(KeQueryHighestNodeNumber()), call!(KeGetCurrentNodeNumber())], [0, 0]);
        let (mut affinity, mut count) = (GROUP_AFFINITY { Group: 9, ..GROUP_AFFINITY::default() }, 99);
        call!(KeQueryNodeActiveAffinity(0, &raw mut affinity, &raw mut count));
        let processors = call!(KeQueryActiveProcessorCountEx(0));
        assert_eq!((affinity.Group, affinity.Mask.count_ones(), u32::from(count)), (0, processors, processors));
        call!(KeQueryNodeActiveAffinity(1, &raw mut affinity, ptr::null_mut()));
        call!(KeQueryNodeActiveAffinity(1, ptr::null_mut(), &raw mut count));
        assert_eq!((affinity.Mask, count), (0, 0), "of a node that is not there");
        call!(KeLowerIrql(before));
    }
    the_node_has_the_processors_of_the_only_group by {
        let before = call!(KfRaiseIrql(15));
        let processors = call!(KeQueryActiveProcessorCountEx(0));
        let (mut affinities, mut required) = ([GROUP_AFFINITY { Group: 9, ..GROUP_AFFINITY::default() }; 2], 99);
        let place: *mut GROUP_AFFINITY = affinities.as_mut_ptr();
        let mut ask = |node, room| call!(KeQueryNodeActiveAffinity2(node, place, room, &raw mut required));
        assert_eq!((ask(1, 2), ask(0, 0)), (STATUS_INVALID_PARAMETER, STATUS_BUFFER_TOO_SMALL));
        assert_eq!((ask(0, 2), required), (STATUS_SUCCESS, 1));
        assert_eq!((affinities[0].Group, affinities[0].Mask.count_ones(), affinities[1].Group), (0, processors, 9));
        let most = [0, 1].map(|node| u32::from(call!(KeQueryNodeMaximumProcessorCount(node))));
        assert_eq!((most, call!(KeQueryMaximumGroupCount())), ([processors, 0], 1));
        call!(KeLowerIrql(before));
    }
    a_thread_is_bound_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        call!(KeSetSystemAffinityThreadEx(1));
    }
    a_thread_is_given_back_above_dispatch_level breaks IrqlTooHigh by {
        call!(KfRaiseIrql(3));
        call!(KeRevertToUserAffinityThreadEx(0));
    }
}
