//! Routines of NDIS that our drivers call and that had no test of their own: control devices, the chosen hardware address, the bytes of a
//! frame in one piece, an adapter that has failed, and numbers for sends.

use std::{ffi::c_void, ptr};

use miniport::Handlers;
use ndis::{
    DRIVER_DISPATCH, NDIS_CONFIGURATION_OBJECT, NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_STATUS, NDIS_STRING,
    NdisCloseConfiguration, NdisDeregisterDeviceEx, NdisGetDataBuffer, NdisMRemoveMiniport, NdisOpenConfigurationEx,
    NdisReadNetworkAddress, NdisRegisterDeviceEx,
};
use ndkpi::{NDIS_HANDLE, status::NDIS_STATUS_SUCCESS};
use simulated_kernel::{Kernel, Rule, caught};

use crate::{lifecycle::run, miniport};

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisGetDeviceReservedExtension(device: *mut ndis::DEVICE_OBJECT) -> *mut c_void;
    fn NdisGeneratePartialCancelId() -> u8;
}

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or are as wrong as the test wants.
        unsafe { $name($($argument),*) }
    }};
}

pub(crate) use call;

/// Registers a control device of that extension: the device and its handle.
fn register(extension: u32) -> (*mut ndis::DEVICE_OBJECT, NDIS_HANDLE) {
    let mut names = [[0; 16]; 2];
    let string = |units: &mut [u16; 16], text: &str| {
        for (place, unit) in units.iter_mut().zip(text.encode_utf16()) {
            *place = unit;
        }
        let length = u16::try_from(2 * text.len()).expect("short");
        NDIS_STRING { Length: length, MaximumLength: length + 2, Buffer: units.as_mut_ptr() }
    };
    let [first, second] = &mut names;
    let (name, link) = (string(first, r"\Device\Own"), string(second, r"\DosDevices\Own"));
    let mut functions: [Option<DRIVER_DISPATCH>; 28] = [None; 28];
    let attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES {
        Header: NDIS_DEVICE_OBJECT_ATTRIBUTES::HEADER,
        DeviceName: &raw const name,
        SymbolicName: &raw const link,
        MajorFunctions: functions.as_mut_ptr(),
        ExtensionSize: extension,
        DefaultSDDLString: ptr::null(),
        DeviceClassGuid: ptr::null(),
    };
    let (mut device, mut handle) = (ptr::null_mut(), ptr::null_mut());
    let driver = miniport::with(|world| world.driver);
    let status = call!(NdisRegisterDeviceEx(driver, &raw const attributes, &raw mut device, &raw mut handle));
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    (device, handle)
}

#[test]
fn a_control_device_has_the_extension_that_was_asked_for() {
    run(Handlers::default(), |_, driver, _| {
        driver.run(|| {
            let (device, handle) = register(16);
            let extension = call!(NdisGetDeviceReservedExtension(device)).cast::<[u8; 16]>();
            // SAFETY: the driver's part of its device object, of as many bytes.
            unsafe { extension.write([7; 16]) };
            call!(NdisDeregisterDeviceEx(handle));
            let (device, handle) = register(0);
            assert!(call!(NdisGetDeviceReservedExtension(device)).is_null(), "none was asked for");
            call!(NdisDeregisterDeviceEx(handle));
        });
    });
}

#[test]
fn a_control_device_that_is_gone_has_no_extension() {
    caught(concat!(module_path!(), "::a_control_device_that_is_gone_has_no_extension"), Rule::BadHandle, || {
        run(Handlers::default(), |_, driver, _| {
            driver.run(|| {
                let (device, handle) = register(16);
                call!(NdisDeregisterDeviceEx(handle));
                call!(NdisGetDeviceReservedExtension(device));
            });
        });
    });
}

#[test]
fn a_control_device_is_deregistered_once() {
    caught(concat!(module_path!(), "::a_control_device_is_deregistered_once"), Rule::BadHandle, || {
        run(Handlers::default(), |_, driver, _| {
            driver.run(|| {
                let (_, handle) = register(0);
                call!(NdisDeregisterDeviceEx(handle));
                call!(NdisDeregisterDeviceEx(handle));
            });
        });
    });
}

/// The size of a structure ends with its last member, or with the padding behind it, which `sizeof` has.
#[test]
fn a_structure_may_be_as_long_as_sizeof_says() {
    let kernel = Kernel::seeded(1).start();
    miniport::prepare(Handlers::default());
    let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
    let nic = driver.add_nic(&[]).expect("the adapter starts");
    driver.run(|| {
        let mut header = NDIS_CONFIGURATION_OBJECT::HEADER;
        assert_eq!((header.Size, size_of::<NDIS_CONFIGURATION_OBJECT>()), (20, 24));
        header.Size = 24;
        let adapter = miniport::with(|world| world.adapter);
        let object = NDIS_CONFIGURATION_OBJECT { Header: header, NdisHandle: adapter, Flags: 0 };
        let mut configuration = ptr::null_mut();
        assert_eq!(call!(NdisOpenConfigurationEx(&raw const object, &raw mut configuration)), NDIS_STATUS_SUCCESS);
        call!(NdisCloseConfiguration(configuration));
    });
    nic.remove();
    driver.unload();
}

#[test]
fn the_chosen_hardware_address_is_read() {
    for (chosen, expected) in [("02-00-00-00-00-07", Some([2, 0, 0, 0, 0, 7])), ("no address", None)] {
        let kernel = Kernel::seeded(1).start();
        miniport::prepare(Handlers::default());
        let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
        let nic = driver.add_nic(&[("NetworkAddress", chosen)]).expect("the adapter starts");
        driver.run(|| {
            let adapter = miniport::with(|world| world.adapter);
            let configuration = miniport::open_configuration(adapter).expect("it opens");
            let (mut status, mut place, mut length) = (NDIS_STATUS::SUCCESS, ptr::null_mut(), 0);
            call!(NdisReadNetworkAddress(&raw mut status, &raw mut place, &raw mut length, configuration));
            let read = (status == NDIS_STATUS_SUCCESS).then(|| {
                assert_eq!(length, 6);
                // SAFETY: NDIS's own bytes, which live until the configuration is closed.
                unsafe { place.cast::<[u8; 6]>().read() }
            });
            assert_eq!(read, expected, "{chosen}");
            call!(NdisCloseConfiguration(configuration));
        });
        nic.remove();
        driver.unload();
    }
}

#[test]
fn an_adapter_that_has_failed_says_so() {
    run(Handlers::default(), |_, driver, nic| {
        assert!(!nic.has_failed());
        let status = driver.run(|| call!(NdisMRemoveMiniport(miniport::with(|world| world.adapter))));
        assert_eq!((status, nic.has_failed()), (NDIS_STATUS_SUCCESS, true));
    });
}

#[test]
fn the_bytes_of_a_frame_are_got_in_one_piece() {
    /// What the driver looks at before it completes the list.
    fn look(list: *mut ndis::NET_BUFFER_LIST) {
        // SAFETY: the list that NDIS has given, with one net buffer.
        let buffer = unsafe { (*list).FirstNetBuffer };
        let mut storage = [0_u8; 64];
        let place = storage.as_mut_ptr().cast();
        let bytes = call!(NdisGetDataBuffer(buffer, 60, place, 1, 0)).cast::<[u8; 60]>();
        // SAFETY: as many bytes as were asked for, in the frame or in the storage.
        assert_eq!(unsafe { bytes.read() }, [9; 60]);
        assert!(call!(NdisGetDataBuffer(buffer, 61, place, 1, 0)).is_null(), "more than there are");
        assert!(call!(NdisGetDataBuffer(buffer, 0, place, 1, 0)).is_null(), "none");
        let first = call!(NdisGetDataBuffer(buffer, 60, ptr::null_mut(), 1, 0));
        let in_one_piece = !first.is_null();
        assert_eq!(in_one_piece, !ptr::eq(bytes.cast(), place), "the storage is for a frame in several pieces");
        miniport::complete(list);
    }
    run(Handlers { send: look, ..Handlers::default() }, |_, _, nic| {
        // No two frames lie in memory in the same way.
        for _ in 0..6 {
            assert_eq!(nic.send(&[&[9; 60]]).wait(), [NDIS_STATUS_SUCCESS]);
        }
    });
}

#[test]
fn two_drivers_number_their_sends_differently() {
    run(Handlers::default(), |_, driver, _| {
        let [one, other] = driver.run(|| [call!(NdisGeneratePartialCancelId()), call!(NdisGeneratePartialCancelId())]);
        assert!(one != other && one != 0 && other != 0, "{one} and {other}");
    });
}
