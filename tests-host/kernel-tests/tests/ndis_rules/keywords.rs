//! Keywords of an adapter that its driver writes.

use std::ptr;

use miniport::Handlers;
use ndis::{
    NDIS_CONFIGURATION_PARAMETER, NDIS_CONFIGURATION_PARAMETER_DATA, NDIS_PARAMETER_TYPE, NDIS_STATUS,
    NDIS_STATUS_FAILURE, NDIS_STRING, NdisCloseConfiguration, NdisReadConfiguration,
};
use ndkpi::{
    NDIS_HANDLE,
    status::{NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Rule, caught};
use wdk_sys::ntddk::KfRaiseIrql;

use crate::{lifecycle::run, miniport, own::call};

unsafe extern "system" {
    // The crate `ndis` leaves it out: SoftNDK does not call it.
    fn NdisWriteConfiguration(
        status: *mut NDIS_STATUS,
        handle: NDIS_HANDLE,
        keyword: *const NDIS_STRING,
        parameter: *const NDIS_CONFIGURATION_PARAMETER,
    );
}

/// `Test`, which the installation has, in other letters; and one that it has not.
const TEST: [u16; 4] = [0x74, 0x45, 0x53, 0x54];
const NEW: [u16; 3] = [0x4E, 0x65, 0x77];

fn string(units: &[u16]) -> NDIS_STRING {
    let length = u16::try_from(size_of_val(units)).expect("short");
    NDIS_STRING { Length: length, MaximumLength: length, Buffer: units.as_ptr().cast_mut() }
}

fn open() -> NDIS_HANDLE {
    miniport::open_configuration(miniport::with(|world| world.adapter)).expect("it opens")
}

fn close(configuration: NDIS_HANDLE) {
    call!(NdisCloseConfiguration(configuration));
}

fn write(
    configuration: NDIS_HANDLE,
    name: &[u16],
    kind: NDIS_PARAMETER_TYPE,
    data: NDIS_CONFIGURATION_PARAMETER_DATA,
) -> NDIS_STATUS {
    let (mut status, name) = (NDIS_STATUS_FAILURE, string(name));
    let parameter = NDIS_CONFIGURATION_PARAMETER { ParameterType: kind, ParameterData: data };
    call!(NdisWriteConfiguration(&raw mut status, configuration, &raw const name, &raw const parameter));
    status
}

fn write_number(configuration: NDIS_HANDLE, name: &[u16], number: u32) -> NDIS_STATUS {
    let data = NDIS_CONFIGURATION_PARAMETER_DATA { IntegerData: number };
    write(configuration, name, NDIS_PARAMETER_TYPE::INTEGER, data)
}

/// The value as that type, if it is there and can be.
fn read(
    configuration: NDIS_HANDLE,
    name: &[u16],
    kind: NDIS_PARAMETER_TYPE,
) -> Option<NDIS_CONFIGURATION_PARAMETER_DATA> {
    let (mut status, mut value, name) = (NDIS_STATUS_SUCCESS, ptr::null_mut(), string(name));
    call!(NdisReadConfiguration(&raw mut status, &raw mut value, configuration, &raw const name, kind));
    // SAFETY: NDIS's own value, which lives until the configuration is closed.
    (status == NDIS_STATUS_SUCCESS).then(|| unsafe { (*value).ParameterData })
}

fn number(configuration: NDIS_HANDLE, name: &[u16], kind: NDIS_PARAMETER_TYPE) -> Option<u32> {
    // SAFETY: a number was asked for.
    read(configuration, name, kind).map(|data| unsafe { data.IntegerData })
}

/// Has a driver do something, after which its adapter is halted and it is unloaded.
fn does(work: fn()) {
    run(Handlers::default(), |_, driver, _| driver.run(work));
}

#[test]
fn what_a_driver_writes_is_there_when_it_opens_the_keywords_again() {
    does(|| {
        let configuration = open();
        assert_eq!(miniport::read_number(configuration), 42, "of the installation");
        assert_eq!(write_number(configuration, &TEST, 10), NDIS_STATUS_SUCCESS);
        assert_eq!(miniport::read_number(configuration), 10);
        assert_eq!(number(configuration, &NEW, NDIS_PARAMETER_TYPE::INTEGER), None);
        assert_eq!(write_number(configuration, &NEW, 7), NDIS_STATUS_SUCCESS);
        close(configuration);
        let configuration = open();
        assert_eq!(miniport::read_number(configuration), 10);
        let kinds = [NDIS_PARAMETER_TYPE::INTEGER, NDIS_PARAMETER_TYPE::HEX_INTEGER];
        assert_eq!(kinds.map(|kind| number(configuration, &TEST, kind)), [Some(10); 2], "a number has no digits");
        assert!(read(configuration, &TEST, NDIS_PARAMETER_TYPE::STRING).is_none());
        assert_eq!(number(configuration, &NEW, NDIS_PARAMETER_TYPE::INTEGER), Some(7));
        close(configuration);
    });
}

#[test]
fn a_text_is_written_and_read() {
    does(|| {
        let configuration = open();
        let data = NDIS_CONFIGURATION_PARAMETER_DATA { StringData: string(&[0x31, 0x30]) };
        assert_eq!(write(configuration, &NEW, NDIS_PARAMETER_TYPE::STRING, data), NDIS_STATUS_SUCCESS);
        let text = read(configuration, &NEW, NDIS_PARAMETER_TYPE::STRING).expect("a text");
        // SAFETY: a string was asked for.
        let text = unsafe { text.StringData };
        // SAFETY: NDIS's own text, which lives until the configuration is closed.
        assert_eq!((text.Length, unsafe { text.Buffer.cast::<[u16; 2]>().read() }), (4, [0x31, 0x30]));
        assert_eq!(number(configuration, &NEW, NDIS_PARAMETER_TYPE::HEX_INTEGER), Some(16));
        close(configuration);
    });
}

#[test]
fn a_value_of_no_type_is_refused() {
    does(|| {
        let configuration = open();
        let data = NDIS_CONFIGURATION_PARAMETER_DATA { IntegerData: 1 };
        assert_eq!(write(configuration, &TEST, NDIS_PARAMETER_TYPE(5), data), NDIS_STATUS_NOT_SUPPORTED);
        assert_eq!(miniport::read_number(configuration), 42);
        close(configuration);
    });
}

wrong! {
    a_keyword_of_a_configuration_that_is_closed breaks BadHandle by || {
        let configuration = open();
        close(configuration);
        let _ = write_number(configuration, &TEST, 1);
    };
    a_keyword_without_a_value breaks BadArgument by || {
        let (mut status, name) = (NDIS_STATUS_SUCCESS, string(&TEST));
        call!(NdisWriteConfiguration(&raw mut status, open(), &raw const name, ptr::null()));
    };
    a_keyword_that_is_written_at_dispatch_level breaks IrqlTooHigh by || {
        let configuration = open();
        call!(KfRaiseIrql(2));
        let _ = write_number(configuration, &TEST, 1);
    };
}
