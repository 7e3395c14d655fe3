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

/* Input CONSUMER_PING, output CONSUMER_RESULT. The pings are over when the request is complete. */
#define IOCTL_CONSUMER_PING CTL_CODE(FILE_DEVICE_UNKNOWN, 0x801, METHOD_BUFFERED, FILE_READ_DATA | FILE_WRITE_DATA)

/* The other side is on another machine, and speaks as rping of Linux' librdmacm does. */
typedef struct _CONSUMER_PING {
    ULONG IfIndex;         /* index of the network interface */
    ULONG Serves;          /* 0: connects and pings; 1: waits for a connection and answers */
    SOCKADDR_INET Address; /* of this side: with the port where it listens, or 0 */
    SOCKADDR_INET Peer;    /* with its port; not looked at by one that serves */
    ULONG Size;            /* bytes of a ping, up to CONSUMER_PING_MOST: both sides have to agree */
    ULONG Count;           /* how many pings */
    ULONG Seconds;         /* how long a peer is waited for that is not there yet */
} CONSUMER_PING;

#define CONSUMER_PING_MOST 65536

typedef struct _CONSUMER_RESULT {
    ULONG Rounds;        /* that were made, or pings */
    ULONG Notifications; /* of the completion queues */
    ULONGLONG Bytes;     /* that arrived and were as they had been sent */
} CONSUMER_RESULT;

#endif
