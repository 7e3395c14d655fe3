//! Findings about connections: who commits them, and who comes close.

use std::ptr;

use interpose::adviser::Finding;
use ndkpi::*;

use crate::{
    consumer::{World, ndk},
    rows::{Found, Row, near},
};

fn connector_with_data(length: usize) -> Found {
    let world = World::new();
    let (pd, cq) = (world.pd(), world.cq(8));
    let (qp, connector) = (world.qp(pd, cq, 4, 1), world.connector());
    let (local, data) = (world.address(0), vec![7_u8; length]);
    // Nobody listens there: the connect ends with a refusal.
    let remote = world.address(9);
    let status = world.request(|completion, context| {
        ndk!(
            connector,
            NdkConnect(
                qp,
                local.as_ptr(),
                local.length(),
                remote.as_ptr(),
                remote.length(),
                1,
                1,
                data.as_ptr().cast(),
                u32::try_from(length).expect("small"),
                completion,
                context
            )
        )
    });
    assert!(!status.is_success());
    world.close(connector);
    world.close(qp);
    world.close(cq);
    world.close(pd);
    world.end()
}

fn connection_data(buffer: bool, length: u32) -> Found {
    near(|_, pair| {
        let (mut data, mut length) = ([0_u8; 600], length);
        let buffer = if buffer { data.as_mut_ptr().cast() } else { ptr::null_mut() };
        let _ =
            ndk!(pair.connectors[0], NdkGetConnectionData(ptr::null_mut(), ptr::null_mut(), buffer, &raw mut length));
    })
}

fn disconnect(waits: bool) -> Found {
    near(|world, pair| {
        assert!(pair.receive(1, 64).is_success());
        assert!(pair.send(2, 64, 0).is_success());
        if waits {
            world.completions(pair.cq, 2);
        }
        let status = world.request(|completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        if !waits {
            World::drain(pair.cq);
        }
    })
}

/// Three messages, the last of which has a receive before it is sent or after.
fn message_without_receive(is_late: bool) -> Found {
    near(|world, pair| {
        let receive = |context| assert!(pair.receive(context, 64).is_success());
        let send = |context| assert!(pair.send(context, 64, 0).is_success());
        receive(1);
        receive(2);
        send(3);
        send(4);
        if is_late {
            send(5);
            receive(6);
        } else {
            receive(6);
            send(5);
        }
        world.completions(pair.cq, 6);
    })
}

pub const ROWS: &[Row] = &[
    Row {
        finding: Finding::Length,
        commits: || connection_data(false, 0xCCCC_CCCC),
        near: || connection_data(true, 600),
    },
    Row { finding: Finding::PrivateData, commits: || connector_with_data(513), near: || connector_with_data(56) },
    Row { finding: Finding::PrivateDataRoce, commits: || connector_with_data(57), near: || connector_with_data(56) },
    Row {
        finding: Finding::ConnectionOrder,
        commits: || {
            near(|world, pair| {
                world.try_request(|completion, context| {
                    ndk!(pair.connectors[0], NdkCompleteConnect(None, ptr::null_mut(), completion, context))
                });
            })
        },
        near: || near(|_, _| {}),
    },
    Row {
        finding: Finding::QpReused,
        commits: || {
            near(|world, pair| {
                let disconnect = |completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context));
                assert_eq!(world.request(disconnect), NtStatus::SUCCESS);
                let (connector, local, remote) = (world.connector(), world.address(0), world.address(9));
                world.try_request(|completion, context| {
                    ndk!(
                        connector,
                        NdkConnect(
                            pair.qps[0],
                            local.as_ptr(),
                            local.length(),
                            remote.as_ptr(),
                            remote.length(),
                            1,
                            1,
                            ptr::null(),
                            0,
                            completion,
                            context
                        )
                    )
                });
                world.close(connector);
            })
        },
        near: || connector_with_data(0),
    },
    Row { finding: Finding::DisconnectInFlight, commits: || disconnect(false), near: || disconnect(true) },
    Row {
        finding: Finding::LateReceive,
        commits: || message_without_receive(true),
        near: || message_without_receive(false),
    },
];
