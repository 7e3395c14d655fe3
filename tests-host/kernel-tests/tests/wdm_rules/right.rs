//! What drivers do that are right, and that a kernel must not accuse them of; with the mistakes that lie beside it.

use std::ptr;

use simulated_kernel::{DuringRun, Kernel, Rule, caught, object_attributes};
use wdk_sys::{
    HANDLE, IO_STATUS_BLOCK, KEVENT, MDL, NTSTATUS, OBJECT_ATTRIBUTES, PDEVICE_OBJECT, PIRP, PVOID,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_PENDING, STATUS_SUCCESS, UNICODE_STRING,
    ntddk::{
        IoAllocateMdl, IoAllocateWorkItem, IoBuildDeviceIoControlRequest, IoDeleteSymbolicLink, IoFreeMdl,
        IoFreeWorkItem, IoQueueWorkItemEx, IofCallDriver, KeInitializeEvent, KeWaitForSingleObject,
        MmBuildMdlForNonPagedPool, MmMapLockedPagesSpecifyCache, ObReferenceObjectByHandle, ObfDereferenceObject,
        ObfReferenceObject, PsCreateSystemThread, ZwClose, ZwOpenKey,
    },
};

use crate::driver::{self, CODE, LINK, Parts, complete, run};

/// Control codes of the driver, by their methods.
const IN_DIRECT: u32 = CODE | 1;
const OUT_DIRECT: u32 = CODE | 2;
const NEITHER: u32 = CODE | 3;

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn does(work: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) {
    run(Parts { control: work, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    });
}

unsafe extern "C" fn free_itself(object: PVOID, driver: PVOID, item: wdk_sys::PIO_WORKITEM) {
    assert_eq!(object, driver, "what the work item was allocated for");
    call!(IoFreeWorkItem(item));
}

#[test]
fn a_work_item_may_be_one_of_the_driver() {
    does(|device, irp| {
        // SAFETY: the driver's device.
        let driver = unsafe { (*device).DriverObject };
        let item = call!(IoAllocateWorkItem(driver.cast()));
        call!(IoQueueWorkItemEx(item, Some(free_itself), 1, driver.cast()));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_work_item_of_nothing() {
    caught(concat!(module_path!(), "::a_work_item_of_nothing"), Rule::BadHandle, || {
        does(|_, irp| {
            call!(IoAllocateWorkItem(irp.cast()));
            complete(irp, 0, 0)
        });
    });
}

unsafe extern "C" fn nothing(_: PVOID) {}

/// Starts a thread with these attributes.
fn thread(attributes: *mut OBJECT_ATTRIBUTES) -> HANDLE {
    let (mut handle, nobody) = (ptr::null_mut(), ptr::null_mut());
    let started =
        call!(PsCreateSystemThread(&raw mut handle, 0, attributes, nobody, nobody.cast(), Some(nothing), nobody));
    assert_eq!(started, STATUS_SUCCESS);
    handle
}

/// Waits for the end of a thread by its object, as most drivers do.
fn join(handle: HANDLE) {
    let mut object = ptr::null_mut();
    let referenced = call!(ObReferenceObjectByHandle(handle, 0, ptr::null_mut(), 0, &raw mut object, ptr::null_mut()));
    assert_eq!((referenced, call!(ZwClose(handle))), (STATUS_SUCCESS, STATUS_SUCCESS));
    assert_eq!(call!(KeWaitForSingleObject(object, 0, 0, 0, ptr::null_mut())), STATUS_SUCCESS);
    call!(ObfDereferenceObject(object));
}

/// Opens the driver's key by a handle with these flags.
fn key(flags: u32) -> HANDLE {
    let path = r"\registry\machine\SYSTEM\CurrentControlSet\Services\plain";
    let path: Vec<u16> = path.encode_utf16().collect();
    let bytes = u16::try_from(2 * path.len()).expect("a short path");
    let mut path = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: path.as_ptr().cast_mut() };
    let mut attributes = OBJECT_ATTRIBUTES { ObjectName: &raw mut path, Attributes: flags, ..object_attributes() };
    let mut handle = ptr::null_mut();
    assert_eq!(call!(ZwOpenKey(&raw mut handle, wdk_sys::KEY_READ, &raw mut attributes)), STATUS_SUCCESS);
    handle
}

#[test]
fn a_thread_of_the_system_needs_no_kernel_handle() {
    let load = |_| {
        join(thread(ptr::null_mut()));
        let mut attributes = OBJECT_ATTRIBUTES { Attributes: 0, ..object_attributes() };
        join(thread(&raw mut attributes));
        call!(ZwClose(key(0)));
    };
    run(Parts { load, ..Parts::default() }, |_, _, _| ());
}

/// Has a program of a process of its own send a control code.
fn in_a_process(parts: Parts) {
    let kernel = Kernel::seeded(1).preemption(0).start();
    driver::prepare(parts);
    let loaded = kernel.load("plain", driver::entry).expect("the driver loads");
    let process = kernel.process();
    let file = process.open_device(LINK).expect("the device opens");
    assert_eq!(file.control(CODE, &[], 0).status, STATUS_SUCCESS);
    drop(file);
    drop(process);
    loaded.unload();
}

#[test]
fn a_kernel_handle_is_one_in_every_process() {
    in_a_process(Parts {
        control: |_, irp| {
            let mut attributes = object_attributes();
            join(thread(&raw mut attributes));
            complete(irp, 0, 0)
        },
        ..Parts::default()
    });
}

#[test]
fn a_handle_of_a_program() {
    caught(concat!(module_path!(), "::a_handle_of_a_program"), Rule::BadArgument, || {
        in_a_process(Parts {
            control: |_, irp| {
                join(thread(ptr::null_mut()));
                complete(irp, 0, 0)
            },
            ..Parts::default()
        });
    });
}

#[test]
fn a_handle_of_another_process() {
    static KEY: DuringRun<std::sync::atomic::AtomicUsize> = DuringRun::new(std::sync::atomic::AtomicUsize::new(0));
    use std::sync::atomic::Ordering::SeqCst;
    caught(concat!(module_path!(), "::a_handle_of_another_process"), Rule::BadHandle, || {
        in_a_process(Parts {
            load: |_| KEY.store(key(0).addr(), SeqCst),
            control: |_, irp| {
                call!(ZwClose(ptr::without_provenance_mut(KEY.load(SeqCst))));
                complete(irp, 0, 0)
            },
            ..Parts::default()
        });
    });
}

/// The output of a request with a direct method (`MmGetSystemAddressForMdlSafe`).
fn mapped(irp: PIRP) -> *mut u8 {
    // SAFETY: the driver has the request.
    let mdl = unsafe { (*irp).MdlAddress };
    call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 0x4000_0010)).cast()
}

/// Adds one to each byte.
fn answer(irp: PIRP, input: *const u8, output: *mut u8, length: usize) -> NTSTATUS {
    for index in 0..length {
        // SAFETY: both buffers have as many bytes.
        let byte = unsafe { input.wrapping_add(index).read() };
        // SAFETY: both buffers have as many bytes.
        unsafe { output.wrapping_add(index).write(byte + 1) };
    }
    complete(irp, 0, length as u64)
}

#[test]
fn direct_methods_have_an_mdl() {
    let control = |_, irp| answer(irp, driver::buffer(irp), mapped(irp), 3);
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        for code in [IN_DIRECT, OUT_DIRECT] {
            let answer = file.control(code, &[1, 2, 3], 5);
            assert_eq!((answer.status, answer.bytes), (STATUS_SUCCESS, vec![2, 3, 4]));
        }
    });
}

#[test]
fn a_buffer_without_bytes_is_not_there() {
    let control = |_, irp: PIRP| {
        // SAFETY: the driver has the request.
        let mdl = unsafe { (*irp).MdlAddress };
        assert!(mdl.is_null() && driver::buffer(irp).is_null());
        complete(irp, 0, 0)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        for code in [CODE, IN_DIRECT, OUT_DIRECT] {
            assert_eq!(file.control(code, &[], 0).status, STATUS_SUCCESS);
        }
    });
}

#[test]
fn the_method_neither_has_addresses() {
    let control = |_, irp: PIRP| {
        // SAFETY: the driver has the request.
        let parameters = unsafe { (*driver::location(irp)).Parameters };
        // SAFETY: the arm of a control code.
        let input = unsafe { parameters.DeviceIoControl.Type3InputBuffer };
        // SAFETY: the driver has the request.
        answer(irp, input.cast(), unsafe { (*irp).UserBuffer }.cast(), 2)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(NEITHER, &[8, 9], 2).bytes, [9, 10]);
    });
}

#[test]
fn a_drivers_own_control_code_has_an_mdl_too() {
    fn control(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
        // SAFETY: the driver has the request.
        let parameters = unsafe { (*driver::location(irp)).Parameters };
        // SAFETY: the arm of a control code.
        if unsafe { parameters.DeviceIoControl.IoControlCode } == OUT_DIRECT {
            return answer(irp, driver::buffer(irp), mapped(irp), 3);
        }
        let (mut event, mut status) = (KEVENT::default(), IO_STATUS_BLOCK::default());
        let (input, mut output) = ([4_u8, 5, 6], [0_u8; 3]);
        call!(KeInitializeEvent(&raw mut event, 0, 0));
        let request = call!(IoBuildDeviceIoControlRequest(
            OUT_DIRECT,
            device,
            input.as_ptr().cast_mut().cast(),
            3,
            output.as_mut_ptr().cast(),
            3,
            0,
            &raw mut event,
            &raw mut status
        ));
        if call!(IofCallDriver(device, request)) == STATUS_PENDING {
            call!(KeWaitForSingleObject((&raw mut event).cast(), 0, 0, 0, ptr::null_mut()));
        }
        assert_eq!((status.Information, output), (3, [5, 6, 7]));
        complete(irp, 0, 0)
    }
    does(control);
}

#[test]
fn a_link_that_is_not_there_is_not_deleted() {
    does(|_, irp| {
        let name: Vec<u16> = r"\DosDevices\Nothing".encode_utf16().collect();
        let bytes = u16::try_from(2 * name.len()).expect("a short name");
        let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() };
        assert_eq!(call!(IoDeleteSymbolicLink(&raw mut name)), STATUS_OBJECT_NAME_NOT_FOUND);
        complete(irp, 0, 0)
    });
}

#[test]
fn a_link_has_several_names() {
    run(Parts::default(), |kernel, _, _| {
        for link in [r"\??\plain", r"\DOSDEVICES\PLAIN", r"\GLOBAL??\Plain", r"\DosDevices\Global\Plain"] {
            assert!(kernel.open_device(link).is_ok(), "{link}");
        }
    });
}

#[test]
fn an_mdl_may_be_in_memory_of_the_driver() {
    #[repr(C)]
    struct OwnMdl {
        header: MDL,
        pages: [u64; 2],
    }
    does(|_, irp| {
        let mut memory = Box::new([7_u8; 64]);
        let start: *mut u8 = memory.as_mut_ptr();
        let offset = start.addr() % 4096;
        let pages = (offset + 64).div_ceil(4096);
        // `MmInitializeMdl`.
        let mut own = Box::new(OwnMdl { header: MDL::default(), pages: [0; 2] });
        own.header.Size = i16::try_from(size_of::<MDL>() + 8 * pages).expect("a small structure");
        own.header.StartVa = start.wrapping_sub(offset).cast();
        (own.header.ByteOffset, own.header.ByteCount) = (u32::try_from(offset).expect("in a page"), 64);
        let mdl: *mut MDL = &raw mut own.header;
        call!(MmBuildMdlForNonPagedPool(mdl));
        // SAFETY: the MDL was just built.
        assert_eq!(unsafe { (*mdl).MappedSystemVa }, start.cast());
        complete(irp, 0, 0)
    });
}

#[test]
fn an_mdl_of_the_drivers_own_memory_is_not_freed() {
    caught(concat!(module_path!(), "::an_mdl_of_the_drivers_own_memory_is_not_freed"), Rule::BadMdl, || {
        does(|_, irp| {
            call!(IoFreeMdl(Box::leak(Box::new(MDL::default()))));
            complete(irp, 0, 0)
        });
    });
}

#[test]
fn an_mdl_may_be_one_of_a_request() {
    let control = |_, irp: PIRP| {
        let mut memory = Box::new([7_u8; 64]);
        let mdl = call!(IoAllocateMdl(memory.as_mut_ptr().cast(), 64, 0, 0, irp));
        // SAFETY: the driver has the request.
        assert_eq!(unsafe { (*irp).MdlAddress }, mdl);
        // The system frees it with the request.
        complete(irp, 0, 0)
    };
    run(Parts { control, ..Parts::default() }, |_, _, file| {
        assert_eq!(file.control(NEITHER, &[], 0).status, STATUS_SUCCESS);
    });
}

#[test]
fn a_driver_may_refer_to_its_device() {
    does(|device, irp| {
        call!(ObfReferenceObject(device.cast()));
        call!(ObfDereferenceObject(device.cast()));
        complete(irp, 0, 0)
    });
}

#[test]
fn a_reference_to_a_device_left() {
    caught(concat!(module_path!(), "::a_reference_to_a_device_left"), Rule::ReferenceLeak, || {
        does(|device, irp| {
            call!(ObfReferenceObject(device.cast()));
            complete(irp, 0, 0)
        });
    });
}
