//! What there is for an image to import: the table of the simulated kernel's routines.
//!
//! A new routine is a function with its name in `crates/simulator/simulated-kernel`, a line here, and a test. The names are here and not there because
//! they are wanted where no kernel is: `ndkctl run --imports` lists what an image wants on any machine.

/// Calls the macro `$then` with every module and the names of its routines.
#[macro_export]
macro_rules! with_routines {
    ($then:ident) => {
        $then! {
            "ntoskrnl.exe" {
                CmRegisterCallbackEx
                CmUnRegisterCallback
                DbgPrint
                DbgPrintEx
                EtwEventEnabled
                EtwProviderEnabled
                EtwRegister
                EtwRegisterClassicProvider
                EtwSetInformation
                EtwUnregister
                EtwWrite
                EtwWriteTransfer
                ExAcquireFastMutex
                ExAcquireFastMutexUnsafe
                ExAcquirePushLockExclusiveEx
                ExAcquirePushLockSharedEx
                ExAcquireResourceExclusiveLite
                ExAcquireResourceSharedLite
                ExAcquireRundownProtection
                ExAcquireRundownProtectionCacheAware
                ExAcquireRundownProtectionCacheAwareEx
                ExAcquireRundownProtectionEx
                ExAcquireSharedStarveExclusive
                ExAcquireSharedWaitForExclusive
                ExAcquireSpinLockExclusive
                ExAcquireSpinLockExclusiveAtDpcLevel
                ExAcquireSpinLockShared
                ExAcquireSpinLockSharedAtDpcLevel
                ExAllocateCacheAwareRundownProtection
                ExAllocatePool
                ExAllocatePool2
                ExAllocatePool3
                ExAllocatePoolWithQuota
                ExAllocatePoolWithQuotaTag
                ExAllocatePoolWithTag
                ExAllocatePoolWithTagPriority
                ExAllocateTimer
                ExCancelTimer
                ExConvertExclusiveToSharedLite
                ExCreateCallback
                ExDeleteLookasideListEx
                ExDeleteNPagedLookasideList
                ExDeletePagedLookasideList
                ExDeleteResourceLite
                ExDeleteTimer
                ExEnterCriticalRegionAndAcquireResourceExclusive
                ExEnterCriticalRegionAndAcquireResourceShared
                ExFlushLookasideListEx
                ExFreeCacheAwareRundownProtection
                ExFreePool
                ExFreePool2
                ExFreePoolWithTag
                ExGetExclusiveWaiterCount
                ExGetPreviousMode
                ExGetSharedWaiterCount
                ExInitializeLookasideListEx
                ExInitializeNPagedLookasideList
                ExInitializePagedLookasideList
                ExInitializePushLock
                ExInitializeResourceLite
                ExInitializeRundownProtection
                ExInitializeRundownProtectionCacheAware
                ExInterlockedInsertHeadList
                ExInterlockedInsertTailList
                ExInterlockedRemoveHeadList
                ExIsResourceAcquiredExclusiveLite
                ExIsResourceAcquiredSharedLite
                ExNotifyCallback
                ExQueryDepthSList
                ExQueryTimerResolution
                ExQueueWorkItem
                ExReInitializeRundownProtection
                ExReInitializeRundownProtectionCacheAware
                ExRegisterCallback
                ExReinitializeResourceLite
                ExReleaseFastMutex
                ExReleaseFastMutexUnsafe
                ExReleasePushLockExclusiveEx
                ExReleasePushLockSharedEx
                ExReleaseResourceAndLeaveCriticalRegion
                ExReleaseResourceLite
                ExReleaseRundownProtection
                ExReleaseRundownProtectionCacheAware
                ExReleaseRundownProtectionCacheAwareEx
                ExReleaseRundownProtectionEx
                ExReleaseSpinLockExclusive
                ExReleaseSpinLockExclusiveFromDpcLevel
                ExReleaseSpinLockShared
                ExReleaseSpinLockSharedFromDpcLevel
                ExRundownCompleted
                ExRundownCompletedCacheAware
                ExSetTimer
                ExSetTimerResolution
                ExSizeOfRundownProtectionCacheAware
                ExTryAcquirePushLockExclusiveEx
                ExTryToAcquireFastMutex
                ExUnregisterCallback
                ExUuidCreate
                ExWaitForRundownProtectionRelease
                ExWaitForRundownProtectionReleaseCacheAware
                ExpInterlockedFlushSList
                ExpInterlockedPopEntrySList
                ExpInterlockedPushEntrySList
                InitializeSListHead
                IoAcquireCancelSpinLock
                IoAcquireRemoveLockEx
                IoAllocateDriverObjectExtension
                IoAllocateErrorLogEntry
                IoAllocateIrp
                IoAllocateMdl
                IoAllocateWorkItem
                IoAttachDeviceToDeviceStack
                IoBuildAsynchronousFsdRequest
                IoBuildDeviceIoControlRequest
                IoBuildPartialMdl
                IoBuildSynchronousFsdRequest
                IoCancelIrp
                IoCreateDevice
                IoCreateDeviceSecure
                IoCreateSymbolicLink
                IoCsqInitialize
                IoCsqInitializeEx
                IoCsqInsertIrp
                IoCsqInsertIrpEx
                IoCsqRemoveIrp
                IoCsqRemoveNextIrp
                IoDeleteDevice
                IoDeleteSymbolicLink
                IoDetachDevice
                IoFreeErrorLogEntry
                IoFreeIrp
                IoFreeMdl
                IoFreeWorkItem
                IoGetAttachedDeviceReference
                IoGetCurrentProcess
                IoGetDeviceInterfaces
                IoGetDeviceObjectPointer
                IoGetDeviceProperty
                IoGetDriverObjectExtension
                IoGetFileObjectGenericMapping
                IoInitializeRemoveLockEx
                IoInitializeTimer
                IoIs32bitProcess
                IoIsWdmVersionAvailable
                IoOpenDeviceRegistryKey
                IoQueueWorkItem
                IoQueueWorkItemEx
                IoRegisterDeviceInterface
                IoRegisterPlugPlayNotification
                IoRegisterShutdownNotification
                IoReleaseCancelSpinLock
                IoReleaseRemoveLockAndWaitEx
                IoReleaseRemoveLockEx
                IoReuseIrp
                IoSetDeviceInterfaceState
                IoSetStartIoAttributes
                IoStartNextPacket
                IoStartNextPacketByKey
                IoStartPacket
                IoStartTimer
                IoStopTimer
                IoUnregisterPlugPlayNotification
                IoUnregisterPlugPlayNotificationEx
                IoUnregisterShutdownNotification
                IoValidateDeviceIoControlAccess
                IoWMIDeviceObjectToProviderId
                IoWMIOpenBlock
                IoWMIRegistrationControl
                IoWMISetNotificationCallback
                IoWriteErrorLogEntry
                IofCallDriver
                IofCompleteRequest
                KeAcquireGuardedMutex
                KeAcquireInStackQueuedSpinLock
                KeAcquireInStackQueuedSpinLockAtDpcLevel
                KeAcquireSpinLockAtDpcLevel
                KeAcquireSpinLockRaiseToDpc
                KeAreAllApcsDisabled
                KeAreApcsDisabled
                KeBugCheck
                KeBugCheckEx
                KeCancelTimer
                KeClearEvent
                KeDelayExecutionThread
                KeDeregisterBugCheckCallback
                KeDeregisterBugCheckReasonCallback
                KeEnterCriticalRegion
                KeFlushQueuedDpcs
                KeGetCurrentNodeNumber
                KeGetCurrentProcessorNumberEx
                KeGetCurrentThread
                KeGetProcessorIndexFromNumber
                KeGetProcessorNumberFromIndex
                KeInitializeDeviceQueue
                KeInitializeDpc
                KeInitializeEvent
                KeInitializeGuardedMutex
                KeInitializeMutex
                KeInitializeSemaphore
                KeInitializeSpinLock
                KeInitializeThreadedDpc
                KeInitializeTimer
                KeInitializeTimerEx
                KeInsertByKeyDeviceQueue
                KeInsertDeviceQueue
                KeInsertQueueDpc
                KeLeaveCriticalRegion
                KeLowerIrql
                KeQueryActiveGroupCount
                KeQueryActiveProcessorCount
                KeQueryActiveProcessorCountEx
                KeQueryActiveProcessors
                KeQueryGroupAffinity
                KeQueryHighestNodeNumber
                KeQueryInterruptTimePrecise
                KeQueryMaximumGroupCount
                KeQueryMaximumProcessorCount
                KeQueryMaximumProcessorCountEx
                KeQueryNodeActiveAffinity
                KeQueryNodeActiveAffinity2
                KeQueryNodeMaximumProcessorCount
                KeQueryPerformanceCounter
                KeQueryPriorityThread
                KeQuerySystemTimePrecise
                KeQueryTimeIncrement
                KeQueryUnbiasedInterruptTime
                KeReadStateEvent
                KeReadStateMutex
                KeReadStateSemaphore
                KeReadStateTimer
                KeRegisterBugCheckCallback
                KeRegisterBugCheckReasonCallback
                KeReleaseGuardedMutex
                KeReleaseInStackQueuedSpinLock
                KeReleaseInStackQueuedSpinLockFromDpcLevel
                KeReleaseMutex
                KeReleaseSemaphore
                KeReleaseSpinLock
                KeReleaseSpinLockFromDpcLevel
                KeRemoveByKeyDeviceQueue
                KeRemoveByKeyDeviceQueueIfBusy
                KeRemoveDeviceQueue
                KeRemoveEntryDeviceQueue
                KeRemoveQueueDpc
                KeResetEvent
                KeRevertToUserAffinityThread
                KeRevertToUserAffinityThreadEx
                KeRevertToUserGroupAffinityThread
                KeSetCoalescableTimer
                KeSetEvent
                KeSetImportanceDpc
                KeSetPriorityThread
                KeSetSystemAffinityThread
                KeSetSystemAffinityThreadEx
                KeSetSystemGroupAffinityThread
                KeSetTargetProcessorDpc
                KeSetTargetProcessorDpcEx
                KeSetTimer
                KeSetTimerEx
                KeShouldYieldProcessor
                KeStackAttachProcess
                KeStallExecutionProcessor
                KeTryToAcquireGuardedMutex
                KeTryToAcquireSpinLockAtDpcLevel
                KeUnstackDetachProcess
                KeWaitForMultipleObjects
                KeWaitForSingleObject
                KfRaiseIrql
                MmAllocateContiguousMemory
                MmAllocateContiguousMemorySpecifyCache
                MmAllocateContiguousMemorySpecifyCacheNode
                MmAllocateContiguousNodeMemory
                MmAllocateMdlForIoSpace
                MmAllocatePagesForMdl
                MmAllocatePagesForMdlEx
                MmBuildMdlForNonPagedPool
                MmCopyMemory
                MmFreeContiguousMemory
                MmFreeContiguousMemorySpecifyCache
                MmFreePagesFromMdl
                MmGetPhysicalAddress
                MmGetSystemRoutineAddress
                MmIsAddressValid
                MmIsDriverVerifying
                MmIsVerifierEnabled
                MmMapIoSpace
                MmMapIoSpaceEx
                MmMapLockedPagesSpecifyCache
                MmProbeAndLockPages
                MmUnlockPages
                MmUnmapIoSpace
                MmUnmapLockedPages
                ObCloseHandle
                ObDereferenceObjectDeferDelete
                ObGetFilterVersion
                ObReferenceObjectByHandle
                ObReferenceObjectByPointer
                ObRegisterCallbacks
                ObUnRegisterCallbacks
                ObfDereferenceObject
                ObfDereferenceObjectWithTag
                ObfReferenceObject
                ObfReferenceObjectWithTag
                PoCallDriver
                PoRequestPowerIrp
                PoSetPowerState
                PoStartNextPowerIrp
                ProbeForRead
                ProbeForWrite
                PsCreateSystemThread
                PsGetCurrentProcess
                PsGetCurrentProcessId
                PsGetCurrentThread
                PsGetCurrentThreadId
                PsGetProcessExitStatus
                PsGetProcessId
                PsGetThreadExitStatus
                PsGetThreadId
                PsGetThreadProcessId
                PsGetVersion
                PsIsSystemThread
                PsLookupProcessByProcessId
                PsLookupThreadByThreadId
                PsRemoveCreateThreadNotifyRoutine
                PsRemoveLoadImageNotifyRoutine
                PsSetCreateProcessNotifyRoutine
                PsSetCreateProcessNotifyRoutineEx
                PsSetCreateThreadNotifyRoutine
                PsSetLoadImageNotifyRoutine
                PsTerminateSystemThread
                RtlAnsiStringToUnicodeString
                RtlCheckRegistryKey
                RtlCopyUnicodeString
                RtlDeleteElementGenericTable
                RtlDeleteElementGenericTableAvl
                RtlDeleteRegistryValue
                RtlEnumerateGenericTable
                RtlEnumerateGenericTableAvl
                RtlEnumerateGenericTableWithoutSplaying
                RtlEnumerateGenericTableWithoutSplayingAvl
                RtlFreeAnsiString
                RtlFreeUnicodeString
                RtlGetElementGenericTable
                RtlGetElementGenericTableAvl
                RtlGetVersion
                RtlInitUnicodeString
                RtlInitializeGenericTable
                RtlInitializeGenericTableAvl
                RtlInsertElementGenericTable
                RtlInsertElementGenericTableAvl
                RtlIsGenericTableEmpty
                RtlIsGenericTableEmptyAvl
                RtlIsNtDdiVersionAvailable
                RtlLookupElementGenericTable
                RtlLookupElementGenericTableAvl
                RtlNumberGenericTableElements
                RtlNumberGenericTableElementsAvl
                RtlQueryRegistryValues
                RtlStringFromGUID
                RtlUnicodeStringToAnsiString
                RtlUpcaseUnicodeString
                RtlVerifyVersionInfo
                RtlWriteRegistryValue
                SeAccessCheck
                SeCaptureSubjectContext
                SeLockSubjectContext
                SeReleaseSubjectContext
                SeUnlockSubjectContext
                VerSetConditionMask
                WmiQueryTraceInformation
                WmiTraceMessage
                WmiTraceMessageVa
                ZwClose
                ZwCreateFile
                ZwCreateKey
                ZwDeleteFile
                ZwDeleteKey
                ZwDeleteValueKey
                ZwEnumerateKey
                ZwEnumerateValueKey
                ZwFlushBuffersFile
                ZwOpenFile
                ZwOpenKey
                ZwQueryDirectoryFile
                ZwQueryInformationFile
                ZwQueryKey
                ZwQueryValueKey
                ZwReadFile
                ZwSetInformationFile
                ZwSetValueKey
                ZwWaitForSingleObject
                ZwWriteFile
                ZwYieldExecution
                vDbgPrintEx
                vDbgPrintExWithPrefix
            }
            "ndis.sys" {
                NdisAcquireRWLockRead
                NdisAcquireRWLockWrite
                NdisAdvanceNetBufferDataStart
                NdisAdvanceNetBufferListDataStart
                NdisAllocateCloneOidRequest
                NdisAllocateGenericObject
                NdisAllocateIoWorkItem
                NdisAllocateMdl
                NdisAllocateMemoryWithTag
                NdisAllocateMemoryWithTagPriority
                NdisAllocateNetBufferAndNetBufferList
                NdisAllocateNetBufferListPool
                NdisAllocateRWLock
                NdisAllocateTimerObject
                NdisCancelSendNetBufferLists
                NdisCancelTimerObject
                NdisCloseAdapterEx
                NdisCloseConfiguration
                NdisCompleteBindAdapterEx
                NdisCompleteNetPnPEvent
                NdisCompleteUnbindAdapterEx
                NdisCopyFromNetBufferToNetBuffer
                NdisDeregisterDeviceEx
                NdisDeregisterProtocolDriver
                NdisFCancelDirectOidRequest
                NdisFCancelOidRequest
                NdisFCancelSendNetBufferLists
                NdisFDeregisterFilterDriver
                NdisFDevicePnPEventNotify
                NdisFDirectOidRequest
                NdisFDirectOidRequestComplete
                NdisFIndicateReceiveNetBufferLists
                NdisFIndicateStatus
                NdisFNetPnPEvent
                NdisFOidRequest
                NdisFOidRequestComplete
                NdisFPauseComplete
                NdisFRegisterFilterDriver
                NdisFRestartComplete
                NdisFRestartFilter
                NdisFReturnNetBufferLists
                NdisFSendNetBufferLists
                NdisFSendNetBufferListsComplete
                NdisFSetAttributes
                NdisFreeCloneOidRequest
                NdisFreeGenericObject
                NdisFreeIoWorkItem
                NdisFreeMdl
                NdisFreeMemory
                NdisFreeNetBufferList
                NdisFreeNetBufferListPool
                NdisFreeRWLock
                NdisFreeTimerObject
                NdisGeneratePartialCancelId
                NdisGetDataBuffer
                NdisGetDeviceReservedExtension
                NdisGetVersion
                NdisInitializeEvent
                NdisMDeregisterMiniportDriver
                NdisMDirectOidRequestComplete
                NdisMGetDeviceProperty
                NdisMIndicateReceiveNetBufferLists
                NdisMIndicateStatusEx
                NdisMNetPnPEvent
                NdisMOidRequestComplete
                NdisMPauseComplete
                NdisMRegisterMiniportDriver
                NdisMRemoveMiniport
                NdisMRestartComplete
                NdisMSendNetBufferListsComplete
                NdisMSetMiniportAttributes
                NdisMSleep
                NdisOidRequest
                NdisOpenAdapterEx
                NdisOpenConfigurationEx
                NdisQueryAdapterInstanceName
                NdisQueueIoWorkItem
                NdisReadConfiguration
                NdisReadNetworkAddress
                NdisRegisterDeviceEx
                NdisRegisterProtocolDriver
                NdisReleaseRWLock
                NdisResetEvent
                NdisRetreatNetBufferDataStart
                NdisRetreatNetBufferListDataStart
                NdisReturnNetBufferLists
                NdisSendNetBufferLists
                NdisSetCoalescableTimerObject
                NdisSetEvent
                NdisSetOptionalHandlers
                NdisSetTimerObject
                NdisWaitEvent
                NdisWriteConfiguration
            }
            "netio.sys" {
                CancelMibChangeNotify2
                ConvertInterfaceAliasToLuid
                ConvertInterfaceIndexToLuid
                ConvertInterfaceLuidToAlias
                ConvertInterfaceLuidToIndex
                FreeMibTable
                GetBestRoute2
                GetIfEntry2
                GetIfTable2
                GetUnicastIpAddressTable
                NotifyIpInterfaceChange
                NotifyUnicastIpAddressChange
                WskCaptureProviderNPI
                WskDeregister
                WskRegister
                WskReleaseProviderNPI
            }
            "wdfldr.sys" {
                WdfVersionBind
                WdfVersionUnbind
            }
        }
    };
}

macro_rules! names {
    ($($module:literal { $($name:ident)* })*) => {
        /// The routines of the simulated kernel: modules in small letters, and their names.
        pub const SIMULATED: &[(&str, &[&str])] = &[$(($module, &[$(stringify!($name)),*])),*];
    };
}

with_routines!(names);

/// Routines of the kernel that are plain functions, which touch nothing but their arguments.
///
/// The first name is the kernel's, the second one that of the same function in `ntdll.dll`, which the simulated kernel takes it from.
pub const LIBRARY: &[(&str, &str)] = &[
    ("DbgBreakPoint", "DbgBreakPoint"),
    ("ExRaiseStatus", "RtlRaiseStatus"),
    ("RtlAbsoluteToSelfRelativeSD", "RtlAbsoluteToSelfRelativeSD"),
    ("RtlAddAccessAllowedAce", "RtlAddAccessAllowedAce"),
    ("RtlAppendUnicodeStringToString", "RtlAppendUnicodeStringToString"),
    ("RtlAppendUnicodeToString", "RtlAppendUnicodeToString"),
    ("RtlAreBitsClear", "RtlAreBitsClear"),
    ("RtlAreBitsSet", "RtlAreBitsSet"),
    ("RtlCaptureContext", "RtlCaptureContext"),
    ("RtlCaptureStackBackTrace", "RtlCaptureStackBackTrace"),
    ("RtlCharToInteger", "RtlCharToInteger"),
    ("RtlClearAllBits", "RtlClearAllBits"),
    ("RtlClearBit", "RtlClearBit"),
    ("RtlClearBits", "RtlClearBits"),
    ("RtlCompareMemory", "RtlCompareMemory"),
    ("RtlCompareString", "RtlCompareString"),
    ("RtlCompareUnicodeString", "RtlCompareUnicodeString"),
    ("RtlComputeCrc32", "RtlComputeCrc32"),
    ("RtlCopySid", "RtlCopySid"),
    ("RtlCopyString", "RtlCopyString"),
    ("RtlCreateAcl", "RtlCreateAcl"),
    ("RtlCreateSecurityDescriptor", "RtlCreateSecurityDescriptor"),
    ("RtlDowncaseUnicodeChar", "RtlDowncaseUnicodeChar"),
    ("RtlEqualSid", "RtlEqualSid"),
    ("RtlEqualString", "RtlEqualString"),
    ("RtlEqualUnicodeString", "RtlEqualUnicodeString"),
    ("RtlFindClearBits", "RtlFindClearBits"),
    ("RtlFindClearBitsAndSet", "RtlFindClearBitsAndSet"),
    ("RtlFindSetBits", "RtlFindSetBits"),
    ("RtlGUIDFromString", "RtlGUIDFromString"),
    ("RtlGetDaclSecurityDescriptor", "RtlGetDaclSecurityDescriptor"),
    ("RtlGetGroupSecurityDescriptor", "RtlGetGroupSecurityDescriptor"),
    ("RtlGetOwnerSecurityDescriptor", "RtlGetOwnerSecurityDescriptor"),
    ("RtlGetSaclSecurityDescriptor", "RtlGetSaclSecurityDescriptor"),
    ("RtlHashUnicodeString", "RtlHashUnicodeString"),
    ("RtlInitAnsiString", "RtlInitAnsiString"),
    ("RtlInitString", "RtlInitString"),
    ("RtlInitUnicodeStringEx", "RtlInitUnicodeStringEx"),
    ("RtlInitializeBitMap", "RtlInitializeBitMap"),
    ("RtlInitializeSid", "RtlInitializeSid"),
    ("RtlInt64ToUnicodeString", "RtlInt64ToUnicodeString"),
    ("RtlIntegerToUnicodeString", "RtlIntegerToUnicodeString"),
    ("RtlIpv4AddressToStringA", "RtlIpv4AddressToStringA"),
    ("RtlIpv4AddressToStringExW", "RtlIpv4AddressToStringExW"),
    ("RtlIpv4AddressToStringW", "RtlIpv4AddressToStringW"),
    ("RtlIpv4StringToAddressA", "RtlIpv4StringToAddressA"),
    ("RtlIpv4StringToAddressExW", "RtlIpv4StringToAddressExW"),
    ("RtlIpv4StringToAddressW", "RtlIpv4StringToAddressW"),
    ("RtlIpv6AddressToStringA", "RtlIpv6AddressToStringA"),
    ("RtlIpv6AddressToStringExW", "RtlIpv6AddressToStringExW"),
    ("RtlIpv6AddressToStringW", "RtlIpv6AddressToStringW"),
    ("RtlIpv6StringToAddressA", "RtlIpv6StringToAddressA"),
    ("RtlIpv6StringToAddressExW", "RtlIpv6StringToAddressExW"),
    ("RtlIpv6StringToAddressW", "RtlIpv6StringToAddressW"),
    ("RtlLengthSecurityDescriptor", "RtlLengthSecurityDescriptor"),
    ("RtlLengthSid", "RtlLengthSid"),
    ("RtlLookupFunctionEntry", "RtlLookupFunctionEntry"),
    ("RtlMultiByteToUnicodeN", "RtlMultiByteToUnicodeN"),
    ("RtlNtStatusToDosError", "RtlNtStatusToDosError"),
    ("RtlNumberOfSetBits", "RtlNumberOfSetBits"),
    ("RtlPcToFileHeader", "RtlPcToFileHeader"),
    ("RtlPrefixUnicodeString", "RtlPrefixUnicodeString"),
    ("RtlRandomEx", "RtlRandomEx"),
    ("RtlRestoreContext", "RtlRestoreContext"),
    ("RtlSecondsSince1970ToTime", "RtlSecondsSince1970ToTime"),
    ("RtlSecondsSince1980ToTime", "RtlSecondsSince1980ToTime"),
    ("RtlSetAllBits", "RtlSetAllBits"),
    ("RtlSetBit", "RtlSetBit"),
    ("RtlSetBits", "RtlSetBits"),
    ("RtlSetDaclSecurityDescriptor", "RtlSetDaclSecurityDescriptor"),
    ("RtlSubAuthoritySid", "RtlSubAuthoritySid"),
    ("RtlTestBit", "RtlTestBit"),
    ("RtlTimeFieldsToTime", "RtlTimeFieldsToTime"),
    ("RtlTimeToSecondsSince1970", "RtlTimeToSecondsSince1970"),
    ("RtlTimeToSecondsSince1980", "RtlTimeToSecondsSince1980"),
    ("RtlTimeToTimeFields", "RtlTimeToTimeFields"),
    ("RtlUTF8ToUnicodeN", "RtlUTF8ToUnicodeN"),
    ("RtlUlonglongByteSwap", "RtlUlonglongByteSwap"),
    ("RtlUnicodeStringToInteger", "RtlUnicodeStringToInteger"),
    ("RtlUnicodeToMultiByteN", "RtlUnicodeToMultiByteN"),
    ("RtlUnicodeToUTF8N", "RtlUnicodeToUTF8N"),
    ("RtlUnwind", "RtlUnwind"),
    ("RtlUnwindEx", "RtlUnwindEx"),
    ("RtlUpcaseUnicodeChar", "RtlUpcaseUnicodeChar"),
    ("RtlUpperChar", "RtlUpperChar"),
    ("RtlValidSecurityDescriptor", "RtlValidSecurityDescriptor"),
    ("RtlValidSid", "RtlValidSid"),
    ("RtlVirtualUnwind", "RtlVirtualUnwind"),
    ("__C_specific_handler", "__C_specific_handler"),
    ("__chkstk", "__chkstk"),
    ("_local_unwind", "_local_unwind"),
    ("_setjmpex", "_setjmpex"),
    ("_snprintf", "_snprintf"),
    ("_snprintf_s", "_snprintf_s"),
    ("_snwprintf", "_snwprintf"),
    ("_snwprintf_s", "_snwprintf_s"),
    ("_stricmp", "_stricmp"),
    ("_strlwr", "_strlwr"),
    ("_strnicmp", "_strnicmp"),
    ("_strupr", "_strupr"),
    ("_vsnprintf", "_vsnprintf"),
    ("_vsnprintf_s", "_vsnprintf_s"),
    ("_vsnwprintf", "_vsnwprintf"),
    ("_vsnwprintf_s", "_vsnwprintf_s"),
    ("_wcsicmp", "_wcsicmp"),
    ("_wcslwr", "_wcslwr"),
    ("_wcsnicmp", "_wcsnicmp"),
    ("_wcsupr", "_wcsupr"),
    ("atoi", "atoi"),
    ("atol", "atol"),
    ("bsearch", "bsearch"),
    ("isdigit", "isdigit"),
    ("islower", "islower"),
    ("isprint", "isprint"),
    ("isspace", "isspace"),
    ("isupper", "isupper"),
    ("isxdigit", "isxdigit"),
    ("longjmp", "longjmp"),
    ("memchr", "memchr"),
    ("memcmp", "memcmp"),
    ("memcpy", "memcpy"),
    ("memcpy_s", "memcpy_s"),
    ("memmove", "memmove"),
    ("memmove_s", "memmove_s"),
    ("memset", "memset"),
    ("qsort", "qsort"),
    ("sprintf", "sprintf"),
    ("sprintf_s", "sprintf_s"),
    ("sscanf_s", "sscanf_s"),
    ("strcat", "strcat"),
    ("strcat_s", "strcat_s"),
    ("strchr", "strchr"),
    ("strcmp", "strcmp"),
    ("strcpy", "strcpy"),
    ("strcpy_s", "strcpy_s"),
    ("strlen", "strlen"),
    ("strncat", "strncat"),
    ("strncat_s", "strncat_s"),
    ("strncmp", "strncmp"),
    ("strncpy", "strncpy"),
    ("strncpy_s", "strncpy_s"),
    ("strnlen", "strnlen"),
    ("strrchr", "strrchr"),
    ("strspn", "strspn"),
    ("strstr", "strstr"),
    ("swprintf", "swprintf"),
    ("swprintf_s", "swprintf_s"),
    ("swscanf_s", "swscanf_s"),
    ("tolower", "tolower"),
    ("toupper", "toupper"),
    ("towlower", "towlower"),
    ("towupper", "towupper"),
    ("vsprintf", "vsprintf"),
    ("vsprintf_s", "vsprintf_s"),
    ("vswprintf_s", "vswprintf_s"),
    ("wcscat", "wcscat"),
    ("wcscat_s", "wcscat_s"),
    ("wcschr", "wcschr"),
    ("wcscmp", "wcscmp"),
    ("wcscpy", "wcscpy"),
    ("wcscpy_s", "wcscpy_s"),
    ("wcslen", "wcslen"),
    ("wcsncat", "wcsncat"),
    ("wcsncat_s", "wcsncat_s"),
    ("wcsncmp", "wcsncmp"),
    ("wcsncpy", "wcsncpy"),
    ("wcsncpy_s", "wcsncpy_s"),
    ("wcsnlen", "wcsnlen"),
    ("wcsrchr", "wcsrchr"),
    ("wcsspn", "wcsspn"),
    ("wcsstr", "wcsstr"),
    ("wcstoul", "wcstoul"),
];

/// Variables of the kernel.
pub const VARIABLES: &[&str] = &[
    "ExEventObjectType",
    "ExSemaphoreObjectType",
    "IoFileObjectType",
    "KdDebuggerEnabled",
    "KdDebuggerNotPresent",
    "MmHighestUserAddress",
    "NtBuildNumber",
    "PsInitialSystemProcess",
    "PsProcessType",
    "PsThreadType",
];

/// Modules that are other names of the kernel's.
const KERNEL: [&str; 4] = ["ntoskrnl.exe", "hal.dll", "ntkrnlmp.exe", "ntkrnlpa.exe"];

/// Returns true if two names are of one module. Forwarders name it without its extension.
#[must_use]
pub fn same_module(one: &str, other: &str) -> bool {
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_ascii_lowercase();
    stem(one) == stem(other)
}

/// Where an import leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// To a routine of the simulated kernel.
    Simulated,
    /// To a plain function, of this name in `ntdll.dll`.
    Library(&'static str),
    /// To a variable.
    Variable,
}

/// Looks an import up. `None` if nobody has it.
#[must_use]
pub fn find(wanted: &str, name: &str) -> Option<Found> {
    let is_kernel = KERNEL.iter().any(|name| same_module(name, wanted));
    let wanted = if is_kernel { KERNEL[0] } else { wanted };
    let (_, names) = SIMULATED.iter().find(|(module, _)| same_module(module, wanted))?;
    if names.contains(&name) {
        return Some(Found::Simulated);
    }
    if is_kernel && VARIABLES.contains(&name) {
        return Some(Found::Variable);
    }
    let library = LIBRARY.iter().find(|(one, _)| *one == name && is_kernel);
    library.map(|&(_, of)| Found::Library(of))
}
