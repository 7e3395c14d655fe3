//! Functions of the framework: what code asks the table for, however a compiler writes it, is found by its index.

use std::collections::{BTreeMap, BTreeSet};

use image_loader::{Framework, Image, framework};

use testing::driver_image::{CODE, FUNCTIONS, POINTER, bound, made};

/// `mov rax, [rip + place]`, which begins at that offset of the code.
fn load(offset: u32, place: u32) -> Vec<u8> {
    let next = CODE + offset + 7;
    [&[0x48, 0x8B, 0x05][..], &place.wrapping_sub(next).to_le_bytes()].concat()
}

/// How an image with that code uses the framework.
fn used(code: &[u8]) -> Framework {
    Image::parse(&bound(code)).expect("a right image").framework().expect("it binds to the framework")
}

/// The indices.
fn called(code: &[u8]) -> Vec<u32> {
    used(code).called.into_keys().collect()
}

/// `WdfDriverCreate`, and its place in the table.
const CREATE: u32 = 116;
const CREATE_PLACE: [u8; 4] = (8 * CREATE).to_le_bytes();

#[test]
fn a_call_through_the_table_is_found_by_its_index() {
    // mov rax, [WdfFunctions]; xor ecx, ecx; call [rax + 8 * 116]; ret
    let code = [&load(0, FUNCTIONS)[..], &[0x31, 0xC9, 0xFF, 0x90], &CREATE_PLACE, &[0xC3]].concat();
    let expected = Framework {
        version: (1, 15),
        count: 444,
        called: BTreeMap::from([(CREATE, CODE + 9)]),
        unclear: BTreeSet::new(),
    };
    assert_eq!(used(&code), expected);
    assert_eq!(framework::find(CREATE), Some(("WdfDriverCreate", true)));
}

#[test]
fn a_guarded_call_loads_the_function_first() {
    // mov rax, [WdfFunctions]; mov rax, [rax + 8 * 116]; call [rip + 0]; ret
    let code = [&load(0, FUNCTIONS)[..], &[0x48, 0x8B, 0x80], &CREATE_PLACE, &[0xFF, 0x15, 0, 0, 0, 0, 0xC3]].concat();
    assert_eq!(called(&code), [CREATE]);
}

#[test]
fn an_index_that_is_multiplied_out_at_run_time_is_known() {
    // mov eax, 8; imul rax, rax, 116; mov rcx, [WdfFunctions]; mov rax, [rcx + rax]; call rax; ret
    let mut table = load(9, FUNCTIONS);
    table[2] = 0x0D;
    let code =
        [&[0xB8, 8, 0, 0, 0, 0x48, 0x6B, 0xC0, 116][..], &table, &[0x48, 0x8B, 0x04, 0x01, 0xFF, 0xD0, 0xC3]].concat();
    assert_eq!(called(&code), [CREATE]);
}

#[test]
fn a_table_that_is_reached_by_a_constant_is_the_table() {
    // mov rax, [pointer]; mov rax, [rax]; jmp [rax + 8 * 116]
    let code = [&load(0, POINTER)[..], &[0x48, 0x8B, 0x00, 0xFF, 0xA0], &CREATE_PLACE].concat();
    assert_eq!(called(&code), [CREATE]);
}

#[test]
fn both_sides_of_a_branch_are_followed() {
    // mov rax, [WdfFunctions]; test cl, cl; je +7; call [rax + 0x10]; ret; int3 x3; (target) call [rax + 0x18]; ret
    let code = [
        &load(0, FUNCTIONS)[..],
        &[0x84, 0xC9, 0x74, 7, 0xFF, 0x50, 0x10, 0xC3, 0xCC, 0xCC, 0xCC, 0xFF, 0x50, 0x18, 0xC3],
    ]
    .concat();
    assert_eq!(called(&code), [2, 3]);
}

#[test]
fn a_register_that_was_overwritten_is_not_the_table() {
    // mov rax, [WdfFunctions]; xor eax, eax; call [rax + 0x10]; ret. And after a call, which may change it.
    let code = [&load(0, FUNCTIONS)[..], &[0x31, 0xC0, 0xFF, 0x50, 0x10, 0xC3]].concat();
    assert_eq!((called(&code), used(&code).unclear), (vec![], BTreeSet::from([CODE])), "the place is told");
    let code = [&load(0, FUNCTIONS)[..], &[0xFF, 0x15, 0, 0, 0, 0, 0xFF, 0x50, 0x10, 0xC3]].concat();
    assert_eq!(called(&code), Vec::<u32>::new());
}

#[test]
fn a_place_beyond_the_table_or_between_two_is_no_function() {
    // mov rax, [WdfFunctions]; call [rax + 8 * 444]; ret
    let code = [&load(0, FUNCTIONS)[..], &[0xFF, 0x90], &(8_u32 * 444).to_le_bytes(), &[0xC3]].concat();
    assert_eq!(called(&code), Vec::<u32>::new());
    let code = [&load(0, FUNCTIONS)[..], &[0xFF, 0x50, 0x14, 0xC3]].concat();
    assert_eq!(called(&code), Vec::<u32>::new());
}

#[test]
fn an_image_that_does_not_bind_has_none() {
    assert_eq!(Image::parse(&made()).expect("a right image").framework(), None);
}
