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
                ExInterlockedPopEntryList
                ExInterlockedPushEntryList
                ExInterlockedRemoveHeadList
                ExIsResourceAcquiredExclusiveLite
                ExIsResourceAcquiredSharedLite
                ExLocalTimeToSystemTime
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
                ExSystemTimeToLocalTime
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
                IoCreateNotificationEvent
                IoCreateSymbolicLink
                IoCreateSynchronizationEvent
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
                IoGetAttachedDevice
                IoGetAttachedDeviceReference
                IoGetCurrentProcess
                IoGetDeviceInterfaces
                IoGetDeviceObjectPointer
                IoGetDeviceProperty
                IoGetDriverObjectExtension
                IoGetFileObjectGenericMapping
                IoGetInitialStack
                IoGetRelatedDeviceObject
                IoGetRequestorProcess
                IoGetRequestorProcessId
                IoGetStackLimits
                IoInitializeRemoveLockEx
                IoInitializeTimer
                IoInitializeWorkItem
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
                IoSetCompletionRoutineEx
                IoSetDeviceInterfaceState
                IoSetStartIoAttributes
                IoSizeofWorkItem
                IoStartNextPacket
                IoStartNextPacketByKey
                IoStartPacket
                IoStartTimer
                IoStopTimer
                IoThreadToProcess
                IoTryQueueWorkItem
                IoUninitializeWorkItem
                IoUnregisterPlugPlayNotification
                IoUnregisterPlugPlayNotificationEx
                IoUnregisterShutdownNotification
                IoValidateDeviceIoControlAccess
                IoWMIDeviceObjectToProviderId
                IoWMIOpenBlock
                IoWMIRegistrationControl
                IoWMISetNotificationCallback
                IoWithinStackLimits
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
                KeDeregisterProcessorChangeCallback
                KeEnterCriticalRegion
                KeEnterGuardedRegion
                KeExpandKernelStackAndCallout
                KeExpandKernelStackAndCalloutEx
                KeFlushQueuedDpcs
                KeGetCurrentNodeNumber
                KeGetCurrentProcessorNumberEx
                KeGetCurrentThread
                KeGetProcessorIndexFromNumber
                KeGetProcessorNumberFromIndex
                KeGetRecommendedSharedDataAlignment
                KeInitializeDeviceQueue
                KeInitializeDpc
                KeInitializeEvent
                KeInitializeGuardedMutex
                KeInitializeMutex
                KeInitializeQueue
                KeInitializeSemaphore
                KeInitializeSpinLock
                KeInitializeThreadedDpc
                KeInitializeTimer
                KeInitializeTimerEx
                KeInsertByKeyDeviceQueue
                KeInsertDeviceQueue
                KeInsertHeadQueue
                KeInsertQueue
                KeInsertQueueDpc
                KeLeaveCriticalRegion
                KeLeaveGuardedRegion
                KeLowerIrql
                KePulseEvent
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
                KeReadStateQueue
                KeReadStateSemaphore
                KeReadStateTimer
                KeRegisterBugCheckCallback
                KeRegisterBugCheckReasonCallback
                KeRegisterProcessorChangeCallback
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
                KeRemoveQueue
                KeRemoveQueueDpc
                KeResetEvent
                KeRestoreExtendedProcessorState
                KeRevertToUserAffinityThread
                KeRevertToUserAffinityThreadEx
                KeRevertToUserGroupAffinityThread
                KeRundownQueue
                KeSaveExtendedProcessorState
                KeSetBasePriorityThread
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
                MmLockPagableDataSection
                MmLockPagableSectionByHandle
                MmMapIoSpace
                MmMapIoSpaceEx
                MmMapLockedPagesSpecifyCache
                MmPageEntireDriver
                MmProbeAndLockPages
                MmQuerySystemSize
                MmResetDriverPaging
                MmSizeOfMdl
                MmUnlockPagableImageSection
                MmUnlockPages
                MmUnmapIoSpace
                MmUnmapLockedPages
                ObCloseHandle
                ObDereferenceObjectDeferDelete
                ObGetFilterVersion
                ObReferenceObjectByHandle
                ObReferenceObjectByHandleWithTag
                ObReferenceObjectByPointer
                ObReferenceObjectByPointerWithTag
                ObReferenceObjectSafe
                ObRegisterCallbacks
                ObUnRegisterCallbacks
                ObfDereferenceObject
                ObfDereferenceObjectWithTag
                ObfReferenceObject
                ObfReferenceObjectWithTag
                PoCallDriver
                PoRegisterPowerSettingCallback
                PoRequestPowerIrp
                PoSetPowerState
                PoStartNextPowerIrp
                PoUnregisterPowerSettingCallback
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
                PsGetThreadProcess
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
                RtlClearBit
                RtlCopyUnicodeString
                RtlDeleteElementGenericTable
                RtlDeleteElementGenericTableAvl
                RtlDeleteRegistryValue
                RtlDowncaseUnicodeString
                RtlDuplicateUnicodeString
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
                RtlRandom
                RtlRandomEx
                RtlRunOnceBeginInitialize
                RtlRunOnceComplete
                RtlRunOnceExecuteOnce
                RtlRunOnceInitialize
                RtlSetBit
                RtlStringFromGUID
                RtlTestBit
                RtlUnicodeStringToAnsiString
                RtlUpcaseUnicodeString
                RtlVerifyVersionInfo
                RtlWriteRegistryValue
                SeAccessCheck
                SeCaptureSubjectContext
                SeLockSubjectContext
                SeReleaseSubjectContext
                SeSinglePrivilegeCheck
                SeUnlockSubjectContext
                VerSetConditionMask
                WmiQueryTraceInformation
                WmiTraceMessage
                WmiTraceMessageVa
                ZwClose
                ZwCreateEvent
                ZwCreateFile
                ZwCreateKey
                ZwDeleteFile
                ZwDeleteKey
                ZwDeleteValueKey
                ZwEnumerateKey
                ZwEnumerateValueKey
                ZwFlushBuffersFile
                ZwOpenEvent
                ZwOpenFile
                ZwOpenKey
                ZwQueryDirectoryFile
                ZwQueryInformationFile
                ZwQueryKey
                ZwQueryValueKey
                ZwReadFile
                ZwSetEvent
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
                NdisAllocateCloneNetBufferList
                NdisAllocateCloneOidRequest
                NdisAllocateGenericObject
                NdisAllocateIoWorkItem
                NdisAllocateMdl
                NdisAllocateMemoryWithTag
                NdisAllocateMemoryWithTagPriority
                NdisAllocateNetBuffer
                NdisAllocateNetBufferAndNetBufferList
                NdisAllocateNetBufferList
                NdisAllocateNetBufferListContext
                NdisAllocateNetBufferListPool
                NdisAllocateNetBufferPool
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
                NdisCurrentGroupAndProcessor
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
                NdisFreeCloneNetBufferList
                NdisFreeCloneOidRequest
                NdisFreeGenericObject
                NdisFreeIoWorkItem
                NdisFreeMdl
                NdisFreeMemory
                NdisFreeMemoryWithTag
                NdisFreeMemoryWithTagPriority
                NdisFreeNetBuffer
                NdisFreeNetBufferList
                NdisFreeNetBufferListContext
                NdisFreeNetBufferListPool
                NdisFreeNetBufferPool
                NdisFreeRWLock
                NdisFreeTimerObject
                NdisGeneratePartialCancelId
                NdisGetDataBuffer
                NdisGetDeviceReservedExtension
                NdisGetSystemUpTimeEx
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
                NdisMaxGroupCount
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
                NdisSystemActiveProcessorCount
                NdisSystemProcessorCount
                NdisWaitEvent
                NdisWriteConfiguration
            }
            "netio.sys" {
                CancelMibChangeNotify2
                ConvertInterfaceAliasToLuid
                ConvertInterfaceGuidToLuid
                ConvertInterfaceIndexToLuid
                ConvertInterfaceLuidToAlias
                ConvertInterfaceLuidToGuid
                ConvertInterfaceLuidToIndex
                ConvertIpv4MaskToLength
                ConvertLengthToIpv4Mask
                FreeMibTable
                GetBestRoute2
                GetIfEntry2
                GetIfEntry2Ex
                GetIfTable2
                GetIfTable2Ex
                GetIpForwardTable2
                GetIpInterfaceEntry
                GetUnicastIpAddressEntry
                GetUnicastIpAddressTable
                InitializeIpInterfaceEntry
                InitializeUnicastIpAddressEntry
                NotifyIpInterfaceChange
                NotifyRouteChange2
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
/// The first name is the kernel's, the second one that of the same function in `ntdll.dll` or, if that has none, in `msvcrt.dll`: the
/// simulated kernel takes it from there.
pub const LIBRARY: &[(&str, &str)] = &[
    ("DbgBreakPoint", "DbgBreakPoint"),
    ("ExRaiseStatus", "RtlRaiseStatus"),
    ("RtlAbsoluteToSelfRelativeSD", "RtlAbsoluteToSelfRelativeSD"),
    ("RtlAddAccessAllowedAce", "RtlAddAccessAllowedAce"),
    ("RtlAddAccessAllowedAceEx", "RtlAddAccessAllowedAceEx"),
    ("RtlAddAce", "RtlAddAce"),
    ("RtlAnsiCharToUnicodeChar", "RtlAnsiCharToUnicodeChar"),
    ("RtlAppendStringToString", "RtlAppendStringToString"),
    ("RtlAppendUnicodeStringToString", "RtlAppendUnicodeStringToString"),
    ("RtlAppendUnicodeToString", "RtlAppendUnicodeToString"),
    ("RtlAreBitsClear", "RtlAreBitsClear"),
    ("RtlAreBitsSet", "RtlAreBitsSet"),
    ("RtlCaptureContext", "RtlCaptureContext"),
    ("RtlCaptureStackBackTrace", "RtlCaptureStackBackTrace"),
    ("RtlCharToInteger", "RtlCharToInteger"),
    ("RtlClearAllBits", "RtlClearAllBits"),
    ("RtlClearBits", "RtlClearBits"),
    ("RtlCompareMemory", "RtlCompareMemory"),
    ("RtlCompareMemoryUlong", "RtlCompareMemoryUlong"),
    ("RtlCompareString", "RtlCompareString"),
    ("RtlCompareUnicodeString", "RtlCompareUnicodeString"),
    ("RtlCompareUnicodeStrings", "RtlCompareUnicodeStrings"),
    ("RtlCompressBuffer", "RtlCompressBuffer"),
    ("RtlComputeCrc32", "RtlComputeCrc32"),
    ("RtlCopyLuid", "RtlCopyLuid"),
    ("RtlCopyMemory", "RtlCopyMemory"),
    ("RtlCopySid", "RtlCopySid"),
    ("RtlCopyString", "RtlCopyString"),
    ("RtlCreateAcl", "RtlCreateAcl"),
    ("RtlCreateSecurityDescriptor", "RtlCreateSecurityDescriptor"),
    ("RtlDecompressBuffer", "RtlDecompressBuffer"),
    ("RtlDeleteAce", "RtlDeleteAce"),
    ("RtlDowncaseUnicodeChar", "RtlDowncaseUnicodeChar"),
    ("RtlEqualSid", "RtlEqualSid"),
    ("RtlEqualString", "RtlEqualString"),
    ("RtlEqualUnicodeString", "RtlEqualUnicodeString"),
    ("RtlFillMemory", "RtlFillMemory"),
    ("RtlFindClearBits", "RtlFindClearBits"),
    ("RtlFindClearBitsAndSet", "RtlFindClearBitsAndSet"),
    ("RtlFindClearRuns", "RtlFindClearRuns"),
    ("RtlFindLastBackwardRunClear", "RtlFindLastBackwardRunClear"),
    ("RtlFindLeastSignificantBit", "RtlFindLeastSignificantBit"),
    ("RtlFindLongestRunClear", "RtlFindLongestRunClear"),
    ("RtlFindMostSignificantBit", "RtlFindMostSignificantBit"),
    ("RtlFindNextForwardRunClear", "RtlFindNextForwardRunClear"),
    ("RtlFindSetBits", "RtlFindSetBits"),
    ("RtlFindSetBitsAndClear", "RtlFindSetBitsAndClear"),
    ("RtlGUIDFromString", "RtlGUIDFromString"),
    ("RtlGetAce", "RtlGetAce"),
    ("RtlGetDaclSecurityDescriptor", "RtlGetDaclSecurityDescriptor"),
    ("RtlGetGroupSecurityDescriptor", "RtlGetGroupSecurityDescriptor"),
    ("RtlGetOwnerSecurityDescriptor", "RtlGetOwnerSecurityDescriptor"),
    ("RtlGetSaclSecurityDescriptor", "RtlGetSaclSecurityDescriptor"),
    ("RtlHashUnicodeString", "RtlHashUnicodeString"),
    ("RtlInitAnsiString", "RtlInitAnsiString"),
    ("RtlInitAnsiStringEx", "RtlInitAnsiStringEx"),
    ("RtlInitString", "RtlInitString"),
    ("RtlInitUnicodeStringEx", "RtlInitUnicodeStringEx"),
    ("RtlInitializeBitMap", "RtlInitializeBitMap"),
    ("RtlInitializeSid", "RtlInitializeSid"),
    ("RtlInt64ToUnicodeString", "RtlInt64ToUnicodeString"),
    ("RtlIntegerToUnicodeString", "RtlIntegerToUnicodeString"),
    ("RtlIpv4AddressToStringA", "RtlIpv4AddressToStringA"),
    ("RtlIpv4AddressToStringExA", "RtlIpv4AddressToStringExA"),
    ("RtlIpv4AddressToStringExW", "RtlIpv4AddressToStringExW"),
    ("RtlIpv4AddressToStringW", "RtlIpv4AddressToStringW"),
    ("RtlIpv4StringToAddressA", "RtlIpv4StringToAddressA"),
    ("RtlIpv4StringToAddressExA", "RtlIpv4StringToAddressExA"),
    ("RtlIpv4StringToAddressExW", "RtlIpv4StringToAddressExW"),
    ("RtlIpv4StringToAddressW", "RtlIpv4StringToAddressW"),
    ("RtlIpv6AddressToStringA", "RtlIpv6AddressToStringA"),
    ("RtlIpv6AddressToStringExA", "RtlIpv6AddressToStringExA"),
    ("RtlIpv6AddressToStringExW", "RtlIpv6AddressToStringExW"),
    ("RtlIpv6AddressToStringW", "RtlIpv6AddressToStringW"),
    ("RtlIpv6StringToAddressA", "RtlIpv6StringToAddressA"),
    ("RtlIpv6StringToAddressExA", "RtlIpv6StringToAddressExA"),
    ("RtlIpv6StringToAddressExW", "RtlIpv6StringToAddressExW"),
    ("RtlIpv6StringToAddressW", "RtlIpv6StringToAddressW"),
    ("RtlLengthRequiredSid", "RtlLengthRequiredSid"),
    ("RtlLengthSecurityDescriptor", "RtlLengthSecurityDescriptor"),
    ("RtlLengthSid", "RtlLengthSid"),
    ("RtlLookupFunctionEntry", "RtlLookupFunctionEntry"),
    ("RtlMapGenericMask", "RtlMapGenericMask"),
    ("RtlMoveMemory", "RtlMoveMemory"),
    ("RtlMultiByteToUnicodeN", "RtlMultiByteToUnicodeN"),
    ("RtlMultiByteToUnicodeSize", "RtlMultiByteToUnicodeSize"),
    ("RtlNtStatusToDosError", "RtlNtStatusToDosError"),
    ("RtlNumberOfClearBits", "RtlNumberOfClearBits"),
    ("RtlNumberOfSetBits", "RtlNumberOfSetBits"),
    ("RtlPcToFileHeader", "RtlPcToFileHeader"),
    ("RtlPrefixString", "RtlPrefixString"),
    ("RtlPrefixUnicodeString", "RtlPrefixUnicodeString"),
    ("RtlRestoreContext", "RtlRestoreContext"),
    ("RtlSecondsSince1970ToTime", "RtlSecondsSince1970ToTime"),
    ("RtlSecondsSince1980ToTime", "RtlSecondsSince1980ToTime"),
    ("RtlSelfRelativeToAbsoluteSD", "RtlSelfRelativeToAbsoluteSD"),
    ("RtlSetAllBits", "RtlSetAllBits"),
    ("RtlSetBits", "RtlSetBits"),
    ("RtlSetDaclSecurityDescriptor", "RtlSetDaclSecurityDescriptor"),
    ("RtlSetGroupSecurityDescriptor", "RtlSetGroupSecurityDescriptor"),
    ("RtlSetOwnerSecurityDescriptor", "RtlSetOwnerSecurityDescriptor"),
    ("RtlSetSaclSecurityDescriptor", "RtlSetSaclSecurityDescriptor"),
    ("RtlSubAuthorityCountSid", "RtlSubAuthorityCountSid"),
    ("RtlSubAuthoritySid", "RtlSubAuthoritySid"),
    ("RtlTimeFieldsToTime", "RtlTimeFieldsToTime"),
    ("RtlTimeToSecondsSince1970", "RtlTimeToSecondsSince1970"),
    ("RtlTimeToSecondsSince1980", "RtlTimeToSecondsSince1980"),
    ("RtlTimeToTimeFields", "RtlTimeToTimeFields"),
    ("RtlUTF8ToUnicodeN", "RtlUTF8ToUnicodeN"),
    ("RtlUnicodeStringToInteger", "RtlUnicodeStringToInteger"),
    ("RtlUnicodeToMultiByteN", "RtlUnicodeToMultiByteN"),
    ("RtlUnicodeToMultiByteSize", "RtlUnicodeToMultiByteSize"),
    ("RtlUnicodeToUTF8N", "RtlUnicodeToUTF8N"),
    ("RtlUnwind", "RtlUnwind"),
    ("RtlUnwindEx", "RtlUnwindEx"),
    ("RtlUpcaseUnicodeChar", "RtlUpcaseUnicodeChar"),
    ("RtlUpcaseUnicodeToMultiByteN", "RtlUpcaseUnicodeToMultiByteN"),
    ("RtlUpperChar", "RtlUpperChar"),
    ("RtlUpperString", "RtlUpperString"),
    ("RtlValidRelativeSecurityDescriptor", "RtlValidRelativeSecurityDescriptor"),
    ("RtlValidSecurityDescriptor", "RtlValidSecurityDescriptor"),
    ("RtlValidSid", "RtlValidSid"),
    ("RtlVirtualUnwind", "RtlVirtualUnwind"),
    ("RtlZeroMemory", "RtlZeroMemory"),
    ("RtlxAnsiStringToUnicodeSize", "RtlxAnsiStringToUnicodeSize"),
    ("RtlxUnicodeStringToAnsiSize", "RtlxUnicodeStringToAnsiSize"),
    ("__C_specific_handler", "__C_specific_handler"),
    ("__chkstk", "__chkstk"),
    ("_i64toa_s", "_i64toa_s"),
    ("_i64tow_s", "_i64tow_s"),
    ("_itoa", "_itoa"),
    ("_itoa_s", "_itoa_s"),
    ("_itow", "_itow"),
    ("_itow_s", "_itow_s"),
    ("_local_unwind", "_local_unwind"),
    ("_ltoa_s", "_ltoa_s"),
    ("_ltow_s", "_ltow_s"),
    ("_makepath_s", "_makepath_s"),
    ("_setjmpex", "_setjmpex"),
    ("_snprintf", "_snprintf"),
    ("_snprintf_s", "_snprintf_s"),
    ("_snwprintf", "_snwprintf"),
    ("_snwprintf_s", "_snwprintf_s"),
    ("_splitpath_s", "_splitpath_s"),
    ("_stricmp", "_stricmp"),
    ("_strlwr", "_strlwr"),
    ("_strlwr_s", "_strlwr_s"),
    ("_strnicmp", "_strnicmp"),
    ("_strnset", "_strnset"),
    ("_strnset_s", "_strnset_s"),
    ("_strrev", "_strrev"),
    ("_strset", "_strset"),
    ("_strupr", "_strupr"),
    ("_strupr_s", "_strupr_s"),
    ("_swprintf", "_swprintf"),
    ("_ui64toa_s", "_ui64toa_s"),
    ("_ui64tow_s", "_ui64tow_s"),
    ("_ultoa_s", "_ultoa_s"),
    ("_ultow_s", "_ultow_s"),
    ("_vsnprintf", "_vsnprintf"),
    ("_vsnprintf_s", "_vsnprintf_s"),
    ("_vsnwprintf", "_vsnwprintf"),
    ("_vsnwprintf_s", "_vsnwprintf_s"),
    ("_wcsicmp", "_wcsicmp"),
    ("_wcslwr", "_wcslwr"),
    ("_wcslwr_s", "_wcslwr_s"),
    ("_wcsnicmp", "_wcsnicmp"),
    ("_wcsnset", "_wcsnset"),
    ("_wcsrev", "_wcsrev"),
    ("_wcsupr", "_wcsupr"),
    ("_wcsupr_s", "_wcsupr_s"),
    ("_wmakepath_s", "_wmakepath_s"),
    ("_wsplitpath_s", "_wsplitpath_s"),
    ("_wtoi", "_wtoi"),
    ("_wtol", "_wtol"),
    ("atoi", "atoi"),
    ("atol", "atol"),
    ("bsearch", "bsearch"),
    ("isalnum", "isalnum"),
    ("isalpha", "isalpha"),
    ("iscntrl", "iscntrl"),
    ("isdigit", "isdigit"),
    ("isgraph", "isgraph"),
    ("islower", "islower"),
    ("isprint", "isprint"),
    ("ispunct", "ispunct"),
    ("isspace", "isspace"),
    ("isupper", "isupper"),
    ("iswctype", "iswctype"),
    ("isxdigit", "isxdigit"),
    ("longjmp", "longjmp"),
    ("mbstowcs", "mbstowcs"),
    ("mbtowc", "mbtowc"),
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
    ("strcspn", "strcspn"),
    ("strlen", "strlen"),
    ("strncat", "strncat"),
    ("strncat_s", "strncat_s"),
    ("strncmp", "strncmp"),
    ("strncpy", "strncpy"),
    ("strncpy_s", "strncpy_s"),
    ("strnlen", "strnlen"),
    ("strpbrk", "strpbrk"),
    ("strrchr", "strrchr"),
    ("strspn", "strspn"),
    ("strstr", "strstr"),
    ("strtok_s", "strtok_s"),
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
    ("wcscspn", "wcscspn"),
    ("wcslen", "wcslen"),
    ("wcsncat", "wcsncat"),
    ("wcsncat_s", "wcsncat_s"),
    ("wcsncmp", "wcsncmp"),
    ("wcsncpy", "wcsncpy"),
    ("wcsncpy_s", "wcsncpy_s"),
    ("wcsnlen", "wcsnlen"),
    ("wcspbrk", "wcspbrk"),
    ("wcsrchr", "wcsrchr"),
    ("wcsspn", "wcsspn"),
    ("wcsstr", "wcsstr"),
    ("wcstok_s", "wcstok_s"),
    ("wcstombs", "wcstombs"),
    ("wcstoul", "wcstoul"),
    ("wctomb", "wctomb"),
];

/// Variables of the kernel.
pub const VARIABLES: &[&str] = &[
    "ExEventObjectType",
    "ExSemaphoreObjectType",
    "IoFileObjectType",
    "KdDebuggerEnabled",
    "KdDebuggerNotPresent",
    "MmHighestUserAddress",
    "MmUserProbeAddress",
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
    /// To a plain function, of this name in `ntdll.dll` or `msvcrt.dll`.
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
