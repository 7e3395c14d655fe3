/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a program sends to the sample consumer, and what it gets. Include ntddk.h and wsk.h first, or their user-mode counterparts. */
#ifndef CONSUMER_H
#define CONSUMER_H

#define CONSUMER_DEVICE_NAME L"\\Device\\NdkConsumer"
#define CONSUMER_LINK_NAME L"\\DosDevices\\NdkConsumer"

/* Input CONSUMER_RUN, output CONSUMER_RESULT. The run is over when the request is complete. */
#define IOCTL_CONSUMER_RUN CTL_CODE(FILE_DEVICE_UNKNOWN, 0x800, METHOD_BUFFERED, FILE_READ_DATA | FILE_WRITE_DATA)

/* The passive side listens, the active side connects. They may be two adapters or the same one. */
typedef struct _CONSUMER_RUN {
    ULONG PassiveIfIndex; /* index of the network interface */
    ULONG ActiveIfIndex;
    SOCKADDR_INET PassiveAddress; /* with a port */
    SOCKADDR_INET ActiveAddress;  /* port 0: the provider chooses */
    ULONG Rounds;                 /* a send, a write and a read each */
} CONSUMER_RUN;

typedef struct _CONSUMER_RESULT {
    ULONG Rounds;        /* that were made */
    ULONG Notifications; /* of the two completion queues */
    ULONGLONG Bytes;     /* that arrived and were as they had been sent */
} CONSUMER_RESULT;

#endif
