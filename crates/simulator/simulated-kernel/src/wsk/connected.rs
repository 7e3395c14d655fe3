//! The functions of a socket that is connected, or will be.

use ndis::{CMSGHDR, IRP, WSK_BUF, WSK_PROVIDER_BASIC_DISPATCH, WSK_PROVIDER_CONNECTION_DISPATCH, WSK_SOCKET};
use ndkpi::NtStatus;

use super::{address, close, connect, control, stream_receive, stream_send};

/// The table of later kits: two functions more than that of the kit whose headers `ndis` repeats.
#[repr(C)]
pub struct Functions {
    of_kit: WSK_PROVIDER_CONNECTION_DISPATCH,
    send_ex: unsafe extern "system" fn(*mut WSK_SOCKET, *mut WSK_BUF, u32, u32, *mut CMSGHDR, *mut IRP) -> NtStatus,
    receive_ex: unsafe extern "system" fn(
        *mut WSK_SOCKET,
        *mut WSK_BUF,
        u32,
        *mut u32,
        *mut CMSGHDR,
        *mut u32,
        *mut IRP,
    ) -> NtStatus,
}

pub static FUNCTIONS: Functions = Functions {
    of_kit: WSK_PROVIDER_CONNECTION_DISPATCH {
        Basic: WSK_PROVIDER_BASIC_DISPATCH {
            WskControlSocket: Some(control::control_socket),
            WskCloseSocket: Some(close::close_socket),
        },
        WskBind: Some(address::bind_connection),
        WskConnect: Some(connect::connect),
        WskGetLocalAddress: Some(address::get_local_address),
        WskGetRemoteAddress: Some(address::get_remote_address),
        WskSend: Some(stream_send::send),
        WskReceive: Some(stream_receive::receive),
        WskDisconnect: Some(stream_send::disconnect),
        WskRelease: Some(stream_receive::release),
        WskConnectEx: Some(connect::connect_ex),
    },
    send_ex: stream_send::send_ex,
    receive_ex: stream_receive::receive_ex,
};
