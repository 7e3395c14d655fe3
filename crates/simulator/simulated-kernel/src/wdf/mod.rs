//! The framework: KMDF's function table over objects of this crate's own.

#![allow(non_snake_case, reason = "names of the C headers")]

#[cfg(windows)]
pub mod bind;
pub mod collection;
pub mod device;
pub mod device_init;
pub mod dpc;
pub mod driver;
mod fdo_init;
pub mod file;
pub mod first;
mod function;
pub mod idle;
pub mod interrupt;
pub mod lookaside;
pub mod memory;
pub mod miniport;
pub mod object;
pub mod policy;
pub mod power;
pub mod preprocess;
pub mod property;
pub mod query_interface;
pub mod queue;
pub mod registry;
mod registry_keys;
pub mod request;
pub mod request_cancel;
pub mod request_facts;
pub mod request_irp;
mod request_mdl;
pub mod request_user;
pub mod resources;
pub mod sent;
pub mod spin_lock;
pub mod target;
pub mod target_internal;
pub mod target_io;
pub mod timer;
pub mod wait_lock;
pub mod wdm_devices;
pub mod wdm_objects;
pub mod work_item;

#[cfg(unix)]
use std::ptr;

use std::sync::OnceLock;

use image_loader::framework::FUNCTIONS;
use wdk_bindings::{_WDFFUNCENUM, WDFFUNC};

use self::function::Function;
use crate::{
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
};

#[cfg(unix)]
use wdk_bindings::{PWDF_DRIVER_GLOBALS, WDF_DRIVER_GLOBALS};

/// As many as the last version that is known has.
const COUNT: usize = FUNCTIONS.len();

/// The function table, which the drivers read through the variable of that name.
#[cfg(unix)]
#[unsafe(no_mangle)]
static mut WdfFunctions: *const WDFFUNC = ptr::null();
/// What every call of a driver passes back. The functions here do without it, because all drivers of a process share it.
#[cfg(unix)]
#[unsafe(no_mangle)]
static mut WdfDriverGlobals: PWDF_DRIVER_GLOBALS = ptr::null_mut();

/// Stands where the function with that index would be.
extern "C" fn missing<const INDEX: usize>() {
    let name = FUNCTIONS.get(INDEX).copied().unwrap_or("a function of the framework");
    carry_out(name, &Limit::at(host::machine::Irql::HIGH_LEVEL), |_| {
        bug_check(Rule::NotSimulated, format_args!("{name}, function {INDEX} of the framework"))
    });
}

macro_rules! missing {
    ($($eight:literal)*) => {
        [$(
            missing::<{ 8 * $eight }>, missing::<{ 8 * $eight + 1 }>, missing::<{ 8 * $eight + 2 }>, missing::<{ 8 * $eight + 3 }>,
            missing::<{ 8 * $eight + 4 }>, missing::<{ 8 * $eight + 5 }>, missing::<{ 8 * $eight + 6 }>, missing::<{ 8 * $eight + 7 }>,
        )*]
    };
}

/// One function for each place of the table, so that a call says which it wanted.
const MISSING: [Function; 464] = missing! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
    28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
    56 57
};

const _: () = assert!(MISSING.len() >= COUNT, "each place of the table has one");
const _: () =
    assert!(_WDFFUNCENUM::WdfFunctionTableNumEntries as usize <= COUNT, "the drivers' version is one of them");

/// The function table.
fn functions() -> &'static [WDFFUNC; COUNT] {
    static TABLE: OnceLock<[WDFFUNC; COUNT]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table: [WDFFUNC; COUNT] = std::array::from_fn(|index| Some(MISSING[index]));
        for (index, function) in entries() {
            table[index] = Some(function);
        }
        let lists: [&[(&'static str, *const ())]; 23] = [
            &device_init::entries(),
            &fdo_init::entries(),
            &file::entries(),
            &idle::entries(),
            &interrupt::entries(),
            &lookaside::entries(),
            &object::entries(),
            &policy::entries(),
            &power::entries(),
            &preprocess::entries(),
            &property::entries(),
            &query_interface::entries(),
            &queue::entries(),
            &registry_keys::entries(),
            &request_irp::entries(),
            &request_mdl::entries(),
            &request_user::entries(),
            &resources::entries(),
            &sent::entries(),
            &target::entries(),
            &target_internal::entries(),
            &target_io::entries(),
            &wdm_objects::entries(),
        ];
        for &(name, function) in lists.into_iter().flatten() {
            let index = FUNCTIONS.iter().position(|&one| one == name).expect("a function of the framework");
            // SAFETY: a function's address; whoever calls it gives it back the type that the framework's header has for the name.
            table[index] = Some(unsafe { std::mem::transmute::<*const (), Function>(function) });
        }
        for (index, function) in miniport::entries() {
            table[index] = Some(function);
        }
        table
    })
}

/// Puts the table where the drivers look for it.
#[cfg(unix)]
pub fn install() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let globals: &'static mut WDF_DRIVER_GLOBALS = Box::leak(Box::new(WDF_DRIVER_GLOBALS::default()));
        // SAFETY: the first kernel of the process starts, so no driver reads the variable yet.
        unsafe {
            WdfFunctions = functions().as_ptr();
            WdfDriverGlobals = globals;
        }
    });
}

macro_rules! table {
    ($($module:ident :: $name:ident @ $index:ident : $type:ident,)+) => {
        fn entries() -> Vec<(usize, Function)> {
            vec![$({
                // Checked here: a function of another type does not fit the table's place.
                let function: wdk_bindings::$type = Some($module::$name);
                let function = function.map_or(std::ptr::null(), |function| function as *const ());
                // SAFETY: a function's address; whoever calls it gives it back the type that was checked above.
                (_WDFFUNCENUM::$index as usize, unsafe { std::mem::transmute::<*const (), Function>(function) })
            },)+]
        }
    };
}

table! {
    driver::WdfDriverCreate @ WdfDriverCreateTableIndex: PFN_WDFDRIVERCREATE,
    driver::WdfDriverWdmGetDriverObject @ WdfDriverWdmGetDriverObjectTableIndex: PFN_WDFDRIVERWDMGETDRIVEROBJECT,
    device_init::WdfControlDeviceInitAllocate @ WdfControlDeviceInitAllocateTableIndex: PFN_WDFCONTROLDEVICEINITALLOCATE,
    device_init::WdfDeviceInitFree @ WdfDeviceInitFreeTableIndex: PFN_WDFDEVICEINITFREE,
    device_init::WdfDeviceInitAssignName @ WdfDeviceInitAssignNameTableIndex: PFN_WDFDEVICEINITASSIGNNAME,
    device_init::WdfDeviceInitSetDeviceType @ WdfDeviceInitSetDeviceTypeTableIndex: PFN_WDFDEVICEINITSETDEVICETYPE,
    device_init::WdfDeviceInitSetCharacteristics @ WdfDeviceInitSetCharacteristicsTableIndex:
        PFN_WDFDEVICEINITSETCHARACTERISTICS,
    device_init::WdfDeviceInitSetPnpPowerEventCallbacks @ WdfDeviceInitSetPnpPowerEventCallbacksTableIndex:
        PFN_WDFDEVICEINITSETPNPPOWEREVENTCALLBACKS,
    device_init::WdfDeviceInitSetFileObjectConfig @ WdfDeviceInitSetFileObjectConfigTableIndex:
        PFN_WDFDEVICEINITSETFILEOBJECTCONFIG,
    device_init::WdfDeviceInitSetRequestAttributes @ WdfDeviceInitSetRequestAttributesTableIndex:
        PFN_WDFDEVICEINITSETREQUESTATTRIBUTES,
    device_init::WdfDeviceInitSetExclusive @ WdfDeviceInitSetExclusiveTableIndex: PFN_WDFDEVICEINITSETEXCLUSIVE,
    file::WdfRequestGetFileObject @ WdfRequestGetFileObjectTableIndex: PFN_WDFREQUESTGETFILEOBJECT,
    file::WdfFileObjectGetDevice @ WdfFileObjectGetDeviceTableIndex: PFN_WDFFILEOBJECTGETDEVICE,
    device::WdfDeviceCreate @ WdfDeviceCreateTableIndex: PFN_WDFDEVICECREATE,
    device::WdfControlFinishInitializing @ WdfControlFinishInitializingTableIndex: PFN_WDFCONTROLFINISHINITIALIZING,
    device::WdfDeviceSetFailed @ WdfDeviceSetFailedTableIndex: PFN_WDFDEVICESETFAILED,
    device::WdfDeviceCreateSymbolicLink @ WdfDeviceCreateSymbolicLinkTableIndex: PFN_WDFDEVICECREATESYMBOLICLINK,
    device::WdfDeviceCreateDeviceInterface @ WdfDeviceCreateDeviceInterfaceTableIndex:
        PFN_WDFDEVICECREATEDEVICEINTERFACE,
    query_interface::WdfDeviceAddQueryInterface @ WdfDeviceAddQueryInterfaceTableIndex: PFN_WDFDEVICEADDQUERYINTERFACE,
    queue::WdfIoQueueCreate @ WdfIoQueueCreateTableIndex: PFN_WDFIOQUEUECREATE,
    queue::WdfIoQueueGetDevice @ WdfIoQueueGetDeviceTableIndex: PFN_WDFIOQUEUEGETDEVICE,
    queue::WdfIoQueuePurge @ WdfIoQueuePurgeTableIndex: PFN_WDFIOQUEUEPURGE,
    queue::WdfIoQueueDrain @ WdfIoQueueDrainTableIndex: PFN_WDFIOQUEUEDRAIN,
    queue::WdfIoQueueStop @ WdfIoQueueStopTableIndex: PFN_WDFIOQUEUESTOP,
    queue::WdfIoQueueStart @ WdfIoQueueStartTableIndex: PFN_WDFIOQUEUESTART,
    queue::WdfIoQueueRetrieveNextRequest @ WdfIoQueueRetrieveNextRequestTableIndex: PFN_WDFIOQUEUERETRIEVENEXTREQUEST,
    request::WdfRequestRetrieveInputBuffer @ WdfRequestRetrieveInputBufferTableIndex: PFN_WDFREQUESTRETRIEVEINPUTBUFFER,
    request::WdfRequestRetrieveOutputBuffer @ WdfRequestRetrieveOutputBufferTableIndex:
        PFN_WDFREQUESTRETRIEVEOUTPUTBUFFER,
    request::WdfRequestComplete @ WdfRequestCompleteTableIndex: PFN_WDFREQUESTCOMPLETE,
    request::WdfRequestCompleteWithInformation @ WdfRequestCompleteWithInformationTableIndex:
        PFN_WDFREQUESTCOMPLETEWITHINFORMATION,
    request::WdfRequestSetInformation @ WdfRequestSetInformationTableIndex: PFN_WDFREQUESTSETINFORMATION,
    request_cancel::WdfRequestMarkCancelableEx @ WdfRequestMarkCancelableExTableIndex: PFN_WDFREQUESTMARKCANCELABLEEX,
    request_cancel::WdfRequestUnmarkCancelable @ WdfRequestUnmarkCancelableTableIndex: PFN_WDFREQUESTUNMARKCANCELABLE,
    request_cancel::WdfRequestIsCanceled @ WdfRequestIsCanceledTableIndex: PFN_WDFREQUESTISCANCELED,
    request_cancel::WdfRequestForwardToIoQueue @ WdfRequestForwardToIoQueueTableIndex: PFN_WDFREQUESTFORWARDTOIOQUEUE,
    registry::WdfDriverOpenParametersRegistryKey @ WdfDriverOpenParametersRegistryKeyTableIndex:
        PFN_WDFDRIVEROPENPARAMETERSREGISTRYKEY,
    registry::WdfRegistryClose @ WdfRegistryCloseTableIndex: PFN_WDFREGISTRYCLOSE,
    registry::WdfRegistryQueryULong @ WdfRegistryQueryULongTableIndex: PFN_WDFREGISTRYQUERYULONG,
    registry::WdfRegistryQueryValue @ WdfRegistryQueryValueTableIndex: PFN_WDFREGISTRYQUERYVALUE,
    object::WdfObjectCreate @ WdfObjectCreateTableIndex: PFN_WDFOBJECTCREATE,
    object::WdfObjectDelete @ WdfObjectDeleteTableIndex: PFN_WDFOBJECTDELETE,
    object::WdfObjectGetTypedContextWorker @ WdfObjectGetTypedContextWorkerTableIndex:
        PFN_WDFOBJECTGETTYPEDCONTEXTWORKER,
    object::WdfObjectReferenceActual @ WdfObjectReferenceActualTableIndex: PFN_WDFOBJECTREFERENCEACTUAL,
    object::WdfObjectDereferenceActual @ WdfObjectDereferenceActualTableIndex: PFN_WDFOBJECTDEREFERENCEACTUAL,
    spin_lock::WdfSpinLockCreate @ WdfSpinLockCreateTableIndex: PFN_WDFSPINLOCKCREATE,
    spin_lock::WdfSpinLockAcquire @ WdfSpinLockAcquireTableIndex: PFN_WDFSPINLOCKACQUIRE,
    spin_lock::WdfSpinLockRelease @ WdfSpinLockReleaseTableIndex: PFN_WDFSPINLOCKRELEASE,
    wait_lock::WdfWaitLockCreate @ WdfWaitLockCreateTableIndex: PFN_WDFWAITLOCKCREATE,
    wait_lock::WdfWaitLockAcquire @ WdfWaitLockAcquireTableIndex: PFN_WDFWAITLOCKACQUIRE,
    wait_lock::WdfWaitLockRelease @ WdfWaitLockReleaseTableIndex: PFN_WDFWAITLOCKRELEASE,
    object::WdfObjectContextGetObject @ WdfObjectContextGetObjectTableIndex: PFN_WDFOBJECTCONTEXTGETOBJECT,
    dpc::WdfDpcCreate @ WdfDpcCreateTableIndex: PFN_WDFDPCCREATE,
    dpc::WdfDpcEnqueue @ WdfDpcEnqueueTableIndex: PFN_WDFDPCENQUEUE,
    dpc::WdfDpcCancel @ WdfDpcCancelTableIndex: PFN_WDFDPCCANCEL,
    queue::WdfIoQueuePurgeSynchronously @ WdfIoQueuePurgeSynchronouslyTableIndex: PFN_WDFIOQUEUEPURGESYNCHRONOUSLY,
    queue::WdfDeviceGetDefaultQueue @ WdfDeviceGetDefaultQueueTableIndex: PFN_WDFDEVICEGETDEFAULTQUEUE,
    timer::WdfTimerCreate @ WdfTimerCreateTableIndex: PFN_WDFTIMERCREATE,
    timer::WdfTimerStart @ WdfTimerStartTableIndex: PFN_WDFTIMERSTART,
    timer::WdfTimerStop @ WdfTimerStopTableIndex: PFN_WDFTIMERSTOP,
    timer::WdfTimerGetParentObject @ WdfTimerGetParentObjectTableIndex: PFN_WDFTIMERGETPARENTOBJECT,
    work_item::WdfWorkItemCreate @ WdfWorkItemCreateTableIndex: PFN_WDFWORKITEMCREATE,
    work_item::WdfWorkItemEnqueue @ WdfWorkItemEnqueueTableIndex: PFN_WDFWORKITEMENQUEUE,
    work_item::WdfWorkItemFlush @ WdfWorkItemFlushTableIndex: PFN_WDFWORKITEMFLUSH,
    work_item::WdfWorkItemGetParentObject @ WdfWorkItemGetParentObjectTableIndex: PFN_WDFWORKITEMGETPARENTOBJECT,
    collection::WdfCollectionCreate @ WdfCollectionCreateTableIndex: PFN_WDFCOLLECTIONCREATE,
    collection::WdfCollectionAdd @ WdfCollectionAddTableIndex: PFN_WDFCOLLECTIONADD,
    collection::WdfCollectionGetCount @ WdfCollectionGetCountTableIndex: PFN_WDFCOLLECTIONGETCOUNT,
    collection::WdfCollectionGetItem @ WdfCollectionGetItemTableIndex: PFN_WDFCOLLECTIONGETITEM,
    collection::WdfStringCreate @ WdfStringCreateTableIndex: PFN_WDFSTRINGCREATE,
    collection::WdfStringGetUnicodeString @ WdfStringGetUnicodeStringTableIndex: PFN_WDFSTRINGGETUNICODESTRING,
    target::WdfIoTargetCreate @ WdfIoTargetCreateTableIndex: PFN_WDFIOTARGETCREATE,
    target::WdfIoTargetOpen @ WdfIoTargetOpenTableIndex: PFN_WDFIOTARGETOPEN,
    target::WdfIoTargetClose @ WdfIoTargetCloseTableIndex: PFN_WDFIOTARGETCLOSE,
    target::WdfIoTargetCloseForQueryRemove @ WdfIoTargetCloseForQueryRemoveTableIndex:
        PFN_WDFIOTARGETCLOSEFORQUERYREMOVE,
    query_interface::WdfIoTargetQueryForInterface @ WdfIoTargetQueryForInterfaceTableIndex: PFN_WDFIOTARGETQUERYFORINTERFACE,
    driver::WdfDriverIsVersionAvailable @ WdfDriverIsVersionAvailableTableIndex: PFN_WDFDRIVERISVERSIONAVAILABLE,
    driver::WdfDriverRetrieveVersionString @ WdfDriverRetrieveVersionStringTableIndex: PFN_WDFDRIVERRETRIEVEVERSIONSTRING,
    driver::WdfDeviceGetDriver @ WdfDeviceGetDriverTableIndex: PFN_WDFDEVICEGETDRIVER,
    device_init::WdfDeviceInitSetIoType @ WdfDeviceInitSetIoTypeTableIndex: PFN_WDFDEVICEINITSETIOTYPE,
    queue::WdfIoQueueStopSynchronously @ WdfIoQueueStopSynchronouslyTableIndex: PFN_WDFIOQUEUESTOPSYNCHRONOUSLY,
    queue::WdfIoQueueDrainSynchronously @ WdfIoQueueDrainSynchronouslyTableIndex: PFN_WDFIOQUEUEDRAINSYNCHRONOUSLY,
    queue::WdfIoQueueGetState @ WdfIoQueueGetStateTableIndex: PFN_WDFIOQUEUEGETSTATE,
    request_cancel::WdfRequestMarkCancelable @ WdfRequestMarkCancelableTableIndex: PFN_WDFREQUESTMARKCANCELABLE,
    request_facts::WdfRequestGetIoQueue @ WdfRequestGetIoQueueTableIndex: PFN_WDFREQUESTGETIOQUEUE,
    request_facts::WdfRequestGetInformation @ WdfRequestGetInformationTableIndex: PFN_WDFREQUESTGETINFORMATION,
    request_facts::WdfRequestGetRequestorMode @ WdfRequestGetRequestorModeTableIndex: PFN_WDFREQUESTGETREQUESTORMODE,
    request_facts::WdfRequestGetParameters @ WdfRequestGetParametersTableIndex: PFN_WDFREQUESTGETPARAMETERS,
    request_facts::WdfRequestCompleteWithPriorityBoost @ WdfRequestCompleteWithPriorityBoostTableIndex: PFN_WDFREQUESTCOMPLETEWITHPRIORITYBOOST,
    collection::WdfCollectionGetFirstItem @ WdfCollectionGetFirstItemTableIndex: PFN_WDFCOLLECTIONGETFIRSTITEM,
    collection::WdfCollectionGetLastItem @ WdfCollectionGetLastItemTableIndex: PFN_WDFCOLLECTIONGETLASTITEM,
    collection::WdfCollectionRemove @ WdfCollectionRemoveTableIndex: PFN_WDFCOLLECTIONREMOVE,
    collection::WdfCollectionRemoveItem @ WdfCollectionRemoveItemTableIndex: PFN_WDFCOLLECTIONREMOVEITEM,
    memory::WdfMemoryCreate @ WdfMemoryCreateTableIndex: PFN_WDFMEMORYCREATE,
    memory::WdfMemoryCreatePreallocated @ WdfMemoryCreatePreallocatedTableIndex: PFN_WDFMEMORYCREATEPREALLOCATED,
    memory::WdfMemoryAssignBuffer @ WdfMemoryAssignBufferTableIndex: PFN_WDFMEMORYASSIGNBUFFER,
    memory::WdfMemoryGetBuffer @ WdfMemoryGetBufferTableIndex: PFN_WDFMEMORYGETBUFFER,
    memory::WdfMemoryCopyToBuffer @ WdfMemoryCopyToBufferTableIndex: PFN_WDFMEMORYCOPYTOBUFFER,
    memory::WdfMemoryCopyFromBuffer @ WdfMemoryCopyFromBufferTableIndex: PFN_WDFMEMORYCOPYFROMBUFFER,
    memory::WdfRequestRetrieveInputMemory @ WdfRequestRetrieveInputMemoryTableIndex: PFN_WDFREQUESTRETRIEVEINPUTMEMORY,
    memory::WdfRequestRetrieveOutputMemory @ WdfRequestRetrieveOutputMemoryTableIndex: PFN_WDFREQUESTRETRIEVEOUTPUTMEMORY,
}
